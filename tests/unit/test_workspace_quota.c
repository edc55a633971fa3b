/* Who is charged for what once a workspace is saved, flattened, restored, forked or merged, and how
 * many files it shows then. */
#include <time.h>

#include "tests/seed.h"
#include "ws_kit.h"

static struct err err;

static void limit(struct ws *ws, uint64_t bytes, uint64_t inodes)
{
	struct ws_limits l = { .bytes = bytes, .inodes = inodes };
	succeed(err, ws_set_limits(ws, &l, &err));
}

static void fill(struct ws *ws, const char *path, size_t n, uint64_t off)
{
	char *b = malloc(n);
	assert_non_null(b);
	memset(b, 'x', n);
	tree_write(ws, path, b, n, off);
	free(b);
}

static int try_write(struct ws *ws, const char *path, size_t n, uint64_t off)
{
	char *b = calloc(1, n);
	assert_non_null(b);
	int r = ws_write(ws, tree_node(ws, path), b, n, off, false, &root_caller);
	free(b);
	return r;
}

/* What is kept for one is used for the others, to the byte; he spends it. */
static void test_hold(void **state)
{
	struct kit *k = *state;
	static const char data[8192] = { 1 };
	static const struct caller seven = { .who = 7 }, nine = { .who = 9 };
	const struct attr longer = { .size = 100000 };
	struct entry e, f;
	fill(k->ws, "mine", 1000, 0);
	limit(k->ws, 11000, 5);
	expect(-EDQUOT, ws_hold(k->ws, 7, 1, 10001, 0));
	expect(-EDQUOT, ws_hold(k->ws, 7, 1, 0, 5));
	expect(0, ws_hold(k->ws, 7, 1, 9000, 2));
	expect(-EDQUOT, ws_hold(k->ws, 8, 1, 1001, 0));
	expect(0, ws_hold(k->ws, 8, 2, 100, 1));
	expect(-EDQUOT, ws_hold(k->ws, 8, 2, 1001, 1));
	/* Only asked about, it isn't kept. */
	expect(-EDQUOT, ws_hold(k->ws, 0, 2, 901, 0));
	expect(-EDQUOT, ws_hold(k->ws, 0, 2, 0, 2));
	expect(0, ws_hold(k->ws, 0, 2, 900, 1));
	expect(0, ws_hold(k->ws, 0, 2, 900, 1));
	expect(0, try_write(k->ws, "mine", 900, 1000));
	expect(-EDQUOT, try_write(k->ws, "mine", 1, 1900));
	expect(0, ws_tmpfile(k->ws, 1, 0600, &root_caller, &e));
	expect(-EDQUOT, ws_tmpfile(k->ws, 1, 0600, &root_caller, &f));
	expect(-EDQUOT, ws_tmpfile(k->ws, 1, 0600, &nine, &f));
	expect(0, ws_tmpfile(k->ws, 1, 0600, &seven, &f));
	expect(0, ws_write(k->ws, f.node, data, 8192, 0, false, &seven));
	expect(-EDQUOT, ws_write(k->ws, f.node, data, 900, 8192, false, &seven));
	expect(0, ws_write(k->ws, f.node, data, 808, 8192, false, &seven));
	expect(-EDQUOT, try_write(k->ws, "mine", 1, 1900)); /* the other one's 100 */
	ws_hold_end(k->ws, 1);
	expect(-EDQUOT, try_write(k->ws, "mine", 1, 1900)); /* all of it was spent */
	ws_hold_end(k->ws, 2);
	expect(0, try_write(k->ws, "mine", 100, 1900));
	expect(-EDQUOT, try_write(k->ws, "mine", 1, 2000));
	/* Given back, it is there for all. */
	limit(k->ws, 12000, 0);
	expect(0, ws_hold(k->ws, 7, 1, 1000, 0));
	expect(-EDQUOT, try_write(k->ws, "mine", 1, 2000));
	expect(0, ws_hold(k->ws, 7, 1, 400, 0));
	expect(0, try_write(k->ws, "mine", 600, 2000));
	expect(0, ws_hold(k->ws, 7, 1, 0, 0));
	expect(0, try_write(k->ws, "mine", 400, 2600));
	expect(-EDQUOT, try_write(k->ws, "mine", 1, 3000));
	/* A hole at a file's end makes the rest of the last block count. */
	limit(k->ws, 12000 + 4096, 0);
	expect(0, ws_hold(k->ws, 7, 1, 4096, 1));
	expect(0, ws_tmpfile(k->ws, 1, 0600, &seven, &f));
	expect(0, ws_write(k->ws, f.node, data, 10, 0, false, &seven));
	expect(-EDQUOT, ws_setattr(k->ws, f.node, WS_SET_SIZE, &longer, &root_caller, NULL));
	expect(0, ws_setattr(k->ws, f.node, WS_SET_SIZE, &longer, &seven, NULL));
	expect(-EDQUOT, try_write(k->ws, "mine", 1, 3000));
	/* Without a limit there is one all the same, of what can be counted. */
	limit(k->ws, 0, 0);
	expect(0, ws_hold(k->ws, 7, 1, INT64_MAX / 5, INT64_MAX / 5));
	expect(-EDQUOT, ws_hold(k->ws, 8, 1, INT64_MAX / 5, 0));
	expect(-EDQUOT, ws_hold(k->ws, 8, 1, 0, INT64_MAX / 5));
	expect(0, try_write(k->ws, "mine", 400, 3000));
	ws_hold_end(k->ws, 1);
}

