/* Workspaces that begin with a commit: `create --git`. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "fs/work/ino.h"
#include "gitops/checkout.h"
#include "gitops/history.h"
#include "gitops/refs.h"
#include "snapd/api.h"
#include "snapd/difftext.h"
#include "snapd/flattener.h"
#include "snapd/gitlink.h"
#include "snapd/repos.h"

enum {
	REF_BYTES_MAX = 1024,
	DEPTH_MAX = 1 << 30,
	SEEN_AT_MAX = 4095,
	/* A build waits for one of an equal checkout, which it then needs not do. */
	BUILD_WAIT_MS = 600000,
};

static const struct field git_fields[] = {
	{ "repo", FIELD_STRING, true, NAME_CHARS },
	{ "ref", FIELD_STRING, false, REF_BYTES_MAX },
	{ "scopes", FIELD_STRINGS, false, SCOPES_MAX },
	{ "depth", FIELD_NUMBER, false, 0 },
	{ "branch", FIELD_STRING, false, REF_BYTES_MAX },
	{ "seen_at", FIELD_STRING, false, SEEN_AT_MAX },
	{ 0 },
};

struct checkout {
	struct snapd *sd;
	struct ws_plan plan;
	char *repo, *ref, *new_branch, *seen_at;
	char **scopes;
	size_t nscopes;
	unsigned depth;

	struct progress *progress;
	struct repo_row row;
	struct lease lease; /* of the repository */
	struct mirror *mirror;
	struct store_session *session;
	char images[PATH_SIZE];
	struct checkout_options opt;
	struct checkout_spec spec;
	char *refname;
	struct oid upstream; /* of a local branch, where the other side's is */
	struct checkout_result result;
	bool built;
};

static void checkout_free(void *task)
{
	struct checkout *c = task;
	store_session_end(c->session);
	mirror_close(c->mirror);
	lease_give(&c->lease);
	repo_row_done(&c->row);
	ws_plan_done(&c->plan);
	for (size_t i = 0; i < c->nscopes; i++)
		free(c->scopes[i]);
	free(c->scopes);
	free(c->repo);
	free(c->ref);
	free(c->new_branch);
	free(c->seen_at);
	free(c->refname);
	free(c);
}

/* ---- scopes ---- */

