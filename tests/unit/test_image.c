#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/io_fault.h"
#include "fs/image/format.h"
#include "fs/image/image.h"
#include "tests/seed.h"
#include "tests/unit/oom.h"
#include "tests/unit/place.h"

enum { SEED = 77 };

/* ---- ways to make images ---- */

static struct image_builder *builder(void)
{
	struct image_builder *b;
	assert_int_equal(image_builder_new(&b, SEED, NULL), 0);
	return b;
}

static struct attr attr_of(uint64_t ino, uint32_t mode, uint64_t size)
{
	return (struct attr){
		.ino = ino,
		.mode = mode,
		.uid = 1000 + (uint32_t)ino,
		.gid = 2000 + (uint32_t)ino,
		.size = size,
		.atime = { -5, 1 },
		.mtime = { 1700000000 + (time_t)ino, 999999999 },
		.ctime = { 1 << 30, 2 },
		.btime = { 1LL << 40, 3 },
		.own_tag = 9,
		.own_bytes = size,
	};
}

/* An inode with one name; 0 or what failed. */
static int put(struct image_builder *b, uint64_t dir, const char *name, uint64_t ino, uint32_t mode,
	       uint64_t size)
{
	struct attr a = attr_of(ino, mode, size);
	int r = image_add_inode(b, &a);
	if (r < 0)
		return r;
	return image_add_dirent(b, dir, name, strlen(name), ino, (uint8_t)(mode >> 12), 0);
}

static struct piece piece_of(uint64_t off, uint32_t len, uint8_t fill)
{
	struct piece p = { .off = off, .len = len, .obj_off = fill };
	memset(p.object.b, fill, sizeof(p.object.b));
	return p;
}

static int put_root(struct image_builder *b)
{
	struct attr a = attr_of(1, S_IFDIR | 0755, 0);
	return image_add_inode(b, &a);
}

/* A tree with a bit of everything. */
static int put_sample(struct image_builder *b)
{
	struct piece p1 = piece_of(0, 6000, 1), p2 = piece_of(8192, 100, 2);
	int r = put_root(b);
	if (r == 0)
		r = put(b, 1, "dir", 2, S_IFDIR | 01777, 0);
	if (r == 0)
		r = put(b, 2, "sub", 3, S_IFDIR | 0700, 0);
	if (r == 0)
		r = put(b, 2, "file", 10, S_IFREG | 04755, 10000);
	if (r == 0)
		r = image_add_piece(b, 10, &p2);
	if (r == 0)
		r = image_add_piece(b, 10, &p1);
	if (r == 0)
		r = image_add_dirent(b, 3, "hard", 4, 10, DT_REG, 0);
	if (r == 0)
		r = put(b, 1, "link", 11, S_IFLNK | 0777, 0);
	if (r == 0)
		r = image_add_target(b, 11, "dir/\xff\xfe", 6);
	if (r == 0)
		r = put(b, 1, "\xc3\x28 odd", 1 << 20, S_IFIFO | 0600, 0);
	if (r == 0)
		r = put(b, 3, "disk", 1ULL << 47, S_IFBLK | 0660, 0);
	if (r == 0)
		image_builder_attr(b, 1ULL << 47)->rdev = 0x12345678;
	if (r == 0)
		r = image_add_xattr(b, 10, "user.b", "old", 3);
	if (r == 0)
		r = image_add_xattr(b, 10, "user.a", "", 0);
	if (r == 0)
		r = image_add_xattr(b, 10, "user.b", "a\0c", 3);
	if (r == 0)
		r = image_add_xattr(b, 2, "user.b", "a\0c", 3);
	if (r == 0)
		r = put(b, 1, "empty", 12, S_IFREG | 0644, 1ULL << 40);
	return r;
}

static struct image *sample(const char *dir, struct digest *name)
{
	struct image_builder *b = builder();
	struct err err = { 0 };
	struct image *im = NULL;
	assert_int_equal(put_sample(b), 0);
	if (image_finish(b, NULL, dir, name, &err) < 0)
		fail_msg("%s", err.text);
	image_builder_free(b);
	if (image_open(&im, NULL, dir, name, &err) < 0)
		fail_msg("%s", err.text);
	return im;
}

/* ---- reading back ---- */

