/* Objects that are written and not in the index yet: a table by digest, in memory.
 * Not thread-safe. All zero is a valid empty table. */
#ifndef BOUGH_STORE_PENDING_H
#define BOUGH_STORE_PENDING_H

#include "fs/store/index.h"

struct pending_entry {
	struct digest digest;
	struct place place; /* pack 0: taken back */
	bool moved;         /* gc's copy: it replaces what the index has */
};

struct pending {
	struct pending_entry *e; /* in the order they came */
	size_t n, cap;
	uint32_t *slots; /* number of an entry plus one; 0: free */
	size_t nslots;   /* 0 or a power of two */
};

/* Room for one more, so that pending_add can't fail. 0 or -ENOMEM. */
int pending_reserve(struct pending *p);
/* Adds or replaces; one was reserved. */
void pending_add(struct pending *p, const struct pending_entry *e);
/* Borrowed until the next change; NULL: absent or taken back. */
const struct pending_entry *pending_find(const struct pending *p, const struct digest *d);
/* Takes back what lies in this pack at `from` and behind. */
void pending_drop(struct pending *p, uint64_t pack, uint64_t from);
void pending_clear(struct pending *p); /* keeps the memory unless it is large */
void pending_done(struct pending *p);

#endif
