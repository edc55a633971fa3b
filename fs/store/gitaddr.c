/* Addresses of git objects, where a digest stands for content. */
#include "fs/store/gitrepo.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fs/base/buf.h"

enum { MAGIC_BYTES = 8 };
static_assert(MAGIC_BYTES + 4 + OID_BYTES == sizeof(struct digest),
	      "an address is a digest's size");

void digest_of_git(struct digest *out, uint32_t repo, const struct oid *oid)
{
	memcpy(out->b, GIT_ADDRESS_MAGIC, MAGIC_BYTES);
	le_put32(out->b + MAGIC_BYTES, repo);
	memcpy(out->b + MAGIC_BYTES + 4, oid->b, OID_BYTES);
}

bool digest_is_git(const struct digest *d, uint32_t *repo, struct oid *oid)
{
	if (memcmp(d->b, GIT_ADDRESS_MAGIC, MAGIC_BYTES) != 0)
		return false;
	if (repo)
		*repo = le_get32(d->b + MAGIC_BYTES);
	if (oid)
		memcpy(oid->b, d->b + MAGIC_BYTES + 4, OID_BYTES);
	return true;
}

void oid_hex(char out[OID_HEX + 1], const struct oid *oid)
{
	hex_encode(out, oid->b, OID_BYTES);
}

int oid_parse(struct oid *out, const char *hex)
{
	struct oid o;
	if (strlen(hex) != OID_HEX || hex_decode(o.b, OID_BYTES, hex) < 0)
		return -EINVAL;
	*out = o;
	return 0;
}

void repo_folder_name(char out[REPO_NAME_BYTES], uint32_t repo)
{
	(void)snprintf(out, REPO_NAME_BYTES, "%08x", repo);
}
