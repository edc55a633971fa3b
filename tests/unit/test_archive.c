/* Import, export and bough-pack: round trips of a tree with every kind of file, and
 * archives that must be refused. */
#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <cmocka.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/io_fault.h"
#include "snapd/archive_export.h"
#include "snapd/archive_import.h"
#include "tests/unit/oom.h"
#include "tools/pack/pack.h"

/* ---- a place with a store, a folder of images, and a tree ---- */

struct place {
	char path[200], images[256], tree[256], out[256], store_dir[256];
	struct store *store;
	uint64_t next_ino;
};

static void in_place(const struct place *p, char out[256], const char *name)
{
	(void)snprintf(out, 256, "%s/%s", p->path, name);
}

static int set_up(void **state)
{
	static struct place p;
	struct err err = { 0 };
	const char *tmp = getenv("TMPDIR");
	p = (struct place){ .next_ino = 100 };
	(void)snprintf(p.path, sizeof(p.path), "%s/test_archive.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(p.path))
		return -1;
	in_place(&p, p.images, "images");
	in_place(&p, p.tree, "tree");
	in_place(&p, p.out, "out");
	in_place(&p, p.store_dir, "store");
	if (mkdir(p.images, 0700) < 0 || mkdir(p.tree, 0700) < 0 || mkdir(p.out, 0700) < 0)
		return -1;
	const struct store_options opt = { .create = true };
	if (store_open(&p.store, p.store_dir, &opt, &err) < 0) {
		print_error("%s\n", err.text);
		return -1;
	}
	*state = &p;
	return 0;
}

static int tear_down(void **state)
{
	struct place *p = *state;
	store_close(p->store);
	return io_remove_tree(AT_FDCWD, p->path, NULL);
}

static unsigned entries(const char *dir)
{
	auto_dir *d = opendir(dir);
	assert_non_null(d);
	unsigned n = 0;
	while (readdir(d))
		n++;
	return n - 2;
}

static int reserve(void *ctx, uint64_t n, uint64_t *first, struct err *err)
{
	struct place *p = ctx;
	*first = p->next_ino;
	p->next_ino += n;
	return 0;
}

/* ---- importing ---- */

struct memory {
	const uint8_t *data;
	size_t len, at, step; /* step: bytes a read; 0: all */
	size_t fail_at;       /* -EIO from there on; 0: never */
};

static ssize_t memory_read(void *ctx, void *buf, size_t n, struct err *err)
{
	struct memory *m = ctx;
	if (m->fail_at && m->at >= m->fail_at)
		return err_set(err, -EPIPE, "the sender went away");
	if (m->step && n > m->step)
		n = m->step;
	if (n > m->len - m->at)
		n = m->len - m->at;
	if (n)
		memcpy(buf, m->data + m->at, n);
	m->at += n;
	return (ssize_t)n;
}

static struct archive_import_options options(struct place *p, struct store_session *ss)
{
	return (struct archive_import_options){
		.session = ss,
		.images = p->images,
		.scratch = p->path,
		.seed = 5,
		.reserve = reserve,
		.reserve_ctx = p,
	};
}

static int import_with(struct place *p, struct memory *m, struct archive_import_options *opt,
		       struct digest *image, struct archive_import_stats *st, struct err *err)
{
	struct store_session *ss;
	const struct archive_source src = { .read = memory_read, .ctx = m };
	struct archive_import_options all = opt ? *opt : options(p, NULL);
	assert_int_equal(store_session_begin(p->store, &ss, NULL), 0);
	all.session = ss;
	int r = archive_import(image, &all, &src, st, err);
	store_session_end(ss);
	return r;
}

static int import(struct place *p, const struct buf *b, struct digest *image, struct err *err)
{
	struct memory m = { .data = b->data, .len = b->len, .step = 3333 };
	return import_with(p, &m, NULL, image, NULL, err);
}

static void view_of(struct place *p, const struct digest *image, struct view *v)
{
	struct err err = { 0 };
	*v = (struct view){ .store = p->store, .seed = 5 };
	if (image_open(&v->image, NULL, p->images, image, &err) < 0)
		fail_msg("%s", err.text);
	if (image_check(v->image, &err) < 0)
		fail_msg("%s", err.text);
}

/* Imports what must be fine, and gives the view of it. */
static void imported(struct place *p, const struct buf *b, struct view *v)
{
	struct digest image;
	struct err err = { 0 };
	if (import(p, b, &image, &err) < 0)
		fail_msg("%s", err.text);
	view_of(p, &image, v);
}

/* ---- a tree as text, to compare ---- */

enum { NO_XATTRS = 1, NO_NANOS = 2, NO_LINKS = 4, NO_SPECIALS = 8, NO_ROOT = 16 };

struct lines {
	char **v;
	size_t n;
	unsigned flags;
	const struct view *view;
};

static void lines_add(struct lines *l, struct buf *b)
{
	buf_u8(b, 0);
	l->v = realloc(l->v, (l->n + 1) * sizeof(*l->v));
	assert_non_null(l->v);
	l->v[l->n++] = strdup((char *)b->data);
	buf_done(b);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void hex(struct buf *b, const void *data, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf_printf(b, "%02x", ((const uint8_t *)data)[i]);
}

static bool left_out(unsigned flags, uint32_t mode, size_t path_len)
{
	if (S_ISSOCK(mode) || (path_len == 0 && (flags & NO_ROOT)))
		return true;
	return (flags & NO_SPECIALS) && !S_ISREG(mode) && !S_ISDIR(mode) && !S_ISLNK(mode);
}

static void describe(struct buf *b, unsigned flags, const char *path, size_t len,
		     const struct attr *a)
{
	buf_add(b, path, len);
	buf_printf(b, "|%o|%u:%u|%" PRIu64 "|%lld.%09ld", a->mode, a->uid, a->gid,
		   S_ISDIR(a->mode) ? 0 : a->size, (long long)a->mtime.tv_sec,
		   flags & NO_NANOS ? 0 : a->mtime.tv_nsec);
	if (!(flags & NO_LINKS) && !S_ISDIR(a->mode))
		buf_printf(b, "|n%u", a->nlink);
	if (S_ISCHR(a->mode) || S_ISBLK(a->mode))
		buf_printf(b, "|%u,%u", major(a->rdev), minor(a->rdev));
}

static void add_content_hash(struct buf *b, const uint8_t *data, size_t n)
{
	struct digest d;
	hash_sha256(&d, data, n);
	buf_printf(b, "|");
	hex(b, d.b, 8);
}

static int view_xattr_line(void *ctx, const char *name, size_t name_len, const void *value,
			   size_t len)
{
	struct lines *l = ctx; /* gathered apart: their order is not the file system's */
	struct buf b = { 0 };
	buf_add(&b, name, name_len);
	buf_printf(&b, "=");
	hex(&b, value, len);
	lines_add(l, &b);
	return 0;
}

static void add_sorted(struct buf *b, struct lines *x)
{
	if (x->n)
		qsort(x->v, x->n, sizeof(*x->v), by_text);
	for (size_t i = 0; i < x->n; i++) {
		buf_printf(b, "|%s", x->v[i]);
		free(x->v[i]);
	}
	free(x->v);
}

enum { HASH_MAX = 64 << 20 }; /* larger files are compared by size */

static int view_line(void *ctx, const char *path, size_t len, const struct attr *a)
{
	struct lines *l = ctx, xattrs = { 0 };
	struct buf b = { 0 };
	if (left_out(l->flags, a->mode, len))
		return 0;
	describe(&b, l->flags, path, len, a);
	if (S_ISLNK(a->mode)) {
		char target[5000];
		size_t n;
		assert_int_equal(view_target(l->view, a->ino, target, sizeof(target), &n), 0);
		buf_printf(&b, "|%.*s", (int)n, target);
	}
	if (S_ISREG(a->mode) && a->size <= HASH_MAX) {
		struct err err = { 0 };
		auto_free uint8_t *data = malloc(a->size + 1);
		if (view_read(l->view, a->ino, data, a->size, 0, &err) != (ssize_t)a->size)
			fail_msg("%.*s: %s", (int)len, path, err.text);
		add_content_hash(&b, data, a->size);
	}
	if (!(l->flags & NO_XATTRS))
		assert_int_equal(view_each_xattr(l->view, a->ino, view_xattr_line, &xattrs), 0);
	add_sorted(&b, &xattrs);
	lines_add(l, &b);
	return 0;
}

static void view_lines(const struct view *v, unsigned flags, struct lines *l)
{
	struct err err = { 0 };
	*l = (struct lines){ .flags = flags, .view = v };
	if (view_walk(v, view_line, l, &err) < 0)
		fail_msg("%s", err.text);
	qsort(l->v, l->n, sizeof(*l->v), by_text);
}

static void host_line(struct lines *l, const char *full, const char *path)
{
	struct lines xattrs = { 0 };
	struct buf b = { 0 };
	struct stat st;
	assert_int_equal(lstat(full, &st), 0);
	const struct attr a = { .mode = st.st_mode,
				.uid = st.st_uid,
				.gid = st.st_gid,
				.size = (uint64_t)st.st_size,
				.mtime = st.st_mtim,
				.nlink = (uint32_t)st.st_nlink,
				.rdev = (uint32_t)st.st_rdev };
	if (left_out(l->flags, a.mode, strlen(path)))
		return;
	describe(&b, l->flags, path, strlen(path), &a);
	if (S_ISLNK(a.mode)) {
		char target[5000];
		ssize_t n = readlink(full, target, sizeof(target));
		buf_printf(&b, "|%.*s", (int)n, target);
	}
	if (S_ISREG(a.mode) && a.size <= HASH_MAX) {
		auto_free void *data = NULL;
		size_t n;
		assert_int_equal(io_slurp(NULL, AT_FDCWD, full, HASH_MAX, &data, &n, NULL), 0);
		add_content_hash(&b, data, n);
	}
	static char names[65536], value[65536];
	ssize_t n = l->flags & NO_XATTRS ? 0 : llistxattr(full, names, sizeof(names));
	for (char *x = names; n > 0 && x < names + n; x += strlen(x) + 1) {
		ssize_t len = lgetxattr(full, x, value, sizeof(value));
		if (len >= 0)
			(void)view_xattr_line(&xattrs, x, strlen(x), value, (size_t)len);
	}
	add_sorted(&b, &xattrs);
	lines_add(l, &b);
}

static void host_walk(struct lines *l, const char *full, const char *path)
{
	host_line(l, full, path);
	struct stat st;
	assert_int_equal(lstat(full, &st), 0);
	if (!S_ISDIR(st.st_mode))
		return;
	auto_dir *d = opendir(full);
	assert_non_null(d);
	for (struct dirent *de; (de = readdir(d));) {
		if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
			continue;
		char f[4096], p[4096];
		(void)snprintf(f, sizeof(f), "%s/%s", full, de->d_name);
		(void)snprintf(p, sizeof(p), "%s%s%s", path, *path ? "/" : "", de->d_name);
		host_walk(l, f, p);
	}
}

static void host_lines(const char *dir, unsigned flags, struct lines *l)
{
	*l = (struct lines){ .flags = flags };
	host_walk(l, dir, "");
	qsort(l->v, l->n, sizeof(*l->v), by_text);
}

static void same_lines(struct lines *want, struct lines *got)
{
	for (size_t i = 0; i < want->n && i < got->n; i++)
		if (strcmp(want->v[i], got->v[i]) != 0)
			fail_msg("want %s\n got %s", want->v[i], got->v[i]);
	assert_int_equal(want->n, got->n);
	for (size_t i = 0; i < want->n; i++) {
		free(want->v[i]);
		free(got->v[i]);
	}
	free(want->v);
	free(got->v);
}

static void view_is_host(const struct view *v, const char *dir, unsigned flags)
{
	struct lines want, got;
	host_lines(dir, flags, &want);
	view_lines(v, flags, &got);
	same_lines(&want, &got);
}

static void views_equal(const struct view *a, const struct view *b, unsigned flags)
{
	struct lines want, got;
	view_lines(a, flags, &want);
	view_lines(b, flags, &got);
	same_lines(&want, &got);
}

/* ---- a real tree with every kind of file ---- */

static void put_file(int dir, const char *name, size_t n, unsigned seed)
{
	auto_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	auto_free uint8_t *data = malloc(n + 1);
	uint64_t x = seed * 2654435761u + 1;
	for (size_t i = 0; i < n; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		data[i] = seed % 2 ? (uint8_t)(x >> 56) : (uint8_t)(i / 64 + seed);
	}
	assert_int_equal(io_write_full(NULL, fd, data, n, 0), 0);
}

static void put_sparse(int dir, const char *name, uint64_t size, const uint64_t *at, size_t n)
{
	auto_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	char block[4096];
	memset(block, 'd', sizeof(block));
	for (size_t i = 0; i < n; i++)
		assert_int_equal(io_write_full(NULL, fd, block, sizeof(block), at[i]), 0);
}

static void set_times(int dir, const char *name, time_t sec, long nsec)
{
	const struct timespec t[] = { { 1, 2 }, { sec, nsec } };
	assert_int_equal(utimensat(dir, name, t, AT_SYMLINK_NOFOLLOW), 0);
}

static const char *long_name(char c)
{
	static char name[256];
	memset(name, c, 255);
	return name;
}

static void put_specials(int fd)
{
	assert_int_equal(mkfifoat(fd, "fifo", 0640), 0);
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	char cwd[4096];
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	assert_int_equal(fchdir(fd), 0);
	auto_fd s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	memcpy(un.sun_path, "sock", 5);
	assert_int_equal(bind(s, (struct sockaddr *)&un, sizeof(un)), 0);
	assert_int_equal(chdir(cwd), 0);
	if (geteuid() != 0)
		return;
	assert_int_equal(mknodat(fd, "char", S_IFCHR | 0666, makedev(5, 1)), 0);
	assert_int_equal(mknodat(fd, "block", S_IFBLK | 0600, makedev(259, 70000)), 0);
	assert_int_equal(fchownat(fd, "fifo", 12345, 4000000000u, 0), 0);
	assert_int_equal(fchownat(fd, "link", 7, 8, AT_SYMLINK_NOFOLLOW), 0);
}

/* Where the file system has no xattrs, the tree has none, and still must come through. */
static void put_xattrs(int fd)
{
	auto_fd f = openat(fd, "small", O_RDONLY | O_CLOEXEC);
	auto_fd d = openat(fd, "dir", O_RDONLY | O_CLOEXEC);
	(void)fsetxattr(f, "user.text", "value", 5, 0);
	(void)fsetxattr(f, "user.binary", "\0\n=\xff", 4, 0);
	(void)fsetxattr(f, "user.empty", "", 0, 0);
	(void)fsetxattr(f, "trusted.t", "x", 1, 0);
	(void)fsetxattr(f, "security.capability", "\1\0\0\2\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20,
			0);
	(void)fsetxattr(d, "user.d", "dir", 3, 0);
	(void)fsetxattr(d, "trusted.overlay.opaque", "y", 1, 0);
}

static void put_tree(const char *dir, bool odd_names)
{
	auto_fd fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	static const uint64_t some[] = { 4096 * 5, 4096 * 100, 4096 * 1000 };
	put_file(fd, "empty", 0, 1);
	put_file(fd, "small", 100, 2);
	put_file(fd, "blocks", 5000, 3);
	put_file(fd, "object", STORE_SMALL_MAX, 4);
	put_file(fd, "large", 3000000, 5);
	put_sparse(fd, "sparse", 10 << 20, some, 3);
	put_sparse(fd, "hole", 5ULL << 30, NULL, 0);
	put_sparse(fd, "tail", (5ULL << 30) + 4096, &(uint64_t){ 5ULL << 30 }, 1);
	assert_int_equal(mkdirat(fd, "dir", 0755), 0);
	assert_int_equal(mkdirat(fd, "dir/sub", 0755), 0);
	assert_int_equal(mkdirat(fd, "none", 0555), 0);
	put_file(fd, "dir/sub/deep", 10, 6);
	assert_int_equal(linkat(fd, "small", fd, "dir/sub/hard", 0), 0);
	assert_int_equal(linkat(fd, "small", fd, "hard2", 0), 0);
	assert_int_equal(symlinkat("../nowhere/\xc3\xbc", fd, "link"), 0);
	assert_int_equal(linkat(fd, "link", fd, "dir/link2", 0), 0);
	put_file(fd, "gr\xc3\xbc\xc3\x9f", 3, 8);
	put_file(fd, "u\xcc\x88 not composed", 3, 8);
	put_file(fd, long_name('n'), 3, 9);
	char path[600];
	(void)snprintf(path, sizeof(path), "dir/%s", long_name('d'));
	assert_int_equal(mkdirat(fd, path, 0700), 0);
	(void)snprintf(path + 259, sizeof(path) - 259, "/%s", long_name('e'));
	put_file(fd, path, 3, 10);
	if (odd_names) {
		put_file(fd, "bad \xff\xfe", 3, 11);
		put_file(fd, "cesu \xed\xa0\x81\xed\xb0\x80", 3, 12);
		assert_int_equal(symlinkat("to \xff", fd, "bad link"), 0);
		put_file(fd, "new\nline\\ and \"quotes\"", 3, 13);
	}
	put_specials(fd);
	put_xattrs(fd);
	assert_int_equal(fchmodat(fd, "blocks", 06755, 0), 0);
	assert_int_equal(fchmodat(fd, "dir", 01777, 0), 0);
	set_times(fd, "small", 981173106, 123456789);
	set_times(fd, "blocks", 0, 1);
	set_times(fd, "large", 5000000000, 999999999);
	set_times(fd, "link", 1000000000, 5);
	set_times(fd, "dir", 1500000000, 500000000);
	set_times(fd, "empty", -5, 250000000);
	set_times(fd, ".", 1600000000, 1);
}

static void quiet(void *ctx, const char *line)
{
	unsigned *n = ctx;
	++*n;
}

/* The tree's pax stream. */
static void pack(const char *dir, struct buf *out)
{
	struct err err = { 0 };
	unsigned said = 0;
	const struct pack_options opt = { .say = quiet, .say_ctx = &said };
	auto_fd fd = memfd_create("pack", MFD_CLOEXEC);
	if (pack_tree(dir, fd, &opt, &err) != 0)
		fail_msg("%s", err.text);
	assert_int_equal(said, 1); /* the socket */
	off_t n = lseek(fd, 0, SEEK_END);
	assert_non_null(buf_room(out, (size_t)n));
	assert_int_equal(io_read_full(NULL, fd, out->data, (size_t)n, 0), n);
	out->len = (size_t)n;
}

static int to_buf(void *ctx, const void *data, size_t n)
{
	buf_add(ctx, data, n);
	return buf_error(ctx);
}

static void exported(const struct view *v, enum export_format f, struct buf *out,
		     struct archive_export_stats *st)
{
	struct err err = { 0 };
	const struct archive_export_options opt = { .format = f,
						    .write = to_buf,
						    .write_ctx = out };
	if (archive_export(v, &opt, st, &err) < 0)
		fail_msg("%s: %s", export_format_name(f), err.text);
	assert_int_equal(st->archive_bytes, out->len);
}

/* ---- round trips ---- */

static uint64_t data_ranges(const struct view *v, const char *name, uint64_t first[2])
{
	struct dirent_ref d;
	uint64_t n = 0, at = 0, end;
	assert_int_equal(view_lookup(v, 1, name, strlen(name), &d), 0);
	while (view_seek(v, d.ino, at, false, &at) == 0) {
		assert_int_equal(view_seek(v, d.ino, at, true, &end), 0);
		if (n == 0)
			first[0] = at, first[1] = end;
		n++;
		at = end;
	}
	return n;
}

static void holes_are_there(const struct view *v)
{
	uint64_t r[2];
	assert_int_equal(data_ranges(v, "sparse", r), 3);
	assert_int_equal(r[0], 4096 * 5);
	assert_int_equal(r[1], 4096 * 6);
	assert_int_equal(data_ranges(v, "hole", r), 0);
	assert_int_equal(data_ranges(v, "tail", r), 1);
	assert_true(r[0] == 5ULL << 30);
}

static void pack_and_import(void **state)
{
	struct place *p = *state;
	auto_buf tar = { 0 };
	struct view v;
	put_tree(p->tree, true);
	pack(p->tree, &tar);
	imported(p, &tar, &v);
	view_is_host(&v, p->tree, 0);
	holes_are_there(&v);
	struct dirent_ref a, b;
	assert_int_equal(view_lookup(&v, 1, "small", 5, &a), 0);
	assert_int_equal(view_lookup(&v, 1, "hard2", 5, &b), 0);
	assert_int_equal(a.ino, b.ino);
	view_done(&v);
}

static void export_and_import(void **state)
{
	struct place *p = *state;
	/* What each format can't hold; cpio and zip by their own tests. */
	const enum export_format formats[] = { EXPORT_TAR, EXPORT_TAR_ZST };
	for (int odd = 0; odd < 2; odd++) {
		auto_buf tar = { 0 };
		struct view v;
		assert_int_equal(io_remove_tree(AT_FDCWD, p->tree, NULL), 0);
		assert_int_equal(mkdir(p->tree, 0755), 0);
		put_tree(p->tree, odd);
		pack(p->tree, &tar);
		imported(p, &tar, &v);
		for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
			auto_buf one = { 0 }, two = { 0 };
			struct archive_export_stats st;
			struct view w;
			exported(&v, formats[i], &one, &st);
			exported(&v, formats[i], &two, &st);
			assert_int_equal(one.len, two.len);
			assert_memory_equal(one.data, two.data, one.len);
			assert_int_equal(st.xattrs_dropped, 0);
			imported(p, &one, &w);
			views_equal(&v, &w, 0);
			holes_are_there(&w);
			view_done(&w);
		}
		view_done(&v);
	}
}

/* A tree that cpio and zip can hold: nothing of 4 GiB. */
static void view_of_small_tree(struct place *p, struct view *v)
{
	auto_buf tar = { 0 };
	char path[600];
	put_tree(p->tree, false);
	for (int i = 0; i < 3; i++) {
		static const char *const names[] = { "hole", "tail", "u\xcc\x88 not composed" };
		(void)snprintf(path, sizeof(path), "%s/%s", p->tree, names[i]);
		assert_int_equal(unlink(path), 0);
	}
	/* No time that a format of seconds since 1970, or of 32 bits, can't hold. */
	auto_fd fd = open(p->tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	set_times(fd, "empty", 5, 0);
	set_times(fd, "large", 2000000000, 0);
	pack(p->tree, &tar);
	imported(p, &tar, v);
}

static void cpio(void **state)
{
	struct place *p = *state;
	struct archive_export_stats st;
	auto_buf out = { 0 };
	struct view v, w;
	view_of_small_tree(p, &v);
	exported(&v, EXPORT_CPIO, &out, &st);
	assert_int_equal(st.holes_filled, 1);
	assert_int_equal(st.links_as_files, 1); /* the symlink */
	imported(p, &out, &w);
	/* The symlink's two names are two links now. */
	struct lines want, got;
	view_lines(&v, NO_XATTRS | NO_NANOS | NO_LINKS, &want);
	view_lines(&w, NO_XATTRS | NO_NANOS | NO_LINKS, &got);
	same_lines(&want, &got);
	struct attr a;
	struct dirent_ref d;
	assert_int_equal(view_lookup(&w, 1, "small", 5, &d), 0);
	assert_int_equal(view_inode(&w, d.ino, &a), 0);
	assert_int_equal(a.nlink, 3);
	view_done(&v);
	view_done(&w);
}

static void zip(void **state)
{
	struct place *p = *state;
	struct archive_export_stats st;
	auto_buf out = { 0 };
	struct view v, w;
	view_of_small_tree(p, &v);
	exported(&v, EXPORT_ZIP, &out, &st);
	assert_int_equal(st.holes_filled, 1);
	assert_int_equal(st.links_as_files, 3);
	assert_int_equal(st.specials_skipped, geteuid() == 0 ? 3 : 1);
	imported(p, &out, &w);
	views_equal(&v, &w, NO_XATTRS | NO_NANOS | NO_LINKS | NO_SPECIALS | NO_ROOT);
	view_done(&v);
	view_done(&w);
}

static void run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *fmt, ...)
{
	char line[2000];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	int r = system(line);
	if (!WIFEXITED(r) || WEXITSTATUS(r) != 0)
		fail_msg("%s: %d", line, r);
}

static void write_out(struct place *p, const char *name, const struct buf *b)
{
	char path[300];
	(void)snprintf(path, sizeof(path), "%s/%s", p->path, name);
	auto_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(io_write_full(NULL, fd, b->data, b->len, 0), 0);
}

static void read_in(struct place *p, const char *name, struct buf *b)
{
	char path[300];
	void *data;
	(void)snprintf(path, sizeof(path), "%s/%s", p->path, name);
	assert_int_equal(io_slurp(NULL, AT_FDCWD, path, 64 << 20, &data, &b->len, NULL), 0);
	b->data = data;
	b->cap = b->len;
}

/* GNU tar makes the same tree of what we export, and we of what it packs. */
static void gnu_tar(void **state)
{
	struct place *p = *state;
	const char *const xattrs = geteuid() == 0 ? "--xattrs --xattrs-include='*'" : "";
	struct archive_export_stats st;
	auto_buf packed = { 0 }, out = { 0 };
	struct view v;
	put_tree(p->tree, false);
	pack(p->tree, &packed);
	imported(p, &packed, &v);
	exported(&v, EXPORT_TAR, &out, &st);
	write_out(p, "out.tar", &out);
	run("cd '%s' && tar %s --numeric-owner -xpf ../out.tar 2>../tar.log || cat ../tar.log; grep -v 'time stamp' ../tar.log && exit 1; exit 0",
	    p->out, xattrs);
	view_is_host(&v, p->out, geteuid() == 0 ? 0 : NO_XATTRS);
	view_done(&v);
	const char *const formats[] = {
		"pax -S --sparse-version=0.0",
		"pax -S --sparse-version=0.1",
		"pax -S --sparse-version=1.0",
		"gnu -S",
		"pax -z",
		"pax -j",
		"pax -J",
		"pax --zstd",
	};
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		bool gnu = formats[i][0] == 'g', sparse = strstr(formats[i], "-S") != NULL;
		if (!sparse) /* gigabytes of zeros, compressed, take their time */
			run("cd '%s' && rm -f hole tail large object", p->tree);
		run("cd '%s' && tar --numeric-owner %s -cf ../in.tar --format=%s . 2>/dev/null",
		    p->tree, gnu ? "" : xattrs, formats[i]);
		auto_buf in = { 0 };
		read_in(p, "in.tar", &in);
		imported(p, &in, &v);
		view_is_host(&v, p->tree,
			     (gnu ? NO_NANOS | NO_XATTRS : 0) | (*xattrs ? 0 : NO_XATTRS));
		if (sparse)
			holes_are_there(&v);
		view_done(&v);
	}
}

