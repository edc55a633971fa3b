/* Ordered map from uint64_t to uint64_t or pointer: a B+tree in memory.
 *
 * It holds what a layer knows in order: the names of a directory by cookie, the
 * extents of a file by offset, free space by place. 16 bytes an entry in leaves of
 * up to 32, so a map of one entry costs one small allocation. Not thread-safe:
 * readers may share, a writer is alone. */
#ifndef BOUGH_BASE_OMAP_H
#define BOUGH_BASE_OMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct omap_node;
struct omap {
	struct omap_node *root; /* NULL: empty; all zero is a valid empty map */
	size_t count;
	unsigned height;
};

typedef union {
	uint64_t u;
	void *p;
} omap_value;

struct omap_entry {
	uint64_t key;
	omap_value value;
};

/* Inserts or replaces; the old value goes to *old when not NULL (and *had says if there
 * was one). 0 or -ENOMEM, in which case the map is as before. */
int omap_put(struct omap *m, uint64_t key, omap_value value, omap_value *old, bool *had);
bool omap_get(const struct omap *m, uint64_t key, omap_value *value);
/* The entry with the least key >= key, or the greatest key <= key; false: none. */
bool omap_ceil(const struct omap *m, uint64_t key, struct omap_entry *out);
bool omap_floor(const struct omap *m, uint64_t key, struct omap_entry *out);
/* Removes; false when there was none. Never fails for want of memory. */
bool omap_del(struct omap *m, uint64_t key, omap_value *old);
void omap_clear(struct omap *m); /* frees the nodes; values are the caller's */
size_t omap_bytes(const struct omap *m);

#define omap_each(m, e)                                  \
	for (bool more_ = omap_ceil((m), 0, (e)); more_; \
	     more_ = (e)->key != UINT64_MAX && omap_ceil((m), (e)->key + 1, (e)))

#endif
