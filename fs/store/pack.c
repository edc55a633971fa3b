#include "fs/store/pack.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"

/* Magic numbers, as the bytes stand in the file. */
static const uint8_t header_magic[8] = { 'B', 'o', 'u', 'g', 'h', 'P', 'k', '\n' };
#define RECORD_MAGIC UINT32_C(0x63655242) /* "BRec" */

enum {
	/* Where the fields of a record's head lie. */
	R_CHECK = 0,
	R_MAGIC = 8,
	R_KIND = 12,
	R_CODEC = 13,
	R_ZERO = 14,
	R_RAW = 16,
	R_STORED = 20,
	R_DIGEST = 24,
	/* Objects in one record of the table, which holds no more than an object may. */
	TOC_RECORD_ENTRIES = STORE_OBJECT_MAX / PACK_TOC_ENTRY_BYTES,
	SCAN_WINDOW = 2 * PACK_RECORD_MAX + PACK_ALIGN,
	SCAN_SECTOR = 4096, /* what is given up around a sector that can't be read */
};
_Static_assert(R_DIGEST + sizeof(struct digest) == PACK_HEAD_BYTES, "a record's head");
_Static_assert(PACK_HEADER_BYTES % PACK_ALIGN == 0 && PACK_HEAD_BYTES % PACK_ALIGN == 0, "aligned");

/* How many bytes are hashed in one scan while records are looked for behind damage: hostile
 * content can show a likely head every 16 bytes, each claiming a megabyte. */
#define SCAN_WORK_MAX (UINT64_C(8) << 30)

void pack_name(char out[PACK_NAME_BYTES], uint64_t id)
{
	(void)snprintf(out, PACK_NAME_BYTES, "%016" PRIx64 ".pack", id);
}

int pack_name_parse(const char *name, uint64_t *id)
{
	char hex[17] = { 0 };
	uint8_t b[8];
	if (strlen(name) != PACK_NAME_BYTES - 1 || strcmp(name + 16, ".pack") != 0)
		return -EINVAL;
	memcpy(hex, name, 16);
	if (hex_decode(b, sizeof(b), hex) < 0)
		return -EINVAL;
	uint64_t v = 0;
	for (size_t i = 0; i < sizeof(b); i++)
		v = v << 8 | b[i];
	if (v == 0)
		return -EINVAL;
	*id = v;
	return 0;
}

void pack_header_encode(uint8_t out[PACK_HEADER_BYTES], uint64_t id)
{
	memcpy(out, header_magic, sizeof(header_magic));
	le_put32(out + 8, PACK_VERSION);
	le_put32(out + 12, 0);
	le_put64(out + 16, id);
	le_put64(out + 24, hash_xxh3(out, 24, 0));
}

int pack_header_decode(const uint8_t in[PACK_HEADER_BYTES], uint64_t id)
{
	if (memcmp(in, header_magic, sizeof(header_magic)) != 0 ||
	    le_get64(in + 24) != hash_xxh3(in, 24, 0))
		return -EBADMSG;
	if (le_get32(in + 8) != PACK_VERSION)
		return -EPROTONOSUPPORT;
	return le_get64(in + 16) == id ? 0 : -EBADMSG;
}

void pack_record_encode(uint8_t *p, const struct pack_record *r)
{
	le_put64(p + R_CHECK, 0);
	le_put32(p + R_MAGIC, RECORD_MAGIC);
	p[R_KIND] = r->kind;
	p[R_CODEC] = r->codec;
	le_put16(p + R_ZERO, 0);
	le_put32(p + R_RAW, r->raw);
	le_put32(p + R_STORED, r->stored);
	memcpy(p + R_DIGEST, r->digest.b, sizeof(r->digest.b));
	size_t used = PACK_HEAD_BYTES + (size_t)r->stored;
	memset(p + used, 0, (size_t)pack_record_bytes(r->stored) - used);
}

void pack_record_place(uint8_t *p, size_t len, uint64_t id, uint64_t off)
{
	le_put64(p + R_CHECK, hash_xxh3(p + R_MAGIC, len - R_MAGIC, id + off));
}

bool pack_record_whole(const uint8_t *p, size_t len, uint64_t id, uint64_t off)
{
	return len >= PACK_HEAD_BYTES &&
	       le_get64(p + R_CHECK) == hash_xxh3(p + R_MAGIC, len - R_MAGIC, id + off);
}

/* Are these the sizes of an object? The raw codec is used where zstd saves nothing. */
static bool sizes_fit(uint32_t raw, uint32_t stored, uint8_t codec)
{
	if (raw > STORE_OBJECT_MAX)
		return false;
	return codec == PACK_RAW ? stored == raw : stored < raw;
}

