/* What a server leaves of a mount for its successor, as bytes for the holder (fs/FORMAT.md). */
#ifndef BOUGH_MOUNT_HELD_H
#define BOUGH_MOUNT_HELD_H

#include <stddef.h>
#include <stdint.h>
#include "fs/base/buf.h"
#include "fs/work/workspace.h"

enum {
	HELD_INIT_MAX = 512,  /* bytes of the kernel's FUSE_INIT; 7.45 has 104 */
	HELD_PATH_MAX = 4096, /* with its NUL */
};

struct held {
	uint64_t dev;  /* of the superblock; 0: unknown */
	uint64_t mask; /* session_options.mask */
	uint64_t want; /* what INIT was answered with: FUSE_CAP_* that the kernel goes by */
	size_t init_len;
	uint8_t init[HELD_INIT_MAX]; /* the kernel's INIT; not there (0 bytes) until it came */
	char id[WS_ID_MAX + 1];
	char path[HELD_PATH_MAX];
};

void held_encode(const struct held *h, struct buf *out);
/* 0 or -EBADMSG. */
int held_decode(struct held *out, const void *data, size_t len);

#endif
