/* A workspace's life on disk: its folder, its stack file, opening, committing. */
#include "fs/work/ws_impl.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

int ws_id_check(const char *id, struct err *err)
{
	size_t n = strlen(id);
	if (n == 0 || n > WS_ID_MAX || strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789_") != n)
		return err_set(err, -EINVAL, "'%.60s' is no workspace id", id);
	return 0;
}

/* ---- the file ---- */

static int encode(struct buf *out, struct work *w, const struct ws_file *f, bool durable)
{
	struct ws_file g = *f; /* borrows what f holds */
	g.durable = durable;
	memcpy(g.boot, w->boot, sizeof(g.boot));
	ws_file_encode(&g, out);
	return buf_error(out);
}

/* The file `stack`, replaced. */
static int publish_stack(struct work *w, const char *folder, const struct ws_file *f, bool durable,
			 struct err *err)
{
	auto_buf b = { 0 };
	if (encode(&b, w, f, durable) < 0)
		return err_no_memory(err);
	int dir = w->io->open(w->io->ctx, w->ws_fd, folder, O_RDONLY | O_DIRECTORY, 0);
	if (dir < 0)
		return err_sys(err, dir, "open the folder of workspace %s", folder);
	int r = io_publish(w->io, dir, "stack", b.data, b.len, durable, err);
	(void)w->io->close(w->io->ctx, dir); /* nothing was written to it */
	return r;
}

int version_open(struct version *v, struct work *w, const char *id, uint64_t seq, struct err *err)
{
	char name[WS_FILE_NAME];
	*v = (struct version){ .dir = -1, .fd = -1, .seq = seq };
	ws_file_name(name, seq);
	v->dir = w->io->open(w->io->ctx, w->ws_fd, id, O_RDONLY | O_DIRECTORY, 0);
	if (v->dir < 0)
		return err_sys(err, v->dir, "open the folder of workspace %s", id);
	v->fd = w->io->open(w->io->ctx, v->dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (v->fd < 0) {
		(void)w->io->close(w->io->ctx, v->dir); /* nothing was written to it */
		v->dir = -1;
		return err_sys(err, v->fd, "make the stack file of workspace %s", id);
	}
	return 0;
}

int version_write(struct version *v, struct work *w, const struct ws_file *f, struct err *err)
{
	auto_buf b = { 0 };
	assert(f->seq == v->seq);
	int r = encode(&b, w, f, false);
	if (r == 0)
		r = io_write_full(w->io, v->fd, b.data, b.len, 0);
	v->written = r == 0;
	return r < 0 ? err_sys(err, r, "write the stack file of a workspace") : 0;
}

static void remove_version(struct work *w, int dir, uint64_t seq)
{
	char name[WS_FILE_NAME];
	ws_file_name(name, seq);
	/* One that stays is older than what counts, or torn: nothing. */
	(void)w->io->unlink(w->io->ctx, dir, name, 0);
}

void version_done(struct version *v, struct work *w, uint64_t before)
{
	if (v->fd >= 0)
		(void)w->io->close(w->io->ctx, v->fd); /* who needs it on disk syncs `stack` */
	if (v->dir >= 0) {
		if (!v->written)
			remove_version(w, v->dir, v->seq);
		else if (before > 0)
			remove_version(w, v->dir, before);
		(void)w->io->close(w->io->ctx, v->dir); /* nothing was written to it */
	}
	v->fd = v->dir = -1;
}

int ws_make_folder(struct work *w, const char *id, const struct ws_file *f, struct err *err)
{
	char tmp[WS_ID_MAX + 32];
	uint64_t token;
	random_bytes(&token, sizeof(token));
	(void)snprintf(tmp, sizeof(tmp), IO_TMP_PREFIX "%s-%016llx", id, (unsigned long long)token);
	int r = w->io->mkdir(w->io->ctx, w->ws_fd, tmp, 0700);
	if (r < 0)
		return err_sys(err, r, "make the folder of workspace %s", id);
	r = publish_stack(w, tmp, f, false, err);
	if (r == 0) {
		r = w->io->rename(w->io->ctx, w->ws_fd, tmp, w->ws_fd, id, RENAME_NOREPLACE);
		if (r == -EEXIST)
			(void)err_set(err, r, "workspace %s is there already", id);
		else if (r < 0)
			(void)err_sys(err, r, "make the folder of workspace %s", id);
	}
	if (r < 0)
		(void)io_remove_tree(w->ws_fd, tmp, NULL); /* or a sweep takes it */
	return r;
}

int ws_drop_folder(struct work *w, const char *id, struct err *err)
{
	char trash[WS_ID_MAX + 32];
	uint64_t token;
	random_bytes(&token, sizeof(token));
	(void)snprintf(trash, sizeof(trash), IO_TMP_PREFIX "%s-%016llx", id,
		       (unsigned long long)token);
	int r = w->io->rename(w->io->ctx, w->ws_fd, id, w->ws_fd, trash, 0);
	if (r < 0)
		return err_sys(err, r, "remove the folder of workspace %s", id);
	(void)io_remove_tree(w->ws_fd, trash, NULL); /* it is gone; a sweep takes what is left */
	return 0;
}

/* One version, where nothing waits for it. */
static int publish_version(struct work *w, const char *id, const struct ws_file *f, uint64_t before,
			   struct err *err)
{
	struct version v;
	int r = version_open(&v, w, id, f->seq, err);
	if (r < 0)
		return r;
	r = version_write(&v, w, f, err);
	version_done(&v, w, before);
	return r;
}

/* ---- in memory ---- */

static void ws_destroy(struct ws *ws)
{
	for (unsigned i = 0; i < WS_SHARDS; i++) {
		u64map_done(&ws->nodes[i].map);
		pthread_mutex_destroy(&ws->nodes[i].lock);
	}
	u64map_done(&ws->orphans);
	free(ws->ours);
	for (unsigned i = 0; i < WS_STRIPES; i++)
		pthread_rwlock_destroy(&ws->stripes[i]);
	pthread_rwlock_destroy(&ws->gate);
	pthread_rwlock_destroy(&ws->meta);
	pthread_mutex_destroy(&ws->admin);
	pthread_mutex_destroy(&ws->publish);
	pthread_mutex_destroy(&ws->orphan_lock);
	pthread_mutex_destroy(&ws->damage_lock);
	free(ws);
}

int ws_new(struct ws **out, struct work *w, const char *id, struct view *view, struct ws_file *file,
	   struct err *err)
{
	struct ws *ws = calloc(1, sizeof(*ws));
	if (!ws)
		return err_set(err, -ENOMEM, "no memory for workspace %s", id);
	ws->work = w;
	(void)snprintf(ws->id, sizeof(ws->id), "%s", id);
	pthread_rwlockattr_t ra;
	pthread_rwlockattr_init(&ra);
	pthread_rwlockattr_setkind_np(&ra, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&ws->gate, &ra);
	pthread_rwlock_init(&ws->meta, &ra);
	for (unsigned i = 0; i < WS_STRIPES; i++)
		pthread_rwlock_init(&ws->stripes[i], &ra);
	pthread_rwlockattr_destroy(&ra);
	pthread_mutex_init(&ws->admin, NULL);
	pthread_mutex_init(&ws->publish, NULL);
	pthread_mutex_init(&ws->orphan_lock, NULL);
	pthread_mutex_init(&ws->damage_lock, NULL);
	for (unsigned i = 0; i < WS_SHARDS; i++)
		pthread_mutex_init(&ws->nodes[i].lock, NULL);
	ws->quota = (struct quota){
		.tag = file->tag,
		.birth_ino = file->birth_ino,
		.limits = { file->limit_bytes, file->limit_inodes },
		.base_bytes = file->base_bytes,
		.base_inodes = file->base_inodes,
	};
	int64_t bytes, inodes;
	layer_usage(view->layers[0], &bytes, &inodes);
	ws->quota.bytes = file->base_bytes + bytes;
	ws->quota.inodes = file->base_inodes + inodes;
	ws->files = layer_files(view->layers[0]);
	ws->gen = file->gen;
	ws->no_xattrs = file->no_xattrs;
	/* Whole before the background thread can see it; the caller's again on failure. */
	ws->view = *view;
	ws->file = *file;
	int r = registry_use(w->registry, view, 1);
	if (r == 0) {
		r = work_add(w, ws);
		if (r < 0)
			registry_unuse(w->registry, view, 1);
	}
	if (r < 0) {
		ws_destroy(ws);
		return r == -EBUSY ? err_set(err, r, "workspace %s is open already", id)
				   : err_sys(err, r, "open workspace %s", id);
	}
	*view = (struct view){ 0 };
	*file = (struct ws_file){ 0 };
	*out = ws;
	return 0;
}

void ws_free(struct ws *ws)
{
	readahead_forget(ws->work->ahead, ws);
	work_remove(ws->work, ws);
	/* What never became durable keeps its layers; the next start's sweep sees to them. */
	for (struct stale *s = ws->stale, *next; s; s = next) {
		next = s->next;
		ws_file_done(&s->file);
		free(s);
	}
	registry_unuse(ws->work->registry, &ws->view, 1);
	view_done(&ws->view);
	ws_file_done(&ws->file);
	ws_holds_free(ws);
	ws_destroy(ws);
}

/* ---- committing ---- */

bool ws_is_dirty(struct ws *ws)
{
	pthread_rwlock_rdlock(&ws->gate); /* not ws_enter: this is no use of it */
	bool dirty = layer_is_dirty(active(ws)) || !atomic_load(&ws->folder_durable) ||
		     atomic_load(&ws->durable_seq) < ws->file.seq;
	pthread_rwlock_unlock(&ws->gate);
	return dirty;
}

/* Under publish: lets go what replaced files name, as far as what replaced them is durable. */
static void release_stale(struct ws *ws)
{
	for (struct stale **p = &ws->stale; *p;) {
		struct stale *s = *p;
		if (s->until > atomic_load(&ws->durable_seq)) {
			p = &s->next;
			continue;
		}
		*p = s->next;
		registry_unname(ws->work->registry, &s->file);
		ws_file_done(&s->file);
		free(s);
	}
}

void ws_retire(struct ws *ws, struct stale *old)
{
	old->until = ws->file.seq;
	pthread_mutex_lock(&ws->publish);
	old->next = ws->stale;
	ws->stale = old;
	release_stale(ws);
	pthread_mutex_unlock(&ws->publish);
}

/* What is below, as a whole; of the active layer an fsync of `ino` needs less (layer.h). */
static int commit_all(struct ws *ws, const struct view *v, const struct ws_file *f, bool asked,
		      uint64_t ino, struct err *err)
{
	struct work *w = ws->work;
	int r = 0;
	for (uint32_t i = v->nlayers; i > 1 && r == 0; i--) {
		struct layer *l = v->layers[i - 1];
		if (!layer_is_local(l) || registry_is_durable(w->registry, layer_id(l)))
			continue;
		r = layer_commit(l, err);
		if (r == 0)
			registry_set_durable(w->registry, layer_id(l));
	}
	if (r == 0)
		r = asked ? layer_fsync(v->layers[0], ino, err) : layer_commit(v->layers[0], err);
	if (r == 0 && atomic_load(&ws->durable_seq) < f->seq) {
		r = publish_stack(w, ws->id, f, true, err);
		if (r == 0)
			atomic_store(&ws->durable_seq, f->seq);
		release_stale(ws);
	}
	if (r == 0 && !atomic_load(&ws->folder_durable)) {
		r = w->io->fsync(w->io->ctx, w->ws_fd);
		if (r < 0)
			(void)err_sys(err, r, "sync %s/ws", w->root);
		else
			atomic_store(&ws->folder_durable, true);
	}
	return r;
}

/* What whoever made the workspace has put beside it: without that it is taken for one that was
 * never acknowledged, and what was synced in it would be lost with it. Not there: it isn't yet. */
static int sync_record(struct ws *ws, struct err *err)
{
	const struct io *io = ws->work->io;
	int dir = ws_open_folder(ws);
	if (dir < 0)
		return err_sys(err, dir, "open the folder of workspace %s", ws->id);
	int fd = io->open(io->ctx, dir, "meta.json", O_RDONLY, 0);
	int r = fd < 0 ? fd : io->fdatasync(io->ctx, fd);
	if (fd >= 0)
		(void)io->close(io->ctx, fd); /* only read */
	if (r == 0)
		r = io->fsync(io->ctx, dir);
	(void)io->close(io->ctx, dir); /* nothing was written to it */
	if (r == 0)
		atomic_store(&ws->record_durable, true);
	return r < 0 && r != -ENOENT ? err_sys(err, r, "sync ws/%s/meta.json", ws->id) : 0;
}

/* `asked`: by a program's fsync of that inode. */
static int commit_ws(struct ws *ws, bool asked, uint64_t ino, struct err *err)
{
	struct view v;
	struct ws_file f = { 0 };
	pthread_rwlock_rdlock(&ws->gate);
	bool all = atomic_load(&ws->durable_seq) < ws->file.seq ||
		   !atomic_load(&ws->folder_durable);
	struct layer *top = layer_ref(active(ws));
	int r = all ? view_copy(&v, &ws->view) : 0;
	if (all && r == 0) {
		r = ws_file_copy(&f, &ws->file);
		if (r < 0)
			view_done(&v);
	}
	pthread_rwlock_unlock(&ws->gate);
	if (r < 0) {
		layer_unref(top);
		return err_sys(err, r, "sync workspace %s", ws->id);
	}
	if (all) {
		pthread_mutex_lock(&ws->publish);
		r = commit_all(ws, &v, &f, asked, ino, err);
		pthread_mutex_unlock(&ws->publish);
		view_done(&v);
		ws_file_done(&f);
	} else {
		r = asked ? layer_fsync(top, ino, err) : layer_commit(top, err);
	}
	if (r == 0 && !atomic_load(&ws->record_durable))
		r = sync_record(ws, err);
	layer_unref(top);
	if (r < 0)
		(void)ws_spread_fault(ws);
	return r < 0 ? err_prefix(err, r, "workspace %s", ws->id) : 0;
}

int ws_commit(struct ws *ws, struct err *err)
{
	return commit_ws(ws, false, 0, err);
}

int ws_fsync(struct ws *ws, uint64_t node)
{
	if (!atomic_load_explicit(&ws->touched, memory_order_relaxed))
		atomic_store_explicit(&ws->touched, true, memory_order_relaxed);
	return commit_ws(ws, true, ino_of(node), NULL);
}

/* ---- opening ---- */

/* A new active layer above the one that was found sealed. */
static int push_active(struct work *w, struct view *v, struct ws_file *f, struct err *err)
{
	struct layer *fresh = NULL;
	int64_t bytes, inodes;
	struct layer **layers = calloc(v->nlayers + 1, sizeof(*layers));
	if (!layers)
		return err_no_memory(err);
	int r = work_new_layer(w, &fresh, err);
	if (r == 0) {
		r = stack_push(&f->stack, &f->active, true, NULL, 0);
		if (r < 0) {
			(void)err_sys(err, r, "put a layer on the stack");
			(void)layer_remove(w->io, w->root, layer_id(fresh), NULL); /* or a sweep */
			layer_unref(fresh);
		}
	}
	if (r < 0) {
		free(layers);
		return r;
	}
	layer_usage(v->layers[0], &bytes, &inodes);
	f->base_bytes += bytes;
	f->base_inodes += inodes;
	f->files += (uint64_t)layer_files(v->layers[0]);
	f->active = *layer_id(fresh);
	f->seq++;
	layers[0] = fresh;
	memcpy(layers + 1, v->layers, v->nlayers * sizeof(*layers));
	free(v->layers);
	v->layers = layers;
	v->nlayers++;
	return 0;
}

/* The active layer, in front of the view's others. *fresh: it had to be made. */
static int open_active(struct work *w, struct view *v, struct ws_file *f, bool *fresh,
		       struct err *err)
{
	struct layer *top = NULL;
	struct layer **layers = calloc(v->nlayers + 1, sizeof(*layers));
	if (!layers)
		return err_no_memory(err);
	bool sealed = registry_is_sealed(w->registry, &f->active);
	int r = registry_active(w->registry, &f->active, !sealed, &top, err);
	/* A file that was never synced, from before the power went: nor was that layer. */
	bool lost = (r == -ENOENT || r == -EBADMSG) && !f->durable &&
		    memcmp(f->boot, w->boot, sizeof(f->boot)) != 0;
	if (lost) {
		sealed = false;
		r = work_new_layer(w, &top, err);
		if (r == 0) {
			f->active = *layer_id(top);
			f->seq++;
			*fresh = true;
		}
	}
	if (r < 0) {
		free(layers);
		return r;
	}
	layers[0] = top;
	memcpy(layers + 1, v->layers, v->nlayers * sizeof(*layers));
	free(v->layers);
	v->layers = layers;
	v->nlayers++;
	if (!sealed && !layer_is_sealed(top))
		return 0;
	*fresh = true;
	return push_active(w, v, f, err);
}

static int open_version(struct ws **out, struct work *w, const char *id, struct ws_file *f,
			struct err *err)
{
	struct view_options vo;
	struct view v = { 0 };
	struct ws_file before = { 0 };
	bool fresh = false;
	registry_options(w->registry, &vo);
	int r = ws_file_copy(&before, f);
	if (r < 0)
		return err_sys(err, r, "open workspace %s", id);
	r = view_open(&v, &vo, &f->stack, err);
	if (r == 0)
		r = open_active(w, &v, f, &fresh, err);
	if (r == 0 && fresh) {
		r = registry_name(w->registry, f);
		if (r < 0)
			(void)err_sys(err, r, "open workspace %s", id);
		if (r == 0) {
			r = publish_version(w, id, f, before.seq, err);
			registry_unname(w->registry, r < 0 ? f : &before);
		}
	}
	if (r == 0)
		r = ws_new(out, w, id, &v, f, err);
	view_done(&v);
	ws_file_done(&before);
	return r;
}

/* ---- leftovers ---- */

static int find_leftover(void *ctx, const struct layer_inode *li)
{
	return !li->dead && li->attr.nlink == 0 && li->attr.mode != 0 ? inos_add(ctx, li->attr.ino)
								      : 0;
}

/* The inodes without a name that the own layers still have: who held them is gone, and they end,
 * or the kernel may hold them still. */
static int see_to_leftovers(struct ws *ws, bool held)
{
	auto_inos found = { 0 };
	int r = 0;
	for (uint32_t i = 0; i < own_layers(ws) && r == 0; i++)
		r = layer_each_inode(ws->view.layers[i], find_leftover, &found);
	inos_sort(&found);
	for (size_t i = 0; i < found.n && r == 0; i++) {
		struct attr a;
		struct op op;
		if (view_inode(&ws->view, found.v[i], &a) < 0 || a.nlink > 0)
			continue;
		if (held) {
			orphan_add(ws, a.ino);
			continue;
		}
		op_begin(&op, ws, a.ino, NULL);
		op_dead(&op, &a);
		r = op_commit(&op);
	}
	return r;
}

static bool has_lost(const struct view *v)
{
	for (uint32_t i = 0; i < v->nlayers; i++)
		if (layer_lost(v->layers[i]))
			return true;
	return false;
}

/* A journal lost records: what they said of the usage is found anew. */
static int recount(struct ws *ws)
{
	int64_t bytes, inodes;
	uint32_t own = own_layers(ws);
	int r = ws->file.flattened
			? quota_sum(&ws->view, own, &ws->quota, &bytes, &inodes)
			: quota_count(&ws->view, own, &ws->quota, &bytes, &inodes, NULL, NULL);
	if (r == 0) {
		ws->quota.bytes = bytes;
		ws->quota.inodes = inodes;
	}
	/* More is damaged than that journal: what its last record says has to do. */
	return r == -EIO ? 0 : r;
}

/* Layers went back for good, and with them what the file says of those below the active one. */
static int recount_below(struct ws *ws)
{
	struct quota *q = &ws->quota;
	struct ws_file *f = &ws->file;
	int64_t bytes, inodes;
	int r = recount(ws);
	if (r < 0)
		return r;
	layer_usage(active(ws), &bytes, &inodes);
	pthread_rwlock_wrlock(&ws->gate); /* work's thread may be about to commit */
	f->base_bytes = q->base_bytes = q->bytes - bytes;
	f->base_inodes = q->base_inodes = q->inodes - inodes;
	f->files = ws_count_files(&ws->view) - (uint64_t)ws->files;
	f->seq++;
	r = publish_version(ws->work, ws->id, f, f->seq - 1, NULL);
	if (r < 0)
		f->seq--;
	pthread_rwlock_unlock(&ws->gate);
	return r;
}

static int see_to_cut_inode(void *ctx, uint64_t ino)
{
	struct ws *ws = ctx;
	struct attr a;
	uint64_t data = 0;
	int64_t content = 0, xattrs = 0;
	int r = view_inode(&ws->view, ino, &a);
	if (r < 0 || !S_ISREG(a.mode))
		return r == -ENOENT ? 0 : r;
	uint32_t own = own_layers(ws);
	r = quota_content(&ws->view, own, ino, 0, UINT64_MAX, a.size, &content);
	if (r == 0)
		r = quota_xattrs(&ws->view, own, ino, &xattrs);
	if (r == 0)
		r = content_data_bytes(ws, ino, 0, block_ceil(a.size), &data);
	if (r == -EIO)
		return 0; /* it is damaged, which is no reason to open nothing */
	int64_t more = content + xattrs - quota_bytes_of(&ws->quota, &a);
	if (r < 0 || (more == 0 && a.blocks == data / 512))
		return r;
	struct op op;
	op_begin(&op, ws, ino, NULL);
	a.blocks = data / 512;
	op_own(&op, &a, more);
	op_inode(&op, &a);
	return op_commit(&op);
}

/* Files that came back shorter from a power loss are charged for what they have. */
static int see_to_cut(struct ws *ws)
{
	int r = 0;
	for (uint32_t i = own_layers(ws); i-- > 0 && r == 0;)
		r = layer_each_cut(ws->view.layers[i], see_to_cut_inode, ws);
	return r;
}

/* What an older file names stays until the one that counts is durable. */
static void keep_older(struct ws *ws)
{
	auto_free struct stale *old = calloc(1, sizeof(*old));
	if (old && work_take_older(ws->work, ws->id, &old->file))
		ws_retire(ws, steal_ptr(&old));
}

/* Power was lost, and with it what the newer of the two files names: the older one is whole. */
static int open_older(struct ws **out, struct work *w, const char *id, struct ws_file f[2],
		      struct err *err)
{
	struct ws_file named = { 0 };
	uint64_t newest = f[0].seq;
	f[1].seq = newest + 1;
	bool have = work_take_older(w, id, &named);
	ws_file_done(&named);
	int r = have ? 0 : registry_name(w->registry, &f[1]);
	if (r == 0)
		r = publish_version(w, id, &f[1], newest, err);
	return r < 0 ? r : open_version(out, w, id, &f[1], err);
}

static int open_ws(struct ws **out, struct work *w, const char *id, bool held, struct err *err)
{
	struct ws_file f[2];
	unsigned n = 0;
	int r = ws_id_check(id, err);
	if (r < 0)
		return r;
	if (work_has(w, id))
		return err_set(err, -EBUSY, "workspace %s is open already", id);
	r = ws_file_load(f, &n, w->io, w->root, id, w->boot, err);
	if (r < 0)
		return r;
	struct ws *ws = NULL;
	ws_file_sweep(w->root, id, f[0].seq);
	bool mended = !held && ws_mend(w, id, &f[0]);
	r = open_version(&ws, w, id, &f[0], err);
	bool lost = r == -ENOENT || r == -EBADMSG || r == -EIO;
	if (lost && n > 1 && !f[0].durable && memcmp(f[0].boot, w->boot, sizeof(w->boot)) != 0)
		r = open_older(&ws, w, id, f, err);
	bool unsynced = !f[n - 1].durable && memcmp(f[n - 1].boot, w->boot, sizeof(w->boot)) != 0;
	for (unsigned i = 0; i < n; i++)
		ws_file_done(&f[i]);
	if ((r == -ENOENT || r == -EBADMSG || r == -EIO) && unsynced)
		(void)err_prefix(err, r, "made just before a power loss, and lost");
	if (r < 0)
		return err_prefix(err, r, "open workspace %s", id);
	keep_older(ws);
	if (held) {
		uint64_t floor;
		r = work_ino_floor(w, &floor, NULL);
		if (r == 0)
			atomic_store(&ws->held_below, floor);
	}
	if (r == 0 && ws_spread_fault(ws)) { /* it is what it was, and takes no change */
		*out = ws;
		return 0;
	}
	struct attr root;
	/* It was made just before the power went, on nothing, or the record was damaged. */
	if (r == 0 && view_inode(&ws->view, INO_ROOT, &root) == -ENOENT)
		r = ws_make_root(ws->view.layers[0], geteuid(), getegid());
	if (r == 0)
		r = see_to_cut(ws);
	if (r == 0 && mended)
		r = recount_below(ws);
	else if (r == 0 && has_lost(&ws->view))
		r = recount(ws);
	if (r == 0)
		r = see_to_leftovers(ws, held);
	/* On a full disk leftovers stay until the next time. */
	if (r < 0 && r != -ENOSPC) {
		ws_free(ws);
		return err_sys(err, r, "open workspace %s", id);
	}
	char text[WS_DAMAGE_TEXT];
	if (w->told && ws_damage(ws, text, sizeof(text)))
		w->told(w->told_ctx, id, text);
	*out = ws;
	return 0;
}

int ws_open(struct ws **out, struct work *w, const char *id, struct err *err)
{
	return open_ws(out, w, id, false, err);
}

int ws_resume(struct ws **out, struct work *w, const char *id, struct err *err)
{
	return open_ws(out, w, id, true, err);
}

void ws_close(struct ws *ws)
{
	if (!ws)
		return;
	ws_forget_all(ws);
	/* Nobody commits it later. What fails here is in the journal all the same, and a
	 * layer that lost bytes says so when it is opened again. */
	(void)ws_commit(ws, NULL);
	ws_free(ws);
}

void ws_discard(struct ws *ws)
{
	if (ws)
		ws_free(ws);
}

const char *ws_id(const struct ws *ws)
{
	return ws->id;
}
