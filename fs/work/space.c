/* Places for contents: the packed file's free ranges and reserves, and what is in use. How
 * freed places come back is in space_commit.c. */
#include "fs/work/space.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include "fs/work/ranges.h"
#include "fs/work/space_impl.h"

enum { AHEAD_MAX = 512 * 1024 }; /* bytes reserved at once for a file that grows */

void space_init(struct space *s)
{
	*s = (struct space){ .big_from = LAYER_BIG_FILE };
	(void)pthread_mutex_init(&s->lock, NULL); /* can't fail with default attributes */
	(void)pthread_cond_init(&s->idle, NULL);
}

void space_big_free(struct space_big *b)
{
	omap_clear(&b->own);
	omap_clear(&b->extra);
	omap_clear(&b->held);
	omap_clear(&b->queued);
	omap_clear(&b->freeing);
	omap_clear(&b->unshared);
	omap_clear(&b->unsharing);
	free(b);
}

void space_done(struct space *s)
{
	struct u64map_slot *slot;
	for (size_t i = 0; (slot = u64map_next(&s->big, &i));)
		space_big_free(slot->value);
	u64map_done(&s->big);
	omap_clear(&s->free);
	omap_clear(&s->by_size);
	omap_clear(&s->held);
	omap_clear(&s->queued);
	omap_clear(&s->freeing);
	omap_clear(&s->unshared);
	omap_clear(&s->unsharing);
	omap_clear(&s->extra);
	free(s->streams);
	(void)pthread_mutex_destroy(&s->lock);
	(void)pthread_cond_destroy(&s->idle);
}

static void lock(struct space *s)
{
	(void)pthread_mutex_lock(&s->lock);
}

static void unlock(struct space *s)
{
	(void)pthread_mutex_unlock(&s->lock);
}

/* ---- free ranges of the packed file ---- */

/* Length first, so that the least key not below a wanted length is the best fit. */
static uint64_t size_key(uint64_t off, uint64_t len)
{
	const uint64_t max = (1 << 20) - 1;
	uint64_t blocks = len / LAYER_BLOCK;
	return (blocks < max ? blocks : max) << 44 | off / LAYER_BLOCK;
}

static void free_remove(struct space *s, uint64_t off, uint64_t len)
{
	(void)omap_del(&s->free, off, NULL); /* both are there: the caller just saw it */
	(void)omap_del(&s->by_size, size_key(off, len), NULL);
}

void space_free_join(struct space *s, uint64_t *off, uint64_t *len)
{
	struct omap_entry e;
	if (*off > 0 && omap_floor(&s->free, *off - 1, &e) && e.key + e.value.u == *off) {
		free_remove(s, e.key, e.value.u);
		*off = e.key;
		*len += e.value.u;
	}
	omap_value v;
	if (omap_get(&s->free, *off + *len, &v)) {
		free_remove(s, *off + *len, v.u);
		*len += v.u;
	}
}

void space_free_add(struct space *s, uint64_t off, uint64_t len)
{
	if (len == 0)
		return;
	space_free_join(s, &off, &len);
	if (off + len == s->end) {
		s->end = off;
		return;
	}
	if (omap_put(&s->free, off, (omap_value){ .u = len }, NULL, NULL) < 0)
		return;
	if (omap_put(&s->by_size, size_key(off, len), (omap_value){ .u = len }, NULL, NULL) < 0)
		(void)omap_del(&s->free, off, NULL); /* it was just put */
}

/* The first `len` bytes of a free range; the rest stays free. */
static void free_take(struct space *s, uint64_t off, uint64_t have, uint64_t len)
{
	free_remove(s, off, have);
	if (have > len)
		space_free_add(s, off + len, have - len);
}

static uint64_t find_place(struct space *s, uint64_t len)
{
	struct omap_entry e;
	if (omap_ceil(&s->by_size, size_key(0, len), &e) && e.value.u >= len) {
		uint64_t off = (e.key & ((UINT64_C(1) << 44) - 1)) * LAYER_BLOCK;
		free_take(s, off, e.value.u, len);
		return off;
	}
	uint64_t off = s->end;
	s->end += len;
	return off;
}

/* ---- streams ---- */

static void stream_release(struct space *s, struct space_stream *st)
{
	if (st->ino)
		space_free_add(s, st->src, st->end - st->src);
	*st = (struct space_stream){ 0 };
}

