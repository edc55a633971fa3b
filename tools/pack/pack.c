#include "tools/pack/pack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/hash.h"
#include "fs/base/u64map.h"
#include "tools/pack/walk.h"

enum {
	COPY_BYTES = 1 << 20,
	BLOCK_BYTES = 256 * 1024, /* one write */
	XATTRS_BYTES = 65536,     /* Linux gives no longer list and no longer value */
	TARGET_BYTES = 4096,
};

/* A file with several names, by the first of them. */
struct link {
	struct link *next; /* with the same key */
	dev_t dev;
	ino_t ino;
	char path[];
};

struct extent {
	uint64_t off, len;
};

struct packer {
	const struct pack_options *opt;
	struct err *err;
	struct archive *a;
	struct archive_entry *e;
	struct u64map links;
	struct buf extents;  /* struct extent of the present file */
	char *names, *value; /* XATTRS_BYTES each */
	uint8_t *copy;       /* COPY_BYTES */
	dev_t dev;           /* of the top folder */
	int out;             /* the stream */
	bool changed, unreadable;
	bool abandoned; /* nothing more goes to the stream */
};

static const uint8_t zeros[BLOCK_BYTES];

static void say(struct packer *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct packer *p, const char *fmt, ...)
{
	char *line;
	va_list ap;
	va_start(ap, fmt);
	int n = vasprintf(&line, fmt, ap);
	va_end(ap);
	p->opt->say(p->opt->say_ctx, n < 0 ? "out of memory for a message" : line);
	if (n >= 0)
		free(line);
}

/* Something that can't be read: left out, and in the end a failure unless it is ignored. */
static int unreadable(struct packer *p, const char *path, int r)
{
	if (r == -ENOENT) {
		say(p, "%s: went away while it was read", path);
		return 0;
	}
	say(p, "%s: %s%s", path, strerror(-r), p->opt->ignore_unreadable ? ", left out" : "");
	p->unreadable |= !p->opt->ignore_unreadable;
	return 0;
}

static int out_of_memory(struct packer *p)
{
	return err_no_memory(p->err);
}

/* The one place where libarchive's errors become ours. */
static int write_err(struct packer *p, const char *path)
{
	int number = archive_errno(p->a);
	const char *s = archive_error_string(p->a);
	return err_set(p->err, number > 0 ? -number : -EIO, "write %s: %s", path,
		       s ? s : "no reason given");
}

/* ---- hard links ---- */

static uint64_t link_key(const struct stat *st)
{
	uint64_t id[2] = { st->st_dev, st->st_ino };
	uint64_t key = hash_xxh3(id, sizeof(id), 0);
	return key ? key : 1;
}

/* The first path of that file, or NULL. */
static const char *link_find(const struct packer *p, const struct stat *st)
{
	if (S_ISDIR(st->st_mode) || st->st_nlink < 2)
		return NULL;
	for (const struct link *l = u64map_get(&p->links, link_key(st)); l; l = l->next)
		if (l->dev == st->st_dev && l->ino == st->st_ino)
			return l->path;
	return NULL;
}

static int link_add(struct packer *p, const struct stat *st, const char *path)
{
	if (S_ISDIR(st->st_mode) || st->st_nlink < 2)
		return 0;
	size_t n = strlen(path) + 1;
	struct link *l = malloc(sizeof(*l) + n);
	if (!l)
		return out_of_memory(p);
	l->dev = st->st_dev;
	l->ino = st->st_ino;
	memcpy(l->path, path, n);
	uint64_t key = link_key(st);
	l->next = u64map_get(&p->links, key);
	if (u64map_put(&p->links, key, l) < 0) {
		free(l);
		return out_of_memory(p);
	}
	return 0;
}

static void links_free(struct packer *p)
{
	struct u64map_slot *s;
	for (size_t i = 0; (s = u64map_next(&p->links, &i));)
		for (struct link *l = s->value, *next; l; l = next) {
			next = l->next;
			free(l);
		}
	u64map_done(&p->links);
}

