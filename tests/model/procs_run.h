/* What the parts of the model of several processes (procs.c) share: its state, how it fails, the
 * programs it starts and kills, and how trees are compared. */
#ifndef BOUGH_TESTS_PROCS_RUN_H
#define BOUGH_TESTS_PROCS_RUN_H

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "tests/model/procs_op.h"

enum {
	CLIENTS_MAX = 6,
	PAIRS = 2,     /* workspaces, each with its directory */
	SNAPSHOTS = 2, /* that are restored */
	SEGMENT = 700, /* operations of a client between two barriers */
	EPOCH = 12,    /* segments on one root */
	NODES_MAX = 8192,
	WAIT_S = 180, /* for one segment: then something hangs */
	TRIES = 2,    /* of a script that may be shorter */
};

/* What happens beside a segment, and at its end. */
enum disturb { D_KILL = 1, D_FORK = 2, D_SAVE = 4, D_GC = 8, D_ALL = 15 };
enum act {
	ACT_NONE,
	ACT_FORK,
	ACT_SNAPSHOT,
	ACT_RESTORE,
	ACT_CREATE,
	ACT_REMOUNT,
	ACT_KILL,
	ACT_KILL_ALL,
	ACT_BOUNCE,
	ACT_GC,
	ACT_KINDS
};
static const char *const act_names[ACT_KINDS] = { "none",   "fork",    "snapshot", "restore",
						  "create", "remount", "kill",     "kill-all",
						  "bounce", "gc" };

struct segment {
	unsigned disturb, act, from, to; /* from, to: which workspaces or snapshots */
	uint32_t n[CLIENTS_MAX];
	struct op ops[CLIENTS_MAX][SEGMENT];
};

static struct shared {
	struct segment now;
	bool generate;
	_Atomic uint32_t at[CLIENTS_MAX]; /* operations that were begun */
	atomic_bool failed, over;
	_Atomic uint64_t kills, checks, forks, saves, ops;
	char why[900];
	struct segment script[EPOCH]; /* what was done on this root */
	unsigned segments;
} * shared;

struct pair {
	char name[24], dir[140], mnt[PATH_MAX];
	bool used;
};

static struct {
	uint64_t seed, rng, max_ops;
	unsigned clients, shrink_s, serial;
	bool sabotage;
	char base[100], root[120], bin[PATH_MAX];
	struct pair pairs[PAIRS];
	struct {
		bool used;
		char name[24], dir[140];
	} snaps[SNAPSHOTS];
} m = { .max_ops = 12000, .clients = 3, .shrink_s = 120 };

static uint64_t next(uint64_t *rng)
{
	*rng += UINT64_C(0x9e3779b97f4a7c15);
	uint64_t z = *rng;
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static unsigned below(uint64_t *rng, unsigned n)
{
	return (unsigned)(next(rng) % n);
}

/* Remembers why, the first time. */
static void __attribute__((format(printf, 1, 2))) note(const char *fmt, ...)
{
	va_list ap;
	if (atomic_exchange(&shared->failed, true))
		return;
	va_start(ap, fmt);
	(void)vsnprintf(shared->why, sizeof(shared->why), fmt, ap);
	va_end(ap);
}
#define differ(...)                \
	do {                       \
		note(__VA_ARGS__); \
		_exit(1);          \
	} while (0)

/* ---- the programs ---- */

/* bough with these arguments (NULL ends them); *out gets the first line of what it prints. */
static int bough(char *out, size_t cap, ...)
{
	char *argv[12] = { "bough" }, program[PATH_MAX + 8], log[160];
	va_list ap;
	va_start(ap, cap);
	for (unsigned i = 1; i < 11 && (argv[i] = va_arg(ap, char *)); i++)
		;
	va_end(ap);
	(void)snprintf(program, sizeof(program), "%s/bough", m.bin);
	(void)snprintf(log, sizeof(log), "%s/bough.log", m.base);
	int pipes[2], status = -1;
	if (pipe2(pipes, O_CLOEXEC) < 0)
		differ("pipe: %s", strerror(errno));
	pid_t pid = fork();
	if (pid == 0) {
		int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
		if (fd >= 0 && dup2(fd, STDERR_FILENO) >= 0 && dup2(pipes[1], STDOUT_FILENO) >= 0)
			(void)execv(program, argv);
		_exit(127);
	}
	(void)close(pipes[1]);
	size_t n = 0;
	char c;
	while (pid > 0 && read(pipes[0], &c, 1) == 1)
		if (n + 1 < cap && c != '\n')
			out[n++] = c;
	if (cap)
		out[n] = '\0';
	(void)close(pipes[0]);
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		differ("start bough: %s", strerror(errno));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}
#define BOUGH(...) bough(NULL, 0, __VA_ARGS__, NULL)

/* Where nothing disturbs: it must work. */
#define MUST(...)                                                             \
	do {                                                                  \
		if (BOUGH(__VA_ARGS__) != 0)                                  \
			differ("bough %s failed: see %s/bough.log",           \
			       ((const char *[]){ __VA_ARGS__ })[0], m.base); \
	} while (0)

static bool serves(const char *pid, const char *name)
{
	char path[300];
	auto_free void *comm = NULL;
	auto_free void *line = NULL;
	size_t n, len;
	(void)snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	if (io_slurp(NULL, AT_FDCWD, path, 64, &comm, &n, NULL) < 0 || n != strlen(name) + 1 ||
	    memcmp(comm, name, n - 1) != 0)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/%s/cmdline", pid);
	return io_slurp(NULL, AT_FDCWD, path, 65536, &line, &len, NULL) == 0 &&
	       memmem(line, len, m.root, strlen(m.root) + 1);
}

static void kill_program(const char *name)
{
	auto_dir *d = opendir("/proc");
	for (struct dirent *e; d && (e = readdir(d));)
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && serves(e->d_name, name)) {
			(void)kill((pid_t)strtol(e->d_name, NULL, 10), SIGKILL);
			atomic_fetch_add(&shared->kills, 1);
		}
}

