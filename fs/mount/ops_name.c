/* Names: what looks them up, makes, moves and removes them. */
#include <linux/fuse.h>
#include <string.h>
#include <sys/stat.h>
#include "fs/mount/ops.h"

enum { OPCODE_TMPFILE = 51 }; /* newer than the headers of the build host may be */

void on_lookup(fuse_req_t req, fuse_ino_t dir, const char *name)
{
	struct mounted *m = on_begin(req, FUSE_LOOKUP);
	struct entry e;
	int r = ws_lookup(m->ws, dir, name, strlen(name), &e);
	if (r == -ENOENT) {
		/* Node 0 with a timeout: the kernel remembers that there is no such name. */
		struct fuse_entry_param none = { .entry_timeout = FOREVER };
		(void)fuse_reply_entry(req, &none);
		return;
	}
	reply_node(req, r, &e);
}

void on_forget(fuse_req_t req, fuse_ino_t node, uint64_t n)
{
	struct mounted *m = on_begin(req, FUSE_FORGET);
	ws_forget(m->ws, node, n);
	fuse_reply_none(req);
}

void on_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	struct mounted *m = on_begin(req, FUSE_BATCH_FORGET);
	for (size_t i = 0; i < count; i++)
		ws_forget(m->ws, forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

void on_mknod(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode, dev_t rdev)
{
	struct mounted *m = on_begin(req, FUSE_MKNOD);
	struct caller c = caller_of(req);
	struct entry e;
	int r = done_before(m, &e);
	if (r == 0)
		r = PATIENTLY(m->ws, m,
			      ws_mknod(m->ws, dir, name, strlen(name), mode, (uint32_t)rdev, &c,
				       &e));
	reply_node(req, r, &e);
}

void on_mkdir(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode)
{
	struct mounted *m = on_begin(req, FUSE_MKDIR);
	struct caller c = caller_of(req);
	struct entry e;
	int r = done_before(m, &e);
	mode = S_IFDIR | (mode & 07777);
	if (r == 0)
		r = PATIENTLY(m->ws, m, ws_mknod(m->ws, dir, name, strlen(name), mode, 0, &c, &e));
	reply_node(req, r, &e);
}

void on_symlink(fuse_req_t req, const char *target, fuse_ino_t dir, const char *name)
{
	struct mounted *m = on_begin(req, FUSE_SYMLINK);
	struct caller c = caller_of(req);
	struct entry e;
	int r = done_before(m, &e);
	if (r == 0)
		r = PATIENTLY(m->ws, m, ws_symlink(m->ws, dir, name, strlen(name), target, &c, &e));
	reply_node(req, r, &e);
}

void on_link(fuse_req_t req, fuse_ino_t node, fuse_ino_t dir, const char *name)
{
	struct mounted *m = on_begin(req, FUSE_LINK);
	struct caller c = caller_of(req);
	struct entry e;
	int r = done_before(m, &e);
	if (r == 0)
		r = ws_link(m->ws, node, dir, name, strlen(name), &c, &e);
	reply_node(req, r, &e);
}

void on_tmpfile(fuse_req_t req, fuse_ino_t dir, mode_t mode, struct fuse_file_info *fi)
{
	struct mounted *m = on_begin(req, OPCODE_TMPFILE);
	struct caller c = caller_of(req);
	struct entry e;
	int r = done_before(m, &e);
	if (r == 0)
		r = PATIENTLY(m->ws, m, ws_tmpfile(m->ws, dir, S_IFREG | (mode & 07777), &c, &e));
	if (r < 0) {
		reply_error(req, r);
		return;
	}
	struct fuse_entry_param p = param_of_entry(&e);
	fi->keep_cache = 1;
	fi->noflush = 1;
	(void)fuse_reply_create(req, &p, fi);
}

void on_unlink(fuse_req_t req, fuse_ino_t dir, const char *name)
{
	struct mounted *m = on_begin(req, FUSE_UNLINK);
	struct caller c = caller_of(req);
	int r = done_before(m, NULL);
	reply_error(req, r ? r : ws_unlink(m->ws, dir, name, strlen(name), &c));
}

void on_rmdir(fuse_req_t req, fuse_ino_t dir, const char *name)
{
	struct mounted *m = on_begin(req, FUSE_RMDIR);
	struct caller c = caller_of(req);
	int r = done_before(m, NULL);
	reply_error(req, r ? r : ws_rmdir(m->ws, dir, name, strlen(name), &c));
}

void on_rename(fuse_req_t req, fuse_ino_t dir, const char *name, fuse_ino_t newdir,
	       const char *newname, unsigned flags)
{
	struct mounted *m = on_begin(req, flags ? FUSE_RENAME2 : FUSE_RENAME);
	struct caller c = caller_of(req);
	int r = done_before(m, NULL);
	if (r == 0)
		r = PATIENTLY(m->ws, m,
			      ws_rename(m->ws, dir, name, strlen(name), newdir, newname,
					strlen(newname), flags, &c));
	reply_error(req, r);
}

void on_readlink(fuse_req_t req, fuse_ino_t node)
{
	struct mounted *m = on_begin(req, FUSE_READLINK);
	char target[4097];
	size_t len;
	int r = ws_readlink(m->ws, node, target, sizeof(target) - 1, &len);
	if (r < 0) {
		reply_error(req, r);
		return;
	}
	(void)fuse_reply_buf(req, target, len);
}