enum how { SAVE, FLATTEN };

/* As boughd does it; `out` (NULL allowed): what it was saved as. */
static void settle(struct kit *k, enum how how, struct stack *out)
{
	auto_stack sealed = { 0 }, saved = { 0 }, flat = { 0 };
	tree_seal(k->ws, &sealed);
	tree_save(&k->root, &sealed, &saved);
	if (how == FLATTEN)
		tree_flatten(&k->root, &saved, &flat);
	const struct stack *to = how == FLATTEN ? &flat : &saved;
	succeed(err, ws_replace(k->ws, &sealed, to, &err));
	if (out)
		assert_int_equal(stack_copy(out, to), 0);
}

static void test_restore(void **state)
{
	for (enum how how = SAVE; how <= FLATTEN; how++) {
		struct kit *k = NULL;
		kit_setup((void **)&k);
		auto_stack s = { 0 };
		fill(k->ws, "old", 10000, 0);
		fill(k->ws, "same", 2000, 0);
		settle(k, how, &s);
		limit(k->ws, 20000, 4);
		fill(k->ws, "new", 5000, 0);
		tree_rm(k->ws, "old");
		struct entry held = kit_make(k->ws, 1, "held", S_IFREG | 0644);
		expect(0, ws_write(k->ws, held.node, "orphan", 6, 0, false, &root_caller));
		tree_rm(k->ws, "held");
		assert_int_equal(k->ws->quota.bytes, 7006);
		assert_int_equal(k->ws->quota.inodes, 3);
		succeed(err, ws_restore(k->ws, &s, NULL, &err));
		kit_check_usage(k->ws);
		assert_int_equal(k->ws->quota.bytes, 12000);
		assert_int_equal(k->ws->quota.inodes, 2);
		/* To the byte, and also after it was opened anew. */
		tree_put(k->ws, "more", "");
		expect(-EDQUOT, try_write(k->ws, "more", 8001, 0));
		kit_reopen(k);
		expect(-EDQUOT, try_write(k->ws, "more", 8001, 0));
		expect(0, try_write(k->ws, "more", 8000, 0));
		tree_put(k->ws, "4", "");
		struct entry e;
		expect(-EDQUOT, ws_mknod(k->ws, 1, "5", 1, S_IFREG, 0, &root_caller, &e));
		/* What it had is given back as ever. */
		tree_truncate(k->ws, "old", 4000);
		assert_int_equal(k->ws->quota.bytes, 14000);
		tree_truncate(k->ws, "old", 0);
		assert_int_equal(k->ws->quota.bytes, 10000);
		tree_rm(k->ws, "same");
		tree_rm(k->ws, "more");
		assert_int_equal(k->ws->quota.bytes, 0);
		tree_rm(k->ws, "old");
		tree_rm(k->ws, "4");
		assert_int_equal(k->ws->quota.inodes, 0);
		kit_check_usage(k->ws);
		kit_teardown((void **)&k);
	}
}

