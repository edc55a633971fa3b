/* fallocate and copy_file_range. */
#include "fs/work/ws_impl.h"

#include <linux/falloc.h>
#include <string.h>
#include <sys/stat.h>

int ws_fallocate(struct ws *ws, uint64_t node, int mode, uint64_t off, uint64_t len,
		 const struct caller *c)
{
	struct change ch = { .off = off, .n = len, .keep_size = mode & FALLOC_FL_KEEP_SIZE };
	switch (mode) {
	case 0:
	case FALLOC_FL_KEEP_SIZE:
		ch.what = CHANGE_ALLOCATE;
		break;
	case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE:
	case FALLOC_FL_ZERO_RANGE:
	case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE:
		ch.what = CHANGE_PUNCH;
		break;
	default:
		return -EOPNOTSUPP;
	}
	if (len == 0)
		return -EINVAL;
	ws_enter(ws);
	stripe_write(ws, ino_of(node));
	int r = content_change(ws, node, &ch, c, NULL);
	stripe_done(ws, ino_of(node));
	ws_leave(ws);
	return r;
}

/* ---- copy_file_range ---- */

enum {
	SHARES_A_TXN = 512,
	/* Steps of a call: who asks goes on after a short copy, and a fork, which all others wait
	 * for, needn't wait for 2 GiB. One that ends here bears no tag, and may be done again. */
	COPY_STEPS = 32,
};

struct copy {
	struct ws *ws;
	uint64_t from, to; /* nodes */
	struct attr src, dst;
	uint64_t from_off, to_off, n; /* what is left */
	const struct caller *c;
	char *buf;
};

/* Both stripes, in order of their index; one when they are the same. */
static void lock_both(struct ws *ws, uint64_t from, uint64_t to)
{
	uint64_t a = from % WS_STRIPES, b = to % WS_STRIPES;
	if (a < b)
		stripe_read(ws, from);
	stripe_write(ws, to);
	if (a > b)
		stripe_read(ws, from);
}

static void unlock_both(struct ws *ws, uint64_t from, uint64_t to)
{
	stripe_done(ws, to);
	if (from % WS_STRIPES != to % WS_STRIPES)
		stripe_done(ws, from);
}

/* Who does a step of n bytes: with the tag when it is the last. */
static struct caller step_caller(const struct copy *cp, uint64_t n)
{
	struct caller c = *cp->c;
	if (n < cp->n)
		c.tag = 0;
	return c;
}

/* Copies up to `most` bytes by reading and writing them; the count. */
static ssize_t copy_bytes(struct copy *cp, uint64_t most)
{
	size_t n = (size_t)min_u64(min_u64(cp->n, most), IO_PIECE);
	if (!cp->buf)
		cp->buf = malloc(IO_PIECE);
	if (!cp->buf)
		return -ENOMEM;
	ssize_t got = content_read(cp->ws, cp->from, cp->buf, n, cp->from_off, &cp->src);
	if (got <= 0)
		return got;
	struct change ch = {
		.what = CHANGE_WRITE, .off = cp->to_off, .n = (size_t)got, .buf = cp->buf
	};
	struct caller c = step_caller(cp, (uint64_t)got);
	int r = content_change(cp->ws, cp->to, &ch, &c, &cp->dst);
	return r < 0 ? r : got;
}

/* Whole blocks of the source as extents of the target. The last block counts as whole when both
 * files end in it: what lies behind means nothing. */
struct shares {
	struct extent e[SHARES_A_TXN];
	unsigned n;
	uint64_t blocks_end; /* in the target */
};

/* How many of the `len` bytes at `off` of inode `ino` may be shared as "the image's": those that
 * the sealed layers show straight from it. Such an extent is read from whatever image comes to
 * lie below, which flattening fills with what these layers show: not so for a range that
 * one of them has changed since (a copy made earlier still has the old bytes), nor for
 * an inode without a name, which is left out. Saving leaves those out too, and then the image's
 * version shows again: so the name that it was last known by must lead to it. */
static uint64_t image_shows(struct ws *ws, uint64_t ino, uint64_t off, uint64_t len)
{
	const struct view below = view_below(&ws->view, 0);
	struct attr a;
	struct dirent_ref d;
	struct view_run run;
	if (view_inode(&below, ino, &a) < 0 || a.nlink == 0 || !a.parent_cookie ||
	    view_dirent_ceil(&below, a.parent, a.parent_cookie, &d) < 0 ||
	    d.cookie != a.parent_cookie || d.ino != ino)
		return 0;
	if (view_map_peek(&below, 0, ino, off, len, &run) < 0 || run.e.kind != EXTENT_IMAGE ||
	    run.index != below.nlayers)
		return 0;
	return min_u64(len, run.e.len);
}

