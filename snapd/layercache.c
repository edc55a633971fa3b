#include "snapd/layercache.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/clock.h"

enum { IMAGES = 8 }; /* maps, which cost address space and checked-block bits */

struct entry {
	struct entry *next;
	struct layer_id id;
	bool local;
	struct layer *layer; /* NULL while somebody loads it */
	size_t memory;
	uint64_t used_ms;
};

struct layercache {
	char *root, *images_dir;
	struct store *store;
	pthread_mutex_t lock;
	pthread_cond_t loaded;
	struct entry *entries; /* tens of them: stacks are kept short by flattening */
	size_t memory;
	struct {
		struct digest name;
		struct image *image;
		uint64_t used_ms;
	} images[IMAGES];
};

int layercache_new(struct layercache **out, const char *root, struct store *store, struct err *err)
{
	struct layercache *lc = calloc(1, sizeof(*lc));
	if (!lc || !(lc->root = strdup(root)) || asprintf(&lc->images_dir, "%s/images", root) < 0) {
		if (lc)
			free(lc->root);
		free(lc);
		return err_no_memory(err);
	}
	lc->store = store;
	pthread_mutex_init(&lc->lock, NULL);
	pthread_cond_init(&lc->loaded, NULL);
	*out = lc;
	return 0;
}

void layercache_free(struct layercache *lc)
{
	if (!lc)
		return;
	layercache_trim(lc, 0);
	pthread_cond_destroy(&lc->loaded);
	pthread_mutex_destroy(&lc->lock);
	free(lc->images_dir);
	free(lc->root);
	free(lc);
}

/* ---- layers ---- */

static struct entry *lookup(struct layercache *lc, const struct stack_layer *desc)
{
	for (struct entry *e = lc->entries; e; e = e->next)
		if (e->local == desc->local && memcmp(&e->id, &desc->id, sizeof(e->id)) == 0)
			return e;
	return NULL;
}

static void drop(struct layercache *lc, struct entry *e)
{
	for (struct entry **p = &lc->entries; *p; p = &(*p)->next) {
		if (*p == e) {
			*p = e->next;
			break;
		}
	}
	lc->memory -= e->memory;
	layer_unref(e->layer);
	free(e);
}

/* Oldest first, until the rest fits. */
static void shrink(struct layercache *lc)
{
	while (lc->memory > LAYERCACHE_BYTES) {
		struct entry *oldest = NULL;
		for (struct entry *e = lc->entries; e; e = e->next)
			if (e->layer && (!oldest || e->used_ms < oldest->used_ms))
				oldest = e;
		if (!oldest)
			return;
		drop(lc, oldest);
	}
}

static int load(struct layercache *lc, const struct stack_layer *desc, struct layer **out)
{
	struct view_options opt;
	layercache_options(lc, &opt);
	if (!desc->local)
		return layer_from_delta(out, &opt.layer, desc, NULL);
	int r = layer_open(out, &opt.layer, &desc->id, false, NULL);
	if (r >= 0 && layer_lost(*out)) {
		layer_unref(*out);
		r = -EBADMSG;
	}
	return r;
}

/* A new reference; any failure is -ENOENT, since who asked then loads it and says why. */
static int find_layer(void *ctx, const struct stack_layer *desc, struct layer **out)
{
	struct layercache *lc = ctx;
	struct layer *l = NULL;
	struct entry *e;
	pthread_mutex_lock(&lc->lock);
	while ((e = lookup(lc, desc)) && !e->layer)
		pthread_cond_wait(&lc->loaded, &lc->lock);
	if (e) {
		e->used_ms = clock_ms();
		*out = layer_ref(e->layer);
		pthread_mutex_unlock(&lc->lock);
		return 0;
	}
	e = calloc(1, sizeof(*e));
	if (e) {
		e->id = desc->id;
		e->local = desc->local;
		e->next = lc->entries;
		lc->entries = e;
	}
	pthread_mutex_unlock(&lc->lock);
	if (!e)
		return -ENOENT;
	int r = load(lc, desc, &l);
	pthread_mutex_lock(&lc->lock);
	if (r >= 0) {
		e->layer = l;
		e->memory = layer_memory(l);
		e->used_ms = clock_ms();
		lc->memory += e->memory;
		*out = layer_ref(l);
		shrink(lc);
	} else {
		drop(lc, e);
	}
	pthread_cond_broadcast(&lc->loaded);
	pthread_mutex_unlock(&lc->lock);
	return r < 0 ? -ENOENT : 0;
}

