#include "snapd/archive_extract.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/work/batch.h"
#include "snapd/archive_tree.h"

enum {
	DIR_TIMES_MAX = 64 << 20, /* bytes of the list of directories: a million of them */
};

/* A file of an atomic extraction: what has its name in the end. */
struct staged {
	int fd;
	size_t path; /* place in staging.paths */
};
struct staging {
	struct buf ops; /* batch.h */
	struct staged *v;
	size_t n, cap, max;
	struct buf paths;
	size_t count; /* of operations */
};

struct extract {
	const struct place *place;
	bool top; /* as in the options */
	struct staging *staging; /* NULL: each member as it comes */
	struct err *err;
	struct archive_reader rd;
	struct archive_extract_stats st;
	struct buf base;      /* the directory's path, with a '/' behind it unless it is the root */
	struct buf path;      /* base and the member's, terminated */
	struct buf dir_times; /* struct timespec, path, NUL; … */
	/* The directory of the last member, open, since the next is mostly in it, too. */
	struct buf dir;
	int dir_fd;
};

static int out_of_memory(struct extract *x)
{
	return err_set(x->err, -ENOMEM, "out of memory");
}

/* The path of a member: checked, without "." and doubled '/', below the base. */
static int set_path(struct extract *x, const char *member, const char *what)
{
	const char *p = member, *name;
	size_t len;
	int r = archive_path_check(member, what, x->err);
	if (r < 0)
		return r;
	buf_reset(&x->path);
	buf_add(&x->path, x->base.data, x->base.len);
	for (bool first = true; archive_component(&p, &name, &len); first = false) {
		if (!first)
			buf_u8(&x->path, '/');
		buf_add(&x->path, name, len);
	}
	if (x->path.len > 0 && x->path.data[x->path.len - 1] == '/')
		x->path.len--; /* the base itself */
	buf_u8(&x->path, 0);
	if (buf_error(&x->path))
		return out_of_memory(x);
	if (x->path.len > PATH_MAX)
		return err_set(x->err, -EBADMSG, "'%s': a %s above %d bytes", SHOW(member), what,
			       PATH_MAX - 1);
	return 0;
}

static const char *path_of(const struct extract *x)
{
	return (const char *)x->path.data;
}

static int failed(struct extract *x, int r, const char *what)
{
	if (r == -ELOOP || r == -ENOTDIR)
		return err_set(x->err, -EBADMSG, "'%s': it lies below what is no folder",
			       SHOW(path_of(x)));
	return place_error(x->err, r, what, path_of(x));
}

/* The open directory that the path is in, missing ones made; borrowed. And the last name. */
static int parent(struct extract *x, const char **name)
{
	const char *path = path_of(x), *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;
	unsigned made = 0;
	if (x->dir_fd >= 0 && len == x->dir.len && (len == 0 || !memcmp(path, x->dir.data, len))) {
		*name = slash ? slash + 1 : path;
		return x->dir_fd;
	}
	struct err why = { 0 };
	int fd = -1;
	int r = place_parent(x->place, path, &made, &fd, name, &why);
	if (r < 0 && (r == -ELOOP || r == -ENOTDIR))
		return failed(x, r, "");
	if (r < 0) {
		*x->err = why;
		return r;
	}
	cleanup_close(&x->dir_fd);
	x->dir_fd = fd;
	buf_reset(&x->dir);
	buf_add(&x->dir, path, len);
	return buf_error(&x->dir) ? out_of_memory(x) : fd;
}

/* What has the name gives way, unless it is a directory. */
static int make_way(struct extract *x, int dir, const char *name)
{
	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno == EISDIR || errno == EPERM)
		return err_set(x->err, -ENOTUNIQ, "'%s': a folder is in its place",
			       SHOW(path_of(x)));
	return failed(x, -errno, "replace");
}

/* ---- attributes ---- */

struct xattr_to {
	struct extract *x;
	int fd;
};

static int add_xattr(void *ctx, const char *name, const void *value, size_t len)
{
	struct xattr_to *to = ctx;
	if (fsetxattr(to->fd, name, value, len, 0) == 0)
		return 0;
	if (errno != EPERM && errno != EOPNOTSUPP)
		return failed(to->x, -errno, "set an xattr of");
	to->x->st.ignored_xattrs++;
	return 0;
}

