/* Garbage collection: what neither a snapshot, nor a workspace, nor work in progress can reach.
 *
 * What is alive is read from the catalog once, snapshots and workspaces in this order: a
 * workspace that is made from a snapshot holds the snapshot's lease until its own row is
 * there, and the snapshot can't be deleted before, so one of the two is always seen
 * (invariant 8). Workspaces are sealed first: the active layer then refers to nothing
 * but what the sealed ones below it refer to.
 *
 * What is made later of something in these lists is in none, and needs none as long as what it was
 * made of is marked. A workspace's tree is marked when its turn comes, and may be another by then:
 * so before one is replaced or deleted, it is marked by whoever does that (gc_tree_goes). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/base/log.h"
#include "fs/store/gitrepo.h"
#include "fs/work/save.h"
#include "gitops/checkout.h"
#include "snapd/api.h"
#include "snapd/flattener.h"
#include "snapd/gitlink.h"
#include "snapd/leftovers.h"
#include "snapd/state.h"
#include "snapd/tidier.h"

struct digest_set {
	struct digest *list; /* sorted before it is asked */
	size_t n, cap;
};

struct collector {
	struct snapd *sd;
	struct progress *progress;
	struct store_gc *gc;
	struct view_options opt;
	pthread_mutex_t lock; /* images */
	struct digest_set images;
	uint64_t done, total;
	_Atomic uint64_t held; /* bytes of what was marked, as often as it was */
};

/* Of workspaces that are listed: whether their trees, as they were then, are marked, or are being
 * so by whoever lets one go. */
struct turn {
	char id[ID_SIZE];
	enum { TURN_AHEAD, TURN_GOING, TURN_OVER } at;
};

struct marking {
	pthread_mutex_t lock; /* never held while something is marked */
	pthread_cond_t moved;
	struct collector *c; /* NULL: nobody marks */
	struct turn *turns;  /* in the order of ids */
	size_t n;
	unsigned going; /* turns that are TURN_GOING */
	struct err failed; /* of a tree that went unmarked */
};

struct marking *marking_new(void)
{
	struct marking *m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->moved, NULL);
	return m;
}

void marking_free(struct marking *m)
{
	if (!m)
		return;
	pthread_mutex_destroy(&m->lock);
	pthread_cond_destroy(&m->moved);
	free(m);
}

static int set_add(struct digest_set *s, const struct digest *d)
{
	if (s->n > 0 && digest_equal(&s->list[s->n - 1], d))
		return 0;
	if (array_grow(&s->list, s->n, &s->cap) < 0)
		return -ENOMEM;
	s->list[s->n++] = *d;
	return 0;
}

static int compare_digests(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct digest));
}

static bool set_has(const struct digest_set *s, const struct digest *d)
{
	return s->n > 0 && bsearch(d, s->list, s->n, sizeof(*d), compare_digests);
}

/* ---- marking ---- */

static int mark_object(void *ctx, const struct digest *d)
{
	struct collector *c = ctx;
	uint32_t size;
	if (!digest_is_git(d, NULL, NULL) && store_has(c->sd->store, d, &size) > 0)
		c->held += size;
	return progress_cancelled(c->progress) ? -ECANCELED : store_gc_mark(c->gc, d);
}

static int mark_image(void *ctx, const struct digest *name)
{
	struct collector *c = ctx;
	pthread_mutex_lock(&c->lock);
	int r = set_add(&c->images, name);
	pthread_mutex_unlock(&c->lock);
	return r;
}

static int mark_stack(struct collector *c, const struct stack *s, struct err *err)
{
	struct reach_sink sink = { .object = mark_object, .image = mark_image, .ctx = c };
	return stack_reach(s, &c->opt, &sink, err);
}

/* The tree that a checkout began with, for diff and commit. */
static int mark_checkout(struct collector *c, const char *git, struct err *err)
{
	auto_gitlink link = { 0 };
	int r = git ? gitlink_parse(&link, git, err) : 0;
	return r < 0 || !git ? r : mark_stack(c, &link.stack, err);
}

/* Checkouts that were used lately stay, so that the next workspace of that commit is there at
 * once. One that can't be read is no loss: it is built again. */
