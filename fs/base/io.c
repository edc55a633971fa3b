#include "fs/base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/hash.h"

static int host_open(void *ctx, int dirfd, const char *name, int flags, mode_t mode)
{
	int fd = openat(dirfd, name, flags | O_CLOEXEC, mode);
	return fd < 0 ? -errno : fd;
}

static int host_close(void *ctx, int fd)
{
	/* On Linux the descriptor is gone even after EINTR: never try again. */
	return close(fd) < 0 && errno != EINTR ? -errno : 0;
}

static ssize_t host_pread(void *ctx, int fd, void *buf, size_t n, uint64_t off)
{
	ssize_t r = pread(fd, buf, n, (off_t)off);
	return r < 0 ? -errno : r;
}

static ssize_t host_pwrite(void *ctx, int fd, const void *buf, size_t n, uint64_t off)
{
	ssize_t r = pwrite(fd, buf, n, (off_t)off);
	return r < 0 ? -errno : r;
}

static int host_fdatasync(void *ctx, int fd)
{
	return fdatasync(fd) < 0 ? -errno : 0;
}

static int host_fsync(void *ctx, int fd)
{
	return fsync(fd) < 0 ? -errno : 0;
}

static int host_ftruncate(void *ctx, int fd, uint64_t size)
{
	int r;
	do
		r = ftruncate(fd, (off_t)size);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

static int host_fallocate(void *ctx, int fd, int mode, uint64_t off, uint64_t len)
{
	int r;
	do
		r = fallocate(fd, mode, (off_t)off, (off_t)len);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

static int host_fstat(void *ctx, int fd, struct stat *st)
{
	return fstat(fd, st) < 0 ? -errno : 0;
}

static int host_mkdir(void *ctx, int dirfd, const char *name, mode_t mode)
{
	return mkdirat(dirfd, name, mode) < 0 ? -errno : 0;
}

static int host_unlink(void *ctx, int dirfd, const char *name, int flags)
{
	return unlinkat(dirfd, name, flags) < 0 ? -errno : 0;
}

static int host_rename(void *ctx, int olddir, const char *oldname, int newdir, const char *newname,
		       unsigned flags)
{
	return renameat2(olddir, oldname, newdir, newname, flags) < 0 ? -errno : 0;
}

static int host_link(void *ctx, int olddir, const char *oldname, int newdir, const char *newname)
{
	return linkat(olddir, oldname, newdir, newname, 0) < 0 ? -errno : 0;
}

static int host_flock(void *ctx, int fd)
{
	int r;
	while ((r = flock(fd, LOCK_EX)) < 0 && errno == EINTR)
		;
	return r < 0 ? -errno : 0;
}

const struct io io_host = {
	.open = host_open,
	.close = host_close,
	.pread = host_pread,
	.pwrite = host_pwrite,
	.fdatasync = host_fdatasync,
	.fsync = host_fsync,
	.ftruncate = host_ftruncate,
	.fallocate = host_fallocate,
	.fstat = host_fstat,
	.mkdir = host_mkdir,
	.unlink = host_unlink,
	.rename = host_rename,
	.link = host_link,
	.flock = host_flock,
};

static const struct io *or_host(const struct io *io)
{
	return io ? io : &io_host;
}

ssize_t io_read_full(const struct io *io, int fd, void *buf, size_t n, uint64_t off)
{
	io = or_host(io);
	size_t done = 0;
	while (done < n) {
		ssize_t r = io->pread(io->ctx, fd, (char *)buf + done, n - done, off + done);
		if (r == -EINTR)
			continue;
		if (r < 0)
			return r;
		if (r == 0)
			break;
		done += (size_t)r;
	}
	return (ssize_t)done;
}

int io_write_full(const struct io *io, int fd, const void *buf, size_t n, uint64_t off)
{
	io = or_host(io);
	size_t done = 0;
	while (done < n) {
		ssize_t r = io->pwrite(io->ctx, fd, (const char *)buf + done, n - done, off + done);
		if (r == -EINTR)
			continue;
		if (r < 0)
			return (int)r;
		if (r == 0)
			return -EIO; /* a disk that takes nothing and says nothing */
		done += (size_t)r;
	}
	return 0;
}

/* Writes the bytes into a new file; it is whole (and durable, if asked) or an error. */
static int write_new(const struct io *io, int dirfd, const char *name, const void *data, size_t len,
		     bool durable)
{
	int fd = io->open(io->ctx, dirfd, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return fd;
	int r = io_write_full(io, fd, data, len, 0);
	if (r == 0 && durable)
		r = io->fsync(io->ctx, fd);
	int c = io->close(io->ctx, fd);
	return r < 0 ? r : c;
}

static int sync_dir(const struct io *io, int dirfd)
{
	/* AT_FDCWD and O_PATH descriptors can't be synced themselves. */
	int fd = io->open(io->ctx, dirfd, ".", O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	int r = io->fsync(io->ctx, fd);
	int c = io->close(io->ctx, fd);
	return r < 0 ? r : c;
}

int io_publish(const struct io *io, int dirfd, const char *name, const void *data, size_t len,
	       bool durable, struct err *err)
{
	io = or_host(io);
	uint64_t token;
	random_bytes(&token, sizeof(token));
	char tmp[NAME_MAX + 1];
	int n = snprintf(tmp, sizeof(tmp), IO_TMP_PREFIX "%s-%016" PRIx64, name, token);
	if (n < 0 || (size_t)n >= sizeof(tmp))
		return err_sys(err, -ENAMETOOLONG, "write %s", name);
	int r = write_new(io, dirfd, tmp, data, len, durable);
	if (r < 0)
		(void)err_sys(err, r, "write %s", tmp);
	if (r == 0) {
		r = io->rename(io->ctx, dirfd, tmp, dirfd, name, 0);
		if (r < 0)
			(void)err_sys(err, r, "rename %s to %s", tmp, name);
	}
	if (r < 0) {
		(void)io->unlink(io->ctx, dirfd, tmp, 0); /* or a later sweep takes it */
		return r;
	}
	if (durable) {
		r = sync_dir(io, dirfd);
		if (r < 0)
			return err_sys(err, r, "sync the folder of %s", name);
	}
	return 0;
}

/* Reads to the end of the file; *len tells the count, the buffer has room for a NUL. */
static int read_all(const struct io *io, int fd, size_t max, void **data, size_t *len)
{
	struct stat st;
	int r = io->fstat(io->ctx, fd, &st);
	if (r < 0)
		return r;
	if (st.st_size < 0 || (uint64_t)st.st_size > max)
		return -EFBIG;
	/* Files of /proc say 0, others may be growing: one byte more than expected is
	 * asked for, and the buffer doubles for as long as it comes back full. */
	size_t cap = (size_t)st.st_size + 1, have = 0;
	auto_free char *p = NULL;
	for (;;) {
		size_t room;
		if (__builtin_add_overflow(cap, 1, &room))
			return -EFBIG;
		char *more = realloc(p, room);
		if (!more)
			return -ENOMEM;
		p = more;
		ssize_t n = io_read_full(io, fd, p + have, cap - have, have);
		if (n < 0)
			return (int)n;
		have += (size_t)n;
		if (have > max)
			return -EFBIG;
		if (have < cap)
			break;
		if (__builtin_mul_overflow(cap, 2, &cap))
			return -EFBIG;
	}
	p[have] = '\0';
	*data = steal_ptr(&p);
	*len = have;
	return 0;
}

int io_slurp(const struct io *io, int dirfd, const char *name, size_t max, void **data, size_t *len,
	     struct err *err)
{
	io = or_host(io);
	int fd = io->open(io->ctx, dirfd, name, O_RDONLY, 0);
	if (fd < 0)
		return err_sys(err, fd, "open %s", name);
	int r = read_all(io, fd, max, data, len);
	(void)io->close(io->ctx, fd); /* only read */
	return r < 0 ? err_sys(err, r, "read %s", name) : 0;
}

/* ---- removing a tree ---- */

/* The state of one io_remove_tree. A tree may be deeper than there are descriptors, so
 * nothing descends: folders below the top one's children are moved up into the top
 * folder, and with it open all the time only one more is ever looked at. */
struct removal {
	int top;
	uint64_t moved; /* the number of the next name for a folder that is moved up */
	struct err *err;
};

/* Opens a folder for removing what is in it. One that its owner may not read or change
 * (a tree full of read-only folders is nothing unusual) is made accessible first. */
static int open_dir(int dirfd, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(dirfd, name, flags);
	struct stat st;
	if (fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 0700) == 0700)
		return fd;
	if (fd >= 0) {
		(void)fchmod(fd, 0700); /* where that fails, removing fails and says why */
		return fd;
	}
	if (errno != EACCES)
		return -errno;
	if (fchmodat(dirfd, name, 0700, AT_SYMLINK_NOFOLLOW) < 0)
		return -EACCES;
	fd = openat(dirfd, name, flags);
	return fd < 0 ? -errno : fd;
}

static int move_up(struct removal *rm, int dirfd, const char *name)
{
	for (;;) {
		char to[32];
		(void)snprintf(to, sizeof(to), ".rm-%" PRIx64, rm->moved++);
		if (renameat(dirfd, name, rm->top, to) == 0)
			return 0;
		/* The tree's own names may look like ours. */
		if (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR)
			continue;
		if (errno != EACCES)
			return -errno;
		/* Moving a folder writes its "..", so it must be writable itself. */
		auto_fd fd = open_dir(dirfd, name);
		if (fd < 0)
			return fd;
		if (renameat(dirfd, name, rm->top, to) < 0)
			return -errno;
		return 0;
	}
}

static bool is_dot(const char *name)
{
	return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* Removes all entries of `dir`: files by unlink, folders by `each_dir`. Passes are
 * repeated until one finds nothing, since a folder that changes while it is read may
 * hide entries. */
static int empty_dir(struct removal *rm, DIR *dir,
		     int (*each_dir)(struct removal *, int dirfd, const char *name))
{
	int fd = dirfd(dir);
	for (bool again = true; again; rewinddir(dir)) {
		again = false;
		struct dirent *de;
		while (errno = 0, (de = readdir(dir))) {
			if (is_dot(de->d_name))
				continue;
			again = true;
			int r = 0;
			if (de->d_type == DT_DIR)
				r = each_dir(rm, fd, de->d_name);
			else if (unlinkat(fd, de->d_name, 0) < 0)
				r = errno == EISDIR ? each_dir(rm, fd, de->d_name) : -errno;
			if (r < 0 && r != -ENOENT)
				return err_sys(rm->err, r, "remove %s", de->d_name);
		}
		if (errno)
			return err_sys(rm->err, -errno, "read a folder");
	}
	return 0;
}

/* A folder right below the top one (or moved there): its folders move up, the rest goes. */
static int remove_child(struct removal *rm, int dirfd, const char *name)
{
	auto_fd fd = open_dir(dirfd, name);
	if (fd < 0)
		return fd;
	auto_dir *dir = fdopendir(fd);
	if (!dir)
		return -errno;
	(void)steal_fd(&fd);
	int r = empty_dir(rm, dir, move_up);
	if (r < 0)
		return r;
	return unlinkat(dirfd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

int io_remove_tree(int dirfd, const char *name, struct err *err)
{
	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM) /* both stand for a folder, by file system */
		return err_sys(err, -errno, "remove %s", name);
	struct removal rm = { .top = open_dir(dirfd, name), .err = err };
	if (rm.top < 0)
		return err_sys(err, rm.top, "remove %s", name);
	auto_dir *dir = fdopendir(rm.top);
	if (!dir) {
		int r = -errno;
		(void)close(rm.top); /* nothing was written */
		return err_sys(err, r, "remove %s", name);
	}
	int r = empty_dir(&rm, dir, remove_child);
	if (r < 0)
		return err_prefix(err, r, "remove %s", name);
	if (unlinkat(dirfd, name, AT_REMOVEDIR) < 0)
		return err_sys(err, -errno, "remove %s", name);
	return 0;
}

int io_open_beneath(int dir, const char *path, uint64_t flags)
{
	struct open_how how = {
		.flags = flags | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV |
			   RESOLVE_NO_MAGICLINKS,
	};
	long fd;
	do /* a rename in the way of a path that is being walked */
		fd = syscall(SYS_openat2, dir, *path ? path : ".", &how, sizeof(how));
	while (fd < 0 && (errno == EAGAIN || errno == EINTR));
	return fd < 0 ? -errno : (int)fd;
}
