#include "snapd/tus_head.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/base64.h"

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
			int got = to ? base64_decode(value, len, to, len / 4 * 3) : -ENOMEM;
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
	int len = base64_decode(blank + 1, strlen(blank + 1), out, TUS_DIGEST_MAX);
	return len == want ? want : -EINVAL;
}

uint64_t tus_told(uint64_t kept, uint64_t length, bool done)
{
	return kept - (!done && kept > 0 && kept == length);
}
