#include "fs/mount/session.h"

#include <assert.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "fs/mount/mnt.h"
#include "fs/mount/ops.h"

enum {
	SYSFS_MAX = 4096,               /* which is the size that its files claim to have */
	SMALL_WRITE = 64 << 10, /* bytes that are copied sooner than another worker is woken */
	OPCODE_COPY_FILE_RANGE_64 = 53, /* newer than the headers of the build host may be */
};

struct session {
	struct mounted m; /* libfuse's userdata */
	struct loop *loop;
	uint64_t source; /* of the loop */
	char *path;
	uint64_t dev; /* of the superblock; 0: it went before we could look */

	/* Exclusive: while the session ends. Shared: while `se` or `fd` are used beside the
	 * threads that serve (they can't meet its end). */
	pthread_rwlock_t life;
	struct fuse_session *se; /* NULL: ended */
	int fd;                  /* se's own */

	pthread_t ring; /* of the ring transport: the thread that runs libfuse's loop */
	bool ring_started;
};

/* Nobody serves any more; gives back what the kernel held. */
static void session_ended(void *ctx, int error)
{
	struct session *s = ctx;
	if (error && error != -ENODEV && error != -ECONNABORTED)
		log_error("the mount at %s ends: /dev/fuse: %s", s->path, strerror(-error));
	pthread_rwlock_wrlock(&s->life);
	fuse_session_exit(s->se);    /* or libfuse would complain of failing writes */
	fuse_session_destroy(s->se); /* closes the descriptor */
	s->se = NULL;
	s->fd = -1;
	ws_forget_all(s->m.ws);
	pthread_rwlock_unlock(&s->life);
}

static void session_request(void *ctx, void *buf, size_t n)
{
	struct session *s = ctx;
	const struct fuse_in_header *in = buf;
	if (n < sizeof(*in))
		return; /* the kernel sends no such thing */
	counters_request(&s->m.counters, in->opcode);
	struct fuse_buf b = { .size = n, .mem = buf };
	fuse_session_process_buf(s->se, &b);
}

/* Those that touch content, wait for the disk, or have much to do. */
static bool session_slow(void *ctx, const void *buf, size_t n)
{
	const struct fuse_in_header *in = buf;
	const struct fuse_setattr_in *set = (const void *)(in + 1);
	switch (n < sizeof(*in) ? 0 : in->opcode) {
	case FUSE_WRITE:
		return n > SMALL_WRITE;
	case FUSE_SETATTR:
		return n >= sizeof(*in) + sizeof(*set) && (set->valid & FATTR_SIZE);
	case FUSE_READ:
	case FUSE_FSYNC:
	case FUSE_FSYNCDIR:
	case FUSE_FALLOCATE:
	case FUSE_COPY_FILE_RANGE:
	case OPCODE_COPY_FILE_RANGE_64:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
	case FUSE_BATCH_FORGET:
		return true;
	default:
		return false;
	}
}

static const struct loop_ops session_loop = {
	.slow = session_slow,
	.request = session_request,
	.end = session_ended,
};

/* ---- the ring ---- */

static void *ring_main(void *arg)
{
	struct session *s = arg;
	(void)pthread_setname_np(pthread_self(), "fs-ring"); /* for people only */
	struct fuse_loop_config *conf = fuse_loop_cfg_create();
	if (conf) {
		/* Its only way to fail is the session's end, which is what follows anyway. */
		(void)fuse_session_loop_mt(s->se, conf);
		fuse_loop_cfg_destroy(conf);
	}
	session_ended(s, 0);
	return NULL;
}

int session_ring_check(struct err *err)
{
	auto_free void *text = NULL;
	size_t len;
	if (io_slurp(NULL, AT_FDCWD, "/sys/module/fuse/parameters/enable_uring", SYSFS_MAX, &text,
		     &len, NULL) < 0)
		return err_set(err, -ENOSYS,
			       "this kernel has no FUSE over io_uring (Linux 6.14): use the "
			       "transport dev");
	if (len == 0 || *(char *)text != 'Y')
		return err_set(
			err, -ENOSYS,
			"FUSE over io_uring is switched off: echo Y > "
			"/sys/module/fuse/parameters/enable_uring, or use the transport dev");
	/* The kernel waits for a queue of each possible CPU, libfuse makes one for each that is
	 * configured. */
	auto_free void *possible = NULL;
	int first = 0, last = 0;
	if (io_slurp(NULL, AT_FDCWD, "/sys/devices/system/cpu/possible", SYSFS_MAX, &possible, &len,
		     NULL) == 0 &&
	    sscanf(possible, "%d-%d", &first, &last) == 2 && last + 1 > get_nprocs_conf())
		return err_set(err, -ENOSYS,
			       "FUSE over io_uring stays off where possible CPUs (%d) outnumber "
			       "configured ones (%d): use the transport dev",
			       last + 1, get_nprocs_conf());
	return 0;
}

/* ---- life ---- */

static int serve(struct session *s, struct err *err)
{
	if (s->loop) {
		int r = loop_add(s->loop, s->fd, &session_loop, s, &s->source);
		return r < 0 ? err_sys(err, r, "serve %s", s->path) : 0;
	}
	int r = pthread_create(&s->ring, NULL, ring_main, s);
	if (r != 0)
		return err_sys(err, -r, "start a thread for %s", s->path);
	s->ring_started = true;
	return 0;
}