static struct space_stream *stream_of(struct space *s, uint64_t ino)
{
	for (unsigned i = 0; s->streams && i < SPACE_STREAMS; i++)
		if (s->streams[i].ino == ino)
			return &s->streams[i];
	return NULL;
}

/* The one of that inode, or the one that was used longest ago, emptied. NULL without
 * memory: then files that grow are only less contiguous. */
static struct space_stream *stream_begin(struct space *s, uint64_t ino)
{
	if (!s->streams)
		s->streams = calloc(SPACE_STREAMS, sizeof(*s->streams));
	if (!s->streams)
		return NULL;
	struct space_stream *st = stream_of(s, ino), *oldest = s->streams;
	for (unsigned i = 1; !st && i < SPACE_STREAMS; i++)
		if (s->streams[i].tick < oldest->tick)
			oldest = &s->streams[i];
	st = st ? st : oldest;
	stream_release(s, st);
	st->ino = ino;
	return st;
}

/* The file that grew last is mostly complete when another one begins, so what is reserved for
 * it at the end is given up: files that are written one after the other lie so, too. */
static void give_up_latest(struct space *s)
{
	struct space_stream *latest = s->streams;
	for (unsigned i = 1; latest && i < SPACE_STREAMS; i++)
		if (s->streams[i].tick > latest->tick)
			latest = &s->streams[i];
	if (!latest || latest->end != s->end || latest->src == latest->end)
		return;
	uint64_t src = latest->src, end = latest->end;
	latest->end = src;
	space_free_add(s, src, end - src);
}

/* Makes the reserve longer where it ends, if nobody has what follows. */
static void stream_extend(struct space *s, struct space_stream *st, uint64_t want)
{
	omap_value v;
	if (st->end == s->end) {
		s->end += want;
		st->end += want;
	} else if (omap_get(&s->free, st->end, &v)) {
		uint64_t n = v.u < want ? v.u : want;
		free_take(s, st->end, v.u, n);
		st->end += n;
	}
}

static void alloc_packed(struct space *s, uint64_t ino, uint64_t off, uint64_t len, uint64_t *src,
			 uint64_t *n)
{
	struct space_stream *st = stream_of(s, ino);
	bool grows = st && st->off == off;
	uint64_t written = grows ? st->written : 0;
	uint64_t ahead = written < AHEAD_MAX ? written : AHEAD_MAX;
	if (!grows)
		give_up_latest(s);
	else if (st->src == st->end)
		stream_extend(s, st, len + ahead);
	if (!grows || st->src == st->end) {
		st = stream_begin(s, ino);
		uint64_t place = find_place(s, len + (st ? ahead : 0));
		if (!st) {
			*src = place;
			*n = len;
			return;
		}
		*st = (struct space_stream){ .ino = ino,
					     .off = off,
					     .src = place,
					     .end = place + len + ahead,
					     .written = written };
	}
	*src = st->src;
	*n = len < st->end - st->src ? len : st->end - st->src;
	st->src += *n;
	st->off += *n;
	st->written += *n;
	st->tick = ++s->tick;
}

void space_settle(struct space *s)
{
	lock(s);
	for (unsigned i = 0; s->streams && i < SPACE_STREAMS; i++)
		stream_release(s, &s->streams[i]);
	free(s->streams);
	s->streams = NULL;
	unlock(s);
}

/* ---- big files ---- */

static struct space_big *big_get(struct space *s, uint64_t ino)
{
	struct space_big *b = u64map_get(&s->big, ino);
	if (b)
		return b;
	b = calloc(1, sizeof(*b));
	if (!b)
		return NULL;
	b->ino = ino;
	if (u64map_put(&s->big, ino, b) < 0) {
		free(b);
		return NULL;
	}
	return b;
}

static bool is_busy(const struct space *s, uint64_t file, uint64_t off, uint64_t len)
{
	return s->busy_len > 0 && s->busy_file == file && off < s->busy_off + s->busy_len &&
	       s->busy_off < off + len;
}

/* Where [off, off + len) of a big file must be left alone, from its first such part on. */
static bool first_conflict(const struct space *s, const struct space_big *b, uint64_t off,
			   uint64_t len, uint64_t *at, uint64_t *n)
{
	uint64_t a, m, end = off + len;
	const struct omap *sets[] = { &b->unshared, &b->unsharing, &b->own, &b->queued,
				      &b->freeing };
	/* What may have been others' at the last commit is known only after the next one. */
	size_t nsets = s->unsettled ? 5 : 2;
	*at = end;
	*n = 0;
	if (ranges_counted(&b->extra, off, len, &a, &m)) {
		*at = a;
		*n = m;
	}
	for (size_t i = 0; i < nsets; i++) {
		if (ranges_first(sets[i], off, len, &a, &m) && a < *at) {
			*at = a;
			*n = m;
		}
	}
	return *at < end;
}

