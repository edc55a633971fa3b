/* Making sandboxes: a row, a root, what is attached. */
#include "snapd/sandbox_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "fs/base/log.h"
#include "fs/work/save.h"
#include "snapd/api.h"

struct origin {
	struct snapd *sd;
	struct source snap;
};

static int origin_stack(void *ctx, const char *path, struct stack *out, char **git, struct err *err)
{
	struct origin *o = ctx;
	return source_stack(o->sd, &o->snap, out, err);
}

/* A fork of the image's snapshot, which is the sandbox's alone. */
static int make_root(struct snapd *sd, const struct sandbox_row *row, const struct sandbox_new *n,
		     char out[ID_SIZE], struct err *err)
{
	auto_ws_row ws = { 0 };
	struct origin o = { .sd = sd };
	struct ws_plan plan = { .mount = true, .xattrs = true, .stack = origin_stack, .ctx = &o };
	int r = source_find_snap(&o.snap, sd, n->spec.snapshot, LEASE_SHARED, "create", err);
	if (r < 0)
		return r;
	plan.name = strdup(row->id);
	plan.like.labels = strdup("");
	plan.like.own.visibility = row->own.visibility;
	memcpy(plan.like.own.team, row->own.team, sizeof(plan.like.own.team));
	plan.like.quota_bytes = n->spec.disk;
	plan.like.quota_inodes = n->spec.inodes;
	memcpy(plan.like.base, o.snap.snap.id, ID_SIZE);
	memcpy(plan.like.head, o.snap.snap.id, ID_SIZE);
	memcpy(plan.like.sandbox, row->id, ID_SIZE);
	r = plan.name && plan.like.labels ? api_ws_make(&ws, sd, &plan, err) : err_no_memory(err);
	if (r >= 0)
		memcpy(out, ws.id, ID_SIZE);
	ws_plan_done(&plan);
	source_done(&o.snap);
	return r;
}

static int fill(struct snapd *sd, struct sandbox_row *row, const struct sandbox_new *n,
		struct err *err)
{
	static const bool made = true;
	int r = sandbox_process_write(sd, row->id, n->process, err);
	for (size_t i = 0; i < n->n_attached && r >= 0; i++) {
		struct attached_row at = n->attached[i];
		memcpy(at.sandbox, row->id, sizeof(at.sandbox));
		r = catalog_attach(sd->catalog, &at, err);
	}
	if (r >= 0 && !row->root[0])
		r = make_root(sd, row, n, row->root, err);
	const struct sandbox_patch p = { .root = row->root, .made = &made };
	return r < 0 ? r : catalog_sandbox_patch(sd->catalog, row->id, &p, err);
}

int sandbox_make(struct snapd *sd, const struct sandbox_new *n, struct sandbox_row *out,
		 struct err *err)
{
	auto_sandbox_row row = { .exit_code = -1, .own = n->own, .starting = n->start };
	auto_lease lease = { 0 };
	id_make(row.id, "sb");
	(void)snprintf(row.name, sizeof(row.name), "%s", n->name);
	doing_owner(row.own.owner);
	row.created_ns = row.active_ns = snapd_now_ns();
	row.spec = spec_text(&n->spec);
	row.labels = n->labels && *n->labels ? strdup(n->labels) : NULL;
	row.description = n->description ? strdup(n->description) : NULL;
	if (!row.spec || (n->labels && *n->labels && !row.labels) ||
	    (n->description && !row.description))
		return err_no_memory(err);
	int r = lease_take(&lease, sd->leases, row.id, LEASE_EXCLUSIVE, "create", 0, err);
	if (r >= 0)
		r = catalog_sandbox_insert(sd->catalog, &row, err);
	if (r < 0)
		return r;
	r = fill(sd, &row, n, err);
	if (r < 0) {
		struct err why = { 0 };
		if (row.root[0]) { /* so that it is found to be removed */
			const struct sandbox_patch p = { .root = row.root };
			(void)catalog_sandbox_patch(sd->catalog, row.id, &p, NULL);
		}
		if (sandbox_remove(sd, row.id, SANDBOX_FORCE, &why) < 0)
			log_error("sandbox %s: %s", row.id, why.text);
		return snapd_inner(r) == r ? r : err_prefix(err, r, "%s", n->name);
	}
	row.made = true;
	*out = row;
	row = (struct sandbox_row){ 0 };
	return 0;
}
