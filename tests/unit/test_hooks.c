/* Webhooks: where they may go, how they are signed, how their secrets are kept. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "snapd/hooks.h"
#include "snapd/seal.h"

static struct sockaddr_storage address(const char *text)
{
	struct sockaddr_storage out = { 0 };
	struct sockaddr_in *v4 = (struct sockaddr_in *)&out;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&out;
	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1)
		v4->sin_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1)
		v6->sin6_family = AF_INET6;
	else
		fail_msg("%s", text);
	return out;
}

static void public_addresses(void **state)
{
	static const struct {
		const char *text;
		bool is_public;
	} table[] = {
		{ "8.8.8.8", true },
		{ "1.1.1.1", true },
		{ "9.255.255.255", true },
		{ "11.0.0.0", true },
		{ "172.15.255.255", true },
		{ "172.32.0.0", true },
		{ "223.255.255.255", true },
		{ "2606:4700::1111", true },
		{ "2a00:1450::1", true },
		{ "0.0.0.0", false },
		{ "10.0.0.1", false },
		{ "10.255.255.255", false },
		{ "100.64.0.1", false },
		{ "127.0.0.1", false },
		{ "127.255.255.254", false },
		{ "169.254.169.254", false },
		{ "172.16.0.1", false },
		{ "172.31.255.255", false },
		{ "192.168.0.1", false },
		{ "198.18.0.1", false },
		{ "224.0.0.1", false },
		{ "255.255.255.255", false },
		{ "::", false },
		{ "::1", false },
		{ "::127.0.0.1", false },
		{ "::ffff:127.0.0.1", false },
		{ "::ffff:10.0.0.1", false },
		{ "::ffff:8.8.8.8", true },
		{ "64:ff9b::7f00:1", false },
		{ "2002:7f00:1::", false },
		{ "2001::1", false },
		{ "fc00::1", false },
		{ "fdff::1", false },
		{ "fe80::1", false },
		{ "ff02::1", false },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct sockaddr_storage a = address(table[i].text);
		if (net_is_public((struct sockaddr *)&a) != table[i].is_public)
			fail_msg("%s", table[i].text);
	}
	struct sockaddr other = { .sa_family = AF_UNIX };
	assert_false(net_may_connect(&other, NULL, 0));
}

static void ranges(void **state)
{
	static const struct {
		const char *range, *in, *out;
	} table[] = {
		{ "10.1.2.3", "10.1.2.3", "10.1.2.4" },
		{ "10.0.0.0/8", "10.255.0.1", "127.0.0.1" },
		{ "192.168.4.0/22", "192.168.7.255", "192.168.8.0" },
		{ "0.0.0.0/0", "127.0.0.1", "fd00::1" },
		{ "fd00::/8", "fd12::1", "fc00::1" },
		{ "::1", "::1", "::2" },
		{ "127.0.0.0/8", "::ffff:127.0.0.1", "::1" },
	};
	static const char *const bad[] = {
		"",       "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8x", "10.0.0/8",
		"::/129", "name",        "/8",        "1.2.3.4.5",   "10.0.0.0/ 8"
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct netrange r;
		struct sockaddr_storage in = address(table[i].in), out = address(table[i].out);
		assert_int_equal(netrange_parse(&r, table[i].range), 0);
		assert_true(net_may_connect((struct sockaddr *)&in, &r, 1));
		assert_false(net_may_connect((struct sockaddr *)&out, &r, 1));
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct netrange r;
		assert_int_equal(netrange_parse(&r, bad[i]), -EINVAL);
	}
}

/* The example of the specification of Standard Webhooks. */
static void signatures(void **state)
{
	auto_free char *s = hook_signature("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
					   "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330,
					   "{\"test\": 2432232314}");
	assert_string_equal(s, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
	auto_free char *other = hook_signature("plain", "a", 1, "b");
	auto_free char *same = hook_signature("whsec_cGxhaW4=", "a", 1, "b");
	assert_string_equal(other, same);
}

static void pauses(void **state)
{
	int64_t last = 0;
	for (unsigned tries = 1; tries < HOOK_TRIES; tries++) {
		int64_t next = hook_next_ns(tries, 5, 0);
		assert_true(next > last);
		last = next;
	}
	assert_int_equal(hook_next_ns(1, 5, 7), 5000000007);
	assert_int_equal(hook_next_ns(HOOK_TRIES, 5, 7), 0);
}

static void urls(void **state)
{
	static const struct {
		const char *url;
		bool good;
	} table[] = {
		{ "https://example.org/a?b=c", true },
		{ "http://192.0.2.1:8080", true },
		{ "", false },
		{ "example.org", false },
		{ "ftp://example.org", false },
		{ "file:///etc/passwd", false },
		{ "https://u@example.org", false },
		{ "https://u:p@example.org", false },
		{ "https://example.org/#f", false },
		{ "gopher://example.org", false },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if ((hook_url_check(table[i].url, NULL) == 0) != table[i].good)
			fail_msg("%s", table[i].url);
}

static void secrets(void **state)
{
	char root[] = "/tmp/bough-seal.XXXXXX";
	char path[64];
	uint8_t key[SEAL_KEY], again[SEAL_KEY];
	struct err err = { 0 };
	struct stat st;
	auto_buf sealed = { 0 }, text = { 0 };
	assert_non_null(mkdtemp(root));
	assert_int_equal(seal_key(root, key, &err), 0);
	assert_int_equal(seal_key(root, again, &err), 0);
	assert_memory_equal(key, again, sizeof(key));
	(void)snprintf(path, sizeof(path), "%s/secrets.key", root);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(seal(&sealed, key, "wh_a", "secret", 6, &err), 0);
	assert_null(memmem(sealed.data, sealed.len, "secret", 6));
	assert_int_equal(unseal(&text, key, "wh_a", sealed.data, sealed.len, &err), 0);
	assert_int_equal(text.len, 6);
	assert_memory_equal(text.data, "secret", 6);
	/* Of another name, with another key, or with any byte changed, it is none. */
	assert_int_equal(unseal(&text, key, "wh_b", sealed.data, sealed.len, &err), -EBADMSG);
	again[0] ^= 1;
	assert_int_equal(unseal(&text, again, "wh_a", sealed.data, sealed.len, &err), -EBADMSG);
	for (size_t i = 0; i < sealed.len; i++) {
		sealed.data[i] ^= 1;
		assert_int_equal(unseal(&text, key, "wh_a", sealed.data, sealed.len, &err),
				 -EBADMSG);
		sealed.data[i] ^= 1;
		assert_int_equal(unseal(&text, key, "wh_a", sealed.data, i, &err), -EBADMSG);
	}
	/* One that others could read isn't used. */
	assert_int_equal(chmod(path, 0640), 0);
	assert_int_equal(seal_key(root, key, &err), -EPERM);
	(void)io_remove_tree(AT_FDCWD, root, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(public_addresses),
		cmocka_unit_test(ranges),
		cmocka_unit_test(signatures),
		cmocka_unit_test(pauses),
		cmocka_unit_test(urls),
		cmocka_unit_test(secrets),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
