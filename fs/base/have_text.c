/* What lists are written with: apart, for a program that reads none and links no hash. */
#include "fs/base/have.h"

#include <stdio.h>

void have_put(struct buf *out, const struct have_file *f)
{
	buf_printf(out, "%llu %lld %ld %04o ", (unsigned long long)f->size,
		   (long long)f->mtime.tv_sec, f->mtime.tv_nsec, (unsigned)f->mode & 07777);
	buf_add(out, f->path, strlen(f->path) + 1);
}

int have_time_order(const struct timespec *a, const struct timespec *b)
{
	if (a->tv_sec != b->tv_sec)
		return a->tv_sec < b->tv_sec ? -1 : 1;
	return a->tv_nsec == b->tv_nsec ? 0 : a->tv_nsec < b->tv_nsec ? -1 : 1;
}