/* Until somebody serves, and every mount answers. */
static void await_service(void)
{
	uint64_t end = clock_ms() + 60000;
	while (BOUGH("ls", "-q") != 0)
		if (clock_ms() > end)
			differ("no service: see %s/root/run/boughd.log", m.base);
		else
			(void)poll(NULL, 0, 50);
	for (unsigned i = 0; i < PAIRS; i++) {
		struct statfs fs;
		while (m.pairs[i].used && statfs(m.pairs[i].mnt, &fs) < 0)
			if (clock_ms() > end)
				differ("%s doesn't answer: %s", m.pairs[i].name, strerror(errno));
			else
				(void)poll(NULL, 0, 50);
	}
}

static void run_tool(const char *const *argv)
{
	int status = -1;
	pid_t pid = fork();
	if (pid == 0) {
		(void)execvp(argv[0], (char *const *)argv);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
		differ("%s: status %x", argv[0], (unsigned)status);
}

static void copy_dir(const char *from, const char *to)
{
	run_tool((const char *const[]){ "cp", "-a", "--sparse=auto", "--reflink=never", "-T", from,
					to, NULL });
}

static void remove_dir(const char *dir)
{
	struct err err;
	if (io_remove_tree(AT_FDCWD, dir, &err) < 0)
		differ("remove %s: %s", dir, err.text);
}

/* ---- comparing ---- */

/* Which inode of the one is which of the other. */
struct nodes {
	struct {
		ino_t a, b;
	} v[NODES_MAX];
	size_t n;
};

static void same_node(struct nodes *t, const char *path, ino_t a, ino_t b)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->v[i].a == a || t->v[i].b == b) {
			if (t->v[i].a != a || t->v[i].b != b)
				differ("%s is another inode than the host's links say", path);
			return;
		}
	if (t->n < NODES_MAX)
		t->v[t->n].a = a, t->v[t->n++].b = b;
}

static void same_content(const char *path, int a, int b)
{
	static unsigned char x[OP_BYTES], y[OP_BYTES];
	for (off_t at = 0;; at += OP_BYTES) {
		ssize_t n = pread(a, x, OP_BYTES, at), k = pread(b, y, OP_BYTES, at);
		if (n != k || n < 0)
			differ("%s: read %zd at %ld, host %zd", path, n, (long)at, k);
		for (ssize_t i = 0; n > 0 && memcmp(x, y, (size_t)n) != 0; i++)
			if (x[i] != y[i])
				differ("%s: byte %ld is %02x, host %02x", path, (long)at + i, x[i],
				       y[i]);
		if (n < OP_BYTES)
			return;
	}
}

