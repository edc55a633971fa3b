/* What keeps new work from what there is no room for: a disk that is nearly full, and an owner's
 * quota. */
#ifndef BOUGH_SNAPD_LIMITS_H
#define BOUGH_SNAPD_LIMITS_H

#include "snapd/api.h"

struct limits;
struct limits *limits_new(void);    /* NULL: out of memory */
void limits_free(struct limits *l); /* NULL allowed */

/* Whether a call like that takes room on the disk. Pure. */
bool limits_needs_room(const struct request *rq, const struct route *rt);
/* -ENOSPC, -EDQUOT: there is none for it. */
int limits_admit(const struct request *rq, const struct route *rt, struct err *err);
/* -EDQUOT: the owner can't have another snapshot. What makes one says so again in the end. */
int limits_snapshot(struct snapd *sd, const char *owner, struct err *err);
/* -ENOSPC, -EDQUOT: the disk, or the owner's quota, has no room for so many bytes beside what is
 * there. For work that is under way. */
int limits_room(struct snapd *sd, const char *owner, uint64_t more, struct err *err);
/* The same of what was `before` bytes and is `now`, while it comes: it looks every 16 MiB. */
int limits_stream(struct snapd *sd, const char *owner, uint64_t before, uint64_t now,
		  struct err *err);
/* What the owner's workspaces have written, those that were removed too, by how much its
 * snapshots let the store grow, what its sandboxes' processes printed and is kept, and exports
 * that are. */
int limits_bytes(struct snapd *sd, const char *owner, uint64_t *out, struct err *err);

#endif
