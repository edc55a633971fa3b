/* Looks every policy.look_every_s for workspaces and snapshots whose time is up, and does with them
 * what their on_expiry says; takes away what the journal keeps no longer. */
#ifndef BOUGH_SNAPD_KEEPER_H
#define BOUGH_SNAPD_KEEPER_H

#include "fs/base/err.h"

struct snapd;
struct keeper;
int keeper_start(struct keeper **out, struct snapd *sd, struct err *err);
void keeper_stop(struct keeper *k); /* ends after what it is at; NULL allowed */

#endif
