/* Workspaces of sandboxes: attached and detached. */
#include "snapd/sandbox_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "runtime/spec.h"
#include "snapd/api.h"
#include "snapd/outcome.h"

int sandbox_of_workspace(struct snapd *sd, const struct ws_row *ws, bool running_only,
			 char key[SANDBOX_KEY_SIZE], struct err *err)
{
	struct attached_row *rows = NULL;
	size_t n = 0;
	auto_sandbox_row sb = { 0 };
	int found = 0;
	if (ws->sandbox[0]) {
		int r = catalog_sandbox_get(sd->catalog, ws->sandbox, &sb, NULL);
		sandbox_key(&sb, key);
		auto_live *l = live_get(sd, ws->sandbox);
		return r >= 0 && (!running_only || l);
	}
	int r = catalog_attached(sd->catalog, NULL, ws->id, &rows, &n, err);
	for (size_t i = 0; i < n && r >= 0 && !found; i++) {
		auto_live *l = live_get(sd, rows[i].sandbox);
		if (running_only && !l)
			continue;
		if (catalog_sandbox_get(sd->catalog, rows[i].sandbox, &sb, NULL) < 0)
			continue;
		sandbox_key(&sb, key);
		found = 1;
	}
	free(rows);
	return r < 0 ? r : found;
}

static int check_seen_by(struct snapd *sd, const char *id, struct err *err)
{
	char key[SANDBOX_KEY_SIZE];
	auto_sandbox_row row = { 0 };
	auto_spec spec = { 0 };
	auto_live *l = live_get(sd, id);
	int r = l ? catalog_sandbox_get(sd->catalog, id, &row, err) : -ENOENT;
	if (r == -ENOENT)
		return 0;
	if (r >= 0)
		r = spec_read(&spec, row.spec, err);
	const struct runtime_kind *kind = r >= 0 ? runtime_find(spec.runtime) : NULL;
	if (!kind || kind->sees_restores)
		return r < 0 ? r : kind && spec_own_kernel(kind);
	sandbox_key(&row, key);
	return err_set(err, -EBUSY, "sandbox %s runs by %s, which doesn't see it: stop that first",
		       key, kind->name);
}

int sandbox_check_seen(struct snapd *sd, const char *workspace, const char *but, struct err *err)
{
	struct attached_row *rows = NULL;
	auto_ws_row ws = { 0 };
	size_t n = 0;
	bool by_number = false;
	int r = catalog_ws_get_any(sd->catalog, workspace, &ws, err);
	if (r >= 0)
		r = catalog_attached(sd->catalog, NULL, workspace, &rows, &n, err);
	if (r >= 0 && ws.sandbox[0] && (!but || strcmp(ws.sandbox, but) != 0))
		r = check_seen_by(sd, ws.sandbox, err);
	by_number = r > 0;
	for (size_t i = 0; i < n && r >= 0; i++) {
		if (!but || strcmp(rows[i].sandbox, but) != 0)
			r = check_seen_by(sd, rows[i].sandbox, err);
		by_number = by_number || r > 0;
	}
	free(rows);
	return r < 0 ? r : by_number;
}

static int check_kind(const struct sandbox_box *b, const struct live *l, struct err *err)
{
	return !l || b->config.kind->mounts_later
		       ? 0
		       : err_set(err, -EBUSY,
				 "what runs by %s gets no other mounts: stop the sandbox first",
				 b->config.kind->name);
}

int sandbox_attach(struct snapd *sd, const char *id, const struct attached_row *row,
		   struct err *err)
{
	auto_box *b = NULL;
	char source[PATH_SIZE];
	auto_live *l = live_get(sd, id);
	int r = sandbox_box_get(&b, sd, id, err);
	if (r >= 0)
		r = check_kind(b, l, err);
	if (r >= 0 && b->n_attached >= BOX_MOUNTS)
		r = err_set(err, -EBUSY, "%d workspaces are attached already", BOX_MOUNTS);
	if (r >= 0)
		r = catalog_attach(sd->catalog, row, err);
	if (r >= 0)
		outcome_also(sd, "workspace.attached", row->workspace, "to", id);
	if (r < 0 || !l)
		return r;
	snapd_mount_path(sd, row->workspace, source);
	const struct box_mount m = { .source = source,
				     .target = row->target,
				     .read_only = row->read_only };
	r = box_attach(&b->config, b->row.pid, &m, err);
	if (r < 0) {
		(void)catalog_detach(sd->catalog, id, row->target, NULL); /* as before */
		return r;
	}
	/* Who took the right away meanwhile may have been too early to find it attached. */
	r = sandbox_judge(sd, id, row->target, err);
	if (r < 0 && sandbox_detach(sd, id, row->target, true, NULL) < 0)
		(void)sandbox_stop(sd, id, 0, 0, NULL);
	return r;
}

int sandbox_detach(struct snapd *sd, const char *id, const char *target, bool force,
		   struct err *err)
{
	auto_box *b = NULL;
	auto_live *l = live_get(sd, id);
	int r = sandbox_box_get(&b, sd, id, err);
	if (r >= 0)
		r = check_kind(b, l, err);
	if (r >= 0 && l)
		r = box_detach(&b->config, b->row.pid, target, force, err);
	if (r == -EBUSY && l && spec_own_kernel(b->config.kind) &&
	    b->row.status == SANDBOX_RUNNING && shim_let_go(l->shim, NULL) >= 0)
		r = box_detach(&b->config, b->row.pid, target, force, err);
	if (r == -ENOENT || r == -ESRCH) /* it is off already, or all has ended */
		r = 0;
	if (r >= 0)
		r = catalog_detach(sd->catalog, id, target, err);
	for (size_t i = 0; r >= 0 && i < b->n_attached; i++)
		if (strcmp(b->attached[i].target, target) == 0)
			outcome_also(sd, "workspace.detached", b->attached[i].workspace, "from",
				     id);
	return r;
}
