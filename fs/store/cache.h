/* The bounded cache of raw content: blobs by digest, least recently used out first, in
 * shards with a lock each. A blob that is out of the cache lives on until its last user
 * gives it back. */
#ifndef BOUGH_STORE_CACHE_H
#define BOUGH_STORE_CACHE_H

#include <pthread.h>
#include <stdint.h>
#include "fs/store/store.h"

struct cache_blob; /* a struct blob and its count */
struct cache_shard;
struct cache {
	struct cache_shard *shards;
	size_t nshards;
	size_t shard_bytes; /* the bound of each */
};

int cache_init(struct cache *c, size_t bytes); /* 0 or -ENOMEM */
void cache_done(struct cache *c);              /* of a zeroed one too */

/* A blob of `len` bytes for *data to be filled; one use is the caller's. NULL: no memory. */
struct cache_blob *cache_blob_new(const struct digest *d, size_t len, uint8_t **data);
const struct blob *cache_blob(struct cache_blob *b);

/* One more use of the blob, or NULL. */
const struct blob *cache_get(struct cache *c, const struct digest *d);
/* Takes the caller's filled blob in, and gives what is to be used instead of it: the blob
 * itself, or the one that another thread was quicker to add. The use stays the caller's. */
const struct blob *cache_add(struct cache *c, struct cache_blob *b);
/* Drops what wasn't asked for in the last idle_ms milliseconds; 0: all. */
void cache_trim(struct cache *c, uint64_t idle_ms);
uint64_t cache_bytes(struct cache *c);

#endif
