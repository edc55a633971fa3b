/* Changing contents: write, truncate, allocate.
 *
 * What lies on disk behind the end of a file means nothing, so who lets a file grow sees to it that
 * the new part of the last block reads as zeros (struct plan.tail_*), and that whole blocks
 * behind the old end (of fallocate, with perhaps the bytes of a write that was never
 * acknowledged) are let go where the growth jumps over them. */
#include "fs/work/ws_impl.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

/* A part of the range that is written, on one place. */
struct segment {
	struct extent e;
	bool fresh; /* just allocated: e is to be put; else it is overwritten in place */
	bool tail;  /* not part of the range: the block in which the file ended */
};

enum { SEGMENTS_INLINE = 4 };

struct plan {
	struct ws *ws;
	const struct change *ch;
	uint64_t who;          /* caller.who */
	struct attr a;         /* as found */
	uint64_t b0, b1;       /* blocks of the range; b0 == b1: none */
	uint64_t size;         /* afterwards */
	uint64_t drop0, drop1; /* extents in between go, first of all */
	uint64_t hide0, hide1; /* then what is below is hidden there */
	int64_t growth;        /* of own_bytes */
	int64_t reserved;      /* what of it was reserved in the quota */
	int64_t paid;          /* and what of that by a hold */
	int64_t blocks;        /* change of attr.blocks */
	struct segment *segments, room[SEGMENTS_INLINE];
	size_t n, cap;
};

/* ---- planning, under meta exclusive ---- */

static int push(struct plan *p, const struct segment *s)
{
	if (p->n == p->cap) {
		size_t cap = p->cap * 2;
		struct segment *more = p->segments == p->room ? NULL : p->segments;
		more = realloc(more, cap * sizeof(*more));
		if (!more)
			return -ENOMEM;
		if (p->segments == p->room)
			memcpy(more, p->room, sizeof(p->room));
		p->segments = more;
		p->cap = cap;
	}
	p->segments[p->n++] = *s;
	return 0;
}

static int allocate(struct plan *p, uint64_t from, uint64_t to, bool tail)
{
	while (from < to) {
		struct segment s = { .fresh = true, .tail = tail };
		int r = layer_alloc(active(p->ws), p->a.ino, from, to - from, &s.e);
		if (r < 0)
			return r;
		assert(s.e.off == from && s.e.len > 0 && s.e.len <= to - from);
		r = push(p, &s);
		if (r < 0) {
			layer_alloc_cancel(active(p->ws), &s.e);
			return r;
		}
		from += s.e.len;
	}
	return 0;
}

/* Cuts the run to what is wholly this layer's own, or wholly not. */
static bool may_overwrite(struct ws *ws, struct view_run *run)
{
	struct extent *e = &run->e;
	if (!run->top || e->kind != EXTENT_DATA || e->layer != active(ws))
		return false;
	if (layer_owns(active(ws), e, e->off, e->len))
		return true;
	if (e->len > LAYER_BLOCK)
		e->len = LAYER_BLOCK;
	return layer_owns(active(ws), e, e->off, e->len);
}

static int plan_write(struct plan *p)
{
	struct ws *ws = p->ws;
	uint64_t fresh = p->b0, holes = 0;
	for (uint64_t pos = p->b0; pos < p->b1;) {
		struct view_run run;
		int r = view_map_peek(&ws->view, 0, p->a.ino, pos, p->b1 - pos, &run);
		if (r < 0)
			return r;
		if (may_overwrite(ws, &run)) {
			r = allocate(p, fresh, pos, false);
			struct segment s = { .e = run.e };
			if (r == 0)
				r = push(p, &s);
			if (r < 0)
				return r;
			fresh = pos + run.e.len;
		} else if (run.e.kind == EXTENT_ZERO) {
			holes += run.e.len;
		}
		pos += run.e.len;
	}
	p->blocks += (int64_t)(holes / 512);
	return allocate(p, fresh, p->b1, false);
}

