/* Users and groups as an image has them: /etc/passwd and /etc/group of a root that nobody trusts.
 *
 * The files are opened in the root whatever links are in it, and at most USER_FILE_MAX bytes are
 * looked at; lines that aren't in order are passed over. */
#ifndef BOUGH_RUNTIME_USER_H
#define BOUGH_RUNTIME_USER_H

#include <stddef.h>
#include <stdint.h>
#include "fs/base/err.h"

enum {
	USER_FILE_MAX = 1 << 20, /* bytes of passwd, and of group */
	USER_GROUPS_MAX = 64,    /* groups beside the first */
	USER_HOME_MAX = 256,
	USER_NAME_MAX = 64, /* bytes of "name:group" is twice that */
};

struct user {
	uint32_t uid, gid;
	uint32_t groups[USER_GROUPS_MAX];
	size_t n_groups;
	char home[USER_HOME_MAX]; /* absolute; "/" where none is known */
};

/* who: "name", "uid", "name:group", "uid:gid"; NULL or "": root. A number needs no entry: its group
 * is 0 then. Ids are below `limit`. Other groups are those that list the user, unless a group is
 * given. -EINVAL: no such user or group, or a wrong word. */
int user_find(struct user *out, const char *passwd, size_t passwd_len, const char *group,
	      size_t group_len, const char *who, uint32_t limit, struct err *err);
/* The same, with the files of the folder `root` (a descriptor). */
int user_lookup(struct user *out, int root, const char *who, uint32_t limit, struct err *err);

#endif
