/* The last commit made from a workspace, to where its repository came from. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "gitops/pushnames.h"
#include "gitops/url.h"
#include "snapd/api.h"
#include "snapd/gitwork.h"
#include "snapd/intents.h"
#include "snapd/repos.h"

enum { PUSH_WAIT_MS = 60000 }; /* for a fetch of the same repository */

struct push_task {
	struct snapd *sd;
	struct source src;
	struct gitlink link;
	struct repo_row repo;
	struct lease lease; /* of the repository */
	struct repo_secret secret;
	char *branch, *url;
	bool lease_given, any_names, upkeep_gave_way;
	struct oid expect; /* with lease_given */
	struct progress *progress;
};

static void push_free(void *task)
{
	struct push_task *t = task;
	lease_give(&t->lease);
	if (t->upkeep_gave_way)
		upkeep_consider(t->sd->upkeep, t->link.repo);
	repo_secret_done(&t->secret);
	repo_row_done(&t->repo);
	gitlink_done(&t->link);
	source_done(&t->src);
	free(t->branch);
	free(t->url);
	free(t);
}

static int on_progress(void *ctx, uint64_t done, uint64_t total, const char *what)
{
	struct push_task *t = ctx;
	progress_tell(t->progress, done, total, "objects", what);
	return 0;
}

/* What the other side says isn't this API's own "not found" or "unavailable". */
static int foreign(int r)
{
	static const int codes[] = { -ENOENT,       -ECONNRESET, -ECONNREFUSED,
				     -EHOSTUNREACH, -ETIMEDOUT,  -EBADMSG };
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (codes[i] == r)
			return -EREMOTEIO;
	return r == -EPERM ? -EACCES : r;
}

static int check_names(struct push_task *t, struct err *err)
{
	auto_mirror m = NULL;
	int r = t->any_names ? 0 : snapd_inner(mirror_open(&m, t->sd->root, t->link.repo, err));
	if (r < 0 || t->any_names)
		return r;
	r = pushnames_check(m, &t->link.base, &t->link.anchor, err);
	return r == -EINVAL ? -ESTALE : snapd_inner(r);
}

static int push_run(void *task, struct progress *p, unsigned *status, json_t **result,
		    struct err *err)
{
	struct push_task *t = task;
	const struct mirror_progress progress = { on_progress, t };
	const struct mirror_origin origin = {
		.url = t->url,
		.token = t->secret.token,
		.ssh_key = t->secret.ssh_key,
		.known_hosts = t->secret.known_hosts,
		.guard = repo_guard(t->sd, &t->repo),
		.elsewhere = t->repo.is_path || strcmp(t->url, t->repo.url) != 0,
	};
	char hex[OID_HEX + 1];
	t->progress = p;
	int r = intent_push(t->sd, &t->link.anchor, err);
	if (r >= 0)
		r = check_names(t, err);
	if (r >= 0)
		r = foreign(mirror_push(t->sd->root, t->link.repo, &origin, &t->link.anchor,
					t->branch, t->lease_given ? &t->expect : NULL, &progress,
					err));
	if (r < 0)
		return r;
	oid_hex(hex, &t->link.anchor);
	*result = json_pack("{s:s, s:s, s:s}", "commit", hex, "branch", t->branch, "remote",
			    t->url);
	return *result ? 0 : err_no_memory(err);
}

/* ---- the call ---- */

static int find_repo(struct push_task *t, struct err *err)
{
	struct snapd *sd = t->sd;
	char id[ID_SIZE];
	repo_lease_id(id, t->link.repo);
	t->upkeep_gave_way = upkeep_give_way(sd->upkeep, t->link.repo);
	int r = lease_take(&t->lease, sd->leases, id, LEASE_SAVE, "push", PUSH_WAIT_MS, err);
	if (r >= 0)
		r = snapd_inner(catalog_repo_get(sd->catalog, id, &t->repo, err));
	return r;
}