/* Whole blocks of holes in [from, to) get space; blocks that are partly data stay as they are. */
static int plan_allocate(struct plan *p, uint64_t from, uint64_t to)
{
	for (uint64_t pos = from; pos < to;) {
		struct view_run run;
		int r = view_map_peek(&p->ws->view, 0, p->a.ino, pos, to - pos, &run);
		if (r < 0)
			return r;
		/* What layers below have behind the end doesn't show once there is a copy here,
		 * and what is in the range that is dropped goes. */
		uint64_t cut = !run.top ? p->a.size : p->drop0 < p->drop1 ? p->drop0 : UINT64_MAX;
		bool gone = pos >= cut;
		if (!gone && pos + run.e.len > cut)
			run.e.len = cut - pos;
		uint64_t lo = block_ceil(pos), hi = block_floor(pos + run.e.len);
		if ((gone || run.e.kind == EXTENT_ZERO) && lo < hi) {
			r = allocate(p, lo, hi, false);
			if (r < 0)
				return r;
			p->blocks += run.e.kind == EXTENT_ZERO ? (int64_t)((hi - lo) / 512) : 0;
		}
		pos += run.e.len;
	}
	return 0;
}

/* The block in which the file ends, of which more than now will be part of the file. */
static int plan_tail(struct plan *p)
{
	struct ws *ws = p->ws;
	uint64_t block = block_floor(p->a.size);
	struct view_run run;
	int r = view_map_peek(&ws->view, 0, p->a.ino, block, LAYER_BLOCK, &run);
	if (r < 0)
		return r;
	/* What is below is cut off by base_size. */
	if (!run.top || run.e.kind == EXTENT_ZERO)
		return 0;
	if (may_overwrite(ws, &run)) {
		struct segment s = { .e = run.e, .tail = true };
		return push(p, &s);
	}
	return allocate(p, block, block + LAYER_BLOCK, true);
}

/* One block of which [lo, hi) is to be zeros and the rest to stay; nothing when it is a hole. */
static int plan_edge(struct plan *p, uint64_t lo, uint64_t hi)
{
	uint64_t block = block_floor(lo), data = 0;
	struct view_run run;
	int r = content_data_bytes(p->ws, p->a.ino, lo, hi, &data);
	if (r < 0 || data == 0)
		return r;
	r = view_map_peek(&p->ws->view, 0, p->a.ino, block, LAYER_BLOCK, &run);
	if (r < 0)
		return r;
	if (may_overwrite(p->ws, &run)) {
		struct segment s = { .e = run.e };
		return push(p, &s);
	}
	return allocate(p, block, block + LAYER_BLOCK, false);
}

/* The first of the bytes from `from` on that show through from below; `to`: none. */
static int first_below(struct plan *p, uint64_t from, uint64_t to, uint64_t *out)
{
	uint64_t base_size;
	int r = ws_base_size(p->ws, &p->a, &base_size);
	to = min_u64(to, base_size);
	while (r == 0 && from < to) {
		struct view_run run;
		r = view_map_peek(&p->ws->view, 1, p->a.ino, from, to - from, &run);
		if (r == -ENOENT)
			break;
		if (r == 0 && run.e.kind != EXTENT_ZERO)
			break;
		from += r == 0 ? run.e.len : 0;
	}
	if (r < 0 && r != -ENOENT)
		return r;
	bool none = r == -ENOENT || from >= to;
	*out = none ? UINT64_MAX : block_floor(from);
	return 0;
}

static int plan_punch(struct plan *p)
{
	uint64_t size = p->a.size, lo = p->ch->off, hi = lo + p->ch->n, first, gone = 0;
	bool grows = p->size > size;
	int r = 0;
	p->drop0 = block_ceil(lo);
	p->drop1 = hi < size ? block_floor(hi) : max_u64(block_ceil(size), block_floor(hi));
	if (grows) {
		p->drop1 = block_ceil(hi);
		if (size < lo && block_floor(size) == block_floor(lo))
			lo = size; /* what lies between may be anything */
		else if (size < block_floor(lo) && size % LAYER_BLOCK)
			r = plan_tail(p);
		if (size < block_floor(lo))
			p->drop0 = min_u64(p->drop0, block_ceil(size));
	}
	/* An edge may be followed by a drop, or the only one be both; behind the end all goes. */
	if (r == 0 && lo % LAYER_BLOCK && lo < p->size && block_floor(lo) < p->drop0)
		r = plan_edge(p, lo, min_u64(hi, block_ceil(lo)));
	if (r == 0 && hi < size && hi % LAYER_BLOCK && block_floor(hi) >= block_ceil(lo))
		r = plan_edge(p, block_floor(hi), hi);
	if (r < 0 || p->drop0 >= p->drop1) {
		p->drop0 = p->drop1 = 0;
		return r;
	}
	p->b1 = max_u64(p->b1, p->drop1);
	r = first_below(p, p->drop0, p->drop1, &first);
	if (r == 0 && first < p->drop1) {
		uint64_t base_size;
		r = ws_base_size(p->ws, &p->a, &base_size);
		p->hide0 = first;
		p->hide1 = min_u64(p->drop1, block_ceil(base_size));
	}
	if (r == 0)
		r = content_data_bytes(p->ws, p->a.ino, p->drop0,
				       min_u64(p->drop1, block_ceil(size)), &gone);
	p->blocks -= (int64_t)(gone / 512);
	return r;
}

