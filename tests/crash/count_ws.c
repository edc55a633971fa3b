/* kill -9 of bough-fs while programs run on its mount, and a new one that goes on: no call
 * fails, none is lost, and none is done twice.
 *
 *     count_ws [--seconds N] [--clients N] [--gap-ms N] [--seed S]
 *     count_ws --at DIR --until FILE [--clients N] [--seed S]
 *
 * The second form only does the operations, in a folder of a mount that others see to, until that
 * file is there.
 *
 * Each client does numbered operations, one after the other, of which each works exactly once: a
 * name made with O_EXCL, renamed, linked, unlinked, and so on. It checks each result at once, and
 * what there must be at the end. One server after the other is killed at random moments. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "tests/seed.h"

enum {
	CLIENTS_MAX = 32,
	DATA_BYTES = 192 * 1024, /* of the file whose content is known byte by byte */
	FIXED = 60,              /* entries of the folder that nobody changes */
	START_MS = 20000,
	DEATH_MS = 5000,
	RECORD = 9, /* bytes of one append */
};

static char base[100], mnt[200], root[128];
static uint64_t seed = 1;
static unsigned seconds = 8, nclients = 4, gap_ms = 350;
static struct shared {
	atomic_bool ready, stop, closed;
	_Atomic uint64_t operations, increments;
} *shared;

struct client {
	pthread_t thread;
	unsigned id;
	uint64_t rng, n; /* n: number of the round */
	char dir[64];    /* below the mount */
	int dirfd, log, data, copy, hidden, counter;
	uint8_t *model;
	uint8_t *map;
	uint64_t worst_ns;
	const char *worst;
	uint64_t step_start;
};

static void __attribute__((format(printf, 1, 2), noreturn)) fail(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	(void)fprintf(stderr, "not ok - seed %" PRIu64 ": ", seed);
	(void)vfprintf(stderr, fmt, ap);
	(void)fprintf(stderr, "\n# kept: %s\n", base);
	va_end(ap);
	_exit(1);
}