/* ---- what an entry says ---- */

/* libarchive writes seconds, a dot and the fraction: right for -4.75 only when told -4 and
 * .75, where a timespec has -5 and .25. Between -1 and 0 nothing is right; -1 is near. */
static struct timespec pax_time(struct timespec t)
{
	if (t.tv_sec >= 0 || t.tv_nsec == 0)
		return t;
	if (t.tv_sec == -1)
		return (struct timespec){ -1, 0 };
	return (struct timespec){ t.tv_sec + 1, 1000000000 - t.tv_nsec };
}

static void set_attributes(struct packer *p, const char *path, const struct stat *st)
{
	struct archive_entry *e = archive_entry_clear(p->e);
	archive_entry_set_pathname(e, path);
	archive_entry_set_mode(e, st->st_mode);
	archive_entry_set_uid(e, st->st_uid);
	archive_entry_set_gid(e, st->st_gid);
	struct timespec t = pax_time(st->st_mtim);
	archive_entry_set_mtime(e, t.tv_sec, t.tv_nsec);
	archive_entry_set_size(e, S_ISREG(st->st_mode) ? st->st_size : 0);
	if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode))
		archive_entry_set_rdev(e, st->st_rdev);
}

/* Where an xattr call finds the file: its descriptor, or for what isn't opened (links, devices)
 * its name under that of its folder, which has a path of its own whatever the tree's depth. */
struct xattr_place {
	int fd; /* -1: by path */
	char path[64 + NAME_MAX];
};

static ssize_t xattr_list(const struct xattr_place *at, char *names)
{
	return at->fd >= 0 ? flistxattr(at->fd, names, XATTRS_BYTES)
			   : llistxattr(at->path, names, XATTRS_BYTES);
}

static ssize_t xattr_get(const struct xattr_place *at, const char *name, char *value)
{
	return at->fd >= 0 ? fgetxattr(at->fd, name, value, XATTRS_BYTES)
			   : lgetxattr(at->path, name, value, XATTRS_BYTES);
}

static void set_xattrs(struct packer *p, const struct walk_entry *we, int fd)
{
	struct xattr_place at = { .fd = fd };
	if (fd < 0)
		(void)snprintf(at.path, sizeof(at.path), "/proc/self/fd/%d/%s", we->dirfd,
			       we->name);
	ssize_t n = xattr_list(&at, p->names);
	if (n < 0 && errno != ENOTSUP && errno != ENOENT) /* without /proc: as if there were none */
		say(p, "%s: its xattrs: %s", we->path, strerror(errno));
	for (const char *name = p->names; n > 0 && name < p->names + n; name += strlen(name) + 1) {
		ssize_t len = xattr_get(&at, name, p->value);
		if (len >= 0)
			archive_entry_xattr_add_entry(p->e, name, p->value, (size_t)len);
		else if (errno != ENODATA && errno != EPERM && errno != ENOTSUP)
			say(p, "%s: xattr %s: %s", we->path, name, strerror(errno));
	}
}

/* ---- content ---- */

/* Finds where the file has data. A file system that doesn't know says: everywhere. */
static int find_extents(struct packer *p, int fd, uint64_t size)
{
	buf_reset(&p->extents);
	uint64_t at = 0;
	while (at < size) {
		off_t data = lseek(fd, (off_t)at, SEEK_DATA);
		if (data < 0 && errno == ENXIO)
			break;
		off_t hole = data < 0 ? data : lseek(fd, data, SEEK_HOLE);
		struct extent x = { at, size - at };
		if (data >= 0 && hole > data) {
			x.off = (uint64_t)data;
			x.len = (uint64_t)hole - x.off;
		}
		if (x.off >= size)
			break;
		if (x.len > size - x.off)
			x.len = size - x.off;
		buf_add(&p->extents, &x, sizeof(x));
		at = x.off + x.len;
	}
	return buf_error(&p->extents);
}