static int mark_remembered(void *ctx, const struct digest *image)
{
	struct collector *c = ctx;
	struct stack s = { .image = *image };
	struct err err;
	int r = mark_stack(c, &s, &err);
	if (r == -EBADMSG || r == -ENOENT || r == -EIO)
		return -ESTALE;
	return r;
}

static int mark_all_remembered(struct collector *c, struct err *err)
{
	char path[PATH_SIZE];
	(void)snprintf(path, sizeof(path), "%s/repos", c->sd->root);
	pthread_mutex_lock(&c->sd->checkouts);
	int r = checkout_each(path, CHECKOUT_KEEP_S, mark_remembered, c, err);
	pthread_mutex_unlock(&c->sd->checkouts);
	return r;
}

static int mark_manifest(struct collector *c, const struct digest *manifest, struct err *err)
{
	auto_stack stack = { 0 };
	int r = store_gc_mark(c->gc, manifest);
	if (r < 0)
		return err_set(err, r, "out of memory");
	r = manifest_get(c->sd->store, manifest, &stack, err);
	return r < 0 ? r : mark_stack(c, &stack, err);
}

/* A snapshot that can't be read in part can't be marked whole: better no collection than
 * one that takes what could be repaired. */
static int mark_snapshot(struct collector *c, const struct snap_row *row, struct err *err)
{
	auto_snap_row recorded = { 0 };
	int r = mark_manifest(c, &row->manifest, err);
	/* A kill between record and row leaves two manifests of one tree: both stay. */
	if (r >= 0 && records_snap_read(c->sd->records, row->id, &recorded, NULL) >= 0 &&
	    !digest_equal(&recorded.manifest, &row->manifest))
		r = mark_manifest(c, &recorded.manifest, err);
	if (r >= 0)
		r = mark_checkout(c, row->git, err);
	progress_tell(c->progress, ++c->done, c->total, "snapshots", "mark");
	return r < 0 ? err_prefix(err, r, "gc: snapshot %s", row->id) : 0;
}

static int compare_turns(const void *a, const void *b)
{
	return strcmp(((const struct turn *)a)->id, ((const struct turn *)b)->id);
}

/* With the lock; NULL: nobody marks, or it isn't listed. */
static struct turn *turn_of(struct marking *m, const char *id)
{
	struct turn key = { 0 };
	(void)snprintf(key.id, sizeof(key.id), "%s", id);
	return m->c && m->n ? bsearch(&key, m->turns, m->n, sizeof(key), compare_turns) : NULL;
}

/* 1: it is to be marked, which turn_end ends. */
static bool turn_begin(struct marking *m, const char *id)
{
	struct turn *t;
	pthread_mutex_lock(&m->lock);
	while ((t = turn_of(m, id)) && t->at == TURN_GOING)
		pthread_cond_wait(&m->moved, &m->lock);
	bool ahead = t && t->at == TURN_AHEAD;
	if (ahead)
		t->at = TURN_GOING;
	m->going += ahead;
	pthread_mutex_unlock(&m->lock);
	return ahead;
}

static void turn_end(struct marking *m, const char *id, const struct err *failed)
{
	pthread_mutex_lock(&m->lock);
	turn_of(m, id)->at = TURN_OVER; /* it is there: marking_end waits */
	if (failed->code < 0)
		m->failed = *failed;
	m->going--;
	pthread_cond_broadcast(&m->moved);
	pthread_mutex_unlock(&m->lock);
}

void gc_tree_goes(void *ctx, const char *id)
{
	struct snapd *sd = ctx;
	auto_stack stack = { 0 };
	struct err why = { 0 };
	if (!turn_begin(sd->marking, id))
		return;
	if (fs_stack(sd->fs, id, &stack, &why) >= 0)
		(void)mark_stack(sd->marking->c, &stack, &why); /* turn_end tells */
	turn_end(sd->marking, id, &why);
}

static void turn_over(struct collector *c, const char *id)
{
	struct marking *m = c->sd->marking;
	pthread_mutex_lock(&m->lock);
	struct turn *t = turn_of(m, id);
	if (t && t->at == TURN_AHEAD)
		t->at = TURN_OVER;
	pthread_mutex_unlock(&m->lock);
}

