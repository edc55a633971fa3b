/* Negotiation with the kernel, what handlers share, and the table of operations. */
#include <linux/fuse.h>
#include <pthread.h>
#include <string.h>
#include "fs/mount/ops.h"
#include "fs/mount/session.h"

enum {
	BACKGROUND_MAX = 64, /* readahead and asynchronous direct I/O on their way at once */
	CONGESTED_AT = 48,
};

/* Capabilities that we use where the kernel has them; without any of them the server works all
 * the same, by what stands behind it. */
static const struct {
	const char *name;
	uint64_t cap;
	bool want; /* false: known by its absence of an answer (ENOSYS), or only looked at */
} caps[] = {
	{ "async_read", FUSE_CAP_ASYNC_READ, true }, /* one READ of a file at a time */
	{ "async_dio", FUSE_CAP_ASYNC_DIO, true },
	{ "readdirplus", FUSE_CAP_READDIRPLUS, true }, /* READDIR, then LOOKUP for each name */
	{ "parallel_dirops", FUSE_CAP_PARALLEL_DIROPS, true },
	{ "killpriv_v2", FUSE_CAP_HANDLE_KILLPRIV_V2, true }, /* the kernel sends SETATTR mode */
	{ "cache_symlinks", FUSE_CAP_CACHE_SYMLINKS, true },  /* READLINK each time */
	{ "explicit_inval", FUSE_CAP_EXPLICIT_INVAL_DATA, true }, /* pages go when a size changes */
	{ "ioctl_dir", FUSE_CAP_IOCTL_DIR, true }, /* git looks at all where there are no xattrs */
	{ "no_open", FUSE_CAP_NO_OPEN_SUPPORT, false },       /* OPEN and RELEASE are answered */
	{ "no_opendir", FUSE_CAP_NO_OPENDIR_SUPPORT, false }, /* so are OPENDIR and RELEASEDIR */
	{ "expire_only", FUSE_CAP_EXPIRE_ONLY, false },       /* names are invalidated instead */
	{ "idmap", MOUNT_CAP_IDMAP, false },                  /* no container on this mount */
};

uint64_t session_cap(const char *name)
{
	for (size_t i = 0; i < sizeof(caps) / sizeof(*caps); i++)
		if (strcmp(caps[i].name, name) == 0)
			return caps[i].cap;
	return 0;
}

static void on_init(void *userdata, struct fuse_conn_info *conn)
{
	struct mounted *m = userdata;
	if (m->ring)
		counters_request(&m->counters, FUSE_INIT);
	conn->capable_ext &= ~m->mask;
	/* Off, whatever libfuse's default: O_TRUNC would be lost under no-open, AUTO_INVAL asks
	 * for attributes before each read, and locks stay in the kernel by not being ours. */
	uint64_t want = conn->want_ext & FUSE_CAP_OVER_IO_URING;
	for (size_t i = 0; i < sizeof(caps) / sizeof(*caps); i++)
		if (caps[i].want)
			want |= caps[i].cap & conn->capable_ext;
	m->idmap = m->offers_idmap;
	if (m->want) {
		m->idmap = m->want & MOUNT_CAP_IDMAP;
		want = m->want & conn->capable_ext;
	}
	m->want = want | (m->idmap ? MOUNT_CAP_IDMAP : 0);
	conn->want_ext = want;
	conn->want = (uint32_t)want;
	m->killpriv = want & FUSE_CAP_HANDLE_KILLPRIV_V2;
	m->no_open = conn->capable_ext & FUSE_CAP_NO_OPEN_SUPPORT;
	m->no_opendir = conn->capable_ext & FUSE_CAP_NO_OPENDIR_SUPPORT;
	conn->max_background = BACKGROUND_MAX;
	conn->congestion_threshold = CONGESTED_AT;
	conn->time_gran = 1;
	/* No handler waits for something that an interrupt could end. */
	conn->no_interrupt = 1;
	if (m->negotiated)
		m->negotiated(m);
}