static size_t nextents(const struct packer *p)
{
	return p->extents.len / sizeof(struct extent);
}

static const struct extent *extent(const struct packer *p, size_t i)
{
	return (const struct extent *)p->extents.data + i;
}

static bool is_sparse(const struct packer *p, uint64_t size)
{
	if (size == 0)
		return false;
	return nextents(p) != 1 || extent(p, 0)->off != 0 || extent(p, 0)->len != size;
}

static int set_extents(struct packer *p, int fd, const struct stat *st)
{
	uint64_t size = (uint64_t)st->st_size;
	buf_reset(&p->extents);
	if ((uint64_t)st->st_blocks * 512 >= size)
		return 0; /* no room for a hole */
	if (find_extents(p, fd, size) < 0)
		return out_of_memory(p);
	if (!is_sparse(p, size)) {
		buf_reset(&p->extents);
		return 0;
	}
	for (size_t i = 0; i < nextents(p); i++)
		archive_entry_sparse_add_entry(p->e, (int64_t)extent(p, i)->off,
					       (int64_t)extent(p, i)->len);
	if (nextents(p) == 0) /* a hole from end to end is an empty extent */
		archive_entry_sparse_add_entry(p->e, 0, 0);
	return 0;
}

static int put(struct packer *p, const char *path, const void *data, size_t n)
{
	while (n > 0) {
		la_ssize_t w = archive_write_data(p->a, data, n);
		if (w <= 0)
			return write_err(p, path);
		data = (const uint8_t *)data + w;
		n -= (size_t)w;
	}
	return 0;
}

static int put_zeros(struct packer *p, const char *path, uint64_t n)
{
	int r = 0;
	while (n > 0 && r == 0) {
		size_t part = n < sizeof(zeros) ? (size_t)n : sizeof(zeros);
		r = put(p, path, zeros, part);
		n -= part;
	}
	return r;
}

/* Bytes [off, off + len) of the file; where it ends earlier, zeros. */
static int put_range(struct packer *p, const char *path, int fd, uint64_t off, uint64_t len,
		     bool *cut)
{
	while (len > 0) {
		size_t part = len < COPY_BYTES ? (size_t)len : COPY_BYTES;
		ssize_t n = pread(fd, p->copy, part, (off_t)off);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) /* its header is out: there is no way to leave it out any more */
			return err_sys(p->err, -errno, "read %s", path);
		if (n == 0) {
			*cut = true;
			return put_zeros(p, path, len);
		}
		int r = put(p, path, p->copy, (size_t)n);
		if (r < 0)
			return r;
		off += (uint64_t)n;
		len -= (uint64_t)n;
	}
	return 0;
}

static int put_content(struct packer *p, const char *path, int fd, const struct stat *st)
{
	bool cut = false;
	uint64_t at = 0, size = (uint64_t)st->st_size;
	struct extent whole = { 0, size };
	bool sparse = archive_entry_sparse_count(p->e) > 0;
	size_t n = sparse ? nextents(p) : 1;
	int r = 0;
	/* libarchive wants the holes too, and leaves them out itself. */
	for (size_t i = 0; i < n && r == 0; i++) {
		const struct extent *x = sparse ? extent(p, i) : &whole;
		r = put_zeros(p, path, x->off - at);
		if (r == 0)
			r = put_range(p, path, fd, x->off, x->len, &cut);
		at = x->off + x->len;
	}
	if (r == 0)
		r = put_zeros(p, path, size - at);
	struct stat now;
	if (r == 0 && (cut || fstat(fd, &now) < 0 || now.st_size != st->st_size ||
		       now.st_mtim.tv_sec != st->st_mtim.tv_sec ||
		       now.st_mtim.tv_nsec != st->st_mtim.tv_nsec)) {
		say(p, "%s: changed while it was read", path);
		p->changed = true;
	}
	return r;
}

