/* What a stack of layers over an image shows. */
#include <dirent.h>
#include <linux/falloc.h>

#include "ws_kit.h"

static struct err err;

/* Layers made by hand over an image made by hand. */
struct stacked {
	struct tree_root root;
	struct view v;
};

enum { DIR_INO = 10, FILE_INO = 11, LINK_INO = 12, SPARSE_INO = 13 };

static struct attr attr_of(uint64_t ino, uint32_t mode, uint64_t size)
{
	return (struct attr){ .ino = ino, .mode = mode, .nlink = 1, .size = size, .parent = 1 };
}

static void put_object(struct tree_root *t, const char *text, size_t len, struct digest *d)
{
	struct store_session *ss;
	succeed(err, store_session_begin(work_store(t->work), &ss, &err));
	succeed(err, store_put(ss, text, len, d, &err));
	succeed(err, store_sync(ss, &err));
	store_session_end(ss);
}

static void make_image(struct stacked *s, struct digest *name)
{
	struct image_builder *b;
	struct attr a;
	struct piece p = { .off = 0 };
	char text[10000];
	succeed(err, image_builder_new(&b, 42, &err));
	a = attr_of(1, S_IFDIR | 0755, 4096);
	expect(0, image_add_inode(b, &a));
	a = attr_of(DIR_INO, S_IFDIR | 0755, 4096);
	expect(0, image_add_inode(b, &a));
	a = attr_of(FILE_INO, S_IFREG | 0644, sizeof(text));
	a.flags = ATTR_HAS_XATTR;
	expect(0, image_add_inode(b, &a));
	a = attr_of(LINK_INO, S_IFLNK | 0777, 6);
	expect(0, image_add_inode(b, &a));
	a = attr_of(SPARSE_INO, S_IFREG | 0644, 1 << 20);
	expect(0, image_add_inode(b, &a));
	expect(0, image_add_dirent(b, 1, "dir", 3, DIR_INO, DT_DIR, 0));
	expect(0, image_add_dirent(b, DIR_INO, "file", 4, FILE_INO, DT_REG, 0));
	expect(0, image_add_dirent(b, DIR_INO, "link", 4, LINK_INO, DT_LNK, 0));
	expect(0, image_add_dirent(b, DIR_INO, "sparse", 6, SPARSE_INO, DT_REG, 0));
	expect(0, image_add_target(b, LINK_INO, "target", 6));
	expect(0, image_add_xattr(b, FILE_INO, "user.a", "image", 5));
	expect(0, image_add_xattr(b, FILE_INO, "user.b", "below", 5));
	memset(text, 'i', sizeof(text));
	put_object(&s->root, text, sizeof(text), &p.object);
	/* Two pieces that follow each other, of one object. */
	p.len = 7000;
	expect(0, image_add_piece(b, FILE_INO, &p));
	p.off = p.obj_off = 7000;
	p.len = 3000;
	expect(0, image_add_piece(b, FILE_INO, &p));
	p = (struct piece){ .off = 500000, .len = 100, .obj_off = 50, .object = p.object };
	expect(0, image_add_piece(b, SPARSE_INO, &p));
	succeed(err, image_finish(b, NULL, s->root.opt.images, name, &err));
	image_builder_free(b);
}

static void add_layer(struct stacked *s)
{
	struct layer *l;
	struct layer **more = calloc(s->v.nlayers + 1, sizeof(*more));
	succeed(err, layer_create(&l, &s->root.opt.layer, &err));
	if (s->v.nlayers > 0) {
		succeed(err, layer_seal(s->v.layers[0], &err));
		memcpy(more + 1, s->v.layers, s->v.nlayers * sizeof(*more));
	}
	more[0] = l;
	free(s->v.layers);
	s->v.layers = more;
	s->v.nlayers++;
}

static int setup(void **state)
{
	struct stacked *s = calloc(1, sizeof(*s));
	struct digest name;
	assert_non_null(s);
	tree_root_open(&s->root);
	uint64_t first; /* as who makes an image does */
	succeed(err, ino_reserve(NULL, s->root.dir, 1000, &first, &err));
	make_image(s, &name);
	s->v = (struct view){ .store = work_store(s->root.work), .seed = 42 };
	succeed(err, image_open(&s->v.image, NULL, s->root.opt.images, &name, &err));
	add_layer(s);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct stacked *s = *state;
	view_done(&s->v);
	tree_root_close(&s->root);
	free(s);
	return 0;
}

