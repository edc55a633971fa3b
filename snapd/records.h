/* What stands beside the data, so that the catalog can be made anew without it:
 *
 *   ROOT/ws/<id>/meta.json     a workspace's row. Written after the catalog's commit, not
 *                              synced: a folder with it was acknowledged, one without never.
 *                              The first fsync in the workspace makes it durable (ws_fsync);
 *                              before it is replaced the row is made so (snapd_record_ws).
 *   ROOT/snapshots/<id>.json   a snapshot's row, written before the catalog's commit, whose
 *                              sync makes the snapshot durable; this file becomes so soon after
 *                              (records_sync), and is written again where a power failure came
 *                              first. A snapshot is deleted by deleting this file first.
 *
 * Threads: any; one writer for each id (its lease). */
#ifndef BOUGH_SNAPD_RECORDS_H
#define BOUGH_SNAPD_RECORDS_H

#include <jansson.h>
#include "fs/base/io.h"
#include "snapd/catalog.h"

enum { RECORD_MAX = 8 << 20 }; /* bytes of one file; message and labels are bounded far below */

struct records;
/* Folders under `root` exist already. `io` is borrowed. */
int records_open(struct records **out, const char *root, const struct io *io, struct err *err);
void records_close(struct records *r); /* NULL allowed */

int records_ws_write(struct records *r, const struct ws_row *row, struct err *err);
/* -ENOENT: none; -EBADMSG: not one, or memory ran out inside jansson (it may be read again).
 * head_stack is left empty, as it isn't kept there. */
int records_ws_read(struct records *r, const char *id, struct ws_row *out, struct err *err);
int records_ws_remove(struct records *r, const char *id,
		      struct err *err); /* durable; 0 if absent */

/* `now`: durable on return; else by the next records_sync. */
int records_snap_write(struct records *r, const struct snap_row *row, bool now, struct err *err);
/* What was written without `now` becomes durable. Any thread; slow. */
int records_sync(struct records *r, struct err *err);
int records_snap_read(struct records *r, const char *id, struct snap_row *out, struct err *err);
int records_snap_remove(struct records *r, const char *id, struct err *err); /* durable */

/* Ids of the folders of ROOT/ws, or of the files of ROOT/snapshots; the caller frees *ids,
 * one block of ID_SIZE bytes each. Names that are no ids are left out. */
int records_ws_ids(struct records *r, char (**ids)[ID_SIZE], size_t *n, struct err *err);
int records_snap_ids(struct records *r, char (**ids)[ID_SIZE], size_t *n, struct err *err);

/* Pure halves, for tests and fuzzing. Decoding takes any bytes: 0, -EBADMSG, -ENOMEM. */
int ws_record_decode(struct ws_row *out, const void *data, size_t len);
int snap_record_decode(struct snap_row *out, const void *data, size_t len);

#endif
