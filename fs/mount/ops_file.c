/* Content of files. Nothing lives in a file handle. */
#include <linux/fuse.h>
#include "fs/mount/ops.h"
#include "fs/mount/scratch.h"

/* Asked once where the kernel can do without; else each time. */
void on_open(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	struct mounted *m = on_begin(req, FUSE_OPEN);
	if (m->no_open) {
		reply_error(req, -ENOSYS);
		return;
	}
	fi->keep_cache = 1;
	fi->noflush = 1;
	(void)fuse_reply_open(req, fi);
}

void on_release(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	(void)on_begin(req, FUSE_RELEASE);
	reply_error(req, 0);
}

void on_read(fuse_req_t req, fuse_ino_t node, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct mounted *m = on_begin(req, FUSE_READ);
	char *buf = scratch();
	if (!buf) {
		reply_error(req, -ENOMEM);
		return;
	}
	size_t n = size < SCRATCH_BYTES ? size : SCRATCH_BYTES; /* max_pages keeps it there */
	ssize_t got = ws_read(m->ws, node, buf, n, (uint64_t)off);
	if (got < 0) {
		reply_error(req, (int)got);
		return;
	}
	counter_add(&m->counters.bytes_read, (uint64_t)got);
	(void)fuse_reply_buf(req, buf, (size_t)got);
}

/* The kernel goes on after a short write as write(2) says, but not where it writes pages of a map.
 * So the quota is used to its last byte by who appends; elsewhere it is all or nothing. */
static int write_some(struct mounted *m, fuse_ino_t node, const char *buf, size_t *size, off_t off,
		      const struct fuse_file_info *fi, const struct caller *c)
{
	int r = PATIENTLY(m->ws, m,
			  ws_write(m->ws, node, buf, *size, (uint64_t)off, fi->kill_suidgid, c));
	size_t fits = r == -EDQUOT && !fi->writepage ? ws_room(m->ws, node, (uint64_t)off) : 0;
	if (fits == 0 || fits >= *size)
		return r;
	*size = fits;
	return ws_write(m->ws, node, buf, fits, (uint64_t)off, fi->kill_suidgid, c);
}

/* How much of a write that was done had room: what it made the end of the file. */
static size_t written_before(struct mounted *m, fuse_ino_t node, size_t size, uint64_t off)
{
	struct attr a;
	if (ws_getattr(m->ws, node, &a) < 0 || a.size <= off || a.size - off >= size)
		return size;
	return (size_t)(a.size - off);
}

void on_write(fuse_req_t req, fuse_ino_t node, const char *buf, size_t size, off_t off,
	      struct fuse_file_info *fi)
{
	struct mounted *m = on_begin(req, FUSE_WRITE);
	struct caller c = caller_of(req);
	int r = done_before(m, NULL);
	if (r > 0)
		size = written_before(m, node, size, (uint64_t)off);
	else if (r == 0)
		r = write_some(m, node, buf, &size, off, fi, &c);
	if (r < 0) {
		reply_error(req, r);
		return;
	}
	counter_add(&m->counters.bytes_written, size);
	(void)fuse_reply_write(req, size);
}

void on_fallocate(fuse_req_t req, fuse_ino_t node, int mode, off_t off, off_t len,
		  struct fuse_file_info *fi)
{
	struct mounted *m = on_begin(req, FUSE_FALLOCATE);
	struct caller c = caller_of(req);
	int r = done_before(m, NULL);
	if (r == 0)
		r = PATIENTLY(m->ws, m,
			      ws_fallocate(m->ws, node, mode, (uint64_t)off, (uint64_t)len, &c));
	reply_error(req, r);
}

void on_lseek(fuse_req_t req, fuse_ino_t node, off_t off, int whence, struct fuse_file_info *fi)
{
	struct mounted *m = on_begin(req, FUSE_LSEEK);
	uint64_t at;
	int r = off < 0 ? -ENXIO : ws_seek(m->ws, node, (uint64_t)off, whence, &at);
	if (r < 0) {
		reply_error(req, r);
		return;
	}
	(void)fuse_reply_lseek(req, (off_t)at);
}

/* A copy that was done to its end: the bytes there were to copy. */
static ssize_t copied_before(struct mounted *m, fuse_ino_t from, off_t from_off, fuse_ino_t to,
			     off_t to_off, size_t len)
{
	struct attr src, dst;
	int r = ws_getattr(m->ws, from, &src);
	if (r == 0)
		r = ws_getattr(m->ws, to, &dst);
	if (r < 0)
		return r;
	uint64_t had = src.size > (uint64_t)from_off ? src.size - (uint64_t)from_off : 0;
	uint64_t has = dst.size > (uint64_t)to_off ? dst.size - (uint64_t)to_off : 0;
	uint64_t n = len < WS_COPY_MAX ? len : WS_COPY_MAX;
	n = n < had ? n : had;
	return (ssize_t)(n < has ? n : has);
}

void on_copy(fuse_req_t req, fuse_ino_t from, off_t from_off, struct fuse_file_info *from_fi,
	     fuse_ino_t to, off_t to_off, struct fuse_file_info *to_fi, size_t len, int flags)
{
	struct mounted *m = on_begin(req, FUSE_COPY_FILE_RANGE);
	struct caller c = caller_of(req);
	ssize_t n = done_before(m, NULL);
	if (n > 0)
		n = copied_before(m, from, from_off, to, to_off, len);
	else if (n == 0)
		n = PATIENTLY(m->ws, m,
			      ws_copy_range(m->ws, from, (uint64_t)from_off, to, (uint64_t)to_off,
					    len, &c));
	if (n < 0) {
		reply_error(req, (int)n);
		return;
	}
	(void)fuse_reply_write(req, (size_t)n);
}

void on_fsync(fuse_req_t req, fuse_ino_t node, int datasync, struct fuse_file_info *fi)
{
	struct mounted *m = on_begin(req, FUSE_FSYNC);
	reply_error(req, ws_fsync(m->ws, node));
}