static void begin(struct stacked *s, struct txn *t)
{
	txn_begin(t, s->v.layers[0], 1);
}

static uint64_t lookup(struct stacked *s, uint64_t dir, const char *name)
{
	struct dirent_ref d;
	int r = view_lookup(&s->v, dir, name, strlen(name), &d);
	if (r == -ENOENT)
		return 0;
	expect(0, r);
	assert_int_equal(d.name_len, strlen(name));
	return d.ino;
}

static void test_names(void **state)
{
	struct stacked *s = *state;
	struct txn t;
	uint64_t cookie;
	assert_int_equal(lookup(s, 1, "dir"), DIR_INO);
	assert_int_equal(lookup(s, DIR_INO, "file"), FILE_INO);
	assert_int_equal(lookup(s, DIR_INO, "no"), 0);
	expect(-EEXIST, view_free_cookie(&s->v, DIR_INO, "file", 4, &cookie));
	expect(0, view_free_cookie(&s->v, DIR_INO, "new", 3, &cookie));
	assert_int_equal(cookie, name_hash("new", 3, 42));
	expect(0, view_below_has_cookie(&s->v, DIR_INO, cookie));
	expect(1, view_below_has_cookie(&s->v, DIR_INO, name_hash("file", 4, 42)));
	begin(s, &t);
	txn_dirent(&t, DIR_INO, cookie, "new", 3, 77, DT_REG);
	txn_dirent_del(&t, DIR_INO, name_hash("file", 4, 42), true);
	txn_dirent(&t, DIR_INO, name_hash("link", 4, 42), "link", 4, 78, DT_REG); /* replaced */
	expect(0, txn_commit(&t));
	assert_int_equal(lookup(s, DIR_INO, "new"), 77);
	assert_int_equal(lookup(s, DIR_INO, "file"), 0);
	assert_int_equal(lookup(s, DIR_INO, "link"), 78);
	/* A layer above brings the name back, at the same cookie. */
	add_layer(s);
	expect(0, view_free_cookie(&s->v, DIR_INO, "file", 4, &cookie));
	assert_int_equal(cookie, name_hash("file", 4, 42));
	expect(0, view_below_has_cookie(&s->v, DIR_INO, cookie));
	begin(s, &t);
	txn_dirent(&t, DIR_INO, cookie, "file", 4, 79, DT_REG);
	expect(0, txn_commit(&t));
	assert_int_equal(lookup(s, DIR_INO, "file"), 79);
	struct dirent_ref d;
	unsigned n = 0;
	for (uint64_t c = 0; view_dirent_ceil(&s->v, DIR_INO, c, &d) == 0; c = d.cookie + 1)
		n++;
	assert_int_equal(n, 4);
	expect(0, view_dir_empty(&s->v, DIR_INO));
	begin(s, &t);
	for (uint64_t c = 0; view_dirent_ceil(&s->v, DIR_INO, c, &d) == 0; c = d.cookie + 1)
		txn_dirent_del(&t, DIR_INO, d.cookie, true);
	expect(0, txn_commit(&t));
	expect(1, view_dir_empty(&s->v, DIR_INO));
	expect(1, view_dir_empty(&s->v, 12345));
}

