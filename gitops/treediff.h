/* Which paths two trees of a repository differ in. Subtrees that are the same object aren't read,
 * which libgit2's own comparison does: of two commits of the kernel it reads 5,000. */
#ifndef BOUGH_GITOPS_TREEDIFF_H
#define BOUGH_GITOPS_TREEDIFF_H

#include "gitops/git.h"

/* Calls fn for each path at which something other than a folder differs, in no order: git's modes
 * before and after, 0 where there is nothing. The path is borrowed. fn returns 0 to go on, < 0 to
 * end with that.
 * -ENOTSUP: a malformed tree; -EBADMSG, -ENOENT: a damaged repository; -ENAMETOOLONG: above
 * TREEDIFF_DEPTH_MAX folders; -E2BIG: above TREEDIFF_ENTRIES_MAX, since a few trees, each ten times
 * in the next, make any number of paths. */
enum { TREEDIFF_DEPTH_MAX = 1024, TREEDIFF_ENTRIES_MAX = 4000000 };
int treediff(git_repository *repo, const git_tree *a, const git_tree *b,
	     int (*fn)(void *ctx, const char *path, uint32_t old_mode, uint32_t mode), void *ctx,
	     struct err *err);

#endif
