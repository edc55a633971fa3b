#include "fs/store/cache.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include "fs/base/buf.h"
#include "fs/base/clock.h"

enum {
	SHARDS_MAX = 16,
	SHARD_BYTES_MIN = 4 * STORE_OBJECT_MAX, /* so that a few of the largest fit */
	BUCKETS_MIN = 64,
};

struct cache_blob {
	struct blob blob; /* what users see; first, so that it can be given back */
	atomic_uint uses; /* one of them is the cache's while it is in */
	struct digest digest;
	uint64_t used_ms; /* when it was last asked for */
	struct cache_blob *chain, *newer, *older;
	uint8_t data[];
};
_Static_assert(offsetof(struct cache_blob, blob) == 0, "a blob leads to its count");

struct cache_shard {
	pthread_mutex_t lock;
	struct cache_blob **buckets;
	size_t nbuckets, count; /* a power of two */
	size_t bytes;
	struct cache_blob *newest, *oldest;
};

static size_t cost(const struct cache_blob *b)
{
	return sizeof(*b) + b->blob.len;
}

/* By the last bytes of the digest: addresses of git objects begin alike. */
static struct cache_shard *shard_of(struct cache *c, const struct digest *d)
{
	return &c->shards[d->b[31] % c->nshards];
}

static struct cache_blob **bucket_of(struct cache_shard *s, const struct digest *d)
{
	return &s->buckets[le_get64(d->b + 16) & (s->nbuckets - 1)];
}

int cache_init(struct cache *c, size_t bytes)
{
	size_t n = bytes / SHARD_BYTES_MIN;
	n = n < 1 ? 1 : n > SHARDS_MAX ? SHARDS_MAX : n;
	struct cache_shard *shards = calloc(n, sizeof(*shards));
	if (!shards)
		return -ENOMEM;
	*c = (struct cache){ .shards = shards, .nshards = n, .shard_bytes = bytes / n };
	for (size_t i = 0; i < n; i++) {
		(void)pthread_mutex_init(&shards[i].lock, NULL);
		shards[i].nbuckets = BUCKETS_MIN;
		shards[i].buckets = calloc(BUCKETS_MIN, sizeof(*shards[i].buckets));
		if (!shards[i].buckets) {
			c->nshards = i + 1;
			cache_done(c);
			return -ENOMEM;
		}
	}
	return 0;
}

void cache_done(struct cache *c)
{
	if (!c->shards)
		return;
	for (size_t i = 0; i < c->nshards; i++)
		if (!c->shards[i].buckets)
			c->shards[i].nbuckets = 0;
	cache_trim(c, 0);
	for (size_t i = 0; i < c->nshards; i++) {
		free(c->shards[i].buckets);
		(void)pthread_mutex_destroy(&c->shards[i].lock);
	}
	free(c->shards);
	*c = (struct cache){ 0 };
}

struct cache_blob *cache_blob_new(const struct digest *d, size_t len, uint8_t **data)
{
	struct cache_blob *b = malloc(sizeof(*b) + len);
	if (!b)
		return NULL;
	*b = (struct cache_blob){ .blob = { b->data, len }, .digest = *d };
	atomic_init(&b->uses, 1);
	*data = b->data;
	return b;
}

const struct blob *cache_blob(struct cache_blob *b)
{
	return &b->blob;
}

static void blob_unuse(struct cache_blob *b)
{
	if (atomic_fetch_sub_explicit(&b->uses, 1, memory_order_acq_rel) == 1)
		free(b);
}

void blob_put(const struct blob *b)
{
	if (b)
		blob_unuse((struct cache_blob *)(uintptr_t)b);
}

static void lru_remove(struct cache_shard *s, struct cache_blob *b)
{
	*(b->newer ? &b->newer->older : &s->newest) = b->older;
	*(b->older ? &b->older->newer : &s->oldest) = b->newer;
}

