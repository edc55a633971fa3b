/* Proving the store: every record of every pack is read, unpacked and hashed, and the index
 * compared with what was found. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/array.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/store/internal.h"

/* A whole record: where it starts, and the front of its digest, by which an entry of the index
 * is compared and copies are found. */
struct seen {
	uint32_t unit; /* offset in units of PACK_ALIGN */
	uint32_t tag;
};

struct pack_seen {
	uint64_t id;     /* first: array_by_u64 */
	uint64_t end;    /* what lies behind wasn't looked at: it is being written */
	struct buf seen; /* of struct seen, in order */
};

struct check {
	struct store *s;
	bool repair;
	void (*report)(void *ctx, const struct store_fault *f);
	void *ctx;
	int64_t faults;
	struct reader *rd;
	uint8_t *raw; /* STORE_OBJECT_MAX */
	struct pack_seen *packs;
	size_t npacks;
	struct pack_seen *now; /* the pack that is being read */
	char name[PACK_NAME_BYTES];
	struct buf gone; /* digests taken out of the index: is there a copy? */
};

static uint32_t tag_of(const struct digest *d)
{
	return le_get32(d->b);
}

static void fault(struct check *c, bool in_pack, uint64_t off, const struct digest *d,
		  const char *what, bool repaired)
{
	c->faults++;
	struct store_fault f = {
		.pack = in_pack ? c->name : NULL,
		.offset = off,
		.object = d,
		.what = what,
		.repaired = repaired,
	};
	if (c->report)
		c->report(c->ctx, &f);
}

/* ---- records ---- */

struct offer {
	const struct digest *d;
	struct place p;
	bool remove;
};

/* Puts the place into the index, or takes it out if it is still there. */
static int offer_txn(struct index_txn *t, void *ctx)
{
	const struct offer *o = ctx;
	if (!o->remove)
		return entry_offer(t, o->d, &o->p, false);
	struct place now;
	int r = index_txn_get(t, o->d, &now);
	if (r > 0 && (now.pack != o->p.pack || now.off != o->p.off))
		return 0;
	/* An entry that can't be read (0) goes too. */
	return r < 0 ? r : index_txn_del(t, o->d);
}

/* Is the whole record known to the index? It may be there by another copy. */
static int check_indexed(struct check *c, const struct pack_entry *e)
{
	struct store *s = c->s;
	struct place p;
	struct pack_row row;
	int r = index_get(s->index, &e->digest, &p, &row);
	if (r < 0)
		return r;
	bool here = r > 0 && p.pack == c->now->id && p.off == e->off;
	if (r > 0 && !(here && p.damaged))
		return 0;
	struct offer o = {
		&e->digest,
		{ .pack = c->now->id, .off = e->off, .raw = e->raw, .stored = e->stored },
		false
	};
	if (c->repair) {
		r = store_index_write(s, offer_txn, &o);
		if (r < 0)
			return r;
	}
	fault(c, true, e->off, &e->digest,
	      here ? "the index says it is damaged, and it is whole" : "it is not in the index",
	      c->repair);
	return 0;
}

/* A record whose XXH3 is right: does its content bear its name? */
static int check_record(struct check *c, const struct pack_record *r, uint64_t off,
			const uint8_t *stored)
{
	int e = codec_load(c->rd->codec, r->codec, stored, r->stored, c->raw, r->raw);
	if (e == -ENOMEM)
		return e;
	struct digest d;
	hash_sha256(&d, c->raw, r->raw);
	if (e < 0 || !digest_equal(&d, &r->digest)) {
		fault(c, true, off, &r->digest,
		      e < 0 ? "its content can't be unpacked" : "its content has another hash",
		      false);
		return 0;
	}
	struct seen seen = { (uint32_t)(off / PACK_ALIGN), tag_of(&r->digest) };
	buf_add(&c->now->seen, &seen, sizeof(seen));
	e = buf_error(&c->now->seen);
	struct pack_entry pe = { r->digest, off, r->raw, r->stored };
	return e < 0 ? e : check_indexed(c, &pe);
}

/* ---- packs ---- */

