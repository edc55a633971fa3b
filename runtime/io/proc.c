#include "runtime/io/proc.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"

static const char *const fifo_of[] = { "out", "err" };
static uint8_t bytes[KEPT_CAP_MIN]; /* what goes from a pipe to a file */

struct proc *proc_find(struct io_loop *io, const char *key)
{
	struct proc *p = io->procs;
	while (p && strcmp(p->key, key) != 0)
		p = p->next;
	return p;
}

static void name_of(char out[OUTPUT_KEY_MAX + 8], const char *key, const char *kind)
{
	(void)snprintf(out, OUTPUT_KEY_MAX + 8, "%s.%s", key, kind);
}

static int open_file(struct io_loop *io, const char *key, const char *kind, int flags)
{
	char name[OUTPUT_KEY_MAX + 8];
	name_of(name, key, kind);
	int fd = openat(io->dir, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? -errno : fd;
}

int proc_open_log(struct io_loop *io, const char *key, int flags)
{
	return open_file(io, key, "log", flags);
}

static int register_source(struct io_loop *io, struct source *s, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.ptr = s };
	return epoll_ctl(io->epoll, EPOLL_CTL_ADD, s->fd, &e) < 0 ? -errno : 0;
}

static void shut(int *fd)
{
	cleanup_close(fd);
	*fd = -1;
}

/* ---- watches ---- */

static void remove_watch(struct io_loop *io, struct source *w)
{
	struct source **at = &w->proc->watches;
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	w->proc->n_watches--;
	shut(&w->fd);
	w->dead = true;
	w->next = io->dead;
	io->dead = w;
}

/* One byte is enough for all that it hasn't looked at yet. */
static void notify(struct proc *p)
{
	for (struct source *w = p->watches; w; w = w->next) {
		int unread = 0;
		if (ioctl(w->fd, FIONREAD, &unread) == 0 && unread > 0)
			continue;
		(void)!write(w->fd, "", 1); /* a reader that is gone comes as an event */
	}
}

/* Others have it open, too, so epoll wouldn't forget it by itself. */
static void let_go(struct io_loop *io, struct proc *p)
{
	if (p->held.fd >= 0)
		(void)epoll_ctl(io->epoll, EPOLL_CTL_DEL, p->held.fd, NULL);
	shut(&p->held.fd);
}

/* ---- ends ---- */

static void bury(struct io_loop *io, struct proc *p)
{
	struct proc **at = &io->procs;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	io->n_procs--;
	while (p->watches)
		remove_watch(io, p->watches);
	for (int i = 0; i < 2; i++) {
		shut(&p->stream[i].fd);
		shut(&p->hold[i]);
		p->stream[i].dead = true;
	}
	let_go(io, p);
	shut(&p->in.fd);
	shut(&p->hold_in);
	shut(&p->log);
	p->in.dead = true;
	p->next = io->dead_procs;
	io->dead_procs = p;
}

void proc_bury(struct io_loop *io)
{
	for (struct source *s; (s = io->dead);) {
		io->dead = s->next;
		free(s);
	}
	for (struct proc *p; (p = io->dead_procs);) {
		io->dead_procs = p->next;
		free(p);
	}
}

static bool all_ended(const struct kept *k)
{
	return kept_ended(k) && k->flags & KEPT_IN_CLOSED;
}

/* What has ended is written down, and with the last of it the process is let go. */
static void end(struct io_loop *io, struct proc *p, uint32_t flags)
{
	if ((p->kept.flags & flags) == flags)
		return;
	p->kept.flags |= flags;
	(void)kept_store(p->log, &p->kept); /* else a successor finds out as this one did */
	notify(p);
	if (all_ended(&p->kept))
		bury(io, p);
}

static void end_input(struct io_loop *io, struct proc *p)
{
	shut(&p->in.fd);
	shut(&p->hold_in);
	end(io, p, KEPT_IN_CLOSED);
}

static void end_stream(struct io_loop *io, struct proc *p, unsigned i)
{
	shut(&p->stream[i].fd);
	shut(&p->hold[i]);
	end(io, p, KEPT_CLOSED << i);
}

static void take(struct io_loop *io, struct proc *p, unsigned i)
{
	ssize_t n = read(p->stream[i].fd, bytes, sizeof(bytes));
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		end_stream(io, p, i);
		return;
	}
	io->taken += (uint64_t)n;
	uint64_t before = kept_bytes(&p->kept);
	/* Where even the head can't be written the bytes are lost, but the program goes on. */
	(void)kept_append(p->log, &p->kept, i, bytes, (size_t)n);
	uint64_t after = kept_bytes(&p->kept);
	io->kept += after > before ? after - before : 0;
	if (io->kept > io->room)
		(void)room_make(io); /* or with the next */
	notify(p);
}

