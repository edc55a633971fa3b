/* Compare and replace: what was uploaded gets its name, or a name goes, if what has that name is
 * what the caller believes. One step under meta, one frame of the journal. */
#include "fs/work/ws_impl.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

struct putting {
	const struct ws_put *want;
	struct attr dir, a, old; /* a: the file; old: what has the name (had) */
	bool had;
	uint64_t cookie;
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
	if (w->as_is) {
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
	op_own(op, a, bytes);
	op_inode(op, a);
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
	op.files++;
	p->a.nlink = 1;
	p->a.ctime = op.now;
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
	(void)orphan_del(ws, p->a.ino);
	if (p->had && p->old.nlink == 0)
		orphan_reap(ws, p->old.ino, node_of(&p->old));
	return 0;
}

/* Asked once more by who didn't hear the answer. */
static bool is_done(const struct putting *p)
{
	return p->had && p->old.ino == p->want->file;
}

static int put_locked(struct ws *ws, const struct ws_put *w, struct ws_put_result *out)
{
	struct putting p = { .want = w };
	int r = look(ws, &p);
	if (r < 0)
		return r;
	if (is_done(&p)) {
		tell(&p, &p.old, out);
		return 0;
	}
	r = compare(&p);
	if (r == 0 && p.had && !S_ISREG(p.old.mode))
		r = S_ISDIR(p.old.mode) ? -EISDIR : -ELOOP;
	if (r == 0)
		r = view_inode(&ws->view, w->file, &p.a);
	if (r == 0 && (!S_ISREG(p.a.mode) || p.a.nlink > 0))
		r = -EINVAL;
	if (r == 0)
		r = ws_ours_room(ws);
	if (r == 0)
		r = name_file(ws, &p);
	if (r == 0)
		tell(&p, &p.a, out);
	return r;
}

int ws_put(struct ws *ws, const struct ws_put *want, struct ws_put_result *out)
{
	int r = ws_name_check(want->name, want->len);
	if (r < 0)
		return r == -EEXIST ? -EINVAL : r;
	ws_enter(ws);
	r = ws_prepare_first_name(ws, want->file);
	if (r == 0) {
		meta_write(ws);
		r = put_locked(ws, want, out);
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
