/* Entries of git's packs, and the chains of deltas that they make. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/array.h"
#include "fs/store/gitpack.h"

enum {
	SCRATCH_KEPT = 512 << 10, /* larger buffers are given back after use */
	/* Below this a stream is read whole at once; above, first half of what it inflates to:
	 * text takes a fourth. */
	READ_WHOLE = 8 * 1024,
};

/* ---- the reader ---- */

struct gitreader *gitreader_new(void)
{
	struct gitreader *rd = malloc(sizeof(*rd)); /* the window isn't touched before use */
	if (!rd)
		return NULL;
	memset(rd, 0, offsetof(struct gitreader, win));
	rd->inflate = libdeflate_alloc_decompressor();
	rd->sha = EVP_MD_CTX_new();
	if (rd->inflate && rd->sha && EVP_DigestInit_ex(rd->sha, EVP_sha1(), NULL) &&
	    inflateInit(&rd->z) == Z_OK)
		return rd;
	libdeflate_free_decompressor(rd->inflate);
	EVP_MD_CTX_free(rd->sha);
	free(rd);
	return NULL;
}

void gitreader_free(struct gitreader *rd)
{
	if (!rd)
		return;
	libdeflate_free_decompressor(rd->inflate);
	EVP_MD_CTX_free(rd->sha);
	(void)inflateEnd(&rd->z); /* frees; there is nothing to say */
	free(rd->in.p);
	free(rd->delta.p);
	free(rd->steps);
	free(rd);
}

int gitreader_verify(struct gitreader *rd, const struct oid *oid, enum git_type type,
		     const uint8_t *data, size_t len)
{
	char head[GIT_LOOSE_HEAD_MAX];
	struct oid is;
	/* NULL keeps the type of gitreader_new: looking it up costs more than a small hash. */
	if (!EVP_DigestInit_ex(rd->sha, NULL, NULL) ||
	    !EVP_DigestUpdate(rd->sha, head, git_head_encode(head, type, len)) ||
	    !EVP_DigestUpdate(rd->sha, data, len) || !EVP_DigestFinal_ex(rd->sha, is.b, NULL))
		return -ENOMEM;
	return memcmp(is.b, oid->b, OID_BYTES) == 0 ? 0 : -EBADMSG;
}

static int scratch_room(struct git_scratch *s, size_t n)
{
	if (n <= s->cap)
		return 0;
	free(s->p); /* what was in it isn't needed */
	s->p = malloc(n);
	s->cap = s->p ? n : 0;
	return s->p ? 0 : -ENOMEM;
}

static void scratch_trim(struct git_scratch *s)
{
	if (s->cap <= SCRATCH_KEPT)
		return;
	free(s->p);
	*s = (struct git_scratch){ 0 };
}

/* ---- bytes of a pack ---- */

/* Where entries end. */
static uint64_t pack_end(const struct gitpack *p)
{
	return p->bytes - GIT_TRAILER;
}

/* As many as the window has of [off, off + n), at least one; n <= GIT_WINDOW. */
static int window(const struct gitpack *p, struct gitreader *rd, uint64_t off, size_t n,
		  const uint8_t **out, size_t *have)
{
	if (off >= pack_end(p))
		return -EBADMSG;
	uint64_t left = pack_end(p) - off;
	if (n > left)
		n = (size_t)left;
	if (rd->win_pack != p->serial || off < rd->win_off || off - rd->win_off + n > rd->win_len) {
		rd->win_pack = 0;
		ssize_t got = io_read_full(p->io, p->fd, rd->win,
					   left < GIT_WINDOW ? (size_t)left : GIT_WINDOW, off);
		if (got < 0)
			return (int)got;
		if ((size_t)got < n)
			return -EBADMSG; /* the pack has been cut */
		rd->win_pack = p->serial;
		rd->win_off = off;
		rd->win_len = (size_t)got;
	}
	*out = rd->win + (off - rd->win_off);
	*have = rd->win_len - (size_t)(off - rd->win_off);
	return 0;
}

