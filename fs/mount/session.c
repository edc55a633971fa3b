#include "fs/mount/session.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/hash.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "fs/hold/hold.h"
#include "fs/mount/mnt.h"
#include "fs/mount/ops.h"

enum {
	SYSFS_MAX = 4096,               /* which is the size that its files claim to have */
	SMALL_WRITE = 64 << 10, /* bytes that are copied sooner than another worker is woken */
	/* The kernel's own 128 KiB make four times the requests; with more, who maps a file and
	 * jumps about in it reads too much. */
	READAHEAD_KIB = 512,
	/* Newer than the headers of the build host may be. */
	OPCODE_COPY_FILE_RANGE_64 = 53,
	NOTIFY_RESEND = 7,
	TRIES_MAX = 8 * HOLDER_CRASH, /* servers that died of a request: then it fails */
};
static const uint64_t INIT_HAS_RESEND = UINT64_C(1) << 39, UNIQUE_RESEND = UINT64_C(1) << 63;

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

	struct holder *holder; /* NULL: the mount ends with this process */
	uint64_t key;          /* there, and of the tags */
	struct held held;

	pthread_t ring; /* of the ring transport: the thread that runs libfuse's loop */
	bool ring_started;
};

/* ---- what outlives this process ---- */

static void keep(struct session *s)
{
	auto_buf blob = { 0 };
	held_encode(&s->held, &blob);
	if (buf_error(&blob) < 0)
		log_error("the mount at %s isn't kept beyond this server: out of memory", s->path);
	else
		holder_put(s->holder, s->key, s->fd, blob.data, blob.len);
}

static void let_go(struct session *s)
{
	if (!s->holder)
		return;
	ws_keep_gen(s->m.ws, NULL);
	holder_drop(s->holder, s->key);
	s->holder = NULL;
}

static void keep_gen(struct session *s)
{
	struct holder_slot *slot = holder_slot(s->holder, s->key);
	if (slot)
		ws_keep_gen(s->m.ws, &slot->gen);
}

/* The kernel's INIT has come: what a successor is told in its place. */
static void keep_init(struct session *s, const struct fuse_in_header *in, size_t n)
{
	const struct fuse_init_in *init = (const void *)(in + 1);
	uint64_t flags = 0;
	if (n >= sizeof(*in) + sizeof(*init))
		flags = init->flags | (uint64_t)init->flags2 << 32;
	if (n > sizeof(s->held.init) || !(flags & INIT_HAS_RESEND)) {
		let_go(s);
		return;
	}
	memcpy(s->held.init, in, n);
	s->held.init_len = n;
}

static void session_negotiated(struct mounted *m)
{
	struct session *s = (void *)((char *)m - offsetof(struct session, m));
	if (!s->holder || s->held.want == m->want)
		return;
	s->held.want = m->want;
	keep(s);
}

/* Nobody serves any more; gives back what the kernel held. */
static void session_ended(void *ctx, int error)
{
	struct session *s = ctx;
	if (error && error != -ENODEV && error != -ECONNABORTED)
		log_error("the mount at %s ends: /dev/fuse: %s", s->path, strerror(-error));
	pthread_rwlock_wrlock(&s->life);
	let_go(s);
	fuse_session_exit(s->se);    /* or libfuse would complain of failing writes */
	fuse_session_destroy(s->se); /* closes the descriptor */
	s->se = NULL;
	s->fd = -1;
	ws_forget_all(s->m.ws);
	pthread_rwlock_unlock(&s->life);
}

/* One by which the server died again and again is refused, or nothing would ever go on. */
static bool is_deadly(struct session *s, const struct fuse_in_header *in, uint64_t tag)
{
	if (holder_try(s->holder, tag) <= TRIES_MAX)
		return false;
	log_error("the server died again and again of a %s in %s: it is answered with an I/O "
		  "error",
		  opcode_name(in->opcode) ? opcode_name(in->opcode) : "request",
		  s->path);
	struct fuse_out_header out = { .len = sizeof(out), .error = -EIO, .unique = in->unique };
	ssize_t w = write(s->fd, &out, sizeof(out));
	(void)w; /* it fails only when the connection is gone */
	holder_tried(s->holder, tag);
	return true;
}

