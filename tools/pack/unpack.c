#include "tools/pack/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"

enum {
	BLOCK_BYTES = 256 * 1024,
	FOLDERS_MAX = 1 << 30, /* bytes of their list: some ten million of them */
	TAR_BLOCK = 512,
	SHOWN = 160, /* bytes of a name in a message */
};

struct attributes {
	mode_t mode;
	uid_t uid;
	gid_t gid;
	struct timespec times[2]; /* as futimens has them */
};

struct unpacker {
	const struct unpack_options *opt;
	struct err *err;
	struct archive *a;
	struct archive_entry *e;
	const char *path; /* the member's, as it came */
	int top;
	bool root;
	bool named; /* new files have a name from the beginning: the other way isn't there */
	/* The folder of the last member, open, since the next is mostly in it, too. */
	struct buf dir;
	int dir_fd;
	/* Of each folder: struct attributes, path, NUL; applied when nothing is put into it any
	 * more. And where each begins. */
	struct buf folders;
	struct buf places;
	uint64_t left_out, xattrs;
};

/* ---- messages ---- */

/* A name as a person may see it. */
static const char *shown(char out[SHOWN + 1], const char *name)
{
	size_t n = 0;
	for (; name[n] && n < SHOWN; n++)
		out[n] = (unsigned char)name[n] < ' ' || name[n] == 127 ? '?' : name[n];
	out[n] = 0;
	return out;
}

static int out_of_memory(struct unpacker *u)
{
	return err_no_memory(u->err);
}

static int refuse(struct unpacker *u, const char *why)
{
	char s[SHOWN + 1];
	return err_set(u->err, -EBADMSG, "'%s': %s", shown(s, u->path), why);
}

static int failed(struct unpacker *u, int r, const char *what)
{
	char s[SHOWN + 1];
	if (r == -ENOTDIR || r == -ELOOP)
		return refuse(u, "it lies below what is no folder");
	return err_sys(u->err, r, "%s '%s'", what, shown(s, u->path));
}

static int in_the_way(struct unpacker *u, bool folder)
{
	char s[SHOWN + 1];
	return err_set(u->err, -EEXIST, "'%s': a %s is in its place", shown(s, u->path),
		       folder ? "folder" : "file");
}

/* libarchive's own error. */
static int damaged(struct unpacker *u)
{
	const char *text = archive_error_string(u->a);
	int e = archive_errno(u->a);
	return err_set(u->err, e == ENOMEM ? -ENOMEM : -EBADMSG, "the stream is damaged: %s",
		       text ? text : "no reason given");
}

/* ---- the way to a member ---- */

/* The next name of a path, without "." and doubled '/'. False: there is none. */
static bool component(const char **p, const char **name, size_t *len)
{
	for (;;) {
		while (**p == '/')
			(*p)++;
		*len = strcspn(*p, "/");
		*name = *p;
		*p += *len;
		if (*len == 0)
			return false;
		if (*len != 1 || **name != '.')
			return true;
	}
}

/* The path without what means nothing: "" for the top. */
static int clean(struct unpacker *u, const char *path, struct buf *out)
{
	const char *p = path, *name;
	size_t len;
	if (!*path || *path == '/')
		return refuse(u, *path ? "an absolute name" : "no name");
	buf_reset(out);
	while (component(&p, &name, &len)) {
		if (len == 2 && memcmp(name, "..", 2) == 0)
			return refuse(u, "a name with ..");
		if (len > NAME_MAX)
			return refuse(u, "a name that is too long");
		if (out->len > 0)
			buf_u8(out, '/');
		buf_add(out, name, len);
	}
	buf_u8(out, 0);
	return buf_error(out) ? out_of_memory(u) : 0;
}

