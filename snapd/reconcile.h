/* Making catalog, folders and mounts agree again: at the start, after bough-fs died, and when the
 * catalog is made anew. */
#ifndef BOUGH_SNAPD_RECONCILE_H
#define BOUGH_SNAPD_RECONCILE_H

#include <stdbool.h>
#include "fs/base/err.h"

struct snapd;

/* Catalog against disk, before bough-fs is needed:
 *   a folder with meta.json and no row      was acknowledged, the catalog lost it: adopted
 *   a row and no meta.json                  killed in between: written again
 *   a row and no folder                     "broken", which a later return heals
 *   a snapshot's record without a row       adopted; a row without a record: written again
 * Folders with neither are left to reconcile_fs. Does nothing while the catalog is damaged. */
int reconcile_rows(struct snapd *sd, struct err *err);

/* supervisor_options.ready: what nobody knows is removed, stale mounts of a dead bough-fs are taken
 * away, and what should be mounted is. ctx: struct snapd. */
int reconcile_fs(void *ctx, bool fresh, struct err *err);

#endif
