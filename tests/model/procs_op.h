/* One operation of the model of several processes (procs.c): what it is, as a line of a script, and
 * the system calls it stands for, which are the same on a workspace and on a plain directory. */
#ifndef BOUGH_TESTS_PROCS_OP_H
#define BOUGH_TESTS_PROCS_OP_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "fs/base/cleanup.h"

enum op_kind {
	OP_CREATE,
	OP_WRITE,
	OP_APPEND,
	OP_READ,
	OP_TRUNCATE,
	OP_FALLOCATE,
	OP_COPY,
	OP_MAP,
	OP_SYNC,
	OP_MKDIR,
	OP_RMDIR,
	OP_UNLINK,
	OP_RENAME,
	OP_LINK,
	OP_SYMLINK,
	OP_MKNOD,
	OP_TMPFILE,
	OP_CHMOD,
	OP_CHOWN,
	OP_TIMES,
	OP_SETXATTR,
	OP_GETXATTR,
	OP_NOXATTR,
	OP_STAT,
	OP_LIST,
	OP_HOLD,
	OP_HELD_WRITE,
	OP_HELD_READ,
	OP_HELD_STAT,
	OP_FORKED,
	OP_SAVED,
	OP_KINDS
};

static const struct {
	const char *name;
	unsigned weight; /* of about 10,000 */
} op_kinds[OP_KINDS] = {
	[OP_CREATE] = { "create", 1300 },
	[OP_WRITE] = { "write", 1500 },
	[OP_APPEND] = { "append", 300 },
	[OP_READ] = { "read", 700 },
	[OP_TRUNCATE] = { "truncate", 400 },
	[OP_FALLOCATE] = { "fallocate", 300 },
	[OP_COPY] = { "copy", 300 },
	[OP_MAP] = { "map", 100 },
	[OP_SYNC] = { "sync", 10 },
	[OP_MKDIR] = { "mkdir", 500 },
	[OP_RMDIR] = { "rmdir", 250 },
	[OP_UNLINK] = { "unlink", 800 },
	[OP_RENAME] = { "rename", 900 },
	[OP_LINK] = { "link", 300 },
	[OP_SYMLINK] = { "symlink", 200 },
	[OP_MKNOD] = { "mknod", 60 },
	[OP_TMPFILE] = { "tmpfile", 80 },
	[OP_CHMOD] = { "chmod", 200 },
	[OP_CHOWN] = { "chown", 150 },
	[OP_TIMES] = { "times", 150 },
	[OP_SETXATTR] = { "setxattr", 250 },
	[OP_GETXATTR] = { "getxattr", 150 },
	[OP_NOXATTR] = { "noxattr", 100 },
	[OP_STAT] = { "stat", 300 },
	[OP_LIST] = { "list", 200 },
	[OP_HOLD] = { "hold", 150 },
	[OP_HELD_WRITE] = { "held-write", 200 },
	[OP_HELD_READ] = { "held-read", 150 },
	[OP_HELD_STAT] = { "held-stat", 50 },
	[OP_FORKED] = { "forked", 1 }, /* these two are the program's own */
	[OP_SAVED] = { "saved", 1 },
};

enum {
	OP_PATH = 48,
	OP_BYTES = 64 * 1024,     /* of one read or write */
	OP_CONTENT = 1200 * 1024, /* a bit beyond where a file gets one of its own */
	OP_HELD = 4,
	OP_LINE = 2 * OP_PATH + 120,
};

struct op {
	uint8_t kind, ws;
	char a[OP_PATH], b[OP_PATH]; /* below the client's folder; "." is that */
	uint32_t x, y, z;
};

/* What a call gave beside its result. */
struct op_out {
	size_t n;
	unsigned char data[OP_BYTES];
};

static inline void op_print(char out[OP_LINE], const struct op *o)
{
	(void)snprintf(out, OP_LINE, "w%u %s %s %s %" PRIu32 " %" PRIu32 " %" PRIu32, o->ws,
		       op_kinds[o->kind].name, o->a[0] ? o->a : "-", o->b[0] ? o->b : "-", o->x,
		       o->y, o->z);
}

static inline bool op_scan(struct op *o, const char *line)
{
	char kind[16];
	unsigned ws;
	*o = (struct op){ 0 };
	if (sscanf(line, "w%u %15s %47s %47s %" SCNu32 " %" SCNu32 " %" SCNu32, &ws, kind, o->a,
		   o->b, &o->x, &o->y, &o->z) != 7)
		return false;
	o->ws = (uint8_t)ws;
	while (o->kind < OP_KINDS && strcmp(op_kinds[o->kind].name, kind) != 0)
		o->kind++;
	return o->kind < OP_KINDS;
}

/* ---- the calls: each 0 or more, or -errno ---- */

static inline long op_err(long r)
{
	return r < 0 ? -errno : r;
}

static inline int op_open(int dir, const char *path, int flags)
{
	return (int)op_err(openat(dir, path, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0644));
}