static uint64_t rnd(uint64_t *rng)
{
	*rng += UINT64_C(0x9e3779b97f4a7c15);
	uint64_t z = *rng;
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* ---- one client ---- */

/* Each call that must work, exactly once. */
#define must(c, what, expression)                                                             \
	({                                                                                    \
		(c)->step_start = clock_ns();                                                 \
		long r_ = (long)(expression);                                                 \
		int e_ = errno;                                                               \
		step_done(c, what);                                                           \
		if (r_ < 0)                                                                   \
			fail("client %u, round %" PRIu64 ": %s: %s", (c)->id, (c)->n, what,   \
			     strerror(e_));                                                   \
		r_;                                                                           \
	})

static void step_done(struct client *c, const char *what)
{
	uint64_t ns = clock_ns() - c->step_start;
	if (ns > c->worst_ns) {
		c->worst_ns = ns;
		c->worst = what;
	}
	atomic_fetch_add(&shared->operations, 1);
}

static void name_of(char out[32], const char *prefix, uint64_t n)
{
	(void)snprintf(out, 32, "%s%" PRIu64, prefix, n);
}

static void do_append(struct client *c)
{
	char text[RECORD + 1];
	(void)snprintf(text, sizeof(text), "%08" PRIx64 "\n", c->n & UINT32_MAX);
	if (must(c, "append", write(c->log, text, RECORD)) != RECORD)
		fail("client %u: a short append", c->id);
}

static void do_names(struct client *c)
{
	char a[32], b[32], l[32];
	struct stat st;
	name_of(a, "a", c->n);
	name_of(b, "b", c->n);
	name_of(l, "l", c->n);
	int fd = (int)must(c, "create with O_EXCL",
			   openat(c->dirfd, a, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
	(void)must(c, "write", write(fd, "x", 1));
	(void)must(c, "rename", renameat(c->dirfd, a, c->dirfd, b));
	(void)must(c, "link", linkat(c->dirfd, b, c->dirfd, l, 0));
	(void)must(c, "fstat", fstat(fd, &st));
	if (st.st_nlink != 2 || st.st_size != 1)
		fail("client %u, round %" PRIu64 ": %lu links, %ld bytes", c->id, c->n,
		     (unsigned long)st.st_nlink, (long)st.st_size);
	(void)must(c, "rename without replacing",
		   renameat2(c->dirfd, b, c->dirfd, a, RENAME_NOREPLACE));
	(void)must(c, "exchange", renameat2(c->dirfd, a, c->dirfd, l, RENAME_EXCHANGE));
	(void)must(c, "unlink", unlinkat(c->dirfd, a, 0));
	(void)must(c, "unlink the last name", unlinkat(c->dirfd, l, 0));
	(void)must(c, "fstat", fstat(fd, &st));
	if (st.st_nlink != 0)
		fail("client %u, round %" PRIu64 ": still has a name", c->id, c->n);
	(void)must(c, "write without a name", pwrite(fd, "y", 1, 1));
	(void)must(c, "close", close(fd));
}

static void do_folders(struct client *c)
{
	char d[32], s[32], target[16];
	name_of(d, "d", c->n);
	name_of(s, "s", c->n);
	(void)must(c, "mkdir", mkdirat(c->dirfd, d, 0700));
	(void)must(c, "symlink", symlinkat("over there", c->dirfd, s));
	if (must(c, "readlink", readlinkat(c->dirfd, s, target, sizeof(target))) != 10)
		fail("client %u: another target", c->id);
	(void)must(c, "unlink a link", unlinkat(c->dirfd, s, 0));
	(void)must(c, "rmdir", unlinkat(c->dirfd, d, AT_REMOVEDIR));
}

static void do_tmpfile(struct client *c)
{
	char t[32], path[64];
	name_of(t, "t", c->n);
	int fd = (int)must(c, "O_TMPFILE",
			   openat(c->dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
	(void)must(c, "write", write(fd, t, strlen(t)));
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	(void)must(c, "give it a name", linkat(AT_FDCWD, path, c->dirfd, t, AT_SYMLINK_FOLLOW));
	(void)must(c, "close", close(fd));
	(void)must(c, "unlink", unlinkat(c->dirfd, t, 0));
}

static void do_attributes(struct client *c)
{
	char value[32], got[32];
	struct stat st;
	off_t size = (off_t)(rnd(&c->rng) % 20000);
	name_of(value, "v", c->n);
	(void)must(c, "setxattr create",
		   fsetxattr(c->copy, "user.n", value, strlen(value), XATTR_CREATE));
	(void)must(c, "setxattr replace",
		   fsetxattr(c->copy, "user.n", value, strlen(value), XATTR_REPLACE));
	ssize_t n = must(c, "getxattr", fgetxattr(c->copy, "user.n", got, sizeof(got)));
	if ((size_t)n != strlen(value) || memcmp(got, value, (size_t)n) != 0)
		fail("client %u: another value", c->id);
	(void)must(c, "removexattr", fremovexattr(c->copy, "user.n"));
	(void)must(c, "truncate", ftruncate(c->copy, size));
	(void)must(c, "chmod", fchmod(c->copy, 0600 | (mode_t)(c->n & 077)));
	(void)must(c, "fstat", fstat(c->copy, &st));
	if (st.st_size != size || (st.st_mode & 077) != (c->n & 077))
		fail("client %u, round %" PRIu64 ": %ld bytes for %ld", c->id, c->n,
		     (long)st.st_size, (long)size);
}

static void compare(struct client *c, int fd, size_t off, size_t n, const char *what)
{
	auto_free uint8_t *got = malloc(n);
	if (!got)
		fail("out of memory");
	if ((size_t)must(c, "read", pread(fd, got, n, (off_t)off)) != n ||
	    memcmp(got, c->model + off, n) != 0)
		fail("client %u, round %" PRIu64 ": %s: other bytes at %zu", c->id, c->n, what,
		     off);
}

static void do_content(struct client *c)
{
	size_t n = 1 + rnd(&c->rng) % 30000, off = rnd(&c->rng) % (DATA_BYTES - n);
	switch (rnd(&c->rng) % 4) {
	case 0:
	case 1:
		for (size_t i = 0; i < n; i++)
			c->model[off + i] = (uint8_t)(c->n + i);
		if ((size_t)must(c, "pwrite", pwrite(c->data, c->model + off, n, (off_t)off)) != n)
			fail("client %u: a short write", c->id);
		break;
	case 2:
		memset(c->model + off, 0, n);
		(void)must(c, "punch", fallocate(c->data,
						 FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
						 (off_t)off, (off_t)n));
		break;
	case 3:
		for (size_t i = 0; i < 500 && i < n; i++)
			c->map[off + i] = c->model[off + i] = (uint8_t)(c->n * 3 + i);
		(void)must(c, "msync", msync(c->map, DATA_BYTES, MS_SYNC));
		break;
	}
	compare(c, c->data, off, n, "data");
	off_t from = 0, to = 0;
	(void)must(c, "truncate", ftruncate(c->copy, 0));
	for (size_t left = DATA_BYTES; left > 0;) {
		ssize_t did = must(c, "copy_file_range",
				   copy_file_range(c->data, &from, c->copy, &to, left, 0));
		if (did == 0)
			fail("client %u: a copy of nothing", c->id);
		left -= (size_t)did;
	}
	compare(c, c->copy, off, n, "copy");
}

/* A file without a name, held open from the first kill to the last. */
static void do_hidden(struct client *c)
{
	uint64_t was = 0;
	if (must(c, "read", pread(c->hidden, &was, sizeof(was), 0)) != sizeof(was) ||
	    was + 1 != c->n)
		fail("client %u: the file without a name has %" PRIu64 " in round %" PRIu64, c->id,
		     was, c->n);
	(void)must(c, "pwrite", pwrite(c->hidden, &c->n, sizeof(c->n), 0));
}

/* All clients share one number, under a lock that only the kernel knows of. */
static void do_counter(struct client *c)
{
	uint64_t n = 0;
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	bool posix = c->n % 2;
	(void)must(c, "lock", posix ? fcntl(c->counter, F_OFD_SETLKW, &whole)
				    : flock(c->counter, LOCK_EX));
	/* The two kinds don't exclude each other: each guards a number of its own. */
	off_t at = posix ? 8 : 0;
	(void)must(c, "read", pread(c->counter, &n, sizeof(n), at));
	n++;
	(void)must(c, "pwrite", pwrite(c->counter, &n, sizeof(n), at));
	whole.l_type = F_UNLCK;
	(void)must(c, "unlock", posix ? fcntl(c->counter, F_OFD_SETLK, &whole)
				      : flock(c->counter, LOCK_UN));
	atomic_fetch_add(&shared->increments, 1);
}

static void do_list(struct client *c)
{
	char path[300];
	unsigned n = 0;
	(void)snprintf(path, sizeof(path), "%s/fixed", mnt);
	c->step_start = clock_ns();
	auto_dir *d = opendir(path);
	struct dirent *e;
	while (d && (errno = 0, e = readdir(d)))
		n++;
	if (!d || errno)
		fail("client %u: list: %s", c->id, strerror(errno));
	step_done(c, "list");
	if (n != FIXED + 2)
		fail("client %u: %u entries", c->id, n);
}

static void *client_main(void *arg)
{
	struct client *c = arg;
	while (!atomic_load(&shared->stop)) {
		c->n++;
		do_append(c);
		do_names(c);
		do_folders(c);
		do_tmpfile(c);
		do_attributes(c);
		do_content(c);
		do_hidden(c);
		do_counter(c);
		do_list(c);
		if (c->n % 8 == 0)
			(void)must(c, "fsync", fsync(c->log));
	}
	return NULL;
}

static void client_open(struct client *c, unsigned id)
{
	char path[300];
	*c = (struct client){ .id = id, .rng = seed * 1000 + id, .worst = "" };
	(void)snprintf(c->dir, sizeof(c->dir), "c%u", id);
	(void)snprintf(path, sizeof(path), "%s/%s", mnt, c->dir);
	(void)must(c, "mkdir", mkdir(path, 0700));
	c->dirfd = (int)must(c, "open", open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	int flags = O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC;
	c->log = (int)must(c, "open", openat(c->dirfd, "log", flags | O_APPEND, 0600));
	c->data = (int)must(c, "open", openat(c->dirfd, "data", flags, 0600));
	c->copy = (int)must(c, "open", openat(c->dirfd, "copy", flags, 0600));
	c->hidden = (int)must(c, "open", openat(c->dirfd, "hidden", flags, 0600));
	(void)must(c, "unlink", unlinkat(c->dirfd, "hidden", 0));
	(void)must(c, "pwrite", pwrite(c->hidden, &c->n, sizeof(c->n), 0));
	(void)must(c, "truncate", ftruncate(c->data, DATA_BYTES));
	(void)snprintf(path, sizeof(path), "%s/counter", mnt);
	c->counter = (int)must(c, "open", open(path, O_RDWR | O_CLOEXEC));
	c->model = calloc(1, DATA_BYTES);
	c->map = mmap(NULL, DATA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, c->data, 0);
	if (!c->model || c->map == MAP_FAILED)
		fail("client %u: mmap: %s", id, strerror(errno));
}

static void client_close(struct client *c)
{
	(void)munmap(c->map, DATA_BYTES);
	const int fds[] = { c->log, c->data, c->copy, c->hidden, c->counter, c->dirfd };
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		(void)must(c, "close", close(fds[i]));
}

/* What must be there when all is done, by whatever server serves it. */
static void client_check(struct client *c)
{
	char path[300];
	auto_free void *text = NULL;
	size_t len, names = 0;
	(void)snprintf(path, sizeof(path), "%s/%s/log", mnt, c->dir);
	if (io_slurp(NULL, AT_FDCWD, path, 1 << 30, &text, &len, NULL) < 0)
		fail("client %u: no log", c->id);
	if (len != c->n * RECORD)
		fail("client %u: %zu bytes for %" PRIu64 " appends", c->id, len, c->n);
	for (uint64_t i = 0; i < c->n; i++) {
		char want[RECORD + 1];
		(void)snprintf(want, sizeof(want), "%08" PRIx64 "\n", (i + 1) & UINT32_MAX);
		if (memcmp((char *)text + i * RECORD, want, RECORD) != 0)
			fail("client %u: append %" PRIu64 " isn't at its place", c->id, i + 1);
	}
	(void)snprintf(path, sizeof(path), "%s/%s/data", mnt, c->dir);
	auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
	compare(c, fd, 0, DATA_BYTES, "data in the end");
	(void)snprintf(path, sizeof(path), "%s/%s", mnt, c->dir);
	auto_dir *d = opendir(path);
	while (d && readdir(d))
		names++;
	if (names != 5)
		fail("client %u: %zu names in its folder", c->id, names);
}

/* ---- servers ---- */

static pid_t start_server(void)
{
	const char *bin = getenv("BOUGH_BIN");
	char program[512], mount_arg[256];
	(void)snprintf(program, sizeof(program), "%s/bough-fs", bin ? bin : "build/release");
	(void)snprintf(mount_arg, sizeof(mount_arg), "ws_count=%s", mnt);
	pid_t pid = fork();
	if (pid < 0)
		fail("fork: %s", strerror(errno));
	if (pid == 0) {
		char log[160];
		(void)snprintf(log, sizeof(log), "%s/log", base);
		int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
		if (fd >= 0 && dup2(fd, STDERR_FILENO) >= 0)
			(void)dup2(fd, STDOUT_FILENO);
		(void)execl(program, "bough-fs", "--root", root, "--hold", "--foreground",
			    "--mount", mount_arg, (char *)NULL);
		_exit(127);
	}
	return pid;
}

static bool is_mounted(void)
{
	struct statfs fs;
	return statfs(mnt, &fs) == 0 && fs.f_type == 0x65735546; /* FUSE_SUPER_MAGIC */
}

static void await_mount(pid_t server)
{
	for (uint64_t end = clock_ms() + START_MS; !is_mounted();) {
		if (waitpid(server, NULL, WNOHANG) != 0 || clock_ms() > end)
			fail("the server doesn't mount: see %s/log", base);
		(void)poll(NULL, 0, 5);
	}
}

static void end_server(pid_t server)
{
	int status;
	(void)kill(server, SIGTERM);
	if (waitpid(server, &status, 0) != server || status != 0)
		fail("the last server ended with status %d", status);
	struct stat here, above;
	if (stat(mnt, &here) == 0 && stat(base, &above) == 0 && here.st_dev != above.st_dev)
		fail("it is still mounted");
}

/* Where the threads of a process are that doesn't die, as root sees it. */
static void show_stacks(pid_t pid)
{
	char path[300];
	(void)snprintf(path, sizeof(path), "/proc/%d/task", pid);
	auto_dir *d = opendir(path);
	for (struct dirent *e; d && (e = readdir(d));) {
		auto_free void *text = NULL;
		size_t len;
		(void)snprintf(path, sizeof(path), "/proc/%d/task/%.20s/stack", pid, e->d_name);
		if (e->d_name[0] != '.' &&
		    io_slurp(NULL, AT_FDCWD, path, 65536, &text, &len, NULL) == 0)
			(void)fprintf(stderr, "# thread %s\n%.*s", e->d_name, (int)len,
				      (char *)text);
	}
}

static void await_death(pid_t server, int *status)
{
	pid_t r;
	for (uint64_t end = clock_ms() + DEATH_MS;
	     (r = waitpid(server, status, WNOHANG)) == 0 && clock_ms() < end;)
		(void)poll(NULL, 0, 1);
	if (r == 0) {
		show_stacks(server);
		fail("the server doesn't die");
	}
	if (r < 0)
		fail("wait: %s", strerror(errno));
}

/* Kills and starts servers until the time is over. *slowest_ns: from a kill to the first answer. */
static unsigned kill_servers(pid_t *server, pid_t clients, uint64_t *slowest_ns,
			     uint64_t *sum_ns)
{
	unsigned kills = 0;
	uint64_t rng = seed;
	for (uint64_t end = clock_ms() + seconds * 1000; clock_ms() < end; kills++) {
		int status;
		struct statfs fs;
		(void)poll(NULL, 0, (int)(rnd(&rng) % (2 * gap_ms)));
		if (waitpid(clients, &status, WNOHANG) != 0)
			exit(1); /* it has said why */
		uint64_t start = clock_ns();
		if (kill(*server, SIGKILL) < 0)
			fail("kill: %s", strerror(errno));
		await_death(*server, &status);
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
			fail("a server ended by itself, with status %d: see %s/log", status, base);
		*server = start_server();
		if (statfs(mnt, &fs) < 0)
			fail("statfs: %s", strerror(errno));
		uint64_t ns = clock_ns() - start;
		*slowest_ns = ns > *slowest_ns ? ns : *slowest_ns;
		*sum_ns += ns;
	}
	return kills;
}

static void prepare(void)
{
	char path[300];
	for (unsigned i = 0; i < FIXED; i++) {
		(void)snprintf(path, sizeof(path), "%s/fixed", mnt);
		if (i == 0 && mkdir(path, 0700) < 0)
			fail("mkdir: %s", strerror(errno));
		(void)snprintf(path, sizeof(path), "%s/fixed/file-%u", mnt, i);
		auto_fd fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
		if (fd < 0)
			fail("create: %s", strerror(errno));
	}
	uint64_t zeros[2] = { 0 };
	(void)snprintf(path, sizeof(path), "%s/counter", mnt);
	auto_fd fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, zeros, sizeof(zeros)) != sizeof(zeros))
		fail("counter: %s", strerror(errno));
}

static void check_counter(void)
{
	char path[300];
	uint64_t n[2] = { 0 };
	(void)snprintf(path, sizeof(path), "%s/counter", mnt);
	auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, n, sizeof(n)) != sizeof(n))
		fail("counter: %s", strerror(errno));
	if (n[0] + n[1] != atomic_load(&shared->increments))
		fail("%" PRIu64 " increments were counted as %" PRIu64,
		     atomic_load(&shared->increments), n[0] + n[1]);
}

/* The clients are a process of their own: one that has files of the mount open can't start a
 * server, since closing them for it in the child may have to wait for that very server. */
static void run_clients(void)
{
	static struct client clients[CLIENTS_MAX];
	prepare();
	for (unsigned i = 0; i < nclients; i++)
		client_open(&clients[i], i);
	atomic_store(&shared->ready, true);
	for (unsigned i = 0; i < nclients; i++)
		if (pthread_create(&clients[i].thread, NULL, client_main, &clients[i]) != 0)
			fail("start a thread");
	struct client *worst = &clients[0];
	for (unsigned i = 0; i < nclients; i++) {
		(void)pthread_join(clients[i].thread, NULL);
		worst = clients[i].worst_ns > worst->worst_ns ? &clients[i] : worst;
	}
	printf("# seed %" PRIu64 ": %" PRIu64 " calls, the longest %.0f ms (%s)\n", seed,
	       atomic_load(&shared->operations), (double)worst->worst_ns / 1e6, worst->worst);
	for (unsigned i = 0; i < nclients; i++) {
		client_check(&clients[i]);
		client_close(&clients[i]);
	}
	check_counter();
	/* And once more, after an end in order and by another server. */
	atomic_store(&shared->ready, false);
	atomic_store(&shared->closed, true);
	while (!atomic_load(&shared->ready))
		(void)poll(NULL, 0, 5);
	for (unsigned i = 0; i < nclients; i++)
		client_check(&clients[i]);
	check_counter();
	_exit(0);
}

static void await_clients(pid_t clients, atomic_bool *what)
{
	int status;
	while (!atomic_load(what)) {
		if (waitpid(clients, &status, WNOHANG) != 0)
			exit(1); /* it has said why */
		(void)poll(NULL, 0, 5);
	}
}

/* On a mount that somebody else kills the servers of. */
static void run_at(const char *until)
{
	int status;
	pid_t clients = fork();
	if (clients < 0)
		fail("fork: %s", strerror(errno));
	if (clients == 0)
		run_clients();
	await_clients(clients, &shared->ready);
	while (access(until, F_OK) < 0) {
		if (waitpid(clients, &status, WNOHANG) != 0)
			exit(1); /* it has said why */
		(void)poll(NULL, 0, 20);
	}
	atomic_store(&shared->stop, true);
	await_clients(clients, &shared->closed);
	atomic_store(&shared->ready, true);
	if (waitpid(clients, &status, 0) != clients || status != 0)
		exit(1); /* it has said why */
}

static void run(void)
{
	uint64_t slowest_ns = 0, sum_ns = 0;
	int status;
	pid_t server = start_server();
	await_mount(server);
	pid_t clients = fork();
	if (clients < 0)
		fail("fork: %s", strerror(errno));
	if (clients == 0)
		run_clients();
	await_clients(clients, &shared->ready);
	unsigned kills = kill_servers(&server, clients, &slowest_ns, &sum_ns);
	atomic_store(&shared->stop, true);
	await_clients(clients, &shared->closed);
	printf("# %u kills; from a kill to the first answer %.0f ms, at most %.0f ms\n", kills,
	       kills ? (double)sum_ns / 1e6 / kills : 0, (double)slowest_ns / 1e6);
	end_server(server);
	server = start_server();
	await_mount(server);
	atomic_store(&shared->ready, true);
	if (waitpid(clients, &status, 0) != clients || status != 0)
		exit(1); /* it has said why */
	end_server(server);
}

static unsigned number(const char *s)
{
	return (unsigned)strtoul(s, NULL, 10);
}

int main(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR"), *at = NULL, *until = "/";
	seed = test_seed();
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--seconds") == 0)
			seconds = number(argv[i + 1]);
		else if (strcmp(argv[i], "--clients") == 0)
			nclients = number(argv[i + 1]);
		else if (strcmp(argv[i], "--gap-ms") == 0)
			gap_ms = number(argv[i + 1]);
		else if (strcmp(argv[i], "--seed") == 0)
			seed = strtoull(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--at") == 0)
			at = argv[i + 1];
		else if (strcmp(argv[i], "--until") == 0)
			until = argv[i + 1];
	}
	if (nclients == 0 || nclients > CLIENTS_MAX || gap_ms == 0)
		return 2;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (shared == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	if (at) {
		(void)snprintf(mnt, sizeof(mnt), "%s", at);
		run_at(until);
		return 0;
	}
	if (access("/dev/fuse", R_OK | W_OK) < 0) {
		printf("1..0 # SKIP no /dev/fuse\n");
		return 0;
	}
	(void)snprintf(base, sizeof(base), "%s/count_ws.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(base))
		fail("mkdtemp: %s", strerror(errno));
	(void)snprintf(root, sizeof(root), "%s/root", base);
	(void)snprintf(mnt, sizeof(mnt), "%s/mnt", base);
	run();
	printf("1..1\nok 1 - every call worked, exactly once\n");
	(void)io_remove_tree(AT_FDCWD, base, NULL); /* what is left lies in a scratch folder */
	return 0;
}
