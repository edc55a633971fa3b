#include "snapd/tus_head.h"
#include "snapd/files_head.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int tus_number(const char *text, uint64_t *out)
{
	uint64_t v = 0;
	const char *p = text;
	for (; *p >= '0' && *p <= '9'; p++) {
		unsigned digit = (unsigned)(*p - '0');
		if (v > ((uint64_t)INT64_MAX - digit) / 10)
			return -EINVAL;
		v = v * 10 + digit;
	}
	if (*p || p == text)
		return -EINVAL;
	*out = v;
	return 0;
}

/* The bytes of padded base64, at most `cap`: their number, or -EINVAL. */
static int decode(const char *s, size_t n, uint8_t *out, size_t cap)
{
	size_t len = 0;
	if (n % 4)
		return -EINVAL;
	for (size_t i = 0; i < n; i += 4) {
		uint32_t v = 0;
		unsigned pad = 0;
		for (size_t k = 0; k < 4; k++) {
			int d = head_base64_digit(s[i + k]);
			bool may_pad = i + 4 == n && k >= 2;
			if (d < 0 && !(s[i + k] == '=' && may_pad))
				return -EINVAL;
			if (d >= 0 && pad)
				return -EINVAL;
			pad += d < 0;
			v = v << 6 | (d < 0 ? 0 : (uint32_t)d);
		}
		for (unsigned k = 0; k < 3 - pad; k++) {
			if (len == cap)
				return -EINVAL;
			out[len++] = (uint8_t)(v >> (16 - 8 * k));
		}
	}
	return (int)len;
}

int tus_base64(const char *s, size_t n, void *out, size_t cap)
{
	return decode(s, n, out, cap);
}

int tus_metadata(const char *text, const char *key, char **out)
{
	char *found = NULL;
	int r = 0;
	for (const char *p = text; r == 0 && *p;) {
		const char *end = strchrnul(p, ',');
		while (*p == ' ')
			p++;
		size_t n = strcspn(p, " ,");
		if (n == strlen(key) && memcmp(p, key, n) == 0) {
			const char *value = p + n + (p[n] == ' ');
			size_t len = (size_t)(end - value);
			while (len > 0 && value[len - 1] == ' ')
				len--;
			char *to = malloc(len / 4 * 3 + 1);
			int got = to ? decode(value, len, (uint8_t *)to, len / 4 * 3) : -ENOMEM;
			r = got < 0 ? got : found || memchr(to, 0, (size_t)got) ? -EINVAL : 0;
			if (r == 0) {
				to[got] = '\0';
				found = to;
			} else {
				free(to);
			}
		}
		p = *end ? end + 1 : end;
	}
	if (r < 0) {
		free(found);
		return r;
	}
	*out = found;
	return 0;
}

int tus_checksum(const char *text, uint8_t out[TUS_DIGEST_MAX])
{
	const char *blank = strchr(text, ' ');
	if (!blank)
		return -EINVAL;
	size_t n = (size_t)(blank - text);
	int want = n == 4 && memcmp(text, "sha1", 4) == 0     ? 20
		   : n == 6 && memcmp(text, "sha256", 6) == 0 ? 32
							      : 0;
	if (!want)
		return -ENOTSUP;
	return decode(blank + 1, strlen(blank + 1), out, TUS_DIGEST_MAX) == want ? want : -EINVAL;
}
