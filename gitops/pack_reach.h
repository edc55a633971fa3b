/* What the files share that look at what a workspace may see of a history. Not for others.
 *
 *   pack_reach.c  the commits, their order, tags
 *   pack_tree.c   their trees, and which part of them is in the scope
 *   pack_older.c  the same by the notes of a newer commit (pack_gain.c) */
#ifndef BOUGH_GITOPS_PACK_REACH_H
#define BOUGH_GITOPS_PACK_REACH_H

#include "gitops/pack_impl.h"

enum { LIKES = 2 /* parents that a commit's trees are compared with */ };

/* A folder above a scope, or one (leaf). */
struct node {
	const char *name;
	size_t len;
	uint16_t parent;
	bool leaf;
};

struct commit {
	uint32_t obj, tree;
	uint32_t parents, nparents; /* in reach.parents: those within depth */
	unsigned depth;             /* the tip: 0 */
};

/* A tree to be looked at, and those that the parents have at that path, or OBJ_NONE. */
struct item {
	uint32_t tree, like[LIKES];
	uint16_t state;
};

struct reach {
	struct src *src;
	uint8_t *mark;
	const struct checkout_options *opt;
	const struct checkout_spec *spec;
	struct pack_set *out;
	struct err *err;
	struct node *nodes;
	size_t nnodes;
	struct u64map partial; /* trees visited in a state that is a node: tree << 16 | state */
	struct commit *commits;
	size_t ncommits, commits_cap, walked; /* walked: so many were read */
	uint32_t *commit_of; /* of an object: its place in `commits`, plus one */
	uint32_t *parents;   /* their objects */
	size_t nparents, parents_cap;
	struct gains *gains;
	struct cover *told; /* where all is in its packs */
	struct item *items;
	size_t nitems, items_cap;
	uint32_t known; /* the ancestor that lends its packs */
	uint32_t *order;  /* of the commits: parents before their children */
	size_t norder;
	bool newer;       /* the second half of them is looked at */
	const bool *stop; /* set by the other thread, when it failed */
};

static inline int reach_no_memory(const struct reach *r)
{
	return err_no_memory(r->err);
}
static inline bool reach_has(const struct reach *r, uint32_t obj, uint8_t bits)
{
	return __atomic_load_n(&r->mark[obj], __ATOMIC_RELAXED) & bits;
}
/* `d`, which is what was read of it, is no `what`: as git_bad_object, but libgit2, which packs that
 * are damaged can crash, has only to hash. */
int reach_bad_object(struct reach *r, uint32_t obj, const struct src_data *d, const char *what);

/* ---- pack_tree.c ---- */

int reach_scope(struct reach *r); /* first of all */
void reach_include(struct reach *r, uint32_t obj, enum git_type type);
/* Whether the tree has yet to be looked at in that state; notes that it now is. 1, 0, -ENOMEM.
 * Who marks the newer commits may rely on what was seen in the older ones, not the other way. */
int reach_visit(struct reach *r, uint32_t tree, uint16_t state);
/* Whether it was visited so by who isn't `newer`. */
bool reach_visited(const struct reach *r, uint32_t tree, uint16_t state);
/* Marks the tree and all below it, as one that the present record's commit brings. */
int reach_tree(struct reach *r, const struct item *root);

/* ---- pack_reach.c ---- */

/* Takes over the packs of that image. 1, or 0: they can't be had, or lack the commit. */
int reach_take(struct reach *r, uint32_t obj, const struct checkout_known *known);

/* ---- pack_older.c ---- */

/* 1: all is marked, by what the notes of a known commit tell; 0: there are none. */
int reach_older(struct reach *r);

#endif
