#include "fs/store/chunk.h"

#include <pthread.h>
#include <string.h>

enum {
	ZERO_BLOCK = 4096, /* the step in which runs of zeros are looked for */
	SHIFT_SMALL = 64 - 20,
	SHIFT_LARGE = 64 - 16,
};

static uint64_t gear[256];
static pthread_once_t gear_once = PTHREAD_ONCE_INIT;

/* splitmix64 (Steele, Lea, Flood 2014), seeded by "boughcdc" read as a big-endian number. */
static void gear_init(void)
{
	uint64_t x = UINT64_C(0x626f756768636463);
	for (int i = 0; i < 256; i++) {
		x += UINT64_C(0x9e3779b97f4a7c15);
		uint64_t z = x;
		z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
		z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
		gear[i] = z ^ z >> 31;
	}
}

bool chunk_is_zero(const uint8_t *p, size_t n)
{
	return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

static size_t leading_zeros(const uint8_t *p, size_t n)
{
	size_t i = 0;
	while (n - i >= ZERO_BLOCK && chunk_is_zero(p + i, ZERO_BLOCK))
		i += ZERO_BLOCK;
	while (i < n && p[i] == 0)
		i++;
	return i;
}

/* Where the first run of CHUNK_ZEROS zeros starts, exactly, or `limit`. Such a run holds 15
 * whole blocks at least, however it lies; other blocks are dismissed by their first byte. */
static size_t find_zeros(const uint8_t *p, size_t n, size_t limit)
{
	size_t blocks = 0;
	for (size_t i = 0; i + ZERO_BLOCK <= n; i += ZERO_BLOCK) {
		if (!chunk_is_zero(p + i, ZERO_BLOCK)) {
			blocks = 0;
			if (i >= limit)
				break;
			continue;
		}
		if (++blocks < CHUNK_ZEROS / ZERO_BLOCK - 1)
			continue;
		size_t from = i + ZERO_BLOCK - blocks * ZERO_BLOCK, to = i + ZERO_BLOCK;
		while (from > 0 && p[from - 1] == 0)
			from--;
		while (to < n && to - from < CHUNK_ZEROS && p[to] == 0)
			to++;
		if (from >= limit)
			break;
		if (to - from >= CHUNK_ZEROS)
			return from;
	}
	return limit;
}

static size_t cut(const uint8_t *p, size_t n)
{
	if (n <= CHUNK_MIN)
		return n;
	size_t small = n < CHUNK_AVG ? n : CHUNK_AVG, i = CHUNK_MIN;
	uint64_t h = 0;
	for (; i < small; i++) {
		h = (h << 1) + gear[p[i]];
		if (!(h >> SHIFT_SMALL))
			return i + 1;
	}
	for (; i < n; i++) {
		h = (h << 1) + gear[p[i]];
		if (!(h >> SHIFT_LARGE))
			return i + 1;
	}
	return n;
}

size_t chunk_next(const uint8_t *p, size_t n, bool *zero)
{
	(void)pthread_once(&gear_once, gear_init);
	if (p[0] == 0) {
		size_t z = leading_zeros(p, n);
		if (*zero || z >= CHUNK_ZEROS || z == n) {
			*zero = true;
			return z;
		}
	}
	*zero = false;
	size_t limit = n < CHUNK_MAX ? n : CHUNK_MAX;
	return cut(p, find_zeros(p, n, limit));
}