/* The n bytes at `off`, from the window as far as it goes. */
static int fetch(const struct gitpack *p, struct gitreader *rd, uint64_t off, size_t n,
		 const uint8_t **out)
{
	const uint8_t *w;
	size_t have;
	int r = window(p, rd, off, n < GIT_WINDOW ? n : 1, &w, &have);
	if (r == 0 && have >= n) {
		*out = w;
		return 0;
	}
	if (r == 0)
		r = scratch_room(&rd->in, n);
	if (r < 0)
		return r;
	memcpy(rd->in.p, w, have);
	ssize_t got = io_read_full(p->io, p->fd, rd->in.p + have, n - have, off + have);
	if (got < 0)
		return (int)got;
	if ((size_t)got < n - have)
		return -EBADMSG;
	*out = rd->in.p;
	return 0;
}

static int entry_at(const struct gitpack *p, struct gitreader *rd, uint64_t at, struct git_entry *e)
{
	const uint8_t *w = NULL;
	size_t have = 0;
	int r = window(p, rd, at, GIT_ENTRY_HEAD_MAX, &w, &have);
	if (r == 0)
		r = git_entry_decode(e, w, have);
	if (r == 0 && at + e->head >= pack_end(p))
		r = -EBADMSG;
	/* A claim that no stream in the rest of the pack could keep is refused before memory
	 * is taken. */
	if (r == 0 && e->size > git_inflated_max(pack_end(p) - at))
		r = -EBADMSG;
	return r;
}

/* Inflates the stream at `data`, which gives exactly `size` bytes, to `out`. */
static int inflate_at(const struct gitpack *p, struct gitreader *rd, uint64_t data, uint64_t size,
		      uint8_t *out)
{
	uint64_t left = pack_end(p) - data;
	/* Nobody's encoder makes more of it than this. */
	uint64_t most = size + size / 8 + size / 64 + 64 * 1024;
	uint64_t first = size < READ_WHOLE ? size + size / 8 + 64 : size / 2 + READ_WHOLE / 2;
	uint8_t none;
	if (most > left)
		most = left;
	if (first > most)
		first = most;
	for (uint64_t n = first;; n = most) {
		const uint8_t *in = NULL;
		size_t used;
		int r = fetch(p, rd, data, (size_t)n, &in);
		if (r < 0)
			return r;
		if (libdeflate_zlib_decompress_ex(rd->inflate, in, (size_t)n, size ? out : &none,
						  (size_t)size, &used, NULL) == LIBDEFLATE_SUCCESS)
			return 0;
		if (n == most)
			return -EBADMSG;
	}
}

/* ---- chains ---- */

/* The entry of a delta's base. */
static int base_of(const struct gitpack *p, uint64_t at, const struct git_entry *e, uint64_t *base)
{
	if (e->type == GIT_OFS_DELTA) {
		if (e->back > at - GIT_PACK_HEAD)
			return -EBADMSG;
		*base = at - e->back;
		return 0;
	}
	int r = gitpack_find(p, &e->base, base);
	return r == 0 ? -EBADMSG : r < 0 ? r : 0; /* packs on disk hold their bases themselves */
}

/* Follows the chain from `at` down to what isn't a delta, or is in memory: *base, or *root with
 * its entry at *root_at. The deltas on the way are in rd->steps then, from the top. */
static int walk(const struct gitpack *p, struct gitreader *rd, struct gitbases *bases, uint64_t at,
		struct gitbase **base, struct git_entry *root, uint64_t *root_at)
{
	rd->nsteps = 0;
	for (;;) {
		*base = gitbases_get(bases, p->serial, at);
		if (*base)
			return 0;
		struct git_entry e;
		int r = entry_at(p, rd, at, &e);
		if (r < 0)
			return r;
		if (e.type != GIT_OFS_DELTA && e.type != GIT_REF_DELTA) {
			*root = e;
			*root_at = at;
			return 0;
		}
		if (rd->nsteps == GIT_CHAIN_MAX)
			return -EBADMSG; /* too long, or a ring */
		if (array_grow(&rd->steps, rd->nsteps, &rd->cap_steps) < 0)
			return -ENOMEM;
		rd->steps[rd->nsteps++] = (struct git_step){ at, at + e.head, e.size };
		r = base_of(p, at, &e, &at);
		if (r < 0)
			return r;
	}
}

