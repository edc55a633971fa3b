/* One .gitignore, taken apart: gitignore(5). */
#ifndef BOUGH_GITOPS_IGNORE_H
#define BOUGH_GITOPS_IGNORE_H

#include "fs/base/buf.h"

struct ignore_pattern;
struct ignore_file {
	struct ignore_pattern *v;
	size_t n, cap;
};
/* Any bytes: 0 or -ENOMEM. */
int ignore_parse(struct ignore_file *out, const void *data, size_t len);
void ignore_done(struct ignore_file *f);
/* Of a path relative to the file's folder: 1: it says ignore; 0: it says don't; -1: nothing.
 * -ENOMEM. *steps is raised by what it cost. */
enum { IGNORE_NOTHING = -1 };
int ignore_ask(const struct ignore_file *f, const char *path, size_t len, bool is_dir,
	       uint64_t *steps);

#endif