/* Names of one hash take the cookies behind it, are found, and keep them while others go. */
static void test_collisions(void **state)
{
	struct stacked *s = *state;
	struct txn t;
	char name[16];
	const uint64_t h = name_hash("wanted", 6, 42);
	/* All cookies of the probe but one, spread over two layers. */
	for (unsigned i = 0; i < NAME_PROBE; i++) {
		if (i == NAME_PROBE / 2)
			add_layer(s);
		if (i == 40)
			continue;
		begin(s, &t);
		int len = snprintf(name, sizeof(name), "other%u", i);
		txn_dirent(&t, DIR_INO, h + i, name, (size_t)len, 100 + i, DT_REG);
		expect(0, txn_commit(&t));
	}
	uint64_t cookie;
	expect(0, view_free_cookie(&s->v, DIR_INO, "wanted", 6, &cookie));
	assert_int_equal(cookie, h + 40);
	begin(s, &t);
	txn_dirent(&t, DIR_INO, cookie, "wanted", 6, 99, DT_REG);
	expect(0, txn_commit(&t));
	assert_int_equal(lookup(s, DIR_INO, "wanted"), 99);
	expect(-EEXIST, view_free_cookie(&s->v, DIR_INO, "wanted", 6, &cookie));
	/* Full: no name of that hash finds room any more. The first one goes; "wanted" stays. */
	begin(s, &t);
	txn_dirent_del(&t, DIR_INO, h, true);
	expect(0, txn_commit(&t));
	assert_int_equal(lookup(s, DIR_INO, "wanted"), 99);
	begin(s, &t);
	txn_dirent(&t, DIR_INO, cookie = h, "x", 1, 98, DT_REG);
	txn_dirent(&t, DIR_INO, h + 40, "y", 1, 97, DT_REG);
	expect(0, txn_commit(&t));
	expect(-ENOSPC, view_free_cookie(&s->v, DIR_INO, "wanted", 6, &cookie));
	assert_int_equal(lookup(s, DIR_INO, "wanted"), 0);
}

static void test_inodes(void **state)
{
	struct stacked *s = *state;
	struct txn t;
	struct attr a, b;
	expect(0, view_inode(&s->v, FILE_INO, &a));
	assert_int_equal(a.size, 10000);
	expect(-ENOENT, view_inode(&s->v, 99, &b));
	a.mode = S_IFREG | 0600;
	begin(s, &t);
	txn_inode(&t, &a, a.size);
	expect(0, txn_commit(&t));
	expect(0, view_inode(&s->v, FILE_INO, &b));
	assert_int_equal(b.mode, S_IFREG | 0600);
	expect(0, view_inode_below(&s->v, 1, FILE_INO, &b));
	assert_int_equal(b.mode, S_IFREG | 0644);
	add_layer(s);
	begin(s, &t);
	txn_dead(&t, FILE_INO, false);
	expect(0, txn_commit(&t));
	expect(-ENOENT, view_inode(&s->v, FILE_INO, &b));
	expect(0, view_inode_below(&s->v, 1, FILE_INO, &b));
	struct view copy;
	expect(0, view_copy(&copy, &s->v));
	expect(-ENOENT, view_inode(&copy, FILE_INO, &b));
	view_done(&copy);
	view_done(&copy); /* all zero */
}

static int join(void *ctx, const char *name, size_t name_len, const void *value, size_t len)
{
	char *out = ctx;
	size_t n = strlen(out);
	(void)snprintf(out + n, 200 - n, "%.*s=%.*s;", (int)name_len, name, (int)len,
		       (const char *)value);
	return 0;
}

static void test_xattrs(void **state)
{
	struct stacked *s = *state;
	struct txn t;
	struct attr a;
	const void *value;
	size_t len;
	uint32_t index;
	char all[200] = "";
	expect(0, view_xattr_below(&s->v, 0, FILE_INO, "user.a", 6, &value, &len, &index));
	assert_int_equal(index, 1); /* the image */
	expect(-ENODATA, view_xattr(&s->v, FILE_INO, "user.c", 6, &value, &len));
	expect(0, view_inode(&s->v, FILE_INO, &a));
	begin(s, &t);
	txn_inode(&t, &a, a.size);
	txn_xattr(&t, FILE_INO, "user.a", 6, "layer", 5);
	txn_xattr_del(&t, FILE_INO, "user.b", 6, true);
	txn_xattr(&t, FILE_INO, "user.c", 6, "new", 3);
	expect(0, txn_commit(&t));
	expect(0, view_xattr_below(&s->v, 0, FILE_INO, "user.a", 6, &value, &len, &index));
	assert_int_equal(index, 0);
	assert_memory_equal(value, "layer", 5);
	expect(-ENODATA, view_xattr(&s->v, FILE_INO, "user.b", 6, &value, &len));
	add_layer(s);
	expect(0, view_each_xattr(&s->v, FILE_INO, join, all));
	assert_non_null(strstr(all, "user.a=layer;"));
	assert_non_null(strstr(all, "user.c=new;"));
	assert_int_equal(strlen(all), strlen("user.a=layer;user.c=new;"));
	char target[16];
	expect(0, view_target(&s->v, LINK_INO, target, sizeof(target), &len));
	assert_int_equal(len, 6);
	expect(-ERANGE, view_target(&s->v, LINK_INO, target, 5, &len));
	expect(-ENOENT, view_target(&s->v, FILE_INO, target, sizeof(target), &len));
}

