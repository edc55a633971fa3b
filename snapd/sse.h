/* A stream of server-sent events, as a reply's `read`: what is yet to be sent, when a silent one
 * says that it is there, and whether its client still is.
 *
 * A client that is gone is noticed within SSE_LOOK_MS on the unix socket. Over TCP one that has
 * gone looks as one that has only ended its side, which may go on reading; so it is asked, by a
 * beat out of turn, whose answer tells the next look. */
#ifndef BOUGH_SNAPD_SSE_H
#define BOUGH_SNAPD_SSE_H

#include "fs/base/buf.h"
#include "snapd/web.h"

enum {
	SSE_BEAT_MS = 15000, /* a silent stream says that it is there, and up to when */
	SSE_LOOK_MS = 1000,  /* how often one that waits looks whether it is for anybody */
};

struct sse {
	int socket; /* borrowed from the connection; -1: unknown */
	bool asked;
	uint64_t sent_ms;
	struct buf out; /* what the client gets next, from `at` on */
	size_t at;
};

void sse_begin(struct sse *s, const struct request *rq);
void sse_done(struct sse *s);
/* How long to wait for something to send: up to SSE_LOOK_MS, then to be asked again; 0: a beat is
 * due (sse_beat); -EPIPE: the client has gone. */
int sse_patience(struct sse *s);
/* A comment and, unless NULL, an id without an event: what the client may come back to. */
void sse_beat(struct sse *s, const char *comment, const char *id);
/* For a reply's `read`: the next bytes of `out`, which `fill` fills when it is empty. `fill` waits
 * until it has put something there (1); 0: the stream ends; -errno: it breaks off. */
ssize_t sse_pull(struct sse *s, int (*fill)(void *task, struct err *err), void *task, void *buf,
		 size_t n, struct err *err);
/* The reply that is such a stream. */
void sse_reply(struct reply *rp, void *task, void (*task_free)(void *task),
	       ssize_t (*read)(void *task, uint64_t pos, void *buf, size_t n, struct err *err));

#endif
