/* Messages between boughd and bough-fs: one JSON text each over a SOCK_SEQPACKET
 * unix socket, with up to FRAME_FDS_MAX descriptors. */
#ifndef BOUGH_BASE_FRAME_H
#define BOUGH_BASE_FRAME_H

#include <stddef.h>
#include "fs/base/buf.h"
#include "fs/base/err.h"

enum {
	FRAME_MAX = 192 * 1024, /* bytes; below the default socket buffer of Linux */
	FRAME_FDS_MAX = 4,
};

struct frame {
	struct buf text;        /* the JSON, not terminated */
	int fds[FRAME_FDS_MAX]; /* owned by the frame after a receive; borrowed in a send */
	int nfds;
};

/* Listens at `path` (an old socket there is replaced), mode 0600. Returns the descriptor. */
int frame_listen(const char *path, struct err *err);
int frame_connect(const char *path, struct err *err);
/* Sends the text whole; -EMSGSIZE above FRAME_MAX, -EPIPE when the peer is gone. */
int frame_send(int fd, const struct frame *f, struct err *err);
/* Receives one message into *f (reset first; descriptors are close-on-exec).
 * 1, 0 at the peer's end, -EMSGSIZE when it was cut (nothing is kept), or -errno. */
int frame_recv(int fd, struct frame *f, struct err *err);
void frame_done(struct frame *f); /* frees the text, closes fds still >= 0 */

#endif
