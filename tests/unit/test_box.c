/* What boxes are made of: users of an image, paths in a hostile root, cgroups, what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "runtime/box_impl.h"
#include "runtime/cgroup.h"
#include "runtime/inroot.h"
#include "runtime/mountinfo.h"
#include "runtime/user.h"
#include "tests/unit/place.h"

/* ---- users ---- */

static const char passwd[] = "root:x:0:0:root:/root:/bin/sh\n"
			     "# a comment\n"
			     "short:x:5\n"
			     "high:x:70000:70000::/users/high:/bin/sh\n"
			     "word:x:12a:1::/:/\n"
			     ":x:7:7::/:/\n"
			     "me:x:1000:1001:Me:/users/me:/bin/bash\n"
			     "rel:x:1002:1002::home/rel:/bin/sh\n"
			     "me:x:9:9::/again:/bin/sh\n"
			     "last:x:1003:1003::/users/last:";
static const char group[] = "root:x:0:\nwheel:x:10:root,me\nme:x:1001:\n"
			    "staff:x:50:you,me,they\nbad:x:-1:me\nhigh:x:70000:me\n"
			    "me2:x:51:mee,m\nstaff:x:99:me\nlast:x:60:last";

static void users(void **state)
{
	static const struct {
		const char *who;
		int r;
		uint32_t uid, gid;
		const char *home;
		size_t n;
		uint32_t groups[3];
	} cases[] = {
		{ NULL, 0, 0, 0, "/root", 1, { 10 } },
		{ "", 0, 0, 0, "/root", 1, { 10 } },
		{ "root", 0, 0, 0, "/root", 1, { 10 } },
		{ "me", 0, 1000, 1001, "/users/me", 3, { 10, 50, 99 } },
		{ "1000", 0, 1000, 1001, "/users/me", 3, { 10, 50, 99 } },
		{ "me:staff", 0, 1000, 50, "/users/me", 0, { 0 } },
		{ "me:7", 0, 1000, 7, "/users/me", 0, { 0 } },
		{ "1234", 0, 1234, 0, "/", 0, { 0 } },
		{ "1234:1001", 0, 1234, 1001, "/", 0, { 0 } },
		{ "65535:65535", 0, 65535, 65535, "/", 0, { 0 } },
		{ "rel", 0, 1002, 1002, "/", 0, { 0 } },
		{ "last", 0, 1003, 1003, "/users/last", 1, { 60 } },
		{ "65536", -EINVAL, 0, 0, "", 0, { 0 } },
		{ "4294967296", -EINVAL, 0, 0, "", 0, { 0 } },
		{ "high", -EINVAL, 0, 0, "", 0, { 0 } },
		{ "word", -EINVAL, 0, 0, "", 0, { 0 } },
		{ "short", -EINVAL, 0, 0, "", 0, { 0 } },
		{ "nobody", -EINVAL, 0, 0, "", 0, { 0 } },
		{ "me:none", -EINVAL, 0, 0, "", 0, { 0 } },
		{ "me:", -EINVAL, 0, 0, "", 0, { 0 } },
		{ ":me", -EINVAL, 0, 0, "", 0, { 0 } },
		{ "me:me:me", -EINVAL, 0, 0, "", 0, { 0 } },
		{ "-1", -EINVAL, 0, 0, "", 0, { 0 } },
		{ "me\nroot", -EINVAL, 0, 0, "", 0, { 0 } },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct user u;
		struct err err;
		int r = user_find(&u, passwd, sizeof(passwd) - 1, group, sizeof(group) - 1,
				  cases[i].who, 65536, &err);
		if (r != cases[i].r)
			fail_msg("%s: %d", cases[i].who, r);
		if (r < 0)
			continue;
		assert_int_equal(u.uid, cases[i].uid);
		assert_int_equal(u.gid, cases[i].gid);
		assert_string_equal(u.home, cases[i].home);
		assert_int_equal(u.n_groups, cases[i].n);
		for (size_t k = 0; k < u.n_groups; k++)
			assert_int_equal(u.groups[k], cases[i].groups[k]);
	}
}