/* Of an open file or directory; the times last. */
static int set_attributes(struct extract *x, struct archive_entry *e, int fd, const struct attr *a)
{
	struct xattr_to to = { x, fd };
	const struct timespec times[2] = { a->atime, a->mtime };
	if (geteuid() == 0 && fchown(fd, a->uid, a->gid) < 0)
		return failed(x, -errno, "give its owner to");
	if (fchmod(fd, a->mode & 07777) < 0)
		return failed(x, -errno, "set the mode of");
	int r = archive_reader_xattrs(&x->rd, e, add_xattr, &to);
	if (r == 0 && futimens(fd, times) < 0)
		r = failed(x, -errno, "set the times of");
	return r;
}

/* Of what isn't opened: links, fifos, devices. */
static int set_special(struct extract *x, int dir, const char *name, const struct attr *a)
{
	const struct timespec times[2] = { a->atime, a->mtime };
	if (geteuid() == 0 && fchownat(dir, name, a->uid, a->gid, AT_SYMLINK_NOFOLLOW) < 0)
		return failed(x, -errno, "give its owner to");
	if (!S_ISLNK(a->mode) && fchmodat(dir, name, a->mode & 07777, AT_SYMLINK_NOFOLLOW) < 0 &&
	    errno != EOPNOTSUPP)
		return failed(x, -errno, "set the mode of");
	return utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) < 0
		       ? failed(x, -errno, "set the times of")
		       : 0;
}

/* ---- directories ---- */

static int remember_times(struct extract *x, const struct attr *a)
{
	if (x->dir_times.len + sizeof(a->mtime) + x->path.len > DIR_TIMES_MAX)
		return err_set(x->err, -EFBIG, "the archive has too many folders");
	buf_add(&x->dir_times, &a->mtime, sizeof(a->mtime));
	buf_add(&x->dir_times, x->path.data, x->path.len);
	return buf_error(&x->dir_times) ? out_of_memory(x) : 0;
}

/* What was put into them has changed them. */
static int set_dir_times(struct extract *x)
{
	const uint8_t *p = x->dir_times.data, *end = p + x->dir_times.len;
	while (x->dir_times.len > 0 && p < end) {
		struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };
		auto_found f = { .fd = -1 };
		memcpy(&times[1], p, sizeof(times[1]));
		const char *path = (const char *)p + sizeof(times[1]);
		p += sizeof(times[1]) + strlen(path) + 1;
		if (place_find(x->place, path, &f, NULL) < 0 || !S_ISDIR(f.mode))
			continue; /* somebody else has taken it away */
		int r = found_open(&f, x->err);
		if (r == 0 && futimens(f.fd, times) < 0)
			r = place_error(x->err, -errno, "set the times of", path);
		if (r < 0)
			return r;
	}
	return 0;
}

static int put_dir(struct extract *x, struct archive_entry *e, const struct attr *a)
{
	const char *name;
	auto_found f = { .fd = -1 };
	auto_fd made = -1;
	struct err why = { 0 };
	int r = place_find(x->place, path_of(x), &f, &why);
	if (r == 0 && !S_ISDIR(f.mode))
		return err_set(x->err, -ENOTUNIQ, "'%s': a %s is in its place", SHOW(path_of(x)),
			       place_type(f.mode));
	if (r == -ENOENT) {
		int dir = parent(x, &name);
		if (dir < 0)
			return dir;
		made = place_make_dir(dir, name, 0700);
		r = made < 0 ? failed(x, made, "make") : 0;
	} else if (r == 0) {
		r = found_open(&f, x->err);
	} else {
		return r == -ELOOP ? failed(x, r, "") : err_set(x->err, r, "%s", why.text);
	}
	if (r == 0)
		r = set_attributes(x, e, made >= 0 ? made : f.fd, a);
	return r < 0 ? r : remember_times(x, a);
}

/* ---- files ---- */

