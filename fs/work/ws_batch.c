/* Many changes in one frame. They are made in memory first, over what the view shows: names and
 * inodes as they will be. Then their records are written at once, under meta all the time, so
 * nobody sees a part of them, or comes in between a condition and its change. */
#include "fs/work/ws_batch.h"

#include <string.h>
#include <sys/stat.h>

#include "fs/base/array.h"

/* ---- inodes ---- */

/* Borrowed until the next call that may add one. */
static int get_inode(struct batch *b, uint64_t ino, struct binode **out)
{
	size_t i = (uintptr_t)u64map_get(&b->by_ino, ino);
	if (i == 0) {
		struct binode n = { 0 };
		int r = view_inode(&b->ws->view, ino, &n.a);
		if (r < 0)
			return r;
		if (b->ninodes >= BATCH_INODES_MAX)
			return -E2BIG;
		if (array_grow(&b->inodes, b->ninodes, &b->inodes_cap) < 0)
			return -ENOMEM;
		b->inodes[b->ninodes++] = n;
		i = b->ninodes;
		if (u64map_put(&b->by_ino, ino, (void *)(uintptr_t)i) < 0)
			return -ENOMEM;
	}
	*out = &b->inodes[i - 1];
	return 0;
}

static int new_inode(struct batch *b, const struct attr *dir, uint32_t mode, struct binode **out)
{
	struct timespec now = b->op.now;
	if (b->ninodes >= BATCH_INODES_MAX)
		return -E2BIG;
	assert(b->used < b->nnumbers);
	struct binode n = {
		.fresh = true,
		.changed = true,
		.a = { .ino = b->numbers[b->used++],
		       .mode = mode,
		       .uid = dir->uid,
		       .gid = dir->gid,
		       .nlink = S_ISDIR(mode) ? 2 : 1,
		       .size = S_ISDIR(mode) ? 4096 : 0,
		       .atime = now,
		       .mtime = now,
		       .ctime = now,
		       .btime = now },
	};
	if (S_ISDIR(mode) && dir->mode & S_ISGID)
		n.a.mode |= S_ISGID;
	if (array_grow(&b->inodes, b->ninodes, &b->inodes_cap) < 0)
		return -ENOMEM;
	b->inodes[b->ninodes++] = n;
	if (u64map_put(&b->by_ino, n.a.ino, (void *)(uintptr_t)b->ninodes) < 0)
		return -ENOMEM;
	*out = &b->inodes[b->ninodes - 1];
	return 0;
}

static void touch(struct batch *b, struct binode *dir, int links)
{
	dir->a.nlink += (uint32_t)links;
	dir->a.ctime = b->op.now;
	if (!dir->keep_times)
		dir->a.mtime = b->op.now;
	dir->changed = true;
}

/* ---- names ---- */

static uint64_t key_of(const struct batch *b, uint64_t dir, uint64_t what)
{
	uint64_t k[2] = { dir, what };
	uint64_t h = hash_xxh3(k, sizeof(k), b->seed);
	return h ? h : 1;
}

static uint64_t name_key(const struct batch *b, uint64_t dir, const char *name, size_t len)
{
	return key_of(b, dir, hash_xxh3(name, len, b->seed));
}

static uint32_t find_name(const struct batch *b, uint64_t key, uint64_t dir, const char *name,
			  size_t len)
{
	uint32_t i = (uint32_t)(uintptr_t)u64map_get(&b->by_name, key);
	while (i) {
		const struct bname *n = &b->names[i - 1];
		if (n->dir == dir && n->len == len && memcmp(n->name, name, len) == 0)
			return i;
		i = n->next;
	}
	return 0;
}

