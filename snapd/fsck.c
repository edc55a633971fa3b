/* fsck: store, catalog, and then everything that is reached from the catalog. */
#include "snapd/fsck.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/array.h"
#include "fs/work/ino.h"
#include "fs/work/save.h"
#include "snapd/flattener.h"
#include "snapd/reconcile.h"

/* ---- faults ---- */

int fsck_fault(struct fsck *f, const char *where, const char *what, const struct digest *object,
	       bool repaired)
{
	if (f->nfaults == FAULTS_MAX) {
		f->more++;
		return -1;
	}
	if (array_grow(&f->faults, f->nfaults, &f->cap) < 0) {
		f->no_memory = true;
		return -1;
	}
	struct fault *x = &f->faults[f->nfaults];
	*x = (struct fault){ .where = strdup(where), .what = strdup(what), .repaired = repaired };
	if (object)
		x->object = *object;
	if (!x->where || !x->what) {
		free(x->where);
		free(x->what);
		f->no_memory = true;
		return -1;
	}
	return (int)f->nfaults++;
}

int fsck_find(const struct fsck *f, const struct digest *object)
{
	for (size_t i = 0; i < f->nfaults; i++)
		if (digest_equal(&f->faults[i].object, object))
			return (int)i;
	return -1;
}

void fsck_lost(struct fsck *f, int fault)
{
	if (fault >= 0)
		f->faults[fault].repaired = false;
}

void fsck_affects(struct fsck *f, int fault, bool is_snap, const char *name)
{
	if (fault < 0)
		return;
	json_t **list = is_snap ? &f->faults[fault].snapshots : &f->faults[fault].workspaces;
	json_t *one;
	size_t i;
	if (!*list)
		*list = json_array();
	json_array_foreach(*list, i, one)
		if (strcmp(json_string_value(one), name) == 0)
			return;
	if (json_array_size(*list) < AFFECTED_MAX)
		(void)json_array_append_new(*list,
					    json_string(name)); /* the fault itself is told */
}

static void faults_free(struct fsck *f)
{
	for (size_t i = 0; i < f->nfaults; i++) {
		free(f->faults[i].where);
		free(f->faults[i].what);
		json_decref(f->faults[i].workspaces);
		json_decref(f->faults[i].snapshots);
	}
	free(f->faults);
}

/* ---- store and catalog ---- */

static void on_store_fault(void *ctx, const struct store_fault *x)
{
	struct fsck *f = ctx;
	char where[128];
	if (x->pack)
		(void)snprintf(where, sizeof(where), "store: pack %.60s at %llu", x->pack,
			       (unsigned long long)x->offset);
	else
		(void)snprintf(where, sizeof(where), "store: index");
	(void)fsck_fault(f, where, x->what, x->object, x->repaired);
}

static void on_catalog_fault(void *ctx, const char *what)
{
	(void)fsck_fault(ctx, "catalog.db", what, NULL, false);
}

static int rebuild_catalog(struct fsck *f, struct err *err)
{
	int r = catalog_rebuild(f->sd->catalog, err);
	if (r >= 0)
		r = reconcile_rows(f->sd, err);
	if (r >= 0)
		r = reconcile_fs(f->sd, false, err);
	return r < 0 ? err_prefix(err, r, "make the catalog anew") : 0;
}

static int check_catalog(struct fsck *f, struct err *err)
{
	struct snapd *sd = f->sd;
	const char *damage = catalog_damage(sd->catalog);
	if (damage)
		(void)fsck_fault(f, "catalog.db", damage, NULL, f->repair);
	else if (catalog_check(sd->catalog, on_catalog_fault, f, err) < 0 &&
		 !catalog_damage(sd->catalog))
		return -EIO;
	if (catalog_damage(sd->catalog) && f->repair) {
		int r = rebuild_catalog(f, err);
		if (r < 0)
			return r;
		for (size_t i = 0; i < f->nfaults; i++)
			if (strcmp(f->faults[i].where, "catalog.db") == 0)
				f->faults[i].repaired = true;
	}
	return 0;
}

/* ---- the inode counter ---- */

static int highest_ino(void *ctx, const struct layer_inode *li)
{
	uint64_t *max = ctx;
	if (li->attr.ino > *max)
		*max = li->attr.ino;
	return 0;
}

static int max_of_stack(struct fsck *f, const struct stack *s, uint64_t *max, struct err *err)
{
	struct view v;
	int r = view_open(&v, &f->opt, s, err);
	if (r < 0)
		return r;
	if (v.image && image_info(v.image)->max_ino > *max)
		*max = image_info(v.image)->max_ino;
	for (uint32_t i = 0; i < v.nlayers; i++)
		(void)layer_each_inode(v.layers[i], highest_ino, max); /* it returns 0 */
	view_done(&v);
	return 0;
}

