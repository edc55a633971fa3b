/* Running another program to see what it is: for `bough doctor`. */
#ifndef BOUGH_TOOLS_PROBE_H
#define BOUGH_TOOLS_PROBE_H

#include <stddef.h>

enum { PROBE_MS = 10000 }; /* a program that says nothing by then is killed */

/* Runs argv[0] (a path, or a name looked up in PATH) and puts the first line of its output, of
 * stdout or stderr, into `out`. Its exit code; -ENOENT: no such program; -ETIMEDOUT; -errno. */
int probe_run(const char *const *argv, char *out, size_t size);
/* The same, with all of the output. */
int probe_run_all(const char *const *argv, char *out, size_t size);
/* First line of a small file (of /proc or /sys), without its end. 0 or -errno. */
int probe_file(const char *path, char *out, size_t size);

#endif
