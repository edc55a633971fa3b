/* A checkout's changes as a commit in its repository's mirror, and on to where that came from.
 *
 * Order: objects are durable, then the row says which commit is to come, then the branch moves by
 * compare and swap, then the row's anchor. Killed between the last two, the next call finds the
 * branch at what the row says and goes on from there (gitlink_settle). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fs/base/cleanup.h"
#include "gitops/history.h"
#include "gitops/inner.h"
#include "gitops/packout.h"
#include "snapd/api.h"
#include "snapd/difftext.h"
#include "snapd/flattener.h"
#include "snapd/gitsync.h"
#include "snapd/gitwork.h"
#include "snapd/intents.h"
#include "snapd/repos.h"

enum { BRANCH_SIZE = 1024 };

struct commit_task {
	struct snapd *sd;
	struct source src;
	char *message, *author, *email, *branch; /* NULL: not given */
	bool squash, history, sync, ignored;
};

/* What is being done. */
struct committing {
	struct commit_task *t;
	struct gitwork work;
	struct changes changes;
	struct oid parent; /* anchor, or HEAD of the inner .git after its history was taken over */
	struct oid tree, commit;
	char branch[BRANCH_SIZE];
	bool imported, unchanged, moved, synced;
};

static void committing_done(struct committing *c)
{
	changes_done(&c->changes);
	gitwork_done(&c->work);
}

static bool same(const struct oid *a, const struct oid *b)
{
	return memcmp(a->b, b->b, OID_BYTES) == 0;
}

static void task_free(void *task)
{
	struct commit_task *t = task;
	source_done(&t->src);
	free(t->message);
	free(t->author);
	free(t->email);
	free(t->branch);
	free(t);
}

/* ---- the inner .git ---- */

static int take_history(struct committing *c, const struct oid *head, struct err *err)
{
	char scratch[PATH_SIZE];
	(void)snprintf(scratch, sizeof(scratch), "%s/tmp", c->t->sd->root);
	/* On a branch of its own it needn't stand on what was committed here before. */
	int r = inner_import(c->work.mirror, &c->work.before, &c->work.now, head,
			     &c->work.link.anchor, c->t->branch ? &c->work.link.base : NULL,
			     scratch, err);
	if (r == -EBADMSG || r == -E2BIG) /* the workspace is at fault, not the request */
		return -ESTALE;
	if (r < 0)
		return r == -ENOENT ? -ENOTSUP : r;
	c->parent = *head;
	c->imported = true;
	return 0;
}

/* Whether the commit is one of those between the base and the anchor: taken over before, so that
 * there is nothing to ask. 1, 0, -errno. */
static int was_taken(struct committing *c, const struct oid *head, struct err *err)
{
	const struct gitlink *link = &c->work.link;
	const git_oid anchor = oid_to_git(&link->anchor), base = oid_to_git(&link->base);
	const git_oid wanted = oid_to_git(head);
	auto_git(git_revwalk) walk = NULL;
	git_oid id;
	int r = history_walkable(mirror_repo(c->work.mirror), &anchor, &base, err);
	if (r < 0)
		return snapd_inner(err_prefix(err, r, "look through what was committed"));
	r = git_revwalk_new(&walk, mirror_repo(c->work.mirror));
	if (r >= 0)
		r = git_revwalk_push(walk, &anchor);
	if (r >= 0)
		r = git_revwalk_hide(walk, &base);
	while (r >= 0 && (r = git_revwalk_next(&id, walk)) == 0)
		if (git_oid_equal(&id, &wanted))
			return 1;
	if (r != GIT_ITEROVER)
		return snapd_inner(git_fail(err, r, "look through what was committed"));
	git_error_clear();
	return 0;
}

