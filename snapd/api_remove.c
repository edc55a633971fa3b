/* Workspaces: removing them, bringing them back.
 *
 * One that is removed is unmounted and soon closed, whoever is in it, and then only a row and a
 * folder: its name is free, nothing finds it but undelete, gc and fsck. When its time is over it is
 * purged. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/log.h"
#include "snapd/access.h"
#include "snapd/api.h"
#include "snapd/flattener.h"
#include "snapd/inuse.h"
#include "snapd/sandbox.h"
#include "snapd/space.h"
#include "snapd/watch.h"

void api_remove_mount_point(const char *path)
{
	struct statx st;
	/* bough-fs has removed it in general. Another try waits for who makes and removes others,
	 * which a look doesn't, nor for the server of a mount that is still there. */
	if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC, 0, &st) < 0 &&
	    errno == ENOENT)
		return;
	if (rmdir(path) < 0 && errno != ENOENT)
		log_warn("remove %s: %s", path, strerrordesc_np(errno));
}

static void forget_mount(struct snapd *sd, const char *id)
{
	char path[PATH_SIZE];
	snapd_mount_path(sd, id, path);
	api_remove_mount_point(path);
	problems_set(sd->problems, id, NULL);
	problems_set(sd->faults, id, NULL);
	problems_set(sd->damage, id, NULL);
	watches_ring(sd->watches, id);
	layercache_trim(sd->layers, 60000); /* its layers, whose files may be gone */
}

static int purge(struct snapd *sd, const char *id, struct err *err)
{
	/* Without meta.json and row nobody takes the folder for a workspace any more; what
	 * bough-fs doesn't get to delete now, the next start does. */
	int r = records_ws_remove(sd->records, id, err);
	if (r >= 0)
		r = catalog_ws_delete(sd->catalog, id, err);
	if (r >= 0)
		r = catalog_sync(sd->catalog, err);
	if (r < 0)
		return r;
	struct err left = { 0 };
	api_tus_sweep(sd, id);
	if (fs_delete(sd->fs, id, &left) < 0)
		log_warn("left for the next start to remove: %s: %s", id, left.text);
	forget_mount(sd, id);
	return 0;
}

int api_ws_remove(struct snapd *sd, struct source *src, uint32_t grace_s, struct err *err)
{
	const char *id = src->ws.id;
	int64_t now = snapd_now_ns();
	if (!grace_s || src->ws.broken[0] || space_low(sd))
		return purge(sd, id, err);
	int r = catalog_ws_remove(sd->catalog, id, now, now + (int64_t)grace_s * 1000000000, err);
	if (r >= 0)
		r = catalog_sync(sd->catalog, err);
	if (r >= 0)
		r = snapd_record_ws(sd, id, err);
	if (r < 0)
		return r;
	struct err left = { 0 };
	if (fs_end(sd->fs, id, &left) < 0) /* a bough-fs that dies has unmounted it, too */
		log_warn("unmount %s: %s", id, left.text);
	forget_mount(sd, id);
	flattener_consider(sd->flattener, id); /* closed soon: nobody waits for its syncs */
	return 0;
}

