#include "runtime/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "runtime/mountinfo.h"

enum { STACK_MAX = 64 /* mounts on top of each other */ };

bool mounts_is_mount(const char *path)
{
	struct statx sx;
	return statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, 0,
		     &sx) == 0 &&
	       sx.stx_attributes & STATX_ATTR_MOUNT_ROOT;
}

/* Gives a clone its attributes. `tree` is taken over; it, or -errno. */
static int dress(int tree, const char *source, int user_ns, bool read_only, struct err *err)
{
	auto_fd owned = tree;
	struct mount_attr a = {
		.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
			    (read_only ? MOUNT_ATTR_RDONLY : 0) |
			    (user_ns >= 0 ? MOUNT_ATTR_IDMAP : 0),
		.propagation = MS_PRIVATE,
		.userns_fd = user_ns >= 0 ? (uint64_t)user_ns : 0,
	};
	int r = mount_setattr(tree, "", AT_EMPTY_PATH, &a, sizeof(a)) < 0 ? -errno : 0;
	/* A workspace that was mounted just now allows it only by its server's answer to INIT, for
	 * which every other request waits. */
	struct statfs fs;
	if (r == -EINVAL && user_ns >= 0 && fstatfs(tree, &fs) == 0)
		r = mount_setattr(tree, "", AT_EMPTY_PATH, &a, sizeof(a)) < 0 ? -errno : 0;
	if (r == 0)
		return steal_fd(&owned);
	if (r == -EINVAL && user_ns >= 0)
		return err_set(err, -EOPNOTSUPP,
			       "ids of the workspace at %s can't be shifted: that needs Linux "
			       "6.12 and the transport dev",
			       source);
	return err_sys(err, r, "set the attributes of a clone of %s", source);
}

int mounts_clone(const char *source, int user_ns, bool read_only, struct err *err)
{
	if (!mounts_is_mount(source))
		return err_set(err, -ENOENT, "no workspace is mounted at %s", source);
	int tree = open_tree(AT_FDCWD, source,
			     OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
	if (tree < 0)
		return err_sys(err, -errno, "clone the mount at %s", source);
	return dress(tree, source, user_ns, read_only, err);
}

int mounts_clone_folder(int folder, int user_ns, struct err *err)
{
	int tree = open_tree(folder, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	if (tree < 0)
		return err_sys(err, -errno, "clone a folder's mount");
	return dress(tree, "the root", user_ns, false, err);
}

int mounts_put_at(int tree, int target, struct err *err)
{
	if (move_mount(tree, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return err_sys(err, -errno, "mount a workspace");
	return 0;
}

int mounts_put(int tree, const char *target, struct err *err)
{
	if (move_mount(tree, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return err_sys(err, -errno, "mount at %s", target);
	return 0;
}

int mounts_tmpfs(const char *target, uint64_t bytes, unsigned inodes, unsigned mode,
		 uint32_t owner, struct err *err)
{
	char opts[160];
	int n = snprintf(opts, sizeof(opts),
			 "mode=%o,uid=%u,gid=%u,size=%llu,nr_inodes=%u,noswap", mode, owner, owner,
			 (unsigned long long)bytes, inodes);
	unsigned long flags = MS_NOSUID | MS_NODEV;
	if (mount("tmpfs", target, "tmpfs", flags, opts) == 0)
		return 0;
	if (errno == EINVAL) { /* noswap is of Linux 6.4 */
		opts[n - (int)sizeof(",noswap") + 1] = '\0';
		if (mount("tmpfs", target, "tmpfs", flags, opts) == 0)
			return 0;
	}
	return err_sys(err, -errno, "mount a tmpfs at %s", target);
}

int mounts_tmpfs_inodes(const char *target, unsigned inodes, struct err *err)
{
	char opts[64];
	struct statfs st;
	if (statfs(target, &st) < 0)
		return err_sys(err, -errno, "look at %s", target);
	if (st.f_files >= inodes)
		return 0;
	int n = snprintf(opts, sizeof(opts), "nr_inodes=%u,noswap", inodes);
	unsigned long flags = MS_REMOUNT | MS_NOSUID | MS_NODEV;
	if (mount(NULL, target, NULL, flags, opts) == 0)
		return 0;
	opts[n - (int)sizeof(",noswap") + 1] = '\0'; /* it must be as it was made */
	if (mount(NULL, target, NULL, flags, opts) == 0)
		return 0;
	return err_sys(err, -errno, "make room for files at %s", target);
}

int mounts_take_off(const char *path, struct err *err)
{
	for (int i = 0; i < STACK_MAX; i++) {
		if (umount2(path, UMOUNT_NOFOLLOW) == 0)
			continue;
		if (errno == EINVAL || errno == ENOENT || errno == ENOTDIR)
			return 0;
		if (errno != EBUSY)
			return err_sys(err, -errno, "unmount %s", path);
		if (umount2(path, UMOUNT_NOFOLLOW | MNT_DETACH) < 0)
			return err_sys(err, -errno, "detach %s", path);
	}
	return err_set(err, -EBUSY, "%s has more than %d mounts", path, STACK_MAX);
}

/* Names of what is mounted below `dir`, each ended by NUL, in order; how many. */
static int list_below(const char *dir, struct buf *out, struct err *err)
{
	auto_free void *text = NULL;
	size_t len, n = strlen(dir);
	int count = 0, r = mountinfo_read(&text, &len, err);
	if (r < 0)
		return r;
	struct mountinfo m = mountinfo_begin(text, len);
	while (mountinfo_next(&m))
		if (strncmp(m.point, dir, n) == 0 && m.point[n] == '/') {
			buf_add(out, m.point, strlen(m.point) + 1);
			count++;
		}
	return buf_error(out) < 0 ? err_no_memory(err) : count;
}

int mounts_take_all_off(const char *dir, struct err *err)
{
	char real[PATH_MAX];
	if (!realpath(dir, real))
		return errno == ENOENT ? 0 : err_sys(err, -errno, "look for mounts in %s", dir);
	for (int i = 0; i < STACK_MAX; i++) {
		auto_buf names = { 0 };
		int r = list_below(real, &names, err);
		if (r <= 0)
			return r;
		/* The last is on top. */
		for (const char *end = (const char *)names.data + names.len; r > 0; r--) {
			const char *p = end - 1;
			while (p > (const char *)names.data && p[-1] != '\0')
				p--;
			int e = mounts_take_off(p, err);
			if (e < 0)
				return e;
			end = p;
		}
	}
	return err_set(err, -EBUSY, "mounts keep coming in %s", dir);
}