static void process(struct session *s, void *buf, size_t n)
{
	const struct fuse_in_header *in = buf;
	struct fuse_buf b = { .size = n, .mem = buf };
	if (in->opcode != FUSE_INIT) {
		fuse_session_process_buf(s->se, &b);
		return;
	}
	init_process(&s->m, s->se, s->fd, buf, n);
	if (s->dev)
		(void)mnt_readahead(s->dev, READAHEAD_KIB); /* who may not reads more slowly */
}

static void session_request(void *ctx, void *buf, size_t n)
{
	struct session *s = ctx;
	const struct fuse_in_header *in = buf;
	if (n < sizeof(*in))
		return; /* the kernel sends no such thing */
	counters_request(&s->m.counters, in->opcode);
	if (!s->holder) {
		process(s, buf, n);
		return;
	}
	if (in->opcode == FUSE_INIT)
		keep_init(s, in, n);
	bool again = in->unique & UNIQUE_RESEND;
	uint64_t tag = request_tag(s->key, in->unique);
	if (again && is_deadly(s, in, tag))
		return;
	request_begin(tag, again);
	process(s, buf, n);
	request_end();
	if (again)
		holder_tried(s->holder, tag);
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

static void session_hand_on(struct mounted *m)
{
	struct session *s = (void *)((char *)m - offsetof(struct session, m));
	loop_hand_on(s->loop, s->source);
}

static bool session_crowded(void *ctx)
{
	const struct session *s = ctx;
	return ws_reads_ahead(s->m.ws);
}

static const struct loop_ops session_loop = {
	.slow = session_slow,
	.request = session_request,
	.end = session_ended,
	.crowded = session_crowded,
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
		r = err_no_memory(err);
	} else {
		s->fd = steal_fd(&fd);
		if (mnt_device(s->path, &s->dev) < 0)
			s->dev = 0;
		s->held.dev = s->dev;
		if (s->holder) {
			keep(s);
			keep_gen(s);
		}
		r = serve(s, err);
	}
	if (r < 0) {
		cleanup_close(&fd);
		fd = -1;
		let_go(s);
		/* With its descriptor closed it is dead, and can't be in use for long. */
		fuse_session_destroy(s->se);
		s->se = NULL;
		(void)mnt_umount(s->path, NULL); /* the failure above is the one to tell */
	}
	return r;
}

static struct session *session_new(struct ws *ws, const char *path,
				   const struct session_options *opt, struct err *err)
{
	struct session *s = calloc(1, sizeof(*s));
	if (!s) {
		(void)err_no_memory(err);
		return NULL;
	}
	pthread_rwlock_init(&s->life, NULL);
	s->m.ws = ws;
	s->m.mask = opt->mask;
	s->m.ring = opt->loop == NULL;
	s->m.negotiated = session_negotiated;
	s->m.hand_on = opt->loop ? session_hand_on : NULL;
	s->loop = opt->loop;
	s->holder = opt->holder;
	s->fd = -1;
	s->path = strdup(path);
	s->se = s->path ? new_fuse_session(s) : NULL;
	if (s->se)
		return s;
	(void)err_set(err, -ENOMEM,
		      "no libfuse session: out of memory, or of thread "
		      "keys (about 1000 mounts a server)");
	session_free(s);
	return NULL;
}

static void session_failed(struct session *s)
{
	if (s->se)
		fuse_session_destroy(s->se);
	s->se = NULL;
	session_free(s);
}

int session_mount(struct session **out, struct ws *ws, const char *path,
		  const struct session_options *opt, struct err *err)
{
	struct session *s = session_new(ws, path, opt, err);
	if (!s)
		return -ENOMEM;
	if (strlen(path) >= sizeof(s->held.path) || path[0] != '/')
		s->holder = NULL;
	if (s->holder) {
		memcpy(s->held.path, path, strlen(path) + 1);
		(void)snprintf(s->held.id, sizeof(s->held.id), "%s", ws_id(ws));
		s->held.mask = opt->mask;
		do
			random_bytes(&s->key, sizeof(s->key));
		while (s->key <= HOLD_BOARD);
	}
	int r = mount_it(s, err);
	if (r < 0) {
		session_failed(s);
		return r;
	}
	*out = s;
	return 0;
}