static void attributes(void **state)
{
	struct place *p = *state;
	struct digest name;
	struct image *im = sample(p->path, &name);
	struct attr a;
	assert_int_equal(image_inode(im, 1, &a), 0);
	assert_int_equal(a.nlink, 3);
	assert_int_equal(a.parent, 1);
	assert_int_equal(image_inode(im, 2, &a), 0);
	assert_int_equal(a.nlink, 3);
	assert_int_equal(a.mode, S_IFDIR | 01777);
	assert_int_equal(a.flags, ATTR_HAS_XATTR);
	assert_int_equal(image_inode(im, 10, &a), 0);
	assert_int_equal(a.nlink, 2);
	assert_int_equal(a.uid, 1010);
	assert_int_equal(a.gid, 2010);
	assert_int_equal(a.size, 10000);
	assert_int_equal(a.blocks, 24); /* three blocks of 4 KiB hold something */
	assert_int_equal(a.parent, 2);
	assert_int_equal(a.parent_cookie, name_hash("file", 4, SEED));
	assert_int_equal(a.atime.tv_sec, -5);
	assert_int_equal(a.mtime.tv_nsec, 999999999);
	assert_true(a.btime.tv_sec == 1LL << 40);
	assert_int_equal(a.own_tag, 9);
	assert_int_equal(image_inode(im, 12, &a), 0);
	assert_int_equal(a.blocks, 0);
	assert_int_equal(image_inode(im, 1ULL << 47, &a), 0);
	assert_int_equal(a.rdev, 0x12345678);
	const uint64_t absent[] = { 0, 4, 9, 13, (1 << 20) - 1, (1ULL << 47) + 1, UINT64_MAX };
	for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
		assert_int_equal(image_inode(im, absent[i], &a), -ENOENT);
	const uint64_t all[] = { 1, 2, 3, 10, 11, 12, 1 << 20, 1ULL << 47 };
	uint64_t next = 0;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		assert_int_equal(image_inode_ceil(im, next, &a), 0);
		assert_int_equal(a.ino, all[i]);
		next = a.ino + 1;
	}
	assert_int_equal(image_inode_ceil(im, next, &a), -ENOENT);
	const struct image_info *info = image_info(im);
	assert_int_equal(info->inodes, 8);
	assert_int_equal(info->dirents, 8);
	assert_int_equal(info->pieces, 2);
	assert_int_equal(info->seed, SEED);
	assert_int_equal(info->data_bytes, 6100);
	assert_true(info->file_bytes == (1ULL << 40) + 10000);
	assert_true(info->max_ino == 1ULL << 47);
	assert_int_equal(image_check(im, NULL), 0);
	image_unref(im);
}

static void names(void **state)
{
	struct place *p = *state;
	struct digest name;
	struct image *im = sample(p->path, &name);
	struct dirent_ref d;
	assert_int_equal(image_lookup(im, 2, "file", 4, &d), 0);
	assert_int_equal(d.ino, 10);
	assert_int_equal(d.type, DT_REG);
	assert_int_equal(d.name_len, 4);
	assert_memory_equal(d.name, "file", 4);
	assert_int_equal(image_lookup(im, 1, "\xc3\x28 odd", 6, &d), 0);
	assert_int_equal(d.type, DT_FIFO);
	assert_int_equal(image_lookup(im, 1, "file", 4, &d), -ENOENT);
	assert_int_equal(image_lookup(im, 2, "fil", 3, &d), -ENOENT);
	assert_int_equal(image_lookup(im, 10, "x", 1, &d), -ENOENT);
	assert_int_equal(image_lookup(im, 99, "x", 1, &d), -ENOENT);
	unsigned n = 0;
	uint64_t last = 0;
	for (; image_dirent_ceil(im, 1, last + 1, &d) == 0; n++) {
		assert_true(d.cookie > last);
		last = d.cookie;
	}
	assert_int_equal(n, 4);
	image_unref(im);
}

static void contents(void **state)
{
	struct place *p = *state;
	struct digest name;
	struct image *im = sample(p->path, &name);
	struct piece e;
	const struct {
		uint64_t off, found;
	} cases[] = { { 0, 0 }, { 5999, 0 }, { 6000, 8192 }, { 8291, 8192 } };
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(image_piece_ceil(im, 10, cases[i].off, &e), 0);
		assert_int_equal(e.off, cases[i].found);
	}
	assert_int_equal(e.len, 100);
	assert_int_equal(e.obj_off, 2);
	assert_int_equal(e.object.b[31], 2);
	assert_int_equal(image_piece_ceil(im, 10, 8292, &e), -ENOENT);
	assert_int_equal(image_piece_ceil(im, 12, 0, &e), -ENOENT);
	assert_int_equal(image_piece_ceil(im, 2, 0, &e), -ENOENT);
	const char *s;
	const void *v;
	size_t len;
	assert_int_equal(image_target(im, 11, &s, &len), 0);
	assert_int_equal(len, 6);
	assert_memory_equal(s, "dir/\xff\xfe", 6);
	assert_int_equal(image_target(im, 10, &s, &len), -ENOENT);
	assert_int_equal(image_xattr(im, 10, "user.b", &v, &len), 0);
	assert_int_equal(len, 3);
	assert_memory_equal(v, "a\0c", 3);
	assert_int_equal(image_xattr(im, 10, "user.c", &v, &len), -ENOENT);
	assert_int_equal(image_xattr(im, 12, "user.a", &v, &len), -ENOENT);
	assert_int_equal(image_xattr_at(im, 10, 0, &s, &v, &len), 0);
	assert_string_equal(s, "user.a");
	assert_int_equal(len, 0);
	assert_int_equal(image_xattr_at(im, 10, 1, &s, &v, &len), 0);
	assert_string_equal(s, "user.b");
	assert_int_equal(image_xattr_at(im, 10, 2, &s, &v, &len), -ENOENT);
	image_unref(im);
}

