/* config.json for each kind of runtime, beside what was found right; no UTF-8; no memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <fcntl.h>
#include <seccomp.h>
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "runtime/seccomp.h"
#include "runtime/spec.h"
#include "tests/unit/oom.h"

static const struct runtime_kind kinds[] = {
	{ .name = "runc", .shifts_ids = true, .reports_pids = true },
	{ .name = "runsc", .shifts_ids = true },
	{ .name = "kata" },
};
static const char *const argv[] = { "make", "-j2", NULL };
static const char *const env[] = { "CC=gcc", "HOME=/elsewhere", NULL };
static const struct spec_bind binds[] = {
	{ .source = "/srv/box/.share", .target = "/.bough", .read_only = true },
	{ .source = "/usr", .target = "/usr", .read_only = true, .recursive = true },
	{ .source = "/srv/box/sb_1/mnt/0", .target = "/workspace" },
	{ .source = "/srv/box/sb_1/mnt/1", .target = "/data", .read_only = true },
	{ .source = "/srv/box/sb_1/secrets", .target = "/run/secrets", .read_only = true },
};
static const struct user user = { .uid = 1000, .gid = 1000, .groups = { 27, 100 },
				  .n_groups = 2, .home = "/users/me" };

static struct spec spec_of(const struct runtime_kind *kind)
{
	return (struct spec){
		.kind = kind,
		.hostname = "sb-1",
		.user_ns = "/srv/box/sb_1/user",
		.cgroup = "/bough/root-1/sb_1",
		.id_base = IDS_FIRST + 2 * IDS_RANGE,
		.counts_swap = true,
		.hide_usr_local = true,
		.limits = BOX_LIMITS,
		.binds = binds,
		.n_binds = sizeof(binds) / sizeof(*binds),
	};
}

static void compare(const char *name, const struct buf *made)
{
	char path[4096];
	const char *src = getenv("BOUGH_SRC");
	auto_free void *golden = NULL;
	size_t len;
	(void)snprintf(path, sizeof(path), "%s/tests/golden/spec/%s.json", src ? src : ".", name);
	if (getenv("BOUGH_GOLDEN")) { /* it is meant to change */
		FILE *f = fopen(path, "w");
		assert_non_null(f);
		assert_int_equal(fwrite(made->data, 1, made->len, f), made->len);
		assert_int_equal(fclose(f), 0);
	}
	assert_int_equal(io_slurp(NULL, AT_FDCWD, path, 1 << 20, &golden, &len, NULL), 0);
	if (len != made->len || memcmp(golden, made->data, len) != 0)
		fail_msg("%s differs: BOUGH_GOLDEN=1 writes it anew, for git diff to show", path);
}

static void golden(void **state)
{
	struct box_process p = { .argv = argv, .env = env, .terminal = true, .timeout_ms = 90000 };
	struct box_process waits = { .env = env + 2 };
	struct spec_process sp = { &p, &user, "/workspace", 524288, 512 };
	struct spec_process none = { &waits, &(struct user){ .home = "/root" }, "/", 0, 0 };
#if !defined(__x86_64__)
	print_message("skip: kernel older than that: the files name one architecture\n");
	skip();
#endif
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		auto_buf out = { 0 };
		struct spec s = spec_of(&kinds[i]);
		assert_int_equal(spec_write(&s, &sp, &out, NULL), 0);
		compare(kinds[i].name, &out);
	}
	auto_buf v2 = { 0 }, host = { 0 }, process = { 0 };
	struct spec s = spec_of(&kinds[0]);
	s.cgroup2 = true;
	s.counts_swap = s.hide_usr_local = false;
	s.n_binds = 1;
	assert_int_equal(spec_write(&s, &none, &v2, NULL), 0);
	compare("runc-cgroup2", &v2);
	s.net_host = true;
	assert_int_equal(spec_write(&s, &none, &host, NULL), 0);
	compare("runc-net-host", &host);
	assert_int_equal(spec_write_process(&kinds[0], &sp, &process, NULL), 0);
	compare("process", &process);
}

static bool has(const json_t *mount, const char *option)
{
	size_t n;
	json_t *o;
	json_array_foreach(json_object_get(mount, "options"), n, o)
		if (strcmp(json_string_value(o), option) == 0)
			return true;
	return false;
}