int api_ws_purge(struct snapd *sd, const char *id, int64_t now_ns, struct err *err)
{
	auto_lease lease = { 0 };
	auto_ws_row row = { 0 };
	int r = lease_take(&lease, sd->leases, id, LEASE_EXCLUSIVE, "purge", 0, err);
	if (r >= 0)
		r = catalog_ws_get_any(sd->catalog, id, &row, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (!row.removed_ns || row.purge_ns > now_ns)
		return 0; /* it was brought back */
	r = purge(sd, id, err);
	return r < 0 ? r : 1;
}

/* Its owner may, and who may change each of the sandboxes. */
static int take_from_all(struct request *rq, const struct ws_row *ws, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct attached_row *rows = NULL;
	size_t n = 0;
	bool owns = principal_owns(rq->caller, ws->own.owner);
	int r = owns ? 0 : catalog_attached(sd->catalog, NULL, ws->id, &rows, &n, err);
	for (size_t i = 0; i < n && r >= 0; i++) {
		auto_sandbox_row sb = { 0 };
		char key[SANDBOX_KEY_SIZE];
		if (catalog_sandbox_get(sd->catalog, rows[i].sandbox, &sb, NULL) < 0 ||
		    access_writes(sd, rq->caller, &sb.own, ""))
			continue;
		sandbox_key(&sb, key);
		r = err_set(err, -EPERM, "only its owner may take it from sandbox %s", key);
	}
	free(rows);
	return r < 0 ? r : sandboxes_let_go(sd, ws->id, err);
}

/* What a member of its team deletes can be brought back. */
static int may_purge(const struct request *rq, struct err *err)
{
	const struct doing *d = doing_now();
	if (!d || principal_owns(rq->caller, d->own.owner))
		return 0;
	return err_set(err, -EPERM, "only its owner deletes it for good: without that it can be "
				    "brought back");
}

static int refuse_used(struct request *rq, const struct ws_row *ws, struct err *err)
{
	int r = api_ws_refuse_used(rq->ctx, ws, false, err);
	return r < 0 ? r : inuse_refuse(rq, ws, err);
}

int api_ws_delete(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_source src = { 0 };
	bool now = request_query_true(rq, "purge");
	int r = now ? may_purge(rq, err) : 0;
	if (r < 0)
		return r;
	r = source_find_ws(&src, sd, rq->params[0], LEASE_EXCLUSIVE, "rm", err);
	if (r >= 0 && (src.ws.sandbox[0] || !request_query_true(rq, "force")))
		r = refuse_used(rq, &src.ws, err);
	else if (r >= 0)
		r = take_from_all(rq, &src.ws, err);
	if (r >= 0)
		r = api_ws_remove(sd, &src, now ? 0 : sd->policy.grace_deleted_s, err);
	if (r == -ENOENT && now && id_is(rq->params[0], "ws"))
		r = api_ws_purge(sd, rq->params[0], INT64_MAX, err);
	rp->status = 204;
	return r < 0 ? r : 0;
}

/* ---- back again ---- */

/* What can't be mounted is there all the same, and says why. */
static void mount_again(struct snapd *sd, const struct ws_row *row)
{
	char path[PATH_SIZE];
	struct err why = { 0 };
	snapd_mount_path(sd, row->id, path);
	if (row->mount && fs_mount(sd->fs, row->id, path, &why) < 0)
		problems_set(sd->problems, row->id, why.text);
}

static int undelete(struct request *rq, const char *id, const char *name, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_lease lease = { 0 };
	auto_ws_row row = { 0 };
	struct err why = { 0 };
	int r = lease_take(&lease, sd->leases, id, LEASE_EXCLUSIVE, "undelete", LEASE_WAIT_MS, err);
	if (r >= 0)
		r = catalog_ws_get_any(sd->catalog, id, &row, err);
	if (r >= 0 && !row.removed_ns) /* found for a key that isn't known any more */
		r = err_set(err, -ENOENT, "no workspace \"%s\" that could be brought back",
			    row.name);
	if (r < 0)
		return r;
	if (name && name_check(name, &why) < 0)
		return request_bad_field(rq, "name", err, "%s", why.text);
	r = catalog_ws_undelete(sd->catalog, id, name ? name : row.was, snapd_now_ns(), err);
	if (r >= 0)
		r = catalog_sync(sd->catalog, err);
	if (r >= 0)
		r = snapd_record_ws(sd, id, err);
	if (r >= 0)
		mount_again(sd, &row);
	return r;
}

int api_ws_undelete(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_ws_row row = { 0 };
	int r = undelete(rq, rq->params[0], request_string(rq, "name"), err);
	if (r >= 0)
		r = catalog_ws_get(sd->catalog, rq->params[0], &row, err);
	if (r < 0)
		return r;
	rp->json = api_workspace(sd, &row, NULL);
	return rp->json ? 0 : err_no_memory(err);
}
