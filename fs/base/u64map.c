#include "fs/base/u64map.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

enum { CAP_MIN = 8 };

/* Fibonacci hashing: keys are mostly consecutive inode numbers, which the golden
 * ratio spreads evenly; the high bits are the good ones, so they are folded down. */
static size_t home(const struct u64map *m, uint64_t key)
{
	uint64_t h = key * UINT64_C(0x9e3779b97f4a7c15);
	return (size_t)(h ^ h >> 32) & (m->cap - 1);
}

/* The slot that holds the key, or the free one where it belongs. There is always a
 * free slot, since at most three of four are taken. */
static size_t find(const struct u64map *m, uint64_t key)
{
	size_t i = home(m, key);
	while (m->slots[i].key != 0 && m->slots[i].key != key)
		i = (i + 1) & (m->cap - 1);
	return i;
}

static int resize(struct u64map *m, size_t cap)
{
	struct u64map bigger = { calloc(cap, sizeof(*m->slots)), cap, m->count };
	if (!bigger.slots)
		return -ENOMEM;
	for (size_t i = 0; i < m->cap; i++)
		if (m->slots[i].key != 0)
			bigger.slots[find(&bigger, m->slots[i].key)] = m->slots[i];
	free(m->slots);
	*m = bigger;
	return 0;
}

void *u64map_get(const struct u64map *m, uint64_t key)
{
	return m->count && key != 0 ? m->slots[find(m, key)].value : NULL;
}

int u64map_put(struct u64map *m, uint64_t key, void *value)
{
	assert(key != 0 && value != NULL);
	if (m->cap) {
		size_t i = find(m, key);
		if (m->slots[i].key == key) {
			m->slots[i].value = value;
			return 0;
		}
	}
	if (m->count + 1 > m->cap / 4 * 3) {
		size_t cap;
		if (__builtin_mul_overflow(m->cap, 2, &cap))
			return -ENOMEM;
		int r = resize(m, cap ? cap : CAP_MIN);
		if (r < 0)
			return r;
	}
	m->slots[find(m, key)] = (struct u64map_slot){ key, value };
	m->count++;
	return 0;
}

void *u64map_del(struct u64map *m, uint64_t key)
{
	if (m->count == 0 || key == 0)
		return NULL;
	size_t hole = find(m, key), mask = m->cap - 1;
	if (m->slots[hole].key == 0)
		return NULL;
	void *old = m->slots[hole].value;
	/* Backward shift: whoever probed past the hole on its way may move into it. */
	for (size_t i = (hole + 1) & mask; m->slots[i].key != 0; i = (i + 1) & mask) {
		size_t h = home(m, m->slots[i].key);
		if (((i - h) & mask) >= ((i - hole) & mask)) {
			m->slots[hole] = m->slots[i];
			hole = i;
		}
	}
	m->slots[hole] = (struct u64map_slot){ 0 };
	m->count--;
	if (m->count == 0)
		u64map_done(m);
	else if (m->cap > CAP_MIN && m->count < m->cap / 8)
		(void)resize(m, m->cap / 2); /* without memory it stays as large as it is */
	return old;
}

void u64map_done(struct u64map *m)
{
	free(m->slots);
	*m = (struct u64map){ 0 };
}

struct u64map_slot *u64map_next(const struct u64map *m, size_t *i)
{
	while (*i < m->cap) {
		struct u64map_slot *s = &m->slots[(*i)++];
		if (s->key != 0)
			return s;
	}
	return NULL;
}
