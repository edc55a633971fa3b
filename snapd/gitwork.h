/* A workspace or snapshot that is a checkout: its link, the mirror, and the tree as it was checked
 * out beside the tree as it is. What diff, commit and bundle begin with. */
#ifndef BOUGH_SNAPD_GITWORK_H
#define BOUGH_SNAPD_GITWORK_H

#include "gitops/changes.h"
#include "snapd/gitlink.h"
#include "snapd/snapd.h"

struct gitwork {
	struct snapd *sd;
	struct source src;
	struct gitlink link;
	struct mirror *mirror;
	struct view before, now;
	bool has_before, has_now;
	bool settled; /* gitlink_settle: the row doesn't say it yet */
};
/* The `git` column of its row; NULL: it is no checkout. */
const char *source_git(const struct source *s);
const char *source_name(const struct source *s); /* what messages call it; borrowed */

/* A commit that was interrupted when its branch had moved and the row hadn't heard is taken for
 * made: the anchor is that commit, the branch the one that it is on. 1: it was so; 0; -errno. */
int gitlink_settle(struct gitlink *link, struct mirror *m, struct err *err);

/* Takes the source over, whatever the result; a workspace is sealed. -EINVAL: it is no checkout;
 * -ENOENT never (a lost repository is -EIO). */
int gitwork_open(struct gitwork *g, struct snapd *sd, struct source *src, struct err *err);
void gitwork_done(struct gitwork *g);
#define auto_gitwork __attribute__((cleanup(gitwork_done))) struct gitwork
/* Options to compare with `base`, a commit of its repository; they borrow from g. */
void gitwork_options(const struct gitwork *g, const struct oid *base, struct changes_options *out);

/* The halves of "Name <address>", which the caller frees; NULL gives NULLs. -EINVAL, -ENOMEM. */
int gitwork_author(const char *text, char **name, char **address);

#endif