/* What no profile may lack, whatever the golden files say. */
static void walls(void **state)
{
	struct box_process p = { .argv = argv };
	struct spec_process sp = { &p, &user, "/", 1024, 64 };
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		auto_buf out = { 0 };
		struct spec s = spec_of(&kinds[i]);
		assert_int_equal(spec_write(&s, &sp, &out, NULL), 0);
		json_t *j = json_loadb((char *)out.data, out.len, 0, NULL);
		assert_non_null(j);
		json_t *process = json_object_get(j, "process"), *lin = json_object_get(j, "linux");
		assert_true(json_is_true(json_object_get(process, "noNewPrivileges")));
		json_t *m, *sets = json_object_get(process, "capabilities"), *set;
		size_t k;
		const char *key;
		json_object_foreach(sets, key, set)
			assert_in_range(json_array_size(set), 1, 8);
		json_array_foreach(json_object_get(j, "mounts"), k, m) {
			const char *at = json_string_value(json_object_get(m, "destination"));
			const char *type = json_string_value(json_object_get(m, "type"));
			if (!has(m, "nosuid"))
				fail_msg("%s: %s isn't nosuid", kinds[i].name, at);
			/* Else crun's tmpfs over /usr/local is the host's as well. */
			if (kinds[i].reports_pids && strcmp(type, "bind") == 0 &&
			    !has(m, "rprivate"))
				fail_msg("%s: %s may reach the host", kinds[i].name, at);
		}
		json_t *ns = json_object_get(lin, "namespaces");
		assert_int_equal(json_array_size(ns), kinds[i].shifts_ids ? 7 : 6);
		assert_int_equal(json_object_get(lin, "uidMappings") != NULL, kinds[i].shifts_ids);
		assert_int_equal(json_object_get(lin, "seccomp") != NULL, kinds[i].reports_pids);
		json_decref(j);
	}
}

static void seccomp(void **state)
{
	static const char *const never[] = {
		"unshare", "setns", "mount", "umount2", "pivot_root", "move_mount", "open_tree",
		"fsopen", "fsmount", "fsconfig", "fspick", "mount_setattr", "clone3", "clone",
		"bpf", "perf_event_open", "keyctl", "add_key", "request_key", "userfaultfd",
		"io_uring_setup", "io_uring_enter", "io_uring_register", "open_by_handle_at",
		"kexec_load", "init_module", "finit_module", "delete_module", "reboot", "swapon",
		"swapoff", "syslog", "settimeofday", "clock_settime", "acct", "quotactl",
		"ptrace_none", "iopl", "ioperm", "chroot", "socket", "fanotify_init", "kcmp",
		"pidfd_getfd", "lookup_dcookie", "vhangup", "personality",
		"io_setup",
	};
	size_t known = 0, n;
	for (n = 0; seccomp_allowed(n); n++) {
		const char *name = seccomp_allowed(n);
		for (size_t k = 0; k < sizeof(never) / sizeof(*never); k++)
			assert_string_not_equal(name, never[k]);
		for (size_t k = 0; k < n; k++) /* each once: the runtime pays for every one */
			assert_string_not_equal(name, seccomp_allowed(k));
		known += seccomp_syscall_resolve_name(name) != __NR_SCMP_ERROR;
	}
	/* A wrongly written name would be passed over in silence; the newest are newer than the
	 * library, and one is another machine's. */
	if (known + 12 < n)
		for (size_t k = 0; k < n; k++)
			if (seccomp_syscall_resolve_name(seccomp_allowed(k)) == __NR_SCMP_ERROR)
				print_message("unknown: %s\n", seccomp_allowed(k));
	assert_true(known + 12 >= n);
}

static void text(void **state)
{
	struct err err;
	auto_buf out = { 0 };
	const char *bad[] = { "a\xff", NULL };
	struct box_process p = { .argv = bad };
	struct spec_process sp = { &p, &user, "/", 0, 0 };
	struct spec s = spec_of(&kinds[0]);
	assert_int_equal(spec_write(&s, &sp, &out, &err), -EINVAL);
	assert_string_equal(err.text, "the command's arguments must be UTF-8");
	p = (struct box_process){ .argv = argv, .env = bad };
	assert_int_equal(spec_write_process(&kinds[0], &sp, &out, &err), -EINVAL);
	assert_string_equal(err.text, "the environment must be UTF-8");
	assert_int_equal(out.len, 0);
}

/* Jansson's allocations are ours here: any of them fails, which is told, or made no difference. */
static void memory(void **state)
{
	struct box_process p = { .argv = argv, .env = env };
	struct spec_process sp = { &p, &user, "/", 1024, 64 };
	struct spec s = spec_of(&kinds[0]);
	auto_buf whole = { 0 };
	json_set_alloc_funcs(malloc, free); /* which the tests' linker replaced */
	assert_int_equal(spec_write(&s, &sp, &whole, NULL), 0);
	for (uint64_t n = 1;; n += n > 300 && n < 1500 ? 7 : 1) { /* one name is like another */
		auto_buf out = { 0 };
		struct err err;
		oom_at(n);
		int r = spec_write(&s, &sp, &out, &err);
		if (!oom_hit())
			break;
		if (r < 0)
			assert_int_equal(r, -ENOMEM);
		else if (out.len != whole.len || memcmp(out.data, whole.data, out.len) != 0)
			fail_msg("allocation %llu failed, and something is missing",
				 (unsigned long long)n);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(golden), cmocka_unit_test(walls),  cmocka_unit_test(seccomp),
		cmocka_unit_test(text),	  cmocka_unit_test(memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