static int open_folder(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Opens the folder that is `len` bytes of a clean path, name by name; `make`: missing ones too. */
static int walk_to(struct unpacker *u, const char *path, size_t len, bool make)
{
	auto_fd fd = open_folder(u->top, ".");
	while (fd >= 0 && len > 0) {
		char name[NAME_MAX + 1];
		const char *slash = memchr(path, '/', len);
		size_t n = slash ? (size_t)(slash - path) : len;
		memcpy(name, path, n);
		name[n] = 0;
		int next = open_folder(fd, name);
		if (next == -ENOENT && make) {
			if (mkdirat(fd, name, 0777) < 0 && errno != EEXIST)
				return -errno;
			next = open_folder(fd, name);
		}
		cleanup_close(&fd);
		fd = next;
		n += n < len;
		path += n;
		len -= n;
	}
	return steal_fd(&fd);
}

static const char *last_name(const char *clean_path)
{
	const char *slash = strrchr(clean_path, '/');
	return slash ? slash + 1 : clean_path;
}

/* The open folder that a clean path lies in; borrowed. */
static int parent(struct unpacker *u, const char *path)
{
	const char *name = last_name(path);
	size_t len = name == path ? 0 : (size_t)(name - path) - 1;
	if (u->dir_fd >= 0 && len == u->dir.len && (len == 0 || !memcmp(path, u->dir.data, len)))
		return u->dir_fd;
	int fd = walk_to(u, path, len, true);
	if (fd < 0)
		return failed(u, fd, "open the folder of");
	cleanup_close(&u->dir_fd);
	u->dir_fd = fd;
	buf_reset(&u->dir);
	buf_add(&u->dir, path, len);
	return buf_error(&u->dir) ? out_of_memory(u) : fd;
}

/* What has the name gives way, unless it is a folder. */
static int make_way(struct unpacker *u, int dir, const char *name)
{
	struct stat st;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
		return in_the_way(u, true);
	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	return failed(u, -errno, "replace");
}

/* ---- attributes ---- */

/* pax has -4.75, which libarchive gives as -4 s and 750 ms; a timespec has -5 s and 250 ms. */
static struct timespec time_of(time_t sec, long nsec)
{
	struct timespec t = { sec, nsec };
	if (sec < 0 && nsec > 0)
		t = (struct timespec){ sec - 1, 1000000000L - nsec };
	return t;
}

static void read_attributes(const struct unpacker *u, struct attributes *a)
{
	struct archive_entry *e = u->e;
	*a = (struct attributes){
		.mode = archive_entry_perm(e) & 07777,
		.uid = (uid_t)archive_entry_uid(e),
		.gid = (gid_t)archive_entry_gid(e),
		.times = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_OMIT } },
	};
	if (archive_entry_atime_is_set(e))
		a->times[0] = time_of(archive_entry_atime(e), archive_entry_atime_nsec(e));
	if (archive_entry_mtime_is_set(e))
		a->times[1] = time_of(archive_entry_mtime(e), archive_entry_mtime_nsec(e));
	if (!u->root && a->uid != geteuid())
		a->mode &= ~(mode_t)S_ISUID;
	if (!u->root && a->gid != getegid())
		a->mode &= ~(mode_t)S_ISGID;
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
				      : -1;
}

/* In SCHILY.xattr, what isn't printable, '%' and '=' are %XX, which libarchive leaves as it is. */
static bool xattr_name(const char *given, char out[XATTR_NAME_MAX + 1])
{
	size_t n = 0;
	for (const char *p = given; *p; p++) {
		int high = *p == '%' ? hex_digit(p[1]) : -1;
		int low = high >= 0 ? hex_digit(p[2]) : -1;
		if (n == XATTR_NAME_MAX || (high == 0 && low == 0))
			return false;
		out[n++] = low >= 0 ? (char)(high << 4 | low) : *p;
		p += low >= 0 ? 2 : 0;
	}
	out[n] = 0;
	return n > 0;
}

static int set_xattrs(struct unpacker *u, int fd)
{
	const char *given;
	const void *value;
	size_t len;
	char name[XATTR_NAME_MAX + 1];
	(void)archive_entry_xattr_reset(u->e); /* gives their number */
	while (archive_entry_xattr_next(u->e, &given, &value, &len) == ARCHIVE_OK) {
		if (given && xattr_name(given, name) &&
		    fsetxattr(fd, name, len ? value : "", len, 0) == 0)
			continue;
		if (errno == ENOSPC || errno == EDQUOT)
			return failed(u, -errno, "set an xattr of");
		u->xattrs++; /* of another namespace, or not for this caller or file system */
	}
	return 0;
}

/* Of a file or folder that is open; the times last. */
static int set_attributes(struct unpacker *u, int fd, const struct attributes *a)
{
	if (u->root && fchown(fd, a->uid, a->gid) < 0)
		return failed(u, -errno, "give its owner to");
	if (u->e && set_xattrs(u, fd) < 0) /* a change of owner would take some away */
		return u->err->code;
	if (fchmod(fd, a->mode) < 0)
		return failed(u, -errno, "set the mode of");
	return futimens(fd, a->times) < 0 ? failed(u, -errno, "set the times of") : 0;
}

