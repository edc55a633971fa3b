/* Workspaces that are attached to a running container, and taken off again. Where its processes are
 * the host's a child joins its user and mount namespaces, where it is root of the container and of
 * nothing else. gVisor's kernel takes no mount from outside: there the child works on the box's
 * root here, and what it does spreads to the copy that the gofer has (spec_own_kernel). */
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
#include "runtime/spec.h"

/* What a child does there; 0 or -errno. */
struct errand {
	const struct box_config *here; /* whose root is changed here; NULL: by who joins */
	int pid_fd;                    /* its first process */
	const char *root;              /* the folder that the target is in */
	int tree;         /* -1: take off */
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

static int path_of(int own_fds, int fd, char out[PATH_MAX])
{
	char number[16];
	(void)snprintf(number, sizeof(number), "%d", fd);
	ssize_t n = readlinkat(own_fds, number, out, PATH_MAX - 1);
	if (n < 0)
		return -errno;
	out[n] = '\0';
	return 0;
}

/* 0: the folder is where its path below the root says, with no link on the way; -ELOOP. */
static int check_plain(int root, int own_fds, int at, const char *path)
{
	char top[PATH_MAX], now[PATH_MAX];
	int r = path_of(own_fds, root, top);
	if (r == 0)
		r = path_of(own_fds, at, now);
	if (r < 0)
		return r;
	size_t n = strcmp(top, "/") == 0 ? 0 : strlen(top);
	return strncmp(now, top, n) == 0 && strcmp(now + n, path) == 0 ? 0 : -ELOOP;
}

/* The mount point is found in the root as the container sees it: no link leads out of it. Here none
 * may lead anywhere: what the sandbox's kernel has of its own there would cover it. */
static int attach_in(int root, int own_fds, const struct errand *e)
{
	if (e->here)
		inroot_remove_link(root, e->target, BOX_OLD_LINKS);
	auto_fd at = inroot_make_dir(root, e->target);
	int r = at < 0 ? at : e->here ? check_plain(root, own_fds, at, e->target) : 0;
	return r < 0 ? r : mounts_put_at(e->tree, at, NULL);
}

/* By its name in the folder that holds it: a link on the way, or one that comes in between, must
 * not lead to another mount of the container. */
static int detach_in(int root, int own_fds, const struct errand *e)
{
	char holder[PATH_MAX];
	const char *name = strrchr(e->target, '/') + 1;
	size_t n = (size_t)(name - e->target - 1);
	(void)snprintf(holder, sizeof(holder), "%.*s", (int)n, e->target);
	auto_fd at = inroot_open_dir(root, n ? holder : "/");
	if (at < 0)
		return at;
	int r = check_plain(root, own_fds, at, n || e->here ? holder : "/");
	if (r == 0 && fchdir(at) < 0)
		r = -errno;
	if (r == 0 && umount2(name, UMOUNT_NOFOLLOW | (e->force ? MNT_DETACH : 0)) < 0)
		r = -errno;
	return r;
}

static int go_there(const struct errand *e)
{
	if (e->here)
		return userns_become(e->here->id_base); /* whose the root's files are */
	if (setns(e->pid_fd, CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return -errno;
	/* Nobody of the container sees this process (its pid namespace is ours), nor may it be
	 * dumped. */
	return syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0 ? -errno
											 : 0;
}

__attribute__((noreturn)) static void run_there(const struct errand *e, int say)
{
	/* /proc of the container doesn't know this process. */
	int own_fds = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r = own_fds < 0 ? -errno : go_there(e);
	int root = r < 0 ? r : open(e->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (r == 0 && root < 0)
		r = -errno;
	if (r == 0)
		r = e->tree >= 0 ? attach_in(root, own_fds, e) : detach_in(root, own_fds, e);
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

/* ---- where it is ---- */

/* The mount of the box that a target lies in, and the rest of its path. -EOPNOTSUPP: it is one of
 * those itself, which the gofer had from the start. */
static int find_place(const struct box_config *c, const char *target, char root[PATH_MAX],
		      const char **rest, struct err *err)
{
	size_t n = strlen(BOX_TMP);
	*rest = target;
	if (box_path(root, c->dir, "tmp") < 0)
		return err_set(err, -ENAMETOOLONG, "%s is too long", c->dir);
	if (strncmp(target, BOX_TMP, n) == 0 && mounts_is_mount(root)) {
		if (target[n] == '\0')
			return err_set(err, -EOPNOTSUPP,
				       "%s has its " BOX_TMP " from its start to its end: stop the "
				       "sandbox first",
				       c->kind->name);
		*rest = target + (target[n] == '/' ? n : 0);
	}
	return *rest != target ? 0 : box_path(root, c->dir, "rootfs");
}

/* The errand's place: `root` is to stay as long as it, *process is a descriptor of the caller's. */
static int find_way(const struct box_config *c, uint32_t pid, int user_ns, const char *target,
		    char root[PATH_MAX], int *process, struct errand *e, struct err *err)
{
	bool here = spec_own_kernel(c->kind);
	*e = (struct errand){ .here = here ? c : NULL, .pid_fd = -1, .tree = -1 };
	e->root = here ? root : "/";
	e->target = target;
	if (here)
		return find_place(c, target, root, &e->target, err);
	*process = open_process(pid, user_ns, err);
	e->pid_fd = *process;
	return *process < 0 ? *process : 0;
}

/* It runs since before an upgrade, and what is mounted in its root doesn't spread. */
static bool is_of_before(const struct box_config *c)
{
	char path[PATH_MAX];
	return spec_own_kernel(c->kind) && box_path(path, c->dir, BOX_OLD_SLOTS) == 0 &&
	       access(path, F_OK) == 0;
}

static int check_later(const struct box_config *c, const char *target, const char *what,
		       struct err *err)
{
	if (!c->kind->mounts_later)
		return err_set(err, -EOPNOTSUPP, "%s %s only: stop the sandbox first",
			       c->kind->name, what);
	if (is_of_before(c))
		return err_set(err, -EOPNOTSUPP,
			       "the sandbox runs since before an upgrade: stop and start it first");
	return box_check_target(target, c->host_image, err);
}

int box_attach(const struct box_config *config, uint32_t pid, const struct box_mount *mount,
	       struct err *err)
{
	char root[PATH_MAX];
	struct errand e;
	auto_fd process = -1;
	int r = check_later(config, mount->target, "takes workspaces before its start", err);
	if (r < 0)
		return r;
	auto_fd user_ns = box_user_ns(config, err);
	if (user_ns < 0)
		return user_ns;
	r = find_way(config, pid, user_ns, mount->target, root, &process, &e, err);
	if (r < 0)
		return r;
	auto_fd tree = mounts_clone(mount->source, user_ns, mount->read_only, err);
	if (tree < 0)
		return tree;
	e.tree = tree;
	r = send_errand(&e, err);
	return r < 0 ? err_sys(err, r, "attach at %s", mount->target) : 0;
}

int box_attach_first(const struct box_config *config, struct err *err)
{
	int r = 0;
	for (size_t i = 0; spec_own_kernel(config->kind) && i < config->n_mounts && r == 0; i++)
		if (strcmp(config->mounts[i].target, BOX_TMP) != 0)
			r = box_attach(config, 0, &config->mounts[i], err);
	return r;
}

int box_detach(const struct box_config *config, uint32_t pid, const char *target, bool force,
	       struct err *err)
{
	char root[PATH_MAX];
	struct errand e;
	auto_fd process = -1;
	int r = check_later(config, target, "lets go of workspaces at its end", err);
	if (r < 0)
		return r;
	auto_fd user_ns = box_user_ns(config, err);
	if (user_ns < 0)
		return user_ns;
	r = find_way(config, pid, user_ns, target, root, &process, &e, err);
	if (r < 0)
		return r;
	e.force = force;
	r = send_errand(&e, err);
	if (r == -EBUSY)
		return err_set(err, r, "something in the sandbox uses %s", target);
	if (r == -EINVAL || r == -ENOENT)
		return err_set(err, -ENOENT, "nothing is attached at %s", target);
	return r < 0 ? err_sys(err, r, "detach from %s", target) : 0;
}

static bool has_point(const void *text, size_t len, const char *point)
{
	struct mountinfo m = mountinfo_begin(text, len);
	while (mountinfo_next(&m))
		if (strcmp(m.point, point) == 0)
			return true;
	return false;
}

/* Whether it is mounted in the box here. */
static int is_here(const struct box_config *c, const char *target, struct err *err)
{
	char root[PATH_MAX], real[PATH_MAX], point[2 * PATH_MAX];
	const char *rest;
	auto_free void *text = NULL;
	size_t len;
	int r = find_place(c, target, root, &rest, NULL);
	if (r == -EOPNOTSUPP)
		return 1;
	if (r == 0 && !realpath(root, real))
		r = -errno;
	if (r < 0)
		return err_sys(err, r, "look at %s", c->dir);
	(void)snprintf(point, sizeof(point), "%s%s", real, rest);
	r = mountinfo_read(&text, &len, err);
	return r < 0 ? r : has_point(text, len, point);
}

int box_attached(const struct box_config *config, uint32_t pid, const char *target, struct err *err)
{
	auto_free void *text = NULL;
	size_t len;
	if (!config->kind->mounts_later || is_of_before(config))
		return 1;
	if (spec_own_kernel(config->kind))
		return is_here(config, target, err);
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
	return has_point(text, len, target);
}
