/* The checks themselves, in the order in which they are shown. */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/magic.h>
#include <pwd.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "tools/bough/api.h"
#include "tools/bough/doctor.h"
#include "tools/bough/json.h"
#include "tools/bough/out.h"
#include "tools/bough/probe.h"
#include "tools/bough/start.h"

enum {
	KERNEL_FLOOR = 601,      /* 6.1: Debian 12 */
	KERNEL_IDMAP_FUSE = 612, /* idmapped mounts of FUSE filesystems */
	KERNEL_URING_FUSE = 614, /* FUSE over io_uring */
	FILES_WANTED = 4096,     /* open files: each workspace needs some */
	FILES_OF_ALL = INT32_MAX,
	DISK_WANTED_MIB = 2048,
};

/* Fills a line; `advice` may be "". */
static void say(struct doctor_line *l, enum doctor_level level, const char *advice, const char *fmt,
		...) __attribute__((format(printf, 4, 5)));
static void say(struct doctor_line *l, enum doctor_level level, const char *advice, const char *fmt,
		...)
{
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(l->found, sizeof(l->found), fmt, ap);
	va_end(ap);
	(void)snprintf(l->advice, sizeof(l->advice), "%s", advice);
	l->level = level;
}

/* 612 for 6.12; 0 when it can't be told. */
static int kernel_version(void)
{
	struct utsname u;
	int major, minor;
	if (uname(&u) < 0 || sscanf(u.release, "%d.%d", &major, &minor) != 2)
		return 0;
	return major * 100 + (minor < 99 ? minor : 99);
}

/* ---- what a workspace needs ---- */

static void check_kernel(struct cli *cli, struct doctor_line *l)
{
	struct utsname u;
	bool old = kernel_version() < KERNEL_FLOOR;
	say(l, old ? DOCTOR_MISSING : DOCTOR_OK, old ? "6.1 or newer is needed" : "", "%s",
	    uname(&u) == 0 ? u.release : "unknown");
}

static void check_dev_fuse(struct cli *cli, struct doctor_line *l)
{
	auto_fd fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	int e = errno;
	if (fd >= 0)
		say(l, DOCTOR_OK, "", "/dev/fuse can be opened");
	else
		say(l, DOCTOR_MISSING,
		    e == ENOENT ? "`modprobe fuse`; in a container, give it the device"
		    : e == EACCES || e == EPERM ? "make it readable and writable for this user"
						: "load the kernel's fuse module: `modprobe fuse`",
		    "/dev/fuse: %s", strerror(e));
}

static void check_server(struct cli *cli, struct doctor_line *l)
{
	char *path = NULL, text[160];
	struct err err;
	if (program_find("bough-fs", &path, &err) < 0) {
		say(l, DOCTOR_MISSING, "", "%s", err.text);
		return;
	}
	const char *argv[] = { path, "--version", NULL };
	int r = probe_run(argv, text, sizeof(text));
	if (r == 0)
		say(l, DOCTOR_OK, "", "%s", text);
	else
		say(l, DOCTOR_MISSING, "install bough again", "%s --version fails: %s", path,
		    r < 0 ? strerror(-r) : text);
	free(path);
}

/* What makes mounts possible for who isn't root. */
static void check_fusermount(struct cli *cli, struct doctor_line *l)
{
	bool root = geteuid() == 0;
	char text[160];
	const char *argv[] = { "fusermount3", "--version", NULL };
	int r = probe_run(argv, text, sizeof(text));
	if (r == 0 && !root && !getpwuid(getuid()))
		say(l, DOCTOR_MISSING, "fusermount3 mounts for nobody else: add it to /etc/passwd",
		    "the user with the number %u has no name", (unsigned)getuid());
	else if (r == 0)
		say(l, DOCTOR_OK, "", "%s", text);
	else
		say(l, root ? DOCTOR_INFO : DOCTOR_MISSING,
		    root ? "only users other than root need it" : "install the package fuse3",
		    "no fusermount3");
}

static bool allow_other(void)
{
	auto_file *f = fopen("/etc/fuse.conf", "re");
	char line[256];
	while (f && fgets(line, sizeof(line), f)) {
		char *p = line + strspn(line, " \t");
		if (!strncmp(p, "user_allow_other", 16) &&
		    strspn(p + 16, " \t\r\n") == strlen(p + 16))
			return true;
	}
	return false;
}

