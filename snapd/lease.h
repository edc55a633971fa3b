/* Leases: who may use a workspace or snapshot at the same time, inside boughd.
 *
 * What reads a stack (fork, diff, export) holds its owner's lease SHARED; a save holds SAVE,
 * which is shared but for other saves; what takes layers or objects away from it (rm,
 * restore, replacing by the flattened, a changed manifest) holds it EXCLUSIVE. So nothing
 * that a running operation reads is deleted, and gc, which marks from the catalog, sees
 * each object's owner either before or after such a change (invariant 8).
 *
 * Ids that are being made are held too, so that nobody takes them for left-overs.
 * Threads: any. To hold two: the workspace first, then the snapshot. */
#ifndef BOUGH_SNAPD_LEASE_H
#define BOUGH_SNAPD_LEASE_H

#include <stdbool.h>
#include "fs/base/err.h"
#include "snapd/names.h"

struct leases;
struct leases *leases_new(void);    /* NULL: out of memory */
void leases_free(struct leases *l); /* none is held; NULL allowed */

enum lease_kind { LEASE_NONE, LEASE_SHARED, LEASE_SAVE, LEASE_EXCLUSIVE };

/* A lease that its scope gives back. */
struct lease {
	struct leases *owner;
	enum lease_kind kind;
	char id[ID_SIZE];
};
/* Waits up to wait_ms for those who are in the way; then -EBUSY, which says what they do.
 * `what`: a literal such as "save". -ENOMEM. */
int lease_take(struct lease *out, struct leases *l, const char *id, enum lease_kind kind,
	       const char *what, int wait_ms, struct err *err);
void lease_give(struct lease *l); /* an empty one is allowed; it is empty afterwards */
bool lease_is_held(struct leases *l, const char *id);
/* Does somebody wait for a lease of it that those held are in the way of? Work in the background
 * then gives up. */
bool lease_is_wanted(struct leases *l, const char *id);

#define auto_lease __attribute__((cleanup(lease_give))) struct lease

enum { LEASE_WAIT_MS = 10000 }; /* what a request waits, before it says "busy" */

#endif
