/* Are two inodes the same? Proven by where their bytes lie, or by reading them. */
#ifndef BOUGH_WORK_SAME_H
#define BOUGH_WORK_SAME_H

#include "fs/work/view.h"

/* 1 when the contents of two regular files are equal, 0 when not, or -errno. */
int same_content(const struct view *a, uint64_t ino_a, uint64_t size_a, const struct view *b,
		 uint64_t ino_b, uint64_t size_b, struct err *err);
/* The same for symlinks' targets, and for the sets of xattrs. */
int same_target(const struct view *a, uint64_t ino_a, const struct view *b, uint64_t ino_b);
int same_xattrs(const struct view *a, const struct attr *attr_a, const struct view *b,
		const struct attr *attr_b);

#endif