/* ---- what can't be an image ---- */

static int bad_child(struct image_builder *b)
{
	return image_add_dirent(b, 1, "x", 1, 50, DT_REG, 0);
}
static int bad_type(struct image_builder *b)
{
	int r = put(b, 1, "x", 50, S_IFREG | 0644, 0);
	return r < 0 ? r : image_add_dirent(b, 1, "y", 1, 50, DT_LNK, 0);
}
static int two_names(struct image_builder *b)
{
	int r = put(b, 1, "x", 50, S_IFDIR | 0755, 0);
	return r < 0 ? r : image_add_dirent(b, 1, "y", 1, 50, DT_DIR, 0);
}
static int ring(struct image_builder *b)
{
	int r = put(b, 1, "x", 50, S_IFDIR | 0755, 0);
	return r < 0 ? r : image_add_dirent(b, 50, "y", 1, 1, DT_DIR, 0);
}
static int no_target(struct image_builder *b)
{
	return put(b, 1, "x", 50, S_IFLNK | 0777, 0);
}
static int target_of_file(struct image_builder *b)
{
	int r = put(b, 1, "x", 50, S_IFREG | 0644, 0);
	return r < 0 ? r : image_add_target(b, 50, "t", 1);
}
static int overlap(struct image_builder *b)
{
	struct piece p1 = piece_of(0, 100, 1), p2 = piece_of(99, 1, 2);
	int r = put(b, 1, "x", 50, S_IFREG | 0644, 1000);
	if (r == 0)
		r = image_add_piece(b, 50, &p2);
	return r < 0 ? r : image_add_piece(b, 50, &p1);
}
static int content_of_dir(struct image_builder *b)
{
	struct piece p = piece_of(0, 100, 1);
	int r = put(b, 1, "x", 50, S_IFDIR | 0755, 0);
	return r < 0 ? r : image_add_piece(b, 50, &p);
}
static int names_in_file(struct image_builder *b)
{
	int r = put(b, 1, "x", 50, S_IFREG | 0644, 0);
	if (r == 0)
		r = put(b, 50, "y", 51, S_IFREG | 0644, 0);
	return r;
}

