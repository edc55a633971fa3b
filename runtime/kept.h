/* What is kept of a process's output: KEY.log, of a bounded size.
 *
 * A head of KEPT_HEAD bytes, then a ring of `cap` bytes for stdout and another for stderr: the byte
 * at offset n of a stream lies at n % cap of its ring. bough-io alone writes it; whoever likes
 * reads it meanwhile. The head says which offsets exist, and is moved on before bytes are
 * overwritten and after bytes were added: so a reader that finds its offset in the head both before
 * and after it read has the right bytes. After a kill of bough-io all that the head names is there.
 * Nothing is synced: after a power cut a file may be damaged, but no sandbox runs then any more.
 *
 *      0  8  "BOUGHLOG"
 *      8  4  version: 1
 *     12  4  flags
 *     16  8  cap
 *     24 16  stdout: first, end
 *     40 16  stderr: first, end
 *     56  8  bytes of input that the fifo took
 *     64  8  checksum of the above (FNV-1a)
 *
 * all little-endian. */
#ifndef BOUGH_RUNTIME_KEPT_H
#define BOUGH_RUNTIME_KEPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	KEPT_HEAD = 72,
	KEPT_DATA = 4096, /* where the first ring begins */
	KEPT_CAP_MIN = 65536,
	KEPT_CAP_MAX = 1 << 30,
};

enum {
	KEPT_STARTED = 1,   /* the shim has ends of its own */
	KEPT_IN = 2,        /* it has an input */
	KEPT_IN_CLOSED = 4, /* which has ended */
	KEPT_CLOSED = 8,    /* stdout has ended; twice that: stderr */
	KEPT_FLAGS = 31,
};

struct kept {
	uint32_t flags;
	uint64_t cap;
	struct {
		uint64_t first, end;
	} stream[2];
	uint64_t in;
};

void kept_encode(uint8_t out[KEPT_HEAD], const struct kept *k);
/* -EBADMSG: it is torn (being written just now), damaged or of another version. */
int kept_decode(struct kept *out, const uint8_t in[KEPT_HEAD]);

/* The head as it is now; patient with one that is being written. */
int kept_load(int fd, struct kept *out);
int kept_store(int fd, const struct kept *k);

/* Reads up to `size` bytes of a stream from `offset` on: as output_read. */
int kept_read(int fd, unsigned stream, uint64_t offset, void *buf, size_t size);

/* Adds n bytes (KEPT_CAP_MIN at most) to a stream. Where the disk takes them not, they count as
 * dropped: the offsets go on behind them. -errno only when the head couldn't be written. */
int kept_append(int fd, struct kept *k, unsigned stream, const void *data, size_t n);

/* Drops what a stream has before offset `first` (first <= it <= end), and gives the disk its room
 * back. -errno: it is dropped, or (the head couldn't be written) nothing is. */
int kept_cut(int fd, struct kept *k, unsigned stream, uint64_t first);
/* Both streams have. */
static inline bool kept_ended(const struct kept *k)
{
	return (k->flags & KEPT_CLOSED * 3) == KEPT_CLOSED * 3;
}
/* Of both streams. */
static inline uint64_t kept_bytes(const struct kept *k)
{
	return k->stream[0].end - k->stream[0].first + k->stream[1].end - k->stream[1].first;
}

#endif
