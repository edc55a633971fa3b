/* What differs between two trees, by path.
 *
 * With a lineage in common (same seed), diff_raw tells which names and inodes differ;
 * only these are looked at. A directory that one side lacks is listed whole; a name that
 * went and one that came for the same inode are a rename. Without a lineage in common both
 * trees are walked side by side. */
#include "fs/work/diff.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/work/inos.h"
#include "fs/work/same.h"
#include "fs/work/tree_names.h"

struct found {
	enum diff_kind kind;
	unsigned what;
	char *path, *old_path;
	struct attr old_attr, new_attr;
	bool skip;   /* told by another */
	bool listed; /* a folder: what is in it is told too, or will be */
};

/* A directory that is still to be listed: of `a`, of `b`, or of both side by side. */
struct todo {
	uint64_t in_a, in_b; /* 0: not on that side */
	char *path;
};

struct differ {
	const struct view *a, *b;
	bool lineage; /* inode numbers mean the same on both sides */
	struct found *found;
	size_t n, cap;
	struct todo *todo;
	size_t ntodo, todo_cap;
	const struct timespec *quiet; /* as in diff_views_since */
	struct inos changed; /* inodes of both sides whose attributes or content differ */
	uint64_t last_dir;   /* the directory that paths are known of */
	bool last_both;
	char *path_a, *path_b;
	struct err *err;
};

static char *join(const char *dir, const char *name, size_t len)
{
	size_t n = strlen(dir);
	char *p = malloc(n + len + 2);
	if (!p)
		return NULL;
	memcpy(p, dir, n);
	if (n)
		p[n++] = '/';
	memcpy(p + n, name, len);
	p[n + len] = '\0';
	return p;
}

static int lookup_living(const struct view *v, uint64_t ino, struct attr *a)
{
	int r = view_inode(v, ino, a);
	return r >= 0 && a->nlink == 0 ? -ENOENT : r;
}

/* Takes `path` on success. */
static int add(struct differ *d, enum diff_kind kind, unsigned what, char *path,
	       const struct attr *old, const struct attr *now)
{
	if (array_grow(&d->found, d->n, &d->cap) < 0)
		return -ENOMEM;
	struct found *f = &d->found[d->n++];
	*f = (struct found){ .kind = kind, .what = what, .path = path };
	if (old)
		f->old_attr = *old;
	if (now)
		f->new_attr = *now;
	return 0;
}

static int add_copy(struct differ *d, enum diff_kind kind, unsigned what, const char *path,
		    const struct attr *old, const struct attr *now)
{
	char *p = strdup(path);
	int r = p ? add(d, kind, what, p, old, now) : -ENOMEM;
	if (r < 0)
		free(p);
	return r;
}

static int push(struct differ *d, uint64_t in_a, uint64_t in_b, const char *path)
{
	if (array_grow(&d->todo, d->ntodo, &d->todo_cap) < 0)
		return -ENOMEM;
	char *p = strdup(path);
	if (!p)
		return -ENOMEM;
	d->todo[d->ntodo++] = (struct todo){ in_a, in_b, p };
	return 0;
}

/* DIFF_* bits of two inodes of one type, or -errno. */
static int what_differs(struct differ *d, const struct attr *x, const struct attr *y)
{
	int what = 0, same = 1;
	if (S_ISREG(x->mode))
		same = same_content(d->a, x->ino, x->size, d->b, y->ino, y->size, d->err);
	else if (S_ISCHR(x->mode) || S_ISBLK(x->mode))
		same = x->rdev == y->rdev;
	if (same < 0)
		return same;
	what |= same ? 0 : DIFF_CONTENT;
	if (S_ISLNK(x->mode)) {
		same = same_target(d->a, x->ino, d->b, y->ino);
		if (same < 0)
			return same;
		what |= same ? 0 : DIFF_TARGET;
	}
	same = same_xattrs(d->a, x, d->b, y);
	if (same < 0)
		return same;
	what |= same ? 0 : DIFF_XATTR;
	if (x->mode != y->mode)
		what |= DIFF_MODE;
	if (x->uid != y->uid || x->gid != y->gid)
		what |= DIFF_OWNER;
	if (x->mtime.tv_sec != y->mtime.tv_sec || x->mtime.tv_nsec != y->mtime.tv_nsec)
		what |= DIFF_MTIME;
	return what;
}

