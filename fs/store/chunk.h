/* Cutting large content where the content says so (FastCDC, Xia et al., USENIX ATC 2016),
 * so that a changed line costs one chunk, not all that lies behind it.
 *
 * A gear hash rolls over the bytes; a chunk ends where its top bits are zero: 20 of them
 * before the wanted size, 16 behind it (normalised chunking, level 2), and no cut is
 * looked for before the least size. The gear table is 256 numbers of splitmix64 from a
 * fixed seed. Runs of zeros of 64 KiB or more are pieces of their own: they
 * become holes. Where cuts fall matters to deduplication only, not to any format. */
#ifndef BOUGH_STORE_CHUNK_H
#define BOUGH_STORE_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	CHUNK_MIN = 64 * 1024,
	CHUNK_AVG = 256 * 1024,
	CHUNK_MAX = 1024 * 1024,
	CHUNK_ZEROS = 64 * 1024, /* the least run of zeros that is cut out */
	/* So much must be seen for a decision that doesn't depend on the caller's buffer. */
	CHUNK_LOOK = CHUNK_MAX + CHUNK_ZEROS,
};

/* Length (>= 1) of the first piece of p[0..n), n >= 1. n must be CHUNK_LOOK at least unless
 * nothing follows. *zero tells whether it is all zeros; it comes in true when the piece
 * before was zeros, so that their run goes on, however short the rest. A zero piece may be
 * longer than CHUNK_MAX. */
size_t chunk_next(const uint8_t *p, size_t n, bool *zero);

bool chunk_is_zero(const uint8_t *p, size_t n);

#endif
