#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "fs/base/hash.h"
#include "fs/base/u64map.h"
#include "tests/seed.h"
#include "tests/unit/oom.h"

enum { KEYS = 2000 };

static uint64_t rng;

static uint64_t next(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

static void seed(void)
{
	rng = test_seed() | 1;
}

static void *value(uint64_t v)
{
	return (void *)(uintptr_t)(v | 1); /* never NULL */
}

static void check_all(const struct u64map *m, const uint64_t *key, void *const *has, size_t count)
{
	struct u64map_slot *s;
	size_t n = 0;
	assert_int_equal(m->count, count);
	for (size_t i = 0; (s = u64map_next(m, &i));)
		n++;
	assert_int_equal(n, count);
	for (size_t i = 0; i < KEYS; i++)
		assert_ptr_equal(u64map_get(m, key[i]), has[i]);
	assert_true(m->cap == 0 || (m->cap & (m->cap - 1)) == 0);
	assert_true(count <= m->cap / 4 * 3);
	if (m->cap > 8)
		assert_true(count >= m->cap / 8);
}

/* Keys that are consecutive, all alike in their low bits, and that share a home. */
static uint64_t key_of(unsigned spread, uint64_t i)
{
	switch (spread) {
	case 0:
		return i + 1;
	case 1:
		return (i + 1) << 48;
	case 2:
		return UINT64_MAX - i;
	default: /* the inverse of the multiplier: hashes that follow each other closely */
		return (i % 16 + (i / 16 << 40) + 1) * UINT64_C(0xf1de83e19937733d);
	}
}

static void random_ops(void **unused)
{
	seed();
	for (unsigned spread = 0; spread < 4; spread++) {
		struct u64map m = { 0 };
		uint64_t key[KEYS];
		void *has[KEYS] = { 0 };
		size_t count = 0;
		for (uint64_t i = 0; i < KEYS; i++)
			key[i] = key_of(spread, i);
		for (unsigned phase = 0; phase < 8; phase++) {
			for (unsigned n = 0; n < 6000; n++) {
				size_t i = next() % KEYS;
				if (next() % 100 < (phase % 2 ? 15 : 70)) {
					void *v = value(next());
					assert_int_equal(u64map_put(&m, key[i], v), 0);
					count += !has[i];
					has[i] = v;
				} else {
					assert_ptr_equal(u64map_del(&m, key[i]), has[i]);
					count -= has[i] != NULL;
					has[i] = NULL;
				}
			}
			check_all(&m, key, has, count);
		}
		for (size_t i = 0; i < KEYS; i++)
			assert_ptr_equal(u64map_del(&m, key[i]), has[i]);
		assert_null(m.slots); /* an empty map holds nothing */
		u64map_done(&m);
	}
}

static void out_of_memory(void **unused)
{
	seed();
	struct u64map m = { 0 };
	uint64_t key[KEYS];
	void *has[KEYS] = { 0 };
	size_t count = 0, failures = 0;
	bool failed = false;
	for (uint64_t i = 0; i < KEYS; i++)
		key[i] = key_of(0, i);
	for (unsigned n = 0; n < 30000; n++) {
		size_t i = next() % KEYS;
		bool grow = n / 5000 % 2 == 0;
		if (grow) { /* growing fails once, then not */
			void *v = value(n);
			oom_at(!failed);
			int r = u64map_put(&m, key[i], v);
			failed = r < 0;
			if (failed) {
				assert_int_equal(r, -ENOMEM);
				assert_true(oom_hit());
				failures++;
				check_all(&m, key, has, count);
			} else {
				count += !has[i];
				has[i] = v;
			}
		} else { /* shrinking may fail; deleting doesn't */
			oom_at(next() % 8 == 0);
			assert_ptr_equal(u64map_del(&m, key[i]), has[i]);
			count -= has[i] != NULL;
			has[i] = NULL;
		}
		(void)oom_hit();
	}
	assert_true(failures > 0);
	for (size_t i = 0; i < KEYS; i++)
		assert_ptr_equal(u64map_get(&m, key[i]), has[i]);
	u64map_done(&m);
}

static void empty_map(void **unused)
{
	struct u64map m = { 0 };
	size_t i = 0;
	assert_null(u64map_get(&m, 1));
	assert_null(u64map_get(&m, 0));
	assert_null(u64map_del(&m, 1));
	assert_null(u64map_next(&m, &i));
	u64map_done(&m);
	assert_int_equal(u64map_put(&m, 7, value(7)), 0);
	assert_null(u64map_get(&m, 0));
	assert_null(u64map_del(&m, 0));
	u64map_done(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(empty_map),
		cmocka_unit_test(random_ops),
		cmocka_unit_test(out_of_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
