/* How freed places come back: queued, covered by a commit, punched, free again; and what a
 * replay finds in use. */
#include "fs/work/space.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include "fs/work/ranges.h"
#include "fs/work/space_impl.h"

static void lock(struct space *s)
{
	(void)pthread_mutex_lock(&s->lock);
}

static void unlock(struct space *s)
{
	(void)pthread_mutex_unlock(&s->lock);
}

/* ---- before and after a commit ---- */

/* Without memory what is left stays queued, for the next commit. */
static void move_all(struct omap *from, struct omap *to)
{
	struct omap_entry e;
	if (!to->root) {
		*to = *from;
		*from = (struct omap){ 0 };
		return;
	}
	while (omap_ceil(from, 0, &e) && ranges_add(to, e.key, e.value.u) == 0)
		(void)omap_del(from, e.key, NULL); /* it is there */
}

static bool is_unused(const struct space_big *b)
{
	return !b->own.root && !b->extra.root && !b->held.root;
}

void space_commit_begin(struct space *s)
{
	lock(s);
	s->settling = s->unsettled;
	move_all(&s->queued, &s->freeing);
	move_all(&s->unshared, &s->unsharing);
	struct u64map_slot *slot;
	for (size_t i = 0; (slot = u64map_next(&s->big, &i));) {
		struct space_big *b = slot->value;
		b->dying = is_unused(b);
		move_all(&b->queued, &b->freeing);
		move_all(&b->unshared, &b->unsharing);
	}
	unlock(s);
}

/* Ranges of the packed file that have become free: small ones at once, large ones after
 * their punch (while which they are nowhere). */
static void free_packed(struct space *s, const struct space_host *host)
{
	struct omap large = { 0 };
	struct omap_entry e;
	lock(s);
	while (omap_ceil(&s->freeing, 0, &e)) {
		uint64_t off = e.key, len = e.value.u;
		(void)omap_del(&s->freeing, off, NULL); /* it is there */
		space_free_join(s, &off, &len);
		if (len < SPACE_PUNCH_MIN || ranges_add(&large, off, len) < 0)
			space_free_add(s, off, len);
		else
			s->punching += len;
	}
	while (omap_ceil(&large, 0, &e)) {
		(void)omap_del(&large, e.key, NULL); /* it is there */
		unlock(s);
		host->punch(host->ctx, SPACE_PACKED, e.key, e.value.u);
		lock(s);
		s->punching -= e.value.u;
		space_free_add(s, e.key, e.value.u);
	}
	unlock(s);
}

static void set_busy(struct space *s, uint64_t file, uint64_t off, uint64_t len)
{
	s->busy_file = file;
	s->busy_off = off;
	s->busy_len = len;
	if (len == 0)
		(void)pthread_cond_broadcast(&s->idle);
}

/* Called and returns with the lock held, which it gives up while the host works. */
static void free_big(struct space *s, struct space_big *b, const struct space_host *host)
{
	struct omap_entry e;
	if (b->dying && is_unused(b)) {
		set_busy(s, b->ino, 0, UINT64_MAX);
		unlock(s);
		host->unlink_file(host->ctx, b->ino);
		lock(s);
		(void)u64map_del(&s->big, b->ino); /* it is there */
		space_big_free(b);
		set_busy(s, 0, 0, 0);
		return;
	}
	struct omap small = { 0 };
	while (omap_ceil(&b->freeing, 0, &e)) {
		uint64_t n = e.value.u < SPACE_PUNCH_STEP ? e.value.u : SPACE_PUNCH_STEP;
		if (ranges_del(&b->freeing, e.key, n, NULL) < 0)
			break; /* the next commit will */
		if (n < SPACE_PUNCH_MIN) {
			(void)ranges_add(&small, e.key, n); /* else it is never punched */
			continue;
		}
		set_busy(s, b->ino, e.key, n);
		unlock(s);
		host->punch(host->ctx, b->ino, e.key, n);
		lock(s);
		set_busy(s, 0, 0, 0);
	}
	/* Small ones wait until they are part of something larger. The lock was given up
	 * in between, but what is in use was never among them. */
	move_all(&small, &b->queued);
	omap_clear(&small);
}

void space_commit_end(struct space *s, const struct space_host *host)
{
	lock(s);
	/* Before any place can be somebody else's. */
	if (s->freeing.root || s->big.count)
		atomic_fetch_add(&s->epoch, 1);
	size_t n = 0;
	struct space_big **list = s->big.count ? calloc(s->big.count, sizeof(*list)) : NULL;
	struct u64map_slot *slot;
	for (size_t i = 0; list && (slot = u64map_next(&s->big, &i));) {
		struct space_big *b = slot->value;
		omap_clear(&b->unsharing);
		if (b->dying || b->freeing.root)
			list[n++] = b;
	}
	omap_clear(&s->unsharing);
	s->unsettled = s->unsettled && !s->settling;
	for (size_t i = 0; i < n; i++)
		free_big(s, list[i], host);
	unlock(s);
	free(list);
	free_packed(s, host);
#ifdef BOUGH_DEBUG
	space_check(s);
#endif
}

