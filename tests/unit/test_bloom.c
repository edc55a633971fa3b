#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <cmocka.h>
#include "fs/base/bloom.h"
#include "tests/unit/oom.h"

enum { THREADS = 4, EACH = 25000, ADDED = THREADS * EACH, OTHERS = 1000000 };

static struct digest digest_of(uint64_t n)
{
	struct digest d;
	hash_sha256(&d, &n, sizeof(n));
	return d;
}

struct part {
	struct bloom *b;
	uint64_t from;
};

static void *add_part(void *arg)
{
	const struct part *p = arg;
	for (uint64_t n = p->from; n < p->from + EACH; n++) {
		struct digest d = digest_of(n);
		bloom_add(p->b, &d);
	}
	return NULL;
}

/* Filled by several threads at once. */
static struct bloom *filled(uint64_t expected, size_t max_bytes)
{
	pthread_t t[THREADS];
	struct part p[THREADS];
	struct bloom *b = bloom_new(expected, max_bytes);
	assert_non_null(b);
	for (unsigned i = 0; i < THREADS; i++) {
		p[i] = (struct part){ b, (uint64_t)i * EACH };
		assert_int_equal(pthread_create(&t[i], NULL, add_part, &p[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		(void)pthread_join(t[i], NULL);
	return b;
}

static unsigned count(const struct bloom *b, const struct bloom *also, uint64_t from, uint64_t to)
{
	unsigned has = 0;
	for (uint64_t n = from; n < to; n++) {
		struct digest d = digest_of(n);
		has += bloom_has(b, &d) && (!also || bloom_has(also, &d));
	}
	return has;
}

/* All that was added is found, whatever the size; of what wasn't, as little as the header says: the
 * expectations are 36 of a million and 1,300 of a hundred thousand. */
static void test_sizes(void **state)
{
	struct bloom *b = filled(ADDED, SIZE_MAX);
	assert_int_equal(count(b, NULL, 0, ADDED), ADDED);
	assert_in_range(count(b, NULL, ADDED, ADDED + OTHERS), 5, 120);
	bloom_free(b);
	b = filled(ADDED, ADDED / 8 * 10);
	assert_int_equal(count(b, NULL, 0, ADDED), ADDED);
	assert_in_range(count(b, NULL, ADDED, ADDED + OTHERS / 10), 900, 1900);
	bloom_free(b);
	b = bloom_new(0, 0);
	assert_non_null(b);
	assert_int_equal(count(b, NULL, 0, 1000), 0);
	bloom_free(b);
	bloom_free(NULL);
}

/* What one is wrong about another one isn't. */
static void test_seeds(void **state)
{
	struct bloom *a = filled(ADDED, ADDED / 8 * 10), *b = filled(ADDED, ADDED / 8 * 10);
	assert_int_equal(count(a, b, 0, ADDED), ADDED);
	assert_in_range(count(a, b, ADDED, ADDED + OTHERS / 10), 0, 60);
	bloom_free(a);
	bloom_free(b);
}

static void test_no_memory(void **state)
{
	for (uint64_t n = 1;; n++) {
		oom_at(n);
		struct bloom *b = bloom_new(1000, SIZE_MAX);
		bool hit = oom_hit();
		oom_at(0);
		assert_int_equal(!b, hit);
		bloom_free(b);
		if (!hit)
			return;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_seeds),
		cmocka_unit_test(test_no_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
