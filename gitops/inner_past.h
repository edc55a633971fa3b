/* What the history that a workspace was given had at which paths: an entry of a new commit that
 * names what the workspace doesn't hold, since it lies outside of its scope, is fine where that
 * history had just this there, which is what a revert makes. For inner_check. */
#ifndef BOUGH_GITOPS_INNER_PAST_H
#define BOUGH_GITOPS_INNER_PAST_H

#include <stdint.h>
#include <time.h>
#include "gitops/git.h"

enum {
	INNER_PAST_ENTRIES_MAX = 10000,
	INNER_PAST_COMMITS_MAX = 2000000, /* that are walked */
};

struct past_entry {
	char *path;
	git_oid id;
	uint32_t mode;
	char commit[GIT_OID_HEXSZ + 1]; /* the one that has it, for messages */
};
struct inner_past {
	struct past_entry *v;
	size_t n, cap;
};
void inner_past_done(struct inner_past *p);
/* 0; -E2BIG above the bound; -ENOMEM. Takes `path` over, whatever the result. */
int inner_past_add(struct inner_past *p, char *path, const git_oid *id, uint32_t mode,
		   const char *commit);

/* Looks for each entry in the commits that lead to `from`. Of these the ones that `had` says the
 * workspace got count, and those above them, which were made from it here.
 * 1: all were found; 0: *missing (the first) wasn't; -ETIMEDOUT at `end` (of the monotonic clock),
 * -E2BIG, -errno. */
int inner_past_find(struct inner_past *p, const struct past_entry **missing, git_repository *repo,
		    const git_oid *from, int (*had)(void *ctx, const git_oid *id, struct err *err),
		    void *ctx, time_t end, struct err *err);

#endif
