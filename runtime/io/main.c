/* bough-io: holds the fifos of one sandbox's processes and keeps what comes out of them
 * (runtime/output.h). It allocates next to nothing, waits in one place and writes no log, so that
 * what it keeps alive doesn't depend on anything. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/frame.h"
#include "runtime/io/proc.h"

enum {
	EXIT_USAGE = 2,
	EVENTS_MAX = 32,
	PEERS_MAX = 128,
	SEND_MAX_S = 1,      /* a peer that doesn't read for so long is none */
	LOOK_MS = 60 * 1000, /* whether the folder is still there */
};

static const char help_text[] =
	"Usage: bough-io --dir DIR\n"
	"Holds the input and output of a sandbox's processes, below DIR. boughd starts it.\n";

struct server {
	struct io_loop io;
	struct source listener;
	struct source *peers[PEERS_MAX];
	unsigned n_peers;
	bool stop;
	struct frame in, out;
};

/* ---- peers ---- */

static void drop_peer(struct server *sv, struct source *peer)
{
	cleanup_close(&peer->fd);
	peer->fd = -1;
	peer->dead = true;
	peer->next = sv->io.dead;
	sv->io.dead = peer;
	for (unsigned i = 0; i < sv->n_peers; i++)
		if (sv->peers[i] == peer)
			sv->peers[i] = sv->peers[--sv->n_peers];
}

static void accept_peer(struct server *sv)
{
	int fd = accept4(sv->listener.fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		return;
	struct timeval most = { .tv_sec = SEND_MAX_S };
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most)); /* can't fail */
	struct source *peer = sv->n_peers < PEERS_MAX ? malloc(sizeof(*peer)) : NULL;
	if (!peer) {
		(void)close(fd);
		return;
	}
	*peer = (struct source){ SOURCE_PEER, fd, false, NULL, NULL };
	struct epoll_event e = { .events = EPOLLIN, .data.ptr = peer };
	sv->peers[sv->n_peers++] = peer;
	if (epoll_ctl(sv->io.epoll, EPOLL_CTL_ADD, fd, &e) < 0)
		drop_peer(sv, peer);
}

/* The descriptor that came along. */
static int hold(struct server *sv, const char *key)
{
	int r = sv->in.nfds == 1 ? proc_hold(&sv->io, key, sv->in.fds[0]) : -EBADMSG;
	if (r >= 0)
		sv->in.nfds = 0; /* it is the process's now */
	return r;
}

/* What is asked for; *fd is sent along and closed. */
static int64_t perform(struct server *sv, const struct io_msg *m, int *fd)
{
	struct io_loop *io = &sv->io;
	switch (m->op) {
	case IO_PING:
		return getpid();
	case IO_STOP:
		sv->stop = true;
		return 0;
	case IO_OPEN:
		return proc_open(io, m);
	case IO_STARTED:
		return proc_started(io, m->key);
	case IO_FINISH:
		return proc_finish(io, m->key);
	case IO_DROP:
		return proc_drop(io, m->key);
	case IO_WATCH:
		*fd = proc_watch(io, m->key);
		return *fd < 0 ? *fd : 0;
	case IO_WRITE:
		return proc_write(io, m);
	case IO_CLOSE_IN:
		return proc_close_in(io, m->key);
	case IO_HOLD:
		return hold(sv, m->key);
	case IO_HELD:
		return proc_held(io, m->key);
	default:
		return -EOPNOTSUPP;
	}
}

static void serve_peer(struct server *sv, struct source *peer)
{
	struct io_msg m;
	auto_fd fd = -1;
	int r = frame_recv(peer->fd, &sv->in, NULL) <= 0
			? -EPIPE
			: io_decode(&m, sv->in.text.data, sv->in.text.len);
	if (r < 0 && r != -EOPNOTSUPP) {
		drop_peer(sv, peer);
		return;
	}
	buf_reset(&sv->out.text);
	io_encode_answer(&sv->out.text, r < 0 ? r : perform(sv, &m, &fd));
	sv->out.nfds = fd >= 0;
	sv->out.fds[0] = fd;
	r = frame_send(peer->fd, &sv->out, NULL);
	sv->out.nfds = 0; /* it was lent */
	if (r < 0)
		drop_peer(sv, peer);
}

/* ---- the loop ---- */

/* Whoever removed the folder wants no more of it. */
static bool folder_is_gone(const struct server *sv)
{
	struct stat st;
	return fstat(sv->io.dir, &st) < 0 || st.st_nlink == 0;
}

