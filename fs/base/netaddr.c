#include "fs/base/netaddr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOST_MAX = 256 };

/* ::ffff:0:0, before an IPv4 address. */
static const uint8_t mapped[16] = { [10] = 0xff, [11] = 0xff };
enum { MAPPED_BYTES = 12 };

/* As 16 bytes; false: of another family. */
static bool bytes_of(uint8_t out[16], const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)sa;
		memcpy(out, mapped, MAPPED_BYTES);
		memcpy(out + MAPPED_BYTES, &in->sin_addr, 4);
		return true;
	}
	if (sa->sa_family != AF_INET6)
		return false;
	memcpy(out, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
	return true;
}

static bool in_net(const uint8_t a[16], const uint8_t net[16], unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;
	if (memcmp(a, net, whole) != 0)
		return false;
	return rest == 0 || ((a[whole] ^ net[whole]) & (uint8_t)(0xff << (8 - rest))) == 0;
}

static bool is_public4(const uint8_t a[4])
{
	static const struct {
		uint8_t net[4], bits;
	} special[] = {
		{ { 0, 0, 0, 0 }, 8 },       /* this network */
		{ { 10, 0, 0, 0 }, 8 },      /* private */
		{ { 100, 64, 0, 0 }, 10 },   /* carriers' */
		{ { 127, 0, 0, 0 }, 8 },     /* this host */
		{ { 169, 254, 0, 0 }, 16 },  /* the link; of clouds, their secrets */
		{ { 172, 16, 0, 0 }, 12 },   /* private */
		{ { 192, 0, 0, 0 }, 24 },    /* protocols' */
		{ { 192, 0, 2, 0 }, 24 },    /* for documentation */
		{ { 192, 88, 99, 0 }, 24 },  /* 6to4's relays */
		{ { 192, 168, 0, 0 }, 16 },  /* private */
		{ { 198, 18, 0, 0 }, 15 },   /* for benchmarks */
		{ { 198, 51, 100, 0 }, 24 }, /* for documentation */
		{ { 203, 0, 113, 0 }, 24 },  /* for documentation */
		{ { 224, 0, 0, 0 }, 3 },     /* for many, reserved */
	};
	uint8_t x[16], net[16];
	memcpy(x, mapped, MAPPED_BYTES);
	memcpy(x + 12, a, 4);
	memcpy(net, mapped, MAPPED_BYTES);
	for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++) {
		memcpy(net + 12, special[i].net, 4);
		if (in_net(x, net, 96U + special[i].bits))
			return false;
	}
	return true;
}

/* Only what is given out to the world, 2000::/3, less what has another use. */
static bool is_public6(const uint8_t a[16])
{
	static const uint8_t nat64[16] = { 0, 0x64, 0xff, 0x9b };
	static const struct {
		uint8_t net[16], bits;
	} special[] = {
		{ { 0x20, 0x01, 0, 0 }, 23 },       /* protocols', Teredo among them */
		{ { 0x20, 0x01, 0x0d, 0xb8 }, 32 }, /* for documentation */
		{ { 0x20, 0x02 }, 16 },             /* 6to4 */
		{ { 0x3f, 0xff }, 20 },             /* for documentation */
	};
	if (in_net(a, mapped, 96) || in_net(a, nat64, 96))
		return is_public4(a + 12);
	if (a[0] >> 5 != 1)
		return false;
	for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++)
		if (in_net(a, special[i].net, special[i].bits))
			return false;
	return true;
}

bool netaddr_is_public(const struct sockaddr *sa)
{
	uint8_t a[16];
	return bytes_of(a, sa) && is_public6(a);
}

bool netrules_allow(const struct netrules *r, const struct sockaddr *sa)
{
	uint8_t a[16];
	if (!bytes_of(a, sa))
		return false;
	for (uint32_t i = 0; r && i < r->n; i++)
		if (in_net(a, r->v[i].addr, r->v[i].bits))
			return true;
	return is_public6(a);
}

int netrules_add(struct netrules *r, const char *text, struct err *err)
{
	char copy[NETADDR_TEXT + 8], *slash, *end = NULL;
	struct netrule rule = { 0 };
	if (r->n == NETRULES_MAX)
		return err_set(err, -E2BIG, "more than %d networks", NETRULES_MAX);
	(void)snprintf(copy, sizeof(copy), "%s", text);
	if ((slash = strchr(copy, '/')))
		*slash++ = '\0';
	bool four = inet_pton(AF_INET, copy, rule.addr + 12) == 1;
	if (four)
		memcpy(rule.addr, mapped, MAPPED_BYTES);
	unsigned max = four ? 32 : 128;
	unsigned long bits = slash ? strtoul(slash, &end, 10) : max;
	if (strlen(text) >= sizeof(copy) || (!four && inet_pton(AF_INET6, copy, rule.addr) != 1) ||
	    (slash && (*slash < '0' || *slash > '9' || *end)) || bits > max)
		return err_set(err, -EINVAL,
			       "\"%.60s\" is no network, as 10.0.0.0/8 and fd00::/8 are", text);
	rule.bits = (uint8_t)(four ? bits + 96 : bits);
	r->v[r->n++] = rule;
	return 0;
}

static int judge(struct netaddrs *out, const char *host, const struct addrinfo *list,
		 const struct netrules *r, struct err *err)
{
	for (const struct addrinfo *a = list; a && out->n < NETADDR_FOUND; a = a->ai_next) {
		char *text = out->v[out->n];
		if (getnameinfo(a->ai_addr, a->ai_addrlen, text, NETADDR_TEXT, NULL, 0,
				NI_NUMERICHOST) != 0)
			continue;
		if (!netrules_allow(r, a->ai_addr))
			return err_set(err, -EACCES,
				       "%.255s is %s, an address that callers over the network may "
				       "not have boughd connect to",
				       host, text);
		out->n++;
	}
	return out->n ? 0 : err_set(err, -EHOSTUNREACH, "%.255s has no address", host);
}

int netaddr_find(struct netaddrs *out, const char *host, const struct netrules *r, struct err *err)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *list = NULL;
	char bare[HOST_MAX];
	struct netaddrs found = { 0 };
	size_t n = strlen(host);
	bool brackets = n > 2 && host[0] == '[' && host[n - 1] == ']';
	if (n >= sizeof(bare))
		return err_set(err, -EINVAL, "a host's name is too long");
	(void)snprintf(bare, sizeof(bare), "%.*s", (int)(brackets ? n - 2 : n), host + brackets);
	int e = getaddrinfo(bare, NULL, &hints, &list);
	if (e != 0)
		return err_set(err, -EHOSTUNREACH, "%.255s has no address: %s", host,
			       gai_strerror(e));
	int judged = judge(&found, host, list, r, err);
	freeaddrinfo(list);
	if (judged >= 0)
		*out = found;
	return judged;
}