/* What becomes of commits that were made inside. */
static int look_inside(struct committing *c, struct err *err)
{
	const struct gitlink *link = &c->work.link;
	auto_free char *branch = NULL;
	const char *why = NULL;
	struct oid head;
	char hex[OID_HEX + 1];
	int r = inner_head(&c->work.now, &head, &branch, &why, err);
	c->parent = link->anchor;
	if (r < 0)
		return r;
	if (r == 0 && c->t->history)
		return err_set(err, -ESTALE, "no history can be taken over: %s", why);
	if (r == 0)
		return changes_warn(&c->changes, "%s: only the files were looked at", why) < 0
			       ? err_no_memory(err)
			       : 0;
	if (same(&head, &link->base) || same(&head, &link->anchor) || c->t->squash)
		return 0;
	if (c->t->history)
		return take_history(c, &head, err);
	r = was_taken(c, &head, err);
	if (r != 0)
		return r < 0 ? r : 0;
	oid_hex(hex, &head);
	return err_set(err, -ESTALE,
		       "its own git has moved to %.12s%s%s: --squash commits the files alone, "
		       "--history takes its commits over",
		       hex, branch ? " on " : "", branch ? branch : "");
}

/* ---- the branch ---- */

static int taken(const char *there, const char *wanted, struct err *err)
{
	return err_set(err, -ESTALE,
		       "there is a branch %s, so none can be %s: --branch NAME gives another",
		       there, wanted);
}

/* Branches lie like files: there can't be both "a" and "a/b". */
static int check_neighbours(struct committing *c, const char *ref, struct err *err)
{
	git_repository *repo = mirror_repo(c->work.mirror);
	char at[BRANCH_SIZE + 24];
	git_reference_iterator *it;
	git_oid id;
	const char *name, *heads = ref + strlen("refs/heads/");
	for (const char *slash = heads; (slash = strchr(slash, '/')); slash++) {
		(void)snprintf(at, sizeof(at), "%.*s", (int)(slash - ref), ref);
		if (git_reference_name_to_id(&id, repo, at) == 0)
			return taken(at + strlen("refs/heads/"), heads, err);
	}
	(void)snprintf(at, sizeof(at), "%s/*", ref);
	int r = git_reference_iterator_glob_new(&it, repo, at);
	if (r < 0)
		return git_fail(err, r, "look for branches");
	r = git_reference_next_name(&name, it);
	if (r == 0)
		r = taken(name + strlen("refs/heads/"), heads, err);
	else
		r = r == GIT_ITEROVER ? 0 : git_fail(err, r, "look for branches");
	git_reference_iterator_free(it);
	git_error_clear();
	return r;
}

static int choose_branch(struct committing *c, struct err *err)
{
	const struct source *s = &c->work.src;
	const char *given = c->t->branch ? c->t->branch : c->work.link.branch;
	int n = given ? snprintf(c->branch, sizeof(c->branch), "%s", given)
		      : snprintf(c->branch, sizeof(c->branch), "bough/%s", source_name(s));
	char ref[BRANCH_SIZE + 16];
	(void)snprintf(ref, sizeof(ref), "refs/heads/%s", c->branch);
	if (n >= (int)sizeof(c->branch) || !branch_name_ok(c->branch))
		return err_set(err, -EINVAL, "\"%.60s\" is no name for a branch", c->branch);
	return check_neighbours(c, ref, err);
}

/* 1 and where the branch is; 0: there is none. */
static int branch_at(struct committing *c, struct oid *out, struct err *err)
{
	char ref[BRANCH_SIZE + 16];
	git_oid id;
	(void)snprintf(ref, sizeof(ref), "refs/heads/%s", c->branch);
	int r = git_reference_name_to_id(&id, mirror_repo(c->work.mirror), ref);
	if (r == GIT_ENOTFOUND)
		return 0;
	if (r < 0)
		return git_fail(err, r, "read %s", ref);
	*out = oid_of_git(&id);
	return 1;
}

static int descends(struct committing *c, const struct oid *from, const struct oid *ancestor,
		    struct err *err)
{
	git_oid a = oid_to_git(from), b = oid_to_git(ancestor);
	if (same(from, ancestor))
		return 1;
	int r = history_descends(mirror_repo(c->work.mirror), &a, &b, err);
	return r < 0 ? err_prefix(err, r, "look at the history of %s", c->branch) : r;
}

