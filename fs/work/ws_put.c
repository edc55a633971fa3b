/* Compare and replace: what was uploaded gets its name, or a name goes, if what has that name is
 * what the caller believes. One step under meta, one frame of the journal.
 *
 * What was uploaded is a file without a name, or one of the host's, which is taken over:
 * 1. Its name in the layer is made before the frame, so that a frame that counts has its bytes. A
 *    kill in between leaves a file of the layer to which nothing leads: the next server's first
 *    commit removes that name, and the upload is as it was.
 * 2. No two files share a file of the host: one that has a second name isn't taken over. Its tag
 *    says whether it was done.
 * 3. The commit that covers the frame syncs the file and the layer's folder before, as for each
 *    file that was written to (invariant 3). Its name in ROOT/uploads is the caller's to remove,
 *    when he knows that it is done. */
#include "fs/work/ws_impl.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

struct putting {
	const struct ws_put *want;
	struct attr dir, a, old; /* a: the file; old: what has the name (had) */
	bool had;
	uint64_t cookie;
	struct extent content; /* of an upload: all of it; len 0: the file has its content */
	int64_t charged;       /* for that, in the quota's reserve */
};

static bool listed(const struct version_id *list, size_t n, const struct attr *a)
{
	struct version_id v = version_of(a);
	for (size_t i = 0; i < n; i++)
		if (version_equal(&list[i], &v))
			return true;
	return false;
}

static int compare(const struct putting *p)
{
	const struct ws_put *w = p->want;
	if (w->must_exist && !p->had)
		return -EREMCHG;
	if (w->must_not_exist && p->had)
		return -EREMCHG;
	if (w->nmatch > 0 && !(p->had && listed(w->match, w->nmatch, &p->old)))
		return -EREMCHG;
	return p->had && listed(w->unless, w->nunless, &p->old) ? -EREMCHG : 0;
}

/* The directory and what has the name there. */
static int look(struct ws *ws, struct putting *p)
{
	const struct ws_put *w = p->want;
	struct dirent_ref d;
	int r = view_inode(&ws->view, w->dir, &p->dir);
	if (r == 0 && (!S_ISDIR(p->dir.mode) || p->dir.nlink == 0))
		r = -ENOENT;
	if (r < 0)
		return r;
	r = ws_find(ws, p->dir.ino, w->name, w->len, &d, &p->old);
	if (r < 0 && r != -ENOENT)
		return r;
	p->had = r == 0;
	if (p->had)
		p->cookie = d.cookie;
	return 0;
}

static void tell(const struct putting *p, const struct attr *now, struct ws_put_result *out)
{
	*out = (struct ws_put_result){
		.dir_node = node_of(&p->dir),
		.node = now ? node_of(now) : 0,
		.old_node = p->had ? node_of(&p->old) : 0,
		.attr = now ? *now : p->old,
	};
}

/* ---- a file gets the name ---- */

struct inheriting {
	struct op *op;
	uint64_t to; /* 0: only the bytes */
	int64_t bytes;
};

static int inherit_xattr(void *ctx, const char *name, size_t name_len, const void *value,
			 size_t len)
{
	static const char CAP[] = "security.capability"; /* belongs to the content that goes */
	struct inheriting *in = ctx;
	if (name_len == sizeof(CAP) - 1 && memcmp(name, CAP, name_len) == 0)
		return 0;
	in->bytes += (int64_t)(name_len + len);
	if (in->to)
		txn_xattr(&in->op->t, in->to, name, name_len, value, len);
	return 0;
}

int ws_inherit_xattrs(struct ws *ws, struct op *op, uint64_t from, uint64_t to, int64_t *bytes)
{
	struct inheriting in = { .op = op, .to = to };
	int r = view_each_xattr(&ws->view, from, inherit_xattr, &in);
	if (r == 0)
		*bytes = in.bytes;
	return r;
}

/* Mode, owner and xattrs: of what it replaces, else by its folder. */
static int inherit(struct ws *ws, struct op *op, struct putting *p)
{
	const struct ws_put *w = p->want;
	struct attr *a = &p->a;
	int64_t bytes = 0;
	if (w->as_is && !w->upload) {
		op->files++;
		op_inode(op, a);
		return 0;
	}
	a->uid = p->had ? p->old.uid : p->dir.uid;
	a->gid = p->had ? p->old.gid : p->dir.gid;
	uint32_t mode = p->had ? p->old.mode & 01777 : 0644;
	a->mode = S_IFREG | (w->set_mode ? w->mode & 07777 : mode);
	bool some = p->had && (p->old.flags & ATTR_HAS_XATTR);
	int r = some ? ws_inherit_xattrs(ws, op, p->old.ino, 0, &bytes) : 0;
	if (r == 0)
		r = quota_check(&ws->quota, bytes, 0);
	if (r < 0)
		return r;
	if (bytes > 0)
		a->flags |= ATTR_HAS_XATTR;
	op_own(op, a, bytes + p->charged);
	if (w->upload) {
		op_new_inode(op, a);
		txn_extent(&op->t, a->ino, &p->content);
	} else {
		op->files++;
		op_inode(op, a);
	}
	return some ? ws_inherit_xattrs(ws, op, p->old.ino, a->ino, &bytes) : 0;
}

