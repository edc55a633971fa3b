/* Compare and replace (ws_put, ws_take), and that no two versions of a file look alike. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ws_kit.h"

/* A file without a name, with that content. */
static struct entry upload(struct ws *ws, const char *text)
{
	struct entry e;
	expect(0, ws_tmpfile(ws, 1, 0600, &root_caller, &e));
	expect(0, ws_write(ws, e.node, text, strlen(text), 0, false, &root_caller));
	return e;
}

static struct version_id version(struct ws *ws, const char *path)
{
	struct attr a = kit_attr(ws, path);
	return version_of(&a);
}

static int put(struct ws *ws, struct ws_put want, const char *name, const char *text,
	       struct ws_put_result *out)
{
	struct ws_put_result res;
	struct entry e = upload(ws, text);
	want.dir = want.dir ? want.dir : 1;
	want.name = name;
	want.len = strlen(name);
	want.file = e.attr.ino;
	int r = ws_put(ws, &want, out ? out : &res);
	ws_forget(ws, e.node, 1); /* the uploader closes it */
	return r;
}

static void expect_text(struct ws *ws, const char *path, const char *text)
{
	size_t size;
	char *b = kit_read(ws, path, &size);
	assert_int_equal(size, strlen(text));
	assert_memory_equal(b, text, size);
	free(b);
}

static void makes_and_replaces(void **state)
{
	struct kit *k = *state;
	struct ws_put_result res;
	expect(0, put(k->ws, (struct ws_put){ 0 }, "f", "one", &res));
	assert_int_equal(res.old_node, 0);
	expect_text(k->ws, "f", "one");
	assert_int_equal(kit_attr(k->ws, "f").mode, S_IFREG | 0644);
	assert_int_equal(kit_attr(k->ws, "f").nlink, 1);
	uint64_t first = res.attr.ino;
	expect(0, put(k->ws, (struct ws_put){ .set_mode = true, .mode = 0750 }, "f", "two", &res));
	assert_int_equal(res.old_node, first);
	assert_int_equal(kit_attr(k->ws, "f").mode, S_IFREG | 0750);
	expect_text(k->ws, "f", "two");
	expect(0, put(k->ws, (struct ws_put){ 0 }, "f", "three", &res));
	assert_int_equal(kit_attr(k->ws, "f").mode, S_IFREG | 0750);
	kit_check_usage(k->ws);
	kit_reopen(k);
	expect_text(k->ws, "f", "three");
	kit_check_usage(k->ws);
}

static void keeps_what_it_says(void **state)
{
	struct kit *k = *state;
	struct entry f = kit_make(k->ws, 1, "f", S_IFREG | 06755);
	struct attr own = { .uid = 12, .gid = 34 };
	struct entry link;
	expect(0, ws_setattr(k->ws, f.node, WS_SET_UID | WS_SET_GID, &own, &root_caller, NULL));
	expect(0, ws_setxattr(k->ws, f.node, "user.a", "value", 5, 0, &root_caller));
	expect(0, ws_setxattr(k->ws, f.node, "security.capability", "cap", 3, 0, &root_caller));
	expect(0, ws_link(k->ws, f.node, 1, "other", 5, &root_caller, &link));
	expect(0, put(k->ws, (struct ws_put){ 0 }, "f", "new", NULL));
	struct attr a = kit_attr(k->ws, "f");
	char value[16];
	assert_int_equal(a.uid, 12);
	assert_int_equal(a.gid, 34);
	assert_int_equal(a.mode, S_IFREG | 0755); /* set-id bits go */
	expect(5, ws_getxattr(k->ws, node_of(&a), "user.a", value, sizeof(value)));
	assert_memory_equal(value, "value", 5);
	expect(-ENODATA, ws_getxattr(k->ws, node_of(&a), "security.capability", value, 16));
	/* Other names keep the old file. */
	assert_int_equal(kit_attr(k->ws, "other").ino, f.attr.ino);
	assert_int_equal(kit_attr(k->ws, "other").nlink, 1);
	kit_check_usage(k->ws);
	/* A new file is its folder's owner's. */
	struct entry d = kit_make(k->ws, 1, "d", S_IFDIR | 0755);
	expect(0, ws_setattr(k->ws, d.node, WS_SET_UID | WS_SET_GID, &own, &root_caller, NULL));
	expect(0, put(k->ws, (struct ws_put){ .dir = d.attr.ino }, "g", "x", NULL));
	assert_int_equal(kit_attr(k->ws, "d/g").uid, 12);
	assert_int_equal(kit_attr(k->ws, "d/g").gid, 34);
}