/* One load on its way. */
struct load {
	const struct gitpack *p;
	struct gitreader *rd;
	struct gitbases *bases;
	pthread_mutex_t *big;
	bool holds_big;
};

/* Before memory is taken for a base or a delta. */
static int admit(struct load *l, uint64_t size)
{
	if (size > GIT_BASE_MAX)
		return -EFBIG;
	if (size > GIT_BASE_BIG && !l->holds_big) {
		(void)pthread_mutex_lock(l->big);
		l->holds_big = true;
	}
	return 0;
}

static int base_room(struct load *l, enum git_type type, uint64_t size, struct gitbase **out)
{
	int r = admit(l, size);
	if (r < 0)
		return r;
	*out = gitbase_new(type, (size_t)size);
	return *out ? 0 : -ENOMEM;
}

static int sink_room(const struct git_sink *sink, uint64_t size, uint8_t **out)
{
	if (size > sink->max || size > SIZE_MAX)
		return -EFBIG;
	*out = sink->room(sink->ctx, (size_t)size);
	return *out ? 0 : -ENOMEM;
}

static int load_root(struct load *l, uint64_t at, const struct git_entry *e, struct gitbase **out)
{
	struct gitbase *b;
	int r = base_room(l, e->type, e->size, &b);
	if (r < 0)
		return r;
	r = inflate_at(l->p, l->rd, at + e->head, e->size, b->data);
	if (r < 0) {
		gitbase_put(b);
		return r;
	}
	gitbases_add(l->bases, l->p->serial, at, b);
	*out = b;
	return 0;
}

/* Inflates the delta and checks it against its base; it is in rd->delta then. */
static int load_delta(struct load *l, const struct git_step *s, const struct gitbase *base,
		      uint64_t *size)
{
	int r = admit(l, s->size);
	if (r == 0)
		r = scratch_room(&l->rd->delta, (size_t)s->size + 1);
	if (r == 0)
		r = inflate_at(l->p, l->rd, s->data, s->size, l->rd->delta.p);
	return r < 0 ? r : git_delta_check(l->rd->delta.p, (size_t)s->size, base->len, size);
}

/* Applies the steps from the bottom; the last result goes to the sink. Takes the use of `base`. */
static int apply_steps(struct load *l, struct gitbase *base, const struct git_sink *sink,
		       struct git_head *out, uint8_t **data)
{
	int r = 0;
	for (size_t i = l->rd->nsteps; i-- > 0 && r == 0;) {
		const struct git_step *s = &l->rd->steps[i];
		struct gitbase *next = NULL;
		uint64_t size = 0;
		uint8_t *to = NULL;
		r = load_delta(l, s, base, &size);
		if (r == 0 && i == 0)
			r = sink_room(sink, size, &to);
		else if (r == 0)
			r = base_room(l, base->type, size, &next);
		if (r < 0)
			break;
		git_delta_apply(l->rd->delta.p, (size_t)s->size, base->data,
				next ? next->data : to);
		if (i == 0) {
			*out = (struct git_head){ base->type, size };
			*data = to;
			break;
		}
		gitbases_add(l->bases, l->p->serial, s->at, next);
		gitbase_put(base);
		base = next;
	}
	gitbase_put(base);
	return r;
}

static int load_whole(struct load *l, uint64_t at, const struct git_entry *e,
		      const struct git_sink *sink, struct git_head *out, uint8_t **data)
{
	uint8_t *to;
	int r = sink_room(sink, e->size, &to);
	if (r == 0)
		r = inflate_at(l->p, l->rd, at + e->head, e->size, to);
	if (r < 0)
		return r;
	*out = (struct git_head){ e->type, e->size };
	*data = to;
	return 0;
}

