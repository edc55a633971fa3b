/* A user namespace belongs to whoever makes it, and what its processes use up of the limits of
 * users counts for its owner too: so a child makes it as the user that the sandbox's root is. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "runtime/mounts.h"

/* As that user, but with the capabilities that it had: where making a namespace is for the
 * privileged alone, this one is. By system calls, since libc would change all threads (of which a
 * forked child has one). */
int userns_become(uint32_t id)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];
	if (prctl(PR_SET_KEEPCAPS, 1) < 0 || syscall(SYS_setresgid, id, id, id) < 0 ||
	    syscall(SYS_setresuid, id, id, id) < 0 || syscall(SYS_capget, &head, caps) < 0)
		return -errno;
	caps[0].effective = caps[0].permitted;
	caps[1].effective = caps[1].permitted;
	return syscall(SYS_capset, &head, caps) < 0 ? -errno : 0;
}

/* The child: makes it, says so, and lives until it is killed. */
__attribute__((noreturn)) static void hold(uint32_t id, int say, pid_t parent)
{
	int r = userns_become(id);
	if (r == 0 && unshare(CLONE_NEWUSER) < 0)
		r = -errno;
	/* Last, since whatever changes ids or capabilities takes it back. */
	if (r == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		r = -errno;
	if (getppid() != parent)
		_exit(1); /* it was dead before that */
	if (write(say, &r, sizeof(r)) == sizeof(r) && r == 0)
		for (;;)
			(void)pause();
	_exit(1);
}

static int write_map(pid_t pid, const char *name, uint32_t base, uint32_t count)
{
	char path[64], map[64];
	(void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	int n = snprintf(map, sizeof(map), "0 %u %u\n", base, count);
	auto_fd fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return write(fd, map, (size_t)n) == n ? 0 : -errno;
}

static int keep(pid_t pid, const char *path, uint32_t base, uint32_t count, struct err *err)
{
	char ns[64];
	int r = write_map(pid, "uid_map", base, count);
	if (r == 0)
		r = write_map(pid, "gid_map", base, count);
	if (r < 0)
		return err_sys(err, r, "map the ids of a user namespace");
	(void)snprintf(ns, sizeof(ns), "/proc/%d/ns/user", pid);
	if (mount(ns, path, NULL, MS_BIND, NULL) < 0)
		return err_sys(err, -errno, "keep a user namespace at %s", path);
	return 0;
}

int userns_make(const char *path, uint32_t owner, uint32_t base, uint32_t count, struct err *err)
{
	int pair[2], answer = -EPIPE;
	auto_fd file = open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (file < 0)
		return err_sys(err, -errno, "make %s", path);
	if (pipe2(pair, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "make a pipe");
	auto_fd from = pair[0], to = pair[1];
	pid_t self = getpid(), pid = fork();
	if (pid < 0)
		return err_sys(err, -errno, "start a process");
	if (pid == 0)
		hold(owner, to, self);
	cleanup_close(&to);
	to = -1;
	ssize_t n = read(from, &answer, sizeof(answer));
	int r = n == sizeof(answer) && answer == 0
			? keep(pid, path, base, count, err)
			: err_sys(err, answer < 0 ? answer : -EPIPE, "make a user namespace");
	(void)kill(pid, SIGKILL); /* it may have ended */
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return r;
}
