/* Flattening, in the background and at once.
 *
 * Step 1 reads only, and holds the workspace SHARED: save what isn't in the store, write the
 * image. Step 2 holds it EXCLUSIVE for some milliseconds: bough-fs swaps the lower part of
 * the stack, and the catalog learns what the head now corresponds to. A workspace that was
 * restored or removed in between refuses the swap, and the image is garbage.
 *
 * One store session spans both, so that gc leaves alone what was made. */
#include "snapd/flattener.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/log.h"
#include "fs/work/save.h"
#include "snapd/intents.h"
#include "snapd/snapd.h"
#include "snapd/stackop.h"
#include "snapd/worker.h"

enum {
	QUEUE_MAX = 4096, /* beyond: forgotten, the next fork or save asks again */
	RECENT_MAX = 64,  /* how far back a second request for the same is looked for */
	SETTLE_MS = 300,  /* after an operation, before its workspace is looked at */
	LOOK_MS = 10000,  /* between looks for journals that have become long by themselves */
	FIRST_LOOK_MS = 2000,
	SWAP_WAIT_MS = 30000,
	MEMO = 32,
	MEMO_ABOVE = 3, /* layers that may stay above a remembered image */
};

struct memo {
	struct stack old, saved, with; /* as in struct flat; without `used` all are empty */
	bool used;
	uint64_t age;
};

struct flattener {
	struct snapd *sd;
	struct worker *worker;
	pthread_mutex_t lock; /* queue, nqueued, sync */
	char queue[QUEUE_MAX][ID_SIZE];
	size_t nqueued;
	bool sync; /* of records was asked for */
	atomic_bool cancel;
	pthread_mutex_t one; /* one flattening at a time; covers what follows */
	const char *background; /* the workspace whose flattening nobody waits for; or NULL */
	struct memo memo[MEMO];
	uint64_t age;
};

/* ---- what was flattened before ---- */

/* The longest known stack that `s` begins with, when it leaves little above it. */
static struct memo *recall(struct flattener *f, const struct stack *s)
{
	struct memo *best = NULL;
	for (int i = 0; i < MEMO; i++) {
		struct memo *m = &f->memo[i];
		if (m->used && m->old.nlayers + MEMO_ABOVE >= s->nlayers &&
		    (!best || m->old.nlayers > best->old.nlayers) && stack_begins(s, &m->old))
			best = m;
	}
	if (best)
		best->age = ++f->age;
	return best;
}

static void memo_clear(struct memo *m)
{
	stack_done(&m->old);
	stack_done(&m->saved);
	stack_done(&m->with);
	m->used = false;
}

static void remember(struct flattener *f, const struct stack *old, const struct stack *saved,
		     const struct stack *with)
{
	struct memo *m = &f->memo[0];
	for (int i = 1; i < MEMO; i++)
		if (f->memo[i].age < m->age)
			m = &f->memo[i];
	memo_clear(m);
	if (stack_copy(&m->old, old) < 0 || stack_copy(&m->saved, saved) < 0 ||
	    stack_copy(&m->with, with) < 0) {
		memo_clear(m); /* only a memory */
		return;
	}
	m->used = true;
	m->age = ++f->age;
}

/* gc may have deleted the image meanwhile, where nothing used it. */
static bool image_is_there(struct flattener *f, const struct digest *name)
{
	char path[PATH_SIZE], hex[DIGEST_HEX + 1];
	digest_hex(hex, name);
	(void)snprintf(path, sizeof(path), "%s/images/%s.img", f->sd->root, hex);
	return access(path, F_OK) == 0;
}

/* ---- flattening ---- */

/* Gives way, too: without it this thread keeps its CPU for a tick of 4 ms, nice or not, and a
 * program that writes to a mount waits behind it. (SCHED_IDLE would do as well, but on a busy
 * machine whoever needs a lock that the thread holds would starve with it.) */
static int go_on(void *ctx, uint64_t files, uint64_t total, uint64_t bytes)
{
	struct flattener *f = ctx;
	(void)sched_yield(); /* can't fail on Linux */
	return atomic_load(&f->cancel) ||
	       (f->background && lease_is_wanted(f->sd->leases, f->background));
}

struct flat {
	struct stack old, saved,
		with; /* the sealed stack; the same as deltas; the same as one image */
};

static void flat_done(struct flat *fl)
{
	stack_done(&fl->old);
	stack_done(&fl->saved);
	stack_done(&fl->with);
}