static int name_file(struct ws *ws, struct putting *p)
{
	const struct ws_put *w = p->want;
	struct op op;
	int r = p->had ? 0 : view_free_cookie(&ws->view, p->dir.ino, w->name, w->len, &p->cookie);
	if (r < 0)
		return r;
	op_begin(&op, ws, p->a.ino, NULL);
	op.t.tag = w->tag;
	p->a.nlink = 1;
	p->a.ctime = op.now;
	if (w->upload)
		p->a.atime = p->a.mtime = p->a.btime = op.now;
	p->a.parent = p->dir.ino;
	p->a.parent_cookie = p->cookie;
	txn_keep(&op.t, p->a.ino); /* what is put is there whole, or not at all */
	r = inherit(ws, &op, p);
	if (r < 0) {
		txn_drop(&op.t);
		return r;
	}
	txn_dirent(&op.t, p->dir.ino, p->cookie, w->name, w->len, p->a.ino, DT_REG);
	if (p->had)
		ws_name_gone(&op, &p->old, p->dir.ino, p->cookie);
	ws_dir_changed(&op, &p->dir, 0);
	r = op_commit(&op);
	if (r < 0)
		return r;
	ws_ours_done(ws, w->tag);
	if (!w->upload)
		(void)orphan_del(ws, p->a.ino);
	if (p->had && p->old.nlink == 0)
		orphan_reap(ws, p->old.ino, node_of(&p->old));
	return 0;
}

/* Asked once more by who didn't hear the answer. */
static bool is_done(const struct putting *p)
{
	return !p->want->upload && p->had && p->old.ino == p->want->file;
}

static int put_locked(struct ws *ws, struct putting *p, struct ws_put_result *out)
{
	const struct ws_put *w = p->want;
	int r = look(ws, p);
	if (r < 0)
		return r;
	if (is_done(p)) {
		tell(p, &p->old, out);
		return 0;
	}
	r = compare(p);
	if (r == 0 && p->had && !S_ISREG(p->old.mode))
		r = S_ISDIR(p->old.mode) ? -EISDIR : -ELOOP;
	if (r == 0 && !w->upload)
		r = view_inode(&ws->view, w->file, &p->a);
	if (r == 0 && !w->upload && (!S_ISREG(p->a.mode) || p->a.nlink > 0))
		r = -EINVAL;
	if (r == 0)
		r = ws_ours_room(ws);
	if (r == 0)
		r = name_file(ws, p);
	if (r == 0)
		tell(p, &p->a, out);
	return r;
}

/* ---- a file of ROOT/uploads ---- */

enum { UPLOAD_PATH = 80 };

static int upload_path(const struct ws_put *w, char out[UPLOAD_PATH])
{
	int n = snprintf(out, UPLOAD_PATH, "uploads/%s", w->upload);
	bool plain = n < UPLOAD_PATH && *w->upload && *w->upload != '.' && !strchr(w->upload, '/');
	return plain ? 0 : -EINVAL;
}

/* How many names it has: 1, or 2 for more. */
static int count_links(struct ws *ws, const struct ws_put *w, const char *path)
{
	const struct io *io = ws->work->io;
	struct stat st;
	int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK;
	int fd = io->open(io->ctx, ws->work->root_fd, path, flags, 0);
	if (fd < 0)
		return fd == -ENOENT ? -EIO : fd;
	int r = io->fstat(io->ctx, fd, &st);
	(void)io->close(io->ctx, fd); /* only looked at */
	if (r < 0)
		return r;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != w->size || st.st_nlink == 0)
		return -EIO;
	return st.st_nlink > 1 ? 2 : 1;
}

static int check_alone(struct ws *ws, const struct ws_put *w, const char *path)
{
	int n = count_links(ws, w, path);
	if (n <= 1)
		return n < 0 ? n : 0;
	/* What a kill left in the layer, or a file that is deleted, goes with a commit. */
	int r = ws_commit(ws, NULL);
	n = r < 0 ? r : count_links(ws, w, path);
	return n > 1 ? -EMLINK : n < 0 ? n : 0;
}

/* Space and quota for all of it. Under meta exclusive. */
static int reserve(struct ws *ws, struct putting *p, uint64_t ino)
{
	uint64_t size = p->want->size, all = block_ceil(size);
	int64_t bytes = quota_clip(0, all, size);
	int r = layer_refuses(active(ws));
	if (r == 0)
		r = quota_check(&ws->quota, bytes, 1);
	if (r == 0)
		r = layer_alloc(active(ws), ino, 0, all, &p->content);
	if (r < 0)
		return r;
	if (p->content.file != ino || p->content.len != all) {
		layer_alloc_cancel(active(ws), &p->content);
		return -EXDEV;
	}
	p->a = (struct attr){ .ino = ino, .size = size, .blocks = all / 512 };
	p->charged = bytes;
	ws->quota.reserved += bytes;
	return 0;
}

