/* What keeps new work from what there is no room for: a disk that is nearly full. */
#ifndef BOUGH_SNAPD_LIMITS_H
#define BOUGH_SNAPD_LIMITS_H

#include "snapd/api.h"

/* Whether a call like that takes room on the disk. Pure. */
bool limits_needs_room(const struct route *rt);
/* -ENOSPC: there is none for it. */
int limits_admit(const struct request *rq, const struct route *rt, struct err *err);

#endif