static void put(int dir, const char *name, const char *text)
{
	auto_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static int tmp_dir(char path[64])
{
	(void)snprintf(path, 64, "%s/box.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	assert_non_null(mkdtemp(path));
	int fd = open(path, O_RDONLY | O_DIRECTORY);
	assert_true(fd >= 0);
	return fd;
}

static void remove_dir(const char *path)
{
	assert_int_equal(io_remove_tree(AT_FDCWD, path, NULL), 0);
}

static void users_of_a_root(void **state)
{
	char path[64];
	auto_fd root = tmp_dir(path);
	struct user u;
	struct err err;
	assert_int_equal(user_lookup(&u, root, "0", 65536, &err), 0);
	assert_string_equal(u.home, "/root");
	assert_int_equal(user_lookup(&u, root, "me", 65536, &err), -EINVAL);
	/* Links lead to somewhere in it, even those that point at the host's file. */
	assert_int_equal(mkdirat(root, "etc", 0755), 0);
	assert_int_equal(mkdirat(root, "other", 0755), 0);
	put(root, "other/passwd", "me:x:7:8::/x:/y\n");
	assert_int_equal(symlinkat("/../../other/passwd", root, "etc/passwd"), 0);
	assert_int_equal(user_lookup(&u, root, "me", 65536, &err), 0);
	assert_int_equal(u.uid, 7);
	assert_int_equal(unlinkat(root, "etc/passwd", 0), 0);
	assert_int_equal(symlinkat("/etc/passwd", root, "etc/passwd"), 0);
	assert_true(user_lookup(&u, root, "daemon", 65536, &err) < 0);
	/* What isn't a file isn't opened: a fifo would wait for ever. */
	assert_int_equal(unlinkat(root, "etc/passwd", 0), 0);
	assert_int_equal(mkfifoat(root, "etc/passwd", 0644), 0);
	assert_int_equal(user_lookup(&u, root, "me", 65536, &err), -EINVAL);
	assert_string_equal(err.text,
			    "/etc/passwd in the sandbox is no file: restore it, or DELETE it by "
			    "the API");
	/* A link that leads nowhere keeps nobody out who needs no entry. */
	assert_int_equal(unlinkat(root, "etc/passwd", 0), 0);
	assert_int_equal(symlinkat("passwd", root, "etc/passwd"), 0);
	assert_int_equal(user_lookup(&u, root, "5:6", 65536, &err), 0);
	assert_int_equal(u.gid, 6);
	remove_dir(path);
}

/* ---- paths in a root ---- */

static void in_root(void **state)
{
	char path[64], outside[64];
	auto_fd root = tmp_dir(path);
	auto_fd other = tmp_dir(outside);
	struct stat st;
	static const char *const good[] = { "a/b/c", "/a/b/c", "/x", "dots..", "///y///z" };
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		auto_fd fd = inroot_make_dir(root, good[i]);
		assert_true(fd >= 0);
	}
	assert_int_equal(fstatat(root, "a/b/c", &st, 0), 0);
	assert_int_equal(st.st_mode, S_IFDIR | 0755);
	assert_int_equal(fstatat(root, "y/z", &st, 0), 0);
	/* Out of it leads nothing. */
	assert_int_equal(symlinkat(outside, root, "out"), 0);
	assert_int_equal(inroot_make_dir(root, "out/new"), -ENOENT);
	assert_int_equal(symlinkat("../../../..", root, "up"), 0);
	auto_fd up = inroot_make_dir(root, "up/made");
	assert_true(up >= 0);
	assert_int_equal(fstatat(root, "made", &st, 0), 0);
	assert_int_equal(fstatat(other, "new", &st, 0), -1);
	assert_int_equal(symlinkat("loop", root, "loop"), 0);
	assert_int_equal(inroot_make_dir(root, "loop/x"), -ELOOP);
	/* What leads to that goes, and nothing else. */
	assert_int_equal(symlinkat("/gone/1", root, "a/gone"), 0);
	inroot_remove_link(root, "/a/gone", "/gon/");
	assert_int_equal(inroot_make_dir(root, "/a/gone"), -ENOENT);
	inroot_remove_link(root, "/a/gone", "/gone/");
	inroot_remove_link(root, "/a", "/gone/");
	inroot_remove_link(root, "/none/x", "/gone/");
	auto_fd gone = inroot_make_dir(root, "/a/gone");
	assert_true(gone >= 0);
	put(root, "file", "");
	assert_int_equal(inroot_make_dir(root, "file/x"), -ENOTDIR);
	assert_int_equal(inroot_make_dir(root, "file"), -ENOTDIR);
	remove_dir(path);
	remove_dir(outside);
}

static void targets(void **state)
{
	static const struct {
		const char *target;
		bool host, good;
	} cases[] = {
		{ "/workspace", true, true },	{ "/a/b/c", false, true },
		{ "/usr/src/x", false, true },	{ "/usr/src/x", true, false },
		{ "/usr", true, false },	{ "/usrlocal", true, true },
		{ "/", false, false },		{ "//", false, false },
		{ "", false, false },		{ "workspace", false, false },
		{ "/a/../b", false, false },	{ "/a/./b", false, false },
		{ "/..", false, false },	{ "/a/", false, false },
		{ "/a//b", false, false },	{ "/proc", false, false },
		{ "/proc/self/fd", false, false }, { "/process", false, true },
		{ "/sys/x", false, false },	{ "/dev/shm", false, false },
		{ "/.bough", false, false },	{ "/.boughs", false, true },
		{ "/run/secrets", false, false }, { "/run/secret", false, true },
		{ "/..a/b", false, true },	{ "/etc", false, false },
		{ "/etc/ssl", false, true },	{ "/usr", false, false },
	};
	assert_string_equal(box_own_mount("/dev/shm"), "/dev");
	assert_string_equal(box_own_mount("/run/secrets"), "/run/secrets");
	assert_null(box_own_mount("/devil"));
	assert_null(box_own_mount("/run"));
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct err err;
		int r = box_check_target(cases[i].target, cases[i].host, &err);
		if ((r == 0) != cases[i].good)
			fail_msg("%s: %d", cases[i].target, r);
	}
}