/* Where to, and with which credentials: the repository's own are for its own host. */
static int choose_remote(struct request *rq, struct push_task *t, struct err *err)
{
	const char *given = request_string(rq, "remote");
	struct git_url to, from;
	struct err why = { 0 };
	if (!given && t->repo.is_path)
		return err_set(err, -ESTALE,
			       "%s came from a path, where only its owner writes: use `bough "
			       "apply --to`, or give --remote URL",
			       t->repo.name);
	if (git_url_parse(&to, given ? given : t->repo.url, &why) < 0)
		return request_bad_field(rq, "remote", err, "%s", why.text);
	t->url = strdup(given ? given : t->repo.url);
	if (!t->url)
		return err_no_memory(err);
	bool same_host = !given ||
			 (!t->repo.is_path && git_url_parse(&from, t->repo.url, NULL) >= 0 &&
			  strcmp(to.protocol, from.protocol) == 0 &&
			  strcmp(to.host, from.host) == 0);
	return same_host ? repo_secret_read(t->sd->root, t->link.repo, &t->secret, err) : 0;
}

static int choose_branch(struct request *rq, struct push_task *t, struct err *err)
{
	const char *given = request_string(rq, "branch");
	if (!given)
		given = t->link.branch;
	if (given)
		t->branch = strdup(given);
	else if (asprintf(&t->branch, "bough/%s", t->src.ws.name) < 0)
		t->branch = NULL;
	return t->branch ? 0 : err_no_memory(err);
}

/* "force_with_lease": an id, or "": where the mirror last saw the branch. */
static int read_lease(struct request *rq, struct push_task *t, struct err *err)
{
	const char *s = request_string(rq, "force_with_lease");
	if (!s)
		return 0;
	t->lease_given = true;
	if (*s)
		return oid_parse(&t->expect, s) < 0
			       ? request_bad_field(rq, "force_with_lease", err,
						   "the id of a commit is expected, 40 digits")
			       : 0;
	auto_mirror m = NULL;
	auto_free char *ref = NULL;
	git_oid id;
	int r = snapd_inner(mirror_open(&m, t->sd->root, t->link.repo, err));
	if (r < 0)
		return r;
	if (asprintf(&ref, "refs/remotes/origin/%s", t->branch) < 0) {
		ref = NULL;
		return err_no_memory(err);
	}
	r = git_reference_name_to_id(&id, mirror_repo(m), ref);
	if (r == GIT_ENOTFOUND)
		t->lease_given = false; /* it wasn't there: then only a new one is right */
	else if (r < 0)
		return git_fail(err, r, "read %s", ref);
	else
		t->expect = oid_of_git(&id);
	return 0;
}

static int prepare(struct request *rq, struct push_task *t, struct err *err)
{
	int r = source_find_ws(&t->src, t->sd, rq->params[0], LEASE_SHARED, "push", err);
	if (r < 0)
		return r;
	if (!t->src.ws.git)
		return err_set(err, -EINVAL, "%s is no checkout of a repository", t->src.ws.name);
	auto_mirror m = NULL;
	r = snapd_inner(gitlink_parse(&t->link, t->src.ws.git, err));
	if (r >= 0 && t->link.has_pending)
		r = snapd_inner(mirror_open(&m, t->sd->root, t->link.repo, err));
	if (r >= 0 && m)
		r = snapd_inner(gitlink_settle(&t->link, m, err));
	if (r < 0)
		return r;
	if (memcmp(&t->link.anchor, &t->link.base, sizeof(t->link.base)) == 0)
		return err_set(err, -ESTALE, "nothing was committed from %s: `bough commit` first",
			       t->src.ws.name);
	r = find_repo(t, err);
	if (r >= 0)
		r = choose_remote(rq, t, err);
	if (r >= 0)
		r = choose_branch(rq, t, err);
	return r < 0 ? r : read_lease(rq, t, err);
}

int api_ws_push(struct request *rq, struct reply *rp, struct err *err)
{
	struct push_task *t = calloc(1, sizeof(*t));
	if (!t)
		return err_no_memory(err);
	t->sd = rq->ctx;
	t->any_names = request_bool(rq, "any_names", false);
	int r = prepare(rq, t, err);
	if (r < 0) {
		push_free(t);
		return r;
	}
	rp->job = push_run;
	rp->task = t;
	rp->task_free = push_free;
	return 0;
}
