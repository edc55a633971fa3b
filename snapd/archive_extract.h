/* From an archive into a directory of a mounted workspace, streaming, in constant memory but for
 * the list of directories whose times are set in the end. Members go in batches (archive_stage.h),
 * past the kernel; large files are written through the mount as they come.
 *
 * Names are judged as import does (archive_import.h); links on the way are never followed. What
 * is there stays, but for what has a member's name: a file, link or special gives way to any of
 * these, each in one step where it is a file, so that a reader never sees half of one; a directory
 * takes over a member's attributes. A directory never gives way to something else, nor something
 * else to a directory: -ENOTUNIQ. What is extracted before a failure stays.
 *
 * Kept: as import keeps it. Where boughd isn't root, all belongs to its own user, and what only
 * root can make or set (devices, xattrs but user.) is refused or counted. */
#ifndef BOUGH_SNAPD_ARCHIVE_EXTRACT_H
#define BOUGH_SNAPD_ARCHIVE_EXTRACT_H

#include "snapd/archive_read.h"
#include "snapd/files_place.h"

struct archive_extract_options {
	/* All is staged in a file of the scratch folder, while its room in the quota is kept, and
	 * at the end done in one step (ws_batch), or nothing is. -EFBIG: too many members. */
	bool atomic;
	bool top; /* the directory itself takes over the attributes of the archive's own */
};
struct archive_extract_stats {
	uint64_t members, bytes;
	uint64_t ignored_xattrs, ignored_acls;
};
/* `path` is a directory of the place, which is a mount. */
int archive_extract(const struct place *place, const char *path, const char *scratch,
		    const struct archive_extract_options *opt, const struct archive_source *src,
		    struct archive_extract_stats *st, struct err *err);

#endif