/* More than the disk has is refused before it is taken: it would fill the disk until it is given
 * back, and giving back what the largest of ranges covers would take for ever. */
static int may_fit(const struct plan *p)
{
	struct statvfs host;
	uint64_t data = 0, room;
	if (fstatvfs(p->ws->work->root_fd, &host) < 0 ||
	    __builtin_mul_overflow((uint64_t)host.f_bfree, (uint64_t)host.f_frsize, &room))
		return 0; /* the disk will say so itself */
	int r = content_data_bytes(p->ws, p->a.ino, p->b0, p->b1, &data);
	if (r < 0)
		return r;
	return p->b1 - p->b0 - data > room ? -ENOSPC : 0;
}

static int plan_segments(struct plan *p)
{
	const struct change *ch = p->ch;
	uint64_t tail = block_floor(p->a.size), end = block_ceil(p->a.size);
	bool grows = p->size > p->a.size, has_tail = grows && tail < end;
	int r = 0;
	switch (ch->what) {
	case CHANGE_RESIZE:
		p->drop0 = grows ? end : block_ceil(p->size);
		p->drop1 = grows ? block_ceil(p->size) : UINT64_MAX;
		return has_tail ? plan_tail(p) : 0;
	case CHANGE_WRITE:
		if (grows && end < p->b0) {
			p->drop0 = end;
			p->drop1 = p->b0;
		}
		if (has_tail && tail < p->b0)
			r = plan_tail(p);
		return r < 0 ? r : plan_write(p);
	case CHANGE_ALLOCATE:
		r = may_fit(p);
		if (r < 0)
			return r;
		if (!grows)
			return plan_allocate(p, p->b0, p->b1);
		p->drop0 = end;
		p->drop1 = p->b1;
		r = plan_allocate(p, p->b0, tail);
		if (r == 0 && has_tail)
			r = plan_tail(p);
		/* A hole there is left one: it is part of a block that the file had. */
		return r < 0 ? r : plan_allocate(p, max_u64(p->b0, end), p->b1);
	case CHANGE_PUNCH:
		return plan_punch(p);
	}
	return -EINVAL;
}

int content_data_bytes(struct ws *ws, uint64_t ino, uint64_t from, uint64_t to, uint64_t *out)
{
	uint64_t sum = 0;
	while (from < to) {
		struct view_run run;
		int r = view_map_peek(&ws->view, 0, ino, from, to - from, &run);
		if (r < 0)
			return r;
		if (run.e.kind != EXTENT_ZERO)
			sum += run.e.len;
		from += run.e.len;
	}
	*out = sum;
	return 0;
}

