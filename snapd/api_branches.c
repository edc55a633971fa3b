/* A repository's branches: what is upstream's beside what was committed here. */
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "fs/base/log.h"
#include "gitops/mirror.h"
#include "snapd/api.h"
#include "snapd/difftext.h"
#include "snapd/intents.h"
#include "snapd/repos.h"

enum { RESET_WAIT_MS = 60000 }; /* for a fetch of the same repository */

static json_t *count_json(long n)
{
	return n < 0 ? json_null() : json_integer((json_int_t)n);
}

static json_t *branch_json(const struct mirror_branch *b)
{
	auto_buf name = { 0 };
	(void)diff_utf8(&name, b->name, strlen(b->name));
	if (buf_error(&name))
		return NULL;
	return json_pack("{s:s%, s:o, s:o, s:o, s:o}", "name", (const char *)name.data, name.len,
			 "upstream", b->has_upstream ? oid_json(&b->upstream) : json_null(),
			 "local", b->has_local ? oid_json(&b->local) : json_null(), "ahead",
			 count_json(b->ahead), "behind", count_json(b->behind));
}

json_t *api_branches(const struct mirror_branches *all, bool only_different)
{
	size_t n = only_different ? all->different : all->n;
	json_t *list = json_array();
	for (size_t i = 0; i < n && i < API_BRANCHES_MAX && list; i++)
		if (json_array_append_new(list, branch_json(&all->v[i])) < 0) {
			json_decref(list);
			list = NULL;
		}
	return list;
}

/* ---- reset ---- */

int api_repo_reset(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	const char *branch = request_string(rq, "branch");
	char id[ID_SIZE];
	auto_repo_row row = { 0 };
	auto_lease lease = { 0 };
	auto_mirror m = NULL;
	struct mirror_reset res;
	int r = catalog_repo_get(sd->catalog, rq->params[0], &row, err);
	if (r < 0)
		return r;
	repo_lease_id(id, row.number);
	upkeep_give_way(sd->upkeep, row.number);
	r = lease_take(&lease, sd->leases, id, LEASE_SAVE, "reset", RESET_WAIT_MS, err);
	if (r >= 0)
		r = snapd_inner(mirror_open(&m, sd->root, row.number, err));
	if (r >= 0)
		r = mirror_reset_plan(&res, m, branch, request_bool(rq, "force", false), err);
	if (r < 0)
		return r;
	rp->json = json_pack("{s:s, s:o, s:o, s:I, s:b}", "branch", branch, "was",
			     res.lost || res.removed ? oid_json(&res.was) : json_null(), "commit",
			     res.removed ? json_null() : oid_json(&res.now), "lost",
			     (json_int_t)res.lost, "moved", res.moved);
	if (!rp->json)
		return err_no_memory(err);
	if (!res.moved)
		return 0;
	r = intent_reset(sd, row.number, branch, &res, rp->json, err);
	if (r >= 0)
		r = mirror_reset_branch(m, branch, &res, err);
	if (r >= 0)
		log_info("reset branch %s of repository %s (%08x)", branch, row.name, row.number);
	return r < 0 ? r : 0;
}
