/* NAME:PATH on the command line: files of workspaces, snapshots and sandboxes. */
#ifndef BOUGH_TOOLS_PLACE_H
#define BOUGH_TOOLS_PLACE_H

#include "tools/bough/api.h"

struct place {
	char *name;       /* NULL: a path of the host */
	const char *path; /* without '/' in front; borrowed */
};
enum { PLACES = KIND_WORKSPACE | KIND_SNAPSHOT | KIND_SANDBOX }; /* what NAME may be of */
void place_done(struct place *p);
#define auto_place __attribute__((cleanup(place_done))) struct place

/* A ':' behind something without a '/' is NAME:PATH, and so is uid:N/NAME:PATH; ./a:b is a file of
 * the host. -ENOMEM. */
int place_parse(struct place *out, const char *operand, struct err *err);
/* The same where a path of the host isn't meant, so that OWNER/NAME:PATH is clear: -EINVAL. */
int place_parse_remote(struct place *out, const char *operand, struct err *err);
/* `route` ("/files"), '/' and the path, each part escaped by itself; with `last` (NULL: nothing)
 * behind it. A "." at the end means nothing. */
struct target place_target(const char *route, const char *path, const char *last);
/* Whatever the path leads to in what is of `kinds` (api.h), its "entry", which the caller owns,
 * with the answer's "of", "inode" and "at" in it. -ENOENT. */
int place_stat(struct cli *cli, const struct place *p, unsigned kinds, json_t **out,
	       struct err *err);
/* Behind the last '/'. */
const char *base_name(const char *path);

#endif
