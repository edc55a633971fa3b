/* Layout of an image file (fs/FORMAT.md gives every byte and its reason).
 *
 *     header | runs | inodes | dirents | pieces | xattrs | strings
 *
 * The header holds the counts and the SHA-256 of every block of the body; where a section
 * lies follows from the counts alone, so there is nothing that could disagree with them. */
#ifndef BOUGH_IMAGE_FORMAT_H
#define BOUGH_IMAGE_FORMAT_H

#include <assert.h>
#include <stdint.h>
#include "fs/base/hash.h"

#define IMAGE_MAGIC  "BOUGHIMG"
#define IMAGE_SUFFIX ".img"

enum {
	IMAGE_VERSION = 1,
	IMAGE_BLOCK = 64 * 1024,   /* bytes that one hash of the table covers */
	IMAGE_HEADER_ALIGN = 4096, /* the header ends at a multiple of it */
	IMAGE_SECTION_ALIGN = 64,  /* a section begins at a multiple of it: a cache line */

	IMAGE_HEADER_FIXED = 256, /* bytes before the table of hashes */
	IMAGE_RUN_BYTES = 16,
	IMAGE_INODE_BYTES = 160,
	IMAGE_DIRENT_BYTES = 24,
	IMAGE_PIECE_BYTES = 48,
	IMAGE_XATTR_BYTES = 24,

	IMAGE_TARGET_MAX = 4095, /* bytes of a symlink's target, as Linux has it */
	IMAGE_XATTR_NAME_MAX = 255,
	IMAGE_XATTR_VALUE_MAX = 65536,
};

/* Bounds of the counts: what a header may claim without any sum of sizes overflowing, and
 * the hash table of the largest body staying in memory. */
#define IMAGE_COUNT_MAX  ((uint64_t)1 << 32)
#define IMAGE_BODY_MAX   ((uint64_t)1 << 40)
#define IMAGE_INO_MAX    (((uint64_t)1 << 48) - 1)
#define IMAGE_COOKIE_MAX ((uint64_t)INT64_MAX)

/* The header's fields by their offset. */
enum {
	HDR_MAGIC = 0,   /* 8 bytes */
	HDR_VERSION = 8, /* u32 */
	HDR_BYTES = 12,  /* u32: the whole header with table and padding */
	HDR_SEED = 16,   /* u64 */
	HDR_RUNS = 24,   /* u64 counts … */
	HDR_INODES = 32,
	HDR_DIRENTS = 40,
	HDR_PIECES = 48,
	HDR_XATTRS = 56,
	HDR_STRING_BYTES = 64, /* u64 */
	HDR_FILE_BYTES = 72,   /* u64: sizes of the regular files, summed */
	HDR_DATA_BYTES = 80,   /* u64: bytes of the pieces, summed */
	HDR_MAX_INO = 88,      /* u64 */
	HDR_ZERO = 96,         /* zeros up to the table */
};
static_assert(HDR_ZERO <= IMAGE_HEADER_FIXED, "the fields end before the table");

enum {
	RUN_INO = 0,   /* u64: the first number of the run */
	RUN_INDEX = 8, /* u64: the index of its record */
};

enum {
	INO_INO = 0,
	INO_MODE = 8,
	INO_UID = 12,
	INO_GID = 16,
	INO_NLINK = 20,
	INO_RDEV = 24,
	INO_GEN = 28,   /* u16 */
	INO_FLAGS = 30, /* u16 */
	INO_SIZE = 32,
	INO_BLOCKS = 40,
	INO_PARENT = 48,
	INO_PARENT_COOKIE = 56,
	INO_OWN_TAG = 64,
	INO_OWN_BYTES = 72,
	INO_SECONDS = 80, /* 4 * i64: atime, mtime, ctime, btime */
	INO_NANOS = 112,  /* 4 * u32, in the same order */
	INO_BODY = 128,   /* u64: first dirent, first piece, or target's place in strings */
	INO_COUNT = 136,  /* u32: dirents, pieces, or bytes of the target */
	INO_XATTRS = 140, /* u32: count */
	INO_XATTR = 144,  /* u64: the first */
	INO_ZERO = 152,   /* u64 */
};
static_assert(INO_ZERO + 8 == IMAGE_INODE_BYTES, "inode record");

enum {
	DIR_COOKIE = 0,
	DIR_INO = 8, /* u64: ino | type << 48 | name_len << 56 */
	DIR_NAME = 16,
	DIR_TYPE_SHIFT = 48,
	DIR_LEN_SHIFT = 56,
};
static_assert(DIR_NAME + 8 == IMAGE_DIRENT_BYTES, "dirent record");

enum {
	PIECE_OFF = 0,
	PIECE_LEN = 8,
	PIECE_OBJ_OFF = 12,
	PIECE_OBJECT = 16,
};
static_assert(PIECE_OBJECT + sizeof(struct digest) == IMAGE_PIECE_BYTES, "piece record");

enum {
	XATTR_NAME = 0,
	XATTR_VALUE = 8,
	XATTR_VALUE_LEN = 16,
	XATTR_NAME_LEN = 20, /* u8, three zero bytes behind it */
};
static_assert(XATTR_NAME_LEN + 4 == IMAGE_XATTR_BYTES, "xattr record");

/* What is counted, and where it therefore lies (offsets from the start of the file). */
struct image_counts {
	uint64_t runs, inodes, dirents, pieces, xattrs, string_bytes;
};
struct image_layout {
	uint64_t runs, inodes, dirents, pieces, xattrs, strings;
	uint64_t header_bytes, file_bytes, blocks;
};
/* 0, or -EFBIG when a count is out of its bounds. */
int image_layout(struct image_layout *out, const struct image_counts *c);

/* The file's name in the folder of images. */
enum { IMAGE_FILE_NAME = DIGEST_HEX + sizeof(IMAGE_SUFFIX) };
void image_file_name(char out[IMAGE_FILE_NAME], const struct digest *name);

#endif
