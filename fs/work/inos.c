#include "fs/work/inos.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "fs/base/array.h"

int inos_add(struct inos *s, uint64_t ino)
{
	if (array_grow(&s->v, s->n, &s->cap) < 0)
		return -ENOMEM;
	s->v[s->n++] = ino;
	return 0;
}

void inos_sort(struct inos *s)
{
	if (s->n == 0)
		return;
	qsort(s->v, s->n, sizeof(*s->v), array_by_u64);
	size_t n = 1;
	for (size_t i = 1; i < s->n; i++)
		if (s->v[i] != s->v[n - 1])
			s->v[n++] = s->v[i];
	s->n = n;
}

void inos_done(struct inos *s)
{
	free(s->v);
	*s = (struct inos){ 0 };
}

static int add_inode(void *ctx, const struct layer_inode *li)
{
	return inos_add(ctx, li->attr.ino);
}

static int add_dir(void *ctx, uint64_t dir)
{
	return inos_add(ctx, dir);
}

int inos_add_layers(struct inos *s, const struct view *v, uint32_t nlayers, bool dirs)
{
	int r = 0;
	for (uint32_t i = 0; i < nlayers && r >= 0; i++)
		r = dirs ? layer_each_dir(v->layers[i], add_dir, s)
			 : layer_each_inode(v->layers[i], add_inode, s);
	return r;
}

int inos_add_image(struct inos *s, struct image *im)
{
	struct attr a;
	uint64_t next = 0;
	int r;
	while ((r = image_inode_ceil(im, next, &a)) >= 0) {
		r = inos_add(s, a.ino);
		if (r < 0)
			return r;
		next = a.ino + 1;
	}
	return r == -ENOENT ? 0 : r;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool untouched(const struct attr *a, const struct attr *b, const struct timespec *quiet)
{
	return same_time(&a->ctime, quiet) && same_time(&b->ctime, quiet) && a->mode == b->mode &&
	       a->uid == b->uid && a->gid == b->gid && a->nlink == b->nlink && a->size == b->size &&
	       a->rdev == b->rdev && a->flags == b->flags && a->gen == b->gen &&
	       same_time(&a->mtime, &b->mtime);
}

static int add_both(struct inos *s, struct inos *dirs, const struct attr *a)
{
	int r = inos_add(s, a->ino);
	return r >= 0 && S_ISDIR(a->mode) ? inos_add(dirs, a->ino) : r;
}

/* The next inode from `from` on; ino 0: there is none. */
static int next_inode(struct image *im, uint64_t from, struct attr *out)
{
	int r = image_inode_ceil(im, from, out);
	if (r == -ENOENT)
		*out = (struct attr){ 0 };
	return r == -ENOENT ? 0 : r;
}

int inos_add_touched(struct inos *s, struct inos *dirs, struct image *a, struct image *b,
		     const struct timespec *quiet)
{
	struct attr x, y;
	int r = next_inode(a, 0, &x);
	if (r >= 0)
		r = next_inode(b, 0, &y);
	while (r >= 0 && (x.ino || y.ino)) {
		bool first = x.ino && (!y.ino || x.ino <= y.ino);
		bool second = y.ino && (!x.ino || y.ino <= x.ino);
		if (!first || !second || !untouched(&x, &y, quiet))
			r = add_both(s, dirs, first ? &x : &y);
		if (first && r >= 0)
			r = next_inode(a, x.ino + 1, &x);
		if (second && r >= 0)
			r = next_inode(b, y.ino + 1, &y);
	}
	return r;
}