bool space_has_queued(struct space *s)
{
	lock(s);
	bool any = s->queued.root || s->freeing.root;
	struct u64map_slot *slot;
	for (size_t i = 0; !any && (slot = u64map_next(&s->big, &i));) {
		const struct space_big *b = slot->value;
		any = b->queued.root || b->freeing.root || is_unused(b);
	}
	unlock(s);
	return any;
}

/* ---- after a replay ---- */

static int by_src(const void *a, const void *b)
{
	const struct space_use *x = a, *y = b;
	return (x->src > y->src) - (x->src < y->src);
}

int space_rebuild(struct space *s, struct space_use *uses, size_t n, uint64_t file_size,
		  bool unsettled)
{
	uint64_t covered = 0; /* everything below is decided */
	int r = 0;
	if (n > 1)
		qsort(uses, n, sizeof(*uses), by_src);
	lock(s);
	for (size_t i = 0; i < n && r == 0; i++) {
		uint64_t src = uses[i].src, end = src + uses[i].len;
		if (src > covered)
			r = ranges_add(&s->queued, covered, src - covered);
		/* Sorted by begin, so all of [src, covered) has a user already. */
		if (r == 0 && src < covered)
			r = ranges_inc(&s->extra, src, (end < covered ? end : covered) - src);
		uint64_t from = src > covered ? src : covered;
		if (end > from) {
			s->used += end - from;
			covered = end;
		}
	}
	uint64_t size = (file_size + LAYER_BLOCK - 1) / LAYER_BLOCK * LAYER_BLOCK;
	/* A crash between allocation and record leaves bytes that nobody refers to; and the
	 * last commit's extents may lie there still. */
	if (r == 0 && size > covered)
		r = ranges_add(&s->queued, covered, size - covered);
	s->end = size > covered ? size : covered;
	s->unsettled = unsettled;
	unlock(s);
	return r;
}

/* ---- looking ---- */

int space_each_file(struct space *s, int (*fn)(void *ctx, uint64_t file), void *ctx)
{
	int r = 0;
	lock(s);
	size_t n = 0, count = s->big.count;
	uint64_t *files = count ? calloc(count, sizeof(*files)) : NULL;
	struct u64map_slot *slot;
	for (size_t i = 0; files && (slot = u64map_next(&s->big, &i));)
		files[n++] = slot->key;
	unlock(s);
	if (count && !files)
		return -ENOMEM;
	for (size_t i = 0; i < n && r == 0; i++)
		r = fn(ctx, files[i]);
	free(files);
	return r;
}

static size_t big_memory(const struct space_big *b)
{
	return sizeof(*b) + omap_bytes(&b->own) + omap_bytes(&b->extra) + omap_bytes(&b->held) +
	       omap_bytes(&b->queued) + omap_bytes(&b->freeing) + omap_bytes(&b->unshared) +
	       omap_bytes(&b->unsharing);
}

size_t space_memory(struct space *s)
{
	lock(s);
	size_t sum = omap_bytes(&s->free) + omap_bytes(&s->by_size) + omap_bytes(&s->held) +
		     omap_bytes(&s->queued) + omap_bytes(&s->freeing) + omap_bytes(&s->extra) +
		     omap_bytes(&s->unshared) + omap_bytes(&s->unsharing);
	sum += s->streams ? SPACE_STREAMS * sizeof(*s->streams) : 0;
	sum += s->big.cap * sizeof(*s->big.slots);
	struct u64map_slot *slot;
	for (size_t i = 0; (slot = u64map_next(&s->big, &i));)
		sum += big_memory(slot->value);
	unlock(s);
	return sum;
}

static uint64_t sum_of(const struct omap *m)
{
	struct omap_entry e;
	uint64_t sum = 0, last = 0;
	omap_each(m, &e) {
		assert(e.key >= last && e.value.u > 0);
		last = e.key + e.value.u;
		sum += e.value.u;
	}
	return sum;
}

void space_check(struct space *s)
{
	lock(s);
	uint64_t reserves = 0;
	for (unsigned i = 0; s->streams && i < SPACE_STREAMS; i++)
		reserves += s->streams[i].end - s->streams[i].src;
	assert(s->free.count == s->by_size.count);
	/* Without a failed allocation every byte is in exactly one place. */
	uint64_t sum = sum_of(&s->free) + sum_of(&s->held) + sum_of(&s->queued) +
		       sum_of(&s->freeing) + reserves + s->used + s->punching;
	assert(sum <= s->end);
	unlock(s);
}
