/* bough-hold: keeps the /dev/fuse descriptors of a ROOT's mounts, and what their servers say of
 * them, so that the mounts outlive bough-fs and boughd. It does nothing else, that it may live
 * longest: it reads no request, opens no file, and never looks at what it keeps while a server is
 * there (the kernel would wake it for every request). */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/frame.h"
#include "fs/base/log.h"
#include "fs/hold/hold.h"

enum {
	EXIT_USAGE = 2,
	PEERS_MAX = 16, /* a server, its successor, and people who look */
	TICK_MS = 1000,
	SEND_MAX_S = 10, /* a peer that doesn't read for so long is none */
};

static const char help_text[] =
	"Usage: bough-hold --root DIR --listener FD [--patience SECONDS]\n"
	"Keeps the mounts of the workspaces under DIR while their server is replaced. bough-fs\n"
	"starts it; it ends by itself when there is nothing left to keep.\n"
	"\n"
	"  --root DIR          shown in lists of processes\n"
	"  --listener FD       the socket on which servers come\n"
	"  --patience SECONDS  without a server for so long it lets go, and programs on the\n"
	"                      mounts get errors instead of waiting (default: 120)\n"
	"  --help, --version\n";

struct held {
	uint64_t key;
	int fd;
	size_t len;
	void *blob;
};

struct peer {
	int fd;
	bool server;
};

struct hold {
	int listener;
	struct held *all; /* in order of key */
	size_t n, cap;
	struct peer peers[PEERS_MAX];
	unsigned npeers;
	uint64_t patience_ms, alone_since; /* clock_ms; 0: a server is there */
	struct frame in, out;
	char identity[128]; /* of this program, as it was when it started */
};

/* ---- what is kept ---- */

static size_t find(const struct hold *h, uint64_t key, bool *there)
{
	size_t lo = 0, hi = h->n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (h->all[mid].key < key)
			lo = mid + 1;
		else
			hi = mid;
	}
	*there = lo < h->n && h->all[lo].key == key;
	return lo;
}

static void drop_at(struct hold *h, size_t at)
{
	cleanup_close(&h->all[at].fd);
	free(h->all[at].blob);
	memmove(h->all + at, h->all + at + 1, (h->n - at - 1) * sizeof(*h->all));
	h->n--;
}

static void drop_all(struct hold *h)
{
	while (h->n > 0)
		drop_at(h, h->n - 1);
}

static size_t connections(const struct hold *h)
{
	bool board;
	(void)find(h, HOLD_BOARD, &board);
	return h->n - board;
}

/* Takes the descriptor over, where there is one. */
static int put(struct hold *h, const struct hold_msg *m, int *fd)
{
	bool there;
	size_t at = find(h, m->key, &there);
	void *blob = malloc(m->len ? m->len : 1);
	if (!blob)
		return -ENOMEM;
	memcpy(blob, m->blob, m->len);
	if (!there && (*fd < 0 || h->n >= HOLD_ENTRIES_MAX)) {
		free(blob);
		return *fd < 0 ? -ENOENT : -ENOSPC;
	}
	if (!there && h->n == h->cap) {
		size_t cap = h->cap ? h->cap * 2 : 16;
		struct held *all = reallocarray(h->all, cap, sizeof(*all));
		if (!all) {
			free(blob);
			return -ENOMEM;
		}
		h->all = all;
		h->cap = cap;
	}
	if (!there) {
		memmove(h->all + at + 1, h->all + at, (h->n - at) * sizeof(*h->all));
		h->all[at] = (struct held){ .key = m->key, .fd = -1 };
		h->n++;
	}
	struct held *e = &h->all[at];
	if (*fd >= 0) {
		cleanup_close(&e->fd);
		e->fd = steal_fd(fd);
	}
	free(e->blob);
	e->blob = blob;
	e->len = m->len;
	return 0;
}

/* Only without a server: what was unmounted meanwhile says so. */
static void drop_ended(struct hold *h)
{
	for (size_t i = h->n; i-- > 0;) {
		struct pollfd p = { .fd = h->all[i].fd };
		if (h->all[i].key != HOLD_BOARD && poll(&p, 1, 0) == 1 &&
		    p.revents & (POLLERR | POLLNVAL))
			drop_at(h, i);
	}
}

