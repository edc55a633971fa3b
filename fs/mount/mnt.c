#include "fs/mount/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/io.h"

enum {
	DEAD_MAX = 16,       /* mounts of killed servers on top of each other */
	CONF_MAX = 64 << 10, /* of /etc/fuse.conf */
	MESSAGE_MAX = 400,   /* of fusermount3's own words */
};

#define FUSE_DEVICE "/dev/fuse"
#define FUSERMOUNT  "fusermount3"

bool mnt_conf_allows_other(const char *conf)
{
	static const char word[] = "user_allow_other";
	for (const char *line = conf; *line;) {
		size_t n = strcspn(line, "\n");
		const char *p = line + strspn(line, " \t");
		size_t left = n - (size_t)(p - line);
		if (left >= sizeof(word) - 1 && memcmp(p, word, sizeof(word) - 1) == 0 &&
		    strspn(p + sizeof(word) - 1, " \t\r") == left - (sizeof(word) - 1))
			return true;
		line += n + (line[n] == '\n');
	}
	return false;
}

static bool user_may_allow_other(void)
{
	auto_free void *text = NULL;
	size_t len;
	if (io_slurp(NULL, AT_FDCWD, "/etc/fuse.conf", CONF_MAX, &text, &len, NULL) < 0)
		return false; /* no file: the default, which is no */
	return mnt_conf_allows_other(text);
}

/* What is at the path, without asking the server of a mount there: with no field asked
 * for, the kernel answers st_dev from its own memory. */
static int look(const char *path, struct statx *sx)
{
	if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, 0,
		  sx) < 0)
		return -errno;
	return 0;
}

static bool is_mount(const struct statx *sx)
{
	return sx->stx_attributes & STATX_ATTR_MOUNT_ROOT;
}

int mnt_device(const char *path, uint64_t *dev)
{
	struct statx sx;
	int r = look(path, &sx);
	if (r < 0)
		return r;
	if (!is_mount(&sx))
		return -EINVAL;
	*dev = makedev(sx.stx_dev_major, sx.stx_dev_minor);
	return 0;
}

int mnt_readahead(uint64_t dev, unsigned kib)
{
	char path[64], text[16];
	(void)snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev),
		       minor(dev));
	int n = snprintf(text, sizeof(text), "%u", kib);
	auto_fd fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, (size_t)n) < 0)
		return -errno;
	return 0;
}

int mnt_prepare(const char *path, struct err *err)
{
	for (int i = 0; i < DEAD_MAX; i++) {
		struct statx sx;
		int r = look(path, &sx);
		if (r == -ENOENT) {
			if (mkdir(path, 0755) < 0 && errno != EEXIST)
				return err_sys(err, -errno, "make the mount point %s", path);
			continue;
		}
		if (r < 0)
			return err_sys(err, r, "mount point %s", path);
		if (!is_mount(&sx)) {
			struct stat st; /* nothing is mounted: this asks the host's disk */
			if (lstat(path, &st) < 0)
				return err_sys(err, -errno, "mount point %s", path);
			return S_ISDIR(st.st_mode)
				       ? 0
				       : err_set(err, -ENOTDIR, "mount point %s is not a directory",
						 path);
		}
		/* The server of a dead mount is gone, so this can't wait for it. */
		struct statfs fs;
		if (statfs(path, &fs) == 0 || errno != ENOTCONN)
			return err_set(err, -EBUSY,
				       "mount point %s is in use: something is mounted there",
				       path);
		r = mnt_umount(path, err);
		if (r < 0)
			return err_prefix(err, r, "take a dead mount away");
	}
	return err_set(err, -EBUSY, "more than %d dead mounts on %s", DEAD_MAX, path);
}

static int mount_as_root(const char *path, bool nonblock, struct err *err)
{
	auto_fd fd = open(FUSE_DEVICE, O_RDWR | O_CLOEXEC | (nonblock ? O_NONBLOCK : 0));
	if (fd < 0 && (errno == ENOENT || errno == ENODEV || errno == ENXIO))
		return err_set(err, -ENODEV,
			       "no " FUSE_DEVICE " here: load the kernel's fuse module (modprobe "
			       "fuse), or give the container the device");
	if (fd < 0)
		return err_sys(err, -errno, "open " FUSE_DEVICE);
	char opts[160];
	int n = snprintf(opts, sizeof(opts),
			 "fd=%d,rootmode=40000,user_id=%u,group_id=%u,default_permissions,"
			 "allow_other",
			 fd, geteuid(), getegid());
	if (n < 0 || (size_t)n >= sizeof(opts))
		return err_set(err, -EOVERFLOW, "mount options too long");
	if (mount("bough", path, "fuse.bough", MS_NOSUID | MS_NODEV, opts) < 0)
		return err_sys(err, -errno, "mount at %s", path);
	return steal_fd(&fd);
}

