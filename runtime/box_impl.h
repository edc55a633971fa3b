/* The insides of boxes, for box.c and what stands beside it. */
#ifndef BOUGH_RUNTIME_BOX_IMPL_H
#define BOUGH_RUNTIME_BOX_IMPL_H

#include <limits.h>
#include "runtime/box.h"
#include "runtime/cgroup.h"

/* dir/name; -ENAMETOOLONG. */
int box_path(char out[PATH_MAX], const char *dir, const char *name);
/* gVisor's kernel takes no mount from outside. What is put into a folder that its gofer has in
 * common with the host shows in it at once: DIR/slots/N, inside BOX_SLOTS_AT/N, to which a link at
 * the target leads. DIR/slot-N says which target that is. */
enum { BOX_SLOTS = 8 };
#define BOX_SLOTS_AT "/.bough/slots"
bool box_has_slots(const struct runtime_kind *kind);
int box_slots_make(const struct box_config *c, struct err *err);
int box_slot_attach(const struct box_config *c, const struct box_mount *m, struct err *err);
int box_slot_detach(const struct box_config *c, const char *target, bool force, struct err *err);

/* Removes the link that a slot of before may have left at a target. */
void box_slot_forget(const struct box_config *c, const char *target);

/* The box's user namespace. A descriptor. */
int box_user_ns(const struct box_config *c, struct err *err);
/* The mount points that every box has, in a root (a descriptor). */
int box_fill_points(int root, struct err *err);

/* As box_unenforced, on a machine with these cgroups. */
void box_unenforced_by(const struct cgroups *groups, const struct runtime_kind *kind, char *out,
		       size_t size);

#endif
