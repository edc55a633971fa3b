/* A child of bough-fs that does one thing for it: it starts bough-hold. It is forked off before
 * bough-fs gives up the right to run programs (confine.h), and ends with it. */
#ifndef BOUGH_MOUNT_STARTER_H
#define BOUGH_MOUNT_STARTER_H

#include <limits.h>
#include "fs/base/err.h"

struct starter;
/* Before there are threads. `root`: what bough-hold is told; `socket`: where it listens. */
int starter_new(struct starter **out, const char *root, const char *socket, struct err *err);
void starter_free(struct starter *s); /* NULL allowed; what was started goes on */
/* Starts one, which listens when this returns; one thread at a time. */
int starter_run(struct starter *s, struct err *err);

/* The program that would be started: $BOUGH_HOLD, else beside this one, else where `make install`
 * puts it. 0, -ENOENT, -ENAMETOOLONG, -errno. */
int starter_program(char out[PATH_MAX]);

#endif
