/* One POST of a webhook. */
#ifndef BOUGH_SNAPD_HOOK_SEND_H
#define BOUGH_SNAPD_HOOK_SEND_H

#include <stdatomic.h>
#include "fs/base/netaddr.h"
#include "snapd/hooks.h"

enum { HOOK_TIMEOUT_S = 10, HOOK_ANSWER_MAX = 64 << 10 /* bytes that are read of an answer */ };
struct hook_send {
	const char *url, *body, *id, *signature;
	int64_t time_s;
	const struct netrules *allowed; /* beside public addresses */
	bool anywhere;                  /* all are */
	const atomic_bool *stop; /* true: it ends soon */
};
/* The answer's status, or -errno with words. */
int hook_send(const struct hook_send *s, struct err *err);

#endif