static int write_at(struct extract *x, int fd, const uint8_t *p, size_t n, uint64_t off)
{
	while (n > 0) {
		ssize_t w = pwrite(fd, p, n, (off_t)off);
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return failed(x, -errno, "write");
		p += w;
		n -= (size_t)w;
		off += (uint64_t)w;
		x->st.bytes += (uint64_t)w;
	}
	return 0;
}

static int write_content(struct extract *x, struct archive_entry *e, int fd)
{
	uint64_t end = 0;
	int r = 0;
	while (r == 0) {
		const void *data;
		size_t n;
		la_int64_t off;
		int got = archive_read_data_block(x->rd.a, &data, &n, &off);
		if (got == ARCHIVE_EOF)
			break;
		if (got != ARCHIVE_OK)
			return archive_reader_error(&x->rd, SHOW(path_of(x)));
		if (off < 0)
			return archive_reader_refuse(&x->rd, path_of(x),
						     "its parts are out of order");
		r = write_at(x, fd, data, n, (uint64_t)off);
		end = n > 0 ? (uint64_t)off + n : end;
	}
	uint64_t size = archive_entry_size_is_set(e) && archive_entry_size(e) >= 0
				? (uint64_t)archive_entry_size(e)
				: end;
	if (r == 0 && size != end && ftruncate(fd, (off_t)size) < 0) /* it ends in a hole */
		r = failed(x, -errno, "write");
	return r;
}

static int name_file(struct extract *x, int fd, int dir, const char *name)
{
	struct stat file, at;
	struct fs_named named;
	if (fstat(fd, &file) < 0 || fstat(dir, &at) < 0)
		return failed(x, -errno, "look at");
	const struct ws_put want = { .dir = at.st_ino,
				     .name = name,
				     .len = strlen(name),
				     .file = file.st_ino,
				     .as_is = true };
	return fs_put(x->place->sd->fs, x->place->src.ws.id, &want, &named, x->err);
}

static int put_file(struct extract *x, struct archive_entry *e, const struct attr *a)
{
	const char *name;
	int dir = parent(x, &name);
	if (dir < 0)
		return dir;
	auto_fd fd = place_unnamed(x->place);
	int r = fd < 0 ? failed(x, fd, "make") : write_content(x, e, fd);
	if (r == 0)
		r = set_attributes(x, e, fd, a);
	if (r == 0)
		r = name_file(x, fd, dir, name);
	if (r == -ELOOP) { /* a link or a special: it goes first */
		r = make_way(x, dir, name);
		if (r == 0)
			r = name_file(x, fd, dir, name);
	}
	if (r == -EISDIR)
		return err_set(x->err, -ENOTUNIQ, "'%s': a folder is in its place",
			       SHOW(path_of(x)));
	if (r == -ENOENT || r == -ESTALE || r == -EINVAL)
		return err_set(x->err, -ENOTUNIQ, "'%s': its folder was removed meanwhile",
			       SHOW(path_of(x)));
	return r;
}

/* ---- staged ---- */

static struct batch_op op_of(const struct extract *x, enum batch_kind kind, const struct attr *a)
{
	bool root = geteuid() == 0;
	struct batch_op o = {
		.kind = kind,
		.flags = BATCH_PARENTS | BATCH_REPLACE,
		.path = path_of(x),
		.path_len = strlen(path_of(x)),
	};
	if (!a)
		return o;
	o.flags |= BATCH_AS_IS;
	o.uid = root ? a->uid : geteuid();
	o.gid = root ? a->gid : getegid();
	o.rdev = a->rdev;
	o.atime = a->atime;
	o.mtime = a->mtime;
	o.mode = kind == BATCH_MAKE ? a->mode & (S_IFMT | 07777) : 0;
	return o;
}

static int stage(struct extract *x, const struct batch_op *o)
{
	struct staging *s = x->staging;
	if (++s->count > BATCH_OPS_MAX || s->ops.len > BATCH_BYTES_MAX - (1 << 21))
		return err_set(x->err, -EFBIG, "the archive has too many members for one step");
	batch_encode(&s->ops, o, NULL);
	return buf_error(&s->ops) ? out_of_memory(x) : 0;
}