/* There and back for ever doesn't give room. */
static void test_restore_again(void **state)
{
	struct kit *k = *state;
	limit(k->ws, 100000, 0);
	fill(k->ws, "f", 60000, 0);
	for (int i = 0; i < 4; i++) {
		auto_stack s = { 0 };
		settle(k, i & 1 ? FLATTEN : SAVE, &s);
		fill(k->ws, "f", 60000, 0);
		assert_int_equal(k->ws->quota.bytes, 60000);
		tree_put(k->ws, "g", "");
		expect(-EDQUOT, try_write(k->ws, "g", 40001, 0));
		expect(0, try_write(k->ws, "g", 40000, 0));
		succeed(err, ws_restore(k->ws, &s, NULL, &err));
		assert_int_equal(k->ws->quota.bytes, 60000);
		assert_int_equal(k->ws->quota.inodes, 1);
		kit_check_usage(k->ws);
	}
}

/* What somebody else made is free, until it is changed. */
static void test_restore_foreign(void **state)
{
	struct kit *k = *state;
	auto_stack s = { 0 };
	fill(k->ws, "ours", 3000, 0);
	struct ws *c = kit_fork(k->ws, "c");
	limit(k->ws, 0, 2);
	fill(c, "theirs", 9000, 0);
	fill(c, "theirs too", 10, 0);
	fill(c, "ours", 5000, 3000);
	tree_seal(c, &s);
	succeed(err, ws_restore(k->ws, &s, NULL, &err));
	/* Its own file bears the other's tag now. */
	assert_int_equal(k->ws->quota.bytes, 0);
	assert_int_equal(k->ws->quota.inodes, 0);
	kit_check_usage(k->ws);
	assert_int_equal(k->ws->file.files, 4);
	fill(k->ws, "theirs", 10, 8990);
	assert_int_equal(k->ws->quota.bytes, 9000 - 8192);
	assert_int_equal(k->ws->quota.inodes, 1);
	tree_rm(k->ws, "theirs too");
	assert_int_equal(k->ws->quota.inodes, 1);
	kit_check_usage(k->ws);
	tree_rm(k->ws, "theirs");
	assert_int_equal(k->ws->quota.inodes, 0);
	assert_int_equal(k->ws->quota.bytes, 0);
	kit_check_usage(k->ws);
	ws_close(c);
}

/* A merge's work is done in an heir, and is the workspace's own. */
static void test_heir(void **state)
{
	struct kit *k = *state;
	auto_stack ours = { 0 }, merged = { 0 };
	const char *id = "heir";
	struct ws_limits l = { .bytes = 20000, .inodes = 3, .heir = true };
	struct ws *h = NULL;
	fill(k->ws, "a", 10000, 0);
	fill(k->ws, "b", 1000, 0);
	struct entry held = kit_make(k->ws, 1, "held", S_IFREG | 0644);
	expect(0, ws_write(k->ws, held.node, "orphan", 6, 0, false, &root_caller));
	tree_rm(k->ws, "held");
	succeed(err, ws_fork(k->ws, &id, 1, &l, &h, NULL, &err));
	succeed(err, ws_stack(k->ws, &ours, NULL) < 0 ? -1 : 0);
	assert_int_equal(h->quota.bytes, 11000);
	assert_int_equal(h->quota.inodes, 2);
	kit_check_usage(h);
	tree_put(h, "c", "");
	struct entry e;
	expect(-EDQUOT, ws_mknod(h, 1, "d", 1, S_IFREG, 0, &root_caller, &e));
	expect(-EDQUOT, try_write(h, "c", 9001, 0));
	expect(0, try_write(h, "c", 9000, 0));
	tree_rm(h, "b");
	assert_int_equal(h->quota.bytes, 19000);
	tree_seal(h, &merged);
	succeed(err, ws_restore_if(k->ws, &merged, &ours, NULL, &err));
	assert_int_equal(k->ws->quota.bytes, 19000);
	assert_int_equal(k->ws->quota.inodes, 2);
	kit_check_usage(k->ws);
	ws_close(h);
	succeed(err, ws_delete(k->root.work, "heir", &err));
	kit_reopen(k);
	kit_check_usage(k->ws);
	assert_int_equal(k->ws->quota.bytes, 19000);
}

