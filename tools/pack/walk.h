/* A walk over a folder that may change while it is walked: every file is reached through the
 * descriptor of its own folder, links are never followed, and neither the length of a path
 * nor the depth of the tree has a limit (no recursion, about WALK_FDS descriptors).
 *
 * Names come sorted by their bytes, a folder before what is in it: one tree, one order.
 *
 *     walk_open                    the first step gives the top folder itself
 *     walk_next …                  walk_enter for each folder whose content is wanted
 *     walk_close */
#ifndef BOUGH_TOOLS_PACK_WALK_H
#define BOUGH_TOOLS_PACK_WALK_H

#include <stdbool.h>
#include <sys/stat.h>
#include "fs/base/buf.h"
#include "fs/base/err.h"

enum { WALK_FDS = 64 };

struct walk_level;
struct walk {
	struct walk_level *levels; /* from the top folder down to the present one */
	size_t depth, cap;
	struct buf path; /* of the entry, terminated */
	int fd;          /* of the folder that was given last and not entered, or -1 */
	bool started;
};

/* Valid until the next step. */
struct walk_entry {
	const char *path; /* "." for the top folder, else "./…" */
	const char *name; /* in `dirfd` */
	int dirfd;        /* of its folder */
	int fd;           /* of a folder: itself, open for reading; else -1 */
	struct stat st;   /* as lstat has it */
};

/* Opens the top folder (a symlink in its place is followed: the caller named it). */
int walk_open(struct walk *w, const char *dir, struct err *err);
void walk_close(struct walk *w);
/* The next entry: 1, or 0 at the end. -errno: this entry can't be read (only out->path is set),
 * -ENOENT when it went away, and the walk can go on behind it; but -ENOMEM ends it. */
int walk_next(struct walk *w, struct walk_entry *out);
/* Enters the folder that walk_next gave last. -errno: it can't be read; the walk can go on. */
int walk_enter(struct walk *w);

#endif
