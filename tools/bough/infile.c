#include "tools/bough/infile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>
#include "fs/base/cleanup.h"

int infile_read(const char *path, size_t max, struct infile *out, struct err *err)
{
	bool in = strcmp(path, "-") == 0;
	auto_fd fd = in ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return err_sys(err, -errno, "open %s", path);
	auto_infile f = { .text = calloc(1, max + 2), .size = max + 2 };
	if (!f.text)
		return err_no_memory(err);
	ssize_t got;
	while (f.len <= max && (got = read(fd, f.text + f.len, max + 1 - f.len)) != 0) {
		if (got < 0 && errno != EINTR)
			return err_sys(err, -errno, "read %s", path);
		f.len += got > 0 ? (size_t)got : 0;
	}
	if (f.len > max)
		return err_set(err, -EINVAL, "%s has more than %zu KiB", path, max >> 10);
	*out = f;
	f = (struct infile){ 0 };
	return 0;
}