static void conditions(void **state)
{
	struct kit *k = *state;
	struct ws_put exist = { .must_exist = true }, absent = { .must_not_exist = true };
	expect(-EREMCHG, put(k->ws, exist, "f", "x", NULL));
	expect(0, put(k->ws, absent, "f", "1", NULL));
	expect(-EREMCHG, put(k->ws, absent, "f", "x", NULL));
	expect(0, put(k->ws, exist, "f", "2", NULL));
	struct version_id list[2] = { { 0 }, version(k->ws, "f") };
	struct ws_put match = { .match = list, .nmatch = 2 };
	struct ws_put unless = { .unless = list, .nunless = 2 };
	expect(-EREMCHG, put(k->ws, unless, "f", "x", NULL));
	expect(-EREMCHG, put(k->ws, match, "g", "x", NULL));
	expect(0, put(k->ws, unless, "g", "x", NULL));
	expect(0, put(k->ws, match, "f", "3", NULL));
	expect(-EREMCHG, put(k->ws, match, "f", "x", NULL));
	expect_text(k->ws, "f", "3");
	/* A write in between, of the same length, is seen. */
	list[0] = version(k->ws, "f");
	expect(0, ws_write(k->ws, tree_node(k->ws, "f"), "X", 1, 0, false, &root_caller));
	expect(-EREMCHG, put(k->ws, match, "f", "x", NULL));
	/* So is a mode. */
	list[0] = version(k->ws, "f");
	expect(0, ws_setattr(k->ws, tree_node(k->ws, "f"), WS_SET_MODE,
			     &(struct attr){ .mode = 0600 }, &root_caller, NULL));
	expect(-EREMCHG, put(k->ws, match, "f", "x", NULL));
	list[0] = version(k->ws, "f");
	struct ws_put_result res;
	match.dir = 1, match.name = "f", match.len = 1, match.nmatch = 1;
	expect(0, ws_take(k->ws, &match, &res));
	expect(-EREMCHG, ws_take(k->ws, &match, &res));
	match.nmatch = 0;
	expect(-ENOENT, ws_take(k->ws, &match, &res));
	kit_check_usage(k->ws);
}

static void refusals(void **state)
{
	struct kit *k = *state;
	struct entry d = kit_make(k->ws, 1, "d", S_IFDIR | 0755), l, e;
	struct ws_put_result res;
	kit_make(k->ws, 1, "p", S_IFIFO | 0644);
	expect(0, ws_symlink(k->ws, 1, "l", 1, "x", &root_caller, &l));
	struct entry f = kit_make(k->ws, 1, "f", S_IFREG | 0644);
	expect(-EISDIR, put(k->ws, (struct ws_put){ 0 }, "d", "x", NULL));
	expect(-ELOOP, put(k->ws, (struct ws_put){ 0 }, "l", "x", NULL));
	expect(-ELOOP, put(k->ws, (struct ws_put){ 0 }, "p", "x", NULL));
	expect(-EINVAL, put(k->ws, (struct ws_put){ 0 }, "..", "x", NULL));
	expect(-EINVAL, put(k->ws, (struct ws_put){ 0 }, "a/b", "x", NULL));
	expect(-ENOENT, put(k->ws, (struct ws_put){ .dir = f.attr.ino }, "x", "x", NULL));
	expect(-ENOENT, put(k->ws, (struct ws_put){ .dir = 999999 }, "x", "x", NULL));
	/* A file that has a name, a directory, nothing. */
	struct ws_put w = { .dir = 1, .name = "n", .len = 1, .file = f.attr.ino };
	expect(-EINVAL, ws_put(k->ws, &w, &res));
	w.file = d.attr.ino;
	expect(-EINVAL, ws_put(k->ws, &w, &res));
	w.file = 999999;
	expect(-ESTALE, ws_put(k->ws, &w, &res));
	/* A folder that is gone. */
	expect(0, ws_rmdir(k->ws, 1, "d", 1, &root_caller));
	expect(-ENOENT, put(k->ws, (struct ws_put){ .dir = d.attr.ino }, "x", "x", NULL));
	expect(-ENOENT, ws_lookup(k->ws, 1, "n", 1, &e));
	w.name = "p";
	expect(0, ws_take(k->ws, &w, &res));
	kit_check_usage(k->ws);
}

/* Asked again by who didn't hear the answer: once is enough. */
static void again(void **state)
{
	struct kit *k = *state;
	struct ws_put_result res;
	struct entry e = upload(k->ws, "x");
	struct ws_put w = {
		.dir = 1, .name = "f", .len = 1, .file = e.attr.ino, .must_not_exist = true
	};
	expect(0, ws_put(k->ws, &w, &res));
	struct version_id v = version_of(&res.attr);
	expect(0, ws_put(k->ws, &w, &res));
	struct version_id same = version_of(&res.attr);
	assert_true(version_equal(&v, &same));
	ws_forget(k->ws, e.node, 1);
	expect_text(k->ws, "f", "x");
}