/* Of what isn't opened. */
static int set_special(struct unpacker *u, int dir, const char *name, const struct attributes *a,
		       bool link)
{
	if (u->root && fchownat(dir, name, a->uid, a->gid, AT_SYMLINK_NOFOLLOW) < 0)
		return failed(u, -errno, "give its owner to");
	/* Made just now by ourselves, and no link. */
	if (!link && fchmodat(dir, name, a->mode, 0) < 0)
		return failed(u, -errno, "set the mode of");
	return utimensat(dir, name, a->times, AT_SYMLINK_NOFOLLOW) < 0
		       ? failed(u, -errno, "set the times of")
		       : 0;
}

/* ---- folders ---- */

static int remember(struct unpacker *u, const struct attributes *a, const char *path)
{
	uint64_t at = u->folders.len;
	size_t n = strlen(path) + 1;
	if (at + sizeof(*a) + n > FOLDERS_MAX)
		return refuse(u, "too many folders");
	buf_add(&u->folders, a, sizeof(*a));
	buf_add(&u->folders, path, n);
	buf_add(&u->places, &at, sizeof(at));
	return buf_error(&u->folders) || buf_error(&u->places) ? out_of_memory(u) : 0;
}

/* From the last: a folder that may not be entered any more comes after what is in it. */
static int finish_folders(struct unpacker *u)
{
	u->e = NULL; /* their xattrs are there */
	for (size_t i = u->places.len / sizeof(uint64_t); i-- > 0;) {
		uint64_t at;
		struct attributes a;
		memcpy(&at, u->places.data + i * sizeof(at), sizeof(at));
		memcpy(&a, u->folders.data + at, sizeof(a));
		u->path = (const char *)u->folders.data + at + sizeof(a);
		auto_fd fd = walk_to(u, u->path, strlen(u->path), false);
		if (fd == -ENOENT)
			continue; /* somebody else has taken it away */
		int r = fd < 0 ? failed(u, fd, "open") : set_attributes(u, fd, &a);
		if (r < 0)
			return r;
	}
	return 0;
}

static int make_folder(struct unpacker *u, const char *path, const struct attributes *a)
{
	int dir = parent(u, path);
	if (dir < 0)
		return dir;
	if (mkdirat(dir, last_name(path), 0700) < 0 && errno != EEXIST)
		return failed(u, -errno, "make");
	auto_fd fd = open_folder(dir, last_name(path));
	if (fd == -ENOTDIR || fd == -ELOOP)
		return in_the_way(u, false);
	int r = fd < 0 ? failed(u, fd, "open") : set_xattrs(u, fd);
	return r < 0 ? r : remember(u, a, path);
}

static int take_top(struct unpacker *u, const struct attributes *a)
{
	if (archive_entry_filetype(u->e) != AE_IFDIR)
		return refuse(u, "the top must be a folder");
	if (!u->opt->top)
		return 0;
	int r = set_xattrs(u, u->top);
	return r < 0 ? r : remember(u, a, "");
}

/* ---- what lies in them ---- */

static int write_content(struct unpacker *u, int fd)
{
	int64_t end = 0;
	for (;;) {
		const uint8_t *data;
		size_t n;
		la_int64_t off;
		int got = archive_read_data_block(u->a, (const void **)&data, &n, &off);
		if (got == ARCHIVE_EOF)
			break;
		if (got != ARCHIVE_OK)
			return damaged(u);
		if (off < end)
			return refuse(u, "its parts are out of order");
		while (n > 0) {
			ssize_t w = pwrite(fd, data, n, off);
			if (w < 0 && errno == EINTR)
				continue;
			if (w < 0)
				return failed(u, -errno, "write");
			data += w;
			n -= (size_t)w;
			off += w;
		}
		end = off;
	}
	int64_t size = archive_entry_size_is_set(u->e) ? archive_entry_size(u->e) : end;
	if (size != end && ftruncate(fd, size) < 0) /* it ends in a hole */
		return failed(u, -errno, "write");
	return 0;
}

