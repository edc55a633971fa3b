/* Operations on names: lookup, create, link, unlink, rename. Each is one txn under meta. */
#include "fs/work/ws_impl.h"

#include <dirent.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int ws_name_check(const char *name, size_t len)
{
	if (len == 0)
		return -ENOENT;
	if (len > NAME_MAX_BYTES)
		return -ENAMETOOLONG;
	if ((len == 1 && name[0] == '.') || (len == 2 && name[0] == '.' && name[1] == '.'))
		return -EEXIST;
	return memchr(name, '/', len) || memchr(name, '\0', len) ? -EINVAL : 0;
}

static uint8_t type_of(uint32_t mode)
{
	return (uint8_t)((mode & S_IFMT) >> 12);
}

/* A name whose inode is lost is damage. */
int ws_find(struct ws *ws, uint64_t dir, const char *name, size_t len, struct dirent_ref *d,
	    struct attr *a)
{
	if (len > NAME_MAX_BYTES)
		return -ENAMETOOLONG;
	int r = view_lookup(&ws->view, dir, name, len, d);
	if (r < 0)
		return r;
	r = view_inode(&ws->view, d->ino, a);
	return r == -ENOENT ? -EIO : r;
}

int ws_lookup(struct ws *ws, uint64_t dir, const char *name, size_t len, struct entry *out)
{
	struct attr d, a;
	struct dirent_ref ref;
	ws_enter(ws);
	meta_read(ws);
	int r = ws_get(ws, dir, &d);
	if (r == 0 && !S_ISDIR(d.mode))
		r = -ENOTDIR;
	if (r == 0)
		r = ws_find(ws, d.ino, name, len, &ref, &a);
	if (r == 0)
		r = node_ref(ws, &a);
	if (r == 0)
		*out = (struct entry){ .node = node_of(&a), .attr = a };
	meta_done(ws);
	ws_leave(ws);
	return r;
}

void ws_dir_changed(struct op *op, struct attr *dir, int links)
{
	dir->nlink += (uint32_t)links;
	dir->mtime = dir->ctime = op->now;
	op_inode(op, dir);
}

/* ---- making ---- */

/* A new inode's attributes, by the rules of its directory. */
static void new_attr(struct attr *a, const struct attr *dir, uint64_t ino, uint32_t mode,
		     const struct caller *c, const struct timespec *now)
{
	*a = (struct attr){ .ino = ino,
			    .mode = mode,
			    .uid = c->uid,
			    .gid = c->gid,
			    .nlink = 1,
			    .atime = *now,
			    .mtime = *now,
			    .ctime = *now,
			    .btime = *now,
			    .parent = dir->ino };
	if (dir->mode & S_ISGID) {
		a->gid = dir->gid;
		if (S_ISDIR(mode))
			a->mode |= S_ISGID;
	}
	if (S_ISDIR(mode)) {
		a->nlink = 2;
		a->size = 4096;
	}
}

/* Commits what hands out an entry of the inode: the reference is counted before, since it can
 * fail for want of memory and a committed operation can't. */
static int commit_entry(struct op *op, struct ws *ws, const struct attr *a)
{
	int r = node_ref(ws, a);
	if (r < 0) {
		txn_drop(&op->t);
		return r;
	}
	r = op_commit(op);
	if (r < 0)
		(void)node_unref(ws, node_of(a), 1);
	return r;
}

struct making {
	uint64_t dir;
	const char *name; /* NULL: without a name (O_TMPFILE) */
	size_t len;
	uint32_t mode, rdev;
	const char *target;
	size_t target_len;
	const struct caller *c;
};

