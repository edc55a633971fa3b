/* What a person sees: sizes, ages, cleaned text, tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "fs/base/cleanup.h"
#include "tests/unit/oom.h"
#include "tools/bough/out.h"

static void sizes(void **state)
{
	static const struct {
		int64_t n;
		const char *text;
	} cases[] = {
		{ 0, "0" },
		{ 1, "1" },
		{ 1023, "1023" },
		{ 1024, "1.0K" },
		{ 1536, "1.5K" },
		{ 10240, "10K" },
		{ 10188, "9.9K" },
		{ 10189, "10K" },
		{ 1023 * 1024, "1.0M" },
		{ 999 * 1024, "999K" },
		{ 1 << 20, "1.0M" },
		{ 5ll << 30, "5.0G" },
		{ INT64_MAX, "8.0E" },
		{ -1, "-1" },
		{ -2048, "-2.0K" },
	};
	char buf[OUT_SIZE_MAX];
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_string_equal(out_size(buf, cases[i].n, false), cases[i].text);
	assert_string_equal(out_size(buf, 123456789, true), "123456789");
	assert_string_equal(out_size(buf, INT64_MIN, true), "-9223372036854775808");
	static const struct {
		int64_t ns;
		const char *text;
	} times[] = {
		{ 0, "0ns" },
		{ 999, "999ns" },
		{ 1000, "1us" },
		{ 6960711, "7.0ms" },
		{ 12345678, "12ms" },
		{ 2500000000, "2.5s" },
		{ 59000000000, "59s" },
		{ 125000000000, "2m05s" },
		{ 11220000000000, "3h07m" },
		{ INT64_MAX, "2562047h47m" },
	};
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
		assert_string_equal(out_duration(buf, times[i].ns), times[i].text);
}

static void ages(void **state)
{
	static const char t[] = "2024-02-29T12:00:00.123456789Z";
	time_t at = out_parse_time(t);
	assert_int_equal(at, 1709208000);
	static const struct {
		int64_t later;
		const char *text;
	} cases[] = {
		{ -5, "now" },     { 0, "now" },       { 1, "1s" },    { 119, "119s" },
		{ 120, "2m" },     { 7199, "119m" },   { 7200, "2h" }, { 172800, "2d" },
		{ 1209600, "2w" }, { 63072000, "2y" },
	};
	char buf[OUT_AGE_MAX];
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_string_equal(out_age(buf, t, at + cases[i].later), cases[i].text);
	static const char *const wrong[] = {
		"",
		"now",
		"2024-02-29",
		"2024-02-29T12:00:00",
		"2024-13-01T00:00:00Z",
		"2024-00-01T00:00:00Z",
		"1969-01-01T00:00:00Z",
		"2024-02-29T25:00:00Z",
		"2024-02-29T12:00:00+02:00",
		"2024-02-29T12:00:00Zx",
	};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(out_parse_time(wrong[i]), -1);
		assert_string_equal(out_age(buf, wrong[i], at), "-");
	}
	char moment[OUT_TIME_MAX];
	assert_string_equal(out_time(moment, t, at), "2024-02-29T12:00:00.123456789Z (now)");
	assert_string_equal(out_time(moment, t, at + 5), "2024-02-29T12:00:00.123456789Z (5s ago)");
	assert_string_equal(out_time(moment, "", at), "-");
	assert_int_equal(out_parse_time("1970-01-01T00:00:00Z"), 0);
}

/* What a function prints; the caller frees. */
static char *printed(void (*fn)(FILE *f, const void *arg), const void *arg)
{
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);
	fn(f, arg);
	fclose(f);
	return text;
}

static void clean_one(FILE *f, const void *arg)
{
	out_clean(f, arg);
}

static void cleaned(void **state)
{
	static const struct {
		const char *in, *out;
		size_t width;
	} cases[] = {
		{ "plain", "plain", 5 },
		{ "a\tb\nc\x7f", "a?b?c?", 6 },
		{ "\x1b[31mred", "?[31mred", 8 },
		{ "caf\xc3\xa9", "caf\xc3\xa9", 4 },
		{ "\xc2\x9b"
		  "31m",
		  "??31m", 5 }, /* C1: a terminal's CSI */
		{ "\xff\xfe", "??", 2 },
		{ "\xc3", "?", 1 }, /* cut */
		{ "\xe2\x82\xac\xf0\x9f\x8c\xb3", "\xe2\x82\xac\xf0\x9f\x8c\xb3", 2 },
		{ "\xc0\x80", "??", 2 }, /* too long a form */
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		auto_free char *text = printed(clean_one, cases[i].in);
		assert_string_equal(text, cases[i].out);
		assert_int_equal(out_width(cases[i].in), cases[i].width);
	}
}

/* Names as bash reads them. */
static void quoted(void **state)
{
	static const char *const cases[][2] = {
		{ "", "" },
		{ "it's plain", "it's plain" },
		{ "caf\xc3\xa9", "caf\xc3\xa9" },
		{ "\xc3\xa9'\\\xff", "$'\xc3\xa9\\'\\\\\\377'" },
		{ "a\n1", "$'a\\0121'" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		auto_free char *text = out_quoted(cases[i][0]);
		assert_string_equal(text, cases[i][1]);
	}
}

static void print_table(FILE *f, const void *arg)
{
	static const char *const headings[] = { "NAME", ">SIZE", "NOTE", NULL };
	auto_table *t = table_new(headings);
	table_row(t, (const char *[]){ "a", "1", "x" });
	table_row(t, (const char *[]){ "caf\xc3\xa9-long", "12345", NULL });
	table_row(t, (const char *[]){ "evil\x1b[2J", "", "y" });
	assert_int_equal(table_print(t, f, NULL), 0);
}

static void tables(void **state)
{
	auto_free char *text = printed(print_table, NULL);
	assert_string_equal(text, "NAME        SIZE  NOTE\n"
				  "a              1  x\n"
				  "caf\xc3\xa9-long  12345  -\n"
				  "evil?[2J       -  y\n");
}

static void tables_without_memory(void **state)
{
	static const char *const headings[] = { "A", "B", NULL };
	for (uint64_t n = 1;; n++) {
		oom_at(n);
		struct table *t = table_new(headings);
		for (int i = 0; i < 100; i++)
			table_row(t, (const char *[]){ "x", "y" });
		bool hit = oom_hit();
		oom_at(0);
		FILE *f = fopen("/dev/null", "w");
		assert_int_equal(table_print(t, f, NULL), hit ? -ENOMEM : 0);
		fclose(f);
		table_free(t);
		if (!hit)
			break;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes),
		cmocka_unit_test(ages),
		cmocka_unit_test(cleaned),
		cmocka_unit_test(quoted),
		cmocka_unit_test(tables),
		cmocka_unit_test(tables_without_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