/* ---- contents ---- */

struct want {
	uint64_t off, len;
	enum extent_kind kind;
	uint32_t index;
};

static void expect_runs(struct view *v, uint64_t ino, uint64_t off, uint64_t max,
			const struct want *w, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct view_run run;
		expect(0, view_map(v, ino, off, max, &run));
		assert_int_equal(run.e.off, off);
		assert_int_equal(run.e.off, w[i].off);
		assert_int_equal(run.e.len, w[i].len);
		assert_int_equal(run.e.kind, w[i].kind);
		assert_int_equal(run.index, w[i].index);
		assert_int_equal(run.top, w[i].index == 0);
		view_run_done(&run);
		off += w[i].len;
		max -= w[i].len;
	}
	assert_int_equal(max, 0);
}
#define expect_map(v, ino, off, max, ...)                                      \
	do {                                                                   \
		const struct want w_[] = __VA_ARGS__;                          \
		expect_runs(v, ino, off, max, w_, sizeof(w_) / sizeof(w_[0])); \
	} while (0)

static void own_blocks(struct stacked *s, uint64_t ino, uint64_t off, uint64_t len, char fill,
		       uint64_t size, uint64_t base_size)
{
	struct attr a;
	struct txn t;
	struct extent e;
	char *b = malloc(len);
	memset(b, fill, len);
	expect(0, view_inode(&s->v, ino, &a));
	a.size = size;
	expect(0, layer_alloc(s->v.layers[0], ino, off, len, &e));
	assert_int_equal(e.len, len);
	expect(0, layer_pwrite(s->v.layers[0], e.file, b, len, e.src));
	begin(s, &t);
	txn_inode(&t, &a, base_size);
	txn_extent(&t, ino, &e);
	expect(0, txn_commit(&t));
	free(b);
}

static void test_map(void **state)
{
	struct stacked *s = *state;
	enum { IMAGE = 1, HOLE = VIEW_NOWHERE };
	expect_map(&s->v, FILE_INO, 0, 10000, { { 0, 10000, EXTENT_IMAGE, IMAGE } });
	expect_map(&s->v, FILE_INO, 123, 20000,
		   { { 123, 9877, EXTENT_IMAGE, IMAGE }, { 10000, 10123, EXTENT_ZERO, HOLE } });
	expect_map(&s->v, SPARSE_INO, 0, 600000,
		   { { 0, 500000, EXTENT_ZERO, HOLE },
		     { 500000, 100, EXTENT_IMAGE, IMAGE },
		     { 500100, 99900, EXTENT_ZERO, HOLE } });
	own_blocks(s, FILE_INO, 4096, 4096, 'o', 10000, 10000);
	expect_map(&s->v, FILE_INO, 0, 10000,
		   { { 0, 4096, EXTENT_IMAGE, IMAGE },
		     { 4096, 4096, EXTENT_DATA, 0 },
		     { 8192, 1808, EXTENT_IMAGE, IMAGE } });
	/* Truncated to 5000 and grown: from below, only what is before counts. */
	own_blocks(s, FILE_INO, 4096, 4096, 'o', 20000, 5000);
	expect_map(&s->v, FILE_INO, 0, 20000,
		   { { 0, 4096, EXTENT_IMAGE, IMAGE },
		     { 4096, 4096, EXTENT_DATA, 0 },
		     { 8192, 11808, EXTENT_ZERO, HOLE } });
	/* In a layer above, base_size of its own; the extents show through. */
	add_layer(s);
	own_blocks(s, FILE_INO, 12288, 4096, 'u', 20000, 7000);
	expect_map(&s->v, FILE_INO, 0, 20000,
		   { { 0, 4096, EXTENT_IMAGE, 2 },
		     { 4096, 2904, EXTENT_DATA, 1 },
		     { 7000, 5288, EXTENT_ZERO, HOLE },
		     { 12288, 4096, EXTENT_DATA, 0 },
		     { 16384, 3616, EXTENT_ZERO, HOLE } });
	struct view_run run;
	expect(0, view_map_below(&s->v, 1, FILE_INO, 5000, 100000, &run));
	assert_int_equal(run.e.len, 8192 - 5000);
	view_run_done(&run);
	expect(0, view_map(&s->v, FILE_INO, UINT64_MAX - 10, 100, &run)); /* no overflow */
	assert_int_equal(run.e.len, 10);
	view_run_done(&run);
	/* The bytes. */
	char b[20001];
	expect(20000, view_read(&s->v, FILE_INO, b, sizeof(b), 0, &err));
	for (unsigned i = 0; i < 20000; i++)
		assert_int_equal(b[i], i < 4096                  ? 'i'
				       : i < 7000                ? 'o'
				       : i >= 12288 && i < 16384 ? 'u'
								 : 0);
	expect(0, view_read(&s->v, FILE_INO, b, 10, 20000, &err));
	expect(5, view_read(&s->v, FILE_INO, b, 10, 19995, &err));
}

