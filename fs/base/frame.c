#include "fs/base/frame.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/sock.h"

enum { BACKLOG = 64 };

/* Room for the descriptors of one message, aligned as cmsg(3) wants it. */
union control {
	char bytes[CMSG_SPACE(FRAME_FDS_MAX * sizeof(int))];
	struct cmsghdr align;
};

int frame_listen(const char *path, struct err *err)
{
	auto_fd fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_sys(err, -errno, "socket");
	struct sockaddr_un un;
	auto_fd dir = -1;
	auto_free char *fresh = NULL;
	if (asprintf(&fresh, "%s.new", path) < 0) {
		fresh = NULL; /* undefined then */
		return err_sys(err, -ENOMEM, "socket %s", path);
	}
	int r = sock_address(&un, fresh, &dir, err);
	if (r < 0)
		return r;
	/* The mode of the socket is that of the file that bind makes, from the start. */
	if (fchmod(fd, 0600) < 0)
		return err_sys(err, -errno, "chmod of a socket");
	if (unlink(un.sun_path) < 0 && errno != ENOENT)
		return err_sys(err, -errno, "remove the old %s", fresh);
	if (bind(fd, (const struct sockaddr *)&un, sizeof(un)) < 0)
		return err_sys(err, -errno, "bind %s", fresh);
	/* It appears under its name only when it listens: nobody is ever refused. */
	if (listen(fd, BACKLOG) < 0)
		r = err_sys(err, -errno, "listen at %s", path);
	else if (rename(un.sun_path, path) < 0)
		r = err_sys(err, -errno, "rename %s to %s", fresh, path);
	if (r < 0) {
		(void)unlink(un.sun_path); /* the failure above is the one to tell */
		return r;
	}
	return steal_fd(&fd);
}

int frame_connect(const char *path, struct err *err)
{
	return sock_connect(path, SOCK_SEQPACKET, err);
}

int frame_send(int fd, const struct frame *f, struct err *err)
{
	/* An empty message can't be told from the end of the connection. */
	if (f->text.len == 0 || f->nfds < 0 || f->nfds > FRAME_FDS_MAX)
		return err_set(err, -EINVAL, "send a message of %zu bytes and %d descriptors",
			       f->text.len, f->nfds);
	if (buf_error(&f->text) < 0)
		return err_set(err, -ENOMEM, "out of memory for a message");
	if (f->text.len > FRAME_MAX)
		return err_set(err, -EMSGSIZE, "a message of %zu bytes is over the limit of %d",
			       f->text.len, FRAME_MAX);
	struct iovec iov = { f->text.data, f->text.len };
	union control control = { 0 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	if (f->nfds > 0) {
		size_t bytes = (size_t)f->nfds * sizeof(int);
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(bytes);
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(bytes);
		memcpy(CMSG_DATA(c), f->fds, bytes);
	}
	ssize_t n;
	do
		n = sendmsg(fd, &msg, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0) {
		int code = errno == ECONNRESET || errno == ENOTCONN ? -EPIPE : -errno;
		return err_sys(err, code, "send a message");
	}
	return 0; /* a message goes whole or not at all */
}

/* Takes the descriptors out of the control data; those that don't fit can't be there,
 * since the buffer has room for FRAME_FDS_MAX. */
static void take_fds(struct frame *f, struct msghdr *msg)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n && f->nfds < FRAME_FDS_MAX; i++)
			memcpy(&f->fds[f->nfds++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
	}
}

static void close_fds(struct frame *f)
{
	for (int i = 0; i < f->nfds; i++)
		cleanup_close(&f->fds[i]);
	f->nfds = 0;
}

int frame_recv(int fd, struct frame *f, struct err *err)
{
	close_fds(f);
	buf_reset(&f->text);
	ssize_t n;
	do /* how long is it? messages are small, and a buffer of FRAME_MAX stays for long */
		n = recv(fd, NULL, 0, MSG_PEEK | MSG_TRUNC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == ECONNRESET ? 0 : err_sys(err, -errno, "receive a message");
	size_t room = n > FRAME_MAX ? FRAME_MAX : (size_t)n;
	uint8_t *p = buf_room(&f->text, room + 1);
	if (!p)
		return err_set(err, -ENOMEM, "out of memory for a message");
	struct iovec iov = { p, room };
	union control control;
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.bytes,
			      .msg_controllen = sizeof(control.bytes) };
	do
		n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == ECONNRESET ? 0 : err_sys(err, -errno, "receive a message");
	take_fds(f, &msg);
	if (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		close_fds(f);
		return err_set(err, -EMSGSIZE, "a message was cut: over %d bytes or %d descriptors",
			       FRAME_MAX, FRAME_FDS_MAX);
	}
	f->text.len = (size_t)n;
	return n > 0;
}

void frame_done(struct frame *f)
{
	close_fds(f);
	buf_done(&f->text);
}
