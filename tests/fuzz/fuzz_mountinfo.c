/* /proc/self/mountinfo: any bytes; out come absolute paths, and cgroups within bounds. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cgroup.h"
#include "runtime/mountinfo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mountinfo m = mountinfo_begin((const char *)data, size);
	while (mountinfo_next(&m))
		if (m.point[0] != '/' || strnlen(m.point, PATH_MAX) == PATH_MAX ||
		    m.type + m.type_len > (const char *)data + size)
			abort();
	struct cgroups c;
	cgroup_parse(&c, (const char *)data, size);
	if (c.n > CGROUP_HIERARCHIES_MAX)
		abort();
	return 0;
}
