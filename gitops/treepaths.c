#include "gitops/treepaths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/array.h"
#include "gitops/oidmap.h"

/* A tree that is being counted, its subtrees in order. */
struct level {
	git_tree *tree;
	size_t at;
	uint64_t paths;
};

struct counter {
	git_repository *repo;
	struct oidmap known; /* paths of a tree, plus one */
	struct level *v;
	size_t n, cap;
	struct err *err;
};

static int enter(struct counter *c, const git_oid *id)
{
	struct level l = { 0 };
	if (c->n >= TREEPATHS_DEPTH_MAX)
		return err_set(c->err, -E2BIG, "a tree is more than %d folders deep",
			       TREEPATHS_DEPTH_MAX);
	int r = git_tree_lookup(&l.tree, c->repo, id);
	if (r < 0)
		return git_fail_object(c->err, r, c->repo, id, "read a tree");
	if (array_grow(&c->v, c->n, &c->cap) < 0) {
		git_tree_free(l.tree);
		return err_no_memory(c->err);
	}
	c->v[c->n++] = l;
	return 0;
}

static int add(struct counter *c, struct level *l, uint64_t paths)
{
	l->paths += paths;
	return l->paths > TREEPATHS_MAX
		       ? err_set(c->err, -E2BIG, "a tree has more than %d paths", TREEPATHS_MAX)
		       : 0;
}

/* Leaves the last one, whose paths are its folder's too. */
static int leave(struct counter *c)
{
	struct level l = c->v[--c->n];
	int r = oidmap_put(&c->known, git_tree_id(l.tree), l.paths + 1);
	git_tree_free(l.tree);
	if (r < 0)
		return err_no_memory(c->err);
	return c->n ? add(c, &c->v[c->n - 1], l.paths) : 0;
}

static int step(struct counter *c)
{
	struct level *l = &c->v[c->n - 1];
	if (l->at == git_tree_entrycount(l->tree))
		return leave(c);
	const git_tree_entry *e = git_tree_entry_byindex(l->tree, l->at++);
	int r = add(c, l, 1);
	if (r < 0 || git_tree_entry_type(e) != GIT_OBJECT_TREE)
		return r;
	uint64_t known = oidmap_get(&c->known, git_tree_entry_id(e));
	return known ? add(c, l, known - 1) : enter(c, git_tree_entry_id(e));
}

int treepaths_check(git_repository *repo, const git_oid *tree, struct err *err)
{
	struct counter c = { .repo = repo, .err = err };
	int r = enter(&c, tree);
	while (c.n > 0 && r >= 0)
		r = step(&c);
	while (c.n > 0)
		git_tree_free(c.v[--c.n].tree);
	free(c.v);
	oidmap_done(&c.known);
	return r;
}
