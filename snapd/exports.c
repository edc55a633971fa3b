#include "snapd/exports.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/hash.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "snapd/names.h"

static const char PART[] = ".part";

static bool is_part(const char *name)
{
	size_t n = strlen(name), k = sizeof(PART) - 1;
	return n > k && strcmp(name + n - k, PART) == 0;
}

/* The owner's folder, opened; with `make` it is made. */
static int open_dir(const struct snapd *sd, const char *owner, bool make, struct err *err)
{
	char hex[2 * OWNER_SIZE + 1], path[PATH_SIZE + sizeof(hex) + 16];
	hex_encode(hex, (const uint8_t *)owner, strlen(owner));
	(void)snprintf(path, sizeof(path), "%s/exports", sd->root);
	if (make && mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "make %s", path);
	(void)snprintf(path, sizeof(path), "%s/exports/%s", sd->root, hex);
	if (make && mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "make %s", path);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return err_set(err, -ENOENT, "no exports of %s", owner);
	return fd < 0 ? err_sys(err, -errno, "open %s", path) : fd;
}

/* The name's id and format. False: it is none of ours. */
static bool parse(const char *name, struct export *out)
{
	const char *dot = strchr(name, '.');
	size_t n = dot ? (size_t)(dot - name) : 0;
	if (n == 0 || n >= sizeof(out->id) || strlen(dot + 1) >= sizeof(out->format))
		return false;
	memcpy(out->id, name, n);
	out->id[n] = 0;
	(void)snprintf(out->format, sizeof(out->format), "%s", dot + 1);
	return id_is(out->id, "ex");
}

static int64_t ns_of(const struct stat *st)
{
	return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

/* ---- what is there ---- */

struct walk {
	int (*fn)(void *ctx, int dir, const char *name, const struct stat *st);
	void *ctx;
};

/* Takes the descriptor over. */
static int walk_dir(int fd, const struct walk *w)
{
	auto_dir *dir = fdopendir(fd);
	const struct dirent *d;
	int r = 0;
	if (!dir) {
		r = -errno;
		(void)close(fd);
		return r;
	}
	while (r == 0 && (d = readdir(dir))) {
		struct stat st;
		if (fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode))
			r = w->fn(w->ctx, dirfd(dir), d->d_name, &st);
	}
	return r;
}

static int walk_owner(struct snapd *sd, const char *owner, const struct walk *w, struct err *err)
{
	struct err why = { 0 };
	int fd = open_dir(sd, owner, false, &why);
	if (fd == -ENOENT)
		return 0;
	if (fd < 0)
		return err_set(err, fd, "%s", why.text);
	int r = walk_dir(fd, w);
	return r < 0 ? err_sys(err, r, "list exports") : r;
}

struct each {
	int (*fn)(void *ctx, const struct export *e);
	void *ctx;
};

static int tell_one(void *ctx, int dir, const char *name, const struct stat *st)
{
	const struct each *e = ctx;
	struct export one = { .bytes = (uint64_t)st->st_size, .created_ns = ns_of(st) };
	return !is_part(name) && parse(name, &one) ? e->fn(e->ctx, &one) : 0;
}

int exports_each(struct snapd *sd, const char *owner,
		 int (*fn)(void *ctx, const struct export *e), void *ctx, struct err *err)
{
	struct each e = { fn, ctx };
	const struct walk w = { tell_one, &e };
	return walk_owner(sd, owner, &w, err);
}

static int add_bytes(void *ctx, int dir, const char *name, const struct stat *st)
{
	*(uint64_t *)ctx += (uint64_t)st->st_size;
	return 0;
}

int exports_bytes(struct snapd *sd, const char *owner, uint64_t *out, struct err *err)
{
	uint64_t sum = 0;
	const struct walk w = { add_bytes, &sum };
	int r = walk_owner(sd, owner, &w, err);
	if (r >= 0)
		*out = sum;
	return r;
}

/* ---- made ---- */

static int count_one(void *ctx, int dir, const char *name, const struct stat *st)
{
	++*(unsigned *)ctx;
	return 0;
}

