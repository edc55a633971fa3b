/* Snapshots: list, get, change, remove. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/json.h"
#include "snapd/access.h"
#include "snapd/api.h"
#include "snapd/outcome.h"

int api_snap_list(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_ws_row ws = { 0 };
	struct page page;
	bool more = true, images = request_query_true(rq, "image");
	const char *of = request_query(rq, "workspace");
	int r = page_begin_want(&page, rq, err);
	/* A workspace that is gone may still have snapshots: by its id they are found. */
	if (r >= 0 && of && !id_is(of, "ws"))
		r = catalog_ws_get(sd->catalog, of, &ws, err);
	if (r < 0)
		return r;
	json_t *items = json_array();
	while (r >= 0 && more) {
		struct snap_row *rows;
		size_t n;
		r = catalog_snap_page(sd->catalog, of && ws.id[0] ? ws.id : of, images, &page.want,
				      &rows, &n, err);
		if (r < 0)
			break;
		r = api_snapshots(rq, &page, items, rows, n, err);
		more = n > 0 && page_goes_on(&page, n, rows[n - 1].created_ns, rows[n - 1].id);
		snap_rows_free(rows, n);
	}
	return page_reply(rp, &page, items, r, err);
}

static int reply_snapshot(struct request *rq, struct reply *rp, const struct snap_row *row,
			  struct err *err)
{
	rp->json = api_snapshot(rq->ctx, row);
	return rp->json ? 0 : err_no_memory(err);
}

int api_snap_get(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_snap_row row = { 0 };
	int r = catalog_snap_get(sd->catalog, rq->params[0], &row, err);
	return r < 0 ? r : reply_snapshot(rq, rp, &row, err);
}

/* ---- change ---- */

static bool list_has(const json_t *list, const char *s)
{
	json_t *one;
	size_t i;
	json_array_foreach(list, i, one)
		if (strcmp(json_string_value(one), s) == 0)
			return true;
	return false;
}

static int add_name(struct request *rq, const struct snap_row *row, json_t *names, const char *name,
		    struct err *err)
{
	struct snapd *sd = rq->ctx;
	char owner[ID_SIZE];
	struct err why = { 0 };
	if (name_check(name, &why) < 0)
		return request_bad_field(rq, "add_names", err, "%s", why.text);
	int r = catalog_snap_has_name(sd->catalog, row->own.owner, name, owner, err);
	if (r > 0 && strcmp(owner, row->id) != 0)
		return err_set(err, -EEXIST, "there is a snapshot \"%s\" already", name);
	if (r >= 0 && !list_has(names, name) && json_array_append_new(names, json_string(name)) < 0)
		return err_no_memory(err);
	return r < 0 ? r : 0;
}

static int change_names(struct request *rq, struct snap_row *row, struct err *err)
{
	const json_t *add = json_object_get(rq->body, "add_names");
	const json_t *del = json_object_get(rq->body, "remove_names");
	json_t *one, *names = row->names ? json_loads(row->names, 0, NULL) : json_array();
	size_t i;
	int r = names ? 0 : err_no_memory(err);
	json_array_foreach(del, i, one)
		if (r >= 0 && !list_has(names, json_string_value(one)))
			r = err_set(err, -ENOENT, "snapshot %s has no name \"%.100s\"", row->id,
				    json_string_value(one));
	for (i = json_array_size(names); i > 0; i--)
		if (list_has(del, json_string_value(json_array_get(names, i - 1))))
			(void)json_array_remove(names, i - 1);
	json_array_foreach(add, i, one)
		if (r >= 0)
			r = add_name(rq, row, names, json_string_value(one), err);
	if (r >= 0) {
		free(row->names);
		row->names = json_text(names, JSON_COMPACT);
		r = row->names ? 0 : err_no_memory(err);
	}
	json_decref(names);
	return r;
}

static int apply_patch(struct request *rq, struct snap_row *row, struct err *err)
{
	const char *message = request_string(rq, "message");
	const json_t *labels = json_object_get(rq->body, "labels");
	int r = change_names(rq, row, err);
	if (r >= 0)
		r = api_own_take(rq, &row->own, err);
	if (r >= 0 && row->own.on_expiry != EXPIRY_DELETE)
		return request_bad_field(rq, "on_expiry", err, "a snapshot is deleted");
	if (r >= 0 && message) {
		free(row->message);
		row->message = *message ? strdup(message) : NULL;
		if (*message && !row->message)
			r = err_no_memory(err);
	}
	if (r >= 0 && json_is_object(labels)) {
		free(row->labels);
		row->labels = json_object_size(labels) ? json_text(labels, JSON_COMPACT) : NULL;
		if (json_object_size(labels) && !row->labels)
			r = err_no_memory(err);
	}
	return r;
}

int api_snap_patch(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_snap_row row = { 0 };
	char id[ID_SIZE];
	int r = catalog_snap_get(sd->catalog, rq->params[0], &row, err);
	if (r < 0)
		return r;
	memcpy(id, row.id, sizeof(id));
	snap_row_done(&row);
	rows_lock(sd, id);
	r = catalog_snap_get(sd->catalog, id, &row, err);
	if (r >= 0)
		r = apply_patch(rq, &row, err);
	if (r >= 0)
		r = records_snap_write(sd->records, &row, true, err);
	if (r >= 0)
		r = catalog_snap_update(sd->catalog, &row, err);
	if (r >= 0)
		r = catalog_sync(sd->catalog, err);
	rows_unlock(sd, id);
	return r < 0 ? r : reply_snapshot(rq, rp, &row, err);
}

