/* Hash map from uint64_t (never 0) to a pointer (never NULL): open addressing with
 * linear probing and backward-shift deletion. All zero is a valid empty map.
 * Not thread-safe: readers may share, a writer is alone. */
#ifndef BOUGH_BASE_U64MAP_H
#define BOUGH_BASE_U64MAP_H

#include <stddef.h>
#include <stdint.h>

struct u64map_slot {
	uint64_t key; /* 0: free */
	void *value;
};

struct u64map {
	struct u64map_slot *slots;
	size_t cap, count; /* cap is 0 or a power of two */
};

void *u64map_get(const struct u64map *m, uint64_t key); /* NULL: absent */
/* Inserts or replaces. 0 or -ENOMEM (the map is as before). */
int u64map_put(struct u64map *m, uint64_t key, void *value);
void *u64map_del(struct u64map *m, uint64_t key); /* the old value or NULL; shrinks, never fails */
void u64map_done(struct u64map *m);

/* for (size_t i = 0; (slot = u64map_next(m, &i));) … ; the map must not change meanwhile. */
struct u64map_slot *u64map_next(const struct u64map *m, size_t *i);

#endif
