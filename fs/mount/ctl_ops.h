/* What the operations of the control protocol do (inside fs/mount only). */
#ifndef BOUGH_MOUNT_CTL_OPS_H
#define BOUGH_MOUNT_CTL_OPS_H

#include <jansson.h>
#include "fs/base/buf.h"
#include "fs/mount/server.h"

enum ctl_end { CTL_GO_ON, CTL_END_QUIT, CTL_END_LEAVE };
/* Answers one request: `out` gets the JSON text of the answer, whatever the bytes were. `fd`: that
 * came with it, or -1; it stays the caller's.
 * *end is set when the server was asked to end. 0, or -ENOMEM and no answer. */
int ctl_answer(struct server *s, const struct peer *peer, const void *data, size_t len, int fd,
	       struct buf *out, enum ctl_end *end);

/* ctl_batch.c */
struct ctl_request;
/* What `batch` answers, put into `answer`. 0 or -errno. */
int ctl_batch(struct served *w, const struct ctl_request *q, json_t *answer, struct err *err);

#endif
