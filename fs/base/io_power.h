/* A disk that loses power, for tests: passes every call on to the host, and remembers what changed
 * below one folder, so that what a disk could hold when the power went at any moment can be made
 * in another folder and be opened as a root after a boot.
 *
 *     struct io_power *p = io_power_new("/dev/shm/run");      // an empty folder
 *     … use io_power_io(p); note io_power_now(p) where something is promised …
 *     for (uint64_t cut = 0; cut <= io_power_now(p); cut++)
 *             io_power_make(p, cut, &(struct io_power_loss){ .seed = 7 }, "/dev/shm/after", err);
 *
 * What was synced before the cut is there. Each sector of 512 bytes shows the file as it was at
 * some moment since its last sync, each its own: what was written earlier may be missing where
 * something later is there, and a write may be torn. The file's size and holes are of a moment of
 * their own. Of each folder's changes the first few are there, in order: how many is each
 * folder's own affair, so a name is sure only once its own folder was synced. This is less than
 * ext4, xfs and btrfs promise.
 *
 * What is changed around the seam isn't seen (LMDB's file), but io_power_stray tells when a file
 * is used that came into being so. All calls are safe from any thread, and happen one by one. */
#ifndef BOUGH_BASE_IO_POWER_H
#define BOUGH_BASE_IO_POWER_H

#include <stdbool.h>
#include <stdint.h>
#include "fs/base/err.h"
#include "fs/base/io.h"

struct io_power;
/* `root`: absolute, there, and empty. NULL when out of memory. */
struct io_power *io_power_new(const char *root);
void io_power_free(struct io_power *p); /* NULL allowed */
const struct io *io_power_io(struct io_power *p);

/* How many changes and syncs were made so far: a moment. */
uint64_t io_power_now(struct io_power *p);
/* A file that was changed though nobody made it by this io; NULL: none. */
const char *io_power_stray(struct io_power *p);

struct io_power_loss {
	/* LOSE_NONE: all landed, as after a kill. LOSE_ALL: nothing that wasn't synced. */
	enum { LOSE_SOME, LOSE_NONE, LOSE_ALL } what;
	uint64_t seed; /* of LOSE_SOME: the same seed loses the same */
};
/* Makes the tree in `dir`, which isn't there yet, as it may be when the power goes behind the
 * first `cut` changes. -ENOMEM; what the host says. */
int io_power_make(struct io_power *p, uint64_t cut, const struct io_power_loss *loss,
		  const char *dir, struct err *err);

#endif