static void same_xattrs(const char *path, int a, int b)
{
	static const char *const names[] = { "user.one", "user.two", "user.three" };
	char x[3000], y[3000];
	if (flistxattr(a, NULL, 0) != flistxattr(b, NULL, 0))
		differ("%s: other xattrs", path);
	for (unsigned i = 0; i < 3; i++) {
		ssize_t n = fgetxattr(a, names[i], x, sizeof(x)),
			k = fgetxattr(b, names[i], y, sizeof(y));
		if (n != k || (n > 0 && memcmp(x, y, (size_t)n) != 0))
			differ("%s: %s differs (%zd, host %zd)", path, names[i], n, k);
	}
}

static void same_tree(struct nodes *t, const char *path, int a, int b, const char *name);

static void same_folder(struct nodes *t, const char *path, int a, int b)
{
	struct dirent **la, **lb;
	char sub[PATH_MAX];
	int n = op_names(a, ".", &la), k = op_names(b, ".", &lb);
	if (n < 0 || k < 0)
		differ("%s: list %d, host %d", path, n, k);
	for (int i = 0; i < n || i < k; i++)
		if (i >= n || i >= k || strcmp(la[i]->d_name, lb[i]->d_name) != 0)
			differ("%s: name %s, host %s", path, i < n ? la[i]->d_name : "(none)",
			       i < k ? lb[i]->d_name : "(none)");
	for (int i = 0; i < n; i++) {
		const char *s = la[i]->d_name;
		if (strcmp(s, ".") != 0 && strcmp(s, "..") != 0) {
			(void)snprintf(sub, sizeof(sub), "%.3000s/%s", path, s);
			same_tree(t, sub, a, b, s);
		}
		free(la[i]);
		free(lb[i]);
	}
	free(la);
	free(lb);
}

/* `name` in the folders a and b, and what is below. */
static void same_tree(struct nodes *t, const char *path, int a, int b, const char *name)
{
	struct stat sa, sb;
	static struct op_out x, y;
	if (fstatat(a, name, &sa, AT_SYMLINK_NOFOLLOW) < 0 ||
	    fstatat(b, name, &sb, AT_SYMLINK_NOFOLLOW) < 0)
		differ("%s: %s", path, strerror(errno));
	op_out_stat(&x, &sa);
	op_out_stat(&y, &sb);
	if (strcmp((char *)x.data, (char *)y.data) != 0)
		differ("%s: %s, host %s", path, (char *)x.data, (char *)y.data);
	if (sa.st_nlink > 1 && !S_ISDIR(sa.st_mode))
		same_node(t, path, sa.st_ino, sb.st_ino);
	if (S_ISLNK(sa.st_mode)) {
		ssize_t n = readlinkat(a, name, (char *)x.data, OP_BYTES);
		if (n != readlinkat(b, name, (char *)y.data, OP_BYTES) || n < 0 ||
		    memcmp(x.data, y.data, (size_t)n) != 0)
			differ("%s: another target", path);
	}
	if (!S_ISREG(sa.st_mode) && !S_ISDIR(sa.st_mode))
		return;
	auto_fd fa = op_open(a, name, O_RDONLY), fb = op_open(b, name, O_RDONLY);
	if (fa < 0 || fb < 0)
		differ("%s: open: %d, host %d", path, fa, fb);
	same_xattrs(path, fa, fb);
	if (S_ISREG(sa.st_mode))
		same_content(path, fa, fb);
	else
		same_folder(t, path, fa, fb);
}

/* A folder below one mount point and the same below a plain directory. */
static void compare(const char *what, const char *mnt, const char *dir, const char *name)
{
	auto_free struct nodes *t = calloc(1, sizeof(*t));
	auto_fd a = open(mnt, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_fd b = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!t || a < 0 || b < 0)
		differ("open %s: %s", what, strerror(errno));
	same_tree(t, what, a, b, name);
	atomic_fetch_add(&shared->checks, 1);
}

static void compare_all(const char *when)
{
	char what[100];
	for (unsigned i = 0; i < PAIRS; i++) {
		(void)snprintf(what, sizeof(what), "%s: %s", when, m.pairs[i].name);
		if (m.pairs[i].used)
			compare(what, m.pairs[i].mnt, m.pairs[i].dir, ".");
	}
}

#endif
