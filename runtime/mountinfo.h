/* The lines of /proc/self/mountinfo. Total: lines that aren't in order are passed over.
 * Source: proc_pid_mountinfo(5). */
#ifndef BOUGH_RUNTIME_MOUNTINFO_H
#define BOUGH_RUNTIME_MOUNTINFO_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/base/err.h"

struct mountinfo {
	const char *p, *end; /* what is still to be read */
	char point[PATH_MAX];
	bool whole; /* the root of its filesystem is what is mounted */
	const char *type; /* not ended by NUL */
	size_t type_len;
};

struct mountinfo mountinfo_begin(const char *text, size_t len);
bool mountinfo_next(struct mountinfo *m);
bool mountinfo_is(const struct mountinfo *m, const char *type);
/* This process's; the caller frees. */
int mountinfo_read(void **text, size_t *len, struct err *err);
/* Another's, as it sees them. */
int mountinfo_read_of(uint32_t pid, void **text, size_t *len, struct err *err);

#endif
