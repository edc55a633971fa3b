/* Lists of a directory's names, copied out of a view, for comparing by name. */
#ifndef BOUGH_WORK_TREE_NAMES_H
#define BOUGH_WORK_TREE_NAMES_H

#include "fs/work/view.h"

struct name {
	uint64_t ino;
	uint8_t type, len;
	char text[]; /* not terminated */
};

struct names {
	struct name **v;
	size_t n, cap;
};

/* Every name of the directory. -ENOENT, -EIO, -ENOMEM. */
int names_all(struct names *s, const struct view *v, uint64_t dir);
/* For each cookie of `dir` that the layers above the `common` lowest ones touch, in either
 * view: the name that `a` shows there into x, the one that `b` shows into y. */
int names_touched(struct names *x, struct names *y, const struct view *a, const struct view *b,
		  uint64_t dir, uint32_t common);
void names_sort(struct names *s); /* by bytes */
int name_compare(const struct name *a, const struct name *b);
void names_done(struct names *s);

#define auto_names __attribute__((cleanup(names_done))) struct names

#endif
