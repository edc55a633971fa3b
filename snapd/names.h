/* Ids and names of workspaces and snapshots. Pure. */
#ifndef BOUGH_SNAPD_NAMES_H
#define BOUGH_SNAPD_NAMES_H

#include <stdbool.h>
#include "fs/base/err.h"

enum {
	ID_CHARS = 13, /* "ws_", "sn_", "sb_", … and 10 of base32 */
	ID_SIZE = ID_CHARS + 1,
	NAME_CHARS = 100,
	NAME_SIZE = NAME_CHARS + 1,
	OWNER_SIZE = NAME_SIZE, /* "uid:N", or a user's name */
	ID_PREFIX_MIN = 6,      /* a snapshot may be named by so much of its id */
};

/* A fresh random id: 50 bits, so two among a million collide once in 2000 stores; the
 * catalog's key refuses the second. `kind` is "ws", "sn", "sb" … */
void id_make(char out[ID_SIZE], const char *kind);
bool id_is(const char *s, const char *kind);
/* A name a person may give. -EINVAL with what is wrong. */
int name_check(const char *s, struct err *err);
int label_key_check(const char *s, struct err *err);

#endif
