/* Merging what one workspace changed into another: three ways, of whole trees.
 *
 *   merge_plan.c   of two that have a lineage in common, by inode
 *   merge_git.c    of two checkouts of one repository that haven't, by path, as git does
 *   merge_run.c    carries a plan out
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
#include "gitops/mirror.h"
#include "snapd/gitlink.h"

enum merge_kind {
	MERGE_STAGE,  /* `from` moves aside, to `path` */
	MERGE_REMOVE, /* a file, or an empty folder */
	MERGE_PLACE,  /* `from`, which was set aside, moves to `path` */
	MERGE_MAKE,   /* theirs' inode is made at `path`; a folder without its contents */
	MERGE_LINK,   /* `path` becomes one more name of `from` */
	MERGE_WRITE,  /* the file at `path` gets the content of theirs' inode */
	MERGE_TEXT,   /* the file at `path` gets `text` */
	MERGE_ATTR,   /* the inode at `path` gets what `what` says (DIFF_*) of theirs' */
	MERGE_DROP,   /* the file or link goes, and the folders that this leaves empty */
	MERGE_PUT,    /* the path becomes what `put` says; folders above it are made */
};

enum merge_put {
	MERGE_PUT_LINK = 1,    /* a symlink, else a file */
	MERGE_PUT_EXEC = 2,    /* an executable one */
	MERGE_PUT_NEW = 4,     /* ours has nothing there */
	MERGE_PUT_MODE = 8,    /* only the mode is another */
	MERGE_PUT_MERGED = 16, /* neither side has it so: counted */
};

struct merge_step {
	enum merge_kind kind;
	char *path, *from; /* relative to the root */
	uint64_t ino;      /* in theirs */
	unsigned what;
	struct buf text;
	unsigned put; /* MERGE_PUT_… */
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
	/* For MERGE_PUT: appends what comes to `path`, the content or a link's target. */
	int (*content)(void *ctx, const char *path, struct buf *out, struct err *err);
	void *ctx;
};
void merge_plan_done(struct merge_plan *p);
#define auto_merge_plan __attribute__((cleanup(merge_plan_done))) struct merge_plan

struct merge_trees {
	const struct view *base, *ours, *theirs; /* sealed */
	bool skip_git; /* the folder .git in the root is left as ours has it */
};
/* 0, also with conflicts. -EINVAL: no lineage in common. -EIO, -ENOMEM. */
int merge_plan_make(struct merge_plan *out, const struct merge_trees *t, struct err *err);

/* Two checkouts of one repository: what theirs has beyond the commit that both come from, as git
 * would merge it. Each side is its files as `git add -A` would take them, on its last commit. */
struct merge_git;
struct merge_side {
	const struct gitlink *link;
	const struct view *now;    /* sealed */
	const struct view *before; /* as it was checked out */
};
/* 0, also with conflicts; the plan is good until merge_git_free(*keep), *keep NULL allowed.
 * `scratch` is a path for a folder that isn't there. -ENOTUNIQ: no commit in
 * common, or a file that isn't as .gitattributes says; -EBADMSG … */
int merge_git_plan(struct merge_plan *out, struct merge_git **keep, struct mirror *m,
		   const struct merge_side *ours, const struct merge_side *theirs,
		   const char *scratch, struct err *err);
void merge_git_free(struct merge_git *g);

/* Runs a plan without conflicts below `root`, a descriptor of the folder. Nothing outside of it is
 * touched, whatever links there are. After a failure the folder is half changed. */
int merge_run(const struct merge_plan *p, const struct view *theirs, int root, struct err *err);

#endif