/* 1 and a place, 0 where the beginning of the range is or was somebody else's by a reflink
 * (*n: how far that goes), or -ENOMEM. */
static int alloc_big(struct space *s, uint64_t ino, uint64_t off, uint64_t len, uint64_t *n)
{
	while (is_busy(s, ino, off, len))
		(void)pthread_cond_wait(&s->idle, &s->lock);
	struct space_big *b = big_get(s, ino);
	if (!b)
		return -ENOMEM;
	uint64_t at, others;
	*n = len;
	if (first_conflict(s, b, off, len, &at, &others)) {
		if (at == off) {
			*n = others;
			return 0;
		}
		*n = at - off;
	}
	int r = ranges_del(&b->queued, off, *n, NULL);
	if (r == 0)
		r = ranges_del(&b->freeing, off, *n, NULL);
	if (r == 0)
		r = ranges_add(&b->held, off, *n);
	b->dying = false;
	return r < 0 ? r : 1;
}

int space_alloc(struct space *s, uint64_t ino, uint64_t off, uint64_t len, uint64_t *file,
		uint64_t *src, uint64_t *n)
{
	int r;
	lock(s);
	if (off + len > s->big_from) {
		uint64_t part = len;
		r = alloc_big(s, ino, off, len, &part);
		if (r != 0) {
			*file = ino;
			*src = off;
			*n = part;
			unlock(s);
			return r < 0 ? r : 0;
		}
		len = part;
	}
	alloc_packed(s, ino, off, len, src, n);
	r = ranges_add(&s->held, *src, *n);
	if (r < 0)
		space_free_add(s, *src, *n);
	*file = SPACE_PACKED;
	unlock(s);
	return r;
}

static void cancel_packed(struct space *s, uint64_t src, uint64_t len)
{
	uint64_t held;
	if (ranges_del(&s->held, src, len, &held) < 0 || held != len)
		return; /* it stays held: lost until the next replay */
	for (unsigned i = 0; s->streams && i < SPACE_STREAMS; i++) {
		struct space_stream *st = &s->streams[i];
		if (st->ino && st->src == src + len && st->written >= len) {
			st->src -= len;
			st->off -= len;
			st->written -= len;
			return;
		}
	}
	space_free_add(s, src, len);
}

void space_cancel(struct space *s, uint64_t file, uint64_t src, uint64_t len)
{
	lock(s);
	struct space_big *b = file == SPACE_PACKED ? NULL : u64map_get(&s->big, file);
	if (file == SPACE_PACKED)
		cancel_packed(s, src, len);
	else if (b && ranges_del(&b->held, src, len, NULL) == 0)
		(void)ranges_add(&b->queued, src, len); /* else a hole less is punched */
	unlock(s);
}

/* ---- use ---- */

static int take_packed(struct space *s, uint64_t src, uint64_t len)
{
	uint64_t end = src + len, at, n;
	int r = 0;
	while (r == 0 && src < end) {
		if (!ranges_first(&s->held, src, end - src, &at, &n))
			return ranges_inc(&s->extra, src, end - src);
		if (at > src)
			r = ranges_inc(&s->extra, src, at - src);
		if (r == 0)
			r = ranges_del(&s->held, at, n, NULL);
		s->used += r == 0 ? n : 0; /* or it is counted again when this is done again */
		src = at + n;
	}
	return r;
}

static int take_big(struct space *s, struct space_big *b, bool own, uint64_t src, uint64_t len)
{
	uint64_t had = 0;
	b->dying = false;
	if (!own)
		return ranges_inc(&b->extra, src, len);
	int r = ranges_del(&b->held, src, len, NULL);
	if (r == 0)
		r = ranges_del(&b->queued, src, len, NULL); /* a replay has no alloc before it */
	if (r == 0)
		r = ranges_del(&b->own, src, len, &had);
	if (r == 0)
		r = ranges_add(&b->own, src, len);
	s->big_used += r == 0 ? len - had : 0; /* as above */
	return r;
}