/* A seal between the upload and its name: saved without it, all comes up. */
static void sealed_meanwhile(void **state)
{
	struct kit *k = *state;
	struct err err = { 0 };
	auto_stack st = { 0 };
	struct ws_put_result res;
	struct entry e = upload(k->ws, "content");
	succeed(err, ws_seal(k->ws, &st, &err));
	struct ws_put w = { .dir = 1, .name = "f", .len = 1, .file = e.attr.ino };
	expect(0, ws_put(k->ws, &w, &res));
	ws_forget(k->ws, e.node, 1);
	expect_text(k->ws, "f", "content");
	kit_check_usage(k->ws);
	kit_reopen(k);
	expect_text(k->ws, "f", "content");
}

/* What was replaced lives on for who holds it, and then goes. */
static void old_file_is_held(void **state)
{
	struct kit *k = *state;
	struct entry f = kit_make(k->ws, 1, "f", S_IFREG | 0644);
	char b[4];
	struct attr a;
	expect(0, ws_write(k->ws, f.node, "old", 3, 0, false, &root_caller));
	expect(0, put(k->ws, (struct ws_put){ 0 }, "f", "new", NULL));
	expect(3, ws_read(k->ws, f.node, b, 3, 0));
	assert_memory_equal(b, "old", 3);
	ws_forget(k->ws, f.node, 1);
	expect(-ESTALE, ws_getattr(k->ws, f.node, &a));
	kit_check_usage(k->ws);
}

static void quota(void **state)
{
	struct kit *k = *state;
	struct err err = { 0 };
	struct entry f = kit_make(k->ws, 1, "f", S_IFREG | 0644);
	char value[100] = "";
	expect(0, ws_setxattr(k->ws, f.node, "user.a", value, sizeof(value), 0, &root_caller));
	struct entry e = upload(k->ws, "x");
	struct ws_usage u;
	struct ws_limits l;
	ws_get_usage(k->ws, &u, &l);
	l.bytes = (uint64_t)u.bytes + 50; /* the xattr doesn't fit twice */
	succeed(err, ws_set_limits(k->ws, &l, &err));
	struct ws_put_result res;
	struct ws_put w = { .dir = 1, .name = "f", .len = 1, .file = e.attr.ino };
	expect(-EDQUOT, ws_put(k->ws, &w, &res));
	assert_int_equal(kit_attr(k->ws, "f").ino, f.attr.ino);
	ws_forget(k->ws, e.node, 1);
	kit_check_usage(k->ws);
}

/* Thousands of changes within some ticks of the clock: each has its own time. */
static void versions_differ(void **state)
{
	struct kit *k = *state;
	struct entry f = kit_make(k->ws, 1, "f", S_IFREG | 0644);
	struct version_id last = version_of(&f.attr);
	for (int i = 0; i < 3000; i++) {
		struct attr in = { .mode = 0600 };
		expect(0, i % 2 ? ws_write(k->ws, f.node, "x", 1, 0, false, &root_caller)
				: ws_setattr(k->ws, f.node, WS_SET_MODE, &in, &root_caller, NULL));
		struct version_id now = version(k->ws, "f");
		assert_true(now.ctime_ns > last.ctime_ns);
		last = now;
	}
}

static void version_texts(void **state)
{
	static const struct {
		const char *text;
		int r;
	} table[] = {
		{ "1.0.0", 0 },
		{ "ffffffffffff.ffff.ffffffffffffffff", 0 },
		{ "2.0.18eca0bc40fa4fd4", 0 },
		{ "", -EINVAL },
		{ "1", -EINVAL },
		{ "1.0", -EINVAL },
		{ "1.0.", -EINVAL },
		{ ".0.1", -EINVAL },
		{ "1..1", -EINVAL },
		{ "01.0.1", -EINVAL },
		{ "1.00.1", -EINVAL },
		{ "1.0.A", -EINVAL },
		{ "1.0.1 ", -EINVAL },
		{ "1.0.1.1", -EINVAL },
		{ "1000000000000.0.1", -EINVAL },
		{ "1.10000.1", -EINVAL },
		{ "1.0.10000000000000000", -EINVAL },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct version_id v;
		char text[VERSION_TEXT];
		expect(table[i].r, version_parse(&v, table[i].text, strlen(table[i].text)));
		if (table[i].r == 0)
			assert_string_equal(version_text(text, &v), table[i].text);
	}
	struct version_id past = { .ino = 1, .ctime_ns = -5 }, back;
	char text[VERSION_TEXT];
	(void)version_text(text, &past);
	expect(0, version_parse(&back, text, strlen(text)));
	assert_true(version_equal(&past, &back));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, kit_setup, kit_teardown)
	const struct CMUnitTest tests[] = {
		T(makes_and_replaces),
		T(keeps_what_it_says),
		T(conditions),
		T(refusals),
		T(again),
		T(sealed_meanwhile),
		T(old_file_is_held),
		T(quota),
		T(versions_differ),
		cmocka_unit_test(version_texts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