int export_begin(struct export_file *f, struct snapd *sd, const char *owner, const char *format,
		 struct err *err)
{
	char part[EXPORTS_NAME + sizeof(PART)];
	unsigned have = 0;
	const struct walk w = { count_one, &have };
	*f = (struct export_file){ .dir = -1, .fd = -1 };
	int r = walk_owner(sd, owner, &w, err);
	if (r >= 0 && have >= EXPORTS_MAX)
		r = err_set(err, -EUSERS, "%u exports are kept already: delete some", have);
	if (r < 0)
		return r;
	f->dir = open_dir(sd, owner, true, err);
	if (f->dir < 0)
		return f->dir;
	id_make(f->id, "ex");
	(void)snprintf(f->name, sizeof(f->name), "%s.%s", f->id, format);
	(void)snprintf(part, sizeof(part), "%s%s", f->name, PART);
	f->fd = openat(f->dir, part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return f->fd < 0 ? err_sys(err, -errno, "make an export") : 0;
}

int export_keep(struct export_file *f, struct err *err)
{
	char part[EXPORTS_NAME + sizeof(PART)];
	(void)snprintf(part, sizeof(part), "%s%s", f->name, PART);
	if (fsync(f->fd) < 0 || renameat(f->dir, part, f->dir, f->name) < 0 || fsync(f->dir) < 0)
		return err_sys(err, -errno, "keep an export");
	cleanup_close(&f->fd);
	f->fd = -1;
	return 0;
}

void export_drop(struct export_file *f)
{
	char part[EXPORTS_NAME + sizeof(PART)];
	(void)snprintf(part, sizeof(part), "%s%s", f->name, PART);
	if (f->fd >= 0)
		(void)unlinkat(f->dir, part, 0); /* or the next start does */
	cleanup_close(&f->fd);
	cleanup_close(&f->dir);
	*f = (struct export_file){ .dir = -1, .fd = -1 };
}

/* ---- found ---- */

struct finding {
	const char *id;
	char name[EXPORTS_NAME];
	struct export e;
};

static int compare(void *ctx, int dir, const char *name, const struct stat *st)
{
	struct finding *f = ctx;
	struct export one = { .bytes = (uint64_t)st->st_size, .created_ns = ns_of(st) };
	if (is_part(name) || !parse(name, &one) || strcmp(one.id, f->id) != 0)
		return 0;
	(void)snprintf(f->name, sizeof(f->name), "%s", name);
	f->e = one;
	return 1;
}

static int find(struct snapd *sd, const char *owner, const char *id, struct finding *f,
		struct err *err)
{
	*f = (struct finding){ .id = id };
	const struct walk w = { compare, f };
	int r = walk_owner(sd, owner, &w, err);
	return r < 0 ? r : r == 0 ? err_set(err, -ENOENT, "no export \"%.100s\"", id) : 0;
}

int export_open(struct snapd *sd, const char *owner, const char *id, struct export *out,
		struct err *err)
{
	struct finding f;
	int r = find(sd, owner, id, &f, err);
	auto_fd dir = r < 0 ? -1 : open_dir(sd, owner, false, err);
	if (r < 0 || dir < 0)
		return r < 0 ? r : dir;
	int fd = openat(dir, f.name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return err_set(err, -ENOENT, "no export \"%.100s\"", id); /* gone meanwhile */
	*out = f.e;
	return fd;
}

int export_delete(struct snapd *sd, const char *owner, const char *id, struct err *err)
{
	struct finding f;
	int r = find(sd, owner, id, &f, err);
	auto_fd dir = r < 0 ? -1 : open_dir(sd, owner, false, err);
	if (r < 0 || dir < 0)
		return r < 0 ? r : dir;
	if (unlinkat(dir, f.name, 0) < 0 && errno != ENOENT)
		return err_sys(err, -errno, "delete an export");
	return 0;
}

/* ---- kept no longer ---- */

struct sweep {
	bool at_start;
	int64_t before_ns;
};

static int sweep_one(void *ctx, int dir, const char *name, const struct stat *st)
{
	const struct sweep *s = ctx;
	bool old = is_part(name) ? s->at_start : ns_of(st) < s->before_ns;
	if (old && unlinkat(dir, name, 0) < 0 && errno != ENOENT)
		log_error("export %s: %s", name, strerror(errno));
	return 0;
}

void exports_sweep(struct snapd *sd, bool at_start)
{
	char path[PATH_SIZE + 16];
	struct sweep s = { at_start, snapd_now_ns() - (int64_t)EXPORTS_KEPT_S * 1000000000 };
	const struct walk w = { sweep_one, &s };
	const struct dirent *d;
	(void)snprintf(path, sizeof(path), "%s/exports", sd->root);
	auto_dir *dir = opendir(path);
	while (dir && (d = readdir(dir))) {
		int fd = d->d_name[0] == '.' ? -1
					     : openat(dirfd(dir), d->d_name,
						      O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0)
			(void)walk_dir(fd, &w); /* what stays is looked at next time */
	}
}