/* Its index. */
static int get_name(struct batch *b, uint64_t dir, const char *name, size_t len, size_t *out)
{
	struct dirent_ref d;
	uint64_t key = name_key(b, dir, name, len);
	uint32_t i = find_name(b, key, dir, name, len);
	if (i) {
		*out = i - 1;
		return 0;
	}
	if (b->nnames >= BATCH_INODES_MAX)
		return -E2BIG;
	if (array_grow(&b->names, b->nnames, &b->names_cap) < 0)
		return -ENOMEM;
	struct bname n = { .dir = dir, .name = name, .len = (uint16_t)len };
	size_t at = (uintptr_t)u64map_get(&b->by_ino, dir);
	bool fresh = at && b->inodes[at - 1].fresh; /* the view has none of it */
	int r = fresh ? -ENOENT : view_lookup(&b->ws->view, dir, name, len, &d);
	if (r < 0 && r != -ENOENT)
		return r;
	if (r == 0) {
		n.had = true;
		n.cookie = d.cookie;
		n.child = d.ino;
		n.type = d.type;
		if (u64map_put(&b->by_cookie, key_of(b, dir, d.cookie), b) < 0)
			return -ENOMEM;
	}
	n.next = (uint32_t)(uintptr_t)u64map_get(&b->by_name, key);
	n.sibling = (uint32_t)(uintptr_t)u64map_get(&b->by_dir, dir);
	b->names[b->nnames++] = n;
	*out = b->nnames - 1;
	r = u64map_put(&b->by_name, key, (void *)(uintptr_t)b->nnames);
	return r < 0 ? r : u64map_put(&b->by_dir, dir, (void *)(uintptr_t)b->nnames);
}

/* A cookie that neither the view nor another name of the batch has. */
static int take_cookie(struct batch *b, struct bname *n)
{
	const struct view *v = &b->ws->view;
	uint64_t hash = name_hash(n->name, n->len, v->seed);
	if (n->cookie)
		return 0;
	for (uint64_t c = hash; c < hash + NAME_PROBE; c++) {
		struct dirent_ref d;
		if (u64map_get(&b->by_cookie, key_of(b, n->dir, c)))
			continue;
		int r = view_dirent_ceil(v, n->dir, c, &d);
		if (r < 0 && r != -ENOENT)
			return r;
		if (r == 0 && d.cookie == c)
			continue;
		n->cookie = c;
		return u64map_put(&b->by_cookie, key_of(b, n->dir, c), b);
	}
	return -ENOSPC;
}

/* The name leads to the inode from now on. */
static int set_name(struct batch *b, size_t at, struct binode *to)
{
	struct bname *n = &b->names[at];
	int r = take_cookie(b, n);
	if (r < 0)
		return r;
	n->child = to->a.ino;
	n->type = (uint8_t)((to->a.mode & S_IFMT) >> 12);
	n->changed = true;
	to->a.parent = n->dir;
	to->a.parent_cookie = n->cookie;
	to->a.ctime = b->op.now;
	to->changed = true;
	return 0;
}

/* The name leads nowhere: one less of the inode's. */
static void drop_name(struct batch *b, size_t at, struct binode *of)
{
	struct bname *n = &b->names[at];
	struct attr *a = &of->a;
	if (a->parent == n->dir && a->parent_cookie == n->cookie)
		a->parent_cookie = 0;
	a->ctime = b->op.now;
	a->nlink = S_ISDIR(a->mode) ? 0 : a->nlink > 0 ? a->nlink - 1 : 0;
	of->ended = a->nlink == 0;
	of->changed = true;
	n->child = 0;
	n->changed = true;
}

/* ---- paths ---- */

static int make_parent(struct batch *b, size_t at)
{
	struct binode *dir, *made;
	int r = get_inode(b, b->names[at].dir, &dir);
	struct attr above = dir->a;
	if (r == 0)
		r = new_inode(b, &above, S_IFDIR | 0755, &made);
	if (r == 0)
		r = set_name(b, at, made);
	if (r == 0)
		r = get_inode(b, b->names[at].dir, &dir);
	if (r == 0)
		touch(b, dir, 1);
	return r;
}

