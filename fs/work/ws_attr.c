/* Operations on attributes: getattr, setattr, xattrs; readdir and statfs. */
#include "fs/work/changed.h"
#include "fs/work/ws_impl.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

int ws_getattr(struct ws *ws, uint64_t node, struct attr *out)
{
	ws_enter(ws);
	meta_read(ws);
	int r = ws_get(ws, node, out);
	meta_done(ws);
	ws_leave(ws);
	return r;
}

struct setting {
	unsigned what;
	const struct attr *in;
};

static int apply(struct op *op, struct attr *a, void *ctx)
{
	const struct setting *s = ctx;
	const unsigned what = s->what;
	const struct attr *in = s->in;
	if (what & WS_KILL_SUID)
		op_kill_priv(op, a);
	if (what & (WS_SET_UID | WS_SET_GID))
		op_kill_hidden(op, a);
	if (what & WS_SET_MODE)
		a->mode = (a->mode & S_IFMT) | (in->mode & 07777);
	if (what & WS_SET_UID)
		a->uid = in->uid;
	if (what & WS_SET_GID)
		a->gid = in->gid;
	a->ctime = op->now;
	if (what & (WS_SET_ATIME | WS_SET_ATIME_NOW))
		a->atime = what & WS_SET_ATIME_NOW ? op->now : in->atime;
	if (what & (WS_SET_MTIME | WS_SET_MTIME_NOW))
		a->mtime = what & WS_SET_MTIME_NOW ? op->now : in->mtime;
	if (what & WS_SET_CTIME)
		a->ctime = in->ctime;
	return 0;
}

int ws_setattr(struct ws *ws, uint64_t node, unsigned what, const struct attr *in,
	       const struct caller *c, struct attr *out)
{
	struct setting s = { what, in };
	struct attr a;
	int r;
	ws_enter(ws);
	if (what & WS_SET_SIZE) {
		struct change ch = {
			.what = CHANGE_RESIZE, .off = in->size, .also = apply, .ctx = &s
		};
		stripe_write(ws, ino_of(node));
		r = content_change(ws, node, &ch, c, &a);
		stripe_done(ws, ino_of(node));
	} else {
		meta_write(ws);
		r = ws_get(ws, node, &a);
		if (r == 0) {
			struct op op;
			op_begin(&op, ws, a.ino, c);
			(void)apply(&op, &a, &s); /* its failures are in op.error */
			op_inode(&op, &a);
			r = op_commit(&op);
		}
		meta_done(ws);
	}
	ws_leave(ws);
	if (r == 0 && out)
		*out = a;
	return r;
}

int ws_changed(struct ws *ws, uint64_t dirnode, const char *token, const struct caller *c,
	       size_t max, struct buf *out)
{
	struct attr dir;
	ws_enter(ws);
	meta_read(ws);
	int r = ws_get_dir(ws, dirnode, &dir);
	if (r == 0 && c->uid != 0 && c->uid != dir.uid)
		r = -EPERM;
	if (r == 0)
		r = changed_since(out, &ws->view, dir.ino, token, max);
	meta_done(ws);
	ws_leave(ws);
	return r;
}

/* ---- xattrs ---- */

enum {
	XATTR_VALUE_MAX = 64 * 1024, /* XATTR_SIZE_MAX */
	XATTR_NAMES_MAX = 64 * 1024, /* XATTR_LIST_MAX: more could not be listed */
	XATTR_TOTAL_MAX = 1 << 20,   /* bytes of one inode: its values are held in memory */
};

/* What the kernel's file systems say to that name; `change`: it is set or removed. */
static int xattr_name_check(const char *name, const struct attr *a, bool change)
{
	size_t len = strlen(name);
	if (len == 0 || len > NAME_MAX_BYTES)
		return -ERANGE;
	static const char *const spaces[] = { "user.", "security.", "trusted." };
	const char *space = NULL;
	for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]) && !space; i++)
		if (strncmp(name, spaces[i], strlen(spaces[i])) == 0)
			space = spaces[i];
	if (!space)
		return -EOPNOTSUPP;
	if (space == spaces[0] && !S_ISREG(a->mode) && !S_ISDIR(a->mode))
		return change ? -EPERM : -ENODATA;
	return len == strlen(space) ? -EINVAL : 0;
}

struct xattr_sum {
	size_t names, total; /* bytes */
	const char *leave_out;
};

static int sum_xattr(void *ctx, const char *name, size_t name_len, const void *value, size_t len)
{
	struct xattr_sum *s = ctx;
	if (strlen(s->leave_out) == name_len && memcmp(s->leave_out, name, name_len) == 0)
		return 0;
	s->names += name_len + 1;
	s->total += name_len + len;
	return 0;
}

