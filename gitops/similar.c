#include "gitops/similar.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/hash.h"

enum { RUN_MAX = 64, BINARY_LOOK = 8000 };

static int by_hash(const void *pa, const void *pb)
{
	uint32_t a = ((const struct similar_run *)pa)->hash,
		 b = ((const struct similar_run *)pb)->hash;
	return (a > b) - (a < b);
}

/* The next run at p: its bytes, and the hash of it, in which a CR before LF doesn't count. */
static size_t take_run(const uint8_t *p, size_t left, int text, struct similar_run *out)
{
	uint8_t run[RUN_MAX];
	size_t n = 0, i = 0;
	while (i < left && n < RUN_MAX) {
		uint8_t c = p[i++];
		if (text && c == '\r' && i < left && p[i] == '\n')
			continue;
		run[n++] = c;
		if (c == '\n')
			break;
	}
	*out = (struct similar_run){ (uint32_t)hash_xxh3(run, n, 0), (uint32_t)n };
	return i;
}

int similar_init(struct similar *s, const void *data, size_t len)
{
	const uint8_t *p = data, *end = p + len;
	int text = !memchr(p, 0, len < BINARY_LOOK ? len : BINARY_LOOK);
	size_t n = 0, cap = 0;
	struct similar_run *v = NULL;
	*s = (struct similar){ .size = len };
	while (p < end) {
		if (n == cap) {
			cap = cap ? 2 * cap : len / 32 + 16;
			struct similar_run *more = reallocarray(v, cap, sizeof(*v));
			if (!more) {
				free(v);
				return -ENOMEM;
			}
			v = more;
		}
		p += take_run(p, (size_t)(end - p), text, &v[n]);
		n++;
	}
	if (n > 1)
		qsort(v, n, sizeof(*v), by_hash);
	for (size_t i = 0; i < n; i++) {
		if (s->n > 0 && v[s->n - 1].hash == v[i].hash)
			v[s->n - 1].bytes += v[i].bytes;
		else
			v[s->n++] = v[i];
	}
	s->v = v;
	return 0;
}

void similar_done(struct similar *s)
{
	free(s->v);
	*s = (struct similar){ 0 };
}

int similar_possible(uint64_t a, uint64_t b)
{
	return a < b ? 2 * a >= b : 2 * b >= a;
}

uint32_t similar_score(const struct similar *a, const struct similar *b)
{
	uint64_t both = 0, most = a->size > b->size ? a->size : b->size;
	for (size_t i = 0, j = 0; i < a->n && j < b->n;) {
		if (a->v[i].hash < b->v[j].hash) {
			i++;
		} else if (a->v[i].hash > b->v[j].hash) {
			j++;
		} else {
			both += a->v[i].bytes < b->v[j].bytes ? a->v[i].bytes : b->v[j].bytes;
			i++, j++;
		}
	}
	return most ? (uint32_t)(both * SIMILAR_ALL / most) : 0;
}