/* Is that commit what would be made now: this tree on this parent? */
static bool is_ours(struct committing *c, const struct oid *at)
{
	git_oid id = oid_to_git(at);
	auto_git(git_commit) commit = NULL;
	if (git_commit_lookup(&commit, mirror_repo(c->work.mirror), &id) < 0)
		return false;
	return git_commit_parentcount(commit) == 1 &&
	       memcmp(git_commit_parent_id(commit, 0)->id, c->parent.b, OID_BYTES) == 0 &&
	       memcmp(git_commit_tree_id(commit)->id, c->tree.b, OID_BYTES) == 0;
}

/* May the branch go from `at` to what comes after c->parent? */
static int check_branch(struct committing *c, const struct oid *at, struct err *err)
{
	char hex[OID_HEX + 1];
	int r = descends(c, &c->parent, at, err);
	if (r != 0)
		return r < 0 ? r : 0;
	oid_hex(hex, at);
	return err_set(err, -ESTALE,
		       "%s is at %.12s, which isn't what %s began with or committed last: "
		       "--branch NAME puts it on another, or `bough repo reset REPO %s --force` "
		       "drops what is only there",
		       c->branch, hex, source_name(&c->work.src), c->branch);
}

/* ---- the commit ---- */

static int local_offset_min(time_t now)
{
	struct tm tm;
	return localtime_r(&now, &tm) ? (int)(tm.tm_gmtoff / 60) : 0;
}

static int put_commit(struct committing *c, struct packout *p, struct err *err)
{
	time_t now = time(NULL);
	struct commit_spec spec = {
		.tree = c->tree,
		.parent = c->parent,
		.message = c->t->message,
		.author = c->t->author,
		.author_email = c->t->email,
		.time_s = now,
		.offset_min = local_offset_min(now),
	};
	int r = commit_put(&c->commit, p, &spec, err);
	return r < 0 ? r : packout_finish(p, NULL, err);
}

static int parent_tree(struct committing *c, struct oid *out, struct err *err)
{
	git_oid id = oid_to_git(&c->parent);
	auto_git(git_commit) commit = NULL;
	int r = git_commit_lookup(&commit, mirror_repo(c->work.mirror), &id);
	if (r < 0)
		return git_fail(err, r, "read the last commit");
	*out = oid_of_git(git_commit_tree_id(commit));
	return 0;
}

/* Sets tree and commit, which is the parent itself where nothing is new. `at`: where the branch is
 * now; NULL: there is none. */
static int make_commit(struct committing *c, const struct oid *at, struct err *err)
{
	struct changes_options opt;
	struct packout *p = NULL;
	struct oid before;
	gitwork_options(&c->work, &c->parent, &opt);
	opt.ignored = c->t->ignored;
	opt.no_renames = true;
	struct changes found = { 0 };
	int r = changes_find(&found, &opt, err);
	if (r == -EILSEQ || r == -ENOTSUP) /* a file isn't as .gitattributes says */
		r = -ESTALE;
	for (size_t i = 0; i < c->changes.nwarnings && r >= 0; i++)
		r = changes_warn(&found, "%s", c->changes.warnings[i]) < 0 ? err_no_memory(err) : 0;
	changes_done(&c->changes);
	c->changes = found;
	if (r >= 0)
		r = packout_new(&p, c->work.mirror, NULL, err);
	if (r >= 0)
		r = changes_tree_put(&c->tree, p, &c->changes, &opt, &c->parent, err);
	if (r >= 0)
		r = parent_tree(c, &before, err);
	if (r >= 0 && same(&before, &c->tree)) {
		c->commit = c->parent;
		c->unchanged = !c->imported;
	} else if (r >= 0 && at && is_ours(c, at)) {
		c->commit = *at;
	} else if (r >= 0 && !c->t->message) {
		c->tree = before; /* --history alone: what isn't committed inside stays there */
		c->commit = c->parent;
		if (changes_warn(&c->changes, "changes that its own git hasn't committed were left "
					      "out: a message makes them a commit") < 0)
			r = err_no_memory(err);
	} else if (r >= 0) {
		r = put_commit(c, p, err);
	}
	packout_free(p);
	return r;
}