static int setxattr_locked(struct ws *ws, uint64_t node, const char *name, const void *value,
			   size_t len, int flags, const struct caller *c)
{
	struct attr a;
	size_t name_len = strlen(name), old_len = 0;
	const void *old;
	uint32_t index;
	int r = ws_get(ws, node, &a);
	if (r == 0)
		r = xattr_name_check(name, &a, true);
	if (r < 0)
		return r;
	r = a.flags & ATTR_HAS_XATTR
		    ? view_xattr_below(&ws->view, 0, a.ino, name, name_len, &old, &old_len, &index)
		    : -ENODATA;
	if (r < 0 && r != -ENODATA)
		return r;
	bool had = r == 0;
	if (had && (flags & XATTR_CREATE))
		return -EEXIST;
	if (!had && (flags & XATTR_REPLACE))
		return -ENODATA;
	struct xattr_sum sum = { .names = name_len + 1,
				 .total = name_len + len,
				 .leave_out = name };
	if (a.flags & ATTR_HAS_XATTR)
		r = view_each_xattr(&ws->view, a.ino, sum_xattr, &sum);
	else
		r = 0;
	if (r == 0 && (sum.names > XATTR_NAMES_MAX || sum.total > XATTR_TOTAL_MAX))
		r = -ENOSPC;
	int64_t growth = (int64_t)(name_len + len);
	if (had && index < own_layers(ws))
		growth -= (int64_t)(name_len + old_len);
	/* sum: all its xattrs, as they will be. */
	if (r == 0)
		r = ws_cap_growth(ws, &a, a.size, (int64_t)a.blocks, (int64_t)sum.total, &growth);
	if (r == 0)
		r = quota_check(&ws->quota, growth, 0);
	if (r < 0)
		return r;
	struct op op;
	op_begin(&op, ws, a.ino, c);
	a.ctime = op.now;
	a.flags |= ATTR_HAS_XATTR;
	op_own(&op, &a, growth);
	op_inode(&op, &a);
	txn_xattr(&op.t, a.ino, name, name_len, value, len);
	return op_commit(&op);
}

int ws_setxattr(struct ws *ws, uint64_t node, const char *name, const void *value, size_t len,
		int flags, const struct caller *c)
{
	if (len > XATTR_VALUE_MAX)
		return -E2BIG;
	if (flags & ~(XATTR_CREATE | XATTR_REPLACE))
		return -EINVAL;
	ws_enter(ws);
	meta_write(ws);
	int r = setxattr_locked(ws, node, name, value, len, flags, c);
	meta_done(ws);
	ws_leave(ws);
	return r;
}

ssize_t ws_getxattr(struct ws *ws, uint64_t node, const char *name, void *buf, size_t cap)
{
	struct attr a;
	const void *value = NULL;
	size_t len = 0;
	ws_enter(ws);
	meta_read(ws);
	int r = ws_get(ws, node, &a);
	if (r == 0)
		r = xattr_name_check(name, &a, false);
	if (r == 0)
		r = a.flags & ATTR_HAS_XATTR
			    ? view_xattr(&ws->view, a.ino, name, strlen(name), &value, &len)
			    : -ENODATA;
	if (r == 0 && cap > 0) {
		if (len > cap)
			r = -ERANGE;
		else if (len > 0)
			memcpy(buf, value, len);
	}
	meta_done(ws);
	ws_leave(ws);
	return r < 0 ? r : (ssize_t)len;
}

struct xattr_list {
	char *buf;
	size_t cap, len;
};

static int list_xattr(void *ctx, const char *name, size_t name_len, const void *value, size_t len)
{
	struct xattr_list *l = ctx;
	if (l->cap > 0) {
		if (l->cap - l->len < name_len + 1)
			return -ERANGE;
		memcpy(l->buf + l->len, name, name_len);
		l->buf[l->len + name_len] = '\0';
	}
	l->len += name_len + 1;
	return 0;
}

ssize_t ws_listxattr(struct ws *ws, uint64_t node, char *buf, size_t cap)
{
	struct attr a;
	struct xattr_list l = { .buf = buf, .cap = cap };
	ws_enter(ws);
	meta_read(ws);
	int r = ws_get(ws, node, &a);
	if (r == 0 && (a.flags & ATTR_HAS_XATTR))
		r = view_each_xattr(&ws->view, a.ino, list_xattr, &l);
	meta_done(ws);
	ws_leave(ws);
	return r < 0 ? r : (ssize_t)l.len;
}

