/* Files of ROOT/uploads that become contents without a copy (ws_put), and what a kill in the middle
 * of that leaves behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fs/work/layer_impl.h"
#include "ws_kit.h"

enum { SIZE = LAYER_BIG_FILE + 5000 }; /* large enough for a file of its own, and no whole block */

static uint64_t next_tag = WS_TAG_OURS | 1;

static void host_path(struct kit *k, char out[160], const char *name)
{
	(void)snprintf(out, 160, "%s/uploads/%s", k->root.dir, name);
}

/* `size` bytes that `seed` tells, in ROOT/uploads. */
static void host_file(struct kit *k, const char *name, size_t size, unsigned seed)
{
	char path[160];
	(void)snprintf(path, sizeof(path), "%s/uploads", k->root.dir);
	(void)mkdir(path, 0700);
	host_path(k, path, name);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	for (size_t i = 0; i < size; i++)
		assert_int_equal(fputc((int)((i * 7 + i / 251 + seed) & 255), f) >= 0, 1);
	assert_int_equal(fclose(f), 0);
}

static nlink_t host_links(struct kit *k, const char *name)
{
	char path[160];
	struct stat st;
	host_path(k, path, name);
	return stat(path, &st) == 0 ? st.st_nlink : 0;
}

/* How many files of one inode's own the folders of layers have. */
static unsigned own_files(struct kit *k)
{
	char path[400];
	unsigned n = 0;
	(void)snprintf(path, sizeof(path), "%s/layers", k->root.dir);
	DIR *d = opendir(path);
	assert_non_null(d);
	for (const struct dirent *l; (l = readdir(d));) {
		(void)snprintf(path, sizeof(path), "%s/layers/%s", k->root.dir, l->d_name);
		DIR *in = l->d_name[0] == '.' ? NULL : opendir(path);
		for (const struct dirent *e; in && (e = readdir(in));)
			n += e->d_name[0] == 'f';
		if (in)
			(void)closedir(in);
	}
	(void)closedir(d);
	return n;
}

static void active_path(struct kit *k, char out[200], const char *name)
{
	char hex[2 * LAYER_ID_BYTES + 1];
	hex_encode(hex, layer_id(active(k->ws))->b, LAYER_ID_BYTES);
	(void)snprintf(out, 200, "%s/layers/%s/%s", k->root.dir, hex, name);
}

static void expect_bytes(struct ws *ws, const char *path, size_t size, unsigned seed)
{
	size_t got;
	char *b = kit_read(ws, path, &got);
	assert_int_equal(got, size);
	for (size_t i = 0; i < size; i++)
		if ((unsigned char)b[i] != ((i * 7 + i / 251 + seed) & 255))
			fail_msg("%s: byte %zu is wrong", path, i);
	free(b);
}

static int put_tagged(struct kit *k, const char *upload, size_t size, const char *name,
		      uint64_t tag, struct ws_put_result *out)
{
	struct ws_put_result res;
	struct ws_put w = { .tag = tag,
			    .dir = 1,
			    .name = name,
			    .len = strlen(name),
			    .upload = upload,
			    .size = size };
	return ws_put(k->ws, &w, out ? out : &res);
}

static int put(struct kit *k, const char *upload, size_t size, const char *name)
{
	return put_tagged(k, upload, size, name, next_tag++, NULL);
}

static void commit(struct kit *k)
{
	struct err err = { 0 };
	succeed(err, ws_commit(k->ws, &err));
}

static void taken_over(void **state)
{
	struct kit *k = *state;
	struct err err = { 0 };
	struct ws_usage before, u;
	char path[160];
	struct stat st;
	ws_get_usage(k->ws, &before, NULL);
	host_file(k, "up", SIZE, 1);
	expect(0, put(k, "up", SIZE, "f"));
	assert_int_equal(host_links(k, "up"), 2);
	expect_bytes(k->ws, "f", SIZE, 1);
	struct attr a = kit_attr(k->ws, "f");
	assert_int_equal(a.mode, S_IFREG | 0644);
	assert_int_equal(a.nlink, 1);
	assert_int_equal(a.blocks, block_ceil(SIZE) / 512);
	ws_get_usage(k->ws, &u, NULL);
	assert_int_equal(u.bytes - before.bytes, SIZE);
	assert_int_equal(u.inodes - before.inodes, 1);
	kit_check_usage(k->ws);
	host_path(k, path, "up");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(unlink(path), 0);
	commit(k);
	kit_reopen(k);
	expect_bytes(k->ws, "f", SIZE, 1);
	kit_check_usage(k->ws);
	/* It is a file as any other: in place, behind its end, shared with a fork. */
	expect(0, ws_write(k->ws, node_of(&a), "in place", 8, 100, false, &root_caller));
	expect(0, ws_write(k->ws, node_of(&a), "x", 1, SIZE + 9000, false, &root_caller));
	struct ws *child = kit_fork(k->ws, "child");
	expect(0, ws_write(k->ws, node_of(&a), "parent's", 8, 100, false, &root_caller));
	size_t size;
	char *b = kit_read(child, "f", &size);
	assert_int_equal(size, SIZE + 9001);
	assert_memory_equal(b + 100, "in place", 8);
	for (size_t i = SIZE; i < SIZE + 9000; i++)
		assert_int_equal(b[i], 0);
	free(b);
	kit_check_usage(k->ws);
	ws_close(child);
	succeed(err, ws_delete(k->root.work, "child", &err));
}

