/* Merging two trees of a repository three ways, as git does: by path and content, with renames
 * found again. For checkouts that have no inodes in common (snapd/merge.h has the other way).
 *
 * All of it is done in a scratch repository (mirror_scratch), so that the mirror keeps nothing of
 * a merge that is only tried. */
#ifndef BOUGH_GITOPS_TREEMERGE_H
#define BOUGH_GITOPS_TREEMERGE_H

#include "fs/base/buf.h"
#include "gitops/mirror.h"

/* A path that is different after the merge from what ours has. */
struct treemerge_entry {
	char *path;
	uint32_t old_mode; /* ours': git's modes; 0: it is new */
	uint32_t mode;     /* 0: it goes */
	struct oid oid;    /* of the blob; zero where it goes */
	bool same_content; /* only the mode is another */
	bool merged;       /* neither side has it so */
};
struct treemerge_conflict {
	char *path;
	const char *why; /* a literal */
};
struct treemerge {
	struct treemerge_entry *v; /* by path; without conflicts only */
	size_t n, cap;
	struct treemerge_conflict *conflicts;
	size_t nconflicts, conflicts_cap;
	git_tree *tree; /* the merged one; NULL with conflicts */
};
void treemerge_done(struct treemerge *t);
#define auto_treemerge __attribute__((cleanup(treemerge_done))) struct treemerge

/* `base` is a commit, the others are trees; all are in `scratch`. 0, also with conflicts; -ENOTSUP:
 * a malformed tree, or names that git refuses; -EBADMSG: a damaged repository; -ENOMEM. */
int treemerge_make(struct treemerge *out, struct mirror *scratch, const struct oid *base,
		   const struct oid *ours, const struct oid *theirs, struct err *err);
/* Adds one: `path` is copied. 0 or -ENOMEM. */
int treemerge_conflict(struct treemerge *t, const char *path, const char *why);

/* What git would write for the entry, by the .gitattributes of the merged tree; a link's target. In
 * *out, which is empty before. -EFBIG: above what is held in memory; -EBADMSG; -ENOMEM. */
int treemerge_content(struct buf *out, struct mirror *scratch, const struct treemerge *t,
		      const struct treemerge_entry *e, struct err *err);

/* The commit that both descend from, which a merge begins with: 1; 0: there is none; -errno. */
int treemerge_base(struct oid *out, struct mirror *m, const struct oid *a, const struct oid *b,
		   struct err *err);

#endif
