/* Contents on their way from an archive into the store: the caller decodes, one thread of
 * the intake's own hashes and compresses. Not for others than archive_import.c.
 *
 *     intake_new
 *     for each file: intake_begin, intake_data …, intake_end
 *     intake_finish      all is in the store, every piece in the builder
 *     intake_free        any time
 *
 * Memory is bounded: a large file goes in parts of INTAKE_PART, and the caller waits while
 * INTAKE_QUEUE bytes are under way. Where the parts end, a chunk ends too. */
#ifndef BOUGH_SNAPD_ARCHIVE_INTAKE_H
#define BOUGH_SNAPD_ARCHIVE_INTAKE_H

#include "fs/image/image.h"
#include "fs/store/store.h"

enum {
	INTAKE_PART = 16 << 20,
	INTAKE_QUEUE = 48 << 20,
};

struct intake;
/* `session` and `b` are borrowed; the session is the intake's until intake_free, the builder is
 * used in the caller's thread only. max_bytes as archive_import's. */
int intake_new(struct intake **out, struct store_session *session, struct image_builder *b,
	       uint64_t max_bytes, struct err *err);
void intake_free(struct intake *in); /* NULL allowed; drops what is under way */

/* The content of `ino` follows; it replaces what the inode may have had. */
int intake_begin(struct intake *in, uint64_t ino, struct err *err);
/* n bytes at `off`, in order; what is left out between calls is zeros, and a hole where that is
 * a whole block. -EBADMSG: out of order; -EFBIG; an earlier content's failure. */
int intake_data(struct intake *in, uint64_t off, const void *data, size_t n, struct err *err);
/* The file is `size` bytes long, at least what came (-EBADMSG). */
int intake_end(struct intake *in, uint64_t size, struct err *err);
int intake_finish(struct intake *in, struct err *err);

#endif
