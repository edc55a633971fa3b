/* Who asks, where the kernel doesn't say: a mount of which idmapped clones can be made carries
 * the ids of the caller only in what makes an inode, mapped as the clone maps them. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include "fs/base/cleanup.h"
#include "fs/base/ids.h"
#include "fs/base/io.h"
#include "fs/mount/ops.h"

enum {
	STATUS_MAX = 8192, /* bytes of a process's status that are looked at; Uid is in the first */
};
/* By the number of the thread that waits for the answer: it can't change its ids meanwhile, and if
 * it is killed and its number given to another, then nobody hears the answer. */
static uid_t uid_of_thread(pid_t tid)
{
	char path[40];
	auto_free void *text = NULL;
	size_t len;
	unsigned real, effective, saved, fs;
	(void)snprintf(path, sizeof(path), "/proc/%d/status", tid);
	if (tid <= 0 || io_slurp(NULL, AT_FDCWD, path, STATUS_MAX, &text, &len, NULL) < 0)
		return (uid_t)-1;
	const char *line = strstr(text, "\nUid:");
	if (!line || sscanf(line, "\nUid: %u %u %u %u", &real, &effective, &saved, &fs) != 4)
		return (uid_t)-1;
	return fs;
}

static uid_t host_uid(fuse_req_t req)
{
	const struct mounted *m = fuse_req_userdata(req);
	const struct fuse_ctx *c = fuse_req_ctx(req);
	return m->idmap ? uid_of_thread(c->pid) : c->uid;
}

struct caller asker_of(fuse_req_t req)
{
	struct caller c = caller_of(req);
	uid_t host = host_uid(req);
	uint32_t inside;
	c.uid = ids_inside(host, &inside) ? inside : host;
	return c;
}

bool asker_is_admin(fuse_req_t req)
{
	return host_uid(req) == 0;
}
