#include "snapd/state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/log.h"
#include "fs/base/sock.h"

enum {
	LOG_BYTES = 8 << 20,
	LOCK_WAIT_MS = 5000,
	END_WAIT_MS = 60000, /* a boughd that ends lets its callers end first */
	LOCK_SURE_MS = 200,    /* one may have been killed this moment, and not show it yet */
	DYING_WAIT_MS = 60000, /* for one that was killed */
	LOCK_POLL_MS = 10,
};

static int choose(const char *given, char **out, struct err *err)
{
	const char *root = given ? given : getenv("BOUGH_ROOT");
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	int n;
	if (root && *root)
		n = asprintf(out, "%s", root);
	else if (geteuid() == 0)
		n = asprintf(out, "/var/lib/bough");
	else if (state && *state == '/')
		n = asprintf(out, "%s/bough", state);
	else if (home && *home == '/')
		n = asprintf(out, "%s/.local/state/bough", home);
	else
		return err_set(err, -EINVAL, "neither HOME nor XDG_STATE_HOME is set: give --root");
	if (n < 0)
		*out = NULL;
	return n < 0 ? err_no_memory(err) : 0;
}

/* The folder and what is missing above it. */
static int make_path(char *path, mode_t mode, struct err *err)
{
	for (char *p = path + 1;; p++) {
		if (*p && *p != '/')
			continue;
		char was = *p;
		*p = '\0';
		int r = mkdir(path, was ? 0755 : mode) < 0 && errno != EEXIST ? -errno : 0;
		if (r < 0)
			(void)err_sys(err, r, "create %s", path);
		*p = was;
		if (r < 0 || !was)
			return r;
	}
}

static int make_parts(const char *root, struct err *err)
{
	static const char *const parts[] = { "run",    "ws",        "layers", "store",
					     "images", "snapshots", "tmp",    "repos" };
	auto_fd dir = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;
	if (dir < 0 || fstat(dir, &st) < 0)
		return err_sys(err, -errno, "open %s", root);
	/* Who may write here can put what he likes in the place of any part. Another user's folder
	 * fails below, with what to do. */
	if ((st.st_mode & 022) && st.st_uid == geteuid() && fchmod(dir, st.st_mode & 07755) < 0)
		return err_sys(err, -errno, "chmod %s", root);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (mkdirat(dir, parts[i], 0700) < 0 && errno != EEXIST)
			return err_sys(err, -errno, "create %s/%s", root, parts[i]);
	/* root can write into anybody's, but what it writes there the owner can't read. */
	if (fstatat(dir, "ws", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(err, -errno, "look at %s/ws", root);
	if (st.st_uid != geteuid())
		return err_set(err, -EACCES, "the state in %s belongs to user %u: run as that user",
			       root, st.st_uid);
	if (mkdirat(dir, "mnt", geteuid() == 0 ? 0711 : 0700) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "create %s/mnt", root);
	if (faccessat(dir, "run", W_OK | X_OK, AT_EACCESS) < 0)
		return err_sys(err, -errno, "write to %s/run", root);
	return 0;
}

int state_prepare(char **root, const char *given, struct err *err)
{
	auto_free char *path = NULL;
	int r = choose(given, &path, err);
	if (r < 0)
		return r;
	mode_t old = umask(022); /* folders above ROOT are ordinary ones */
	r = make_path(path, geteuid() == 0 ? 0711 : 0700, err);
	umask(old);
	if (r < 0)
		return r;
	char *full = realpath(path, NULL);
	if (!full)
		return err_sys(err, -errno, "%s", path);
	if (strlen(full) > STATE_ROOT_MAX || strchr(full, '\n'))
		r = err_set(err, -ENAMETOOLONG, "%.100s… is no good path for the state", full);
	if (r >= 0) {
		old = umask(0);
		r = make_parts(full, err);
		umask(old);
	}
	if (r < 0) {
		free(full);
		return r;
	}
	*root = full;
	return 0;
}

int state_open_run(const char *root, bool open, struct err *err)
{
	char path[PATH_MAX];
	(void)snprintf(path, sizeof(path), "%s/run", root);
	/* What else is in there has modes of its own. */
	return chmod(path, open ? 0711 : 0700) < 0 ? err_sys(err, -errno, "chmod %s", path) : 0;
}

static bool somebody_serves(const char *root)
{
	char path[PATH_MAX];
	(void)snprintf(path, sizeof(path), "%s/run/boughd.sock", root);
	auto_fd fd = sock_connect(path, SOCK_STREAM, NULL);
	return fd >= 0;
}

/* Who holds the lock, as its file says; 0: it doesn't. */
static pid_t holder(int fd)
{
	char text[32];
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	long pid = strtol(text, NULL, 10);
	return pid > 0 && pid <= INT_MAX ? (pid_t)pid : 0;
}

/* One that was killed has its lock and its socket until the last of its threads has left the
 * kernel: that takes as long as what that one waits for there, a disk mostly. It is one that has
 * ended but for them, or has its SIGKILL before it. */
static bool is_dying(int fd)
{
	char path[64], line[256], state = 0;
	unsigned long long one = 0, all = 0;
	pid_t pid = holder(fd);
	if (!pid)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	auto_file *f = fopen(path, "re");
	if (!f)
		return true;
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, "State:\t", 7) == 0)
			state = line[7];
		else if (strncmp(line, "SigPnd:\t", 8) == 0)
			one = strtoull(line + 8, NULL, 16);
		else if (strncmp(line, "ShdPnd:\t", 8) == 0)
			all = strtoull(line + 8, NULL, 16);
	}
	return state == 'Z' || state == 'X' || ((one | all) >> (SIGKILL - 1) & 1);
}