/* ---- members ---- */

static int put_header(struct packer *p, const char *path)
{
	/* A warning would be of something lost: with raw names there is none to expect. */
	return archive_write_header(p->a, p->e) == ARCHIVE_OK ? 0 : write_err(p, path);
}

static int pack_file(struct packer *p, const struct walk_entry *we)
{
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	auto_fd fd = openat(we->dirfd, we->name, flags | O_NOATIME);
	if (fd < 0 && errno == EPERM)
		fd = openat(we->dirfd, we->name, flags);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) < 0)
		return unreadable(p, we->path, -errno);
	if (!S_ISREG(st.st_mode)) /* another one came in its place */
		return unreadable(p, we->path, -ENOENT);
	set_attributes(p, we->path, &st);
	set_xattrs(p, we, fd);
	int r = set_extents(p, fd, &st);
	if (r == 0)
		r = put_header(p, we->path);
	if (r == 0)
		r = put_content(p, we->path, fd, &st);
	return r == 0 ? link_add(p, &st, we->path) : r;
}

static int pack_symlink(struct packer *p, const struct walk_entry *we)
{
	char target[TARGET_BYTES + 1];
	ssize_t n = readlinkat(we->dirfd, we->name, target, TARGET_BYTES);
	if (n < 0)
		return unreadable(p, we->path, -errno);
	target[n] = '\0';
	set_attributes(p, we->path, &we->st);
	archive_entry_set_symlink(p->e, target);
	set_xattrs(p, we, -1);
	int r = put_header(p, we->path);
	return r == 0 ? link_add(p, &we->st, we->path) : r;
}

/* Folders, devices and fifos: a header is all there is. */
static int pack_plain(struct packer *p, const struct walk_entry *we)
{
	set_attributes(p, we->path, &we->st);
	set_xattrs(p, we, we->fd);
	int r = put_header(p, we->path);
	return r == 0 ? link_add(p, &we->st, we->path) : r;
}

static int pack_link(struct packer *p, const struct walk_entry *we, const char *first)
{
	set_attributes(p, we->path, &we->st);
	archive_entry_set_hardlink(p->e, first);
	archive_entry_set_size(p->e, 0);
	return put_header(p, we->path);
}

static bool excluded(const struct packer *p, const struct walk_entry *we)
{
	for (size_t i = 0; i < p->opt->nexcludes; i++) {
		const char *pattern = p->opt->excludes[i];
		bool whole = strchr(pattern, '/') != NULL;
		while (*pattern == '/')
			pattern++;
		if (we->path[1] && fnmatch(pattern, whole ? we->path + 2 : we->name,
					   whole ? FNM_PATHNAME : 0) == 0)
			return true;
	}
	return false;
}

/* It is there already, where the stream goes. */
static bool is_there(const struct packer *p, const struct walk_entry *we)
{
	const struct stat *st = &we->st;
	const struct have_file f = { .path = we->path[1] ? we->path + 2 : "",
				     .mode = st->st_mode,
				     .size = (uint64_t)st->st_size,
				     .mtime = st->st_mtim,
				     .ctime = st->st_ctim };
	return p->opt->have && have_visit(p->opt->have, &f);
}

static int pack_entry(struct packer *p, struct walk *w, const struct walk_entry *we)
{
	if (excluded(p, we))
		return 0;
	bool there = is_there(p, we);
	const char *first = link_find(p, &we->st);
	if (first)
		return pack_link(p, we, first);
	if (there)
		return link_add(p, &we->st, we->path);
	switch (we->st.st_mode & S_IFMT) {
	case S_IFREG:
		return pack_file(p, we);
	case S_IFLNK:
		return pack_symlink(p, we);
	case S_IFSOCK:
		say(p, "%s: a socket, left out", we->path);
		return 0;
	default:
		break;
	}
	int r = pack_plain(p, we);
	if (r < 0 || !S_ISDIR(we->st.st_mode))
		return r;
	if (p->opt->one_file_system && we->st.st_dev != p->dev)
		return 0;
	r = walk_enter(w);
	if (r == -ENOMEM)
		return out_of_memory(p);
	return r < 0 ? unreadable(p, we->path, r) : 0;
}

