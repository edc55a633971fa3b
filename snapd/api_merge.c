/* Merging one workspace's changes into another (merge.h): worked out on the seals of both, done
 * in a fork of the one that gets them, which then takes that one's place in one step. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/log.h"
#include "snapd/api.h"
#include "snapd/files_list.h"
#include "snapd/flattener.h"
#include "snapd/intents.h"
#include "snapd/gitwork.h"
#include "snapd/merge.h"
#include "snapd/sandbox.h"

enum {
	MERGE_TRIES = 3,             /* where programs write to the workspace meanwhile */
	MERGE_CONFLICTS_TOLD = 1000, /* of them in an answer */
};

struct merge {
	struct snapd *sd;
	struct source into, from, origin; /* origin: a snapshot, or none */
	/* The fork in which it is done. */
	char id[ID_SIZE], path[PATH_SIZE];
	struct lease lease;
	bool forked;
	struct stack ours, theirs, base;
	struct view views[3]; /* base, ours, theirs; by git: theirs' checkout, ours, theirs */
	struct merge_plan plan;
	/* Of two checkouts that are no forks of one. */
	struct gitlink links[2]; /* ours, theirs */
	bool by_git;
	struct view before; /* ours as it was checked out */
	struct mirror *mirror;
	struct merge_git *git;
};

/* All but the two sources: for the next try. */
static void drop_try(struct merge *m)
{
	struct err err = { 0 };
	merge_plan_done(&m->plan);
	merge_git_free(m->git);
	m->git = NULL;
	mirror_close(m->mirror);
	m->mirror = NULL;
	view_done(&m->before);
	for (int i = 0; i < 3; i++)
		view_done(&m->views[i]);
	for (int i = 0; i < 2; i++)
		gitlink_done(&m->links[i]);
	if (m->forked && fs_delete(m->sd->fs, m->id, &err) < 0)
		log_warn("left for the next start to remove: %s: %s", m->id, err.text);
	if (m->forked && rmdir(m->path) < 0 && errno != ENOENT)
		log_warn("remove %s: %s", m->path, strerrordesc_np(errno));
	m->forked = m->by_git = false;
	lease_give(&m->lease);
	stack_done(&m->ours);
	stack_done(&m->base);
}

static void merge_done(struct merge *m)
{
	drop_try(m);
	stack_done(&m->theirs);
	source_done(&m->origin);
	source_done(&m->from);
	source_done(&m->into);
}
#define auto_merge __attribute__((cleanup(merge_done))) struct merge

/* ---- the common origin ---- */

/* The image and the layers that both begin with. 1 when there is one. */
static int common_part(struct merge *m, struct err *err)
{
	const struct stack *a = &m->ours, *b = &m->theirs;
	if (a->seed != b->seed || !digest_equal(&a->image, &b->image))
		return 0;
	struct stack s = { .seed = a->seed, .image = a->image };
	int r = 0;
	for (uint32_t i = 0; i < a->nlayers && i < b->nlayers && r >= 0; i++) {
		const struct stack_layer *x = &a->layers[i], *y = &b->layers[i];
		if (x->local != y->local || memcmp(&x->id, &y->id, sizeof(x->id)) != 0)
			break;
		r = stack_push(&s, &x->id, x->local, x->parts, x->nparts);
	}
	if (r < 0) {
		stack_done(&s);
		return err_sys(err, r, "the common origin");
	}
	m->base = s;
	return s.nlayers > 0 || !digest_is_zero(&s.image); /* nothing in common is no origin */
}

static int read_links(struct merge *m, struct err *err)
{
	int r = gitlink_parse(&m->links[0], source_git(&m->into), err);
	if (r >= 0)
		r = gitlink_parse(&m->links[1], source_git(&m->from), err);
	return snapd_inner(r);
}

