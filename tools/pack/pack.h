/* Writes a folder as a pax stream: bough-pack's work. */
#ifndef BOUGH_TOOLS_PACK_PACK_H
#define BOUGH_TOOLS_PACK_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include "fs/base/err.h"
#include "fs/base/have.h"

struct pack_options {
	bool one_file_system;   /* don't enter folders of other file systems */
	bool ignore_unreadable; /* leave out what can't be opened */
	/* fnmatch(3) patterns. With a '/' the way from the top must match, else any name. */
	const char *const *excludes;
	size_t nexcludes;
	struct have *have; /* files whose contents aren't sent, and aren't read; NULL: none */
	/* One line about something left out or changed; never NULL. */
	void (*say)(void *ctx, const char *line);
	void *say_ctx;
};

enum { PACK_CHANGED = 1 };

/* Writes `dir` to the descriptor `out`. 0: all of it. PACK_CHANGED: whole, but some files
 * changed while they were read, and each was cut or filled up to its first size. -errno: not
 * whole, and the stream has no end mark, so that nobody takes it for whole. */
int pack_tree(const char *dir, int out, const struct pack_options *opt, struct err *err);

#endif
