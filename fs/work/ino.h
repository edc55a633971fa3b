/* The inode numbers of a root: one counter in ROOT/ino that never goes back, so that no two
 * files of a lineage share a number (invariant 1). Whoever makes inodes (the server, an
 * importer in another process) reserves a range first; what it doesn't use is lost, which
 * 48 bits bear. The file's bytes are in fs/FORMAT.md. */
#ifndef BOUGH_WORK_INO_H
#define BOUGH_WORK_INO_H

#include <stdint.h>
#include "fs/base/err.h"
#include "fs/base/io.h"

enum {
	INO_ROOT = 1,
	INO_FIRST = 2,     /* the first that is ever given out */
	INO_RANGE = 65536, /* what the server reserves at once: one fdatasync for so many */
	INO_TELL = 1024,   /* for so many it says once more what is left */
};
#define INO_MAX ((UINT64_C(1) << 48) - 1)

/* Reserves n numbers, *first and those behind it, durably (they are nobody else's even after
 * power loss). Any process. The counter is made when the root is new.
 * -EBADMSG: damaged, or missing beside workspaces or images (then it may not start anew);
 * -ENOSPC: no numbers left, or the disk is full; -errno. */
int ino_reserve(const struct io *io, const char *root, uint64_t n, uint64_t *first,
		struct err *err);
/* The number that the next reservation would give. -ENOENT when there was none yet. */
int ino_peek(const struct io *io, const char *root, uint64_t *next, struct err *err);
/* What a server has left of its last range, for the next one of the same boot: so that who goes
 * on behind a kill needn't wait for the disk before its first inode. Nobody has a number from
 * `next` to `end`. `boot`: 16 bytes. Not durable; what is read was written whole in this boot, or
 * it is -ENOENT. ino_rest_take is for who holds the server's lock, and works only while nobody
 * has reserved since: every number below `next` may be another's, and none from there on. */
int ino_rest_put(const struct io *io, int rootfd, const uint8_t *boot, uint64_t next, uint64_t end);
int ino_rest_take(const struct io *io, const char *root, int rootfd, const uint8_t *boot,
		  uint64_t *next, uint64_t *end);
/* For fsck: makes a counter again that gives `next`, or more when it is whole and further on. */
int ino_rebuild(const struct io *io, const char *root, uint64_t next, struct err *err);

#endif
