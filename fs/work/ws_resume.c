/* Going on behind the mount of a server that died: what it had answered, what the kernel still
 * holds, and what it must still be told. */
#include "fs/work/changed_log.h"
#include "fs/work/ws_impl.h"

#include <fcntl.h>
#include <sys/stat.h>

/* ---- what was answered ---- */

int ws_ours_room(struct ws *ws)
{
	if (!ws->ours)
		ws->ours = calloc(WS_OURS, sizeof(*ws->ours));
	return ws->ours ? 0 : -ENOMEM;
}

void ws_ours_done(struct ws *ws, uint64_t tag)
{
	ws->ours[ws->ours_at++ % WS_OURS] = tag;
}

static bool is_ours(const struct ws *ws, uint64_t tag)
{
	unsigned i = 0;
	while (ws->ours && i < WS_OURS && ws->ours[i] != tag)
		i++;
	return ws->ours && i < WS_OURS;
}

int ws_answered(struct ws *ws, uint64_t tag, uint64_t *node)
{
	uint64_t ino = 0;
	struct attr a;
	int r = 0;
	ws_enter(ws);
	meta_read(ws);
	/* A fork or a save may have sealed the layer between the change and its answer. */
	for (uint32_t i = 0; i < own_layers(ws) && r == 0; i++)
		r = layer_tag(ws->view.layers[i], tag, &ino);
	if (r == 0 && (tag & WS_TAG_OURS) && is_ours(ws, tag)) {
		r = 1;
		*node = 0;
	} else if (r > 0) {
		int v = view_inode(&ws->view, ino, &a);
		if (v == 0)
			*node = node_of(&a);
		else if (v == -ENOENT)
			*node = 0;
		else
			r = v;
	}
	meta_done(ws);
	ws_leave(ws);
	return r;
}

int ws_again(struct ws *ws, uint64_t node, struct entry *out)
{
	struct attr a;
	ws_enter(ws);
	meta_read(ws);
	int r = ws_get(ws, node, &a);
	if (r == 0)
		r = node_ref(ws, &a);
	if (r == 0)
		*out = (struct entry){ .node = node_of(&a), .attr = a };
	meta_done(ws);
	ws_leave(ws);
	return r;
}

/* ---- what is held ---- */

/* The node of an inode without a name that we gave to nobody in this life; 0: it isn't one. */
static uint64_t unnamed_node(struct ws *ws, uint64_t ino)
{
	struct attr a;
	uint64_t node = 0;
	ws_enter(ws);
	meta_read(ws);
	if (view_inode(&ws->view, ino, &a) == 0 && a.nlink == 0 && node_refs(ws, node_of(&a)) == 0)
		node = node_of(&a);
	meta_done(ws);
	ws_leave(ws);
	return node;
}

/* Notes the kernel's word; true when it has said no before. */
static bool note_unheld(struct ws *ws, uint64_t ino, bool held)
{
	pthread_mutex_lock(&ws->orphan_lock);
	void *was = u64map_get(&ws->orphans, ino);
	if (was) /* in its place: can't fail */
		(void)u64map_put(&ws->orphans, ino, held ? ORPHAN : ORPHAN_UNHELD);
	pthread_mutex_unlock(&ws->orphan_lock);
	return was == ORPHAN_UNHELD && !held;
}

static void end_unheld(struct ws *ws, uint64_t ino, uint64_t node)
{
	ws_enter(ws);
	meta_write(ws);
	if (node_refs(ws, node) == 0)
		orphan_end(ws, ino);
	meta_done(ws);
	ws_leave(ws);
}

/* Twice, since an answer that gives the inode out may be on its way to whoever asked: a look-up
 * that began while it had a name. */
bool ws_forget_unheld(struct ws *ws, bool (*held)(void *ctx, uint64_t node), void *ctx)
{
	auto_inos all = { 0 };
	uint64_t below = atomic_load(&ws->held_below);
	bool left = false;
	if (below == 0 || atomic_load(&ws->norphans) == 0)
		return false;
	pthread_mutex_lock(&ws->orphan_lock);
	struct u64map_slot *slot;
	for (size_t i = 0; (slot = u64map_next(&ws->orphans, &i));)
		if (slot->key < below && inos_add(&all, slot->key) < 0)
			break; /* the others next time */
	pthread_mutex_unlock(&ws->orphan_lock);
	for (size_t i = 0; i < all.n; i++) {
		uint64_t node = unnamed_node(ws, all.v[i]);
		bool gone = node && note_unheld(ws, all.v[i], held(ctx, node));
		if (gone)
			end_unheld(ws, all.v[i], node);
		left |= !gone;
	}
	return left;
}