/* ---- cgroups ---- */

static const char hybrid[] =
	"24 29 0:22 / /proc rw - proc proc rw\n"
	"30 29 0:26 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	"31 29 0:27 / /sys/fs/cgroup/systemd rw shared:11 - cgroup cgroup rw,name=systemd\n"
	"32 29 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:12 master:3 - cgroup cgroup rw,cpu\n"
	"33 29 0:29 /part /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
	"34 29 0:30 / /odd\\040name\\134x rw - cgroup cgroup rw,memory\n"
	"35 29 0:31 / /bad\\999 rw - cgroup cgroup rw\n"
	"36 29 0:31 / relative rw - cgroup cgroup rw\n"
	"37 29 0:31 / - cgroup cgroup rw\n"
	"38 29 0:31 / /a - cgroup - cgroup3 x y\n"
	"39 29 0:32 / /end rw - cgroup";
static const char unified[] =
	"30 29 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";

static void cgroup_names(void **state)
{
	struct cgroups c;
	cgroup_parse(&c, hybrid, sizeof(hybrid) - 1);
	static const char *const paths[] = { "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd",
					     "/sys/fs/cgroup/cpu,cpuacct", "/odd name\\x", "/end" };
	size_t found = 0;
	for (size_t i = 0; i < c.n; i++) {
		if (strcmp(c.list[i].path, "/a") == 0)
			continue; /* what a made-up line means is nobody's business */
		assert_string_equal(c.list[i].path, paths[found]);
		assert_int_equal(c.list[i].v2, found == 0);
		found++;
	}
	assert_int_equal(found, 5);
	assert_false(cgroup_is_v2(&c));
	assert_true(cgroup_has(&c, "cpu") && cgroup_has(&c, "cpuacct"));
	assert_false(cgroup_has(&c, "cp") || cgroup_has(&c, "pids"));
	cgroup_parse(&c, unified, sizeof(unified) - 1);
	assert_true(cgroup_is_v2(&c));
	/* Every part of it, cut anywhere. */
	for (size_t n = 0; n < sizeof(hybrid); n++) {
		auto_free char *part = malloc(n + 1);
		memcpy(part, hybrid, n);
		cgroup_parse(&c, part, n);
		assert_in_range(c.n, 0, 6);
	}
}

