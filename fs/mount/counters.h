/* Counters of FUSE requests: one set for each mount, summed up for the whole server.
 * All are since the start of their owner; any thread adds, any thread reads. */
#ifndef BOUGH_MOUNT_COUNTERS_H
#define BOUGH_MOUNT_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

/* Opcodes of the protocol are below 64 so far; larger ones are counted as 0. */
enum { OPCODES = 64 };

struct counters {
	_Atomic uint64_t requests[OPCODES]; /* by opcode */
	_Atomic uint64_t errors;            /* answers that were an error, but ENOSYS and ENODATA */
	_Atomic uint64_t bytes_read, bytes_written; /* of file content */
};

/* "LOOKUP" for 1 …; NULL for numbers that mean nothing to us. */
const char *opcode_name(unsigned opcode);

static inline void counters_request(struct counters *c, unsigned opcode)
{
	atomic_fetch_add_explicit(&c->requests[opcode < OPCODES ? opcode : 0], 1,
				  memory_order_relaxed);
}

static inline void counter_add(_Atomic uint64_t *c, uint64_t n)
{
	atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

static inline uint64_t counter_get(const _Atomic uint64_t *c)
{
	return atomic_load_explicit(c, memory_order_relaxed);
}

void counters_add(struct counters *to, const struct counters *from);
uint64_t counters_total(const struct counters *c); /* requests of all opcodes */

#endif
