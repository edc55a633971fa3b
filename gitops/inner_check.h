/* Whether commits that were made inside a workspace refer only to what it had. The mirror has
 * more: other branches, what is outside of the scope. Whoever knows an id could name it, and would
 * find it in the next checkout.
 *
 * A workspace had what lies in its packs as they were at the checkout, and what came since as
 * bytes of its own (packs that were indexed anew, loose objects). Of each commit:
 *
 *   - it must have been had, and each parent is such a commit or one that the caller vouches for
 *     (they lead to the base or the anchor);
 *   - an entry of its tree that no parent's tree has, at that path and of that mode, must have been
 *     had; below the same folder nothing is looked at.
 *
 * So a file outside of the scope, whose content isn't there, can stay where a parent has it, and
 * can't be put elsewhere; but for one thing: it may come back to where the history that the
 * workspace got had just that (inner_past.h), which is what a revert does. */
#ifndef BOUGH_GITOPS_INNER_CHECK_H
#define BOUGH_GITOPS_INNER_CHECK_H

#include "fs/work/view.h"
#include "gitops/git.h"

enum {
	INNER_COMMITS_MAX = 100000,
	INNER_PARENTS_MAX = 64,       /* of one commit */
	INNER_ENTRIES_MAX = 4000000,  /* of trees, that are compared: some seconds */
	INNER_DEPTH_MAX = 1024,       /* folders on the way to a path */
	INNER_PATH_MAX = 4096,        /* bytes; no work tree holds a longer one */
	INNER_OBJECT_MAX = 64 << 20,  /* bytes of a tree or commit, which is held in memory */
	INNER_HELD_MAX = 128 << 20,   /* bytes of the folders that wait to be looked at */
	INNER_CHECK_S = 300,          /* seconds for all of it */
};

struct inner_had;
int inner_had_new(struct inner_had **out, struct err *err);
void inner_had_free(struct inner_had *h); /* NULL allowed */

/* The packs in .git/objects/pack of a tree, which is borrowed. -EBADMSG, -EIO. */
int inner_had_view(struct inner_had *h, const struct view *v, struct err *err);
/* An index that git wrote for a pack that came, in a folder that is open. */
int inner_had_index(struct inner_had *h, int dir, const char *name, struct err *err);
/* A loose object, by what its file is called: a claim. */
int inner_had_claim(struct inner_had *h, const struct oid *oid, struct err *err);

/* Looks at the commits (any order), which come from `from`, in a bare repository that has theirs
 * and the mirror's objects.
 * -EBADMSG names the first commit and path that is refused; -E2BIG, -ETIMEDOUT: above the
 * bounds. */
int inner_check(struct inner_had *h, const char *repository, const struct oid *commits, size_t n,
		const struct oid *from, struct err *err);

/* The claims that inner_check relied on, one a line, appended. They hold once a pack made of those
 * files alone is there with inner_had_index: then inner_check_claims gives 0, else -EBADMSG. */
int inner_claims(const struct inner_had *h, struct buf *out, struct err *err);
int inner_check_claims(struct inner_had *h, struct err *err);

#endif
