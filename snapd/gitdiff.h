/* What a checkout changed, in git's own forms. */
#ifndef BOUGH_SNAPD_GITDIFF_H
#define BOUGH_SNAPD_GITDIFF_H

#include "gitops/changes.h"
#include "snapd/difftext.h"

/* json: an object a line, {"kind", "path", "old_path", "similarity", "old", "new"} (API.md), and at
 * the end {"kind": "warning", "message"} ones. The others as `git diff -M --binary` writes them:
 * `git apply --index` takes the patch in a checkout of the commit. Content above DIFF_TEXT_MAX,
 * and with hide_outside what was put over a name of the base outside of the scope, is only said to
 * differ, which git apply refuses. */
int gitdiff_write(enum diff_format format, const struct changes *c,
		  const struct changes_options *opt, const struct diff_sink *sink, struct err *err);

#endif
