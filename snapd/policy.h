/* What the service does by itself, as ROOT/config.json may say otherwise. */
#ifndef BOUGH_SNAPD_POLICY_H
#define BOUGH_SNAPD_POLICY_H

#include <stdint.h>

#include "fs/base/netaddr.h"

enum {
	GRACE_DELETED_S = 3600,
	GRACE_EXPIRED_S = 24 * 3600,
	GC_EVERY_S = 24 * 3600,
	LOOK_EVERY_S = 10,
	RESERVE_PERCENT = 2, /* of the disk, but at most: */
	RESERVE_MAX_BYTES = 256 << 20,
};
enum { WEBHOOK_RETRY_S = 5 };
#define RESERVE_BY_SIZE UINT64_MAX

struct policy {
	/* How long a workspace can be brought back that was deleted, or whose time was up; 0: it
	 * goes at once. */
	uint32_t grace_deleted_s, grace_expired_s;
	uint32_t gc_every_s;   /* 0: only by hand */
	uint32_t look_every_s; /* for what has expired, and how full the disk is; from 1 on */
	/* Addresses that webhooks may be at beside those of the internet; after a failure the first
	 * pause (the others are each four times as long). */
	struct netrules hook_allow;
	uint32_t hook_retry_s;
	uint64_t reserve_bytes; /* of the disk, for work under way (space.h) */
};
#define POLICY_DEFAULT                                                                  \
	{                                                                               \
		.grace_deleted_s = GRACE_DELETED_S, .grace_expired_s = GRACE_EXPIRED_S, \
		.gc_every_s = GC_EVERY_S, .look_every_s = LOOK_EVERY_S,                 \
		.hook_retry_s = WEBHOOK_RETRY_S, .reserve_bytes = RESERVE_BY_SIZE       \
	}

#endif