static void handle(struct server *sv, const struct epoll_event *e)
{
	struct source *s = e->data.ptr;
	if (s->dead)
		return;
	if (s->kind == SOURCE_LISTENER)
		accept_peer(sv);
	else if (s->kind == SOURCE_PEER)
		serve_peer(sv, s);
	else
		proc_event(&sv->io, s, e->events);
}

static int serve(struct server *sv)
{
	struct epoll_event events[EVENTS_MAX];
	while (!sv->stop) {
		int due = proc_tick(&sv->io);
		int n = epoll_wait(sv->io.epoll, events, EVENTS_MAX,
				   due >= 0 && due < LOOK_MS ? due : LOOK_MS);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0 && folder_is_gone(sv))
			return 0;
		for (int i = 0; i < n; i++)
			handle(sv, &events[i]);
		proc_bury(&sv->io);
		proc_pace(&sv->io);
	}
	(void)unlinkat(sv->io.dir, "io.sock", 0); /* who finds it meets nobody */
	return 0;
}

/* ---- the beginning ---- */

static int listen_in(struct server *sv, const char *dir, struct err *err)
{
	auto_free char *path = NULL;
	if (asprintf(&path, "%s/io.sock", dir) < 0) {
		path = NULL; /* undefined then */
		return err_no_memory(err);
	}
	int fd = frame_listen(path, err);
	if (fd < 0)
		return fd;
	sv->listener = (struct source){ SOURCE_LISTENER, fd, false, NULL, NULL };
	struct epoll_event e = { .events = EPOLLIN, .data.ptr = &sv->listener };
	if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ||
	    epoll_ctl(sv->io.epoll, EPOLL_CTL_ADD, fd, &e) < 0)
		return err_sys(err, -errno, "listen at %s", path);
	return 0;
}

static int prepare(struct server *sv, const char *dir, struct err *err)
{
	struct rlimit most;
	if (getrlimit(RLIMIT_NOFILE, &most) == 0) {
		most.rlim_cur = most.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &most); /* else fewer processes fit */
	}
	sv->io.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (sv->io.epoll < 0)
		return err_sys(err, -errno, "make an epoll");
	int r = proc_recover(&sv->io);
	return r < 0 ? err_sys(err, r, "read %s", dir) : listen_in(sv, dir, err);
}

/* Leaves the caller's session, and tells it (by the end of the first process) that all is ready. */
static int become_daemon(int *ready)
{
	int fds[2];
	char c;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (pid > 0) {
		(void)close(fds[1]);
		_exit(read(fds[0], &c, 1) == 1 ? EXIT_SUCCESS : EXIT_FAILURE);
	}
	(void)close(fds[0]);
	*ready = fds[1];
	return setsid() < 0 ? -errno : 0;
}

static int say_ready(int ready)
{
	auto_fd null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
		return -errno;
	for (int fd = 0; fd < 3; fd++)
		if (dup2(null, fd) < 0)
			return -errno;
	return write(ready, "", 1) == 1 ? close(ready) : -EPIPE;
}

static int run(const char *dir, struct err *err)
{
	static struct server sv = { .io = { .dir = -1, .room = OUTPUT_TOTAL } };
	int ready = -1;
	sv.io.dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (sv.io.dir < 0)
		return err_sys(err, -errno, "open %s", dir);
	/* Held as long as it lives, so that there are never two. */
	int lock = openat(sv.io.dir, "io.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock < 0)
		return err_sys(err, -errno, "open %s/io.lock", dir);
	if (flock(lock, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? 0 : err_sys(err, -errno, "lock %s/io.lock", dir);
	int r = become_daemon(&ready);
	if (r < 0)
		return err_sys(err, r, "become a daemon");
	r = prepare(&sv, dir, err);
	if (r < 0)
		return r;
	r = say_ready(ready);
	if (r < 0)
		return err_sys(err, r, "say that all is ready");
	return serve(&sv);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "dir", required_argument, NULL, 'd' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'v' },
		{ 0 },
	};
	const char *dir = NULL;
	struct err err = { 0 };
	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) >= 0;) {
		if (c == 'h') {
			(void)fputs(help_text, stdout);
			return EXIT_SUCCESS;
		}
		if (c == 'v') {
			printf("bough-io %s\n", BOUGH_VERSION);
			return EXIT_SUCCESS;
		}
		if (c != 'd')
			return EXIT_USAGE;
		dir = optarg;
	}
	if (!dir || optind < argc) {
		(void)fputs(help_text, stderr);
		return EXIT_USAGE;
	}
	(void)signal(SIGPIPE, SIG_IGN); /* can't fail for such a signal */
	(void)close_range(3, ~0U, 0);   /* whatever it was given would live as long as it does */
	if (run(dir, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}