int pack_record_decode(struct pack_record *r, const uint8_t p[PACK_HEAD_BYTES])
{
	struct pack_record t = {
		.kind = p[R_KIND],
		.codec = p[R_CODEC],
		.raw = le_get32(p + R_RAW),
		.stored = le_get32(p + R_STORED),
	};
	memcpy(t.digest.b, p + R_DIGEST, sizeof(t.digest.b));
	if (le_get32(p + R_MAGIC) != RECORD_MAGIC || le_get16(p + R_ZERO) != 0 ||
	    t.codec > PACK_ZSTD || !sizes_fit(t.raw, t.stored, t.codec))
		return -EBADMSG;
	switch (t.kind) {
	case PACK_OBJECT:
		break;
	case PACK_TOC:
		if (t.codec != PACK_RAW || t.stored % PACK_TOC_ENTRY_BYTES != 0 ||
		    !digest_is_zero(&t.digest))
			return -EBADMSG;
		break;
	case PACK_END:
		if (t.codec != PACK_RAW || t.stored != PACK_END_BYTES - PACK_HEAD_BYTES ||
		    !digest_is_zero(&t.digest))
			return -EBADMSG;
		break;
	default:
		return -EBADMSG;
	}
	*r = t;
	return 0;
}

int pack_read(const struct io *io, int fd, uint64_t id, const struct pack_entry *e, uint8_t *buf,
	      struct pack_record *r)
{
	if (e->stored > STORE_OBJECT_MAX)
		return -EBADMSG;
	size_t len = (size_t)pack_record_bytes(e->stored);
	ssize_t n = io_read_full(io, fd, buf, len, e->off);
	if (n < 0)
		return (int)n;
	struct pack_record t;
	if ((size_t)n != len || pack_record_decode(&t, buf) < 0 || t.kind != PACK_OBJECT ||
	    t.stored != e->stored || t.raw != e->raw || !digest_equal(&t.digest, &e->digest) ||
	    !pack_record_whole(buf, len, id, e->off))
		return -EBADMSG;
	*r = t;
	return 0;
}

/* ---- the table of contents ---- */

/* Appends one record whose stored bytes are appended by the caller right after the head. */
static size_t toc_record_begin(struct buf *b)
{
	size_t at = b->len;
	uint8_t *p = buf_room(b, PACK_HEAD_BYTES);
	if (p) {
		memset(p, 0, PACK_HEAD_BYTES);
		b->len += PACK_HEAD_BYTES;
	}
	return at;
}

static void toc_record_end(struct buf *b, size_t at, enum pack_kind kind, uint64_t id, uint64_t off)
{
	if (b->failed)
		return;
	uint32_t stored = (uint32_t)(b->len - at - PACK_HEAD_BYTES);
	static const uint8_t zeros[PACK_ALIGN];
	size_t len = (size_t)pack_record_bytes(stored);
	buf_add(b, zeros, len - (b->len - at));
	if (b->failed)
		return;
	struct pack_record r = { .kind = (uint8_t)kind, .raw = stored, .stored = stored };
	pack_record_encode(b->data + at, &r);
	pack_record_place(b->data + at, len, id, off + at);
}

int pack_toc_write(const struct io *io, int fd, uint64_t id, uint64_t off,
		   const struct pack_entry *e, size_t n, uint64_t *size)
{
	auto_buf b = { 0 };
	for (size_t i = 0; i < n;) {
		size_t at = toc_record_begin(&b);
		for (size_t k = 0; k < TOC_RECORD_ENTRIES && i < n; k++, i++) {
			buf_add(&b, e[i].digest.b, sizeof(e[i].digest.b));
			buf_u32(&b, (uint32_t)(e[i].off / PACK_ALIGN));
			buf_u32(&b, e[i].raw);
			buf_u32(&b, e[i].stored);
		}
		toc_record_end(&b, at, PACK_TOC, id, off);
	}
	size_t at = toc_record_begin(&b);
	buf_u64(&b, off);
	buf_u64(&b, n);
	toc_record_end(&b, at, PACK_END, id, off);
	if (buf_error(&b) < 0)
		return buf_error(&b);
	int r = io_write_full(io, fd, b.data, b.len, off);
	if (r < 0)
		return r;
	*size = off + b.len;
	return 0;
}

/* One record of the table into out[*n], up to `max`; entries must lie one behind the other
 * between *floor and `ceil`. */
