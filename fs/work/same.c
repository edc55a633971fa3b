#include "fs/work/same.h"

#include <errno.h>
#include <string.h>

#include "fs/base/cleanup.h"

enum { COMPARE_BYTES = 64 * 1024 };

/* A run of content named by what holds its bytes; runs of an image are taken apart into
 * objects, so that the same bytes are named alike whatever image leads to them. */
struct segment {
	struct view_run run;
	bool held; /* run holds references */
};

static void segment_done(struct segment *s)
{
	if (s->held)
		view_run_done(&s->run);
	s->held = false;
}

static int segment_map(struct segment *s, const struct view *v, uint64_t ino, uint64_t off,
		       uint64_t max)
{
	segment_done(s);
	int r = view_map(v, ino, off, max, &s->run);
	s->held = r >= 0;
	return r;
}

/* Cuts an IMAGE run down to its first piece or hole. */
static int segment_resolve(struct segment *s)
{
	struct extent *e = &s->run.e;
	if (e->kind != EXTENT_IMAGE)
		return 0;
	struct piece p;
	int r = image_piece_ceil(s->run.image, e->image_ino, e->src, &p);
	if (r < 0 && r != -ENOENT)
		return r;
	if (r < 0 || p.off >= e->src + e->len) {
		e->kind = EXTENT_ZERO;
	} else if (p.off > e->src) {
		e->kind = EXTENT_ZERO;
		e->len = p.off - e->src;
	} else {
		uint64_t skip = e->src - p.off;
		e->kind = EXTENT_OBJECT;
		if (e->len > p.len - skip)
			e->len = p.len - skip;
		e->src = p.obj_off + skip;
		e->object = p.object;
	}
	return 0;
}

static bool segment_same_place(const struct segment *a, const struct segment *b)
{
	const struct extent *x = &a->run.e, *y = &b->run.e;
	if (x->kind != y->kind)
		return false;
	switch (x->kind) {
	case EXTENT_ZERO:
		return true;
	case EXTENT_DATA:
		return x->file == y->file && x->src == y->src &&
		       memcmp(layer_id(x->layer), layer_id(y->layer), sizeof(struct layer_id)) == 0;
	case EXTENT_OBJECT:
		return x->src == y->src && digest_equal(&x->object, &y->object);
	case EXTENT_IMAGE:
		return x->src == y->src && x->image_ino == y->image_ino &&
		       digest_equal(&image_info(a->run.image)->name,
				    &image_info(b->run.image)->name);
	}
	return false;
}

static int same_bytes(const struct view *a, const struct segment *sa, const struct view *b,
		      const struct segment *sb, uint64_t len, struct err *err)
{
	auto_free uint8_t *buf = malloc(2 * COMPARE_BYTES);
	if (!buf)
		return err_set(err, -ENOMEM, "no memory to compare files");
	struct view_run ra = sa->run, rb = sb->run; /* borrowed: references stay in sa, sb */
	while (len > 0) {
		size_t n = len < COMPARE_BYTES ? (size_t)len : COMPARE_BYTES;
		ra.e.len = rb.e.len = n;
		int r = view_run_read(a->store, &ra, buf, err);
		if (r >= 0)
			r = view_run_read(b->store, &rb, buf + COMPARE_BYTES, err);
		if (r < 0)
			return r;
		if (memcmp(buf, buf + COMPARE_BYTES, n) != 0)
			return 0;
		ra.e.off += n, ra.e.src += n;
		rb.e.off += n, rb.e.src += n;
		len -= n;
	}
	return 1;
}

static int same_range(const struct view *a, struct segment *sa, const struct view *b,
		      struct segment *sb, uint64_t *len, struct err *err)
{
	uint64_t n = sa->run.e.len < sb->run.e.len ? sa->run.e.len : sb->run.e.len;
	if (!segment_same_place(sa, sb)) {
		int r = segment_resolve(sa);
		if (r >= 0)
			r = segment_resolve(sb);
		if (r < 0)
			return err_sys(err, r, "read the image");
		n = sa->run.e.len < sb->run.e.len ? sa->run.e.len : sb->run.e.len;
		if (!segment_same_place(sa, sb)) {
			*len = n;
			return same_bytes(a, sa, b, sb, n, err);
		}
	}
	*len = n;
	return 1;
}

int same_content(const struct view *a, uint64_t ino_a, uint64_t size_a, const struct view *b,
		 uint64_t ino_b, uint64_t size_b, struct err *err)
{
	if (size_a != size_b)
		return 0;
	struct segment sa = { 0 }, sb = { 0 };
	uint64_t off = 0, len = 0;
	int r = 1;
	while (off < size_a && r == 1) {
		r = segment_map(&sa, a, ino_a, off, size_a - off);
		if (r >= 0)
			r = segment_map(&sb, b, ino_b, off, size_a - off);
		if (r < 0)
			(void)err_sys(err, r, "map the content");
		else
			r = same_range(a, &sa, b, &sb, &len, err);
		off += r == 1 ? len : 0;
	}
	segment_done(&sa);
	segment_done(&sb);
	return r;
}

int same_target(const struct view *a, uint64_t ino_a, const struct view *b, uint64_t ino_b)
{
	char ta[4096], tb[4096];
	size_t la, lb;
	int r = view_target(a, ino_a, ta, sizeof(ta), &la);
	if (r >= 0)
		r = view_target(b, ino_b, tb, sizeof(tb), &lb);
	return r < 0 ? r : la == lb && memcmp(ta, tb, la) == 0;
}

struct xattr_compare {
	const struct view *other;
	uint64_t ino;
	int64_t count; /* of this side */
	bool differ;
};

static int compare_xattr(void *ctx, const char *name, size_t name_len, const void *value,
			 size_t len)
{
	struct xattr_compare *c = ctx;
	const void *v;
	size_t n;
	c->count++;
	int r = view_xattr(c->other, c->ino, name, name_len, &v, &n);
	if (r < 0 && r != -ENODATA)
		return r;
	if (r < 0 || n != len || memcmp(v, value, len) != 0)
		c->differ = true;
	return 0;
}

int same_xattrs(const struct view *a, const struct attr *attr_a, const struct view *b,
		const struct attr *attr_b)
{
	if (!((attr_a->flags | attr_b->flags) & ATTR_HAS_XATTR))
		return 1;
	struct xattr_compare ca = { .other = b, .ino = attr_b->ino };
	struct xattr_compare cb = { .other = a, .ino = attr_a->ino };
	int r = view_each_xattr(a, attr_a->ino, compare_xattr, &ca);
	if (r >= 0)
		r = view_each_xattr(b, attr_b->ino, compare_xattr, &cb);
	return r < 0 ? r : !ca.differ && !cb.differ && ca.count == cb.count;
}
