/* Which addresses of the network somebody may have us connect to. A service that opens connections
 * for callers from elsewhere reaches places that they can't: itself, its host's other services, the
 * network behind it. So of names the addresses are looked up first, judged, and the connection goes
 * to one that was judged, not to whatever the name means a moment later.
 *
 * Threads: any; no state. Sources: the registries of special-purpose addresses (RFC 6890 and what
 * updates it). */
#ifndef BOUGH_BASE_NETADDR_H
#define BOUGH_BASE_NETADDR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include "fs/base/err.h"

enum {
	NETRULES_MAX = 64,
	NETADDR_TEXT = 48,  /* bytes of an address as text, with its NUL */
	NETADDR_FOUND = 16, /* addresses of a name that are looked at */
};

/* Addresses that are let through beside those of the public network. */
struct netrule {
	uint8_t addr[16]; /* IPv4 as ::ffff:a.b.c.d */
	uint8_t bits;     /* of 128 */
};
struct netrules {
	struct netrule v[NETRULES_MAX];
	uint32_t n;
};
/* "10.0.0.0/8", "fd00::/8", "192.0.2.7". -EINVAL; -E2BIG. */
int netrules_add(struct netrules *r, const char *text, struct err *err);

/* One that the whole network has: not this host's, a private network's, a link's, for many, or
 * reserved. What stands for an IPv4 address is judged by that. */
bool netaddr_is_public(const struct sockaddr *sa);
bool netrules_allow(const struct netrules *r, const struct sockaddr *sa); /* NULL: no rules */

struct netaddrs {
	char v[NETADDR_FOUND][NETADDR_TEXT]; /* IPv6 without brackets */
	unsigned n;
};
/* Looks up a host (a name, or an address, of IPv6 with or without brackets). One address that isn't
 * allowed is enough to refuse it: -EACCES. -EHOSTUNREACH: it has none. */
int netaddr_find(struct netaddrs *out, const char *host, const struct netrules *r, struct err *err);

#endif