static int toc_record_parse(const uint8_t *p, uint32_t len, uint64_t *floor, uint64_t ceil,
			    struct pack_entry *out, size_t *n, size_t max)
{
	struct cur c = cur_init(p, len);
	while (cur_left(&c) > 0) {
		struct pack_entry e = { 0 };
		const uint8_t *d = cur_take(&c, sizeof(e.digest.b));
		e.off = (uint64_t)cur_u32(&c) * PACK_ALIGN;
		e.raw = cur_u32(&c);
		e.stored = cur_u32(&c);
		if (c.bad || *n >= max || e.raw > STORE_OBJECT_MAX || e.stored > e.raw ||
		    e.off < *floor || e.off + pack_record_bytes(e.stored) > ceil)
			return -EBADMSG;
		memcpy(e.digest.b, d, sizeof(e.digest.b));
		*floor = e.off + pack_record_bytes(e.stored);
		out[(*n)++] = e;
	}
	return 0;
}

/* Reads the end record: where the table starts and how many objects it has. */
static int end_read(const struct io *io, int fd, uint64_t id, uint64_t size, uint64_t *toc,
		    uint64_t *count)
{
	if (size < PACK_HEADER_BYTES + PACK_END_BYTES || size > PACK_SIZE_MAX || size % PACK_ALIGN)
		return -ENODATA;
	uint8_t end[PACK_END_BYTES];
	uint64_t off = size - PACK_END_BYTES;
	ssize_t got = io_read_full(io, fd, end, sizeof(end), off);
	if (got < 0)
		return (int)got;
	struct pack_record r;
	if ((size_t)got != sizeof(end) || pack_record_decode(&r, end) < 0 || r.kind != PACK_END ||
	    !pack_record_whole(end, sizeof(end), id, off))
		return -ENODATA;
	*toc = le_get64(end + PACK_HEAD_BYTES);
	*count = le_get64(end + PACK_HEAD_BYTES + 8);
	if (*toc < PACK_HEADER_BYTES || *toc > off || *toc % PACK_ALIGN ||
	    *count > size / PACK_TOC_ENTRY_BYTES)
		return -EBADMSG;
	return 0;
}

int pack_toc_read(const struct io *io, int fd, uint64_t id, uint64_t size, struct pack_entry **out,
		  size_t *n)
{
	uint64_t toc = 0, count = 0;
	int r = end_read(io, fd, id, size, &toc, &count);
	if (r < 0)
		return r;
	auto_free uint8_t *buf = malloc(PACK_RECORD_MAX + PACK_ALIGN);
	auto_free struct pack_entry *e = calloc(count ? (size_t)count : 1, sizeof(*e));
	if (!buf || !e)
		return -ENOMEM;
	size_t have = 0;
	uint64_t floor = PACK_HEADER_BYTES, end = size - PACK_END_BYTES;
	for (uint64_t off = toc; off < end;) {
		ssize_t got = io_read_full(io, fd, buf, PACK_HEAD_BYTES, off);
		struct pack_record rec;
		if (got < 0)
			return (int)got;
		if (got != PACK_HEAD_BYTES || pack_record_decode(&rec, buf) < 0 ||
		    rec.kind != PACK_TOC || off + pack_record_bytes(rec.stored) > end)
			return -EBADMSG;
		size_t len = (size_t)pack_record_bytes(rec.stored);
		got = io_read_full(io, fd, buf, len, off);
		if (got < 0)
			return (int)got;
		if ((size_t)got != len || !pack_record_whole(buf, len, id, off))
			return -EBADMSG;
		r = toc_record_parse(buf + PACK_HEAD_BYTES, rec.stored, &floor, toc, e, &have,
				     (size_t)count);
		if (r < 0)
			return r;
		off += len;
	}
	if (have != count)
		return -EBADMSG;
	*out = steal_ptr(&e);
	*n = have;
	return 0;
}

/* ---- reading record by record ---- */

int pack_scan_init(struct pack_scan *s, const struct io *io, int fd, uint64_t id, uint64_t from,
		   uint64_t to)
{
	*s = (struct pack_scan){ .io = io ? io : &io_host, .fd = fd, .id = id };
	s->buf = malloc(SCAN_WINDOW);
	if (!s->buf)
		return -ENOMEM;
	s->pos = s->whole = s->objects = from;
	s->end = to;
	return 0;
}

void pack_scan_done(struct pack_scan *s)
{
	free(s->buf);
	s->buf = NULL;
}

/* Reads n bytes at off; a sector that can't be read is taken as zeros, which are no record. */
static size_t read_what_can_be(struct pack_scan *s, uint8_t *p, size_t n, uint64_t off)
{
	ssize_t got = io_read_full(s->io, s->fd, p, n, off);
	if (got >= 0)
		return (size_t)got;
	s->unreadable = true;
	for (size_t i = 0; i < n; i += SCAN_SECTOR) {
		size_t len = n - i < SCAN_SECTOR ? n - i : SCAN_SECTOR;
		got = io_read_full(s->io, s->fd, p + i, len, off + i);
		size_t have = got < 0 ? 0 : (size_t)got;
		memset(p + i + have, 0, len - have);
	}
	return n;
}

