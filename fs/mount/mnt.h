/* Mounting and unmounting a FUSE filesystem: by mount(2) as root, by fusermount3 as an
 * ordinary user. Any thread. */
#ifndef BOUGH_MOUNT_MNT_H
#define BOUGH_MOUNT_MNT_H

#include <stdbool.h>
#include <stdint.h>
#include "fs/base/err.h"

/* Makes `path` fit to be mounted on: its last folder is made where it is absent, and
 * mounts that a killed server left dead there are taken away.
 * -EBUSY: something alive is mounted there; -ENOTDIR; -errno. */
int mnt_prepare(const char *path, struct err *err);
/* Mounts on a prepared path; the descriptor of /dev/fuse, whose requests must be served by
 * somebody else than the caller. -ENODEV, -ENOENT: no /dev/fuse here; -EPERM; -errno.
 * `nonblock`: reads of the descriptor don't wait. */
int mnt_mount(const char *path, bool nonblock, struct err *err);
/* The device number of what is mounted at `path`; no request is made, dead or alive.
 * -ENOENT, -EINVAL: not a mount point; -errno. */
int mnt_device(const char *path, uint64_t *dev);
/* How far the kernel reads ahead in a file of the superblock, in KiB. Only once INIT was
 * answered: that cuts it to what the kernel offers there. -EACCES, -EROFS: only root may;
 * -ENOENT: it is gone; -errno. */
int mnt_readahead(uint64_t dev, unsigned kib);
/* Takes the mount at `path` away. 0; 1: it was busy and is detached, which leaves it to those
 * who use it; -errno. */
int mnt_umount(const char *path, struct err *err);

/* Whether a line of /etc/fuse.conf (the text, with a NUL at its end) is user_allow_other. */
bool mnt_conf_allows_other(const char *conf);

#endif