/* Two inodes of the same type at one path. */
static int compare(struct differ *d, const char *path, const struct attr *x, const struct attr *y)
{
	int what = what_differs(d, x, y);
	if (what < 0)
		return what;
	if (!(what & ~DIFF_MTIME))
		return 0;
	return add_copy(d, DIFF_MODIFIED, (unsigned)what, path, x, y);
}

/* One side's name at `path`; a directory that the other side doesn't have elsewhere follows
 * with all that is in it. */
static int one_side(struct differ *d, bool in_a, uint64_t ino, const char *path)
{
	struct attr a, other;
	int r = view_inode(in_a ? d->a : d->b, ino, &a);
	if (r < 0)
		return r;
	r = add_copy(d, in_a ? DIFF_DELETED : DIFF_ADDED, 0, path, in_a ? &a : NULL,
		     in_a ? NULL : &a);
	if (r < 0 || !S_ISDIR(a.mode))
		return r;
	if (d->lineage) {
		r = lookup_living(in_a ? d->b : d->a, ino, &other);
		if (r != -ENOENT)
			return r; /* moved: its contents are compared where they are */
	}
	d->found[d->n - 1].listed = true;
	return push(d, in_a ? ino : 0, in_a ? 0 : ino, path);
}

static int both_sides(struct differ *d, uint64_t ino_a, uint64_t ino_b, const char *path)
{
	struct attr x, y;
	if (d->lineage && ino_a == ino_b)
		return 0; /* told by diff_raw when it differs */
	int r = view_inode(d->a, ino_a, &x);
	if (r >= 0)
		r = view_inode(d->b, ino_b, &y);
	if (r < 0)
		return r;
	if (!((x.mode ^ y.mode) & S_IFMT)) {
		r = compare(d, path, &x, &y);
		return r >= 0 && S_ISDIR(x.mode) ? push(d, ino_a, ino_b, path) : r;
	}
	if (!S_ISDIR(x.mode) && !S_ISDIR(y.mode))
		return add_copy(d, DIFF_TYPE, DIFF_CONTENT | DIFF_MODE, path, &x, &y);
	r = one_side(d, true, ino_a, path);
	return r < 0 ? r : one_side(d, false, ino_b, path);
}

static int one_name(struct differ *d, const char *dir, const char *name, size_t len,
		    uint64_t old, uint64_t now)
{
	auto_free char *path = join(dir, name, len);
	if (!path)
		return -ENOMEM;
	if (old && now)
		return both_sides(d, old, now, path);
	return one_side(d, old != 0, old ? old : now, path);
}

static int list_todo(struct differ *d, const struct todo *t)
{
	auto_names x = { 0 }, y = { 0 };
	int r = t->in_a ? names_all(&x, d->a, t->in_a) : 0;
	if (r >= 0 && t->in_b)
		r = names_all(&y, d->b, t->in_b);
	names_sort(&x);
	names_sort(&y);
	for (size_t i = 0, j = 0; (i < x.n || j < y.n) && r >= 0;) {
		const struct name *p = i < x.n ? x.v[i] : NULL, *q = j < y.n ? y.v[j] : NULL;
		int c = !p ? 1 : !q ? -1 : name_compare(p, q);
		const struct name *n = c <= 0 ? p : q;
		r = one_name(d, t->path, n->text, n->len, c <= 0 ? p->ino : 0,
			     c >= 0 ? q->ino : 0);
		i += c <= 0;
		j += c >= 0;
	}
	return r;
}

static int list_all_todo(struct differ *d)
{
	int r = 0;
	while (d->ntodo > 0 && r >= 0) {
		struct todo t = d->todo[--d->ntodo];
		r = list_todo(d, &t);
		free(t.path);
	}
	return r;
}

/* ---- what diff_raw tells ---- */

static int raw_inode(void *ctx, uint64_t ino, const struct attr *old, const struct attr *now,
		     bool content)
{
	struct differ *d = ctx;
	return old && now ? inos_add(&d->changed, ino) : 0;
}

