#include "snapd/limits.h"

#include <errno.h>
#include <string.h>

#include "snapd/space.h"

bool limits_needs_room(const struct route *rt)
{
	/* Those whose body is a stream, too. What is named here is small at first, but grows. */
	static const char *const posts[] = {
		"/v1/workspaces",
		"/v1/workspaces/{}/fork",
		"/v1/workspaces/{}/snapshots",
		"/v1/workspaces/{}/merge",
		"/v1/workspaces/{}/restore",
		"/v1/workspaces/{}/commit",
		"/v1/workspaces/{}/uploads",
		"/v1/snapshots/{}/commit",
		"/v1/repos",
		"/v1/repos/{}/fetch",
	};
	if (rt->upload)
		return true;
	if (strcmp(rt->method, "POST") != 0)
		return false;
	for (size_t i = 0; i < sizeof(posts) / sizeof(posts[0]); i++)
		if (strcmp(rt->path, posts[i]) == 0)
			return true;
	return false;
}

int limits_admit(const struct request *rq, const struct route *rt, struct err *err)
{
	return limits_needs_room(rt) ? space_need(rq->ctx, err) : 0;
}