int state_lock(const char *root, void (*dying)(void *ctx), void *ctx, struct err *err)
{
	char path[PATH_MAX], pid[32];
	(void)snprintf(path, sizeof(path), "%s/run/boughd.lock", root);
	auto_fd fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_sys(err, -errno, "open %s", path);
	int r;
	int waited_ms = 0;
	while ((r = flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0) == -EWOULDBLOCK &&
	       (waited_ms < LOCK_SURE_MS || (waited_ms < LOCK_WAIT_MS && !somebody_serves(root)) ||
		(waited_ms < DYING_WAIT_MS && is_dying(fd)))) {
		usleep(LOCK_POLL_MS * 1000);
		waited_ms += LOCK_POLL_MS;
		if (waited_ms % STATE_DYING_MS == 0 && is_dying(fd))
			dying(ctx);
	}
	if (r < 0) {
		if (r != -EWOULDBLOCK)
			return err_sys(err, r, "lock %s", path);
		return err_set(err, -EBUSY, "another boughd (process %d) has the state %s already",
			       (int)holder(fd), root);
	}
	int len = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t)len, 0) != len)
		return err_sys(err, -errno, "write %s", path);
	return steal_fd(&fd);
}

int state_end_holder(const char *root, struct err *err)
{
	char path[PATH_MAX];
	(void)snprintf(path, sizeof(path), "%s/run/boughd.lock", root);
	auto_fd fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	pid_t pid = fd < 0 ? 0 : holder(fd);
	auto_fd pidfd = pid ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	/* Who has the lock still, and is named by its file, is the process that is held here. */
	if (pidfd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0 || holder(fd) != pid)
		return 0;
	struct pollfd ended = { .fd = pidfd, .events = POLLIN };
	if (syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0) < 0 && errno != ESRCH)
		return err_sys(err, -errno, "end boughd (process %d)", (int)pid);
	int r;
	do
		r = poll(&ended, 1, END_WAIT_MS);
	while (r < 0 && errno == EINTR);
	return r > 0 ? 0 : err_set(err, -ETIMEDOUT, "boughd (process %d) doesn't end", (int)pid);
}

bool state_is_ours(const char *root, int lock_fd)
{
	char path[PATH_MAX];
	struct stat have, there;
	(void)snprintf(path, sizeof(path), "%s/run/boughd.lock", root);
	if (fstat(lock_fd, &have) < 0)
		return true;
	if (lstat(path, &there) < 0)
		return errno != ENOENT && errno != ENOTDIR; /* else the disk has failed */
	return have.st_dev == there.st_dev && have.st_ino == there.st_ino;
}

int state_open_log(const char *root, const char *name, struct err *err)
{
	char path[PATH_MAX], old[PATH_MAX + 4];
	struct stat st;
	(void)snprintf(path, sizeof(path), "%s/run/%s", root, name);
	(void)snprintf(old, sizeof(old), "%s.1", path);
	if (stat(path, &st) == 0 && st.st_size > LOG_BYTES)
		(void)rename(path, old); /* one that can't be moved goes on growing */
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? err_sys(err, -errno, "open %s", path) : fd;
}

static int open_spare(const char *root, int flags)
{
	auto_fd dir = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir < 0 ? -1
		       : openat(dir, "spare", O_WRONLY | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
}

void state_spare_keep(const char *root)
{
	struct stat st;
	auto_fd fd = open_spare(root, O_CREAT);
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size >= STATE_SPARE_BYTES)
		return;
	/* Not by writing zeros where the host can't reserve: that would be slow each time. What
	 * lies behind the size need not be there. */
	if (fallocate(fd, 0, 0, STATE_SPARE_BYTES) < 0 && ftruncate(fd, st.st_size) < 0)
		log_warn("%s/spare: %s", root, strerrordesc_np(errno));
}

bool state_spare_use(const char *root, off_t most)
{
	struct stat st;
	auto_fd fd = open_spare(root, 0);
	return fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0 &&
	       ftruncate(fd, st.st_size > most ? st.st_size - most : 0) == 0;
}