static int make_locked(struct ws *ws, const struct making *m, uint64_t ino, struct entry *out)
{
	struct attr dir, a;
	uint64_t cookie = 0;
	int r = ws_get_dir(ws, m->dir, &dir);
	if (r == 0 && m->name)
		r = view_free_cookie(&ws->view, dir.ino, m->name, m->len, &cookie);
	if (r == 0)
		r = hold_check(ws, m->c->who, 0, 1);
	if (r < 0)
		return r;
	struct op op;
	op_begin(&op, ws, ino, m->c);
	new_attr(&a, &dir, ino, m->mode, m->c, &op.now);
	a.rdev = S_ISCHR(m->mode) || S_ISBLK(m->mode) ? m->rdev : 0;
	if (m->target)
		a.size = m->target_len;
	a.parent_cookie = cookie;
	if (!m->name)
		a.nlink = 0;
	op_new_inode(&op, &a);
	if (m->target)
		txn_target(&op.t, ino, m->target, m->target_len);
	if (m->name) {
		txn_dirent(&op.t, dir.ino, cookie, m->name, m->len, ino, type_of(a.mode));
		ws_dir_changed(&op, &dir, S_ISDIR(a.mode) ? 1 : 0);
	}
	r = commit_entry(&op, ws, &a);
	if (r < 0)
		return r;
	(void)hold_spend(ws, m->c->who, 0, 1); /* bytes are none */
	if (!m->name)
		orphan_add(ws, ino);
	*out = (struct entry){ .node = node_of(&a), .attr = a };
	return 0;
}

static int make(struct ws *ws, const struct making *m, struct entry *out)
{
	uint64_t ino;
	int r = m->name ? ws_name_check(m->name, m->len) : 0;
	if (r == 0)
		r = work_ino(ws->work, &ino);
	if (r < 0)
		return r;
	ws_enter(ws);
	meta_write(ws);
	r = make_locked(ws, m, ino, out);
	meta_done(ws);
	ws_leave(ws);
	return r;
}

int ws_mknod(struct ws *ws, uint64_t dir, const char *name, size_t len, uint32_t mode,
	     uint32_t rdev, const struct caller *c, struct entry *out)
{
	if ((mode & S_IFMT) == 0)
		mode |= S_IFREG;
	if (!attr_type_ok(mode) || S_ISLNK(mode))
		return -EINVAL;
	struct making m = { .dir = dir,
			    .name = name,
			    .len = len,
			    .mode = mode & (S_IFMT | 07777),
			    .rdev = rdev,
			    .c = c };
	return make(ws, &m, out);
}

int ws_symlink(struct ws *ws, uint64_t dir, const char *name, size_t len, const char *target,
	       const struct caller *c, struct entry *out)
{
	struct making m = { .dir = dir,
			    .name = name,
			    .len = len,
			    .mode = S_IFLNK | 0777,
			    .target = target,
			    .target_len = strlen(target),
			    .c = c };
	if (m.target_len == 0)
		return -ENOENT;
	if (m.target_len > 4095)
		return -ENAMETOOLONG;
	return make(ws, &m, out);
}

int ws_tmpfile(struct ws *ws, uint64_t dir, uint32_t mode, const struct caller *c,
	       struct entry *out)
{
	struct making m = { .dir = dir, .mode = S_IFREG | (mode & 07777), .c = c };
	return make(ws, &m, out);
}

static int link_locked(struct ws *ws, uint64_t node, uint64_t dirnode, const char *name, size_t len,
		       const struct caller *c, struct entry *out)
{
	struct attr dir, a;
	uint64_t cookie;
	int r = ws_get_dir(ws, dirnode, &dir);
	if (r == 0)
		r = ws_get(ws, node, &a);
	if (r == 0 && S_ISDIR(a.mode))
		r = -EPERM;
	if (r == 0)
		r = view_free_cookie(&ws->view, dir.ino, name, len, &cookie);
	if (r == 0 && a.nlink >= WS_LINK_MAX)
		r = -EMLINK;
	if (r < 0)
		return r;
	struct op op;
	op_begin(&op, ws, a.ino, c);
	bool first = a.nlink == 0;
	op.files += first;
	a.nlink++;
	a.ctime = op.now;
	/* The newest name is the one that stays where a file is made under another one first. */
	a.parent = dir.ino;
	a.parent_cookie = cookie;
	op_inode(&op, &a);
	txn_dirent(&op.t, dir.ino, cookie, name, len, a.ino, type_of(a.mode));
	ws_dir_changed(&op, &dir, 0);
	r = commit_entry(&op, ws, &a);
	if (r < 0)
		return r;
	if (first)
		(void)orphan_del(ws, a.ino);
	*out = (struct entry){ .node = node_of(&a), .attr = a };
	return 0;
}

