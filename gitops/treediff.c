#include "gitops/treediff.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"

/* Two folders of one path that are still to be compared; all zero: there is none on that side. */
struct pair {
	git_oid a, b;
	char *path; /* with a slash at its end; "" for the root */
	unsigned depth;
};

struct differ {
	git_repository *repo;
	struct pair *v;
	size_t n, cap;
	uint64_t entries;
	int (*fn)(void *ctx, const char *path, uint32_t old_mode, uint32_t mode);
	void *ctx;
	struct err *err;
};

static bool is_tree(const git_tree_entry *e)
{
	return e && git_tree_entry_type(e) == GIT_OBJECT_TREE;
}

static uint32_t mode_of(const git_tree_entry *e)
{
	return e ? git_tree_entry_filemode(e) : 0;
}

static int push(struct differ *d, const git_tree_entry *a, const git_tree_entry *b,
		const struct pair *in, const char *name)
{
	struct pair p = { .depth = in->depth + 1 };
	if (p.depth > TREEDIFF_DEPTH_MAX)
		return err_set(d->err, -ENAMETOOLONG, "more than %d folders deep",
			       TREEDIFF_DEPTH_MAX);
	if (is_tree(a))
		p.a = *git_tree_entry_id(a);
	if (is_tree(b))
		p.b = *git_tree_entry_id(b);
	if (asprintf(&p.path, "%s%s/", in->path, name) < 0)
		return err_no_memory(d->err);
	if (array_grow(&d->v, d->n, &d->cap) < 0) {
		free(p.path);
		return err_no_memory(d->err);
	}
	d->v[d->n++] = p;
	return 0;
}

/* One name; NULL: not on that side. */
static int compare(struct differ *d, const git_tree_entry *a, const git_tree_entry *b,
		   const struct pair *in)
{
	const char *name = git_tree_entry_name(a ? a : b);
	bool same_id = a && b && git_oid_equal(git_tree_entry_id(a), git_tree_entry_id(b));
	if (same_id && mode_of(a) == mode_of(b))
		return 0;
	if (++d->entries > TREEDIFF_ENTRIES_MAX)
		return err_set(d->err, -E2BIG, "the commits differ in more than %d paths",
			       TREEDIFF_ENTRIES_MAX);
	int r = is_tree(a) || is_tree(b) ? push(d, a, b, in, name) : 0;
	uint32_t old_mode = is_tree(a) ? 0 : mode_of(a), mode = is_tree(b) ? 0 : mode_of(b);
	if (r < 0 || (!old_mode && !mode))
		return r;
	auto_free char *path = NULL;
	if (asprintf(&path, "%s%s", in->path, name) < 0) {
		path = NULL;
		return err_no_memory(d->err);
	}
	return d->fn(d->ctx, path, old_mode, mode);
}

static int compare_trees(struct differ *d, const git_tree *a, const git_tree *b,
			 const struct pair *in)
{
	int r = 0;
	for (size_t i = 0; a && i < git_tree_entrycount(a) && r >= 0; i++) {
		const git_tree_entry *e = git_tree_entry_byindex(a, i);
		r = compare(d, e, b ? git_tree_entry_byname(b, git_tree_entry_name(e)) : NULL, in);
	}
	for (size_t i = 0; b && i < git_tree_entrycount(b) && r >= 0; i++) {
		const git_tree_entry *e = git_tree_entry_byindex(b, i);
		if (!a || !git_tree_entry_byname(a, git_tree_entry_name(e)))
			r = compare(d, NULL, e, in);
	}
	return r;
}

static int read_tree(struct differ *d, git_tree **out, const git_oid *id, const char *path)
{
	int r = git_oid_is_zero(id) ? 0 : git_tree_lookup(out, d->repo, id);
	return r < 0 ? git_fail_object(d->err, r, d->repo, id, "tree of %s", path) : 0;
}

static int compare_pair(struct differ *d, const struct pair *p)
{
	auto_git(git_tree) a = NULL;
	auto_git(git_tree) b = NULL;
	int r = read_tree(d, &a, &p->a, p->path);
	if (r >= 0)
		r = read_tree(d, &b, &p->b, p->path);
	return r < 0 ? r : compare_trees(d, a, b, p);
}

int treediff(git_repository *repo, const git_tree *a, const git_tree *b,
	     int (*fn)(void *ctx, const char *path, uint32_t old_mode, uint32_t mode), void *ctx,
	     struct err *err)
{
	struct differ d = { .repo = repo, .fn = fn, .ctx = ctx, .err = err };
	char root[] = "";
	struct pair top = { .path = root };
	int r = git_oid_equal(git_tree_id(a), git_tree_id(b)) ? 0 : compare_trees(&d, a, b, &top);
	while (d.n > 0 && r >= 0) {
		struct pair p = d.v[--d.n];
		r = compare_pair(&d, &p);
		free(p.path);
	}
	while (d.n > 0)
		free(d.v[--d.n].path);
	free(d.v);
	return r < 0 ? r : 0;
}