/* From the reserve to the inode, if that is made. Under meta exclusive. */
static int spend(struct ws *ws, struct putting *p, struct ws_put_result *out)
{
	ws->quota.reserved -= p->charged;
	int r = quota_check(&ws->quota, p->charged, 1);
	return r < 0 ? r : put_locked(ws, p, out);
}

static int take_over(struct ws *ws, struct putting *p, uint64_t ino, const char *path,
		     struct ws_put_result *out)
{
	meta_write(ws);
	int r = reserve(ws, p, ino);
	meta_done(ws);
	if (r < 0)
		return r;
	r = layer_adopt(active(ws), &p->content, ws->work->root_fd, path);
	bool adopted = r == 0;
	meta_write(ws);
	if (adopted)
		r = spend(ws, p, out);
	else
		ws->quota.reserved -= p->charged;
	/* A layer that takes nothing more may have the frame all the same. */
	bool unused = r < 0 && (!adopted || layer_refuses(active(ws)) == 0);
	if (unused && adopted)
		layer_disown(active(ws), &p->content);
	if (unused)
		layer_alloc_cancel(active(ws), &p->content);
	meta_done(ws);
	return r;
}

/* It was done, and the one who asked didn't hear of it. */
static int tell_done(struct ws *ws, struct putting *p, struct ws_put_result *out)
{
	ws_enter(ws);
	meta_read(ws);
	int r = look(ws, p);
	meta_done(ws);
	ws_leave(ws);
	if (r < 0 && r != -ENOENT)
		return r;
	tell(p, p->had ? &p->old : NULL, out);
	return 0;
}

static int put_upload(struct ws *ws, const struct ws_put *want, struct ws_put_result *out)
{
	struct putting p = { .want = want };
	char path[UPLOAD_PATH];
	uint64_t ino, node;
	int r = upload_path(want, path);
	if (r == 0)
		r = ws_answered(ws, want->tag, &node);
	if (r != 0)
		return r < 0 ? r : tell_done(ws, &p, out);
	if (want->size == 0 || want->size > WS_FILE_SIZE_MAX)
		return want->size ? -EFBIG : -EXDEV;
	r = check_alone(ws, want, path);
	if (r == 0)
		r = work_ino(ws->work, &ino);
	if (r < 0)
		return r;
	ws_enter(ws);
	r = take_over(ws, &p, ino, path, out);
	ws_leave(ws);
	return r;
}

int ws_put(struct ws *ws, const struct ws_put *want, struct ws_put_result *out)
{
	struct putting p = { .want = want };
	int r = ws_name_check(want->name, want->len);
	if (r < 0)
		return r == -EEXIST ? -EINVAL : r;
	if (want->upload)
		return put_upload(ws, want, out);
	ws_enter(ws);
	r = ws_prepare_first_name(ws, want->file);
	if (r == 0) {
		meta_write(ws);
		r = put_locked(ws, &p, out);
		meta_done(ws);
	}
	ws_leave(ws);
	return r;
}

/* ---- a name goes ---- */

static int take_locked(struct ws *ws, const struct ws_put *w, struct ws_put_result *out)
{
	struct putting p = { .want = w };
	struct op op;
	int r = look(ws, &p);
	if (r == 0)
		r = compare(&p);
	if (r == 0 && !p.had)
		r = -ENOENT;
	if (r == 0 && S_ISDIR(p.old.mode))
		r = -EISDIR;
	if (r == 0)
		r = ws_ours_room(ws);
	if (r < 0)
		return r;
	op_begin(&op, ws, p.old.ino, NULL);
	op.t.tag = w->tag;
	op_dirent_del(&op, p.dir.ino, p.cookie);
	ws_dir_changed(&op, &p.dir, 0);
	ws_name_gone(&op, &p.old, p.dir.ino, p.cookie);
	r = op_commit(&op);
	if (r < 0)
		return r;
	ws_ours_done(ws, w->tag);
	if (p.old.nlink == 0)
		orphan_reap(ws, p.old.ino, node_of(&p.old));
	tell(&p, NULL, out);
	return 0;
}

int ws_take(struct ws *ws, const struct ws_put *want, struct ws_put_result *out)
{
	int r = ws_name_check(want->name, want->len);
	if (r < 0)
		return r == -EEXIST ? -EINVAL : r;
	ws_enter(ws);
	meta_write(ws);
	r = take_locked(ws, want, out);
	meta_done(ws);
	ws_leave(ws);
	return r;
}
