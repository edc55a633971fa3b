/* A file that is written and is there only when it is whole. */
#ifndef BOUGH_TOOLS_OUTFILE_H
#define BOUGH_TOOLS_OUTFILE_H

#include <stdbool.h>
#include "fs/base/err.h"

/* The output file while it isn't whole: one without a name where the filesystem can do that, so
 * that nothing is left however this program ends; else a temporary one beside it. */
struct outfile {
	int fd;
	int dirfd; /* -1: stdout, nothing to commit */
	char *dir;
	char *temp;   /* name in dirfd, also before it is there; NULL: not to be renamed */
	bool unnamed; /* nothing has that name yet */
	const char *name;
};
#define OUTFILE_STDOUT               \
	{                            \
		.fd = 1, .dirfd = -1 \
	}
#define auto_outfile __attribute__((cleanup(outfile_done))) struct outfile

void outfile_done(struct outfile *o); /* what wasn't committed is nothing */
int outfile_open(struct outfile *o, const char *path, struct err *err);
/* Durable, under its name. */
int outfile_commit(struct outfile *o, struct err *err);

#endif