/* The kernel is asked to send again what it has given out and got no answer to. */
static int resend(struct session *s, struct err *err)
{
	struct fuse_out_header out = { .len = sizeof(out), .error = NOTIFY_RESEND };
	return write(s->fd, &out, sizeof(out)) < 0
		       ? err_sys(err, -errno, "have the requests sent again")
		       : 0;
}

int session_resume(struct session **out, struct ws *ws, uint64_t key, int fd,
		   const struct held *held, const struct session_options *opt, struct err *err)
{
	char name[32];
	struct session *s = session_new(ws, held->path, opt, err);
	if (!s) {
		cleanup_close(&fd);
		return -ENOMEM;
	}
	s->key = key;
	s->held = *held;
	s->dev = held->dev;
	s->m.mask = held->mask;
	s->m.want = held->want;
	(void)snprintf(name, sizeof(name), "/dev/fd/%d", fd);
	int r = fuse_session_mount(s->se, name) < 0 ? err_no_memory(err) : 0;
	if (r < 0)
		cleanup_close(&fd); /* else it is libfuse's */
	if (r == 0) {
		s->fd = fd;
		keep(s);
		keep_gen(s);
		/* libfuse must know what was agreed. If that had been answered, the kernel has no
		 * use for the answer, which is no error. */
		if (held->init_len)
			init_process(&s->m, s->se, fd, s->held.init, held->init_len);
		r = resend(s, err);
	}
	if (r == 0)
		r = serve(s, err);
	if (r < 0) {
		let_go(s);
		session_failed(s);
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
	struct holder *holder = s->holder;
	if (!kernel_let_go(s) || s->se || s->ring_started)
		stop_serving(s);
	assert(!s->se);
	if (holder)
		holder_sync(holder); /* whose copy of the descriptor would keep it alive */
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

enum { APART_STACK = 256 << 10 };

struct apart {
	int fd; /* of the connection */
	void (*fn)(void *arg);
	void *arg;
	bool done;
};

/* Its files are copies: what stays open counts as this server's, its lock and its callers too. */
static int apart_main(void *arg)
{
	struct apart *a = arg;
	if ((a->fd <= 0 || close_range(0, (unsigned)a->fd - 1, 0) == 0) &&
	    close_range((unsigned)a->fd + 1, ~0U, 0) == 0) {
		a->fn(a->arg);
		a->done = true;
	}
	return 0;
}

/* Its pid, or -1. CLONE_VFORK: this thread waits, but can be killed. confine.c lets just this
 * through. ThreadSanitizer would take it for a fork, and its own memory for the child's. */
static pid_t apart_start(struct apart *a, char *stack)
{
#ifdef __SANITIZE_THREAD__
	(void)a, (void)stack, (void)apart_main;
	return -1;
#else
	return clone(apart_main, stack + APART_STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, a);
#endif
}

void session_apart(struct session *s, void (*fn)(void *arg), void *arg)
{
	pthread_rwlock_rdlock(&s->life);
	struct apart a = { .fd = s->se ? s->fd : -1, .fn = fn, .arg = arg };
	pthread_rwlock_unlock(&s->life);
	char *stack = a.fd < 0 ? NULL : malloc(APART_STACK);
	pid_t pid = stack ? apart_start(&a, stack) : -1;
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	free(stack);
	if (!a.done) /* no memory; twice does no harm */
		fn(arg);
}

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

bool session_is_held(struct session *s)
{
	pthread_rwlock_rdlock(&s->life);
	bool held = !s->se || (s->holder && s->held.init_len > 0);
	pthread_rwlock_unlock(&s->life);
	return held;
}

void session_forget_attr(struct session *s, uint64_t node)
{
	(void)session_holds(s, node); /* which asks by just that */
}

bool session_holds(struct session *s, uint64_t node)
{
	pthread_rwlock_rdlock(&s->life);
	/* Before the first byte: only attributes are looked at again, and only if it has it. */
	int r = s->se ? fuse_lowlevel_notify_inval_inode(s->se, node, -1, 0) : 0;
	pthread_rwlock_unlock(&s->life);
	return r != -ENOENT;
}
