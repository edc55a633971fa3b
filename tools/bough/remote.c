#include "tools/bough/remote.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/sock.h"
#include "tools/bough/start.h"

enum { TOKEN_MAX = 512, HOST_MAX = 255 };

struct remote {
	char *url;
	char host[HOST_MAX + 1]; /* without brackets */
	char port[8];
	char *named; /* host and port as they stand in the URL */
	bool tls;
	char *ca, *token;
};

void remote_free(struct remote *r)
{
	if (!r)
		return;
	if (r->token)
		explicit_bzero(r->token, strlen(r->token));
	free(r->token);
	free(r->url);
	free(r->named);
	free(r->ca);
	free(r);
}

const char *remote_host(const struct remote *r)
{
	return r->named;
}

const char *remote_token(const struct remote *r)
{
	return r->token;
}

/* ---- what is given ---- */

static bool all_of(const char *s, size_t n, const char *others)
{
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)s[i]) && (!s[i] || !strchr(others, s[i])))
			return false;
	return n > 0;
}

/* `authority`: HOST, HOST:PORT, [V6], [V6]:PORT. */
static int take_authority(struct remote *r, const char *authority)
{
	const char *host = authority, *end;
	bool v6 = *host == '[';
	if (v6) {
		end = strchr(++host, ']');
		if (!end || (end[1] && end[1] != ':'))
			return -EINVAL;
	} else {
		end = host + strcspn(host, ":");
	}
	size_t n = (size_t)(end - host);
	if (n > HOST_MAX || *host == '-' || !all_of(host, n, v6 ? ":.%" : ".-_"))
		return -EINVAL;
	memcpy(r->host, host, n);
	const char *port = end + v6;
	if (*port == ':') {
		char *rest;
		unsigned long v = strtoul(++port, &rest, 10);
		if (!isdigit((unsigned char)*port) || *rest || v == 0 || v > 65535)
			return -EINVAL;
		(void)snprintf(r->port, sizeof(r->port), "%lu", v);
	} else {
		(void)snprintf(r->port, sizeof(r->port), "%s", r->tls ? "443" : "80");
	}
	return 0;
}

static int take_url(struct remote *r, const char *url, struct err *err)
{
	r->tls = strncmp(url, "https://", 8) == 0;
	if (!r->tls && strncmp(url, "http://", 7) != 0)
		return err_set(err, -EINVAL, "\"%s\" is no URL of a boughd: https://HOST[:PORT]",
			       url);
	const char *at = url + (r->tls ? 8 : 7);
	size_t n = strcspn(at, "/?#");
	if (memchr(at, '@', n)) /* not repeated: it may be a secret */
		return err_set(err, -EINVAL,
			       "a URL with a name or a token in it isn't taken: "
			       "give the token by --auth FILE or BOUGH_TOKEN_FILE");
	r->named = strndup(at, n);
	r->url = strdup(url);
	if (!r->named || !r->url)
		return err_no_memory(err);
	if (strcmp(at + n, "/") == 0)
		r->url[strlen(r->url) - 1] = 0;
	else if (at[n])
		return err_set(err, -EINVAL, "%s: a boughd's URL ends behind HOST[:PORT]", url);
	return take_authority(r, r->named) < 0
		       ? err_set(err, -EINVAL, "%s: there is no right host or port in it", url)
		       : 0;
}

/* One line; its bytes go into a request's head. */
static int take_token(struct remote *r, const char *file, struct err *err)
{
	char text[TOKEN_MAX + 1];
	auto_fd fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0) {
		/* Not "not found", as what is asked for. */
		int e = errno == ENOENT ? -EINVAL : -errno;
		return err_set(err, e, "the token: open %s: %s", file, strerror(errno));
	}
	size_t n = 0;
	ssize_t got = 0;
	while (n < sizeof(text) &&
	       ((got = read(fd, text + n, sizeof(text) - n)) > 0 || (got < 0 && errno == EINTR)))
		n += got > 0 ? (size_t)got : 0;
	int e = got < 0 ? -errno : 0;
	while (n > 0 && isspace((unsigned char)text[n - 1]))
		n--;
	if (e == 0 && n <= TOKEN_MAX && all_of(text, n, "-._~+/="))
		r->token = strndup(text, n);
	else
		e = e ? e : -EINVAL;
	explicit_bzero(text, sizeof(text));
	if (e == -EINVAL)
		return err_set(err, e,
			       "%s: it doesn't hold a token: one line, as `bough token create` "
			       "prints it",
			       file);
	if (e < 0)
		return err_sys(err, e, "the token: read %s", file);
	return r->token ? 0 : err_no_memory(err);
}

