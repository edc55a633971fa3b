#include "runtime/ttrpc.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/sock.h"
#include "runtime/proto/shim.pb-c.h"

enum { TTRPC_PEEK_MAX = 32768 }; /* of an answer that is read in one piece: a socket holds more */

/* ---- messages ---- */

static void put_header(uint8_t *p, size_t len)
{
	p[0] = (uint8_t)(len >> 24), p[1] = (uint8_t)(len >> 16);
	p[2] = (uint8_t)(len >> 8), p[3] = (uint8_t)len;
	p[4] = p[5] = p[6] = 0, p[7] = TTRPC_STREAM;
	p[8] = TTRPC_REQUEST, p[9] = 0;
}

int ttrpc_encode(struct buf *out, const struct ttrpc_call *call)
{
	Shim__KeyValue ns = SHIM__KEY_VALUE__INIT;
	Shim__KeyValue *metadata[] = { &ns };
	Shim__Request request = SHIM__REQUEST__INIT;
	ns.key = (char[]){ "containerd-namespace-ttrpc" };
	ns.value = (char *)call->ns;
	request.service = (char *)call->service;
	request.method = (char *)call->method;
	request.payload.data = (uint8_t *)call->payload;
	request.payload.len = call->len;
	request.timeout_nano =
		call->timeout_ms > 0 && !call->untold ? call->timeout_ms * 1000000 : 0;
	request.n_metadata = call->ns ? 1 : 0;
	request.metadata = metadata;
	if (call->len > TTRPC_MAX)
		return -E2BIG;
	size_t len = shim__request__get_packed_size(&request);
	if (len > TTRPC_MAX)
		return -E2BIG;
	uint8_t *room = buf_room(out, TTRPC_HEADER + len);
	if (!room)
		return -ENOMEM;
	put_header(room, len);
	(void)shim__request__pack(&request, room + TTRPC_HEADER); /* as long as it was counted */
	out->len += TTRPC_HEADER + len;
	return 0;
}

int ttrpc_header(const uint8_t h[TTRPC_HEADER])
{
	uint32_t len = (uint32_t)h[0] << 24 | (uint32_t)h[1] << 16 | (uint32_t)h[2] << 8 | h[3];
	uint32_t stream = (uint32_t)h[4] << 24 | (uint32_t)h[5] << 16 | (uint32_t)h[6] << 8 | h[7];
	if (len > TTRPC_MAX || stream != TTRPC_STREAM || h[8] != TTRPC_RESPONSE)
		return -EBADMSG;
	return (int)len;
}

/* gRPC's codes of status. */
static int errno_of(int32_t code)
{
	switch (code) {
	case 1:
		return -ECANCELED;
	case 3:
		return -EINVAL;
	case 4:
		return -ETIMEDOUT;
	case 5:
		return -ENOENT;
	case 6:
		return -EEXIST;
	case 7:
		return -EPERM;
	case 9:
		return -EBUSY;
	case 12:
		return -EOPNOTSUPP;
	default:
		return -EIO;
	}
}

/* The peer's words become one line of a bounded length. */
static int refuse(int code, const char *said, struct err *err)
{
	char text[400];
	size_t n = 0;
	for (; *said && n < sizeof(text) - 1; said++)
		text[n++] = (unsigned char)*said < ' ' || *said == 0x7f ? ' ' : *said;
	while (n > 0 && text[n - 1] == ' ')
		n--;
	text[n] = '\0';
	return err_set(err, code, "%s", n ? text : "failed without a word");
}

int ttrpc_decode(const void *message, size_t len, struct buf *reply, struct err *err)
{
	Shim__Response *r = shim__response__unpack(NULL, len, message);
	if (!r)
		return err_set(err, -EBADMSG, "the shim's answer isn't understood");
	int code = r->status ? r->status->code : 0;
	if (code)
		code = refuse(errno_of(code), r->status->message, err);
	else
		buf_add(reply, r->payload.data, r->payload.len);
	shim__response__free_unpacked(r, NULL);
	if (code < 0)
		return code;
	return reply->failed ? err_no_memory(err) : 0;
}

/* ---- the connection ---- */

int ttrpc_connect(const char *address, struct err *err)
{
	const char *path = strncmp(address, "unix://", 7) == 0 ? address + 7 : address;
	if (*path != '/')
		return err_set(err, -EINVAL, "\"%s\" is no address of a shim", address);
	int fd = sock_connect(path, SOCK_STREAM | SOCK_NONBLOCK, err);
	if (fd == -ENOENT)
		return err_set(err, -ECONNREFUSED, "nobody listens at %s", path);
	if (fd == -EAGAIN) /* its queue of connections is full */
		return err_set(err, -ETIMEDOUT, "the shim takes no connections");
	return fd;
}

struct exchange {
	int fd, stop_fd;
	int64_t deadline; /* clock_ms; < 0: none */
};