static void replaces(void **state)
{
	struct kit *k = *state;
	struct entry f = kit_make(k->ws, 1, "f", S_IFREG | 0751);
	const struct attr own = { .uid = 12, .gid = 34 };
	struct ws_put_result res;
	char value[16];
	expect(0, ws_setattr(k->ws, f.node, WS_SET_UID | WS_SET_GID, &own, &root_caller, NULL));
	expect(0, ws_setxattr(k->ws, f.node, "user.a", "value", 5, 0, &root_caller));
	ws_forget(k->ws, f.node, 1);
	host_file(k, "up", SIZE, 2);
	expect(0, put_tagged(k, "up", SIZE, "f", next_tag++, &res));
	assert_int_equal(res.old_node, f.node);
	struct attr a = kit_attr(k->ws, "f");
	assert_int_equal(a.uid, 12);
	assert_int_equal(a.gid, 34);
	assert_int_equal(a.mode, S_IFREG | 0751);
	expect(5, ws_getxattr(k->ws, node_of(&a), "user.a", value, sizeof(value)));
	expect_bytes(k->ws, "f", SIZE, 2);
	kit_check_usage(k->ws);
}

static void refused(void **state)
{
	struct kit *k = *state;
	char path[160], other[160];
	struct ws_usage before, u;
	ws_get_usage(k->ws, &before, NULL);
	host_file(k, "small", 5000, 1);
	host_file(k, "up", SIZE, 1);
	host_path(k, path, "up");
	host_path(k, other, "link");
	assert_int_equal(symlink(path, other), 0);
	expect(-EXDEV, put(k, "small", 5000, "f"));
	expect(-EIO, put(k, "up", SIZE + 1, "f"));
	expect(-EIO, put(k, "up", SIZE - 1, "f"));
	expect(-EIO, put(k, "none", SIZE, "f"));
	expect(-ELOOP, put(k, "link", SIZE, "f"));
	static const char *const bad[] = { "", ".", "..", "../up", "a/b", ".up" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		expect(-EINVAL, put(k, bad[i], SIZE, "f"));
	expect(-EINVAL, put(k, "up", SIZE, ".."));
	(void)kit_make(k->ws, 1, "d", S_IFDIR | 0755);
	expect(-EISDIR, put(k, "up", SIZE, "d"));
	/* What was refused left nothing. */
	assert_int_equal(host_links(k, "up"), 1);
	assert_int_equal(own_files(k), 0);
	ws_get_usage(k->ws, &u, NULL);
	assert_int_equal(u.bytes, before.bytes);
	kit_check_usage(k->ws);
	expect(0, put(k, "up", SIZE, "f"));
	expect_bytes(k->ws, "f", SIZE, 1);
}

static void conditions(void **state)
{
	struct kit *k = *state;
	struct ws_put_result res;
	struct ws_put w = { .tag = next_tag++,
			    .dir = 1,
			    .name = "f",
			    .len = 1,
			    .upload = "up",
			    .size = SIZE,
			    .must_exist = true };
	host_file(k, "up", SIZE, 1);
	expect(-EREMCHG, ws_put(k->ws, &w, &res));
	assert_int_equal(host_links(k, "up"), 1);
	w.must_exist = false;
	w.must_not_exist = w.set_mode = true;
	w.mode = 0600;
	expect(0, ws_put(k->ws, &w, &res));
	assert_int_equal(kit_attr(k->ws, "f").mode, S_IFREG | 0600);
}

static void quota_to_the_byte(void **state)
{
	struct kit *k = *state;
	struct err err = { 0 };
	struct ws_usage u;
	struct ws_limits l;
	ws_get_usage(k->ws, &u, &l);
	host_file(k, "up", SIZE, 1);
	l.bytes = (uint64_t)u.bytes + SIZE - 1;
	succeed(err, ws_set_limits(k->ws, &l, &err));
	expect(-EDQUOT, put(k, "up", SIZE, "f"));
	assert_int_equal(host_links(k, "up"), 1);
	kit_check_usage(k->ws);
	l.bytes++;
	l.inodes = (uint64_t)u.inodes;
	succeed(err, ws_set_limits(k->ws, &l, &err));
	if (l.inodes > 0) {
		expect(-EDQUOT, put(k, "up", SIZE, "f"));
		l.inodes++;
		succeed(err, ws_set_limits(k->ws, &l, &err));
	}
	expect(0, put(k, "up", SIZE, "f"));
	kit_check_usage(k->ws);
	host_file(k, "more", SIZE, 2);
	expect(-EDQUOT, put(k, "more", SIZE, "g"));
}

/* Two files never share one of the host's. */
static void once(void **state)
{
	struct kit *k = *state;
	struct ws_put_result res;
	uint64_t tag = next_tag++;
	host_file(k, "up", SIZE, 1);
	expect(0, put_tagged(k, "up", SIZE, "f", tag, &res));
	struct version_id v = version_of(&res.attr);
	expect(0, put_tagged(k, "up", SIZE, "f", tag, &res));
	struct version_id same = version_of(&res.attr);
	assert_true(version_equal(&v, &same));
	expect(-EMLINK, put(k, "up", SIZE, "g"));
	commit(k);
	kit_reopen(k);
	expect(-EMLINK, put(k, "up", SIZE, "g"));
	expect_bytes(k->ws, "f", SIZE, 1);
	/* What is told of one that was done, when the name has gone. */
	expect(0, ws_unlink(k->ws, 1, "f", 1, &root_caller));
	host_file(k, "two", SIZE, 3);
	tag = next_tag++;
	expect(0, put_tagged(k, "two", SIZE, "f", tag, &res));
	expect(0, ws_unlink(k->ws, 1, "f", 1, &root_caller));
	expect(0, put_tagged(k, "two", SIZE, "f", tag, &res));
	assert_int_equal(res.node, 0);
	commit(k);
	assert_int_equal(own_files(k), 0);
	assert_int_equal(host_links(k, "two"), 1);
}

/* Killed between the name in the layer and the frame: the name goes, the upload stays. */
static void killed_between(void **state)
{
	struct kit *k = *state;
	char from[160], to[200];
	host_file(k, "up", SIZE, 4);
	expect(0, put(k, "up", SIZE, "other"));
	host_path(k, from, "up");
	assert_int_equal(unlink(from), 0);
	host_file(k, "up", SIZE, 5);
	active_path(k, to, "f7ffffff");
	assert_int_equal(link(from, to), 0);
	active_path(k, to, "foreign"); /* none of ours */
	assert_int_equal(link(from, to), 0);
	assert_int_equal(unlink(to), 0);
	kit_reopen(k);
	assert_int_equal(host_links(k, "up"), 2);
	expect(0, put(k, "up", SIZE, "f"));
	expect_bytes(k->ws, "f", SIZE, 5);
	expect_bytes(k->ws, "other", SIZE, 4);
	assert_int_equal(host_links(k, "up"), 2);
	assert_int_equal(own_files(k), 2);
	kit_check_usage(k->ws);
}

/* What only others refer to by a reflink isn't left over. */
static void shared_stays(void **state)
{
	struct kit *k = *state;
	host_file(k, "up", SIZE, 6);
	expect(0, put(k, "up", SIZE, "f"));
	struct attr f = kit_attr(k->ws, "f");
	struct entry g = kit_make(k->ws, 1, "g", S_IFREG | 0644);
	expect(SIZE, ws_copy_range(k->ws, node_of(&f), 0, g.node, 0, SIZE, &root_caller));
	ws_forget(k->ws, g.node, 1);
	expect(0, ws_unlink(k->ws, 1, "f", 1, &root_caller));
	commit(k);
	kit_reopen(k);
	commit(k);
	expect_bytes(k->ws, "g", SIZE, 6);
	assert_true(own_files(k) >= 1);
	expect(-EMLINK, put(k, "up", SIZE, "f"));
	expect(0, ws_unlink(k->ws, 1, "g", 1, &root_caller));
	commit(k);
	assert_int_equal(own_files(k), 0);
	kit_check_usage(k->ws);
}

/* Somebody else takes it over as well, and has seen it alone, too. */
static int link_twice(void *ctx, int olddir, const char *oldname, int newdir, const char *newname)
{
	int r = io_host.link(ctx, olddir, oldname, olddir, "uploads/other");
	return r < 0 ? r : io_host.link(ctx, olddir, oldname, newdir, newname);
}

static void taken_twice(void **state)
{
	struct kit *k = *state;
	struct io twice = io_host;
	twice.link = link_twice;
	host_file(k, "up", SIZE, 7);
	active(k->ws)->io = &twice;
	expect(-EMLINK, put(k, "up", SIZE, "f"));
	active(k->ws)->io = &io_host;
	assert_int_equal(host_links(k, "up"), 2); /* the other one's, and its own */
	assert_int_equal(own_files(k), 0);
	kit_check_usage(k->ws);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, kit_setup, kit_teardown)
	const struct CMUnitTest tests[] = {
		T(taken_over),     T(replaces),     T(refused), T(conditions), T(quota_to_the_byte),
		T(once),           T(killed_between), T(shared_stays),
		T(taken_twice),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