static int know_dir(struct differ *d, uint64_t dir)
{
	struct attr a;
	if (d->last_dir == dir)
		return 0;
	free(steal_ptr(&d->path_a));
	free(steal_ptr(&d->path_b));
	d->last_dir = 0;
	int ra = lookup_living(d->a, dir, &a), rb = lookup_living(d->b, dir, &a);
	if ((ra < 0 && ra != -ENOENT) || (rb < 0 && rb != -ENOENT))
		return ra < 0 && ra != -ENOENT ? ra : rb;
	/* What one side lacks whole is listed from the name that led to it. */
	d->last_both = ra >= 0 && rb >= 0;
	if (d->last_both) {
		int r = view_path(d->a, dir, &d->path_a);
		if (r >= 0)
			r = view_path(d->b, dir, &d->path_b);
		if (r < 0)
			return r;
	}
	d->last_dir = dir;
	return 0;
}

static int raw_name(void *ctx, uint64_t dir, const char *name, size_t len, uint64_t old,
		    uint64_t now)
{
	struct differ *d = ctx;
	int r = know_dir(d, dir);
	if (r < 0 || !d->last_both)
		return r;
	if (!old || !now)
		return one_name(d, old ? d->path_a : d->path_b, name, len, old, now);
	if (strcmp(d->path_a, d->path_b) == 0)
		return one_name(d, d->path_b, name, len, old, now);
	r = one_name(d, d->path_a, name, len, old, 0); /* its directory was moved */
	return r < 0 ? r : one_name(d, d->path_b, name, len, 0, now);
}

/* ---- renames ---- */

static int by_ino(const void *pa, const void *pb)
{
	const struct found *a = *(struct found *const *)pa, *b = *(struct found *const *)pb;
	uint64_t x = a->kind == DIFF_DELETED ? a->old_attr.ino : a->new_attr.ino;
	uint64_t y = b->kind == DIFF_DELETED ? b->old_attr.ino : b->new_attr.ino;
	if (x != y)
		return x < y ? -1 : 1;
	return (a->kind == DIFF_ADDED) - (b->kind == DIFF_ADDED); /* deleted first */
}

static int make_rename(struct differ *d, struct found *gone, struct found *come)
{
	int what = what_differs(d, &gone->old_attr, &come->new_attr);
	if (what < 0)
		return what;
	come->kind = DIFF_RENAMED;
	come->what = (unsigned)what;
	come->old_attr = gone->old_attr;
	come->old_path = steal_ptr(&gone->path); /* an entry without a path is left out */
	return 0;
}

static int find_renames(struct differ *d)
{
	struct found **v = calloc(d->n ? d->n : 1, sizeof(*v));
	size_t n = 0;
	int r = 0;
	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < d->n; i++)
		if (d->found[i].kind == DIFF_DELETED || d->found[i].kind == DIFF_ADDED)
			v[n++] = &d->found[i];
	if (n > 1)
		qsort(v, n, sizeof(*v), by_ino);
	for (size_t i = 0, j; i < n && r >= 0; i = j) {
		uint64_t ino = v[i]->kind == DIFF_DELETED ? v[i]->old_attr.ino
							   : v[i]->new_attr.ino;
		size_t come = i; /* of one inode: names that went, then names that came */
		while (come < n && v[come]->kind == DIFF_DELETED && v[come]->old_attr.ino == ino)
			come++;
		for (j = come; j < n && v[j]->kind == DIFF_ADDED && v[j]->new_attr.ino == ino; j++)
			if (i + (j - come) < come && r >= 0)
				r = make_rename(d, v[i + (j - come)], v[j]);
	}
	free(v);
	return r;
}

/* ---- folders that took another's name ---- */

static bool inos_has(const struct inos *s, uint64_t ino)
{
	return s->n && bsearch(&ino, s->v, s->n, sizeof(*s->v), array_by_u64);
}

/* Lists the folders of one side that have no partner on the other, or one that is listed. The
 * number of them. */
