#include "snapd/space.h"

#include <errno.h>
#include <sys/statvfs.h>

#include "snapd/snapd.h"

int space_look(const struct snapd *sd, struct space *out)
{
	struct statvfs st;
	if (statvfs(sd->root, &st) < 0)
		return -errno;
	*out = (struct space){ .total_bytes = (uint64_t)st.f_blocks * st.f_frsize,
			       .free_bytes = (uint64_t)st.f_bavail * st.f_frsize,
			       .reserve_bytes = sd->policy.reserve_bytes };
	if (out->reserve_bytes != RESERVE_BY_SIZE)
		return 0;
	out->reserve_bytes = out->total_bytes / 100 * RESERVE_PERCENT;
	if (out->reserve_bytes > RESERVE_MAX_BYTES)
		out->reserve_bytes = RESERVE_MAX_BYTES;
	return 0;
}

bool space_low(const struct snapd *sd)
{
	struct space s = { 0 };
	return space_look(sd, &s) >= 0 && s.free_bytes < s.reserve_bytes;
}

int space_need(const struct snapd *sd, struct err *err)
{
	struct space s = { 0 };
	if (space_look(sd, &s) < 0 || s.free_bytes >= s.reserve_bytes)
		return 0;
	return err_set(
		err, -ENOSPC,
		"the disk of %s is nearly full: %llu MiB are left, and the last %llu are for "
		"work under way",
		sd->root, (unsigned long long)(s.free_bytes >> 20),
		(unsigned long long)(s.reserve_bytes >> 20));
}
