/* A multipart/form-data body (RFC 7578), as it comes in: the first part named "file", or with
 * form_all each of them. Constant memory; any bytes. */
#ifndef BOUGH_SNAPD_FILES_FORM_H
#define BOUGH_SNAPD_FILES_FORM_H

#include <stdbool.h>
#include <stddef.h>
#include "fs/base/err.h"
#include "snapd/files_head.h"

enum { FORM_HEAD_MAX = 8192 }; /* of one part */

struct form {
	char delimiter[HEAD_BOUNDARY + 4]; /* CR LF - - boundary */
	size_t delimiter_len, matched;
	enum { FORM_BEFORE, FORM_LINE, FORM_HEAD, FORM_PART, FORM_END } state;
	bool ours, had; /* this part is the file; there was one */
	int (*part)(void *ctx, const char *name, size_t len, struct err *err); /* NULL: "file" */
	void *part_ctx;
	size_t head_len;
	char head[FORM_HEAD_MAX];
};
void form_init(struct form *f, const char *boundary);
/* All parts are wanted: `part` is told before the bytes of each what it is called (not terminated;
 * without a name ""). What it returns below 0 ends form_feed. */
void form_all(struct form *f,
	      int (*part)(void *ctx, const char *name, size_t len, struct err *err), void *ctx);
/* The next n bytes of the body; `put` gets those of the file. -EINVAL, or what `put` returned
 * below 0. */
int form_feed(struct form *f, const void *data, size_t n,
	      int (*put)(void *ctx, const void *data, size_t n, struct err *err), void *ctx,
	      struct err *err);
/* At the body's end: 0; -EINVAL: it is cut off, or the part that is wanted isn't there. */
int form_finish(const struct form *f, struct err *err);

#endif
