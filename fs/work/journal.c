#include "fs/work/journal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/hash.h"

static const uint8_t head_magic[8] = { 'B', 'o', 'u', 'g', 'h', 'J', 'n', 'l' };
static const uint32_t frame_magic = 0x72466742; /* "BgFr" */

enum {
	HEAD_CHECK_AT = 56,
	FRAME_BODY_CHECK_AT = 48,
	FRAME_CHECK_AT = 56,
	LATE_BYTES = 16,
	SECTOR = 512,
	PAGE = 4096, /* what is read alone where a window can't be read whole */
	WINDOW = 1 << 20,
};

static const uint64_t INOS_END = UINT64_C(1) << 48;

_Static_assert(FRAME_CHECK_AT + 8 == FRAME_HEAD, "the header ends with its check");
_Static_assert(JOURNAL_HEAD % FRAME_ALIGN == 0, "frames are aligned from the first on");

void journal_head_encode(uint8_t out[JOURNAL_HEAD], const struct journal_head *h)
{
	memset(out, 0, JOURNAL_HEAD);
	memcpy(out, head_magic, sizeof(head_magic));
	le_put32(out + 8, JOURNAL_VERSION);
	memcpy(out + 16, h->id.b, LAYER_ID_BYTES);
	le_put64(out + 32, h->salt);
	memcpy(out + 40, h->boot, BOOT_ID_BYTES);
	le_put64(out + HEAD_CHECK_AT, hash_xxh3(out, HEAD_CHECK_AT, 0));
}

int journal_head_decode(struct journal_head *out, const void *data, size_t len)
{
	const uint8_t *p = data;
	if (len < JOURNAL_HEAD || memcmp(p, head_magic, sizeof(head_magic)) != 0)
		return -EBADMSG;
	if (le_get64(p + HEAD_CHECK_AT) != hash_xxh3(p, HEAD_CHECK_AT, 0))
		return -EBADMSG;
	if (le_get32(p + 8) != JOURNAL_VERSION)
		return -EPROTONOSUPPORT;
	memcpy(out->id.b, p + 16, LAYER_ID_BYTES);
	out->salt = le_get64(p + 32);
	memcpy(out->boot, p + 40, BOOT_ID_BYTES);
	return 0;
}

void journal_frame_finish(struct buf *b, const struct journal_frame *f, uint64_t salt)
{
	if (b->failed)
		return;
	assert(b->len >= FRAME_HEAD && b->len - FRAME_HEAD <= JOURNAL_FRAME_MAX);
	uint32_t len = (uint32_t)(b->len - FRAME_HEAD);
	uint8_t *p = b->data;
	le_put32(p, frame_magic);
	p[4] = (uint8_t)f->kind;
	p[5] = p[6] = p[7] = 0;
	le_put32(p + 8, len);
	le_put32(p + 12, f->records);
	le_put64(p + 16, f->seq);
	le_put64(p + 24, f->tag);
	le_put64(p + 32, f->ino);
	le_put64(p + 40, f->prev_ino);
	le_put64(p + FRAME_BODY_CHECK_AT, hash_xxh3(p + FRAME_HEAD, len, salt));
	le_put64(p + FRAME_CHECK_AT, hash_xxh3(p, FRAME_CHECK_AT, salt));
	static const uint8_t zeros[FRAME_ALIGN];
	buf_add(b, zeros, (size_t)(journal_frame_bytes(len) - b->len));
}

void journal_commit_body(struct buf *b, uint64_t upto, const struct journal_late *late, uint32_t n)
{
	buf_u64(b, upto);
	for (uint32_t i = 0; i < n; i++) {
		buf_u64(b, late[i].ino);
		buf_u64(b, late[i].since);
	}
}

int journal_commit_decode(const struct journal_frame *f, uint64_t *upto,
			  struct journal_late late[JOURNAL_LATE_MAX])
{
	struct cur c = cur_init(f->body, f->len);
	uint64_t n = cur_u64(&c);
	size_t count = cur_left(&c) / LATE_BYTES;
	if (c.bad || cur_left(&c) % LATE_BYTES || count > JOURNAL_LATE_MAX || n >= f->seq)
		return -EBADMSG;
	for (size_t i = 0; i < count; i++) {
		late[i].ino = cur_u64(&c);
		late[i].since = cur_u64(&c);
		if (late[i].ino == 0 || late[i].ino >= INOS_END || late[i].since > n)
			return -EBADMSG;
	}
	*upto = n;
	return (int)count;
}

