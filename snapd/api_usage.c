/* What each workspace and snapshot holds in the store, and how much of it nothing else of the
 * caller's holds. Sharing is counted among what the caller may see, so nobody learns from it what
 * others have. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/array.h"
#include "fs/work/save.h"
#include "snapd/access.h"

enum { HELD_MAX = 4 << 20 /* objects of all items: 160 MiB of memory while they are counted */ };

struct held {
	struct digest object;
	uint32_t item;
};

struct item {
	char id[ID_SIZE];
	struct digest manifest; /* of a snapshot */
	bool is_snap, failed;
	uint64_t unique_bytes, shared_bytes, written_bytes;
};

struct usage {
	struct snapd *sd;
	struct page page;       /* by id; what is on others counts as well */
	bool all, owners;       /* of whom it tells beside: of all, or of anybody */
	char owner[OWNER_SIZE]; /* of the caller */
	struct item *items;
	size_t nitems, cap_items;
	struct held *held;
	size_t nheld, cap_held;
};

static void usage_free(void *task)
{
	struct usage *u = task;
	free(u->items);
	free(u->held);
	free(u);
}

static int add_object(void *ctx, const struct digest *d)
{
	struct usage *u = ctx;
	if (u->nheld == HELD_MAX)
		return -E2BIG;
	if (array_grow(&u->held, u->nheld, &u->cap_held) < 0)
		return -ENOMEM;
	u->held[u->nheld++] = (struct held){ .object = *d, .item = (uint32_t)(u->nitems - 1) };
	return 0;
}

/* The last item's objects. One that can't be read is told as such. */
static int add_objects(struct usage *u, struct err *err)
{
	struct item *it = &u->items[u->nitems - 1];
	struct view_options opt;
	struct reach_sink sink = { .object = add_object, .ctx = u };
	auto_stack stack = { 0 };
	struct fs_usage fs = { 0 };
	struct err why;
	layercache_options(u->sd->layers, &opt);
	int r = it->is_snap ? manifest_get(u->sd->store, &it->manifest, &stack, &why)
			    : fs_stack(u->sd->fs, it->id, &stack, &why);
	if (r >= 0 && !it->is_snap)
		r = fs_usage(u->sd->fs, it->id, &fs, &why);
	if (r >= 0)
		r = stack_reach(&stack, &opt, &sink, &why);
	if (r == -E2BIG)
		return err_set(err, r, "more than %d objects to look at", HELD_MAX);
	if (r == -ENOMEM)
		return err_no_memory(err);
	it->failed = r < 0;
	it->written_bytes = fs.bytes > 0 ? (uint64_t)fs.bytes : 0;
	return 0;
}

static struct item *add_item(struct usage *u, const char *id)
{
	if (array_grow(&u->items, u->nitems, &u->cap_items) < 0)
		return NULL;
	struct item *it = &u->items[u->nitems++];
	memset(it, 0, sizeof(*it));
	memcpy(it->id, id, sizeof(it->id));
	return it;
}

static int by_object(const void *a, const void *b)
{
	const struct held *x = a, *y = b;
	int r = memcmp(x->object.b, y->object.b, sizeof(x->object.b));
	return r ? r : (x->item > y->item) - (x->item < y->item);
}

static void count(struct usage *u)
{
	if (u->nheld > 0)
		qsort(u->held, u->nheld, sizeof(*u->held), by_object);
	for (size_t i = 0, end; i < u->nheld; i = end) {
		uint32_t size = 0;
		for (end = i;
		     end < u->nheld && digest_equal(&u->held[end].object, &u->held[i].object);)
			end++;
		if (store_has(u->sd->store, &u->held[i].object, &size) <= 0)
			continue; /* gone meanwhile */
		bool alone = u->held[i].item == u->held[end - 1].item;
		for (size_t k = i; k < end; k++) {
			struct item *it = &u->items[u->held[k].item];
			if (k > i && u->held[k].item == u->held[k - 1].item)
				continue; /* named twice by the same */
			*(alone ? &it->unique_bytes : &it->shared_bytes) += size;
		}
	}
}

