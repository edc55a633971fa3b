/* A layer's log of fsyncs as bytes (fs/FORMAT.md, "Log of fsyncs"): records, each one fsync: the
 * end of the journal and the pieces of data files that weren't on the disk yet. layer_log.c knows
 * when one is written and when it counts.
 *
 * The decoder is pure, bounded and total. Its checks are mixed with the journal's random salt, so
 * no content that a tenant writes can pass for a record. */
#ifndef BOUGH_WORK_SYNCLOG_H
#define BOUGH_WORK_SYNCLOG_H

#include <stddef.h>
#include <stdint.h>
#include "fs/base/boot.h"
#include "fs/base/buf.h"

enum {
	SYNCLOG_BYTES = 1 << 20,      /* of the file */
	SYNCLOG_HEAD = 128,           /* bytes of a record before its body */
	SYNCLOG_ALIGN = 512,          /* records begin at multiples of it */
	SYNCLOG_BODY_MAX = 512 << 10, /* bounds what one fsync copies */
};

struct synclog_record {
	uint64_t number;             /* 1, 2, 3 … since the commit */
	uint64_t base;               /* number of the commit frame that the records follow */
	uint8_t boot[BOOT_ID_BYTES]; /* in which it was written */
	uint64_t upto;               /* all frames up to that number are durable with it */
	uint64_t from, end;          /* the part of the journal that is in it */
	uint64_t seq, last_ino;      /* of the last frame before `end`: its number and its inode */
	uint32_t pieces;
	const uint8_t *body; /* borrowed: the journal's bytes, then the pieces */
	uint32_t len;
};

struct synclog_piece {
	uint64_t file, off, len; /* file: 0 the packed one, else that inode's */
	const uint8_t *bytes;    /* borrowed */
};

/* A record is built in place: SYNCLOG_HEAD bytes of room, the journal's bytes, then for each piece
 * synclog_piece_head and its bytes. This fills in the room and appends the padding. */
void synclog_finish(struct buf *b, const struct synclog_record *r, uint64_t salt);
void synclog_piece_head(struct buf *b, uint64_t file, uint64_t off, uint64_t len);
static inline size_t synclog_bytes(size_t body)
{
	return (SYNCLOG_HEAD + body + SYNCLOG_ALIGN - 1) / SYNCLOG_ALIGN * SYNCLOG_ALIGN;
}

/* The record that begins at p: 0, or -EBADMSG when none does, whole, in these n bytes. */
int synclog_decode(struct synclog_record *out, const uint8_t *p, size_t n, uint64_t salt);
/* Where the pieces of a decoded record begin, for synclog_next. */
static inline struct cur synclog_pieces(const struct synclog_record *r)
{
	size_t skip = (size_t)(r->end - r->from);
	return cur_init(r->body + skip, r->len - skip);
}
int synclog_next(struct cur *c, struct synclog_piece *out); /* 1, 0: no more, -EBADMSG */

#endif
