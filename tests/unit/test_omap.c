#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "fs/base/hash.h"
#include "fs/base/omap.h"
#include "tests/seed.h"
#include "tests/unit/oom.h"

/* A universe of keys in ascending order: a model of the map is an array over it. */
enum { KEYS = 3000 };

struct model {
	struct omap map;
	uint64_t key[KEYS];
	bool has[KEYS];
	uint64_t value[KEYS];
	size_t count;
	uint64_t rng;
};

static uint64_t next(struct model *m)
{
	m->rng ^= m->rng << 13;
	m->rng ^= m->rng >> 7;
	m->rng ^= m->rng << 17;
	return m->rng;
}

enum spread { DENSE, SPARSE, ENDS };

static void model_init(struct model *m, enum spread spread, uint64_t seed)
{
	memset(m, 0, sizeof(*m));
	m->rng = seed;
	for (uint64_t i = 0; i < KEYS; i++) {
		m->key[i] = spread == DENSE ? i : i * (UINT64_MAX / KEYS);
		if (spread == ENDS && i >= KEYS / 2) /* close to both ends of the keys */
			m->key[i] = UINT64_MAX - (KEYS - 1 - i);
		else if (spread == ENDS)
			m->key[i] = i;
	}
}

static void check_neighbours(struct model *m, size_t i)
{
	struct omap_entry e;
	size_t up = i, down = i;
	while (up < KEYS && !m->has[up])
		up++;
	assert_int_equal(omap_ceil(&m->map, m->key[i], &e), up < KEYS);
	if (up < KEYS) {
		assert_true(e.key == m->key[up]);
		assert_true(e.value.u == m->value[up]);
	}
	while (down != SIZE_MAX && !m->has[down])
		down--;
	assert_int_equal(omap_floor(&m->map, m->key[i], &e), down != SIZE_MAX);
	if (down != SIZE_MAX) {
		assert_true(e.key == m->key[down]);
		assert_true(e.value.u == m->value[down]);
	}
	omap_value v;
	assert_int_equal(omap_get(&m->map, m->key[i], &v), m->has[i]);
	if (m->has[i])
		assert_true(v.u == m->value[i]);
}

static void check_all(struct model *m)
{
	struct omap_entry e;
	size_t i = 0, n = 0;
	omap_each(&m->map, &e) {
		while (i < KEYS && !m->has[i])
			i++;
		assert_true(i < KEYS && e.key == m->key[i] && e.value.u == m->value[i]);
		i++;
		n++;
	}
	assert_int_equal(n, m->count);
	assert_int_equal(m->map.count, m->count);
}

static void do_put(struct model *m, size_t i)
{
	omap_value old = { .u = 0 }, v = { .u = next(m) };
	bool had;
	assert_int_equal(omap_put(&m->map, m->key[i], v, &old, &had), 0);
	assert_int_equal(had, m->has[i]);
	if (had)
		assert_true(old.u == m->value[i]);
	m->count += !m->has[i];
	m->has[i] = true;
	m->value[i] = v.u;
}

static void do_del(struct model *m, size_t i)
{
	omap_value old;
	assert_int_equal(omap_del(&m->map, m->key[i], &old), m->has[i]);
	if (m->has[i])
		assert_true(old.u == m->value[i]);
	m->count -= m->has[i];
	m->has[i] = false;
}

static void random_ops(void **unused)
{
	uint64_t seed = test_seed() | 1;
	for (enum spread s = DENSE; s <= ENDS; s++) {
		struct model m;
		model_init(&m, s, seed);
		/* Growing and shrinking phases, some down to nothing. */
		for (unsigned phase = 0; phase < 12; phase++) {
			unsigned puts = phase % 2 ? 20 : 80;
			for (unsigned n = 0; n < 8000; n++) {
				size_t i = next(&m) % KEYS;
				if (next(&m) % 100 < puts)
					do_put(&m, i);
				else
					do_del(&m, i);
				if (n % 16 == 0)
					check_neighbours(&m, next(&m) % KEYS);
			}
			check_all(&m);
			for (size_t i = 0; phase % 4 == 3 && i < KEYS; i++)
				do_del(&m, i);
			if (phase % 4 == 3)
				assert_null(m.map.root);
		}
		omap_clear(&m.map);
		assert_int_equal(m.map.count, 0);
	}
}