/* ---- beginnings ---- */

static int hold_stream(struct io_loop *io, struct proc *p, unsigned i)
{
	struct source *s = &p->stream[i];
	s->fd = open_file(io, p->key, fifo_of[i], O_RDONLY | O_NONBLOCK);
	if (s->fd < 0)
		return s->fd;
	if (!(p->kept.flags & KEPT_STARTED)) {
		p->hold[i] = open_file(io, p->key, fifo_of[i], O_WRONLY | O_NONBLOCK);
		if (p->hold[i] < 0)
			return p->hold[i];
	}
	return register_source(io, s, EPOLLIN);
}

static int hold_input(struct io_loop *io, struct proc *p)
{
	if (!(p->kept.flags & KEPT_STARTED)) {
		p->hold_in = open_file(io, p->key, "in", O_RDONLY | O_NONBLOCK);
		if (p->hold_in < 0)
			return p->hold_in;
	}
	p->in.fd = open_file(io, p->key, "in", O_WRONLY | O_NONBLOCK);
	return p->in.fd < 0 ? p->in.fd : register_source(io, &p->in, 0);
}

/* A process that isn't in the list yet. It takes `log` over. */
static struct proc *new_proc(const char *key, int log, const struct kept *kept)
{
	struct proc *p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	(void)snprintf(p->key, sizeof(p->key), "%s", key);
	p->log = log;
	p->kept = *kept;
	p->hold[0] = p->hold[1] = p->hold_in = -1;
	for (int i = 0; i < 2; i++)
		p->stream[i] = (struct source){ SOURCE_STREAM, -1, false, p, NULL };
	p->in = (struct source){ SOURCE_INPUT, -1, false, p, NULL };
	p->held = (struct source){ SOURCE_HELD, -1, false, p, NULL };
	return p;
}

static void link_proc(struct io_loop *io, struct proc *p)
{
	p->next = io->procs;
	io->procs = p;
	io->n_procs++;
}

static void unlink_all(struct io_loop *io, const char *key)
{
	static const char *const kinds[] = { "in", "out", "err", "log" };
	char name[OUTPUT_KEY_MAX + 8];
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		name_of(name, key, kinds[i]);
		(void)unlinkat(io->dir, name, 0); /* what isn't there is as it should be */
	}
}

