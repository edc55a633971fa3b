#include "snapd/limits.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/clock.h"
#include "snapd/access.h"
#include "snapd/exports.h"
#include "snapd/quota.h"
#include "snapd/sandbox.h"
#include "snapd/space.h"

enum {
	KNOWN = 16,      /* owners whose bytes are remembered */
	KNOWN_MS = 1000, /* for so long: an owner may go over by what is written meanwhile */
	LOOK_BYTES = 16 << 20, /* or by so many of a body without a length */
};

struct limits {
	pthread_mutex_t lock;
	struct {
		char owner[OWNER_SIZE];
		uint64_t bytes, when_ms;
	} known[KNOWN];
};

struct limits *limits_new(void)
{
	struct limits *l = calloc(1, sizeof(*l));
	if (l)
		pthread_mutex_init(&l->lock, NULL);
	return l;
}

void limits_free(struct limits *l)
{
	if (!l)
		return;
	pthread_mutex_destroy(&l->lock);
	free(l);
}

/* What is made there; names, modes and URLs take none. */
static bool op_needs_room(const struct request *rq, const struct route *rt)
{
	static const char *const ops[] = { "mkdir", "copy", "symlink" };
	const char *op = request_query(rq, "op");
	bool needs = false;
	for (size_t i = 0; op && i < sizeof(ops) / sizeof(ops[0]); i++)
		needs |= strcmp(op, ops[i]) == 0;
	return needs && strstr(rt->path, "/files/{...}");
}

bool limits_needs_room(const struct request *rq, const struct route *rt)
{
	/* Those whose body is a stream, too. What is named here is small at first, but grows. */
	static const char *const posts[] = {
		"/v1/workspaces",
		"/v1/workspaces/{}/fork",
		"/v1/workspaces/{}/snapshots",
		"/v1/workspaces/{}/merge",
		"/v1/workspaces/{}/restore",
		"/v1/workspaces/{}/commit",
		"/v1/workspaces/{}/uploads",
		"/v1/snapshots/{}/commit",
		"/v1/repos",
		"/v1/repos/{}/fetch",
		"/v1/exports",
		"/v1/sandboxes",
		"/v1/sandboxes/{}/fork",
		"/v1/sandboxes/{}/uploads",
		"/v1/sandboxes/{}/snapshots",
		"/v1/sandboxes/{}/restore",
	};
	if (access_only_reads(rt))
		return false;
	if (rt->upload) /* what programs are told is no file */
		return strcmp(rt->path, "/v1/sandboxes/{}/exec/{}/stdin") != 0;
	if (strcmp(rt->method, "POST") != 0)
		return false;
	if (op_needs_room(rq, rt))
		return true;
	for (size_t i = 0; i < sizeof(posts) / sizeof(posts[0]); i++)
		if (strcmp(rt->path, posts[i]) == 0)
			return true;
	return false;
}

/* ---- bytes ---- */

static int written_bytes(struct snapd *sd, const char *owner, uint64_t *sum, struct err *err)
{
	struct ws_row *rows;
	size_t n;
	int r = catalog_ws_list(sd->catalog, WS_ALL, &rows, &n, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		struct fs_usage u;
		/* One that can't be opened holds nothing that could be told. */
		if (strcmp(rows[i].own.owner, owner) != 0 || rows[i].broken[0] ||
		    fs_usage(sd->fs, rows[i].id, &u, NULL) < 0)
			continue;
		*sum += u.bytes > 0 ? (uint64_t)u.bytes : 0;
		if (rows[i].removed_ns)
			(void)fs_close(sd->fs, rows[i].id, NULL); /* it was opened for this */
	}
	ws_rows_free(rows, n);
	return 0;
}

static int output_bytes(struct snapd *sd, const char *owner, uint64_t *sum, struct err *err)
{
	struct sandbox_row *rows;
	size_t n;
	char io[PATH_SIZE];
	int r = catalog_sandbox_list(sd->catalog, &rows, &n, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n && r >= 0; i++) {
		uint64_t bytes = 0;
		if (strcmp(rows[i].own.owner, owner) != 0)
			continue;
		sandbox_io_path(sd, rows[i].id, io);
		r = output_disk(io, &bytes, err);
		*sum += bytes;
	}
	sandbox_rows_free(rows, n);
	return r;
}

int limits_bytes(struct snapd *sd, const char *owner, uint64_t *out, struct err *err)
{
	struct holding h;
	int r = catalog_holding(sd->catalog, owner, &h, err);
	uint64_t sum = r < 0 ? 0 : h.stored_bytes, exported = 0;
	if (r >= 0)
		r = written_bytes(sd, owner, &sum, err);
	if (r >= 0)
		r = output_bytes(sd, owner, &sum, err);
	if (r >= 0)
		r = exports_bytes(sd, owner, &exported, err);
	if (r >= 0)
		*out = sum + exported;
	return r;
}