static void cgroup_swap(void **state)
{
	char path[64];
	auto_fd top = tmp_dir(path);
	struct cgroups c = { .n = 1, .list = { { .v2 = true } } };
	(void)snprintf(c.list[0].path, CGROUP_PATH_MAX, "%s", path);
	put(top, "cgroup.controllers", "cpuset cpu io memory pids\n");
	assert_true(cgroup_has(&c, "memory") && cgroup_has(&c, "pids"));
	assert_false(cgroup_has(&c, "mem") || cgroup_has(&c, "hugetlb"));
	assert_int_equal(mkdirat(top, "a.scope", 0755), 0);
	assert_int_equal(mkdirat(top, "b.slice", 0755), 0);
	put(top, "b.slice/memory.max", "max\n");
	assert_false(cgroup_counts_swap(&c));
	put(top, "b.slice/memory.swap.max", "max\n");
	assert_true(cgroup_counts_swap(&c));
	c.list[0].v2 = false;
	assert_false(cgroup_counts_swap(&c));
	put(top, "memory.memsw.limit_in_bytes", "1\n");
	assert_true(cgroup_counts_swap(&c));
	remove_dir(path);
}

/* On plain folders, which the rules of cgroups allow to be empty. */
static void cgroup_folders(void **state)
{
	char path[64];
	auto_fd top = tmp_dir(path);
	struct cgroups c = { .n = 2 };
	struct err err;
	(void)snprintf(c.list[0].path, CGROUP_PATH_MAX, "%s", path);
	(void)snprintf(c.list[1].path, CGROUP_PATH_MAX, "%s/none", path);
	for (const char *const *d = (const char *const[]){ "bough", "bough/a", "bough/a/b",
							   "bough/a/b/c", "bough/a/b/d", "bough/x",
							   NULL };
	     *d; d++)
		assert_int_equal(mkdirat(top, *d, 0755), 0);
	assert_int_equal(cgroup_clear(&c, "/bough/a", &err), 0);
	assert_int_equal(faccessat(top, "bough/a", F_OK, 0), -1);
	assert_int_equal(faccessat(top, "bough/x", F_OK, 0), 0);
	assert_int_equal(cgroup_clear(&c, "/bough/a", &err), 0);
	remove_dir(path);
}

static unsigned mode_of(int top, const char *path)
{
	struct stat st;
	return fstatat(top, path, &st, 0) < 0 ? 0 : st.st_mode & 07777;
}

/* boughd's own umask would shut the sandbox out of its own limits, and of mounting them. */
static void cgroup_modes(void **state)
{
	char path[64];
	auto_fd top = tmp_dir(path);
	struct cgroups c = { .n = 1, .list = { { .v2 = true } } };
	struct err err;
	(void)snprintf(c.list[0].path, CGROUP_PATH_MAX, "%s", path);
	mode_t before = umask(077);
	assert_int_equal(mkdirat(top, "bough", 0755), 0); /* by a runtime */
	assert_int_equal(cgroup_make(&c, "/bough/ns/a", &err), 0);
	assert_int_equal(cgroup_make(&c, "/bough/ns/b", &err), 0);
	assert_int_equal(cgroup_make(&c, "/bough/ns/b", &err), 0);
	(void)umask(before);
	assert_int_equal(mode_of(top, "bough"), 0711);
	assert_int_equal(mode_of(top, "bough/ns"), 0711);
	assert_int_equal(mode_of(top, "bough/ns/a"), 0755);
	assert_int_equal(mode_of(top, "bough/ns/b"), 0755);
	put(top, "file", "");
	assert_int_equal(cgroup_make(&c, "/file/a", &err), -ENOTDIR);
	c.n = 2; /* of version 1 too: programs see none of them */
	assert_int_equal(cgroup_make(&c, "/other", &err), 0);
	assert_int_equal(mode_of(top, "other"), 0);
	remove_dir(path);
}

