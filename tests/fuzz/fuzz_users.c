/* Users and groups of an image: any bytes give a user within bounds, or -EINVAL. The first line is
 * who is looked for, then come passwd and, behind a NUL, group. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/user.h"

enum { LIMIT = 65536, WHO_MAX = 256 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *p = (const char *)data, *nl = size ? memchr(p, '\n', size) : NULL;
	if (!nl || nl - p >= WHO_MAX)
		return 0;
	char who[WHO_MAX] = "";
	memcpy(who, p, (size_t)(nl - p));
	p = nl + 1;
	size_t left = size - (size_t)(p - (const char *)data);
	const char *z = left ? memchr(p, '\0', left) : NULL;
	size_t passwd = z ? (size_t)(z - p) : left, group = z ? left - passwd - 1 : 0;
	struct user u;
	int r = user_find(&u, p, passwd, z ? z + 1 : "", group, who, LIMIT, NULL);
	if (r != 0 && r != -EINVAL)
		abort();
	if (r == 0 && (u.uid >= LIMIT || u.gid >= LIMIT || u.n_groups > USER_GROUPS_MAX ||
		       u.home[0] != '/' || strlen(u.home) >= USER_HOME_MAX))
		abort();
	return 0;
}