static int pack_all(struct packer *p, struct walk *w)
{
	struct walk_entry we;
	int r;
	while ((r = walk_next(w, &we)) != 0) {
		if (r == -ENOMEM)
			return out_of_memory(p);
		if (r > 0 && !we.path[1])
			p->dev = we.st.st_dev;
		r = r < 0 ? unreadable(p, we.path, r) : pack_entry(p, w, &we);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- the whole ---- */

static la_ssize_t on_write(struct archive *a, void *ctx, const void *data, size_t n)
{
	struct packer *p = ctx;
	if (p->abandoned) /* what libarchive still has is an end mark that must not be */
		return -1;
	ssize_t w;
	do
		w = write(p->out, data, n);
	while (w < 0 && errno == EINTR);
	if (w < 0)
		archive_set_error(a, errno, "%s", strerror(errno));
	return w;
}

static int writer_open(struct packer *p)
{
	p->a = archive_write_new();
	p->e = archive_entry_new();
	p->names = malloc(XATTRS_BYTES);
	p->value = malloc(XATTRS_BYTES);
	p->copy = malloc(COPY_BYTES);
	if (!p->a || !p->e || !p->names || !p->value || !p->copy)
		return out_of_memory(p);
	/* Names as they are, in any encoding or none; xattrs in the form that GNU tar reads too. */
	if (archive_write_set_format_pax(p->a) != ARCHIVE_OK ||
	    archive_write_set_options(p->a, "hdrcharset=BINARY,xattrheader=SCHILY") != ARCHIVE_OK ||
	    archive_write_set_bytes_per_block(p->a, BLOCK_BYTES) != ARCHIVE_OK ||
	    archive_write_set_bytes_in_last_block(p->a, 1) != ARCHIVE_OK ||
	    archive_write_open(p->a, p, NULL, on_write, NULL) != ARCHIVE_OK)
		return write_err(p, "the stream");
	return 0;
}

static int writer_close(struct packer *p, int r)
{
	if (r == 0 && p->unreadable)
		r = err_set(p->err, -EIO, "some of it can't be read");
	p->abandoned = r < 0;
	/* Also after a failure: it is close that frees libarchive's buffers. */
	if (p->a && archive_write_close(p->a) != ARCHIVE_OK && r == 0)
		r = write_err(p, "the stream's end");
	(void)archive_write_free(p->a); /* closed above; NULL is fine */
	return r;
}

static int pack_walked(struct packer *p, struct walk *w)
{
	/* libarchive converts names to the locale's encoding: in this one it leaves them alone. */
	locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	locale_t before = c == (locale_t)0 ? c : uselocale(c);
	int r = writer_open(p);
	if (r == 0)
		r = pack_all(p, w);
	r = writer_close(p, r);
	if (c != (locale_t)0) {
		(void)uselocale(before); /* it was in use */
		freelocale(c);
	}
	return r;
}

int pack_tree(const char *dir, int out, const struct pack_options *opt, struct err *err)
{
	struct packer p = { .opt = opt, .err = err, .out = out };
	struct walk w;
	int r = walk_open(&w, dir, err);
	if (r < 0)
		return r;
	r = pack_walked(&p, &w);
	walk_close(&w);
	if (p.e)
		archive_entry_free(p.e);
	links_free(&p);
	buf_done(&p.extents);
	free(p.names);
	free(p.value);
	free(p.copy);
	return r < 0 ? r : p.changed ? PACK_CHANGED : 0;
}
