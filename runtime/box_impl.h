/* The insides of boxes, for box.c and what stands beside it. */
#ifndef BOUGH_RUNTIME_BOX_IMPL_H
#define BOUGH_RUNTIME_BOX_IMPL_H

#include <limits.h>
#include "runtime/box.h"
#include "runtime/cgroup.h"

/* dir/name; -ENAMETOOLONG. */
int box_path(char out[PATH_MAX], const char *dir, const char *name);
#define BOX_TMP "/tmp"
/* What an earlier version made in a box of gVisor that runs since then, and the links that it left
 * in roots where it had attached. */
#define BOX_OLD_SLOTS "slots"
#define BOX_OLD_LINKS "/.bough/slots/"

/* The box's user namespace. A descriptor. */
int box_user_ns(const struct box_config *c, struct err *err);
/* The mount points that every box has, in a root (a descriptor). */
int box_fill_points(int root, struct err *err);

/* As box_unenforced, on a machine with these cgroups. */
void box_unenforced_by(const struct cgroups *groups, const struct runtime_kind *kind, char *out,
		       size_t size);

#endif
