#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "runtime/box_impl.h"
#include "runtime/inroot.h"
#include "runtime/mounts.h"

enum { TMPFS_BYTES = 64 << 10, TMPFS_INODES = BOX_SLOTS + 8 };

int box_slots_make(const struct box_config *c, struct err *err)
{
	char path[PATH_MAX], slot[PATH_MAX];
	if (box_path(path, c->dir, "slots") < 0)
		return err_set(err, -ENAMETOOLONG, "%s is too long", c->dir);
	if (mkdir(path, 0711) < 0)
		return err_sys(err, -errno, "make %s", path);
	int r = mounts_tmpfs(path, TMPFS_BYTES, TMPFS_INODES, 0755, 0, err);
	/* So that what is mounted in it later reaches the gofer's copy. */
	if (r == 0 && mount(NULL, path, NULL, MS_SHARED, NULL) < 0)
		r = err_sys(err, -errno, "share %s", path);
	for (int i = 0; r == 0 && i < BOX_SLOTS; i++) {
		char name[32];
		(void)snprintf(name, sizeof(name), "slots/%d", i);
		r = box_path(slot, c->dir, name);
		if (r == 0 && mkdir(slot, 0755) < 0)
			r = -errno;
		if (r < 0)
			r = err_sys(err, r, "make %s/%s", c->dir, name);
	}
	return r;
}

/* The folder of the root that holds the target, and the target's name in it. */
static int open_holder(const struct box_config *c, const char *target, const char **name,
		       struct err *err)
{
	char holder[PATH_MAX];
	*name = strrchr(target, '/') + 1;
	(void)snprintf(holder, sizeof(holder), "%.*s", (int)(*name - target), target);
	auto_fd root = open(c->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd = root < 0 ? -errno : inroot_make_dir(root, holder);
	return fd < 0 ? err_sys(err, fd, "no place to attach at %s", target) : fd;
}

static void link_text(char out[64], int slot)
{
	(void)snprintf(out, 64, BOX_SLOTS_AT "/%d", slot);
}

static int make_link(const struct box_config *c, const char *target, int slot, struct err *err)
{
	char text[64];
	const char *name;
	auto_fd holder = open_holder(c, target, &name, err);
	if (holder < 0)
		return holder;
	link_text(text, slot);
	if (symlinkat(text, holder, name) == 0)
		return 0;
	/* An empty folder may be a mount point of before. */
	if (errno == EEXIST && unlinkat(holder, name, AT_REMOVEDIR) == 0 &&
	    symlinkat(text, holder, name) == 0)
		return 0;
	return err_set(err, -EEXIST, "there is something at %s already", target);
}

static void remove_link(const struct box_config *c, const char *target, int slot)
{
	char text[64], now[64];
	const char *name;
	auto_fd holder = open_holder(c, target, &name, NULL);
	if (holder < 0)
		return;
	link_text(text, slot);
	ssize_t n = readlinkat(holder, name, now, sizeof(now));
	if (n == (ssize_t)strlen(text) && memcmp(now, text, (size_t)n) == 0)
		(void)unlinkat(holder, name, 0); /* what else is there by now is the sandbox's */
}

void box_slot_forget(const struct box_config *c, const char *target)
{
	for (int i = 0; i < BOX_SLOTS; i++)
		remove_link(c, target, i);
}

static int slot_path(char out[PATH_MAX], const struct box_config *c, const char *prefix, int slot)
{
	char name[32];
	(void)snprintf(name, sizeof(name), "%s%d", prefix, slot);
	return box_path(out, c->dir, name);
}

static int note_target(const struct box_config *c, const char *target, int slot, struct err *err)
{
	char name[32];
	(void)snprintf(name, sizeof(name), "slot-%d", slot);
	auto_fd dir = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(err, -errno, "open %s", c->dir);
	return io_publish(NULL, dir, name, target, strlen(target), false, err);
}

/* The slot of a target; -ENOENT. */
static int find_slot(const struct box_config *c, const char *target)
{
	char path[PATH_MAX];
	for (int i = 0; i < BOX_SLOTS; i++) {
		auto_free void *text = NULL;
		size_t len;
		if (slot_path(path, c, "slot-", i) == 0 &&
		    io_slurp(NULL, AT_FDCWD, path, PATH_MAX, &text, &len, NULL) == 0 &&
		    len == strlen(target) && memcmp(text, target, len) == 0)
			return i;
	}
	return -ENOENT;
}

static int put_into(const struct box_config *c, const struct box_mount *m, int slot,
		    const char *path, struct err *err)
{
	auto_fd user_ns = box_user_ns(c, err);
	auto_fd tree = user_ns < 0 ? user_ns
				   : mounts_clone(m->source, user_ns, m->read_only, err);
	if (tree < 0)
		return tree;
	int r = note_target(c, m->target, slot, err);
	if (r == 0)
		r = mounts_put(tree, path, err);
	if (r == 0)
		r = make_link(c, m->target, slot, err);
	if (r < 0) {
		char note[PATH_MAX];
		(void)mounts_take_off(path, NULL); /* the failure before is the one to tell */
		if (slot_path(note, c, "slot-", slot) == 0)
			(void)unlink(note);
	}
	return r;
}

int box_slot_attach(const struct box_config *c, const struct box_mount *m, struct err *err)
{
	char path[PATH_MAX];
	for (size_t i = 0; i < c->n_mounts; i++) {
		size_t n = strlen(c->mounts[i].target);
		if (strncmp(m->target, c->mounts[i].target, n) == 0 && m->target[n] == '/')
			return err_set(err, -EINVAL, "%s lies in another workspace", m->target);
	}
	if (find_slot(c, m->target) >= 0)
		return err_set(err, -EEXIST, "something is attached at %s already", m->target);
	for (int i = 0; i < BOX_SLOTS; i++)
		if (slot_path(path, c, "slots/", i) == 0 && access(path, F_OK) == 0 &&
		    !mounts_is_mount(path))
			return put_into(c, m, i, path, err);
	return err_set(err, -ENOSPC,
		       "a running sandbox of %s takes %d workspaces: stop it to attach more",
		       c->kind->name, BOX_SLOTS);
}

int box_slot_detach(const struct box_config *c, const char *target, bool force, struct err *err)
{
	char path[PATH_MAX];
	/* First, since what came later is among `mounts`, too, once its caller has noted it. */
	int slot = find_slot(c, target);
	for (size_t i = 0; slot < 0 && i < c->n_mounts; i++)
		if (strcmp(target, c->mounts[i].target) == 0)
			return err_set(err, -EOPNOTSUPP,
				       "%s lets go of what it was started with at its end only: "
				       "stop the sandbox first",
				       c->kind->name);
	if (slot < 0)
		return err_set(err, -ENOENT, "nothing was attached at %s while it ran", target);
	int r = slot_path(path, c, "slots/", slot);
	if (r == 0 && umount2(path, UMOUNT_NOFOLLOW | (force ? MNT_DETACH : 0)) < 0 &&
	    errno != EINVAL)
		r = -errno;
	if (r == -EBUSY)
		return err_set(err, r, "something in the sandbox uses %s", target);
	if (r < 0)
		return err_sys(err, r, "detach from %s", target);
	remove_link(c, target, slot);
	if (slot_path(path, c, "slot-", slot) == 0)
		(void)unlink(path);
	return 0;
}
