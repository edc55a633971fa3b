/* Running other programs for `bough doctor`, and that each of its checks says something. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "tools/bough/doctor.h"
#include "tools/bough/probe.h"

static void programs(void **state)
{
	char out[64];
	const char *hello[] = { "/bin/sh", "-c", "echo hello; echo more", NULL };
	assert_int_equal(probe_run(hello, out, sizeof(out)), 0);
	assert_string_equal(out, "hello");
	const char *fails[] = { "sh", "-c", "echo why >&2; exit 3", NULL };
	assert_int_equal(probe_run(fails, out, sizeof(out)), 3);
	assert_string_equal(out, "why");
	const char *much[] = { "sh", "-c", "yes | head -c 100000", NULL };
	assert_int_equal(probe_run_all(much, out, sizeof(out)), 0);
	assert_int_equal(strlen(out), sizeof(out) - 1);
	const char *dies[] = { "sh", "-c", "kill -9 $$", NULL };
	assert_int_equal(probe_run(dies, out, sizeof(out)), -EINTR);
	const char *none[] = { "no-such-program-anywhere", NULL };
	assert_int_equal(probe_run(none, out, sizeof(out)), -ENOENT);
}

static void files(void **state)
{
	char out[16];
	assert_int_equal(probe_file("/proc/self/comm", out, sizeof(out)), 0);
	assert_memory_equal(out, "test_cli_probe", 14);
	assert_int_equal(probe_file("/nowhere", out, sizeof(out)), -ENOENT);
}

static void checks(void **state)
{
	struct cli cli = { .root = (char *)"/nowhere/at/all" };
	struct doctor_line lines[DOCTOR_LINES_MAX] = { 0 };
	unsigned n = doctor_run(&cli, lines);
	assert_true(n > 15 && n <= DOCTOR_LINES_MAX);
	for (unsigned i = 0; i < n; i++) {
		assert_non_null(lines[i].name);
		if (!*lines[i].found)
			fail_msg("%s found nothing", lines[i].name);
		/* Who is told that something is missing is told what to do, here or there. */
		if (lines[i].level == DOCTOR_MISSING)
			assert_true(*lines[i].advice || strstr(lines[i].found, "install"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(programs),
		cmocka_unit_test(files),
		cmocka_unit_test(checks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
