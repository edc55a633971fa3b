/* The insides of planning a merge (merge.h): merge_tree.c knows where things are, merge_judge.c
 * what becomes of each name, merge_plan.c makes the steps. Not for others.
 *
 * Results: 1 and 0 where a function answers a question, -errno with pl->err set. */
#ifndef BOUGH_SNAPD_MERGE_IMPL_H
#define BOUGH_SNAPD_MERGE_IMPL_H

#include <stdbool.h>
#include "fs/base/u64map.h"
#include "fs/work/diff.h"
#include "snapd/merge.h"

enum { NO_INO = 0, ROOT_INO = 1 };

/* Where an inode is: a name in a folder; parent NO_INO: set aside. */
struct place {
	uint64_t parent;
	char name[NAME_MAX_BYTES + 1];
};

/* A name in a view. */
struct spot {
	uint64_t dir, ino, cookie;
	char name[NAME_MAX_BYTES + 1];
};

/* A name that theirs changed: its inode in base and in theirs, NO_INO for none. */
struct name_change {
	uint64_t dir, old, now;
	uint64_t our_dir;    /* NO_INO: ours has no such folder */
	struct spot ours;    /* what ours has there; ino NO_INO: nothing */
	bool detach, attach; /* what is to be done: the name goes from ours.ino, comes to `now` */
	char *label; /* its path, in theirs where it leads to something there, else in base */
	char name[NAME_MAX_BYTES + 1];
};

/* A file whose content or attributes theirs changed; `ino` of base, perhaps another in theirs. */
struct edit {
	struct attr old, now;
};

struct planner {
	const struct merge_trees *t;
	struct merge_plan *plan;
	struct name_change *names;
	size_t nnames, names_cap;
	struct edit *edits;
	size_t nedits, edits_cap;
	uint64_t git[2];     /* the folder .git of base and theirs, when it is left out */
	struct u64map moved; /* ino -> struct place */
	struct u64map same;  /* folder of theirs -> the one that ours made there, as a number */
	struct u64map freed; /* folder of ours -> struct u64map of cookies */
	struct u64map went;  /* inodes that a changed name led to in base: 1, or 2 once detached */
	struct u64map comes; /* inodes that are to be attached */
	struct err *err;
};

/* ---- merge_tree.c ---- */

int mp_no_memory(struct planner *pl);
int mp_conflict(struct planner *pl, const char *path, const char *why);
/* Takes path and from, also where it fails; NULL for path: out of memory. */
struct merge_step *mp_step(struct planner *pl, enum merge_kind kind, char *path, char *from);
char *mp_join(const char *dir, const char *name);
/* The inode in a view, when a name leads to it. 1, 0, or -errno. */
int mp_living(struct planner *pl, const struct view *v, uint64_t ino, struct attr *a);
/* The name in the folder. 1, 0 or -errno. */
int mp_look(struct planner *pl, const struct view *v, uint64_t dir, const char *name,
	    struct spot *out);
/* Follows a path. 1, 0 or -errno. */
int mp_follow(struct planner *pl, const struct view *v, const char *path, struct spot *out);
int mp_put_place(struct planner *pl, uint64_t ino, uint64_t parent, const char *name);
/* The path at this point of the plan; the caller frees. NULL: *r says why. */
char *mp_path_of(struct planner *pl, uint64_t ino, int *r);
char *mp_path_in(struct planner *pl, uint64_t dir, const char *name, int *r);
/* The name of ours is free from here on. */
int mp_set_freed(struct planner *pl, const struct spot *s);
bool mp_is_freed(const struct planner *pl, uint64_t dir, uint64_t cookie);
/* Ours' folder for one of theirs or of base: itself, or the one that ours made at the same place.
 * 1; 0: ours has none; -errno. New ones count as there. */
int mp_our_dir(struct planner *pl, uint64_t ino, uint64_t *out);
/* 1: the same bytes (target, device); 0; -errno. Of one type. */
int mp_same_thing(struct planner *pl, const struct view *x, const struct attr *a,
		  const struct view *y, const struct attr *b);
bool mp_same_type(const struct attr *a, const struct attr *b);
/* What ours has of base's inode at `path`: the inode itself, wherever it is, or what
 * took its name. 1, 0: nothing; -errno. */
int mp_counterpart(struct planner *pl, const char *path, uint64_t ino, struct attr *out);

/* ---- merge_judge.c ---- */

int mp_is_new(struct planner *pl, uint64_t ino);
int mp_edit(struct planner *pl, uint64_t old, uint64_t now);
int mp_judge(struct planner *pl, struct name_change *c);
/* A move is one only where ours has the inode at the name that it goes from. */
int mp_judge_moves(struct planner *pl);
/* Of folders that only one side has, all names count, and are added with the folder. */
int mp_name_differs(void *ctx, uint64_t dir, const char *name, size_t len, uint64_t old,
		    uint64_t now);
int mp_inode_differs(void *ctx, uint64_t ino, const struct attr *old, const struct attr *now,
		     bool content);

#endif