static int make_fifo(struct io_loop *io, const struct io_msg *m, const char *kind)
{
	char name[OUTPUT_KEY_MAX + 8];
	name_of(name, m->key, kind);
	if (mkfifoat(io->dir, name, 0600) < 0)
		return -errno;
	return fchownat(io->dir, name, m->uid, m->gid, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static int make_files(struct io_loop *io, const struct io_msg *m, int *log, struct kept *k)
{
	static const uint8_t empty[KEPT_DATA];
	uint64_t cap = m->limit < KEPT_CAP_MIN ? KEPT_CAP_MIN : m->limit;
	*k = (struct kept){ .cap = cap > KEPT_CAP_MAX ? KEPT_CAP_MAX : cap };
	k->flags = m->flags & IO_WANTS_IN ? KEPT_IN : KEPT_IN_CLOSED;
	if (m->flags & IO_TERMINAL)
		k->flags |= KEPT_CLOSED << 1;
	auto_fd fd = open_file(io, m->key, "log", O_RDWR | O_CREAT | O_EXCL);
	if (fd < 0)
		return fd;
	int r = pwrite(fd, empty, sizeof(empty), 0) == (ssize_t)sizeof(empty) ? 0 : -ENOSPC;
	r = r < 0 ? r : kept_store(fd, k);
	r = r < 0 ? r : make_fifo(io, m, "out");
	r = r < 0 ? r : make_fifo(io, m, "err");
	if (m->flags & IO_WANTS_IN)
		r = r < 0 ? r : make_fifo(io, m, "in");
	if (r < 0)
		unlink_all(io, m->key);
	else
		*log = steal_fd(&fd);
	return r;
}

/* Takes hold of what hasn't ended. On failure nothing is held. */
static int hold(struct io_loop *io, struct proc *p)
{
	int r = 0;
	for (unsigned i = 0; r >= 0 && i < 2; i++)
		if (!(p->kept.flags & KEPT_CLOSED << i))
			r = hold_stream(io, p, i);
	if (r >= 0 && !(p->kept.flags & KEPT_IN_CLOSED))
		r = hold_input(io, p);
	return r;
}

int proc_open(struct io_loop *io, const struct io_msg *m)
{
	struct kept kept;
	int log = -1;
	if (io->n_procs >= PROCS_MAX)
		return -EMFILE;
	if (proc_find(io, m->key))
		return -EEXIST;
	int r = make_files(io, m, &log, &kept);
	if (r < 0)
		return r;
	struct proc *p = new_proc(m->key, log, &kept);
	if (!p) {
		(void)close(log);
		unlink_all(io, m->key);
		return -ENOMEM;
	}
	link_proc(io, p);
	r = hold(io, p);
	if (r < 0) {
		bury(io, p);
		unlink_all(io, m->key);
	}
	return r;
}

/* A fifo that is gone, or the input whose reader is, has ended. */
static int hold_what_is_left(struct io_loop *io, struct proc *p)
{
	int r = p->kept.flags & KEPT_IN_CLOSED ? 0 : hold_input(io, p);
	if (r == -ENXIO || r == -ENOENT) {
		end_input(io, p);
		r = 0;
	}
	for (unsigned i = 0; r >= 0 && i < 2; i++) {
		if (p->kept.flags & KEPT_CLOSED << i)
			continue;
		r = hold_stream(io, p, i);
		if (r == -ENOENT) {
			end_stream(io, p, i); /* buries it with the last, but frees it later */
			r = 0;
		} else if (r >= 0 && p->kept.flags & KEPT_STARTED) {
			take(io, p, i); /* epoll says nothing of writers that were gone before */
		}
	}
	return r;
}

static int adopt(struct io_loop *io, const char *key)
{
	struct kept kept;
	auto_fd log = open_file(io, key, "log", O_RDWR);
	if (log < 0)
		return log;
	int r = kept_load(log, &kept);
	if (r < 0 || all_ended(&kept))
		return r;
	struct proc *p = new_proc(key, log, &kept);
	if (!p)
		return -ENOMEM;
	(void)steal_fd(&log);
	p->adopted = true;
	link_proc(io, p);
	r = hold_what_is_left(io, p);
	if (r < 0)
		bury(io, p);
	return r;
}

int proc_each_log(struct io_loop *io, void (*found)(void *ctx, const char *key), void *ctx)
{
	int fd = openat(io->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	auto_dir *d = fdopendir(fd);
	if (!d) {
		int r = -errno;
		(void)close(fd);
		return r;
	}
	for (const struct dirent *e; (e = readdir(d));) {
		char key[OUTPUT_KEY_MAX + 1];
		size_t n = strlen(e->d_name);
		if (n <= 4 || n - 4 > OUTPUT_KEY_MAX || strcmp(e->d_name + n - 4, ".log") != 0)
			continue;
		(void)snprintf(key, sizeof(key), "%.*s", (int)(n - 4), e->d_name);
		if (io_good_key(key))
			found(ctx, key);
	}
	return 0;
}

static void recover(void *ctx, const char *key)
{
	struct io_loop *io = ctx;
	if (io->n_procs < PROCS_MAX)
		(void)adopt(io, key); /* one that is damaged mustn't stop the others */
}

int proc_recover(struct io_loop *io)
{
	int r = proc_each_log(io, recover, io);
	proc_bury(io);
	if (r >= 0 && room_make(io) < 0) /* which counts */
		io->kept = io->room; /* the next bytes count again */
	return r;
}

/* ---- operations ---- */

/* Of a process that is let go already: its head. */
static int look_up(struct io_loop *io, const char *key, struct kept *out)
{
	auto_fd log = open_file(io, key, "log", O_RDONLY);
	return log < 0 ? log : kept_load(log, out);
}

int proc_started(struct io_loop *io, const char *key)
{
	struct kept kept;
	struct proc *p = proc_find(io, key);
	if (!p)
		return look_up(io, key, &kept);
	let_go(io, p);
	if (p->kept.flags & KEPT_STARTED)
		return 0;
	p->kept.flags |= KEPT_STARTED;
	int r = kept_store(p->log, &p->kept);
	shut(&p->hold[0]);
	shut(&p->hold[1]);
	/* The shim opens the input behind its answer. */
	p->hold_in_until = clock_ms() + IN_GRACE_MS;
	return r;
}

int proc_finish(struct io_loop *io, const char *key)
{
	struct kept kept;
	int r = proc_started(io, key);
	struct proc *p = proc_find(io, key);
	if (r < 0)
		return r;
	if (p) {
		bool ended = kept_ended(&p->kept);
		end_input(io, p);
		return ended;
	}
	r = look_up(io, key, &kept);
	return r < 0 ? r : kept_ended(&kept);
}

int proc_drop(struct io_loop *io, const char *key)
{
	struct proc *p = proc_find(io, key);
	if (p)
		bury(io, p);
	unlink_all(io, key);
	return 0;
}

int proc_close_in(struct io_loop *io, const char *key)
{
	struct kept kept;
	struct proc *p = proc_find(io, key);
	if (!p)
		return look_up(io, key, &kept);
	end_input(io, p);
	return 0;
}

int proc_hold(struct io_loop *io, const char *key, int fd)
{
	struct proc *p = proc_find(io, key);
	if (!p)
		return -ENOENT;
	let_go(io, p);
	struct source s = { SOURCE_HELD, fd, false, p, NULL };
	struct epoll_event e = { .events = EPOLLIN, .data.ptr = &p->held };
	if (epoll_ctl(io->epoll, EPOLL_CTL_ADD, fd, &e) < 0)
		return -errno;
	p->held = s;
	return 0;
}

int proc_held(struct io_loop *io, const char *key)
{
	const struct proc *p = proc_find(io, key);
	return p && !p->adopted;
}

/* Wakes the writer up once there is room. */
static void await_room(struct io_loop *io, struct proc *p, bool wanted)
{
	struct epoll_event e = { .events = wanted ? EPOLLOUT : 0, .data.ptr = &p->in };
	if (p->in_full != wanted && epoll_ctl(io->epoll, EPOLL_CTL_MOD, p->in.fd, &e) == 0)
		p->in_full = wanted;
}

int proc_write(struct io_loop *io, const struct io_msg *m)
{
	struct kept kept;
	struct proc *p = proc_find(io, m->key);
	if (!p) {
		int r = look_up(io, m->key, &kept);
		return r < 0 ? r : -EPIPE;
	}
	if (m->offset > p->kept.in)
		return -ERANGE;
	if (p->kept.in - m->offset >= m->len)
		return (int)m->len; /* it was given before */
	if (p->kept.flags & KEPT_IN_CLOSED)
		return -EPIPE;
	size_t skip = (size_t)(p->kept.in - m->offset);
	ssize_t n = write(p->in.fd, (const uint8_t *)m->data + skip, m->len - skip);
	if (n < 0 && errno == EPIPE) {
		end_input(io, p);
		return -EPIPE;
	}
	if (n < 0 && errno != EAGAIN)
		return -errno;
	n = n < 0 ? 0 : n;
	await_room(io, p, (size_t)n < m->len - skip);
	p->kept.in += (uint64_t)n;
	int r = n > 0 ? kept_store(p->log, &p->kept) : 0;
	return r < 0 ? r : (int)(skip + (size_t)n);
}

int proc_watch(struct io_loop *io, const char *key)
{
	struct kept kept;
	int fds[2];
	struct proc *p = proc_find(io, key);
	int r = p ? 0 : look_up(io, key, &kept);
	if (r < 0)
		return r;
	if (p && p->n_watches >= WATCHES_MAX)
		return -EMFILE;
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	auto_fd rd = fds[0], wr = fds[1];
	if (!p)
		return steal_fd(&rd); /* which is at its end */
	struct source *w = malloc(sizeof(*w));
	if (!w)
		return -ENOMEM;
	*w = (struct source){ SOURCE_WATCH, wr, false, p, p->watches };
	r = register_source(io, w, 0);
	if (r < 0) {
		free(w);
		return r;
	}
	p->watches = w;
	p->n_watches++;
	(void)steal_fd(&wr);
	notify(p); /* it may have grown since the caller looked */
	return steal_fd(&rd);
}

/* ---- events ---- */

void proc_event(struct io_loop *io, struct source *s, uint32_t events)
{
	struct proc *p = s->proc;
	if (s->fd < 0)
		return; /* ended by an event before this one */
	switch (s->kind) {
	case SOURCE_STREAM:
		take(io, p, (unsigned)(s - p->stream));
		break;
	case SOURCE_INPUT:
		if (events & EPOLLERR) {
			end_input(io, p);
		} else {
			await_room(io, p, false);
			notify(p);
		}
		break;
	case SOURCE_HELD: /* it is answered, or over */
		let_go(io, p);
		break;
	default:
		remove_watch(io, s);
	}
}

int proc_tick(struct io_loop *io)
{
	uint64_t now = clock_ms(), first = UINT64_MAX;
	for (struct proc *p = io->procs; p; p = p->next) {
		if (!p->hold_in_until)
			continue;
		if (p->hold_in_until <= now) {
			shut(&p->hold_in);
			p->hold_in_until = 0;
		} else if (p->hold_in_until < first) {
			first = p->hold_in_until;
		}
	}
	return first == UINT64_MAX ? -1 : (int)(first - now);
}

void proc_pace(struct io_loop *io)
{
	if (io->taken < PACE_BYTES)
		return;
	uint64_t now = clock_ns(), due = io->paced_ns + io->taken * 1000000000 / OUTPUT_RATE;
	struct timespec t = { 0, due > now ? (long)(due - now) : 0 };
	if (t.tv_nsec)
		(void)nanosleep(&t, NULL);
	io->taken = 0;
	io->paced_ns = clock_ns();
}
