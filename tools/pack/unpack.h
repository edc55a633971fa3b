/* Makes the files of a tar stream in a folder: bough-pack --extract. The stream may be anybody's.
 *
 * Nothing is made outside of the folder: absolute names and ".." are refused, every folder on the
 * way is opened by itself and no link is followed. What is there stays, but for what has a member's
 * name: a file, link or special gives way to one of these; a folder takes over a member's
 * attributes, and never gives way to something else, nor something else to a folder.
 *
 * Kept: modes, times to the nanosecond, hard links, symlinks, fifos, xattrs, holes; owners, devices
 * and all xattrs where root calls. Else set-id bits of other owners' files aren't set. */
#ifndef BOUGH_TOOLS_PACK_UNPACK_H
#define BOUGH_TOOLS_PACK_UNPACK_H

#include <stdbool.h>
#include "fs/base/err.h"

struct unpack_options {
	bool top; /* the folder itself takes over the attributes of the stream's top folder */
	/* One line about something that couldn't be made; never NULL. */
	void (*say)(void *ctx, const char *line);
	void *say_ctx;
};

enum { UNPACK_LEFT_OUT = 1 };

/* Reads the descriptor `in` to its end. 0: all is there. UNPACK_LEFT_OUT: all but what was said.
 * -EBADMSG: the stream is damaged, cut or hostile; -EEXIST: a folder where a file should be or the
 * other way round. What was made before a failure stays. */
int unpack_tree(const char *dir, int in, const struct unpack_options *opt, struct err *err);

#endif