/* The folder of a path, and its last name's index. */
static int resolve(struct batch *b, const char *path, size_t len, bool parents, size_t *out)
{
	uint64_t dir = INO_ROOT;
	for (size_t i = 0;;) {
		const char *slash = memchr(path + i, '/', len - i);
		size_t at, n = slash ? (size_t)(slash - path) - i : len - i;
		struct binode *d;
		int r = get_inode(b, dir, &d);
		if (r == 0 && (!S_ISDIR(d->a.mode) || d->a.nlink == 0))
			r = S_ISLNK(d->a.mode) ? -ELOOP : -ENOTDIR;
		if (r == 0)
			r = get_name(b, dir, path + i, n, &at);
		if (r < 0)
			return r == -ENOENT ? -EIO : r; /* a name whose inode is lost */
		if (!slash) {
			*out = at;
			return 0;
		}
		if (!b->names[at].child) {
			r = parents ? make_parent(b, at) : -ENOENT;
			if (r < 0)
				return r;
		}
		dir = b->names[at].child;
		i += n + 1;
	}
}

/* ---- conditions ---- */

static bool listed(const uint8_t *list, size_t n, const struct attr *a)
{
	struct version_id v = version_of(a);
	for (size_t i = 0; i < n; i++) {
		struct version_id w = batch_version(list, i);
		if (version_equal(&v, &w))
			return true;
	}
	return false;
}

static int compare(const struct batch_op *o, const struct binode *old)
{
	if ((o->flags & BATCH_MUST_EXIST) && !old)
		return -EREMCHG;
	if ((o->flags & BATCH_MUST_NOT_EXIST) && old)
		return -EREMCHG;
	if (o->nmatch > 0 && !(old && listed(o->match, o->nmatch, &old->a)))
		return -EREMCHG;
	return old && listed(o->unless, o->nunless, &old->a) ? -EREMCHG : 0;
}

/* What the name leads to; NULL: nothing. And whether that is what the operation wants. */
static int look(struct batch *b, const struct batch_op *o, size_t at, struct binode **old)
{
	*old = NULL;
	int r = b->names[at].child ? get_inode(b, b->names[at].child, old) : 0;
	if (r < 0)
		return r == -ENOENT ? -EIO : r;
	return compare(o, *old);
}

/* What has the name gives way to what is no folder. */
static int give_way(struct batch *b, const struct batch_op *o, size_t at, struct binode *old)
{
	if (!old)
		return 0;
	if (S_ISDIR(old->a.mode))
		return -EISDIR;
	if (!(o->flags & BATCH_REPLACE))
		return o->kind == BATCH_PUT ? (S_ISREG(old->a.mode) ? 0 : -ELOOP) : -EEXIST;
	return 0;
}

/* ---- operations ---- */

static int touch_dir_of(struct batch *b, size_t at, int links)
{
	struct binode *dir;
	int r = get_inode(b, b->names[at].dir, &dir);
	if (r == 0)
		touch(b, dir, links);
	return r;
}

/* Mode, owner and whose xattrs of a file that takes a name, as ws_put has it. */
static void inherit(struct binode *f, const struct batch_op *o, const struct binode *dir,
		    const struct binode *old)
{
	bool file = old && S_ISREG(old->a.mode);
	if (o->flags & (BATCH_AS_IS | BATCH_GIVEN))
		return;
	f->a.uid = file ? old->a.uid : dir->a.uid;
	f->a.gid = file ? old->a.gid : dir->a.gid;
	uint32_t mode = file ? old->a.mode & 01777 : 0644;
	f->a.mode = S_IFREG | (o->flags & BATCH_SET_MODE ? o->mode & 07777 : mode);
	if (file && old->put)
		f->heir_of = old->heir_of;
	else if (file && old->a.flags & ATTR_HAS_XATTR)
		f->heir_of = old->a.ino;
}

static void set_attributes(struct batch *b, struct binode *n, const struct batch_op *o)
{
	n->a.mode = (n->a.mode & S_IFMT) | (o->mode & 07777);
	n->a.ctime = b->op.now;
	n->op = o;
	n->changed = true;
	if (!(o->flags & (BATCH_AS_IS | BATCH_GIVEN)))
		return;
	n->a.uid = o->uid;
	n->a.gid = o->gid;
	n->a.atime = o->atime;
	n->a.mtime = o->mtime;
	n->keep_times = S_ISDIR(o->mode);
}

