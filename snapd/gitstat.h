/* The lines of `git diff --stat`, 80 columns wide. */
#ifndef BOUGH_SNAPD_GITSTAT_H
#define BOUGH_SNAPD_GITSTAT_H

#include "fs/base/buf.h"

struct gitstat_file {
	const char *old_path, *path; /* old_path NULL: it has no other name */
	bool binary;
	uint64_t added, removed; /* lines; of binary content: its sizes after and before */
};
struct gitstat_line {
	char *name;
	size_t width; /* columns of the name */
	struct gitstat_file f;
};
struct gitstat {
	struct gitstat_line *v;
	size_t n, cap;
};
int gitstat_add(struct gitstat *s, const struct gitstat_file *f); /* 0 or -ENOMEM */
void gitstat_write(const struct gitstat *s, struct buf *out);
void gitstat_done(struct gitstat *s);

#endif