/* ---- remove ---- */

/* The children's records get the parent that the catalog will give them. */
static int record_children(struct snapd *sd, const struct snap_row *row, struct err *err)
{
	struct snap_row *rows;
	size_t n;
	int r = catalog_snap_children(sd->catalog, row->id, &rows, &n, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n && r >= 0; i++) {
		memcpy(rows[i].parent, row->parent, sizeof(rows[i].parent));
		r = records_snap_write(sd->records, &rows[i], true, err);
	}
	snap_rows_free(rows, n);
	return r;
}

/* Whether something that `who` (NULL: everybody) sees needs it: -ENOTUNIQ; 1: only what he doesn't
 * see. He mustn't learn of that, and it loses nothing but who its parent was. */
static int refuse(struct snapd *sd, const char *id, const char *who, struct err *err)
{
	struct err why = { 0 };
	int r = catalog_snap_refuse(sd->catalog, id, who, err);
	if (r < 0 || !who)
		return r;
	return catalog_snap_refuse(sd->catalog, id, NULL, &why) == -ENOTUNIQ;
}

int api_snap_remove(struct snapd *sd, const struct source *src, bool force, const char *who,
		    struct err *err)
{
	int r = force ? 0 : refuse(sd, src->snap.id, who, err);
	if (r < 0)
		return r;
	force |= r > 0;
	r = 0;
	if (force)
		rows_lock_all(sd); /* the children's rows change, too */
	else
		rows_lock(sd, src->snap.id);
	/* The record goes first: one without a row is a row that the catalog lost. */
	if (force)
		r = record_children(sd, &src->snap, err);
	if (r >= 0)
		r = records_snap_remove(sd->records, src->snap.id, err);
	if (r >= 0) {
		r = catalog_snap_delete(sd->catalog, src->snap.id, force, err);
		if (r >= 0)
			r = catalog_sync(sd->catalog, err);
		else /* it stays: a save has just taken it as parent */
			(void)records_snap_write(sd->records, &src->snap, true, NULL);
		if (r == -ENOTUNIQ)
			r = err_set(err, -EBUSY, "something is just being made from snapshot %s",
				    src->snap.id);
	}
	if (force)
		rows_unlock_all(sd);
	else
		rows_unlock(sd, src->snap.id);
	return r;
}

enum { CASCADE_MAX = 10000 }; /* snapshots of one call: each is leased */

/* Who asks may change what was made from it, and nobody uses that just now. What he doesn't see is
 * left out (its id is "" then): he mustn't learn of it. */
static int take_below(struct request *rq, const struct snap_row *rows, size_t n,
		      struct source *of, struct err *err)
{
	struct snapd *sd = rq->ctx;
	int r = 0;
	for (size_t i = 0; i < n && r >= 0; i++) {
		const struct snap_row *row = &rows[i];
		bool mine = access_writes(sd, rq->caller, &row->own, row->workspace);
		if (!mine && access_sees(sd, rq->caller, &row->own, row->workspace))
			r = err_set(err, -EPERM,
				    "snapshot %s, which isn't yours to delete, was made from it: "
				    "with `force` it goes alone",
				    row->id);
	}
	for (size_t i = 0; i < n && r >= 0; i++)
		if (access_writes(sd, rq->caller, &rows[i].own, rows[i].workspace))
			r = source_find_snap(&of[i], sd, rows[i].id, LEASE_EXCLUSIVE, "rm", err);
	return r;
}

/* All that was made from it, and it: the farthest first, so that what a kill leaves stands on what
 * is there. What was made from one meanwhile is linked to its parent. */
static int remove_below(struct request *rq, const struct source *src, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct snap_row *rows = NULL;
	size_t all = 0;
	int r = catalog_snap_below(sd->catalog, src->snap.id, CASCADE_MAX + 1, &rows, &all, err);
	if (r < 0)
		return r;
	const size_t n = all > 0 ? all - 1 : 0; /* the last is itself */
	struct source *of = calloc(n + 1, sizeof(*of));
	if (!of)
		r = err_no_memory(err);
	else if (n >= CASCADE_MAX)
		r = err_set(err, -E2BIG, "more than %d were made from it: delete some first",
			    CASCADE_MAX);
	if (r >= 0)
		r = take_below(rq, rows, n, of, err);
	for (size_t i = 0; i < n && r >= 0; i++) {
		if (!of[i].snap.id[0])
			continue;
		r = api_snap_remove(sd, &of[i], true, NULL, err);
		if (r >= 0)
			outcome_beside(sd, "snapshot.deleted", &rows[i].own, rows[i].id,
				       rows[i].workspace);
	}
	for (size_t i = 0; i < n && of; i++)
		source_done(&of[i]);
	free(of);
	snap_rows_free(rows, all);
	return r < 0 ? r : api_snap_remove(sd, src, true, NULL, err);
}

int api_snap_delete(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_source src = { 0 };
	bool cascade = request_query_true(rq, "cascade"), force = request_query_true(rq, "force");
	if (cascade && force)
		return request_bad_field(rq, "cascade", err, "either cascade or force");
	int r = source_find_snap(&src, sd, rq->params[0], LEASE_EXCLUSIVE, "rm", err);
	if (r >= 0)
		r = cascade ? remove_below(rq, &src, err)
			    : api_snap_remove(sd, &src, force,
					      rq->caller->admin ? NULL : rq->caller->owner, err);
	rp->status = 204;
	return r;
}
