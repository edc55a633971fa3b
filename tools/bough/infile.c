#include "tools/bough/infile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>
#include "fs/base/cleanup.h"

int infile_read(const char *path, size_t max, char **out, size_t *len, struct err *err)
{
	bool in = strcmp(path, "-") == 0;
	auto_fd fd = in ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return err_sys(err, -errno, "open %s", path);
	auto_secret *buf = calloc(1, max + 2);
	if (!buf)
		return err_no_memory(err);
	size_t n = 0;
	ssize_t got;
	while (n <= max && (got = read(fd, buf + n, max + 1 - n)) != 0) {
		if (got < 0 && errno != EINTR)
			return err_sys(err, -errno, "read %s", path);
		n += got > 0 ? (size_t)got : 0;
	}
	if (n > max)
		return err_set(err, -EINVAL, "%s has more than %zu KiB", path, max >> 10);
	*out = steal_ptr(&buf);
	*len = n;
	return 0;
}
