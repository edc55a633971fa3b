#include "fs/base/hash.h"

#include <assert.h>
#include <errno.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <sys/random.h>
#include <xxhash.h>

void hash_sha256(struct digest *out, const void *data, size_t len)
{
	/* The one-shot call needs no heap and no context to share between threads. */
	if (!SHA256(data, len, out->b))
		abort();
}

uint64_t hash_xxh3(const void *data, size_t len, uint64_t seed)
{
	return XXH3_64bits_withSeed(data, len, seed);
}

void hex_encode(char *out, const void *data, size_t len)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *p = data;
	for (size_t i = 0; i < len; i++) {
		out[2 * i] = digits[p[i] >> 4];
		out[2 * i + 1] = digits[p[i] & 15];
	}
	out[2 * len] = '\0';
}

static int nibble(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

int hex_decode(void *out, size_t len, const char *s)
{
	if (strnlen(s, 2 * len + 1) != 2 * len)
		return -EINVAL;
	for (size_t i = 0; i < 2 * len; i++)
		if (nibble(s[i]) < 0)
			return -EINVAL;
	uint8_t *p = out;
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(nibble(s[2 * i]) << 4 | nibble(s[2 * i + 1]));
	return 0;
}

void digest_hex(char out[DIGEST_HEX + 1], const struct digest *d)
{
	hex_encode(out, d->b, sizeof(d->b));
}

int digest_parse(struct digest *out, const char *s)
{
	return hex_decode(out->b, sizeof(out->b), s);
}

void random_bytes(void *out, size_t len)
{
	uint8_t *p = out;
	while (len > 0) {
		ssize_t n = getrandom(p, len, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			abort();
		p += n;
		len -= (size_t)n;
	}
}
