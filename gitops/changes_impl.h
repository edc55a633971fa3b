/* What the files of changes share. Not for others. */
#ifndef BOUGH_GITOPS_CHANGES_IMPL_H
#define BOUGH_GITOPS_CHANGES_IMPL_H

#include "gitops/changes.h"
#include "gitops/rules.h"

enum {
	MODE_FILE = 0100644,
	MODE_EXEC = 0100755,
	MODE_LINK = 0120000,
	MODE_GITLINK = 0160000,
	MODE_TREE = 0040000,
	CHANGE_DEPTH_MAX = 1024, /* folders on the way to a path */
};

static inline bool oid_is_zero(const struct oid *o)
{
	static const struct oid zero;
	return memcmp(o->b, zero.b, OID_BYTES) == 0;
}
static inline bool oid_equal(const struct oid *a, const struct oid *b)
{
	return memcmp(a->b, b->b, OID_BYTES) == 0;
}

/* A commit's tree. */
int commit_tree(git_tree **out, struct mirror *m, const struct oid *commit, struct err *err);

/* The id of what c's path has now (mode, ino, size and attrs are set), as git would keep it: sets
 * c->oid. `in_git`: what is there in git; NULL: nothing. */
int change_hash(struct change *c, const struct changes_options *opt, struct err *err);
/* The content in the view as git keeps it, in memory: 1; 0: it is larger than max. */
int change_convert(struct buf *out, const struct changes_options *opt, const struct change *c,
		   uint64_t max, struct err *err);

/* Turns deletes and adds that belong together into renames (unless opt->no_renames). An add's
 * old_path is a hint before: where its inode was checked out; afterwards adds have none. */
int changes_pair(struct changes *c, const struct changes_options *opt, struct err *err);
/* In order of path; for deletes and adds of one path the delete first. */
void changes_sort(struct changes *c);

#endif
