/* The secrets of a sandbox that is stopped to be restored, and started again then: their tmpfs,
 * which goes with its box, stays mounted at ROOT/kept/SB meanwhile, so that a kill of boughd loses
 * none. They never come to a disk. */
#include "snapd/sandbox_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "runtime/mounts.h"

static void kept_path(const struct snapd *sd, const char *id, char out[PATH_SIZE])
{
	(void)snprintf(out, PATH_SIZE, "%s/kept%s%s", sd->root, *id ? "/" : "", id);
}

int sandbox_secrets_keep(struct snapd *sd, const struct sandbox_box *b, struct err *err)
{
	char from[PATH_SIZE + 16], parent[PATH_SIZE], path[PATH_SIZE];
	(void)snprintf(from, sizeof(from), "%s/secrets", b->dir);
	if (!mounts_is_mount(from))
		return 0;
	sandbox_secrets_drop(sd, b->row.id); /* of a run before */
	kept_path(sd, "", parent);
	kept_path(sd, b->row.id, path);
	if ((mkdir(parent, 0700) < 0 && errno != EEXIST) ||
	    (mkdir(path, 0700) < 0 && errno != EEXIST))
		return err_sys(err, -errno, "make %s", path);
	auto_fd tree = mounts_clone(from, -1, true, err);
	int r = tree < 0 ? tree : mounts_put(tree, path, err);
	return r < 0 ? err_prefix(err, r, "keep its secrets") : 0;
}

int sandbox_secrets_kept(struct snapd *sd, const char *id, struct secrets *out, struct err *err)
{
	char path[PATH_SIZE];
	kept_path(sd, id, path);
	auto_dir *d = opendir(path);
	const struct dirent *e;
	if (!d)
		return errno == ENOENT ? 0 : err_sys(err, -errno, "its secrets");
	while ((e = readdir(d))) {
		if (e->d_type != DT_REG || out->n == SANDBOX_SECRETS_MAX + 1)
			continue;
		int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (fd < 0)
			return err_sys(err, -errno, "its secrets");
		(void)snprintf(out->list[out->n].name, NAME_SIZE, "%.*s", NAME_SIZE - 1, e->d_name);
		out->list[out->n++].fd = fd;
	}
	return 0;
}

void sandbox_secrets_drop(struct snapd *sd, const char *id)
{
	char path[PATH_SIZE];
	struct err err = { 0 };
	kept_path(sd, id, path);
	if (access(path, F_OK) < 0)
		return;
	int r = mounts_take_off(path, &err);
	if (r >= 0 && rmdir(path) < 0 && errno != ENOENT)
		r = err_sys(&err, -errno, "remove %s", path);
	if (r < 0)
		log_error("secrets of sandbox %s stay in memory: %s", id, err.text);
}

void sandbox_secrets_drop_all(struct snapd *sd)
{
	char path[PATH_SIZE];
	kept_path(sd, "", path);
	auto_dir *d = opendir(path);
	const struct dirent *e;
	while (d && (e = readdir(d)))
		if (id_is(e->d_name, "sb"))
			sandbox_secrets_drop(sd, e->d_name);
}