/* The commit that both were checked out from, in one image. 1 when there is one. */
static int common_checkout(struct merge *m, struct err *err)
{
	const struct gitlink *a = &m->links[0], *b = &m->links[1];
	const struct stack *s = &a->stack, *t = &b->stack;
	if (!source_git(&m->into) || !source_git(&m->from))
		return 0;
	/* The layers of the two are what .git/index says of its path: not for a merge. */
	if (a->repo != b->repo || s->seed != t->seed || digest_is_zero(&s->image) ||
	    !digest_equal(&s->image, &t->image))
		return 0;
	int r = stack_copy(&m->base, s);
	return r < 0 ? err_sys(err, r, "the common origin") : 1;
}

/* Both are checkouts of one repository: git's way, whose base is the one of their commits, which
 * merge_git.c looks for. 1. */
static int common_repository(struct merge *m, struct err *err)
{
	const struct gitlink *a = &m->links[0], *b = &m->links[1];
	if (!source_git(&m->into) || !source_git(&m->from))
		return 0;
	if (a->repo != b->repo)
		return err_set(err, -ENOTUNIQ, "they are checkouts of different repositories");
	m->by_git = true;
	int r = stack_copy(&m->base, &b->stack);
	return r < 0 ? err_sys(err, r, "the common origin") : 1;
}

static const char *head_of(const struct source *s)
{
	return s->is_snap ? s->snap.id : s->ws.head[0] ? s->ws.head : s->ws.base;
}

/* The newest snapshot in the lines of both. 1 when there is one. */
static int common_snapshot(struct merge *m, struct err *err)
{
	struct snap_row *a = NULL, *b = NULL;
	size_t na = 0, nb = 0;
	struct catalog *c = m->sd->catalog;
	const struct snap_row *found = NULL;
	if (!*head_of(&m->into) || !*head_of(&m->from))
		return 0;
	int r = catalog_snap_log(c, head_of(&m->into), 0, &a, &na, err);
	if (r >= 0)
		r = catalog_snap_log(c, head_of(&m->from), 0, &b, &nb, err);
	for (size_t i = 0; i < na && r >= 0 && !found; i++)
		for (size_t j = 0; j < nb && !found; j++)
			if (strcmp(a[i].id, b[j].id) == 0)
				found = &a[i];
	if (r >= 0 && found) {
		source_done(&m->origin);
		r = source_find_snap(&m->origin, m->sd, found->id, LEASE_SHARED, "merge", err);
	}
	if (r >= 0 && found)
		r = source_stack(m->sd, &m->origin, &m->base, err);
	r = r < 0 ? r : found ? 1 : 0;
	snap_rows_free(a, na);
	snap_rows_free(b, nb);
	return r;
}

static int find_base(struct merge *m, struct err *err)
{
	int r = common_part(m, err);
	if (r == 0 && source_git(&m->into) && source_git(&m->from))
		r = read_links(m, err);
	if (r == 0)
		r = common_checkout(m, err);
	if (r == 0)
		r = common_snapshot(m, err);
	if (r == 0)
		r = common_repository(m, err);
	return r == 0 ? err_set(err, -ENOTUNIQ, "they have no common origin") : r;
}

/* ---- one try ---- */

static int fork_it(struct merge *m, struct err *err)
{
	struct snapd *sd = m->sd;
	const struct ws_row *row = &m->into.ws;
	uint64_t pause_ns;
	id_make(m->id, "ws");
	snapd_mount_path(sd, m->id, m->path);
	/* Through which theirs' xattrs come, where ours shows none. */
	struct fs_new child = { .id = m->id,
				.path = m->path,
				.bytes = row->quota_bytes,
				.inodes = row->quota_inodes,
				.xattrs = FS_XATTRS_ON,
				.heir = true };
	int r = lease_take(&m->lease, sd->leases, m->id, LEASE_EXCLUSIVE, "merge", 0, err);
	if (r < 0)
		return r;
	m->forked = true; /* or perhaps: what isn't there is deleted for nothing */
	r = fs_fork(sd->fs, row->id, &child, 1, &pause_ns, err);
	return r < 0 ? r : fs_stack(sd->fs, row->id, &m->ours, err);
}

