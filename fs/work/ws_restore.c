/* Restore in place: the workspace turns into what another stack shows, while it is mounted.
 *
 * A node id that the kernel holds must never come to mean other content. So an inode whose
 * content or type differs, or that wasn't there, gets a generation that this workspace has
 * never shown; one whose content is the same keeps the generation that it has. */
#include "fs/work/ws_impl.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/work/diff.h"
#include "fs/work/forget.h"

enum { INODES_A_TXN = 256 };

struct restore {
	struct ws *ws;
	const struct stack *expect; /* NULL: whatever it is */
	struct view view;           /* to be: the active layer on top */
	struct ws_file file;
	struct version version;
	uint16_t gen; /* of what differs, */
	bool shown;   /* in its st_ino, too */
	struct u64map linked; /* of that, what has several names: number -> rs */
	struct u64map walked; /* folders that were looked through for these names, likewise */
	int64_t bytes, inodes; /* by how much what the quota is charged for changes */
	struct txn t;
	bool open;                     /* t holds something */
	struct forget_list forget;
};

static int flush(struct restore *rs)
{
	if (!rs->open)
		return 0;
	rs->open = false;
	return txn_commit(&rs->t);
}

/* The inode as the stack has it, but with that generation, shown or not. */
static int put_gen(struct restore *rs, const struct attr *now, uint16_t gen, bool shown)
{
	struct attr a = *now;
	a.gen = gen;
	a.flags = (uint16_t)((a.flags & ~ATTR_SHOWS_GEN) | (shown ? ATTR_SHOWS_GEN : 0));
	if (!rs->open)
		txn_begin(&rs->t, rs->view.layers[0], a.ino);
	rs->open = true;
	txn_inode(&rs->t, &a, S_ISREG(a.mode) ? a.size : 0);
	return rs->t.records >= INODES_A_TXN ? flush(rs) : 0;
}

static int add_name(struct restore *rs, uint64_t dir_node, const char *name, size_t len,
		    bool removed, uint64_t child_node)
{
	return forget_list_name(&rs->forget, dir_node, name, len, removed, child_node);
}

/* The name by which the inode was last known, so that a look-up gives its new generation. */
static int add_hinted_name(struct restore *rs, const struct attr *old)
{
	struct dirent_ref d;
	struct attr dir;
	const struct view *v = &rs->ws->view;
	if (!old->parent_cookie || view_inode(v, old->parent, &dir) < 0 ||
	    view_dirent_ceil(v, old->parent, old->parent_cookie, &d) < 0 ||
	    d.cookie != old->parent_cookie || d.ino != old->ino)
		return 0; /* the kernel finds out by -ESTALE */
	return add_name(rs, node_of(&dir), d.name, d.name_len, false, node_of(old));
}

/* Each once: where records were lost, folders may lie in each other. */
static int add_folder(struct restore *rs, struct buf *dirs, uint64_t dir)
{
	if (u64map_get(&rs->walked, dir))
		return 0;
	buf_u64(dirs, dir);
	return u64map_put(&rs->walked, dir, rs);
}

/* All names of what has several. The kernel itself finds out by -ESTALE, and looks again; who has
 * opened a name (O_PATH) and only then asks for its attributes, as gVisor does, hears that. No
 * index leads from an inode to its names, so the tree is walked: only where such a file differs. */
