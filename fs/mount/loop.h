/* The event loop of the `dev` transport: one epoll descriptor and one pool of threads over
 * all /dev/fuse descriptors of a server, so that an idle mount costs no thread and no buffer.
 *
 * A source is a non-blocking descriptor from which one read(2) gets one request. A worker
 * that was woken for a source goes on reading it while there is more, and where requests follow
 * each other closely looks on for some microseconds before it sleeps. Requests that come meanwhile
 * wait for this worker, unless one may take long: then another is woken for the others first.
 *
 * Sources are strangers to each other, and none can keep another waiting by asking much: after a
 * fraction of a millisecond whoever waits comes first, a source has only its share of the workers
 * in requests that may take long, and half of all workers go to sources that have none.
 *
 * Life of a source: loop_add -> request() … -> end(), called exactly once, when no worker
 * is or ever will be in request(): after the descriptor reported its end (ENODEV, end
 * of file, any other lasting error), or after loop_remove. The descriptor is the caller's
 * to close, after end(). */
#ifndef BOUGH_MOUNT_LOOP_H
#define BOUGH_MOUNT_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/base/err.h"

struct loop;

struct loop_ops {
	/* Whether answering it may take longer than waking another worker (disk, megabytes). */
	bool (*slow)(void *ctx, const void *buf, size_t n);
	/* One request of n bytes; the buffer is the worker's, valid until the return. */
	void (*request)(void *ctx, void *buf, size_t n);
	/* error: 0 when it was removed, else the negated errno that ended it. */
	void (*end)(void *ctx, int error);
	/* Do others of this process want to run just now? NULL: never. */
	bool (*crowded)(void *ctx);
};

/* workers: 0: 2 x cores + 4, at least 32. */
int loop_start(struct loop **out, unsigned workers, struct err *err);
/* Ends the workers. All sources have ended. NULL allowed. */
void loop_stop(struct loop *l);
/* Ends the workers once what they have begun is answered, and leaves the sources as they are: no
 * end() is called. For a process that goes while somebody else goes on with them. */
void loop_halt(struct loop *l);
unsigned loop_workers(const struct loop *l);

/* Serves `fd`. *source names it for loop_remove (never 0); it is set before the first
 * request is read. 0, -ENOMEM, -errno of epoll. */
int loop_add(struct loop *l, int fd, const struct loop_ops *ops, void *ctx, uint64_t *source);
/* Ends a source and returns when its end() has returned; it may have ended by itself
 * already. Not from a worker. */
void loop_remove(struct loop *l, uint64_t source);
/* Returns when all that was in request() when it was called has left it. Not from a worker. */
void loop_quiesce(struct loop *l);
/* From a worker, in request(): it will wait for what another request of the source brings. */
void loop_hand_on(struct loop *l, uint64_t source);
/* Gives the memory of idle workers' buffers back now (they do it by themselves after
 * a while). */
void loop_shed(struct loop *l);

#endif
