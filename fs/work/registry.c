#include "fs/work/registry.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/u64map.h"

/* Invariants, under the lock:
 * 1. An entry is there while it is named, used, loaded or being loaded. One that stops being named
 *    and used goes at once, loaded or not: its files are gone from the folder, but what is open
 *    holds descriptors and the disk's blocks.
 * 2. sealed_names <= names.
 * 3. What is loaded is sealed.
 * 4. With `spare`, no entry goes: names that weren't counted hold it, and its dependencies. */
struct entry {
	struct entry *next; /* of the same key */
	struct layer_id id;
	struct layer *layer; /* a reference; NULL: not loaded */
	bool loading, local;
	bool durable;
	bool ours;      /* made by this process: what it hasn't named, nothing does */
	uint32_t uses;  /* open workspaces that show it */
	uint32_t names; /* files on disk that name it */
	uint32_t sealed_names;
	struct layer_id *deps;
	uint32_t ndeps;
};

enum { IDLE_BATCH = 64 }; /* layers that are unloaded between two waits for the lock */

struct image_entry {
	struct image_entry *next;
	struct digest name;
	struct image *image; /* a reference */
	uint32_t uses;
};

struct registry {
	struct layer_options opt;
	const char *images;
	pthread_mutex_t lock;
	pthread_cond_t loaded;
	bool spare;                     /* the counts of names are too low */
	struct u64map map;              /* key_of(id) -> struct entry chain */
	struct image_entry *image_list; /* few: one for each snapshot in use */
};

/* A load under way in this thread, so that damage that leads in a circle is found. */
struct load {
	struct registry *r;
	const struct layer_id *id;
	const struct load *outer;
};

static bool id_equal(const struct layer_id *a, const struct layer_id *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static uint64_t key_of(const struct layer_id *id)
{
	uint64_t k = le_get64(id->b); /* random, or part of a hash */
	return k ? k : 1;
}

static struct entry *entry_find(const struct registry *r, const struct layer_id *id)
{
	struct entry *e = u64map_get(&r->map, key_of(id));
	while (e && !id_equal(&e->id, id))
		e = e->next;
	return e;
}

/* Found or made; NULL without memory. */
static struct entry *entry_get(struct registry *r, const struct layer_id *id, bool local)
{
	struct entry *e = entry_find(r, id);
	if (e)
		return e;
	e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	e->id = *id;
	e->local = local;
	e->next = u64map_get(&r->map, key_of(id));
	if (u64map_put(&r->map, key_of(id), e) < 0) {
		free(e);
		return NULL;
	}
	return e;
}

/* Takes the entry out when nothing holds it (invariant 1), and puts it on *dead, which the caller
 * frees without the lock: the last reference closes a layer's files, and that takes the disk's
 * time where they are removed already. */
static void entry_drop(struct registry *r, struct entry *e, struct entry **dead)
{
	if (e->names || e->uses || e->loading || r->spare)
		return;
	struct entry *head = u64map_get(&r->map, key_of(&e->id));
	if (head == e) {
		u64map_del(&r->map, key_of(&e->id));
		/* The key has just been there, so there is room for it. */
		if (e->next && u64map_put(&r->map, key_of(&e->id), e->next) < 0)
			abort();
	} else {
		while (head->next != e)
			head = head->next;
		head->next = e->next;
	}
	e->next = *dead;
	*dead = e;
}

static void bury(struct entry *dead)
{
	for (struct entry *next; dead; dead = next) {
		next = dead->next;
		layer_unref(dead->layer);
		free(dead->deps);
		free(dead);
	}
}

/* ---- life ---- */

int registry_new(struct registry **out, const struct layer_options *opt, const char *images,
		 struct err *err)
{
	struct registry *r = calloc(1, sizeof(*r));
	if (!r)
		return err_set(err, -ENOMEM, "no memory for the layers' registry");
	r->opt = *opt;
	r->images = images;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->loaded, NULL);
	*out = r;
	return 0;
}

