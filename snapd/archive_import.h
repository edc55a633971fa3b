/* From an archive to an image: any tar (old, ustar, GNU, pax; sparse too), cpio or zip, tar and
 * cpio also compressed with gzip, bzip2, xz, lzma, zstd, lz4 or compress. libarchive decodes,
 * streaming; a zip, whose directory is at its end, goes through a temporary file.
 *
 * What is kept: names byte for byte (but libarchive composes those that a zip marks as UTF-8:
 * NFC), hard links, symlinks, devices, fifos, xattrs (user., security., trusted.), holes of at
 * least one aligned 4 KiB block, times to the nanosecond, numeric owners, set-id and sticky bits.
 * A leading "./" means nothing; the member "." itself sets the root's attributes, which without
 * it is 0755, owned as the options say. Folders that the archive leaves out are made the same
 * way. A later file, symlink or special replaces an earlier one of the same name and type, as
 * tar does; a later folder sets its attributes.
 *
 * An archive is taken whole or not at all. Refused, with the member named (-EBADMSG):
 *   absolute names and names with "..", also as a hard link's target; a component over 255
 *   bytes; a member below something that is no folder (links are never followed); a hard link
 *   to nothing, or to a folder; two members of one name and different types (in a zip: two of
 *   one name); what isn't an archive, is damaged, or ends too early; encrypted members.
 * -EFBIG: more bytes or inodes than the limits allow. Until image_finish, which is the last
 * step, nothing has a name; the store may have got objects that gc collects. */
#ifndef BOUGH_SNAPD_ARCHIVE_IMPORT_H
#define BOUGH_SNAPD_ARCHIVE_IMPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "fs/base/err.h"
#include "fs/base/hash.h"
#include "fs/base/io.h"
#include "fs/store/store.h"
#include "snapd/archive_read.h"

struct box_entry;
struct archive_import_options {
	struct store_session *session; /* used by one other thread until the call returns */
	const struct io *io;           /* for the image; NULL: the host's */
	const char *images;            /* folder where the image is published */
	const char *scratch;           /* folder for a zip's temporary file, which has no name */
	uint64_t seed;                 /* of name_hash */
	/* Takes n >= 1 numbers off the store-wide counter; they begin at *first. */
	int (*reserve)(void *ctx, uint64_t n, uint64_t *first, struct err *err);
	void *reserve_ctx;
	uint64_t max_bytes;  /* of content, in whole 4 KiB blocks without holes; 0: no limit. A zip
	                      * itself may be an eighth and 64 MiB longer. */
	uint64_t max_inodes; /* 0: no limit */
	uint32_t uid, gid;   /* owner of folders that the archive leaves out */
	bool squash_owner;   /* all is owned by uid and gid, whatever the archive says: for a
	                      * server whose user could not change what others own */
	const struct box_entry *fill; /* what is added where it is missing, and the archive then
	                              * has to have something; NULL: nothing */
	/* Called now and then; a return other than 0 ends the import with -ECANCELED. */
	int (*progress)(void *ctx, uint64_t bytes_read, uint64_t members);
	void *progress_ctx;
};

struct archive_import_stats {
	uint64_t members;        /* read, each hard link counted */
	uint64_t inodes;         /* in the image */
	uint64_t files;          /* regular ones of these */
	uint64_t bytes;          /* sizes of the regular files, summed */
	uint64_t data_bytes;     /* the same without holes */
	uint64_t archive_bytes;  /* read from the source */
	uint64_t ignored_xattrs; /* too long for Linux, or of another namespace */
	uint64_t ignored_acls;   /* members with an access list, which no workspace has */
};

/* 0 and the image's name; it and all its objects are durable. The caller names it in the
 * catalog before it ends the session. `st` may be NULL. */
int archive_import(struct digest *image, const struct archive_import_options *opt,
		   const struct archive_source *src, struct archive_import_stats *st,
		   struct err *err);

/* The same from several archives, each a layer over those before (archive_tree.h: whiteouts). The
 * limits are of all of them together. `opt` is borrowed until archive_importer_free. */
struct archive_importer;
int archive_importer_new(struct archive_importer **out, const struct archive_import_options *opt,
			 struct err *err);
int archive_importer_layer(struct archive_importer *im, const struct archive_source *src,
			   struct err *err);
/* As archive_import. Once, behind the last layer, none of which failed. */
int archive_importer_finish(struct archive_importer *im, struct digest *image,
			    struct archive_import_stats *st, struct err *err);
void archive_importer_free(struct archive_importer *im); /* NULL allowed */

#endif
