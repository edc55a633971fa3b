#include "fs/base/io_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>

enum { OPS = 14 };

struct io_fault {
	struct io io;
	const struct io *below;
	pthread_mutex_t lock; /* guards all that follows */
	struct io_fault_plan plan;
	uint64_t counted, hits;
	uint64_t calls[OPS];
	size_t chunk;
	uint64_t space;
};

/* Counts a call of the kinds `ops`; its error when the plan fails it, else 0. */
static int strike(struct io_fault *f, unsigned ops)
{
	int r = 0;
	(void)pthread_mutex_lock(&f->lock);
	f->calls[31 - __builtin_clz(ops)]++; /* the highest bit: no call counts twice */
	if (f->plan.nth && (f->plan.ops & ops)) {
		f->counted++;
		if (f->counted == f->plan.nth || (f->plan.for_good && f->counted > f->plan.nth)) {
			f->hits++;
			r = f->plan.error ? f->plan.error : -EIO;
		}
	}
	(void)pthread_mutex_unlock(&f->lock);
	return r;
}

static size_t chunked(struct io_fault *f, size_t n)
{
	(void)pthread_mutex_lock(&f->lock);
	if (f->chunk && n > f->chunk)
		n = f->chunk;
	(void)pthread_mutex_unlock(&f->lock);
	return n;
}

/* Takes up to n bytes of the space that is left, and tells how many. */
static uint64_t take_space(struct io_fault *f, uint64_t n)
{
	(void)pthread_mutex_lock(&f->lock);
	if (f->space != UINT64_MAX) {
		if (n > f->space)
			n = f->space;
		f->space -= n;
	}
	(void)pthread_mutex_unlock(&f->lock);
	return n;
}

static int fault_open(void *ctx, int dirfd, const char *name, int flags, mode_t mode)
{
	struct io_fault *f = ctx;
	bool creates = flags & (O_CREAT | O_TRUNC);
	int r = strike(f, creates ? IO_OP_CREATE | IO_OP_OPEN : IO_OP_OPEN);
	return r ? r : f->below->open(f->below->ctx, dirfd, name, flags, mode);
}

static int fault_close(void *ctx, int fd)
{
	struct io_fault *f = ctx;
	int r = strike(f, IO_OP_CLOSE);
	int c = f->below->close(f->below->ctx, fd);
	return r ? r : c;
}

static ssize_t fault_pread(void *ctx, int fd, void *buf, size_t n, uint64_t off)
{
	struct io_fault *f = ctx;
	int r = strike(f, IO_OP_PREAD);
	return r ? r : f->below->pread(f->below->ctx, fd, buf, chunked(f, n), off);
}

static ssize_t fault_pwrite(void *ctx, int fd, const void *buf, size_t n, uint64_t off)
{
	struct io_fault *f = ctx;
	int r = strike(f, IO_OP_PWRITE);
	if (r) {
		(void)pthread_mutex_lock(&f->lock);
		size_t torn = f->plan.torn;
		(void)pthread_mutex_unlock(&f->lock);
		if (torn) /* the failure is what the caller is told, whatever became of these */
			(void)f->below->pwrite(f->below->ctx, fd, buf, torn < n ? torn : n, off);
		return r;
	}
	size_t want = chunked(f, n), room = take_space(f, want);
	if (want > 0 && room == 0)
		return -ENOSPC;
	return f->below->pwrite(f->below->ctx, fd, buf, room, off);
}

static int fault_fdatasync(void *ctx, int fd)
{
	struct io_fault *f = ctx;
	int r = strike(f, IO_OP_FDATASYNC);
	return r ? r : f->below->fdatasync(f->below->ctx, fd);
}

static int fault_fsync(void *ctx, int fd)
{
	struct io_fault *f = ctx;
	int r = strike(f, IO_OP_FSYNC);
	return r ? r : f->below->fsync(f->below->ctx, fd);
}

static int fault_ftruncate(void *ctx, int fd, uint64_t size)
{
	struct io_fault *f = ctx;
	int r = strike(f, IO_OP_FTRUNCATE);
	return r ? r : f->below->ftruncate(f->below->ctx, fd, size);
}

