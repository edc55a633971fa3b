#include "fs/store/gitbase.h"

#include <errno.h>
#include <stdlib.h>
#include "fs/base/clock.h"

enum {
	GITBASE_BUCKETS = 4096, /* a power of two; bases are some 16 KiB, so chains stay short */
	GITBASE_SHARE = 4,      /* the largest that is kept takes a fourth of the room */
};

struct gitbase *gitbase_new(enum git_type type, size_t len)
{
	size_t n;
	if (__builtin_add_overflow(sizeof(struct gitbase), len, &n))
		return NULL;
	struct gitbase *b = malloc(n);
	if (!b)
		return NULL;
	*b = (struct gitbase){ .type = type, .len = len };
	atomic_init(&b->uses, 1);
	return b;
}

void gitbase_put(struct gitbase *b)
{
	if (b && atomic_fetch_sub_explicit(&b->uses, 1, memory_order_acq_rel) == 1)
		free(b);
}

static size_t cost(const struct gitbase *b)
{
	return sizeof(*b) + b->len;
}

static struct gitbase **bucket_of(const struct gitbases *c, uint64_t pack, uint64_t off)
{
	uint64_t h = (off ^ pack << 40) * UINT64_C(0x9e3779b97f4a7c15);
	return &c->buckets[h >> 40 & (GITBASE_BUCKETS - 1)];
}

int gitbases_init(struct gitbases *c, size_t max_bytes)
{
	struct gitbase **buckets = calloc(GITBASE_BUCKETS, sizeof(*buckets));
	if (!buckets)
		return -ENOMEM;
	*c = (struct gitbases){ .buckets = buckets, .max_bytes = max_bytes };
	(void)pthread_mutex_init(&c->lock, NULL);
	return 0;
}

static void unlink_age(struct gitbases *c, struct gitbase *b)
{
	*(b->newer ? &b->newer->older : &c->newest) = b->older;
	*(b->older ? &b->older->newer : &c->oldest) = b->newer;
}

static void push(struct gitbases *c, struct gitbase *b)
{
	b->newer = NULL;
	b->older = c->newest;
	*(c->newest ? &c->newest->newer : &c->oldest) = b;
	c->newest = b;
	b->used_ms = clock_ms();
}

/* Takes the oldest out; locked, and there is one. */
static void evict(struct gitbases *c)
{
	struct gitbase *b = c->oldest, **p = bucket_of(c, b->pack, b->off);
	while (*p != b)
		p = &(*p)->chain;
	*p = b->chain;
	unlink_age(c, b);
	c->bytes -= cost(b);
	gitbase_put(b);
}

void gitbases_done(struct gitbases *c)
{
	if (!c->buckets)
		return;
	while (c->oldest)
		evict(c);
	free(c->buckets);
	(void)pthread_mutex_destroy(&c->lock);
	*c = (struct gitbases){ 0 };
}

static struct gitbase *find(const struct gitbases *c, uint64_t pack, uint64_t off)
{
	struct gitbase *b = *bucket_of(c, pack, off);
	while (b && (b->off != off || b->pack != pack))
		b = b->chain;
	return b;
}

struct gitbase *gitbases_get(struct gitbases *c, uint64_t pack, uint64_t off)
{
	(void)pthread_mutex_lock(&c->lock);
	struct gitbase *b = find(c, pack, off);
	if (b) {
		atomic_fetch_add_explicit(&b->uses, 1, memory_order_relaxed);
		unlink_age(c, b);
		push(c, b);
	}
	(void)pthread_mutex_unlock(&c->lock);
	return b;
}

void gitbases_add(struct gitbases *c, uint64_t pack, uint64_t off, struct gitbase *b)
{
	if (cost(b) > c->max_bytes / GITBASE_SHARE)
		return;
	(void)pthread_mutex_lock(&c->lock);
	if (!find(c, pack, off)) {
		while (c->bytes + cost(b) > c->max_bytes)
			evict(c);
		struct gitbase **p = bucket_of(c, pack, off);
		b->pack = pack;
		b->off = off;
		b->chain = *p;
		*p = b;
		push(c, b);
		c->bytes += cost(b);
		atomic_fetch_add_explicit(&b->uses, 1, memory_order_relaxed);
	}
	(void)pthread_mutex_unlock(&c->lock);
}

void gitbases_trim(struct gitbases *c, uint64_t idle_ms)
{
	uint64_t now = clock_ms();
	(void)pthread_mutex_lock(&c->lock);
	while (c->oldest && (idle_ms == 0 || now - c->oldest->used_ms > idle_ms))
		evict(c);
	(void)pthread_mutex_unlock(&c->lock);
}
