#include "tools/bough/http.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/sock.h"
#include "tools/bough/http_parse.h"
#include "tools/bough/remote.h"

enum {
	IN_SIZE = 64 * 1024,     /* one receive */
	OUT_SIZE = 256 * 1024,   /* one chunk of a stream */
	HEAD_ROOM = 16,          /* before a chunk, for its size */
	INTERIM_MAX = 8,         /* 1xx answers before the real one */
	LOOK_MS = 500,           /* while an answer is awaited: whether anybody lives to give it */
	CONTINUE_WAIT_MS = 1000, /* RFC 9110 10.1.1: don't wait for 100 (Continue) for ever */
};

struct http {
	int fd;
	const struct remote *remote; /* NULL: a unix socket */
	pid_t helper;                /* carries the bytes to it; 0: none */
	struct buf in; /* received and not yet consumed: in.data[pos .. in.len) */
	size_t pos;
	bool eof;       /* the peer has closed */
	bool broken;    /* a call failed: the framing is lost */
	bool have_head; /* the final head, in `head` */
	bool no_body;   /* the answer to HEAD has none */
	bool upgrade;   /* 101 is a final one */
	bool go_on;     /* 100 (Continue) came */
	unsigned interim;
	struct http_head head;
	struct http_framing framing;
	struct buf line;
	bool has_reason; /* the peer said why its answer ends early */
	char code[HTTP_CODE_MAX], reason[HTTP_REASON_MAX];
	char *summary; /* of the trailer; NULL: none */
};

/* ---- the connection ---- */

int http_open(struct http **out, const char *socket_path, struct err *err)
{
	struct http *h = calloc(1, sizeof(*h));
	if (!h)
		return err_no_memory(err);
	h->fd = sock_connect(socket_path, SOCK_STREAM, err);
	if (h->fd < 0) {
		int r = h->fd;
		http_free(h);
		return r;
	}
	*out = h;
	return 0;
}

int http_open_remote(struct http **out, const struct remote *remote, struct err *err)
{
	struct http *h = calloc(1, sizeof(*h));
	if (!h)
		return err_no_memory(err);
	h->remote = remote;
	h->fd = remote_connect(remote, &h->helper, err);
	if (h->fd < 0) {
		int r = h->fd;
		http_free(h);
		return r;
	}
	*out = h;
	return 0;
}

void http_free(struct http *h)
{
	if (!h)
		return;
	if (h->fd >= 0)
		(void)close(h->fd); /* nothing of ours is buffered in it */
	while (h->helper && waitpid(h->helper, NULL, 0) < 0 && errno == EINTR)
		; /* it ends when the connection does, with what it had still to carry */
	buf_done(&h->in);
	buf_done(&h->line);
	free(h->summary);
	free(h);
}

static size_t pending(const struct http *h)
{
	return h->in.len - h->pos;
}

static int lost(struct http *h, struct err *err, int code, const char *what)
{
	h->broken = true;
	if (code == -EPROTO)
		return err_set(err, code, "boughd gave an answer that isn't HTTP: %s", what);
	if (code == -ECONNRESET)
		return err_set(err, code, "boughd closed the connection %s", what);
	if (code == -ENOMEM)
		return err_set(err, code, "out of memory");
	return err_sys(err, code, "%s", what);
}

/* Receives once more into h->in; a closed connection sets h->eof. Never more than `max`
 * bytes wait there. */
static int fill(struct http *h, size_t max, struct err *err)
{
	if (h->pos == h->in.len) {
		buf_reset(&h->in);
		h->pos = 0;
	} else if (h->pos >= IN_SIZE) { /* keeps what waits at the front, so it stays bounded */
		memmove(h->in.data, h->in.data + h->pos, pending(h));
		h->in.len -= h->pos;
		h->pos = 0;
	}
	if (pending(h) >= max)
		return lost(h, err, -EPROTO, "more than it may say at this point");
	size_t want = max - pending(h) < IN_SIZE ? max - pending(h) : IN_SIZE;
	uint8_t *p = buf_room(&h->in, want);
	if (!p)
		return lost(h, err, -ENOMEM, "receive");
	ssize_t n;
	do
		n = recv(h->fd, p, want, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == ECONNRESET)
		n = 0;
	if (n < 0)
		return lost(h, err, -errno, "receive from boughd");
	if (n == 0)
		h->eof = true;
	h->in.len += (size_t)n;
	return 0;
}

