/* Tells a workspace's own git of a commit that was made outside (commit --sync): the objects come
 * as a pack into its .git, and refs/remotes/bough/BRANCH names the commit (origin's branches are
 * the other side's). Its branches, index and files stay as they are.
 *
 * The tree is hostile: every step is by descriptors of the mounted workspace, and no link, other
 * mount or device is followed; files are only made, never opened. */
#ifndef BOUGH_SNAPD_GITSYNC_H
#define BOUGH_SNAPD_GITSYNC_H

#include "snapd/gitwork.h"

/* -ENOTCONN: it isn't mounted; -ENOTDIR …: its .git isn't as git has it; -errno. */
int gitsync_tell(struct snapd *sd, const struct gitwork *work, const struct oid *commit,
		 const char *branch, struct err *err);

#endif
