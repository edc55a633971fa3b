/* Files of a workspace's tree by path, as bounded bytes. A link on the way is never followed, and
 * what isn't a regular file is never read: the tree is its tenant's. */
#ifndef BOUGH_GITOPS_VIEWFILE_H
#define BOUGH_GITOPS_VIEWFILE_H

#include "fs/base/buf.h"
#include "fs/work/view.h"

/* What lies at `path` (relative, "" is the root), below the folder `dir`.
 * -ENOENT: nothing, or what leads there is no folder; -EIO. */
int viewfile_at(const struct view *v, uint64_t dir, const char *path, size_t len, struct attr *out);
/* Appends the whole content of a regular file, or of a symlink its target.
 * -EFBIG above `max` bytes; -EINVAL: neither; -EIO, -ENOMEM. */
int viewfile_read(struct buf *out, const struct view *v, const struct attr *a, uint64_t max,
		  struct err *err);
/* The regular file of that name in a folder: 1 and its content appended; 0: there is none, it is
 * something else, or it is larger than `max`. -EIO, -ENOMEM. */
int viewfile_named(struct buf *out, const struct view *v, uint64_t dir, const char *name,
		   uint64_t max, struct err *err);

#endif