static void lru_push(struct cache_shard *s, struct cache_blob *b)
{
	b->newer = NULL;
	b->older = s->newest;
	*(s->newest ? &s->newest->newer : &s->oldest) = b;
	s->newest = b;
}

/* Takes the oldest out; the shard is locked and not empty. */
static void evict(struct cache_shard *s)
{
	struct cache_blob *b = s->oldest, **p = bucket_of(s, &b->digest);
	while (*p != b)
		p = &(*p)->chain;
	*p = b->chain;
	lru_remove(s, b);
	s->bytes -= cost(b);
	s->count--;
	blob_unuse(b);
}

/* Doubles the table; where there is no memory the chains just get longer. */
static void grow(struct cache_shard *s)
{
	size_t n = s->nbuckets * 2, old = s->nbuckets;
	struct cache_blob **buckets = calloc(n, sizeof(*buckets)), **was = s->buckets;
	if (!buckets)
		return;
	s->buckets = buckets;
	s->nbuckets = n;
	for (size_t i = 0; i < old; i++)
		for (struct cache_blob *b = was[i], *next; b; b = next) {
			next = b->chain;
			struct cache_blob **p = bucket_of(s, &b->digest);
			b->chain = *p;
			*p = b;
		}
	free(was);
}

static struct cache_blob *find(struct cache_shard *s, const struct digest *d)
{
	struct cache_blob *b = *bucket_of(s, d);
	while (b && !digest_equal(&b->digest, d))
		b = b->chain;
	return b;
}

/* A use for the caller; the shard is locked. */
static const struct blob *touch(struct cache_shard *s, struct cache_blob *b)
{
	atomic_fetch_add_explicit(&b->uses, 1, memory_order_relaxed);
	b->used_ms = clock_ms();
	if (s->newest != b) {
		lru_remove(s, b);
		lru_push(s, b);
	}
	return &b->blob;
}

const struct blob *cache_get(struct cache *c, const struct digest *d)
{
	struct cache_shard *s = shard_of(c, d);
	(void)pthread_mutex_lock(&s->lock);
	struct cache_blob *b = find(s, d);
	const struct blob *found = b ? touch(s, b) : NULL;
	(void)pthread_mutex_unlock(&s->lock);
	return found;
}

const struct blob *cache_add(struct cache *c, struct cache_blob *b)
{
	if (cost(b) > c->shard_bytes)
		return &b->blob;
	struct cache_shard *s = shard_of(c, &b->digest);
	(void)pthread_mutex_lock(&s->lock);
	struct cache_blob *there = find(s, &b->digest);
	if (there) {
		const struct blob *found = touch(s, there);
		(void)pthread_mutex_unlock(&s->lock);
		blob_unuse(b);
		return found;
	}
	while (s->bytes + cost(b) > c->shard_bytes)
		evict(s);
	if (s->count >= s->nbuckets)
		grow(s);
	struct cache_blob **p = bucket_of(s, &b->digest);
	b->chain = *p;
	*p = b;
	lru_push(s, b);
	b->used_ms = clock_ms();
	s->bytes += cost(b);
	s->count++;
	atomic_fetch_add_explicit(&b->uses, 1, memory_order_relaxed);
	(void)pthread_mutex_unlock(&s->lock);
	return &b->blob;
}

void cache_trim(struct cache *c, uint64_t idle_ms)
{
	uint64_t now = clock_ms();
	for (size_t i = 0; i < c->nshards; i++) {
		struct cache_shard *s = &c->shards[i];
		(void)pthread_mutex_lock(&s->lock);
		while (s->oldest && (idle_ms == 0 || now - s->oldest->used_ms > idle_ms))
			evict(s);
		(void)pthread_mutex_unlock(&s->lock);
	}
}

uint64_t cache_bytes(struct cache *c)
{
	uint64_t n = 0;
	for (size_t i = 0; i < c->nshards; i++) {
		(void)pthread_mutex_lock(&c->shards[i].lock);
		n += c->shards[i].bytes;
		(void)pthread_mutex_unlock(&c->shards[i].lock);
	}
	return n;
}