#define auto_flat __attribute__((cleanup(flat_done))) struct flat

/* A known image for the lower part of fl->old, which becomes that part, in *known (NULL: there is
 * none). 0 or -ENOMEM. */
static int use_known(struct flattener *f, struct flat *fl, const struct memo **known)
{
	const struct memo *m = recall(f, &fl->old);
	struct stack old;
	if (!m || !image_is_there(f, &m->with.image))
		return 0;
	int r = stack_copy(&old, &m->old);
	if (r < 0)
		return r;
	stack_done(&fl->old);
	fl->old = old;
	*known = m;
	return stack_copy(&fl->with, &m->with);
}

/* Step 1. images_making is held by the caller. */
static int read_and_write(struct flattener *f, struct flat *fl, struct store_session *ss,
			  struct err *err)
{
	struct view_options opt;
	struct save_progress progress = { go_on, f };
	layercache_options(f->sd->layers, &opt);
	const struct memo *known = NULL;
	int r = use_known(f, fl, &known);
	if (r < 0)
		return err_sys(err, r, "flatten");
	r = save_stack(&fl->saved, &fl->old, &opt, ss, &progress, NULL, err);
	/* Else a layer went back since, when its disk had failed (layer_mend). */
	if (r < 0 || (known && stack_equal(&fl->saved, &known->saved)))
		return r;
	stack_done(&fl->with);
	r = store_sync(ss, err);
	if (r >= 0)
		r = flatten_stack(&fl->with, &fl->saved, &opt, ss, &progress, err);
	if (r >= 0)
		remember(f, &fl->old, &fl->saved, &fl->with);
	return r;
}

/* The head snapshot, where it is that very tree, becomes the image too: then a diff against it
 * stays small, and what is made from it starts flat. */
static int move_snapshot(struct flattener *f, const char *id, const struct flat *fl,
			 struct store_session *ss, struct err *err)
{
	struct snapd *sd = f->sd;
	auto_lease lease = { 0 };
	auto_snap_row row = { 0 };
	auto_stack have = { 0 };
	int r = lease_take(&lease, sd->leases, id, LEASE_EXCLUSIVE, "flatten", 0, err);
	if (r < 0)
		return r == -EBUSY ? 0 : r; /* somebody reads it: it stays as it is */
	rows_lock(sd, id);
	r = catalog_snap_get(sd->catalog, id, &row, err);
	if (r >= 0)
		r = manifest_get(sd->store, &row.manifest, &have, err);
	if (r >= 0 && stack_equal(&have, &fl->saved)) {
		r = manifest_put(ss, &fl->with, &row.manifest, err);
		if (r >= 0)
			r = store_sync(ss, err);
		if (r >= 0)
			r = records_snap_write(sd->records, &row, true, err);
		if (r >= 0)
			r = catalog_snap_update(sd->catalog, &row, err);
		if (r >= 0)
			r = catalog_sync(sd->catalog, err);
	}
	rows_unlock(sd, id);
	return r;
}

/* Step 2. */
static int swap(struct flattener *f, const char *id, const struct flat *fl,
		struct store_session *ss, struct err *err)
{
	struct snapd *sd = f->sd;
	auto_lease lease = { 0 };
	auto_ws_row row = { 0 };
	auto_stack head = { 0 }, moved = { 0 };
	auto_buf encoded = { 0 };
	int r = lease_take(&lease, sd->leases, id, LEASE_EXCLUSIVE, "flatten", SWAP_WAIT_MS, err);
	if (r >= 0)
		r = catalog_ws_get(sd->catalog, id, &row, err);
	if (r >= 0)
		r = intents_settle_of(sd, id, err);
	if (r >= 0)
		r = fs_replace(sd->fs, id, &fl->old, &fl->with, err);
	if (r < 0)
		return r;
	layercache_trim(sd->layers, 60000); /* layers whose files went */
	/* What the head was saved from lies in the part that was swapped, whole or not at all. */
	if (row.head_stack.len == 0 ||
	    stack_decode(&head, row.head_stack.data, row.head_stack.len) < 0 ||
	    !stack_begins(&head, &fl->old))
		return 0;
	r = stack_rebase(&moved, &head, &fl->old, &fl->with);
	if (r < 0)
		return err_sys(err, r, "flatten");
	stack_encode(&moved, &encoded);
	r = buf_error(&encoded);
	if (r >= 0)
		r = catalog_ws_set_head(sd->catalog, id, NULL, encoded.data, encoded.len, err);
	if (r >= 0 && row.head[0] && stack_equal(&head, &fl->old))
		r = move_snapshot(f, row.head, fl, ss, err);
	return r;
}