static int list_side(struct differ *d, enum diff_kind side)
{
	auto_inos all = { 0 }, listed = { 0 }; /* of the other side */
	int r = 0, n = 0;
	for (size_t i = 0; i < d->n && r >= 0; i++) {
		const struct found *f = &d->found[i];
		uint64_t ino = f->kind == DIFF_DELETED ? f->old_attr.ino : f->new_attr.ino;
		if (f->kind == side || (f->kind != DIFF_DELETED && f->kind != DIFF_ADDED))
			continue;
		r = inos_add(&all, ino);
		if (r >= 0 && f->listed)
			r = inos_add(&listed, ino);
	}
	inos_sort(&all);
	inos_sort(&listed);
	for (size_t i = 0; i < d->n && r >= 0; i++) {
		struct found *f = &d->found[i];
		const struct attr *a = side == DIFF_DELETED ? &f->old_attr : &f->new_attr;
		if (f->kind != side || f->listed || !S_ISDIR(a->mode) ||
		    (inos_has(&all, a->ino) && !inos_has(&listed, a->ino)))
			continue;
		f->listed = true;
		n++;
		r = push(d, side == DIFF_DELETED ? a->ino : 0, side == DIFF_DELETED ? 0 : a->ino,
			 f->path);
	}
	if (r >= 0 && n > 0)
		r = list_all_todo(d);
	return r < 0 ? r : n;
}

/* A folder that went from one name and came to another is a rename, and needs no list. Where the
 * other name was taken by a folder before, the two were compared name by name: no such pair is
 * found, and what is in it must be told at this name too. */
static int list_unpaired(struct differ *d)
{
	int r;
	do {
		r = list_side(d, DIFF_DELETED);
		if (r == 0)
			r = list_side(d, DIFF_ADDED);
	} while (r > 0);
	return r;
}

/* ---- changed inodes ---- */

struct linked {
	struct differ *d;
	const struct inos *inos; /* changed, with several names; sorted */
};

/* Each name of a changed inode that `a` had in this folder already; new ones are told as such. */
static int linked_in(void *ctx, const char *path, size_t len, const struct attr *dir)
{
	const struct linked *l = ctx;
	struct differ *d = l->d;
	struct dirent_ref e, was;
	int r = 0;
	if (!S_ISDIR(dir->mode))
		return 0;
	auto_free char *at = strndup(path, len); /* it isn't terminated */
	if (!at)
		return -ENOMEM;
	for (uint64_t next = 0; r >= 0; next = e.cookie + 1) {
		r = view_dirent_ceil(d->b, dir->ino, next, &e);
		if (r < 0)
			return r == -ENOENT ? 0 : r;
		if (!inos_has(l->inos, e.ino))
			continue;
		r = view_lookup(d->a, dir->ino, e.name, e.name_len, &was);
		if (r == -ENOENT || (r >= 0 && was.ino != e.ino)) {
			r = 0;
			continue;
		}
		struct attr x, y;
		auto_free char *name = join(at, e.name, e.name_len);
		if (r >= 0)
			r = name ? view_inode(d->a, e.ino, &x) : -ENOMEM;
		if (r >= 0)
			r = view_inode(d->b, e.ino, &y);
		if (r >= 0)
			r = compare(d, name, &x, &y);
	}
	return r;
}

/* One with a single name that no entry tells about yet. An inode never changes its type. */
static int add_single(struct differ *d, uint64_t ino, const struct attr *now)
{
	struct attr was;
	auto_free char *path = NULL;
	int r = view_path(d->b, ino, &path);
	if (r >= 0)
		r = view_inode(d->a, ino, &was);
	if (r >= 0)
		r = compare(d, path, &was, now);
	return r == -ENOENT ? 0 : r; /* no name leads to it */
}

/* Where they are, only a walk of the tree tells of inodes with several names. */
static int add_changed(struct differ *d)
{
	auto_inos told = { 0 }, links = { 0 };
	int r = 0;
	for (size_t i = 0; i < d->n && r >= 0; i++)
		if (d->found[i].path)
			r = inos_add(&told, d->found[i].new_attr.ino);
	inos_sort(&told);
	inos_sort(&d->changed);
	for (size_t i = 0, j = 0; i < d->changed.n && r >= 0; i++) {
		uint64_t ino = d->changed.v[i];
		struct attr now;
		while (j < told.n && told.v[j] < ino)
			j++;
		r = view_inode(d->b, ino, &now);
		if (r < 0)
			r = r == -ENOENT ? 0 : r;
		else if (!S_ISDIR(now.mode) && now.nlink > 1)
			r = inos_add(&links, ino);
		else if (j == told.n || told.v[j] != ino)
			r = add_single(d, ino, &now);
	}
	if (r < 0 || links.n == 0)
		return r;
	inos_sort(&links);
	struct linked l = { d, &links };
	return view_walk(d->b, linked_in, &l, d->err);
}