static int find_max_ino(struct fsck *f, uint64_t *max, struct err *err)
{
	struct snap_row *snaps;
	struct ws_row *wss;
	size_t n;
	int r = catalog_snap_list(f->sd->catalog, &snaps, &n, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n && r >= 0; i++) {
		auto_stack s = { 0 };
		r = manifest_get(f->sd->store, &snaps[i].manifest, &s, err);
		if (r >= 0)
			r = max_of_stack(f, &s, max, err);
	}
	snap_rows_free(snaps, n);
	if (r < 0 || (r = catalog_ws_list(f->sd->catalog, WS_ALL, &wss, &n, err)) < 0)
		return r;
	for (size_t i = 0; i < n && r >= 0; i++) {
		auto_stack s = { 0 };
		auto_lease lease = { 0 };
		bool again;
		r = lease_take(&lease, f->sd->leases, wss[i].id, LEASE_SHARED, "fsck",
			       LEASE_WAIT_MS, err);
		if (r >= 0)
			r = flattener_seal(f->sd->flattener, &lease, "fsck", &s, &again, err);
		if (r >= 0)
			r = max_of_stack(f, &s, max, err);
	}
	ws_rows_free(wss, n);
	return r;
}

static int check_ino(struct fsck *f, struct err *err)
{
	uint64_t next, max = 1;
	struct err why = { 0 };
	int r = ino_peek(NULL, f->sd->root, &next, &why);
	if (r >= 0 || r == -ENOENT)
		return 0;
	int fault = fsck_fault(f, "ino", why.text, NULL, false);
	if (!f->repair)
		return 0;
	r = find_max_ino(f, &max, err);
	/* bough-fs may have handed out a whole range that no layer on disk shows yet. */
	if (r >= 0)
		r = ino_rebuild(NULL, f->sd->root, max + 2 * (uint64_t)INO_RANGE, err);
	if (r >= 0 && fault >= 0)
		f->faults[fault].repaired = true;
	return r < 0 ? err_prefix(err, r, "make the inode counter anew") : 0;
}

/* ---- the job ---- */

struct fsck_task {
	struct snapd *sd;
	bool repair;
};

static json_t *fault_json(const struct fault *x)
{
	char hex[DIGEST_HEX + 1];
	digest_hex(hex, &x->object);
	return json_pack("{s:s, s:s, s:o, s:o, s:o, s:b}", "where", x->where, "what", x->what,
			 "object", digest_is_zero(&x->object) ? json_null() : json_string(hex),
			 "workspaces", x->workspaces ? json_incref(x->workspaces) : json_array(),
			 "snapshots", x->snapshots ? json_incref(x->snapshots) : json_array(),
			 "repaired", x->repaired);
}

static json_t *result_json(const struct fsck *f, const struct store_stats *st)
{
	json_t *faults = json_array();
	for (size_t i = 0; i < f->nfaults; i++)
		if (json_array_append_new(faults, fault_json(&f->faults[i])) < 0)
			return NULL;
	return json_pack("{s:o, s:I, s:{s:I, s:I, s:I, s:I, s:I, s:I}}", "faults", faults,
			 "more_faults", (json_int_t)f->more, "checked", "objects",
			 (json_int_t)st->objects, "packs", (json_int_t)st->packs, "images",
			 (json_int_t)f->images, "layers", (json_int_t)f->layers, "snapshots",
			 (json_int_t)f->snapshots, "workspaces", (json_int_t)f->workspaces);
}

static int fsck_all(struct fsck *f, struct err *err)
{
	progress_tell(f->progress, 0, 4, "steps", "catalog");
	int r = check_catalog(f, err);
	if (r < 0)
		return r;
	progress_tell(f->progress, 1, 4, "steps", "store");
	int64_t n = store_check(f->sd->store, f->repair, on_store_fault, f, err);
	if (n < 0)
		return (int)n;
	progress_tell(f->progress, 2, 4, "steps", "images, layers, snapshots");
	if (!catalog_damage(f->sd->catalog))
		r = fsck_trees(f, err);
	progress_tell(f->progress, 3, 4, "steps", "inode counter");
	if (r >= 0)
		r = check_ino(f, err);
	if (r >= 0 && f->no_memory)
		r = err_no_memory(err);
	return r;
}

static int fsck_run(void *task, struct progress *p, unsigned *status, json_t **result,
		    struct err *err)
{
	const struct fsck_task *t = task;
	struct fsck f = { .sd = t->sd, .repair = t->repair, .progress = p };
	struct store_stats st = { 0 };
	if (pthread_mutex_trylock(&t->sd->gc) != 0)
		return err_set(err, -EBUSY, "a gc or fsck runs already");
	layercache_trim(t->sd->layers, 0); /* it is the disk that is checked */
	store_trim(t->sd->store, 0);
	layercache_options(t->sd->layers, &f.opt);
	int r = fsck_all(&f, err);
	pthread_mutex_unlock(&t->sd->gc);
	(void)store_stats(t->sd->store, &st, NULL); /* only told */
	if (r >= 0) {
		*result = result_json(&f, &st);
		r = *result ? 0 : err_no_memory(err);
	}
	faults_free(&f);
	return snapd_inner(r);
}

static json_t *fsck_again(void *task)
{
	const struct fsck_task *t = task;
	return json_pack("{s:s, s:b}", "call", "fsck", "repair", t->repair);
}

int api_fsck(struct request *rq, struct reply *rp, struct err *err)
{
	struct fsck_task *t = calloc(1, sizeof(*t));
	if (!t)
		return err_no_memory(err);
	t->sd = rq->ctx;
	t->repair = request_bool(rq, "repair", false);
	rp->job = fsck_run;
	rp->again = fsck_again;
	rp->task = t;
	rp->task_free = free;
	return 0;
}
