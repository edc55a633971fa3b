#include "gitops/history.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "gitops/oidmap.h"

/* Flags of a commit: which side comes from it, and that nobody needs to look behind it. */
enum { SIDE_A = 1, SIDE_B = 2, BOTH = SIDE_A | SIDE_B, STALE = 4, FOUND = 8 };

enum {
	/* libgit2 goes on for 5 commits behind the last that it gives; a few more, for commits of
	 * one second, whose order is anybody's. */
	SLACK = 16,
};

struct node {
	git_oid id;
	git_time_t time;
	unsigned flags, queued; /* queued: how often it is in the heap */
};

/* Newest commits first. `open` counts the places in the heap whose commit isn't done with; one that
 * is has all flags of `done`. */
struct walk {
	git_repository *repo;
	struct err *err;
	struct node *v;
	size_t n, cap;
	struct oidmap at; /* of an id: index + 1 */
	size_t *heap, nheap, heap_cap;
	size_t open;
	unsigned done;
};

static void walk_end(struct walk *w)
{
	oidmap_done(&w->at);
	free(w->v);
	free(w->heap);
}
#define auto_walk __attribute__((cleanup(walk_end))) struct walk

static int commit_of(git_commit **out, struct walk *w, const git_oid *id)
{
	char hex[OID_HEX + 1];
	int r = git_commit_lookup(out, w->repo, id);
	return r < 0 ? git_fail_object(w->err, r, w->repo, id, "read commit %s",
				       git_oid_tostr(hex, sizeof(hex), id))
		     : 0;
}

/* ---- the heap ---- */

static bool newer(const struct walk *w, size_t i, size_t k)
{
	return w->v[w->heap[i]].time > w->v[w->heap[k]].time;
}

static void swap(struct walk *w, size_t i, size_t k)
{
	size_t t = w->heap[i];
	w->heap[i] = w->heap[k];
	w->heap[k] = t;
}

static bool is_done(const struct walk *w, const struct node *n)
{
	return (n->flags & w->done) == w->done;
}

static int push(struct walk *w, size_t node)
{
	if (array_grow(&w->heap, w->nheap, &w->heap_cap) < 0)
		return err_no_memory(w->err);
	size_t i = w->nheap++;
	w->heap[i] = node;
	for (; i > 0 && newer(w, i, (i - 1) / 2); i = (i - 1) / 2)
		swap(w, i, (i - 1) / 2);
	w->v[node].queued++;
	w->open += !is_done(w, &w->v[node]);
	return 0;
}

static size_t pop(struct walk *w)
{
	size_t top = w->heap[0];
	w->heap[0] = w->heap[--w->nheap];
	for (size_t i = 0, k; (k = 2 * i + 1) < w->nheap; i = k) {
		if (k + 1 < w->nheap && newer(w, k + 1, k))
			k++;
		if (!newer(w, k, i))
			break;
		swap(w, i, k);
	}
	w->v[top].queued--;
	w->open -= !is_done(w, &w->v[top]);
	return top;
}

/* ---- walking ---- */

/* The commit has these flags too; what that changes is looked at behind it. */
static int mark(struct walk *w, const git_oid *id, unsigned flags)
{
	size_t i = oidmap_get(&w->at, id);
	if (i == 0) {
		auto_git(git_commit) c = NULL;
		int r = commit_of(&c, w, id);
		if (r < 0)
			return r;
		if (array_grow(&w->v, w->n, &w->cap) < 0 || oidmap_put(&w->at, id, w->n + 1) < 0)
			return err_no_memory(w->err);
		w->v[w->n++] = (struct node){ .id = *id, .time = git_commit_time(c) };
		i = w->n;
	}
	struct node *n = &w->v[--i];
	if ((n->flags & flags) == flags)
		return 0;
	bool was = is_done(w, n);
	n->flags |= flags;
	if (is_done(w, n) && !was)
		w->open -= n->queued;
	return push(w, i);
}

static int mark_parents(struct walk *w, size_t node, unsigned flags)
{
	auto_git(git_commit) c = NULL;
	git_oid id = w->v[node].id; /* the nodes move */
	int r = commit_of(&c, w, &id);
	for (unsigned i = 0; r == 0 && i < git_commit_parentcount(c); i++)
		r = mark(w, git_commit_parent_id(c, i), flags);
	return r;
}