/* What [from, to) will be charged, as quota_content will find it then. */
static int charge(const struct plan *p, uint64_t from, uint64_t to, int64_t *out)
{
	const struct ws *ws = p->ws;
	const struct view mine = { .layers = ws->view.layers, .nlayers = own_layers(ws) };
	const struct segment *s = p->segments, *last = s + p->n;
	int64_t sum = 0;
	while (from < to) {
		while (s < last && s->e.off + s->e.len <= from)
			s++;
		uint64_t stop = s < last ? min_u64(to, max_u64(s->e.off, from)) : to;
		if (stop == from) {
			stop = min_u64(to, s->e.off + s->e.len);
			sum += quota_clip(from, stop - from, p->size);
			from = stop;
			continue;
		}
		if (from >= p->drop0 && from < p->drop1) {
			from = min_u64(stop, p->drop1);
			continue;
		}
		if (from < p->drop0)
			stop = min_u64(stop, p->drop0);
		struct view_run run;
		int r = view_map_peek(&mine, 0, p->a.ino, from, stop - from, &run);
		if (r == -ENOENT)
			break;
		if (r < 0)
			return r;
		from += run.e.len;
		if (run.e.kind == EXTENT_ZERO)
			continue;
		if (!run.top && run.e.off + run.e.len > p->a.size)
			run.e.len = max_u64(p->a.size, run.e.off) - run.e.off;
		sum += quota_clip(run.e.off, run.e.len, p->size);
	}
	*out = sum;
	return 0;
}

/* Once own layers were replaced, what is found need not be all that was charged, and what is
 * rewritten may have been charged before: never more than the file can hold. */
static int cap_growth(struct plan *p)
{
	struct ws *ws = p->ws;
	int64_t xattrs = 0, beyond = 0;
	int r = quota_all_xattrs(&ws->view, &p->a, &xattrs);
	if (r == 0)
		r = charge(p, block_ceil(p->size), UINT64_MAX, &beyond);
	if (r == 0)
		p->growth = quota_cap(&ws->quota, &p->a, p->size, (int64_t)p->a.blocks + p->blocks,
				      xattrs + beyond, p->growth);
	return r;
}

static int plan_growth(struct plan *p)
{
	struct ws *ws = p->ws;
	uint64_t from = p->b0, to = p->b1, end = block_ceil(p->a.size);
	int64_t before = 0, after = 0;
	bool shrinks = p->ch->what == CHANGE_RESIZE && p->size <= p->a.size;
	if (shrinks || p->size > p->a.size) {
		uint64_t low = block_floor(min_u64(p->size, p->a.size));
		from = p->b0 < p->b1 ? min_u64(from, low) : low;
		to = shrinks ? UINT64_MAX : max_u64(to, block_ceil(p->size));
	}
	int r = charge(p, from, to, &after);
	/* On the first copy, account_copy takes what own layers below have behind the end. */
	if (!layer_inode(active(ws), p->a.ino))
		to = max_u64(from, min_u64(to, end));
	if (r == 0)
		r = quota_content(&ws->view, own_layers(ws), p->a.ino, from, to, p->a.size,
				  &before);
	if (r < 0)
		return r;
	p->growth = after - before;
	return ws->file.flattened ? cap_growth(p) : 0;
}

static int plan(struct plan *p)
{
	struct ws *ws = p->ws;
	const struct change *ch = p->ch;
	uint64_t end = 0;
	if (__builtin_add_overflow(ch->off, ch->n, &end) || end > WS_FILE_SIZE_MAX)
		return -EFBIG;
	p->size = ch->what == CHANGE_RESIZE ? ch->off
		  : ch->keep_size           ? p->a.size
					    : max_u64(p->a.size, end);
	if (ch->n > 0) {
		p->b0 = block_floor(ch->off);
		p->b1 = block_ceil(end);
	}
	int r = plan_segments(p);
	if (r == 0)
		r = plan_growth(p);
	if (r == 0 && !ch->no_quota)
		r = hold_check(ws, p->who, p->growth, 0);
	if (r == 0 && p->size < p->a.size) {
		uint64_t gone = 0;
		if (p->size > 0)
			r = content_data_bytes(ws, p->a.ino, block_ceil(p->size),
					       max_u64(p->a.size, block_ceil(p->size)), &gone);
		p->blocks -= p->size > 0 ? (int64_t)(gone / 512) : (int64_t)p->a.blocks;
	}
	if (r == 0 && p->growth > 0) {
		p->reserved = p->growth;
		p->paid = hold_spend(ws, p->who, p->growth, 0);
		ws->quota.reserved += p->reserved;
	}
	return r;
}

/* Gives back what the plan holds. Under meta exclusive. */
static void plan_undo(struct plan *p)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->segments[i].fresh)
			layer_alloc_cancel(active(p->ws), &p->segments[i].e);
	p->ws->quota.reserved -= p->reserved;
	hold_give_back(p->ws, p->who, p->paid);
	p->reserved = p->paid = 0;
}

