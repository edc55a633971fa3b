/* diff, save and flatten over workspaces that were really changed. */
#include "tests/unit/tree.h"

#include <sys/xattr.h>

#include "fs/base/cleanup.h"

struct fixture {
	struct tree_root root;
	struct ws *ws;
	struct stack before;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	assert_non_null(f);
	tree_root_open(&f->root);
	f->ws = tree_create(&f->root, "ws_base", NULL);
	tree_mk(f->ws, "dir", S_IFDIR | 0755);
	tree_mk(f->ws, "dir/sub", S_IFDIR | 0755);
	tree_mk(f->ws, "empty", S_IFDIR | 0755);
	tree_put(f->ws, "a", "one\n");
	tree_put(f->ws, "b", "two\n");
	tree_put(f->ws, "dir/c", "three\n");
	tree_put(f->ws, "dir/sub/d", "four\n");
	struct entry e;
	assert_int_equal(ws_symlink(f->ws, 1, "link", 4, "a", &tree_root_caller, &e), 0);
	ws_forget(f->ws, e.node, 1);
	tree_seal(f->ws, &f->before);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	stack_done(&f->before);
	ws_close(f->ws);
	tree_root_close(&f->root);
	free(f);
	return 0;
}

/* The difference must be the same whatever form the two stacks have. */
static void check(struct fixture *f, const char *want)
{
	auto_stack now = { 0 }, saved_a = { 0 }, saved_b = { 0 }, flat_a = { 0 }, flat_b = { 0 };
	tree_seal(f->ws, &now);
	tree_save(&f->root, &f->before, &saved_a);
	tree_save(&f->root, &now, &saved_b);
	tree_flatten(&f->root, &saved_a, &flat_a);
	tree_flatten(&f->root, &saved_b, &flat_b);
	const struct stack *as[] = { &f->before, &saved_a, &flat_a };
	const struct stack *bs[] = { &now, &saved_b, &flat_b };
	for (size_t i = 0; i < 3; i++)
		for (size_t j = 0; j < 3; j++) {
			auto_free char *got = tree_diff(&f->root, as[i], bs[j]);
			if (strcmp(got, want) != 0)
				fail_msg("forms %zu, %zu: got\n%swant\n%s", i, j, got, want);
			auto_free char *same = tree_diff(&f->root, bs[i], bs[j]);
			assert_string_equal(same, "");
		}
}

/* By what was touched since a moment, here one that no inode has: all are looked at. */
static char *diff_since(struct fixture *f, const struct stack *a, const struct stack *b)
{
	static const struct timespec never;
	struct err err = { 0 };
	struct view va, vb;
	struct buf out = { 0 };
	tree_view(&f->root, a, &va);
	tree_view(&f->root, b, &vb);
	if (diff_views_since(&va, &vb, &never, tree_diff_line, &out, &err) < 0)
		fail_msg("diff: %s", err.text);
	view_done(&va);
	view_done(&vb);
	buf_u8(&out, 0);
	assert_false(out.failed);
	return (char *)out.data;
}

/* Two images without a layer in common: what came, went or was touched is found. */
static void test_since(void **state)
{
	struct fixture *f = *state;
	auto_stack now = { 0 }, saved_a = { 0 }, saved_b = { 0 }, flat_a = { 0 }, flat_b = { 0 };
	tree_put(f->ws, "a", "ONE\n");
	tree_rm(f->ws, "b");
	tree_put(f->ws, "dir/new", "new\n");
	tree_mv(f->ws, "dir/sub", "moved");
	tree_seal(f->ws, &now);
	tree_save(&f->root, &f->before, &saved_a);
	tree_save(&f->root, &now, &saved_b);
	tree_flatten(&f->root, &saved_a, &flat_a);
	tree_flatten(&f->root, &saved_b, &flat_b);
	auto_free char *got = diff_since(f, &flat_a, &flat_b);
	assert_string_equal(got, "Mc a\nD b\nA dir/new\nR dir/sub -> moved\n");
	auto_free char *same = diff_since(f, &flat_b, &flat_b);
	assert_string_equal(same, "");
}

static void test_nothing(void **state)
{
	check(*state, "");
}

static void test_content(void **state)
{
	struct fixture *f = *state;
	tree_put(f->ws, "a", "ONE\n");
	tree_put(f->ws, "b", "two\n"); /* written, the same bytes */
	tree_truncate(f->ws, "dir/c", 2);
	check(f, "Mc a\nMc dir/c\n");
}

