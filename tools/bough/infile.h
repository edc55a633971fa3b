/* Small files that options name: secrets, mostly. */
#ifndef BOUGH_TOOLS_INFILE_H
#define BOUGH_TOOLS_INFILE_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/err.h"

/* The content ("-": of stdin) with a NUL behind it; -EINVAL: more than `max` bytes. The caller
 * frees it. */
int infile_read(const char *path, size_t max, char **out, size_t *len, struct err *err);

static inline void infile_wipe(char **s)
{
	if (*s)
		explicit_bzero(*s, strlen(*s));
	free(*s);
}
/* Wiped at its end; of what has a NUL in it, up to that. */
#define auto_secret __attribute__((cleanup(infile_wipe))) char

#endif