/* The bytes at off, at least `need` of them or all up to the end; *have tells how many. */
static const uint8_t *window(struct pack_scan *s, uint64_t off, size_t need, size_t *have)
{
	assert(off <= s->end && need <= SCAN_WINDOW);
	uint64_t left = s->end - off;
	if (need > left)
		need = (size_t)left;
	bool inside = off >= s->buf_off && off - s->buf_off <= s->buf_len;
	if (!inside || s->buf_len - (size_t)(off - s->buf_off) < need) {
		size_t want = left < SCAN_WINDOW ? (size_t)left : SCAN_WINDOW;
		s->buf_len = read_what_can_be(s, s->buf, want, off);
		s->buf_off = off;
	}
	*have = s->buf_len - (size_t)(off - s->buf_off);
	return s->buf + (off - s->buf_off);
}

/* Is there a whole record at off? Its length, and where its bytes are; or 0. With `claim`
 * the length that the head claims is given, if the head can be one. */
static size_t try_record(struct pack_scan *s, uint64_t off, struct pack_record *r,
			 const uint8_t **bytes, uint64_t *claim)
{
	size_t have;
	const uint8_t *p = window(s, off, PACK_HEAD_BYTES, &have);
	if (claim)
		*claim = 0;
	if (have < PACK_HEAD_BYTES || pack_record_decode(r, p) < 0)
		return 0;
	size_t len = (size_t)pack_record_bytes(r->stored);
	if (claim)
		*claim = len;
	if (len > s->end - off)
		return 0;
	p = window(s, off, len, &have);
	s->work += len;
	if (have < len || !pack_record_whole(p, len, s->id, off))
		return 0;
	*bytes = p;
	return len;
}

/* The first place behind s->pos where a whole record starts, or the end. */
static uint64_t next_record(struct pack_scan *s, uint64_t claim)
{
	struct pack_record r;
	const uint8_t *bytes;
	/* Mostly only the stored bytes are bad, and the head still says where they end. */
	if (claim && claim <= s->end - s->pos) {
		uint64_t off = s->pos + claim;
		if (off == s->end || try_record(s, off, &r, &bytes, NULL))
			return off;
	}
	uint64_t off = s->pos + PACK_ALIGN;
	for (; off < s->end && s->end - off >= PACK_HEAD_BYTES; off += PACK_ALIGN) {
		size_t have;
		const uint8_t *p = window(s, off, PACK_HEAD_BYTES, &have);
		if (have < PACK_HEAD_BYTES || s->work > SCAN_WORK_MAX)
			break;
		if (le_get32(p + R_MAGIC) == RECORD_MAGIC && try_record(s, off, &r, &bytes, NULL))
			return off;
	}
	return s->end;
}

int pack_scan_next(struct pack_scan *s, struct pack_record *r, uint64_t *off, uint64_t *len,
		   const uint8_t **stored)
{
	if (s->pos >= s->end)
		return PACK_SCAN_END;
	const uint8_t *bytes = NULL;
	uint64_t claim;
	s->work = 0;
	size_t n = try_record(s, s->pos, r, &bytes, &claim);
	*off = s->pos;
	if (n == 0) {
		s->pos = next_record(s, claim);
		*len = s->pos - *off;
		return PACK_SCAN_DAMAGE;
	}
	s->pos += n;
	s->whole = s->pos;
	if (r->kind == PACK_OBJECT)
		s->objects = s->pos;
	*len = n;
	*stored = bytes + PACK_HEAD_BYTES;
	return PACK_SCAN_RECORD;
}

int pack_scan_objects(const struct io *io, int fd, uint64_t id, uint64_t to,
		      struct pack_entry **out, size_t *n, enum pack_gaps *gaps)
{
	struct pack_scan sc;
	int r = pack_scan_init(&sc, io, fd, id, PACK_HEADER_BYTES, to);
	if (r < 0)
		return r;
	auto_buf b = { 0 };
	enum pack_gaps found = PACK_GAPLESS;
	struct pack_record rec;
	uint64_t off, len;
	const uint8_t *stored;
	int k;
	while ((k = pack_scan_next(&sc, &rec, &off, &len, &stored)) != PACK_SCAN_END) {
		struct pack_entry e = { rec.digest, off, rec.raw, rec.stored };
		if (k == PACK_SCAN_DAMAGE)
			found = sc.unreadable ? PACK_UNREADABLE : PACK_DAMAGED;
		else if (rec.kind == PACK_OBJECT)
			buf_add(&b, &e, sizeof(e));
	}
	pack_scan_done(&sc);
	if (buf_error(&b) < 0)
		return buf_error(&b);
	*n = b.len / sizeof(**out);
	*out = (struct pack_entry *)(void *)steal_ptr(&b.data);
	*gaps = found;
	return 0;
}
