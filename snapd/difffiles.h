/* Differences as tools see them that know files only, like git: a renamed folder is the renaming
 * of each file in it. */
#ifndef BOUGH_SNAPD_DIFFFILES_H
#define BOUGH_SNAPD_DIFFFILES_H

#include "fs/work/diff.h"

/* As diff_views, but what lies in a renamed folder has its old path too: a modified file there is
 * DIFF_RENAMED, one of another type (DIFF_TYPE) has old_path, and the files that differ in
 * nothing else follow last, as DIFF_RENAMED with `what` 0. Costs a walk of those folders. */
int diff_files(const struct view *a, const struct view *b,
	       int (*fn)(void *ctx, const struct diff_entry *e), void *ctx, struct err *err);

#endif
