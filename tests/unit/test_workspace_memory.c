/* Workspaces when memory runs out: each operation with its n-th allocation failing, for every n,
 * says -ENOMEM and leaves everything as it was, or is done whole. */
#include <linux/falloc.h>
#include <linux/fs.h>

#include "tests/unit/oom.h"
#include "ws_kit.h"

static struct err err;

struct scene {
	struct kit *k;
	struct stack saved; /* of the tree as prepare made it */
	struct ws *children[2];
	uint64_t f, g; /* nodes */
};

/* The tree: f (20,000 'o'), g (5,000 'o'), d/ with x; sealed, so that all is copied up. */
static void prepare(struct scene *s)
{
	char x[20000];
	auto_stack sealed = { 0 };
	memset(x, 'o', sizeof(x));
	struct ws *ws = s->k->ws = tree_create(&s->k->root, "m", NULL);
	tree_write(ws, "f", x, sizeof(x), 0);
	tree_write(ws, "g", x, 5000, 0);
	tree_mk(ws, "d", S_IFDIR | 0755);
	tree_put(ws, "d/x", "x");
	tree_seal(ws, &sealed);
	tree_save(&s->k->root, &sealed, &s->saved);
	s->f = tree_node(ws, "f");
	s->g = tree_node(ws, "g");
}

static void cleanup(struct scene *s)
{
	ws_close(s->k->ws);
	s->k->ws = NULL;
	succeed(err, ws_delete(s->k->root.work, "m", &err));
	stack_done(&s->saved);
	assert_int_equal(kit_layers(s->k), 0); /* nothing is left behind */
}

static void expect_bytes(struct ws *ws, const char *path, size_t size, size_t from, size_t to,
			 char fill)
{
	size_t n;
	char *x = kit_read(ws, path, &n);
	assert_int_equal(n, size);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(x[i], i >= from && i < to ? fill : 'o');
	free(x);
}

static bool there(struct ws *ws, const char *name)
{
	struct entry e;
	int r = ws_lookup(ws, 1, name, strlen(name), &e);
	if (r == 0)
		ws_forget(ws, e.node, 1);
	assert_true(r == 0 || r == -ENOENT);
	return r == 0;
}

/* ---- the operations, and what must be so afterwards ---- */

static int do_make(struct scene *s)
{
	struct entry e;
	int r = ws_mknod(s->k->ws, 1, "new", 3, S_IFREG | 0644, 0, &root_caller, &e);
	if (r == 0)
		ws_forget(s->k->ws, e.node, 1);
	return r;
}

static void check_make(struct scene *s, bool done)
{
	assert_int_equal(there(s->k->ws, "new"), done);
}

static int do_write(struct scene *s)
{
	char x[10000];
	memset(x, 'n', sizeof(x));
	return ws_write(s->k->ws, s->f, x, sizeof(x), 5000, false, &root_caller);
}

static void check_write(struct scene *s, bool done)
{
	expect_bytes(s->k->ws, "f", 20000, 5000, done ? 15000 : 5000, 'n');
}

static int do_rename(struct scene *s)
{
	return ws_rename(s->k->ws, 1, "f", 1, 1, "g", 1, 0, &root_caller);
}

static void check_rename(struct scene *s, bool done)
{
	assert_int_equal(there(s->k->ws, "f"), !done);
	expect_bytes(s->k->ws, "g", done ? 20000 : 5000, 0, 0, 0);
}

static int do_unlink(struct scene *s)
{
	return ws_unlink(s->k->ws, 1, "f", 1, &root_caller);
}

static void check_unlink(struct scene *s, bool done)
{
	assert_int_equal(there(s->k->ws, "f"), !done);
}

static int do_xattr(struct scene *s)
{
	return ws_setxattr(s->k->ws, s->f, "user.a", "value", 5, 0, &root_caller);
}

static void check_xattr(struct scene *s, bool done)
{
	expect(done ? 5 : -ENODATA,
	       ws_getxattr(s->k->ws, tree_node(s->k->ws, "f"), "user.a", NULL, 0));
}

static int do_punch(struct scene *s)
{
	return ws_fallocate(s->k->ws, s->f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100, 12000,
			    &root_caller);
}

static void check_punch(struct scene *s, bool done)
{
	expect_bytes(s->k->ws, "f", 20000, 100, done ? 12100 : 100, 0);
}

static int do_copy(struct scene *s)
{
	ssize_t n = ws_copy_range(s->k->ws, s->f, 0, s->g, 8192, 8192, &root_caller);
	return n < 0 ? (int)n : 0;
}

static void check_copy(struct scene *s, bool done)
{
	size_t n;
	char *x = kit_read(s->k->ws, "g", &n);
	assert_int_equal(n, done ? 16384 : 5000);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(x[i], i < 5000 || i >= 8192 ? 'o' : 0);
	free(x);
}

static void change(struct scene *s)
{
	tree_put(s->k->ws, "d/x", "y");
}

