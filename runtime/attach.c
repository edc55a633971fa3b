/* Workspaces that are attached to a running container, and taken off again: a child joins its user
 * and mount namespaces, where it is root of the container and of nothing else. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "runtime/box_impl.h"
#include "runtime/inroot.h"
#include "runtime/mountinfo.h"
#include "runtime/mounts.h"

/* What a child does there; 0 or -errno. */
struct errand {
	int pid_fd;  /* of the container's first process */
	int tree;    /* -1: take off */
	const char *target;
	bool force;
};

static int ended(struct err *err)
{
	return err_set(err, -ESRCH, "the sandbox has ended");
}

/* Its number may be another process's by now. What /proc says under it is of the one that is held,
 * if that still lives when it was read; and only the box's are in the box's user namespace. */
static int open_process(uint32_t pid, int user_ns, struct err *err)
{
	char path[64];
	struct stat its, boxs;
	auto_fd fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return errno == ESRCH ? ended(err)
				      : err_sys(err, -errno, "look at process %u", pid);
	(void)snprintf(path, sizeof(path), "/proc/%u/ns/user", pid);
	if (fstat(user_ns, &boxs) < 0)
		return err_sys(err, -errno, "look at the box's user namespace");
	if (stat(path, &its) < 0 || syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) < 0)
		return errno == ENOENT || errno == ESRCH
			       ? ended(err)
			       : err_sys(err, -errno, "look at process %u", pid);
	return its.st_dev == boxs.st_dev && its.st_ino == boxs.st_ino ? steal_fd(&fd) : ended(err);
}

/* The mount point is found in the root as the container sees it: no link leads out of it. */
static int attach_there(const struct errand *e)
{
	auto_fd root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -errno;
	auto_fd at = inroot_make_dir(root, e->target);
	return at < 0 ? at : mounts_put_at(e->tree, at, NULL);
}

/* By its name in the folder that holds it, which is where its path says: a link on the way, or one
 * that comes in between, must not lead to another mount of the container. */
static int detach_there(const struct errand *e, int own_fds)
{
	char holder[PATH_MAX], now[PATH_MAX], number[16];
	const char *name = strrchr(e->target, '/') + 1;
	(void)snprintf(holder, sizeof(holder), "%.*s", (int)(name - e->target - 1), e->target);
	auto_fd root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -errno;
	auto_fd at = inroot_open_dir(root, holder[0] ? holder : "/");
	if (at < 0)
		return at;
	(void)snprintf(number, sizeof(number), "%d", at);
	ssize_t n = readlinkat(own_fds, number, now, sizeof(now) - 1);
	if (n < 0)
		return -errno;
	now[n] = '\0';
	if (strcmp(now, holder[0] ? holder : "/") != 0)
		return -ELOOP;
	if (fchdir(at) < 0)
		return -errno;
	return umount2(name, UMOUNT_NOFOLLOW | (e->force ? MNT_DETACH : 0)) < 0 ? -errno : 0;
}

__attribute__((noreturn)) static void run_there(const struct errand *e, int say)
{
	/* /proc of the container doesn't know this process. */
	int own_fds = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r = own_fds < 0 || setns(e->pid_fd, CLONE_NEWUSER | CLONE_NEWNS) < 0 ? -errno : 0;
	/* Nobody of the container sees this process (its pid namespace is ours), nor may it be
	 * dumped. */
	if (r == 0 && (syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0))
		r = -errno;
	if (r == 0)
		r = e->tree >= 0 ? attach_there(e) : detach_there(e, own_fds);
	ssize_t n = write(say, &r, sizeof(r));
	_exit(n == sizeof(r) ? 0 : 1);
}

static int send_errand(const struct errand *e, struct err *err)
{
	int pair[2], answer;
	if (pipe2(pair, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "make a pipe");
	auto_fd from = pair[0], to = pair[1];
	pid_t pid = fork();
	if (pid < 0)
		return err_sys(err, -errno, "start a process");
	if (pid == 0)
		run_there(e, to);
	cleanup_close(&to);
	to = -1;
	ssize_t n = TEMP_FAILURE_RETRY(read(from, &answer, sizeof(answer)));
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return n == sizeof(answer) ? answer : -EPIPE;
}

int box_attach(const struct box_config *config, uint32_t pid, const struct box_mount *mount,
	       struct err *err)
{
	if (!config->kind->mounts_later)
		return err_set(err, -EOPNOTSUPP,
			       "%s takes workspaces before its start only: stop the sandbox first",
			       config->kind->name);
	int r = box_check_target(mount->target, config->host_image, err);
	if (r < 0)
		return r;
	if (box_has_slots(config->kind))
		return box_slot_attach(config, mount, err);
	auto_fd user_ns = box_user_ns(config, err);
	auto_fd process = user_ns < 0 ? user_ns : open_process(pid, user_ns, err);
	auto_fd tree = process < 0 ? process
				   : mounts_clone(mount->source, user_ns, mount->read_only, err);
	if (tree < 0)
		return tree;
	struct errand e = { process, tree, mount->target, false };
	r = send_errand(&e, err);
	return r < 0 ? err_sys(err, r, "attach at %s", mount->target) : 0;
}

int box_detach(const struct box_config *config, uint32_t pid, const char *target, bool force,
	       struct err *err)
{
	if (!config->kind->mounts_later)
		return err_set(err, -EOPNOTSUPP,
			       "%s lets go of workspaces at its end only: stop the sandbox first",
			       config->kind->name);
	int r = box_check_target(target, config->host_image, err);
	if (r < 0)
		return r;
	if (box_has_slots(config->kind))
		return box_slot_detach(config, target, force, err);
	auto_fd user_ns = box_user_ns(config, err);
	auto_fd process = user_ns < 0 ? user_ns : open_process(pid, user_ns, err);
	if (process < 0)
		return process;
	struct errand e = { process, -1, target, force };
	r = send_errand(&e, err);
	if (r == -EBUSY)
		return err_set(err, r, "something in the sandbox uses %s", target);
	if (r == -EINVAL || r == -ENOENT)
		return err_set(err, -ENOENT, "nothing is attached at %s", target);
	return r < 0 ? err_sys(err, r, "detach from %s", target) : 0;
}

int box_attached(const struct box_config *config, uint32_t pid, const char *target, struct err *err)
{
	auto_free void *text = NULL;
	size_t len;
	if (!config->kind->mounts_later || box_has_slots(config->kind))
		return 1;
	auto_fd user_ns = box_user_ns(config, err);
	auto_fd process = user_ns < 0 ? user_ns : open_process(pid, user_ns, err);
	if (process < 0)
		return process;
	int r = mountinfo_read_of(pid, &text, &len, err);
	if (r < 0)
		return r;
	/* It is the process that was meant, or had ended before this was read. */
	if (syscall(SYS_pidfd_send_signal, process, 0, NULL, 0) < 0)
		return ended(err);
	struct mountinfo m = mountinfo_begin(text, len);
	while (mountinfo_next(&m))
		if (strcmp(m.point, target) == 0)
			return 1;
	return 0;
}
