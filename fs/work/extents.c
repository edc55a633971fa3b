#include "fs/work/extents.h"

#include <errno.h>
#include <stdlib.h>

static uint64_t end_of(const struct extent *e)
{
	return e->off + e->len;
}

bool extents_same_source(const struct extent *a, const struct extent *b)
{
	if (a->kind != b->kind)
		return false;
	/* Modulo 2^64 the differences are right whichever offset is greater. */
	bool aligned = a->src - a->off == b->src - b->off;
	switch (a->kind) {
	case EXTENT_ZERO:
		return true;
	case EXTENT_DATA:
		return aligned && a->layer == b->layer && a->file == b->file;
	case EXTENT_OBJECT:
		return aligned && digest_equal(&a->object, &b->object);
	case EXTENT_IMAGE:
		return aligned && a->image_ino == b->image_ino &&
		       digest_equal(&a->image, &b->image);
	}
	return false;
}

/* [from, to) of an extent, where the two overlap. */
static struct extent piece_of(const struct extent *e, uint64_t from, uint64_t to)
{
	struct extent p = *e;
	if (from > e->off) {
		p.off = from;
		if (e->kind != EXTENT_ZERO)
			p.src += from - e->off;
	}
	p.len = (to < end_of(e) ? to : end_of(e)) - p.off;
	return p;
}

struct extent *extents_ceil(const struct omap *m, uint64_t off)
{
	struct omap_entry e;
	if (omap_floor(m, off, &e)) {
		struct extent *x = e.value.p;
		if (end_of(x) > off)
			return x;
	}
	return omap_ceil(m, off, &e) ? e.value.p : NULL;
}

int extents_new_pieces(const struct omap *m, const struct extent *e,
		       int (*fn)(void *ctx, const struct extent *piece), void *ctx)
{
	uint64_t pos = e->off, end = end_of(e);
	const struct extent *old;
	while (pos < end && (old = extents_ceil(m, pos)) && old->off < end) {
		if (extents_same_source(old, e)) {
			if (old->off > pos) {
				struct extent p = piece_of(e, pos, old->off);
				int r = fn(ctx, &p);
				if (r < 0)
					return r;
			}
			pos = end_of(old);
			continue;
		}
		/* Up to where the next one that is the same begins, it is all new. */
		const struct extent *next = old;
		while (next && next->off < end && !extents_same_source(next, e))
			next = extents_ceil(m, end_of(next));
		uint64_t to = next && next->off < end ? next->off : end;
		struct extent p = piece_of(e, pos, to);
		int r = fn(ctx, &p);
		if (r < 0)
			return r;
		pos = to;
	}
	if (pos >= end)
		return 0;
	struct extent p = piece_of(e, pos, end);
	return fn(ctx, &p);
}

static int insert(struct omap *m, const struct extent *e, struct extents_edit *edit)
{
	struct extent *x = malloc(sizeof(*x));
	if (!x)
		return -ENOMEM;
	*x = *e;
	int r = omap_put(m, e->off, (omap_value){ .p = x }, NULL, NULL);
	if (r < 0)
		free(x);
	else
		edit->added++;
	return r;
}

static int tell_gone(const struct extent *old, uint64_t from, uint64_t to, const struct extent *put,
		     struct extents_edit *edit)
{
	if (!edit->gone || (put && extents_same_source(old, put)))
		return 0;
	struct extent p = piece_of(old, from, to);
	return edit->gone(edit->ctx, &p);
}

/* Takes [from, to) away. `put`: what will be there instead, or NULL. */
static int cut(struct omap *m, uint64_t from, uint64_t to, const struct extent *put,
	       struct extents_edit *edit)
{
	struct extent *old;
	while (from < to && (old = extents_ceil(m, from)) && old->off < to) {
		uint64_t a = old->off > from ? old->off : from;
		uint64_t b = end_of(old) < to ? end_of(old) : to;
		int r = 0;
		if (end_of(old) > to) {
			struct extent rest = piece_of(old, to, end_of(old));
			r = insert(m, &rest, edit);
			if (r < 0)
				return r;
			old->len = to - old->off;
		}
		r = tell_gone(old, a, b, put, edit);
		if (old->off < from) {
			old->len = from - old->off;
		} else {
			(void)omap_del(m, old->off, NULL); /* it is there */
			free(old);
			edit->added--;
		}
		if (r < 0)
			return r;
		from = b;
	}
	return 0;
}

int extents_drop(struct omap *m, uint64_t from, uint64_t to, struct extents_edit *edit)
{
	return cut(m, from, to, NULL, edit);
}

int extents_put(struct omap *m, const struct extent *e, struct extents_edit *edit)
{
	int r = cut(m, e->off, end_of(e), e, edit);
	if (r < 0)
		return r;
	struct omap_entry entry;
	struct extent *left = NULL, *right = NULL;
	if (e->off > 0 && omap_floor(m, e->off - 1, &entry)) {
		left = entry.value.p;
		if (end_of(left) != e->off || !extents_same_source(left, e))
			left = NULL;
	}
	omap_value v;
	if (omap_get(m, end_of(e), &v) && extents_same_source(v.p, e))
		right = v.p;
	if (left) {
		left->len += e->len;
	} else {
		r = insert(m, e, edit);
		if (r < 0)
			return r;
		(void)omap_get(m, e->off, &v); /* just put there */
		left = v.p;
	}
	if (right) {
		left->len += right->len;
		(void)omap_del(m, right->off, NULL); /* it is there */
		free(right);
		edit->added--;
	}
	return 0;
}

void extents_clear(struct omap *m)
{
	struct omap_entry e;
	omap_each(m, &e)
		free(e.value.p);
	omap_clear(m);
}