static int by_id(const void *a, const void *b)
{
	const struct item *x = a, *y = b;
	return strcmp(x->id, y->id);
}

static json_t *item_json(const struct item *it)
{
	if (it->failed)
		return json_pack("{s:s, s:n, s:n, s:n}", "id", it->id, "unique_bytes",
				 "shared_bytes", "written_bytes");
	return json_pack("{s:s, s:I, s:I, s:I}", "id", it->id, "unique_bytes",
			 (json_int_t)it->unique_bytes, "shared_bytes", (json_int_t)it->shared_bytes,
			 "written_bytes", (json_int_t)it->written_bytes);
}

static int usage_run(void *task, struct progress *p, unsigned *status, json_t **result,
		     struct err *err)
{
	struct usage *u = task;
	size_t n = u->nitems;
	int r = 0, bad = 0;
	/* add_object names the last item: they are taken in one after the other. */
	for (u->nitems = 1; u->nitems <= n && r >= 0; u->nitems++) {
		progress_tell(p, u->nitems - 1, n, "items", "count");
		r = progress_cancelled(p) ? err_set(err, -ECANCELED, "cancelled")
					  : add_objects(u, err);
	}
	u->nitems = n;
	if (r < 0)
		return r;
	count(u);
	if (n > 0)
		qsort(u->items, n, sizeof(*u->items), by_id);
	json_t *items = json_array();
	for (size_t i = 0; i < n; i++)
		if (page_takes_name(&u->page, u->items[i].id))
			bad |= json_array_append_new(items, item_json(&u->items[i]));
	json_t *owners = !u->owners ? json_array()
				    : api_owners_usage(u->sd, u->all ? NULL : u->owner, err);
	json_t *j = page_end(&u->page, items);
	bad |= !owners || json_object_set_new(j, "owners", owners) < 0;
	if (!bad) {
		*result = j;
		return 0;
	}
	json_decref(j);
	return !owners && err && err->code < 0 ? err->code : err_no_memory(err);
}

static int collect(struct usage *u, struct request *rq, struct err *err)
{
	struct snapd *sd = u->sd;
	struct ws_row *ws;
	struct snap_row *snaps;
	size_t n;
	int r = catalog_ws_list(sd->catalog, WS_THERE, &ws, &n, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n && r >= 0; i++)
		if (!ws[i].broken[0] && access_sees(sd, rq->caller, &ws[i].own, ws[i].id) &&
		    !add_item(u, ws[i].id))
			r = err_no_memory(err);
	ws_rows_free(ws, n);
	if (r >= 0)
		r = catalog_snap_trees(sd->catalog, &snaps, &n, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n && r >= 0; i++) {
		if (!access_sees(sd, rq->caller, &snaps[i].own, snaps[i].workspace))
			continue;
		struct item *it = add_item(u, snaps[i].id);
		if (!it) {
			r = err_no_memory(err);
			break;
		}
		it->is_snap = true;
		it->manifest = snaps[i].manifest;
	}
	snap_rows_free(snaps, n);
	return r;
}

int api_usage(struct request *rq, struct reply *rp, struct err *err)
{
	struct usage *u = calloc(1, sizeof(*u));
	if (!u)
		return err_no_memory(err);
	u->sd = rq->ctx;
	u->all = rq->caller->admin;
	u->owners = !rq->caller->workspace[0] && !rq->caller->team[0];
	memcpy(u->owner, rq->caller->owner, sizeof(u->owner));
	int r = page_begin_names(&u->page, rq, err);
	if (r >= 0)
		r = collect(u, rq, err);
	if (r < 0) {
		usage_free(u);
		return r;
	}
	rp->job = usage_run;
	rp->task = u;
	rp->task_free = usage_free;
	return 0;
}
