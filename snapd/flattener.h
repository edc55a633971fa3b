/* Flattening in the background: a workspace whose stack has become long gets, one at a time
 * and with low priority, the same tree as one image. Forks and saves go on meanwhile.
 *
 * The result is remembered, so that forks that share their parent's long stack get the same
 * image without that work. */
#ifndef BOUGH_SNAPD_FLATTENER_H
#define BOUGH_SNAPD_FLATTENER_H

#include "fs/base/err.h"

struct snapd;
struct flattener;
int flattener_start(struct flattener **out, struct snapd *sd, struct err *err);
void flattener_stop(
	struct flattener *f); /* ends the one under way at its next step; NULL allowed */
/* Looks at the workspace soon, and flattens it if that is worth while. Never blocks. */
void flattener_consider(struct flattener *f, const char *ws_id);
/* Makes snapshots' records durable soon (records_sync), in the same thread. Never blocks. */
void flattener_sync_records(struct flattener *f);
/* Flattens in the caller's thread, however short the stack. The caller holds no lease of it. */
int flattener_now(struct flattener *f, const char *ws_id, struct err *err);

#endif