static int flatten_leased(struct flattener *f, const char *id, bool seal, struct flat *fl,
			  struct store_session *ss, struct err *err)
{
	auto_lease lease = { 0 };
	int r = lease_take(&lease, f->sd->leases, id, LEASE_SHARED, "flatten", LEASE_WAIT_MS, err);
	if (r >= 0)
		r = seal ? fs_seal(f->sd->fs, id, &fl->old, err)
			 : fs_stack(f->sd->fs, id, &fl->old, err);
	if (r >= 0 && fl->old.nlayers > 0)
		r = read_and_write(f, fl, ss, err);
	return r;
}

static int flatten(struct flattener *f, const char *id, bool seal, struct err *err)
{
	auto_flat fl = { 0 };
	struct store_session *ss;
	uint64_t begun = clock_ms();
	int r = store_session_begin(f->sd->store, &ss, err);
	if (r < 0)
		return r;
	images_making(f->sd->images);
	r = flatten_leased(f, id, seal, &fl, ss, err);
	bool some = r >= 0 && fl.old.nlayers > 0;
	if (some)
		r = swap(f, id, &fl, ss, err);
	images_made(f->sd->images, some ? &fl.with.image : NULL);
	store_session_end(ss);
	if (r >= 0 && some)
		log_info("flattened %u layers of %s in %llu ms", fl.old.nlayers, id,
			 (unsigned long long)(clock_ms() - begun));
	return r;
}

int flattener_shorten(struct flattener *f, struct lease *lease, const char *what, struct err *err)
{
	enum lease_kind kind = lease->kind;
	char id[ID_SIZE];
	memcpy(id, lease->id, sizeof(id));
	lease_give(lease);
	pthread_mutex_lock(&f->one);
	int r = flatten(f, id, false, err);
	pthread_mutex_unlock(&f->one);
	if (r < 0)
		return err_prefix(err, snapd_inner(r), "flatten %s", id);
	return lease_take(lease, f->sd->leases, id, kind, what, LEASE_WAIT_MS, err);
}

int flattener_seal(struct flattener *f, struct lease *lease, const char *what, struct stack *out,
		   bool *again, struct err *err)
{
	char id[ID_SIZE];
	memcpy(id, lease->id, sizeof(id));
	*again = false;
	int r = fs_seal(f->sd->fs, id, out, err);
	if (r == -E2BIG) {
		*again = true;
		r = flattener_shorten(f, lease, what, err);
		if (r >= 0)
			r = fs_seal(f->sd->fs, id, out, err);
	}
	if (r >= 0 && out->nlayers > FLATTEN_LAYERS)
		flattener_consider(f, id);
	return r;
}

/* ---- the thread ---- */

/* Unless it was brought back, or is just being. What stays open costs memory, until gc comes. */
static void close_removed(struct flattener *f, const char *id)
{
	auto_lease lease = { 0 };
	auto_ws_row row = { 0 };
	struct err err = { 0 };
	int r = lease_take(&lease, f->sd->leases, id, LEASE_EXCLUSIVE, "rm", 0, &err);
	if (r >= 0)
		r = catalog_ws_get_any(f->sd->catalog, id, &row, &err);
	if (r >= 0 && row.removed_ns)
		r = fs_close(f->sd->fs, id, &err);
	if (r < 0 && r != -ENOENT && r != -EBUSY)
		log_warn("close %s: %s", id, err.text);
}

static void consider(struct flattener *f, const char *id)
{
	struct fs_usage u;
	struct err err = { 0 };
	auto_ws_row row = { 0 };
	if (catalog_ws_get_any(f->sd->catalog, id, &row, NULL) >= 0 && row.removed_ns) {
		close_removed(f, id);
		return;
	}
	if (!row.id[0] || row.broken[0] || fs_usage(f->sd->fs, id, &u, NULL) < 0)
		return; /* removed meanwhile, or it has other worries */
	faults_note(f->sd, id, u.fault);
	damage_note(f->sd, id, u.damage);
	if (*u.fault)
		return;
	bool is_long = u.layers > FLATTEN_LAYERS + 1; /* the active one counted */
	if (!is_long && u.records <= FLATTEN_RECORDS)
		return;
	pthread_mutex_lock(&f->one);
	f->background = id;
	int r = flatten(f, id, !is_long, &err);
	f->background = NULL;
	pthread_mutex_unlock(&f->one);
	/* Removed or restored meanwhile is nothing to tell; else the next save or fork tries
	 * again. */
	if (r == -ENOENT || r == -ESTALE || r == -ECANCELED)
		log_debug("flatten %s: %s", id, err.text);
	else if (r < 0)
		log_warn("flatten %s: %s", id, err.text);
}

