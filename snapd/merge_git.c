/* Merging two checkouts of one repository that are no forks of one (merge.h): each side's tree is
 * made as a commit of it would have it, in a scratch repository, trees are merged there as git
 * does, and what comes out different from ours is written into ours. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "gitops/changes.h"
#include "gitops/treemerge.h"
#include "gitops/viewfile.h"
#include "snapd/merge.h"

enum { LINK_MODE = 0120000, EXEC_MODE = 0100755 };

struct merge_git {
	struct mirror *scratch;
	struct treemerge trees;
	struct changes_options ours; /* its views are the caller's */
};

void merge_git_free(struct merge_git *g)
{
	if (!g)
		return;
	treemerge_done(&g->trees);
	mirror_close(g->scratch);
	free(g);
}

static void options(struct changes_options *out, struct mirror *m, const struct merge_side *s)
{
	*out = (struct changes_options){
		.mirror = m,
		.base = s->link->anchor,
		.checkout = s->link->base,
		.before = s->before,
		.now = s->now,
		.scopes = (const char *const *)s->link->scopes,
		.nscopes = s->link->nscopes,
		.no_renames = true,
	};
}

static int side_tree(struct oid *tree, const struct changes_options *opt, struct err *err)
{
	auto_changes c = { 0 };
	int r = changes_find(&c, opt, err);
	if (r == -EILSEQ || r == -ENOTSUP)
		return -ENOTUNIQ;
	return r < 0 ? r : changes_tree(tree, &c, opt, &opt->base, err);
}

/* ---- what is in the way ---- */

static int conflict(struct merge_git *g, const char *path, const char *why, struct err *err)
{
	return treemerge_conflict(&g->trees, path, why) < 0 ? err_no_memory(err) : 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(a, ((const struct treemerge_entry *)b)->path);
}

static const struct treemerge_entry *find_entry(const struct treemerge *t, const char *path)
{
	return bsearch(path, t->v, t->n, sizeof(*t->v), by_path);
}

struct emptying {
	const struct treemerge *trees;
	const struct view *now;
	const char *dir;
};

/* -ENOTEMPTY: something stays. */
static int goes(void *ctx, const char *path, size_t len, const struct attr *a)
{
	const struct emptying *e = ctx;
	auto_free char *whole = NULL;
	if (S_ISDIR(a->mode)) {
		int empty = view_dir_empty(e->now, a->ino); /* git knows of none */
		return empty < 0 ? empty : empty ? -ENOTEMPTY : 0;
	}
	if (asprintf(&whole, "%s/%.*s", e->dir, (int)len, path) < 0) {
		whole = NULL;
		return -ENOMEM;
	}
	const struct treemerge_entry *there = find_entry(e->trees, whole);
	return there && !there->mode ? 0 : -ENOTEMPTY;
}

/* Does all that is in the folder go, so that a file can take its name? 1, 0, -errno. */
static int is_emptied(struct merge_git *g, const char *path, uint64_t ino, struct err *err)
{
	struct emptying e = { &g->trees, g->ours.now, path };
	struct err why = { 0 };
	int r = view_walk_from(g->ours.now, ino, goes, &e, &why);
	if (r == -ENOTEMPTY)
		return 0;
	return r < 0 ? err_sys(err, r, "look at %.300s", path) : 1;
}

/* Ours has a tree of git's there, so anything else is ignored, special or outside of the scope. A
 * name of theirs may not lead through or onto that. 1: the way is free; 0; -errno. */
static int is_free(struct merge_git *g, const struct treemerge_entry *e, struct err *err)
{
	const struct view *now = g->ours.now;
	struct attr a;
	for (const char *slash = e->path; (slash = strchr(slash, '/')); slash++) {
		int r = viewfile_at(now, 1, e->path, (size_t)(slash - e->path), &a);
		if (r == -ENOENT)
			break;
		if (r < 0)
			return err_sys(err, r, "look at %.300s", e->path);
		if (S_ISDIR(a.mode))
			continue;
		/* A file that goes makes room for a folder. */
		for (size_t i = 0; i < g->trees.n; i++) {
			const struct treemerge_entry *o = &g->trees.v[i];
			size_t n = (size_t)(slash - e->path);
			if (!o->mode && strlen(o->path) == n && memcmp(o->path, e->path, n) == 0)
				return 1;
		}
		return 0;
	}
	int r = viewfile_at(now, 1, e->path, strlen(e->path), &a);
	if (r < 0)
		return r == -ENOENT ? 1 : err_sys(err, r, "look at %.300s", e->path);
	if (S_ISDIR(a.mode))
		return is_emptied(g, e->path, a.ino, err);
	return e->old_mode != 0;
}