int journal_frame_decode(struct journal_frame *out, const uint8_t p[FRAME_HEAD], uint64_t salt)
{
	if (le_get32(p) != frame_magic ||
	    le_get64(p + FRAME_CHECK_AT) != hash_xxh3(p, FRAME_CHECK_AT, salt))
		return -EBADMSG;
	uint32_t len = le_get32(p + 8);
	if (p[4] < FRAME_OP || p[4] > FRAME_RESET || len > JOURNAL_FRAME_MAX)
		return -EBADMSG;
	*out = (struct journal_frame){
		.kind = (enum frame_kind)p[4],
		.len = len,
		.records = le_get32(p + 12),
		.seq = le_get64(p + 16),
		.tag = le_get64(p + 24),
		.ino = le_get64(p + 32),
		.prev_ino = le_get64(p + 40),
	};
	return 0;
}

/* One flipped bit of a header is found by trying, as its check has 64: -EBADMSG where that isn't
 * all that is wrong. */
static int correct_head(uint8_t p[FRAME_HEAD], uint64_t salt)
{
	if (__builtin_popcount(le_get32(p) ^ frame_magic) > 1)
		return -EBADMSG; /* never a header: the common case */
	const uint64_t check = le_get64(p + FRAME_CHECK_AT);
	const uint64_t now = hash_xxh3(p, FRAME_CHECK_AT, salt);
	if (__builtin_popcountll(check ^ now) == 1) {
		le_put64(p + FRAME_CHECK_AT, now);
		return 0;
	}
	for (unsigned bit = 0; bit < FRAME_CHECK_AT * 8; bit++) {
		const uint8_t mask = (uint8_t)(1u << bit % 8);
		p[bit / 8] ^= mask;
		if (hash_xxh3(p, FRAME_CHECK_AT, salt) == check)
			return 0;
		p[bit / 8] ^= mask;
	}
	return -EBADMSG;
}

/* ---- walking ---- */

int journal_walk_init(struct journal_walk *w, const struct io *io, int fd, uint64_t salt)
{
	struct stat st;
	int r = io->fstat(io->ctx, fd, &st);
	if (r < 0)
		return r;
	*w = (struct journal_walk){ .io = io,
				    .fd = fd,
				    .salt = salt,
				    .pos = JOURNAL_HEAD,
				    .gap_at = JOURNAL_HEAD,
				    .size = st.st_size < 0 ? 0 : (uint64_t)st.st_size };
	return 0;
}

void journal_walk_done(struct journal_walk *w)
{
	free(w->buf);
	*w = (struct journal_walk){ .fd = -1 };
}

/* Reads page by page, and puts garbage where the disk gives nothing. */
static ssize_t read_pages(struct journal_walk *w, size_t n, uint64_t off)
{
	size_t done = 0;
	w->bad_from = w->bad_to = 0;
	while (done < n) {
		size_t part = PAGE - (off + done) % PAGE;
		part = part < n - done ? part : n - done;
		ssize_t r = io_read_full(w->io, w->fd, w->buf + done, part, off + done);
		if (r < 0 && r != -EIO)
			return r;
		if (r == -EIO) {
			memset(w->buf + done, 0xa5, part);
			w->bad_from = w->bad_to ? w->bad_from : done;
			w->bad_to = done + part;
			r = (ssize_t)part;
		}
		done += (size_t)r;
		if ((size_t)r < part)
			break;
	}
	return (ssize_t)done;
}

/* n bytes at `pos`, which are in the file; NULL and *error when they can't be had. */
static const uint8_t *window(struct journal_walk *w, uint64_t pos, size_t n, int *error)
{
	if (pos >= w->buf_off && pos - w->buf_off <= w->buf_len &&
	    w->buf_len - (size_t)(pos - w->buf_off) >= n)
		return w->buf + (pos - w->buf_off);
	size_t want = n > WINDOW ? n : WINDOW;
	if (want > w->size - pos)
		want = (size_t)(w->size - pos);
	if (w->buf_cap < want) {
		uint8_t *p = realloc(w->buf, want);
		if (!p) {
			*error = -ENOMEM;
			return NULL;
		}
		w->buf = p;
		w->buf_cap = want;
	}
	w->buf_len = 0;
	w->bad_from = w->bad_to = 0;
	ssize_t r = io_read_full(w->io, w->fd, w->buf, want, pos);
	if (r == -EIO)
		r = read_pages(w, want, pos);
	if (r < 0) {
		*error = (int)r;
		return NULL;
	}
	w->buf_off = pos;
	w->buf_len = (size_t)r;
	if (w->buf_len < n) { /* the file has become shorter meanwhile */
		*error = -EIO;
		return NULL;
	}
	return w->buf;
}

static bool window_is_bad(const struct journal_walk *w, uint64_t pos)
{
	return pos >= w->buf_off + w->bad_from && pos < w->buf_off + w->bad_to;
}

