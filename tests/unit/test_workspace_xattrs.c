/* Workspaces that show no xattrs: who has the property, and what is done to capabilities that
 * nobody can see. (That none are shown is fs/mount's part.) */
#include "ws_kit.h"

static struct err err;

static const char CAP[] = "security.capability";

/* A workspace with a file that has two xattrs, sealed; what is made from it shows none. */
static struct ws *make_hidden(struct kit *k, struct stack *base)
{
	static const struct ws_limits off = { .xattrs = WS_XATTRS_OFF };
	struct ws *ws;
	tree_put(k->ws, "f", "content of f");
	uint64_t node = tree_node(k->ws, "f");
	expect(0, ws_setxattr(k->ws, node, CAP, "caps", 4, 0, &root_caller));
	expect(0, ws_setxattr(k->ws, node, "user.x", "1", 1, 0, &root_caller));
	tree_seal(k->ws, base);
	succeed(err, ws_create(&ws, k->root.work, "h", base, &off, 0, 0, &err));
	return ws;
}

static struct ws *fork_with(struct ws *ws, const char *id, int xattrs)
{
	struct ws_limits limits = { .xattrs = xattrs };
	struct ws *c;
	succeed(err, ws_fork(ws, &id, 1, &limits, &c, NULL, &err));
	return c;
}

static void no_name(void *ctx, uint64_t dir, const char *name, size_t len, bool removed,
		    uint64_t child)
{
}

static void no_node(void *ctx, uint64_t node)
{
}

static void test_inherit(void **state)
{
	struct kit *k = *state;
	auto_stack base = { 0 }, other = { 0 };
	struct ws *h = make_hidden(k, &base);
	assert_true(ws_shows_xattrs(k->ws));
	assert_false(ws_shows_xattrs(h));
	static const struct {
		const char *id;
		int xattrs;
		bool shows;
	} forks[] = { { "a", WS_XATTRS_INHERIT, false },
		      { "b", WS_XATTRS_ON, true },
		      { "c", WS_XATTRS_OFF, false } };
	for (size_t i = 0; i < 3; i++) {
		struct ws *c = fork_with(h, forks[i].id, forks[i].xattrs);
		assert_int_equal(ws_shows_xattrs(c), forks[i].shows);
		ws_close(c);
		succeed(err, ws_open(&c, k->root.work, forks[i].id, &err));
		assert_int_equal(ws_shows_xattrs(c), forks[i].shows);
		ws_close(c);
	}
	/* Neither limits nor a seal nor a restore changes it. */
	struct ws_limits limits = { .bytes = 1 << 20, .xattrs = WS_XATTRS_ON };
	struct ws_changes none = { .name = no_name, .node = no_node };
	struct ws_usage u;
	succeed(err, ws_set_limits(h, &limits, &err));
	tree_put(h, "g", "g");
	tree_seal(h, &other);
	succeed(err, ws_restore(h, &base, &none, &err));
	ws_close(h);
	succeed(err, ws_open(&h, k->root.work, "h", &err));
	assert_false(ws_shows_xattrs(h));
	ws_get_usage(h, &u, &limits);
	assert_int_equal(limits.xattrs, WS_XATTRS_OFF);
	assert_int_equal(limits.bytes, 1 << 20);
	ws_close(h);
}

static void write_it(struct ws *ws, uint64_t node)
{
	expect(0, ws_write(ws, node, "x", 1, 0, false, &root_caller));
}

static void append_to_it(struct ws *ws, uint64_t node)
{
	expect(0, ws_write(ws, node, "x", 1, 100000, false, &root_caller));
}

static void set(struct ws *ws, uint64_t node, unsigned what)
{
	struct attr in = { .uid = 7, .gid = 8, .size = 3, .mode = 0600 };
	expect(0, ws_setattr(ws, node, what, &in, &root_caller, NULL));
}

static void give_it_away(struct ws *ws, uint64_t node)
{
	set(ws, node, WS_SET_UID);
}

static void cut_it(struct ws *ws, uint64_t node)
{
	set(ws, node, WS_SET_SIZE | WS_SET_GID | WS_KILL_SUID);
}

static void punch_it(struct ws *ws, uint64_t node)
{
	expect(0, ws_fallocate(ws, node, 3 /* PUNCH_HOLE | KEEP_SIZE */, 0, 4096, &root_caller));
}

static void share_into_it(struct ws *ws, uint64_t node)
{
	static char x[8192];
	uint64_t from = tree_node(ws, "from");
	tree_write(ws, "from", x, sizeof(x), 0);
	expect(sizeof(x), ws_copy_range(ws, from, 0, node, 0, sizeof(x), &root_caller));
}

static void change_its_mode(struct ws *ws, uint64_t node)
{
	set(ws, node, WS_SET_MODE);
}

static void read_it(struct ws *ws, uint64_t node)
{
	char b[4];
	expect(4, ws_read(ws, node, b, 4, 0));
}

/* What ends a capability ends it here too, whoever does it; where xattrs show, the kernel asks, and
 * says so itself. */
static void test_capabilities(void **state)
{
	static const struct {
		void (*act)(struct ws *ws, uint64_t node);
		bool ends;
	} acts[] = {
		{ write_it, true }, { append_to_it, true },  { give_it_away, true },
		{ cut_it, true },   { punch_it, true },      { share_into_it, true },
		{ read_it, false }, { change_its_mode, false },
	};
	struct kit *k = *state;
	auto_stack base = { 0 };
	struct ws *h = make_hidden(k, &base);
	tree_mk(h, "from", S_IFREG | 0644);
	char b[16];
	for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++)
		for (int shown = 0; shown < 2; shown++) {
			char id[16];
			(void)snprintf(id, sizeof(id), "f%zu_%d", i, shown);
			struct ws *c = fork_with(h, id, shown ? WS_XATTRS_ON : WS_XATTRS_INHERIT);
			uint64_t node = tree_node(c, "f");
			acts[i].act(c, node);
			bool told = acts[i].act == cut_it; /* it has WS_KILL_SUID */
			bool gone = acts[i].ends && (!shown || told);
			expect(gone ? -ENODATA : 4, ws_getxattr(c, node, CAP, b, sizeof(b)));
			expect(1, ws_getxattr(c, node, "user.x", b, sizeof(b)));
			kit_check_usage(c);
			ws_close(c);
		}
	ws_close(h);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, kit_setup, kit_teardown)
	const struct CMUnitTest tests[] = {
		T(test_inherit),
		T(test_capabilities),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
