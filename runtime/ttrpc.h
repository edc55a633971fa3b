/* ttrpc: remote calls over a unix socket, as containerd's shims speak it.
 *
 * A frame is a big-endian header of TTRPC_HEADER bytes (length of what follows, stream, type,
 * flags) and a protobuf message: Request, then Response, of runtime/proto/shim.proto. Only calls of
 * one request and one response are made, each over a connection of its own: so nothing has to be
 * shared between threads, and a call that waits for long is in nobody's way.
 *
 * Source: the ttrpc project's PROTOCOL.md and request.proto. */
#ifndef BOUGH_RUNTIME_TTRPC_H
#define BOUGH_RUNTIME_TTRPC_H

#include <stddef.h>
#include <stdint.h>
#include "fs/base/buf.h"
#include "fs/base/err.h"

enum {
	TTRPC_HEADER = 10,
	TTRPC_MAX = 4 << 20, /* bytes of a message; the protocol's bound */
	TTRPC_REQUEST = 1,   /* types of frames */
	TTRPC_RESPONSE = 2,
	TTRPC_STREAM = 1, /* the only one of a connection */
};

struct ttrpc_call {
	const char *service, *method;
	const char *ns; /* containerd's namespace */
	const void *payload;
	size_t len;
	int64_t timeout_ms; /* for all of it; < 0: none */
	bool untold;        /* the peer isn't told that time, and goes on behind it */
	int stop_fd;        /* ends the call when it can be read; -1: none */
};

/* Connects to `address`: "unix://PATH", or a path. -ECONNREFUSED: nobody is there. */
int ttrpc_connect(const char *address, struct err *err);

/* Makes the call over a fresh connection, and leaves the response's payload in *reply (emptied
 * first). -ECONNREFUSED: the peer went away; -ETIMEDOUT; -ECANCELED by stop_fd; -EBADMSG: no
 * answer of this protocol; -E2BIG: the request is too long; else what the peer answered, with its
 * words: -ENOENT, -EEXIST, -EINVAL, -EPERM, -EBUSY (a precondition failed), -EOPNOTSUPP,
 * -EIO for all others. */
int ttrpc_call(int fd, const struct ttrpc_call *call, struct buf *reply, struct err *err);

/* The same in two halves, so that nobody need wait: what was begun is readable once there is an
 * answer (or the peer went away). The end may be tried at any time; -EAGAIN: not all of it is
 * there. timeout_ms counts for the beginning alone. */
int ttrpc_begin(int fd, const struct ttrpc_call *call, struct err *err);
int ttrpc_end(int fd, struct buf *reply, struct err *err);

/* The parts, for tests. */

/* The whole frame of the request. -E2BIG, -ENOMEM. */
int ttrpc_encode(struct buf *out, const struct ttrpc_call *call);
/* The header of a response: the length of its message, or -EBADMSG. */
int ttrpc_header(const uint8_t header[TTRPC_HEADER]);
/* The message of a response: its payload is added to *reply. As ttrpc_call. */
int ttrpc_decode(const void *message, size_t len, struct buf *reply, struct err *err);

#endif