static int load_copy(struct gitbase *base, const struct git_sink *sink, struct git_head *out,
		     uint8_t **data)
{
	uint8_t *to;
	int r = sink_room(sink, base->len, &to);
	if (r == 0) {
		memcpy(to, base->data, base->len);
		*out = (struct git_head){ base->type, base->len };
		*data = to;
	}
	gitbase_put(base);
	return r;
}

static int load(struct load *l, uint64_t off, const struct git_sink *sink, struct git_head *out,
		uint8_t **data)
{
	struct gitbase *base = NULL;
	struct git_entry root;
	uint64_t root_at;
	int r = walk(l->p, l->rd, l->bases, off, &base, &root, &root_at);
	if (r < 0)
		return r;
	if (l->rd->nsteps == 0)
		return base ? load_copy(base, sink, out, data)
			    : load_whole(l, root_at, &root, sink, out, data);
	if (!base)
		r = load_root(l, root_at, &root, &base);
	return r < 0 ? r : apply_steps(l, base, sink, out, data);
}

int gitpack_load(const struct gitpack *p, struct gitreader *rd, struct gitbases *bases,
		 pthread_mutex_t *big, uint64_t off, const struct git_sink *sink,
		 struct git_head *out, uint8_t **data)
{
	struct load l = { .p = p, .rd = rd, .bases = bases, .big = big };
	int r = load(&l, off, sink, out, data);
	scratch_trim(&rd->in);
	scratch_trim(&rd->delta);
	if (l.holds_big)
		(void)pthread_mutex_unlock(big);
	return r;
}

int gitpack_stream(const struct gitpack *p, struct gitreader *rd, uint64_t off,
		   struct gitstream *s, struct git_head *out)
{
	struct git_entry e;
	int r = entry_at(p, rd, off, &e);
	if (r == 0 && (e.type == GIT_OFS_DELTA || e.type == GIT_REF_DELTA))
		r = -EOPNOTSUPP;
	if (r == 0)
		r = gitstream_begin(s, p->io, p->fd, rd, off + e.head, pack_end(p));
	if (r == 0)
		*out = (struct git_head){ e.type, e.size };
	return r;
}

/* ---- heads ---- */

/* The size that a delta makes, from its first bytes. */
static int delta_result(const struct gitpack *p, struct gitreader *rd, const struct git_step *s,
			uint64_t *size)
{
	uint8_t head[GIT_DELTA_HEAD_MAX];
	uint64_t base, at = s->data;
	if (inflateReset(&rd->z) != Z_OK)
		return -ENOMEM;
	rd->z.next_out = head;
	rd->z.avail_out = sizeof(head);
	for (int z = Z_OK; z == Z_OK && rd->z.avail_out > 0;) {
		const uint8_t *in = NULL;
		size_t have;
		int r = window(p, rd, at, 1, &in, &have);
		if (r < 0)
			return r;
		rd->z.next_in = (uint8_t *)(uintptr_t)in; /* zlib doesn't write there */
		rd->z.avail_in = (uInt)have;
		z = inflate(&rd->z, Z_SYNC_FLUSH);
		if (z != Z_OK && z != Z_STREAM_END)
			return z == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
		at += have - rd->z.avail_in;
	}
	size_t n = sizeof(head) - rd->z.avail_out;
	int r = git_delta_sizes(head, n, &base, size);
	return r < 0 ? r : 0;
}

int gitpack_stat(const struct gitpack *p, struct gitreader *rd, struct gitbases *bases,
		 uint64_t off, struct git_head *out)
{
	struct gitbase *base = NULL;
	struct git_entry root;
	uint64_t root_at;
	int r = walk(p, rd, bases, off, &base, &root, &root_at);
	if (r < 0)
		return r;
	struct git_head h = base ? (struct git_head){ base->type, base->len }
				 : (struct git_head){ root.type, root.size };
	gitbase_put(base);
	if (rd->nsteps > 0)
		r = delta_result(p, rd, &rd->steps[0], &h.size);
	if (r == 0)
		*out = h;
	return r;
}
