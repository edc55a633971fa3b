/* How many paths a tree has, without walking them: each tree object is read once, however often
 * it occurs. A few trees, each a thousand times in the next, make more paths than anybody can walk,
 * libgit2 least of all. */
#ifndef BOUGH_GITOPS_TREEPATHS_H
#define BOUGH_GITOPS_TREEPATHS_H

#include "gitops/git.h"

enum {
	TREEPATHS_MAX = 4000000, /* more can't be checked out */
	TREEPATHS_DEPTH_MAX = 1024,
};
/* 0: at most TREEPATHS_MAX; -E2BIG: more, or deeper than TREEPATHS_DEPTH_MAX, with err set;
 * -ENOTSUP: a malformed tree; -EBADMSG, -ENOENT: a damaged repository; -ENOMEM. */
int treepaths_check(git_repository *repo, const git_oid *tree, struct err *err);

#endif