static int do_put(struct batch *b, const struct batch_op *o, size_t at)
{
	struct binode *old, *dir, *f;
	int r = get_inode(b, o->file, &f);
	if (r < 0 || !S_ISREG(f->a.mode) || f->a.nlink > 0 || f->put)
		return r < 0 && r != -ENOENT ? r : -EINVAL;
	r = look(b, o, at, &old);
	if (r == 0)
		r = give_way(b, o, at, old);
	if (r == 0)
		r = get_inode(b, b->names[at].dir, &dir);
	/* These move when one is added. */
	if (r == 0)
		r = get_inode(b, o->file, &f);
	if (r == 0 && old)
		r = get_inode(b, b->names[at].child, &old);
	if (r < 0)
		return r;
	inherit(f, o, dir, old);
	if (o->flags & BATCH_GIVEN)
		set_attributes(b, f, o);
	if (old)
		drop_name(b, at, old);
	f->put = true;
	f->a.nlink = 1;
	r = set_name(b, at, f);
	touch(b, dir, 0);
	return r;
}

static int do_make(struct batch *b, const struct batch_op *o, size_t at)
{
	struct binode *old, *dir, *n;
	bool folder = S_ISDIR(o->mode);
	int r = look(b, o, at, &old);
	if (r == 0 && folder && old && S_ISDIR(old->a.mode) && (o->flags & BATCH_OLD_FOLDER)) {
		if (o->flags & BATCH_RESET)
			set_attributes(b, old, o);
		return 0;
	}
	if (r == 0 && folder && old)
		r = -EEXIST;
	if (r == 0)
		r = give_way(b, o, at, old);
	if (r < 0)
		return r;
	if (old)
		drop_name(b, at, old);
	r = get_inode(b, b->names[at].dir, &dir);
	if (r < 0)
		return r;
	struct attr above = dir->a;
	r = new_inode(b, &above, o->mode & S_IFMT, &n);
	if (r < 0)
		return r;
	uint32_t inherited = n->a.mode & S_ISGID;
	set_attributes(b, n, o);
	n->a.mode |= o->flags & BATCH_AS_IS ? 0 : inherited;
	n->a.rdev = S_ISCHR(o->mode) || S_ISBLK(o->mode) ? o->rdev : 0;
	if (S_ISLNK(o->mode))
		n->a.size = o->other_len;
	r = set_name(b, at, n);
	return r < 0 ? r : touch_dir_of(b, at, folder);
}

static int do_link(struct batch *b, const struct batch_op *o, size_t at)
{
	struct binode *old, *to;
	size_t from;
	int r = resolve(b, o->other, o->other_len, false, &from);
	if (r == 0 && !b->names[from].child)
		r = -ENOENT;
	if (r < 0)
		return r == -ENOTDIR || r == -ELOOP ? -ENOENT : r;
	r = look(b, o, at, &old);
	if (r == 0 && b->names[from].child == b->names[at].child)
		return 0;
	if (r == 0)
		r = give_way(b, o, at, old);
	if (r < 0)
		return r;
	if (old)
		drop_name(b, at, old);
	r = get_inode(b, b->names[from].child, &to);
	if (r == 0 && S_ISDIR(to->a.mode))
		r = -EPERM;
	if (r == 0 && to->a.nlink >= WS_LINK_MAX)
		r = -EMLINK;
	if (r < 0)
		return r;
	to->a.nlink++;
	r = set_name(b, at, to);
	return r < 0 ? r : touch_dir_of(b, at, 0);
}

/* ---- folders, emptied ---- */