/* ---- archives made by hand ---- */

struct made {
	const char *path;
	uint32_t mode;
	const char *link; /* of a symlink; with `hard`, the other name */
	bool hard;
	const char *content;
};

static void make_with(struct buf *out, int format, const struct made *m, size_t n)
{
	struct archive *a = archive_write_new();
	struct archive_entry *e = archive_entry_new();
	size_t used, room = 1 << 20;
	assert_non_null(buf_room(out, room));
	assert_int_equal(archive_write_set_format(a, format), ARCHIVE_OK);
	assert_int_equal(archive_write_set_bytes_in_last_block(a, 1), ARCHIVE_OK);
	assert_int_equal(archive_write_open_memory(a, out->data, room, &used), ARCHIVE_OK);
	for (size_t i = 0; i < n; i++) {
		archive_entry_clear(e);
		archive_entry_set_pathname(e, m[i].path);
		archive_entry_set_mode(e, m[i].mode);
		archive_entry_set_mtime(e, 1000 + (time_t)i, 0);
		archive_entry_set_size(e, m[i].content ? (int64_t)strlen(m[i].content) : 0);
		if (m[i].hard)
			archive_entry_set_hardlink(e, m[i].link);
		else if (m[i].link)
			archive_entry_set_symlink(e, m[i].link);
		assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
		if (m[i].content)
			assert_true(archive_write_data(a, m[i].content, strlen(m[i].content)) >= 0);
	}
	assert_int_equal(archive_write_close(a), ARCHIVE_OK);
	out->len = used;
	(void)archive_write_free(a);
	archive_entry_free(e);
}