/* ZERO hides, IMAGE and OBJECT lead on, also to other files and odd places. */
static void test_extent_kinds(void **state)
{
	struct stacked *s = *state;
	struct txn t;
	struct attr a;
	struct digest d;
	char text[4096], b[16384];
	memset(text, 'j', sizeof(text));
	put_object(&s->root, text, 3000, &d);
	expect(0, view_inode(&s->v, SPARSE_INO, &a));
	begin(s, &t);
	txn_inode(&t, &a, a.size);
	struct extent e = { .off = 0,
			    .len = 4096,
			    .kind = EXTENT_IMAGE,
			    .image_ino = FILE_INO,
			    .src = 8192,
			    .image = image_info(s->v.image)->name };
	txn_extent(&t, SPARSE_INO, &e);
	e = (struct extent){
		.off = 4096, .len = 4096, .kind = EXTENT_OBJECT, .object = d, .src = 1000
	};
	txn_extent(&t, SPARSE_INO, &e);
	e = (struct extent){ .off = 499712, .len = 4096, .kind = EXTENT_ZERO };
	txn_extent(&t, SPARSE_INO, &e);
	expect(0, txn_commit(&t));
	expect(16384, view_read(&s->v, SPARSE_INO, b, sizeof(b), 0, &err));
	for (unsigned i = 0; i < sizeof(b); i++)
		assert_int_equal(b[i], i < 1808 ? 'i' : i >= 4096 && i < 6096 ? 'j' : 0);
	uint64_t at;
	expect(0, view_seek(&s->v, SPARSE_INO, 0, true, &at));
	assert_int_equal(at, 8192);
	expect(-ENXIO, view_seek(&s->v, SPARSE_INO, 8192, false, &at)); /* hidden by ZERO */
	expect(0, view_seek(&s->v, SPARSE_INO, 9000, true, &at));
	assert_int_equal(at, 9000);
	expect(-ENXIO, view_seek(&s->v, SPARSE_INO, 1 << 20, true, &at));
	/* An object that isn't there: -EIO, and it is named. */
	d.b[0] ^= 1;
	begin(s, &t);
	txn_inode(&t, &a, a.size);
	e = (struct extent){ .off = 8192, .len = 4096, .kind = EXTENT_OBJECT, .object = d };
	txn_extent(&t, SPARSE_INO, &e);
	expect(0, txn_commit(&t));
	char hex[DIGEST_HEX + 1];
	digest_hex(hex, &d);
	expect(-EIO, view_read(&s->v, SPARSE_INO, b, 10, 8192, &err));
	assert_non_null(strstr(err.text, hex));
	expect(10, view_read(&s->v, SPARSE_INO, b, 10, 0, &err)); /* the rest is served */
}

/* ---- walks and paths ---- */

