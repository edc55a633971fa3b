/* What differs between two trees. Where the stacks share their lower part, only what the
 * layers above it touched is looked at: O(what changed). Else both trees are compared by
 * inode number, or by path when they have no lineage in common. */
#ifndef BOUGH_WORK_DIFF_H
#define BOUGH_WORK_DIFF_H

#include "fs/work/view.h"

enum diff_kind {
	DIFF_ADDED = 'A', DIFF_DELETED = 'D', DIFF_MODIFIED = 'M', DIFF_RENAMED = 'R',
	DIFF_TYPE = 'T', /* another type of file at that path; what lay in a folder
			    or lies in one now has entries of its own */
};
enum { /* what of a DIFF_MODIFIED or DIFF_RENAMED differs */
	DIFF_CONTENT = 1, DIFF_MODE = 2, DIFF_OWNER = 4, DIFF_MTIME = 8, DIFF_XATTR = 16,
	DIFF_TARGET = 32,
};

struct diff_entry {
	enum diff_kind kind;
	unsigned what;
	const char *path;     /* in the new tree; of the old one for DIFF_DELETED. Borrowed. */
	const char *old_path; /* DIFF_RENAMED, else NULL */
	struct attr old_attr, new_attr; /* the one that isn't there is all zero */
};

/* Calls fn for each difference from `a` to `b`, in order of path. A directory whose entries
 * differ is not itself reported unless it was added, deleted or its own attributes (mtime
 * left out) differ. A file that differs in mtime alone is not reported.
 * Content counts as equal only when proven: same extents or objects, else bytes are compared. */
int diff_views(const struct view *a, const struct view *b,
	       int (*fn)(void *ctx, const struct diff_entry *e), void *ctx, struct err *err);
/* The same, where `a` was made whole at the moment `quiet` and `b` came of it by changes that were
 * made later (a checkout). What has that change time on both sides, and the same attributes but for
 * the access time, wasn't touched since: where the two have no image in common any more, as
 * after flattening, that is much quicker than proving it. NULL: as diff_views. */
int diff_views_since(const struct view *a, const struct view *b, const struct timespec *quiet,
		     int (*fn)(void *ctx, const struct diff_entry *e), void *ctx, struct err *err);
/* Inodes and names that differ, unordered and without paths: for restore. */
struct diff_raw {
	/* old or new is NULL where the inode isn't there; content: data or type differs */
	int (*inode)(void *ctx, uint64_t ino, const struct attr *old, const struct attr *now,
		     bool content);
	int (*name)(void *ctx, uint64_t dir, const char *name, size_t len, uint64_t old_child,
		    uint64_t new_child); /* 0: absent */
	/* May be NULL. Each inode with a name that may differ in anything, whether or not it does;
	 * called before `inode`. */
	void (*charge)(void *ctx, const struct attr *old, const struct attr *now);
	void *ctx;
};
int diff_raw(const struct view *a, const struct view *b, const struct diff_raw *cb,
	     struct err *err);

int diff_raw_since(const struct view *a, const struct view *b, const struct timespec *quiet,
		   const struct diff_raw *cb, struct err *err);

#endif
