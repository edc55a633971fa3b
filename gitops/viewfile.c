#include "gitops/viewfile.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

int viewfile_at(const struct view *v, uint64_t dir, const char *path, size_t len, struct attr *out)
{
	struct attr a;
	int r = view_inode(v, dir, &a);
	for (const char *end = path + len; path < end && r >= 0;) {
		const char *slash = memchr(path, '/', (size_t)(end - path));
		size_t n = (size_t)((slash ? slash : end) - path);
		struct dirent_ref ref;
		if (!S_ISDIR(a.mode) || n == 0 || n > NAME_MAX_BYTES)
			return -ENOENT;
		r = view_lookup(v, a.ino, path, n, &ref);
		if (r >= 0)
			r = view_inode(v, ref.ino, &a);
		path += n + (slash != NULL);
	}
	if (r < 0)
		return r;
	*out = a;
	return 0;
}

int viewfile_read(struct buf *out, const struct view *v, const struct attr *a, uint64_t max,
		  struct err *err)
{
	if (!S_ISREG(a->mode) && !S_ISLNK(a->mode))
		return err_set(err, -EINVAL, "inode %llu is no file", (unsigned long long)a->ino);
	if (a->size > max)
		return err_set(err, -EFBIG, "inode %llu is too large", (unsigned long long)a->ino);
	size_t n = S_ISLNK(a->mode) ? PATH_MAX : (size_t)a->size, got = 0;
	uint8_t *p = buf_room(out, n + 1);
	if (!p)
		return err_no_memory(err);
	if (S_ISLNK(a->mode)) {
		int r = view_target(v, a->ino, (char *)p, n, &got);
		if (r < 0)
			return err_sys(err, r, "read a link");
	}
	while (S_ISREG(a->mode) && got < n) {
		ssize_t k = view_read(v, a->ino, p + got, n - got, got, err);
		if (k < 0)
			return (int)k;
		if (k == 0)
			break;
		got += (size_t)k;
	}
	out->len += got;
	return 0;
}

int viewfile_named(struct buf *out, const struct view *v, uint64_t dir, const char *name,
		   uint64_t max, struct err *err)
{
	struct attr a;
	int r = viewfile_at(v, dir, name, strlen(name), &a);
	if (r == -ENOENT || (r >= 0 && (!S_ISREG(a.mode) || a.size > max)))
		return 0;
	if (r < 0)
		return err_sys(err, r, "look at %s", name);
	r = viewfile_read(out, v, &a, max, err);
	return r < 0 ? err_prefix(err, r, "read %s", name) : 1;
}
