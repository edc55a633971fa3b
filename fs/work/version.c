#include "fs/work/version.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

struct version_id version_of(const struct attr *a)
{
	uint64_t ns = (uint64_t)a->ctime.tv_sec * 1000000000u + (uint64_t)a->ctime.tv_nsec;
	return (struct version_id){ .ino = a->ino, .gen = a->gen, .ctime_ns = (int64_t)ns };
}

bool version_equal(const struct version_id *a, const struct version_id *b)
{
	return a->ino == b->ino && a->gen == b->gen && a->ctime_ns == b->ctime_ns;
}

const char *version_text(char out[VERSION_TEXT], const struct version_id *v)
{
	(void)snprintf(out, VERSION_TEXT, "%" PRIx64 ".%x.%" PRIx64, v->ino, (unsigned)v->gen,
		       (uint64_t)v->ctime_ns); /* 16 + 4 + 16 digits */
	return out;
}

/* Up to `digits` of hex, lower case, without zeros in front; *p moves behind them. */
static int parse_hex(const char **p, const char *end, unsigned digits, uint64_t *out)
{
	uint64_t v = 0;
	unsigned n = 0;
	for (; *p < end && n <= digits; n++, (*p)++) {
		char c = **p;
		if (c >= '0' && c <= '9')
			v = v << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			v = v << 4 | (uint64_t)(c - 'a' + 10);
		else
			break;
	}
	if (n == 0 || n > digits || (n > 1 && (*p)[-(int)n] == '0'))
		return -EINVAL;
	*out = v;
	return 0;
}

int version_parse(struct version_id *out, const char *text, size_t n)
{
	const char *p = text, *end = text + n;
	uint64_t ino, gen, ns;
	int r = parse_hex(&p, end, 12, &ino);
	if (r == 0)
		r = p < end && *p++ == '.' ? parse_hex(&p, end, 4, &gen) : -EINVAL;
	if (r == 0)
		r = p < end && *p++ == '.' ? parse_hex(&p, end, 16, &ns) : -EINVAL;
	if (r < 0 || p != end)
		return -EINVAL;
	*out = (struct version_id){ .ino = ino, .gen = (uint16_t)gen, .ctime_ns = (int64_t)ns };
	return 0;
}
