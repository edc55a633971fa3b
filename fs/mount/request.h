/* The request that the calling thread answers: what the journal must say of it, and whether a
 * server before may have done it already. */
#ifndef BOUGH_MOUNT_REQUEST_H
#define BOUGH_MOUNT_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

struct request {
	uint64_t tag; /* caller.tag; 0: nobody will ever ask for it */
	bool again;   /* the kernel sends it once more */
};

/* 27 bits tell connections from each other, 36 its requests: only among the last LAYER_TAGS
 * operations must they be distinct. The highest bit is for those that no kernel asked for
 * (WS_TAG_OURS). */
static inline uint64_t request_tag(uint64_t connection, uint64_t unique)
{
	/* The kernel's are even; the lowest bit marks interrupts, the highest resent ones. */
	uint64_t number = (unique & INT64_MAX) >> 1 & ((UINT64_C(1) << 36) - 1);
	return (connection << 36 & INT64_MAX) | number;
}

void request_begin(uint64_t tag, bool again);
void request_end(void);
struct request request_now(void);

#endif
