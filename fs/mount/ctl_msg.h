/* The requests of the control protocol (ctl.h), as they come from outside: any bytes give
 * a valid request or -EINVAL. */
#ifndef BOUGH_MOUNT_CTL_MSG_H
#define BOUGH_MOUNT_CTL_MSG_H

#include <jansson.h>
#include <sys/types.h>
#include "fs/base/err.h"
#include "fs/mount/server.h"
#include "fs/work/stack.h"

enum ctl_op {
	CTL_HELLO,
	CTL_CREATE,
	CTL_MOUNT,
	CTL_UMOUNT,
	CTL_FORK,
	CTL_SEAL,
	CTL_STACK,
	CTL_REPLACE,
	CTL_RESTORE,
	CTL_RENUMBER,
	CTL_PUT,
	CTL_TAKE,
	CTL_BATCH,
	CTL_ANSWERED,
	CTL_CHANGES,
	CTL_ENTRIES,
	CTL_AWAIT,
	CTL_LIMITS,
	CTL_HOLD,
	CTL_USAGE,
	CTL_SYNC,
	CTL_DELETE,
	CTL_CLOSE,
	CTL_END,
	CTL_SWEEP,
	CTL_LIST,
	CTL_STATS,
	CTL_TRIM,
	CTL_QUIT,
	CTL_LEAVE,
	CTL_SETTLE,
	CTL_OPS,
};

enum {
	CTL_CHILDREN_MAX = 1024, /* of one fork; each is a mount(2) */
	CTL_VERSIONS_MAX = 64,   /* of one condition */
	CTL_WAIT_MAX_MS = 60000,
};

/* All strings are borrowed from `json`. Fields that the operation doesn't have are zero. */
struct ctl_request {
	enum ctl_op op;
	json_t *json;
	const char *id, *path, *after;
	const char *token; /* of watch.h; NULL: none */
	uint64_t moment;   /* await's `since` */
	uint64_t tag;      /* 0: none */
	uint64_t at, size; /* of the operations in the file: place and bytes (entries: a cookie) */
	uint64_t contents; /* bytes of the contents behind them */
	bool results;
	int fd;     /* that came with it; not ctl_parse's */
	struct peer peer; /* not ctl_parse's */
	int wait_ms;
	struct ws_limits limits;
	uid_t uid;
	gid_t gid;
	bool has_stack, has_expect;
	struct stack stack; /* "stack", or "old" */
	struct stack with;  /* "new", or "expect" */
	struct served_child *children;
	unsigned nchildren;
	struct ws_put put; /* its name and lists are the request's own */
	char *name;
	struct version_id *versions; /* match, then unless */
	const char **known;          /* in order */
	size_t nknown;
};

/* 0 and a request that the caller gives to ctl_request_done, -EINVAL with what is wrong, or
 * -ENOMEM. */
int ctl_parse(const void *data, size_t len, struct ctl_request *out, struct err *err);
void ctl_request_done(struct ctl_request *q);
bool ctl_knows(const struct ctl_request *q, const char *id); /* is it in `known`? */

#endif
