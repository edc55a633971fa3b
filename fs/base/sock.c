#include "fs/base/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include "fs/base/cleanup.h"

static bool fill(struct sockaddr_un *un, const char *prefix, const char *name)
{
	*un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	int n = snprintf(un->sun_path, sizeof(un->sun_path), "%s%s", prefix, name);
	return n >= 0 && (size_t)n < sizeof(un->sun_path);
}

int sock_address(struct sockaddr_un *un, const char *path, int *dirfd, struct err *err)
{
	struct sockaddr_un at;
	auto_fd fd = -1;
	if (!fill(&at, "", path)) {
		const char *slash = strrchr(path, '/');
		if (!slash)
			return err_sys(err, -ENAMETOOLONG, "socket %s", path);
		auto_free char *dir = strndup(path, (size_t)(slash - path) + 1);
		if (!dir)
			return err_sys(err, -ENOMEM, "socket %s", path);
		fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			return err_sys(err, -errno, "open %s", dir);
		char prefix[32];
		(void)snprintf(prefix, sizeof(prefix), "/proc/self/fd/%d/", fd);
		if (!fill(&at, prefix, slash + 1))
			return err_sys(err, -ENAMETOOLONG, "socket %s", path);
	}
	*un = at;
	*dirfd = steal_fd(&fd);
	return 0;
}

int sock_connect(const char *path, int type, struct err *err)
{
	struct sockaddr_un un;
	auto_fd dir = -1;
	int r = sock_address(&un, path, &dir, err);
	if (r < 0)
		return r;
	auto_fd fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_sys(err, -errno, "socket");
	do
		r = connect(fd, (const struct sockaddr *)&un, sizeof(un));
	while (r < 0 && errno == EINTR);
	return r < 0 ? err_sys(err, -errno, "connect to %s", path) : steal_fd(&fd);
}
