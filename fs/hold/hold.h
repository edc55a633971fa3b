/* What a server asks of bough-hold, which keeps the /dev/fuse descriptors of a ROOT's mounts
 * beyond the server's life.
 *
 * Messages of frame.h over ROOT/run/hold.sock: the bytes below, little-endian, and a blob that is
 * the server's own business. One descriptor may go with a PUT and comes with an ENTRY.
 *
 *   0  u32 op    4  u32 reserved, zero    8  u64 key    16  blob
 *
 *   HELLO                  -> HELLO, blob: hold_identity of the holder's program. The peer is
 *                             a server from now on: with one there the holder only keeps
 *   PUT key blob [fd]      nothing is answered, so a server that dies right after it has done it:
 *                          the kernel keeps the message. Without a descriptor: a new blob for it
 *   DROP key
 *   NEXT key               -> ENTRY key blob fd: the one with the least key above it, or END
 *   PING                   -> PONG: all before is done
 *   DROP_ALL               -> PONG: every connection ends, its programs get ENOTCONN
 *
 * Key HOLD_BOARD is no connection but a memory that the server shares with its successors. */
#ifndef BOUGH_HOLD_HOLD_H
#define BOUGH_HOLD_HOLD_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include "fs/base/buf.h"

enum hold_op {
	HOLD_HELLO = 1,
	HOLD_PUT,
	HOLD_DROP,
	HOLD_NEXT,
	HOLD_ENTRY,
	HOLD_END,
	HOLD_PING,
	HOLD_PONG,
	HOLD_DROP_ALL,
};

enum {
	HOLD_HEAD = 16,       /* bytes before the blob */
	HOLD_BLOB_MAX = 8192, /* a path and an INIT */
	HOLD_ENTRIES_MAX = 8192,
	HOLD_BOARD = 1,
	/* How long it waits for a server to come back before it lets go: programs that wait for an
	 * answer can't be killed meanwhile. Enough for a machine that is busy restarting things. */
	HOLD_PATIENCE_S = 120,
};

struct hold_msg {
	enum hold_op op;
	uint64_t key;
	const void *blob; /* borrowed */
	size_t len;
};

static inline void hold_encode(struct buf *out, enum hold_op op, uint64_t key, const void *blob,
			       size_t len)
{
	buf_reset(out);
	buf_u32(out, op);
	buf_u32(out, 0);
	buf_u64(out, key);
	buf_add(out, blob, len);
}

/* 0 or -EBADMSG. */
static inline int hold_decode(struct hold_msg *out, const void *data, size_t len)
{
	struct cur c = cur_init(data, len);
	uint32_t op = cur_u32(&c), reserved = cur_u32(&c);
	uint64_t key = cur_u64(&c);
	if (c.bad || reserved || op < HOLD_HELLO || op > HOLD_DROP_ALL ||
	    cur_left(&c) > HOLD_BLOB_MAX)
		return -EBADMSG;
	*out = (struct hold_msg){ (enum hold_op)op, key, c.p, cur_left(&c) };
	return 0;
}

/* Tells one program's file from another's; its length. */
static inline int hold_identity(char *out, size_t size, const struct stat *st)
{
	return snprintf(out, size, BOUGH_VERSION " %llx:%llx %lld.%09ld",
			(unsigned long long)st->st_dev, (unsigned long long)st->st_ino,
			(long long)st->st_ctim.tv_sec, st->st_ctim.tv_nsec);
}

#endif
