/* Webhooks: how they are signed, how their secrets are kept. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "snapd/hook_send.h"
#include "snapd/hooks.h"
#include "snapd/outcome.h"
#include "snapd/seal.h"

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

static void types(void **state)
{
	static const struct {
		const char *type;
		bool told;
	} table[] = {
		{ "workspace.created", true },
		{ "workspace.saved", true },
		{ "workspace.merged", true },
		{ "workspace.read_only", true },
		{ "workspace.purged", true },
		{ "snapshot.created", true }, /* of an import, and of a save */
		{ "snapshot.committed", true },
		{ "sandbox.executed", true },
		{ "sandbox.detached", true },
		{ "sandbox.exited", true },
		{ "repo.fetched", true },
		{ "team.changed", true }, /* somebody joins or leaves */
		{ "webhook.tested", true },
		{ "job.done", true },
		{ "gc.done", true },
		{ "", false },
		{ "workspace", false },
		{ "workspace.", false },
		{ "workspace.svaed", false },
		{ "workspaces.created", false },
		{ "sandbox.workspaces", false },
		{ "upload.created", false },
		{ "job.running", false },
		{ "ping", false },
		{ "workspace.created_and_a_name_that_is_longer_than_any", false },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (outcome_tells(table[i].type) != table[i].told)
			fail_msg("%s", table[i].type);
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
		{ "https://example.org/#", false },
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

/* One answer, over IPv6 on this machine. The child's pid; -1: it has none. */
static pid_t answer_once(unsigned *port)
{
	static const char text[] = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
	struct sockaddr_in6 sa = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	socklen_t len = sizeof(sa);
	char in[4096];
	auto_fd fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, len) < 0 || listen(fd, 1) < 0)
		return -1;
	assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
	*port = ntohs(sa.sin6_port);
	pid_t pid = fork();
	if (pid == 0) {
		int conn = accept(fd, NULL, NULL);
		_exit(read(conn, in, sizeof(in)) <= 0 ||
		      write(conn, text, sizeof(text) - 1) != sizeof(text) - 1);
	}
	assert_true(pid > 0);
	return pid;
}

/* "localhost" is 127.0.0.1, too, which isn't allowed here and is tried first. */
static void one_address_of_two(void **state)
{
	struct netrules rules = { 0 };
	struct err err = { 0 };
	char url[64];
	unsigned port = 0;
	const struct hook_send what = {
		.url = url, .body = "{}", .id = "dl_a", .signature = "v1,x", .allowed = &rules
	};
	pid_t pid = answer_once(&port);
	if (pid < 0)
		return;
	assert_int_equal(netrules_add(&rules, "::1/128", &err), 0);
	(void)snprintf(url, sizeof(url), "http://localhost:%u/", port);
	int status = hook_send(&what, &err);
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	assert_int_equal(status, 204);
	rules.n = 0;
	assert_int_equal(hook_send(&what, &err), -EACCES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(signatures),
		cmocka_unit_test(types),
		cmocka_unit_test(pauses),
		cmocka_unit_test(urls),
		cmocka_unit_test(secrets),
		cmocka_unit_test(one_address_of_two),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