static void make(struct buf *out, const struct made *m, size_t n)
{
	make_with(out, ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE, m, n);
}

#define REG  (S_IFREG | 0644)
#define DIR_ (S_IFDIR | 0700)
#define LNK  (S_IFLNK | 0777)
#define HARD(path, to)                    \
	{                                 \
		path, REG, to, true, NULL \
	}

static void refused(void **state)
{
	struct place *p = *state;
	static char far[300];
	memset(far, 'x', 256);
	const struct {
		const char *says;
		struct made m[3];
	} cases[] = {
		{ "absolute name", { { "/etc/passwd", REG, NULL, false, "x" } } },
		{ "absolute name", { { "//a", REG, NULL, false, "x" } } },
		{ "with '..'", { { "../a", REG, NULL, false, "x" } } },
		{ "with '..'", { { "a/../b", REG, NULL, false, "x" } } },
		{ "with '..'", { { "./..", DIR_, NULL, false, NULL } } },
		{ "over 255 bytes", { { far, REG, NULL, false, "x" } } },
		{ "root must be a folder", { { ".", REG, NULL, false, "x" } } },
		{ "root must be a folder", { { "./.", LNK, "/etc", false, NULL } } },
		{ "lies below 'a', which",
		  { { "a", LNK, "/etc", false, NULL }, { "a/b", REG, NULL, false, "x" } } },
		{ "lies below './a', which",
		  { { "a", REG, NULL, false, NULL }, { "./a/b/c", REG, NULL, false, "x" } } },
		{ "different types",
		  { { "a/b", REG, NULL, false, NULL }, { "a", LNK, "/tmp", false, NULL } } },
		{ "different types",
		  { { "a", REG, NULL, false, NULL }, { "a", DIR_, NULL, false, NULL } } },
		{ "different types",
		  { { "a/b", REG, NULL, false, NULL }, { "a", REG, NULL, false, "x" } } },
		{ "different types",
		  { { "a", LNK, "b", false, NULL }, { "a", REG, NULL, false, "x" } } },
		{ "not in the archive", { HARD("a", "b") } },
		{ "not in the archive", { HARD("a", "b"), { "b", REG, NULL, false, "x" } } },
		{ "not in the archive", { HARD("a", "b/c/d") } },
		{ "not in the archive", { HARD("a", ".") } },
		{ "target with '..'", { HARD("a", "../b") } },
		{ "absolute hard link's target", { HARD("a", "/etc/shadow") } },
		{ "the folder 'd'", { { "d", DIR_, NULL, false, NULL }, HARD("a", "d") } },
		{ "which is no folder",
		  { { "l", LNK, "/etc", false, NULL }, HARD("a", "l/shadow") } },
		{ "different types",
		  { { "a", REG, NULL, false, "x" },
		    { "d", DIR_, NULL, false, NULL },
		    HARD("d", "a") } },
		{ "root must be a folder", { { "a", REG, NULL, false, "x" }, HARD(".", "a") } },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		auto_buf b = { 0 };
		struct digest image;
		struct err err = { 0 };
		size_t n = 0;
		while (n < 3 && cases[i].m[n].path)
			n++;
		make(&b, cases[i].m, n);
		int r = import(p, &b, &image, &err);
		if (r != -EBADMSG || !strstr(err.text, cases[i].says))
			fail_msg("case %zu: %d %s; want '%s'", i, r, err.text, cases[i].says);
		if (!strstr(err.text, "import: '"))
			fail_msg("case %zu: no member is named: %s", i, err.text);
		assert_null(strchr(err.text, '\n'));
		assert_int_equal(entries(p->images), 0);
	}
}

