/* The files of a git repository as a tar stream, for a mirror of it: HEAD, branches and tags,
 * loose objects and packs, those that it borrows from others (objects/info/alternates) too.
 *
 * They are read as files, with the rights of the caller: no git is run, nothing of the
 * repository's configuration is obeyed. Packs are named by their checksum, whatever their name is
 * there. A repository that changes meanwhile is read on; what misses in the end is found by who
 * takes the stream. */
#ifndef BOUGH_TOOLS_PACK_GITFILES_H
#define BOUGH_TOOLS_PACK_GITFILES_H

#include "fs/base/err.h"

/* Writes the repository at `dir` (a work tree, one that was added to another, or a bare one) to the
 * descriptor `out`. `known`: what to leave out, separated by newlines: checksums (hex) of
 * packs, and of loose objects "o" and their ids; NULL: nothing. -ENOENT: nothing is there;
 * -EINVAL: no repository; -ENOTSUP: shallow, partial, SHA-256, or refs in tables; -errno: the
 * stream has no end mark. */
int gitfiles_pack(const char *dir, int out, const char *known, struct err *err);

#endif