static int mark_workspace(struct collector *c, const struct ws_row *row, struct err *err)
{
	auto_stack stack = { 0 };
	auto_lease lease = { 0 };
	bool again;
	if (row->broken[0])
		return 0; /* without its folder there is nothing to keep */
	int r = mark_checkout(c, row->git, err); /* snapshots have it, too */
	if (r >= 0)
		r = lease_take(&lease, c->sd->leases, row->id, LEASE_SHARED, "gc", LEASE_WAIT_MS,
			       err);
	if (r >= 0)
		r = flattener_seal(c->sd->flattener, &lease, "gc", &stack, &again, err);
	if (r >= 0)
		r = mark_stack(c, &stack, err);
	if (r >= 0)
		turn_over(c, row->id);
	if (r < 0) {
		auto_ws_row now = { 0 };
		if (catalog_ws_get_any(c->sd->catalog, row->id, &now, NULL) == -ENOENT)
			return 0; /* removed meanwhile */
	}
	if (row->removed_ns) /* nobody else uses it: it needs no memory */
		(void)fs_close(c->sd->fs, row->id, NULL);
	progress_tell(c->progress, ++c->done, c->total, "workspaces", "mark");
	return r < 0 ? err_prefix(err, r, "gc: workspace %s", row->name) : 0;
}

struct lists {
	struct snap_row *snaps;
	struct ws_row *wss;
	size_t nsnaps, nwss;
};

static void lists_done(struct lists *l)
{
	snap_rows_free(l->snaps, l->nsnaps);
	ws_rows_free(l->wss, l->nwss);
}

/* With the lock of marking, so that no tree goes before it is known which are listed. */
static int read_lists(struct collector *c, struct lists *l, struct err *err)
{
	struct marking *m = c->sd->marking;
	int r = catalog_snap_trees(c->sd->catalog, &l->snaps, &l->nsnaps, err);
	if (r >= 0)
		r = catalog_ws_list(c->sd->catalog, WS_ALL, &l->wss, &l->nwss, err);
	if (r < 0)
		return r;
	m->turns = calloc(l->nwss ? l->nwss : 1, sizeof(*m->turns));
	if (!m->turns)
		return err_no_memory(err);
	for (size_t i = 0; i < l->nwss; i++)
		if (!l->wss[i].broken[0])
			memcpy(m->turns[m->n++].id, l->wss[i].id, ID_SIZE);
	if (m->n)
		qsort(m->turns, m->n, sizeof(*m->turns), compare_turns);
	m->c = c;
	return 0;
}

static int marking_begin(struct collector *c, struct lists *l, struct err *err)
{
	struct marking *m = c->sd->marking;
	pthread_mutex_lock(&m->lock);
	m->failed.code = 0;
	int r = read_lists(c, l, err);
	pthread_mutex_unlock(&m->lock);
	return r;
}

static int marking_end(struct collector *c, struct err *err)
{
	struct marking *m = c->sd->marking;
	pthread_mutex_lock(&m->lock);
	while (m->going)
		pthread_cond_wait(&m->moved, &m->lock);
	free(m->turns);
	m->turns = NULL;
	m->n = 0;
	m->c = NULL;
	int r = m->failed.code < 0 ? err_set(err, m->failed.code, "gc: %s", m->failed.text) : 0;
	pthread_mutex_unlock(&m->lock);
	return r;
}

static bool asked(void *ctx, uint64_t done, uint64_t total)
{
	struct collector *c = ctx;
	progress_tell(c->progress, done, total, total ? "packs" : "saves",
		      total ? "rewrite" : "wait for saves under way");
	return progress_cancelled(c->progress);
}

static int mark(void *ctx, struct store_gc *gc, struct err *err)
{
	struct collector *c = ctx;
	struct lists l = { 0 };
	c->gc = gc;
	store_gc_ask(gc, asked, c);
	images_forget(c->sd->images); /* what is named from here on is recent */
	int r = marking_begin(c, &l, err);
	c->total = l.nsnaps + l.nwss;
	for (size_t i = 0; i < l.nsnaps && r >= 0; i++)
		r = mark_snapshot(c, &l.snaps[i], err);
	for (size_t i = 0; i < l.nwss && r >= 0; i++)
		r = mark_workspace(c, &l.wss[i], err);
	if (r >= 0)
		r = mark_all_remembered(c, err);
	int end = marking_end(c, r < 0 ? NULL : err);
	lists_done(&l);
	return r < 0 ? r : end;
}

