/* What a view shows of contents. */
#include "fs/work/view.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "fs/base/err.h"

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- mapping ---- */

/* [off, end) of an extent that covers off, as a run. */
static void run_of_extent(struct view_run *out, const struct extent *e, uint64_t off, uint64_t end)
{
	*out = (struct view_run){ .e = *e };
	out->e.off = off;
	out->e.len = min_u64(e->off + e->len, end) - off;
	if (e->kind == EXTENT_DATA || e->kind == EXTENT_OBJECT || e->kind == EXTENT_IMAGE)
		out->e.src += off - e->off;
}

static void run_of_hole(struct view_run *out, uint64_t off, uint64_t end, uint32_t index)
{
	*out = (struct view_run){ .e = { .off = off, .len = end - off, .kind = EXTENT_ZERO },
				  .index = index };
}

/* Pieces that follow each other without a gap make one run; a run is cut after so many, so
 * that mapping a large file costs the same as a small one. */
enum { PIECES_A_RUN = 64 };

static int map_image(struct image *im, uint64_t ino, uint64_t off, uint64_t end, uint32_t index,
		     struct view_run *out)
{
	struct piece p;
	int r = image_piece_ceil(im, ino, off, &p);
	if (r < 0 && r != -ENOENT)
		return r;
	if (r < 0 || p.off > off) {
		run_of_hole(out, off, r < 0 ? end : min_u64(end, p.off), VIEW_NOWHERE);
		return 0;
	}
	uint64_t to = p.off + p.len;
	for (unsigned i = 1; to < end && i < PIECES_A_RUN; i++) {
		r = image_piece_ceil(im, ino, to, &p);
		if (r < 0 && r != -ENOENT)
			return r;
		if (r < 0 || p.off != to || p.len == 0)
			break;
		to += p.len;
	}
	*out = (struct view_run){
		.e = { .off = off,
		       .len = min_u64(to, end) - off,
		       .kind = EXTENT_IMAGE,
		       .src = off,
		       .image_ino = ino,
		       .image = image_info(im)->name },
		.image = im,
		.index = index,
	};
	return 0;
}

int view_map_peek(const struct view *v, uint32_t from, uint64_t ino, uint64_t off, uint64_t max,
		  struct view_run *out)
{
	uint64_t end;
	if (__builtin_add_overflow(off, max, &end))
		end = UINT64_MAX;
	for (uint32_t i = from; i < v->nlayers; i++) {
		const struct layer_inode *li = layer_inode(v->layers[i], ino);
		if (!li)
			continue;
		if (li->dead)
			return -ENOENT;
		if (li->damaged)
			return -EIO;
		const struct extent *e = layer_extent_ceil(li, off);
		if (e && e->off <= off) {
			run_of_extent(out, e, off, end);
			out->index = i;
			out->top = i == 0;
			if (e->kind != EXTENT_IMAGE)
				return 0;
			/* Whichever image the extent was made over: flattening puts another
			 * below it, and what showed through to it then is the same there. */
			out->image = v->image;
			if (v->image)
				out->e.image = image_info(v->image)->name;
			return 0;
		}
		if (e)
			end = min_u64(end, e->off);
		if (off >= li->base_size) {
			run_of_hole(out, off, end, VIEW_NOWHERE);
			return 0;
		}
		end = min_u64(end, li->base_size);
	}
	if (v->image)
		return map_image(v->image, ino, off, end, v->nlayers, out);
	run_of_hole(out, off, end, VIEW_NOWHERE);
	return 0;
}

int view_map_below(const struct view *v, uint32_t from, uint64_t ino, uint64_t off, uint64_t max,
		   struct view_run *out)
{
	struct view_run run;
	int r = view_map_peek(v, from, ino, off, max, &run);
	if (r < 0)
		return r;
	if (run.e.kind == EXTENT_DATA)
		run.e.layer = layer_ref(run.e.layer);
	if (run.image)
		run.image = image_ref(run.image);
	*out = run;
	return 0;
}

int view_map(const struct view *v, uint64_t ino, uint64_t off, uint64_t max, struct view_run *out)
{
	return view_map_below(v, 0, ino, off, max, out);
}

void view_run_done(struct view_run *r)
{
	if (r->e.kind == EXTENT_DATA)
		layer_unref(r->e.layer);
	image_unref(r->image);
	*r = (struct view_run){ 0 };
}