static void test_attributes(void **state)
{
	struct fixture *f = *state;
	tree_chmod(f->ws, "a", 0755);
	tree_chmod(f->ws, "dir", 0700);
	assert_int_equal(ws_setxattr(f->ws, tree_node(f->ws, "b"), "user.k", "v", 1, 0,
				     &tree_root_caller),
			 0);
	check(f, "Mm a\nMx b\nMm dir\n");
}

static void test_added_and_deleted(void **state)
{
	struct fixture *f = *state;
	tree_rm(f->ws, "a");
	tree_rm(f->ws, "dir/sub/d");
	tree_rm(f->ws, "dir/sub");
	tree_rm(f->ws, "dir/c");
	tree_rm(f->ws, "dir");
	tree_mk(f->ws, "new", S_IFDIR | 0755);
	tree_put(f->ws, "new/x", "x");
	check(f, "D a\nD dir\nD dir/c\nD dir/sub\nD dir/sub/d\nA new\nA new/x\n");
}

static void test_renames(void **state)
{
	struct fixture *f = *state;
	tree_mv(f->ws, "a", "empty/a2");
	tree_mv(f->ws, "dir/sub", "sub2");
	tree_put(f->ws, "sub2/d", "FOUR\n");
	check(f, "R a -> empty/a2\nR dir/sub -> sub2\nMc sub2/d\n");
}

static void link_to(struct fixture *f, const char *from, const char *dir, const char *name)
{
	struct entry e;
	assert_int_equal(ws_link(f->ws, tree_node(f->ws, from), tree_node(f->ws, dir), name,
				 strlen(name), &tree_root_caller, &e),
			 0);
	ws_forget(f->ws, e.node, 1);
}

/* A changed file counts at each of its names, and a new name hides no old one. */
static void test_several_names(void **state)
{
	struct fixture *f = *state;
	link_to(f, "a", "dir", "a2");
	link_to(f, "b", "empty", "b2");
	tree_put(f->ws, "b", "TWO\n");
	check(f, "Mc b\nA dir/a2\nA empty/b2\n");
	stack_done(&f->before);
	tree_seal(f->ws, &f->before);
	tree_put(f->ws, "dir/a2", "ONE\n");
	tree_mv(f->ws, "empty/b2", "b3");
	tree_put(f->ws, "b3", "2\n");
	tree_mv(f->ws, "dir", "d");
	check(f, "Mc a\nMc b\nRc empty/b2 -> b3\nR dir -> d\nMc d/a2\n");
}

/* A folder that took the name of another: both lists count. */
static void test_folder_over(void **state)
{
	struct fixture *f = *state;
	tree_mk(f->ws, "empty/deep", S_IFDIR | 0755);
	tree_put(f->ws, "empty/deep/x", "x\n");
	tree_put(f->ws, "empty/c", "c\n");
	stack_done(&f->before);
	tree_seal(f->ws, &f->before);
	tree_mv(f->ws, "dir", "gone");
	tree_mv(f->ws, "empty", "dir");
	tree_rm(f->ws, "gone/sub/d");
	tree_rm(f->ws, "gone/sub");
	tree_rm(f->ws, "gone/c");
	tree_rm(f->ws, "gone");
	check(f,
	      "Mc dir/c\nR empty/deep -> dir/deep\nD dir/sub\nD dir/sub/d\nD empty\nD empty/c\n");
}

static void test_rename_over(void **state)
{
	struct fixture *f = *state;
	tree_mv(f->ws, "a", "b");
	check(f, "D a\nMc b\n");
}

static void test_replaced(void **state)
{
	struct fixture *f = *state;
	struct entry e;
	tree_rm(f->ws, "a");
	tree_mk(f->ws, "a", S_IFDIR | 0755); /* a directory now */
	tree_put(f->ws, "a/in", "in");
	tree_rm(f->ws, "b");
	assert_int_equal(ws_symlink(f->ws, 1, "b", 1, "x", &tree_root_caller, &e), 0);
	ws_forget(f->ws, e.node, 1);
	tree_rm(f->ws, "link");
	assert_int_equal(ws_symlink(f->ws, 1, "link", 4, "b", &tree_root_caller, &e), 0);
	ws_forget(f->ws, e.node, 1);
	tree_rm(f->ws, "dir/c");
	tree_put(f->ws, "dir/c", "three\n"); /* another inode, the same file to a reader */
	tree_rm(f->ws, "empty");
	tree_mk(f->ws, "empty", S_IFDIR | 0700);
	check(f, "Tcm a\nA a/in\nTcm b\nMm empty\nMt link\n");
}