/* ---- the request ---- */

static int send_head(const struct http *h, struct buf *out, const struct http_request *rq,
		     bool expect)
{
	const char *token = h->remote ? remote_token(h->remote) : NULL;
	buf_printf(out, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bough/" BOUGH_VERSION "\r\n",
		   rq->method, rq->target, h->remote ? remote_host(h->remote) : "boughd");
	if (token)
		buf_printf(out, "Authorization: Bearer %s\r\n", token);
	buf_printf(out, "Accept: %s\r\n", rq->accept ? rq->accept : "application/json");
	if (!rq->upgrade) /* one exchange: boughd needn't make ready for another */
		buf_printf(out, "Connection: close\r\n");
	if (rq->prefer)
		buf_printf(out, "Prefer: %s\r\n", rq->prefer);
	if (rq->headers)
		buf_printf(out, "%s", rq->headers);
	const struct http_body *b = rq->body;
	if (b) {
		buf_printf(out, "Content-Type: %s\r\n", b->type);
		if (b->data)
			buf_printf(out, "Content-Length: %zu\r\n", b->len);
		else if (b->size >= 0)
			buf_printf(out, "Content-Length: %lld\r\n", (long long)b->size);
		else
			buf_printf(out, "Transfer-Encoding: chunked\r\n");
	} else if (strcmp(rq->method, "GET") != 0) {
		buf_printf(out, "Content-Length: 0\r\n");
	}
	buf_printf(out, "%s\r\n", expect ? "Expect: 100-continue\r\n" : "");
	return buf_error(out);
}

/* Parses heads out of what has come. 1: the final one is there; 0: not yet. */
static int try_head(struct http *h, struct err *err)
{
	while (!h->have_head) {
		struct http_head head;
		struct http_framing framing;
		const char *why = NULL;
		ssize_t n = http_parse_head(h->in.data ? h->in.data + h->pos : NULL, pending(h),
					    &head, &framing, &why);
		if (n < 0)
			return lost(h, err, -EPROTO, why);
		if (n == 0)
			return 0;
		h->pos += (size_t)n;
		if (head.status < 200 && !(h->upgrade && head.status == 101)) {
			if (++h->interim > INTERIM_MAX)
				return lost(h, err, -EPROTO, "too many interim answers");
			h->go_on = true;
			continue;
		}
		h->head = head;
		h->framing = h->no_body ? (struct http_framing){ .done = true } : framing;
		h->have_head = true;
	}
	return 1;
}

/* Takes in what the peer says before it has heard all. 1: it refuses, stop sending. */
static int listen_early(struct http *h, struct err *err)
{
	int r = fill(h, HTTP_EARLY_MAX, err);
	if (r < 0)
		return r;
	r = try_head(h, err);
	if (r < 0)
		return r;
	if (h->have_head && h->head.status >= 400)
		return 1;
	return h->eof ? 1 : 0;
}

/* Sends all of it, listening all the while. 1: the peer doesn't want the rest. */
static int send_bytes(struct http *h, const uint8_t *p, size_t n, struct err *err)
{
	while (n > 0) {
		struct pollfd pfd = { .fd = h->fd, .events = POLLOUT };
		if (!h->eof)
			pfd.events |= POLLIN;
		if (poll(&pfd, 1, -1) < 0 && errno != EINTR)
			return lost(h, err, -errno, "send to boughd");
		if (pfd.revents & POLLIN) {
			int r = listen_early(h, err);
			if (r != 0)
				return r;
		}
		if (!(pfd.revents & (POLLOUT | POLLHUP | POLLERR)))
			continue;
		ssize_t sent = send(h->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent >= 0) {
			p += sent;
			n -= (size_t)sent;
		} else if (errno == EPIPE || errno == ECONNRESET) {
			return 1; /* why it hung up may still be there to read */
		} else if (errno != EAGAIN && errno != EINTR) {
			return lost(h, err, -errno, "send to boughd");
		}
	}
	return 0;
}

