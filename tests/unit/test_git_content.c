/* Workspaces whose image names blobs of a git repository: reading, sharing, saving, flattening,
 * comparing and collecting pass the addresses on, and nothing is copied. */
#include <dirent.h>

#include "fs/work/same.h"
#include "git_kit.h"
#include "ws_kit.h"

enum { BYTES = 20000, A_INO = 10, B_INO = 11 };

static struct err err;

struct checkout {
	struct tree_root root;
	uint8_t a[BYTES], b[BYTES];
	struct digest addr_a, addr_b;
	struct stack base;
	struct ws *ws;
};

/* Repository 1 of the root, with a pack of two blobs. */
static void make_repo(struct checkout *c)
{
	struct place p = { 0 };
	(void)snprintf(p.path, sizeof(p.path), "%s", c->root.dir);
	for (size_t i = 0; i < BYTES; i++) {
		c->a[i] = (uint8_t)("hidden\n"[i * i % 7]);
		c->b[i] = i == 5000 ? 'x' : c->a[i];
	}
	sh(&p, "mkdir -p $R/objects/pack");
	struct gitkit *k = gitkit_new();
	(void)gitkit_add(k, GIT_BLOB, c->a, BYTES);
	(void)gitkit_add(k, GIT_BLOB, c->b, BYTES);
	digest_of_git(&c->addr_a, 1, &k->v[0].oid);
	digest_of_git(&c->addr_b, 1, &k->v[1].oid);
	gitkit_install(k, &p, 1, "x");
	gitkit_free(k);
}

static void add_file(struct image_builder *b, uint64_t ino, const char *name,
		     const struct digest *object)
{
	struct attr a = { .ino = ino, .mode = S_IFREG | 0644, .size = BYTES, .parent = 1 };
	struct piece p = { .len = BYTES, .object = *object };
	expect(0, image_add_inode(b, &a));
	expect(0, image_add_dirent(b, 1, name, strlen(name), ino, DT_REG, 0));
	expect(0, image_add_piece(b, ino, &p));
}

/* The image of a commit that has "a" and "b". */
static void make_image(struct checkout *c, uint64_t seed, struct digest *name)
{
	struct image_builder *b;
	struct attr a = { .ino = 1, .mode = S_IFDIR | 0755, .parent = 1 };
	succeed(err, image_builder_new(&b, seed, &err));
	expect(0, image_add_inode(b, &a));
	add_file(b, A_INO, "a", &c->addr_a);
	add_file(b, B_INO, "b", &c->addr_b);
	succeed(err, image_finish(b, NULL, c->root.opt.images, name, &err));
	image_builder_free(b);
}

static int setup(void **state)
{
	struct checkout *c = calloc(1, sizeof(*c));
	uint64_t first;
	assert_non_null(c);
	tree_root_open(&c->root);
	succeed(err, ino_reserve(NULL, c->root.dir, 1000, &first, &err));
	make_repo(c);
	c->base = (struct stack){ .seed = 42 };
	make_image(c, 42, &c->base.image);
	c->ws = tree_create(&c->root, "w", &c->base);
	*state = c;
	return 0;
}

static int teardown(void **state)
{
	struct checkout *c = *state;
	ws_close(c->ws);
	tree_root_close(&c->root);
	free(c);
	return 0;
}

static void expect_file(struct checkout *c, const char *path, const uint8_t *want)
{
	uint8_t got[BYTES + 1];
	expect(BYTES, ws_read(c->ws, tree_node(c->ws, path), got, sizeof(got), 0));
	assert_memory_equal(got, want, BYTES);
}

static void lose_repo(struct checkout *c)
{
	char path[128];
	(void)snprintf(path, sizeof(path), "%s/repos", c->root.dir);
	succeed(err, io_remove_tree(AT_FDCWD, path, &err));
	store_trim(work_store(c->root.work), 0);
}

/* ---- what a stack names ---- */

struct named {
	struct checkout *c;
	unsigned a, b, others;
	struct store_gc *gc;
};

static int name_object(void *ctx, const struct digest *d)
{
	struct named *n = ctx;
	if (digest_equal(d, &n->c->addr_a))
		n->a++;
	else if (digest_equal(d, &n->c->addr_b))
		n->b++;
	else
		n->others++;
	if (n->gc)
		store_gc_mark(n->gc, d, NULL);
	return 0;
}