static int fault_fallocate(void *ctx, int fd, int mode, uint64_t off, uint64_t len)
{
	struct io_fault *f = ctx;
	int r = strike(f, IO_OP_FALLOCATE);
	if (r)
		return r;
	if (!(mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_COLLAPSE_RANGE)) && take_space(f, len) < len)
		return -ENOSPC;
	return f->below->fallocate(f->below->ctx, fd, mode, off, len);
}

static int fault_fstat(void *ctx, int fd, struct stat *st)
{
	struct io_fault *f = ctx;
	int r = strike(f, IO_OP_FSTAT);
	return r ? r : f->below->fstat(f->below->ctx, fd, st);
}

static int fault_mkdir(void *ctx, int dirfd, const char *name, mode_t mode)
{
	struct io_fault *f = ctx;
	int r = strike(f, IO_OP_MKDIR);
	return r ? r : f->below->mkdir(f->below->ctx, dirfd, name, mode);
}

static int fault_unlink(void *ctx, int dirfd, const char *name, int flags)
{
	struct io_fault *f = ctx;
	int r = strike(f, IO_OP_UNLINK);
	return r ? r : f->below->unlink(f->below->ctx, dirfd, name, flags);
}

static int fault_rename(void *ctx, int olddir, const char *oldname, int newdir, const char *newname,
			unsigned flags)
{
	struct io_fault *f = ctx;
	int r = strike(f, IO_OP_RENAME);
	return r ? r : f->below->rename(f->below->ctx, olddir, oldname, newdir, newname, flags);
}

static int fault_link(void *ctx, int olddir, const char *oldname, int newdir, const char *newname)
{
	struct io_fault *f = ctx;
	int r = strike(f, IO_OP_LINK);
	return r ? r : f->below->link(f->below->ctx, olddir, oldname, newdir, newname);
}

struct io_fault *io_fault_new(const struct io *below)
{
	struct io_fault *f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	f->io = (struct io){
		.ctx = f,
		.open = fault_open,
		.close = fault_close,
		.pread = fault_pread,
		.pwrite = fault_pwrite,
		.fdatasync = fault_fdatasync,
		.fsync = fault_fsync,
		.ftruncate = fault_ftruncate,
		.fallocate = fault_fallocate,
		.fstat = fault_fstat,
		.mkdir = fault_mkdir,
		.unlink = fault_unlink,
		.rename = fault_rename,
		.link = fault_link,
	};
	f->below = below ? below : &io_host;
	f->space = UINT64_MAX;
	(void)pthread_mutex_init(&f->lock, NULL); /* can't fail with default attributes */
	return f;
}

void io_fault_free(struct io_fault *f)
{
	if (!f)
		return;
	(void)pthread_mutex_destroy(&f->lock);
	free(f);
}

const struct io *io_fault_io(struct io_fault *f)
{
	return &f->io;
}

void io_fault_plan(struct io_fault *f, const struct io_fault_plan *plan)
{
	(void)pthread_mutex_lock(&f->lock);
	f->plan = plan ? *plan : (struct io_fault_plan){ 0 };
	f->counted = f->hits = 0;
	(void)pthread_mutex_unlock(&f->lock);
}

uint64_t io_fault_hits(struct io_fault *f)
{
	(void)pthread_mutex_lock(&f->lock);
	uint64_t n = f->hits;
	(void)pthread_mutex_unlock(&f->lock);
	return n;
}

uint64_t io_fault_calls(struct io_fault *f, unsigned ops)
{
	uint64_t n = 0;
	(void)pthread_mutex_lock(&f->lock);
	for (unsigned i = 0; i < OPS; i++)
		if (ops & 1u << i || (1u << i == IO_OP_CREATE && ops & IO_OP_OPEN))
			n += f->calls[i];
	(void)pthread_mutex_unlock(&f->lock);
	return n;
}

void io_fault_chunk(struct io_fault *f, size_t bytes)
{
	(void)pthread_mutex_lock(&f->lock);
	f->chunk = bytes;
	(void)pthread_mutex_unlock(&f->lock);
}

void io_fault_space(struct io_fault *f, uint64_t bytes)
{
	(void)pthread_mutex_lock(&f->lock);
	f->space = bytes;
	(void)pthread_mutex_unlock(&f->lock);
}