/* Calls fn with the index of each name that is in the folder; a return other than 0 ends that. */
static int each_name(struct batch *b, uint64_t dir,
		     int (*fn)(struct batch *b, size_t at, void *ctx), void *ctx)
{
	size_t known = b->nnames;
	int r = 0;
	for (size_t i = (uintptr_t)u64map_get(&b->by_dir, dir); i && r == 0;
	     i = b->names[i - 1].sibling)
		if (b->names[i - 1].child)
			r = fn(b, i - 1, ctx);
	size_t at = (uintptr_t)u64map_get(&b->by_ino, dir);
	bool fresh = at && b->inodes[at - 1].fresh;
	for (uint64_t c = 0; r == 0 && !fresh;) {
		struct dirent_ref d;
		r = view_dirent_ceil(&b->ws->view, dir, c, &d);
		if (r < 0)
			break;
		c = d.cookie + 1;
		uint64_t key = name_key(b, dir, d.name, d.name_len);
		size_t i = find_name(b, key, dir, d.name, d.name_len);
		if (i && i <= known)
			continue; /* told already, or gone */
		r = get_name(b, dir, d.name, d.name_len, &i);
		if (r == 0)
			r = fn(b, i, ctx);
	}
	return r == -ENOENT ? 0 : r;
}

static int is_one(struct batch *b, size_t at, void *ctx)
{
	return 1;
}

struct sweeping {
	uint64_t *dirs; /* to be emptied yet */
	size_t n, cap;
};

static int sweep_one(struct batch *b, size_t at, void *ctx)
{
	struct sweeping *s = ctx;
	struct binode *of;
	int r = get_inode(b, b->names[at].child, &of);
	if (r < 0)
		return r == -ENOENT ? -EIO : r;
	bool folder = S_ISDIR(of->a.mode);
	if (folder && array_grow(&s->dirs, s->n, &s->cap) < 0)
		return -ENOMEM;
	if (folder)
		s->dirs[s->n++] = of->a.ino;
	drop_name(b, at, of);
	return 0;
}

static int sweep(struct batch *b, uint64_t dir)
{
	struct sweeping s = { 0 };
	int r = array_grow(&s.dirs, s.n, &s.cap);
	if (r == 0)
		s.dirs[s.n++] = dir;
	while (r == 0 && s.n > 0)
		r = each_name(b, s.dirs[--s.n], sweep_one, &s);
	free(s.dirs);
	return r;
}

static int do_delete(struct batch *b, const struct batch_op *o, size_t at)
{
	struct binode *old;
	int r = look(b, o, at, &old);
	if (r < 0 || !old)
		return r < 0 ? r : -ENOENT;
	uint64_t ino = old->a.ino;
	bool folder = S_ISDIR(old->a.mode), whole = o->flags & BATCH_RECURSIVE;
	r = folder && !whole ? each_name(b, ino, is_one, NULL) : 0;
	if (r)
		return r < 0 ? r : -ENOTEMPTY;
	r = get_inode(b, ino, &old);
	if (r < 0)
		return r;
	drop_name(b, at, old);
	r = touch_dir_of(b, at, folder ? -1 : 0);
	return r == 0 && folder && whole ? sweep(b, ino) : r;
}

/* ---- moved ---- */

/* Whether the folder `ino` is `below` or above it. */
static int is_above(struct batch *b, uint64_t ino, uint64_t below)
{
	for (unsigned i = 0; i < VIEW_DEPTH_MAX; i++) {
		struct binode *n;
		if (below == ino)
			return 1;
		if (below == INO_ROOT)
			return 0;
		int r = get_inode(b, below, &n);
		if (r < 0)
			return r == -ENOENT ? 0 : r;
		below = n->a.parent;
	}
	return -ELOOP;
}

/* 0, or why not; *folder: what moves is one, *onto: what is there is one. */
static int may_move(struct batch *b, const struct batch_op *o, size_t from, size_t to, bool *folder,
		    bool *onto)
{
	struct binode *a, *old;
	int r = get_inode(b, b->names[from].child, &a);
	if (r < 0)
		return r == -ENOENT ? -EIO : r;
	*folder = S_ISDIR(a->a.mode);
	r = *folder ? is_above(b, b->names[from].child, b->names[to].dir) : 0;
	if (r)
		return r < 0 ? r : -EINVAL;
	*onto = false;
	if (!b->names[to].child)
		return 0;
	if (!(o->flags & BATCH_REPLACE))
		return -EEXIST;
	r = get_inode(b, b->names[to].child, &old);
	if (r < 0)
		return r == -ENOENT ? -EIO : r;
	*onto = S_ISDIR(old->a.mode);
	if (*folder != *onto)
		return *folder ? -ENOTDIR : -EISDIR;
	r = *onto ? each_name(b, old->a.ino, is_one, NULL) : 0;
	return r > 0 ? -ENOTEMPTY : r;
}

