/* Puts a commit of a workspace into somebody's checkout: bough-apply's work.
 *
 * The commit comes as a git bundle (gitformat-bundle, version 2) with one prerequisite, the
 * commit that the workspace was made from, and one ref. Its tree is merged into HEAD's three
 * ways, and the result checked out, with the rights of whoever runs this: all or nothing, as what
 * fails in the middle is put back (undo.h). No hook and no filter program runs. */
#ifndef BOUGH_TOOLS_APPLY_APPLY_H
#define BOUGH_TOOLS_APPLY_APPLY_H

#include <stdbool.h>
#include <stddef.h>
#include "fs/base/err.h"

enum apply_mode {
	APPLY_INDEX,  /* work tree and index, as `git cherry-pick --no-commit` */
	APPLY_FILES,  /* the work tree alone, as `git apply` */
	APPLY_COMMIT, /* and a commit on HEAD */
};

struct apply_result {
	char **paths; /* written or, after -ESTALE, in conflict; sorted */
	size_t n, cap;
	char commit[41]; /* APPLY_COMMIT: the new one, else "" */
};
void apply_result_done(struct apply_result *r);

/* 0. -ESTALE: the changes conflict with HEAD, with local changes, also such as are staged alone
 * (but with APPLY_FILES), or are of files that a sparse checkout leaves out: the paths are in *out
 * and nothing was changed. -ENOENT: no repository there, or it hasn't the base commit, or, as a
 * partial clone, not the contents. -EBUSY: it is in the middle of a merge or the like. -EBADMSG: no
 * bundle, or damaged. -ENOTSUP: bare, or its index is sparse or split. */
int apply_bundle(struct apply_result *out, int bundle, const char *checkout, enum apply_mode mode,
		 struct err *err);

#endif
