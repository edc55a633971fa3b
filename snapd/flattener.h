/* Flattening in the background: a workspace whose stack has become long gets, one at a time
 * and with low priority, the same tree as one image. Forks and saves go on meanwhile.
 *
 * The result is remembered, so that forks that share their parent's long stack get the same
 * image without that work. */
#ifndef BOUGH_SNAPD_FLATTENER_H
#define BOUGH_SNAPD_FLATTENER_H

#include <stdbool.h>
#include "fs/base/err.h"
#include "fs/work/stack.h"
#include "snapd/lease.h"

struct snapd;
struct flattener;
int flattener_start(struct flattener **out, struct snapd *sd, struct err *err);
void flattener_stop(
	struct flattener *f); /* ends the one under way at its next step; NULL allowed */
/* Looks at the workspace soon, and flattens it if that is worth while; one that was removed is
 * closed (fs_close), which makes it durable. Never blocks. */
void flattener_consider(struct flattener *f, const char *ws_id);
/* How many wait to be looked at. */
size_t flattener_waiting(struct flattener *f);
/* Makes snapshots' records durable soon (records_sync), in the same thread. Never blocks. */
void flattener_sync_records(struct flattener *f);
/* For whoever seals or forks and is told -E2BIG: the workspace's chain is as long as it may be, and
 * is flattened in the caller's thread. That takes leases of its own, EXCLUSIVE among them, so the
 * caller's, of that workspace and of any kind, is given back meanwhile and taken again for `what`:
 * what was read under it may be another now, or gone. On failure the lease is given back. */
int flattener_shorten(struct flattener *f, struct lease *lease, const char *what, struct err *err);
/* Seals (fs_seal) for who holds `lease`, SHARED or SAVE: where the chain is too long after
 * flattener_shorten, and *again then. A chain that has become long is flattened soon. */
int flattener_seal(struct flattener *f, struct lease *lease, const char *what, struct stack *out,
		   bool *again, struct err *err);

#endif
