/* gc by the clock: policy.gc_every_s after the last one, whoever asked for that, also when boughd
 * was started anew meanwhile; and soon when the disk is nearly full. It goes on beside everything
 * else, with low priority. */
#ifndef BOUGH_SNAPD_TIDIER_H
#define BOUGH_SNAPD_TIDIER_H

#include <stdint.h>
#include "fs/base/err.h"

struct snapd;
struct tidier;
int tidier_start(struct tidier **out, struct snapd *sd, struct err *err);
/* Ends the gc under way at its next step; NULL allowed. */
void tidier_stop(struct tidier *t);
/* Room is needed: runs soon, unless it has just been. Never blocks. NULL allowed. */
void tidier_hurry(struct tidier *t);
/* A gc ended now, and this is what snapshots and workspaces hold in the store, each counted for
 * itself, in bytes before compression (NULL: it isn't known). */
void tidier_note(struct snapd *sd, const uint64_t *held);
/* How many times the store would be as large without deduplication, as the last gc found it, also
 * of a boughd before this one; 0: there was none. */
double tidier_dedup(struct snapd *sd, uint64_t *held);

#endif
