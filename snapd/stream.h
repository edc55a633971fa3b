/* A bounded queue of bytes between two threads: one writes, one reads. It couples an HTTP
 * body to who makes or takes it, with constant memory.
 *
 * Either side may leave early, and the other learns it at its next call. The stream lives
 * until both sides gave up their reference. */
#ifndef BOUGH_SNAPD_STREAM_H
#define BOUGH_SNAPD_STREAM_H

#include <stddef.h>
#include <sys/types.h>

enum { STREAM_BYTES = 512 * 1024 }; /* of the queue */

struct stream;
struct stream *stream_new(void);     /* two references, one a side; NULL: out of memory */
void stream_unref(struct stream *s); /* NULL allowed */

/* Writer. Waits for room. 0; -EPIPE once the reader has left. */
int stream_write(struct stream *s, const void *data, size_t n);
/* No more bytes follow: 0, or a negated errno that the reader gets behind the last byte. */
void stream_end(struct stream *s, int code);
size_t stream_fill(struct stream *s); /* bytes that wait for the reader */

/* Reader. Waits up to wait_ms (-1: for good) for a byte. The count; 0 at the end; -EAGAIN when
 * nothing came in time; the code of stream_end. */
ssize_t stream_read(struct stream *s, void *buf, size_t n, int wait_ms);
void stream_leave(struct stream *s); /* the reader wants no more */

#endif