/* Inserts and deletes in runs: appending leaves full nodes and short right edges. */
static void orders(void **unused)
{
	static const struct {
		const char *name;
		int put, del; /* 1: ascending, -1: descending, 0: shuffled */
	} rows[] = {
		{ "up, up", 1, 1 },       { "up, down", 1, -1 }, { "down, up", -1, 1 },
		{ "down, down", -1, -1 }, { "up, any", 1, 0 },   { "any, up", 0, 1 },
		{ "any, down", 0, -1 },   { "any, any", 0, 0 },
	};
	enum { N = 40000 };
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		struct omap m = { 0 };
		omap_value v;
		for (uint64_t i = 0; i < N; i++) {
			uint64_t mix = i * 17389 % N; /* a permutation: 17389 is prime to N */
			uint64_t k = rows[r].put > 0 ? i : rows[r].put < 0 ? N - 1 - i : mix;
			assert_int_equal(omap_put(&m, k, (omap_value){ .u = ~k }, NULL, NULL), 0);
		}
		assert_int_equal(m.count, N);
		/* A full node each 32 entries when appending, half full ones at worst. */
		assert_in_range(omap_bytes(&m), N * 16, (rows[r].put > 0 ? 18 : 40) * N);
		for (uint64_t i = 0; i < N; i++) {
			uint64_t mix = i * 27143 % N;
			uint64_t k = rows[r].del > 0 ? i : rows[r].del < 0 ? N - 1 - i : mix;
			if (!omap_del(&m, k, &v) || v.u != ~k)
				fail_msg("%s: key %" PRIu64, rows[r].name, k);
		}
		assert_int_equal(m.count, 0);
		assert_null(m.root);
		assert_int_equal(omap_bytes(&m), 0);
	}
}

static void out_of_memory(void **unused)
{
	struct model m;
	model_init(&m, SPARSE, test_seed() | 1);
	uint64_t failures = 0;
	for (unsigned n = 0; n < 20000; n++) {
		size_t i = next(&m) % KEYS;
		if (next(&m) % 4 == 0) { /* deleting works without memory */
			oom_at(1);
			do_del(&m, i);
			(void)oom_hit();
			continue;
		}
		oom_at(1 + next(&m) % 3);
		omap_value v = { .u = n };
		int r = omap_put(&m.map, m.key[i], v, NULL, NULL);
		if (r < 0) {
			assert_true(oom_hit());
			assert_int_equal(r, -ENOMEM);
			failures++;
		} else {
			(void)oom_hit();
			m.count += !m.has[i];
			m.has[i] = true;
			m.value[i] = n;
		}
		if (r < 0 || n % 500 == 0)
			check_all(&m);
	}
	assert_true(failures > 20);
	omap_clear(&m.map);
}

static void small_is_small(void **unused)
{
	static const struct {
		size_t entries, bytes;
	} rows[] = { { 0, 0 }, { 1, 32 }, { 2, 48 }, { 3, 80 }, { 4, 80 }, { 8, 144 } };
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		struct omap m = { 0 };
		for (size_t i = 0; i < rows[r].entries; i++)
			assert_int_equal(omap_put(&m, i, (omap_value){ .u = i }, NULL, NULL), 0);
		assert_in_range(omap_bytes(&m), 0, rows[r].bytes);
		omap_clear(&m);
	}
	/* What once was large becomes small again. */
	struct omap m = { 0 };
	for (size_t i = 0; i < 1000; i++)
		assert_int_equal(omap_put(&m, i, (omap_value){ .u = i }, NULL, NULL), 0);
	for (size_t i = 0; i < 999; i++)
		assert_true(omap_del(&m, i, NULL));
	assert_in_range(omap_bytes(&m), 0, 48);
	omap_clear(&m);
}

static void empty_map(void **unused)
{
	struct omap m = { 0 };
	struct omap_entry e;
	omap_value v;
	assert_false(omap_get(&m, 0, &v));
	assert_false(omap_ceil(&m, 0, &e));
	assert_false(omap_floor(&m, UINT64_MAX, &e));
	assert_false(omap_del(&m, 1, &v));
	omap_clear(&m);
	/* A first insertion that fails leaves no empty node behind. */
	oom_at(1);
	assert_int_equal(omap_put(&m, 1, (omap_value){ .u = 1 }, NULL, NULL), -ENOMEM);
	assert_true(oom_hit());
	assert_null(m.root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(empty_map),      cmocka_unit_test(random_ops),
		cmocka_unit_test(orders),         cmocka_unit_test(out_of_memory),
		cmocka_unit_test(small_is_small),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
