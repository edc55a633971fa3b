/* Branches of a mirror: the other side's (refs/remotes/origin/X) beside those that are here
 * (refs/heads/X), where commits made here go. */
#include "gitops/mirror.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "gitops/history.h"
#include "gitops/mirror_impl.h"
#include "gitops/refs.h"

static bool same(const struct oid *a, const struct oid *b)
{
	return memcmp(a->b, b->b, OID_BYTES) == 0;
}

/* How many commits only `a` has, and only `b`. */
static int count(struct mirror *m, const struct oid *a, const struct oid *b, long *ahead,
		 long *behind, struct err *err)
{
	git_oid x = oid_to_git(a), y = oid_to_git(b);
	size_t more = 0, less = 0;
	int r = history_count(&more, &less, mirror_repo(m), &x, &y, err);
	if (r < 0)
		return err_prefix(err, r, "compare branches");
	*ahead = (long)more;
	*behind = (long)less;
	return 0;
}

/* ---- the list ---- */

void mirror_branches_done(struct mirror_branches *b)
{
	for (size_t i = 0; i < b->n; i++)
		free(b->v[i].name);
	free(b->v);
	*b = (struct mirror_branches){ 0 };
}

/* One ref, where it is a branch of either kind. */
static int gather_one(struct mirror_branches *out, size_t *cap, const git_reference *ref)
{
	const git_oid *id = git_reference_target(ref); /* NULL: it points to another one */
	const char *full = git_reference_name(ref);
	bool theirs = strncmp(full, REFS_ORIGIN, strlen(REFS_ORIGIN)) == 0;
	bool ours = strncmp(full, REFS_HEADS, strlen(REFS_HEADS)) == 0;
	if (!id || !(theirs || ours))
		return 0;
	if (out->n >= REFS_MAX || array_grow(&out->v, out->n, cap) < 0)
		return -ENOMEM;
	char *name = strdup(full + strlen(theirs ? REFS_ORIGIN : REFS_HEADS));
	if (!name)
		return -ENOMEM;
	struct mirror_branch *b = &out->v[out->n++];
	*b = (struct mirror_branch){ .name = name, .has_local = ours, .has_upstream = theirs };
	*(ours ? &b->local : &b->upstream) = oid_of_git(id);
	return 0;
}

/* Names of both kinds, a branch of both sides twice. */
static int gather(struct mirror_branches *out, struct mirror *m, struct err *err)
{
	git_reference_iterator *it = NULL;
	size_t cap = 0;
	int r = git_reference_iterator_new(&it, mirror_repo(m)), e = 0;
	if (r < 0)
		return git_fail(err, r, "list refs");
	for (git_reference *ref; e >= 0 && (r = git_reference_next(&ref, it)) == 0;) {
		e = gather_one(out, &cap, ref);
		git_reference_free(ref);
	}
	git_reference_iterator_free(it);
	if (e < 0)
		return err_no_memory(err);
	return r != GIT_ITEROVER ? git_fail(err, r, "list refs") : 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct mirror_branch *)a)->name,
		      ((const struct mirror_branch *)b)->name);
}

static bool differs(const struct mirror_branch *b)
{
	return b->has_upstream && b->has_local && !same(&b->upstream, &b->local);
}

static int different_first(const void *a, const void *b)
{
	bool x = differs(a), y = differs(b);
	return x != y ? (x ? -1 : 1) : by_name(a, b);
}

/* The two of one name become one. */
static void join(struct mirror_branches *b)
{
	size_t n = 0;
	qsort(b->v, b->n, sizeof(*b->v), by_name);
	for (size_t i = 0; i < b->n; i++) {
		struct mirror_branch *to = n ? &b->v[n - 1] : NULL, *from = &b->v[i];
		if (!to || strcmp(to->name, from->name) != 0) {
			b->v[n++] = *from;
			continue;
		}
		if (from->has_local)
			to->local = from->local;
		else
			to->upstream = from->upstream;
		to->has_local = to->has_upstream = true;
		free(from->name);
	}
	b->n = n;
	qsort(b->v, b->n, sizeof(*b->v), different_first);
}

int mirror_branches(struct mirror_branches *out, struct mirror *m, struct err *err)
{
	auto_mirror_branches all = { 0 };
	int r = gather(&all, m, err);
	if (r < 0)
		return r;
	if (all.n > 0)
		join(&all);
	for (size_t i = 0; i < all.n; i++) {
		struct mirror_branch *b = &all.v[i];
		bool unlike = differs(b);
		b->ahead = b->behind = unlike ? -1 : 0;
		/* A branch that is no commit isn't counted. */
		if (unlike && all.different++ < MIRROR_COUNTED)
			(void)count(m, &b->local, &b->upstream, &b->ahead, &b->behind, NULL);
	}
	*out = all;
	all = (struct mirror_branches){ 0 };
	return 0;
}

/* ---- reset ---- */

/* 1 and where it is; 0: there is none. */
static int value(struct mirror *m, const char *prefix, const char *branch, struct oid *out,
		 struct err *err)
{
	char name[REF_NAME_SIZE];
	git_oid id;
	int n = snprintf(name, sizeof(name), "%s%s", prefix, branch);
	if (n < 0 || n >= (int)sizeof(name) || !ref_name_ok(name))
		return err_set(err, -EINVAL, "%.100s is no name for a branch", branch);
	int r = git_reference_name_to_id(&id, mirror_repo(m), name);
	if (r == GIT_ENOTFOUND)
		return 0;
	if (r < 0)
		return git_fail(err, r, "read %s", name);
	*out = oid_of_git(&id);
	return 1;
}

static int refuse(const char *branch, long lost, struct err *err)
{
	return err_set(err, -ESTALE,
		       "branch %s has %ld commit%s that upstream's lacks: --force takes %s off it",
		       branch, lost, lost == 1 ? "" : "s", lost == 1 ? "it" : "them");
}

int mirror_reset_plan(struct mirror_reset *out, struct mirror *m, const char *branch, bool force,
		      struct err *err)
{
	struct mirror_reset res = { 0 };
	long behind = 0;
	int theirs = value(m, REFS_ORIGIN, branch, &res.now, err);
	int ours = theirs < 0 ? theirs : value(m, REFS_HEADS, branch, &res.was, err);
	if (ours < 0)
		return ours;
	if (!theirs && !ours)
		return err_set(err, -ENOENT, "the repository has no branch %s", branch);
	if (!theirs && !force)
		return err_set(err, -ESTALE,
			       "branch %s is only here, not upstream: --force removes it", branch);
	res.had = ours;
	res.removed = !theirs;
	res.moved = !theirs || !ours || !same(&res.was, &res.now);
	int r = 0;
	if (theirs && ours && res.moved)
		r = count(m, &res.was, &res.now, &res.lost, &behind, err);
	if (r >= 0 && res.lost > 0 && !force)
		r = refuse(branch, res.lost, err);
	if (r < 0)
		return r;
	*out = res;
	return 0;
}

int mirror_reset_branch(struct mirror *m, const char *branch, const struct mirror_reset *plan,
			struct err *err)
{
	static const char why[] = "bough repo reset";
	const struct oid *was = plan->had ? &plan->was : NULL;
	char name[REF_NAME_SIZE];
	int r = plan->removed || plan->lost > 0 ? mirror_keep(m, was, err) : 0;
	if (r < 0 || !plan->moved)
		return r;
	if (!plan->removed)
		return mirror_move_branch(m, branch, was, &plan->now, why, err);
	(void)snprintf(name, sizeof(name), "%s%s", REFS_HEADS, branch); /* checked */
	return mirror_ref_cas(m, name, was, NULL, why, err);
}
