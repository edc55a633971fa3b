/* Merging what one workspace changed into another: three ways, of whole trees.
 *
 * Base, ours and theirs have a lineage in common, so an inode is the same file in all three,
 * wherever it was moved to. What theirs changed since base is done to ours where ours left
 * that alone; where both changed a text, line by line; where that can't be, it is a conflict.
 * So a file that ours moved and theirs edited is edited in its new place.
 *
 * A plan is made from views alone; it is run in a folder that shows ours (a fork of it, which is
 * thrown away unless all of it succeeded). */
#ifndef BOUGH_SNAPD_MERGE_H
#define BOUGH_SNAPD_MERGE_H

#include "fs/base/buf.h"
#include "fs/work/view.h"

enum merge_kind {
	MERGE_STAGE,  /* `from` moves aside, to `path` */
	MERGE_REMOVE, /* a file, or an empty folder */
	MERGE_PLACE,  /* `from`, which was set aside, moves to `path` */
	MERGE_MAKE,   /* theirs' inode is made at `path`; a folder without its contents */
	MERGE_LINK,   /* `path` becomes one more name of `from` */
	MERGE_WRITE,  /* the file at `path` gets the content of theirs' inode */
	MERGE_TEXT,   /* the file at `path` gets `text` */
	MERGE_ATTR,   /* the inode at `path` gets what `what` says (DIFF_*) of theirs' */
};

struct merge_step {
	enum merge_kind kind;
	char *path, *from; /* relative to the root */
	uint64_t ino;      /* in theirs */
	unsigned what;
	struct buf text;
};

struct merge_conflict {
	char *path;      /* in ours where it is there, else in theirs */
	const char *why; /* a literal */
};

enum { MERGE_ASIDE = 40 };
struct merge_plan {
	char aside[MERGE_ASIDE];  /* a folder in the root for what is on its way; made and removed
				  * by merge_run where a step needs it */
	struct merge_step *steps; /* in the order in which they are run */
	size_t n, cap;
	struct merge_conflict *conflicts;
	size_t nconflicts, conflicts_cap;
};
void merge_plan_done(struct merge_plan *p);
#define auto_merge_plan __attribute__((cleanup(merge_plan_done))) struct merge_plan

struct merge_trees {
	const struct view *base, *ours, *theirs; /* sealed */
	bool skip_git; /* the folder .git in the root is left as ours has it */
};
/* 0, also with conflicts. -EINVAL: no lineage in common. -EIO, -ENOMEM. */
int merge_plan_make(struct merge_plan *out, const struct merge_trees *t, struct err *err);
/* Runs a plan without conflicts below `root`, a descriptor of the folder. Nothing outside of it is
 * touched, whatever links there are. After a failure the folder is half changed. */
int merge_run(const struct merge_plan *p, const struct view *theirs, int root, struct err *err);

#endif