/* Waits until the connection can be read (or written). */
static int await(const struct exchange *x, short events, struct err *err)
{
	for (;;) {
		struct pollfd p[] = { { .fd = x->fd, .events = events },
				      { .fd = x->stop_fd, .events = POLLIN } };
		int64_t left = -1;
		if (x->deadline >= 0) {
			left = x->deadline - (int64_t)clock_ms();
			if (left <= 0)
				return err_set(err, -ETIMEDOUT, "the shim didn't answer in time");
		}
		int r = poll(p, 2, left > 60000 ? 60000 : (int)left);
		if (r < 0 && errno != EINTR)
			return err_sys(err, -errno, "wait for the shim");
		if (r > 0 && p[1].revents)
			return err_set(err, -ECANCELED, "the wait was broken off");
		if (r > 0 && p[0].revents)
			return 0;
	}
}

static int gone(struct err *err)
{
	return err_set(err, -ECONNREFUSED, "the shim went away");
}

static int send_all(const struct exchange *x, const uint8_t *p, size_t n, struct err *err)
{
	while (n > 0) {
		ssize_t k = send(x->fd, p, n, MSG_NOSIGNAL);
		if (k < 0 && (errno == EPIPE || errno == ECONNRESET))
			return gone(err);
		if (k < 0 && errno != EAGAIN && errno != EINTR)
			return err_sys(err, -errno, "write to the shim");
		if (k < 0) {
			int r = await(x, POLLOUT, err);
			if (r < 0)
				return r;
			continue;
		}
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

static int recv_all(const struct exchange *x, uint8_t *p, size_t n, struct err *err)
{
	while (n > 0) {
		ssize_t k = recv(x->fd, p, n, 0);
		if (k == 0 || (k < 0 && errno == ECONNRESET))
			return gone(err);
		if (k < 0 && errno != EAGAIN && errno != EINTR)
			return err_sys(err, -errno, "read from the shim");
		if (k < 0) {
			int r = await(x, POLLIN, err);
			if (r < 0)
				return r;
			continue;
		}
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

static int send_call(const struct exchange *x, const struct ttrpc_call *call, struct err *err)
{
	auto_buf frame = { 0 };
	int r = ttrpc_encode(&frame, call);
	if (r == -E2BIG)
		return err_set(err, r, "a request to the shim is longer than %d bytes", TTRPC_MAX);
	if (r < 0)
		return err_set(err, r, "out of memory");
	return send_all(x, frame.data, frame.len, err);
}

static struct exchange exchange_of(int fd, const struct ttrpc_call *call)
{
	return (struct exchange){ fd, call->stop_fd,
				  call->timeout_ms >= 0 ? (int64_t)clock_ms() + call->timeout_ms
							: -1 };
}

static int no_response(struct err *err)
{
	return err_set(err, -EBADMSG, "the shim's answer is no response of ttrpc");
}

int ttrpc_call(int fd, const struct ttrpc_call *call, struct buf *reply, struct err *err)
{
	struct exchange x = exchange_of(fd, call);
	auto_buf frame = { 0 };
	uint8_t header[TTRPC_HEADER];
	buf_reset(reply);
	int r = send_call(&x, call, err);
	if (r < 0)
		return r;
	r = recv_all(&x, header, sizeof(header), err);
	if (r < 0)
		return r;
	int len = ttrpc_header(header);
	if (len < 0)
		return no_response(err);
	uint8_t *room = buf_room(&frame, (size_t)len + 1);
	if (!room)
		return err_no_memory(err);
	r = recv_all(&x, room, (size_t)len, err);
	return r < 0 ? r : ttrpc_decode(room, (size_t)len, reply, err);
}

int ttrpc_begin(int fd, const struct ttrpc_call *call, struct err *err)
{
	struct exchange x = exchange_of(fd, call);
	struct ttrpc_call endless = *call;
	endless.untold = true;
	return send_call(&x, &endless, err);
}

/* The first n bytes of what has come, left where they are; -EAGAIN: so much isn't there. */
static int peek(int fd, void *p, size_t n, struct err *err)
{
	ssize_t k = recv(fd, p, n, MSG_PEEK | MSG_DONTWAIT);
	if (k == 0 || (k < 0 && errno == ECONNRESET))
		return gone(err);
	if (k < 0 && errno != EAGAIN && errno != EINTR)
		return err_sys(err, -errno, "read from the shim");
	if (k == (ssize_t)n)
		return 0;
	/* A peer that went away in the middle won't send the rest. */
	struct pollfd hup = { .fd = fd };
	if (poll(&hup, 1, 0) == 1 && hup.revents & (POLLHUP | POLLERR))
		return gone(err);
	return err_set(err, -EAGAIN, "the shim hasn't answered yet");
}

int ttrpc_end(int fd, struct buf *reply, struct err *err)
{
	auto_buf frame = { 0 };
	uint8_t header[TTRPC_HEADER];
	buf_reset(reply);
	int r = peek(fd, header, sizeof(header), err);
	if (r < 0)
		return r;
	int len = ttrpc_header(header);
	if (len < 0 || len > TTRPC_PEEK_MAX)
		return no_response(err);
	uint8_t *room = buf_room(&frame, sizeof(header) + (size_t)len);
	if (!room)
		return err_no_memory(err);
	r = peek(fd, room, sizeof(header) + (size_t)len, err);
	return r < 0 ? r : ttrpc_decode(room + sizeof(header), (size_t)len, reply, err);
}