/* For extents of a layer that point into a lower one. Layers point down only, so this ends. */
static int resolve_layer(void *ctx, const struct layer_id *id, struct layer **out, struct err *err)
{
	struct layercache *lc = ctx;
	struct stack_layer desc = { .id = *id, .local = true };
	if (find_layer(lc, &desc, out) == 0)
		return 0;
	struct view_options opt;
	layercache_options(lc, &opt);
	return layer_open(out, &opt.layer, id, false, err);
}

/* ---- images ---- */

static int find_image(void *ctx, const struct digest *name, struct image **out)
{
	struct layercache *lc = ctx;
	struct image *im = NULL;
	int slot = 0;
	pthread_mutex_lock(&lc->lock);
	for (int i = 0; i < IMAGES; i++) {
		if (lc->images[i].image && digest_equal(&lc->images[i].name, name)) {
			lc->images[i].used_ms = clock_ms();
			im = image_ref(lc->images[i].image);
		} else if (!lc->images[i].image ||
			   (lc->images[slot].image &&
			    lc->images[i].used_ms < lc->images[slot].used_ms)) {
			slot = i;
		}
	}
	if (!im && image_open(&im, NULL, lc->images_dir, name, NULL) == 0) {
		image_unref(lc->images[slot].image);
		lc->images[slot].image = image_ref(im);
		lc->images[slot].name = *name;
		lc->images[slot].used_ms = clock_ms();
	}
	pthread_mutex_unlock(&lc->lock);
	*out = im;
	return im ? 0 : -ENOENT;
}

void layercache_options(struct layercache *lc, struct view_options *out)
{
	*out = (struct view_options){
		.layer = { .root = lc->root,
			   .store = lc->store,
			   .resolve = resolve_layer,
			   .resolve_ctx = lc },
		.images = lc->images_dir,
		.find = find_layer,
		.find_image = find_image,
		.find_ctx = lc,
	};
}

/* ---- letting go ---- */

static bool files_are_gone(struct layercache *lc, const struct entry *e)
{
	char path[4096], hex[2 * LAYER_ID_BYTES + 1];
	if (!e->local)
		return false;
	hex_encode(hex, e->id.b, sizeof(e->id.b));
	(void)snprintf(path, sizeof(path), "%s/layers/%s", lc->root, hex);
	return access(path, F_OK) < 0 && errno == ENOENT;
}

void layercache_trim(struct layercache *lc, uint64_t idle_ms)
{
	uint64_t now = clock_ms();
	pthread_mutex_lock(&lc->lock);
	for (struct entry *e = lc->entries, *next; e; e = next) {
		next = e->next;
		if (e->layer && (now - e->used_ms >= idle_ms || files_are_gone(lc, e)))
			drop(lc, e);
	}
	for (int i = 0; i < IMAGES; i++) {
		if (!lc->images[i].image || now - lc->images[i].used_ms < idle_ms)
			continue;
		image_unref(lc->images[i].image);
		lc->images[i].image = NULL;
	}
	pthread_mutex_unlock(&lc->lock);
}

uint64_t layercache_memory(struct layercache *lc)
{
	pthread_mutex_lock(&lc->lock);
	uint64_t n = lc->memory;
	pthread_mutex_unlock(&lc->lock);
	return n;
}
