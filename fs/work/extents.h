/* The extents of one inode in one layer: an ordered map from offset to `struct extent`
 * on the heap. No two overlap; neighbours that one source serves on end are one. */
#ifndef BOUGH_WORK_EXTENTS_H
#define BOUGH_WORK_EXTENTS_H

#include "fs/base/omap.h"
#include "fs/work/layer.h"

/* Called with each piece that an edit takes away. */
struct extents_edit {
	int (*gone)(void *ctx, const struct extent *piece);
	void *ctx;
	int64_t added; /* heap extents more than before */
};

/* True when both serve a byte of the file from the same place, so that one may stand for both. */
bool extents_same_source(const struct extent *a, const struct extent *b);
/* Calls fn with each piece of `e` that the map doesn't show just so already. */
int extents_new_pieces(const struct omap *m, const struct extent *e,
		       int (*fn)(void *ctx, const struct extent *piece), void *ctx);
/* Puts a copy of `e`. What it overlaps is cut away; gone() isn't called for pieces that
 * `e` shows just as they were. 0, -ENOMEM (the map is whole, the edit perhaps half done) or
 * what gone() failed with. */
int extents_put(struct omap *m, const struct extent *e, struct extents_edit *edit);
int extents_drop(struct omap *m, uint64_t from, uint64_t to, struct extents_edit *edit);
/* The extent that covers off, or the first behind it; NULL: none. */
struct extent *extents_ceil(const struct omap *m, uint64_t off);
void extents_clear(struct omap *m); /* frees all, tells nobody */

#endif
