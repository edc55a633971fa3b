/* gzip and zstd, both ways, as streams in constant memory. */
#ifndef BOUGH_SNAPD_FILES_CODE_H
#define BOUGH_SNAPD_FILES_CODE_H

#include "fs/base/err.h"
#include "snapd/files_head.h"

struct coder;
/* `c` isn't IDENTITY. -ENOMEM. */
int coder_new(struct coder **out, enum coding c, bool decode, struct err *err);
void coder_free(struct coder *k); /* NULL allowed */
/* Takes from in[0 .. *n), moving both on, and gives up to `cap` bytes; the count. `last`: nothing
 * follows this input. Call again while it gives bytes; 0 means that it needs more, or, with `last`,
 * that this is the end. -EINVAL: what is decoded isn't of that coding. */
ssize_t coder_step(struct coder *k, const uint8_t **in, size_t *n, bool last, void *buf, size_t cap,
		   struct err *err);
/* Whether what was decoded so far is whole. */
bool coder_whole(const struct coder *k);

#endif