/* Always one step ahead of who reads a list of processes and then kills those on it. */
static _Noreturn void run_ahead(const char *procs)
{
	auto_fd fd = open(procs, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "0", 1) != 1)
		_exit(1);
	for (pid_t pid = 0; pid == 0; pid = fork())
		;
	_exit(0);
}

enum { CHAINS = 8 };

static void cgroup_of_one_that_forks(void **state)
{
	struct cgroups all, one = { 0 };
	char dir[PATH_MAX], path[PATH_MAX + 32], name[64];
	struct err err = { 0 };
	(void)snprintf(name, sizeof(name), "/bough-test-%d", getpid());
	for (size_t i = 0; cgroup_find(&all, NULL) == 0 && i < all.n && one.n == 0; i++) {
		(void)snprintf(dir, sizeof(dir), "%s%s", all.list[i].path, name);
		(void)snprintf(path, sizeof(path), "%s/freezer.state", dir);
		if (mkdir(dir, 0755) < 0)
			continue;
		if (access(path, F_OK) == 0)
			one.list[one.n++] = all.list[i];
		else
			(void)rmdir(dir);
	}
	if (one.n == 0) {
		print_message("skip: no freezer of version 1, or not root\n");
		skip();
	}
	(void)snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
	for (int i = 0; i < CHAINS; i++) {
		pid_t pid = fork();
		if (pid == 0)
			run_ahead(path);
	}
	for (int i = 0; i < CHAINS; i++)
		assert_true(wait(NULL) > 0);
	int r = cgroup_clear(&one, name, &err);
	if (r < 0)
		fail_msg("%d: %s", r, err.text);
	assert_int_equal(access(dir, F_OK), -1);
}

/* ---- what is refused before anything is made ---- */

static void refused(void **state)
{
	static const struct runtime_kind kind = { .name = "runc", .shifts_ids = true,
						  .mounts_later = true, .reports_pids = true };
	static const struct runtime_kind other = { .name = "kata" };
	/* Without a user namespace, which is made first: in a process with threads of its own, as
	 * a sanitizer's, none can be. */
	static const struct runtime_kind plain = { .name = "runc", .mounts_later = true,
						   .reports_pids = true };
	if (geteuid() != 0) {
		print_message("skip: not root\n");
		skip();
	}
	char path[64], dir[128];
	auto_fd top = tmp_dir(path);
	(void)snprintf(dir, sizeof(dir), "%s/sb_1", path);
	struct err err;
	struct box_process p = { 0 };
	const struct box_config good = { .dir = dir, .id = "sb_1", .ns = "n", .kind = &kind,
					 .init = "/bin/true", .root = "/proc", .limits = BOX_LIMITS,
					 .id_base = IDS_FIRST };
#define REFUSED(code, ...)                                                        \
	do {                                                                      \
		struct box_config c = good;                                       \
		__VA_ARGS__;                                                      \
		assert_int_equal(box_make(&c, &p, &err), code);                   \
		assert_true(err.text[0]);                                         \
		assert_int_equal(faccessat(top, "sb_1", F_OK, 0), -1);            \
	} while (0)
	REFUSED(-EINVAL, c.dir = "relative");
	REFUSED(-EINVAL, c.id = "../x");
	REFUSED(-EINVAL, c.id = "");
	REFUSED(-EINVAL, c.ns = ".");
	REFUSED(-EINVAL, c.id_base = 0);
	REFUSED(-EINVAL, c.id_base = IDS_FIRST + 1);
	REFUSED(-EINVAL, c.id_base = IDS_END);
	REFUSED(-ENOENT, c.init = "/nowhere/init");
	REFUSED(-ENOENT, c.kind = &plain; c.root = path);
	struct box_mount m = { "/proc", "/proc/x", false };
	REFUSED(-EINVAL, c.mounts = &m; c.n_mounts = 1);
	struct box_secret s = { "a/b", 0 };
	REFUSED(-EINVAL, c.secrets = &s; c.n_secrets = 1);
	p.cwd = "/proc/self/fd/7";
	REFUSED(-EINVAL, (void)c);
	p.cwd = "here";
	REFUSED(-EINVAL, (void)c);
	struct box_config c = good;
	c.kind = &other;
	assert_int_equal(box_attach(&c, 1, &m, &err), -EOPNOTSUPP);
	assert_int_equal(box_detach(&c, 1, "/x", false, &err), -EOPNOTSUPP);
	assert_int_equal(box_clear("/", "n", &err), -EINVAL);
	assert_int_equal(box_clear(dir, "n", &err), 0);
	assert_int_equal(box_end(path, &err), 0);
	assert_int_equal(faccessat(top, ".share", F_OK, 0), -1);
	char text[128];
	box_unenforced(&other, text, sizeof(text));
	assert_non_null(strstr(text, "pids"));
	remove_dir(path);
}

