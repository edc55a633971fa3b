#include "gitops/connected.h"

#include <errno.h>

static int missing(struct err *err, const git_oid *id, const char *what)
{
	char hex[OID_HEX + 1];
	git_error_clear();
	return err_set(err, -EBADMSG, "objects are missing: %s %s", what,
		       git_oid_tostr(hex, sizeof(hex), id));
}

struct look {
	git_odb *odb;
	struct err *err;
};

static int look_at_entry(const char *root, const git_tree_entry *e, void *ctx)
{
	const struct look *l = ctx;
	if (git_tree_entry_type(e) == GIT_OBJECT_COMMIT)
		return 0; /* a submodule's, of another repository */
	if (git_odb_exists(l->odb, git_tree_entry_id(e)))
		return 0;
	return missing(l->err, git_tree_entry_id(e), "blob or tree");
}

static int look_at_tip(git_repository *repo, struct look *l, const struct ref *ref)
{
	git_oid id = oid_to_git(&ref->oid);
	auto_git(git_object) object = NULL;
	auto_git(git_object) tree = NULL;
	if (git_object_lookup(&object, repo, &id, GIT_OBJECT_ANY) < 0)
		return missing(l->err, &id, ref->name);
	int r = git_object_peel(&tree, object, GIT_OBJECT_TREE);
	if (r == GIT_ENOTFOUND)
		return missing(l->err, &id, "the tree of");
	if (r < 0) {
		git_error_clear();
		return 0; /* a tag of a blob */
	}
	r = git_tree_walk((const git_tree *)tree, GIT_TREEWALK_PRE, look_at_entry, l);
	if (r == GIT_ENOTFOUND)
		return missing(l->err, git_object_id(tree), "a tree below");
	return r == -EBADMSG ? r : r < 0 ? git_fail(l->err, r, "read %s", ref->name) : 0;
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

static int look_at_history(git_repository *repo, git_revwalk *walk, struct look *l)
{
	git_oid id;
	int r;
	while ((r = git_revwalk_next(&id, walk)) == 0) {
		auto_git(git_commit) commit = NULL;
		if (git_commit_lookup(&commit, repo, &id) < 0)
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
	auto_git(git_odb) odb = NULL;
	auto_git(git_revwalk) walk = NULL;
	int r = git_repository_odb(&odb, repo);
	if (r >= 0)
		r = git_revwalk_new(&walk, repo);
	if (r < 0)
		return git_fail(err, r, "walk the history");
	struct look l = { odb, err };
	for (size_t i = 0; i < now->n; i++) {
		const struct ref *was = refs_find(before, now->v[i].name);
		if (was && memcmp(&was->oid, &now->v[i].oid, sizeof(was->oid)) == 0)
			continue;
		r = look_at_tip(repo, &l, &now->v[i]);
		if (r < 0)
			return r;
		push_commit(walk, repo, &now->v[i].oid, false);
	}
	for (size_t i = 0; i < before->n; i++)
		push_commit(walk, repo, &before->v[i].oid, true);
	return look_at_history(repo, walk, &l);
}
