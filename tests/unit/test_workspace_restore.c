/* Restores: what goes back, what stays as it is, and what the kernel is told. */
#include <unistd.h>

#include "ws_kit.h"

static struct err err;

struct seen {
	unsigned names, nodes;
	char text[400];
	uint64_t node[20];
};

static void see_name(void *ctx, uint64_t dir, const char *name, size_t len, bool removed,
		     uint64_t child)
{
	struct seen *s = ctx;
	size_t n = strlen(s->text);
	s->names++;
	(void)snprintf(s->text + n, sizeof(s->text) - n, "%s%.*s ", removed ? "-" : "", (int)len,
		       name);
}

static void see_node(void *ctx, uint64_t node)
{
	struct seen *s = ctx;
	if (s->nodes < 20)
		s->node[s->nodes] = node;
	s->nodes++;
}

static void test_restore(void **state)
{
	struct kit *k = *state;
	auto_stack sealed = { 0 }, saved = { 0 };
	tree_mk(k->ws, "d", S_IFDIR | 0755);
	tree_put(k->ws, "d/same", "same");
	tree_put(k->ws, "changed", "old text");
	tree_put(k->ws, "moded", "text");
	tree_put(k->ws, "gone", "will go");
	tree_seal(k->ws, &sealed);
	tree_save(&k->root, &sealed, &saved);
	tree_put(k->ws, "changed", "NEW");
	tree_chmod(k->ws, "moded", 0600);
	tree_put(k->ws, "new", "n");
	struct entry changed, moded, gone, new, same, e;
	expect(0, ws_lookup(k->ws, 1, "changed", 7, &changed));
	expect(0, ws_lookup(k->ws, 1, "moded", 5, &moded));
	expect(0, ws_lookup(k->ws, 1, "gone", 4, &gone));
	expect(0, ws_lookup(k->ws, 1, "new", 3, &new));
	expect(0, ws_lookup(k->ws, tree_node(k->ws, "d"), "same", 4, &same));
	tree_rm(k->ws, "gone");
	struct seen seen = { 0 };
	struct ws_changes ch = { .name = see_name, .node = see_node, .ctx = &seen };
	succeed(err, ws_restore(k->ws, &saved, &ch, &err));
	struct attr a;
	expect(-ESTALE, ws_getattr(k->ws, changed.node, &a)); /* other bytes: another node */
	expect(-ESTALE, ws_getattr(k->ws, gone.node, &a));    /* an orphan's number, used again */
	expect(-ESTALE, ws_getattr(k->ws, new.node, &a));
	expect(0, ws_getattr(k->ws, moded.node, &a)); /* the same bytes: the same node */
	assert_int_equal(a.mode, S_IFREG | 0644);
	expect(0, ws_getattr(k->ws, same.node, &a));
	kit_expect_text(k->ws, "changed", "old text");
	kit_expect_text(k->ws, "gone", "will go");
	expect(0, ws_lookup(k->ws, 1, "changed", 7, &e));
	assert_int_equal(e.node, changed.node + (UINT64_C(1) << 48));
	assert_int_equal(e.attr.ino, changed.attr.ino);
	expect(-ENOENT, ws_lookup(k->ws, 1, "new", 3, &e));
	assert_non_null(strstr(seen.text, "changed "));
	assert_non_null(strstr(seen.text, "gone "));
	assert_non_null(strstr(seen.text, "-new "));
	assert_null(strstr(seen.text, "same"));
	assert_null(strstr(seen.text, "moded"));
	for (unsigned i = 0; i < seen.nodes; i++)
		assert_true(seen.node[i] != same.node);
	assert_int_equal(k->ws->quota.bytes, 4 + 8 + 4 + 7);
	assert_int_equal(k->ws->quota.inodes, 5);
	/* Once more, with nothing changed: nothing but what is. */
	struct seen again = { 0 };
	ch.ctx = &again;
	expect(0, ws_lookup(k->ws, 1, "changed", 7, &e));
	succeed(err, ws_restore(k->ws, &saved, &ch, &err));
	expect(0, ws_getattr(k->ws, e.node, &a)); /* it keeps the generation that it got */
	expect(-ESTALE, ws_getattr(k->ws, changed.node, &a)); /* and the first never comes back */
	assert_int_equal(again.names, 0);
	/* The number goes on after a restart. */
	tree_put(k->ws, "changed", "3rd");
	kit_reopen(k);
	expect(0, ws_lookup(k->ws, 1, "changed", 7, &changed));
	succeed(err, ws_restore(k->ws, &saved, NULL, &err));
	expect(0, ws_lookup(k->ws, 1, "changed", 7, &e));
	assert_true(e.node >> 48 > changed.node >> 48);
	kit_check_usage(k->ws);
	/* Its layers: the saved one isn't local. */
	assert_int_equal(kit_layers(k), 1);
}

