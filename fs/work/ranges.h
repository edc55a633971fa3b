/* Sets of ranges, and counts over ranges: what the space of a data file is kept in. Units are
 * bytes, multiples of LAYER_BLOCK. Ordered maps from a range's begin; neighbours are merged
 * in sets. */
#ifndef BOUGH_WORK_RANGES_H
#define BOUGH_WORK_RANGES_H

#include "fs/base/omap.h"

/* A set: omap from begin to length. All return 0 or -ENOMEM. */
int ranges_add(struct omap *m, uint64_t off, uint64_t len);
/* Takes [off, off + len) out, whatever of it is there; *taken (NULL allowed) says how much. */
int ranges_del(struct omap *m, uint64_t off, uint64_t len, uint64_t *taken);
/* The first part of [off, off + len) that is in the set; false: none. */
bool ranges_first(const struct omap *m, uint64_t off, uint64_t len, uint64_t *at, uint64_t *n);

/* Counts: omap from begin to length and count, where a count isn't 0. */
enum { RANGES_COUNT_MAX = (1 << 28) - 1 };
/* One more on each byte of the range. -ENOMEM, -EMLINK above RANGES_COUNT_MAX. */
int ranges_inc(struct omap *m, uint64_t off, uint64_t len);
/* One less. `none` is called for each part whose count is 0 already (which is then left so), and
 * `last` for each whose count becomes 0. */
int ranges_dec(struct omap *m, uint64_t off, uint64_t len,
	       int (*none)(void *ctx, uint64_t off, uint64_t len),
	       int (*last)(void *ctx, uint64_t off, uint64_t len), void *ctx);
/* The first part of [off, off + len) with a count; false: none. */
bool ranges_counted(const struct omap *m, uint64_t off, uint64_t len, uint64_t *at, uint64_t *n);

#endif
