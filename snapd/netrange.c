#include "snapd/netrange.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

/* False: of another family. */
static bool address_of(const struct sockaddr *sa, uint8_t out[16])
{
	if (sa->sa_family == AF_INET) {
		memcpy(out, mapped, sizeof(mapped));
		memcpy(out + 12, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
		return true;
	}
	if (sa->sa_family != AF_INET6)
		return false;
	memcpy(out, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
	return true;
}

int netrange_parse(struct netrange *out, const char *text)
{
	char host[INET6_ADDRSTRLEN];
	uint8_t v4[4];
	const char *slash = strchrnul(text, '/');
	char *end = NULL;
	if ((size_t)(slash - text) >= sizeof(host))
		return -EINVAL;
	memcpy(host, text, (size_t)(slash - text));
	host[slash - text] = '\0';
	unsigned long most = 128, bits;
	if (inet_pton(AF_INET, host, v4) == 1) {
		memcpy(out->net, mapped, sizeof(mapped));
		memcpy(out->net + 12, v4, 4);
		most = 32;
	} else if (inet_pton(AF_INET6, host, out->net) != 1) {
		return -EINVAL;
	}
	bits = most;
	if (*slash) {
		if (slash[1] < '0' || slash[1] > '9')
			return -EINVAL;
		bits = strtoul(slash + 1, &end, 10);
		if (*end || bits > most)
			return -EINVAL;
	}
	out->bits = (unsigned)(bits + 128 - most);
	return 0;
}

static bool in_range(const uint8_t a[16], const struct netrange *r)
{
	unsigned whole = r->bits / 8, rest = r->bits % 8;
	if (memcmp(a, r->net, whole) != 0)
		return false;
	return !rest || ((a[whole] ^ r->net[whole]) >> (8 - rest)) == 0;
}

bool net_is_public(const struct sockaddr *sa)
{
	/* IANA's registries of special addresses, and what embeds an IPv4 address. */
	static const char *const special[] = {
		"0.0.0.0/8",      "10.0.0.0/8",     "100.64.0.0/10", "127.0.0.0/8",
		"169.254.0.0/16", "172.16.0.0/12",  "192.0.0.0/24",  "192.0.2.0/24",
		"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24", "224.0.0.0/4",    "240.0.0.0/4",   "::/96",
		"64:ff9b::/96",   "64:ff9b:1::/48", "100::/64",      "2001::/23",
		"2001:db8::/32",  "2002::/16",      "3fff::/20",     "fc00::/7",
		"fe80::/10",      "fec0::/10",      "ff00::/8",      "::ffff:0:0:0/96",
		"5f00::/16",
	};
	uint8_t a[16];
	if (!address_of(sa, a))
		return false;
	for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++) {
		struct netrange r;
		if (netrange_parse(&r, special[i]) < 0 || in_range(a, &r))
			return false;
	}
	return true;
}

bool net_may_connect(const struct sockaddr *sa, const struct netrange *allowed, size_t n)
{
	uint8_t a[16];
	if (!address_of(sa, a))
		return false;
	for (size_t i = 0; i < n; i++)
		if (in_range(a, &allowed[i]))
			return true;
	return net_is_public(sa);
}
