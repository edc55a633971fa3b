/* A peer for the tests of the command line: it listens at ROOT/run/boughd.sock, and answers each
 * connection from a script. Runs in a thread of the test. */
#ifndef BOUGH_TESTS_CLI_SERVER_H
#define BOUGH_TESTS_CLI_SERVER_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "fs/base/buf.h"

struct exchange {
	/* Reads until the request contains this; NULL: its head. "" : nothing at all. */
	const char *until;
	const char *interim; /* said after the head; NULL: nothing */
	const char *answer;
	size_t len;        /* of answer; 0: strlen */
	size_t piece;      /* bytes a write; 0: all at once */
	unsigned delay_ms; /* before the answer */
	/* Instead of `answer`: a status line's end, a type and a body, which is sent as one
	 * chunk; with `early` before the request's body has come, with `cut` without the
	 * last chunk. */
	const char *status, *type, *body;
	bool early, cut;
};

struct server {
	char root[200];
	int fd;
	const struct exchange *script;
	unsigned n;
	struct buf got[16]; /* what each request was */
	pthread_t thread;
};

static inline bool contains(const struct buf *b, const char *text)
{
	return b->len > 0 && memmem(b->data, b->len, text, strlen(text)) != NULL;
}

static inline bool read_until(int fd, struct buf *b, const char *text)
{
	while (!contains(b, text)) {
		uint8_t *p = buf_room(b, 65536);
		ssize_t n = p ? read(fd, p, 65536) : -1;
		if (n <= 0)
			return false;
		b->len += (size_t)n;
	}
	return true;
}

static inline void say_all(int fd, const char *p, size_t n, size_t piece)
{
	while (n > 0) {
		size_t k = piece && piece < n ? piece : n;
		ssize_t w = send(fd, p, k, MSG_NOSIGNAL);
		if (w <= 0)
			return;
		p += w;
		n -= (size_t)w;
	}
}

static inline void say_chunked(int fd, const struct exchange *x)
{
	struct buf b = { 0 };
	buf_printf(&b,
		   "HTTP/1.1 %s\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n"
		   "%zx\r\n%s\r\n%s",
		   x->status, x->type, strlen(x->body), x->body, x->cut ? "" : "0\r\n\r\n");
	say_all(fd, (const char *)b.data, b.len, x->piece);
	buf_done(&b);
}

static inline void *server_main(void *arg)
{
	struct server *s = arg;
	for (unsigned i = 0; i < s->n; i++) {
		const struct exchange *x = &s->script[i];
		int c = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
		if (c < 0)
			return NULL;
		if (x->interim && read_until(c, &s->got[i], "\r\n\r\n"))
			say_all(c, x->interim, strlen(x->interim), 0);
		if (x->early && read_until(c, &s->got[i], "\r\n\r\n"))
			say_chunked(c, x);
		else if (!x->until || *x->until)
			(void)read_until(c, &s->got[i], x->until ? x->until : "\r\n\r\n");
		usleep(x->delay_ms * 1000);
		if (x->answer)
			say_all(c, x->answer, x->len ? x->len : strlen(x->answer), x->piece);
		if (x->status && !x->early)
			say_chunked(c, x);
		close(c);
	}
	return NULL;
}

static inline int server_start(struct server *s, const struct exchange *script, unsigned n)
{
	const char *tmp = getenv("TMPDIR");
	memset(s, 0, sizeof(*s));
	s->script = script;
	s->n = n;
	(void)snprintf(s->root, sizeof(s->root), "%s/cli.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(s->root))
		return -errno;
	char path[256];
	(void)snprintf(path, sizeof(path), "%s/run", s->root);
	if (mkdir(path, 0700) < 0)
		return -errno;
	/* Bound by a short name from inside: TMPDIR may be longer than sun_path. */
	int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct sockaddr_un sa = { .sun_family = AF_UNIX, .sun_path = "boughd.sock" };
	s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (here < 0 || s->fd < 0 || chdir(path) < 0 ||
	    bind(s->fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(s->fd, 8) < 0 ||
	    fchdir(here) < 0)
		return -errno;
	close(here);
	return -pthread_create(&s->thread, NULL, server_main, s);
}

/* Waits for the script's end. */
static inline void server_stop(struct server *s)
{
	char path[256];
	pthread_join(s->thread, NULL);
	close(s->fd);
	for (unsigned i = 0; i < 16; i++)
		buf_done(&s->got[i]);
	(void)snprintf(path, sizeof(path), "%s/run/boughd.sock", s->root);
	unlink(path);
	(void)snprintf(path, sizeof(path), "%s/run", s->root);
	rmdir(path);
	rmdir(s->root);
}

#endif
