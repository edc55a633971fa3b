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
#include "fs/base/bloom.h"
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

/* What images are remembered in: a false match only keeps one that nothing needs, with a million of
 * them one of a thousand. */
enum { IMAGES_BYTES = 2 << 20 };

struct collector {
	struct snapd *sd;
	struct progress *progress;
	struct store_gc *gc;
	struct view_options opt;
	struct bloom *images;
	uint64_t done, total;
	_Atomic uint64_t held; /* bytes of what was marked, as often as it was */
};

/* A snapshot or workspace as it is when the marking begins. */
struct tree {
	char id[ID_SIZE];
	struct digest manifest; /* of a snapshot */
	struct stack checkout;  /* which it began with, for diff and commit; all zero: none */
	bool removed;
	/* Whether a workspace's tree, as it was then, is marked, or is being so by whoever lets it
	 * go. */
	enum { TREE_AHEAD, TREE_GOING, TREE_OVER } at;
};

struct trees {
	struct tree *list; /* in the order of ids */
	size_t n, cap;
};

struct marking {
	pthread_mutex_t lock; /* never held while something is marked */
	pthread_cond_t moved;
	struct collector *c; /* NULL: nobody marks */
	struct trees workspaces;
	unsigned going; /* of them are TREE_GOING */
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

/* ---- marking ---- */

static int mark_object(void *ctx, const struct digest *d)
{
	struct collector *c = ctx;
	uint32_t size;
	store_gc_mark(c->gc, d, &size);
	c->held += size;
	return progress_cancelled(c->progress) ? -ECANCELED : 0;
}

static int mark_image(void *ctx, const struct digest *name)
{
	struct collector *c = ctx;
	bloom_add(c->images, name);
	return 0;
}

static int mark_stack(struct collector *c, const struct stack *s, struct err *err)
{
	struct reach_sink sink = { .object = mark_object, .image = mark_image, .ctx = c };
	return stack_reach(s, &c->opt, &sink, err);
}

static int mark_checkout(struct collector *c, const struct tree *t, struct err *err)
{
	return digest_is_zero(&t->checkout.image) && t->checkout.nlayers == 0
		       ? 0
		       : mark_stack(c, &t->checkout, err);
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
	store_gc_mark(c->gc, manifest, NULL);
	int r = manifest_get(c->sd->store, manifest, &stack, err);
	return r < 0 ? r : mark_stack(c, &stack, err);
}

/* A snapshot that can't be read in part can't be marked whole: better no collection than
 * one that takes what could be repaired. */
static int mark_snapshot(struct collector *c, const struct tree *t, struct err *err)
{
	auto_snap_row recorded = { 0 };
	int r = mark_manifest(c, &t->manifest, err);
	/* A kill between record and row leaves two manifests of one tree: both stay. */
	if (r >= 0 && records_snap_read(c->sd->records, t->id, &recorded, NULL) >= 0 &&
	    !digest_equal(&recorded.manifest, &t->manifest))
		r = mark_manifest(c, &recorded.manifest, err);
	if (r >= 0)
		r = mark_checkout(c, t, err);
	progress_tell(c->progress, ++c->done, c->total, "snapshots", "mark");
	return r < 0 ? err_prefix(err, r, "gc: snapshot %s", t->id) : 0;
}

static int compare_id(const void *id, const void *tree)
{
	return strcmp(id, ((const struct tree *)tree)->id);
}

/* With the lock; NULL: nobody marks, or it isn't listed. */
static struct tree *workspace_of(struct marking *m, const char *id)
{
	const struct trees *w = &m->workspaces;
	return m->c && w->n ? bsearch(id, w->list, w->n, sizeof(*w->list), compare_id) : NULL;
}

/* 1: it is to be marked, which turn_end ends. */
static bool turn_begin(struct marking *m, const char *id)
{
	struct tree *t;
	pthread_mutex_lock(&m->lock);
	while ((t = workspace_of(m, id)) && t->at == TREE_GOING)
		pthread_cond_wait(&m->moved, &m->lock);
	bool ahead = t && t->at == TREE_AHEAD;
	if (ahead)
		t->at = TREE_GOING;
	m->going += ahead;
	pthread_mutex_unlock(&m->lock);
	return ahead;
}

static void turn_end(struct marking *m, const char *id, const struct err *failed)
{
	pthread_mutex_lock(&m->lock);
	workspace_of(m, id)->at = TREE_OVER; /* it is there: marking_end waits */
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

static void turn_over(struct collector *c, struct tree *t)
{
	struct marking *m = c->sd->marking;
	pthread_mutex_lock(&m->lock);
	if (t->at == TREE_AHEAD)
		t->at = TREE_OVER;
	pthread_mutex_unlock(&m->lock);
}

static int mark_workspace(struct collector *c, struct tree *t, struct err *err)
{
	auto_stack stack = { 0 };
	auto_lease lease = { 0 };
	auto_ws_row now = { 0 };
	bool again;
	int r = mark_checkout(c, t, err); /* snapshots have it, too */
	if (r >= 0)
		r = lease_take(&lease, c->sd->leases, t->id, LEASE_SHARED, "gc", LEASE_WAIT_MS,
			       err);
	if (r >= 0)
		r = flattener_seal(c->sd->flattener, &lease, "gc", &stack, &again, err);
	if (r >= 0)
		r = mark_stack(c, &stack, err);
	if (r >= 0)
		turn_over(c, t);
	if (r < 0 && catalog_ws_get_any(c->sd->catalog, t->id, &now, NULL) == -ENOENT)
		return 0; /* removed meanwhile */
	if (t->removed) /* nobody else uses it: it needs no memory */
		(void)fs_close(c->sd->fs, t->id, NULL);
	progress_tell(c->progress, ++c->done, c->total, "workspaces", "mark");
	return r < 0 ? err_prefix(err, r, "gc: workspace %s", now.name[0] ? now.name : t->id) : 0;
}

static int list_tree(void *ctx, const struct tree_row *row, struct err *err)
{
	struct trees *t = ctx;
	auto_gitlink link = { 0 };
	int r = row->git ? gitlink_parse(&link, row->git, err) : 0;
	if (r < 0)
		return err_prefix(err, r, "gc: %s", row->id);
	if (array_grow(&t->list, t->n, &t->cap) < 0)
		return err_no_memory(err);
	struct tree *add = &t->list[t->n++];
	*add = (struct tree){ .manifest = row->manifest, .removed = row->removed };
	memcpy(add->id, row->id, sizeof(add->id));
	add->checkout = link.stack;
	link.stack = (struct stack){ 0 };
	return 0;
}

static void trees_done(struct trees *t)
{
	for (size_t i = 0; i < t->n; i++)
		stack_done(&t->list[i].checkout);
	free(t->list);
	*t = (struct trees){ 0 };
}

/* All is listed before a tree can go. */
static int marking_begin(struct collector *c, struct trees *snaps, struct err *err)
{
	struct marking *m = c->sd->marking;
	pthread_mutex_lock(&m->lock);
	m->failed.code = 0;
	int r = catalog_trees(c->sd->catalog, true, list_tree, snaps, err);
	if (r >= 0)
		r = catalog_trees(c->sd->catalog, false, list_tree, &m->workspaces, err);
	if (r >= 0)
		m->c = c;
	pthread_mutex_unlock(&m->lock);
	return r;
}

static int marking_end(struct collector *c, struct err *err)
{
	struct marking *m = c->sd->marking;
	pthread_mutex_lock(&m->lock);
	while (m->going)
		pthread_cond_wait(&m->moved, &m->lock);
	trees_done(&m->workspaces);
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
	struct trees snaps = { 0 };
	const struct trees *wss = &c->sd->marking->workspaces; /* the list stays until the end */
	c->gc = gc;
	store_gc_ask(gc, asked, c);
	images_forget(c->sd->images); /* what is named from here on is recent */
	int r = marking_begin(c, &snaps, err);
	c->done = 0;
	c->total = snaps.n + wss->n;
	for (size_t i = 0; i < snaps.n && r >= 0; i++)
		r = mark_snapshot(c, &snaps.list[i], err);
	for (size_t i = 0; i < wss->n && r >= 0; i++)
		r = mark_workspace(c, &wss->list[i], err);
	if (r >= 0)
		r = mark_all_remembered(c, err);
	int end = marking_end(c, r < 0 ? NULL : err);
	trees_done(&snaps);
	return r < 0 ? r : end;
}

/* ---- images ---- */

static int delete_images(struct collector *c, uint64_t *deleted, uint64_t *bytes)
{
	struct snapd *sd = c->sd;
	char path[PATH_SIZE];
	(void)snprintf(path, sizeof(path), "%s/images", sd->root);
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
		if (digest_parse(&name, hex) < 0 || bloom_has(c->images, &name) ||
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
	c.images = bloom_new(IMAGES_BYTES, IMAGES_BYTES);
	if (!c.images)
		return err_no_memory(err);
	layercache_options(sd->layers, &c.opt);
	progress_tell(p, 0, 0, "snapshots", "look for what is alive");
	int r = store_gc(sd->store, mark, &c, &out->st, err);
	if (r >= 0) {
		r = delete_images(&c, &out->images, &out->bytes);
		if (r < 0)
			(void)err_sys(err, r, "list %s/images", sd->root);
	}
	bloom_free(c.images);
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
