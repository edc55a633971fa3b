#include "snapd/web_listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/log.h"
#include "fs/base/sock.h"

enum {
	BACKLOG = 1024, /* of as many that come at once; a connect that may not wait fails then */
	STACK_BYTES = 1 << 20, /* of a connection's thread */
	FIRST_HEAD_S = 15,     /* over TCP, with TLS's own beginning */
	WATCH_MS = 500,
};

/* A connection; in its list while libmicrohttpd has its socket open. */
struct conn {
	struct web_listen *listen;
	struct web_peer peer;
	int fd;
	uint64_t until_ms; /* when it is shut down; 0: not now */
	uint64_t stall_ms; /* and so long after the last byte that moves; 0: whatever moves */
	int unsent;        /* bytes, when it was looked at */
	bool gave_up;
	void *call; /* on it now, that `completed` wasn't called for yet; or NULL */
	struct conn *next, *prev;
};

struct web_listen {
	struct MHD_Daemon *daemons[1 + WEB_TCP_MAX];
	int sockets[1 + WEB_TCP_MAX];
	size_t n;
	MHD_RequestCompletedCallback completed;
	void *arg;            /* of `completed` */
	unsigned limit;       /* of connections of one uid that is nobody's admin */
	pthread_mutex_t lock; /* all below */
	pthread_cond_t wake;
	struct conn *conns;
	bool stop;
	pthread_t thread;
	bool watched;
};

/* ---- who is there ---- */

static void look_at_tcp(struct conn *c, const struct sockaddr *sa, socklen_t len)
{
	char host[INET6_ADDRSTRLEN + 1] = "?", port[8] = "?";
	(void)getnameinfo(sa, len, host, sizeof(host), port, sizeof(port),
			  NI_NUMERICHOST | NI_NUMERICSERV); /* only told: "?" where it fails */
	(void)snprintf(c->peer.address, sizeof(c->peer.address),
		       sa->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
	int yes = 1;
	(void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	(void)setsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
}

static void look(struct conn *c)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	struct ucred cred;
	socklen_t size = sizeof(cred);
	if (getpeername(c->fd, (struct sockaddr *)&sa, &len) == 0 &&
	    (sa.ss_family == AF_INET || sa.ss_family == AF_INET6)) {
		look_at_tcp(c, (const struct sockaddr *)&sa, len);
		return;
	}
	if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
		return; /* then it is nobody we know */
	c->peer.local = true;
	c->peer.uid = cred.uid;
	c->peer.gid = cred.gid;
	c->peer.pid = cred.pid;
}

static void enter(struct web_listen *l, struct conn *c)
{
	unsigned same = 0;
	pthread_mutex_lock(&l->lock);
	for (const struct conn *o = l->conns; o; o = o->next)
		same += o->peer.local && o->peer.uid == c->peer.uid;
	c->peer.too_many = c->peer.local && c->peer.uid != 0 && c->peer.uid != geteuid() &&
			   same >= l->limit;
	c->next = l->conns;
	if (c->next)
		c->next->prev = c;
	l->conns = c;
	pthread_mutex_unlock(&l->lock);
}

static void leave(struct conn *c)
{
	struct web_listen *l = c->listen;
	pthread_mutex_lock(&l->lock);
	if (c->prev)
		c->prev->next = c->next;
	else
		l->conns = c->next;
	if (c->next)
		c->next->prev = c->prev;
	pthread_mutex_unlock(&l->lock);
	free(c);
}

static void on_connection(void *arg, struct MHD_Connection *conn, void **context,
			  enum MHD_ConnectionNotificationCode what)
{
	struct web_listen *l = arg;
	if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
		struct conn *gone = *context;
		if (gone && gone->call)
			l->completed(l->arg, conn, &gone->call, MHD_REQUEST_TERMINATED_WITH_ERROR);
		if (gone)
			leave(gone);
		*context = NULL;
		return;
	}
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct conn *c = info ? calloc(1, sizeof(*c)) : NULL;
	if (!c)
		return; /* its requests come from nobody, who may nothing */
	c->listen = l;
	c->fd = info->connect_fd;
	look(c);
	c->peer.tls = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_PROTOCOL) != NULL;
	c->until_ms = clock_ms() + 1000 * (c->peer.local ? (uint64_t)WEB_IDLE_S : FIRST_HEAD_S);
	enter(l, c);
	*context = c;
}

static struct conn *conn_of(struct MHD_Connection *conn)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	return info ? info->socket_context : NULL;
}

const struct web_peer *web_listen_peer(struct MHD_Connection *conn)
{
	static const struct web_peer nobody;
	const struct conn *c = conn_of(conn);
	return c ? &c->peer : &nobody;
}

void web_listen_call(struct MHD_Connection *conn, void *call)
{
	struct conn *c = conn_of(conn);
	if (c)
		c->call = call;
}

/* ---- whose time is up ---- */

/* How much the peer hasn't taken yet. It is another number once it has taken some, since more is
 * written when there is room for much only. (What the peer sends comes to web.c.) */
