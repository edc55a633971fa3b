/* What a sandbox's row keeps: it comes back as it was; what isn't sound is refused; environments.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "snapd/sandbox_spec.h"

static void comes_back(void **state)
{
	json_t *command = json_pack("[s, s]", "make", "test"), *env = json_pack("[s]", "CC");
	const struct sandbox_spec was = {
		.image = "host",
		.snapshot = "sn_aaaaaaaaaa",
		.runtime = "runc",
		.hostname = "h",
		.user = "me",
		.command = command,
		.env = env,
		.host_image = true,
		.in = true,
		.limits = { .cpu_milli = 500, .memory = 1 << 30, .pids = 7, .shm = 4096 },
		.disk = 1ULL << 40,
		.inodes = 9
	};
	auto_free char *text = spec_text(&was);
	auto_spec is = { 0 };
	assert_non_null(text);
	assert_int_equal(spec_read(&is, text, NULL), 0);
	assert_string_equal(is.image, "host");
	assert_string_equal(is.user, "me");
	assert_null(is.cwd);
	assert_null(is.secrets);
	assert_true(json_equal((json_t *)(uintptr_t)is.command, command));
	assert_true(is.host_image && is.in && !is.tty && !is.net_host);
	assert_memory_equal(&is.limits, &was.limits, sizeof(is.limits));
	assert_int_equal(is.disk, was.disk);
	json_decref(command);
	json_decref(env);
}

static void damaged(void **state)
{
	static const char *const bad[] = {
		"",
		"{}",
		"[]",
		"{\"image\":\"host\"}",
		"{\"image\":1,\"runtime\":\"runc\"}",
		"{\"image\":\"host\",\"runtime\":\"runc\",\"hostname\":\"h\",\"limits\":[]}",
	};
	struct sandbox_spec s;
	assert_int_equal(spec_read(&s, NULL, NULL), -EBADMSG);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(spec_read(&s, bad[i], NULL), -EBADMSG);
}

static void words(void **state)
{
	static const struct {
		const char *json;
		size_t min;
		int words, env;
	} cases[] = {
		{ "[]", 0, 0, 0 },
		{ "[]", 1, -EINVAL, 0 },
		{ "[\"a\"]", 1, 0, -EINVAL },
		{ "[\"A=b\", \"C=\"]", 1, 0, 0 },
		{ "[\"=b\"]", 1, 0, -EINVAL },
		{ "[\"a\", 1]", 1, -EINVAL, -EINVAL },
		{ "{\"a\": \"b\"}", 0, -EINVAL, -EINVAL },
		{ "[\"a=\\u0000\"]", 0, -EINVAL, -EINVAL },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_t *j = json_loads(cases[i].json, JSON_ALLOW_NUL, NULL);
		assert_non_null(j);
		assert_int_equal(spec_words_check(j, cases[i].min, NULL), cases[i].words);
		assert_int_equal(spec_env_check(j, NULL), cases[i].env);
		json_decref(j);
	}
	json_t *many = json_array();
	for (int i = 0; i <= SANDBOX_WORDS_MAX; i++)
		(void)json_array_append_new(many, json_string("A=b"));
	assert_int_equal(spec_words_check(many, 0, NULL), -EINVAL);
	json_decref(many);
}

static void merged(void **state)
{
	json_t *a = json_pack("[s, s]", "PATH=/bin", "A=1"), *b = json_pack("[s, s]", "B=2", "A=3");
	const json_t *const lists[] = { a, NULL, b };
	auto_free const char **env = spec_env_merge(lists, 3);
	assert_non_null(env);
	assert_string_equal(env[0], "PATH=/bin");
	assert_string_equal(env[1], "A=3");
	assert_string_equal(env[2], "B=2");
	assert_null(env[3]);
	json_t *names = spec_env_names(b);
	assert_int_equal(json_array_size(names), 2);
	assert_string_equal(json_string_value(json_array_get(names, 1)), "A");
	json_decref(names);
	json_decref(a);
	json_decref(b);
}

static void secrets(void **state)
{
	auto_secrets s = { 0 };
	char buf[8];
	assert_int_equal(secrets_add(&s, "key", "bytes", 5, NULL), 0);
	assert_int_equal(s.n, 1);
	assert_string_equal(s.list[0].name, "key");
	assert_int_equal(pread(s.list[0].fd, buf, sizeof(buf), 0), 5);
	assert_memory_equal(buf, "bytes", 5);
	while (s.n <= SANDBOX_SECRETS_MAX)
		assert_int_equal(secrets_add(&s, "more", "", 0, NULL), 0);
	assert_int_equal(secrets_add(&s, "too many", "", 0, NULL), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(comes_back), cmocka_unit_test(damaged), cmocka_unit_test(words),
		cmocka_unit_test(merged),     cmocka_unit_test(secrets),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
