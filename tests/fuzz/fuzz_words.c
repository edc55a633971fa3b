/* Single words and short texts that come from callers, headers and records: each is refused, or
 * understood as what it says, no more and no less. The first byte says which. */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/base64.h"
#include "fs/base/hash.h"
#include "fs/base/netaddr.h"
#include "fs/store/gitrepo.h"
#include "fs/work/version.h"
#include "fs/work/watch.h"
#include "snapd/api_sandbox.h"
#include "snapd/gitlink.h"
#include "snapd/hooks.h"
#include "snapd/repos.h"
#include "snapd/tus_head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_hex(const char *s)
{
	struct digest d;
	struct oid oid;
	uint32_t number;
	char text[DIGEST_HEX + 1], id[ID_SIZE];
	int r = digest_parse(&d, s);
	assert(r == 0 || r == -EINVAL);
	if (r == 0) {
		digest_hex(text, &d);
		assert(strcmp(text, s) == 0);
	}
	r = oid_parse(&oid, s);
	assert(r == 0 || r == -EINVAL);
	if (r == 0) {
		oid_hex(text, &oid);
		assert(strcmp(text, s) == 0);
	}
	if (repo_id_parse(s, &number)) {
		repo_lease_id(id, number);
		assert(strcmp(id, s) == 0);
	}
}

static void check_version(const char *s, size_t n)
{
	struct version_id v;
	char text[VERSION_TEXT];
	int r = version_parse(&v, s, n);
	assert(r == 0 || r == -EINVAL);
	if (r == 0) {
		struct version_id again;
		(void)version_text(text, &v);
		assert(version_parse(&again, text, strlen(text)) == 0 && version_equal(&v, &again));
	}
	r = watch_token_check(s);
	assert(r == 0 || r == -EINVAL);
}

static void check_network(const char *s)
{
	struct netrules rules = { .n = 0 };
	struct err err = { 0 };
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	int r = netrules_add(&rules, s, &err);
	assert(r == 0 ? rules.n == 1 && rules.v[0].bits <= 128
		      : r == -EINVAL && rules.n == 0 && err.text[0]);
	/* What is let through by itself never is where only this host is. */
	if (inet_pton(AF_INET, s, &v4.sin_addr) == 1) {
		assert(r == 0 && netrules_allow(&rules, (struct sockaddr *)&v4));
		if (ntohl(v4.sin_addr.s_addr) >> 24 == 127)
			assert(!netaddr_is_public((struct sockaddr *)&v4));
	}
	if (inet_pton(AF_INET6, s, &v6.sin6_addr) == 1) {
		assert(r == 0 && netrules_allow(&rules, (struct sockaddr *)&v6));
		if (IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) || IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr))
			assert(!netaddr_is_public((struct sockaddr *)&v6));
	}
}

static void check_url(const char *s)
{
	struct err err = { 0 };
	int r = hook_url_check(s, &err);
	assert(r == 0 || (r < 0 && err.text[0]));
	/* curl takes one slash for two. */
	if (r == 0)
		assert((strncasecmp(s, "http:/", 6) == 0 || strncasecmp(s, "https:/", 7) == 0) &&
		       !strchr(s, '#') && !strchr(s, '\n'));
}

static void check_link(const char *s)
{
	auto_gitlink g = { 0 }, again = { 0 };
	struct err err = { 0 };
	int r = gitlink_parse(&g, s, &err);
	assert(r == 0 || r == -EBADMSG || r == -ENOMEM);
	if (r != 0)
		return;
	char *text = gitlink_text(&g);
	assert(text && gitlink_parse(&again, text, &err) == 0);
	assert(again.repo == g.repo && again.nscopes == g.nscopes && again.depth == g.depth);
	free(text);
}

static void check_upload(const char *s, size_t n)
{
	uint8_t digest[TUS_DIGEST_MAX], bytes[512];
	uint64_t number;
	char *value = NULL, want[32];
	int r = tus_number(s, &number);
	assert(r == 0 || r == -EINVAL);
	if (r == 0) {
		(void)snprintf(want, sizeof(want), "%llu", (unsigned long long)number);
		assert(strcmp(s + strspn(s, "0"), number ? want : "") == 0);
	}
	r = base64_decode(s, n, bytes, sizeof(bytes));
	assert(r == -EINVAL || (r >= 0 && r <= (int)sizeof(bytes)));
	if (r >= 0) {
		char *text = base64_encode(bytes, (size_t)r);
		assert(text && strcmp(text, s) == 0);
		free(text);
	}
	r = tus_metadata(s, "filename", &value);
	assert((r == 0 || r == -EINVAL || r == -ENOMEM) && (r == 0 || !value));
	free(value);
	r = tus_checksum(s, digest);
	assert(r == -EINVAL || r == -ENOTSUP || r == 20 || r == 32);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	char *text = malloc(size);
	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	size_t n = strlen(text);
	switch (data[0]) {
	case 'h':
		check_hex(text);
		break;
	case 'v':
		check_version(text, n);
		break;
	case 'n':
		check_network(text);
		break;
	case 'w':
		check_url(text);
		break;
	case 'g':
		check_link(text);
		break;
	case 's':
		assert(api_signal_parse(text) == -EINVAL ||
		       (api_signal_parse(text) > 0 && api_signal_parse(text) <= 64));
		break;
	default:
		check_upload(text, n);
	}
	free(text);
	return 0;
}