/* ---- images ---- */

static int delete_images(struct collector *c, uint64_t *deleted, uint64_t *bytes)
{
	struct snapd *sd = c->sd;
	char path[PATH_SIZE];
	(void)snprintf(path, sizeof(path), "%s/images", sd->root);
	if (c->images.n)
		qsort(c->images.list, c->images.n, sizeof(struct digest), compare_digests);
	auto_dir *d = opendir(path);
	if (!d)
		return -errno;
	if (!images_delete_begin(sd->images))
		return 0; /* one is being made: the next gc looks again */
	const struct dirent *e;
	while ((e = readdir(d))) {
		char hex[DIGEST_HEX + 1];
		struct digest name;
		struct stat st;
		if (strlen(e->d_name) != DIGEST_HEX + 4 ||
		    strcmp(e->d_name + DIGEST_HEX, ".img") != 0)
			continue;
		memcpy(hex, e->d_name, DIGEST_HEX);
		hex[DIGEST_HEX] = '\0';
		if (digest_parse(&name, hex) < 0 || set_has(&c->images, &name) ||
		    images_is_recent(sd->images, &name) ||
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (unlinkat(dirfd(d), e->d_name, 0) < 0) {
			log_warn("gc: remove images/%s: %s", e->d_name, strerrordesc_np(errno));
			continue;
		}
		++*deleted;
		*bytes += (uint64_t)st.st_blocks * 512;
	}
	images_delete_end(sd->images);
	return 0;
}

/* ---- the job ---- */

struct collected {
	struct store_gc_stats st;
	uint64_t images, bytes, held;
};

static int collect(struct snapd *sd, struct progress *p, struct collected *out, struct err *err)
{
	struct collector c = { .sd = sd, .progress = p };
	*out = (struct collected){ 0 };
	pthread_mutex_init(&c.lock, NULL);
	layercache_options(sd->layers, &c.opt);
	progress_tell(p, 0, 0, "snapshots", "look for what is alive");
	int r = store_gc(sd->store, mark, &c, &out->st, err);
	if (r >= 0) {
		r = delete_images(&c, &out->images, &out->bytes);
		if (r < 0)
			(void)err_sys(err, r, "list %s/images", sd->root);
	}
	free(c.images.list);
	pthread_mutex_destroy(&c.lock);
	out->held = c.held;
	return r;
}

int api_gc_now(struct snapd *sd, struct progress *p, json_t **result, struct err *err)
{
	struct collected got;
	if (pthread_mutex_trylock(&sd->gc) != 0)
		return err_set(err, -EBUSY, "a gc or fsck runs already");
	int r = collect(sd, p, &got, err);
	/* First as much as marking takes: of what a gc that finds nothing gives back, others may
	 * have made use before it is kept again, and then the next one needs the rest. */
	for (off_t most = STATE_SPARE_FIRST; r == -ENOSPC && state_spare_use(sd->root, most);
	     most = STATE_SPARE_BYTES)
		r = collect(sd, p, &got, err);
	state_spare_keep(sd->root);
	leftovers_sweep_old(sd->root);
	if (r >= 0)
		tidier_note(sd, &got.held);
	pthread_mutex_unlock(&sd->gc);
	if (r < 0)
		return snapd_inner(r);
	*result = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "objects_live",
			    (json_int_t)got.st.objects_live, "objects_dead",
			    (json_int_t)got.st.objects_dead, "bytes_freed",
			    (json_int_t)(got.st.bytes_freed + got.bytes), "packs_rewritten",
			    (json_int_t)got.st.packs_rewritten, "packs_deleted",
			    (json_int_t)got.st.packs_deleted, "images_deleted",
			    (json_int_t)got.images);
	return *result ? 0 : err_no_memory(err);
}

static int gc_run(void *task, struct progress *p, unsigned *status, json_t **result,
		  struct err *err)
{
	return api_gc_now(task, p, result, err);
}

static json_t *gc_again(void *task)
{
	return json_pack("{s:s}", "call", "gc");
}

int api_gc(struct request *rq, struct reply *rp, struct err *err)
{
	rp->job = gc_run;
	rp->again = gc_again;
	rp->task = rq->ctx;
	return 0;
}
