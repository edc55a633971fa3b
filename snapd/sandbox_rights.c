/* What a sandbox may use: judged when it is attached, at each start and restore, and when somebody
 * may less than before.
 *
 * A workspace is attached by the rights of who did it (attached_row.by), and stays as long as they
 * last: his sight of it, or to change it where the sandbox can. A checkout needs besides that its
 * owner may still use its repository. The image is used by the rights of the sandbox's owner. */
#include "snapd/sandbox_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "fs/base/log.h"
#include "snapd/access.h"
#include "snapd/api.h"
#include "snapd/outcome.h"
#include "snapd/repos.h"

void sandbox_vouch(char by[OWNER_SIZE])
{
	const struct doing *d = doing_now();
	if (d && !d->caller.admin)
		doing_owner(by);
	else
		owner_self(by);
}

void sandbox_key(const struct sandbox_row *row, char out[SANDBOX_KEY_SIZE])
{
	const struct doing *d = doing_now();
	bool own = !d || strcmp(d->caller.owner, row->own.owner) == 0;
	(void)snprintf(out, SANDBOX_KEY_SIZE, "%s%s%s", own ? "" : row->own.owner, own ? "" : "/",
		       row->name);
}

/* ---- may it ---- */

static int judge_repo(struct snapd *sd, const struct ws_row *ws, struct err *err)
{
	auto_repo_row repo = { 0 };
	struct principal who;
	char key[ID_SIZE];
	json_t *git = ws->git ? json_loads(ws->git, 0, NULL) : NULL;
	if (!git)
		return 0;
	repo_lease_id(key, (uint32_t)json_integer_value(json_object_get(git, "repo")));
	json_decref(git);
	int r = catalog_repo_get(sd->catalog, key, &repo, NULL);
	if (r < 0)
		return 0; /* it is gone: what was checked out stays */
	r = auth_of(sd, ws->own.owner, &who, NULL);
	if (r >= 0 && access_sees_repo(&who, &repo))
		return 0;
	return err_set(err, -EPERM, "its repository %s is no longer for %s", repo.name,
		       ws->own.owner);
}

/* Whether who attached it may still do that. */
static int judge_ws(struct snapd *sd, const char *sandbox_owner, const struct attached_row *at,
		    const struct ws_row *ws, struct err *err)
{
	struct principal who;
	const char *by = at->by[0] ? at->by : sandbox_owner;
	bool write = !at->read_only || at->exclusive;
	if (strcmp(ws->own.owner, by) == 0)
		return 0;
	int r = auth_of(sd, by, &who, NULL);
	if (r < 0 || !access_sees(sd, &who, &ws->own, ws->id))
		return err_set(err, -EPERM, "workspace %s is no longer for %s", ws->id, by);
	if (write && !access_writes(sd, &who, &ws->own, ws->id))
		return err_set(err, -EPERM, "%s may read workspace %s, but not change it", by,
			       ws->name);
	return 0;
}

