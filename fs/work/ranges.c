#include "fs/work/ranges.h"

#include <errno.h>
#include "fs/work/layer.h"

static omap_value num(uint64_t u)
{
	return (omap_value){ .u = u };
}

/* ---- sets ---- */

bool ranges_first(const struct omap *m, uint64_t off, uint64_t len, uint64_t *at, uint64_t *n)
{
	struct omap_entry e;
	uint64_t end = off + len;
	if (omap_floor(m, off, &e) && e.key + e.value.u > off) {
		uint64_t to = e.key + e.value.u;
		*at = off;
		*n = (to < end ? to : end) - off;
		return len > 0;
	}
	if (!omap_ceil(m, off, &e) || e.key >= end)
		return false;
	uint64_t to = e.key + e.value.u;
	*at = e.key;
	*n = (to < end ? to : end) - e.key;
	return true;
}

int ranges_del(struct omap *m, uint64_t off, uint64_t len, uint64_t *taken)
{
	uint64_t at, n, sum = 0;
	while (m->root && ranges_first(m, off, len, &at, &n)) {
		struct omap_entry e;
		(void)omap_floor(m, at, &e); /* ranges_first found it */
		uint64_t to = e.key + e.value.u;
		if (to > at + n) {
			int r = omap_put(m, at + n, num(to - (at + n)), NULL, NULL);
			if (r < 0)
				return r;
		}
		if (e.key < at)
			(void)omap_put(m, e.key, num(at - e.key), NULL,
				       NULL); /* replaces: no memory */
		else
			(void)omap_del(m, e.key, NULL); /* it is there */
		sum += n;
		len = off + len - (at + n);
		off = at + n;
	}
	if (taken)
		*taken = sum;
	return 0;
}

int ranges_add(struct omap *m, uint64_t off, uint64_t len)
{
	struct omap_entry e;
	uint64_t begin = off, end = off + len;
	/* Those that touch it or overlap are swallowed; the leftmost keeps its key. */
	if (omap_floor(m, off, &e) && e.key + e.value.u >= off) {
		begin = e.key;
		end = e.key + e.value.u > end ? e.key + e.value.u : end;
	}
	int r = omap_put(m, begin, num(end - begin), NULL, NULL);
	if (r < 0)
		return r;
	while (omap_ceil(m, begin + 1, &e) && e.key <= end) {
		(void)omap_del(m, e.key, NULL); /* it is there */
		if (e.key + e.value.u > end) {
			end = e.key + e.value.u;
			(void)omap_put(m, begin, num(end - begin), NULL, NULL); /* replaces */
		}
	}
	return omap_put(m, begin, num(end - begin), NULL, NULL);
}

/* ---- counts ---- */

/* Length in blocks in the upper 36 bits, count in the lower 28. */
enum { COUNT_BITS = 28 };

static uint64_t count_of(const struct omap_entry *e)
{
	return e->value.u & RANGES_COUNT_MAX;
}

static uint64_t len_of(const struct omap_entry *e)
{
	return (e->value.u >> COUNT_BITS) * LAYER_BLOCK;
}

static omap_value counted(uint64_t len, uint64_t count)
{
	return num(len / LAYER_BLOCK << COUNT_BITS | count);
}

bool ranges_counted(const struct omap *m, uint64_t off, uint64_t len, uint64_t *at, uint64_t *n)
{
	struct omap_entry e;
	uint64_t end = off + len, begin = off;
	if (!m->root || len == 0)
		return false;
	if (!omap_floor(m, off, &e) || e.key + len_of(&e) <= off) {
		if (!omap_ceil(m, off, &e) || e.key >= end)
			return false;
		begin = e.key;
	}
	uint64_t to = e.key + len_of(&e);
	*at = begin;
	*n = (to < end ? to : end) - begin;
	return true;
}

/* Makes `at` a border: no range lies on both sides of it. */
static int split(struct omap *m, uint64_t at)
{
	struct omap_entry e;
	if (!omap_floor(m, at, &e) || e.key == at || e.key + len_of(&e) <= at)
		return 0;
	uint64_t left = at - e.key;
	int r = omap_put(m, at, counted(len_of(&e) - left, count_of(&e)), NULL, NULL);
	if (r < 0)
		return r;
	return omap_put(m, e.key, counted(left, count_of(&e)), NULL, NULL);
}

int ranges_inc(struct omap *m, uint64_t off, uint64_t len)
{
	uint64_t end = off + len, at, n;
	int r = split(m, off);
	if (r == 0)
		r = split(m, end);
	while (r == 0 && off < end) {
		if (!ranges_counted(m, off, end - off, &at, &n))
			return omap_put(m, off, counted(end - off, 1), NULL, NULL);
		if (at > off) {
			r = omap_put(m, off, counted(at - off, 1), NULL, NULL);
			off = at;
			continue;
		}
		omap_value v = { 0 };
		(void)omap_get(m, at, &v); /* ranges_counted found it, split made it begin here */
		struct omap_entry e = { at, v };
		if (count_of(&e) == RANGES_COUNT_MAX)
			return -EMLINK;
		r = omap_put(m, at, counted(n, count_of(&e) + 1), NULL, NULL);
		off = at + n;
	}
	return r;
}

int ranges_dec(struct omap *m, uint64_t off, uint64_t len,
	       int (*none)(void *ctx, uint64_t off, uint64_t len),
	       int (*last)(void *ctx, uint64_t off, uint64_t len), void *ctx)
{
	uint64_t end = off + len, at, n;
	int r = 0;
	if (!m->root)
		return none(ctx, off, len);
	r = split(m, off);
	if (r == 0)
		r = split(m, end);
	while (r == 0 && off < end) {
		if (!ranges_counted(m, off, end - off, &at, &n))
			return none(ctx, off, end - off);
		if (at > off) {
			r = none(ctx, off, at - off);
			off = at;
			continue;
		}
		omap_value v = { 0 };
		(void)omap_get(m, at, &v); /* as above */
		struct omap_entry e = { at, v };
		if (count_of(&e) > 1) {
			r = omap_put(m, at, counted(n, count_of(&e) - 1), NULL, NULL);
		} else {
			(void)omap_del(m, at, NULL); /* it is there */
			r = last(ctx, at, n);
		}
		off = at + n;
	}
	return r;
}