static int do_move(struct batch *b, const struct batch_op *o, size_t from)
{
	struct binode *a, *old;
	size_t to;
	bool folder = false, onto = false;
	int r = look(b, o, from, &a);
	if (r < 0 || !a)
		return r < 0 ? r : -ENOENT;
	r = resolve(b, o->other, o->other_len, o->flags & BATCH_PARENTS, &to);
	if (r == 0 && b->names[from].child == b->names[to].child)
		return 0;
	if (r == 0)
		r = may_move(b, o, from, to, &folder, &onto);
	if (r == 0 && b->names[to].child) {
		r = get_inode(b, b->names[to].child, &old);
		if (r == 0)
			drop_name(b, to, old);
	}
	if (r == 0)
		r = get_inode(b, b->names[from].child, &a);
	if (r < 0)
		return r;
	b->names[from].child = 0;
	b->names[from].changed = true;
	r = set_name(b, to, a);
	if (r == 0)
		r = touch_dir_of(b, from, folder ? -1 : 0);
	return r == 0 ? touch_dir_of(b, to, (folder ? 1 : 0) - (onto ? 1 : 0)) : r;
}

static int do_chmod(struct batch *b, const struct batch_op *o, size_t at)
{
	struct binode *old;
	int r = look(b, o, at, &old);
	if (r < 0 || !old)
		return r < 0 ? r : -ENOENT;
	if (S_ISLNK(old->a.mode))
		return -ELOOP;
	old->a.mode = (old->a.mode & S_IFMT) | (o->mode & 07777);
	old->a.ctime = b->op.now;
	old->changed = true;
	return 0;
}

static int do_times(struct batch *b, const struct batch_op *o, size_t at)
{
	struct binode *old;
	int r = look(b, o, at, &old);
	if (r < 0 || !old || !S_ISDIR(old->a.mode))
		return r;
	old->a.atime = o->atime;
	old->a.mtime = o->mtime;
	old->a.ctime = b->op.now;
	old->keep_times = true;
	old->changed = true;
	return 0;
}

static int do_check(struct batch *b, const struct batch_op *o, size_t at)
{
	struct binode *old;
	return look(b, o, at, &old);
}

static int do_one(struct batch *b, const struct batch_op *o)
{
	static int (*const table[BATCH_KINDS])(struct batch *b, const struct batch_op *o,
					       size_t at) = {
		[BATCH_PUT] = do_put,       [BATCH_MAKE] = do_make,   [BATCH_LINK] = do_link,
		[BATCH_MOVE] = do_move,     [BATCH_DELETE] = do_delete, [BATCH_CHMOD] = do_chmod,
		[BATCH_CHECK] = do_check,   [BATCH_TIMES] = do_times,
	};
	size_t at;
	bool parents = (o->flags & BATCH_PARENTS) && o->kind != BATCH_MOVE;
	int r = resolve(b, o->path, o->path_len, parents, &at);
	bool absent = r == -ENOENT || r == -ENOTDIR;
	if (absent && (o->flags & BATCH_MUST_EXIST || o->nmatch > 0))
		return -EREMCHG;
	if ((absent || r == -ELOOP) && o->kind == BATCH_TIMES)
		return 0;
	if (absent && o->kind == BATCH_CHECK)
		return 0;
	return r < 0 ? r : table[o->kind](b, o, at);
}

/* ---- all of it ---- */

static void batch_done(struct batch *b)
{
	free(b->names);
	free(b->inodes);
	free(b->numbers);
	u64map_done(&b->by_name);
	u64map_done(&b->by_cookie);
	u64map_done(&b->by_dir);
	u64map_done(&b->by_ino);
}