static void check_allow_other(struct cli *cli, struct doctor_line *l)
{
	bool root = geteuid() == 0, on = allow_other();
	if (on)
		say(l, DOCTOR_OK, "", "user_allow_other is in /etc/fuse.conf");
	else
		say(l, root ? DOCTOR_INFO : DOCTOR_WARN,
		    root ? "only users other than root need it"
			 : "add it, or root and other users can't look into your workspaces",
		    "no user_allow_other in /etc/fuse.conf");
}

static void check_disk(struct cli *cli, struct doctor_line *l)
{
	auto_free char *path = strdup(cli->root);
	struct statvfs v;
	struct statfs f;
	while (path && statvfs(path, &v) < 0) { /* the nearest folder that is there */
		char *slash = strrchr(path, '/');
		if (!slash || (errno != ENOENT && errno != ENOTDIR)) {
			say(l, DOCTOR_MISSING, "choose another folder with BOUGH_ROOT", "%s: %s",
			    cli->root, strerror(errno));
			return;
		}
		slash[slash == path] = 0;
	}
	if (!path || statfs(path, &f) < 0)
		return;
	uint64_t mib = (uint64_t)v.f_bavail * v.f_frsize >> 20;
	char size[OUT_SIZE_MAX];
	out_size(size, (int64_t)(mib << 20), false);
	if (access(path, W_OK) < 0)
		say(l, DOCTOR_MISSING, "choose another folder with BOUGH_ROOT", "%s: %s", path,
		    strerror(errno));
	else if (f.f_type == FUSE_SUPER_MAGIC)
		say(l, DOCTOR_WARN, "a disk of the machine is faster and safer",
		    "%s free under %s, on FUSE", size, cli->root);
	else if (f.f_type == TMPFS_MAGIC)
		say(l, DOCTOR_WARN, "what lies there is gone after a restart",
		    "%s free under %s, in memory", size, cli->root);
	else
		say(l, mib < DISK_WANTED_MIB ? DOCTOR_WARN : DOCTOR_OK,
		    mib < DISK_WANTED_MIB ? "make room, or choose another folder with BOUGH_ROOT"
					  : "",
		    "%s free under %s", size, cli->root);
}

/* What is root in a sandbox is nobody here, and has to reach its root: boughd asks the same. */
static void check_way(struct cli *cli, struct doctor_line *l)
{
	auto_free char *path = strdup(cli->root);
	struct stat st;
	if (!path || geteuid() != 0) {
		say(l, DOCTOR_INFO, "", "sandboxes need root");
		return;
	}
	say(l, DOCTOR_OK, "", "sandboxes can reach their files below %s", cli->root);
	for (char *slash = path + strlen(path); slash; slash = strrchr(path, '/')) {
		*slash = 0;
		if (*path && stat(path, &st) == 0 && !(st.st_mode & S_IXOTH))
			say(l, DOCTOR_WARN,
			    "`chmod o+x` it, or choose another folder with BOUGH_ROOT",
			    "sandboxes can't reach their files below %s", path);
	}
}

/* How many all processes may have open together; 0: it can't be told. */
static unsigned long long files_of_all(void)
{
	unsigned long long n = 0;
	FILE *f = fopen("/proc/sys/fs/file-max", "re");
	if (f && fscanf(f, "%llu", &n) != 1)
		n = 0;
	if (f)
		(void)fclose(f);
	return n;
}

static void check_files(struct cli *cli, struct doctor_line *l)
{
	struct rlimit rl;
	unsigned long long all = files_of_all();
	if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
		return;
	/* Memory is all that limits a sandbox's: some hundred bytes each. */
	if (geteuid() == 0 && all && all < FILES_OF_ALL) {
		say(l, DOCTOR_WARN,
		    "`sysctl fs.file-max=9223372036854775807`, as systemd has it: else one sandbox "
		    "can use up what all have",
		    "%llu open files of all processes together", all);
		return;
	}
	bool few = rl.rlim_max < FILES_WANTED;
	say(l, few ? DOCTOR_WARN : DOCTOR_OK,
	    few ? "raise the hard limit (ulimit -Hn) for many workspaces" : "",
	    "%llu open files, %llu at most", (unsigned long long)rl.rlim_cur,
	    (unsigned long long)rl.rlim_max);
}

