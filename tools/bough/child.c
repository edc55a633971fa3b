#include "tools/bough/child.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "tools/bough/start.h"

int child_start(pid_t *pid, char *const argv[], const int fds[3], struct err *err)
{
	auto_free char *program = NULL;
	int r = program_find(argv[0], &program, err);
	if (r < 0)
		return r == -ENOENT ? -EIO : r; /* it isn't what the caller named */
	posix_spawn_file_actions_t fa;
	int e = posix_spawn_file_actions_init(&fa);
	if (e)
		return err_sys(err, -e, "start %s", program);
	for (int i = 0; i < 3 && !e; i++)
		if (fds[i] >= 0)
			e = posix_spawn_file_actions_adddup2(&fa, fds[i], i);
	pid_t p = 0;
	if (!e)
		e = posix_spawn(&p, program, &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	if (e)
		return err_sys(err, -e, "start %s", program);
	*pid = p;
	return 0;
}

int child_wait(pid_t *pid, const char *name, struct err *err)
{
	int status;
	pid_t p = *pid;
	*pid = 0;
	while (waitpid(p, &status, 0) < 0)
		if (errno != EINTR)
			return err_sys(err, -errno, "wait for %s", name);
	if (WIFSIGNALED(status))
		return err_set(err, -EIO, "%s was killed by signal %d", name, WTERMSIG(status));
	return WEXITSTATUS(status);
}

void child_kill(pid_t *pid)
{
	if (!*pid)
		return;
	(void)kill(*pid, SIGKILL); /* it may have ended already */
	(void)child_wait(pid, "", NULL);
}

int child_input(const void *data, size_t len, struct err *err)
{
	auto_fd fd = memfd_create("bough", MFD_CLOEXEC);
	if (fd < 0)
		return err_sys(err, -errno, "keep what a program is to read");
	for (size_t done = 0; done < len;) {
		ssize_t n = write(fd, (const char *)data + done, len - done);
		if (n < 0 && errno != EINTR)
			return err_sys(err, -errno, "keep what a program is to read");
		done += n > 0 ? (size_t)n : 0;
	}
	if (lseek(fd, 0, SEEK_SET) < 0)
		return err_sys(err, -errno, "keep what a program is to read");
	return steal_fd(&fd);
}
