#include "tools/bough/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fs/base/cleanup.h"

void outfile_done(struct outfile *o)
{
	if (o->temp && !o->unnamed)
		(void)unlinkat(o->dirfd, o->temp, 0); /* it may be gone already */
	if (o->dirfd >= 0) {
		cleanup_close(&o->fd);
		(void)close(o->dirfd);
	}
	free(o->dir);
	free(o->temp);
}

int outfile_open(struct outfile *o, const char *path, struct err *err)
{
	const char *slash = strrchr(path, '/');
	o->name = slash ? slash + 1 : path;
	o->dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	if (!o->dir)
		return err_no_memory(err);
	if (!*o->name)
		return err_set(err, -EINVAL, "%s is a folder: name a file", path);
	o->dirfd = open(o->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (o->dirfd < 0)
		return err_sys(err, -errno, "open %s", o->dir);
	struct stat st;
	if (fstatat(o->dirfd, o->name, &st, 0) == 0 && !S_ISREG(st.st_mode)) {
		/* A device or pipe is written to as it is: nobody wants it replaced. */
		if (S_ISDIR(st.st_mode))
			return err_set(err, -EINVAL, "%s is a folder: name a file", path);
		o->fd = openat(o->dirfd, o->name, O_WRONLY | O_CLOEXEC | O_NOCTTY);
		return o->fd < 0 ? err_sys(err, -errno, "open %s", path) : 0;
	}
	char *temp = NULL;
	if (asprintf(&temp, ".%.200s.%d.tmp", o->name, (int)getpid()) < 0)
		return err_no_memory(err);
	o->fd = openat(o->dirfd, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
	o->unnamed = o->fd >= 0;
	if (!o->unnamed)
		o->fd = openat(o->dirfd, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (o->fd < 0) {
		int r = err_sys(err, -errno, "create a file in %s", o->dir);
		free(temp);
		return r;
	}
	o->temp = temp;
	return 0;
}

int outfile_commit(struct outfile *o, struct err *err)
{
	if (!o->temp)
		return 0;
	if (fsync(o->fd) < 0)
		return err_sys(err, -errno, "sync %s", o->name);
	char path[32]; /* linkat with AT_EMPTY_PATH needs rights that a user hasn't */
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", o->fd);
	if (o->unnamed && linkat(AT_FDCWD, path, o->dirfd, o->temp, AT_SYMLINK_FOLLOW) < 0)
		return err_sys(err, -errno, "name %s", o->name);
	o->unnamed = false;
	if (renameat(o->dirfd, o->temp, o->dirfd, o->name) < 0)
		return err_sys(err, -errno, "rename to %s", o->name);
	free(steal_ptr(&o->temp));
	if (fsync(o->dirfd) < 0)
		return err_sys(err, -errno, "sync %s", o->dir);
	return 0;
}
