/* Paths in a root that hostile programs fill and change meanwhile: every link of it leads to
 * somewhere in it, /proc's magic ones nowhere. Source: openat2(2), RESOLVE_IN_ROOT. */
#ifndef BOUGH_RUNTIME_INROOT_H
#define BOUGH_RUNTIME_INROOT_H

/* A regular file for reading; others are never opened: -EINVAL. A descriptor, or -errno. */
int inroot_open_file(int root, const char *path);
/* A folder as an O_PATH descriptor. -ENOTDIR, -ELOOP, ... as openat2. */
int inroot_open_dir(int root, const char *path);
/* The same; missing ones are made on the way, mode 0755, owner the caller. */
int inroot_make_dir(int root, const char *path);
/* Removes what is there where it is a link whose text begins with `to`. */
void inroot_remove_link(int root, const char *path, const char *to);

#endif