/* "./a//b/" as "a/b"; "": the whole. False: it leads out of the tree, or is no path. */
static bool clean_scope(char *out, const char *s)
{
	size_t n = 0;
	if (*s == '/')
		return false;
	while (*s) {
		size_t len = strcspn(s, "/");
		if (len == 2 && s[0] == '.' && s[1] == '.')
			return false;
		if (len > 0 && !(len == 1 && s[0] == '.')) {
			if (n)
				out[n++] = '/';
			memcpy(out + n, s, len);
			n += len;
		}
		s += len + (s[len] == '/');
	}
	out[n] = '\0';
	return true;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool covers(const char *above, const char *path)
{
	size_t n = strlen(above);
	return strncmp(above, path, n) == 0 && (!path[n] || path[n] == '/');
}

/* Sorted, and without those that lie in others, so that equal scopes are equal lists. */
static void reduce_scopes(struct checkout *c)
{
	size_t n = 0;
	if (c->nscopes > 1)
		qsort(c->scopes, c->nscopes, sizeof(*c->scopes), by_text);
	for (size_t i = 0; i < c->nscopes; i++) {
		bool inside = !*c->scopes[i];
		for (size_t k = 0; k < n && !inside; k++)
			inside = covers(c->scopes[k], c->scopes[i]);
		if (inside)
			free(c->scopes[i]);
		else
			c->scopes[n++] = c->scopes[i];
	}
	c->nscopes = n;
}

static int take_scopes(struct checkout *c, struct request *rq, const json_t *list, struct err *err)
{
	size_t n = json_array_size(list), bytes = 0, i;
	bool whole = false;
	json_t *v;
	c->scopes = calloc(n + 1, sizeof(*c->scopes));
	if (!c->scopes)
		return err_no_memory(err);
	json_array_foreach((json_t *)(uintptr_t)list, i, v) {
		const char *s = json_string_value(v);
		bytes += strlen(s) + 1;
		char *out = malloc(strlen(s) + 1);
		if (!out)
			return err_no_memory(err);
		c->scopes[c->nscopes++] = out;
		if (!*s)
			return request_bad_field(rq, "scopes", err, "one is empty");
		if (!clean_scope(out, s))
			return request_bad_field(rq, "scopes", err,
						 "'%s' is no folder of a repository", s);
		whole |= !*out;
	}
	if (bytes > SCOPE_BYTES_MAX)
		return request_bad_field(rq, "scopes", err, "they are too long");
	reduce_scopes(c);
	for (size_t k = 0; whole && k < c->nscopes; k++)
		free(c->scopes[k]);
	if (whole)
		c->nscopes = 0;
	return 0;
}

/* ---- what is checked out ---- */

static const char *after(const char *s, const char *prefix)
{
	size_t n = strlen(prefix);
	return s && strncmp(s, prefix, n) == 0 ? s + n : NULL;
}

static int check_branch(const char *branch, struct err *err)
{
	if (!branch_name_ok(branch))
		return err_set(err, -EINVAL, "\"%.60s\" is no name for a branch", branch);
	return 0;
}

/* No file is newer than its commit was known here: make, and git, would see times to come. */
static int file_time(struct checkout *c, struct err *err)
{
	auto_git(git_commit) commit = NULL;
	git_oid g = oid_to_git(&c->spec.commit);
	int r = git_commit_lookup(&commit, mirror_repo(c->mirror), &g);
	if (r < 0)
		return git_fail(err, r, "read the commit");
	int64_t t = git_commit_time(commit);
	int64_t known = c->row.fetched_ns / 1000000000;
	c->spec.time_s = t < 0 ? 0 : t > known ? known : t;
	return 0;
}

/* Held from before it is read, so that it can't be removed while a checkout of it is made. */
static int find_repo(struct checkout *c, struct err *err)
{
	struct snapd *sd = c->sd;
	char id[ID_SIZE];
	auto_repo_row seen = { 0 };
	int r = catalog_repo_get(sd->catalog, c->repo, &seen, err);
	if (r < 0)
		return r;
	repo_lease_id(id, seen.number);
	r = lease_take(&c->lease, sd->leases, id, LEASE_SHARED, "create", LEASE_WAIT_MS, err);
	return r < 0 ? r : catalog_repo_get(sd->catalog, c->repo, &c->row, err);
}

/* A branch that only is here, or has commits that the other side's lacks: inside, origin's shows
 * what the other side has, where that is in the history that is there; else there is none. */
static int follow_local(struct checkout *c, const char *branch, struct err *err)
{
	char name[REF_BYTES_MAX + 32];
	git_oid theirs, ours = oid_to_git(&c->spec.commit);
	git_repository *repo = mirror_repo(c->mirror);
	if (snprintf(name, sizeof(name), "refs/remotes/origin/%s", branch) >= (int)sizeof(name))
		return 0;
	int r = git_reference_name_to_id(&theirs, repo, name);
	if (r == GIT_ENOTFOUND)
		return 0;
	if (r < 0)
		return git_fail(err, r, "read %s", name);
	if (git_oid_equal(&theirs, &ours)) {
		c->spec.upstream = branch;
		return 0;
	}
	r = c->depth ? 0 : history_descends(repo, &ours, &theirs, err);
	if (r < 0)
		return err_prefix(err, r, "look at the history of %s", branch);
	if (r) {
		c->upstream = oid_of_git(&theirs);
		c->spec.tracked = &c->upstream;
		c->spec.upstream = branch;
	}
	return 0;
}

static int follow(struct checkout *c, struct err *err)
{
	const char *theirs = after(c->refname, "refs/remotes/origin/");
	const char *ours = after(c->refname, "refs/heads/");
	c->spec.branch = c->new_branch ? c->new_branch : theirs ? theirs : ours;
	c->spec.upstream = theirs;
	return ours ? follow_local(c, ours, err) : 0;
}

static int resolve(struct checkout *c, struct err *err)
{
	struct snapd *sd = c->sd;
	int r = find_repo(c, err);
	if (r >= 0)
		r = snapd_inner(mirror_open(&c->mirror, sd->root, c->row.number, err));
	if (r >= 0)
		r = mirror_resolve(c->mirror, c->ref, &c->spec.commit, &c->refname, err);
	if (r >= 0 && c->new_branch)
		r = check_branch(c->new_branch, err);
	if (r >= 0)
		r = file_time(c, err);
	if (r < 0)
		return r;
	r = follow(c, err);
	if (r < 0)
		return r;
	c->spec.scopes = (const char *const *)c->scopes;
	c->spec.nscopes = c->nscopes;
	c->spec.depth = c->depth;
	c->spec.uid = c->plan.uid;
	c->spec.gid = c->plan.gid;
	c->spec.origin_url = c->row.is_path ? NULL : c->row.url; /* a path is the host's affair */
	return snapd_inner(mirror_keep(c->mirror, &c->spec.commit, err));
}

/* ---- the image ---- */

static int reserve(void *ctx, uint64_t n, uint64_t *first, struct err *err)
{
	struct checkout *c = ctx;
	return ino_reserve(NULL, c->sd->root, n, first, err);
}

static int tell(void *ctx, uint64_t done, uint64_t total, const char *what)
{
	struct checkout *c = ctx;
	progress_tell(c->progress, done, total, what, "check out");
	return 0;
}

static int find_locked(struct checkout *c, struct err *err)
{
	pthread_mutex_lock(&c->sd->checkouts);
	int r = checkout_find(&c->result, &c->opt, &c->spec, err);
	pthread_mutex_unlock(&c->sd->checkouts);
	return snapd_inner(r);
}

/* Of several that want the same new checkout one builds it, the others wait. */
static int build(struct checkout *c, struct err *err)
{
	auto_lease lease = { 0 };
	struct digest key;
	char id[ID_SIZE], hex[DIGEST_HEX + 1];
	checkout_key(&key, &c->opt, &c->spec);
	digest_hex(hex, &key);
	(void)snprintf(id, sizeof(id), "co_%.10s", hex);
	int r = lease_take(&lease, c->sd->leases, id, LEASE_EXCLUSIVE, "an equal checkout",
			   BUILD_WAIT_MS, err);
	if (r >= 0)
		r = find_locked(c, err);
	if (r != 0)
		return r;
	c->built = true;
	r = checkout_build(&c->result, &c->opt, &c->spec, err);
	/* A scope that isn't there is the caller's mistake; everything else isn't. */
	return r == -ENOENT ? r : snapd_inner(r);
}

static int link_text(const struct checkout *c, const struct stack *stack, char **git,
		     struct err *err)
{
	struct gitlink link = { .repo = c->row.number,
				.base = c->spec.commit,
				.anchor = c->spec.commit,
				.ref = c->refname,
				.branch = (char *)(uintptr_t)c->spec.branch,
				.scopes = c->scopes,
				.nscopes = c->nscopes,
				.depth = c->depth,
				.stack = *stack };
	*git = gitlink_text(&link); /* all of it is borrowed */
	return *git ? 0 : err_no_memory(err);
}

static int make_stack(void *ctx, const char *path, struct stack *out, char **git, struct err *err)
{
	struct checkout *c = ctx;
	auto_stack stack = { 0 };
	const char *at = c->seen_at ? c->seen_at : path;
	int r = checkout_stack(&stack, &c->result, &c->opt, at, err);
	if (r >= 0)
		r = store_sync(c->session, err);
	if (r < 0)
		return snapd_inner(r);
	r = link_text(c, &stack, git, err);
	if (r < 0)
		return r;
	*out = stack;
	stack = (struct stack){ 0 };
	return 0;
}

static int make_workspace(struct checkout *c, struct ws_row *row, struct err *err)
{
	struct snapd *sd = c->sd;
	(void)snprintf(c->images, sizeof(c->images), "%s/images", sd->root);
	c->opt = (struct checkout_options){ .mirror = c->mirror,
					    .session = c->session,
					    .store = sd->store,
					    .images = c->images,
					    .reserve = reserve,
					    .reserve_ctx = c,
					    .progress = tell,
					    .progress_ctx = c };
	random_bytes(&c->opt.seed, sizeof(c->opt.seed));
	int r = find_locked(c, err);
	if (r == 0)
		r = build(c, err);
	c->plan.stack = make_stack;
	c->plan.ctx = c;
	return r < 0 ? r : api_ws_make(row, sd, &c->plan, err);
}

static json_t *names_json(const struct checkout_names *names)
{
	json_t *list = json_array();
	const char *p = names->text;
	for (uint32_t i = 0; i < names->n && list; i++, p += strlen(p) + 1) {
		auto_buf clean = { 0 };
		(void)diff_utf8(&clean, p, strlen(p));
		json_t *s = buf_error(&clean)
				    ? NULL
				    : json_stringn((const char *)clean.data, clean.len);
		if (json_array_append_new(list, s) < 0) {
			json_decref(list);
			list = NULL;
		}
	}
	return list;
}

static int checkout_run(void *task, struct progress *p, unsigned *status, json_t **result,
			struct err *err)
{
	struct checkout *c = task;
	struct snapd *sd = c->sd;
	auto_ws_row row = { 0 };
	c->progress = p;
	int r = resolve(c, err);
	if (r >= 0)
		r = snapd_inner(store_session_begin(sd->store, &c->session, err));
	if (r < 0)
		return r;
	images_making(sd->images); /* none goes until the row names ours */
	r = make_workspace(c, &row, err);
	images_made(sd->images, r >= 0 ? &c->result.image : NULL);
	if (r < 0)
		return r;
	*status = 201;
	*result = api_workspace(sd, &row, NULL);
	json_t *more = json_pack("{s:I, s:I, s:I, s:o, s:I, s:o, s:b, s:I, s:I}", "files",
				 (json_int_t)c->result.files, "bytes", (json_int_t)c->result.bytes,
				 "submodules", (json_int_t)c->result.submodules, "submodule_paths",
				 names_json(&c->result.submodule_names), "lfs",
				 (json_int_t)c->result.lfs, "lfs_paths",
				 names_json(&c->result.lfs_names), "built", c->built, "uid",
				 (json_int_t)c->plan.uid, "gid", (json_int_t)c->plan.gid);
	return *result && json_object_set_new(*result, "checkout", more) == 0 ? 0
									      : err_no_memory(err);
}

/* An empty one, such as a variable that isn't set, isn't the default: what is meant isn't known. */
static int copy_text(char **out, struct request *rq, const json_t *o, const char *key,
		     struct err *err)
{
	const char *s = json_string_value(json_object_get(o, key));
	if (s && !*s)
		return request_bad_field(rq, key, err, "it is empty");
	*out = s ? strdup(s) : NULL;
	return s && !*out ? err_no_memory(err) : 0;
}

int api_ws_checkout(struct request *rq, struct reply *rp, struct err *err)
{
	json_t *git;
	struct checkout *c = calloc(1, sizeof(*c));
	if (!c)
		return err_no_memory(err);
	c->sd = rq->ctx;
	int r = request_object(rq, "git", git_fields, &git, err);
	json_int_t depth = r >= 0 ? json_integer_value(json_object_get(git, "depth")) : 0;
	if (r >= 0 && request_string(rq, "from"))
		r = request_bad_field(rq, "git", err, "either git or from");
	if (r >= 0 && depth > DEPTH_MAX)
		r = request_bad_field(rq, "depth", err, "at most %d", DEPTH_MAX);
	c->depth = (unsigned)depth;
	if (r >= 0)
		r = copy_text(&c->repo, rq, git, "repo", err);
	if (r >= 0)
		r = copy_text(&c->ref, rq, git, "ref", err);
	if (r >= 0)
		r = copy_text(&c->new_branch, rq, git, "branch", err);
	if (r >= 0)
		r = copy_text(&c->seen_at, rq, git, "seen_at", err);
	if (r >= 0 && c->seen_at && c->seen_at[0] != '/')
		r = request_bad_field(rq, "seen_at", err, "it doesn't begin with /");
	if (r >= 0)
		r = take_scopes(c, rq, json_object_get(git, "scopes"), err);
	if (r >= 0)
		r = ws_plan_init(&c->plan, rq, err);
	if (r < 0) {
		checkout_free(c);
		return r;
	}
	rp->job = checkout_run;
	rp->task = c;
	rp->task_free = checkout_free;
	return 0;
}