/* ---- moving bytes, without meta ---- */

static const char ZEROS[64 * 1024];

static int put(struct plan *p, const struct segment *s, const void *buf, size_t n, uint64_t off)
{
	const struct extent *e = &s->e;
	assert(off >= e->off && off + n <= e->off + e->len);
	return layer_pwrite(active(p->ws), e->file, buf, n, e->src + (off - e->off));
}

static int put_zeros(struct plan *p, const struct segment *s, uint64_t from, uint64_t to)
{
	const struct extent *e = &s->e;
	if (from >= to)
		return 0;
	if (to - from <= sizeof(ZEROS))
		return put(p, s, ZEROS, (size_t)(to - from), from);
	assert(from >= e->off && to <= e->off + e->len);
	return layer_zero(active(p->ws), e->file, to - from, e->src + (from - e->off));
}

static int move_tail(struct plan *p, const struct segment *s)
{
	char block[LAYER_BLOCK];
	if (!s->fresh)
		return put_zeros(p, s, p->a.size, s->e.off + s->e.len);
	int r = content_read_full(p->ws, p->a.ino, p->a.size, block, sizeof(block), s->e.off);
	return r < 0 ? r : put(p, s, block, sizeof(block), s->e.off);
}

/* A block of fresh space of which only [lo, hi) is written: the rest is what was there. */
static int move_partial(struct plan *p, const struct segment *s, uint64_t block, uint64_t lo,
			uint64_t hi)
{
	char b[LAYER_BLOCK];
	const struct change *ch = p->ch;
	uint64_t end = block + LAYER_BLOCK;
	int r = content_read_full(p->ws, p->a.ino, p->a.size, b, (size_t)(lo - block), block);
	if (r == 0)
		r = content_read_full(p->ws, p->a.ino, p->a.size, b + (hi - block),
				      (size_t)(end - hi), hi);
	if (r < 0)
		return r;
	memcpy(b + (lo - block), (const char *)ch->buf + (lo - ch->off), (size_t)(hi - lo));
	return put(p, s, b, sizeof(b), block);
}

static int move_written(struct plan *p, const struct segment *s)
{
	const struct change *ch = p->ch;
	const char *buf = ch->buf;
	uint64_t s0 = s->e.off, s1 = s0 + s->e.len;
	uint64_t lo = max_u64(s0, ch->off), hi = min_u64(s1, ch->off + ch->n);
	int r = 0;
	if (!s->fresh) {
		/* Behind the old end there may be anything. */
		uint64_t zero = max_u64(s0, p->a.size);
		if (zero < lo)
			r = put_zeros(p, s, zero, lo);
		return r < 0 ? r : put(p, s, buf + (lo - ch->off), (size_t)(hi - lo), lo);
	}
	if (lo > s0) {
		uint64_t stop = min_u64(hi, s0 + LAYER_BLOCK);
		r = move_partial(p, s, s0, lo, stop);
		lo = stop;
	}
	/* The last block keeps what lies behind the range; behind the end it needn't. */
	uint64_t last = hi;
	if (hi < s1 && hi < p->a.size)
		last = max_u64(lo, block_floor(hi));
	if (r == 0 && lo < last)
		r = put(p, s, buf + (lo - ch->off), (size_t)(last - lo), lo);
	if (r == 0 && last < hi)
		r = move_partial(p, s, last, last, hi);
	return r;
}

static int move_punched(struct plan *p, const struct segment *s)
{
	char b[LAYER_BLOCK];
	uint64_t lo = max_u64(s->e.off, min_u64(p->ch->off, p->a.size));
	uint64_t hi = min_u64(s->e.off + s->e.len, p->ch->off + p->ch->n);
	if (!s->fresh)
		return put_zeros(p, s, lo, hi);
	int r = content_read_full(p->ws, p->a.ino, p->a.size, b, sizeof(b), s->e.off);
	if (r < 0)
		return r;
	memset(b + (lo - s->e.off), 0, (size_t)(hi - lo));
	return put(p, s, b, sizeof(b), s->e.off);
}

