/* Questions about the history of commits: how far apart two are, and where they meet.
 *
 * By walks of our own. libgit2's (1.5) leave behind what they hold when they meet a commit that is
 * missing or malformed, and whoever may push can have boughd meet one as often as he likes. Where
 * only libgit2 can do the work, history_walkable comes first.
 *
 * A commit that can't be read: -ENOTSUP where it came like that (git_fail_object), -ENOENT where it
 * isn't there, else -EBADMSG.
 * Threads: as the repository's. */
#ifndef BOUGH_GITOPS_HISTORY_H
#define BOUGH_GITOPS_HISTORY_H

#include <stddef.h>

#include "gitops/git.h"

/* The newest of the best commits that both come from. 1, 0: there is none, or -errno. */
int history_base(git_oid *out, git_repository *repo, const git_oid *a, const git_oid *b,
		 struct err *err);
/* Whether `a` comes from `b`; each comes from itself. 1, 0 or -errno. */
int history_descends(git_repository *repo, const git_oid *a, const git_oid *b, struct err *err);
/* How many commits only `a` comes from, itself included, and how many only `b`. */
int history_count(size_t *ahead, size_t *behind, git_repository *repo, const git_oid *a,
		  const git_oid *b, struct err *err);
/* Reads every commit that libgit2's walk of what `to` comes from, and `from` doesn't, will read. */
int history_walkable(git_repository *repo, const git_oid *to, const git_oid *from,
		     struct err *err);

#endif
