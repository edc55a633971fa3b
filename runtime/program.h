/* A program that is run to its end, for what it prints. */
#ifndef BOUGH_RUNTIME_PROGRAM_H
#define BOUGH_RUNTIME_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include "fs/base/buf.h"
#include "fs/base/err.h"

struct program {
	const char *const *argv; /* argv[0] is the program's path */
	const char *const *env;  /* NULL: that of the caller */
	const char *dir;         /* NULL: the caller's */
	int timeout_ms;
	size_t max; /* bytes kept of each of its outputs; the rest is lost */
};

/* Runs it with an empty input, no descriptors but its three, no signal blocked, and waits until it
 * has ended (what it left running may hold its outputs for as long as it likes). `out` and `errors`
 * get what it wrote, and may be NULL. Returns its exit code, 128 + n for signal n; -ENOENT: there
 * is no such program; -ETIMEDOUT: it was killed. */
int program_run(const struct program *c, struct buf *out, struct buf *errors, struct err *err);

/* Whether the process behind a pidfd ends within that time (< 0: waits for it). */
bool program_ended(int pidfd, int timeout_ms);

#endif