/* By the table: what it lists must be there. */
static int check_listed(struct check *c, int fd, const struct pack_entry *e, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct pack_record r;
		int x = pack_read(c->s->io, fd, c->now->id, &e[i], c->rd->buf, &r);
		if (x == 0)
			x = check_record(c, &r, e[i].off, c->rd->buf + PACK_HEAD_BYTES);
		else if (x == -EBADMSG)
			fault(c, true, e[i].off, &e[i].digest, "it is damaged", false), x = 0;
		else
			fault(c, true, e[i].off, &e[i].digest, "it can't be read", false), x = 0;
		if (x < 0)
			return x;
	}
	return 0;
}

/* The object whose record is damaged, as far as its head can still be believed. */
static bool damaged_object(struct check *c, int fd, uint64_t off, struct digest *d)
{
	uint8_t head[PACK_HEAD_BYTES];
	struct pack_record r;
	if (io_read_full(c->s->io, fd, head, sizeof(head), off) != PACK_HEAD_BYTES ||
	    pack_record_decode(&r, head) < 0 || r.kind != PACK_OBJECT)
		return false;
	*d = r.digest;
	return true;
}

struct row_job {
	uint64_t id, indexed;
	uint32_t clear;
	bool remove;
};

static int row_txn(struct index_txn *t, void *ctx)
{
	const struct row_job *job = ctx;
	if (job->remove)
		return index_txn_row_del(t, job->id);
	struct pack_row row;
	int r = index_txn_row(t, job->id, &row);
	if (r <= 0)
		return r;
	row.flags &= ~job->clear;
	if (row.indexed > job->indexed)
		row.indexed = job->indexed;
	return index_txn_row_put(t, &row);
}

/* Cuts what isn't whole off the end of a pack that nobody writes. */
static int cut(struct check *c, int fd, uint64_t end)
{
	struct row_job job = { c->now->id, end, ROW_SEALED, false };
	int r = store_index_write(c->s, row_txn, &job);
	return r < 0 ? r : c->s->io->ftruncate(c->s->io->ctx, fd, end);
}

/* Record by record. `sealed`: it should have a table and hasn't. */
static int check_scanned(struct check *c, int fd, uint64_t size, bool locked, bool sealed)
{
	struct pack_scan sc;
	int r = pack_scan_init(&sc, c->s->io, fd, c->now->id, PACK_HEADER_BYTES, size);
	if (r < 0)
		return r;
	struct pack_record rec;
	uint64_t off, len, torn = 0;
	const uint8_t *stored;
	int k;
	while (r == 0 && (k = pack_scan_next(&sc, &rec, &off, &len, &stored)) != PACK_SCAN_END) {
		struct digest d;
		if (k == PACK_SCAN_DAMAGE) {
			torn = torn ? torn : off;
		} else if (rec.kind == PACK_OBJECT) {
			/* An object behind it: it was no torn end. */
			if (torn)
				fault(c, true, torn, damaged_object(c, fd, torn, &d) ? &d : NULL,
				      "a record is damaged", false);
			torn = 0;
			r = check_record(c, &rec, off, stored);
		}
	}
	uint64_t end = sc.objects;
	bool cuttable = c->repair && locked && !sc.unreadable;
	pack_scan_done(&sc);
	if (r < 0 || (!torn && !sealed))
		return r;
	if (cuttable) {
		r = cut(c, fd, end);
		if (r < 0)
			return r;
	}
	fault(c, true, sealed ? end : torn, NULL,
	      sealed ? "its table of contents is damaged" : "its end is torn", cuttable);
	return 0;
}

static int check_header(struct check *c, int fd, bool locked)
{
	uint8_t h[PACK_HEADER_BYTES];
	ssize_t n = io_read_full(c->s->io, fd, h, sizeof(h), 0);
	if (n == PACK_HEADER_BYTES && pack_header_decode(h, c->now->id) == 0)
		return 0;
	bool fix = c->repair && locked && n >= 0;
	if (fix) {
		pack_header_encode(h, c->now->id);
		int r = io_write_full(c->s->io, fd, h, sizeof(h), 0);
		if (r < 0)
			return r;
	}
	fault(c, true, 0, NULL, "its header is damaged", fix);
	return 0;
}