static int stage_file(struct extract *x, struct archive_entry *e, const struct attr *a)
{
	struct staging *s = x->staging;
	struct batch_op o = op_of(x, BATCH_PUT, a);
	struct stat st;
	if (s->n >= s->max)
		return err_set(x->err, -EFBIG, "the archive has more than %zu files, which is the "
			       "most for one step", s->max);
	if (array_grow(&s->v, s->n, &s->cap) < 0)
		return out_of_memory(x);
	int fd = place_unnamed(x->place);
	if (fd < 0)
		return failed(x, fd, "make");
	s->v[s->n++] = (struct staged){ fd, s->paths.len };
	buf_add(&s->paths, o.path, o.path_len + 1);
	int r = buf_error(&s->paths) ? out_of_memory(x) : write_content(x, e, fd);
	if (r == 0)
		r = set_attributes(x, e, fd, a);
	if (r == 0 && fstat(fd, &st) < 0)
		r = failed(x, -errno, "look at");
	o.file = r == 0 ? st.st_ino : 0;
	return r < 0 ? r : stage(x, &o);
}

struct xattrs_of {
	struct extract *x;
	struct buf b;
};

static int stage_xattr(void *ctx, const char *name, const void *value, size_t len)
{
	struct xattrs_of *t = ctx;
	if (geteuid() != 0 && strncmp(name, "user.", 5) != 0) {
		t->x->st.ignored_xattrs++;
		return 0;
	}
	if (t->b.len + len > BATCH_XATTRS_MAX - 512)
		return err_set(t->x->err, -EFBIG, "'%s': too many xattrs", SHOW(path_of(t->x)));
	batch_encode_xattr(&t->b, name, value, len);
	return buf_error(&t->b) ? out_of_memory(t->x) : 0;
}

/* Anything but a file. */
static int stage_other(struct extract *x, struct archive_entry *e, const struct attr *a)
{
	struct batch_op o = op_of(x, BATCH_MAKE, a);
	struct xattrs_of xattrs = { .x = x };
	const char *target = S_ISLNK(a->mode) ? archive_entry_symlink(e) : NULL;
	o.flags |= S_ISDIR(a->mode) ? BATCH_OLD_FOLDER | BATCH_RESET : 0;
	o.other = target;
	o.other_len = target ? strlen(target) : 0;
	if (S_ISLNK(a->mode) && (o.other_len == 0 || o.other_len > ARCHIVE_TARGET_MAX))
		return archive_reader_refuse(&x->rd, path_of(x),
					     "a symlink whose target is empty or too long");
	if ((S_ISCHR(a->mode) || S_ISBLK(a->mode)) && geteuid() != 0)
		return failed(x, -EPERM, "make");
	int r = S_ISDIR(a->mode) ? archive_reader_xattrs(&x->rd, e, stage_xattr, &xattrs) : 0;
	o.xattrs = xattrs.b.data;
	o.xattrs_len = xattrs.b.len;
	if (r == 0)
		r = stage(x, &o);
	buf_done(&xattrs.b);
	return r;
}

/* The content that comes with one of several names is that of the file that was staged. */
static int stage_linked_content(struct extract *x, struct archive_entry *e, const char *target)
{
	struct staging *s = x->staging;
	struct stat st;
	if (!archive_entry_size_is_set(e) || archive_entry_size(e) <= 0)
		return 0;
	for (size_t i = s->n; i-- > 0;) {
		if (strcmp((const char *)s->paths.data + s->v[i].path, target) != 0)
			continue;
		if (fstat(s->v[i].fd, &st) < 0)
			return failed(x, -errno, "look at");
		const struct timespec times[2] = { st.st_atim, st.st_mtim };
		int r = write_content(x, e, s->v[i].fd);
		if (r == 0 && futimens(s->v[i].fd, times) < 0)
			r = failed(x, -errno, "set the times of");
		return r;
	}
	return archive_reader_refuse(&x->rd, archive_entry_pathname(e),
				     "content for a file that isn't in the archive");
}

