#include "fs/mount/ctl.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/frame.h"
#include "fs/base/log.h"
#include "fs/mount/ctl_ops.h"

enum {
	CONNECTIONS_MAX = 256, /* a thread each; boughd needs a handful */
	RECHECK_MS = 60000,    /* of the socket, should a removal have escaped inotify */
};

struct conn {
	struct conn *next;
	struct ctl *ctl;
	pthread_t thread;
	int fd;
	struct peer peer;
	bool joined;
	/* Under ctl.lock: nothing more is asked; the thread has nothing more to do. */
	bool gone, done;
};

struct ctl {
	struct server *server;
	char *path;
	struct stat socket; /* as we made it: another one there means that ours is gone */
	int listener, signals, quit, watch;
	atomic_bool leave; /* the mounts stay */
	pthread_mutex_t lock;
	bool stopping; /* connections stay open to the end */
	struct conn *conns;
	unsigned nconns;
	uint64_t accepted; /* connections, of the thread that accepts them */
};

/* ---- connections ---- */

static bool peer_allowed(int fd, pid_t *pid)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return false;
	*pid = peer.pid;
	return peer.uid == 0 || peer.uid == geteuid();
}

static void refuse(int fd, int code, const char *why)
{
	auto_buf text = { 0 };
	buf_printf(&text, "{\"error\":{\"errno\":%d,\"text\":\"%s\"}}", code, why);
	struct frame f = { .text = text };
	(void)frame_send(fd, &f, NULL); /* who can't hear it sees the connection end */
	text = f.text;
}

/* Answers one request; false at the connection's end. */
static bool converse(struct conn *c, struct frame *in, struct frame *out)
{
	struct err err;
	int r = frame_recv(c->fd, in, &err);
	if (r == -EMSGSIZE) {
		refuse(c->fd, EMSGSIZE, "the message is too long");
		return true;
	}
	if (r <= 0) {
		if (r < 0)
			log_warn("control connection: %s", err.text);
		return false;
	}
	enum ctl_end end = CTL_GO_ON;
	if (ctl_answer(c->ctl->server, &c->peer, in->text.data, in->text.len,
		       in->nfds ? in->fds[0] : -1, &out->text, &end) < 0) {
		refuse(c->fd, ENOMEM, "out of memory");
		return true;
	}
	r = frame_send(c->fd, out, &err);
	if (end != CTL_GO_ON) {
		log_info("asked to %s", end == CTL_END_QUIT ? "quit" : "leave");
		if (end == CTL_END_LEAVE)
			atomic_store(&c->ctl->leave, true);
		uint64_t one = 1;
		ssize_t n = write(c->ctl->quit, &one, sizeof(one));
		(void)n; /* full only after 2^64 times */
	}
	if (r < 0 && r != -EPIPE)
		log_warn("control connection: %s", err.text);
	return r >= 0;
}

/* The connection has ended; whether it was the last one of its process. */
static bool was_last(struct conn *c)
{
	bool last = true;
	pthread_mutex_lock(&c->ctl->lock);
	c->gone = true;
	for (const struct conn *o = c->ctl->conns; o && last; o = o->next)
		last = o->gone || o->peer.pid != c->peer.pid;
	pthread_mutex_unlock(&c->ctl->lock);
	return last;
}

static void *conn_main(void *arg)
{
	struct conn *c = arg;
	(void)pthread_setname_np(pthread_self(), "fs-ctl"); /* for people only */
	struct frame in = { 0 }, out = { 0 };
	while (converse(c, &in, &out))
		;
	frame_done(&in);
	frame_done(&out);
	if (was_last(c))
		server_peer_gone(c->ctl->server, c->peer.pid);
	pthread_mutex_lock(&c->ctl->lock);
	c->done = true;
	if (!c->ctl->stopping) { /* its thread is joined when the next connection comes */
		cleanup_close(&c->fd);
		c->fd = -1;
	}
	pthread_mutex_unlock(&c->ctl->lock);
	return NULL;
}

static void conn_free(struct conn *c)
{
	if (!c->joined)
		(void)pthread_join(c->thread, NULL); /* it is ours and joinable */
	cleanup_close(&c->fd);
	free(c);
}

/* Frees connections that have ended. */
static void reap(struct ctl *ctl)
{
	struct conn *gone = NULL;
	pthread_mutex_lock(&ctl->lock);
	for (struct conn **at = &ctl->conns; *at;) {
		struct conn *c = *at;
		if (!c->done) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		c->next = gone;
		gone = c;
		ctl->nconns--;
	}
	pthread_mutex_unlock(&ctl->lock);
	while (gone) {
		struct conn *c = gone;
		gone = c->next;
		conn_free(c);
	}
}

static void accept_one(struct ctl *ctl)
{
	auto_fd fd = accept4(ctl->listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0) {
		if (errno != EINTR && errno != ECONNABORTED && errno != EAGAIN)
			log_warn("accept a control connection: %s", strerror(errno));
		if (errno == EMFILE || errno == ENFILE)
			(void)poll(NULL, 0, 100); /* not to spin until something is closed */
		return;
	}
	reap(ctl);
	pid_t pid;
	if (!peer_allowed(fd, &pid)) {
		refuse(fd, EACCES, "only the server's own user may control it");
		return;
	}
	struct conn *c = ctl->nconns < CONNECTIONS_MAX ? calloc(1, sizeof(*c)) : NULL;
	if (!c) {
		refuse(fd, EAGAIN, "too many control connections");
		return;
	}
	c->ctl = ctl;
	c->fd = fd;
	c->peer = (struct peer){ ++ctl->accepted, pid };
	/* It is in the list before it asks for anything. */
	pthread_mutex_lock(&ctl->lock);
	int r = pthread_create(&c->thread, NULL, conn_main, c);
	if (r == 0) {
		(void)steal_fd(&fd);
		c->next = ctl->conns;
		ctl->conns = c;
		ctl->nconns++;
	}
	pthread_mutex_unlock(&ctl->lock);
	if (r != 0) {
		free(c);
		refuse(fd, EAGAIN, "no thread for a control connection");
	}
}

