/* Clone, fetch and push by git: on this machine, with the host's git and without it. The test is
 * its own bough-transfer (gitops/errand.h). */
#include "gitops/mirror.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "gitops/errand.h"
#include "gitops/packout.h"

static char root[64], url[64];
static struct err err;
static pid_t server;

static void ok(int r)
{
	if (r < 0)
		fail_msg("%d: %s", r, err.text);
}

static void git_ok(int r)
{
	if (r < 0)
		fail_msg("libgit2: %s", git_error_last() ? git_error_last()->message : "?");
}

static void run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *fmt, ...)
{
	char command[1024];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	int status = system(command);
	if (status != 0)
		fail_msg("%s: %d", command, status);
}

/* A port that is free now. */
static int free_port(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	auto_fd fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	return ntohs(a.sin_port);
}

static void start_server(int port)
{
	char base[96], listen_port[32];
	(void)snprintf(base, sizeof(base), "--base-path=%s", root);
	(void)snprintf(listen_port, sizeof(listen_port), "--port=%d", port);
	server = fork();
	assert_true(server >= 0);
	if (server == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)!freopen("/dev/null", "w", stderr); /* it tells of clients that leave */
		(void)execlp("git", "git", "daemon", "--listen=127.0.0.1", listen_port, base,
			     "--export-all", "--enable=receive-pack", "--reuseaddr", NULL);
		_exit(127);
	}
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const struct timespec pause = { .tv_nsec = 20000000 };
	for (int i = 0; i < 3000; i++) {
		auto_fd fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
			return;
		(void)nanosleep(&pause, NULL);
	}
	fail_msg("git daemon doesn't answer");
}

static int setup(void **state)
{
	(void)snprintf(root, sizeof(root), "/tmp/bough-push.XXXXXX");
	assert_non_null(mkdtemp(root));
	assert_int_equal(setenv("GIT_CONFIG_GLOBAL", "/dev/null", 1), 0);
	assert_int_equal(setenv("GIT_CONFIG_NOSYSTEM", "1", 1), 0);
	run("cd %s && mkdir repos && git init -q -b main src && cd src &&"
	    " git config user.email a@example.org && git config user.name A &&"
	    " echo 1 >f && git add . && git commit -qm 1 && cd .. &&"
	    " git clone -q --bare src r.git",
	    root);
	int port = free_port();
	start_server(port);
	(void)snprintf(url, sizeof(url), "git://127.0.0.1:%d/r.git", port);
	return 0;
}

static int teardown(void **state)
{
	(void)kill(server, SIGTERM);
	(void)waitpid(server, NULL, 0);
	return io_remove_tree(AT_FDCWD, root, &err);
}

/* A commit in the mirror on top of another. */
static struct oid commit_on(struct mirror *m, const struct oid *parent, const char *text)
{
	auto_git(git_commit) up = NULL;
	auto_git(git_tree) tree = NULL;
	auto_git(git_signature) who = NULL;
	git_oid p = oid_to_git(parent), id;
	git_ok(git_commit_lookup(&up, mirror_repo(m), &p));
	git_ok(git_commit_tree(&tree, up));
	git_ok(git_signature_new(&who, "A", "a@example.org", 1700000000, 0));
	const git_commit *parents[] = { up };
	git_ok(git_commit_create(&id, mirror_repo(m), NULL, who, who, NULL, text, tree, 1,
				 parents));
	return oid_of_git(&id);
}

static void expect_there(const char *branch, const struct oid *want)
{
	char hex[OID_HEX + 1];
	oid_hex(hex, want);
	run("test \"$(git --git-dir=%s/r.git rev-parse refs/heads/%s)\" = %s", root, branch, hex);
}