static int by_path(const void *pa, const void *pb)
{
	const struct found *a = pa, *b = pb;
	if (!a->path || !b->path)
		return (a->path == NULL) - (b->path == NULL);
	int c = strcmp(a->path, b->path);
	return c ? c : (a->kind == DIFF_ADDED) - (b->kind == DIFF_ADDED);
}

static int with_lineage(struct differ *d)
{
	struct diff_raw cb = { .inode = raw_inode, .name = raw_name, .ctx = d };
	int r = diff_raw_since(d->a, d->b, d->quiet, &cb, d->err);
	if (r >= 0)
		r = list_all_todo(d);
	if (r >= 0)
		r = list_unpaired(d);
	if (r >= 0)
		r = find_renames(d);
	return r < 0 ? r : add_changed(d);
}

/* What went and what came at one path, of two types of file: one entry. `d->found` is sorted; the
 * one that went becomes it. */
static void join_types(struct differ *d)
{
	for (size_t i = 0; i + 1 < d->n && d->found[i + 1].path; i++) {
		struct found *gone = &d->found[i], *come = gone + 1;
		if (gone->kind != DIFF_DELETED || come->kind != DIFF_ADDED ||
		    strcmp(gone->path, come->path) != 0 ||
		    !((gone->old_attr.mode ^ come->new_attr.mode) & S_IFMT))
			continue;
		come->kind = DIFF_TYPE;
		come->what = DIFF_CONTENT | DIFF_MODE;
		come->old_attr = gone->old_attr;
		gone->skip = true;
	}
}

static int tell(struct differ *d, int (*fn)(void *ctx, const struct diff_entry *e), void *ctx)
{
	int r = 0;
	if (d->n > 1)
		qsort(d->found, d->n, sizeof(*d->found), by_path);
	join_types(d);
	for (size_t i = 0; i < d->n && d->found[i].path && r >= 0; i++) {
		const struct found *f = &d->found[i];
		if (f->skip)
			continue;
		struct diff_entry e = { .kind = f->kind, .what = f->what, .path = f->path,
					.old_path = f->old_path, .old_attr = f->old_attr,
					.new_attr = f->new_attr };
		r = fn(ctx, &e);
	}
	return r;
}

/* The empty tree, which a workspace made from nothing is compared with, has no root even. */
static int both_roots(struct differ *d)
{
	struct attr root;
	bool in_a = view_inode(d->a, 1, &root) != -ENOENT;
	bool in_b = view_inode(d->b, 1, &root) != -ENOENT;
	return in_a && in_b ? both_sides(d, 1, 1, "") : push(d, in_a, in_b, "");
}

int diff_views(const struct view *a, const struct view *b,
	       int (*fn)(void *ctx, const struct diff_entry *e), void *ctx, struct err *err)
{
	return diff_views_since(a, b, NULL, fn, ctx, err);
}

int diff_views_since(const struct view *a, const struct view *b, const struct timespec *quiet,
		     int (*fn)(void *ctx, const struct diff_entry *e), void *ctx, struct err *err)
{
	struct err own = { 0 };
	struct differ d = { .a = a, .b = b, .lineage = a->seed == b->seed, .quiet = quiet,
			    .err = err ? err : &own };
	d.err->text[0] = '\0';
	int r;
	if (d.lineage) {
		r = with_lineage(&d);
	} else {
		r = both_roots(&d);
		if (r >= 0)
			r = list_all_todo(&d);
	}
	if (r >= 0)
		r = tell(&d, fn, ctx);
	if (r < 0 && !d.err->text[0])
		(void)err_sys(err, r, "compare two trees");
	for (size_t i = 0; i < d.n; i++) {
		free(d.found[i].path);
		free(d.found[i].old_path);
	}
	free(d.found);
	while (d.ntodo > 0)
		free(d.todo[--d.ntodo].path);
	free(d.todo);
	free(d.path_a);
	free(d.path_b);
	inos_done(&d.changed);
	return r < 0 ? r : 0;
}
