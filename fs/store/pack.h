/* The format of a pack: what its bytes mean, and how they are read back.
 *
 * A pack is a header and then records, each aligned to 8 bytes. A record names itself
 * (digest, sizes, codec) and proves itself: its XXH3 is seeded by the pack's id and the
 * record's own offset, so a record is valid in one place only. Whatever is copied elsewhere,
 * left behind by an earlier use of the disk or forged inside the content of another object
 * (ids are random and secret) is no record. A pack that is full is sealed by a table of
 * contents, whose last record lies at the very end. fs/FORMAT.md has every byte.
 *
 * Decoders here are pure and total. All functions are safe from any thread; a
 * struct pack_scan is used by one at a time. */
#ifndef BOUGH_STORE_PACK_H
#define BOUGH_STORE_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/base/hash.h"
#include "fs/base/io.h"
#include "fs/store/store.h"

enum {
	PACK_VERSION = 1,
	PACK_ALIGN = 8,
	PACK_HEADER_BYTES = 32,
	PACK_HEAD_BYTES = 56,      /* of a record, before what it stores */
	PACK_TOC_ENTRY_BYTES = 44, /* of one object in the table of contents */
	PACK_END_BYTES = PACK_HEAD_BYTES + 16,
	PACK_RECORD_MAX = PACK_HEAD_BYTES + STORE_OBJECT_MAX,
	PACK_NAME_BYTES = 16 + 5 + 1, /* of a pack's file name with its NUL */
};
/* A pack is never larger: offsets in the table of contents count 8 bytes in 32 bits. */
#define PACK_SIZE_MAX (UINT64_C(32) << 30)

enum pack_kind { PACK_OBJECT = 1, PACK_TOC = 2, PACK_END = 3 };
enum pack_codec { PACK_RAW = 0, PACK_ZSTD = 1 };

struct pack_record {
	struct digest digest; /* of the raw content; zero unless kind is PACK_OBJECT */
	uint32_t raw, stored; /* bytes of the content and of what is stored */
	uint8_t kind, codec;
};

/* Where an object lies in its pack. */
struct pack_entry {
	struct digest digest;
	uint64_t off; /* of the record */
	uint32_t raw, stored;
};

/* Bytes that a record with so many stored bytes takes in the file. */
static inline uint64_t pack_record_bytes(uint32_t stored)
{
	return PACK_HEAD_BYTES +
	       (((uint64_t)stored + PACK_ALIGN - 1) & ~(uint64_t)(PACK_ALIGN - 1));
}

/* "<16 hex digits>.pack" and back: 0 or -EINVAL. An id is never 0. */
void pack_name(char out[PACK_NAME_BYTES], uint64_t id);
int pack_name_parse(const char *name, uint64_t *id);

void pack_header_encode(uint8_t out[PACK_HEADER_BYTES], uint64_t id);
/* 0; -EBADMSG: damaged or another pack's; -EPROTONOSUPPORT: whole, and of an unknown version. */
int pack_header_decode(const uint8_t in[PACK_HEADER_BYTES], uint64_t id);

/* Fills in a record around its stored bytes, which are at p + PACK_HEAD_BYTES already, all
 * but the checksum; p has pack_record_bytes(r->stored) bytes. */
void pack_record_encode(uint8_t *p, const struct pack_record *r);
/* Makes the record valid at this place. */
void pack_record_place(uint8_t *p, size_t len, uint64_t id, uint64_t off);
/* Reads the head: 0, or -EBADMSG when it can't be one (the checksum isn't looked at). */
int pack_record_decode(struct pack_record *r, const uint8_t p[PACK_HEAD_BYTES]);
/* Is the record of `len` bytes (pack_record_bytes) whole, and at its place? */
bool pack_record_whole(const uint8_t *p, size_t len, uint64_t id, uint64_t off);

/* Reads the object's record at its place into buf (PACK_RECORD_MAX + PACK_ALIGN bytes) and
 * verifies it against `e`; the stored bytes are then at buf + PACK_HEAD_BYTES. 0; -EBADMSG;
 * -errno of the read. */
int pack_read(const struct io *io, int fd, uint64_t id, const struct pack_entry *e, uint8_t *buf,
	      struct pack_record *r);

/* ---- the table of contents ---- */

/* Appends table and end record at `off`, behind the last of the n entries, and gives the
 * file's new size. Nothing is synced: a table is a shortcut, and a pack without its end is
 * merely read record by record. */
int pack_toc_write(const struct io *io, int fd, uint64_t id, uint64_t off,
		   const struct pack_entry *e, size_t n, uint64_t *size);
/* The table of a sealed pack of `size` bytes; the caller frees *out. -ENODATA: it has no
 * valid end; -EBADMSG: it has one, and the table is damaged; -ENOMEM, -errno. */
int pack_toc_read(const struct io *io, int fd, uint64_t id, uint64_t size, struct pack_entry **out,
		  size_t *n);

/* ---- reading a pack record by record ---- */

struct pack_scan {
	const struct io *io;
	int fd;
	uint64_t id;
	uint64_t pos;     /* where the next record is looked for */
	uint64_t end;     /* where to stop */
	uint64_t whole;   /* end of the last whole record (at first: where the scan began) */
	uint64_t objects; /* end of the last whole record of an object (likewise) */
	bool unreadable;  /* the disk refused some of it, which was then taken as damaged */
	uint64_t work;    /* bytes hashed while looking for a record; bounded */
	uint8_t *buf;
	uint64_t buf_off;
	size_t buf_len;
};

enum { PACK_SCAN_END = 0, PACK_SCAN_RECORD = 1, PACK_SCAN_DAMAGE = 2 };

/* From `from` (a record's offset, or PACK_HEADER_BYTES) up to the file size `to`. The caller calls
 * pack_scan_done. -ENOMEM. */
int pack_scan_init(struct pack_scan *s, const struct io *io, int fd, uint64_t id, uint64_t from,
		   uint64_t to);
void pack_scan_done(struct pack_scan *s);
/* The next whole record: *r, its offset and its stored bytes (borrowed until the next call);
 * or the next stretch that holds none: *off and *len. Damage that reaches the end is a
 * torn tail. Never fails: what can't be read counts as damaged. */
int pack_scan_next(struct pack_scan *s, struct pack_record *r, uint64_t *off, uint64_t *len,
		   const uint8_t **stored);
/* What a table of contents up to `to` would say: the objects of all whole records before it, in
 * order. The caller frees *out. *gaps: whether there are stretches that hold none, and whether
 * the disk refused some, which it may give another time. -ENOMEM. */
enum pack_gaps { PACK_GAPLESS, PACK_DAMAGED, PACK_UNREADABLE };
int pack_scan_objects(const struct io *io, int fd, uint64_t id, uint64_t to,
		      struct pack_entry **out, size_t *n, enum pack_gaps *gaps);

#endif
