#include "runtime/program.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"

extern char **environ;

/* 0, or a negated errno: posix_spawn's way of telling is a positive one. */
static int spawn(const struct program *c, int out, int errors, pid_t *pid)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, all;
	sigemptyset(&none);
	sigfillset(&all);
	int r = posix_spawn_file_actions_init(&files);
	if (r)
		return -r;
	r = posix_spawnattr_init(&attr);
	if (r) {
		posix_spawn_file_actions_destroy(&files);
		return -r;
	}
	r = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
	r = r ? r : posix_spawn_file_actions_adddup2(&files, out, 1);
	r = r ? r : posix_spawn_file_actions_adddup2(&files, errors, 2);
	r = r ? r : posix_spawn_file_actions_addclosefrom_np(&files, 3);
	if (c->dir)
		r = r ? r : posix_spawn_file_actions_addchdir_np(&files, c->dir);
	r = r ? r : posix_spawnattr_setsigmask(&attr, &none);
	r = r ? r : posix_spawnattr_setsigdefault(&attr, &all);
	r = r ? r : posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	r = r ? r
	      : posix_spawn(pid, c->argv[0], &files, &attr, (char *const *)c->argv,
			    c->env ? (char *const *)c->env : environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	return -r;
}

/* Takes what is in the pipe; < 0 at its end. */
static int take(int fd, struct buf *b, size_t max)
{
	char part[4096];
	ssize_t n;
	while ((n = read(fd, part, sizeof(part))) > 0) {
		size_t room = b->len < max ? max - b->len : 0;
		buf_add(b, part, (size_t)n < room ? (size_t)n : room);
	}
	return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

/* Reads both until the process has ended or the time is up (-ETIMEDOUT). */
static int collect(const struct program *c, int pidfd, int fds[2], struct buf *bufs[2])
{
	int64_t deadline = (int64_t)clock_ms() + c->timeout_ms;
	struct pollfd p[] = { { pidfd, POLLIN, 0 }, { fds[0], POLLIN, 0 }, { fds[1], POLLIN, 0 } };
	for (;;) {
		int64_t left = deadline - (int64_t)clock_ms();
		if (left <= 0)
			return -ETIMEDOUT;
		int r = poll(p, 3, (int)left);
		if (r < 0 && errno != EINTR)
			return -errno;
		for (int i = 0; r > 0 && i < 2; i++)
			if (p[i + 1].revents && take(fds[i], bufs[i], c->max) < 0)
				p[i + 1].fd = -1;
		if (r > 0 && p[0].revents)
			break;
	}
	for (int i = 0; i < 2; i++)
		(void)take(fds[i], bufs[i], c->max);
	return 0;
}

static int pidfd_of(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0); /* close-on-exec */
	return fd < 0 ? -errno : fd;
}

/* The outputs: read end (which doesn't block) and write end. */
static int make_pipe(int *rd, int *wr)
{
	int fds[2];
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	*rd = fds[0];
	*wr = fds[1];
	return fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

int program_run(const struct program *c, struct buf *out, struct buf *errors, struct err *err)
{
	auto_buf lost1 = { 0 }, lost2 = { 0 };
	struct buf *bufs[2] = { out ? out : &lost1, errors ? errors : &lost2 };
	auto_fd rd1 = -1, wr1 = -1, rd2 = -1, wr2 = -1;
	pid_t pid;
	int r = make_pipe(&rd1, &wr1);
	r = r < 0 ? r : make_pipe(&rd2, &wr2);
	if (r < 0)
		return err_sys(err, r, "make a pipe");
	r = spawn(c, wr1, wr2, &pid);
	if (r < 0)
		return err_sys(err, r, "run %s", c->argv[0]);
	cleanup_close(&wr1), wr1 = -1;
	cleanup_close(&wr2), wr2 = -1;
	auto_fd pidfd = pidfd_of(pid);
	r = pidfd < 0 ? pidfd : collect(c, pidfd, (int[]){ rd1, rd2 }, bufs);
	if (r < 0)
		(void)kill(pid, SIGKILL); /* ours until it is waited for */
	int status = 0;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_sys(err, -errno, "wait for %s", c->argv[0]);
	if (r == -ETIMEDOUT)
		return err_set(err, r, "%s didn't end within %d s", c->argv[0],
			       c->timeout_ms / 1000);
	if (r < 0)
		return err_sys(err, r, "wait for %s", c->argv[0]);
	if (buf_error(bufs[0]) || buf_error(bufs[1]))
		return err_no_memory(err);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool program_ended(int pidfd, int timeout_ms)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };
	int r;
	do
		r = poll(&p, 1, timeout_ms);
	while (r < 0 && errno == EINTR);
	return r == 1;
}