static int do_fork(struct scene *s)
{
	const char *ids[] = { "a", "b" };
	return ws_fork(s->k->ws, ids, 2, NULL, s->children, NULL, &err);
}

static void check_fork(struct scene *s, bool done)
{
	kit_expect_text(s->k->ws, "d/x", "y");
	for (unsigned i = 0; i < 2 && done; i++) {
		kit_expect_text(s->children[i], "d/x", "y");
		ws_close(s->children[i]);
		succeed(err, ws_delete(s->k->root.work, i ? "b" : "a", &err));
	}
	expect(-ENOENT, ws_delete(s->k->root.work, "a", &err));
	expect(-ENOENT, ws_delete(s->k->root.work, "b", &err));
}

static int do_create(struct scene *s)
{
	return ws_create(&s->children[0], s->k->root.work, "a", &s->saved, NULL, 0, 0, &err);
}

static void check_create(struct scene *s, bool done)
{
	if (done) {
		expect_bytes(s->children[0], "f", 20000, 0, 0, 0);
		ws_close(s->children[0]);
		succeed(err, ws_delete(s->k->root.work, "a", &err));
	}
	expect(-ENOENT, ws_delete(s->k->root.work, "a", &err));
}

static void shut(struct scene *s)
{
	ws_close(s->k->ws);
	s->k->ws = NULL;
	work_trim(s->k->root.work);
}

static int do_reopen(struct scene *s)
{
	return ws_open(&s->k->ws, s->k->root.work, "m", &err);
}

static void check_reopen(struct scene *s, bool done)
{
	if (!done)
		succeed(err, ws_open(&s->k->ws, s->k->root.work, "m", &err));
	expect_bytes(s->k->ws, "f", 20000, 0, 0, 0);
}

static void ignore_name(void *ctx, uint64_t dir, const char *name, size_t len, bool removed,
			uint64_t child)
{
}

static void ignore_node(void *ctx, uint64_t node)
{
}

static void change_more(struct scene *s)
{
	tree_rm(s->k->ws, "g");
	tree_put(s->k->ws, "d/x", "y");
}

static int do_restore(struct scene *s)
{
	static const struct ws_changes ch = { .name = ignore_name, .node = ignore_node };
	return ws_restore(s->k->ws, &s->saved, &ch, &err);
}

static void check_restore(struct scene *s, bool done)
{
	kit_expect_text(s->k->ws, "d/x", done ? "x" : "y");
	assert_int_equal(there(s->k->ws, "g"), done);
}

static int do_replace(struct scene *s)
{
	auto_stack now = { 0 };
	int r = ws_stack(s->k->ws, &now, NULL);
	return r < 0 ? r : ws_replace(s->k->ws, &now, &s->saved, &err);
}

static void check_replace(struct scene *s, bool done)
{
	expect_bytes(s->k->ws, "f", 20000, 0, 0, 0);
	assert_int_equal(layer_is_local(s->k->ws->view.layers[1]), !done);
}

static const struct {
	const char *name;
	void (*before)(struct scene *s);
	int (*op)(struct scene *s);
	void (*check)(struct scene *s, bool done);
} cases[] = {
	{ "make", NULL, do_make, check_make },
	{ "write", NULL, do_write, check_write },
	{ "rename", NULL, do_rename, check_rename },
	{ "unlink", NULL, do_unlink, check_unlink },
	{ "xattr", NULL, do_xattr, check_xattr },
	{ "punch", NULL, do_punch, check_punch },
	{ "copy", NULL, do_copy, check_copy },
	{ "fork", change, do_fork, check_fork },
	{ "create", NULL, do_create, check_create },
	{ "reopen", shut, do_reopen, check_reopen },
	{ "restore", change_more, do_restore, check_restore },
	{ "replace", NULL, do_replace, check_replace },
};

static void test_each(void **state)
{
	struct kit *k = *state;
	ws_close(k->ws);
	succeed(err, ws_delete(k->root.work, "w", &err));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t n = 1;
		for (bool hit = true; hit; n++) {
			struct scene s = { .k = k };
			prepare(&s);
			work_trim(k->root.work); /* or a cache has what would be allocated */
			if (cases[i].before)
				cases[i].before(&s);
			oom_at(n);
			int r = cases[i].op(&s);
			hit = oom_hit();
			if (r < 0 && (r != -ENOMEM || !hit))
				fail_msg("%s, allocation %u: %s (%s)", cases[i].name, (unsigned)n,
					 strerror(-r), err.text);
			cases[i].check(&s, r >= 0);
			if (!k->ws->file.flattened)
				kit_check_usage(k->ws);
			cleanup(&s);
			assert_true(n < 2000);
		}
		print_message("%s: %u allocations\n", cases[i].name, (unsigned)n - 1);
	}
	succeed(err, ws_create(&k->ws, k->root.work, "w", NULL, NULL, 0, 0, &err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_each, kit_setup, kit_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