/* Whether `more` bytes fit beside what the owner has, as `bytes_of` tells it. */
static int check_bytes(struct snapd *sd, const struct quota *q, uint64_t more,
		       int (*bytes_of)(struct snapd *sd, const char *owner, uint64_t *out,
				       struct err *err),
		       struct err *err)
{
	uint64_t have = 0, most = (uint64_t)q->bytes;
	int r = q->bytes == QUOTA_NONE ? 0 : bytes_of(sd, q->owner, &have, err);
	if (r < 0 || q->bytes == QUOTA_NONE || (have <= most && more <= most - have))
		return r;
	return err_set(err, -EDQUOT,
		       "%s has %llu MiB of the %llu that are allowed; what is deleted for good "
		       "makes room",
		       q->owner, (unsigned long long)(have >> 20),
		       (unsigned long long)(most >> 20));
}

int limits_room(struct snapd *sd, const char *owner, uint64_t more, struct err *err)
{
	struct quota q;
	int r = space_need(sd, err);
	if (r >= 0)
		r = catalog_quota_get(sd->catalog, owner, &q, err);
	return r < 0 ? r : check_bytes(sd, &q, more, limits_bytes, err);
}

int limits_stream(struct snapd *sd, const char *owner, uint64_t before, uint64_t now,
		  struct err *err)
{
	return before / LOOK_BYTES == now / LOOK_BYTES ? 0 : limits_room(sd, owner, 0, err);
}

static int recent_bytes(struct snapd *sd, const char *owner, uint64_t *out, struct err *err)
{
	struct limits *l = sd->limits;
	uint64_t now = clock_ms();
	size_t oldest = 0;
	pthread_mutex_lock(&l->lock);
	for (size_t i = 0; i < KNOWN; i++) {
		if (strcmp(l->known[i].owner, owner) == 0 && now - l->known[i].when_ms < KNOWN_MS) {
			*out = l->known[i].bytes;
			pthread_mutex_unlock(&l->lock);
			return 0;
		}
		if (l->known[i].when_ms < l->known[oldest].when_ms)
			oldest = i;
	}
	pthread_mutex_unlock(&l->lock);
	int r = limits_bytes(sd, owner, out, err);
	if (r < 0)
		return r;
	pthread_mutex_lock(&l->lock);
	memcpy(l->known[oldest].owner, owner, strlen(owner) + 1);
	l->known[oldest].bytes = *out;
	l->known[oldest].when_ms = now;
	pthread_mutex_unlock(&l->lock);
	return 0;
}

/* ---- quotas ---- */

/* Of a sandbox it is the root. */
static bool makes_workspaces(const struct route *rt)
{
	static const char *const posts[] = { "/v1/workspaces", "/v1/workspaces/import",
					     "/v1/workspaces/{}/fork", "/v1/sandboxes",
					     "/v1/sandboxes/{}/fork" };
	bool makes = false;
	for (size_t i = 0; i < sizeof(posts) / sizeof(posts[0]); i++)
		makes |= strcmp(rt->path, posts[i]) == 0;
	return makes && strcmp(rt->method, "POST") == 0;
}

/* Who pays: whoever makes something; else whose it is that is written to. */
static const char *payer(const struct request *rq, const struct route *rt)
{
	const struct doing *d = doing_now();
	return d && d->own.owner[0] && !makes_workspaces(rt) ? d->own.owner : rq->caller->owner;
}

static int check_workspaces(struct snapd *sd, const struct quota *q, struct err *err)
{
	struct holding h = { 0 };
	int r = q->workspaces == QUOTA_NONE ? 0 : catalog_holding(sd->catalog, q->owner, &h, err);
	if (r < 0 || q->workspaces == QUOTA_NONE || h.workspaces < (uint64_t)q->workspaces)
		return r;
	return err_set(err, -EDQUOT, "%s may have %lld workspaces; `bough rm` makes room", q->owner,
		       (long long)q->workspaces);
}

static int check_quota(struct snapd *sd, const struct request *rq, const struct route *rt,
		       struct err *err)
{
	uint64_t more = request_length(rq);
	struct quota q;
	if (more == 0 || more == UINT64_MAX)
		more = 1; /* something will be there; what comes is counted by limits_stream */
	int r = catalog_quota_get(sd->catalog, payer(rq, rt), &q, err);
	if (r >= 0 && makes_workspaces(rt))
		r = check_workspaces(sd, &q, err);
	return r < 0 ? r : check_bytes(sd, &q, more, recent_bytes, err);
}

int limits_snapshot(struct snapd *sd, const char *owner, struct err *err)
{
	struct quota q;
	struct holding h = { 0 };
	int r = catalog_quota_get(sd->catalog, owner, &q, err);
	if (r < 0 || q.snapshots == QUOTA_NONE || !doing_now())
		return r;
	r = catalog_holding(sd->catalog, owner, &h, err);
	if (r >= 0 && h.snapshots >= (uint64_t)q.snapshots)
		r = err_set(err, -EDQUOT,
			    "%s may have %lld snapshots; `bough snapshots rm` makes room", owner,
			    (long long)q.snapshots);
	return r;
}

int limits_admit(const struct request *rq, const struct route *rt, struct err *err)
{
	if (!limits_needs_room(rq, rt))
		return 0;
	int r = space_need(rq->ctx, err);
	return r < 0 ? r : check_quota(rq->ctx, rq, rt, err);
}
