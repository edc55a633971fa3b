/* Reading directories. Cookies are the workspace's own, which are stateless and at least
 * NAME_COOKIE_MIN; 1 and 2 follow "." and "..". */
#include <dirent.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/stat.h>
#include "fs/mount/ops.h"
#include "fs/mount/scratch.h"

enum { COOKIE_DOT = 1, COOKIE_DOTDOT = 2 };

void on_opendir(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	struct mounted *m = on_begin(req, FUSE_OPENDIR);
	if (m->no_opendir) {
		reply_error(req, -ENOSYS);
		return;
	}
	fi->keep_cache = 1;
	fi->cache_readdir = 1;
	(void)fuse_reply_open(req, fi);
}

void on_releasedir(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	(void)on_begin(req, FUSE_RELEASEDIR);
	reply_error(req, 0);
}

struct fill {
	fuse_req_t req;
	char *buf;
	size_t cap, len;
	bool plus;
};

/* Appends one entry; false when there is no room. `e` NULL: without attributes, as
 * for READDIR; then `ino` and `type` are what shows. */
static bool put(struct fill *f, const char *name, uint64_t cookie, uint64_t ino, mode_t type,
		const struct entry *e)
{
	size_t left = f->cap - f->len, need;
	if (f->plus) {
		/* Node 0: the kernel takes the name and leaves its caches alone. */
		struct fuse_entry_param p = { .ino = 0 };
		if (e)
			p = param_of_entry(e);
		p.attr.st_ino = ino;
		p.attr.st_mode = e ? e->attr.mode : type;
		need = fuse_add_direntry_plus(f->req, f->buf + f->len, left, name, &p,
					      (off_t)cookie);
	} else {
		struct stat st = { .st_ino = ino, .st_mode = type };
		need = fuse_add_direntry(f->req, f->buf + f->len, left, name, &st, (off_t)cookie);
	}
	if (need > left)
		return false;
	f->len += need;
	return true;
}

static bool put_entry(void *ctx, const struct dirent_ref *d, const struct attr *a)
{
	struct fill *f = ctx;
	char name[NAME_MAX_BYTES + 1];
	memcpy(name, d->name, d->name_len);
	name[d->name_len] = '\0';
	if (!a)
		return put(f, name, d->cookie, d->ino, DTTOIF((mode_t)d->type), NULL);
	struct entry e = { .node = node_of(a), .attr = *a };
	return put(f, name, d->cookie, ino_shown(a), a->mode, &e);
}

/* "." and "..", which the workspace doesn't store. False when there is no room. */
static int put_dots(struct mounted *m, struct fill *f, fuse_ino_t node, uint64_t after, bool *room)
{
	struct attr a;
	int r = ws_getattr(m->ws, node, &a);
	if (r < 0)
		return r;
	*room = (after >= COOKIE_DOT || put(f, ".", COOKIE_DOT, ino_shown(&a), S_IFDIR, NULL)) &&
		put(f, "..", COOKIE_DOTDOT, a.parent ? a.parent : a.ino, S_IFDIR, NULL);
	return 0;
}

static void read_dir(fuse_req_t req, fuse_ino_t node, size_t size, off_t off, bool plus,
		     unsigned opcode)
{
	struct mounted *m = on_begin(req, opcode);
	struct fill f = {
		.req = req,
		.buf = scratch(),
		.cap = size < SCRATCH_BYTES ? size : SCRATCH_BYTES,
		.plus = plus,
	};
	if (!f.buf) {
		reply_error(req, -ENOMEM);
		return;
	}
	uint64_t after = (uint64_t)off;
	bool room = true;
	enum ws_plus attrs = !plus                    ? WS_NAMES
			     : asker_wants_names(req) ? WS_PLUS_FOLDERS
						      : WS_PLUS;
	int r = 0;
	if (after < COOKIE_DOTDOT)
		r = put_dots(m, &f, node, after, &room);
	if (r == 0 && room)
		r = ws_readdir(m->ws, node, after <= COOKIE_DOTDOT ? 0 : after, attrs,
			       put_entry, &f);
	/* What is in the buffer has its references; the next call meets the error again. */
	if (r < 0 && f.len == 0)
		reply_error(req, r);
	else
		(void)fuse_reply_buf(req, f.buf, f.len);
}

void on_readdir(fuse_req_t req, fuse_ino_t node, size_t size, off_t off, struct fuse_file_info *fi)
{
	read_dir(req, node, size, off, false, FUSE_READDIR);
}

void on_readdirplus(fuse_req_t req, fuse_ino_t node, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	read_dir(req, node, size, off, true, FUSE_READDIRPLUS);
}

void on_fsyncdir(fuse_req_t req, fuse_ino_t node, int datasync, struct fuse_file_info *fi)
{
	struct mounted *m = on_begin(req, FUSE_FSYNCDIR);
	reply_error(req, ws_fsync(m->ws, node));
}