static void check_daemon(struct cli *cli, struct doctor_line *l)
{
	struct err err = { 0 };
	struct http *h = NULL;
	auto_free char *program = NULL;
	int r = daemon_connect(cli, &h, &err);
	http_free(h);
	if (r == -ENOENT || r == -ECONNREFUSED) {
		if (program_find("boughd", &program, &err) < 0)
			say(l, DOCTOR_MISSING, "", "%s", err.text);
		else
			say(l, DOCTOR_OK, "", "not running; the first command starts it");
		return;
	}
	auto_json json_t *doc = NULL;
	auto_target t = target_new("/v1/health");
	if (r == 0)
		r = api_call(cli, "GET", &t, NULL, &doc, NULL, &err);
	if (r < 0)
		say(l, DOCTOR_MISSING, "", "%.180s", err.text);
	else
		say(l, DOCTOR_OK, "", "version %s runs with pid %lld", get_text(doc, "version"),
		    (long long)get_int(doc, "pid"));
}

/* ---- what the kernel offers beside ---- */

static void check_uring(struct cli *cli, struct doctor_line *l)
{
	struct io_uring_params p = { 0 };
	auto_fd fd = (int)syscall(SYS_io_uring_setup, 2, &p);
	int e = errno;
	if (fd >= 0)
		say(l, DOCTOR_OK, "", "available");
	else
		say(l, DOCTOR_INFO,
		    e == EPERM ? "set kernel.io_uring_disabled=0, or allow it in seccomp"
			       : "the default transport doesn't need it",
		    "io_uring_setup: %s", strerror(e));
}

static void check_fuse_uring(struct cli *cli, struct doctor_line *l)
{
	char v[16];
	if (probe_file("/sys/module/fuse/parameters/enable_uring", v, sizeof(v)) < 0)
		say(l, DOCTOR_INFO, "the default transport doesn't need it",
		    kernel_version() < KERNEL_URING_FUSE
			    ? "the kernel has no FUSE over io_uring (6.14)"
			    : "the fuse module has no enable_uring");
	else if (v[0] == 'Y' || v[0] == '1')
		say(l, DOCTOR_OK, "", "enable_uring is on");
	else
		say(l, DOCTOR_INFO,
		    "`echo Y > /sys/module/fuse/parameters/enable_uring` for the ring "
		    "transport",
		    "enable_uring is off");
}

/* Tried in a child, since it can't be undone. */
static void check_userns(struct cli *cli, struct doctor_line *l)
{
	pid_t pid = fork();
	if (pid == 0)
		_exit(unshare(CLONE_NEWUSER) == 0 ? 0 : errno);
	int status = 0;
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	int e = pid < 0 ? errno : WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
	if (e == 0)
		say(l, DOCTOR_OK, "", "can be made by this user");
	else
		say(l, DOCTOR_INFO,
		    e == ENOSPC ? "raise user.max_user_namespaces"
				: "see kernel.unprivileged_userns_clone and, with AppArmor, "
				  "kernel.apparmor_restrict_unprivileged_userns",
		    "%s", strerror(e));
}

static void check_idmap(struct cli *cli, struct doctor_line *l)
{
#ifdef SYS_mount_setattr
	/* A wrong descriptor: EBADF says that the call is there. */
	char none[32] = { 0 };
	long r = syscall(SYS_mount_setattr, -1, "x", 0, none, sizeof(none));
	bool absent = r < 0 && errno == ENOSYS;
#else
	bool absent = true;
#endif
	if (absent)
		say(l, DOCTOR_INFO, "sandboxes of runc and gVisor need Linux 6.12",
		    "no mount_setattr");
	else if (kernel_version() < KERNEL_IDMAP_FUSE)
		say(l, DOCTOR_INFO, "sandboxes of runc and gVisor need Linux 6.12",
		    "for disks; for workspaces from kernel 6.12 on");
	else
		say(l, DOCTOR_OK, "", "for workspaces too");
}

static bool filesystem_known(const char *name)
{
	auto_file *f = fopen("/proc/filesystems", "re");
	char line[128];
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		const char *tab = strrchr(line, '\t');
		if (tab && !strcmp(tab + 1, name))
			return true;
	}
	return false;
}

static void check_overlay(struct cli *cli, struct doctor_line *l)
{
	struct utsname u;
	char path[400];
	if (filesystem_known("overlay")) {
		say(l, DOCTOR_OK, "", "in the kernel");
		return;
	}
	bool module = uname(&u) == 0 && (snprintf(path, sizeof(path),
						  "/lib/modules/%s/kernel/fs/overlayfs", u.release),
					 access(path, F_OK) == 0);
	say(l, DOCTOR_INFO,
	    module ? "`modprobe overlay` loads it" : "some container images need it",
	    module ? "not loaded" : "not in this kernel");
}

