/* Which programs use mounts: a working directory, a root, an open file or the program itself lies
 * there, as /proc shows to boughd. What is only mapped isn't seen, nor what other users' programs
 * do where boughd isn't root's. Any thread. */
#ifndef BOUGH_SNAPD_INUSE_H
#define BOUGH_SNAPD_INUSE_H

#include "snapd/snapd.h"
#include "snapd/web.h"

/* {workspace id: [{pid, program}]}, of one workspace or (id NULL) of all; the caller's.
 * NULL: no memory, or no /proc. */
json_t *inuse_find(const struct snapd *sd, const char *id);
/* -EBUSY where a program uses it, with their names in the text and in the details ({processes}).
 * Where boughd may, the kernel is asked, which knows all of them. Who asks is named where nobody
 * else is. */
int inuse_refuse(struct request *rq, const struct ws_row *ws, struct err *err);

#endif
