/* Where the service may connect to by itself: not to what only this machine or its network can
 * reach, unless that is said. Pure. */
#ifndef BOUGH_SNAPD_NETRANGE_H
#define BOUGH_SNAPD_NETRANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* "10.0.0.0/8", "192.0.2.7", "fd00::/8". IPv4 is kept as IPv6 maps it. */
struct netrange {
	uint8_t net[16];
	unsigned bits; /* 0 to 128 */
};
int netrange_parse(struct netrange *out, const char *text); /* -EINVAL */
/* Whether that address is of the internet at large: neither private, of this machine, of a link, a
 * group's, nor one that leads to such by way of a translation. */
bool net_is_public(const struct sockaddr *sa);
/* Whether it is, or is in one of the ranges. */
bool net_may_connect(const struct sockaddr *sa, const struct netrange *allowed, size_t n);

#endif
