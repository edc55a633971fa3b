/* Where the files of a request lie: a workspace's mount, as boughd sees it, or a sealed stack that
 * is read without one (a snapshot, a workspace that isn't mounted).
 *
 * Paths are those of web_target_tail: "" is the root, "a/b" a file below it. On a mount they are
 * resolved by openat2 beneath its root, without links and other mounts; what is found is looked at
 * before it is opened, so that no fifo holds up anybody.
 *
 * Errors are the API's: -ENOENT, -ELOOP (a link in the path), -EUNATCH (not mounted), … */
#ifndef BOUGH_SNAPD_FILES_PLACE_H
#define BOUGH_SNAPD_FILES_PLACE_H

#include <sys/stat.h>
#include "fs/work/version.h"
#include "snapd/snapd.h"

struct place {
	struct snapd *sd;
	struct source src; /* leased while there is a view */
	int root;          /* the mount; -1: none */
	bool has_view;
	struct view view;
};
#define auto_place __attribute__((cleanup(place_done))) struct place

enum place_use {
	PLACE_READ,   /* the mount where there is one */
	PLACE_SEALED, /* one moment of it: always a view */
	PLACE_WRITE,  /* the mount, or -EUNATCH */
};
int place_open(struct place *out, struct snapd *sd, const char *key, bool is_snap,
	       enum place_use use, struct err *err);
void place_done(struct place *p);

/* What a path leads to; a link is found itself. */
struct found {
	int fd; /* O_PATH on the mount; -1: a view's */
	uint64_t ino;
	mode_t mode;
	uint64_t size;
	uid_t uid;
	gid_t gid;
	struct timespec mtime;
	struct timespec btime; /* 0: not looked at */
	struct version_id version;
};
#define auto_found __attribute__((cleanup(found_done))) struct found
int place_find(const struct place *p, const char *path, struct found *out, struct err *err);
/* The same of a view. */
int place_find_in(const struct view *v, const char *path, struct found *out, struct err *err);
void found_done(struct found *f);
/* Of a file or directory on a mount: makes fd one that can be read. */
int found_open(struct found *f, struct err *err);
/* Up to n bytes of such a file; 0 behind its end. */
ssize_t place_read(const struct place *p, const struct found *f, void *buf, size_t n, uint64_t off,
		   struct err *err);
/* A link's target, at most PATH_SIZE - 1 bytes, terminated. */
int place_target(const struct place *p, const struct found *f, char out[PATH_SIZE],
		 struct err *err);

/* The directory on the mount that `path` lies in, opened, and its last name, borrowed from path;
 * -EISDIR for the root. With `made`, what is missing is made; *made counts the directories, for
 * place_unmake. */
int place_parent(const struct place *p, const char *path, unsigned *made, int *dir,
		 const char **name, struct err *err);
/* A new directory, opened, which takes after the one that it is made in in its owner; or -errno. */
int place_make_dir(int dir, const char *name, mode_t mode);
/* A new file without a name on the mount, opened to write; or -errno. */
int place_unnamed(const struct place *p);
/* Takes away again so many of the innermost directories above `path` that are empty. */
void place_unmake(const struct place *p, const char *path, unsigned made);

/* On a mount: -EDQUOT, -ENOSPC where so many bytes surely don't fit; *left is how many would. What
 * else has no room is told when it is written. */
int place_room(const struct place *p, uint64_t bytes, uint64_t *left);

/* The errno of a call on a mount as the API's, with `what` and the path told. */
int place_error(struct err *err, int r, const char *what, const char *path);
/* "file", "directory", "symlink", "fifo", "socket", "char", "block" */
const char *place_type(mode_t mode);

#endif
