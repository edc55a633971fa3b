/* From a view to an archive, streaming, in constant memory but for the list of hard links.
 *
 * tar is pax: names byte for byte ("./" in front, parents first), hard links, symlinks, devices,
 * fifos, xattrs, holes, times to the nanosecond, numeric owners. The same tree gives the
 * same bytes. What a format can't hold is counted, never lost in silence:
 *
 *              xattrs   holes    hard links       devices, fifos   sockets  times
 *     tar      kept     kept     kept             kept             skipped  ns
 *     cpio     dropped  zeros    kept             kept             kept     s
 *     zip      dropped  zeros    as files         skipped          skipped  s
 *
 * cpio is "newc": a file of 4 GiB or more is refused (-EFBIG, named). */
#ifndef BOUGH_SNAPD_ARCHIVE_EXPORT_H
#define BOUGH_SNAPD_ARCHIVE_EXPORT_H

#include <stdint.h>
#include "fs/base/err.h"
#include "fs/base/have.h"
#include "fs/work/view.h"

enum export_format { EXPORT_TAR, EXPORT_TAR_ZST, EXPORT_ZIP, EXPORT_CPIO };
/* "tar", "tar.zst", "zip" or "cpio" to its value; -EINVAL for others, with a list. */
int export_format_parse(const char *name, struct err *err);
const char *export_format_name(enum export_format f); /* as above: the usual suffix, too */
const char *export_format_mime(enum export_format f);

struct archive_export_options {
	enum export_format format;
	int zstd_level; /* 0: 3 */
	uint64_t root;  /* inode of the directory that is the archive's root; 0: the tree's */
	struct have *have; /* of tar: files that are left out; NULL: none */
	/* Takes all n bytes: 0, or -errno, which ends the export with that. */
	int (*write)(void *ctx, const void *data, size_t n);
	void *write_ctx;
	/* Called now and then; a return other than 0 ends the export with -ECANCELED. */
	int (*progress)(void *ctx, uint64_t members, uint64_t bytes_read);
	void *progress_ctx;
};

struct archive_export_stats {
	uint64_t members, bytes; /* written; bytes of content read from the view */
	uint64_t archive_bytes;
	uint64_t sockets_skipped, specials_skipped; /* specials: devices and fifos */
	uint64_t xattrs_dropped;
	uint64_t links_as_files; /* further names of a file, written as files of their own */
	uint64_t holes_filled;   /* sparse files, written out */
	uint64_t times_cut;      /* members whose time is another: of whole seconds, 1970 to 2106 */
};

/* -EIO with the path for content that can't be read: the archive then ends early, without
 * its end mark, so that nobody takes it for whole. `st` may be NULL. */
int archive_export(const struct view *v, const struct archive_export_options *opt,
		   struct archive_export_stats *st, struct err *err);

#endif
