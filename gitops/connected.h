/* Whether what refs name is there, by libgit2: for hosts without git.
 *
 * Looked at are all commits that are reachable from `now` and not from `before`, that their trees
 * are there, and the whole trees of the refs themselves. What is missing in an older tree
 * is found by who reads it. */
#ifndef BOUGH_GITOPS_CONNECTED_H
#define BOUGH_GITOPS_CONNECTED_H

#include "gitops/git.h"
#include "gitops/refs.h"

/* -EBADMSG names what is missing. */
int refs_connected(git_repository *repo, const struct refs *before, const struct refs *now,
		   struct err *err);

#endif
