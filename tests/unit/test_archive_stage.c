/* What of an archive waits to be done: contents by path, and that many of them are found fast. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "snapd/archive_stage.h"

static void content_is_kept(void **state)
{
	struct archive_stage s;
	struct err err = { 0 };
	uint64_t a, b, again;
	char text[16] = { 0 };
	assert_int_equal(archive_stage_init(&s, NULL, NULL, &err), 0);
	assert_int_equal(archive_stage_file(&s, "d/a", &a), 0);
	assert_int_equal(archive_stage_data(&s, a, 0, "123", 3), 0);
	assert_int_equal(archive_stage_data(&s, a, 3, "456", 3), 0);
	assert_int_equal(archive_stage_data(&s, a, 100, "7", 1), 0);
	assert_int_equal(archive_stage_file_end(&s, a, 200), 0);
	assert_int_equal(s.charge, 200); /* one block, cut at the end */
	assert_int_equal(archive_stage_file(&s, "d/b", &b), 0);
	assert_int_equal(archive_stage_data(&s, b, 0, "b", 1), 0);
	assert_int_equal(s.npieces, 3); /* two that meet are one */
	assert_int_equal(s.contents[a - 1].count, 2);
	assert_int_equal(pread(s.spool, text, 6, (off_t)s.pieces[0].at), 6);
	assert_string_equal(text, "123456");
	assert_int_equal(archive_stage_file_again(&s, "d/c", &again), -ENOENT);
	assert_int_equal(archive_stage_file_again(&s, "d/a", &again), 0);
	assert_int_equal(again, a);
	assert_int_equal(archive_stage_data(&s, a, 0, "new", 3), 0);
	assert_int_equal(s.contents[a - 1].count, 1);
	assert_int_equal(s.charge, 4); /* what it had doesn't count any more */
	archive_stage_done(&s);
}

static void newest_of_a_path(void **state)
{
	struct archive_stage s;
	struct err err = { 0 };
	uint64_t first, second, again;
	assert_int_equal(archive_stage_init(&s, NULL, NULL, &err), 0);
	assert_int_equal(archive_stage_file(&s, "a", &first), 0);
	assert_int_equal(archive_stage_file(&s, "a", &second), 0);
	assert_int_equal(archive_stage_file_again(&s, "a", &again), 0);
	assert_int_equal(again, second);
	archive_stage_done(&s);
}

/* As fs/work/quota.h says: whole blocks where there is data, and xattrs. */
static void what_the_quota_counts(void **state)
{
	static const struct {
		uint64_t off[3], n[3], size, charge;
	} rows[] = {
		{ { 0 }, { 5000 }, 5000, 5000 },
		{ { 0, 5000 }, { 5000, 1 }, 5001, 5001 },
		{ { 0 }, { 10 }, 100000, 4096 },
		{ { 0 }, { 4096 }, 100000, 4096 },
		{ { 9000 }, { 10 }, 100000, 4096 },
		{ { 9000, 9500 }, { 10, 10 }, 100000, 4096 },
		{ { 10, 8192, 50000 }, { 10, 10, 100 }, 50200, 8192 + 50200 - 49152 },
		{ { 4090 }, { 10 }, 4100, 4100 },
	};
	struct archive_stage s;
	struct err err = { 0 };
	uint8_t data[5000] = { 0 };
	struct buf xattrs = { 0 };
	uint64_t n, sum = 0;
	assert_int_equal(archive_stage_init(&s, NULL, NULL, &err), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(archive_stage_file(&s, "a", &n), 0);
		for (size_t k = 0; k < 3; k++)
			assert_int_equal(archive_stage_data(&s, n, rows[i].off[k], data,
							    rows[i].n[k]), 0);
		assert_int_equal(archive_stage_file_end(&s, n, rows[i].size), 0);
		sum += rows[i].charge;
		assert_int_equal(s.charge, sum);
	}
	archive_stage_file_drop(&s, n);
	assert_int_equal(s.charge, sum - 4100);
	batch_encode_xattr(&xattrs, "user.a", "value", 5);
	const struct batch_op o = { .kind = BATCH_MAKE, .path = "d", .path_len = 1,
				    .xattrs = xattrs.data, .xattrs_len = xattrs.len };
	assert_int_equal(archive_stage_add(&s, &o), 0);
	assert_int_equal(s.charge, sum - 4100 + 11);
	buf_done(&xattrs);
	archive_stage_done(&s);
}

/* Compared one by one this would be 10^10 paths, minutes. */
static void many_are_found(void **state)
{
	enum { MANY = 100000, MOST_S = 5 };
	struct archive_stage s;
	struct err err = { 0 };
	char path[64];
	uint64_t n;
	clock_t begin = clock();
	assert_int_equal(archive_stage_init(&s, NULL, NULL, &err), 0);
	for (int i = 0; i < MANY; i++) {
		(void)snprintf(path, sizeof(path), "a/common/beginning/of/all/f%d", i);
		assert_int_equal(archive_stage_file(&s, path, &n), 0);
	}
	for (int i = 0; i < MANY; i++) {
		(void)snprintf(path, sizeof(path), "a/common/beginning/of/all/f%d", i);
		assert_int_equal(archive_stage_file_again(&s, path, &n), 0);
		assert_int_equal(n, i + 1);
	}
	assert_true((clock() - begin) / CLOCKS_PER_SEC < MOST_S);
	archive_stage_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(content_is_kept),
		cmocka_unit_test(newest_of_a_path),
		cmocka_unit_test(what_the_quota_counts),
		cmocka_unit_test(many_are_found),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
