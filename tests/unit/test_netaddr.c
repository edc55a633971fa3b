/* Which addresses are public, and which are let through besides. */
#include "fs/base/netaddr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

union address {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

static void parse(union address *out, const char *text)
{
	memset(out, 0, sizeof(*out));
	if (inet_pton(AF_INET, text, &out->in.sin_addr) == 1) {
		out->sa.sa_family = AF_INET;
		return;
	}
	assert_int_equal(inet_pton(AF_INET6, text, &out->in6.sin6_addr), 1);
	out->sa.sa_family = AF_INET6;
}

static void test_public(void **state)
{
	static const struct {
		const char *text;
		bool is;
	} rows[] = {
		{ "1.1.1.1", true },
		{ "140.82.121.4", true },
		{ "0.0.0.0", false },
		{ "10.0.0.1", false },
		{ "10.255.255.255", false },
		{ "11.0.0.1", true },
		{ "100.63.0.1", true },
		{ "100.64.0.1", false },
		{ "100.127.255.255", false },
		{ "100.128.0.1", true },
		{ "127.0.0.1", false },
		{ "127.8.9.10", false },
		{ "169.254.169.254", false },
		{ "172.15.0.1", true },
		{ "172.16.0.1", false },
		{ "172.31.255.255", false },
		{ "172.32.0.1", true },
		{ "192.0.0.9", false },
		{ "192.0.2.1", false },
		{ "192.168.1.1", false },
		{ "192.169.0.1", true },
		{ "198.18.0.1", false },
		{ "198.20.0.1", true },
		{ "203.0.113.7", false },
		{ "223.255.255.255", true },
		{ "224.0.0.1", false },
		{ "240.0.0.1", false },
		{ "255.255.255.255", false },
		{ "::", false },
		{ "::1", false },
		{ "::ffff:127.0.0.1", false },
		{ "::ffff:10.1.2.3", false },
		{ "::ffff:1.1.1.1", true },
		{ "::1.1.1.1", false },
		{ "64:ff9b::1.1.1.1", true },
		{ "64:ff9b::7f00:1", false },
		{ "64:ff9b:1::1.1.1.1", false },
		{ "100::1", false },
		{ "2001:4860:4860::8888", true },
		{ "2001::1", false },
		{ "2001:db8::1", false },
		{ "2002:7f00:1::", false },
		{ "2a01:4f8::1", true },
		{ "3fff::1", false },
		{ "fc00::1", false },
		{ "fdff::1", false },
		{ "fe80::1", false },
		{ "fec0::1", false },
		{ "ff02::1", false },
		{ "4000::1", false },
	};
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		union address a;
		parse(&a, rows[i].text);
		if (netaddr_is_public(&a.sa) != rows[i].is)
			fail_msg("%s", rows[i].text);
	}
	union address odd = { .sa.sa_family = AF_UNIX };
	assert_false(netaddr_is_public(&odd.sa));
}

static void test_rules(void **state)
{
	static const struct {
		const char *rule, *text;
		bool is;
	} rows[] = {
		{ "10.0.0.0/8", "10.1.2.3", true },
		{ "10.0.0.0/8", "11.1.2.3", true }, /* public */
		{ "10.0.0.0/9", "10.128.0.1", false },
		{ "10.1.2.3", "10.1.2.3", true },
		{ "10.1.2.3", "10.1.2.4", false },
		{ "10.1.2.3", "::ffff:10.1.2.3", true },
		{ "0.0.0.0/0", "127.0.0.1", true },
		{ "0.0.0.0/0", "::1", false },
		{ "::/0", "127.0.0.1", true },
		{ "::/0", "fe80::1", true },
		{ "fd00::/8", "fd12::1", true },
		{ "fd00::/8", "fc12::1", false },
		{ "fd00::/10", "fd3f::1", true },
		{ "fd00::/10", "fd40::1", false },
	};
	static const char *const bad[] = { "",           "x",           "10.0.0.0/33", "10.0.0/8",
					   "10.0.0.0/",  "10.0.0.0/-1", "10.0.0.0/8x", "::/129",
					   "fd00::/8/8", "[::1]",       "localhost" };
	struct netrules r = { 0 };
	struct err err = { 0 };
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		union address a;
		r.n = 0;
		assert_int_equal(netrules_add(&r, rows[i].rule, &err), 0);
		parse(&a, rows[i].text);
		if (netrules_allow(&r, &a.sa) != rows[i].is)
			fail_msg("%s %s", rows[i].rule, rows[i].text);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (netrules_add(&r, bad[i], &err) != -EINVAL)
			fail_msg("%s", bad[i]);
	for (r.n = 0; r.n < NETRULES_MAX;)
		assert_int_equal(netrules_add(&r, "10.0.0.0/8", &err), 0);
	assert_int_equal(netrules_add(&r, "10.0.0.0/8", &err), -E2BIG);
}

static void test_find(void **state)
{
	struct netrules r = { 0 };
	struct netaddrs out = { 0 };
	struct err err = { 0 };
	(void)state;
	assert_int_equal(netaddr_find(&out, "1.2.3.4", NULL, &err), 0);
	assert_int_equal(out.n, 1);
	assert_string_equal(out.v[0], "1.2.3.4");
	assert_int_equal(netaddr_find(&out, "[2a01::1]", NULL, &err), 0);
	assert_string_equal(out.v[0], "2a01::1");
	/* Other ways to write this host's, which the C library understands. */
	static const char *const here[] = {
		"127.0.0.1", "127.1",        "0x7f.1", "2130706433",
		"0",         "017700000001", "[::1]",  "[::ffff:7f00:1]"
	};
	for (size_t i = 0; i < sizeof(here) / sizeof(here[0]); i++)
		if (netaddr_find(&out, here[i], &r, &err) != -EACCES)
			fail_msg("%s", here[i]);
	assert_int_equal(netrules_add(&r, "127.0.0.0/8", &err), 0);
	assert_int_equal(netaddr_find(&out, "127.1", &r, &err), 0);
	assert_string_equal(out.v[0], "127.0.0.1");
	assert_int_equal(netaddr_find(&out, "no-such-host.invalid", &r, &err), -EHOSTUNREACH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_public),
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_find),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