int space_take(struct space *s, uint64_t ino, uint64_t off, uint64_t file, uint64_t src,
	       uint64_t len, bool counting)
{
	int r = 0;
	if (file == SPACE_PACKED && !counting)
		return 0;
	lock(s);
	if (file == SPACE_PACKED) {
		r = take_packed(s, src, len);
	} else {
		struct space_big *b = big_get(s, file);
		r = b ? take_big(s, b, ino == file && src == off, src, len) : -ENOMEM;
	}
	unlock(s);
	return r;
}

static int queue_packed(void *ctx, uint64_t off, uint64_t len)
{
	struct space *s = ctx;
	s->used -= len;
	return ranges_add(&s->queued, off, len);
}

/* Queues what of the range nobody uses. */
static int queue_unused(struct space_big *b, uint64_t src, uint64_t len)
{
	uint64_t end = src + len, at, n;
	while (src < end) {
		uint64_t stop = end, resume = end;
		if (ranges_first(&b->own, src, end - src, &at, &n)) {
			stop = at;
			resume = at + n;
		}
		if (ranges_counted(&b->extra, src, stop - src, &at, &n)) {
			stop = at;
			resume = at + n;
		}
		if (stop > src) {
			int r = ranges_add(&b->queued, src, stop - src);
			if (r < 0)
				return r;
		}
		src = resume;
	}
	return 0;
}

int space_note_big(struct space *s, uint64_t ino, uint64_t file_size)
{
	uint64_t size = (file_size + LAYER_BLOCK - 1) / LAYER_BLOCK * LAYER_BLOCK;
	lock(s);
	struct space_big *b = big_get(s, ino);
	int r = !b ? -ENOMEM : size ? queue_unused(b, 0, size) : 0;
	unlock(s);
	return r;
}

bool space_has_big(struct space *s, uint64_t ino)
{
	lock(s);
	bool has = u64map_get(&s->big, ino) != NULL;
	unlock(s);
	return has;
}

static int unshare_packed(void *ctx, uint64_t off, uint64_t len)
{
	struct space *s = ctx;
	return ranges_add(&s->unshared, off, len);
}

static int unshare_big(void *ctx, uint64_t off, uint64_t len)
{
	struct space_big *b = ctx;
	return ranges_add(&b->unshared, off, len);
}

static int not_counted(void *ctx, uint64_t off, uint64_t len)
{
	(void)ctx, (void)off, (void)len; /* every other extent's place was */
	return 0;
}

int space_drop(struct space *s, uint64_t ino, uint64_t off, uint64_t file, uint64_t src,
	       uint64_t len)
{
	int r = 0;
	lock(s);
	struct space_big *b = file == SPACE_PACKED ? NULL : u64map_get(&s->big, file);
	if (file == SPACE_PACKED) {
		r = ranges_dec(&s->extra, src, len, queue_packed, unshare_packed, s);
	} else if (b) {
		uint64_t own = 0;
		if (ino == file && src == off)
			r = ranges_del(&b->own, src, len, &own);
		else
			r = ranges_dec(&b->extra, src, len, not_counted, unshare_big, b);
		s->big_used -= own;
		if (r == 0)
			r = queue_unused(b, src, len);
	}
	/* Perhaps that sharing has just ended couldn't be noted. */
	s->unsettled |= r < 0;
	unlock(s);
	return r;
}

bool space_is_unused(struct space *s, uint64_t ino)
{
	lock(s);
	const struct space_big *b = u64map_get(&s->big, ino);
	bool unused = !b || (!b->own.root && !b->extra.root && !b->held.root);
	unlock(s);
	return unused;
}

bool space_is_dying(struct space *s, uint64_t ino)
{
	lock(s);
	const struct space_big *b = u64map_get(&s->big, ino);
	bool dying = b && b->dying;
	unlock(s);
	return dying;
}

bool space_alone(struct space *s, uint64_t file, uint64_t src, uint64_t len)
{
	uint64_t at, n;
	bool alone = false;
	lock(s);
	const struct space_big *b = file == SPACE_PACKED ? NULL : u64map_get(&s->big, file);
	if (file == SPACE_PACKED)
		alone = !ranges_counted(&s->extra, src, len, &at, &n) &&
			!ranges_first(&s->unshared, src, len, &at, &n) &&
			!ranges_first(&s->unsharing, src, len, &at, &n);
	else if (b)
		alone = !ranges_counted(&b->extra, src, len, &at, &n) &&
			!ranges_first(&b->unshared, src, len, &at, &n) &&
			!ranges_first(&b->unsharing, src, len, &at, &n);
	alone = alone && !s->unsettled;
	unlock(s);
	return alone;
}