/* Waits for the peer's leave to send a long body, so that a refusal costs nothing. */
static int await_continue(struct http *h, struct err *err)
{
	int64_t end = clock_ms() + CONTINUE_WAIT_MS;
	while (!h->go_on && !h->have_head && !h->eof) {
		int64_t left = end - clock_ms();
		if (left <= 0)
			break;
		struct pollfd pfd = { .fd = h->fd, .events = POLLIN };
		int n = poll(&pfd, 1, (int)left);
		if (n < 0 && errno != EINTR)
			return lost(h, err, -errno, "wait for boughd");
		if (n > 0) {
			int r = listen_early(h, err);
			if (r != 0)
				return r;
		}
	}
	return h->eof || (h->have_head && h->head.status >= 400) ? 1 : 0;
}

/* The next bytes of the stream, at most n; 0 at its end; -ECANCELED: the peer has had enough. */
static ssize_t read_source(struct http *h, const struct http_body *b, uint8_t *p, size_t n,
			   struct err *err)
{
	for (;;) {
		struct pollfd pfd[2] = { { .fd = b->fd, .events = POLLIN },
					 { .fd = h->eof ? -1 : h->fd, .events = POLLIN } };
		if (poll(pfd, 2, -1) < 0) {
			if (errno == EINTR)
				continue;
			return lost(h, err, -errno, "wait for input");
		}
		if (pfd[1].revents) {
			int r = listen_early(h, err);
			if (r != 0)
				return r < 0 ? r : -ECANCELED;
		}
		if (!pfd[0].revents)
			continue;
		ssize_t got = read(b->fd, p, n);
		if (got >= 0)
			return got;
		if (errno != EINTR && errno != EAGAIN)
			return lost(h, err, -errno, "read the input");
	}
}

/* One piece of the stream, framed in place: room for the chunk's head lies before the data. */
static int send_piece(struct http *h, const struct http_body *b, uint8_t *room, size_t n,
		      struct err *err)
{
	if (b->size >= 0)
		return send_bytes(h, room + HEAD_ROOM, n, err);
	char hex[HEAD_ROOM + 1];
	int k = snprintf(hex, sizeof(hex), "%zx\r\n", n);
	memcpy(room + HEAD_ROOM - k, hex, (size_t)k);
	memcpy(room + HEAD_ROOM + n, "\r\n", 2);
	return send_bytes(h, room + HEAD_ROOM - k, (size_t)k + n + 2, err);
}

/* 0: all sent; 1: the peer answered or hung up before. */
static int send_stream(struct http *h, const struct http_body *b, struct err *err)
{
	int r = await_continue(h, err);
	if (r != 0)
		return r;
	auto_free uint8_t *room = malloc(HEAD_ROOM + OUT_SIZE + 2);
	if (!room)
		return lost(h, err, -ENOMEM, "send");
	uint64_t sent = 0;
	for (;;) {
		size_t want = OUT_SIZE;
		if (b->size >= 0 && (uint64_t)b->size - sent < want)
			want = (size_t)((uint64_t)b->size - sent);
		if (want == 0)
			break;
		ssize_t n = read_source(h, b, room + HEAD_ROOM, want, err);
		if (n == -ECANCELED)
			return 1;
		if (n < 0)
			return (int)n;
		if (n == 0)
			break;
		r = send_piece(h, b, room, (size_t)n, err);
		if (r != 0)
			return r;
		sent += (uint64_t)n;
		if (b->sent)
			b->sent(b->ctx, sent);
	}
	if (b->size >= 0 && sent != (uint64_t)b->size)
		return lost(h, err, -EIO, "the input became shorter while it was read");
	if (b->finish && (r = b->finish(b->ctx, err)) < 0) {
		h->broken = true;
		return r;
	}
	return b->size >= 0 ? 0 : send_bytes(h, (const uint8_t *)"0\r\n\r\n", 5, err);
}

pid_t http_peer(const struct http *h)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);
	if (h->remote)
		return 0;
	return getsockopt(h->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 ? peer.pid : 0;
}

bool http_peer_is_dead(const struct http *h)
{
	char path[64], text[512];
	pid_t pid = http_peer(h);
	if (pid <= 0)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = 0;
	const char *end = strrchr(text, ')'); /* of its name */
	return end && end[1] == ' ' && (end[2] == 'Z' || end[2] == 'X');
}