static void trees_that_are_none(void **state)
{
	struct place *p = *state;
	const struct {
		int (*make)(struct image_builder *);
		const char *says;
	} cases[] = {
		{ NULL, "no root" },
		{ bad_child, "is not there" },
		{ bad_type, "differ in type" },
		{ two_names, "two names" },
		{ ring, "two names" },
		{ no_target, "without a target" },
		{ target_of_file, "has a target" },
		{ overlap, "overlap" },
		{ content_of_dir, "has content" },
		{ names_in_file, "has entries" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct image_builder *b = builder();
		struct err err = { 0 };
		struct digest d;
		if (cases[i].make) {
			assert_int_equal(put_root(b), 0);
			assert_int_equal(cases[i].make(b), 0);
		}
		assert_int_equal(image_finish(b, NULL, p->path, &d, &err), -EINVAL);
		if (!strstr(err.text, cases[i].says))
			fail_msg("%s; want %s", err.text, cases[i].says);
		assert_int_equal(place_entries(p->fd), 0);
		image_builder_free(b);
	}
}

static void what_the_builder_refuses(void **state)
{
	struct image_builder *b = builder();
	struct attr a = attr_of(1, S_IFDIR | 0755, 0);
	uint64_t hash = name_hash("n", 1, SEED), child;
	uint8_t type;
	static char far[300];
	memset(far, 'x', sizeof(far));
	assert_int_equal(image_add_inode(b, &a), 0);
	assert_int_equal(image_add_inode(b, &a), -EEXIST);
	a = attr_of(0, S_IFDIR, 0);
	assert_int_equal(image_add_inode(b, &a), -EINVAL);
	a = attr_of(1ULL << 48, S_IFDIR, 0);
	assert_int_equal(image_add_inode(b, &a), -EINVAL);
	a = attr_of(2, 0, 0);
	assert_int_equal(image_add_inode(b, &a), -EINVAL);
	a = attr_of(2, S_IFREG, 0);
	a.mtime.tv_nsec = 1000000000;
	assert_int_equal(image_add_inode(b, &a), -EINVAL);
	const char *const names[] = { ".", "..", "a/b", "/", "" };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_int_equal(image_add_dirent(b, 1, names[i], strlen(names[i]), 2, DT_REG, 0),
				 -EINVAL);
	assert_int_equal(image_add_dirent(b, 1, "a\0b", 3, 2, DT_REG, 0), -EINVAL);
	assert_int_equal(image_add_dirent(b, 1, far, 256, 2, DT_REG, 0), -EINVAL);
	assert_int_equal(image_add_dirent(b, 1, far, 255, 2, DT_REG, 0), 0);
	assert_int_equal(image_add_dirent(b, 1, far, 255, 2, DT_REG, 0), -EEXIST);
	assert_int_equal(image_add_dirent(b, 1, "n", 1, 2, DT_REG, hash + NAME_PROBE), -EINVAL);
	assert_int_equal(image_add_dirent(b, 1, "n", 1, 2, DT_REG, hash - 1), -EINVAL);
	assert_int_equal(image_add_dirent(b, 1, "n", 1, 2, DT_REG, hash + NAME_PROBE - 1), 0);
	assert_int_equal(image_builder_lookup(b, 1, "n", 1, &child, &type), 0);
	assert_int_equal(child, 2);
	assert_int_equal(image_del_dirent(b, 1, "n", 1), 0);
	assert_int_equal(image_del_dirent(b, 1, "n", 1), -ENOENT);
	assert_int_equal(image_builder_lookup(b, 1, "n", 1, &child, &type), -ENOENT);
	assert_int_equal(image_builder_lookup(b, 9, "n", 1, &child, &type), -ENOENT);
	assert_int_equal(image_add_target(b, 2, "", 0), -EINVAL);
	assert_int_equal(image_add_target(b, 2, "a\0b", 3), -EINVAL);
	assert_int_equal(image_add_xattr(b, 2, "", "", 0), -EINVAL);
	struct piece p = piece_of(0, 0, 1);
	assert_int_equal(image_add_piece(b, 2, &p), -EINVAL);
	p = piece_of(INT64_MAX, 1, 1);
	assert_int_equal(image_add_piece(b, 2, &p), -EINVAL);
	assert_null(image_builder_attr(b, 2));
	image_builder_free(b);
}

/* ---- the same tree, the same bytes ---- */

static uint64_t rnd(uint64_t *s)
{
	*s ^= *s >> 12, *s ^= *s << 25, *s ^= *s >> 27;
	return *s * UINT64_C(2685821657736338717);
}

enum { MODEL = 3000 };

struct model {
	uint64_t ino[MODEL], dir[MODEL]; /* dir: index of the folder that it is in */
	uint32_t mode[MODEL];
	char name[MODEL][24];
};

/* Numbers in runs with gaps, every fifth a folder, names all different. */
static void model_make(struct model *m, uint64_t seed)
{
	uint64_t ino = 1;
	for (size_t i = 0; i < MODEL; i++) {
		m->ino[i] = ino;
		ino += rnd(&seed) % 4 ? 1 : 1 + rnd(&seed) % 1000;
		m->mode[i] = i == 0 || rnd(&seed) % 5 == 0 ? S_IFDIR | 0755 : S_IFREG | 0644;
		do
			m->dir[i] = i ? rnd(&seed) % i : 0;
		while (!S_ISDIR(m->mode[m->dir[i]]));
		(void)snprintf(m->name[i], sizeof(m->name[i]), "%zu-%" PRIx64, i,
			       rnd(&seed) % 999999);
	}
}

static void model_put(const struct model *m, struct image_builder *b, size_t i)
{
	struct attr a = attr_of(m->ino[i], m->mode[i], S_ISREG(m->mode[i]) ? i * 10 : 0);
	assert_int_equal(image_add_inode(b, &a), 0);
	if (i > 0)
		assert_int_equal(image_add_dirent(b, m->ino[m->dir[i]], m->name[i],
						  strlen(m->name[i]), m->ino[i],
						  (uint8_t)(m->mode[i] >> 12), 0),
				 0);
	for (uint64_t off = 0; S_ISREG(m->mode[i]) && off < i * 10; off += 10000) {
		struct piece p = piece_of(off, 10000, (uint8_t)i);
		assert_int_equal(image_add_piece(b, m->ino[i], &p), 0);
	}
	if (i % 7 == 0)
		assert_int_equal(image_add_xattr(b, m->ino[i], "user.same", "same", 4), 0);
	if (i % 11 == 0)
		assert_int_equal(image_add_xattr(b, m->ino[i], "user.name", m->name[i], 5), 0);
}

static void model_check(const struct model *m, struct image *im)
{
	assert_int_equal(image_info(im)->inodes, MODEL);
	for (size_t i = 0; i < MODEL; i++) {
		struct attr a;
		struct dirent_ref d;
		assert_int_equal(image_inode(im, m->ino[i], &a), 0);
		assert_int_equal(a.mode, m->mode[i]);
		if (i == 0)
			continue;
		uint64_t dir = m->ino[m->dir[i]];
		assert_int_equal(image_lookup(im, dir, m->name[i], strlen(m->name[i]), &d), 0);
		assert_int_equal(d.ino, m->ino[i]);
		assert_int_equal(a.parent, dir);
		assert_int_equal(a.parent_cookie, d.cookie);
		assert_int_equal(image_lookup(im, dir, "absent", 6, &d), -ENOENT);
	}
	/* The numbers in between are not there. */
	for (size_t i = 1; i < MODEL; i++) {
		struct attr a;
		if (m->ino[i] == m->ino[i - 1] + 1)
			continue;
		assert_int_equal(image_inode(im, m->ino[i] - 1, &a), -ENOENT);
		assert_int_equal(image_inode_ceil(im, m->ino[i - 1] + 1, &a), 0);
		assert_int_equal(a.ino, m->ino[i]);
	}
}

static void any_order(void **state)
{
	struct place *p = *state;
	static struct model m;
	uint64_t seed = test_seed();
	model_make(&m, seed);
	struct digest first = { 0 };
	for (int round = 0; round < 3; round++) {
		struct image_builder *b = builder();
		size_t order[MODEL];
		struct digest d;
		for (size_t i = 0; i < MODEL; i++) {
			size_t j = round ? rnd(&seed) % (i + 1) : i;
			order[i] = order[j];
			order[j] = i;
		}
		for (size_t i = 0; i < MODEL; i++)
			model_put(&m, b, order[i]);
		assert_int_equal(image_finish(b, NULL, p->path, &d, NULL), 0);
		/* Once more from the same builder. */
		assert_int_equal(image_finish(b, NULL, p->path, &d, NULL), 0);
		if (round == 0)
			first = d;
		assert_true(digest_equal(&d, &first));
		image_builder_free(b);
	}
	struct image *im;
	struct err err = { 0 };
	assert_int_equal(image_open(&im, NULL, p->path, &first, NULL), 0);
	if (image_check(im, &err) < 0)
		fail_msg("%s", err.text);
	model_check(&m, im);
	image_unref(im);
	assert_int_equal(place_entries(p->fd), 1);
}

static void golden(void **state)
{
	struct place *p = *state;
	char path[600], file[IMAGE_FILE_NAME];
	const char *src = getenv("BOUGH_SRC");
	struct digest name;
	image_unref(sample(p->path, &name));
	image_file_name(file, &name);
	auto_free void *made = NULL, *want = NULL;
	size_t n, m;
	assert_int_equal(io_slurp(NULL, p->fd, file, 1 << 20, &made, &n, NULL), 0);
	(void)snprintf(path, sizeof(path), "%s/tests/golden/image-1.img", src ? src : ".");
	if (getenv("BOUGH_GOLDEN")) { /* a new version of the format */
		auto_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
		assert_int_equal(io_write_full(NULL, fd, made, n, 0), 0);
	}
	assert_int_equal(io_slurp(NULL, AT_FDCWD, path, 1 << 20, &want, &m, NULL), 0);
	assert_int_equal(n, m);
	assert_memory_equal(made, want, n);
}

/* ---- damage ---- */

/* Asks everything of the sample. Each answer is the right one or -EIO; how many were -EIO. */
static unsigned ask_all(struct image *im, struct image *good)
{
	unsigned bad = 0;
	struct attr a, b;
	for (uint64_t ino = 0; image_inode_ceil(good, ino, &a) == 0; ino = a.ino + 1) {
		struct dirent_ref d, e;
		struct piece p, q;
		const char *s, *t;
		const void *v, *w;
		size_t n, m;
		int r = image_inode(im, a.ino, &b);
		assert_true(r == -EIO || (r == 0 && memcmp(&a, &b, sizeof(a)) == 0));
		bad += r == -EIO;
		for (uint64_t c = 0; image_dirent_ceil(good, a.ino, c, &d) == 0; c = d.cookie + 1) {
			r = image_dirent_ceil(im, a.ino, c, &e);
			assert_true(r == -EIO ||
				    (r == 0 && e.ino == d.ino && e.cookie == d.cookie));
			bad += r == -EIO;
			r = image_lookup(im, a.ino, d.name, d.name_len, &e);
			assert_true(r == -EIO || (r == 0 && e.ino == d.ino));
			bad += r == -EIO;
		}
		for (uint64_t off = 0; image_piece_ceil(good, a.ino, off, &p) == 0;
		     off = p.off + p.len) {
			r = image_piece_ceil(im, a.ino, off, &q);
			assert_true(r == -EIO || (r == 0 && memcmp(&p, &q, sizeof(p)) == 0));
			bad += r == -EIO;
		}
		for (uint32_t i = 0; image_xattr_at(good, a.ino, i, &s, &v, &n) == 0; i++) {
			r = image_xattr_at(im, a.ino, i, &t, &w, &m);
			assert_true(r == -EIO || (r == 0 && strcmp(s, t) == 0 && n == m &&
						  memcmp(v, w, n) == 0));
			bad += r == -EIO;
		}
		if (image_target(good, a.ino, &s, &n) == 0) {
			r = image_target(im, a.ino, &t, &m);
			assert_true(r == -EIO || (r == 0 && n == m && memcmp(s, t, n) == 0));
			bad += r == -EIO;
		}
	}
	return bad;
}

/* Opens an image that may be damaged: NULL when the damage is in its header. */
static struct image *open_damaged(struct place *p, const struct digest *name)
{
	struct image *im;
	struct err err = { 0 };
	int r = image_open(&im, NULL, p->path, name, &err);
	if (r == 0)
		return im;
	assert_int_equal(r, -EBADMSG);
	char hex[DIGEST_HEX + 1];
	digest_hex(hex, name);
	assert_non_null(strstr(err.text, hex));
	return NULL;
}

/* A second name for the image's bytes in a folder of their own, so that a good one stays. */
static void copy_file(struct place *p, const char *file, const char *dir)
{
	char to[600];
	auto_free void *data = NULL;
	size_t n;
	(void)snprintf(to, sizeof(to), "%s/%s", dir, file);
	assert_int_equal(io_slurp(NULL, p->fd, file, 64 << 20, &data, &n, NULL), 0);
	auto_fd fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_int_equal(io_write_full(NULL, fd, data, n, 0), 0);
}

struct damaged {
	struct place place; /* where the copy is */
	struct image *good;
	struct digest name;
	char file[IMAGE_FILE_NAME];
	int fd;
	uint64_t size;
};

static void damaged_begin(struct place *p, struct damaged *d, struct image *good)
{
	struct stat st;
	d->good = good;
	d->name = image_info(good)->name;
	image_file_name(d->file, &d->name);
	(void)snprintf(d->place.path, sizeof(d->place.path), "%.200s/copy", p->path);
	assert_int_equal(mkdir(d->place.path, 0700), 0);
	copy_file(p, d->file, d->place.path);
	d->place.fd = open(d->place.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d->fd = openat(d->place.fd, d->file, O_RDWR | O_CLOEXEC);
	assert_int_equal(fstat(d->fd, &st), 0);
	d->size = (uint64_t)st.st_size;
}

static void damaged_end(struct damaged *d)
{
	image_unref(d->good);
	(void)close(d->fd);
	(void)close(d->place.fd);
}

static void flipped_bits(void **state)
{
	struct place *p = *state;
	struct damaged d;
	struct digest name;
	damaged_begin(p, &d, sample(p->path, &name));
	unsigned opened = 0;
	for (uint64_t at = 0; at < d.size; at += at < 400 ? 1 : 17) {
		uint8_t byte;
		assert_int_equal(pread(d.fd, &byte, 1, (off_t)at), 1);
		byte ^= (uint8_t)(1 << at % 8);
		assert_int_equal(pwrite(d.fd, &byte, 1, (off_t)at), 1);
		struct image *im = open_damaged(&d.place, &name);
		if (im) {
			opened++;
			assert_true(ask_all(im, d.good) > 0);
			assert_int_equal(image_bad_blocks(im), 1);
			assert_int_equal(image_check(im, NULL), -EBADMSG);
			image_unref(im);
		}
		byte ^= (uint8_t)(1 << at % 8);
		assert_int_equal(pwrite(d.fd, &byte, 1, (off_t)at), 1);
	}
	assert_true(opened > 20);
	struct image *im = open_damaged(&d.place, &name);
	assert_int_equal(ask_all(im, d.good), 0);
	image_unref(im);
	damaged_end(&d);
}

/* An image of several blocks. */
static struct image *large(struct place *p, size_t n)
{
	struct image_builder *b = builder();
	struct digest d;
	struct image *im;
	assert_int_equal(put_root(b), 0);
	for (uint64_t i = 0; i < n; i++) {
		char name[32];
		(void)snprintf(name, sizeof(name), "file-%" PRIu64, i);
		struct piece e = piece_of(0, 100, (uint8_t)i);
		assert_int_equal(put(b, 1, name, 2 + i, S_IFREG | 0644, 100), 0);
		assert_int_equal(image_add_piece(b, 2 + i, &e), 0);
	}
	assert_int_equal(image_finish(b, NULL, p->path, &d, NULL), 0);
	image_builder_free(b);
	assert_int_equal(image_open(&im, NULL, p->path, &d, NULL), 0);
	return im;
}

static void one_bad_block(void **state)
{
	struct place *p = *state;
	struct damaged d;
	damaged_begin(p, &d, large(p, 3000));
	uint8_t byte = 0xff;
	/* A byte of an inode in the third block; the other blocks are served. */
	assert_int_equal(pwrite(d.fd, &byte, 1, 4096 + 2 * IMAGE_BLOCK + 100), 1);
	struct image *im = open_damaged(&d.place, &d.name);
	struct attr a;
	unsigned bad = 0;
	for (uint64_t ino = 2; ino < 3002; ino++)
		bad += image_inode(im, ino, &a) == -EIO;
	assert_in_range(bad, IMAGE_BLOCK / IMAGE_INODE_BYTES, IMAGE_BLOCK / IMAGE_INODE_BYTES + 2);
	assert_int_equal(image_bad_blocks(im), 1);
	image_unref(im);
	damaged_end(&d);
}

/* What the disk can't give raises SIGBUS: here, the file is cut under the map. */
static void pages_that_vanish(void **state)
{
	struct place *p = *state;
	struct damaged d;
	damaged_begin(p, &d, large(p, 3000));
	const uint64_t cuts[] = {
		0, 1, 4096, 4096 + IMAGE_BLOCK, 4096 + 3 * IMAGE_BLOCK + 5000, d.size - 1
	};
	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++)
		for (int warm = 0; warm < 2; warm++) {
			assert_int_equal(unlinkat(d.place.fd, d.file, 0), 0);
			copy_file(p, d.file, d.place.path);
			auto_fd fd = openat(d.place.fd, d.file, O_RDWR | O_CLOEXEC);
			struct image *im = open_damaged(&d.place, &d.name);
			if (warm)
				assert_int_equal(ask_all(im, d.good), 0);
			/* A cut within a page would leave zeros in its rest, which no bad sector
			 * does: what was verified before can't be told from them. */
			uint64_t cut = warm ? cuts[i] - cuts[i] % 4096 : cuts[i];
			assert_int_equal(ftruncate(fd, (off_t)cut), 0);
			assert_true(ask_all(im, d.good) > 0);
			image_unref(im);
			/* And when it is opened like that. */
			im = open_damaged(&d.place, &d.name);
			if (im) {
				assert_true(ask_all(im, d.good) > 0);
				assert_true(image_bad_blocks(im) > 0);
				assert_int_equal(image_check(im, NULL), -EBADMSG);
				image_unref(im);
			} else {
				assert_true(cut <= 4096);
			}
		}
	damaged_end(&d);
}

struct reader {
	struct image *im, *good;
	pthread_barrier_t *start;
};

static void *read_along(void *arg)
{
	struct reader *r = arg;
	(void)pthread_barrier_wait(r->start);
	for (int i = 0; i < 20; i++)
		(void)ask_all(r->im, r->good);
	return NULL;
}

static void threads(void **state)
{
	struct place *p = *state;
	struct damaged d;
	enum { THREADS = 4 };
	damaged_begin(p, &d, large(p, 500));
	for (int round = 0; round < 4; round++) {
		pthread_t t[THREADS];
		pthread_barrier_t start;
		struct image *im = open_damaged(&d.place, &d.name);
		struct reader r = { im, d.good, &start };
		(void)pthread_barrier_init(&start, NULL, THREADS + 1);
		for (int i = 0; i < THREADS; i++)
			assert_int_equal(pthread_create(&t[i], NULL, read_along, &r), 0);
		(void)pthread_barrier_wait(&start);
		if (round == 3) /* at the boundary of a page, where it leaves no zeros */
			assert_int_equal(ftruncate(d.fd, 8192), 0);
		for (int i = 0; i < THREADS; i++)
			assert_int_equal(pthread_join(t[i], NULL), 0);
		image_unref(im);
		(void)pthread_barrier_destroy(&start);
	}
	damaged_end(&d);
}

/* A SIGBUS that is not ours ends the process, as without us. */
static void signals_of_others(void **state)
{
	struct place *p = *state;
	struct digest name;
	pid_t pid = fork();
	if (pid == 0) {
		(void)signal(SIGBUS, SIG_DFL); /* cmocka has one, too */
		image_unref(sample(p->path, &name));
		int fd = memfd_create("x", 0);
		const volatile char *m = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
		_exit(m[0]);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	assert_true(status != 0); /* the sanitizer reports it, and exits as it likes */
#else
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGBUS);
#endif
}

/* ---- publishing ---- */

static void one_that_is_there(void **state)
{
	struct place *p = *state;
	struct digest name, again;
	char file[IMAGE_FILE_NAME];
	struct stat before, after;
	image_unref(sample(p->path, &name));
	image_file_name(file, &name);
	assert_int_equal(fstatat(p->fd, file, &before, 0), 0);
	image_unref(sample(p->path, &again));
	assert_true(digest_equal(&name, &again));
	assert_int_equal(fstatat(p->fd, file, &after, 0), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	/* A damaged one is replaced. */
	auto_fd fd = openat(p->fd, file, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, "x", 1, before.st_size - 1), 1);
	struct image *im = sample(p->path, &again);
	assert_int_equal(image_check(im, NULL), 0);
	image_unref(im);
	assert_int_equal(place_entries(p->fd), 1);
}

static void faults(void **state)
{
	struct place *p = *state;
	struct image_builder *b = builder();
	assert_int_equal(put_sample(b), 0);
	for (uint64_t n = 1;; n++) {
		struct io_fault *f = io_fault_new(NULL);
		const struct io_fault_plan plan = {
			.ops = IO_OPS_CHANGE, .nth = n, .error = -ENOSPC, .torn = 100
		};
		struct err err = { 0 };
		struct digest d;
		io_fault_plan(f, &plan);
		io_fault_chunk(f, 3000);
		int r = image_finish(b, io_fault_io(f), p->path, &d, &err);
		bool hit = io_fault_hits(f) > 0;
		unsigned left = place_entries(p->fd);
		io_fault_free(f);
		if (!hit) {
			assert_int_equal(r, 0);
			break;
		}
		assert_int_equal(r, -ENOSPC);
		assert_true(err.text[0]);
		if (left) { /* all was done but the last sync */
			struct image *im;
			char file[IMAGE_FILE_NAME];
			auto_dir *dir = fdopendir(openat(p->fd, ".", O_RDONLY | O_DIRECTORY));
			for (struct dirent *e; (e = readdir(dir));)
				if (e->d_name[0] != '.') {
					e->d_name[DIGEST_HEX] = '\0';
					assert_int_equal(digest_parse(&d, e->d_name), 0);
				}
			assert_int_equal(left, 1);
			assert_int_equal(image_open(&im, NULL, p->path, &d, NULL), 0);
			assert_int_equal(image_check(im, NULL), 0);
			image_unref(im);
			image_file_name(file, &d);
			assert_int_equal(unlinkat(p->fd, file, 0), 0);
		}
	}
	image_builder_free(b);
}

static void reading_faults(void **state)
{
	struct place *p = *state;
	struct digest name;
	struct image *im = sample(p->path, &name);
	image_unref(im);
	for (uint64_t n = 1;; n++) {
		struct io_fault *f = io_fault_new(NULL);
		const struct io_fault_plan plan = { .ops = IO_OP_OPEN | IO_OP_PREAD | IO_OP_FSTAT,
						    .nth = n,
						    .error = -EIO };
		io_fault_plan(f, &plan);
		io_fault_chunk(f, 100);
		struct err err = { 0 };
		int r = image_open(&im, io_fault_io(f), p->path, &name, &err);
		bool hit = io_fault_hits(f) > 0;
		io_fault_free(f);
		assert_int_equal(r, hit ? -EIO : 0);
		if (!hit)
			break;
	}
	image_unref(im);
	struct err err = { 0 };
	name.b[0] ^= 1;
	assert_int_equal(image_open(&im, NULL, p->path, &name, &err), -ENOENT);
	assert_int_equal(image_open(&im, NULL, "/nonexistent", &name, &err), -ENOENT);
}

static void no_memory(void **state)
{
	struct place *p = *state;
	for (uint64_t n = 1;; n++) {
		struct image_builder *b = NULL;
		struct image *im = NULL;
		struct digest d;
		struct err err = { 0 };
		oom_at(n);
		int r = image_builder_new(&b, SEED, &err);
		if (r == 0)
			r = put_sample(b);
		if (r == 0)
			r = image_finish(b, NULL, p->path, &d, &err);
		if (r == 0)
			r = image_open(&im, NULL, p->path, &d, &err);
		if (r == 0)
			r = image_check(im, &err);
		bool hit = oom_hit();
		image_builder_free(b);
		image_unref(im);
		if (!hit) {
			assert_int_equal(r, 0);
			break;
		}
		/* Without memory to compare, an image that is there is replaced. */
		assert_true(r == -ENOMEM || r == 0);
	}
	assert_int_equal(place_entries(p->fd), 1);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, place_set_up, place_tear_down)
	const struct CMUnitTest tests[] = {
		TEST(attributes),
		TEST(names),
		TEST(contents),
		TEST(trees_that_are_none),
		TEST(what_the_builder_refuses),
		TEST(any_order),
		TEST(golden),
		TEST(flipped_bits),
		TEST(one_bad_block),
		TEST(pages_that_vanish),
		TEST(threads),
		TEST(signals_of_others),
		TEST(one_that_is_there),
		TEST(faults),
		TEST(reading_faults),
		TEST(no_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