/* Runs fusermount3 with `comm` as its _FUSE_COMMFD (or -1). Its words go to `said`. The
 * result is its exit status, or -errno. */
static int run_fusermount(const char *const *argv, int comm, char said[MESSAGE_MAX])
{
	said[0] = '\0';
	int out[2];
	if (pipe2(out, O_CLOEXEC) < 0)
		return -errno;
	auto_fd from = out[0], to = out[1];
	char commfd[32] = "_FUSE_COMMFD=";
	if (comm >= 0)
		(void)snprintf(commfd, sizeof(commfd), "_FUSE_COMMFD=%d", 3);
	/* fusermount3 resets the rest of the environment itself. */
	const char *const env[] = { "PATH=/usr/bin:/bin:/usr/local/bin:/usr/sbin:/sbin", commfd,
				    NULL };
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t at;
	sigset_t none;
	sigemptyset(&none);
	int r = posix_spawn_file_actions_init(&fa);
	if (r != 0)
		return -r;
	r = posix_spawnattr_init(&at);
	if (r == 0)
		r = posix_spawnattr_setsigmask(&at, &none);
	if (r == 0)
		r = posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSIGMASK);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(&fa, to, STDOUT_FILENO);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(&fa, to, STDERR_FILENO);
	if (r == 0 && comm >= 0)
		r = posix_spawn_file_actions_adddup2(&fa, comm, 3);
	pid_t pid = -1;
	if (r == 0) /* posix_spawn and exec don't change their arguments */
		r = posix_spawnp(&pid, FUSERMOUNT, &fa, &at, (char *const *)argv,
				 (char *const *)env);
	(void)posix_spawnattr_destroy(&at);
	(void)posix_spawn_file_actions_destroy(&fa);
	if (r != 0)
		return -r;
	cleanup_close(&to);
	to = -1;
	size_t len = 0;
	for (ssize_t n; len < MESSAGE_MAX - 1; len += (size_t)n) {
		n = read(from, said + len, MESSAGE_MAX - 1 - len);
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n <= 0)
			break;
	}
	said[len] = '\0';
	said[strcspn(said, "\n")] = '\0';
	int status;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int fusermount_error(struct err *err, int r, const char *what, const char *path,
			    const char *said)
{
	if (r == -ENOENT)
		return err_set(err, -ENOENT, "no " FUSERMOUNT " here: install the package fuse3");
	if (r < 0)
		return err_sys(err, r, "run " FUSERMOUNT);
	return err_set(err, -EPERM, "%s %s: %s", what, path, *said ? said : FUSERMOUNT " failed");
}

static int receive_fd(int sock)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	char byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.bytes,
			      .msg_controllen = sizeof(control.bytes) };
	ssize_t n;
	do
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	if (n == 0 || !c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
		return -EPROTO;
	int fd;
	memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

static int mount_as_user(const char *path, bool nonblock, struct err *err)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(err, -errno, "socketpair");
	auto_fd ours = pair[0], theirs = pair[1];
	const char *opts = user_may_allow_other()
				   ? "nosuid,nodev,default_permissions,fsname=bough,subtype=bough,"
				     "allow_other"
				   : "nosuid,nodev,default_permissions,fsname=bough,subtype=bough";
	const char *const argv[] = { FUSERMOUNT, "-o", opts, "--", path, NULL };
	char said[MESSAGE_MAX];
	int r = run_fusermount(argv, theirs, said);
	if (r != 0)
		return fusermount_error(err, r, "mount at", path, said);
	auto_fd fd = receive_fd(ours);
	if (fd < 0)
		return err_sys(err, fd, "descriptor from " FUSERMOUNT);
	if (nonblock && fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		return err_sys(err, -errno, "descriptor from " FUSERMOUNT);
	return steal_fd(&fd);
}

int mnt_mount(const char *path, bool nonblock, struct err *err)
{
	return geteuid() == 0 ? mount_as_root(path, nonblock, err)
			      : mount_as_user(path, nonblock, err);
}

static int umount_as_user(const char *path, bool lazy, char said[MESSAGE_MAX])
{
	const char *const argv[] = { FUSERMOUNT, "-u", lazy ? "-qz" : "-q", "--", path, NULL };
	return run_fusermount(argv, -1, said);
}

int mnt_umount(const char *path, struct err *err)
{
	if (geteuid() == 0) {
		if (umount2(path, UMOUNT_NOFOLLOW) == 0)
			return 0;
		if (errno != EBUSY)
			return err_sys(err, -errno, "unmount %s", path);
		if (umount2(path, UMOUNT_NOFOLLOW | MNT_DETACH) < 0)
			return err_sys(err, -errno, "detach %s", path);
		return 1;
	}
	char said[MESSAGE_MAX];
	if (umount_as_user(path, false, said) == 0)
		return 0;
	int r = umount_as_user(path, true, said);
	return r == 0 ? 1 : fusermount_error(err, r, "unmount", path, said);
}