/* ---- conversation ---- */

static int answer(struct hold *h, int peer, enum hold_op op, uint64_t key, const void *blob,
		  size_t len, int fd)
{
	hold_encode(&h->out.text, op, key, blob, len);
	h->out.nfds = fd >= 0;
	h->out.fds[0] = fd;
	int r = frame_send(peer, &h->out, NULL);
	h->out.nfds = 0; /* it was borrowed */
	return r;
}

static int next(struct hold *h, int peer, uint64_t key)
{
	bool there;
	size_t at = key == UINT64_MAX ? h->n : find(h, key + 1, &there);
	if (at == h->n)
		return answer(h, peer, HOLD_END, 0, NULL, 0, -1);
	const struct held *e = &h->all[at];
	return answer(h, peer, HOLD_ENTRY, e->key, e->blob, e->len, e->fd);
}

static int perform(struct hold *h, struct peer *p, const struct hold_msg *m)
{
	bool there;
	size_t at;
	int r = 0;
	switch (m->op) {
	case HOLD_HELLO:
		p->server = true;
		return answer(h, p->fd, HOLD_HELLO, 0, h->identity, strlen(h->identity), -1);
	case HOLD_PUT:
		r = put(h, m, &h->in.fds[0]);
		if (r < 0)
			log_error("can't keep a mount: %s", strerror(-r));
		return 0;
	case HOLD_DROP:
		at = find(h, m->key, &there);
		if (there)
			drop_at(h, at);
		return 0;
	case HOLD_NEXT:
		return next(h, p->fd, m->key);
	case HOLD_DROP_ALL:
		if (connections(h))
			log_warn("told to let %zu mounts go", connections(h));
		drop_all(h);
		return answer(h, p->fd, HOLD_PONG, 0, NULL, 0, -1);
	case HOLD_PING:
		return answer(h, p->fd, HOLD_PONG, 0, NULL, 0, -1);
	case HOLD_ENTRY:
	case HOLD_END:
	case HOLD_PONG:
		break;
	}
	return -EBADMSG;
}

/* False when the peer is to be dropped. */
static bool converse(struct hold *h, struct peer *p)
{
	struct hold_msg m;
	if (frame_recv(p->fd, &h->in, NULL) <= 0)
		return false;
	if (h->in.nfds == 0)
		h->in.fds[0] = -1;
	int r = hold_decode(&m, h->in.text.data, h->in.text.len);
	if (r == 0)
		r = perform(h, p, &m);
	for (int i = 0; i < h->in.nfds; i++) /* those that weren't taken over */
		cleanup_close(&h->in.fds[i]);
	h->in.nfds = 0;
	return r == 0;
}

static bool server_there(const struct hold *h)
{
	for (unsigned i = 0; i < h->npeers; i++)
		if (h->peers[i].server)
			return true;
	return false;
}

/* A server that let all mounts go has no successor to wait for. It waits until this process hangs
 * up by its end, so that nothing of ROOT is open then. */
static bool was_last(const struct hold *h)
{
	return h->npeers == 1 && h->peers[0].server && connections(h) == 0;
}

static void drop_peer(struct hold *h, unsigned i)
{
	cleanup_close(&h->peers[i].fd);
	h->peers[i] = h->peers[--h->npeers];
}

static void accept_peer(struct hold *h)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);
	auto_fd fd = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE)
			(void)poll(NULL, 0, 100); /* not to spin until something is closed */
		return;
	}
	struct timeval most = { .tv_sec = SEND_MAX_S };
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 ||
	    (peer.uid != 0 && peer.uid != geteuid()) || h->npeers == PEERS_MAX ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most)) < 0)
		return;
	h->peers[h->npeers++] = (struct peer){ .fd = steal_fd(&fd) };
}

/* ---- life ---- */

static bool wait_for_peers(struct hold *h, bool *end)
{
	struct pollfd p[PEERS_MAX + 1] = { { .fd = h->listener, .events = POLLIN } };
	for (unsigned i = 0; i < h->npeers; i++)
		p[i + 1] = (struct pollfd){ .fd = h->peers[i].fd, .events = POLLIN };
	int n = poll(p, h->npeers + 1, h->alone_since ? TICK_MS : -1);
	if (n < 0)
		return errno == EINTR;
	for (unsigned i = h->npeers; i-- > 0;)
		if (p[i + 1].revents && !converse(h, &h->peers[i])) {
			if ((*end = was_last(h)))
				return true;
			drop_peer(h, i);
		}
	if (p[0].revents)
		accept_peer(h);
	return true;
}