/* ---- life ---- */

int ctl_open(struct ctl **out, struct server *s, const char *socket_path, struct err *err)
{
	struct ctl *ctl = calloc(1, sizeof(*ctl));
	if (!ctl)
		return err_no_memory(err);
	ctl->server = s;
	pthread_mutex_init(&ctl->lock, NULL);
	ctl->listener = ctl->signals = ctl->quit = ctl->watch = -1;
	int r = 0;
	ctl->path = strdup(socket_path);
	if (!ctl->path)
		r = err_no_memory(err);
	if (r == 0)
		r = ctl->listener = frame_listen(ctl->path, err);
	sigset_t ends;
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGHUP);
	if (r >= 0) {
		ctl->quit = eventfd(0, EFD_CLOEXEC);
		ctl->signals = ctl->quit < 0 ? -1 : signalfd(-1, &ends, SFD_CLOEXEC);
		ctl->watch = ctl->signals < 0 ? -1 : inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
		r = ctl->watch < 0 ? err_sys(err, -errno, "prepare the control loop") : 0;
	}
	if (r == 0 && lstat(ctl->path, &ctl->socket) < 0)
		r = err_sys(err, -errno, "look at %s", ctl->path);
	/* Where this isn't possible the recheck now and then is what remains. */
	if (r == 0 &&
	    inotify_add_watch(ctl->watch, ctl->path, IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF) < 0)
		log_warn("watch %s: %s", ctl->path, strerror(errno));
	if (r < 0) {
		ctl_close(ctl);
		return r;
	}
	*out = ctl;
	return 0;
}

/* Without its socket nobody can reach the server: ROOT was removed, or another took over. */
static bool socket_gone(struct ctl *ctl)
{
	struct stat st;
	return lstat(ctl->path, &st) < 0 || st.st_ino != ctl->socket.st_ino ||
	       st.st_dev != ctl->socket.st_dev;
}

/* Whether something has come that ends the server. */
static bool must_end(struct ctl *ctl, const struct pollfd *p, int nready)
{
	if (p[1].revents) {
		struct signalfd_siginfo si;
		if (read(ctl->signals, &si, sizeof(si)) == sizeof(si)) {
			log_info("ending on signal %s", strsignal((int)si.ssi_signo));
			return true;
		}
	}
	if (p[2].revents)
		return true;
	if (p[3].revents || nready == 0) {
		char events[4096];
		while (read(ctl->watch, events, sizeof(events)) > 0)
			; /* what they say doesn't matter: look */
		if (socket_gone(ctl)) {
			log_error("the control socket %s was removed: ending", ctl->path);
			return true;
		}
	}
	return false;
}

/* No thread of a connection runs any more; the connections themselves stay open. */
static void stop_conns(struct ctl *ctl)
{
	server_hush(ctl->server); /* a request that waits for changes ends */
	pthread_mutex_lock(&ctl->lock);
	ctl->stopping = true;
	for (struct conn *c = ctl->conns; c; c = c->next)
		(void)shutdown(c->fd, SHUT_RD); /* one that has ended needs none */
	pthread_mutex_unlock(&ctl->lock);
	for (struct conn *c = ctl->conns; c; c = c->next) {
		(void)pthread_join(c->thread, NULL); /* it is ours and joinable */
		c->joined = true;
	}
}

int ctl_run(struct ctl *ctl, struct err *err)
{
	for (;;) {
		struct pollfd p[] = { { .fd = ctl->listener, .events = POLLIN },
				      { .fd = ctl->signals, .events = POLLIN },
				      { .fd = ctl->quit, .events = POLLIN },
				      { .fd = ctl->watch, .events = POLLIN } };
		int n = poll(p, sizeof(p) / sizeof(*p), RECHECK_MS);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(err, -errno, "wait for control connections");
		if (must_end(ctl, p, n))
			break;
		if (p[0].revents)
			accept_one(ctl);
	}
	stop_conns(ctl);
	return atomic_load(&ctl->leave);
}

void ctl_close(struct ctl *ctl)
{
	if (!ctl)
		return;
	if (ctl->listener >= 0 && !socket_gone(ctl))
		(void)unlink(ctl->path); /* a leftover is replaced by the next server */
	while (ctl->conns) {
		struct conn *c = ctl->conns;
		ctl->conns = c->next;
		(void)shutdown(c->fd, SHUT_RDWR); /* so that its thread ends, if it still runs */
		conn_free(c);
	}
	cleanup_close(&ctl->listener);
	cleanup_close(&ctl->signals);
	cleanup_close(&ctl->quit);
	cleanup_close(&ctl->watch);
	pthread_mutex_destroy(&ctl->lock);
	free(ctl->path);
	free(ctl);
}
