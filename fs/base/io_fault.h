/* A disk that fails on purpose, for tests: wraps another `struct io`, counts its calls
 * and fails those that a plan names. The usual test fails the n-th call for every n:
 *
 *     for (uint64_t n = 1;; n++) {
 *             struct io_fault *f = io_fault_new(NULL);
 *             io_fault_plan(f, &(struct io_fault_plan){
 *                     .ops = IO_OPS_CHANGE, .nth = n, .error = -EIO });
 *             int r = thing_do(io_fault_io(f), …);
 *             bool failed = io_fault_hits(f) > 0;
 *             … r < 0, or it coped; check what is on the disk, then
 *             io_fault_free(f);
 *             if (!failed)
 *                     break; // it makes fewer than n calls
 *     }
 *
 * With `for_good` nothing more reaches the disk after call n: what a kill leaves behind.
 * All calls are safe from any thread. */
#ifndef BOUGH_BASE_IO_FAULT_H
#define BOUGH_BASE_IO_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/base/io.h"

enum io_op {
	IO_OP_OPEN = 1 << 0,
	IO_OP_CLOSE = 1 << 1, /* the descriptor is closed all the same, as on the host */
	IO_OP_PREAD = 1 << 2,
	IO_OP_PWRITE = 1 << 3,
	IO_OP_FDATASYNC = 1 << 4,
	IO_OP_FSYNC = 1 << 5,
	IO_OP_FTRUNCATE = 1 << 6,
	IO_OP_FALLOCATE = 1 << 7,
	IO_OP_FSTAT = 1 << 8,
	IO_OP_MKDIR = 1 << 9,
	IO_OP_UNLINK = 1 << 10,
	IO_OP_RENAME = 1 << 11,
	IO_OP_LINK = 1 << 12,
	IO_OP_CREATE = 1 << 13, /* an open with O_CREAT or O_TRUNC, which is IO_OP_OPEN too */

	IO_OPS_ALL = (1 << 14) - 1,
	IO_OPS_SYNC = IO_OP_FDATASYNC | IO_OP_FSYNC,
	/* What leaves something else on the disk. */
	IO_OPS_CHANGE = IO_OP_CREATE | IO_OP_PWRITE | IO_OP_FTRUNCATE | IO_OP_FALLOCATE |
			IO_OP_MKDIR | IO_OP_UNLINK | IO_OP_RENAME | IO_OP_LINK | IO_OPS_SYNC,
};

struct io_fault_plan {
	unsigned ops;  /* io_op bits: the calls that are counted and failed */
	uint64_t nth;  /* which of them fails: 1 is the next one; 0: none */
	int error;     /* what it returns, a negated errno; 0: -EIO */
	bool for_good; /* all of `ops` after it fail too; false: only that one */
	size_t torn;   /* a failing pwrite first writes so many of its bytes; 0: none */
};

struct io_fault;

/* `below` NULL: io_host; borrowed until io_fault_free. NULL when out of memory. */
struct io_fault *io_fault_new(const struct io *below);
void io_fault_free(struct io_fault *f);
/* The failing disk, valid until io_fault_free. */
const struct io *io_fault_io(struct io_fault *f);

/* Replaces the plan; counting for `nth` and for io_fault_hits starts anew. NULL: no faults. */
void io_fault_plan(struct io_fault *f, const struct io_fault_plan *plan);
/* How many calls the present plan has failed. */
uint64_t io_fault_hits(struct io_fault *f);
/* How many calls of these kinds there were since io_fault_new, failed ones included. */
uint64_t io_fault_calls(struct io_fault *f, unsigned ops);

/* pread and pwrite move at most `bytes` a call; 0: no limit. */
void io_fault_chunk(struct io_fault *f, size_t bytes);
/* The disk takes so many bytes more by pwrite and fallocate (without punching), short at
 * first and then by -ENOSPC; UINT64_MAX: no limit. Freed space does not come back. */
void io_fault_space(struct io_fault *f, uint64_t bytes);

#endif
