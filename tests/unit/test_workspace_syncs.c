/* Which of the things done to a whole workspace wait for the disk: a sync takes as long as what is
 * being written is big, and whoever forks or writes meanwhile would wait too. */
#include "ws_kit.h"

static struct io counting;
static _Atomic unsigned syncs;

static int count_fdatasync(void *ctx, int fd)
{
	syncs++;
	return io_host.fdatasync(ctx, fd);
}

static int count_fsync(void *ctx, int fd)
{
	syncs++;
	return io_host.fsync(ctx, fd);
}

/* A root with a background thread that commits, but not within the time of a test. */
static int setup(void **state)
{
	struct kit *k = calloc(1, sizeof(*k));
	struct err err = { 0 };
	assert_non_null(k);
	counting = io_host;
	counting.fdatasync = count_fdatasync;
	counting.fsync = count_fsync;
	(void)snprintf(k->root.dir, sizeof(k->root.dir), "/tmp/bough-test.XXXXXX");
	assert_non_null(mkdtemp(k->root.dir));
	struct work_options opt = { .io = &counting, .commit_ms = 3600000 };
	succeed(err, work_open(&k->root.work, k->root.dir, &opt, &err));
	work_view_options(k->root.work, &k->root.opt);
	k->ws = tree_create(&k->root, "w", NULL);
	*state = k;
	return 0;
}

static int teardown(void **state)
{
	struct kit *k = *state;
	ws_close(k->ws);
	tree_root_close(&k->root);
	free(k);
	return 0;
}

static void test_fork_and_seal(void **state)
{
	struct kit *k = *state;
	auto_stack sealed = { 0 };
	tree_put(k->ws, "f", "something");
	tree_put(k->ws, "g", "more"); /* takes inode numbers, if need be */
	syncs = 0;
	struct ws *c = kit_fork(k->ws, "c");
	tree_put(k->ws, "f", "else");
	tree_seal(k->ws, &sealed);
	assert_int_equal(syncs, 0);
	ws_close(c);
}

/* What is thrown away isn't written out first, and what others have of it is all the same. */
static void test_delete(void **state)
{
	struct kit *k = *state;
	struct err err = { 0 };
	struct ws *c = kit_fork(k->ws, "c");
	tree_put(c, "f", "shared");
	struct ws *d = kit_fork(c, "d");
	tree_put(c, "g", "thrown away");
	syncs = 0;
	ws_discard(c);
	succeed(err, ws_delete(k->root.work, "c", &err));
	assert_int_equal(syncs, 0);
	/* One that was never durable, and is made so by who is left. */
	expect(0, ws_fsync(d, 1));
	assert_true(syncs >= 2);
	kit_expect_text(d, "f", "shared");
	ws_discard(d);
	succeed(err, ws_open(&d, k->root.work, "d", &err));
	kit_expect_text(d, "f", "shared");
	ws_close(d);
}

static void test_replace(void **state)
{
	struct kit *k = *state;
	auto_stack sealed = { 0 }, saved = { 0 };
	tree_put(k->ws, "f", "sealed");
	tree_seal(k->ws, &sealed);
	tree_save(&k->root, &sealed, &saved);
	tree_put(k->ws, "g", "being written");
	syncs = 0;
	struct err err = { 0 };
	succeed(err, ws_replace(k->ws, &sealed, &saved, &err));
	assert_int_equal(syncs, 0);
	/* What was replaced goes once the new file is durable. */
	unsigned layers = kit_layers(k);
	expect(0, ws_fsync(k->ws, 1));
	assert_int_equal(kit_layers(k), layers - 1);
	kit_expect_text(k->ws, "f", "sealed");
	kit_expect_text(k->ws, "g", "being written");
}

/* What stays leads into a layer that goes: nobody syncs that one later. */
static void test_replace_pinned(void **state)
{
	struct kit *k = *state;
	auto_stack sealed = { 0 }, saved = { 0 };
	char x[8192];
	memset(x, 'x', sizeof(x));
	tree_write(k->ws, "a", x, sizeof(x), 0);
	tree_mk(k->ws, "b", S_IFREG | 0644);
	tree_seal(k->ws, &sealed);
	tree_save(&k->root, &sealed, &saved);
	uint64_t a = tree_node(k->ws, "a"), b = tree_node(k->ws, "b");
	expect(sizeof(x), ws_copy_range(k->ws, a, 0, b, 0, sizeof(x), &root_caller));
	syncs = 0;
	struct err err = { 0 };
	succeed(err, ws_replace(k->ws, &sealed, &saved, &err));
	assert_int_equal(k->ws->file.npins, 1);
	assert_true(syncs > 0);
	assert_true(registry_is_durable(k->root.work->registry, &k->ws->file.pins[0]));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_fork_and_seal),
		T(test_delete),
		T(test_replace),
		T(test_replace_pinned),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