/* ---- reading ---- */

/* n bytes of an object from `src` on; what is behind its end reads as zeros. */
static int read_object(struct store *store, const struct digest *d, uint64_t src, void *buf,
		       size_t n, struct err *err)
{
	const struct blob *b;
	int r = store ? store_get(store, d, &b, err) : err_set(err, -ENOENT, "there is no store");
	if (r < 0) {
		if (r == -ENOMEM)
			return r;
		char hex[DIGEST_HEX + 1];
		digest_hex(hex, d);
		return err_prefix(err, -EIO, "content in object %s", hex);
	}
	size_t have = src < b->len ? b->len - (size_t)src : 0;
	if (have > n)
		have = n;
	if (have > 0)
		memcpy(buf, b->data + src, have);
	memset((char *)buf + have, 0, n - have);
	blob_put(b);
	return 0;
}

static int read_image(struct store *store, const struct view_run *run, char *buf, struct err *err)
{
	if (!run->image)
		return err_set(err, -EIO, "an extent leads to an image that isn't there");
	uint64_t at = run->e.src, end = at + run->e.len;
	while (at < end) {
		struct piece p;
		int r = image_piece_ceil(run->image, run->e.image_ino, at, &p);
		if (r < 0 && r != -ENOENT)
			return err_sys(err, r, "map inode %llu of the image",
				       (unsigned long long)run->e.image_ino);
		uint64_t stop = r < 0 || p.off >= end ? end : p.off;
		if (stop > at) { /* a hole */
			memset(buf, 0, stop - at);
			buf += stop - at;
			at = stop;
			continue;
		}
		uint64_t skip = at - p.off;
		size_t n = (size_t)(min_u64(end, p.off + p.len) - at);
		r = read_object(store, &p.object, p.obj_off + skip, buf, n, err);
		if (r < 0)
			return r;
		buf += n;
		at += n;
	}
	return 0;
}

int view_run_read(struct store *store, const struct view_run *r, void *buf, struct err *err)
{
	const struct extent *e = &r->e;
	int n;
	switch (e->kind) {
	case EXTENT_ZERO:
		memset(buf, 0, e->len);
		return 0;
	case EXTENT_DATA:
		n = layer_pread(e->layer, e->file, buf, e->len, e->src);
		return n < 0 ? err_sys(err, n, "read the data of a layer") : 0;
	case EXTENT_OBJECT:
		return read_object(store, &e->object, e->src, buf, e->len, err);
	case EXTENT_IMAGE:
		return read_image(store, r, buf, err);
	}
	return err_set(err, -EIO, "an extent of unknown kind");
}

ssize_t view_read(const struct view *v, uint64_t ino, void *buf, size_t n, uint64_t off,
		  struct err *err)
{
	struct attr a;
	int r = view_inode(v, ino, &a);
	if (r < 0)
		return err_sys(err, r, "inode %llu", (unsigned long long)ino);
	if (off >= a.size)
		return 0;
	n = (size_t)min_u64(min_u64(n, a.size - off), SSIZE_MAX);
	for (size_t done = 0; done < n;) {
		struct view_run run;
		r = view_map_peek(v, 0, ino, off + done, n - done, &run);
		if (r < 0)
			return err_sys(err, r, "map inode %llu", (unsigned long long)ino);
		r = view_run_read(v->store, &run, (char *)buf + done, err);
		if (r < 0)
			return err_prefix(err, r, "inode %llu", (unsigned long long)ino);
		done += run.e.len;
	}
	return (ssize_t)n;
}

int view_seek(const struct view *v, uint64_t ino, uint64_t off, bool hole, uint64_t *out)
{
	struct attr a;
	int r = view_inode(v, ino, &a);
	if (r < 0)
		return r;
	if (off >= a.size)
		return -ENXIO;
	while (off < a.size) {
		struct view_run run;
		r = view_map_peek(v, 0, ino, off, a.size - off, &run);
		if (r < 0)
			return r;
		if ((run.e.kind == EXTENT_ZERO) == hole) {
			*out = off;
			return 0;
		}
		off += run.e.len;
	}
	if (!hole)
		return -ENXIO;
	*out = a.size; /* the hole at the end of every file */
	return 0;
}