/* ---- what must be told ---- */

static const char FORGET[] = "forget";
enum { FORGET_MAX = 1 << 30 }; /* bytes: ten million names */

void forget_list_write(struct ws *ws, int dir, uint64_t seq, const struct forget_list *f)
{
	const struct io *io = ws->work->io;
	auto_buf b = { 0 };
	forget_list_encode(f, seq, &b);
	if (buf_error(&b) < 0)
		return;
	int fd = io->open(io->ctx, dir, FORGET, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		return;
	/* Torn, it counts as absent. */
	(void)io_write_full(io, fd, b.data, b.len, 0);
	(void)io->close(io->ctx, fd);
}

int ws_open_folder(struct ws *ws)
{
	const struct io *io = ws->work->io;
	return io->open(io->ctx, ws->work->ws_fd, ws->id, O_RDONLY | O_DIRECTORY, 0);
}

void forget_list_drop(struct ws *ws)
{
	const struct io *io = ws->work->io;
	int dir = ws_open_folder(ws);
	if (dir < 0)
		return;
	(void)io->unlink(io->ctx, dir, FORGET, 0); /* one that stays is told once too often */
	(void)io->close(io->ctx, dir);
}

/* A name that the last put or removal of ours changed, and what has or had it. */
static int list_name(struct ws *ws, struct forget_list *f, uint64_t dir, const char *name,
		     size_t len, uint64_t child)
{
	struct attr d, a;
	int r = view_inode(&ws->view, dir, &d);
	if (r < 0)
		return r == -ENOENT ? 0 : r; /* the kernel has none of it */
	bool there = view_inode(&ws->view, child, &a) == 0;
	r = forget_list_name(f, node_of(&d), name, len, true, there ? node_of(&a) : 0);
	if (r == 0)
		r = forget_list_node(f, node_of(&d));
	return r == 0 && there ? forget_list_node(f, node_of(&a)) : r;
}

/* Of the frame, by the layer's log; the layers below show what it hides. */
static int list_frame(struct ws *ws, uint32_t i, struct forget_list *f)
{
	const struct view *v = &ws->view;
	const struct view below = view_below(v, i);
	const struct changed_log *g = layer_changed(v->layers[i]);
	uint64_t seq = layer_last_ours(v->layers[i]);
	const struct changed_entry *e = g && seq ? changed_log_newest(g) : NULL;
	int r = 0;
	for (; e && e->seq >= seq && r == 0; e = e->older) {
		struct dirent_ref d;
		if (e->seq != seq || !e->cookie)
			continue;
		if (e->child)
			r = list_name(ws, f, e->ino, e->name, e->name_len, e->child);
		if (r == 0 && view_dirent_ceil(&below, e->ino, e->cookie, &d) == 0 &&
		    d.cookie == e->cookie)
			r = list_name(ws, f, e->ino, d.name, d.name_len, d.ino);
	}
	return r;
}

/* Only the last one of the workspace can be owed, wherever a seal has put it: one is done at a
 * time, and told before the next. */
static void retell_ours(struct ws *ws, const struct ws_changes *changes)
{
	struct forget_list f = { 0 };
	int r = 0;
	ws_enter(ws);
	meta_read(ws);
	for (uint32_t i = 0; i < own_layers(ws) && r == 0; i++)
		r = list_frame(ws, i, &f);
	meta_done(ws);
	ws_leave(ws);
	if (r == 0)
		forget_list_tell(&f, changes);
	forget_list_done(&f);
}

void ws_retell(struct ws *ws, const struct ws_changes *changes)
{
	retell_ours(ws, changes);
	const struct io *io = ws->work->io;
	auto_free void *data = NULL;
	size_t len = 0;
	int dir = ws_open_folder(ws);
	if (dir < 0)
		return;
	int r = io_slurp(io, dir, FORGET, FORGET_MAX, &data, &len, NULL);
	(void)io->close(io->ctx, dir);
	struct forget_list f = { 0 };
	uint64_t seq = 0;
	if (r == 0)
		r = forget_list_decode(&f, &seq, data, len);
	pthread_rwlock_rdlock(&ws->gate);
	bool happened = seq <= ws->file.seq;
	pthread_rwlock_unlock(&ws->gate);
	if (r == 0 && happened)
		forget_list_tell(&f, changes);
	if (r != -ENOENT)
		forget_list_drop(ws);
	forget_list_done(&f);
}