static int unsent_bytes(const struct conn *c)
{
	int n = 0;
	(void)ioctl(c->fd, SIOCOUTQ, &n); /* sockets of both kinds have it */
	return n;
}

static void set_time(struct MHD_Connection *conn, uint64_t time_ms, uint64_t stall_ms)
{
	struct conn *c = conn_of(conn);
	if (!c)
		return;
	pthread_mutex_lock(&c->listen->lock);
	c->until_ms = time_ms ? clock_ms() + time_ms : 0;
	c->stall_ms = stall_ms;
	pthread_mutex_unlock(&c->listen->lock);
}

void web_listen_ours(struct MHD_Connection *conn)
{
	set_time(conn, 0, 0);
}

void web_listen_theirs(struct MHD_Connection *conn, unsigned stall_s)
{
	set_time(conn, 1000 * (uint64_t)stall_s, 1000 * (uint64_t)stall_s);
}

void web_listen_next(struct MHD_Connection *conn)
{
	set_time(conn, 1000 * (uint64_t)WEB_IDLE_S, 0);
}

bool web_listen_gave_up(struct MHD_Connection *conn)
{
	struct conn *c = conn_of(conn);
	if (!c)
		return false;
	pthread_mutex_lock(&c->listen->lock);
	bool is = c->gave_up;
	pthread_mutex_unlock(&c->listen->lock);
	return is;
}

static void watch_one(struct conn *c, uint64_t now)
{
	if (c->stall_ms) {
		int unsent = unsent_bytes(c);
		if (unsent != c->unsent)
			c->until_ms = now + c->stall_ms;
		c->unsent = unsent;
	}
	if (c->until_ms && c->until_ms < now) {
		c->gave_up = c->stall_ms > 0;
		(void)shutdown(c->fd, SHUT_RDWR); /* its thread sees the end */
		c->until_ms = c->stall_ms = 0;
	}
}

static void *watch(void *arg)
{
	struct web_listen *l = arg;
	pthread_mutex_lock(&l->lock);
	while (!l->stop) {
		uint64_t now = clock_ms();
		for (struct conn *c = l->conns; c; c = c->next)
			watch_one(c, now);
		struct timespec until = clock_in_ms(WATCH_MS);
		(void)pthread_cond_timedwait(&l->wake, &l->lock, &until);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

/* ---- listening ---- */

static int listen_unix(const char *path, mode_t mode, struct err *err)
{
	struct sockaddr_un un;
	auto_fd dir = -1;
	int r = sock_address(&un, path, &dir, err);
	if (r < 0)
		return r;
	auto_fd probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	auto_fd fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || probe < 0)
		return err_sys(err, -errno, "socket");
	if (connect(probe, (const struct sockaddr *)&un, sizeof(un)) == 0)
		return err_set(err, -EADDRINUSE, "somebody listens on %s already", path);
	if (unlink(path) < 0 && errno != ENOENT)
		return err_sys(err, -errno, "replace %s", path);
	/* It never exists with more rights: the umask is the program's 077 (main.c). */
	if (bind(fd, (const struct sockaddr *)&un, sizeof(un)) < 0 || chmod(path, mode) < 0 ||
	    listen(fd, BACKLOG) < 0)
		return err_sys(err, -errno, "listen on %s", path);
	return steal_fd(&fd);
}

static int resolve(const char *text, struct addrinfo **out, struct err *err)
{
	char host[128];
	const char *colon = strrchr(text, ':');
	size_t n = colon ? (size_t)(colon - text) : 0;
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
				  .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE };
	if (!colon || n >= sizeof(host))
		return err_set(err, -EINVAL, "%.100s: ADDRESS:PORT is expected", text);
	memcpy(host, text, n);
	host[n] = '\0';
	char *name = host;
	if (n > 1 && host[0] == '[' && host[n - 1] == ']') {
		host[n - 1] = '\0';
		name++;
	}
	if (!*name || getaddrinfo(name, colon + 1, &hints, out) != 0)
		return err_set(err, -EINVAL, "%.100s: ADDRESS:PORT is expected, in numbers", text);
	return 0;
}

static bool is_loopback(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr) >>
			       24 ==
		       127;
	return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr);
}

static int check_address(const char *text, const struct addrinfo *ai, bool plain_allowed,
			 struct err *err)
{
	if (plain_allowed || is_loopback(ai->ai_addr))
		return 0;
	return err_set(err, -EPERM,
		       "%.100s: tokens would pass it in the clear: give --tls-cert and --tls-key,"
		       " or --insecure",
		       text);
}

int web_listen_check(const char *address, bool plain_allowed, struct err *err)
{
	struct addrinfo *ai;
	int r = resolve(address, &ai, err);
	if (r < 0)
		return r;
	r = check_address(address, ai, plain_allowed, err);
	freeaddrinfo(ai);
	return r;
}

static int listen_tcp(const char *text, bool plain_allowed, struct err *err)
{
	struct addrinfo *ai;
	int yes = 1, r = resolve(text, &ai, err);
	if (r < 0)
		return r;
	auto_fd fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	r = check_address(text, ai, plain_allowed, err);
	if (r < 0)
		;
	else if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) < 0 ||
		 bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
		r = err_sys(err, -errno, "listen on %.100s", text);
	freeaddrinfo(ai);
	return r < 0 ? r : steal_fd(&fd);
}