static void expect_line(const struct view *v, const char *path, const char *want)
{
	struct lines l;
	bool found = false;
	view_lines(v, NO_NANOS, &l);
	for (size_t i = 0; i < l.n; i++) {
		size_t n = strlen(path);
		if (strncmp(l.v[i], path, n) == 0 && l.v[i][n] == '|') {
			found = true;
			if (strncmp(l.v[i] + n + 1, want, strlen(want)) != 0)
				fail_msg("%s: want %s", l.v[i], want);
		}
		free(l.v[i]);
	}
	free(l.v);
	if (!found)
		fail_msg("no %s", path);
}

static void later_members(void **state)
{
	struct place *p = *state;
	auto_buf b = { 0 };
	struct view v;
	const struct made m[] = {
		{ "./", S_IFDIR | 01711, NULL, false, NULL },
		{ "f", REG, NULL, false, "first" },
		HARD("keeps", "f"),
		{ "./f", S_IFREG | 0600, NULL, false, "second!" }, /* "keeps" stays as it is */
		{ "d", S_IFDIR | 0700, NULL, false, NULL },
		{ "d//./x", REG, NULL, false, "x" },
		{ "d/", S_IFDIR | 0755, NULL, false, NULL },
		{ "l", LNK, "one", false, NULL },
		{ "l", LNK, "two", false, NULL },
		HARD("keeps", "keeps"),
		{ "made/by/itself", REG, NULL, false, NULL },
	};
	make(&b, m, sizeof(m) / sizeof(m[0]));
	imported(p, &b, &v);
	expect_line(&v, "", "41711|0:0|0|1000.000000000");
	expect_line(&v, "f", "100600|0:0|7|1003.000000000|n1");
	expect_line(&v, "keeps", "100644|0:0|5|1001.000000000|n1");
	expect_line(&v, "d", "40755|0:0|0|1006.0");
	expect_line(&v, "d/x", "100644|0:0|1|");
	expect_line(&v, "l", "120777|0:0|3|1008.000000000|n1|two");
	expect_line(&v, "made", "40755|0:0|0|");
	expect_line(&v, "made/by/itself", "100644");
	view_done(&v);
}

