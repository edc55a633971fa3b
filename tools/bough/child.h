/* Programs of ours that work beside this one, with the caller's rights: bough-pack, bough-apply. */
#ifndef BOUGH_TOOLS_CHILD_H
#define BOUGH_TOOLS_CHILD_H

#include <stddef.h>
#include <sys/types.h>
#include "fs/base/err.h"

/* Starts argv[0], which program_find finds; fds[i] (-1: as it is here) is its descriptor i. */
int child_start(pid_t *pid, char *const argv[], const int fds[3], struct err *err);
/* Waits for its end: its exit code, or -EIO where a signal ended it. *pid becomes 0. */
int child_wait(pid_t *pid, const char *name, struct err *err);
/* Ends it, where it is still there: *pid 0 is nobody. */
void child_kill(pid_t *pid);
/* A descriptor to read that from, whenever it likes. */
int child_input(const void *data, size_t len, struct err *err);

#endif