/* What sealed layers have of it would be left out when they are saved. */
int ws_prepare_first_name(struct ws *ws, uint64_t node)
{
	struct attr a, below;
	meta_read(ws);
	int r = ws_get(ws, node, &a);
	bool pull = r == 0 && a.nlink == 0 && !S_ISDIR(a.mode) &&
		    view_inode_below(&ws->view, 1, a.ino, &below) == 0;
	meta_done(ws);
	if (!pull)
		return r;
	stripe_write(ws, a.ino);
	r = ws_pull_up(ws, &a);
	stripe_done(ws, a.ino);
	return r;
}

int ws_link(struct ws *ws, uint64_t node, uint64_t dir, const char *name, size_t len,
	    const struct caller *c, struct entry *out)
{
	int r = ws_name_check(name, len);
	if (r < 0)
		return r;
	ws_enter(ws);
	r = ws_prepare_first_name(ws, node);
	if (r == 0) {
		meta_write(ws);
		r = link_locked(ws, node, dir, name, len, c, out);
		meta_done(ws);
	}
	ws_leave(ws);
	return r;
}

/* ---- taking away ---- */

void ws_name_gone(struct op *op, struct attr *a, uint64_t dir, uint64_t cookie)
{
	a->ctime = op->now;
	if (a->parent == dir && a->parent_cookie == cookie)
		a->parent_cookie = 0;
	a->nlink = S_ISDIR(a->mode) ? 0 : a->nlink > 0 ? a->nlink - 1 : 0;
	if (a->nlink == 0)
		op_unlinked(op, a);
	else
		op_inode(op, a);
}

static int remove_locked(struct ws *ws, uint64_t dirnode, const char *name, size_t len,
			 bool want_dir, const struct caller *c)
{
	struct attr dir, a;
	struct dirent_ref d;
	int r = ws_get_dir(ws, dirnode, &dir);
	if (r == 0)
		r = ws_find(ws, dir.ino, name, len, &d, &a);
	if (r < 0)
		return r;
	if (want_dir) {
		if (!S_ISDIR(a.mode))
			return -ENOTDIR;
		r = view_dir_empty(&ws->view, a.ino);
		if (r <= 0)
			return r < 0 ? r : -ENOTEMPTY;
	} else if (S_ISDIR(a.mode)) {
		return -EISDIR;
	}
	struct op op;
	uint64_t cookie = d.cookie;
	op_begin(&op, ws, a.ino, c);
	op_dirent_del(&op, dir.ino, cookie);
	ws_dir_changed(&op, &dir, want_dir ? -1 : 0);
	ws_name_gone(&op, &a, dir.ino, cookie);
	r = op_commit(&op);
	/* The kernel may have let go between the look at its references and now. */
	if (r == 0 && a.nlink == 0)
		orphan_reap(ws, a.ino, node_of(&a));
	return r;
}

static int remove_name(struct ws *ws, uint64_t dir, const char *name, size_t len, bool want_dir,
		       const struct caller *c)
{
	ws_enter(ws);
	meta_write(ws);
	int r = remove_locked(ws, dir, name, len, want_dir, c);
	meta_done(ws);
	ws_leave(ws);
	return r;
}

int ws_unlink(struct ws *ws, uint64_t dir, const char *name, size_t len, const struct caller *c)
{
	return remove_name(ws, dir, name, len, false, c);
}

int ws_rmdir(struct ws *ws, uint64_t dir, const char *name, size_t len, const struct caller *c)
{
	return remove_name(ws, dir, name, len, true, c);
}

/* ---- renaming ---- */

struct renaming {
	struct ws *ws;
	struct attr from_dir, to_dir; /* equal inodes: only from_dir is used */
	bool same_dir;
	struct attr a, b; /* what moves, and what is there (has_b) */
	uint64_t a_cookie, b_cookie;
	bool has_b;
	const char *name, *newname;
	size_t len, newlen;
	unsigned flags;
	const struct caller *c;
};

static struct attr *to_dir(struct renaming *rn)
{
	return rn->same_dir ? &rn->from_dir : &rn->to_dir;
}