/* What refs will name is on the disk, not in the page cache (cachestat(2), from Linux 6.5 on). */
static void expect_synced(uint32_t number)
{
	enum { SYS_CACHESTAT = 451 };
	struct {
		uint64_t off, len;
	} all = { 0, 0 };
	struct {
		uint64_t cached, dirty, writeback, evicted, recently_evicted;
	} is = { 0 };
	char path[128];
	size_t n = 0;
	(void)snprintf(path, sizeof(path), "%s/repos/%08x/objects/pack", root, number);
	auto_dir *d = opendir(path);
	assert_non_null(d);
	for (const struct dirent *e; (e = readdir(d));) {
		if (strncmp(e->d_name, "pack-", 5) != 0)
			continue;
		auto_fd fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC);
		assert_true(fd >= 0);
		if (syscall(SYS_CACHESTAT, fd, &all, &is, 0) < 0)
			assert_int_equal(errno, ENOSYS);
		if (is.dirty)
			fail_msg("%s isn't on the disk", e->d_name);
		n++;
	}
	assert_true(n > 0);
}

static void all_of_it(uint32_t number, const char *branch)
{
	const struct mirror_origin o = { .url = url };
	struct mirror_result res;
	auto_mirror m = NULL;
	struct oid base, now;
	ok(mirror_clone(root, number, &o, NULL, &res, &err));
	expect_synced(number);
	assert_int_equal(mirror_clone(root, number, &o, NULL, &res, &err), -EEXIST);
	ok(mirror_open(&m, root, number, &err));
	ok(mirror_resolve(m, NULL, &base, NULL, &err));
	struct oid one = commit_on(m, &base, "one"), two = commit_on(m, &one, "two");
	struct oid other = commit_on(m, &base, "other");
	/* A new branch, forward, not forward. */
	ok(mirror_push(root, number, &o, &one, branch, NULL, NULL, &err));
	expect_there(branch, &one);
	ok(mirror_push(root, number, &o, &two, branch, NULL, NULL, &err));
	expect_there(branch, &two);
	assert_int_equal(mirror_push(root, number, &o, &other, branch, NULL, NULL, &err), -ESTALE);
	assert_null(strchr(err.text, '\n'));
	expect_there(branch, &two);
	/* With a lease on what it was, on what it is, on nothing that it could be. */
	assert_int_equal(mirror_push(root, number, &o, &other, branch, &one, NULL, &err), -ESTALE);
	expect_there(branch, &two);
	ok(mirror_push(root, number, &o, &other, branch, &two, NULL, &err));
	expect_there(branch, &other);
	assert_int_equal(mirror_push(root, number, &o, &one, "new", &two, NULL, &err), -ESTALE);
	/* What was pushed is known as origin's. */
	char name[64];
	(void)snprintf(name, sizeof(name), "origin/%s", branch);
	ok(mirror_resolve(m, name, &now, NULL, &err));
	assert_memory_equal(&now, &other, sizeof(now));
	/* A hook over there that refuses. */
	run("printf '#!/bin/sh\\necho not you >&2\\nexit 1\\n' >%s/r.git/hooks/pre-receive &&"
	    " chmod +x %s/r.git/hooks/pre-receive",
	    root, root);
	int r = mirror_push(root, number, &o, &one, "refused", NULL, NULL, &err);
	run("rm %s/r.git/hooks/pre-receive", root);
	assert_int_equal(r, -EPERM);
	assert_non_null(strstr(err.text, "it refused the push"));
	if (!getenv("BOUGH_GIT")) /* libgit2 doesn't hand on what it says */
		assert_non_null(strstr(err.text, ": not you ("));
	/* Odd names never reach git. */
	static const char *const bad[] = { "",
					   "-x",
					   "a..b",
					   "a b",
					   "--all",
					   "a:b",
					   "+a"
					   "\n" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(mirror_push(root, number, &o, &one, bad[i], NULL, NULL, &err),
				 -EINVAL);
	run("cd %s/r.git && c=$(echo later-%u | git -c user.name=A -c user.email=a@b commit-tree"
	    " HEAD^{tree} -p HEAD) && git update-ref refs/heads/later $c",
	    root, number);
	ok(mirror_fetch(root, number, &o, NULL, &res, &err));
	assert_int_equal(res.objects, 1);
	expect_synced(number);
	ok(mirror_maintain(root, number, NULL, &err));
	ok(mirror_resolve(m, branch, &now, NULL, &err));
	assert_memory_equal(&now, &other, sizeof(now));
	run("git --git-dir=%s fsck --strict --no-dangling 2>&1", mirror_path(m));
	/* Of upkeep: objects that nothing refers to stay. */
	git_oid kept = oid_to_git(&two);
	assert_int_equal(git_odb_exists(mirror_odb(m), &kept), 1);
	run("test -z \"$(ls -A %s/repos | grep -v '^[0-9a-f]*$')\"", root);
}

static void test_with_git(void **state)
{
	all_of_it(1, "work");
}

static void test_without_git(void **state)
{
	assert_int_equal(setenv("BOUGH_GIT", "/nonexistent", 1), 0);
	all_of_it(2, "work-2");
	assert_int_equal(unsetenv("BOUGH_GIT"), 0);
}

/* Nobody's configuration, hooks or environment count. */
static void test_alone(void **state)
{
	const struct mirror_origin o = { .url = url };
	struct mirror_result res;
	run("printf '[url \"file:///\"]\\n\\tinsteadOf = git://\\n[core]\\n\\tgitProxy = false\\n'"
	    " >%s/.gitconfig",
	    root);
	assert_int_equal(setenv("HOME", root, 1), 0);
	assert_int_equal(unsetenv("GIT_CONFIG_GLOBAL"), 0);
	assert_int_equal(setenv("GIT_PROXY_COMMAND", "/bin/false", 1), 0);
	assert_int_equal(setenv("GIT_DIR", "/nonexistent", 1), 0);
	assert_int_equal(setenv("GIT_ALTERNATE_OBJECT_DIRECTORIES", "/nonexistent", 1), 0);
	ok(mirror_clone(root, 3, &o, NULL, &res, &err));
	assert_int_equal(unsetenv("GIT_DIR"), 0);
	/* A hook and a configuration in the mirror itself don't run either. */
	run("mkdir -p %s/repos/00000003/hooks && cd %s/repos/00000003 &&"
	    " printf '#!/bin/sh\\ntouch %s/ran\\n' >hooks/pre-push && cp hooks/pre-push hooks/x &&"
	    " cp hooks/pre-push hooks/reference-transaction && chmod +x hooks/*",
	    root, root, root);
	auto_mirror m = NULL;
	struct oid base;
	ok(mirror_open(&m, root, 3, &err));
	ok(mirror_resolve(m, NULL, &base, NULL, &err));
	ok(mirror_push(root, 3, &o, &base, "alone", NULL, NULL, &err));
	ok(mirror_fetch(root, 3, &o, NULL, &res, &err));
	ok(mirror_maintain(root, 3, NULL, &err));
	run("test ! -e %s/ran", root);
}

/* Upkeep, which a fetch asks for, may begin at any moment of a commit. */
static void test_upkeep_meanwhile(void **state)
{
	const struct mirror_origin o = { .url = url };
	struct mirror_result res;
	struct packout *p;
	struct oid oid;
	auto_mirror m = NULL;
	ok(mirror_clone(root, 4, &o, NULL, &res, &err));
	ok(mirror_open(&m, root, 4, &err));
	ok(packout_new(&p, m, NULL, &err));
	ok(packout_put(p, GIT_BLOB, "new", 3, &oid, &err));
	ok(mirror_maintain(root, 4, NULL, &err));
	ok(packout_finish(p, NULL, &err));
	packout_free(p);
	git_oid id = oid_to_git(&oid);
	assert_int_equal(git_odb_exists(mirror_odb(m), &id), 1);
	/* What a kill leaves goes at the start, when nobody is at it. */
	run("touch %s/objects/pack/" PACKOUT_TMP_PREFIX "pack_1", mirror_path(m));
	ok(mirror_recover(root, &err));
	run("test ! -e %s/objects/pack/" PACKOUT_TMP_PREFIX "pack_1", mirror_path(m));
}

int main(int argc, char **argv)
{
	int status;
	if (gitops_errand(argc, argv, &status))
		return status;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_with_git),
		cmocka_unit_test(test_without_git),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_upkeep_meanwhile),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
