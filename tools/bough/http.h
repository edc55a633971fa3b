/* A small HTTP/1.1 client over a unix socket or to a boughd elsewhere: one connection, one
 * exchange.
 *
 * Why not libcurl: `bough` starts once for every fork, and the whole fork has 12 ms. Measured
 * on Debian 12, a program that links libcurl loads 33 shared libraries and takes 5.4 ms to
 * start and end; one that links jansson alone takes 0.8 ms. All that is needed here is one
 * peer, our own, and the two ways to frame a body.
 *
 * Framing follows RFC 9112. Everything the peer says is checked and bounded: an answer that
 * breaks the rules is -EPROTO, one that ends early is -ECONNRESET; a body without a length
 * (that ends with the connection) is refused, since its truncation couldn't be seen.
 *
 *     http_open(&h, path) -> http_send(h, &request, &head) -> http_read… until 0 -> http_free
 *
 * Used by one thread. Calls block. Nothing raises SIGPIPE. */
#ifndef BOUGH_TOOLS_HTTP_H
#define BOUGH_TOOLS_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "fs/base/err.h"

enum {
	HTTP_HEAD_MAX = 16 * 1024,  /* an answer's head, and its trailer: ours have 200 bytes */
	HTTP_EARLY_MAX = 1 << 20,   /* of an answer that comes while the request is being sent */
	HTTP_FIELD_MAX = 192,       /* an ETag or Location: ours have 80 bytes */
	HTTP_TARGET_MAX = 16 * 1024 /* path and query of a request */
};

struct http;
struct remote;

/* What a request carries. Either bytes in memory (`data`), or a stream from `fd`: a file, a
 * pipe, a socket; `size` tells its length where known, else -1 and it is sent in chunks. */
struct http_body {
	const char *type; /* Content-Type */
	const void *data; /* NULL: stream */
	size_t len;       /* of data */
	int fd;           /* borrowed */
	int64_t size;
	/* Called when the stream has ended and before the peer is told so; less than 0 breaks
	 * the request off, and the peer sees a body that never ended. NULL: nothing to ask. */
	int (*finish)(void *ctx, struct err *err);
	void (*sent)(void *ctx, uint64_t bytes); /* so far; NULL: nobody cares */
	void *ctx;
};

struct http_request {
	const char *method;
	const char *target;           /* path and query, encoded (http_escape) */
	const char *accept;           /* NULL: application/json */
	const char *prefer;           /* NULL: nothing */
	const char *headers;          /* further lines, each with its CRLF; NULL: none */
	bool upgrade;                 /* they ask for another protocol: 101 is an answer */
	const struct http_body *body; /* NULL: none */
	/* Called once when nothing has come silent_ms after the request was sent; the wait goes on.
	 * `pid` is the process that listens, 0 when unknown. NULL: nobody cares. */
	void (*silent)(void *ctx, pid_t pid);
	int silent_ms;
	void *silent_ctx;
};

struct http_head {
	unsigned status; /* 200 … 599; 101 where it was asked for */
	char type[64];   /* Content-Type without parameters, lower case; "" where there is none */
	int64_t length;  /* of the body; -1: chunked */
	/* "" where the answer has none, or one that doesn't fit. */
	char etag[HTTP_FIELD_MAX], location[HTTP_FIELD_MAX];
	char accept[HTTP_FIELD_MAX]; /* Sec-WebSocket-Accept */
	int64_t upload_offset; /* of a resumable upload; -1: none */
};

/* -ENOENT or -ECONNREFUSED: nobody listens there. The path may be longer than sun_path. */
int http_open(struct http **out, const char *socket_path, struct err *err);
/* The same to a boughd elsewhere (remote.h), borrowed until http_free; its token goes with the
 * request. */
int http_open_remote(struct http **out, const struct remote *remote, struct err *err);
pid_t http_peer(const struct http *h); /* who listens; 0: that isn't known */
/* One that was killed has its socket until the last of its threads has left the kernel, and answers
 * nobody. */
bool http_peer_is_dead(const struct http *h);
void http_free(struct http *h); /* NULL allowed */

/* Sends the request and reads the answer's head. A peer that answers with an error before
 * the whole body is sent stops the sending: that answer is the result. */
int http_send(struct http *h, const struct http_request *rq, struct http_head *head,
	      struct err *err);
/* After a 101: the connection, which stays h's to close, and what came behind the head already. */
int http_upgraded(const struct http *h, const uint8_t **early, size_t *n);
/* Up to n bytes of the answer's body; 0: it is complete. */
ssize_t http_read(struct http *h, void *buf, size_t n, struct err *err);
/* After a failure of the two around this line: what the peer gave as its reason for breaking the
 * answer off, and the API's word for it ("" : none). NULL: it gave none. Borrowed. */
const char *http_reason(const struct http *h, const char **code);
const char *http_type(const struct http *h); /* of the answer: http_head.type */
const struct http_head *http_answer(const struct http *h); /* borrowed */
/* After the end of the body: the JSON that the peer put behind it; NULL: none. Borrowed. */
const char *http_summary(const struct http *h);
/* The next line of the body, without its end and with a NUL behind it; borrowed until the next
 * call. 1, or 0 at the end of the body. -EFBIG when longer than `max`. */
int http_read_line(struct http *h, size_t max, const char **line, size_t *len, struct err *err);
/* The rest of the body, with a NUL behind it that isn't counted; the caller frees. -EFBIG. */
int http_read_all(struct http *h, size_t max, char **data, size_t *len, struct err *err);

/* `text` with all but unreserved characters as %XX; the caller frees. NULL: out of memory. */
char *http_escape(const char *text);

#endif
