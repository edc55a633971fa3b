#include "fs/work/synclog.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include "fs/base/hash.h"

static const uint32_t record_magic = 0x4c536742; /* "BgSL" */

enum {
	BODY_CHECK_AT = 112,
	CHECK_AT = 120,
	PIECE_HEAD = 24,
};
static const uint64_t FILES_END = UINT64_C(1) << 48; /* numbers of inodes are below it */
_Static_assert(CHECK_AT + 8 == SYNCLOG_HEAD, "the header ends with its check");

void synclog_piece_head(struct buf *b, uint64_t file, uint64_t off, uint64_t len)
{
	buf_u64(b, file);
	buf_u64(b, off);
	buf_u64(b, len);
}

void synclog_finish(struct buf *b, const struct synclog_record *r, uint64_t salt)
{
	if (b->failed)
		return;
	assert(b->len >= SYNCLOG_HEAD && b->len - SYNCLOG_HEAD <= SYNCLOG_BODY_MAX);
	uint32_t len = (uint32_t)(b->len - SYNCLOG_HEAD);
	uint8_t *p = b->data;
	memset(p, 0, SYNCLOG_HEAD);
	le_put32(p, record_magic);
	le_put32(p + 4, len);
	le_put64(p + 8, r->number);
	le_put64(p + 16, r->base);
	memcpy(p + 24, r->boot, BOOT_ID_BYTES);
	le_put64(p + 40, r->upto);
	le_put64(p + 48, r->from);
	le_put64(p + 56, r->end);
	le_put64(p + 64, r->seq);
	le_put64(p + 72, r->last_ino);
	le_put32(p + 80, r->pieces);
	le_put64(p + BODY_CHECK_AT, hash_xxh3(p + SYNCLOG_HEAD, len, salt));
	le_put64(p + CHECK_AT, hash_xxh3(p, CHECK_AT, salt));
	size_t pad = synclog_bytes(len) - b->len;
	uint8_t *room = buf_room(b, pad);
	if (!room)
		return;
	memset(room, 0, pad);
	b->len += pad;
}

static int check_pieces(const struct synclog_record *r)
{
	struct cur c = synclog_pieces(r);
	struct synclog_piece piece;
	uint32_t n = 0;
	int e;
	while ((e = synclog_next(&c, &piece)) > 0)
		n++;
	return e < 0 || n != r->pieces ? -EBADMSG : 0;
}

int synclog_decode(struct synclog_record *out, const uint8_t *p, size_t n, uint64_t salt)
{
	if (n < SYNCLOG_HEAD || le_get32(p) != record_magic ||
	    le_get64(p + CHECK_AT) != hash_xxh3(p, CHECK_AT, salt))
		return -EBADMSG;
	struct synclog_record r = { .len = le_get32(p + 4),
				    .number = le_get64(p + 8),
				    .base = le_get64(p + 16),
				    .upto = le_get64(p + 40),
				    .from = le_get64(p + 48),
				    .end = le_get64(p + 56),
				    .seq = le_get64(p + 64),
				    .last_ino = le_get64(p + 72),
				    .pieces = le_get32(p + 80),
				    .body = p + SYNCLOG_HEAD };
	memcpy(r.boot, p + 24, BOOT_ID_BYTES);
	if (r.len > SYNCLOG_BODY_MAX || synclog_bytes(r.len) > n || r.end < r.from ||
	    r.end - r.from > r.len || r.upto > r.seq || r.end > INT64_MAX ||
	    le_get64(p + BODY_CHECK_AT) != hash_xxh3(r.body, r.len, salt))
		return -EBADMSG;
	int e = check_pieces(&r);
	if (e == 0)
		*out = r;
	return e;
}

int synclog_next(struct cur *c, struct synclog_piece *out)
{
	if (cur_left(c) == 0)
		return 0;
	if (cur_left(c) < PIECE_HEAD)
		return -EBADMSG;
	struct synclog_piece piece;
	piece.file = cur_u64(c);
	piece.off = cur_u64(c);
	piece.len = cur_u64(c);
	if (piece.file >= FILES_END || piece.len == 0 || piece.len > cur_left(c) ||
	    piece.off > INT64_MAX - piece.len)
		return -EBADMSG;
	piece.bytes = cur_take(c, (size_t)piece.len);
	*out = piece;
	return 1;
}
