/* Ids that begin alike are different ones: whoever looks once at each tree would else pass over
 * what somebody made to begin like a harmless one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <errno.h>
#include <cmocka.h>

#include "gitops/oidmap.h"
#include "oom.h"

enum { N = 5000 };

/* The i-th: all begin with the same eight bytes. */
static git_oid oid(uint32_t i)
{
	git_oid o = { .id = { 1, 2, 3, 4, 5, 6, 7, 8 } };
	memcpy(o.id + 16, &i, sizeof(i));
	return o;
}

static void ids_that_begin_alike(void **state)
{
	struct oidmap m = { 0 };
	for (uint32_t i = 0; i < N; i++) {
		git_oid o = oid(i);
		assert_int_equal(oidmap_get(&m, &o), 0);
		assert_int_equal(oidmap_put(&m, &o, i + 1), 0);
	}
	for (uint32_t i = 0; i < N; i++) {
		git_oid o = oid(i);
		assert_int_equal(oidmap_get(&m, &o), i + 1);
		assert_int_equal(oidmap_put(&m, &o, UINT64_MAX - i), 0);
	}
	assert_int_equal(m.count, N);
	git_oid first = oid(0), none = oid(N);
	assert_true(oidmap_get(&m, &first) == UINT64_MAX);
	assert_int_equal(oidmap_get(&m, &none), 0);
	assert_int_equal(oidmap_add(&m, &first), 0);
	assert_int_equal(oidmap_add(&m, &none), 1);
	assert_int_equal(oidmap_add(&m, &none), 0);
	oidmap_done(&m);
	assert_int_equal(oidmap_get(&m, &first), 0);
}

static void out_of_memory(void **state)
{
	struct oidmap m = { 0 };
	uint32_t n = 0;
	for (bool hit = true; hit;) {
		git_oid o = oid(n);
		oom_at(1);
		int r = oidmap_add(&m, &o);
		hit = oom_hit();
		assert_int_equal(r, hit ? -ENOMEM : 1);
		assert_int_equal(oidmap_add(&m, &o), hit);
		n++;
	}
	while (n < N) { /* those that needed room got it the second time */
		git_oid o = oid(n++);
		assert_int_equal(oidmap_add(&m, &o), 1);
	}
	for (uint32_t i = 0; i < N; i++) {
		git_oid o = oid(i);
		assert_int_equal(oidmap_get(&m, &o), 1);
	}
	oidmap_done(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids_that_begin_alike),
		cmocka_unit_test(out_of_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