static int open_views(struct merge *m, struct err *err)
{
	struct view_options opt;
	const struct stack *stacks[3] = { &m->base, &m->ours, &m->theirs };
	int r = 0;
	layercache_options(m->sd->layers, &opt);
	for (int i = 0; i < 3 && r >= 0; i++)
		r = view_open(&m->views[i], &opt, stacks[i], err);
	return r;
}

static int run_plan(struct merge *m, struct err *err)
{
	auto_fd root = open(m->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return err_sys(err, -errno, "open %s", m->path);
	return merge_run(&m->plan, &m->views[2], root, err);
}

static int plan_by_git(struct merge *m, struct err *err)
{
	struct view_options opt;
	char scratch[PATH_SIZE];
	(void)snprintf(scratch, sizeof(scratch), "%s/tmp/merge.%s", m->sd->root, m->id);
	layercache_options(m->sd->layers, &opt);
	int r = view_open(&m->before, &opt, &m->links[0].stack, err);
	if (r >= 0)
		r = mirror_open(&m->mirror, m->sd->root, m->links[0].repo, err);
	if (r < 0)
		return snapd_inner(r);
	struct merge_side ours = { &m->links[0], &m->views[1], &m->before };
	struct merge_side theirs = { &m->links[1], &m->views[2], &m->views[0] };
	return merge_git_plan(&m->plan, &m->git, m->mirror, &ours, &theirs, scratch, err);
}

static int plan(struct merge *m, struct err *err)
{
	int r = open_views(m, err);
	if (r < 0 || m->by_git)
		return r < 0 ? r : plan_by_git(m, err);
	struct merge_trees trees = { &m->views[0], &m->views[1], &m->views[2],
				     .skip_git = source_git(&m->into) && source_git(&m->from) };
	return merge_plan_make(&m->plan, &trees, err);
}

static json_t *tell_merged(struct merge *m, struct err *err)
{
	uint64_t count[MERGE_PUT + 1] = { 0 };
	for (size_t i = 0; i < m->plan.n; i++) {
		const struct merge_step *s = &m->plan.steps[i];
		enum merge_kind kind = s->kind;
		if (kind == MERGE_PUT)
			kind = s->put & MERGE_PUT_MERGED ? MERGE_TEXT
			       : s->put & MERGE_PUT_NEW  ? MERGE_MAKE
							 : MERGE_WRITE;
		count[kind == MERGE_DROP ? MERGE_REMOVE : kind]++;
	}
	json_t *ws = api_workspace(m->sd, &m->into.ws, NULL), *j;
	j = ws ? json_pack("{s:o, s:I, s:I, s:I, s:I, s:I}", "workspace", ws, "added",
			   (json_int_t)(count[MERGE_MAKE] + count[MERGE_LINK]), "removed",
			   (json_int_t)count[MERGE_REMOVE], "moved",
			   (json_int_t)count[MERGE_PLACE], "changed",
			   (json_int_t)(count[MERGE_WRITE] + count[MERGE_ATTR]), "merged",
			   (json_int_t)count[MERGE_TEXT])
	       : NULL;
	if (!j)
		(void)err_no_memory(err);
	return j;
}

/* Runs the plan in the fork, and puts that in the workspace's place. */
static int carry_out(struct merge *m, struct err *err)
{
	auto_stack merged = { 0 };
	int renumber = 0, r = run_plan(m, err);
	if (r >= 0)
		r = fs_seal(m->sd->fs, m->id, &merged, err);
	if (r >= 0)
		r = renumber = sandbox_check_seen(m->sd, m->into.ws.id, NULL, err);
	json_t *answer = r >= 0 ? tell_merged(m, err) : NULL;
	if (r >= 0 && !answer)
		r = -ENOMEM;
	struct intent intent;
	if (r >= 0)
		r = intent_note(&intent, m->sd, m->into.ws.id, NULL, answer, err);
	json_decref(answer);
	if (r < 0)
		return r;
	r = fs_restore(m->sd->fs, m->into.ws.id, &merged, &m->ours, renumber > 0, err);
	if (r == -ECONNRESET && intent_happened(m->sd, &intent, err) > 0)
		r = 0; /* bough-fs died behind it, before it could tell */
	return r;
}

/* 0; -ESTALE: it was written to meanwhile. With conflicts nothing is done. */
static int try_merge(struct merge *m, struct err *err)
{
	int r = snapd_inner(fork_it(m, err));
	if (r >= 0)
		r = find_base(m, err);
	if (r >= 0 && (r = plan(m, err)) != -ENOTUNIQ)
		r = snapd_inner(r);
	if (r >= 0 && m->plan.nconflicts == 0 && m->plan.n > 0)
		r = snapd_inner(carry_out(m, err));
	return r;
}

/* Its chain has no room for the fork's layers. -ESTALE: it has now, for the next try. */
static int shorten_into(struct merge *m, struct err *err)
{
	struct snapd *sd = m->sd;
	auto_ws_row row = { 0 };
	drop_try(m);
	int r = flattener_shorten(sd->flattener, &m->into.lease, "merge", err);
	if (r >= 0)
		r = catalog_ws_get(sd->catalog, m->into.ws.id, &row, err);
	if (r < 0)
		return r;
	struct ws_row old = m->into.ws;
	m->into.ws = row;
	row = old; /* freed */
	return -ESTALE;
}

/* ---- the call ---- */

static int tell_conflicts(struct merge *m, struct request *rq, struct err *err)
{
	const struct merge_plan *p = &m->plan;
	json_t *list = json_array();
	for (size_t i = 0; i < p->nconflicts && i < MERGE_CONFLICTS_TOLD; i++) {
		const char *path = p->conflicts[i].path;
		json_t *one = json_pack("{s:s}", "why", p->conflicts[i].why);
		if (one) /* one without its path is one, too */
			(void)listing_set_name(one, "path", path, strlen(path));
		(void)json_array_append_new(list, one);
	}
	rq->details = json_pack("{s:o, s:I}", "conflicts", list, "count",
				(json_int_t)p->nconflicts);
	return err_set(err, -ESTALE, "%zu %s; nothing was changed", p->nconflicts,
		       p->nconflicts == 1 ? "conflict" : "conflicts");
}

int api_ws_merge(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_merge m = { .sd = sd };
	int r = source_find_ws(&m.into, sd, rq->params[0], LEASE_EXCLUSIVE, "merge", err);
	if (r >= 0 && strcmp(request_string(rq, "from"), m.into.ws.id) == 0)
		return request_bad_field(rq, "from", err,
					 "a workspace can't be merged into itself");
	if (r >= 0)
		r = source_find(&m.from, sd, request_string(rq, "from"), "merge", err);
	if (r >= 0)
		r = source_stack(sd, &m.from, &m.theirs, err);
	if (r < 0)
		return r;
	for (int i = 0; i < MERGE_TRIES; i++) {
		drop_try(&m);
		r = try_merge(&m, err);
		if (r == -E2BIG)
			r = shorten_into(&m, err);
		if (r != -ESTALE)
			break;
	}
	if (r == -ESTALE)
		return err_set(err, -EBUSY, "%s is written to all the time: try again",
			       m.into.ws.name);
	if (r < 0)
		return err_prefix(err, r, "%s", m.into.ws.name);
	if (m.plan.nconflicts > 0)
		return tell_conflicts(&m, rq, err);
	flattener_consider(sd->flattener, m.into.ws.id);
	rp->json = tell_merged(&m, err);
	return rp->json ? 0 : -ENOMEM;
}