/* cpio gives the content with the last name, pax may give it with each. */
static void content_of_a_link(void **state)
{
	struct place *p = *state;
	static const char cpio_text[] = "070701"
					"00000001"
					"000081A4"
					"00000000"
					"00000000"
					"00000002"
					"00000001"
					"00000000"
					"00000000"
					"00000000"
					"00000000"
					"00000000"
					"00000002"
					"00000000"
					"a\0"
					"070701"
					"00000001"
					"000081A4"
					"00000000"
					"00000000"
					"00000002"
					"00000001"
					"00000005"
					"00000000"
					"00000000"
					"00000000"
					"00000000"
					"00000002"
					"00000000"
					"b\0"
					"hello\0\0\0"
					"070701"
					"00000000"
					"00000000"
					"00000000"
					"00000000"
					"00000001"
					"00000000"
					"00000000"
					"00000000"
					"00000000"
					"00000000"
					"00000000"
					"0000000B"
					"00000000"
					"TRAILER!!!\0\0\0\0";
	struct buf b = { .data = (uint8_t *)(uintptr_t)cpio_text, .len = sizeof(cpio_text) - 1 };
	struct view v;
	imported(p, &b, &v);
	expect_line(&v, "a", "100644|0:0|5|1.000000000|n2|2cf24dba5fb0a30e");
	expect_line(&v, "b", "100644|0:0|5|1.000000000|n2|2cf24dba5fb0a30e");
	view_done(&v);
}