/* Bytes that tell which operation wrote them, and where. */
static inline void op_fill(unsigned char *p, size_t n, const struct op *o)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)(o->z * 31 + i * 7 + (i >> 8));
}

static inline long op_write_to(int fd, const struct op *o,
			       long (*how)(int, const void *, size_t, off_t))
{
	static unsigned char buf[OP_BYTES];
	size_t n = o->y % OP_BYTES;
	op_fill(buf, n, o);
	return op_err(how(fd, buf, n, (off_t)o->x));
}

static inline long op_pwrite(int fd, const void *p, size_t n, off_t at)
{
	return pwrite(fd, p, n, at);
}

static inline long op_write_end(int fd, const void *p, size_t n, off_t at)
{
	return write(fd, p, n);
}

static inline long op_read_from(int fd, const struct op *o, struct op_out *out)
{
	long r = op_err(pread(fd, out->data, o->y % OP_BYTES, (off_t)o->x));
	out->n = r > 0 ? (size_t)r : 0;
	return r;
}

static inline long op_map(int fd, const struct op *o, bool host)
{
	struct stat st;
	if (fstat(fd, &st) < 0 || st.st_size == 0)
		return 0;
	size_t size = (size_t)st.st_size, at = o->x % size, n = o->y % 500;
	unsigned char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	op_fill(p + at, n < size - at ? n : size - at, o);
	long r = host ? 0 : op_err(msync(p, size, MS_SYNC));
	(void)munmap(p, size);
	return r;
}

static inline long op_copy(int from, int to, const struct op *o)
{
	struct stat st;
	loff_t a = (loff_t)o->x, b = (loff_t)o->y;
	size_t left = o->z % OP_CONTENT;
	long sum = 0;
	struct stat other;
	if (fstat(from, &st) < 0 || fstat(to, &other) < 0)
		return -errno;
	if (st.st_ino == other.st_ino)
		return 0; /* how far it gets where it meets itself is each filesystem's own */
	while (left > 0) {
		long r = op_err(copy_file_range(from, &a, to, &b, left, 0));
		if (r <= 0)
			return r < 0 ? r : sum;
		left -= (size_t)r;
		sum += r;
	}
	return sum;
}