static void consider_long(void *ctx, const char *id, const struct fs_usage *u)
{
	struct flattener *f = ctx;
	faults_note(f->sd, id, u->fault);
	damage_note(f->sd, id, u->damage);
	if (!*u->fault && u->records > FLATTEN_RECORDS)
		flattener_consider(f, id);
}

static void sync_records(struct flattener *f)
{
	struct err err = { 0 };
	if (records_sync(f->sd->records, &err) < 0)
		log_error("%s", err.text); /* the catalog has them */
}

/* The next one that was asked for; false: none. */
static bool take(struct flattener *f, char id[ID_SIZE], bool *sync)
{
	pthread_mutex_lock(&f->lock);
	*sync = f->sync;
	f->sync = false;
	bool some = f->nqueued > 0;
	if (some) {
		memcpy(id, f->queue[0], ID_SIZE);
		f->nqueued--;
		memmove(f->queue[0], f->queue[1], f->nqueued * ID_SIZE);
	}
	pthread_mutex_unlock(&f->lock);
	return some;
}

static void run(void *ctx, bool due)
{
	struct flattener *f = ctx;
	char id[ID_SIZE];
	bool some = true, sync;
	/* Whoever only writes, and never forks or saves, has a journal that grows all the same:
	 * what a restart must replay. A disk that failed is found so, too. */
	if (due)
		(void)fs_each_open(f->sd->fs, consider_long, f, NULL); /* else the next time */
	while (some && !worker_stopping(f->worker)) {
		some = take(f, id, &sync);
		if (sync)
			sync_records(f);
		if (some)
			consider(f, id);
	}
}

size_t flattener_waiting(struct flattener *f)
{
	pthread_mutex_lock(&f->lock);
	size_t n = f->nqueued;
	pthread_mutex_unlock(&f->lock);
	return n;
}

void flattener_consider(struct flattener *f, const char *ws_id)
{
	pthread_mutex_lock(&f->lock);
	bool queued = f->nqueued == QUEUE_MAX;
	for (size_t i = 0; i < RECENT_MAX && i < f->nqueued && !queued; i++)
		queued = strcmp(f->queue[f->nqueued - 1 - i], ws_id) == 0;
	if (!queued)
		(void)snprintf(f->queue[f->nqueued++], ID_SIZE, "%s", ws_id);
	bool wake = !queued && f->nqueued == 1;
	pthread_mutex_unlock(&f->lock);
	if (wake)
		worker_wake(f->worker);
}

void flattener_sync_records(struct flattener *f)
{
	pthread_mutex_lock(&f->lock);
	bool wake = !f->sync && f->nqueued == 0;
	f->sync = true;
	pthread_mutex_unlock(&f->lock);
	if (wake)
		worker_wake(f->worker);
}

int flattener_start(struct flattener **out, struct snapd *sd, struct err *err)
{
	struct flattener *f = calloc(1, sizeof(*f));
	if (!f)
		return err_no_memory(err);
	const struct worker_options opt = { .what = "the flattener",
					    .first_ms = FIRST_LOOK_MS,
					    .every_ms = LOOK_MS,
					    .settle_ms = SETTLE_MS,
					    .low = true,
					    .run = run,
					    .ctx = f };
	f->sd = sd;
	pthread_mutex_init(&f->lock, NULL);
	pthread_mutex_init(&f->one, NULL);
	int r = worker_start(&f->worker, &opt, err);
	if (r < 0) {
		pthread_mutex_destroy(&f->one);
		pthread_mutex_destroy(&f->lock);
		free(f);
		return r;
	}
	*out = f;
	return 0;
}

void flattener_stop(struct flattener *f)
{
	if (!f)
		return;
	atomic_store(&f->cancel, true);
	worker_stop(f->worker);
	for (int i = 0; i < MEMO; i++)
		memo_clear(&f->memo[i]);
	pthread_mutex_destroy(&f->one);
	pthread_mutex_destroy(&f->lock);
	free(f);
}