/* Whether directory `ino` is `below` or one of the directories above it. */
static int is_above(struct ws *ws, uint64_t ino, uint64_t below)
{
	for (unsigned i = 0; i < VIEW_DEPTH_MAX; i++) {
		struct attr a;
		if (below == ino)
			return 1;
		if (below == INO_ROOT)
			return 0;
		int r = view_inode(&ws->view, below, &a);
		if (r < 0)
			return r == -ENOENT ? 0 : r;
		below = a.parent;
	}
	return -ELOOP;
}

static int rename_find(struct renaming *rn, uint64_t dir, uint64_t newdir)
{
	struct ws *ws = rn->ws;
	struct dirent_ref d;
	int r = ws_get_dir(ws, dir, &rn->from_dir);
	if (r == 0)
		r = ws_get_dir(ws, newdir, &rn->to_dir);
	if (r < 0)
		return r;
	rn->same_dir = rn->from_dir.ino == rn->to_dir.ino;
	r = ws_find(ws, rn->from_dir.ino, rn->name, rn->len, &d, &rn->a);
	if (r < 0)
		return r;
	rn->a_cookie = d.cookie;
	r = ws_find(ws, rn->to_dir.ino, rn->newname, rn->newlen, &d, &rn->b);
	if (r < 0 && r != -ENOENT)
		return r;
	rn->has_b = r == 0;
	if (rn->has_b)
		rn->b_cookie = d.cookie;
	return 0;
}

/* 1: to be done, 0: nothing to do, or -errno. */
static int rename_allowed(struct renaming *rn)
{
	struct ws *ws = rn->ws;
	bool exchange = rn->flags & RENAME_EXCHANGE;
	int r;
	if (exchange && !rn->has_b)
		return -ENOENT;
	if ((rn->flags & RENAME_NOREPLACE) && rn->has_b)
		return -EEXIST;
	if (rn->has_b && rn->a.ino == rn->b.ino)
		return 0;
	if (S_ISDIR(rn->a.mode) && (r = is_above(ws, rn->a.ino, rn->to_dir.ino)) != 0)
		return r < 0 ? r : -EINVAL;
	if (exchange) {
		if (S_ISDIR(rn->b.mode) && (r = is_above(ws, rn->b.ino, rn->from_dir.ino)) != 0)
			return r < 0 ? r : -EINVAL;
		return 1;
	}
	if (!rn->has_b)
		return 1;
	if (S_ISDIR(rn->a.mode) != S_ISDIR(rn->b.mode))
		return S_ISDIR(rn->a.mode) ? -ENOTDIR : -EISDIR;
	if (S_ISDIR(rn->b.mode)) {
		r = view_dir_empty(&ws->view, rn->b.ino);
		if (r <= 0)
			return r < 0 ? r : -ENOTEMPTY;
	}
	return 1;
}

/* The inode has moved to another name. */
static void moved(struct op *op, struct attr *a, uint64_t dir, uint64_t cookie)
{
	a->ctime = op->now;
	a->parent = dir;
	a->parent_cookie = cookie;
	op_inode(op, a);
}

static void dirs_changed(struct op *op, struct renaming *rn, int from_links, int to_links)
{
	if (rn->same_dir) {
		ws_dir_changed(op, &rn->from_dir, from_links + to_links);
		return;
	}
	ws_dir_changed(op, &rn->from_dir, from_links);
	ws_dir_changed(op, &rn->to_dir, to_links);
}

static int rename_exchange(struct renaming *rn)
{
	struct op op;
	struct attr *to = to_dir(rn);
	bool a_dir = S_ISDIR(rn->a.mode), b_dir = S_ISDIR(rn->b.mode);
	op_begin(&op, rn->ws, rn->a.ino, rn->c);
	txn_dirent(&op.t, rn->from_dir.ino, rn->a_cookie, rn->name, rn->len, rn->b.ino,
		   type_of(rn->b.mode));
	txn_dirent(&op.t, to->ino, rn->b_cookie, rn->newname, rn->newlen, rn->a.ino,
		   type_of(rn->a.mode));
	moved(&op, &rn->a, to->ino, rn->b_cookie);
	moved(&op, &rn->b, rn->from_dir.ino, rn->a_cookie);
	txn_keep(&op.t, rn->a.ino); /* as below */
	txn_keep(&op.t, rn->b.ino);
	dirs_changed(&op, rn, b_dir - a_dir, a_dir - b_dir);
	return op_commit(&op);
}