/* A frame that begins at `pos`: 1, 0 when none does, or -errno. */
static int frame_at(struct journal_walk *w, uint64_t pos, struct journal_frame *out)
{
	int error = 0;
	if (w->size < FRAME_HEAD || pos > w->size - FRAME_HEAD)
		return 0;
	const uint8_t *p = window(w, pos, FRAME_HEAD, &error);
	if (!p)
		return error;
	uint8_t head[FRAME_HEAD];
	if (pos != w->pos && le_get32(p) != frame_magic)
		return 0; /* the common case of a search */
	memcpy(head, p, sizeof(head));
	int r = journal_frame_decode(out, head, w->salt);
	/* Only where a frame has to be. */
	bool corrected = r < 0 && pos == w->pos && correct_head(head, w->salt) == 0;
	if (corrected)
		r = journal_frame_decode(out, head, w->salt);
	if (r < 0)
		return 0;
	uint64_t end = pos + journal_frame_bytes(out->len);
	if (out->seq <= w->last || end > w->size)
		return 0;
	uint64_t body_check = le_get64(head + FRAME_BODY_CHECK_AT);
	p = window(w, pos, FRAME_HEAD + out->len, &error);
	if (!p)
		return error;
	out->pos = pos;
	out->end = end;
	out->body = p + FRAME_HEAD;
	out->body_ok = hash_xxh3(out->body, out->len, w->salt) == body_check;
	w->corrected += corrected;
	return 1;
}

static bool all_zero(const uint8_t *p, size_t n)
{
	return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* What lies at w->pos, where a frame should be. */
static int classify_gap(struct journal_walk *w)
{
	uint64_t sector_end = (w->pos / SECTOR + 1) * SECTOR;
	if (sector_end > w->size)
		sector_end = w->size;
	int error = 0;
	size_t n = (size_t)(sector_end - w->pos);
	const uint8_t *p = window(w, w->pos, n, &error);
	if (!p)
		return error;
	struct journal_frame f;
	w->gap = all_zero(p, n) ? GAP_UNWRITTEN : GAP_GARBAGE;
	w->blank = all_zero(p, n < FRAME_ALIGN ? n : FRAME_ALIGN);
	if (w->size - w->pos < FRAME_HEAD) {
		w->torn = w->gap == GAP_GARBAGE;
		return 0;
	}
	p = window(w, w->pos, FRAME_HEAD, &error);
	if (!p)
		return error;
	w->torn = journal_frame_decode(&f, p, w->salt) == 0 && f.seq > w->last;
	return 0;
}

/* Whether nothing but zeros follows w->pos; or -errno. */
static int only_zeros(struct journal_walk *w)
{
	int error = 0;
	for (uint64_t pos = w->pos; pos < w->size;) {
		size_t n = w->size - pos < PAGE ? (size_t)(w->size - pos) : PAGE;
		const uint8_t *p = window(w, pos, n, &error);
		if (!p)
			return error;
		if (!all_zero(p, n))
			return 0;
		pos += n;
	}
	return 1;
}

/* A sector of zeros inside a gap says the same as one at its beginning. */
static int look_for_hole(struct journal_walk *w, uint64_t pos)
{
	int error = 0;
	if (w->gap == GAP_UNWRITTEN || pos % SECTOR || pos + SECTOR > w->size)
		return 0;
	const uint8_t *p = window(w, pos, SECTOR, &error);
	if (!p)
		return error;
	if (all_zero(p, SECTOR))
		w->gap = GAP_UNWRITTEN;
	return 0;
}

int journal_walk_next(struct journal_walk *w, struct journal_frame *out)
{
	w->gap = GAP_NONE;
	w->unreadable = w->torn = w->blank = w->room = false;
	w->gap_at = w->pos;
	int r = frame_at(w, w->pos, out);
	if (r == 0 && w->pos < w->size) {
		r = only_zeros(w);
		if (r > 0) {
			w->gap = GAP_UNWRITTEN;
			w->blank = w->room = true;
			return 0;
		}
		r = r < 0 ? r : classify_gap(w);
		/* Frames begin at multiples of FRAME_ALIGN: the next is at one of these. */
		for (uint64_t pos = w->pos; r == 0 && pos < w->size; pos += FRAME_ALIGN) {
			w->unreadable |= window_is_bad(w, pos);
			r = look_for_hole(w, pos);
			if (r == 0)
				r = frame_at(w, pos, out);
		}
	}
	if (r <= 0)
		return r;
	w->last = out->seq;
	w->pos = out->end;
	return 1;
}

bool journal_frame_has_hole(const struct journal_frame *f)
{
	uint64_t from = f->pos + FRAME_HEAD, end = from + f->len;
	for (uint64_t s = (from + SECTOR - 1) / SECTOR * SECTOR; s + SECTOR <= end; s += SECTOR)
		if (all_zero(f->body + (s - from), SECTOR))
			return true;
	/* A last sector that is only begun counts when the frame ends in it. */
	uint64_t s = end / SECTOR * SECTOR;
	return s >= from && s < end && all_zero(f->body + (s - from), (size_t)(end - s));
}
