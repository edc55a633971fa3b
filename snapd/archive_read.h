/* Reading an archive member by member, whatever its format: what import and extraction share.
 * libarchive decodes, streaming; a zip, whose directory is at its end, goes through a temporary
 * file without a name. Used by one thread, from open to close. */
#ifndef BOUGH_SNAPD_ARCHIVE_READ_H
#define BOUGH_SNAPD_ARCHIVE_READ_H

#include <archive.h>
#include <archive_entry.h>
#include <stdint.h>
#include "fs/image/image.h"
#include "snapd/archive_lib.h"

enum {
	ARCHIVE_XATTR_NAME = 255, /* bytes, as Linux has it … */
	ARCHIVE_XATTR_VALUE = 65536,
	ARCHIVE_TARGET_MAX = 4095, /* of a symlink's target, as Linux has it */
};

/* Where the bytes come from. */
struct archive_source {
	/* Up to n bytes into buf: the count, 0 at the end, or -errno (with err set). */
	ssize_t (*read)(void *ctx, void *buf, size_t n, struct err *err);
	void *ctx;
};

struct archive_reader_options {
	const char *scratch; /* folder for a zip's temporary file */
	uint64_t max_bytes;  /* a zip may be an eighth and 64 MiB longer; 0: no limit */
	uint32_t uid, gid;   /* with squash_owner all is theirs, whatever the archive says */
	bool squash_owner;
};

struct archive_reader {
	const struct archive_reader_options *opt;
	const struct archive_source *src;
	struct err *err;
	struct archive *a;
	bool zip;
	uint64_t bytes_read; /* from the source */
	uint64_t members;
	uint64_t ignored_xattrs; /* too long for Linux, or of another namespace */
	uint64_t ignored_acls;   /* members with an access list, which no workspace has */
	struct timespec now;     /* for what the archive doesn't say */
	/* The reader's own: */
	uint8_t *buf;       /* the source's bytes on their way to libarchive */
	size_t peeked;      /* bytes in buf that were read to see what it is */
	struct err src_err; /* the source's own failure */
	int spool;
	uint64_t cpio_linked;
	uint64_t data_end; /* place in the unpacked archive behind the last member's content */
	struct archive_locale locale;
};

/* 0 or -errno, with `err` set, which all of these use. Close it in any case. */
int archive_reader_open(struct archive_reader *rd, const struct archive_reader_options *opt,
			const struct archive_source *src, struct err *err);
void archive_reader_close(struct archive_reader *rd);
/* 1 and the next member, which has a name and isn't encrypted; 0: there is none; -EBADMSG … */
int archive_reader_next(struct archive_reader *rd, struct archive_entry **out);
/* Behind the last member: -EBADMSG where the archive ends too early, or the source goes on for long
 * behind it; the source's error where that breaks off. */
int archive_reader_finish(struct archive_reader *rd);
/* Mode, owner, times and device of a member, as they can be; a size isn't looked at. -EBADMSG. */
int archive_reader_attr(struct archive_reader *rd, struct archive_entry *e, const char *path,
			struct attr *a);
/* Calls fn for each xattr that a workspace can have. */
int archive_reader_xattrs(struct archive_reader *rd, struct archive_entry *e,
			  int (*fn)(void *ctx, const char *name, const void *value, size_t len),
			  void *ctx);
bool archive_reader_links(const struct archive_reader *rd); /* the format has hard links */
/* The error of libarchive, or that of the source where it was the cause. */
int archive_reader_error(struct archive_reader *rd, const char *what);
int archive_reader_refuse(struct archive_reader *rd, const char *path, const char *why);

#endif
