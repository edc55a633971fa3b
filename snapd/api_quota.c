/* What owners may have, and what they have. */
#include <stdlib.h>
#include <string.h>

#include "snapd/access.h"
#include "snapd/limits.h"
#include "snapd/quota.h"

static json_t *limit(int64_t n)
{
	return n == QUOTA_NONE ? json_null() : json_integer(n);
}

static json_t *quota_json(const struct quota *q)
{
	return json_pack("{s:s, s:o, s:o, s:o}", "owner", q->owner, "workspaces",
			 limit(q->workspaces), "snapshots", limit(q->snapshots), "bytes",
			 limit(q->bytes));
}

int api_quota_list(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct quota *rows;
	struct page page;
	size_t n;
	int bad = 0, r = page_begin_names(&page, rq, err);
	if (r >= 0)
		r = catalog_quota_list(sd->catalog, &rows, &n, err);
	if (r < 0)
		return r;
	json_t *items = json_array();
	for (size_t i = 0; i < n; i++)
		if (page_takes_name(&page, rows[i].owner))
			bad |= json_array_append_new(items, quota_json(&rows[i]));
	free(rows);
	rp->json = page_end(&page, items);
	return rp->json && !bad ? 0 : err_no_memory(err);
}

static int reply_quota(struct snapd *sd, struct reply *rp, const char *owner, struct err *err)
{
	struct quota q;
	int r = catalog_quota_get(sd->catalog, owner, &q, err);
	rp->json = r < 0 ? NULL : quota_json(&q);
	return r < 0 ? r : rp->json ? 0 : err_no_memory(err);
}

int api_quota_get(struct request *rq, struct reply *rp, struct err *err)
{
	char owner[OWNER_SIZE];
	int r = auth_owner(rq->ctx, rq->params[0], owner, err);
	return r < 0 ? r : reply_quota(rq->ctx, rp, owner, err);
}

static int take(struct request *rq, const char *key, int64_t *to, struct err *err)
{
	uint64_t n = request_number(rq, key, UINT64_MAX);
	*to = n == UINT64_MAX ? QUOTA_NONE : (int64_t)n;
	return n == UINT64_MAX || n <= INT64_MAX
		       ? 0
		       : request_bad_field(rq, key, err, "it is too large");
}

int api_quota_set(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct quota q = { 0 };
	int r = auth_owner(sd, rq->params[0], q.owner, err);
	if (r >= 0)
		r = take(rq, "workspaces", &q.workspaces, err);
	if (r >= 0)
		r = take(rq, "snapshots", &q.snapshots, err);
	if (r >= 0)
		r = take(rq, "bytes", &q.bytes, err);
	if (r >= 0)
		r = catalog_quota_set(sd->catalog, &q, err);
	if (r >= 0)
		r = catalog_sync(sd->catalog, err);
	return r < 0 ? r : reply_quota(sd, rp, q.owner, err);
}

int api_quota_delete(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	char owner[OWNER_SIZE];
	int r = auth_owner(sd, rq->params[0], owner, err);
	if (r >= 0)
		r = catalog_quota_delete(sd->catalog, owner, err);
	if (r >= 0)
		r = catalog_sync(sd->catalog, err);
	rp->status = 204;
	return r;
}

json_t *api_owners_usage(struct snapd *sd, const char *owner, struct err *err)
{
	struct holding *rows;
	size_t n;
	int bad = 0;
	if (catalog_holdings(sd->catalog, owner, &rows, &n, err) < 0)
		return NULL;
	json_t *list = json_array();
	for (size_t i = 0; i < n && !bad; i++) {
		struct quota q;
		uint64_t bytes = 0;
		bad = catalog_quota_get(sd->catalog, rows[i].owner, &q, err) < 0 ||
		      limits_bytes(sd, rows[i].owner, &bytes, err) < 0 ||
		      json_array_append_new(
			      list, json_pack("{s:s, s:I, s:I, s:I, s:o}", "owner", rows[i].owner,
					      "workspaces", (json_int_t)rows[i].workspaces,
					      "snapshots", (json_int_t)rows[i].snapshots, "bytes",
					      (json_int_t)bytes, "quota", quota_json(&q))) < 0;
	}
	free(rows);
	if (!bad)
		return list;
	json_decref(list);
	return NULL;
}
