#include "fs/base/base64.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

char *base64_encode(const void *data, size_t len)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				     "0123456789+/";
	const uint8_t *s = data;
	char *out = malloc((len + 2) / 3 * 4 + 1), *p = out;
	for (size_t i = 0; out && i < len; i += 3) {
		uint32_t v = (uint32_t)s[i] << 16;
		v |= i + 1 < len ? (uint32_t)s[i + 1] << 8 : 0;
		v |= i + 2 < len ? (uint32_t)s[i + 2] : 0;
		*p++ = digits[v >> 18];
		*p++ = digits[v >> 12 & 63];
		*p++ = i + 1 < len ? digits[v >> 6 & 63] : '=';
		*p++ = i + 2 < len ? digits[v & 63] : '=';
	}
	if (out)
		*p = '\0';
	return out;
}

static int digit(char c)
{
	return c >= 'A' && c <= 'Z'   ? c - 'A'
	       : c >= 'a' && c <= 'z' ? c - 'a' + 26
	       : c >= '0' && c <= '9' ? c - '0' + 52
	       : c == '+'             ? 62
	       : c == '/'             ? 63
				      : -1;
}

int base64_decode(const char *text, size_t n, void *out, size_t cap)
{
	uint8_t *to = out;
	size_t len = 0;
	if (n % 4)
		return -EINVAL;
	for (size_t i = 0; i < n; i += 4) {
		uint32_t v = 0;
		unsigned pad = 0;
		for (size_t k = 0; k < 4; k++) {
			int d = digit(text[i + k]);
			bool may_pad = i + 4 == n && k >= 2;
			if (d < 0 && !(text[i + k] == '=' && may_pad))
				return -EINVAL;
			if (d >= 0 && pad)
				return -EINVAL;
			pad += d < 0;
			v = v << 6 | (d < 0 ? 0 : (uint32_t)d);
		}
		if (v & ((1u << 8 * pad) - 1)) /* bits that say nothing */
			return -EINVAL;
		for (unsigned k = 0; k < 3 - pad; k++) {
			if (len == cap)
				return -EINVAL;
			to[len++] = (uint8_t)(v >> (16 - 8 * k));
		}
	}
	return (int)len;
}