static struct named names_of(struct checkout *c, const struct stack *s)
{
	struct named n = { .c = c };
	struct reach_sink sink = { .object = name_object, .ctx = &n };
	succeed(err, stack_reach(s, &c->root.opt, &sink, &err));
	return n;
}

/* ---- tests ---- */

static void reads(void **state)
{
	struct checkout *c = *state;
	uint8_t part[100];
	expect_file(c, "a", c->a);
	expect_file(c, "b", c->b);
	expect(100, ws_read(c->ws, tree_node(c->ws, "b"), part, sizeof(part), 4950));
	assert_memory_equal(part, c->b + 4950, sizeof(part));
	tree_write(c->ws, "a", "changed", 7, 100);
	memcpy(c->a + 100, "changed", 7);
	expect_file(c, "a", c->a);
	lose_repo(c);
	expect(-EIO, ws_read(c->ws, tree_node(c->ws, "b"), part, sizeof(part), 0));
}

/* A shared copy, a changed file and the rest keep their addresses through a save and into the
 * flattened image. */
static void saved_and_flattened(void **state)
{
	struct checkout *c = *state;
	auto_stack sealed = { 0 }, saved = { 0 }, flat = { 0 };
	tree_mk(c->ws, "copy", S_IFREG | 0644);
	expect(16384, ws_copy_range(c->ws, tree_node(c->ws, "a"), 0, tree_node(c->ws, "copy"), 0,
				    16384, &root_caller));
	tree_write(c->ws, "copy", c->a + 16384, BYTES - 16384, 16384);
	tree_write(c->ws, "b", "y", 1, 5000);
	c->b[5000] = 'y';
	tree_seal(c->ws, &sealed);
	tree_save(&c->root, &sealed, &saved);
	struct named n = names_of(c, &saved);
	assert_true(n.a >= 2 && n.b >= 1); /* "a" of the image, and what "copy" shares */
	tree_flatten(&c->root, &saved, &flat);
	assert_int_equal(flat.nlayers, 0);
	n = names_of(c, &flat);
	assert_true(n.a >= 2 && n.b >= 1);
	succeed(err, ws_replace(c->ws, &sealed, &flat, &err));
	expect_file(c, "a", c->a);
	expect_file(c, "b", c->b);
	expect_file(c, "copy", c->a);
}

/* Equal addresses are equal contents, of different images too, without a look at the bytes. */
static void compared(void **state)
{
	struct checkout *c = *state;
	struct stack other = { .seed = 43 };
	struct view v, w;
	make_image(c, 43, &other.image);
	assert_false(digest_equal(&other.image, &c->base.image));
	tree_view(&c->root, &c->base, &v);
	tree_view(&c->root, &other, &w);
	expect(0, same_content(&v, A_INO, BYTES, &w, B_INO, BYTES, &err));
	lose_repo(c);
	expect(1, same_content(&v, A_INO, BYTES, &w, A_INO, BYTES, &err));
	expect(1, same_content(&v, B_INO, BYTES, &w, B_INO, BYTES, &err));
	expect(-EIO, same_content(&v, A_INO, BYTES, &w, B_INO, BYTES, &err));
	view_done(&v);
	view_done(&w);
}

static int mark(void *ctx, struct store_gc *gc, struct err *e)
{
	struct named *n = ctx;
	auto_stack s = { 0 };
	struct reach_sink sink = { .object = name_object, .ctx = n };
	n->gc = gc;
	expect(0, ws_stack(n->c->ws, &s, NULL));
	return stack_reach(&s, &n->c->root.opt, &sink, e);
}

static void collected(void **state)
{
	struct checkout *c = *state;
	struct named n = { .c = c };
	auto_stack sealed = { 0 }, saved = { 0 };
	tree_put(c->ws, "own", "content of its own");
	tree_seal(c->ws, &sealed);
	tree_save(&c->root, &sealed, &saved);
	succeed(err, ws_replace(c->ws, &sealed, &saved, &err));
	succeed(err, store_gc(work_store(c->root.work), mark, &n, NULL, &err));
	assert_true(n.a > 0 && n.b > 0 && n.others > 0);
	work_trim(c->root.work);
	expect_file(c, "a", c->a);
	expect_file(c, "b", c->b);
	char own[32];
	expect(18, ws_read(c->ws, tree_node(c->ws, "own"), own, sizeof(own), 0));
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(reads),
		TEST(saved_and_flattened),
		TEST(compared),
		TEST(collected),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
