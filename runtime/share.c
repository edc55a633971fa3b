#include "runtime/share.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "runtime/init/init.h"
#include "runtime/mounts.h"

enum {
	SHARE_BYTES = 4 << 20,
	SHARE_INODES = 16 + INIT_N_LETTERS,
	PROGRAM_MAX = 1 << 20, /* bough-init has some kilobytes */
};
#define INIT_NAME "init"
#define INIT_NEW  "init.new"

/* The parent, locked against others who do the same. */
static int lock_parent(const char *parent, struct err *err)
{
	auto_fd fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, -errno, "open %s", parent);
	while (flock(fd, LOCK_EX) < 0)
		if (errno != EINTR)
			return err_sys(err, -errno, "lock %s", parent);
	return steal_fd(&fd);
}

static bool holds(int dir, const void *data, size_t len)
{
	auto_free void *now = NULL;
	size_t n;
	return io_slurp(NULL, dir, INIT_NAME, PROGRAM_MAX, &now, &n, NULL) == 0 && n == len &&
	       memcmp(now, data, len) == 0;
}

/* Who runs the one before goes on with it. */
static int put_program(int dir, const void *data, size_t len)
{
	auto_fd fd = openat(dir, INIT_NEW, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
	if (fd < 0)
		return -errno;
	int r = io_write_full(NULL, fd, data, len, 0);
	if (r == 0 && fchmod(fd, 0755) < 0)
		r = -errno;
	if (r == 0 && renameat(dir, INIT_NEW, dir, INIT_NAME) < 0)
		r = -errno;
	return r;
}

int share_make(const char *parent, const char *program, struct err *err)
{
	auto_free void *data = NULL;
	char path[PATH_MAX];
	size_t len;
	int r = io_slurp(NULL, AT_FDCWD, program, PROGRAM_MAX, &data, &len, err);
	if (r < 0)
		return r;
	auto_fd lock = lock_parent(parent, err);
	if (lock < 0)
		return lock;
	if ((size_t)snprintf(path, sizeof(path), "%s/" SHARE_NAME, parent) >= sizeof(path))
		return err_set(err, -ENAMETOOLONG, "%s is too long", parent);
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "make %s", path);
	if (mounts_is_mount(path)) /* maybe an earlier version's, which had less in it */
		r = mounts_tmpfs_inodes(path, SHARE_INODES, err);
	else
		r = mounts_tmpfs(path, SHARE_BYTES, SHARE_INODES, 0755, 0, err);
	if (r < 0)
		return r;
	auto_fd dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(err, -errno, "open %s", path);
	r = holds(dir, data, len) ? 0 : put_program(dir, data, len);
	for (char name[] = "a"; r == 0 && *name < 'a' + INIT_N_LETTERS; ++*name) {
		auto_fd letter = openat(dir, name, O_RDONLY | O_CREAT | O_CLOEXEC, 0444);
		r = letter < 0 ? -errno : 0;
	}
	return r < 0 ? err_sys(err, r, "put bough-init into %s", path) : 0;
}

static bool has_others(int fd)
{
	auto_fd again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_dir *d = again < 0 ? NULL : fdopendir(again);
	if (!d)
		return true;
	(void)steal_fd(&again);
	struct dirent *e;
	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    strcmp(e->d_name, SHARE_NAME) != 0)
			return true;
	return false;
}

int share_end(const char *parent, struct err *err)
{
	char path[PATH_MAX];
	auto_fd lock = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (lock < 0)
		return errno == ENOENT ? 0 : err_sys(err, -errno, "open %s", parent);
	cleanup_close(&lock);
	lock = lock_parent(parent, err);
	if (lock < 0)
		return lock;
	if (has_others(lock))
		return 0;
	if ((size_t)snprintf(path, sizeof(path), "%s/" SHARE_NAME, parent) >= sizeof(path))
		return err_set(err, -ENAMETOOLONG, "%s is too long", parent);
	int r = mounts_take_off(path, err);
	if (r == 0 && rmdir(path) < 0 && errno != ENOENT)
		r = err_sys(err, -errno, "remove %s", path);
	return r;
}