static int keep(struct hold *h)
{
	bool end = false;
	h->alone_since = clock_ms();
	while (wait_for_peers(h, &end)) {
		if (end)
			return EXIT_SUCCESS;
		if (server_there(h)) {
			h->alone_since = 0;
			continue;
		}
		if (!h->alone_since)
			h->alone_since = clock_ms();
		drop_ended(h);
		uint64_t alone = clock_ms() - h->alone_since;
		if (connections(h) && alone >= h->patience_ms) {
			log_error("no server for %llu s: lets %zu mounts go",
				  (unsigned long long)(alone / 1000), connections(h));
			drop_all(h);
		}
		/* Its server comes at once, unless it died. */
		if (!connections(h) && h->npeers == 0 && alone >= TICK_MS)
			return EXIT_SUCCESS;
	}
	log_error("wait for servers: %s", strerror(errno));
	return EXIT_FAILURE;
}

/* The last to be ended when memory is short: all others can be started anew. */
static void be_spared(void)
{
	static const char score[] = "-900";
	auto_fd fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : write(fd, score, sizeof(score) - 1);
	(void)n; /* only root may */
}

static bool parse_number(const char *s, long max, long *out)
{
	char *end;
	errno = 0;
	long n = strtol(s, &end, 10);
	if (errno || end == s || *end || n < 0 || n > max)
		return false;
	*out = n;
	return true;
}

static int usage(const char *text)
{
	fprintf(stderr, "bough-hold: %s (try --help)\n", text);
	return EXIT_USAGE;
}

/* It keeps descriptors and answers who may ask: that needs no right of root's. */
static void give_up_rights(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	const struct __user_cap_data_struct none[2] = { 0 };
	if (syscall(SYS_capset, &head, none) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		log_warn("give up rights: %s", strerror(errno));
}

int main(int argc, char **argv)
{
	static const struct option longs[] = { { "root", required_argument, NULL, 'r' },
					       { "listener", required_argument, NULL, 'l' },
					       { "patience", required_argument, NULL, 'p' },
					       { "help", no_argument, NULL, 'h' },
					       { "version", no_argument, NULL, 'v' },
					       { 0 } };
	struct hold h = { .listener = -1 };
	long listener = -1, patience = HOLD_PATIENCE_S;
	log_init("bough-hold");
	for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
		if (c == 'h')
			return fputs(help_text, stdout) < 0 || fflush(stdout) < 0;
		if (c == 'v')
			return printf("bough-hold " BOUGH_VERSION "\n") < 0 || fflush(stdout) < 0;
		if (c == 'l' && !parse_number(optarg, 1 << 20, &listener))
			return usage("--listener is no descriptor");
		if (c == 'p' && !parse_number(optarg, 1000000, &patience))
			return usage("--patience is no number of seconds");
		if (c == '?')
			return EXIT_USAGE;
	}
	if (optind < argc || listener < 0)
		return usage("it takes --root and --listener, and bough-fs gives them");
	h.listener = (int)listener;
	h.patience_ms = (uint64_t)patience * 1000;
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN); /* a terminal's end is none of its business */
	(void)signal(SIGINT, SIG_IGN);
	struct rlimit nofile;
	if (getrlimit(RLIMIT_NOFILE, &nofile) == 0 && nofile.rlim_cur < nofile.rlim_max) {
		nofile.rlim_cur = nofile.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &nofile); /* fewer mounts then */
	}
	give_up_rights();
	if (chdir("/") < 0) {
		log_error("enter /: %s", strerror(errno));
		return EXIT_FAILURE;
	}
	struct stat self;
	if (stat("/proc/self/exe", &self) == 0)
		(void)hold_identity(h.identity, sizeof(h.identity), &self); /* it fits */
	be_spared();
	int r = keep(&h);
	drop_all(&h);
	free(h.all);
	buf_done(&h.in.text);
	buf_done(&h.out.text);
	return r;
}