static void unenforced(void **state)
{
	static const struct {
		const char *kind, *controllers, *text;
		bool swap;
	} cases[] = {
		{ "runc", "cpu memory pids", "", true },
		{ "runsc", "cpu memory pids", "", true },
		{ "kata", "cpu memory pids", "pids", true },
		{ "runc", "cpu memory pids", "swap", false },
		{ "runsc", "cpu memory pids", "swap", false }, /* its kernel's is the host's */
		{ "kata", "cpu memory pids", "pids", false },
		{ "crun", "cpuset io", "memory, swap, cpus, pids", false },
		{ "runsc", "pids", "memory, swap, cpus", false },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char path[64], text[128];
		auto_fd top = tmp_dir(path);
		struct cgroups c = { .n = 1, .list = { { .v2 = true } } };
		(void)snprintf(c.list[0].path, CGROUP_PATH_MAX, "%s", path);
		put(top, "cgroup.controllers", cases[i].controllers);
		assert_int_equal(mkdirat(top, "a.slice", 0755), 0);
		put(top, "a.slice/memory.max", "max\n");
		if (cases[i].swap)
			put(top, "a.slice/memory.swap.max", "max\n");
		box_unenforced_by(&c, runtime_find(cases[i].kind), text, sizeof(text));
		assert_string_equal(text, cases[i].text);
		remove_dir(path);
	}
}

/* One of gVisor that an earlier version made takes no workspace, lets none go, has what it has. */
static void made_before(void **state)
{
	char path[64];
	struct err err = { 0 };
	auto_fd top = tmp_dir(path);
	const struct box_config c = { .dir = path, .id = "sb_1", .ns = "n",
				      .kind = runtime_find("runsc"), .id_base = IDS_FIRST };
	const struct box_mount m = { .target = "/w" };
	assert_int_equal(mkdirat(top, "slots", 0711), 0);
	assert_int_equal(mkdirat(top, "rootfs", 0711), 0);
	assert_int_equal(box_attached(&c, 1, "/w", &err), 1);
	assert_int_equal(box_attach(&c, 1, &m, &err), -EOPNOTSUPP);
	assert_non_null(strstr(err.text, "before an upgrade"));
	assert_int_equal(box_detach(&c, 1, "/w", true, &err), -EOPNOTSUPP);
	assert_int_equal(unlinkat(top, "slots", AT_REMOVEDIR), 0);
	assert_int_equal(box_attached(&c, 1, "/w", &err), 0);
	remove_dir(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(users),	cmocka_unit_test(users_of_a_root),
		cmocka_unit_test(in_root),	cmocka_unit_test(targets),
		cmocka_unit_test(cgroup_names), cmocka_unit_test(cgroup_folders),
		cmocka_unit_test(cgroup_modes),
		cmocka_unit_test(cgroup_swap),	cmocka_unit_test(refused),
		cmocka_unit_test(unenforced),	cmocka_unit_test(made_before),
		cmocka_unit_test(cgroup_of_one_that_forks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
