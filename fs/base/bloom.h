/* A set of digests in memory of a fixed size, which may say of one that isn't in it that it is: a
 * split block Bloom filter (Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom
 * Filters", 2007; eight words a block, as in Apache Parquet). With 32 bits for each digest it is
 * wrong about one of 28,000 others, with 16 about one of 760, with 11 of a hundred, with 5 of six.
 * Which ones, its random seed decides. */
#ifndef BOUGH_BASE_BLOOM_H
#define BOUGH_BASE_BLOOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/base/hash.h"

struct bloom;

/* Empty, of 32 bits for each of `expected` digests, but of no more than max_bytes. The caller
 * frees. NULL: out of memory. */
struct bloom *bloom_new(uint64_t expected, size_t max_bytes);
void bloom_free(struct bloom *b); /* NULL allowed */
void bloom_add(struct bloom *b, const struct digest *d); /* any thread */
/* Any thread; what is added meanwhile may be seen or not. */
bool bloom_has(const struct bloom *b, const struct digest *d);

#endif
