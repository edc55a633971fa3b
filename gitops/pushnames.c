#include "gitops/pushnames.h"

#include <errno.h>
#include <stdlib.h>

#include "fs/base/cleanup.h"
#include "gitops/changes_impl.h"
#include "gitops/gitname.h"
#include "gitops/treediff.h"

struct checker {
	git_repository *repo;
	git_tree *base, *now;
	char *dir; /* of the last path: those of one folder come together */
	git_tree *in_base, *in_now;
	struct err *err;
};

static int open_at(struct checker *c, git_tree *root, const char *dir, git_tree **out)
{
	auto_git(git_tree_entry) e = NULL;
	if (!*dir)
		return git_tree_dup(out, root);
	int r = git_tree_entry_bypath(&e, root, dir);
	if (r == GIT_ENOTFOUND || (r >= 0 && git_tree_entry_type(e) != GIT_OBJECT_TREE))
		return 0;
	return r < 0 ? r : git_tree_lookup(out, c->repo, git_tree_entry_id(e));
}

static void leave(struct checker *c)
{
	git_tree_free(steal_ptr(&c->in_base));
	git_tree_free(steal_ptr(&c->in_now));
	free(steal_ptr(&c->dir));
}

static int enter(struct checker *c, const char *path, size_t len)
{
	if (c->dir && strlen(c->dir) == len && memcmp(c->dir, path, len) == 0)
		return 0;
	leave(c);
	c->dir = strndup(path, len);
	if (!c->dir)
		return err_no_memory(c->err);
	int r = open_at(c, c->base, c->dir, &c->in_base);
	if (r >= 0)
		r = open_at(c, c->now, c->dir, &c->in_now);
	return r < 0 ? git_fail(c->err, r, "look at %s", c->dir) : 0;
}

/* Another name of the folder that differs by case alone; NULL: none. */
static const char *twin_of(struct checker *c, const char *name, size_t len)
{
	for (size_t i = 0; c->in_now && i < git_tree_entrycount(c->in_now); i++) {
		const char *other = git_tree_entry_name(git_tree_entry_byindex(c->in_now, i));
		if (gitname_same_folded(name, len, other, strlen(other)))
			return other;
	}
	return NULL;
}

/* The component that begins at path + at: 1: it is new, 0: the base has it, -errno. */
static int check_name(struct checker *c, const char *path, size_t at, size_t len)
{
	auto_free char *name = strndup(path + at, len);
	if (!name)
		return err_no_memory(c->err);
	int r = enter(c, path, at ? at - 1 : 0);
	if (r < 0)
		return r;
	if (c->in_base && git_tree_entry_byname(c->in_base, name))
		return 0;
	const char *why = gitname_problem(name, len), *other = twin_of(c, name, len);
	if (why)
		return err_set(c->err, -EINVAL, "other systems can't hold %.200s: %s", path, why);
	if (other)
		return err_set(c->err, -EINVAL,
			       "other systems can't hold %.200s beside %.100s, which differs by "
			       "case alone",
			       path, other);
	return 1;
}

static int on_difference(void *ctx, const char *path, uint32_t old_mode, uint32_t mode)
{
	struct checker *c = ctx;
	if (old_mode || !mode)
		return 0;
	for (size_t at = 0; path[at];) {
		size_t len = strcspn(path + at, "/");
		int r = check_name(c, path, at, len);
		if (r < 0)
			return r;
		at += len + (path[at + len] == '/');
	}
	return 0;
}

int pushnames_check(struct mirror *m, const struct oid *base, const struct oid *commit,
		    struct err *err)
{
	struct err own = { 0 };
	struct checker c = { .repo = mirror_repo(m), .err = err ? err : &own };
	int r = commit_tree(&c.base, m, base, c.err);
	if (r >= 0)
		r = commit_tree(&c.now, m, commit, c.err);
	if (r >= 0)
		r = treediff(c.repo, c.base, c.now, on_difference, &c, c.err);
	leave(&c);
	git_tree_free(c.base);
	git_tree_free(c.now);
	return r < 0 ? r : 0;
}