/* Rewritten in place after each flattening, a thing is charged once. */
static void test_rewrite(void **state)
{
	struct kit *k = *state;
	char value[300];
	enum { DATA = 64 * 1024, FAR = 1 << 30 };
	memset(value, 'v', sizeof(value));
	fill(k->ws, "sparse", DATA, FAR);
	fill(k->ws, "src", DATA, 0);
	tree_mk(k->ws, "dir", S_IFDIR | 0755);
	for (int i = 0; i < 6; i++) {
		settle(k, i % 2 ? SAVE : FLATTEN, NULL);
		fill(k->ws, "sparse", DATA, FAR);
		expect(0, ws_setxattr(k->ws, tree_node(k->ws, "dir"), "user.x", value,
				      sizeof(value), 0, &root_caller));
		tree_put(k->ws, "dst", "");
		expect(DATA, ws_copy_range(k->ws, tree_node(k->ws, "src"), 0,
					   tree_node(k->ws, "dst"), 0, DATA, &root_caller));
		kit_check_usage(k->ws);
	}
	assert_int_equal(kit_attr(k->ws, "dir").own_bytes, sizeof(value) + 6);
	assert_int_equal(kit_attr(k->ws, "dst").own_bytes, DATA);
	/* Its data, and the allowance for what isn't counted in whole blocks. */
	assert_in_range(kit_attr(k->ws, "sparse").own_bytes, DATA, DATA / 8 * 9 + LAYER_BLOCK);
	expect(0, ws_removexattr(k->ws, tree_node(k->ws, "dir"), "user.x", &root_caller));
	tree_truncate(k->ws, "sparse", 0);
	assert_int_equal(kit_attr(k->ws, "sparse").own_bytes, 0);
	/* The xattrs of a file stay charged while its content goes. */
	expect(0, ws_setxattr(k->ws, tree_node(k->ws, "dst"), "user.x", value, sizeof(value), 0,
			      &root_caller));
	settle(k, FLATTEN, NULL);
	tree_truncate(k->ws, "dst", 0);
	assert_int_equal(kit_attr(k->ws, "dst").own_bytes, sizeof(value) + 6);
	kit_check_usage(k->ws);
}

/* How many files there are is known of everything that a workspace can be made from. */
static void test_files(void **state)
{
	struct kit *k = *state;
	auto_stack image = { 0 }, delta = { 0 }, local = { 0 };
	char name[16];
	for (int i = 0; i < 10; i++) {
		(void)snprintf(name, sizeof(name), "f%d", i);
		fill(k->ws, name, 10, 0);
	}
	settle(k, FLATTEN, &image);
	tree_rm(k->ws, "f0");
	tree_put(k->ws, "g", "g");
	tree_put(k->ws, "h", "h");
	settle(k, SAVE, &delta);
	tree_rm(k->ws, "f1");
	tree_rm(k->ws, "f2");
	/* What has no name isn't there; what gets its first one is. */
	struct entry tmp, e;
	expect(0, ws_tmpfile(k->ws, 1, 0644, &root_caller, &tmp));
	kit_check_usage(k->ws);
	expect(0, ws_link(k->ws, tmp.node, 1, "tmp", 3, &root_caller, &e));
	expect(0, ws_link(k->ws, tmp.node, 1, "tmp2", 4, &root_caller, &e));
	kit_check_usage(k->ws);
	struct entry held = kit_make(k->ws, 1, "held", S_IFREG | 0644);
	expect(0, ws_write(k->ws, held.node, "orphan", 6, 0, false, &root_caller));
	tree_rm(k->ws, "held");
	tree_seal(k->ws, &local);
	struct ws *keeper = kit_fork(k->ws, "keeper"); /* of the layers, when it is restored */
	const struct {
		const struct stack *stack;
		uint64_t files;
	} cases[] = { { &image, 11 }, { &delta, 12 }, { &local, 11 } };
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct ws *w = tree_create(&k->root, "made", cases[i].stack);
		kit_check_usage(w);
		assert_int_equal(w->file.files, cases[i].files);
		assert_int_equal(w->quota.bytes, 0);
		tree_rm(w, "f5");
		tree_rm(w, "f6");
		struct ws *c = kit_fork(w, "child");
		tree_put(c, "x", "x");
		tree_rm(c, "f7");
		tree_rm(c, "f8");
		kit_check_usage(c);
		ws_close(c);
		/* Not forgotten with the server's memory. */
		succeed(err, ws_open(&c, k->root.work, "child", &err));
		kit_check_usage(c);
		assert_int_equal(c->file.files + (uint64_t)c->files, cases[i].files - 3);
		ws_close(c);
		ws_close(w);
		succeed(err, ws_delete(k->root.work, "made", &err));
		succeed(err, ws_delete(k->root.work, "child", &err));
		succeed(err, ws_restore(k->ws, cases[i].stack, NULL, &err));
		kit_check_usage(k->ws);
	}
	ws_close(keeper);
}

