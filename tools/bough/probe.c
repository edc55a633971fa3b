#include "tools/bough/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"

static int spawn_probe(const char *const *argv, int out, pid_t *pid)
{
	posix_spawn_file_actions_t fa;
	int e = posix_spawn_file_actions_init(&fa);
	if (e)
		return -e;
	if (!(e = posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0)) &&
	    !(e = posix_spawn_file_actions_adddup2(&fa, out, 1)) &&
	    !(e = posix_spawn_file_actions_adddup2(&fa, out, 2)))
		e = posix_spawnp(pid, argv[0], &fa, NULL, (char *const *)argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	return -e;
}

/* Reads until the end, the deadline or a full buffer; 0 or -ETIMEDOUT. */
static int collect(int fd, int64_t deadline, char *out, size_t size)
{
	size_t at = 0;
	char spill[512];
	out[0] = 0;
	for (;;) {
		int64_t left = deadline - clock_ms();
		struct pollfd p = { .fd = fd, .events = POLLIN };
		if (left <= 0)
			return -ETIMEDOUT;
		int n = poll(&p, 1, (int)left);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n <= 0)
			continue;
		bool full = at + 1 >= size;
		ssize_t got = read(fd, full ? spill : out + at,
				   full ? sizeof(spill) : size - at - 1);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return 0;
		if (!full) {
			at += (size_t)got;
			out[at] = 0;
		}
	}
}

int probe_run_all(const char *const *argv, char *out, size_t size)
{
	int p[2];
	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	auto_fd read_end = p[0];
	pid_t pid;
	int r = spawn_probe(argv, p[1], &pid);
	(void)close(p[1]);
	if (r < 0)
		return r;
	r = collect(read_end, clock_ms() + PROBE_MS, out, size);
	if (r < 0)
		(void)kill(pid, SIGKILL);
	int status;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	if (r < 0)
		return r;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

int probe_run(const char *const *argv, char *out, size_t size)
{
	int r = probe_run_all(argv, out, size);
	if (r >= 0)
		out[strcspn(out, "\r\n")] = 0;
	return r;
}

int probe_file(const char *path, char *out, size_t size)
{
	auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ssize_t n = read(fd, out, size - 1);
	if (n < 0)
		return -errno;
	out[n] = 0;
	out[strcspn(out, "\n")] = 0;
	return 0;
}
