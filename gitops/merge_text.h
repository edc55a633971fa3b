/* Merging texts three ways, line by line (libgit2's xdiff). */
#ifndef BOUGH_GITOPS_MERGE_TEXT_H
#define BOUGH_GITOPS_MERGE_TEXT_H

#include "fs/base/buf.h"
#include "fs/base/err.h"

/* Texts above this, or with a zero byte, are not merged. */
enum { MERGE_TEXT_MAX = 16 << 20 };

/* 1 and the merged text in *out (which was empty); 0: both changed the same lines, or one of them
 * is no text. -ENOMEM, -EIO. */
int merge_text(struct buf *out, const struct buf *base, const struct buf *ours,
	       const struct buf *theirs, struct err *err);

#endif