/* Waits for the first byte of the answer, and tells once when it is long in coming. */
static int await_answer(struct http *h, const struct http_request *rq, struct err *err)
{
	int64_t end = (int64_t)clock_ms() + rq->silent_ms;
	struct pollfd pfd = { .fd = h->fd, .events = POLLIN };
	for (bool told = !rq->silent;;) {
		int64_t left = told ? LOOK_MS : end - (int64_t)clock_ms();
		int n = poll(&pfd, 1, left < 0 ? 0 : left < LOOK_MS ? (int)left : LOOK_MS);
		if (n > 0 || (n < 0 && errno != EINTR))
			return 0; /* receiving will say what is wrong */
		if (http_peer_is_dead(h))
			return lost(h, err, -ECONNRESET, "without an answer");
		if (!told && (int64_t)clock_ms() >= end) {
			rq->silent(rq->silent_ctx, http_peer(h));
			told = true;
		}
	}
}

int http_send(struct http *h, const struct http_request *rq, struct http_head *head,
	      struct err *err)
{
	const struct http_body *b = rq->body;
	bool stream = b && !b->data;
	auto_buf out = { 0 };
	if (strlen(rq->target) > HTTP_TARGET_MAX)
		return err_set(err, -EINVAL, "the arguments are too long");
	h->no_body = strcmp(rq->method, "HEAD") == 0;
	h->upgrade = rq->upgrade;
	int r = send_head(h, &out, rq, stream);
	if (r == 0 && b && b->data) {
		buf_add(&out, b->data, b->len);
		r = buf_error(&out);
	}
	if (r < 0)
		return lost(h, err, r, "send");
	r = send_bytes(h, out.data, out.len, err);
	if (r == 0 && stream)
		r = send_stream(h, b, err);
	if (r < 0)
		return r;
	bool cut = r == 1;
	if (!h->eof && pending(h) == 0)
		r = await_answer(h, rq, err);
	if (r < 0)
		return r;
	while ((r = try_head(h, err)) == 0) {
		if (h->eof)
			return lost(h, err, -ECONNRESET,
				    h->remote && !h->helper
					    ? "without an answer: does it take https alone?"
					    : "without an answer");
		r = fill(h, HTTP_HEAD_MAX, err);
		if (r < 0)
			return r;
	}
	if (r < 0)
		return r;
	if (cut && h->head.status < 400)
		return lost(h, err, -EPROTO, "done before it had heard all");
	*head = h->head;
	return 0;
}

int http_upgraded(const struct http *h, const uint8_t **early, size_t *n)
{
	*n = pending(h);
	*early = *n ? h->in.data + h->pos : NULL;
	return h->fd;
}

/* ---- the answer ---- */

/* Takes in what a line between two pieces says. */
static int take_said(struct http *h, struct err *err)
{
	const struct http_framing *f = &h->framing;
	size_t len;
	if (f->left > 0) {
		h->has_reason = http_parse_failure(f->said, f->said_len, h->code, h->reason);
		if (!h->has_reason)
			return 0;
		h->broken = true;
		return err_set(err, -EREMOTEIO, "%s", h->reason);
	}
	const uint8_t *v = http_parse_value(f->said, f->said_len, "bough-summary", &len);
	if (!v || h->summary)
		return 0;
	h->summary = strndup((const char *)v, len);
	return h->summary ? 0 : lost(h, err, -ENOMEM, "receive");
}

/* Makes framing->left tell how much of the body lies directly ahead: 0 only at its end. */
static int next_piece(struct http *h, struct err *err)
{
	struct http_framing *f = &h->framing;
	while (f->left == 0 && !f->done) {
		const char *why = NULL;
		ssize_t n = http_parse_chunk(f, h->in.data ? h->in.data + h->pos : NULL, pending(h),
					     &why);
		if (n < 0)
			return lost(h, err, -EPROTO, why);
		int r = f->said_len ? take_said(h, err) : 0;
		if (r < 0)
			return r;
		h->pos += (size_t)n;
		if (n > 0)
			continue;
		if (h->eof)
			return lost(h, err, -ECONNRESET, "in the middle of its answer");
		r = fill(h, HTTP_HEAD_MAX + IN_SIZE, err);
		if (r < 0)
			return r;
	}
	return 0;
}