static int gather(struct copy *cp, struct shares *sh)
{
	uint64_t pos = cp->from_off, end = pos + cp->n;
	bool at_end = end == cp->src.size && cp->to_off + cp->n >= cp->dst.size;
	uint64_t stop = at_end ? block_ceil(end) : block_floor(end);
	sh->n = 0;
	sh->blocks_end = cp->to_off;
	while (pos < stop && sh->n < SHARES_A_TXN) {
		struct view_run run;
		int r = view_map_peek(&cp->ws->view, 0, cp->src.ino, pos, stop - pos, &run);
		if (r < 0)
			return r == -ENOENT ? -ESTALE : r;
		uint64_t len = block_floor(run.e.len);
		/* The rest of the last block shows as a hole, or as nobody's bytes. */
		if (at_end && pos + run.e.len >= end)
			len = stop - pos;
		if (run.e.kind == EXTENT_IMAGE) {
			uint64_t shown = image_shows(cp->ws, run.e.image_ino, run.e.src, run.e.len);
			if (shown < run.e.len)
				len = min_u64(len, block_floor(shown));
		}
		if (len == 0)
			break;
		run.e.off = cp->to_off + (pos - cp->from_off);
		run.e.len = len;
		if (run.e.kind == EXTENT_DATA) {
			r = registry_depend(cp->ws->work->registry, layer_id(active(cp->ws)),
					    layer_id(run.e.layer));
			if (r < 0)
				return r;
		}
		sh->e[sh->n++] = run.e;
		sh->blocks_end = run.e.off + len;
		pos += len;
	}
	return 0;
}

/* The target's part of what below shows in [from, to) is hidden by a ZERO extent. */
static int put_hole(struct op *op, const struct attr *a, uint64_t base_size, uint64_t from,
		    uint64_t to)
{
	uint64_t end = min_u64(to, base_size);
	txn_extent_drop(&op->t, a->ino, from, to);
	while (from < end) {
		struct view_run run;
		int r = view_map_peek(&op->ws->view, 1, a->ino, from, end - from, &run);
		if (r == -ENOENT)
			return 0;
		if (r < 0)
			return r;
		if (run.e.kind != EXTENT_ZERO) {
			struct extent hole = { .off = block_floor(from), .kind = EXTENT_ZERO };
			hole.len = min_u64(to, block_ceil(base_size)) - hole.off;
			txn_extent(&op->t, a->ino, &hole);
			return 0;
		}
		from += run.e.len;
	}
	return 0;
}

/* Bytes charged and bytes of data in [from, to) of the target, as it is. */
static int share_before(struct copy *cp, uint64_t from, uint64_t to, int64_t *charged,
			uint64_t *data)
{
	struct ws *ws = cp->ws;
	uint64_t end = block_ceil(cp->dst.size), clip = to;
	if (!layer_inode(active(ws), cp->dst.ino))
		clip = max_u64(from, min_u64(to, end)); /* account_copy takes the rest */
	int r = quota_content(&ws->view, own_layers(ws), cp->dst.ino, from, clip, cp->dst.size,
			      charged);
	return r < 0 ? r
		     : content_data_bytes(ws, cp->dst.ino, from, min_u64(to, max_u64(from, end)),
					  data);
}

static int share_commit(struct copy *cp, const struct shares *sh, uint64_t size)
{
	struct ws *ws = cp->ws;
	int64_t before = 0, after = 0, data = 0;
	uint64_t had = 0, base_size;
	for (unsigned i = 0; i < sh->n; i++) {
		if (sh->e[i].kind == EXTENT_ZERO)
			continue;
		after += quota_clip(sh->e[i].off, sh->e[i].len, size);
		data += (int64_t)sh->e[i].len;
	}
	int r = share_before(cp, cp->to_off, sh->blocks_end, &before, &had);
	int64_t blocks = (int64_t)cp->dst.blocks + (data - (int64_t)had) / 512, xattrs = 0;
	int64_t growth = after - before;
	if (r == 0 && ws->file.flattened)
		r = quota_all_xattrs(&ws->view, &cp->dst, &xattrs);
	if (r == 0)
		r = ws_cap_growth(ws, &cp->dst, size, blocks, xattrs, &growth);
	if (r == 0)
		r = quota_check(&ws->quota, growth, 0);
	if (r == 0)
		r = ws_base_size(ws, &cp->dst, &base_size);
	if (r < 0)
		return r;
	struct op op;
	struct attr a = cp->dst;
	struct caller c = step_caller(cp, min_u64(sh->blocks_end - cp->to_off, cp->n));
	op_begin(&op, ws, a.ino, &c);
	a.size = size;
	a.mtime = a.ctime = op.now;
	op_kill_hidden(&op, &a);
	a.blocks = blocks > 0 ? (uint64_t)blocks : 0;
	op_own(&op, &a, growth);
	op_inode(&op, &a);
	for (unsigned i = 0; i < sh->n && !op.error; i++) {
		if (sh->e[i].kind == EXTENT_ZERO)
			op.error = put_hole(&op, &a, base_size, sh->e[i].off,
					    sh->e[i].off + sh->e[i].len);
		else
			txn_extent(&op.t, a.ino, &sh->e[i]);
	}
	r = op_commit(&op);
	if (r == 0)
		cp->dst = a;
	return r;
}