static void limits(void **state)
{
	struct place *p = *state;
	const struct made m[] = {
		{ "a", REG, NULL, false, "x" },
		{ "b", REG, NULL, false, "x" },
		{ "c/d", REG, NULL, false, NULL },
	};
	auto_buf b = { 0 };
	make(&b, m, 3);
	for (uint64_t inodes = 1; inodes <= 5; inodes++)
		for (uint64_t blocks = 1; blocks <= 2; blocks++) {
			struct memory in = { .data = b.data, .len = b.len };
			struct archive_import_options opt = options(p, NULL);
			struct digest image;
			struct err err = { 0 };
			opt.max_inodes = inodes;
			opt.max_bytes = blocks * 4096;
			int r = import_with(p, &in, &opt, &image, NULL, &err);
			assert_int_equal(r, inodes < 5 || blocks < 2 ? -EFBIG : 0);
			assert_int_equal(entries(p->images), r == 0);
		}
}

/* 100 MiB of zeros in a few kilobytes: stopped where the limit is, in little memory. */
static void bomb(void **state)
{
	struct place *p = *state;
	struct archive *a = archive_write_new();
	struct archive_entry *e = archive_entry_new();
	auto_buf b = { 0 };
	size_t used, room = 4 << 20;
	static const uint8_t mega[1 << 20];
	assert_non_null(buf_room(&b, room));
	assert_int_equal(archive_write_set_format_ustar(a), ARCHIVE_OK);
	assert_int_equal(archive_write_add_filter_zstd(a), ARCHIVE_OK);
	assert_int_equal(archive_write_open_memory(a, b.data, room, &used), ARCHIVE_OK);
	archive_entry_set_pathname(e, "zeros");
	archive_entry_set_mode(e, REG);
	archive_entry_set_size(e, 100LL << 20);
	assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
	for (int i = 0; i < 100; i++)
		assert_int_equal(archive_write_data(a, mega, sizeof(mega)), sizeof(mega));
	assert_int_equal(archive_write_close(a), ARCHIVE_OK);
	(void)archive_write_free(a);
	archive_entry_free(e);
	struct memory in = { .data = b.data, .len = used };
	struct archive_import_options opt = options(p, NULL);
	struct digest image;
	struct err err = { 0 };
	opt.max_bytes = 64 << 20;
	assert_int_equal(import_with(p, &in, &opt, &image, NULL, &err), -EFBIG);
	assert_non_null(strstr(err.text, "more than 67108864 bytes"));
	assert_int_equal(entries(p->images), 0);
}

