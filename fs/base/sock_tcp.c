#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include "fs/base/cleanup.h"
#include "fs/base/sock.h"

enum { CONNECT_S = 15 }; /* to one address: who doesn't answer by then isn't there */

static int connect_one(const struct addrinfo *ai, int *out)
{
	auto_fd fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC, ai->ai_protocol);
	if (fd < 0)
		return -errno;
	struct timeval tv = { .tv_sec = CONNECT_S };
	int yes = 1, r;
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)); /* connect heeds it */
	do
		r = connect(fd, ai->ai_addr, ai->ai_addrlen);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return errno == EINPROGRESS ? -ETIMEDOUT : -errno;
	tv = (struct timeval){ 0 };
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)); /* only speed */
	*out = steal_fd(&fd);
	return 0;
}

int sock_connect_tcp(const char *host, const char *port, struct err *err)
{
	const struct addrinfo want = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG };
	struct addrinfo *found = NULL;
	int e = getaddrinfo(host, port, &want, &found);
	if (e)
		return err_set(err, -EHOSTUNREACH, "%s: %s", host, gai_strerror(e));
	int fd = -1, r = -EHOSTUNREACH;
	for (const struct addrinfo *ai = found; ai && r < 0; ai = ai->ai_next)
		r = connect_one(ai, &fd);
	freeaddrinfo(found);
	return r < 0 ? err_sys(err, r, "connect to %s port %s", host, port) : fd;
}