/* A tree of another lineage is compared by path. */
static void test_no_lineage(void **state)
{
	struct fixture *f = *state;
	struct ws *other = tree_create(&f->root, "ws_other", NULL);
	auto_stack s = { 0 };
	tree_mk(other, "dir", S_IFDIR | 0755);
	tree_put(other, "a", "one\n");
	tree_put(other, "b", "2\n");
	tree_put(other, "dir/c", "three\n");
	tree_put(other, "dir/e", "five\n");
	tree_seal(other, &s);
	auto_free char *got = tree_diff(&f->root, &f->before, &s);
	assert_string_equal(got, "Mc b\nA dir/e\nD dir/sub\nD dir/sub/d\nD empty\nD link\n");
	ws_close(other);
}

/* What was saved and flattened reads back byte for byte, holes and big files included. */
static void test_content_survives(void **state)
{
	struct fixture *f = *state;
	enum { SIZE = 3 << 20 };
	auto_free uint8_t *want = calloc(1, SIZE), *got = malloc(SIZE);
	assert_non_null(want);
	assert_non_null(got);
	for (size_t i = 0; i < SIZE; i++)
		want[i] = (i >> 20) == 1 ? 0 : (uint8_t)(i * 2654435761u >> 13);
	tree_write(f->ws, "big", want, 1 << 20, 0);
	tree_write(f->ws, "big", want + (2 << 20), 1 << 20, 2 << 20);
	uint64_t big = tree_node(f->ws, "big");
	auto_stack one = { 0 }, saved = { 0 }, flat = { 0 };
	tree_seal(f->ws, &one);
	memcpy(want + 5000, "changed", 7);
	tree_write(f->ws, "big", "changed", 7, 5000);
	assert_int_equal(ws_copy_range(f->ws, big, 0, big, 1 << 20, 65536, &tree_root_caller),
			 65536);
	memcpy(want + (1 << 20), want, 65536);
	auto_stack two = { 0 };
	tree_seal(f->ws, &two);
	tree_save(&f->root, &two, &saved);
	tree_flatten(&f->root, &saved, &flat);
	const struct stack *forms[] = { &two, &saved, &flat };
	for (size_t i = 0; i < 3; i++) {
		struct view v;
		struct err err = { 0 };
		tree_view(&f->root, forms[i], &v);
		ssize_t n = view_read(&v, big & 0xffffffffffff, got, SIZE, 0, &err);
		if (n != SIZE)
			fail_msg("form %zu: read %zd: %s", i, n, err.text);
		assert_memory_equal(got, want, SIZE);
		view_done(&v);
	}
}

static int count_reached(void *ctx, const struct digest *d)
{
	++*(size_t *)ctx;
	return 0;
}

/* Everything that a stack needs is reached, in each of its forms. */
static void test_reach(void **state)
{
	struct fixture *f = *state;
	auto_stack saved = { 0 }, flat = { 0 };
	tree_save(&f->root, &f->before, &saved);
	tree_flatten(&f->root, &saved, &flat);
	struct {
		const struct stack *s;
		size_t objects, images;
	} rows[] = {
		{ &f->before, 5, 0 }, /* four contents and a part, by what it was saved as */
		{ &saved, 5, 0 },
		{ &flat, 4, 1 },
	};
	for (size_t i = 0; i < 3; i++) {
		size_t objects = 0;
		struct err err = { 0 };
		struct reach_sink sink = { .object = count_reached, .ctx = &objects };
		if (stack_reach(rows[i].s, &f->root.opt, &sink, &err) < 0)
			fail_msg("%zu: %s", i, err.text);
		assert_int_equal(objects, rows[i].objects);
		objects = 0;
		sink = (struct reach_sink){ .image = count_reached, .ctx = &objects };
		assert_int_equal(stack_reach(rows[i].s, &f->root.opt, &sink, &err), 0);
		assert_int_equal(objects, rows[i].images);
	}
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_since),         T(test_nothing),           T(test_content),
		T(test_attributes),    T(test_added_and_deleted), T(test_renames),
		T(test_several_names), T(test_folder_over),       T(test_rename_over),
		T(test_replaced),      T(test_no_lineage),        T(test_content_survives),
		T(test_reach),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
