/* What goes into the new root is cloned off the old one first (open_tree): the new root is mounted
 * over one of those folders, since that is a place that surely is there. */
#include "gitops/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fs/base/cleanup.h"

#ifndef MOVE_MOUNT_F_EMPTY_PATH
#define MOVE_MOUNT_F_EMPTY_PATH 0x00000004
#endif

enum { TREES_MAX = JAIL_DIRS_MAX + 16 };

/* One part of the new root. */
struct tree {
	char path[PATH_MAX];
	int fd;                /* of its clone; -1: a symlink */
	char target[PATH_MAX]; /* of that */
	bool file;
};

struct building {
	struct tree v[TREES_MAX];
	size_t n;
	const char *step;
};

/* What a program of the system needs to run. */
static const char *const system_paths[] = {
	"/usr",      "/bin",        "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache",
	"/dev/null", "/dev/urandom"
};

static int clone_tree(const char *path, unsigned attrs)
{
	struct mount_attr want = { .attr_set = attrs };
	int fd = (int)syscall(SYS_open_tree, AT_FDCWD, path,
			      OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
	if (fd < 0 || !attrs ||
	    syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &want, sizeof(want)) ==
		    0)
		return fd;
	int e = errno;
	close(fd);
	errno = e;
	return -1;
}

/* 0; -1: it can't be cloned. What isn't there is left out. */
static int add(struct building *b, const char *path, unsigned attrs)
{
	struct tree *t = &b->v[b->n];
	struct stat st;
	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : -1;
	if (b->n == TREES_MAX || strlen(path) >= sizeof(t->path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	*t = (struct tree){ .fd = -1, .file = !S_ISDIR(st.st_mode) };
	memcpy(t->path, path, strlen(path) + 1);
	if (S_ISLNK(st.st_mode)) {
		if (readlink(path, t->target, sizeof(t->target) - 1) < 0)
			return -1;
	} else if ((t->fd = clone_tree(path, attrs)) < 0) {
		return -1;
	}
	b->n++;
	return 0;
}

/* Where the program isn't of the system, the folder above its own. */
static int add_program(struct building *b, const char *program)
{
	char path[PATH_MAX];
	if (!realpath(program, path))
		return -1;
	if (strncmp(path, "/usr/", 5) == 0)
		return 0;
	for (int i = 0; i < 2; i++) {
		char *slash = strrchr(path, '/');
		if (slash == path)
			break;
		*slash = '\0';
	}
	return add(b, path, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

static int gather(struct building *b, const struct jail_dir *dirs, size_t n, const char *program)
{
	enum { READ = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, PLAIN = MOUNT_ATTR_NOSUID };
	int r = 0;
	for (size_t i = 0; i < sizeof(system_paths) / sizeof(system_paths[0]) && r >= 0; i++)
		r = add(b, system_paths[i],
			strncmp(system_paths[i], "/dev", 4) == 0 ? PLAIN : READ | MOUNT_ATTR_NODEV);
	if (r >= 0)
		r = add_program(b, program);
	for (size_t i = 0; i < n && r >= 0; i++)
		r = add(b, dirs[i].path,
			(dirs[i].writable ? PLAIN : READ) | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	return r;
}

/* The folders above a path in the new root, and at its end a place to mount on. */
static int make_place(int root, const struct tree *t)
{
	char path[PATH_MAX];
	(void)snprintf(path, sizeof(path), "%s", t->path + 1);
	for (char *slash = path; (slash = strchr(slash, '/')); *slash++ = '/') {
		*slash = '\0';
		if (mkdirat(root, path, 0755) < 0 && errno != EEXIST)
			return -1;
	}
	if (t->fd < 0)
		return symlinkat(t->target, root, path);
	if (!t->file)
		return mkdirat(root, path, 0755) < 0 && errno != EEXIST ? -1 : 0;
	int fd = openat(root, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	return fd < 0 ? -1 : close(fd);
}

static int place(struct building *b, int root)
{
	for (size_t i = 0; i < b->n; i++) {
		const struct tree *t = &b->v[i];
		b->step = t->path;
		if (make_place(root, t) < 0)
			return -1;
		if (t->fd >= 0 && syscall(SYS_move_mount, t->fd, "", root, t->path + 1,
					  MOVE_MOUNT_F_EMPTY_PATH) < 0)
			return -1;
	}
	return 0;
}

/* Nothing of the old root can be reached then, but by descriptors that were inherited. */
static int enter(struct building *b, const char *over)
{
	char cwd[PATH_MAX];
	b->step = "the present folder";
	if (!getcwd(cwd, sizeof(cwd)))
		return -1;
	b->step = "a root";
	if (mount("jail", over, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755") < 0)
		return -1;
	auto_fd root = open(over, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0 || place(b, root) < 0)
		return -1;
	b->step = "go there";
	if (fchdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
	    umount2(".", MNT_DETACH) < 0 ||
	    mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) <
		    0)
		return -1;
	return chdir(cwd) < 0 && chdir("/") < 0 ? -1 : 0;
}

/* One's own number stays what it is. */
static int write_map(const char *file, const char *fmt, unsigned id)
{
	char text[64];
	int n = snprintf(text, sizeof(text), fmt, id, id);
	auto_fd fd = open(file, O_WRONLY | O_CLOEXEC);
	return fd < 0 || write(fd, text, (size_t)n) != n ? -1 : 0;
}

static int own_user(uid_t uid, gid_t gid)
{
	return write_map("/proc/self/setgroups", "deny", 0) < 0 ||
			       write_map("/proc/self/uid_map", "%u %u 1\n", uid) < 0 ||
			       write_map("/proc/self/gid_map", "%u %u 1\n", gid) < 0
		       ? -1
		       : 0;
}

int jail_root(const struct jail_dir *dirs, size_t n, const char *program, const char **step)
{
	static struct building b; /* large, and needed once */
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int spaces = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
	*step = "";
	if (n == 0)
		return 1;
	if (unshare(spaces | (uid ? CLONE_NEWUSER : 0)) < 0 || (uid && own_user(uid, gid) < 0) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return 1;
	/* Some systems give everybody such namespaces, and no rights in them. */
	if (gather(&b, dirs, n, program) < 0) {
		*step = "clone a folder";
		return errno == EPERM || errno == EACCES || errno == ENOSYS ? 1 : -1;
	}
	int r = enter(&b, dirs[0].path);
	*step = b.step;
	return r;
}
