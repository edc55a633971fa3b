/* Files that are unlinked and still open, where layers are saved and replaced: who holds them reads
 * on, and nobody else finds a trace of them. */
#include "ws_kit.h"

static struct err err;

/* The saved form of a workspace in which `held` (which the base has), and `young` (which only its
 * own layer had), are open without a name. */
static void hold(struct kit *k, struct entry *held, struct entry *young, struct stack *sealed,
		 struct stack *saved)
{
	auto_stack base = { 0 };
	tree_put(k->ws, "keep", "kept");
	tree_put(k->ws, "held", "of the base");
	tree_seal(k->ws, &base);
	expect(0, ws_lookup(k->ws, 1, "held", 4, held));
	*young = kit_make(k->ws, 1, "young", S_IFREG | 0644);
	expect(0, ws_write(k->ws, young->node, "of the layer", 12, 0, false, &root_caller));
	tree_rm(k->ws, "held");
	tree_rm(k->ws, "young");
	tree_seal(k->ws, sealed);
	tree_save(&k->root, sealed, saved);
}

static void expect_no_trace(struct kit *k, const struct stack *s, const struct entry *e)
{
	struct view v;
	struct attr a;
	tree_view(&k->root, s, &v);
	expect(-ENOENT, view_inode(&v, e->attr.ino, &a));
	view_done(&v);
}

static void test_saved(void **state)
{
	struct kit *k = *state;
	auto_stack sealed = { 0 }, saved = { 0 }, flat = { 0 };
	struct entry held, young;
	hold(k, &held, &young, &sealed, &saved);
	expect_no_trace(k, &saved, &held);
	expect_no_trace(k, &saved, &young);
	tree_flatten(&k->root, &saved, &flat);
	expect_no_trace(k, &flat, &held);
	struct view v;
	tree_view(&k->root, &flat, &v);
	assert_int_equal(image_info(v.image)->inodes, 2); /* the root and `keep` */
	view_done(&v);
}

static void test_replaced(void **state)
{
	struct kit *k = *state;
	for (int flatten = 0; flatten < 2; flatten++) {
		auto_stack sealed = { 0 }, saved = { 0 }, flat = { 0 };
		struct entry held, young;
		char b[32];
		hold(k, &held, &young, &sealed, &saved);
		if (flatten)
			tree_flatten(&k->root, &saved, &flat);
		succeed(err, ws_replace(k->ws, &sealed, flatten ? &flat : &saved, &err));
		expect(11, ws_read(k->ws, held.node, b, sizeof(b), 0));
		assert_memory_equal(b, "of the base", 11);
		expect(12, ws_read(k->ws, young.node, b, sizeof(b), 0));
		assert_memory_equal(b, "of the layer", 12);
		expect(0, ws_write(k->ws, held.node, "O", 1, 0, false, &root_caller));
		ws_forget(k->ws, held.node, 1);
		ws_forget(k->ws, young.node, 1);
		struct attr a;
		expect(-ESTALE, ws_getattr(k->ws, held.node, &a));
		expect(-ESTALE, ws_getattr(k->ws, young.node, &a));
		kit_reopen(k);
		kit_expect_text(k->ws, "keep", "kept");
		expect(-ESTALE, ws_getattr(k->ws, held.node, &a));
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, kit_setup, kit_teardown)
	const struct CMUnitTest tests[] = {
		T(test_saved),
		T(test_replaced),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
