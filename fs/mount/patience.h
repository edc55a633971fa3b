/* What was removed counts in the quota until the kernel has let go of it, and its word (FORGET) may
 * come after the next request. So what meets the quota is tried again when something went since:
 * each change that may need room is made by PATIENTLY, whoever asks for it. */
#ifndef BOUGH_MOUNT_PATIENCE_H
#define BOUGH_MOUNT_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>
#include "fs/work/workspace.h"

/* The result of the last try of `call`, which does nothing when it ends by -EDQUOT. `m`: whose
 * request is served by this thread, so that others serve the mount meanwhile; NULL: nobody's. No
 * lock is held that an operation of the workspace needs. */
#define PATIENTLY(ws, m, call)                                      \
	({                                                          \
		struct patience patience_ = patience_begin(ws, m);  \
		__typeof__(call) result_;                           \
		do                                                  \
			result_ = (call);                           \
		while (patience_more(&patience_, (int)result_));    \
		result_;                                            \
	})

struct mounted;
struct patience {
	struct ws *ws;
	struct mounted *m;
	uint64_t seen, until_ms;
};
struct patience patience_begin(struct ws *ws, struct mounted *m);
bool patience_more(struct patience *p, int r);

#endif
