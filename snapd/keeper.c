#include "snapd/keeper.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/log.h"
#include "snapd/api.h"
#include "snapd/journal.h"
#include "snapd/outcome.h"
#include "snapd/sandbox.h"
#include "snapd/space.h"
#include "snapd/tidier.h"
#include "snapd/worker.h"

enum {
	TRIM_EVERY = 60,  /* looks */
	AT_ONCE = 64,     /* rows of one look */
	AGAIN_S = 10 * 60 /* after a save that failed: the workspace stays until one goes well */
};

struct keeper {
	struct snapd *sd;
	struct worker *worker;
	unsigned round;
};

/* Those below return 1 when it is done, 0 when it isn't due any longer, or can't be yet. */

/* ---- workspaces ---- */

static int set_expiry(struct snapd *sd, const struct ws_row *ws, int64_t expires_ns,
		      struct err *err)
{
	struct owned own = ws->own;
	own.expires_ns = expires_ns;
	const struct ws_patch p = { .own = &own };
	int r = catalog_ws_patch(sd->catalog, ws->id, &p, err);
	return r < 0 ? r : snapd_record_ws(sd, ws->id, err);
}

/* Read again under a lease, which `kind` says: its owner may have given it more time. 1: its time
 * is up; 0: it isn't. */
static int find_expired(struct source *src, struct snapd *sd, const char *id, enum lease_kind kind,
			struct err *err)
{
	int r = source_find_ws(src, sd, id, kind, "expiry", err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (!src->ws.own.expires_ns || src->ws.own.expires_ns > snapd_now_ns())
		return 0;
	r = api_ws_refuse_used(sd, &src->ws, true, err);
	return r < 0 ? r : 1;
}

static int keep_ws(struct snapd *sd, const char *id, struct err *err)
{
	auto_source src = { 0 };
	int r = find_expired(&src, sd, id, LEASE_SHARED, err);
	if (r <= 0)
		return r;
	r = api_ws_unmount(sd, &src, NULL, err);
	if (r >= 0)
		r = set_expiry(sd, &src.ws, 0, err);
	if (r >= 0)
		outcome_own(sd, "workspace.expired", &src.ws.own, id, id);
	return r < 0 ? r : 1;
}

static int remove_ws(struct snapd *sd, const char *id, struct err *err)
{
	auto_source src = { 0 };
	int r = find_expired(&src, sd, id, LEASE_EXCLUSIVE, err);
	if (r <= 0)
		return r;
	r = api_ws_remove(sd, &src, sd->policy.grace_expired_s, err);
	if (r >= 0)
		outcome_own(sd, "workspace.expired", &src.ws.own, id, id);
	return r < 0 ? r : 1;
}

/* Unmounted first, so that nothing new comes behind the save. */
static int save_ws(struct snapd *sd, const char *id, struct err *err)
{
	auto_source src = { 0 };
	int r = find_expired(&src, sd, id, LEASE_SHARED, err);
	if (r <= 0)
		return r;
	r = api_ws_unmount(sd, &src, NULL, err);
	if (r >= 0)
		r = api_ws_save_now(sd, id, "saved at its expiry", err);
	if (r < 0 && set_expiry(sd, &src.ws, snapd_now_ns() + (int64_t)AGAIN_S * 1000000000, NULL))
		log_warn("workspace %s stays due", id); /* tried again by the next look */
	source_done(&src);
	src = (struct source){ 0 };
	return r < 0 ? r : remove_ws(sd, id, err);
}

static int expire_ws(struct snapd *sd, const struct expired *e, struct err *err)
{
	switch (e->on_expiry) {
	case EXPIRY_DELETE:
		return remove_ws(sd, e->id, err);
	case EXPIRY_SAVE:
		return save_ws(sd, e->id, err);
	case EXPIRY_KEEP:
		break;
	}
	return keep_ws(sd, e->id, err);
}

/* ---- sandboxes ---- */

static int remove_sandbox(struct snapd *sd, const struct sandbox_row *row, enum on_expiry then,
			  struct err *err)
{
	json_t *saved = NULL;
	auto_spec spec = { 0 };
	int r = 0;
	/* Who had it removed at its end meant all that was made for it. */
	bool own = spec_read(&spec, row->spec, NULL) >= 0 && spec.auto_remove;
	if (then == EXPIRY_SAVE)
		r = sandbox_save(sd, row->id, NULL, "saved at its expiry", NULL, &saved, err);
	json_decref(saved);
	return r < 0 ? r
		     : sandbox_remove(sd, row->id, SANDBOX_FORCE | (own ? SANDBOX_OWN : 0), err);
}

static int keep_sandbox(struct snapd *sd, struct sandbox_row *row, struct err *err)
{
	struct owned own = row->own;
	const struct sandbox_patch p = { .own = &own };
	int r = sandbox_stop(sd, row->id, SANDBOX_GRACE_MS, 0, err);
	own.expires_ns = 0;
	return r < 0 && r != -ESTALE ? r : catalog_sandbox_patch(sd->catalog, row->id, &p, err);
}

static int expire_sandbox(struct snapd *sd, const struct expired *e, struct err *err)
{
	auto_lease lease = { 0 };
	auto_sandbox_row row = { 0 };
	int r = lease_take(&lease, sd->leases, e->id, LEASE_EXCLUSIVE, "expiry", 0, err);
	if (r >= 0)
		r = catalog_sandbox_get(sd->catalog, e->id, &row, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (!row.own.expires_ns || row.own.expires_ns > snapd_now_ns())
		return 0;
	r = e->on_expiry == EXPIRY_KEEP ? keep_sandbox(sd, &row, err)
					: remove_sandbox(sd, &row, e->on_expiry, err);
	if (r < 0 && e->on_expiry == EXPIRY_SAVE) { /* it stays until a save goes well */
		struct owned own = row.own;
		const struct sandbox_patch p = { .own = &own };
		own.expires_ns = snapd_now_ns() + (int64_t)AGAIN_S * 1000000000;
		(void)catalog_sandbox_patch(sd->catalog, row.id, &p, NULL);
	}
	if (r >= 0)
		outcome_own(sd, "sandbox.expired", &row.own, e->id, "");
	return r < 0 ? r : 1;
}

/* ---- snapshots ---- */

/* One that something was made from stays until that is gone. */
static int expire_snap(struct snapd *sd, const struct expired *e, struct err *err)
{
	auto_source src = { 0 };
	int r = source_find_snap(&src, sd, e->id, LEASE_EXCLUSIVE, "expiry", err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (!src.snap.own.expires_ns || src.snap.own.expires_ns > snapd_now_ns())
		return 0;
	r = api_snap_remove(sd, &src, false, src.snap.own.owner, err);
	if (r >= 0)
		outcome_own(sd, "snapshot.expired", &src.snap.own, e->id, src.snap.workspace);
	return r == -ENOTUNIQ ? 0 : r < 0 ? r : 1;
}

/* ---- what can't be brought back any longer ---- */

static int purge_ws(struct snapd *sd, const struct expired *e, int64_t now_ns, struct err *err)
{
	struct owned own = { 0 };
	auto_ws_row row = { 0 };
	if (catalog_ws_get_any(sd->catalog, e->id, &row, NULL) >= 0)
		own = row.own;
	int r = api_ws_purge(sd, e->id, now_ns, err);
	if (r > 0)
		outcome_own(sd, "workspace.purged", &own, e->id, e->id);
	return r;
}

/* ---- the thread ---- */

/* True when it is no longer due. */
static bool expire(struct snapd *sd, enum noun what, const struct expired *e, int64_t now_ns)
{
	struct err why = { 0 };
	int r = what == NOUN_SNAPSHOT  ? expire_snap(sd, e, &why)
		: what == NOUN_REMOVED ? purge_ws(sd, e, now_ns, &why)
		: what == NOUN_SANDBOX ? expire_sandbox(sd, e, &why)
				       : expire_ws(sd, e, &why);
	if (r == -EBUSY)
		log_debug("%s: %s", e->id, why.text); /* again in ten seconds */
	else if (r < 0)
		log_error("expiry of %s: %s", e->id, why.text);
	return r > 0;
}

/* `always`: whatever there is, in the order in which it would be due, while the disk is nearly
 * full. */
static void look(struct keeper *k, enum noun what, bool always)
{
	struct snapd *sd = k->sd;
	struct expired due[AT_ONCE];
	int64_t now = always ? INT64_MAX : snapd_now_ns();
	size_t n, skip = 0;
	bool on = true;
	do {
		struct err err = { 0 };
		if (catalog_expired(sd->catalog, what, now, skip, due, AT_ONCE, &n, &err) < 0 &&
		    err.code != -EUCLEAN)
			log_error("%s", err.text);
		for (size_t i = 0; i < n && on; i++) {
			skip += !expire(sd, what, &due[i], now);
			on = !worker_stopping(k->worker) && (!always || space_low(sd));
		}
	} while (n == AT_ONCE && on);
}

static void run(void *ctx, bool is_due)
{
	struct keeper *k = ctx;
	struct err err = { 0 };
	look(k, NOUN_SANDBOX, false);
	look(k, NOUN_WORKSPACE, false);
	look(k, NOUN_SNAPSHOT, false);
	look(k, NOUN_REMOVED, false);
	api_tus_sweep(k->sd, NULL);
	if (space_low(k->sd)) {
		look(k, NOUN_REMOVED, true);
		tidier_hurry(k->sd->tidier);
	}
	if (k->round++ % TRIM_EVERY == 0 &&
	    catalog_journal_trim(k->sd->catalog, snapd_now_ns(), &err) < 0 && err.code != -EUCLEAN)
		log_warn("%s", err.text); /* it only takes space */
}

int keeper_start(struct keeper **out, struct snapd *sd, struct err *err)
{
	struct keeper *k = calloc(1, sizeof(*k));
	if (!k)
		return err_no_memory(err);
	const struct worker_options opt = { .what = "the keeper",
					    .every_ms = (int64_t)sd->policy.look_every_s * 1000,
					    .run = run,
					    .ctx = k };
	k->sd = sd;
	int r = worker_start(&k->worker, &opt, err);
	if (r < 0) {
		free(k);
		return r;
	}
	*out = k;
	return 0;
}

void keeper_stop(struct keeper *k)
{
	if (!k)
		return;
	worker_stop(k->worker);
	free(k);
}