/* Shares what it can in one txn; the count of bytes, 0 when the next block can't be shared. */
static ssize_t copy_shared(struct copy *cp)
{
	struct ws *ws = cp->ws;
	struct shares *sh = malloc(sizeof(*sh));
	if (!sh)
		return -ENOMEM;
	uint64_t done = 0;
	meta_write(ws);
	int r = ws_get_regular(ws, cp->to, &cp->dst);
	if (r == 0)
		r = gather(cp, sh);
	if (r == 0 && sh->n > 0) {
		done = min_u64(sh->blocks_end - cp->to_off, cp->n);
		r = share_commit(cp, sh, max_u64(cp->dst.size, cp->to_off + done));
	}
	meta_done(ws);
	free(sh);
	return r < 0 ? r : (ssize_t)done;
}

static ssize_t copy_step(struct copy *cp)
{
	uint64_t part = cp->from_off % LAYER_BLOCK;
	if (part != cp->to_off % LAYER_BLOCK)
		return copy_bytes(cp, IO_PIECE);
	if (part)
		return copy_bytes(cp, LAYER_BLOCK - part);
	ssize_t r = copy_shared(cp);
	return r != 0 ? r : copy_bytes(cp, LAYER_BLOCK);
}

static int copy_check(struct copy *cp)
{
	struct ws *ws = cp->ws;
	meta_read(ws);
	int r = ws_get_regular(ws, cp->from, &cp->src);
	if (r == 0)
		r = ws_get_regular(ws, cp->to, &cp->dst);
	meta_done(ws);
	if (r < 0)
		return r;
	uint64_t end;
	if (__builtin_add_overflow(cp->to_off, cp->n, &end) || end > WS_FILE_SIZE_MAX)
		return -EFBIG;
	cp->n = min_u64(cp->n, cp->from_off < cp->src.size ? cp->src.size - cp->from_off : 0);
	if (cp->src.ino == cp->dst.ino && cp->from_off < cp->to_off + cp->n &&
	    cp->to_off < cp->from_off + cp->n)
		return -EINVAL;
	return 0;
}

static ssize_t copy_all(struct copy *cp)
{
	uint64_t old_size = cp->dst.size;
	size_t done = 0;
	ssize_t r = 0;
	if (cp->n > 0 && cp->to_off > old_size) { /* a growth by itself */
		struct change ch = { .what = CHANGE_RESIZE, .off = cp->to_off };
		struct caller c = step_caller(cp, 0);
		r = content_change(cp->ws, cp->to, &ch, &c, &cp->dst);
	}
	for (int i = 0; i < COPY_STEPS && r >= 0 && cp->n > 0; i++) {
		r = copy_step(cp);
		if (r <= 0)
			break;
		done += (size_t)r;
		cp->from_off += (uint64_t)r;
		cp->to_off += (uint64_t)r;
		cp->n -= (uint64_t)r;
	}
	if (r < 0 && done == 0 && cp->dst.size > old_size) {
		struct change ch = { .what = CHANGE_RESIZE, .off = old_size };
		struct caller c = step_caller(cp, 0);
		(void)content_change(cp->ws, cp->to, &ch, &c, NULL); /* it shrinks: has space */
	}
	return done > 0 ? (ssize_t)done : r;
}

ssize_t ws_copy_range(struct ws *ws, uint64_t from, uint64_t from_off, uint64_t to, uint64_t to_off,
		      uint64_t n, const struct caller *c)
{
	struct copy cp = { .ws = ws,
			   .from = from,
			   .to = to,
			   .from_off = from_off,
			   .to_off = to_off,
			   .n = min_u64(n, WS_COPY_MAX),
			   .c = c };
	ws_enter(ws);
	lock_both(ws, ino_of(from), ino_of(to));
	ssize_t r = copy_check(&cp);
	if (r == 0)
		r = copy_all(&cp);
	unlock_both(ws, ino_of(from), ino_of(to));
	ws_leave(ws);
	free(cp.buf);
	return r;
}
