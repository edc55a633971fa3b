/* The server's side of bough-hold (fs/hold/hold.h): it keeps what this process would need to
 * have had a successor. What is put is remembered here too, so that another holder can be
 * started when the one that runs dies; without any, mounts work and end with the server.
 *
 *     holder_open -> holder_take -> holder_put … holder_drop … -> holder_close
 *
 * Threads: any. */
#ifndef BOUGH_MOUNT_HOLDER_H
#define BOUGH_MOUNT_HOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/base/err.h"
#include "fs/mount/starter.h"

struct holder;

/* Where it listens; the caller frees. NULL: no memory. */
char *holder_socket(const char *root);
/* Finds the one that runs, if any; it is started by the first holder_put, by `starter`, which is
 * borrowed. The caller has the server lock of `root`. */
int holder_open(struct holder **out, const char *root, struct starter *starter, struct err *err);
/* Goes away; what was put and not dropped stays with the holder, which ends when there is nothing:
 * so much is waited for. NULL allowed. */
void holder_close(struct holder *h);

struct holder_entry {
	uint64_t key;
	int fd;
	void *blob;
	size_t len;
};
/* What a server before has left there, in order of key. The caller owns all of it, puts or drops
 * each, and frees the array. 0 or -errno. */
int holder_take(struct holder *h, struct holder_entry **out, size_t *n, struct err *err);
/* Keeps `fd` (borrowed until holder_drop) under `key` (above HOLD_BOARD), with a blob. Again with
 * the same key: the blob is replaced. Best effort; a failure is logged. */
void holder_put(struct holder *h, uint64_t key, int fd, const void *blob, size_t len);
void holder_drop(struct holder *h, uint64_t key);
/* Returns when what was put and dropped before is done. */
void holder_sync(struct holder *h);
/* When the holder runs another program than would be started now, it is replaced. */
void holder_renew(struct holder *h);

/* ---- the board: memory that outlives this process with the holder ---- */

/* What is known of one mount beyond the server's life. */
struct holder_slot {
	_Atomic uint64_t key;   /* 0: nobody's */
	_Atomic uint16_t gen;   /* ws_keep_gen */
	_Atomic uint16_t tries; /* how often going on with it was begun and not ended */
	uint32_t reserved;
};
/* The mount's, found or taken; NULL where there is no room. Ends with holder_drop. */
struct holder_slot *holder_slot(struct holder *h, uint64_t key);

/* The server before ended by its own fault: what it was at counts for so much more. One that was
 * killed from outside says little of what it was at. */
enum { HOLDER_CRASH = 8 };
void holder_crashed(struct holder *h);
/* Counts that a request that was sent before is about to be tried again; how often that is, by
 * that measure. Those that the board has no room for count as the first time. */
unsigned holder_try(struct holder *h, uint64_t tag);
void holder_tried(struct holder *h, uint64_t tag); /* it didn't kill the server */

#endif