static void cut_short(void **state)
{
	struct place *p = *state;
	const struct made m[] = {
		{ "one", REG, NULL, false, "content of one" },
		{ "dir", DIR_, NULL, false, NULL },
		{ "dir/two", REG, NULL, false, "content of two" },
	};
	const int formats[] = { ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE, ARCHIVE_FORMAT_TAR_USTAR,
				ARCHIVE_FORMAT_CPIO_SVR4_NOCRC, ARCHIVE_FORMAT_ZIP };
	for (size_t f = 0; f < sizeof(formats) / sizeof(formats[0]); f++) {
		auto_buf b = { 0 };
		struct digest image;
		make_with(&b, formats[f], m, 3);
		size_t end = b.len;
		bool tar = (formats[f] & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_TAR;
		/* Of a tar's end mark, two blocks of zeros, one is enough. */
		size_t must = tar ? end - 512 : end;
		for (b.len = 0; b.len < must; b.len += tar ? 128 : 1) {
			struct err err = { 0 };
			int r = import(p, &b, &image, &err);
			if (r != -EBADMSG || !err.text[0])
				fail_msg("format %zu cut at %zu: %d %s", f, b.len, r, err.text);
			assert_int_equal(entries(p->images), 0);
		}
		b.len = end;
		assert_int_equal(import(p, &b, &image, NULL), 0);
		assert_int_equal(entries(p->images), 1);
		char file[DIGEST_HEX + 1];
		digest_hex(file, &image);
		run("rm '%s'/%s.img", p->images, file);
	}
}

/* ---- failures of what the import stands on ---- */

static int cancel(void *ctx, uint64_t bytes, uint64_t n)
{
	return 1;
}

static void broken_off(void **state)
{
	struct place *p = *state;
	const struct made m[] = { { "one", REG, NULL, false, "content" } };
	auto_buf b = { 0 };
	struct digest image;
	struct err err = { 0 };
	make(&b, m, 1);
	struct memory in = { .data = b.data, .len = b.len, .step = 100, .fail_at = 700 };
	assert_int_equal(import_with(p, &in, NULL, &image, NULL, &err), -EPIPE);
	assert_string_equal(err.text, "import: the sender went away");
	in = (struct memory){ .data = b.data, .len = b.len };
	struct archive_import_options opt = options(p, NULL);
	opt.progress = cancel;
	assert_int_equal(import_with(p, &in, &opt, &image, NULL, &err), -ECANCELED);
	opt = options(p, NULL);
	opt.images = "/nonexistent";
	in = (struct memory){ .data = b.data, .len = b.len };
	assert_int_equal(import_with(p, &in, &opt, &image, NULL, &err), -ENOENT);
	assert_int_equal(entries(p->images), 0);
}

static void image_faults(void **state)
{
	struct place *p = *state;
	const struct made m[] = { { "one", REG, NULL, false, "content" } };
	auto_buf b = { 0 };
	make(&b, m, 1);
	for (uint64_t n = 1;; n++) {
		struct io_fault *f = io_fault_new(NULL);
		const struct io_fault_plan plan = { .ops = IO_OPS_CHANGE,
						    .nth = n,
						    .error = -ENOSPC };
		struct memory in = { .data = b.data, .len = b.len };
		struct archive_import_options opt = options(p, NULL);
		struct digest image;
		struct err err = { 0 };
		io_fault_plan(f, &plan);
		opt.io = io_fault_io(f);
		int r = import_with(p, &in, &opt, &image, NULL, &err);
		bool hit = io_fault_hits(f) > 0;
		io_fault_free(f);
		if (!hit) {
			assert_int_equal(r, 0);
			break;
		}
		assert_int_equal(r, -ENOSPC);
		assert_true(err.text[0]);
	}
	assert_true(entries(p->images) >= 1);
}

static void out_of_memory(void **state)
{
	struct place *p = *state;
	const struct made m[] = {
		{ "dir/one", REG, NULL, false, "content" },
		{ "two", LNK, "one", false, NULL },
		HARD("three", "dir/one"),
	};
	auto_buf b = { 0 };
	make(&b, m, 3);
	for (uint64_t n = 1;; n++) {
		struct digest image;
		struct err err = { 0 };
		struct memory in = { .data = b.data, .len = b.len };
		struct store_session *ss;
		const struct archive_source src = { .read = memory_read, .ctx = &in };
		assert_int_equal(store_session_begin(p->store, &ss, NULL), 0);
		const struct archive_import_options opt = options(p, ss);
		oom_at(n);
		int r = archive_import(&image, &opt, &src, NULL, &err);
		bool hit = oom_hit();
		store_session_end(ss);
		if (!hit) {
			assert_int_equal(r, 0);
			break;
		}
		if (r != -ENOMEM && r != 0) /* 0: where memory only saves work */
			fail_msg("allocation %" PRIu64 ": %d %s", n, r, err.text);
	}
}

/* ---- export's failures ---- */

struct sink {
	size_t left;
	int error;
	struct buf got;
};

static int sink_write(void *ctx, const void *data, size_t n)
{
	struct sink *s = ctx;
	if (n > s->left)
		return s->error;
	s->left -= n;
	buf_add(&s->got, data, n);
	return 0;
}

static void export_failures(void **state)
{
	struct place *p = *state;
	static char large[300000];
	memset(large, 'x', sizeof(large) - 1);
	const struct made m[] = { { "one", REG, NULL, false, "content" },
				  { "two", REG, NULL, false, large } };
	auto_buf b = { 0 };
	struct view v;
	make(&b, m, 2);
	imported(p, &b, &v);
	for (int f = EXPORT_TAR; f <= EXPORT_CPIO; f++) {
		struct err err = { 0 };
		struct sink s = { .left = 0, .error = -EPIPE };
		struct archive_export_options opt = { .format = (enum export_format)f,
						      .write = sink_write,
						      .write_ctx = &s };
		assert_int_equal(archive_export(&v, &opt, NULL, &err), -EPIPE);
		assert_non_null(strstr(err.text, "write the archive"));
		s = (struct sink){ .left = SIZE_MAX };
		opt.progress = cancel;
		assert_int_equal(archive_export(&v, &opt, NULL, &err), -ECANCELED);
		buf_done(&s.got);
	}
	/* The store lost the large one: what came out is no archive. */
	run("rm -rf '%s'/*; mkdir -p '%s'", p->store_dir, p->store_dir);
	store_close(p->store);
	const struct store_options so = { .create = true };
	assert_int_equal(store_open(&p->store, p->store_dir, &so, NULL), 0);
	v.store = p->store;
	struct err err = { 0 };
	struct sink s = { .left = SIZE_MAX };
	struct archive_export_options opt = { .write = sink_write, .write_ctx = &s };
	int r = archive_export(&v, &opt, NULL, &err);
	assert_true(r == -EIO || r == -ENOENT);
	assert_non_null(strstr(err.text, "./"));
	struct digest image;
	assert_int_equal(import(p, &s.got, &image, &err), -EBADMSG);
	buf_done(&s.got);
	view_done(&v);
	assert_int_equal(export_format_parse("tar.zst", NULL), EXPORT_TAR_ZST);
	assert_int_equal(export_format_parse("rar\n", &err), -EINVAL);
	assert_null(strchr(err.text, '\n'));
}

/* ---- bough-pack ---- */

static int pack_opt(const char *dir, const struct pack_options *opt, struct buf *out)
{
	struct err err = { 0 };
	auto_fd fd = memfd_create("pack", MFD_CLOEXEC);
	int r = pack_tree(dir, fd, opt, &err);
	off_t n = lseek(fd, 0, SEEK_END);
	assert_non_null(buf_room(out, (size_t)n + 1));
	assert_int_equal(io_read_full(NULL, fd, out->data, (size_t)n, 0), n);
	out->len = (size_t)n;
	return r;
}

static void pack_excludes(void **state)
{
	struct place *p = *state;
	run("cd '%s' && mkdir -p a/b/build build && touch a/x.o x.o a/b/y.c a/b/build/f build/f",
	    p->tree);
	const char *const excludes[] = { "*.o", "/build", "a/*/build" };
	unsigned said = 0;
	const struct pack_options opt = {
		.excludes = excludes, .nexcludes = 3, .say = quiet, .say_ctx = &said
	};
	auto_buf tar = { 0 };
	struct view v;
	assert_int_equal(pack_opt(p->tree, &opt, &tar), 0);
	imported(p, &tar, &v);
	run("cd '%s' && rm -rf a/x.o x.o build a/b/build", p->tree);
	struct lines want, got;
	host_lines(p->tree, NO_ROOT | NO_NANOS, &want);
	view_lines(&v, NO_ROOT | NO_NANOS, &got);
	assert_int_equal(want.n, got.n);
	for (size_t i = 0; i < want.n; i++) /* times of folders moved */
		want.v[i][strcspn(want.v[i], "|")] = got.v[i][strcspn(got.v[i], "|")] = '\0';
	same_lines(&want, &got);
	assert_int_equal(said, 0);
	view_done(&v);
}

static void pack_deep(void **state)
{
	struct place *p = *state;
	enum { DEPTH = 300 };
	char cwd[4096];
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	assert_int_equal(chdir(p->tree), 0);
	for (int i = 0; i < DEPTH; i++) {
		char name[100];
		(void)snprintf(name, sizeof(name), "folder-number-%d", i);
		assert_int_equal(mkdir(name, 0755), 0);
		assert_int_equal(chdir(name), 0);
		auto_fd fd = open("zz", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		assert_true(fd >= 0);
	}
	assert_int_equal(chdir(cwd), 0);
	unsigned said = 0;
	const struct pack_options opt = { .say = quiet, .say_ctx = &said };
	auto_buf tar = { 0 };
	struct view v;
	assert_int_equal(pack_opt(p->tree, &opt, &tar), 0);
	imported(p, &tar, &v);
	assert_int_equal(image_info(v.image)->inodes, 1 + 2 * DEPTH);
	view_done(&v);
}

static void pack_unreadable(void **state)
{
	struct place *p = *state;
	run("cd '%s' && mkdir a && touch a/f b && chmod 0 a b", p->tree);
	unsigned said = 0;
	struct pack_options opt = { .say = quiet, .say_ctx = &said };
	auto_buf tar = { 0 };
	struct digest image;
	struct view v;
	if (geteuid() == 0) { /* who may read everything, but no longer after this */
		pid_t pid = fork();
		if (pid == 0) {
			if (chown(p->tree, 1234, 1234) < 0 || chmod(p->path, 0711) < 0 ||
			    chown(p->images, 1234, 1234) < 0 || setgid(1234) < 0 ||
			    setuid(1234) < 0)
				_exit(9);
			int out = memfd_create("x", 0);
			if (pack_tree(p->tree, out, &opt, NULL) != -EIO || said != 2)
				_exit(1);
			opt.ignore_unreadable = true;
			said = 0;
			_exit(pack_tree(p->tree, out, &opt, NULL) == 0 && said == 2 ? 0 : 2);
		}
		int status;
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		return;
	}
	assert_int_equal(pack_opt(p->tree, &opt, &tar), -EIO);
	assert_int_equal(said, 2);
	assert_int_equal(import(p, &tar, &image, NULL), -EBADMSG); /* it has no end mark */
	buf_reset(&tar);
	opt.ignore_unreadable = true;
	assert_int_equal(pack_opt(p->tree, &opt, &tar), 0);
	imported(p, &tar, &v);
	view_done(&v);
	run("cd '%s' && chmod 700 a b", p->tree);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(pack_and_import),
		TEST(export_and_import),
		TEST(cpio),
		TEST(zip),
		TEST(gnu_tar),
		TEST(refused),
		TEST(later_members),
		TEST(content_of_a_link),
		TEST(limits),
		TEST(bomb),
		TEST(cut_short),
		TEST(broken_off),
		TEST(image_faults),
		TEST(out_of_memory),
		TEST(export_failures),
		TEST(pack_excludes),
		TEST(pack_deep),
		TEST(pack_unreadable),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
