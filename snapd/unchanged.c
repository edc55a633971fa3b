#include "snapd/unchanged.h"

#include <errno.h>
#include <string.h>

#include "snapd/stackop.h"

struct look {
	const struct view *v;
	uint32_t fresh; /* layers of the view above the head's */
};

/* A return other than 0 ends the walk. */
enum { SAME = 0, DIFFERS = 1 };

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* The generation counts restores, which changes nothing that a program sees. */
static bool only_atime(const struct attr *a, const struct attr *b)
{
	return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid && a->nlink == b->nlink &&
	       a->rdev == b->rdev && a->size == b->size && a->blocks == b->blocks &&
	       same_time(&a->mtime, &b->mtime) && same_time(&a->ctime, &b->ctime) &&
	       same_time(&a->btime, &b->btime);
}

static int look_at_inode(void *ctx, const struct layer_inode *li)
{
	const struct look *lk = ctx;
	struct attr below;
	if (li->damaged)
		return DIFFERS;
	int r = view_inode_below(lk->v, lk->fresh, li->attr.ino, &below);
	/* Uploads on their way, and what is left of those that broke off. A name that one gets, or
	 * a file loses, is seen in its folder. */
	if ((li->dead || li->attr.nlink == 0) &&
	    (r == -ENOENT || (r == 0 && below.nlink == 0)))
		return SAME;
	if (li->dead || li->xattrs || li->target || li->extents.count)
		return DIFFERS;
	if (r < 0)
		return r == -ENOENT ? DIFFERS : r;
	if (S_ISREG(below.mode) && li->base_size < below.size)
		return DIFFERS;
	return only_atime(&li->attr, &below) ? SAME : DIFFERS;
}

static int look_at_dir(void *ctx, uint64_t dir)
{
	return DIFFERS;
}

int tree_unchanged(const struct stack *sealed, const struct stack *head,
		   const struct view_options *opt, struct err *err)
{
	struct view v;
	if (!stack_begins(sealed, head))
		return 0;
	int r = view_open(&v, opt, sealed, err);
	if (r < 0)
		return r;
	struct look lk = { .v = &v, .fresh = sealed->nlayers - head->nlayers };
	for (uint32_t i = 0; i < lk.fresh && r == SAME; i++) {
		r = layer_each_dir(v.layers[i], look_at_dir, &lk);
		if (r == SAME)
			r = layer_each_inode(v.layers[i], look_at_inode, &lk);
	}
	view_done(&v);
	if (r < 0)
		return err_sys(err, r, "compare with the last snapshot");
	return r == SAME;
}
