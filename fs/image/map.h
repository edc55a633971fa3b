/* The reader's insides: the mapped file, its verified blocks, and the guard against a
 * disk that can't be read (map.c), for read.c and check.c. */
#ifndef BOUGH_IMAGE_MAP_H
#define BOUGH_IMAGE_MAP_H

#include <stdatomic.h>
#include "fs/base/buf.h"
#include "fs/image/format.h"
#include "fs/image/image.h"

enum block_state { BLOCK_UNKNOWN, BLOCK_GOOD, BLOCK_BAD };

struct image {
	atomic_uint refs;
	struct image_info info;
	struct image_counts counts;
	struct image_layout layout;
	uint8_t *header;     /* heap, verified by open; holds the table of hashes */
	const uint8_t *base; /* the whole file, mapped */
	size_t map_bytes;
	struct mapguard *guard;
	_Atomic uint8_t *state;  /* enum block_state of each block; never leaves BLOCK_BAD */
	_Atomic uint32_t faults; /* pages that couldn't be read; see map.c */
	_Atomic uint64_t bad;    /* blocks that became BLOCK_BAD */
};

/* Hashes the block unless that was done. 0, or -EIO for a bad one. */
int image_block_check(struct image *im, uint64_t block);

/* The bytes [off, off + len) of the file, their blocks verified; NULL: -EIO. The range
 * lies in the body (callers bound it by the counts); len > 0. */
static inline const uint8_t *image_bytes(struct image *im, uint64_t off, uint64_t len)
{
	uint64_t from = off - im->layout.header_bytes;
	uint64_t last = (from + len - 1) / IMAGE_BLOCK;
	for (uint64_t i = from / IMAGE_BLOCK; i <= last; i++)
		if (atomic_load_explicit(&im->state[i], memory_order_relaxed) != BLOCK_GOOD &&
		    image_block_check(im, i) < 0)
			return NULL;
	return im->base + off;
}

/* Every public call reads inside IMAGE_GUARDED: the expression (an int result) is evaluated
 * once more when a part of the map was lost meanwhile, since what it read may have been the
 * zeros put in its place; -EIO when that doesn't end. The expression copies each field it
 * checks, for the same reason. */
struct image_guard {
	uint32_t faults;
	uint8_t tries;
	bool lost;
};

enum { IMAGE_GUARD_TRIES = 100 }; /* each one costs a bad block, and a call reads far fewer */

static inline bool image_guard_again(struct image *im, struct image_guard *g)
{
	/* The data was read before the counter is read again. */
	atomic_thread_fence(memory_order_acquire);
	uint32_t now = atomic_load_explicit(&im->faults, memory_order_relaxed);
	if (now == g->faults)
		return false;
	g->faults = now;
	g->lost = ++g->tries >= IMAGE_GUARD_TRIES;
	return !g->lost;
}

#define IMAGE_GUARDED(im, expr)                                                              \
	({                                                                                   \
		struct image_guard g_ = {                                                    \
			.faults = atomic_load_explicit(&(im)->faults, memory_order_acquire), \
		};                                                                           \
		int r_;                                                                      \
		do                                                                           \
			r_ = (expr);                                                         \
		while (image_guard_again((im), &g_));                                        \
		g_.lost ? -EIO : r_;                                                         \
	})

/* ---- records, for read.c and check.c (read.c) ---- */

struct image_inode_rec {
	struct attr attr;
	uint64_t body, xattr;   /* INO_BODY, INO_XATTR */
	uint32_t count, xattrs; /* INO_COUNT, INO_XATTRS */
};
/* By index; everything in them is in bounds. 0 or -EIO. */
int image_rec_inode(struct image *im, uint64_t index, struct image_inode_rec *out);
int image_rec_dirent(struct image *im, uint64_t index, struct dirent_ref *out);
int image_rec_piece(struct image *im, uint64_t index, struct piece *out);
int image_rec_xattr(struct image *im, uint64_t index, const char **name, const void **value,
		    size_t *len);
int image_rec_string(struct image *im, uint64_t at, uint64_t len, const uint8_t **out);
/* The index of the first inode with a number >= ino; -ENOENT, -EIO. */
int image_index_ceil(struct image *im, uint64_t ino, uint64_t *index);

#endif