/* ---- anything, in any order ---- */

static uint32_t rnd(unsigned *seed, uint32_t n)
{
	return (uint32_t)rand_r(seed) % n;
}

static void random_op(struct kit *k, unsigned *seed)
{
	char name[8], other[8];
	struct entry e;
	(void)snprintf(name, sizeof(name), "n%u", rnd(seed, 12));
	(void)snprintf(other, sizeof(other), "n%u", rnd(seed, 12));
	bool there = ws_lookup(k->ws, 1, name, strlen(name), &e) == 0;
	switch (rnd(seed, 9)) {
	case 0:
	case 1:
	case 2:
		fill(k->ws, name, 1 + rnd(seed, 20000), rnd(seed, 50000));
		break;
	case 3:
		if (there)
			tree_rm(k->ws, name);
		break;
	case 4:
		if (there)
			tree_truncate(k->ws, name, rnd(seed, 60000));
		break;
	case 5:
		if (there)
			expect(0, ws_setxattr(k->ws, e.node, "user.r", name, rnd(seed, 3), 0,
					      &root_caller));
		break;
	case 6:
		if (there)
			(void)ws_link(k->ws, e.node, 1, other, strlen(other), &root_caller, &e);
		break;
	case 7:
		if (there)
			tree_mv(k->ws, name, other);
		break;
	case 8: /* a hold on it for a while */
		return;
	}
	if (there)
		ws_forget(k->ws, e.node, 1);
}

static void random_step(struct kit *k, unsigned *seed, struct stack *kept, unsigned n)
{
	struct stack *s = &kept[rnd(seed, n)];
	switch (rnd(seed, 6)) {
	case 0:
	case 1:
		stack_done(s);
		settle(k, rnd(seed, 2) ? SAVE : FLATTEN, s);
		return;
	case 2:
	case 3:
		if (s->seed)
			succeed(err, ws_restore(k->ws, s, NULL, &err));
		return;
	case 4:
		kit_reopen(k);
		return;
	case 5: { /* what another one makes of it comes back */
		auto_stack theirs = { 0 };
		const char *id = "other";
		struct ws *mine = k->ws;
		struct ws_limits l = { .heir = rnd(seed, 2) };
		succeed(err, ws_fork(mine, &id, 1, &l, &k->ws, NULL, &err));
		for (unsigned i = rnd(seed, 10); i > 0; i--)
			random_op(k, seed);
		kit_check_usage(k->ws);
		tree_seal(k->ws, &theirs);
		succeed(err, ws_restore(mine, &theirs, NULL, &err));
		ws_close(k->ws);
		k->ws = mine;
		succeed(err, ws_delete(k->root.work, id, &err));
		return;
	}
	}
}

static void test_random(void **state)
{
	struct kit *k = *state;
	struct stack kept[3] = { 0 };
	unsigned seed = (unsigned)test_seed();
	for (int i = 0; i < 150; i++) {
		for (unsigned n = rnd(&seed, 12); n > 0; n--)
			random_op(k, &seed);
		random_step(k, &seed, kept, 3);
		kit_check_usage(k->ws);
	}
	for (int i = 0; i < 3; i++)
		stack_done(&kept[i]);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, kit_setup, kit_teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_restore), T(test_restore_again), T(test_restore_foreign),
		T(test_heir),                   T(test_rewrite),       T(test_files),
		T(test_random), T(test_hold),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
