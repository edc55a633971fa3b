/* Small files that options name: secrets, mostly. */
#ifndef BOUGH_TOOLS_INFILE_H
#define BOUGH_TOOLS_INFILE_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/err.h"

struct infile {
	char *text; /* with a NUL behind it */
	size_t len; /* as the caller has cut it */
	size_t size; /* bytes that were allocated */
};

/* The content ("-": of stdin), which infile_done wipes and frees; -EINVAL: more than `max`
 * bytes. */
int infile_read(const char *path, size_t max, struct infile *out, struct err *err);

/* All of it, whatever NULs are in it. */
static inline void infile_done(struct infile *f)
{
	if (f->text)
		explicit_bzero(f->text, f->size);
	free(f->text);
	*f = (struct infile){ 0 };
}
#define auto_infile __attribute__((cleanup(infile_done))) struct infile

#endif
