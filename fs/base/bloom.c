#include "fs/base/bloom.h"

#include <stdatomic.h>
#include <stdlib.h>

enum {
	BLOCK_WORDS = 8, /* one bit of each */
	BLOCK_BYTES = BLOCK_WORDS * 4,
	DIGEST_BYTES = 4, /* for each that is expected */
	BYTES_MIN = 64 << 10,
};

/* Any odd numbers; these are Parquet's. */
static const uint32_t salts[BLOCK_WORDS] = { 0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d,
					     0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31 };

struct bloom {
	uint64_t seed;
	uint64_t blocks; /* fits 32 bits */
	_Atomic uint32_t (*words)[BLOCK_WORDS];
};

struct bloom *bloom_new(uint64_t expected, size_t max_bytes)
{
	uint64_t bytes = expected < max_bytes / DIGEST_BYTES ? expected * DIGEST_BYTES : max_bytes;
	struct bloom *b = calloc(1, sizeof(*b));
	if (!b)
		return NULL;
	b->blocks = (bytes > BYTES_MIN ? bytes : BYTES_MIN) / BLOCK_BYTES;
	b->words = calloc(b->blocks, BLOCK_BYTES);
	if (!b->words) {
		free(b);
		return NULL;
	}
	random_bytes(&b->seed, sizeof(b->seed));
	return b;
}

void bloom_free(struct bloom *b)
{
	if (b)
		free(b->words);
	free(b);
}

/* The block by the upper half of the hash, its bits by the lower one. */
static _Atomic uint32_t *block_of(const struct bloom *b, const struct digest *d, uint32_t *key)
{
	uint64_t h = hash_xxh3(d->b, sizeof(d->b), b->seed);
	*key = (uint32_t)h;
	return b->words[(h >> 32) * b->blocks >> 32];
}

static uint32_t bit_of(uint32_t key, int word)
{
	return UINT32_C(1) << (key * salts[word] >> 27);
}

void bloom_add(struct bloom *b, const struct digest *d)
{
	uint32_t key;
	_Atomic uint32_t *words = block_of(b, d, &key);
	for (int i = 0; i < BLOCK_WORDS; i++)
		atomic_fetch_or_explicit(&words[i], bit_of(key, i), memory_order_relaxed);
}

bool bloom_has(const struct bloom *b, const struct digest *d)
{
	uint32_t key;
	_Atomic uint32_t *words = block_of(b, d, &key);
	for (int i = 0; i < BLOCK_WORDS; i++)
		if (!(atomic_load_explicit(&words[i], memory_order_relaxed) & bit_of(key, i)))
			return false;
	return true;
}