/* Until all is common: of what both come from, the commits that were met first have FOUND. Those of
 * them that are STALE at the end are behind others. */
static int paint(struct walk *w, const git_oid *a, const git_oid *b, size_t nb)
{
	w->done = STALE;
	int r = mark(w, a, SIDE_A);
	for (size_t i = 0; r == 0 && i < nb; i++)
		r = mark(w, &b[i], SIDE_B);
	while (r == 0 && w->open > 0) {
		size_t i = pop(w);
		unsigned flags = w->v[i].flags & (BOTH | STALE);
		if (flags == BOTH)
			w->v[i].flags |= FOUND;
		r = mark_parents(w, i, (flags & BOTH) == BOTH ? flags | STALE : flags);
	}
	return r;
}

/* Whether the k-th comes before another of them: clocks that are wrong hide that from one walk. */
static int is_behind(git_repository *repo, git_oid *v, size_t n, size_t k, struct err *err)
{
	auto_walk w = { .repo = repo, .err = err };
	git_oid one = v[k];
	v[k] = v[n - 1];
	int r = paint(&w, &one, v, n - 1);
	v[n - 1] = v[k];
	v[k] = one;
	return r < 0 ? r : (w.v[oidmap_get(&w.at, &one) - 1].flags & SIDE_B) != 0;
}

static int by_time(const void *a, const void *b)
{
	const struct node *x = a, *y = b;
	return x->time > y->time ? -1 : x->time < y->time;
}

int history_base(git_oid *out, git_repository *repo, const git_oid *a, const git_oid *b,
		 struct err *err)
{
	auto_walk w = { .repo = repo, .err = err };
	size_t n = 0;
	int r = paint(&w, a, b, 1);
	if (r < 0)
		return r;
	for (size_t i = 0; i < w.n; i++)
		if ((w.v[i].flags & (FOUND | STALE)) == FOUND)
			w.v[n++] = w.v[i];
	if (n == 0)
		return 0;
	qsort(w.v, n, sizeof(*w.v), by_time);
	auto_free git_oid *found = calloc(n, sizeof(*found));
	if (!found)
		return err_no_memory(err);
	for (size_t i = 0; i < n; i++)
		found[i] = w.v[i].id;
	size_t k = 0;
	while (n > 1 && (r = is_behind(repo, found, n, k, err)) > 0)
		k++; /* one isn't */
	if (r < 0)
		return r;
	*out = found[k];
	return 1;
}

int history_descends(git_repository *repo, const git_oid *a, const git_oid *b, struct err *err)
{
	auto_walk w = { .repo = repo, .err = err };
	int r = paint(&w, b, a, 1);
	return r < 0 ? r : (w.v[oidmap_get(&w.at, b) - 1].flags & SIDE_B) != 0;
}

int history_count(size_t *ahead, size_t *behind, git_repository *repo, const git_oid *a,
		  const git_oid *b, struct err *err)
{
	auto_walk w = { .repo = repo, .err = err, .done = BOTH };
	size_t only[BOTH + 1] = { 0 };
	git_time_t oldest = INT64_MAX; /* of one side alone: one of its second may lead there */
	int r = mark(&w, a, SIDE_A);
	if (r == 0)
		r = mark(&w, b, SIDE_B);
	while (r == 0 && w.nheap > 0 && (w.open > 0 || w.v[w.heap[0]].time >= oldest)) {
		size_t i = pop(&w);
		if (!is_done(&w, &w.v[i]) && w.v[i].time < oldest)
			oldest = w.v[i].time;
		r = mark_parents(&w, i, w.v[i].flags);
	}
	for (size_t i = 0; i < w.n; i++)
		only[w.v[i].flags & BOTH]++;
	if (r < 0)
		return r;
	*ahead = only[SIDE_A];
	*behind = only[SIDE_B];
	return 0;
}

int history_walkable(git_repository *repo, const git_oid *to, const git_oid *from,
		     struct err *err)
{
	auto_walk w = { .repo = repo, .err = err, .done = SIDE_B };
	int r = mark(&w, to, SIDE_A);
	if (r == 0)
		r = mark(&w, from, SIDE_B);
	for (unsigned more = 0; r == 0 && w.nheap > 0 && more < SLACK;) {
		more = w.open > 0 ? 0 : more + 1;
		size_t i = pop(&w);
		r = mark_parents(&w, i, w.v[i].flags);
	}
	return r;
}