static inline void op_out_stat(struct op_out *out, const struct stat *st)
{
	out->n = (size_t)snprintf((char *)out->data, 200, "%o %u:%u %lu %" PRIu64 " %lx",
				  st->st_mode, st->st_uid, st->st_gid, (unsigned long)st->st_nlink,
				  S_ISDIR(st->st_mode) ? 0 : (uint64_t)st->st_size,
				  (unsigned long)st->st_rdev);
	/* Times are the moment's, unless they were set; the setting ones lie long ago. What is
	 * written to a FIFO of a FUSE mount the kernel tells nobody. */
	if (st->st_mtim.tv_sec < 100000000 && !S_ISFIFO(st->st_mode))
		out->n += (size_t)snprintf((char *)out->data + out->n, 100, " %ld.%ld",
					   (long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
}

static inline int op_by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* The names of a folder in order; the caller frees each and the list. -errno. */
static inline int op_names(int dir, const char *path, struct dirent ***list)
{
	int fd = op_open(dir, path, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return fd;
	int n = (int)op_err(scandirat(fd, ".", list, NULL, op_by_name));
	(void)close(fd);
	return n;
}

static inline long op_list(int dir, const struct op *o, struct op_out *out)
{
	struct dirent **list;
	int n = op_names(dir, o->a, &list);
	if (n < 0)
		return n;
	for (int i = 0; i < n; i++) {
		out->n += (size_t)snprintf((char *)out->data + out->n, OP_BYTES - out->n, "%s ",
					   list[i]->d_name);
		free(list[i]);
	}
	free(list);
	return n;
}

static inline long op_xattr(int dir, const struct op *o, struct op_out *out)
{
	static const char *const names[] = { "user.one", "user.two", "user.three" };
	const char *name = names[o->x % 3];
	static unsigned char value[3000];
	auto_fd fd = op_open(dir, o->a, O_RDONLY);
	if (fd < 0)
		return fd;
	if (o->kind == OP_NOXATTR)
		return op_err(fremovexattr(fd, name));
	if (o->kind == OP_SETXATTR) {
		static const int flags[] = { 0, 0, XATTR_CREATE, XATTR_REPLACE };
		op_fill(value, sizeof(value), o);
		return op_err(fsetxattr(fd, name, value, o->y % 900, flags[o->z % 4]));
	}
	long r = op_err(fgetxattr(fd, name, out->data, OP_BYTES));
	out->n = r > 0 ? (size_t)r : 0;
	return r;
}

static inline long op_tmpfile(int dir, const struct op *o)
{
	char path[64];
	auto_fd fd = op_open(dir, o->a, O_TMPFILE | O_RDWR);
	if (fd < 0)
		return fd;
	long r = op_write_to(fd, o, op_pwrite);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return r < 0 ? r : op_err(linkat(AT_FDCWD, path, dir, o->b, AT_SYMLINK_FOLLOW));
}

static inline long op_on_names(int dir, const struct op *o, struct op_out *out)
{
	static const unsigned renames[] = { 0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE };
	struct timespec t[2] = { { 1000, 1 }, { o->x % 90000000, o->y % 1000000000 } };
	struct stat st;
	long r;
	switch (o->kind) {
	case OP_MKDIR:
		return op_err(mkdirat(dir, o->a, o->x & 0777));
	case OP_RMDIR:
		return op_err(unlinkat(dir, o->a, AT_REMOVEDIR));
	case OP_UNLINK:
		return op_err(unlinkat(dir, o->a, 0));
	case OP_RENAME:
		return op_err(renameat2(dir, o->a, dir, o->b, renames[o->x % 5]));
	case OP_LINK:
		return op_err(linkat(dir, o->a, dir, o->b, 0));
	case OP_SYMLINK:
		return op_err(symlinkat(o->b, dir, o->a));
	case OP_MKNOD:
		return op_err(mknodat(dir, o->a, (o->x & 1 ? S_IFIFO : S_IFSOCK) | 0600, 0));
	case OP_CHMOD:
		return op_err(fchmodat(dir, o->a, o->x & 07777, 0));
	case OP_CHOWN:
		return op_err(fchownat(dir, o->a, o->x % 3, o->y % 3, AT_SYMLINK_NOFOLLOW));
	case OP_TIMES:
		return op_err(utimensat(dir, o->a, t, AT_SYMLINK_NOFOLLOW));
	case OP_STAT:
		r = op_err(fstatat(dir, o->a, &st, AT_SYMLINK_NOFOLLOW));
		if (r >= 0)
			op_out_stat(out, &st);
		return r;
	case OP_LIST:
		return op_list(dir, o, out);
	case OP_TMPFILE:
		return op_tmpfile(dir, o);
	default:
		return op_xattr(dir, o, out);
	}
}

/* ---- operations on contents ---- */

static inline long op_on_fd(int fd, const struct op *o, struct op_out *out, bool host)
{
	static const int modes[] = { 0, FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE,
				     FALLOC_FL_ZERO_RANGE };
	struct stat st;
	long r;
	switch (o->kind) {
	case OP_WRITE:
	case OP_HELD_WRITE:
		return op_write_to(fd, o, op_pwrite);
	case OP_APPEND:
		return op_write_to(fd, o, op_write_end);
	case OP_READ:
	case OP_HELD_READ:
		return op_read_from(fd, o, out);
	case OP_TRUNCATE:
		return op_err(ftruncate(fd, (off_t)o->x));
	case OP_FALLOCATE:
		return op_err(
			fallocate(fd, modes[o->z % 4], (off_t)o->x, (off_t)(o->y % OP_BYTES + 1)));
	case OP_MAP:
		return op_map(fd, o, host);
	case OP_SYNC: /* a FIFO's is refused, by both; the host's disk needn't work for a file's */
		return host && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? 0 : op_err(fsync(fd));
	default: /* OP_HELD_STAT */
		r = op_err(fstat(fd, &st));
		if (r >= 0)
			op_out_stat(out, &st);
		return r;
	}
}

/* Does it below `dir`; `held`: descriptors of this side, -1: none. */
static inline long op_do(int dir, const struct op *o, int held[OP_HELD], struct op_out *out,
			 bool host)
{
	int *slot = &held[o->z % OP_HELD];
	out->n = 0;
	switch (o->kind) {
	case OP_HELD_WRITE:
	case OP_HELD_READ:
	case OP_HELD_STAT:
		return *slot < 0 ? 0 : op_on_fd(*slot, o, out, host);
	case OP_HOLD: {
		int fd = op_open(dir, o->a, O_RDWR);
		if (fd >= 0 && *slot >= 0)
			(void)close(*slot);
		if (fd >= 0)
			*slot = fd;
		return fd < 0 ? fd : 0;
	}
	case OP_CREATE: {
		static const int flags[] = { O_EXCL, 0, O_TRUNC, O_EXCL };
		auto_fd fd = op_open(dir, o->a, O_WRONLY | O_CREAT | flags[o->x % 4]);
		return fd < 0     ? fd
		       : o->y % 3 ? op_write_to(fd, &(struct op){ .y = o->y, .z = o->z }, op_pwrite)
				  : 0;
	}
	case OP_WRITE:
	case OP_APPEND:
	case OP_READ:
	case OP_TRUNCATE:
	case OP_FALLOCATE:
	case OP_MAP:
	case OP_SYNC: {
		auto_fd fd = op_open(dir, o->a, o->kind == OP_APPEND ? O_RDWR | O_APPEND : O_RDWR);
		return fd < 0 ? fd : op_on_fd(fd, o, out, host);
	}
	case OP_COPY: {
		auto_fd a = op_open(dir, o->a, O_RDONLY), b = op_open(dir, o->b, O_WRONLY);
		return a < 0 ? a : b < 0 ? b : op_copy(a, b, o);
	}
	default:
		return op_on_names(dir, o, out);
	}
}

#endif
