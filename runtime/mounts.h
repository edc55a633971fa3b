/* Clones of mounts, with ids shifted by the kernel, and where they are put.
 * Source: open_tree(2), mount_setattr(2), move_mount(2). */
#ifndef BOUGH_RUNTIME_MOUNTS_H
#define BOUGH_RUNTIME_MOUNTS_H

#include <stdbool.h>
#include <stdint.h>
#include "fs/base/err.h"

/* A clone of the mount at `source`, alone, nosuid and nodev, that is nowhere yet. user_ns: a
 * descriptor; ids of the mount are what they are inside of it; -1: they stay. -ENOENT: nothing is
 * mounted there. A descriptor, to be closed in any case. */
int mounts_clone(const char *source, int user_ns, bool read_only, struct err *err);
/* The same of a folder (a descriptor) of such a mount. */
int mounts_clone_folder(int folder, int user_ns, struct err *err);
/* Puts it onto a folder that is there. */
int mounts_put(int tree, const char *target, struct err *err);
int mounts_put_at(int tree, int target, struct err *err); /* a descriptor; O_PATH does */
/* A tmpfs of that size, empty, nosuid and nodev. owner: uid and gid of its root. */
int mounts_tmpfs(const char *target, uint64_t bytes, unsigned inodes, unsigned mode,
		 uint32_t owner, struct err *err);
/* It has room for as many files from now on. */
int mounts_tmpfs_inodes(const char *target, unsigned inodes, struct err *err);
/* Takes off whatever is mounted on it; what isn't there or no mount is fine. */
int mounts_take_off(const char *path, struct err *err);
/* The same for all that is mounted in the folder, at any depth; itself is none. */
int mounts_take_all_off(const char *dir, struct err *err);
bool mounts_is_mount(const char *path);

/* A user namespace that is owned by the user `owner` and whose ids 0 ... count - 1 are base ... on
 * the host; it lives by a bind mount at `path`, which is made. */
int userns_make(const char *path, uint32_t owner, uint32_t base, uint32_t count, struct err *err);
/* Makes a process of one thread that user and group, with the capabilities that it has. */
int userns_become(uint32_t id);

#endif
