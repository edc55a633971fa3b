/* For tests of archives: a root with a store and images, and trees as text to compare. */
#ifndef BOUGH_TESTS_ARCHIVE_KIT_H
#define BOUGH_TESTS_ARCHIVE_KIT_H

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
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <cmocka.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/work/view.h"
#include "snapd/archive_import.h"

/* ---- a place with a store, a folder of images, and a tree ---- */

struct place {
	char path[200], images[256], tree[256], out[256], store_dir[256];
	struct store *store;
	uint64_t next_ino;
};

static inline void in_place(const struct place *p, char out[256], const char *name)
{
	(void)snprintf(out, 256, "%s/%s", p->path, name);
}

static inline int set_up(void **state)
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

static inline int tear_down(void **state)
{
	struct place *p = *state;
	store_close(p->store);
	return io_remove_tree(AT_FDCWD, p->path, NULL);
}

static inline unsigned entries(const char *dir)
{
	auto_dir *d = opendir(dir);
	assert_non_null(d);
	unsigned n = 0;
	while (readdir(d))
		n++;
	return n - 2;
}

static inline int reserve(void *ctx, uint64_t n, uint64_t *first, struct err *err)
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

static inline ssize_t memory_read(void *ctx, void *buf, size_t n, struct err *err)
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

static inline struct archive_import_options options(struct place *p, struct store_session *ss)
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

static inline int import_with(struct place *p, struct memory *m, struct archive_import_options *opt,
			      struct digest *image, struct archive_import_stats *st,
			      struct err *err)
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

static inline int import(struct place *p, const struct buf *b, struct digest *image,
			 struct err *err)
{
	struct memory m = { .data = b->data, .len = b->len, .step = 3333 };
	return import_with(p, &m, NULL, image, NULL, err);
}

static inline void view_of(struct place *p, const struct digest *image, struct view *v)
{
	struct err err = { 0 };
	*v = (struct view){ .store = p->store, .seed = 5 };
	if (image_open(&v->image, NULL, p->images, image, &err) < 0)
		fail_msg("%s", err.text);
	if (image_check(v->image, &err) < 0)
		fail_msg("%s", err.text);
}

/* Imports what must be fine, and gives the view of it. */
static inline void imported(struct place *p, const struct buf *b, struct view *v)
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

static inline void lines_add(struct lines *l, struct buf *b)
{
	buf_u8(b, 0);
	l->v = realloc(l->v, (l->n + 1) * sizeof(*l->v));
	assert_non_null(l->v);
	l->v[l->n++] = strdup((char *)b->data);
	buf_done(b);
}

static inline int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static inline void hex(struct buf *b, const void *data, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf_printf(b, "%02x", ((const uint8_t *)data)[i]);
}

static inline bool left_out(unsigned flags, uint32_t mode, size_t path_len)
{
	if (S_ISSOCK(mode) || (path_len == 0 && (flags & NO_ROOT)))
		return true;
	return (flags & NO_SPECIALS) && !S_ISREG(mode) && !S_ISDIR(mode) && !S_ISLNK(mode);
}

static inline void describe(struct buf *b, unsigned flags, const char *path, size_t len,
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

static inline void add_content_hash(struct buf *b, const uint8_t *data, size_t n)
{
	struct digest d;
	hash_sha256(&d, data, n);
	buf_printf(b, "|");
	hex(b, d.b, 8);
}

static inline int view_xattr_line(void *ctx, const char *name, size_t name_len, const void *value,
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

static inline void add_sorted(struct buf *b, struct lines *x)
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

static inline int view_line(void *ctx, const char *path, size_t len, const struct attr *a)
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

static inline void view_lines(const struct view *v, unsigned flags, struct lines *l)
{
	struct err err = { 0 };
	*l = (struct lines){ .flags = flags, .view = v };
	if (view_walk(v, view_line, l, &err) < 0)
		fail_msg("%s", err.text);
	qsort(l->v, l->n, sizeof(*l->v), by_text);
}

static inline void host_line(struct lines *l, const char *full, const char *path)
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

static inline void host_walk(struct lines *l, const char *full, const char *path)
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
		auto_free char *f = NULL, *p = NULL;
		assert_true(asprintf(&f, "%s/%s", full, de->d_name) > 0);
		assert_true(asprintf(&p, "%s%s%s", path, *path ? "/" : "", de->d_name) > 0);
		host_walk(l, f, p);
	}
}

static inline void host_lines(const char *dir, unsigned flags, struct lines *l)
{
	*l = (struct lines){ .flags = flags };
	host_walk(l, dir, "");
	qsort(l->v, l->n, sizeof(*l->v), by_text);
}

static inline void same_lines(struct lines *want, struct lines *got)
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

static inline void view_is_host(const struct view *v, const char *dir, unsigned flags)
{
	struct lines want, got;
	host_lines(dir, flags, &want);
	view_lines(v, flags, &got);
	same_lines(&want, &got);
}

static inline void views_equal(const struct view *a, const struct view *b, unsigned flags)
{
	struct lines want, got;
	view_lines(a, flags, &want);
	view_lines(b, flags, &got);
	same_lines(&want, &got);
}

static inline void run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline void run(const char *fmt, ...)
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

static inline void quiet(void *ctx, const char *line)
{
	unsigned *n = ctx;
	++*n;
}

static inline int to_buf(void *ctx, const void *data, size_t n)
{
	buf_add(ctx, data, n);
	return buf_error(ctx);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

#endif
