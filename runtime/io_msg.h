/* What bough-io is told over io.sock, one request and one answer a message (fs/base/frame.h), and
 * the names of its files.
 *
 * A bough-io lives as long as its sandbox runs, so boughd may be of a later version, or an earlier
 * one. What an operation is and says never changes; new ones come behind those that are there, and
 * one that isn't known is answered -EOPNOTSUPP (by the first, which ended at IO_CLOSE_IN, with the
 * end of the connection). Whoever uses one that came later goes on without it. */
#ifndef BOUGH_RUNTIME_IO_MSG_H
#define BOUGH_RUNTIME_IO_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/base/buf.h"
#include "runtime/output.h"

enum io_op {
	IO_PING = 1, /* the answer is bough-io's pid */
	IO_STOP,
	IO_OPEN, /* limit, flags, uid, gid */
	IO_STARTED,
	IO_FINISH, /* STARTED; the answer is 1 once the streams have ended, else 0 */
	IO_DROP,
	IO_WATCH, /* a descriptor comes with the answer */
	IO_WRITE, /* offset, and the bytes; the answer is how many */
	IO_CLOSE_IN,
	IO_HOLD, /* a descriptor comes with it */
	IO_HELD, /* the answer is 1 where it was this bough-io that did IO_OPEN, else 0 */
	IO_OPS,
};

enum { IO_WANTS_IN = 1, IO_TERMINAL = 2 };
enum { IO_WRITE_MAX = 65536 }; /* bytes of an IO_WRITE: what a pipe holds */

struct io_msg {
	enum io_op op;
	char key[OUTPUT_KEY_MAX + 1]; /* "" for PING and STOP */
	uint64_t limit, offset;
	uint32_t flags, uid, gid;
	const void *data; /* borrowed from what was decoded */
	size_t len;
};

void io_encode(struct buf *out, const struct io_msg *m);
/* -EBADMSG; -EOPNOTSUPP: an operation of a later version. */
int io_decode(struct io_msg *out, const void *data, size_t len);

/* Answers: what the call returns, at least 0 or -errno. */
void io_encode_answer(struct buf *out, int64_t result);
int io_decode_answer(int64_t *result, const void *data, size_t len);

bool io_good_key(const char *key);

#endif
