/* What bough-fs gives up before it serves: whoever takes it over through a hostile request, image
 * or archive gets a process that can run no program, open no connection, trace or signal nobody,
 * and has no capability but what mounting and other people's files need.
 *
 * As root only: as an ordinary user it has nothing that the user hasn't, and mounts by
 * fusermount3, which is set-uid and therefore must still be run. */
#ifndef BOUGH_MOUNT_CONFINE_H
#define BOUGH_MOUNT_CONFINE_H

#include <stdbool.h>
#include "fs/base/err.h"

/* Before there are threads. 0, or what the kernel says. */
int confine_capabilities(struct err *err);
/* All threads, for good, once everything is started that is a program of its own. `ring`: io_uring
 * is needed. 0, or what the kernel says. */
int confine_calls(bool ring, struct err *err);

#endif
