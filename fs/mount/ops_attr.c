/* Attributes and extended attributes. */
#include <linux/fuse.h>
#include <string.h>
#include <sys/stat.h>
#include "fs/mount/ops.h"
#include "fs/mount/scratch.h"
#include "fs/work/changed.h"

enum { OPCODE_STATX = 52 }; /* newer than the headers of the build host may be */

void on_getattr(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	struct mounted *m = on_begin(req, FUSE_GETATTR);
	struct attr a;
	reply_attr(req, ws_getattr(m->ws, node, &a), &a);
}

void on_setattr(fuse_req_t req, fuse_ino_t node, struct stat *in, int what,
		struct fuse_file_info *fi)
{
	struct mounted *m = on_begin(req, FUSE_SETATTR);
	static const struct {
		int fuse;
		unsigned ws;
	} bits[] = {
		{ FUSE_SET_ATTR_MODE, WS_SET_MODE },
		{ FUSE_SET_ATTR_UID, WS_SET_UID },
		{ FUSE_SET_ATTR_GID, WS_SET_GID },
		{ FUSE_SET_ATTR_SIZE, WS_SET_SIZE },
		{ FUSE_SET_ATTR_ATIME, WS_SET_ATIME },
		{ FUSE_SET_ATTR_MTIME, WS_SET_MTIME },
		{ FUSE_SET_ATTR_CTIME, WS_SET_CTIME },
		{ FUSE_SET_ATTR_ATIME_NOW, WS_SET_ATIME_NOW },
		{ FUSE_SET_ATTR_MTIME_NOW, WS_SET_MTIME_NOW },
		/* FATTR_KILL_SUIDGID of the protocol: both bits, by the rules of the VFS. */
		{ FUSE_SET_ATTR_KILL_SUID, WS_KILL_SUID },
	};
	unsigned set = 0;
	for (size_t i = 0; i < sizeof(bits) / sizeof(*bits); i++)
		if (what & bits[i].fuse)
			set |= bits[i].ws;
	/* The kernel sends the time beside "now"; the server's clock decides, as in all else. */
	if (set & WS_SET_ATIME_NOW)
		set &= ~(unsigned)WS_SET_ATIME;
	if (set & WS_SET_MTIME_NOW)
		set &= ~(unsigned)WS_SET_MTIME;
	struct attr a = {
		.mode = in->st_mode,
		.uid = in->st_uid,
		.gid = in->st_gid,
		.size = (uint64_t)in->st_size,
		.atime = in->st_atim,
		.mtime = in->st_mtim,
		.ctime = in->st_ctim,
	};
	struct caller c = caller_of(req);
	/* Nothing to set: the kernel is about to change content in a way that ends suid and sgid,
	 * and leaves these to us. WRITE says so itself, FALLOCATE and COPY_FILE_RANGE don't. For
	 * root it comes when capabilities alone had to go, which the kernel has seen to; where
	 * nobody tells who it is, the bits go with them. */
	if (!set && m->killpriv && c.uid != 0)
		set = WS_KILL_SUID;
	struct attr now;
	int r = done_before(m, NULL);
	if (r > 0)
		set = 0;
	if (r >= 0 && set)
		r = PATIENTLY(m->ws, m, ws_setattr(m->ws, node, set, &a, &c, &now));
	else if (r >= 0)
		r = ws_getattr(m->ws, node, &now);
	reply_attr(req, r, &now);
}

static struct statx_timestamp stamp(struct timespec t)
{
	return (struct statx_timestamp){ .tv_sec = t.tv_sec, .tv_nsec = (uint32_t)t.tv_nsec };
}

/* Asked only for the time of birth, which GETATTR doesn't carry. */
void on_statx(fuse_req_t req, fuse_ino_t node, int flags, int mask, struct fuse_file_info *fi)
{
	struct mounted *m = on_begin(req, OPCODE_STATX);
	struct attr a;
	int r = ws_getattr(m->ws, node, &a);
	if (r < 0) {
		reply_error(req, r);
		return;
	}
	struct statx sx = {
		.stx_mask = STATX_BASIC_STATS | STATX_BTIME,
		.stx_blksize = 4096,
		.stx_nlink = a.nlink,
		.stx_uid = a.uid,
		.stx_gid = a.gid,
		.stx_mode = (uint16_t)a.mode,
		.stx_ino = ino_shown(&a),
		.stx_size = a.size,
		.stx_blocks = a.blocks,
		.stx_atime = stamp(a.atime),
		.stx_btime = stamp(a.btime),
		.stx_ctime = stamp(a.ctime),
		.stx_mtime = stamp(a.mtime),
		.stx_rdev_major = (a.rdev & 0xfff00) >> 8,
		.stx_rdev_minor = (a.rdev & 0xff) | (a.rdev >> 12 & 0xfff00),
	};
	(void)fuse_reply_statx(req, 0, &sx, FOREVER);
}

void on_statfs(fuse_req_t req, fuse_ino_t node)
{
	struct mounted *m = on_begin(req, FUSE_STATFS);
	struct ws_statfs fs;
	int r = ws_statfs(m->ws, &fs);
	if (r < 0) {
		reply_error(req, r);
		return;
	}
	struct statvfs st = {
		.f_bsize = fs.block_size,
		.f_frsize = fs.block_size,
		.f_blocks = fs.blocks,
		.f_bfree = fs.blocks_free,
		.f_bavail = fs.blocks_free,
		.f_files = fs.files,
		.f_ffree = fs.files_free,
		.f_favail = fs.files_free,
		.f_namemax = NAME_MAX_BYTES,
	};
	(void)fuse_reply_statfs(req, &st);
}