struct mounted *on_begin(fuse_req_t req, unsigned opcode)
{
	struct mounted *m = fuse_req_userdata(req);
	if (m->ring) {
		/* libfuse ends a ring's threads by cancelling them; inside a handler that
		 * would leave locks held. They end by their eventfd too. */
		(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL); /* can't fail */
		counters_request(&m->counters, opcode);
	}
	return m;
}

struct caller caller_of(fuse_req_t req)
{
	const struct fuse_ctx *c = fuse_req_ctx(req);
	return (struct caller){ .uid = c->uid, .gid = c->gid, .tag = request_now().tag };
}

int done_before(struct mounted *m, struct entry *e)
{
	struct request q = request_now();
	uint64_t node;
	int r = q.again ? ws_answered(m->ws, q.tag, &node) : 0;
	if (r <= 0 || !e)
		return r;
	r = node ? ws_again(m->ws, node, e) : -ESTALE;
	return r < 0 ? r : 1;
}

/* Results of fuse_reply_* are dropped throughout: a reply fails only when the connection is
 * gone, and then ws_forget_all follows. */
void reply_error(fuse_req_t req, int r)
{
	if (r < 0 && r != -ENOSYS && r != -ENODATA) {
		struct mounted *m = fuse_req_userdata(req);
		counter_add(&m->counters.errors, 1);
	}
	(void)fuse_reply_err(req, r < 0 ? -r : 0);
}

static void stat_of_attr(struct stat *st, const struct attr *a)
{
	*st = (struct stat){
		.st_ino = ino_shown(a),
		.st_mode = a->mode,
		.st_nlink = a->nlink,
		.st_uid = a->uid,
		.st_gid = a->gid,
		.st_rdev = a->rdev,
		.st_size = (off_t)a->size,
		.st_blksize = 4096,
		.st_blocks = (blkcnt_t)a->blocks,
		.st_atim = a->atime,
		.st_mtim = a->mtime,
		.st_ctim = a->ctime,
	};
}

struct fuse_entry_param param_of_entry(const struct entry *e)
{
	struct fuse_entry_param p = {
		.ino = e->node,
		.generation = e->attr.gen,
		.attr_timeout = FOREVER,
		.entry_timeout = FOREVER,
	};
	stat_of_attr(&p.attr, &e->attr);
	return p;
}

void reply_node(fuse_req_t req, int r, const struct entry *e)
{
	if (r < 0) {
		reply_error(req, r);
		return;
	}
	struct fuse_entry_param p = param_of_entry(e);
	(void)fuse_reply_entry(req, &p);
}

void reply_attr(fuse_req_t req, int r, const struct attr *a)
{
	if (r < 0) {
		reply_error(req, r);
		return;
	}
	struct stat st;
	stat_of_attr(&st, a);
	(void)fuse_reply_attr(req, &st, FOREVER);
}

/* Left out, so that the kernel hears ENOSYS once and does without: create (LOOKUP, MKNOD and
 * no OPEN or RELEASE are fewer requests than LOOKUP, CREATE, RELEASE), flush, access, poll,
 * bmap; and the locks, which it then keeps itself. */
const struct fuse_lowlevel_ops mount_ops = {
	.init = on_init,
	.lookup = on_lookup,
	.forget = on_forget,
	.forget_multi = on_forget_multi,
	.getattr = on_getattr,
	.setattr = on_setattr,
	.statx = on_statx,
	.readlink = on_readlink,
	.mknod = on_mknod,
	.mkdir = on_mkdir,
	.unlink = on_unlink,
	.rmdir = on_rmdir,
	.symlink = on_symlink,
	.rename = on_rename,
	.link = on_link,
	.tmpfile = on_tmpfile,
	.open = on_open,
	.release = on_release,
	.read = on_read,
	.write = on_write,
	.fsync = on_fsync,
	.fallocate = on_fallocate,
	.lseek = on_lseek,
	.copy_file_range = on_copy,
	.opendir = on_opendir,
	.releasedir = on_releasedir,
	.readdir = on_readdir,
	.readdirplus = on_readdirplus,
	.fsyncdir = on_fsyncdir,
	.statfs = on_statfs,
	.setxattr = on_setxattr,
	.getxattr = on_getxattr,
	.listxattr = on_listxattr,
	.removexattr = on_removexattr,
	.ioctl = on_ioctl,
};
