/* What happened in a workspace since a moment, in order: for programs that watch it (boughd's
 * /v1/workspaces/{ws}/watch). Made from the layers' logs (changed_log.h), so it needs nobody who
 * listened meanwhile, and works across fork, seal, save and restart.
 *
 * A token names a moment:
 *     <32 hex digits>.<seq>          after frame `seq` (decimal) of the layer of that id
 *     <32 hex digits>.<seq>-<part>   within it, when so many of its names were told
 *
 * What is told:
 *   - names, each time: created, deleted; renamed where one operation took a name away and gave
 *     another; modified where another file took the place of one (what was there is not told of)
 *   - changes of a file's content or attributes: modified, once for all up to now, at the place in
 *     the order that the last one has
 * Paths are as they were at that moment, whatever happened to the folders above since. A renamed
 * folder is one event; what lies in it is not told of. A file of several names is told under one of
 * them; where the one that was made last is gone, a change of it alone isn't told.
 * What has no name (O_TMPFILE, a PUT that is under way) is told when it gets one.
 *
 * More may be told than happened (modified), never less. */
#ifndef BOUGH_WORK_WATCH_H
#define BOUGH_WORK_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum watch_kind { WATCH_CREATED, WATCH_MODIFIED, WATCH_DELETED, WATCH_RENAMED, WATCH_KINDS };
enum {
	WATCH_TOKEN_MAX = 80,   /* bytes, the NUL included */
	WATCH_PATH_MAX = 16384, /* of a path: what is longer can't be told */
};
/* Names of files that PUT needs where the host can't make a file without a name: for some
 * microseconds in the root. They aren't told of. */
#define WATCH_HIDDEN ".bough-put-"

struct watch_event {
	enum watch_kind kind;
	uint8_t type;         /* DT_REG … */
	const char *path;     /* relative to the root, which is "" */
	const char *old_path; /* RENAMED, else NULL */
	const char *token;    /* of the moment behind it */
};

struct view;
/* Calls fn for each event since the token (NULL: none; only *next is given), oldest first; fn
 * returns 0, 1 when it has no room for this one, or -errno. `next` gets the moment up to which all
 * was told. The owner's lock covers the call.
 * 0: that is now; 1: fn had no room; -EKEYEXPIRED: what happened since isn't known whole: next is
 * now; -EINVAL: no token; -ENOMEM, -EIO. */
int watch_since(const struct view *v, const char *token,
		int (*fn)(void *ctx, const struct watch_event *e), void *ctx,
		char next[WATCH_TOKEN_MAX]);
/* Whether the text is one: 0 or -EINVAL. Pure. */
int watch_token_check(const char *text);

#endif
