#include "gitops/inner_past.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "gitops/oidmap.h"

enum { CLOCK_EVERY = 256 /* commits */ };

/* A commit to be looked at. */
struct visit {
	git_oid id;
	bool had;
};

struct walk {
	git_repository *repo;
	struct inner_past *past;
	bool *found; /* of each entry */
	size_t left;
	struct oidmap seen;  /* commits */
	struct oidmap trees; /* and the roots of those */
	struct visit *v;     /* a queue: the newest are the likeliest */
	size_t n, cap, next;
	int (*had)(void *ctx, const git_oid *id, struct err *err);
	void *ctx;
	struct err *err;
};

void inner_past_done(struct inner_past *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->v[i].path);
	free(p->v);
	*p = (struct inner_past){ 0 };
}

int inner_past_add(struct inner_past *p, char *path, const git_oid *id, uint32_t mode,
		   const char *commit)
{
	struct past_entry e = { .path = path, .id = *id, .mode = mode };
	memcpy(e.commit, commit, sizeof(e.commit));
	int r = !path || (p->n < INNER_PAST_ENTRIES_MAX && array_grow(&p->v, p->n, &p->cap) < 0)
			? -ENOMEM
		: p->n >= INNER_PAST_ENTRIES_MAX ? -E2BIG
						 : 0;
	if (r < 0)
		free(path);
	else
		p->v[p->n++] = e;
	return r;
}

/* 1 the first time, else 0. */
static int first_time(struct walk *w, struct oidmap *m, const git_oid *id)
{
	int r = oidmap_add(m, id);
	return r < 0 ? err_no_memory(w->err) : r;
}

static int push(struct walk *w, const git_oid *id, bool above)
{
	int r = first_time(w, &w->seen, id);
	if (r <= 0)
		return r;
	r = w->had(w->ctx, id, w->err);
	if (r < 0 || (r == 0 && !above))
		return r; /* behind what the workspace got */
	if (w->n >= INNER_PAST_COMMITS_MAX)
		return err_set(w->err, -E2BIG, "the history has more than %d commits",
			       INNER_PAST_COMMITS_MAX);
	if (array_grow(&w->v, w->n, &w->cap) < 0)
		return err_no_memory(w->err);
	w->v[w->n++] = (struct visit){ *id, r > 0 };
	return 0;
}

static int look_in(struct walk *w, const git_tree *tree)
{
	for (size_t i = 0; i < w->past->n; i++) {
		const struct past_entry *e = &w->past->v[i];
		auto_git(git_tree_entry) there = NULL;
		if (w->found[i])
			continue;
		int r = git_tree_entry_bypath(&there, tree, e->path);
		if (r < 0 && r != GIT_ENOTFOUND)
			return git_fail(w->err, r, "read %.300s", e->path);
		git_error_clear();
		if (r < 0 || !git_oid_equal(git_tree_entry_id(there), &e->id) ||
		    git_tree_entry_filemode_raw(there) != (git_filemode_t)e->mode)
			continue;
		w->found[i] = true;
		w->left--;
	}
	return 0;
}

static int visit(struct walk *w, const struct visit *v)
{
	auto_git(git_commit) commit = NULL;
	auto_git(git_tree) tree = NULL;
	int r = git_commit_lookup(&commit, w->repo, &v->id);
	if (r < 0)
		return git_fail(w->err, r, "read the history");
	r = first_time(w, &w->trees, git_commit_tree_id(commit));
	if (r > 0) {
		r = git_commit_tree(&tree, commit);
		r = r < 0 ? git_fail(w->err, r, "read the history") : look_in(w, tree);
	}
	for (unsigned i = 0; i < git_commit_parentcount(commit) && r >= 0; i++)
		r = push(w, git_commit_parent_id(commit, i), !v->had);
	return r;
}

static int walk(struct walk *w, time_t end)
{
	int r = 0;
	while (w->left > 0 && w->next < w->n && r >= 0) {
		struct timespec now;
		struct visit v = w->v[w->next++];
		(void)clock_gettime(CLOCK_MONOTONIC, &now); /* it is there always */
		if (w->next % CLOCK_EVERY == 0 && now.tv_sec > end)
			return err_set(w->err, -ETIMEDOUT,
				       "its own git's history takes too long to compare");
		r = visit(w, &v);
	}
	return r;
}

int inner_past_find(struct inner_past *p, const struct past_entry **missing, git_repository *repo,
		    const git_oid *from, int (*had)(void *ctx, const git_oid *id, struct err *err),
		    void *ctx, time_t end, struct err *err)
{
	auto_free bool *found = calloc(p->n + 1, sizeof(*found));
	struct walk w = { .repo = repo,
			  .past = p,
			  .found = found,
			  .left = p->n,
			  .had = had,
			  .ctx = ctx,
			  .err = err };
	if (!found)
		return err_no_memory(err);
	int r = p->n ? push(&w, from, true) : 0;
	if (r >= 0)
		r = walk(&w, end);
	oidmap_done(&w.seen);
	oidmap_done(&w.trees);
	free(w.v);
	if (r < 0 || w.left == 0)
		return r < 0 ? r : 1;
	size_t first = 0;
	while (found[first])
		first++;
	*missing = &p->v[first];
	return 0;
}