static int write_link(struct committing *c, struct err *err)
{
	auto_free char *text = gitlink_text(&c->work.link);
	if (!text)
		return err_no_memory(err);
	struct ws_patch p = { .git = text };
	return snapd_inner(catalog_ws_patch(c->t->sd->catalog, c->work.src.ws.id, &p, err));
}

/* The branch may survive what the row doesn't: the row knows first. */
static int set_pending(struct committing *c, struct err *err)
{
	struct gitlink *link = &c->work.link;
	if (c->work.src.is_snap || same(&link->anchor, &c->commit))
		return 0;
	free(link->pending_branch);
	link->pending_branch = strdup(c->branch);
	if (!link->pending_branch)
		return err_no_memory(err);
	link->pending = c->commit;
	link->has_pending = true;
	int r = write_link(c, err);
	return r < 0 ? r : catalog_sync(c->t->sd->catalog, err);
}

static json_t *warnings_json(const struct changes *c)
{
	json_t *list = json_array();
	for (size_t i = 0; i < c->nwarnings && list; i++) {
		auto_buf clean = { 0 };
		(void)diff_utf8(&clean, c->warnings[i], strlen(c->warnings[i]));
		json_t *line = buf_error(&clean) < 0
				       ? NULL
				       : json_stringn((const char *)clean.data, clean.len);
		if (json_array_append_new(list, line) < 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static json_t *to_json(const struct committing *c)
{
	json_int_t files = (json_int_t)(same(&c->commit, &c->parent) ? 0 : c->changes.n);
	return json_pack("{s:o, s:o, s:o, s:s, s:I, s:b, s:b, s:b, s:b, s:o}", "commit",
			 oid_json(&c->commit), "parent", oid_json(&c->parent), "tree",
			 oid_json(&c->tree), "branch", c->branch, "files", files, "unchanged",
			 c->unchanged, "branch_moved", c->moved, "history", c->imported, "synced",
			 c->synced, "warnings", warnings_json(&c->changes));
}

/* What is answered where boughd is killed behind what comes now; the inner git isn't told then. */
static int intend(struct committing *c, struct err *err)
{
	c->moved = true;
	json_t *answer = to_json(c);
	c->moved = false;
	int r = answer ? intent_branch(c->t->sd, c->work.link.repo, c->branch, &c->commit,
				       c->unchanged ? 200 : 201, answer, err)
		       : err_no_memory(err);
	json_decref(answer);
	return r;
}

static int move_branch(struct committing *c, const struct oid *at, struct err *err)
{
	if (at && same(at, &c->commit))
		return 0;
	int r = at ? check_branch(c, at, err) : 0;
	if (r >= 0)
		r = set_pending(c, err);
	if (r >= 0)
		r = intend(c, err);
	if (r >= 0)
		r = mirror_move_branch(c->work.mirror, c->branch, at, &c->commit, "bough commit",
				       err);
	c->moved = r >= 0;
	return r;
}

/* The row's anchor: what is committed next stands on it. A snapshot's stays. */
static int set_anchor(struct committing *c, struct err *err)
{
	struct gitlink *link = &c->work.link;
	bool same_branch = !c->t->branch || (link->branch && !strcmp(link->branch, c->branch));
	bool as_it_was = same(&link->anchor, &c->commit) && same_branch && !c->work.settled;
	if (c->work.src.is_snap || as_it_was)
		return 0;
	link->anchor = c->commit;
	link->has_pending = false;
	if (!same_branch) { /* the next ones go there too */
		char *branch = strdup(c->branch);
		if (!branch)
			return err_no_memory(err);
		free(link->branch);
		link->branch = branch;
	}
	int r = write_link(c, err);
	return r < 0 ? r : snapd_record_ws(c->t->sd, c->work.src.ws.id, err);
}

static int commit_all(struct committing *c, struct err *err)
{
	struct oid at = { 0 };
	int r = choose_branch(c, err);
	if (r >= 0)
		r = branch_at(c, &at, err);
	const struct oid *there = r > 0 ? &at : NULL;
	if (r >= 0)
		r = look_inside(c, err);
	if (r >= 0)
		r = make_commit(c, there, err);
	if (r >= 0)
		r = move_branch(c, there, err);
	if (r >= 0)
		r = set_anchor(c, err);
	if (r < 0 || !c->t->sync || c->work.src.is_snap)
		return r;
	struct err why = { 0 };
	c->synced = gitsync_tell(c->t->sd, &c->work, &c->commit, c->branch, &why) >= 0;
	if (!c->synced && changes_warn(&c->changes, "its own git wasn't told: %s", why.text) < 0)
		return err_no_memory(err);
	return 0;
}

/* ---- the call ---- */

static int commit_run(void *task, struct progress *p, unsigned *status, json_t **result,
		      struct err *err)
{
	struct commit_task *t = task;
	__attribute__((cleanup(committing_done))) struct committing c = { .t = t };
	int r = gitwork_open(&c.work, t->sd, &t->src, err);
	if (r >= 0)
		r = commit_all(&c, err);
	if (r < 0) /* what the client named was found: the rest is no "not found" */
		return r == -ENOENT || r == -EEXIST ? -EIO : r;
	if (!c.work.src.is_snap)
		flattener_consider(t->sd->flattener, c.work.src.ws.id);
	if (c.moved && mirror_crowded(t->sd->root, c.work.link.repo))
		upkeep_consider(t->sd->upkeep, c.work.link.repo);
	*status = c.unchanged ? 200 : 201;
	*result = to_json(&c);
	return *result ? 0 : err_no_memory(err);
}

static int copy_string(struct request *rq, const char *key, char **out, struct err *err)
{
	const char *s = request_string(rq, key);
	*out = s ? strdup(s) : NULL;
	return s && !*out ? err_no_memory(err) : 0;
}

static int parse_author(struct request *rq, struct commit_task *t, struct err *err)
{
	int r = gitwork_author(request_string(rq, "author"), &t->author, &t->email);
	if (r == -ENOMEM)
		return err_no_memory(err);
	return r < 0 ? request_bad_field(rq, "author", err, "\"Name <address>\" is expected") : 0;
}

static int read_options(struct request *rq, struct commit_task *t, struct err *err)
{
	t->squash = request_bool(rq, "squash", false);
	t->history = request_bool(rq, "history", false);
	t->sync = request_bool(rq, "sync", false);
	t->ignored = request_bool(rq, "ignored", false);
	if (t->squash && t->history)
		return request_bad_field(rq, "history", err, "either squash or history");
	int r = copy_string(rq, "message", &t->message, err);
	if (r >= 0 && !t->message && !t->history)
		return request_bad_field(rq, "message", err, "a commit needs a message");
	if (r >= 0 && t->message && !t->message[strspn(t->message, " \t\r\n")])
		return request_bad_field(rq, "message", err, "the message is empty");
	if (r >= 0)
		r = copy_string(rq, "branch", &t->branch, err);
	return r < 0 ? r : parse_author(rq, t, err);
}

static int commit_start(struct request *rq, struct reply *rp, bool of_snap, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct commit_task *t = calloc(1, sizeof(*t));
	if (!t)
		return err_no_memory(err);
	t->sd = sd;
	int r = read_options(rq, t, err);
	if (r >= 0)
		r = of_snap ? source_find_snap(&t->src, sd, rq->params[0], LEASE_SHARED, "commit",
					       err)
			    : source_find_ws(&t->src, sd, rq->params[0], LEASE_SAVE, "commit", err);
	if (r < 0) {
		task_free(t);
		return r;
	}
	rp->job = commit_run;
	rp->task = t;
	rp->task_free = task_free;
	return 0;
}

int api_ws_commit(struct request *rq, struct reply *rp, struct err *err)
{
	return commit_start(rq, rp, false, err);
}

int api_snap_commit(struct request *rq, struct reply *rp, struct err *err)
{
	return commit_start(rq, rp, true, err);
}
