#include "tools/pack/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/array.h"
#include "fs/base/cleanup.h"

enum { READ_BYTES = 64 * 1024 };

struct walk_level {
	int fd; /* -1: closed for the time being (only the top one never is) */
	dev_t dev;
	ino_t ino;
	struct buf text; /* the names, each terminated */
	const char **names;
	size_t n, next;
	size_t path_len; /* of the folder's own path */
};

static void level_done(struct walk_level *l)
{
	cleanup_close(&l->fd);
	buf_done(&l->text);
	free(l->names);
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted, once all of them are there and the text doesn't move any more. */
static int names_sort(struct walk_level *l)
{
	l->names = calloc(l->n + 1, sizeof(char *));
	if (!l->names)
		return -ENOMEM;
	const char *p = (const char *)l->text.data;
	for (size_t i = 0; i < l->n; i++, p += strlen(p) + 1)
		l->names[i] = p;
	qsort(l->names, l->n, sizeof(char *), by_bytes);
	return 0;
}

static int names_read(struct walk_level *l)
{
	auto_free uint8_t *block = malloc(READ_BYTES);
	if (!block)
		return -ENOMEM;
	for (;;) {
		ssize_t got = getdents64(l->fd, block, READ_BYTES);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		for (ssize_t at = 0; at < got;) {
			const struct dirent64 *d = (const struct dirent64 *)(block + at);
			at += d->d_reclen;
			if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
				continue;
			buf_add(&l->text, d->d_name, strlen(d->d_name) + 1);
			l->n++;
		}
		if (buf_error(&l->text) < 0)
			return -ENOMEM;
	}
	return names_sort(l);
}

/* Without touching its atime where that is allowed. */
static int open_dir(int dirfd, const char *name, int flags)
{
	flags |= O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	int fd = openat(dirfd, name, flags | O_NOATIME);
	if (fd < 0 && errno == EPERM)
		fd = openat(dirfd, name, flags);
	return fd < 0 ? -errno : fd;
}

int walk_open(struct walk *w, const char *dir, struct err *err)
{
	*w = (struct walk){ .fd = open_dir(AT_FDCWD, dir, 0) };
	if (w->fd < 0)
		return err_sys(err, w->fd, "open %s", dir);
	buf_add(&w->path, ".", 2);
	if (buf_error(&w->path) < 0) {
		walk_close(w);
		return err_no_memory(err);
	}
	return 0;
}

void walk_close(struct walk *w)
{
	cleanup_close(&w->fd);
	for (size_t i = 0; i < w->depth; i++)
		level_done(&w->levels[i]);
	free(w->levels);
	buf_done(&w->path);
	*w = (struct walk){ .fd = -1 };
}

/* ---- folders that were closed on the way down ---- */

static bool is_level(int fd, const struct walk_level *l)
{
	struct stat st;
	return fstat(fd, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino;
}

/* Goes down from the top by the names on the path. */
static int reopen_by_names(struct walk *w, size_t depth)
{
	auto_fd fd = -1;
	for (size_t i = 1; i <= depth; i++) {
		struct walk_level *above = &w->levels[i - 1], *l = &w->levels[i];
		char name[NAME_MAX + 1];
		size_t len = l->path_len - above->path_len - 1;
		if (len > NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(name, w->path.data + above->path_len + 1, len);
		name[len] = '\0';
		int next = open_dir(i == 1 ? above->fd : fd, name, O_NOFOLLOW);
		if (next < 0)
			return next;
		cleanup_close(&fd);
		fd = next;
		if (!is_level(fd, l))
			return -ESTALE;
	}
	return steal_fd(&fd);
}

/* Opens the level at `depth` once more, from the one below it or else from the top. */
static int reopen(struct walk *w, size_t depth, int below)
{
	auto_fd fd = below >= 0 ? open_dir(below, "..", 0) : -1;
	if (fd >= 0 && is_level(fd, &w->levels[depth]))
		return steal_fd(&fd);
	return reopen_by_names(w, depth);
}

/* Leaves the present level. -errno: the one above can't be opened again; what is left in it
 * is given up. */
static int leave(struct walk *w)
{
	struct walk_level *l = &w->levels[w->depth - 1];
	int r = 0;
	if (w->depth > 1 && l[-1].fd < 0 && l[-1].next < l[-1].n) {
		r = reopen(w, w->depth - 2, l->fd);
		if (r >= 0) {
			l[-1].fd = r;
			r = 0;
		} else {
			l[-1].next = l[-1].n;
		}
	}
	level_done(l);
	w->depth--;
	if (w->depth > 0) {
		w->path.len = w->levels[w->depth - 1].path_len;
		buf_u8(&w->path, 0);
	}
	return r;
}

/* ---- steps ---- */

static int give(struct walk *w, struct walk_entry *out, int dirfd, const char *name)
{
	*out = (struct walk_entry){
		.path = (const char *)w->path.data,
		.name = name,
		.dirfd = dirfd,
		.fd = -1,
	};
	if (fstatat(dirfd, name, &out->st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISDIR(out->st.st_mode))
		return 1;
	w->fd = open_dir(dirfd, name, O_NOFOLLOW);
	if (w->fd < 0)
		return w->fd;
	out->fd = w->fd;
	/* What is open counts, should another folder have come in its place. */
	return fstat(w->fd, &out->st) < 0 ? -errno : 1;
}

static int give_top(struct walk *w, struct walk_entry *out)
{
	*out = (struct walk_entry){ .path = ".", .name = ".", .dirfd = w->fd, .fd = w->fd };
	w->started = true;
	return fstat(w->fd, &out->st) < 0 ? -errno : 1;
}

int walk_next(struct walk *w, struct walk_entry *out)
{
	if (!w->started)
		return give_top(w, out);
	cleanup_close(&w->fd);
	w->fd = -1;
	while (w->depth > 0) {
		struct walk_level *l = &w->levels[w->depth - 1];
		if (l->next < l->n) {
			const char *name = l->names[l->next++];
			w->path.len = l->path_len;
			buf_u8(&w->path, '/');
			buf_add(&w->path, name, strlen(name) + 1);
			if (buf_error(&w->path) < 0)
				return -ENOMEM;
			return give(w, out, l->fd, name);
		}
		int r = leave(w);
		if (r < 0) {
			*out = (struct walk_entry){ .path = (const char *)w->path.data, .fd = -1 };
			return buf_error(&w->path) < 0 ? -ENOMEM : r;
		}
	}
	return 0;
}

int walk_enter(struct walk *w)
{
	if (array_grow(&w->levels, w->depth, &w->cap) < 0)
		return -ENOMEM;
	struct stat st;
	if (fstat(w->fd, &st) < 0)
		return -errno;
	struct walk_level l = {
		.fd = steal_fd(&w->fd),
		.dev = st.st_dev,
		.ino = st.st_ino,
		.path_len = w->path.len - 1,
	};
	int r = names_read(&l);
	if (r < 0) {
		level_done(&l);
		return r;
	}
	/* The top folder stays open, so that there is always a way back. */
	if (w->depth > WALK_FDS) {
		cleanup_close(&w->levels[w->depth - WALK_FDS].fd);
		w->levels[w->depth - WALK_FDS].fd = -1;
	}
	w->levels[w->depth++] = l;
	return 0;
}