static int stage_hard_link(struct extract *x, struct archive_entry *e)
{
	const char *member = archive_entry_pathname(e);
	if (!archive_reader_links(&x->rd))
		return archive_reader_refuse(&x->rd, member,
					     "a hard link in a format that has none");
	int r = set_path(x, archive_entry_hardlink(e), "hard link's target");
	auto_free char *target = r == 0 ? strdup(path_of(x)) : NULL;
	if (r == 0 && !target)
		r = out_of_memory(x);
	if (r == 0)
		r = set_path(x, member, "name");
	if (r < 0)
		return r;
	struct batch_op o = op_of(x, BATCH_LINK, NULL);
	o.other = target;
	o.other_len = strlen(target);
	r = stage(x, &o);
	return r < 0 ? r : stage_linked_content(x, e, target);
}

static void staging_done(struct staging *s)
{
	while (s->n > 0)
		(void)close(s->v[--s->n].fd);
	free(s->v);
	buf_done(&s->ops);
	buf_done(&s->paths);
}

/* All of it, or nothing. */
static int apply_staged(struct extract *x)
{
	size_t failed_at;
	struct staging *s = x->staging;
	if (s->count == 0)
		return 0;
	int r = fs_batch(x->place->sd->fs, x->place->src.ws.id, &s->ops, &failed_at, NULL, x->err);
	if (r >= 0 || failed_at == SIZE_MAX || r == -EDQUOT || r == -ENOSPC)
		return r;
	if (r == -E2BIG)
		return err_set(x->err, -EFBIG, "the archive has too many members for one step");
	if (r == -EISDIR || r == -EEXIST)
		return err_set(x->err, -ENOTUNIQ, "a folder is in a member's place, or the other "
			       "way round");
	if (r == -ENOTDIR || r == -ELOOP)
		return err_set(x->err, -EBADMSG, "a member lies below what is no folder");
	if (r == -ENOENT || r == -EPERM)
		return err_set(x->err, -EBADMSG, "a hard link to what is no file");
	return r;
}

/* ---- other members ---- */

static int put_link(struct extract *x, struct archive_entry *e, const struct attr *a)
{
	const char *target = archive_entry_symlink(e), *name;
	size_t len = target ? strlen(target) : 0;
	if (len == 0 || len > ARCHIVE_TARGET_MAX)
		return archive_reader_refuse(&x->rd, path_of(x),
					     "a symlink whose target is empty or too long");
	int dir = parent(x, &name);
	int r = dir < 0 ? dir : make_way(x, dir, name);
	if (r < 0)
		return r;
	if (symlinkat(target, dir, name) < 0)
		return failed(x, -errno, "make");
	return set_special(x, dir, name, a);
}

static int put_special(struct extract *x, const struct attr *a)
{
	const char *name;
	int dir = parent(x, &name);
	int r = dir < 0 ? dir : make_way(x, dir, name);
	if (r < 0)
		return r;
	if (mknodat(dir, name, a->mode & (S_IFMT | 0777), a->rdev) < 0)
		return failed(x, -errno, "make");
	return set_special(x, dir, name, a);
}

/* One more name of a member before, or of what was there already. */
static int put_hard_link(struct extract *x, struct archive_entry *e)
{
	const char *member = archive_entry_pathname(e), *name, *old_name;
	struct stat st;
	auto_fd from = -1;
	if (!archive_reader_links(&x->rd))
		return archive_reader_refuse(&x->rd, member,
					     "a hard link in a format that has none");
	int r = set_path(x, archive_entry_hardlink(e), "hard link's target");
	struct err why = { 0 };
	if (r == 0)
		r = place_parent(x->place, path_of(x), NULL, &from, &old_name, &why);
	if (r < 0 && why.code < 0)
		return err_set(x->err, -EBADMSG, "'%s': a hard link to '%s', which isn't there",
			       SHOW(member), SHOW(archive_entry_hardlink(e)));
	if (r < 0)
		return r;
	auto_free char *target = strdup(old_name);
	if (!target)
		return out_of_memory(x);
	if (fstatat(from, target, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode))
		return err_set(x->err, -EBADMSG, "'%s': a hard link to '%s', which is no file",
			       SHOW(member), SHOW(archive_entry_hardlink(e)));
	r = set_path(x, member, "name");
	if (r < 0)
		return r;
	int dir = parent(x, &name);
	if (dir < 0)
		return dir;
	struct stat there;
	if (fstatat(dir, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && there.st_ino == st.st_ino)
		return 0;
	r = make_way(x, dir, name);
	if (r == 0 && linkat(from, target, dir, name, 0) < 0)
		r = failed(x, -errno, "link");
	return r;
}

/* cpio may give the content with the last name of a file, pax with each of them: it is that of the
 * file that has the name now. */
static int put_linked_content(struct extract *x, struct archive_entry *e)
{
	auto_found f = { .fd = -1 };
	if (!archive_entry_size_is_set(e) || archive_entry_size(e) <= 0)
		return 0;
	int r = place_find(x->place, path_of(x), &f, x->err);
	if (r < 0 || !S_ISREG(f.mode))
		return r;
	char path[32];
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", f.fd);
	auto_fd fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return failed(x, -errno, "open");
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, f.mtime };
	r = write_content(x, e, fd);
	if (r == 0 && futimens(fd, times) < 0)
		r = failed(x, -errno, "set the times of");
	return r;
}