static int move(struct plan *p)
{
	int r = 0;
	for (size_t i = 0; i < p->n && r == 0; i++) {
		const struct segment *s = &p->segments[i];
		if (s->tail)
			r = move_tail(p, s);
		else if (p->ch->what == CHANGE_PUNCH)
			r = move_punched(p, s);
		else if (p->ch->what == CHANGE_ALLOCATE)
			r = put_zeros(p, s, s->e.off, s->e.off + s->e.len);
		else
			r = move_written(p, s);
	}
	return r;
}

/* ---- committing, under meta exclusive ---- */

static int commit(struct plan *p, const struct caller *c, struct attr *out)
{
	struct ws *ws = p->ws;
	const struct change *ch = p->ch;
	struct attr a;
	uint64_t base_size;
	/* Mode, owner and times may have changed since; size and content can't have. */
	int r = view_inode(&ws->view, p->a.ino, &a);
	if (r == -ENOENT)
		r = -ESTALE;
	if (r == 0)
		r = ws_base_size(ws, &a, &base_size);
	if (r < 0) {
		plan_undo(p);
		return r;
	}
	struct op op;
	op_begin(&op, ws, a.ino, c);
	a.size = p->size;
	a.blocks = p->blocks < 0 && (uint64_t)-p->blocks > a.blocks
			   ? 0
			   : a.blocks + (uint64_t)p->blocks;
	a.mtime = a.ctime = op.now;
	if (ch->kill_suid)
		op_kill_priv(&op, &a);
	op_kill_hidden(&op, &a);
	if (ch->also)
		op.error = ch->also(&op, &a, ch->ctx);
	op_own(&op, &a, p->growth);
	op_inode_size(&op, &a, min_u64(base_size, p->size));
	const struct layer_inode *li = layer_inode(active(ws), a.ino);
	const struct extent *e = li ? layer_extent_ceil(li, p->drop0) : NULL;
	if (p->drop0 < p->drop1 && e && e->off < p->drop1)
		txn_extent_drop(&op.t, a.ino, p->drop0, p->drop1);
	if (p->hide0 < p->hide1) {
		struct extent hole = { .off = p->hide0,
				       .len = p->hide1 - p->hide0,
				       .kind = EXTENT_ZERO };
		txn_extent(&op.t, a.ino, &hole);
	}
	for (size_t i = 0; i < p->n; i++)
		if (p->segments[i].fresh)
			txn_extent(&op.t, a.ino, &p->segments[i].e);
	/* Who begins a file anew without an fsync still means to have one of the two. */
	if (p->size == 0 && p->a.size > 0)
		txn_keep(&op.t, a.ino);
	ws->quota.reserved -= p->reserved;
	p->reserved = 0;
	r = op_commit(&op);
	if (r < 0)
		plan_undo(p);
	else if (out)
		*out = a;
	return r;
}

int content_change(struct ws *ws, uint64_t node, const struct change *ch, const struct caller *c,
		   struct attr *out)
{
	struct plan p = { .ws = ws, .ch = ch, .who = c ? c->who : 0, .cap = SEGMENTS_INLINE };
	p.segments = p.room;
	meta_write(ws);
	int r = layer_refuses(active(ws)); /* else bytes would move, in their place too */
	if (r == 0)
		r = ws_get_regular(ws, node, &p.a);
	if (r == 0) {
		r = plan(&p);
		if (r < 0)
			plan_undo(&p);
	}
	/* Nothing to move: it stays one step. */
	if (r == 0 && p.n > 0) {
		meta_done(ws);
		r = move(&p);
		meta_write(ws);
		if (r < 0)
			plan_undo(&p);
	}
	if (r == 0)
		r = commit(&p, c, out);
	meta_done(ws);
	if (p.segments != p.room)
		free(p.segments);
	return r;
}

int ws_write(struct ws *ws, uint64_t node, const void *buf, size_t n, uint64_t off, bool kill_suid,
	     const struct caller *c)
{
	const struct change ch = {
		.what = CHANGE_WRITE, .off = off, .n = n, .buf = buf, .kill_suid = kill_suid
	};
	if (n == 0)
		return 0;
	ws_enter(ws);
	stripe_write(ws, ino_of(node));
	int r = content_change(ws, node, &ch, c, NULL);
	stripe_done(ws, ino_of(node));
	ws_leave(ws);
	return r;
}
