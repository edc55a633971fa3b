/* The state folder ROOT: where it is, its parts, and who may have it. */
#ifndef BOUGH_SNAPD_STATE_H
#define BOUGH_SNAPD_STATE_H

#include <stdbool.h>

#include "fs/base/err.h"

enum { STATE_ROOT_MAX = 3500 }; /* bytes; what lies below fits PATH_MAX */

/* `given`, else BOUGH_ROOT, else /var/lib/bough as root and $XDG_STATE_HOME/bough (or
 * ~/.local/state/bough) as a user. Absolute, without links; made with all its folders where absent:
 * those that hold state are private, mount points can be passed through to (as root).
 * The caller frees. */
int state_prepare(char **root, const char *given, struct err *err);
/* Whether others may pass through ROOT/run to the socket. */
int state_open_run(const char *root, bool open, struct err *err);
/* The lock of the one daemon; the descriptor, held until it is closed. -EBUSY names its holder: at
 * once when that one serves, else (it begins or ends) after a few seconds. Where it was killed, and
 * still isn't gone after STATE_DYING_MS, `dying` is called, and each such time again. */
enum { STATE_DYING_MS = 300 };
int state_lock(const char *root, void (*dying)(void *ctx), void *ctx, struct err *err);
/* Ends the daemon that has the lock, and waits until it has ended. 0 also where there is none. */
int state_end_holder(const char *root, struct err *err);
/* Whether ROOT is still the folder whose lock this is: false once it was removed, moved away or
 * made anew by somebody else, who may have a daemon of their own there. */
bool state_is_ours(const char *root, int lock_fd);
/* ROOT/spare: space that is kept for gc, which needs some itself before it can give any back. keep
 * takes it where the disk has it; use gives so much of it back, and says whether there was any. */
enum { STATE_SPARE_BYTES = 16 << 20, STATE_SPARE_FIRST = 1 << 20 };
void state_spare_keep(const char *root);
bool state_spare_use(const char *root, off_t most);
/* A file in ROOT/run for appending; a large one is set aside as <name>.1 first. */
int state_open_log(const char *root, const char *name, struct err *err);

#endif
