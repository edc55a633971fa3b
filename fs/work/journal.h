/* A layer's journal as bytes: a header block, then frames, each one atomic operation.
 * fs/FORMAT.md gives every byte. Here is what encodes and decodes them and walks over a
 * journal, damaged or not; layer.c knows what the frames mean.
 *
 * The decoder is pure, bounded and total. A header check is mixed with the journal's random
 * salt, so no content that a tenant writes can pass for a frame. */
#ifndef BOUGH_WORK_JOURNAL_H
#define BOUGH_WORK_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/base/boot.h"
#include "fs/base/buf.h"
#include "fs/base/io.h"
#include "fs/work/stack.h"

enum {
	JOURNAL_HEAD = 4096, /* bytes of the header; frames follow */
	JOURNAL_VERSION = 1,
	FRAME_HEAD = 64,              /* bytes of a frame before its body */
	FRAME_ALIGN = 8,              /* frames begin at multiples of it */
	JOURNAL_FRAME_MAX = 64 << 20, /* bytes of a body: bounds what a reader must hold at once */
};

struct journal_head {
	struct layer_id id;
	uint64_t salt;
	uint8_t boot[BOOT_ID_BYTES];
};

/* What a commit leaves out: the content that an inode got by frames behind `since`. */
enum { JOURNAL_LATE_MAX = 64 }; /* of one commit */
struct journal_late {
	uint64_t ino, since;
};

void journal_head_encode(uint8_t out[JOURNAL_HEAD], const struct journal_head *h);
/* 0, -EBADMSG (no such header, or damaged), -EPROTONOSUPPORT (another version). */
int journal_head_decode(struct journal_head *out, const void *data, size_t len);

enum frame_kind {
	FRAME_OP = 1,     /* records */
	FRAME_COMMIT = 2, /* body: u64, all frames up to that number are durable, but for what
	                     the struct journal_late that follow it leave out */
	FRAME_SEAL = 3,   /* no body; only commits follow */
	FRAME_RESET = 4,  /* body: u64 n, boot id: the frames after n and before this one count for
	                     nothing; from here on the journal was written in that boot */
};

struct journal_frame {
	uint64_t seq;      /* 1, 2, 3 … in the order of the file */
	uint64_t tag, ino; /* of FRAME_OP */
	uint64_t prev_ino; /* the frame before is about that inode: tells what was lost with it */
	uint32_t records;
	enum frame_kind kind;
	const uint8_t *body; /* borrowed */
	uint32_t len;        /* bytes of the body */
	uint64_t pos, end;   /* where it lies in the file, where the next one begins */
	bool body_ok;        /* the body's check holds (decoder and walk) */
};

/* A frame is built in place: FRAME_HEAD bytes of room, then the body. This fills in the
 * room and appends the padding; buf_error() tells if there was memory. */
void journal_frame_finish(struct buf *b, const struct journal_frame *f, uint64_t salt);
/* The body of a commit. */
void journal_commit_body(struct buf *b, uint64_t upto, const struct journal_late *late, uint32_t n);
/* Of a FRAME_COMMIT whose body_ok: how many late[] got, or -EBADMSG. */
int journal_commit_decode(const struct journal_frame *f, uint64_t *upto,
			  struct journal_late late[JOURNAL_LATE_MAX]);
/* Decodes a frame's header alone: 0 and kind, seq, …, len; or -EBADMSG. */
int journal_frame_decode(struct journal_frame *out, const uint8_t head[FRAME_HEAD], uint64_t salt);
/* Bytes of a frame with that body, padding included. */
static inline uint64_t journal_frame_bytes(uint64_t body)
{
	return (FRAME_HEAD + body + FRAME_ALIGN - 1) / FRAME_ALIGN * FRAME_ALIGN;
}

/* ---- walking over a journal's frames ---- */

enum journal_gap {
	GAP_NONE,
	GAP_UNWRITTEN, /* a sector of zeros, or zeros up to one's end: it never reached the disk */
	GAP_GARBAGE,
};

struct journal_walk {
	const struct io *io;
	int fd;
	uint64_t salt, size;  /* of the file when the walk began */
	uint64_t pos;         /* where the next frame is expected */
	uint64_t last;        /* number of the last frame met */
	uint64_t corrected;   /* headers so far that had one flipped bit: they count as whole */
	enum journal_gap gap; /* what lay before the frame just returned, or before the end */
	uint64_t gap_at; /* where it begins: what counts as the journal's end if no frame follows */
	bool unreadable; /* the gap holds bytes that the disk would not give */
	bool torn;       /* the gap begins with a header (or a part of one) of a frame that the
	                         file's end cuts */
	bool blank;      /* the gap begins with zeros, as a failed write leaves it */
	bool room;       /* the gap is zeros up to the file's end: nothing was written there yet */
	uint8_t *buf;    /* a window on the file */
	uint64_t buf_off;
	size_t buf_len, buf_cap;
	size_t bad_from, bad_to; /* the unreadable part of the window */
};

/* Starts behind the header. 0 or -errno. */
int journal_walk_init(struct journal_walk *w, const struct io *io, int fd, uint64_t salt);
void journal_walk_done(struct journal_walk *w);
/* The next frame whose header is whole and whose number is greater than the last one's: 1, and its
 * body is borrowed until the next call; 0 at the end; -errno. */
int journal_walk_next(struct journal_walk *w, struct journal_frame *out);
/* Whether the body has a sector's worth of zeros where a sector begins: what a block looks
 * like that never reached the disk. */
bool journal_frame_has_hole(const struct journal_frame *f);

#endif
