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
	assert_int_equal(archive_stage_init(&s, NULL, NULL, UINT64_MAX, &err), 0);
	assert_int_equal(archive_stage_file(&s, "d/a", &a), 0);
	assert_int_equal(archive_stage_data(&s, a, 0, "123", 3), 0);
	assert_int_equal(archive_stage_data(&s, a, 3, "456", 3), 0);
	assert_int_equal(archive_stage_data(&s, a, 100, "7", 1), 0);
	archive_stage_file_end(&s, a, 200);
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
	assert_int_equal(s.used, 4); /* what it had doesn't count any more */
	archive_stage_done(&s);
}

static void newest_of_a_path(void **state)
{
	struct archive_stage s;
	struct err err = { 0 };
	uint64_t first, second, again;
	assert_int_equal(archive_stage_init(&s, NULL, NULL, UINT64_MAX, &err), 0);
	assert_int_equal(archive_stage_file(&s, "a", &first), 0);
	assert_int_equal(archive_stage_file(&s, "a", &second), 0);
	assert_int_equal(archive_stage_file_again(&s, "a", &again), 0);
	assert_int_equal(again, second);
	archive_stage_done(&s);
}

static void no_more_than_there_is_room(void **state)
{
	struct archive_stage s;
	struct err err = { 0 };
	uint64_t n;
	assert_int_equal(archive_stage_init(&s, NULL, "/tmp", 10, &err), 0);
	assert_int_equal(archive_stage_file(&s, "a", &n), 0);
	assert_int_equal(archive_stage_data(&s, n, 0, "0123456789", 10), 0);
	assert_int_equal(archive_stage_data(&s, n, 10, "x", 1), -EDQUOT);
	assert_non_null(strstr(err.text, "a"));
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
	assert_int_equal(archive_stage_init(&s, NULL, NULL, UINT64_MAX, &err), 0);
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
		cmocka_unit_test(no_more_than_there_is_room),
		cmocka_unit_test(many_are_found),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