static int removexattr_locked(struct ws *ws, uint64_t node, const char *name,
			      const struct caller *c)
{
	struct attr a;
	int r = ws_get(ws, node, &a);
	if (r == 0)
		r = xattr_name_check(name, &a, true);
	if (r == 0 && !(a.flags & ATTR_HAS_XATTR))
		r = -ENODATA;
	if (r < 0)
		return r;
	struct op op;
	op_begin(&op, ws, a.ino, c);
	a.ctime = op.now;
	r = op_xattr_del(&op, &a, name, strlen(name));
	if (r < 0) {
		txn_drop(&op.t);
		return r;
	}
	op_inode(&op, &a);
	return op_commit(&op);
}

int ws_removexattr(struct ws *ws, uint64_t node, const char *name, const struct caller *c)
{
	ws_enter(ws);
	meta_write(ws);
	int r = removexattr_locked(ws, node, name, c);
	meta_done(ws);
	ws_leave(ws);
	return r;
}

/* ---- directories ---- */

/* One entry to the caller: 1 taken, 0 no room, or -errno. */
static int give_entry(struct ws *ws, const struct dirent_ref *d, enum ws_plus plus,
		      bool (*fn)(void *ctx, const struct dirent_ref *d, const struct attr *a),
		      void *ctx)
{
	struct attr a;
	if (plus == WS_NAMES || (plus == WS_PLUS_FOLDERS && d->type != DT_DIR))
		return fn(ctx, d, NULL);
	/* An entry whose inode is lost is listed all the same; looking it up says -EIO. */
	if (view_inode(&ws->view, d->ino, &a) < 0)
		return fn(ctx, d, NULL);
	int r = node_ref(ws, &a);
	if (r < 0)
		return r;
	if (fn(ctx, d, &a))
		return 1;
	(void)node_unref(ws, node_of(&a), 1); /* it has a name: no orphan */
	return 0;
}

int ws_readdir(struct ws *ws, uint64_t dir, uint64_t after, enum ws_plus plus,
	       bool (*fn)(void *ctx, const struct dirent_ref *d, const struct attr *a), void *ctx)
{
	struct attr a;
	struct dirent_ref d;
	uint64_t given = 0;
	ws_enter(ws);
	meta_read(ws);
	int r = ws_get_dir(ws, dir, &a);
	while (r == 0 && after != UINT64_MAX) {
		r = view_dirent_ceil(&ws->view, a.ino, after + 1, &d);
		if (r < 0)
			break;
		r = give_entry(ws, &d, plus, fn, ctx);
		if (r <= 0)
			break;
		given++;
		after = d.cookie;
		r = 0;
	}
	meta_done(ws);
	/* The end, or a removed directory, which is empty. Any other error after the first entry
	 * is given by the next call. */
	if (r == -ENOENT || given > 0)
		r = 0;
	if (r == 0)
		ws_accessed(ws, dir, &a);
	ws_leave(ws);
	return r;
}

/* ---- statfs ---- */

size_t ws_room(struct ws *ws, uint64_t node, uint64_t off)
{
	struct attr a;
	size_t room = 0;
	ws_enter(ws);
	meta_read(ws);
	const struct quota *q = &ws->quota;
	int64_t used = q->bytes + q->reserved;
	if (ws_get_regular(ws, node, &a) == 0 && off >= a.size && used >= 0 &&
	    q->limits.bytes > (uint64_t)used)
		room = q->limits.bytes - (uint64_t)used;
	meta_done(ws);
	ws_leave(ws);
	return room;
}

int ws_statfs(struct ws *ws, struct ws_statfs *out)
{
	struct statvfs host;
	if (fstatvfs(ws->work->root_fd, &host) < 0)
		return -errno;
	uint64_t unit = host.f_frsize ? host.f_frsize : LAYER_BLOCK;
	struct ws_statfs s = {
		.block_size = LAYER_BLOCK,
		.blocks = host.f_blocks * unit / LAYER_BLOCK,
		.blocks_free = host.f_bavail * unit / LAYER_BLOCK,
		.files = host.f_files,
		.files_free = host.f_favail,
	};
	ws_enter(ws);
	meta_read(ws);
	const struct quota *q = &ws->quota;
	if (q->limits.bytes) {
		uint64_t used = q->bytes > 0 ? (uint64_t)q->bytes : 0;
		uint64_t left = q->limits.bytes > used ? q->limits.bytes - used : 0;
		s.blocks = q->limits.bytes / LAYER_BLOCK;
		if (left / LAYER_BLOCK < s.blocks_free)
			s.blocks_free = left / LAYER_BLOCK;
	}
	if (q->limits.inodes) {
		uint64_t used = q->inodes > 0 ? (uint64_t)q->inodes : 0;
		s.files = q->limits.inodes;
		s.files_free = q->limits.inodes > used ? q->limits.inodes - used : 0;
	}
	meta_done(ws);
	ws_leave(ws);
	*out = s;
	return 0;
}
