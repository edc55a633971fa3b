/* Many changes in one step: all or none, one frame of the journal. And the bytes by which they
 * come from boughd.
 *
 * Each operation sees what those before it did. Paths are relative to the root, without "", "."
 * and ".." as parts; links are never followed (-ELOOP). What is made belongs to who owns the
 * folder that it is made in, unless the operation says otherwise. Times are those of the batch. */
#ifndef BOUGH_WORK_BATCH_H
#define BOUGH_WORK_BATCH_H

#include <stdbool.h>
#include "fs/base/buf.h"
#include "fs/work/version.h"

enum batch_kind {
	BATCH_PUT,    /* `file` (as ws_put) gets the name */
	BATCH_MAKE,   /* a directory, symlink, fifo, socket or device */
	BATCH_LINK,   /* one more name for what `other` leads to, no folder */
	BATCH_MOVE,   /* to `other` */
	BATCH_DELETE,
	BATCH_CHMOD,
	BATCH_CHECK,  /* only what must be there */
	BATCH_TIMES,  /* a folder gets these times; anything else, or nothing, stays as it is */
	BATCH_KINDS,
};
enum batch_flag {
	BATCH_PARENTS = 1 << 0, /* missing folders above (of MOVE: above `other`) are made, 0755 */
	BATCH_RECURSIVE = 1 << 1,  /* DELETE: a folder with all that is in it */
	/* MOVE: as rename(2). PUT, MAKE, LINK: what is no folder gives way. */
	BATCH_REPLACE = 1 << 2,
	BATCH_OLD_FOLDER = 1 << 3, /* MAKE of a folder: one may be there … */
	BATCH_RESET = 1 << 4,      /* … which then gets the attributes */
	BATCH_SET_MODE = 1 << 5,   /* PUT: `mode` counts */
	BATCH_AS_IS = 1 << 6, /* PUT: the file has its attributes. MAKE: owner and times are here */
	BATCH_MUST_EXIST = 1 << 7, /* or -EREMCHG, as in ws_put */
	BATCH_MUST_NOT_EXIST = 1 << 8,
	BATCH_GIVEN = 1 << 9, /* PUT: the file's owner, mode, times and xattrs are here */
	/* PUT: `file` is the number, from 1 on, of a content that comes with the batch. Whoever
	 * does the batch puts that into a file without a name first. */
	BATCH_CONTENT = 1 << 10,
	BATCH_FLAGS = (1 << 11) - 1,
};
enum {
	BATCH_OPS_MAX = 200000,
	BATCH_BYTES_MAX = 48 << 20,   /* encoded; what the journal takes is less than 64 MiB */
	BATCH_INODES_MAX = 200000,    /* touched, those of a removed folder too */
	BATCH_VERSIONS_MAX = 64,      /* of one condition */
	BATCH_PATH_MAX = 4095,
	BATCH_XATTRS_MAX = 1 << 20,   /* bytes, of one operation */
	BATCH_CONTENTS_MAX = 64 << 20, /* encoded, all of a batch: two million pieces */
};

struct batch_op {
	enum batch_kind kind;
	unsigned flags;
	uint32_t mode; /* MAKE: with the type; permissions of CHMOD, PUT */
	uint32_t uid, gid, rdev;
	struct timespec atime, mtime; /* TIMES; MAKE with AS_IS, PUT with GIVEN */
	uint64_t file;                /* PUT: the inode's number */
	const char *path, *other;     /* not terminated; `other`: of MAKE a symlink's target */
	size_t path_len, other_len;
	const void *xattrs; /* MAKE, PUT with GIVEN: batch_xattr, one behind the other */
	size_t xattrs_len;
	const uint8_t *match, *unless; /* version.h, encoded: batch_version */
	size_t nmatch, nunless;
};

/* Appends an operation whose match and unless are lists of those versions. */
struct batch_conditions {
	const struct version_id *match, *unless;
	size_t nmatch, nunless;
};
void batch_encode(struct buf *out, const struct batch_op *op, const struct batch_conditions *c);
void batch_encode_xattr(struct buf *out, const char *name, const void *value, size_t len);

/* A content: pieces of the file that the batch comes in, and holes between them. */
struct batch_piece {
	uint64_t off, len; /* in the content; len > 0 */
	uint64_t at;       /* in the batch's file */
};
struct batch_content {
	uint64_t size; /* no piece goes beyond it */
	const uint8_t *pieces; /* encoded: batch_piece_at */
	size_t n;
};
void batch_encode_content(struct buf *out, uint64_t size, const struct batch_piece *v, size_t n);
/* The next content; pointers are into the input. 1; 0 at the end; -EBADMSG: any bytes. */
int batch_decode_content(struct cur *c, struct batch_content *out);
struct batch_piece batch_piece_at(const struct batch_content *c, size_t i);

/* The next operation; pointers are into the input. 1; 0 at the end; -EBADMSG: any bytes. */
int batch_decode(struct cur *c, struct batch_op *out);
/* The i-th version of a list. */
struct version_id batch_version(const uint8_t *list, size_t i);
/* The next xattr of op->xattrs: 1, 0 at the end, -EBADMSG. */
int batch_xattr(struct cur *c, const char **name, size_t *name_len, const void **value,
		size_t *len);

#endif