int sandbox_judge_image(struct snapd *sd, const struct sandbox_spec *spec,
			const struct principal *who, struct err *err)
{
	auto_snap_row snap = { 0 };
	if (!spec->snapshot || strcmp(spec->image, "host") == 0)
		return 0; /* everybody's */
	int r = catalog_snap_get(sd->catalog, spec->snapshot, &snap, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	return access_sees(sd, who, &snap.own, snap.workspace)
		       ? 0
		       : err_set(err, -EPERM, "its image %s is no longer for %s", spec->image,
				 who->owner);
}

static int judge_image(struct snapd *sd, const struct sandbox_row *row, struct err *err)
{
	auto_spec spec = { 0 };
	struct principal who;
	const struct doing *d = doing_now();
	int r = spec_read(&spec, row->spec, err);
	if (r < 0)
		return r;
	if (d && sandbox_judge_image(sd, &spec, &d->caller, NULL) >= 0)
		return 0;
	r = auth_of(sd, row->own.owner, &who, err);
	return r < 0 ? err_prefix(err, -EPERM, "its image %s", spec.image)
		     : sandbox_judge_image(sd, &spec, &who, err);
}

static int judge_one(struct snapd *sd, const struct sandbox_row *row, const struct attached_row *at,
		     struct err *err)
{
	auto_ws_row ws = { 0 };
	int r = catalog_ws_get(sd->catalog, at->workspace, &ws, err);
	if (r == -ENOENT)
		r = err_set(err, -ENOENT, "workspace %s is gone", at->workspace);
	if (r >= 0)
		r = judge_ws(sd, row->own.owner, at, &ws, err);
	if (r >= 0)
		r = judge_repo(sd, &ws, err);
	if (r == -ENOENT || r == -EPERM)
		r = err_prefix(err, r, "what is to be at %s", at->target);
	return r;
}

int sandbox_judge(struct snapd *sd, const char *id, const char *target, struct err *err)
{
	auto_sandbox_row row = { 0 };
	struct attached_row *rows = NULL;
	size_t n = 0;
	int r = catalog_sandbox_get(sd->catalog, id, &row, err);
	if (r >= 0 && !target)
		r = judge_image(sd, &row, err);
	if (r >= 0)
		r = catalog_attached(sd->catalog, id, NULL, &rows, &n, err);
	for (size_t i = 0; i < n && r >= 0; i++)
		if (!target || strcmp(rows[i].target, target) == 0)
			r = judge_one(sd, &row, &rows[i], err);
	free(rows);
	return r;
}

/* ---- what it may no longer use ---- */

/* Where nothing else helps the sandbox is stopped. */
static int take_off(struct snapd *sd, const struct attached_row *at, struct err *err)
{
	auto_sandbox_row row = { 0 };
	struct err why = { 0 };
	int r = sandbox_detach(sd, at->sandbox, at->target, true, &why);
	if (r < 0) {
		log_warn("sandbox %s is stopped: %s isn't its any longer: %s", at->sandbox,
			 at->workspace, why.text);
		r = sandbox_stop(sd, at->sandbox, 0, 0, &why);
		if (r >= 0 || r == -ESTALE)
			r = catalog_detach(sd->catalog, at->sandbox, at->target, &why);
	}
	if (catalog_sandbox_get(sd->catalog, at->sandbox, &row, NULL) < 0)
		return 0; /* it is gone meanwhile */
	if (r < 0)
		return err_set(err, r, "sandbox %s still has it at %s: %s", row.name, at->target,
			       why.text);
	outcome_own(sd, "sandbox.detached", &row.own, at->sandbox, at->workspace);
	return 0;
}

/* The first failure is told, and the others are dealt with. */
static int take_off_each(struct snapd *sd, const char *workspace, bool all, struct err *err)
{
	struct attached_row *rows = NULL;
	size_t n = 0;
	int first = catalog_attached(sd->catalog, NULL, workspace, &rows, &n, err);
	for (size_t i = 0; i < n; i++) {
		auto_live *l = live_get(sd, rows[i].sandbox);
		auto_sandbox_row row = { 0 };
		struct err why = { 0 };
		if (!all && !l)
			continue; /* its start judges */
		if (!all && (catalog_sandbox_get(sd->catalog, rows[i].sandbox, &row, NULL) < 0 ||
			     judge_one(sd, &row, &rows[i], NULL) != -EPERM))
			continue;
		int r = take_off(sd, &rows[i], &why);
		if (r < 0 && first >= 0) {
			first = r;
			if (err)
				*err = why;
		}
	}
	free(rows);
	return first;
}

int sandboxes_judge(struct snapd *sd, const char *workspace, struct err *err)
{
	return take_off_each(sd, workspace, false, err);
}

int sandboxes_let_go(struct snapd *sd, const char *workspace, struct err *err)
{
	return take_off_each(sd, workspace, true, err);
}

/* ---- what was made for it ---- */

void sandbox_take_own(struct snapd *sd, const struct sandbox_row *row,
		      const struct attached_row *rows, size_t n, bool purge)
{
	for (size_t i = 0; i < n; i++) {
		auto_source src = { 0 };
		struct attached_row *others = NULL, as_writer = rows[i];
		struct err err = { 0 };
		size_t k = 0;
		if (!rows[i].own)
			continue;
		as_writer.read_only = false;
		int r = source_find_ws(&src, sd, rows[i].workspace, LEASE_EXCLUSIVE, "rm", &err);
		if (r >= 0)
			r = catalog_attached(sd->catalog, NULL, src.ws.id, &others, &k, &err);
		free(others);
		if (r >= 0 && k == 0)
			r = judge_ws(sd, row->own.owner, &as_writer, &src.ws, &err);
		if (r >= 0 && k == 0)
			r = api_ws_remove(sd, &src, purge ? 0 : sd->policy.grace_deleted_s, &err);
		if (r >= 0 && k == 0)
			outcome_also(sd, "workspace.deleted", src.ws.id, "with", row->id);
		if (r < 0 && r != -ENOENT)
			log_warn("workspace %s, made for sandbox %s, stays: %s", rows[i].workspace,
				 row->name, err.text);
	}
}