static void tell_port(int fd, const char *text, bool tls)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	char port[8] = "?";
	if (getsockname(fd, (struct sockaddr *)&sa, &len) == 0)
		(void)getnameinfo((struct sockaddr *)&sa, len, NULL, 0, port, sizeof(port),
				  NI_NUMERICSERV);
	log_info("listens on %s, port %s%s", text, port, tls ? " with TLS" : "");
}

static struct MHD_Daemon *start(struct web_listen *l, const struct web_callbacks *cb, int fd,
				const struct web_options *tls, unsigned per_address)
{
	unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION |
			 MHD_USE_POLL | MHD_USE_ERROR_LOG | MHD_USE_ITC | MHD_ALLOW_UPGRADE;
	struct MHD_OptionItem more[] = {
		{ MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)(tls ? tls->tls_cert : NULL) },
		{ MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)(tls ? tls->tls_key : NULL) },
		{ MHD_OPTION_HTTPS_PRIORITIES, 0,
		  (void *)(uintptr_t) "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2" },
		{ MHD_OPTION_END, 0, NULL },
	};
	if (!tls)
		more[0].option = MHD_OPTION_END;
	else
		flags |= MHD_USE_TLS;
	return MHD_start_daemon(
		flags, 0, NULL, NULL, cb->request, cb->arg, MHD_OPTION_EXTERNAL_LOGGER, cb->log,
		NULL, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_URI_LOG_CALLBACK, cb->target,
		cb->arg, MHD_OPTION_NOTIFY_COMPLETED, cb->completed, cb->arg,
		MHD_OPTION_UNESCAPE_CALLBACK, cb->unescape, NULL, MHD_OPTION_NOTIFY_CONNECTION,
		on_connection, l, MHD_OPTION_CONNECTION_LIMIT, (unsigned)WEB_CONNECTIONS,
		MHD_OPTION_PER_IP_CONNECTION_LIMIT, per_address, MHD_OPTION_CONNECTION_TIMEOUT, 0U,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)WEB_MEMORY,
		MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES, MHD_OPTION_ARRAY, more,
		MHD_OPTION_END);
}

/* `fd` is taken over. */
static int add(struct web_listen *l, int fd, const struct web_callbacks *cb,
	       const struct web_options *tls, unsigned per_address, struct err *err)
{
	if (fd < 0)
		return fd;
	l->daemons[l->n] = start(l, cb, fd, tls, per_address);
	if (!l->daemons[l->n]) {
		close(fd);
		return err_set(err, -EIO, "libmicrohttpd doesn't start%s",
			       tls ? ": are the certificate and key good?" : "");
	}
	l->sockets[l->n++] = fd;
	return 0;
}

int web_listen_start(struct web_listen **out, const struct web_options *opt,
		     const struct web_callbacks *cb, struct err *err)
{
	struct web_listen *l = calloc(1, sizeof(*l));
	const struct web_options *tls = opt->tls_cert ? opt : NULL;
	if (!l)
		return err_no_memory(err);
	l->limit = WEB_CONNECTIONS / 4;
	l->completed = cb->completed;
	l->arg = cb->arg;
	pthread_mutex_init(&l->lock, NULL);
	clock_cond_init(&l->wake);
	int r = add(l, listen_unix(opt->socket_path, opt->socket_open ? 0666 : 0600, err), cb, NULL,
		    0, err);
	for (size_t i = 0; i < opt->ntcp && r >= 0; i++) {
		int fd = listen_tcp(opt->tcp[i], tls || opt->insecure, err);
		r = add(l, fd, cb, tls, WEB_CONNECTIONS / 4, err);
		if (r >= 0)
			tell_port(fd, opt->tcp[i], tls);
	}
	if (r >= 0) {
		r = -pthread_create(&l->thread, NULL, watch, l);
		if (r < 0)
			(void)err_sys(err, r, "start a thread");
		l->watched = r >= 0;
	}
	if (r < 0) {
		web_listen_quiesce(l);
		web_listen_stop(l);
		return r;
	}
	*out = l;
	return 0;
}

void web_listen_quiesce(struct web_listen *l)
{
	for (size_t i = 0; i < l->n; i++) {
		int fd = MHD_quiesce_daemon(l->daemons[i]);
		if (fd >= 0)
			close(fd);
	}
}

void web_listen_stop(struct web_listen *l)
{
	for (size_t i = 0; i < l->n; i++)
		MHD_stop_daemon(l->daemons[i]);
	if (l->watched) {
		pthread_mutex_lock(&l->lock);
		l->stop = true;
		pthread_cond_signal(&l->wake);
		pthread_mutex_unlock(&l->lock);
		pthread_join(l->thread, NULL);
	}
	pthread_cond_destroy(&l->wake);
	pthread_mutex_destroy(&l->lock);
	free(l);
}