/* One for each part of a path that might have to be made; more can't be (new_inode). */
static int take_numbers(struct batch *b, const struct ws_batch *w)
{
	struct work *work = b->ws->work;
	size_t n = 0, cap = 0;
	for (size_t i = 0; i < w->n; i++) {
		const struct batch_op *o = &w->ops[i];
		const char *p = o->kind == BATCH_MOVE ? o->other : o->path;
		size_t len = o->kind == BATCH_MOVE ? o->other_len : o->path_len;
		n += o->kind == BATCH_MAKE;
		for (size_t k = 0; o->flags & BATCH_PARENTS && k < len; k++)
			n += p[k] == '/';
	}
	n = n < BATCH_INODES_MAX ? n : BATCH_INODES_MAX;
	for (; b->nnumbers < n; b->nnumbers++) {
		int r = array_grow(&b->numbers, b->nnumbers, &cap);
		if (r == 0)
			r = work_ino(work, &b->numbers[b->nnumbers]);
		if (r < 0)
			return r;
	}
	return 0;
}

static int prepare_files(struct batch *b, const struct ws_batch *w, size_t *failed)
{
	for (size_t i = 0; i < w->n; i++) {
		int r = w->ops[i].kind == BATCH_PUT ? ws_prepare_first_name(b->ws, w->ops[i].file)
						    : 0;
		*failed = i;
		if (r < 0)
			return r == -ESTALE ? -EINVAL : r;
	}
	return 0;
}

static void after_commit(struct batch *b)
{
	for (size_t i = 0; i < b->ninodes; i++) {
		struct binode *n = &b->inodes[i];
		if (n->put && n->a.nlink > 0)
			(void)orphan_del(b->ws, n->a.ino);
		else if (n->ended && n->changed && n->a.nlink == 0)
			orphan_reap(b->ws, n->a.ino, node_of(&n->a));
	}
}

/* How each operation's path stands now. */
static void tell_results(struct batch *b, const struct ws_batch *w)
{
	for (size_t i = 0; w->results && i < w->n; i++) {
		const struct batch_op *o = &w->ops[i];
		struct binode *n;
		size_t at;
		bool moved = o->kind == BATCH_MOVE;
		int r = resolve(b, moved ? o->other : o->path, moved ? o->other_len : o->path_len,
				false, &at);
		if (r == 0 && b->names[at].child && get_inode(b, b->names[at].child, &n) == 0)
			w->results[i] = (struct ws_batch_result){ .there = true, .attr = n->a };
	}
}

static int batch_locked(struct batch *b, const struct ws_batch *w, struct forget_list *f,
			size_t *failed)
{
	int r = ws_ours_room(b->ws);
	op_begin(&b->op, b->ws, INO_ROOT, NULL);
	b->op.t.tag = w->tag;
	for (size_t i = 0; i < w->n && r == 0; i++) {
		*failed = i;
		r = do_one(b, &w->ops[i]);
	}
	if (r == 0) {
		*failed = w->n;
		batch_put_records(b);
		r = hold_check(b->ws, w->who, b->op.bytes, b->op.inodes);
	}
	if (r == 0 && b->op.t.records > 0)
		r = batch_remember(b, f);
	if (r < 0) {
		txn_drop(&b->op.t);
		return r;
	}
	r = op_commit(&b->op);
	if (r == 0) {
		(void)hold_spend(b->ws, w->who, b->op.bytes, b->op.inodes);
		ws_ours_done(b->ws, w->tag);
		after_commit(b);
		tell_results(b, w);
	}
	return r;
}

int ws_batch(struct ws *ws, const struct ws_batch *w, const struct ws_changes *changes,
	     size_t *failed)
{
	struct batch b = { .ws = ws };
	struct forget_list f = { 0 };
	*failed = w->n;
	random_bytes(&b.seed, sizeof(b.seed));
	int r = take_numbers(&b, w);
	if (r == 0) {
		ws_enter(ws);
		r = prepare_files(&b, w, failed);
		if (r == 0) {
			meta_write(ws);
			r = batch_locked(&b, w, &f, failed);
			meta_done(ws);
		}
		ws_leave(ws);
	}
	batch_done(&b);
	if (r == 0 && changes)
		forget_list_tell(&f, changes);
	if (f.names.len + f.nodes.len > 0)
		forget_list_drop(ws);
	forget_list_done(&f);
	return r;
}
