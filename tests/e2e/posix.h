/* What the posix_* programs share: each takes a directory and runs its table of cases there,
 * printing TAP. The same program is run on a mount of Bough and, as the judge of the
 * cases themselves, on a host filesystem (posix.t).
 *
 * Each case runs in a process of its own, in an empty directory of its own as the current one,
 * with umask 022. A check that doesn't hold prints where, and ends the case. */
#ifndef BOUGH_TESTS_POSIX_H
#define BOUGH_TESTS_POSIX_H

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "fs/base/io.h"

enum {
	CASE_ROOT = 1, /* needs root */
	CASE_MAY = 2,  /* a host filesystem may lack it: not judged there */
	CASE_SECONDS = 120,
	OTHER = 65534, /* uid and gid of somebody else */
};

struct posix_case {
	const char *name;
	void (*fn)(void);
	unsigned flags;
};

#define CHECK(x)                                                                            \
	do {                                                                                \
		if (!(x)) {                                                                 \
			fprintf(stderr, "# %s:%d: %s (errno %s)\n", __FILE__, __LINE__, #x, \
				strerrorname_np(errno));                                    \
			_exit(1);                                                           \
		}                                                                           \
	} while (0)

/* The call succeeds; its value. */
#define OK(x)                                                                        \
	({                                                                           \
		__typeof__(x) r_ = (x);                                              \
		if (r_ < 0) {                                                        \
			fprintf(stderr, "# %s:%d: %s: %s\n", __FILE__, __LINE__, #x, \
				strerrorname_np(errno));                             \
			_exit(1);                                                    \
		}                                                                    \
		r_;                                                                  \
	})

/* The call fails with exactly that errno. */
#define FAILS(x, e)                                                                              \
	do {                                                                                     \
		errno = 0;                                                                       \
		long r_ = (long)(x);                                                             \
		int got_ = r_ < 0 ? errno : 0;                                                   \
		if (got_ != (e)) {                                                               \
			fprintf(stderr, "# %s:%d: %s gave %s, not %s\n", __FILE__, __LINE__, #x, \
				got_ ? strerrorname_np(got_) : "success", #e);                   \
			_exit(1);                                                                \
		}                                                                                \
	} while (0)

/* Runs the block in a child, as somebody else where `uid` isn't the present one; the case fails
 * when the child does. */
#define IN_CHILD(uid, ...)           \
	do {                         \
		fflush(NULL);        \
		pid_t pid_ = fork(); \
		CHECK(pid_ >= 0);    \
		if (pid_ == 0) {     \
			become(uid); \
			__VA_ARGS__; \
			_exit(0);    \
		}                    \
		join(pid_);          \
	} while (0)

static inline void join(pid_t pid)
{
	int status;
	OK(waitpid(pid, &status, 0));
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		_exit(1); /* the child has said why */
}

static inline void become(uid_t uid)
{
	if (uid == geteuid())
		return;
	OK(setgroups(0, NULL));
	OK(setresgid((gid_t)uid, (gid_t)uid, (gid_t)uid));
	OK(setresuid(uid, uid, uid));
}

static inline struct stat stat_of(const char *path)
{
	struct stat st;
	OK(lstat(path, &st));
	return st;
}

static inline void put_file(const char *path, const char *text, mode_t mode)
{
	int fd = OK(open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	OK(close(fd));
	OK(chmod(path, mode));
}

static inline bool file_is(const char *path, const char *text)
{
	char buf[4096];
	int fd = OK(open(path, O_RDONLY | O_CLOEXEC));
	ssize_t n = OK(read(fd, buf, sizeof(buf)));
	OK(close(fd));
	return (size_t)n == strlen(text) && memcmp(buf, text, (size_t)n) == 0;
}

static inline bool later(struct timespec a, struct timespec b) /* a after b */
{
	return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec > b.tv_nsec);
}

static inline bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* Long enough for the coarse clock of any filesystem to move. */
static inline void tick(void)
{
	OK(usleep(12000));
}

static int run_case(const char *dir, const struct posix_case *c)
{
	char path[4096];
	(void)snprintf(path, sizeof(path), "%s/%s", dir, c->name);
	if (mkdir(path, 0777) < 0) {
		fprintf(stderr, "# mkdir %s: %s\n", path, strerror(errno));
		return 1;
	}
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		(void)setpgid(0, 0); /* so that what it started ends with it */
		OK(chdir(path));
		(void)umask(022);
		(void)alarm(CASE_SECONDS);
		c->fn();
		_exit(0);
	}
	int status = -1;
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return 1;
	(void)kill(-pid, SIGKILL); /* mostly there is nobody left */
	if (WIFSIGNALED(status))
		fprintf(stderr, "# killed by signal %d\n", WTERMSIG(status));
	struct err err;
	if (io_remove_tree(AT_FDCWD, path, &err) < 0) {
		fprintf(stderr, "# remove: %s\n", err.text);
		return 1;
	}
	return status != 0;
}

/* PROGRAM DIR [--judge] [CASE]: --judge: a host filesystem, which may lack what is CASE_MAY. */
static int run_cases(int argc, char **argv, const struct posix_case *cases, size_t n)
{
	if (argc < 2) {
		fprintf(stderr, "usage: %s DIR [--judge] [CASE]\n", argv[0]);
		return 2;
	}
	bool judge = argc > 2 && strcmp(argv[2], "--judge") == 0;
	const char *only = argc > 2 + judge ? argv[2 + judge] : NULL;
	int failed = 0, number = 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < n; i++) {
		const struct posix_case *c = &cases[i];
		if (only && strcmp(only, c->name) != 0)
			continue;
		number++;
		if (c->flags & CASE_ROOT && geteuid() != 0) {
			printf("ok %d - %s # SKIP needs root\n", number, c->name);
			continue;
		}
		int bad = run_case(argv[1], c);
		if (bad && judge && c->flags & CASE_MAY) {
			printf("ok %d - %s (the host differs)\n", number, c->name);
			continue;
		}
		printf("%sok %d - %s\n", bad ? "not " : "", number, c->name);
		failed += bad;
	}
	printf("1..%d\n", number);
	return failed ? 1 : 0;
}

#endif