static int check_open_pack(struct check *c, int fd, bool locked)
{
	struct store *s = c->s;
	struct stat st;
	int r = s->io->fstat(s->io->ctx, fd, &st);
	struct pack_row row = { 0 };
	if (r == 0)
		r = index_row(s->index, c->now->id, &row);
	if (r < 0)
		return r;
	uint64_t size = (uint64_t)st.st_size;
	if (!locked && row.indexed < size)
		size = row.indexed; /* the rest is its writer's business */
	if (size > PACK_SIZE_MAX)
		size = PACK_SIZE_MAX;
	c->now->end = size;
	if (size < PACK_HEADER_BYTES)
		return 0; /* its writer is just beginning */
	r = check_header(c, fd, locked);
	if (r < 0)
		return r;
	if (row.flags & ROW_BROKEN || (uint64_t)st.st_size < row.indexed)
		fault(c, true, size, NULL, "it is shorter than it was", false);
	auto_free struct pack_entry *e = NULL;
	size_t n = 0;
	r = pack_toc_read(s->io, fd, c->now->id, size, &e, &n);
	if (r == 0)
		return check_listed(c, fd, e, n);
	if (r == -ENOMEM)
		return r;
	return check_scanned(c, fd, size, locked, row.flags & ROW_SEALED || r == -EBADMSG);
}

static int check_pack(struct check *c)
{
	struct store *s = c->s;
	pack_name(c->name, c->now->id);
	int fd = store_lock_pack(s, c->now->id);
	bool locked = fd >= 0;
	if (!locked)
		fd = s->io->open(s->io->ctx, s->packs_fd, c->name, O_RDONLY, 0);
	if (fd == -ENOENT)
		return 0; /* a new one that was taken back */
	if (fd < 0) {
		fault(c, true, 0, NULL, "it can't be opened", false);
		return 0;
	}
	int r = check_open_pack(c, fd, locked);
	(void)s->io->close(s->io->ctx, fd); /* what was repaired need not be durable */
	return r;
}

/* ---- the index ---- */

static struct pack_seen *find_pack(struct check *c, uint64_t id)
{
	return c->npacks ? bsearch(&id, c->packs, c->npacks, sizeof(*c->packs), array_by_u64)
			 : NULL;
}

static bool was_seen(const struct pack_seen *ps, uint64_t off, uint32_t tag)
{
	const struct seen *v = (const struct seen *)(const void *)ps->seen.data;
	size_t lo = 0, n = ps->seen.len / sizeof(*v), hi = n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (v[mid].unit < off / PACK_ALIGN)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < n && off % PACK_ALIGN == 0 && v[lo].unit == off / PACK_ALIGN &&
	       v[lo].tag == tag;
}

static int check_entry(void *ctx, const struct digest *d, const struct place *p)
{
	struct check *c = ctx;
	struct pack_seen *ps = p->pack ? find_pack(c, p->pack) : NULL;
	if (ps && (p->off >= ps->end || was_seen(ps, p->off, tag_of(d))))
		return 0;
	struct pack_row row;
	if (!ps && p->pack && index_row(c->s->index, p->pack, &row) > 0 &&
	    !(row.flags & ROW_BROKEN)) {
		/* A pack that is younger than our list. */
		struct pack_file *f;
		if (files_get(c->s, p->pack, &f) == 0) {
			files_put(c->s, f);
			return 0;
		}
	}
	if (c->repair) {
		int r = store_index_write(c->s, offer_txn, &(struct offer){ d, *p, true });
		if (r < 0)
			return r;
		buf_add(&c->gone, d->b, sizeof(d->b));
		if (buf_error(&c->gone) < 0)
			return buf_error(&c->gone);
	}
	fault(c, false, 0, d,
	      !p->pack ? "its entry in the index is damaged"
	      : !ps    ? "its pack is missing"
		       : "the index says it is where no whole record is",
	      c->repair);
	return 0;
}

static int check_rows(struct check *c)
{
	auto_free struct pack_row *rows = NULL;
	size_t n = 0;
	int r = index_rows(c->s->index, &rows, &n);
	for (size_t i = 0; r == 0 && i < n; i++) {
		if (find_pack(c, rows[i].id) || !(rows[i].flags & ROW_BROKEN))
			continue;
		pack_name(c->name, rows[i].id);
		struct row_job job = { rows[i].id, 0, 0, true };
		if (c->repair)
			r = store_index_write(c->s, row_txn, &job);
		fault(c, true, 0, NULL, "the pack is missing", c->repair);
	}
	return r;
}

static int compare_digests(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct digest));
}