/* What differs shows it in st_ino, where somebody knows files by that alone; nothing else does. */
static void test_restore_renumbers(void **state)
{
	struct kit *k = *state;
	auto_stack sealed = { 0 }, saved = { 0 };
	tree_mk(k->ws, "d", S_IFDIR | 0755);
	tree_put(k->ws, "d/changed", "old text");
	tree_put(k->ws, "d/same", "same");
	tree_mk(k->ws, "other", S_IFDIR | 0755);
	struct entry was, same, d, e;
	expect(0, ws_link(k->ws, tree_node(k->ws, "d/changed"), tree_node(k->ws, "other"), "also",
			  4, &root_caller, &e));
	tree_seal(k->ws, &sealed);
	tree_save(&k->root, &sealed, &saved);
	expect(0, ws_lookup(k->ws, 1, "d", 1, &d));
	expect(0, ws_lookup(k->ws, d.node, "changed", 7, &was));
	expect(0, ws_lookup(k->ws, d.node, "same", 4, &same));
	assert_int_equal(ino_shown(&was.attr), was.attr.ino);
	tree_put(k->ws, "d/changed", "NEW");
	struct ws_changes ch = { .name = see_name, .node = see_node, .renumber = true };
	struct seen seen = { 0 };
	ch.ctx = &seen;
	succeed(err, ws_restore(k->ws, &saved, &ch, &err));
	expect(0, ws_lookup(k->ws, d.node, "changed", 7, &e));
	assert_int_equal(ino_shown(&e.attr), e.node);
	assert_true(e.node != was.node);
	assert_int_equal(ino_meant(ino_shown(&e.attr)), was.attr.ino);
	assert_non_null(strstr(seen.text, "changed ")); /* both names, which no look-up led to */
	assert_non_null(strstr(seen.text, "also "));
	assert_null(strstr(seen.text, "same"));
	expect(0, ws_lookup(k->ws, d.node, "same", 4, &e));
	assert_int_equal(ino_shown(&e.attr), same.attr.ino);
	expect(0, ws_lookup(k->ws, 1, "d", 1, &e));
	assert_int_equal(ino_shown(&e.attr), d.attr.ino);
	/* So it stays, after a change, a restart, and a restore that changes nothing of it. */
	tree_chmod(k->ws, "d/changed", 0600);
	kit_reopen(k);
	expect(0, ws_lookup(k->ws, tree_node(k->ws, "d"), "changed", 7, &was));
	assert_int_equal(ino_shown(&was.attr), was.node);
	succeed(err, ws_restore(k->ws, &saved, NULL, &err));
	expect(0, ws_lookup(k->ws, tree_node(k->ws, "d"), "changed", 7, &e));
	assert_int_equal(ino_shown(&e.attr), ino_shown(&was.attr));
	kit_check_usage(k->ws);
}

/* Records that were lost may leave folders in each other; a restore leads out. */
static void test_restore_of_a_ring(void **state)
{
	struct kit *k = *state;
	auto_stack sealed = { 0 }, saved = { 0 };
	struct entry e;
	struct txn t;
	uint64_t cookie;
	tree_put(k->ws, "f", "old text");
	expect(0, ws_link(k->ws, tree_node(k->ws, "f"), 1, "also", 4, &root_caller, &e));
	tree_seal(k->ws, &sealed);
	tree_save(&k->root, &sealed, &saved);
	tree_put(k->ws, "f", "NEW");
	tree_mk(k->ws, "ring", S_IFDIR | 0755);
	tree_mk(k->ws, "ring/in", S_IFDIR | 0755);
	uint64_t ring = kit_attr(k->ws, "ring").ino, in = kit_attr(k->ws, "ring/in").ino;
	expect(0, view_free_cookie(&k->ws->view, in, "up", 2, &cookie));
	txn_begin(&t, active(k->ws), in);
	txn_dirent(&t, in, cookie, "up", 2, ring, DT_DIR);
	expect(0, txn_commit(&t));
	struct seen seen = { 0 };
	const struct ws_changes ch = {
		.name = see_name, .node = see_node, .ctx = &seen, .renumber = true
	};
	(void)alarm(60); /* or the test would never end, but take all memory */
	succeed(err, ws_restore(k->ws, &saved, &ch, &err));
	(void)alarm(0);
	assert_non_null(strstr(seen.text, "also "));
	kit_expect_text(k->ws, "also", "old text");
	expect(-ENOENT, ws_lookup(k->ws, 1, "ring", 4, &e));
}

static void test_restore_if_untouched(void **state)
{
	struct kit *k = *state;
	auto_stack first = { 0 }, second = { 0 };
	tree_put(k->ws, "f", "one");
	tree_seal(k->ws, &first);
	tree_put(k->ws, "f", "two");
	tree_seal(k->ws, &second);
	expect(-ESTALE, ws_restore_if(k->ws, &first, &first, NULL, &err)); /* sealed once more */
	tree_put(k->ws, "g", "written meanwhile");
	expect(-ESTALE, ws_restore_if(k->ws, &first, &second, NULL, &err));
	kit_expect_text(k->ws, "f", "two");
	kit_expect_text(k->ws, "g", "written meanwhile");
	stack_done(&second);
	tree_seal(k->ws, &second);
	succeed(err, ws_restore_if(k->ws, &first, &second, NULL, &err));
	kit_expect_text(k->ws, "f", "one");
}

static void test_restore_failing(void **state)
{
	struct kit *k = *state;
	auto_stack bad = { .seed = 1 };
	struct layer_id id = { { 9 } };
	expect(0, stack_push(&bad, &id, true, NULL, 0));
	tree_put(k->ws, "f", "stays");
	unsigned layers = kit_layers(k);
	expect(-ENOENT, ws_restore(k->ws, &bad, NULL, &err));
	kit_expect_text(k->ws, "f", "stays");
	assert_int_equal(kit_layers(k), layers);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, kit_setup, kit_teardown)
	const struct CMUnitTest tests[] = {
		T(test_restore),
		T(test_restore_renumbers),
		T(test_restore_of_a_ring),
		T(test_restore_if_untouched),
		T(test_restore_failing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