ssize_t http_read(struct http *h, void *buf, size_t n, struct err *err)
{
	if (h->broken || !h->have_head)
		return err_set(err, -EPROTO, "nothing can be read from boughd any more");
	int r = next_piece(h, err);
	if (r < 0)
		return r;
	struct http_framing *f = &h->framing;
	if (f->left == 0)
		return 0;
	if (pending(h) == 0) {
		if (h->eof)
			return lost(h, err, -ECONNRESET, "in the middle of its answer");
		r = fill(h, IN_SIZE, err);
		if (r < 0)
			return r;
		if (h->eof)
			return lost(h, err, -ECONNRESET, "in the middle of its answer");
	}
	if (n > pending(h))
		n = pending(h);
	if (n > f->left)
		n = (size_t)f->left;
	memcpy(buf, h->in.data + h->pos, n);
	h->pos += n;
	f->left -= n;
	return (ssize_t)n;
}

const char *http_reason(const struct http *h, const char **code)
{
	*code = h->code;
	return h->has_reason ? h->reason : NULL;
}

const char *http_type(const struct http *h)
{
	return h->head.type;
}

const struct http_head *http_answer(const struct http *h)
{
	return &h->head;
}

const char *http_summary(const struct http *h)
{
	return h->summary;
}

int http_read_line(struct http *h, size_t max, const char **line, size_t *len, struct err *err)
{
	buf_reset(&h->line);
	for (;;) {
		char piece[4096];
		ssize_t n = next_piece(h, err);
		if (n < 0)
			return (int)n;
		size_t want = sizeof(piece), ahead = pending(h);
		if (ahead > 0 && h->framing.left > 0) {
			size_t look = ahead < h->framing.left ? ahead : (size_t)h->framing.left;
			const uint8_t *p = h->in.data + h->pos;
			const uint8_t *nl = memchr(p, '\n', look);
			if (nl && (size_t)(nl - p) + 1 < want)
				want = (size_t)(nl - p) + 1;
		} else if (h->framing.left > 0) {
			want = 1; /* nothing has come yet: one byte, so no line is passed */
		}
		n = http_read(h, piece, want, err);
		if (n < 0)
			return (int)n;
		bool whole = n > 0 && piece[n - 1] == '\n';
		buf_add(&h->line, piece, (size_t)(whole ? n - 1 : n));
		if (h->line.len > max)
			return lost(h, err, -EFBIG, "a line from boughd");
		if (whole || (n == 0 && h->line.len > 0))
			break;
		if (n == 0)
			return 0;
	}
	*len = h->line.len;
	buf_u8(&h->line, 0);
	if (buf_error(&h->line) < 0)
		return lost(h, err, -ENOMEM, "receive");
	*line = (const char *)h->line.data;
	return 1;
}

int http_read_all(struct http *h, size_t max, char **data, size_t *len, struct err *err)
{
	auto_buf all = { 0 };
	for (;;) {
		uint8_t *p = buf_room(&all, IN_SIZE);
		if (!p)
			return lost(h, err, -ENOMEM, "receive");
		ssize_t n = http_read(h, p, IN_SIZE, err);
		if (n < 0)
			return (int)n;
		if (n == 0)
			break;
		all.len += (size_t)n;
		if (all.len > max)
			return lost(h, err, -EFBIG, "the answer of boughd");
	}
	*len = all.len;
	buf_u8(&all, 0);
	if (buf_error(&all) < 0)
		return lost(h, err, -ENOMEM, "receive");
	*data = (char *)all.data;
	all = (struct buf){ 0 };
	return 0;
}

char *http_escape(const char *text)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				    "0123456789-._~";
	auto_buf b = { 0 };
	for (const char *p = text; *p; p++) {
		if (strchr(plain, *p))
			buf_u8(&b, (uint8_t)*p);
		else
			buf_printf(&b, "%%%02X", (unsigned char)*p);
	}
	buf_u8(&b, 0);
	if (buf_error(&b) < 0)
		return NULL;
	char *out = (char *)b.data;
	b = (struct buf){ 0 };
	return out;
}
