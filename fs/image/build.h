/* The builder's insides, shared by build.c (gathers) and write.c (lays out and writes). */
#ifndef BOUGH_IMAGE_BUILD_H
#define BOUGH_IMAGE_BUILD_H

#include "fs/base/buf.h"
#include "fs/base/omap.h"
#include "fs/base/u64map.h"
#include "fs/image/format.h"
#include "fs/image/image.h"

struct build_dirent {
	uint64_t cookie, child;
	uint8_t type, name_len;
	char name[];
};

struct build_piece {
	struct build_piece *next;
	struct piece p;
};

struct build_xattr {
	struct build_xattr *next; /* newest first */
	const void *value;
	uint64_t name_at, value_at; /* write.c: places in the pool of strings */
	uint32_t value_len, seq;    /* of two with one name the higher seq holds */
	uint8_t name_len;
	char name[]; /* terminated */
};

struct build_inode {
	struct attr attr;
	bool present;  /* image_add_inode came; else only something refers to it */
	bool reached;  /* write.c: a name leads to it from the root */
	bool unsorted; /* pieces were not added in order */
	uint32_t npieces, nxattrs, target_len;
	struct build_piece *pieces, *last_piece;
	struct build_xattr *xattrs;
	const char *target;   /* NULL: none */
	struct omap names;    /* cookie -> struct build_dirent * */
	uint64_t body, xattr; /* write.c: places, as in the record */
};

struct arena_chunk; /* build.c */
struct arena {
	struct arena_chunk *chunks;
	size_t left; /* bytes free in the newest chunk */
};

struct image_builder {
	uint64_t seed;
	struct u64map inodes; /* number -> struct build_inode * */
	struct arena arena;   /* everything of the builder but its maps */
};

#endif