static int member(struct extract *x, struct archive_entry *e)
{
	const char *path = archive_entry_pathname(e);
	struct attr a;
	if (archive_entry_hardlink(e) && x->staging)
		return stage_hard_link(x, e);
	if (archive_entry_hardlink(e)) {
		int l = put_hard_link(x, e);
		return l < 0 ? l : put_linked_content(x, e);
	}
	int r = archive_reader_attr(&x->rd, e, path, &a);
	if (r == 0)
		r = set_path(x, path, "name");
	if (r < 0)
		return r;
	bool root = x->path.len <= x->base.len || !*path_of(x);
	if (root && !S_ISDIR(a.mode))
		return archive_reader_refuse(&x->rd, path, "the root must be a folder");
	if (root && (!x->top || !*path_of(x)))
		return 0; /* where it is extracted stays as it is */
	if (x->staging)
		return S_ISREG(a.mode) ? stage_file(x, e, &a) : stage_other(x, e, &a);
	return S_ISDIR(a.mode)   ? put_dir(x, e, &a)
	       : S_ISREG(a.mode) ? put_file(x, e, &a)
	       : S_ISLNK(a.mode) ? put_link(x, e, &a)
				 : put_special(x, &a);
}

static int extract_all(struct extract *x)
{
	struct archive_entry *e;
	int r;
	while ((r = archive_reader_next(&x->rd, &e)) > 0) {
		r = member(x, e);
		if (r < 0)
			return r;
	}
	if (r == 0)
		r = archive_reader_finish(&x->rd);
	if (r == 0 && x->staging)
		return apply_staged(x);
	return r == 0 ? set_dir_times(x) : r;
}

/* A quarter of the descriptors that there may be. */
static size_t most_files(void)
{
	struct rlimit l;
	return getrlimit(RLIMIT_NOFILE, &l) == 0 ? (size_t)l.rlim_cur / 4 : 256;
}

int archive_extract(const struct place *place, const char *path, const char *scratch,
		    const struct archive_extract_options *opt, const struct archive_source *src,
		    struct archive_extract_stats *st, struct err *err)
{
	struct extract x = { .place = place, .err = err, .dir_fd = -1 };
	struct staging staging = { .max = most_files() };
	x.top = opt->top;
	x.staging = opt->atomic ? &staging : NULL;
	const struct archive_reader_options ro = { .scratch = scratch };
	buf_add(&x.base, path, strlen(path));
	if (*path)
		buf_u8(&x.base, '/');
	int r = buf_error(&x.base) ? out_of_memory(&x) : 0;
	if (r == 0)
		r = archive_reader_open(&x.rd, &ro, src, err);
	if (r == 0)
		r = extract_all(&x);
	archive_reader_close(&x.rd);
	x.st.members = x.rd.members;
	x.st.ignored_xattrs += x.rd.ignored_xattrs;
	x.st.ignored_acls = x.rd.ignored_acls;
	staging_done(&staging);
	cleanup_close(&x.dir_fd);
	buf_done(&x.base);
	buf_done(&x.path);
	buf_done(&x.dir);
	buf_done(&x.dir_times);
	*st = x.st;
	return r < 0 ? err_prefix(err, r, "extract") : 0;
}