static int check_entries(struct merge_git *g, struct err *err)
{
	int r = 0;
	for (size_t i = 0; i < g->trees.n && r >= 0; i++) {
		const struct treemerge_entry *e = &g->trees.v[i];
		if (!changes_in_scope(&g->ours, e->path)) {
			r = conflict(g, e->path, "outside of the scope here", err);
			continue;
		}
		r = e->mode ? is_free(g, e, err) : 1;
		if (r == 0)
			r = conflict(g, e->path, "something that git ignores is in the way here",
				     err);
	}
	return r < 0 ? r : 0;
}

/* ---- the plan ---- */

static int content(void *ctx, const char *path, struct buf *out, struct err *err)
{
	struct merge_git *g = ctx;
	const struct treemerge_entry *e = find_entry(&g->trees, path);
	return e ? treemerge_content(out, g->scratch, &g->trees, e, err)
		 : err_set(err, -EINVAL, "an unknown path");
}

static int add_step(struct merge_plan *p, const struct treemerge_entry *e)
{
	struct merge_step s = { .kind = e->mode ? MERGE_PUT : MERGE_DROP };
	if (array_grow(&p->steps, p->n, &p->cap) < 0 || !(s.path = strdup(e->path)))
		return -ENOMEM;
	s.put = (e->mode == LINK_MODE ? MERGE_PUT_LINK : 0) |
		(e->mode == EXEC_MODE ? MERGE_PUT_EXEC : 0) | (e->old_mode ? 0 : MERGE_PUT_NEW) |
		(e->same_content ? MERGE_PUT_MODE : 0) | (e->merged ? MERGE_PUT_MERGED : 0);
	p->steps[p->n++] = s;
	return 0;
}

static int make_steps(struct merge_plan *p, const struct treemerge *t)
{
	int r = 0;
	for (size_t i = t->n; i > 0 && r >= 0; i--) /* the deepest first */
		if (!t->v[i - 1].mode)
			r = add_step(p, &t->v[i - 1]);
	for (size_t i = 0; i < t->n && r >= 0; i++)
		if (t->v[i].mode)
			r = add_step(p, &t->v[i]);
	for (size_t i = 0; i < t->nconflicts && r >= 0; i++) {
		char *path = strdup(t->conflicts[i].path);
		if (!path || array_grow(&p->conflicts, p->nconflicts, &p->conflicts_cap) < 0) {
			free(path);
			return -ENOMEM;
		}
		p->conflicts[p->nconflicts++] = (struct merge_conflict){ path,
									 t->conflicts[i].why };
	}
	return r;
}

static int merge(struct merge_git *g, const struct merge_side *theirs, const struct oid *base,
		 struct err *err)
{
	struct changes_options opt;
	struct oid trees[2];
	options(&opt, g->scratch, theirs);
	int r = side_tree(&trees[0], &g->ours, err);
	if (r >= 0)
		r = side_tree(&trees[1], &opt, err);
	if (r >= 0)
		r = treemerge_make(&g->trees, g->scratch, base, &trees[0], &trees[1], err);
	return r < 0 ? r : check_entries(g, err);
}

int merge_git_plan(struct merge_plan *out, struct merge_git **keep, struct mirror *m,
		   const struct merge_side *ours, const struct merge_side *theirs,
		   const char *scratch, struct err *err)
{
	struct oid base;
	int r = treemerge_base(&base, m, &ours->link->anchor, &theirs->link->anchor, err);
	if (r == 0)
		return err_set(err, -ENOTUNIQ, "their commits have no common history");
	if (r < 0)
		return r;
	struct merge_git *g = calloc(1, sizeof(*g));
	if (!g)
		return err_no_memory(err);
	auto_merge_plan plan = { .content = content, .ctx = g };
	r = mirror_scratch(&g->scratch, m, scratch, err);
	if (r >= 0) {
		options(&g->ours, g->scratch, ours);
		r = merge(g, theirs, &base, err);
	}
	if (r >= 0 && make_steps(&plan, &g->trees) < 0)
		r = err_no_memory(err);
	if (r < 0) {
		merge_git_free(g);
		return r;
	}
	*keep = g;
	*out = plan;
	plan = (struct merge_plan){ 0 };
	return 0;
}
