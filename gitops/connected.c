#include "gitops/connected.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/array.h"
#include "gitops/oidmap.h"

static int missing(struct err *err, const git_oid *id, const char *what)
{
	char hex[OID_HEX + 1];
	git_error_clear();
	return err_set(err, -EBADMSG, "objects are missing: %s %s", what,
		       git_oid_tostr(hex, sizeof(hex), id));
}

struct look {
	git_repository *repo;
	git_odb *odb;
	struct oidmap seen; /* trees */
	git_oid *v;         /* trees that are still to be looked into */
	size_t n, cap;
	struct err *err;
};

static void look_done(struct look *l)
{
	oidmap_done(&l->seen);
	free(l->v);
	git_odb_free(l->odb);
}

/* Each tree once: a few trees, each ten times in the next, would be walked for ever. */
static int push_tree(struct look *l, const git_oid *id)
{
	int r = oidmap_add(&l->seen, id);
	if (r == 0)
		return 0;
	if (r < 0 || array_grow(&l->v, l->n, &l->cap) < 0)
		return err_no_memory(l->err);
	l->v[l->n++] = *id;
	return 0;
}

static int look_at_tree(struct look *l, const git_oid *id)
{
	auto_git(git_tree) tree = NULL;
	int r = 0;
	if (git_tree_lookup(&tree, l->repo, id) < 0)
		return missing(l->err, id, "tree");
	for (size_t i = 0; i < git_tree_entrycount(tree) && r >= 0; i++) {
		const git_tree_entry *e = git_tree_entry_byindex(tree, i);
		git_object_t type = git_tree_entry_type(e);
		if (type == GIT_OBJECT_TREE)
			r = push_tree(l, git_tree_entry_id(e));
		else if (type != GIT_OBJECT_COMMIT && /* a submodule's, of another repository */
			 !git_odb_exists(l->odb, git_tree_entry_id(e)))
			r = missing(l->err, git_tree_entry_id(e), "blob");
	}
	return r;
}

static int look_at_tip(struct look *l, const struct ref *ref)
{
	git_oid id = oid_to_git(&ref->oid);
	auto_git(git_object) object = NULL;
	auto_git(git_object) tree = NULL;
	if (git_object_lookup(&object, l->repo, &id, GIT_OBJECT_ANY) < 0)
		return missing(l->err, &id, ref->name);
	int r = git_object_peel(&tree, object, GIT_OBJECT_TREE);
	if (r == GIT_ENOTFOUND)
		return missing(l->err, &id, "the tree of");
	if (r < 0) {
		git_error_clear();
		return 0; /* a tag of a blob */
	}
	r = push_tree(l, git_object_id(tree));
	while (l->n > 0 && r >= 0) {
		git_oid next = l->v[--l->n];
		r = look_at_tree(l, &next);
	}
	return r;
}

static void push_commit(git_revwalk *walk, git_repository *repo, const struct oid *oid, bool hide)
{
	git_oid id = oid_to_git(oid);
	auto_git(git_object) object = NULL;
	auto_git(git_object) commit = NULL;
	/* What is no commit has no history to walk. */
	if (git_object_lookup(&object, repo, &id, GIT_OBJECT_ANY) >= 0 &&
	    git_object_peel(&commit, object, GIT_OBJECT_COMMIT) >= 0)
		(void)(hide ? git_revwalk_hide(walk, git_object_id(commit))
			    : git_revwalk_push(walk, git_object_id(commit)));
	git_error_clear();
}

static int look_at_history(git_revwalk *walk, struct look *l)
{
	git_oid id;
	int r;
	while ((r = git_revwalk_next(&id, walk)) == 0) {
		auto_git(git_commit) commit = NULL;
		if (git_commit_lookup(&commit, l->repo, &id) < 0)
			return missing(l->err, &id, "commit");
		if (!git_odb_exists(l->odb, git_commit_tree_id(commit)))
			return missing(l->err, git_commit_tree_id(commit), "tree");
	}
	if (r == GIT_ENOTFOUND)
		return err_set(l->err, -EBADMSG, "objects are missing: a commit's parent");
	return r == GIT_ITEROVER ? 0 : git_fail(l->err, r, "walk the history");
}

int refs_connected(git_repository *repo, const struct refs *before, const struct refs *now,
		   struct err *err)
{
	__attribute__((cleanup(look_done))) struct look l = { .repo = repo, .err = err };
	auto_git(git_revwalk) walk = NULL;
	int r = git_repository_odb(&l.odb, repo);
	if (r >= 0)
		r = git_revwalk_new(&walk, repo);
	if (r < 0)
		return git_fail(err, r, "walk the history");
	for (size_t i = 0; i < now->n; i++) {
		const struct ref *was = refs_find(before, now->v[i].name);
		if (was && memcmp(&was->oid, &now->v[i].oid, sizeof(was->oid)) == 0)
			continue;
		r = look_at_tip(&l, &now->v[i]);
		if (r < 0)
			return r;
		push_commit(walk, repo, &now->v[i].oid, false);
	}
	for (size_t i = 0; i < before->n; i++)
		push_commit(walk, repo, &before->v[i].oid, true);
	return look_at_history(walk, &l);
}
