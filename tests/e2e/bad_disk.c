/* A disk that fails when it is told to: a filesystem of one file, `disk`, that is another file on
 * the host. A loop device over it is a real disk to the kernel, with a page cache before it.
 *
 *     bad_disk FILE MOUNTPOINT WHAT
 *
 * While the file WHAT exists, each write fails with EIO that holds the bytes which it holds (of an
 * empty one: each write). It ends when it is unmounted. */
#define FUSE_USE_VERSION 318
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *what;
static int disk;

static int fs_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	if (strcmp(path, "/") == 0) {
		st->st_mode = S_IFDIR | 0700;
		st->st_nlink = 2;
		return 0;
	}
	return strcmp(path, "/disk") == 0 && fstat(disk, st) == 0 ? 0 : -ENOENT;
}

static int fs_read(const char *path, char *buf, size_t n, off_t off, struct fuse_file_info *fi)
{
	ssize_t r = pread(disk, buf, n, off);
	return r < 0 ? -errno : (int)r;
}

static int fs_write(const char *path, const char *buf, size_t n, off_t off,
		    struct fuse_file_info *fi)
{
	char bad[256];
	int fd = open(what, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		ssize_t len = read(fd, bad, sizeof(bad));
		(void)close(fd);
		if (len >= 0 && memmem(buf, n, bad, (size_t)len))
			return -EIO;
	}
	ssize_t r = pwrite(disk, buf, n, off);
	return r < 0 ? -errno : (int)r;
}

static int fs_fsync(const char *path, int data, struct fuse_file_info *fi)
{
	return fdatasync(disk) < 0 ? -errno : 0;
}

int main(int argc, char **argv)
{
	static const struct fuse_operations ops = {
		.getattr = fs_getattr, .read = fs_read, .write = fs_write, .fsync = fs_fsync
	};
	if (argc != 4)
		return fprintf(stderr, "bad_disk FILE MOUNTPOINT WHAT\n"), 2;
	disk = open(argv[1], O_RDWR | O_CLOEXEC);
	if (disk < 0)
		return perror(argv[1]), 1;
	what = argv[3];
	char *args[] = { argv[0], "-f", argv[2], NULL };
	return fuse_main(3, args, &ops, NULL);
}
