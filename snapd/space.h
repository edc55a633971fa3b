/* How much room the disk has. A reserve of it is for work that is under way: while less is left,
 * new work that would need some is refused, nothing that is removed can be brought back, and gc
 * runs. */
#ifndef BOUGH_SNAPD_SPACE_H
#define BOUGH_SNAPD_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/base/err.h"

struct snapd;
struct space {
	uint64_t total_bytes, free_bytes, reserve_bytes;
};
/* -errno where the disk can't be asked. */
int space_look(const struct snapd *sd, struct space *out);
bool space_low(const struct snapd *sd); /* false, too, where it can't be told */
/* -ENOSPC, with words, while it is low. */
int space_need(const struct snapd *sd, struct err *err);

#endif