static int add_path(void *ctx, const char *path, size_t len, const struct attr *a)
{
	char *out = ctx;
	size_t n = strlen(out);
	(void)snprintf(out + n, 1000 - n, "%.*s,", (int)len, path);
	if (len == 4 && memcmp(path, "skip", 4) == 0)
		return VIEW_SKIP;
	return len == 4 && memcmp(path, "stop", 4) == 0 ? -ECANCELED : 0;
}

static void test_walk(void **state)
{
	struct stacked *s = *state;
	struct ws *ws = tree_create(&s->root, "w", NULL);
	auto_stack sealed = { 0 };
	char all[1000] = "";
	tree_mk(ws, "a", S_IFDIR | 0755);
	tree_mk(ws, "a/b", S_IFDIR | 0755);
	tree_mk(ws, "a/b/c", S_IFREG);
	tree_mk(ws, "skip", S_IFDIR | 0755);
	tree_mk(ws, "skip/x", S_IFREG);
	tree_seal(ws, &sealed);
	expect(0, view_walk(&ws->view, add_path, all, &err));
	assert_non_null(strstr(all, "a,a/b,a/b/c,"));
	assert_non_null(strstr(all, "skip,"));
	assert_null(strstr(all, "skip/x"));
	assert_int_equal(all[0], ','); /* the root first */
	char *path;
	expect(0, view_path(&ws->view, tree_node(ws, "a/b/c"), &path));
	assert_string_equal(path, "a/b/c");
	free(path);
	expect(0, view_path(&ws->view, 1, &path));
	assert_string_equal(path, "");
	free(path);
	/* The hint leads nowhere any more: the other name is searched for. */
	struct entry e;
	uint64_t node = tree_node(ws, "a/b/c");
	expect(0, ws_link(ws, node, 1, "second", 6, &root_caller, &e));
	tree_rm(ws, "a/b/c");
	expect(0, view_path(&ws->view, ino_of(node), &path));
	assert_string_equal(path, "second");
	free(path);
	ws_forget(ws, e.node, 1);
	tree_mk(ws, "stop", S_IFREG);
	expect(-ECANCELED, view_walk(&ws->view, add_path, all, &err));
	expect(-ENOENT, view_path(&ws->view, 999999, &path));
	ws_close(ws);
}

/* Deep, and without recursion: a path of 20,000 directories. */
static int count_all(void *ctx, const char *path, size_t len, const struct attr *a)
{
	(*(unsigned *)ctx)++;
	return 0;
}

static void test_deep(void **state)
{
	struct stacked *s = *state;
	struct ws *ws = tree_create(&s->root, "w", NULL);
	uint64_t node = 1;
	unsigned n = 0;
	for (unsigned i = 0; i < 20000; i++) {
		struct entry e = kit_make(ws, node, "d", S_IFDIR | 0755);
		ws_forget(ws, e.node, 1);
		node = e.node;
	}
	expect(0, view_walk(&ws->view, count_all, &n, &err));
	assert_int_equal(n, 20001);
	char *path;
	expect(0, view_path(&ws->view, ino_of(node), &path));
	assert_int_equal(strlen(path), 39999);
	free(path);
	ws_close(ws);
}

static void test_cycle(void **state)
{
	struct stacked *s = *state;
	struct txn t;
	unsigned n = 0;
	/* Only damage can do that: a directory in itself. */
	begin(s, &t);
	txn_dirent(&t, DIR_INO, 1000, "again", 5, DIR_INO, DT_DIR);
	expect(0, txn_commit(&t));
	expect(-EBADMSG, view_walk(&s->v, count_all, &n, &err));
}

static void test_open(void **state)
{
	struct stacked *s = *state;
	struct view v;
	auto_stack st = { .seed = 42, .image = image_info(s->v.image)->name };
	succeed(err, view_open(&v, &s->root.opt, &st, &err));
	struct attr a;
	expect(0, view_inode(&v, FILE_INO, &a));
	assert_int_equal(v.nlayers, 0);
	view_done(&v);
	st.image.b[3] ^= 1;
	expect(-ENOENT, view_open(&v, &s->root.opt, &st, &err));
	assert_non_null(strstr(err.text, "image"));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_names), T(test_collisions),   T(test_inodes), T(test_xattrs),
		T(test_map),   T(test_extent_kinds), T(test_walk),   T(test_deep),
		T(test_cycle), T(test_open),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
