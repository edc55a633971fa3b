/* Lists of what the other side of a copy has, and what they are trusted for. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>
#include "fs/base/have.h"
#include "fs/base/rfc3339.h"

static struct have_file file(const char *path, uint64_t size, time_t mtime, time_t ctime)
{
	return (struct have_file){ .path = path,
				   .mode = S_IFREG | 0644,
				   .size = size,
				   .mtime = { mtime, 7 },
				   .ctime = { ctime, 0 } };
}

static struct have_file folder(const char *path, time_t ctime)
{
	return (struct have_file){ .path = path, .mode = S_IFDIR | 0755, .ctime = { ctime, 0 } };
}

/* a, d/b and d/e/c of 1, 2 and 3 bytes, of second 10, for a copy that began at second 100. */
static void list(struct have *h)
{
	static const char *const names[] = { "a", "d/b", "d/e/c" };
	auto_buf text = { 0 };
	*h = (struct have){ .before = { 100, 0 } };
	for (unsigned i = 0; i < 3; i++) {
		struct have_file f = file(names[i], i + 1, 10, 50);
		have_put(&text, &f);
	}
	for (size_t i = 0; i < text.len; i++) /* byte by byte */
		assert_int_equal(have_add(h, text.data + i, 1), 0);
	assert_int_equal(have_ready(h), 0);
}

static void test_same(void **state)
{
	struct have h;
	struct have_file a = file("a", 1, 10, 99), b = file("d/b", 2, 10, 99);
	list(&h);
	assert_true(have_visit(&h, &a));
	assert_false(have_visit(&h, &a)); /* once */
	assert_true(have_visit(&h, &b));
	assert_int_equal(h.skipped, 2);
	const char *one;
	assert_int_equal(have_left(&h, &one), 1);
	assert_string_equal(one, "d/e/c");
	have_done(&h);
}

/* What has no room is forgotten, in the middle of a record too; and given back. */
static void test_room(void **state)
{
	for (int64_t all = 0; all < 400; all++) {
		_Atomic int64_t room = all;
		struct have h = { .before = { 100, 0 }, .room = &room };
		auto_buf text = { 0 };
		unsigned n = 0;
		const char *const names[] = { "a", "d/b", "d/e/c" };
		for (unsigned i = 0; i < 3; i++) {
			struct have_file f = file(names[i], i + 1, 10, 50);
			have_put(&text, &f);
		}
		for (size_t i = 0; i < text.len; i++)
			assert_int_equal(have_add(&h, text.data + i, 1), 0);
		assert_int_equal(have_ready(&h), 0);
		for (unsigned i = 0; i < 3; i++) {
			struct have_file f = file(names[i], i + 1, 10, 50);
			n += have_visit(&h, &f);
		}
		assert_int_equal(n, all < 78 ? 0 : all < 158 ? 1 : all < 240 ? 2 : 3);
		assert_true(h.text.len <= (size_t)all);
		have_done(&h);
		assert_int_equal(room, all);
	}
}

static void test_different(void **state)
{
	struct have_file a = file("a", 1, 10, 99);
	struct have_file others[] = { a, a, a, a, a, a, a };
	others[0].size = 2;
	others[1].mtime.tv_nsec = 8;
	others[2].mtime.tv_sec = 11;
	others[3].mode = S_IFREG | 0600;
	others[4].mode = S_IFLNK | 0644;
	others[5].path = "A";
	others[6].ctime.tv_sec = 100; /* as it began */
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct have h;
		list(&h);
		assert_false(have_visit(&h, &others[i]));
		assert_int_equal(h.skipped, 0);
		have_done(&h);
	}
}

/* What is below a folder that was changed may have come by a rename, with its old times. */
static void test_changed_folders(void **state)
{
	struct have h;
	struct have_file top = folder("", 99), d = folder("d", 100), e = folder("d/e", 5);
	struct have_file a = file("a", 1, 10, 50), b = file("d/b", 2, 10, 50);
	struct have_file c = file("d/e/c", 3, 10, 50), dx = file("dx", 1, 10, 50);
	list(&h);
	assert_false(have_visit(&h, &top));
	assert_false(have_visit(&h, &d));
	assert_false(have_visit(&h, &b));
	assert_false(have_visit(&h, &e));
	assert_false(have_visit(&h, &c));
	assert_false(have_visit(&h, &dx)); /* it isn't there */
	assert_true(have_visit(&h, &a));
	have_done(&h);
	list(&h);
	top.ctime.tv_sec = 100;
	(void)have_visit(&h, &top);
	assert_false(have_visit(&h, &a));
	have_done(&h);
}

static void test_refused(void **state)
{
	static const struct {
		const char *text;
		size_t n;
		int want;
	} cases[] = {
		{ "", 0, 0 },
		{ "1 2 3 0644 a", 13, 0 },
		{ "1 -2 3 0644 a b", 16, 0 },
		{ "1 2 3 0644 a", 12, -EBADMSG },
		{ "1 2 3 0644 ", 12, -EBADMSG },
		{ "1 2 3 0644", 11, -EBADMSG },
		{ "1 2 1000000000 0644 a", 22, -EBADMSG },
		{ "1 2 3 10000 a", 14, -EBADMSG },
		{ "1 2 3 0648 a", 13, -EBADMSG },
		{ "-1 2 3 0644 a", 14, -EBADMSG },
		{ "1  2 3 0644 a", 14, -EBADMSG },
		{ "9223372036854775808 2 3 0644 a", 31, -EBADMSG },
		{ "\0", 1, -EBADMSG },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct have h = { 0 };
		assert_int_equal(have_add(&h, cases[i].text, cases[i].n), 0);
		if (have_ready(&h) != cases[i].want)
			fail_msg("case %zu", i);
		have_done(&h);
	}
}

static void test_times(void **state)
{
	static const struct {
		const char *text;
		struct timespec t;
	} good[] = {
		{ "1970-01-01T00:00:00.000000000Z", { 0, 0 } },
		{ "1969-12-31T23:59:59.500000000Z", { -1, 500000000 } },
		{ "2001-02-03T04:05:06.123456789Z", { 981173106, 123456789 } },
		{ "2024-02-29T00:00:00.000000001Z", { 1709164800, 1 } },
	};
	struct timespec t;
	char text[RFC3339_SIZE];
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(rfc3339_parse(good[i].text, &t), 0);
		assert_int_equal(have_time_order(&t, &good[i].t), 0);
		assert_string_equal(rfc3339_text(text, &t), good[i].text);
	}
	static const char *const bad[] = {
		"",
		"2001-02-03T04:05:06Z",
		"2001-02-03T04:05:06.123Z",
		"2001-02-30T04:05:06.123456789Z",
		"2001-13-03T04:05:06.123456789Z",
		"2001-02-03T24:05:06.123456789Z",
		"2001-02-03T04:05:06.123456789Z ",
		"2001-02-03T04:05:06.1234567890",
		"-001-02-03T04:05:06.123456789Z",
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(rfc3339_parse(bad[i], &t), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same),            cmocka_unit_test(test_room),
		cmocka_unit_test(test_different),
		cmocka_unit_test(test_changed_folders), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_times),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