static struct fuse_session *new_fuse_session(struct session *s)
{
	char *argv[] = { "bough-fs", "-oio_uring", NULL };
	struct fuse_args args = FUSE_ARGS_INIT(s->m.ring ? 2 : 1, argv);
	struct fuse_session *se = fuse_session_new(&args, &mount_ops, sizeof(mount_ops), &s->m);
	fuse_opt_free_args(&args);
	return se;
}

static int mount_it(struct session *s, struct err *err)
{
	int r = mnt_prepare(s->path, err);
	if (r < 0)
		return r;
	auto_fd fd = mnt_mount(s->path, s->loop != NULL, err);
	if (fd < 0)
		return fd;
	char name[32];
	(void)snprintf(name, sizeof(name), "/dev/fd/%d", fd);
	if (fuse_session_mount(s->se, name) < 0) { /* only takes the descriptor over */
		r = err_set(err, -ENOMEM, "out of memory");
	} else {
		s->fd = steal_fd(&fd);
		if (mnt_device(s->path, &s->dev) < 0)
			s->dev = 0;
		r = serve(s, err);
	}
	if (r < 0) {
		cleanup_close(&fd);
		fd = -1;
		/* With its descriptor closed it is dead, and can't be in use for long. */
		fuse_session_destroy(s->se);
		s->se = NULL;
		(void)mnt_umount(s->path, NULL); /* the failure above is the one to tell */
	}
	return r;
}

int session_mount(struct session **out, struct ws *ws, const char *path,
		  const struct session_options *opt, struct err *err)
{
	struct session *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(err, -ENOMEM, "out of memory");
	pthread_rwlock_init(&s->life, NULL);
	s->m.ws = ws;
	s->m.mask = opt->mask;
	s->m.ring = opt->loop == NULL;
	s->loop = opt->loop;
	s->fd = -1;
	s->path = strdup(path);
	s->se = s->path ? new_fuse_session(s) : NULL;
	int r = s->se ? mount_it(s, err)
		      : err_set(err, -ENOMEM,
				"no libfuse session: out of memory, or of thread "
				"keys (about 1000 mounts a server)");
	if (r < 0) {
		if (s->se)
			fuse_session_destroy(s->se);
		s->se = NULL;
		session_free(s);
		return r;
	}
	*out = s;
	return 0;
}

/* Waits until the threads that serve it have seen its end, or makes them. */
static void stop_serving(struct session *s)
{
	if (s->loop) {
		loop_remove(s->loop, s->source);
		return;
	}
	pthread_rwlock_rdlock(&s->life);
	if (s->se)
		fuse_session_exit(s->se);
	pthread_rwlock_unlock(&s->life);
	if (s->ring_started)
		(void)pthread_join(s->ring, NULL); /* it is ours and joinable */
	s->ring_started = false;
}

/* Asks the kernel, not our own memory: the mount may have been taken away by hand. */
static bool kernel_let_go(struct session *s)
{
	pthread_rwlock_rdlock(&s->life);
	struct pollfd p = { .fd = s->fd };
	bool gone = !s->se || (poll(&p, 1, 0) == 1 && p.revents & (POLLERR | POLLNVAL));
	pthread_rwlock_unlock(&s->life);
	return gone;
}

enum session_state session_state(struct session *s)
{
	if (kernel_let_go(s)) {
		stop_serving(s);
		return SESSION_ENDED;
	}
	uint64_t dev;
	if (s->dev && mnt_device(s->path, &dev) == 0 && dev == s->dev)
		return SESSION_LIVE;
	return SESSION_DETACHED;
}

const char *session_path(const struct session *s)
{
	return s->path;
}

const struct counters *session_counters(const struct session *s)
{
	return &s->m.counters;
}

int session_umount(struct session *s, struct err *err)
{
	if (session_state(s) != SESSION_LIVE)
		return 0;
	int r = mnt_umount(s->path, err);
	/* What a program wrote into the bare folder would be hidden by the next mount. */
	if (r >= 0)
		(void)rmdir(s->path); /* what isn't empty is somebody's, and stays */
	if (kernel_let_go(s))
		stop_serving(s);
	return r < 0 ? r : 0;
}

int session_end(struct session *s, struct err *err)
{
	int r = session_umount(s, err);
	if (!kernel_let_go(s) || s->se || s->ring_started)
		stop_serving(s);
	assert(!s->se);
	return r;
}

void session_free(struct session *s)
{
	if (!s)
		return;
	assert(!s->se && !s->ring_started);
	pthread_rwlock_destroy(&s->life);
	free(s->path);
	free(s);
}

/* ---- notifications ---- */

/* Their results don't matter: -ENOENT is "not cached", others that the connection is gone. */

void session_forget_name(struct session *s, uint64_t dir_node, const char *name, size_t len,
			 bool removed)
{
	char z[NAME_MAX_BYTES + 1];
	if (len > NAME_MAX_BYTES)
		return;
	memcpy(z, name, len);
	z[len] = '\0';
	pthread_rwlock_rdlock(&s->life);
	if (s->se) {
		bool expire = !removed && !(s->m.mask & FUSE_CAP_EXPIRE_ONLY);
		if (!expire ||
		    fuse_lowlevel_notify_expire_entry(s->se, dir_node, z, len) == -ENOSYS)
			(void)fuse_lowlevel_notify_inval_entry(s->se, dir_node, z, len);
	}
	pthread_rwlock_unlock(&s->life);
}

void session_forget_node(struct session *s, uint64_t node)
{
	pthread_rwlock_rdlock(&s->life);
	if (s->se)
		(void)fuse_lowlevel_notify_inval_inode(s->se, node, 0, 0);
	pthread_rwlock_unlock(&s->life);
}