static bool is_here(const char *host)
{
	struct in_addr v4;
	struct in6_addr v6;
	if (inet_pton(AF_INET, host, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	if (inet_pton(AF_INET6, host, &v6) == 1)
		return IN6_IS_ADDR_LOOPBACK(&v6);
	return strcasecmp(host, "localhost") == 0;
}

int remote_new(struct remote **out, const char *url, const char *auth, const char *ca,
	       bool insecure, struct err *err)
{
	struct remote *r = calloc(1, sizeof(*r));
	if (!r)
		return err_no_memory(err);
	int e = take_url(r, url, err);
	if (e == 0 && ca && !r->tls)
		e = err_set(err, -EINVAL, "--ca goes with https://, not with %s", r->url);
	if (e == 0 && ca && !(r->ca = strdup(ca)))
		e = err_no_memory(err);
	if (e == 0 && auth && !r->tls && !insecure && !is_here(r->host))
		e = err_set(err, -EINVAL,
			    "%s: the token would go there in the clear: use https://, or give "
			    "--insecure where nobody listens in",
			    r->url);
	if (e == 0 && auth)
		e = take_token(r, auth, err);
	if (e < 0) {
		remote_free(r);
		return e;
	}
	*out = r;
	return 0;
}

/* ---- connecting ---- */

/* The helper's first line: empty when the connection stands. */
static int hear(int fd, struct err *err)
{
	char line[sizeof(err->text)];
	size_t n = 0;
	for (;;) { /* byte by byte: what comes behind it is the server's */
		char c;
		ssize_t got = recv(fd, &c, 1, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return err_set(err, -EIO, "bough-tls ended without a word");
		if (c == '\n')
			break;
		if (n + 1 < sizeof(line))
			line[n++] = c;
	}
	line[n] = 0;
	return n ? err_set(err, -ECONNABORTED, "%s", line) : 0;
}

static int spawn_tls(const struct remote *r, int end, pid_t *pid, struct err *err)
{
	auto_free char *program = NULL;
	int e = program_find("bough-tls", &program, err);
	if (e < 0)
		return e == -ENOENT ? -EIO : e; /* it isn't what the caller named */
	char *argv[] = { (char *)"bough-tls", (char *)(uintptr_t)r->host,
			 (char *)(uintptr_t)r->port, r->ca, NULL };
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t attr;
	sigset_t none;
	sigemptyset(&none);
	if ((e = posix_spawn_file_actions_init(&fa)))
		return err_sys(err, -e, "start bough-tls");
	if ((e = posix_spawnattr_init(&attr))) {
		posix_spawn_file_actions_destroy(&fa);
		return err_sys(err, -e, "start bough-tls");
	}
	/* A key at the terminal is bough's to hear: a session of its own. Its stdout may be a pipe
	 * that somebody waits to see closed. */
	if (!(e = posix_spawn_file_actions_adddup2(&fa, end, 0)) &&
	    !(e = posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0)) &&
	    !(e = posix_spawn_file_actions_addopen(&fa, 2, "/dev/null", O_WRONLY, 0)) &&
	    !(e = posix_spawn_file_actions_addclosefrom_np(&fa, 3)) &&
	    !(e = posix_spawnattr_setsigmask(&attr, &none)) &&
	    !(e = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK)))
		e = posix_spawn(pid, program, &fa, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&fa);
	return e ? err_sys(err, -e, "start %s", program) : 0;
}

static int connect_tls(const struct remote *r, pid_t *helper, struct err *err)
{
	int pair[2];
	pid_t pid = 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(err, -errno, "socketpair");
	auto_fd ours = pair[0];
	auto_fd theirs = pair[1];
	int e = spawn_tls(r, theirs, &pid, err);
	if (e < 0)
		return e;
	cleanup_close(&theirs);
	theirs = -1;
	e = hear(ours, err);
	if (e < 0) {
		cleanup_close(&ours);
		ours = -1;
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		return e;
	}
	*helper = pid;
	return steal_fd(&ours);
}

int remote_connect(const struct remote *r, pid_t *helper, struct err *err)
{
	*helper = 0;
	int fd = r->tls ? connect_tls(r, helper, err) : sock_connect_tcp(r->host, r->port, err);
	if (fd == -ENOENT || fd == -ECONNREFUSED) /* nothing is to be started here */
		fd = -ECONNABORTED;
	return fd < 0 ? err_prefix(err, fd, "%s", r->url) : fd;
}