void registry_free(struct registry *r)
{
	if (!r)
		return;
	size_t i = 0;
	struct u64map_slot *s;
	while ((s = u64map_next(&r->map, &i))) {
		for (struct entry *e = s->value, *next; e; e = next) {
			next = e->next;
			layer_unref(e->layer);
			free(e->deps);
			free(e);
		}
	}
	u64map_done(&r->map);
	for (struct image_entry *e = r->image_list, *next; e; e = next) {
		next = e->next;
		image_unref(e->image);
		free(e);
	}
	pthread_cond_destroy(&r->loaded);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

/* ---- loading ---- */

static int depend(struct registry *r, const struct layer_id *from, const struct layer_id *to,
		  struct entry **dead)
{
	struct entry *e = entry_get(r, from, true);
	if (!e)
		return -ENOMEM;
	for (uint32_t i = 0; i < e->ndeps; i++)
		if (id_equal(&e->deps[i], to))
			return 0;
	struct layer_id *more = realloc(e->deps, (e->ndeps + 1) * sizeof(*more));
	if (!more) {
		if (!e->layer)
			entry_drop(r, e, dead);
		return -ENOMEM;
	}
	e->deps = more;
	e->deps[e->ndeps++] = *to;
	return 0;
}

int registry_depend(struct registry *r, const struct layer_id *from, const struct layer_id *to)
{
	if (id_equal(from, to))
		return 0;
	struct entry *dead = NULL;
	pthread_mutex_lock(&r->lock);
	int n = depend(r, from, to, &dead);
	pthread_mutex_unlock(&r->lock);
	bury(dead);
	return n;
}

static int load_layer(struct registry *r, const struct stack_layer *desc, const struct load *outer,
		      struct layer **out, struct err *err);

/* layer_options.resolve: an extent of the layer that ctx loads leads to another one. */
static int resolve(void *ctx, const struct layer_id *id, struct layer **out, struct err *err)
{
	const struct load *l = ctx;
	for (const struct load *o = l; o; o = o->outer)
		if (id_equal(o->id, id))
			return err_set(err, -EBADMSG, "layers refer to each other in a circle");
	struct stack_layer desc = { .id = *id, .local = true };
	int n = load_layer(l->r, &desc, l, out, err);
	if (n < 0)
		return n;
	n = registry_depend(l->r, l->id, id);
	if (n < 0) {
		layer_unref(*out);
		return err_set(err, n, "no memory to load a layer");
	}
	return 0;
}

static void options_for(const struct load *l, struct layer_options *out)
{
	*out = l->r->opt;
	out->resolve = resolve;
	out->resolve_ctx = (void *)l;
}

static int load_layer(struct registry *r, const struct stack_layer *desc, const struct load *outer,
		      struct layer **out, struct err *err)
{
	pthread_mutex_lock(&r->lock);
	struct entry *e;
	while ((e = entry_get(r, &desc->id, desc->local)) && e->loading)
		pthread_cond_wait(&r->loaded, &r->lock);
	if (!e || e->layer) {
		if (e)
			*out = layer_ref(e->layer);
		pthread_mutex_unlock(&r->lock);
		return e ? 0 : err_set(err, -ENOMEM, "no memory to load a layer");
	}
	e->loading = true;
	pthread_mutex_unlock(&r->lock);

	struct load l = { .r = r, .id = &desc->id, .outer = outer };
	struct layer_options opt;
	options_for(&l, &opt);
	struct layer *layer = NULL;
	int n = desc->local ? layer_open(&layer, &opt, &desc->id, false, err)
			    : layer_from_delta(&layer, &opt, desc, err);

	struct entry *dead = NULL;
	pthread_mutex_lock(&r->lock);
	e->loading = false;
	if (n == 0) {
		e->layer = layer;
		*out = layer_ref(layer);
	} else {
		entry_drop(r, e, &dead);
	}
	pthread_cond_broadcast(&r->loaded);
	pthread_mutex_unlock(&r->lock);
	bury(dead);
	return n;
}

int registry_active(struct registry *r, const struct layer_id *id, bool writable,
		    struct layer **out, struct err *err)
{
	struct load l = { .r = r, .id = id };
	struct layer_options opt;
	options_for(&l, &opt);
	return layer_open(out, &opt, id, writable, err);
}

int registry_mend(struct registry *r, const struct layer_id *id, struct layer_fault *was,
		  struct err *err)
{
	if (!layer_is_marked(r->opt.io, r->opt.root, id, was))
		return 0;
	pthread_mutex_lock(&r->lock);
	struct entry *e;
	while ((e = entry_get(r, id, true)) && e->loading)
		pthread_cond_wait(&r->loaded, &r->lock);
	if (!e || e->uses > 0) {
		pthread_mutex_unlock(&r->lock);
		return e ? 0 : err_set(err, -ENOMEM, "no memory to load a layer");
	}
	struct layer *idle = e->layer;
	e->layer = NULL;
	e->loading = true; /* nobody loads it as it is meanwhile */
	pthread_mutex_unlock(&r->lock);
	layer_unref(idle);

	struct load l = { .r = r, .id = id };
	struct layer_options opt;
	options_for(&l, &opt);
	int n = layer_mend(&opt, id, was, err);

	struct entry *dead = NULL;
	pthread_mutex_lock(&r->lock);
	e->loading = false;
	entry_drop(r, e, &dead);
	pthread_cond_broadcast(&r->loaded);
	pthread_mutex_unlock(&r->lock);
	bury(dead);
	return n;
}

static int find_layer(void *ctx, const struct stack_layer *desc, struct layer **out)
{
	return load_layer(ctx, desc, NULL, out, NULL);
}

static struct image_entry *image_find(const struct registry *r, const struct digest *name)
{
	struct image_entry *e = r->image_list;
	while (e && !digest_equal(&e->name, name))
		e = e->next;
	return e;
}

static int find_image(void *ctx, const struct digest *name, struct image **out)
{
	struct registry *r = ctx;
	pthread_mutex_lock(&r->lock);
	struct image_entry *e = image_find(r, name);
	if (e)
		*out = image_ref(e->image);
	pthread_mutex_unlock(&r->lock);
	if (e)
		return 0;
	/* Two threads may both open it; the second finds the first one's below. */
	struct image *im = NULL;
	int n = image_open(&im, r->opt.io, r->images, name, NULL);
	if (n < 0)
		return n;
	struct image_entry *fresh = calloc(1, sizeof(*fresh));
	pthread_mutex_lock(&r->lock);
	e = image_find(r, name);
	if (e) {
		image_unref(im);
		im = image_ref(e->image);
	} else if (fresh) {
		*fresh = (struct image_entry){ r->image_list, *name, image_ref(im), 0 };
		r->image_list = fresh;
		fresh = NULL;
	}
	pthread_mutex_unlock(&r->lock);
	free(fresh);
	*out = im; /* not shared when there was no memory for the entry */
	return 0;
}

/* For layers that view_open would open itself; with find_layer it never does, but a caller
 * may open a layer by these options directly. */
static int resolve_any(void *ctx, const struct layer_id *id, struct layer **out, struct err *err)
{
	struct stack_layer desc = { .id = *id, .local = true };
	return load_layer(ctx, &desc, NULL, out, err);
}

void registry_options(struct registry *r, struct view_options *out)
{
	*out = (struct view_options){
		.layer = r->opt,
		.images = r->images,
		.find = find_layer,
		.find_image = find_image,
		.find_ctx = r,
	};
	out->layer.resolve = resolve_any;
	out->layer.resolve_ctx = r;
}

/* ---- use ---- */

static void unuse(struct registry *r, const struct view *v, uint32_t from, uint32_t to,
		  struct entry **dead)
{
	for (uint32_t i = from; i < to; i++) {
		struct entry *e = entry_find(r, layer_id(v->layers[i]));
		assert(e && e->uses > 0);
		e->uses--;
		entry_drop(r, e, dead);
	}
}

int registry_use(struct registry *r, const struct view *v, uint32_t from)
{
	int n = 0;
	struct entry *dead = NULL;
	pthread_mutex_lock(&r->lock);
	uint32_t i = from;
	for (; i < v->nlayers; i++) {
		struct entry *e = entry_get(r, layer_id(v->layers[i]),
					    layer_is_local(v->layers[i]));
		if (!e)
			break;
		e->uses++;
		if (!e->layer && !e->loading)
			e->layer = layer_ref(v->layers[i]);
	}
	if (i < v->nlayers) {
		unuse(r, v, from, i, &dead);
		n = -ENOMEM;
	} else if (v->image) {
		struct image_entry *e = image_find(r, &image_info(v->image)->name);
		if (e)
			e->uses++;
	}
	pthread_mutex_unlock(&r->lock);
	bury(dead);
	return n;
}

void registry_unuse(struct registry *r, const struct view *v, uint32_t from)
{
	struct entry *dead = NULL;
	pthread_mutex_lock(&r->lock);
	unuse(r, v, from, v->nlayers, &dead);
	struct image_entry *e = v->image ? image_find(r, &image_info(v->image)->name) : NULL;
	if (e && e->uses > 0)
		e->uses--;
	pthread_mutex_unlock(&r->lock);
	bury(dead);
}

/* Takes up to n layers out that no open workspace uses; how many. */
static size_t take_idle(struct registry *r, struct layer **out, size_t n, struct entry **dead)
{
	struct entry *nameless[IDLE_BATCH];
	size_t i = 0, did = 0, nnameless = 0;
	struct u64map_slot *s;
	while (did < n && (s = u64map_next(&r->map, &i))) {
		for (struct entry *e = s->value; e && did < n; e = e->next) {
			if (e->uses > 0 || !e->layer)
				continue;
			out[did++] = e->layer;
			e->layer = NULL;
			/* Named ones stay for their names and dependencies. */
			if (!e->names)
				nameless[nnameless++] = e;
		}
	}
	while (nnameless > 0) /* the map may not change while it is walked */
		entry_drop(r, nameless[--nnameless], dead);
	return did;
}

void registry_trim(struct registry *r)
{
	struct layer *idle[IDLE_BATCH];
	struct entry *dead = NULL;
	size_t n;
	do {
		pthread_mutex_lock(&r->lock);
		n = take_idle(r, idle, IDLE_BATCH, &dead);
		pthread_mutex_unlock(&r->lock);
		for (size_t i = 0; i < n; i++)
			layer_unref(idle[i]);
		bury(dead);
		dead = NULL;
	} while (n == IDLE_BATCH);
	pthread_mutex_lock(&r->lock);
	for (struct image_entry **p = &r->image_list; *p;) {
		struct image_entry *e = *p;
		if (e->uses > 0) {
			p = &e->next;
			continue;
		}
		*p = e->next;
		image_unref(e->image);
		free(e);
	}
	pthread_mutex_unlock(&r->lock);
}

/* ---- names on disk ---- */

static void unname(struct registry *r, const struct layer_id *id, bool sealed,
		   struct layer_id *gone, uint32_t *ngone, struct entry **dead)
{
	struct entry *e = entry_find(r, id);
	if (r->spare && (!e || e->names == 0))
		return;
	assert(e && e->names > 0);
	e->names--;
	assert(!sealed || e->sealed_names > 0 || r->spare);
	e->sealed_names -= sealed && e->sealed_names > 0;
	if (e->names == 0 && e->local && !r->spare)
		gone[(*ngone)++] = *id;
	entry_drop(r, e, dead);
}

static int name(struct registry *r, const struct layer_id *id, bool local, bool sealed)
{
	struct entry *e = entry_get(r, id, local);
	if (!e)
		return -ENOMEM;
	e->names++;
	e->sealed_names += sealed;
	return 0;
}

/* The i-th layer that the file names; false behind the last. */
static bool nth_name(const struct ws_file *f, uint32_t i, const struct layer_id **id, bool *local,
		     bool *sealed)
{
	*local = *sealed = true;
	if (i < f->stack.nlayers) {
		*id = &f->stack.layers[i].id;
		*local = f->stack.layers[i].local;
		return true;
	}
	i -= f->stack.nlayers;
	if (i < f->npins) {
		*id = &f->pins[i];
		return true;
	}
	*id = &f->active;
	*sealed = false;
	return i == f->npins;
}

/* Takes back the first n names; the caller removes what comes out in `gone`. */
static uint32_t unname_first(struct registry *r, const struct ws_file *f, uint32_t n,
			     struct layer_id *gone, struct entry **dead)
{
	const struct layer_id *id;
	bool local, sealed;
	uint32_t ngone = 0;
	for (uint32_t i = 0; i < n && nth_name(f, i, &id, &local, &sealed); i++)
		unname(r, id, sealed, gone, &ngone, dead);
	return ngone;
}

int registry_name(struct registry *r, const struct ws_file *f)
{
	const struct layer_id *id;
	bool local, sealed;
	struct layer_id *gone = malloc((f->stack.nlayers + f->npins + 1) * sizeof(*gone));
	if (!gone)
		return -ENOMEM;
	int n = 0;
	struct entry *dead = NULL;
	pthread_mutex_lock(&r->lock);
	for (uint32_t i = 0; nth_name(f, i, &id, &local, &sealed) && n == 0; i++) {
		n = name(r, id, local, sealed);
		if (n < 0) /* what only this call had named is on disk for the caller to remove */
			(void)unname_first(r, f, i, gone, &dead);
	}
	pthread_mutex_unlock(&r->lock);
	bury(dead);
	free(gone);
	return n;
}

void registry_unname(struct registry *r, const struct ws_file *f)
{
	uint32_t total = f->stack.nlayers + f->npins + 1;
	struct layer_id *gone = malloc(total * sizeof(*gone));
	struct layer_id one;
	struct entry *dead = NULL;
	if (!gone) { /* one by one, then */
		const struct layer_id *id;
		bool local, sealed;
		for (uint32_t i = 0; nth_name(f, i, &id, &local, &sealed); i++) {
			uint32_t ngone = 0;
			pthread_mutex_lock(&r->lock);
			unname(r, id, sealed, &one, &ngone, &dead);
			pthread_mutex_unlock(&r->lock);
			bury(dead);
			dead = NULL;
			if (ngone)
				(void)layer_remove(r->opt.io, r->opt.root, &one,
						   NULL); /* as below */
		}
		return;
	}
	pthread_mutex_lock(&r->lock);
	uint32_t ngone = unname_first(r, f, total, gone, &dead);
	pthread_mutex_unlock(&r->lock);
	bury(dead);
	/* What can't be removed now is found by the next sweep. */
	for (uint32_t i = 0; i < ngone; i++)
		(void)layer_remove(r->opt.io, r->opt.root, &gone[i], NULL);
	free(gone);
}

void registry_spare(struct registry *r)
{
	r->spare = true;
}

bool registry_is_named(struct registry *r, const struct layer_id *id)
{
	pthread_mutex_lock(&r->lock);
	const struct entry *e = entry_find(r, id);
	bool named = r->spare || (e && e->names > 0);
	pthread_mutex_unlock(&r->lock);
	return named;
}

void registry_made(struct registry *r, const struct layer_id *id)
{
	pthread_mutex_lock(&r->lock);
	struct entry *e = r->spare ? entry_get(r, id, true) : NULL;
	if (e) /* without memory it counts as one that was found */
		e->ours = true;
	pthread_mutex_unlock(&r->lock);
}

bool registry_is_sealed(struct registry *r, const struct layer_id *id)
{
	pthread_mutex_lock(&r->lock);
	const struct entry *e = entry_find(r, id);
	bool sealed = (e && e->sealed_names > 0) || (r->spare && !(e && e->ours));
	pthread_mutex_unlock(&r->lock);
	return sealed;
}

static bool in_stack(const struct ws_file *f, const struct layer_id *id)
{
	for (uint32_t i = 0; i < f->stack.nlayers; i++)
		if (id_equal(&f->stack.layers[i].id, id))
			return true;
	return id_equal(&f->active, id);
}

/* Pins what that layer depends on. */
static int pin_deps(struct registry *r, struct ws_file *f, const struct layer_id *id)
{
	const struct entry *e = entry_find(r, id);
	int n = 0;
	for (uint32_t k = 0; e && k < e->ndeps && n == 0; k++)
		if (!in_stack(f, &e->deps[k]))
			n = ws_file_pin(f, &e->deps[k]);
	return n;
}

int registry_pin(struct registry *r, struct ws_file *f)
{
	pthread_mutex_lock(&r->lock);
	free(f->pins);
	f->pins = NULL;
	f->npins = 0;
	int n = pin_deps(r, f, &f->active);
	for (uint32_t i = 0; i < f->stack.nlayers && n == 0; i++)
		n = pin_deps(r, f, &f->stack.layers[i].id);
	/* A pinned layer is loaded whole, so what it depends on must be there in its turn. */
	for (uint32_t i = 0; i < f->npins && n == 0; i++) {
		const struct layer_id id = f->pins[i]; /* the array may move */
		n = pin_deps(r, f, &id);
	}
	pthread_mutex_unlock(&r->lock);
	return n;
}

bool registry_is_durable(struct registry *r, const struct layer_id *id)
{
	pthread_mutex_lock(&r->lock);
	const struct entry *e = entry_find(r, id);
	bool durable = e && e->durable;
	pthread_mutex_unlock(&r->lock);
	return durable;
}

void registry_set_durable(struct registry *r, const struct layer_id *id)
{
	pthread_mutex_lock(&r->lock);
	struct entry *e = entry_find(r, id);
	if (e)
		e->durable = true;
	pthread_mutex_unlock(&r->lock);
}