/* A file on its way: nobody sees it, and a kill leaves nothing of it, or where the file system has
 * no such files, one of a name that tells. */
struct arriving {
	int dir, fd;
	char temp[48]; /* "" : it has no name */
};

static void arriving_done(struct arriving *f)
{
	cleanup_close(&f->fd);
	if (f->temp[0])
		(void)unlinkat(f->dir, f->temp, 0); /* it has its own name, or is to go */
}

static void temp_name(struct arriving *f)
{
	static unsigned n;
	(void)snprintf(f->temp, sizeof(f->temp), ".bough-cp-%d-%u", (int)getpid(), n++);
}

static int arriving_open(struct unpacker *u, struct arriving *f)
{
	if (!u->named)
		f->fd = openat(f->dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (f->fd >= 0)
		return 0;
	u->named = true;
	do {
		temp_name(f);
		f->fd = openat(f->dir, f->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	} while (f->fd < 0 && errno == EEXIST);
	if (f->fd >= 0)
		return 0;
	f->temp[0] = '\0';
	return failed(u, -errno, "make");
}

static int link_unnamed(int fd, int dir, const char *name)
{
	char path[40];
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, path, dir, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

/* Whole, it takes its name: in one step also where something has it. */
static int arriving_name(struct unpacker *u, struct arriving *f, const char *name)
{
	int r = 0;
	if (!f->temp[0]) {
		r = link_unnamed(f->fd, f->dir, name);
		if (r == 0)
			return 0;
		for (; r == -EEXIST; r = link_unnamed(f->fd, f->dir, f->temp))
			temp_name(f);
	}
	if (r == 0 && renameat(f->dir, f->temp, f->dir, name) < 0)
		r = -errno;
	if (r == 0)
		f->temp[0] = '\0';
	return r == -EISDIR ? in_the_way(u, true) : r < 0 ? failed(u, r, "name") : 0;
}

static int make_file(struct unpacker *u, const char *path, const struct attributes *a)
{
	__attribute__((cleanup(arriving_done))) struct arriving f = { .fd = -1 };
	f.dir = parent(u, path);
	if (f.dir < 0)
		return f.dir;
	int r = arriving_open(u, &f);
	if (r == 0)
		r = write_content(u, f.fd);
	if (r == 0)
		r = set_attributes(u, f.fd, a);
	return r < 0 ? r : arriving_name(u, &f, last_name(path));
}

static int make_symlink(struct unpacker *u, const char *path, const struct attributes *a)
{
	const char *target = archive_entry_symlink(u->e);
	int dir = parent(u, path);
	if (dir < 0)
		return dir;
	if (!target || !*target)
		return refuse(u, "a symlink without a target");
	int r = make_way(u, dir, last_name(path));
	if (r < 0)
		return r;
	if (symlinkat(target, dir, last_name(path)) < 0)
		return failed(u, -errno, "make");
	return set_special(u, dir, last_name(path), a, true);
}

static int make_special(struct unpacker *u, const char *path, const struct attributes *a)
{
	char s[SHOWN + 1], line[SHOWN + 64];
	mode_t type = archive_entry_filetype(u->e);
	dev_t dev = type == S_IFIFO ? 0
				    : makedev(archive_entry_rdevmajor(u->e),
					      archive_entry_rdevminor(u->e));
	if (type != S_IFIFO && type != S_IFCHR && type != S_IFBLK)
		return refuse(u, "a member of an unknown type");
	if (type != S_IFIFO && !u->root) {
		(void)snprintf(line, sizeof(line), "%s: a device, which only root can make",
			       shown(s, u->path));
		u->opt->say(u->opt->say_ctx, line);
		u->left_out++;
		return 0;
	}
	int dir = parent(u, path);
	int r = dir < 0 ? dir : make_way(u, dir, last_name(path));
	if (r < 0)
		return r;
	if (mknodat(dir, last_name(path), type | 0600, dev) < 0)
		return failed(u, -errno, "make");
	return set_special(u, dir, last_name(path), a, false);
}

static int make_hard_link(struct unpacker *u, const char *path)
{
	auto_buf old = { 0 };
	struct stat st, there;
	if (archive_entry_size_is_set(u->e) && archive_entry_size(u->e) > 0)
		return refuse(u, "a hard link with content of its own");
	int r = clean(u, archive_entry_hardlink(u->e), &old);
	if (r < 0)
		return r;
	const char *target = (const char *)old.data, *name = last_name(target);
	size_t len = name == target ? 0 : (size_t)(name - target) - 1;
	auto_fd from = walk_to(u, target, len, false);
	if (from < 0 || fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode))
		return refuse(u, "a hard link to what is no file");
	int dir = parent(u, path);
	if (dir < 0)
		return dir;
	if (fstatat(dir, last_name(path), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
	    there.st_ino == st.st_ino && there.st_dev == st.st_dev)
		return 0;
	r = make_way(u, dir, last_name(path));
	if (r == 0 && linkat(from, name, dir, last_name(path), 0) < 0)
		r = failed(u, -errno, "link");
	return r;
}

static int member(struct unpacker *u, struct buf *path)
{
	struct attributes a;
	int r = clean(u, u->path, path);
	if (r < 0)
		return r;
	const char *p = (const char *)path->data;
	read_attributes(u, &a);
	if (!*p)
		return take_top(u, &a);
	if (archive_entry_hardlink(u->e))
		return make_hard_link(u, p);
	switch (archive_entry_filetype(u->e)) {
	case AE_IFDIR:
		return make_folder(u, p, &a);
	case AE_IFREG:
		return make_file(u, p, &a);
	case AE_IFLNK:
		return make_symlink(u, p, &a);
	default:
		return make_special(u, p, &a);
	}
}

/* ---- the whole ---- */

static int unpack_all(struct unpacker *u)
{
	auto_buf path = { 0 };
	int64_t data_end = 0;
	for (;;) {
		int got = archive_read_next_header(u->a, &u->e);
		if (got == ARCHIVE_EOF)
			break;
		/* A warning is that a name doesn't convert: its bytes stay as they are. */
		if (got != ARCHIVE_OK && got != ARCHIVE_WARN)
			return damaged(u);
		u->path = archive_entry_pathname(u->e);
		if (!u->path)
			return err_set(u->err, -EBADMSG, "a member has a name that can't be read");
		int r = member(u, &path);
		if (r < 0)
			return r;
		(void)archive_read_data_skip(u->a); /* the next header tells what is wrong */
		data_end = archive_filter_bytes(u->a, 0);
	}
	/* libarchive takes a stream that ends between two members for whole: its end is marked. */
	if (archive_filter_bytes(u->a, 0) - data_end < TAR_BLOCK)
		return err_set(u->err, -EBADMSG, "the stream ends too early");
	return finish_folders(u);
}

static int reader_open(struct unpacker *u, int in)
{
	u->a = archive_read_new();
	if (!u->a)
		return out_of_memory(u);
	if (archive_read_support_format_tar(u->a) != ARCHIVE_OK ||
	    archive_read_open_fd(u->a, in, BLOCK_BYTES) != ARCHIVE_OK)
		return damaged(u);
	return 0;
}

static int unpack_into(struct unpacker *u, int in)
{
	char line[96];
	int r = reader_open(u, in);
	if (r == 0)
		r = unpack_all(u);
	if (u->xattrs > 0) {
		(void)snprintf(line, sizeof(line), "%llu extended attributes couldn't be set",
			       (unsigned long long)u->xattrs);
		u->opt->say(u->opt->say_ctx, line);
	}
	if (u->a)
		(void)archive_read_free(u->a); /* only read */
	return r < 0 ? r : u->left_out > 0 ? UNPACK_LEFT_OUT : 0;
}

int unpack_tree(const char *dir, int in, const struct unpack_options *opt, struct err *err)
{
	struct err own = { 0 };
	struct unpacker u = { .opt = opt, .err = err ? err : &own, .dir_fd = -1 };
	auto_fd top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (top < 0)
		return err_sys(err, -errno, "open %s", dir);
	u.top = top;
	u.root = geteuid() == 0;
	u.named = access("/proc/self/fd", X_OK) < 0; /* there is no other way to name them later */
	/* In this locale libarchive leaves names as they are. */
	locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	locale_t before = c == (locale_t)0 ? c : uselocale(c);
	int r = unpack_into(&u, in);
	if (c != (locale_t)0) {
		(void)uselocale(before); /* it was in use */
		freelocale(c);
	}
	cleanup_close(&u.dir_fd);
	buf_done(&u.dir);
	buf_done(&u.folders);
	buf_done(&u.places);
	return r;
}
