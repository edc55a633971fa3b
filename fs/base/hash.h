/* SHA-256 names content (tenants are hostile to each other); XXH3 finds
 * corruption and feeds hash tables, never identity. */
#ifndef BOUGH_BASE_HASH_H
#define BOUGH_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct digest {
	uint8_t b[32];
};

enum { DIGEST_HEX = 64 }; /* characters, without the final NUL */

/* SHA-256 of the bytes. Aborts when libcrypto can't hash at all. Any thread. */
void hash_sha256(struct digest *out, const void *data, size_t len);

/* XXH3, 64 bits. */
uint64_t hash_xxh3(const void *data, size_t len, uint64_t seed);

void digest_hex(char out[DIGEST_HEX + 1], const struct digest *d);
/* 0, or -EINVAL unless s is exactly 64 lower-case hex digits. */
int digest_parse(struct digest *out, const char *s);

static inline bool digest_equal(const struct digest *a, const struct digest *b)
{
	return memcmp(a->b, b->b, sizeof(a->b)) == 0;
}

static inline bool digest_is_zero(const struct digest *d)
{
	static const struct digest zero;
	return digest_equal(d, &zero);
}

/* Fills with random bytes of the kernel. Aborts if there are none. */
void random_bytes(void *out, size_t len);

/* Hex of `len` bytes into out, which has 2 * len + 1 bytes. */
void hex_encode(char *out, const void *data, size_t len);
/* 0, or -EINVAL unless s is exactly 2 * len lower-case hex digits. */
int hex_decode(void *out, size_t len, const char *s);

#endif
