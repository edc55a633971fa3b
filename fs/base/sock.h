/* Connections: by TCP, and to unix sockets by path. Their addresses end at 107 bytes, paths of
 * state folders don't: a longer one goes through a descriptor of the socket's folder. */
#ifndef BOUGH_BASE_SOCK_H
#define BOUGH_BASE_SOCK_H

#include <sys/un.h>
#include "fs/base/err.h"

/* The address of `path`. *dirfd, which the caller closes where it is >= 0, must stay open for
 * as long as the address is used. -ENAMETOOLONG: the name itself is too long; -errno. */
int sock_address(struct sockaddr_un *un, const char *path, int *dirfd, struct err *err);
/* Connects a socket of `type` (SOCK_STREAM, SOCK_SEQPACKET), close-on-exec: its descriptor,
 * which the caller closes. -ENOENT or -ECONNREFUSED: nobody listens there; -errno. */
int sock_connect(const char *path, int type, struct err *err);
/* The same by TCP, to the first address of the host (a name, or an address without brackets) that
 * answers within some seconds. -EHOSTUNREACH: it has no address. */
int sock_connect_tcp(const char *host, const char *port, struct err *err);

#endif