/* ---- extended attributes ---- */

/* ENOSYS where the workspace shows no xattrs: the kernel then stops asking for any, and programs
 * hear EOPNOTSUPP from it. */
static bool refused(struct mounted *m, fuse_req_t req)
{
	if (ws_shows_xattrs(m->ws))
		return false;
	reply_error(req, -ENOSYS);
	return true;
}

/* Not among them: system., so that nobody takes the word of an ACL that isn't enforced. */
static bool namespace_is_ours(const char *name)
{
	static const char *const ours[] = { "user.", "security.", "trusted." };
	for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++)
		if (strncmp(name, ours[i], strlen(ours[i])) == 0)
			return true;
	return false;
}

void on_setxattr(fuse_req_t req, fuse_ino_t node, const char *name, const char *value, size_t size,
		 int flags)
{
	struct mounted *m = on_begin(req, FUSE_SETXATTR);
	if (refused(m, req))
		return;
	struct caller c = caller_of(req);
	int r = namespace_is_ours(name) ? done_before(m, NULL) : -EOPNOTSUPP;
	if (r == 0)
		r = PATIENTLY(m->ws, m, ws_setxattr(m->ws, node, name, value, size, flags, &c));
	reply_error(req, r);
}

void on_removexattr(fuse_req_t req, fuse_ino_t node, const char *name)
{
	struct mounted *m = on_begin(req, FUSE_REMOVEXATTR);
	if (refused(m, req))
		return;
	struct caller c = caller_of(req);
	int r = namespace_is_ours(name) ? done_before(m, NULL) : -EOPNOTSUPP;
	reply_error(req, r ? r : ws_removexattr(m->ws, node, name, &c));
}

/* The answer to GETXATTR and LISTXATTR: the size alone when that was asked for. */
static void reply_xattr(fuse_req_t req, ssize_t n, const char *buf, size_t asked)
{
	if (n < 0)
		reply_error(req, (int)n);
	else if (asked == 0)
		(void)fuse_reply_xattr(req, (size_t)n);
	else if ((size_t)n > asked)
		reply_error(req, -ERANGE);
	else
		(void)fuse_reply_buf(req, buf, (size_t)n);
}

/* Git's question what changed (tools/fsmonitor). It is no attribute: it isn't listed, can't be set,
 * and the kernel asks each time. */
static void reply_changed(fuse_req_t req, struct mounted *m, fuse_ino_t node, const char *token,
			  size_t size)
{
	auto_buf answer = { 0 };
	struct caller c = asker_walks_names(req);
	int r = ws_changed(m->ws, node, token, &c, CHANGED_ANSWER_MAX, &answer);
	reply_xattr(req, r < 0 ? r : (ssize_t)answer.len, (const char *)answer.data, size);
}

/* The same question where the workspace shows no xattrs, of which the kernel then asks none. */
void on_ioctl(fuse_req_t req, fuse_ino_t node, unsigned cmd, void *arg, struct fuse_file_info *fi,
	      unsigned flags, const void *in, size_t in_size, size_t out_size)
{
	struct mounted *m = on_begin(req, FUSE_IOCTL);
	auto_buf answer = { 0 };
	int r = -ENOTTY;
	if (cmd == CHANGED_IOCTL && memchr(in, 0, in_size)) {
		struct caller c = asker_walks_names(req);
		r = ws_changed(m->ws, node, in, &c, out_size, &answer);
	}
	if (r < 0)
		reply_error(req, r);
	else
		(void)fuse_reply_ioctl(req, (int)answer.len, answer.data, answer.len);
}

void on_getxattr(fuse_req_t req, fuse_ino_t node, const char *name, size_t size)
{
	struct mounted *m = on_begin(req, FUSE_GETXATTR);
	if (strncmp(name, CHANGED_XATTR, strlen(CHANGED_XATTR)) == 0) {
		reply_changed(req, m, node, name + strlen(CHANGED_XATTR), size);
		return;
	}
	if (refused(m, req))
		return;
	if (!namespace_is_ours(name)) {
		reply_error(req, -EOPNOTSUPP);
		return;
	}
	char *buf = size ? scratch() : NULL;
	if (size && !buf) {
		reply_error(req, -ENOMEM);
		return;
	}
	size_t cap = size < SCRATCH_BYTES ? size : SCRATCH_BYTES;
	reply_xattr(req, ws_getxattr(m->ws, node, name, buf, cap), buf, size);
}

/* As on other filesystems, trusted. names show to root only. */
static size_t drop_trusted(fuse_req_t req, char *buf, size_t n)
{
	size_t kept = 0;
	bool asked = false;
	for (size_t at = 0; at < n;) {
		size_t len = strnlen(buf + at, n - at) + 1;
		if (len > n - at)
			break; /* not ours: names end with NUL */
		if (strncmp(buf + at, "trusted.", 8) == 0) {
			if (!asked && asker_is_admin(req))
				return n;
			asked = true;
		} else {
			memmove(buf + kept, buf + at, len);
			kept += len;
		}
		at += len;
	}
	return kept;
}

void on_listxattr(fuse_req_t req, fuse_ino_t node, size_t size)
{
	struct mounted *m = on_begin(req, FUSE_LISTXATTR);
	if (refused(m, req))
		return;
	char *buf = scratch();
	if (!buf) {
		reply_error(req, -ENOMEM);
		return;
	}
	ssize_t n = ws_listxattr(m->ws, node, buf, SCRATCH_BYTES);
	if (n > 0)
		n = (ssize_t)drop_trusted(req, buf, (size_t)n);
	reply_xattr(req, n, buf, size);
}