/* What stays at the old name. */
static void leave_old_name(struct op *op, struct renaming *rn, uint64_t whiteout)
{
	if (!whiteout) {
		op_dirent_del(op, rn->from_dir.ino, rn->a_cookie);
		return;
	}
	struct attr w;
	new_attr(&w, &rn->from_dir, whiteout, S_IFCHR, rn->c, &op->now);
	w.parent_cookie = rn->a_cookie;
	op_new_inode(op, &w);
	txn_dirent(&op->t, rn->from_dir.ino, rn->a_cookie, rn->name, rn->len, whiteout, DT_CHR);
}

static int rename_move(struct renaming *rn, uint64_t whiteout)
{
	struct ws *ws = rn->ws;
	struct attr *to = to_dir(rn);
	bool a_dir = S_ISDIR(rn->a.mode);
	uint64_t cookie = rn->b_cookie;
	int r = 0;
	if (!rn->has_b)
		r = view_free_cookie(&ws->view, to->ino, rn->newname, rn->newlen, &cookie);
	if (r == 0 && whiteout)
		r = quota_check(&ws->quota, 0, 1);
	if (r < 0)
		return r;
	struct op op;
	op_begin(&op, ws, rn->a.ino, rn->c);
	leave_old_name(&op, rn, whiteout);
	txn_dirent(&op.t, to->ino, cookie, rn->newname, rn->newlen, rn->a.ino, type_of(rn->a.mode));
	moved(&op, &rn->a, to->ino, cookie);
	if (rn->has_b) {
		/* Many programs replace a file so without an fsync: the name shall not come back
		 * without the bytes, where it led to older ones. */
		txn_keep(&op.t, rn->a.ino);
		ws_name_gone(&op, &rn->b, to->ino, cookie);
	}
	dirs_changed(&op, rn, -a_dir, a_dir - (rn->has_b && S_ISDIR(rn->b.mode)));
	r = op_commit(&op);
	if (r == 0 && rn->has_b && rn->b.nlink == 0)
		orphan_reap(ws, rn->b.ino, node_of(&rn->b));
	return r;
}

int ws_rename(struct ws *ws, uint64_t dir, const char *name, size_t len, uint64_t newdir,
	      const char *newname, size_t newlen, unsigned flags, const struct caller *c)
{
	struct renaming rn = { .ws = ws,
			       .name = name,
			       .len = len,
			       .newname = newname,
			       .newlen = newlen,
			       .flags = flags,
			       .c = c };
	uint64_t whiteout = 0;
	if ((flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT)) ||
	    ((flags & RENAME_EXCHANGE) && (flags & (RENAME_NOREPLACE | RENAME_WHITEOUT))))
		return -EINVAL;
	int r = ws_name_check(newname, newlen);
	if (r == 0 && (flags & RENAME_WHITEOUT))
		r = work_ino(ws->work, &whiteout);
	if (r < 0)
		return r;
	ws_enter(ws);
	meta_write(ws);
	r = rename_find(&rn, dir, newdir);
	if (r == 0)
		r = rename_allowed(&rn);
	if (r > 0)
		r = flags & RENAME_EXCHANGE ? rename_exchange(&rn) : rename_move(&rn, whiteout);
	meta_done(ws);
	ws_leave(ws);
	return r;
}

int ws_readlink(struct ws *ws, uint64_t node, char *buf, size_t cap, size_t *len)
{
	struct attr a;
	ws_enter(ws);
	meta_read(ws);
	int r = ws_get(ws, node, &a);
	if (r == 0 && !S_ISLNK(a.mode))
		r = -EINVAL;
	if (r == 0)
		r = view_target(&ws->view, a.ino, buf, cap, len);
	if (r == -ENOENT)
		r = -EIO; /* the inode is there, its target isn't */
	meta_done(ws);
	ws_leave(ws);
	return r;
}
