/* The seam through which the project touches the host's disk: store, images and
 * layers open files only by a `struct io`, so that the host, a disk that fails the
 * n-th call and a simulated disk that loses power are interchangeable.
 *
 * Descriptors are plain ints of the host or of the implementation; whoever opened
 * one closes it by the same `struct io`. Every call returns >= 0 or -errno.
 * Calls are safe from any thread. NULL for an io parameter anywhere means io_host. */
#ifndef BOUGH_BASE_IO_H
#define BOUGH_BASE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include "fs/base/err.h"

struct io {
	void *ctx; /* the implementation's own */
	int (*open)(void *ctx, int dirfd, const char *name, int flags, mode_t mode);
	int (*close)(void *ctx, int fd);
	ssize_t (*pread)(void *ctx, int fd, void *buf, size_t n, uint64_t off);
	ssize_t (*pwrite)(void *ctx, int fd, const void *buf, size_t n, uint64_t off);
	int (*fdatasync)(void *ctx, int fd);
	int (*fsync)(void *ctx, int fd); /* of a directory too */
	int (*ftruncate)(void *ctx, int fd, uint64_t size);
	int (*fallocate)(void *ctx, int fd, int mode, uint64_t off, uint64_t len);
	int (*fstat)(void *ctx, int fd, struct stat *st);
	int (*mkdir)(void *ctx, int dirfd, const char *name, mode_t mode);
	int (*unlink)(void *ctx, int dirfd, const char *name, int flags);
	int (*rename)(void *ctx, int olddir, const char *oldname, int newdir, const char *newname,
		      unsigned flags);
	int (*link)(void *ctx, int olddir, const char *oldname, int newdir, const char *newname);
	/* Waits for the lock of a file that one descriptor at a time has, until it is closed. NULL:
	 * nobody else is there. */
	int (*flock)(void *ctx, int fd);
};

extern const struct io io_host;

/* Reads or writes all n bytes, through short transfers and EINTR.
 * io_read_full: the count read, less than n only at the end of the file. */
ssize_t io_read_full(const struct io *io, int fd, void *buf, size_t n, uint64_t off);
int io_write_full(const struct io *io, int fd, const void *buf, size_t n, uint64_t off);

/* Publishes a small file whole: temporary file in the same folder, write, fsync,
 * rename over `name`, fsync of the folder. `durable` false leaves out both syncs:
 * the change is atomic for readers and for a kill of this process, but power loss
 * may bring back the old file (never a torn one: the caller's format has a checksum).
 * The file has mode 0600. A kill in the middle may leave a file IO_TMP_PREFIX… behind,
 * which means nothing to anybody. */
#define IO_TMP_PREFIX ".tmp-"
int io_publish(const struct io *io, int dirfd, const char *name, const void *data, size_t len,
	       bool durable, struct err *err);

/* A whole small file into memory that the caller frees; -EFBIG above `max` bytes.
 * A NUL is put behind the last byte, not counted in *len. */
int io_slurp(const struct io *io, int dirfd, const char *name, size_t max, void **data, size_t *len,
	     struct err *err);

/* openat2 of the host below `dir` ("" is itself): through no link, no other mount, and not out of
 * it, whatever others do to the tree meanwhile. A descriptor, close-on-exec, or -errno. */
int io_open_beneath(int dir, const char *path, uint64_t flags);

/* Removes a folder and all that is in it, without following links and without
 * recursion on depth: deep folders are moved up under .rm-… names on the way, so after a
 * failure what is left may lie elsewhere in the tree. 0 also when it is not there. */
int io_remove_tree(int dirfd, const char *name, struct err *err);

#endif