/* Is one of the digests that were taken out of the index that of the record at `off`? */
static int offer_copy(struct check *c, const struct pack_seen *ps, uint64_t off)
{
	struct pack_file *f;
	int r = files_get(c->s, ps->id, &f);
	if (r < 0)
		return r;
	uint8_t head[PACK_HEAD_BYTES];
	struct pack_record rec;
	ssize_t n = io_read_full(c->s->io, f->fd, head, sizeof(head), off);
	files_put(c->s, f);
	if (n != PACK_HEAD_BYTES || pack_record_decode(&rec, head) < 0 ||
	    !bsearch(&rec.digest, c->gone.data, c->gone.len / sizeof(struct digest),
		     sizeof(struct digest), compare_digests))
		return 0;
	struct offer o = { &rec.digest,
			   { .pack = ps->id, .off = off, .raw = rec.raw, .stored = rec.stored },
			   false };
	return store_index_write(c->s, offer_txn, &o);
}

/* Enters other copies of the objects whose entries were wrong. */
static int find_copies(struct check *c)
{
	size_t n = c->gone.len / sizeof(struct digest);
	if (n == 0)
		return 0;
	qsort(c->gone.data, n, sizeof(struct digest), compare_digests);
	/* Digests are compared in full only where a bit of this table says they may match. */
	auto_free uint8_t *maybe = calloc(1, 1 << 13);
	if (!maybe)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		uint32_t tag = le_get32(c->gone.data + i * sizeof(struct digest)) & 0xffff;
		maybe[tag / 8] |= (uint8_t)(1 << tag % 8);
	}
	for (size_t i = 0; i < c->npacks; i++) {
		const struct pack_seen *ps = &c->packs[i];
		const struct seen *v = (const struct seen *)(const void *)ps->seen.data;
		for (size_t k = 0; k < ps->seen.len / sizeof(*v); k++) {
			uint32_t tag = v[k].tag & 0xffff;
			if (!(maybe[tag / 8] & 1 << tag % 8))
				continue;
			int r = offer_copy(c, ps, (uint64_t)v[k].unit * PACK_ALIGN);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

/* ---- the whole ---- */

/* 1: whole, or made so; 0: damaged, so that nothing more can be said. */
static int check_structure(struct check *c, struct err *err)
{
	int r = index_verify(c->s->index);
	if (r != -EBADMSG)
		return r < 0 ? err_sys(err, r, "read the index of the store") : 1;
	r = c->repair ? recover_rebuild(c->s, err) : 0;
	bool repaired = c->repair && r == 0;
	fault(c, false, 0, NULL, "the index is damaged", repaired);
	return r < 0 && r != -EWOULDBLOCK ? r : repaired;
}

static int check_all(struct check *c, struct err *err)
{
	struct store *s = c->s;
	auto_free uint64_t *ids = NULL;
	int r = check_structure(c, err);
	if (r <= 0)
		return r;
	r = writer_flush(s, err);
	if (r == 0)
		r = recover_catch_up(s, err);
	if (r == 0)
		r = store_list_packs(s, &ids, &c->npacks, err);
	if (r < 0)
		return r;
	c->packs = calloc(c->npacks ? c->npacks : 1, sizeof(*c->packs));
	if (!c->packs)
		return err_sys(err, -ENOMEM, "check the store");
	for (size_t i = 0; i < c->npacks; i++)
		c->packs[i].id = ids[i];
	for (size_t i = 0; r == 0 && i < c->npacks; i++) {
		c->now = &c->packs[i];
		r = check_pack(c);
		if (r < 0)
			return err_sys(err, r, "check pack %s", c->name);
	}
	r = index_each(s->index, check_entry, c);
	if (r == 0)
		r = check_rows(c);
	if (r == 0)
		r = find_copies(c);
	return r < 0 ? err_sys(err, r, "check the index of the store") : 0;
}

int64_t store_check(struct store *s, bool repair,
		    void (*report)(void *ctx, const struct store_fault *f), void *ctx,
		    struct err *err)
{
	auto_fd lock = gc_lock(s, err);
	if (lock < 0)
		return lock;
	struct check c = { .s = s, .repair = repair, .report = report, .ctx = ctx };
	c.rd = reader_get(s);
	c.raw = malloc(STORE_OBJECT_MAX);
	int r = c.rd && c.raw ? check_all(&c, err) : err_sys(err, -ENOMEM, "check the store");
	for (size_t i = 0; c.packs && i < c.npacks; i++)
		buf_done(&c.packs[i].seen);
	free(c.packs);
	free(c.raw);
	buf_done(&c.gone);
	if (c.rd)
		reader_put(s, c.rd);
	return r < 0 ? r : c.faults;
}
