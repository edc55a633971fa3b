/* Sets of inode numbers, gathered in any order and then walked in order. */
#ifndef BOUGH_WORK_INOS_H
#define BOUGH_WORK_INOS_H

#include <stdint.h>
#include "fs/work/view.h"

struct inos {
	uint64_t *v; /* sorted and distinct after inos_sort */
	size_t n, cap;
};

int inos_add(struct inos *s, uint64_t ino); /* 0 or -ENOMEM */
void inos_sort(struct inos *s);
void inos_done(struct inos *s);

/* Every inode that the first `nlayers` layers of the view (top first) have a version of or, with
 * `dirs`, that they have names of. */
int inos_add_layers(struct inos *s, const struct view *v, uint32_t nlayers, bool dirs);
/* Every inode of the image. 0, -ENOMEM, -EIO. */
int inos_add_image(struct inos *s, struct image *im);

/* Inodes that only one of two images has, or that were touched since `quiet` (diff.h) in one of
 * them; directories among them into `dirs` too. 0, -ENOMEM, -EIO. */
int inos_add_touched(struct inos *s, struct inos *dirs, struct image *a, struct image *b,
		     const struct timespec *quiet);

#define auto_inos __attribute__((cleanup(inos_done))) struct inos

#endif
