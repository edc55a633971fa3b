/* What differs between two trees, by inode and by name. */
#include "fs/work/diff.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "fs/work/inos.h"
#include "fs/work/same.h"
#include "fs/work/tree_names.h"

/* How many layers, from the bottom, both views have in common. */
static uint32_t common_layers(const struct view *a, const struct view *b)
{
	uint32_t n = 0;
	while (n < a->nlayers && n < b->nlayers &&
	       memcmp(layer_id(a->layers[a->nlayers - 1 - n]),
		      layer_id(b->layers[b->nlayers - 1 - n]), sizeof(struct layer_id)) == 0)
		n++;
	return n;
}

static bool same_image(const struct view *a, const struct view *b)
{
	if (!a->image || !b->image)
		return a->image == b->image;
	return digest_equal(&image_info(a->image)->name, &image_info(b->image)->name);
}

/* `images`: those of the images are in it already. */
static int candidates(struct inos *out, const struct view *a, const struct view *b, bool dirs,
		      bool images)
{
	uint32_t common = 0;
	int r = 0;
	if (same_image(a, b)) {
		common = common_layers(a, b);
	} else if (!images) {
		if (a->image)
			r = inos_add_image(out, a->image);
		if (r >= 0 && b->image)
			r = inos_add_image(out, b->image);
	}
	if (r >= 0)
		r = inos_add_layers(out, a, a->nlayers - common, dirs);
	if (r >= 0)
		r = inos_add_layers(out, b, b->nlayers - common, dirs);
	inos_sort(out);
	return r;
}

/* The attributes, or all zero (and false) where the view has no such living inode. */
static int living(const struct view *v, uint64_t ino, struct attr *a, bool *there)
{
	int r = view_inode(v, ino, a);
	*there = r >= 0 && a->nlink > 0;
	if (!*there)
		*a = (struct attr){ 0 };
	return r == -ENOENT ? 0 : r;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool same_attr(const struct attr *a, const struct attr *b)
{
	return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid && a->nlink == b->nlink &&
	       a->rdev == b->rdev && a->size == b->size && a->flags == b->flags &&
	       a->gen == b->gen && same_time(&a->atime, &b->atime) &&
	       same_time(&a->mtime, &b->mtime) && same_time(&a->ctime, &b->ctime);
}

static int content_differs(const struct view *a, const struct attr *x, const struct view *b,
			   const struct attr *y, struct err *err)
{
	int same = 1;
	if ((x->mode ^ y->mode) & S_IFMT)
		return 1;
	if (S_ISREG(x->mode))
		same = same_content(a, x->ino, x->size, b, y->ino, y->size, err);
	else if (S_ISLNK(x->mode))
		same = same_target(a, x->ino, b, y->ino);
	else if (S_ISCHR(x->mode) || S_ISBLK(x->mode))
		same = x->rdev == y->rdev;
	return same < 0 ? same : !same;
}

static int diff_inode(const struct view *a, const struct view *b, uint64_t ino,
		      const struct diff_raw *cb, struct err *err)
{
	struct attr x, y;
	bool in_a, in_b;
	int r = living(a, ino, &x, &in_a);
	if (r >= 0)
		r = living(b, ino, &y, &in_b);
	if (r < 0)
		return err_sys(err, r, "inode %llu", (unsigned long long)ino);
	if (!in_a && !in_b)
		return 0;
	if (cb->charge)
		cb->charge(cb->ctx, in_a ? &x : NULL, in_b ? &y : NULL);
	if (!in_a || !in_b)
		return cb->inode(cb->ctx, ino, in_a ? &x : NULL, in_b ? &y : NULL, true);
	int content = content_differs(a, &x, b, &y, err);
	if (content < 0)
		return err_prefix(err, content, "inode %llu", (unsigned long long)ino);
	int xattrs = same_xattrs(a, &x, b, &y);
	if (xattrs < 0)
		return err_sys(err, xattrs, "xattrs of inode %llu", (unsigned long long)ino);
	if (!content && xattrs && same_attr(&x, &y))
		return 0;
	return cb->inode(cb->ctx, ino, &x, &y, content);
}

/* Names of one directory that differ; both lists are in order of name. */
static int diff_lists(uint64_t dir, const struct names *x, const struct names *y,
		      const struct diff_raw *cb)
{
	size_t i = 0, j = 0;
	int r = 0;
	while ((i < x->n || j < y->n) && r >= 0) {
		const struct name *p = i < x->n ? x->v[i] : NULL, *q = j < y->n ? y->v[j] : NULL;
		int c = !p ? 1 : !q ? -1 : name_compare(p, q);
		const struct name *n = c <= 0 ? p : q;
		uint64_t old = c <= 0 ? p->ino : 0, now = c >= 0 ? q->ino : 0;
		i += c <= 0;
		j += c >= 0;
		if (old != now)
			r = cb->name(cb->ctx, dir, n->text, n->len, old, now);
	}
	return r;
}

static bool is_dir(const struct view *v, uint64_t dir, int *r)
{
	struct attr a;
	bool there;
	*r = living(v, dir, &a, &there);
	return there && S_ISDIR(a.mode);
}

static int diff_dir(const struct view *a, const struct view *b, uint64_t dir, bool whole,
		    const struct diff_raw *cb, struct err *err)
{
	auto_names x = { 0 }, y = { 0 };
	int r, r2;
	bool in_a = is_dir(a, dir, &r), in_b = is_dir(b, dir, &r2);
	r = r < 0 ? r : r2;
	if (r >= 0 && !whole && in_a && in_b)
		r = names_touched(&x, &y, a, b, dir, common_layers(a, b));
	else if (r >= 0) {
		r = in_a ? names_all(&x, a, dir) : 0;
		if (r >= 0 && in_b)
			r = names_all(&y, b, dir);
	}
	if (r < 0)
		return err_sys(err, r, "names of directory %llu", (unsigned long long)dir);
	names_sort(&x);
	names_sort(&y);
	return diff_lists(dir, &x, &y, cb);
}

int diff_raw(const struct view *a, const struct view *b, const struct diff_raw *cb, struct err *err)
{
	return diff_raw_since(a, b, NULL, cb, err);
}

int diff_raw_since(const struct view *a, const struct view *b, const struct timespec *quiet,
		   const struct diff_raw *cb, struct err *err)
{
	auto_inos inodes = { 0 }, dirs = { 0 };
	/* Other seeds give other cookies, and another image other places: then whole lists. */
	bool whole = a->seed != b->seed || !same_image(a, b);
	bool images = quiet && a->seed == b->seed && a->image && b->image && !same_image(a, b);
	int r = images ? inos_add_touched(&inodes, &dirs, a->image, b->image, quiet) : 0;
	if (r >= 0)
		r = candidates(&inodes, a, b, false, images);
	if (r >= 0)
		r = candidates(&dirs, a, b, true, images);
	if (r < 0)
		return err_sys(err, r, "list what may differ");
	for (size_t i = 0; i < inodes.n && r >= 0; i++)
		if (cb->inode)
			r = diff_inode(a, b, inodes.v[i], cb, err);
	for (size_t i = 0; i < dirs.n && r >= 0; i++)
		if (cb->name)
			r = diff_dir(a, b, dirs.v[i], whole, cb, err);
	return r < 0 ? r : 0;
}
