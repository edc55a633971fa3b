#include "snapd/files_remove.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/cleanup.h"

enum {
	DEPTH = 32,   /* descriptors */
	ROUNDS = 100, /* of finding that something was made in it meanwhile */
};

/* Directories on the way down, each open for reading. */
struct removal {
	int top_dir; /* where the topmost is */
	DIR *level[DEPTH];
	char name[DEPTH][NAME_MAX + 1];
	unsigned depth;
	unsigned long lifted; /* directories that were moved up, to give them names */
	unsigned rounds;
};

static int enter(struct removal *rm, int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		int r = -errno;
		cleanup_close(&fd);
		return r;
	}
	(void)snprintf(rm->name[rm->depth], sizeof(rm->name[0]), "%s", name);
	rm->level[rm->depth++] = d;
	return 0;
}

/* What is too deep is moved to the topmost one, and found there later. */
static int lift(struct removal *rm, int at, const char *name)
{
	char to[64];
	for (int tries = 0; tries < ROUNDS; tries++) {
		(void)snprintf(to, sizeof(to), ".bough-rm-%d-%lu", (int)getpid(), rm->lifted++);
		if (renameat2(at, name, dirfd(rm->level[0]), to, RENAME_NOREPLACE) == 0) {
			rm->rounds = 0; /* the topmost one is gone through again for it */
			return 0;
		}
		if (errno != EEXIST)
			return -errno;
	}
	return -EEXIST;
}

static int remove_entry(struct removal *rm, int at, const char *name)
{
	if (unlinkat(at, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	if (unlinkat(at, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (errno != ENOTEMPTY && errno != EEXIST)
		return -errno;
	int r = rm->depth < DEPTH ? enter(rm, at, name) : lift(rm, at, name);
	return r == -ENOENT || r == -ENOTDIR ? 0 : r;
}

/* Nothing more is found in the innermost one: it goes, or is gone through once more. */
static int leave(struct removal *rm)
{
	unsigned i = rm->depth - 1;
	int above = i > 0 ? dirfd(rm->level[i - 1]) : rm->top_dir;
	if (unlinkat(above, rm->name[i], AT_REMOVEDIR) < 0 && errno != ENOENT) {
		if ((errno != ENOTEMPTY && errno != EEXIST) || ++rm->rounds > ROUNDS)
			return -errno;
		rewinddir(rm->level[i]);
		return 0;
	}
	(void)closedir(rm->level[i]);
	rm->depth--;
	return 0;
}

int files_remove(int dir, const char *name)
{
	struct removal rm = { .top_dir = dir };
	int r = enter(&rm, dir, name);
	while (r == 0 && rm.depth > 0) {
		DIR *d = rm.level[rm.depth - 1];
		errno = 0;
		const struct dirent *e = readdir(d);
		if (!e && errno)
			r = -errno;
		else if (!e)
			r = leave(&rm);
		else if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = remove_entry(&rm, dirfd(d), e->d_name);
	}
	while (rm.depth > 0)
		(void)closedir(rm.level[--rm.depth]);
	return r;
}
