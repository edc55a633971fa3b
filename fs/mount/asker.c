/* Who asks, where the kernel doesn't say: a mount of which idmapped clones can be made carries
 * the ids of the caller only in what makes an inode, mapped as the clone maps them. And for which
 * program. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/ids.h"
#include "fs/base/io.h"
#include "fs/mount/ops.h"

enum {
	STATUS_MAX = 8192, /* bytes of a process's status that are looked at; Uid is in the first */
	NAMES_ONLY_MS = 60000,
};

/* By the number of the thread that waits for the answer: it can't change its ids meanwhile, and if
 * it is killed and its number given to another, then nobody hears the answer. 0, or -ESRCH. */
static int look_up(pid_t tid, uid_t *uid, pid_t *parent)
{
	char path[40];
	auto_free void *text = NULL;
	size_t len;
	unsigned real, effective, saved, fs;
	int pid;
	(void)snprintf(path, sizeof(path), "/proc/%d/status", tid);
	if (tid <= 0 || io_slurp(NULL, AT_FDCWD, path, STATUS_MAX, &text, &len, NULL) < 0)
		return -ESRCH;
	const char *ids = strstr(text, "\nUid:"), *up = strstr(text, "\nPPid:");
	if (!ids || sscanf(ids, "\nUid: %u %u %u %u", &real, &effective, &saved, &fs) != 4 ||
	    !up || sscanf(up, "\nPPid: %d", &pid) != 1)
		return -ESRCH;
	*uid = fs;
	*parent = pid;
	return 0;
}

static uid_t host_uid(fuse_req_t req)
{
	const struct mounted *m = fuse_req_userdata(req);
	const struct fuse_ctx *c = fuse_req_ctx(req);
	uid_t uid;
	pid_t parent;
	if (!m->idmap)
		return c->uid;
	return look_up(c->pid, &uid, &parent) == 0 ? uid : (uid_t)-1;
}

static struct caller caller_by(fuse_req_t req, uid_t host)
{
	struct caller c = caller_of(req);
	uint32_t inside;
	c.uid = ids_inside(host, &inside) ? inside : host;
	return c;
}

struct caller asker_of(fuse_req_t req)
{
	return caller_by(req, host_uid(req));
}

bool asker_is_admin(fuse_req_t req)
{
	return host_uid(req) == 0;
}

struct caller asker_walks_names(fuse_req_t req)
{
	struct mounted *m = fuse_req_userdata(req);
	const struct fuse_ctx *c = fuse_req_ctx(req);
	uid_t uid = (uid_t)-1;
	pid_t parent = 0;
	if (look_up(c->pid, &uid, &parent) == 0 && parent > 0) {
		atomic_store_explicit(&m->walker_until_ms, clock_ms() + NAMES_ONLY_MS,
				      memory_order_relaxed);
		atomic_store_explicit(&m->walker, parent, memory_order_relaxed);
	}
	return caller_by(req, m->idmap ? uid : c->uid);
}

bool asker_wants_names(fuse_req_t req)
{
	struct mounted *m = fuse_req_userdata(req);
	pid_t walker = atomic_load_explicit(&m->walker, memory_order_relaxed);
	return walker && walker == fuse_req_ctx(req)->pid &&
	       clock_ms() < atomic_load_explicit(&m->walker_until_ms, memory_order_relaxed);
}
