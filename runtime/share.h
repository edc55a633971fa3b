/* What the boxes of one parent folder share: PARENT/.share, a tmpfs with bough-init, so that a
 * container's list of mounts names no path of the host, and all run the same pages of it. */
#ifndef BOUGH_RUNTIME_SHARE_H
#define BOUGH_RUNTIME_SHARE_H

#include <stddef.h>
#include "fs/base/err.h"

#define SHARE_NAME ".share"

/* Makes it where it isn't there, and puts `program` (as it is now) into it as "init". Processes and
 * threads may do so at once. */
int share_make(const char *parent, const char *program, struct err *err);
/* Takes it away, unless the parent holds something else. */
int share_end(const char *parent, struct err *err);

#endif
