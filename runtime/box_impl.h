/* The insides of boxes, for box.c and what stands beside it. */
#ifndef BOUGH_RUNTIME_BOX_IMPL_H
#define BOUGH_RUNTIME_BOX_IMPL_H

#include <limits.h>
#include "runtime/box.h"

/* -EINVAL: no place for a workspace. */
int box_check_target(const struct box_config *c, const char *target, struct err *err);
/* dir/name; -ENAMETOOLONG. */
int box_path(char out[PATH_MAX], const char *dir, const char *name);
/* The box's user namespace. A descriptor. */
int box_user_ns(const struct box_config *c, struct err *err);
/* The mount points that every box has, in a root (a descriptor). */
int box_fill_points(int root, struct err *err);

#endif
