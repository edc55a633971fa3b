#include "fs/base/base64.h"

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
