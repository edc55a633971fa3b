#include "runtime/inroot.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "fs/base/cleanup.h"

enum {
	TRIES = 64,  /* of one lookup that renames elsewhere in the tree disturb */
	ROUNDS = 64, /* folders that come and go while they are made */
};

static int open_in(int root, const char *path, uint64_t flags)
{
	struct open_how how = { .flags = flags | O_CLOEXEC,
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	int fd;
	for (int i = 0; i < TRIES; i++) {
		fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
		if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
			break;
	}
	return fd < 0 ? -errno : fd;
}

int inroot_open_file(int root, const char *path)
{
	/* Looked at before it is opened: a fifo would wait, a device do what it does. */
	auto_fd at = open_in(root, path, O_PATH);
	struct stat st;
	char self[40];
	if (at < 0)
		return at;
	if (fstat(at, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", at);
	int fd = open(self, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

/* Makes the first folder of the path that is missing. 0: one was made, or somebody else did. */
static int make_first(int root, const char *path)
{
	char part[PATH_MAX];
	size_t len = strlen(path);
	auto_fd parent = -1;
	for (size_t end = 0; end < len;) {
		size_t from = end + strspn(path + end, "/");
		end = from + strcspn(path + from, "/");
		if (end == from)
			break;
		memcpy(part, path, end);
		part[end] = '\0';
		auto_fd fd = open_in(root, part, O_PATH);
		if (fd >= 0)
			continue;
		if (fd != -ENOENT)
			return fd;
		part[from] = '\0';
		parent = open_in(root, from ? part : ".", O_PATH | O_DIRECTORY);
		if (parent < 0)
			return parent;
		memcpy(part, path + from, end - from);
		part[end - from] = '\0';
		if (strcmp(part, "..") == 0 || strcmp(part, ".") == 0)
			return -EINVAL;
		if (mkdirat(parent, part, 0755) == 0)
			/* The mask of the process isn't what is meant. */
			return fchmodat(parent, part, 0755, 0) < 0 ? -errno : 0;
		/* A link that leads nowhere is no place for a mount point. */
		struct stat st;
		if (errno == EEXIST && fstatat(parent, part, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISLNK(st.st_mode))
			return -ENOENT;
		return errno == EEXIST ? 0 : -errno;
	}
	return 0;
}

int inroot_open_dir(int root, const char *path)
{
	return open_in(root, path, O_PATH | O_DIRECTORY);
}

int inroot_make_dir(int root, const char *path)
{
	if (strlen(path) >= PATH_MAX)
		return -ENAMETOOLONG;
	for (int i = 0; i < ROUNDS; i++) {
		int fd = inroot_open_dir(root, path);
		if (fd != -ENOENT)
			return fd;
		int r = make_first(root, path);
		if (r < 0)
			return r;
	}
	return -EAGAIN;
}

void inroot_remove_link(int root, const char *path, const char *to)
{
	char holder[PATH_MAX], text[PATH_MAX];
	const char *name = strrchr(path, '/');
	size_t n = name ? (size_t)(name - path) : 0;
	if (!name || n >= sizeof(holder))
		return;
	(void)snprintf(holder, sizeof(holder), "%.*s", (int)n, path);
	auto_fd at = inroot_open_dir(root, n ? holder : "/");
	ssize_t len = at < 0 ? -1 : readlinkat(at, name + 1, text, sizeof(text));
	if (len >= (ssize_t)strlen(to) && memcmp(text, to, strlen(to)) == 0)
		(void)unlinkat(at, name + 1, 0); /* who needs the place says why it is none */
}