static int add_linked_names(struct restore *rs)
{
	const struct view *v = &rs->ws->view;
	struct dirent_ref d;
	struct attr dir, child;
	auto_buf dirs = { 0 };
	if (!rs->linked.count)
		return 0;
	if (add_folder(rs, &dirs, INO_ROOT) < 0)
		return -ENOMEM;
	for (size_t at = 0; at < dirs.len; at += sizeof(uint64_t)) {
		int r = view_inode(v, le_get64(dirs.data + at), &dir);
		for (uint64_t after = 0; r == 0; after = d.cookie) {
			if (after == UINT64_MAX || view_dirent_ceil(v, dir.ino, after + 1, &d) < 0)
				break; /* what can't be read isn't known by these names either */
			if (d.type == DT_DIR)
				r = add_folder(rs, &dirs, d.ino);
			else if (u64map_get(&rs->linked, d.ino) &&
				 view_inode(v, d.ino, &child) == 0)
				r = add_name(rs, node_of(&dir), d.name, d.name_len, false,
					     node_of(&child));
		}
		if (r == -ENOMEM || buf_error(&dirs) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int inode_differs(void *ctx, uint64_t ino, const struct attr *old, const struct attr *now,
			 bool content)
{
	struct restore *rs = ctx;
	int r = 0;
	if (old) {
		r = forget_list_node(&rs->forget, node_of(old));
		if (r < 0)
			return r;
	}
	if (!now || ino == INO_ROOT)
		return 0;
	if (!old || content)
		r = put_gen(rs, now, rs->gen, rs->shown);
	else if (old->gen != now->gen || ((old->flags ^ now->flags) & ATTR_SHOWS_GEN))
		r = put_gen(rs, now, old->gen, old->flags & ATTR_SHOWS_GEN);
	if (r == 0 && old && content)
		r = rs->shown && old->nlink > 1 && !S_ISDIR(old->mode)
			    ? u64map_put(&rs->linked, ino, rs)
			    : add_hinted_name(rs, old);
	return r;
}

static int name_differs(void *ctx, uint64_t dir, const char *name, size_t len, uint64_t old_child,
			uint64_t new_child)
{
	struct restore *rs = ctx;
	struct attr d, child;
	const struct view *v = &rs->ws->view;
	if (view_inode(v, dir, &d) < 0)
		return 0; /* the kernel never saw that directory */
	uint64_t node = 0, dir_node = node_of(&d);
	if (old_child && view_inode(v, old_child, &child) == 0)
		node = node_of(&child);
	int r = forget_list_node(&rs->forget, dir_node); /* its list of names is cached */
	if (r < 0)
		return r;
	return add_name(rs, dir_node, name, len, new_child == 0, node);
}

/* What the quota is charged for goes with the inodes. */
static void charge(void *ctx, const struct attr *old, const struct attr *now)
{
	struct restore *rs = ctx;
	const struct quota *q = &rs->ws->quota;
	if (old) {
		rs->bytes -= quota_bytes_of(q, old);
		rs->inodes -= quota_inodes_of(q, old);
	}
	if (now) {
		rs->bytes += quota_bytes_of(q, now);
		rs->inodes += quota_inodes_of(q, now);
	}
}

/* The workspace stays who it is, and is charged for what it has then. */
static void charge_all(struct restore *rs)
{
	struct ws *ws = rs->ws;
	struct ws_file *f = &rs->file;
	int64_t bytes, inodes;
	ws_orphans_charged(ws, &bytes, &inodes);
	f->tag = ws->file.tag;
	f->birth_ino = ws->file.birth_ino;
	f->base_bytes = ws->quota.bytes + rs->bytes - bytes;
	f->base_inodes = ws->quota.inodes + rs->inodes - inodes;
	f->flattened = f->base_bytes != 0 || f->base_inodes != 0;
}

/* Under the gate: what differs, then the swap. */
static int swap_trees(struct restore *rs, struct err *err)
{
	struct ws *ws = rs->ws;
	if (rs->expect &&
	    (!layer_is_empty(active(ws)) || !stack_equal(&ws->file.stack, rs->expect)))
		return err_set(err, -ESTALE, "it was written to meanwhile");
	struct view below = rs->view; /* borrows; without the new active layer */
	below.layers++;
	below.nlayers--;
	rs->gen = (uint16_t)(ws->gen + 1);
	if (rs->gen == 0) /* after 65,535 restores old handles may be taken for new ones */
		rs->gen = 1;
	struct diff_raw cb = { .inode = inode_differs, .name = name_differs, .ctx = rs };
	cb.charge = charge;
	int r = diff_raw(&ws->view, &below, &cb, err);
	if (r == 0 && add_linked_names(rs) < 0)
		r = err_no_memory(err);
	if (r == 0) {
		r = flush(rs);
		if (r < 0)
			(void)err_sys(err, r, "write to the new layer");
	}
	if (r < 0) {
		if (rs->open)
			txn_drop(&rs->t);
		return r;
	}
	charge_all(rs);
	rs->file.seq = rs->version.seq;
	rs->file.gen = rs->gen;
	rs->file.limit_bytes = ws->file.limit_bytes;
	rs->file.limit_inodes = ws->file.limit_inodes;
	rs->file.no_xattrs = ws->file.no_xattrs;
	forget_list_write(ws, rs->version.dir, rs->version.seq, &rs->forget);
	r = version_write(&rs->version, ws->work, &rs->file, err);
	if (r < 0)
		return r;
	struct view view = ws->view;
	struct ws_file file = ws->file;
	ws->view = rs->view;
	ws->file = rs->file;
	rs->view = view;
	rs->file = file;
	ws->gen = rs->gen;
	gen_shown(ws, rs->gen);
	ws->files = 0;
	struct quota *q = &ws->quota;
	q->bytes = q->base_bytes = ws->file.base_bytes;
	q->inodes = q->base_inodes = ws->file.base_inodes;
	/* Orphans were in the layer that is gone; their nodes answer -ESTALE. */
	pthread_mutex_lock(&ws->orphan_lock);
	u64map_done(&ws->orphans);
	atomic_store(&ws->norphans, 0);
	pthread_mutex_unlock(&ws->orphan_lock);
	ws_changed_now(ws);
	return 0;
}

static int restore(struct restore *rs, const struct stack *to, struct err *err)
{
	struct ws *ws = rs->ws;
	struct registry *reg = ws->work->registry;
	auto_free struct stale *was = calloc(1, sizeof(*was));
	if (!was)
		return err_no_memory(err);
	int r = ws_prepare(ws->work, to, NULL, &rs->view, &rs->file, err);
	if (r < 0)
		return r;
	r = version_open(&rs->version, ws->work, ws->id, ws->file.seq + 1, err);
	if (r == 0) {
		pthread_rwlock_wrlock(&ws->gate);
		r = swap_trees(rs, err);
		pthread_rwlock_unlock(&ws->gate);
		version_done(&rs->version, ws->work, rs->version.seq - 1);
	}
	if (r < 0) {
		view_done(&rs->view);
		registry_unname(reg, &rs->file);
		ws_file_done(&rs->file);
		return r;
	}
	atomic_store(&ws->fault_told, false);
	ws_forget_damage(ws);
	(void)registry_use(reg, &ws->view, 1); /* the entries are there */
	registry_unuse(reg, &rs->view, 1);
	view_done(&rs->view);
	was->file = rs->file;
	ws_retire(ws, steal_ptr(&was));
	/* Where that fails, what was stays on disk until it is done later. */
	(void)ws_commit(ws, NULL);
	return 0;
}

int ws_restore_if(struct ws *ws, const struct stack *to, const struct stack *expect,
		  const struct ws_changes *changes, struct err *err)
{
	struct restore rs = { .ws = ws,
			      .expect = expect,
			      .shown = changes && changes->renumber };
	pthread_mutex_lock(&ws->admin);
	int r = restore(&rs, to, err);
	pthread_mutex_unlock(&ws->admin);
	if (r == 0 && changes)
		forget_list_tell(&rs.forget, changes);
	forget_list_drop(ws);
	forget_list_done(&rs.forget);
	u64map_done(&rs.linked);
	u64map_done(&rs.walked);
	return r < 0 ? err_prefix(err, r, "restore workspace %s", ws->id) : 0;
}

int ws_restore(struct ws *ws, const struct stack *to, const struct ws_changes *changes,
	       struct err *err)
{
	return ws_restore_if(ws, to, NULL, changes, err);
}