static void check_cgroup(struct cli *cli, struct doctor_line *l)
{
	struct statfs f;
	char text[160];
	if (statfs("/sys/fs/cgroup", &f) < 0) {
		say(l, DOCTOR_INFO, "sandboxes need it for their limits", "not mounted");
		return;
	}
	if (f.f_type != CGROUP2_SUPER_MAGIC) {
		say(l, DOCTOR_INFO, "crun needs one: systemd.unified_cgroup_hierarchy=1",
		    access("/sys/fs/cgroup/unified", F_OK) == 0 ? "version 1 and 2 mixed"
								: "version 1");
		return;
	}
	if (probe_file("/sys/fs/cgroup/cgroup.controllers", text, sizeof(text)) < 0)
		text[0] = 0;
	say(l, DOCTOR_OK, "", "version 2: %s", *text ? text : "no controllers");
}

/* ---- programs ---- */

static void check_program(struct doctor_line *l, const char *const *argv, const char *without)
{
	char text[160];
	int r = probe_run(argv, text, sizeof(text));
	if (r == -ENOENT)
		say(l, DOCTOR_INFO, without, "not installed");
	else if (r != 0)
		say(l, DOCTOR_WARN, "see why it fails", "`%s %s` fails: %s", argv[0], argv[1],
		    r < 0 ? strerror(-r) : text);
	else
		say(l, DOCTOR_OK, "", "%s", text);
}

#define PROGRAM(fn, name, arg, without)                        \
	static void fn(struct cli *cli, struct doctor_line *l) \
	{                                                      \
		const char *argv[] = { name, arg, NULL };      \
		check_program(l, argv, without);               \
	}
PROGRAM(check_git, "git", "--version", "workspaces work without it")

/* boughd has the shims and runtimes that it would use, and knows what each needs. */
static void check_runtime(struct doctor_line *l, const char *name, const char *without)
{
	struct err err;
	auto_free char *program = NULL;
	char text[190];
	if (program_find("boughd", &program, &err) < 0) {
		say(l, DOCTOR_INFO, "", "unknown without boughd");
		return;
	}
	const char *argv[] = { program, "--runtime", name, NULL };
	int r = probe_run(argv, text, sizeof(text));
	if (r < 0)
		say(l, DOCTOR_WARN, "see why it fails", "boughd --runtime %s: %s", name,
		    strerror(-r));
	else
		say(l, r == 0 ? DOCTOR_OK : DOCTOR_INFO,
		    r == 0 || strncmp(text, "needs root", 10) == 0 ? "" : without, "%s", text);
}

#define RUNTIME(fn, name, without)                             \
	static void fn(struct cli *cli, struct doctor_line *l) \
	{                                                      \
		check_runtime(l, name, without);               \
	}
RUNTIME(check_runc, "runc", "sandboxes need a runtime, and this one does most")
RUNTIME(check_crun, "crun", "one runtime is enough for sandboxes")
RUNTIME(check_runsc, "runsc", "gVisor, for sandboxes that trust less")
RUNTIME(check_kata, "kata", "Kata, for sandboxes in machines of their own")

static const struct {
	const char *name;
	void (*check)(struct cli *cli, struct doctor_line *l);
	bool serves; /* who runs boughd needs it, not who calls it */
} checks[] = {
	{ "kernel", check_kernel, false },
	{ "/dev/fuse", check_dev_fuse, true },
	{ "bough-fs", check_server, false },
	{ "boughd", check_daemon, false },
	{ "disk", check_disk, true },
	{ "parents", check_way, true },
	{ "open files", check_files, true },
	{ "fusermount3", check_fusermount, true },
	{ "allow_other", check_allow_other, true },
	{ "io_uring", check_uring, false },
	{ "fuse io_uring", check_fuse_uring, false },
	{ "user namespaces", check_userns, false },
	{ "idmapped mounts", check_idmap, false },
	{ "overlayfs", check_overlay, false },
	{ "cgroups", check_cgroup, false },
	{ "git", check_git, false },
	{ "runc", check_runc, false },
	{ "crun", check_crun, false },
	{ "runsc", check_runsc, false },
	{ "kata", check_kata, false },
};

unsigned doctor_run(struct cli *cli, struct doctor_line lines[DOCTOR_LINES_MAX])
{
	unsigned n = sizeof(checks) / sizeof(checks[0]);
	bool others = daemon_is_others(cli);
	_Static_assert(sizeof(checks) / sizeof(checks[0]) <= DOCTOR_LINES_MAX,
		       "room for each check");
	for (unsigned i = 0; i < n; i++) {
		lines[i].name = checks[i].name;
		if (others && checks[i].serves)
			say(&lines[i], DOCTOR_INFO, "", "for another user's boughd to have");
		else
			checks[i].check(cli, &lines[i]);
	}
	return n;
}
