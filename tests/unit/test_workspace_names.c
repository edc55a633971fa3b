/* Names, links, references and attributes of workspaces: what the model test (tests/crash/model.c)
 * can't compare with the host. */
#include <linux/fs.h>
#include <sys/xattr.h>
#include <time.h>

#include "ws_kit.h"

static void test_names(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	struct entry e;
	char name[300];
	memset(name, 'n', sizeof(name));
	static const struct {
		const char *name;
		size_t len;
		int want;
	} cases[] = {
		{ "a", 1, 0 },          { "a", 1, -EEXIST },      { "", 0, -ENOENT },
		{ ".", 1, -EEXIST },    { "..", 2, -EEXIST },     { "x/y", 3, -EINVAL },
		{ "x\0y", 3, -EINVAL }, { "\xff\xfe\x01", 3, 0 }, { "...", 3, 0 },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		expect(cases[i].want, ws_mknod(ws, 1, cases[i].name, cases[i].len, S_IFREG | 0644,
					       0, &root_caller, &e));
	expect(0, ws_mknod(ws, 1, name, 255, S_IFREG, 0, &root_caller, &e));
	expect(-ENAMETOOLONG, ws_mknod(ws, 1, name, 256, S_IFREG, 0, &root_caller, &e));
	expect(-ENAMETOOLONG, ws_lookup(ws, 1, name, 256, &e));
	expect(-ENOENT, ws_lookup(ws, 1, name, 254, &e));
	expect(0, ws_lookup(ws, 1, "\xff\xfe\x01", 3, &e));
	expect(-ENOTDIR, ws_lookup(ws, e.node, "a", 1, &e));
	expect(-EINVAL, ws_mknod(ws, 1, "l", 1, S_IFLNK | 0777, 0, &root_caller, &e));
	expect(-ESTALE, ws_lookup(ws, 12345, "a", 1, &e));
	expect(-ESTALE, ws_lookup(ws, tree_node(ws, "a") | UINT64_C(7) << 48, "a", 1, &e));
}

static void test_symlinks(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	struct entry e;
	char target[4200], got[4200];
	size_t len;
	memset(target, 't', sizeof(target));
	target[4096] = '\0';
	expect(-ENAMETOOLONG, ws_symlink(ws, 1, "l", 1, target, &root_caller, &e));
	target[4095] = '\0';
	expect(0, ws_symlink(ws, 1, "l", 1, target, &root_caller, &e));
	assert_int_equal(e.attr.size, 4095);
	expect(0, ws_readlink(ws, e.node, got, sizeof(got), &len));
	assert_int_equal(len, 4095);
	assert_memory_equal(got, target, len);
	expect(-ENOENT, ws_symlink(ws, 1, "m", 1, "", &root_caller, &e));
	tree_put(ws, "f", "x");
	expect(-EINVAL, ws_readlink(ws, tree_node(ws, "f"), got, sizeof(got), &len));
	/* Of a link from below, changed above. */
	struct ws *child = kit_fork(ws, "c");
	struct attr in = { .uid = 5 };
	expect(0, ws_setattr(child, tree_node(child, "l"), WS_SET_UID, &in, &root_caller, NULL));
	expect(0, ws_readlink(child, tree_node(child, "l"), got, sizeof(got), &len));
	assert_int_equal(len, 4095);
	ws_close(child);
}

static void test_link_limit(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	struct entry e, f;
	char name[32];
	e = kit_make(ws, 1, "0", S_IFREG | 0644);
	for (unsigned i = 1; i < WS_LINK_MAX; i++) {
		(void)snprintf(name, sizeof(name), "%u", i);
		expect(0, ws_link(ws, e.node, 1, name, strlen(name), &root_caller, &f));
	}
	assert_int_equal(f.attr.nlink, WS_LINK_MAX);
	expect(-EMLINK, ws_link(ws, e.node, 1, "more", 4, &root_caller, &f));
	expect(0, ws_unlink(ws, 1, "17", 2, &root_caller));
	expect(0, ws_link(ws, e.node, 1, "more", 4, &root_caller, &f));
	tree_mk(ws, "d", S_IFDIR | 0755);
	expect(-EPERM, ws_link(ws, tree_node(ws, "d"), 1, "e", 1, &root_caller, &f));
}

static void test_directory_links(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	tree_mk(ws, "a", S_IFDIR | 0755);
	tree_mk(ws, "b", S_IFDIR | 0755);
	tree_mk(ws, "a/x", S_IFDIR | 0755);
	tree_put(ws, "f", "f");
	assert_int_equal(kit_attr(ws, "").nlink, 4);
	assert_int_equal(kit_attr(ws, "a").nlink, 3);
	tree_mv(ws, "a/x", "b/y");
	assert_int_equal(kit_attr(ws, "a").nlink, 2);
	assert_int_equal(kit_attr(ws, "b").nlink, 3);
	assert_int_equal(kit_attr(ws, "b/y").parent, kit_attr(ws, "b").ino);
	/* Over an empty directory. */
	tree_mk(ws, "b/z", S_IFDIR | 0755);
	tree_mv(ws, "b/y", "b/z");
	assert_int_equal(kit_attr(ws, "b").nlink, 3);
	/* A directory for a file. */
	expect(0,
	       ws_rename(ws, 1, "f", 1, tree_node(ws, "b"), "z", 1, RENAME_EXCHANGE, &root_caller));
	assert_int_equal(kit_attr(ws, "b").nlink, 2);
	assert_int_equal(kit_attr(ws, "").nlink, 5);
	assert_int_equal(kit_attr(ws, "f").parent, 1);
	/* Into itself, which the kernel refuses before. */
	tree_mk(ws, "a/n", S_IFDIR | 0755);
	expect(-EINVAL, ws_rename(ws, 1, "a", 1, tree_node(ws, "a/n"), "q", 1, 0, &root_caller));
	expect(-EINVAL,
	       ws_rename(ws, tree_node(ws, "a"), "n", 1, 1, "a", 1, RENAME_EXCHANGE, &root_caller));
	expect(-EINVAL, ws_rename(ws, 1, "a", 1, 1, "q", 1, RENAME_EXCHANGE | RENAME_NOREPLACE,
				  &root_caller));
	expect(-EINVAL, ws_rename(ws, 1, "a", 1, 1, "q", 1, 64, &root_caller));
}

static void test_whiteout(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	tree_put(ws, "a", "text");
	expect(0, ws_rename(ws, 1, "a", 1, 1, "b", 1, RENAME_WHITEOUT, &root_caller));
	struct attr a = kit_attr(ws, "a");
	assert_true(S_ISCHR(a.mode));
	assert_int_equal(a.rdev, 0);
	kit_expect_text(ws, "b", "text");
	kit_check_usage(ws);
}

/* An inode without a name lives for as long as the kernel holds it. */
static void test_orphans(void **state)
{
	struct kit *k = *state;
	struct ws *ws = k->ws;
	struct attr a;
	struct entry e = kit_make(ws, 1, "f", S_IFREG | 0644), f;
	expect(0, ws_write(ws, e.node, "hello", 5, 0, false, &root_caller));
	expect(0, ws_lookup(ws, 1, "f", 1, &f)); /* two references */
	int64_t used = ws->quota.bytes;
	expect(0, ws_unlink(ws, 1, "f", 1, &root_caller));
	expect(0, ws_getattr(ws, e.node, &a));
	assert_int_equal(a.nlink, 0);
	assert_int_equal(ws->quota.bytes, used);
	expect(0, ws_write(ws, e.node, "world", 5, 5, false, &root_caller));
	ws_forget(ws, e.node, 1);
	expect(0, ws_getattr(ws, e.node, &a));
	ws_forget(ws, e.node, 1);
	expect(-ESTALE, ws_getattr(ws, e.node, &a));
	assert_int_equal(ws->quota.bytes, used - 5);
	assert_int_equal(ws->quota.inodes, 0);
	/* Nobody held it: gone at once. */
	tree_put(ws, "g", "x");
	uint64_t node = tree_node(ws, "g");
	tree_rm(ws, "g");
	expect(-ESTALE, ws_getattr(ws, node, &a));
	/* Replaced by a rename. */
	e = kit_make(ws, 1, "old", S_IFREG | 0644);
	tree_put(ws, "new", "n");
	tree_mv(ws, "new", "old");
	expect(0, ws_getattr(ws, e.node, &a));
	assert_int_equal(a.nlink, 0);
	/* A directory; nothing can be made in it. */
	struct entry d = kit_make(ws, 1, "d", S_IFDIR | 0755);
	expect(0, ws_rmdir(ws, 1, "d", 1, &root_caller));
	expect(0, ws_getattr(ws, d.node, &a));
	expect(-ENOENT, ws_mknod(ws, d.node, "x", 1, S_IFREG, 0, &root_caller, &f));
	expect(2, ws->orphans.count);
	/* The mount goes. */
	ws_forget_all(ws);
	expect(-ESTALE, ws_getattr(ws, e.node, &a));
	expect(-ESTALE, ws_getattr(ws, d.node, &a));
	expect(0, ws->orphans.count);
	kit_check_usage(ws);
}

/* Orphans of a server that died are ended by the next open; those of a sealed layer too. */
static void test_leftovers(void **state)
{
	struct kit *k = *state;
	struct attr a;
	struct entry e = kit_make(k->ws, 1, "f", S_IFREG | 0644);
	struct entry g = kit_make(k->ws, 1, "g", S_IFREG | 0644), h;
	expect(0, ws_write(k->ws, e.node, "hello", 5, 0, false, &root_caller));
	expect(0, ws_tmpfile(k->ws, 1, 0600, &root_caller, &h));
	tree_rm(k->ws, "f");
	struct ws *child = kit_fork(k->ws, "c");
	tree_rm(k->ws, "g");
	expect(0, ws_getattr(k->ws, e.node, &a));
	expect(0, ws_getattr(k->ws, h.node, &a));
	/* What a kill leaves: no forgets. */
	for (unsigned i = 0; i < WS_SHARDS; i++)
		u64map_done(&k->ws->nodes[i].map);
	u64map_done(&k->ws->orphans);
	k->ws->norphans = 0;
	kit_reopen(k);
	expect(-ESTALE, ws_getattr(k->ws, e.node, &a));
	expect(-ESTALE, ws_getattr(k->ws, g.node, &a));
	expect(-ESTALE, ws_getattr(k->ws, h.node, &a));
	expect(0, k->ws->quota.bytes);
	expect(0, k->ws->quota.inodes);
	kit_check_usage(k->ws);
	(void)kit_attr(child, "g");
	ws_close(child);
}

static void test_tmpfile(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	struct entry e, f;
	struct attr a;
	expect(0, ws_tmpfile(ws, 1, 0640, &root_caller, &e));
	assert_int_equal(e.attr.nlink, 0);
	assert_int_equal(e.attr.mode, S_IFREG | 0640);
	expect(0, ws_write(ws, e.node, "tmp", 3, 0, false, &root_caller));
	expect(0, ws_link(ws, e.node, 1, "named", 5, &root_caller, &f));
	assert_int_equal(f.attr.nlink, 1);
	ws_forget(ws, e.node, 2);
	expect(0, ws_getattr(ws, e.node, &a));
	kit_expect_text(ws, "named", "tmp");
	expect(0, ws_tmpfile(ws, 1, 0640, &root_caller, &e));
	ws_forget(ws, e.node, 1);
	expect(-ESTALE, ws_getattr(ws, e.node, &a));
	kit_check_usage(ws);
}

static void test_setgid(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	struct attr in = { .mode = 02775, .gid = 77 };
	struct caller c = { .uid = 5, .gid = 6 };
	struct entry e;
	tree_mk(ws, "d", S_IFDIR | 0755);
	uint64_t d = tree_node(ws, "d");
	expect(0, ws_setattr(ws, d, WS_SET_MODE | WS_SET_GID, &in, &root_caller, NULL));
	expect(0, ws_mknod(ws, d, "f", 1, S_IFREG | 0644, 0, &c, &e));
	assert_int_equal(e.attr.uid, 5);
	assert_int_equal(e.attr.gid, 77);
	assert_int_equal(e.attr.mode, S_IFREG | 0644);
	expect(0, ws_mknod(ws, d, "s", 1, S_IFDIR | 0755, 0, &c, &e));
	assert_int_equal(e.attr.gid, 77);
	assert_int_equal(e.attr.mode, S_IFDIR | 02755);
	expect(0, ws_mknod(ws, 1, "g", 1, S_IFREG | 0644, 0, &c, &e));
	assert_int_equal(e.attr.gid, 6);
}

static void test_kill_priv(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	static const struct {
		uint32_t before, after;
	} cases[] = {
		{ 06755, 0755 }, { 04644, 0644 },  { 02745, 02745 },
		{ 02755, 0755 }, { 01777, 01777 },
	};
	struct entry e = kit_make(ws, 1, "f", S_IFREG | 0644);
	struct attr in = { .uid = 3 }, out;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (int how = 0; how < 3; how++) {
			in.mode = cases[i].before;
			in.size = 1;
			expect(0, ws_setattr(ws, e.node, WS_SET_MODE, &in, &root_caller, NULL));
			expect(0, ws_setxattr(ws, e.node, "security.capability", "cap", 3, 0,
					      &root_caller));
			if (how == 0)
				expect(0, ws_write(ws, e.node, "x", 1, 0, true, &root_caller));
			else
				expect(0, ws_setattr(ws, e.node,
						     WS_KILL_SUID |
							     (how == 1 ? WS_SET_SIZE : WS_SET_UID),
						     &in, &root_caller, NULL));
			expect(0, ws_getattr(ws, e.node, &out));
			assert_int_equal(out.mode, S_IFREG | cases[i].after);
			expect(-ENODATA, ws_getxattr(ws, e.node, "security.capability", NULL, 0));
		}
	}
	in.mode = 04755;
	expect(0, ws_setattr(ws, e.node, WS_SET_MODE, &in, &root_caller, NULL));
	expect(0, ws_write(ws, e.node, "x", 1, 0, false, &root_caller));
	assert_int_equal(kit_attr(ws, "f").mode, S_IFREG | 04755);
	kit_check_usage(ws);
}

static bool is(const struct timespec *a, time_t sec)
{
	return a->tv_sec == sec && a->tv_nsec == 0;
}

/* Which of an inode's times an operation moves. All start at 1000. */
static void test_times(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	struct attr old = { .atime = { 1000, 0 }, .mtime = { 1000, 0 }, .ctime = { 1000, 0 } }, a;
	const unsigned all = WS_SET_ATIME | WS_SET_MTIME | WS_SET_CTIME;
	struct entry d = kit_make(ws, 1, "d", S_IFDIR | 0755),
		     f = kit_make(ws, d.node, "f", S_IFREG);
	struct entry e;
	char b[8];
#define RESET()                                                                   \
	do {                                                                      \
		expect(0, ws_setattr(ws, d.node, all, &old, &root_caller, NULL)); \
		expect(0, ws_setattr(ws, f.node, all, &old, &root_caller, NULL)); \
	} while (0)
#define MOVED(node, at, mt, ct)                            \
	do {                                               \
		expect(0, ws_getattr(ws, node, &a));       \
		assert_int_equal(!is(&a.atime, 1000), at); \
		assert_int_equal(!is(&a.mtime, 1000), mt); \
		assert_int_equal(!is(&a.ctime, 1000), ct); \
	} while (0)
	RESET();
	expect(0, ws_write(ws, f.node, "x", 1, 0, false, &root_caller));
	MOVED(f.node, 0, 1, 1);
	RESET();
	expect(1, ws_read(ws, f.node, b, 1, 0)); /* atime is not after mtime */
	MOVED(f.node, 1, 0, 0);
	RESET();
	expect(0, ws_setattr(ws, f.node, WS_SET_SIZE, &(struct attr){ .size = 1 }, &root_caller,
			     NULL));
	MOVED(f.node, 0, 1, 1);
	RESET();
	expect(0, ws_setattr(ws, f.node, WS_SET_MODE, &(struct attr){ .mode = 0600 }, &root_caller,
			     NULL));
	MOVED(f.node, 0, 0, 1);
	RESET();
	expect(0, ws_setxattr(ws, f.node, "user.x", "1", 1, 0, &root_caller));
	MOVED(f.node, 0, 0, 1);
	RESET();
	expect(0, ws_removexattr(ws, f.node, "user.x", &root_caller));
	MOVED(f.node, 0, 0, 1);
	RESET();
	expect(0, ws_link(ws, f.node, d.node, "g", 1, &root_caller, &e));
	MOVED(f.node, 0, 0, 1);
	MOVED(d.node, 0, 1, 1);
	RESET();
	expect(0, ws_rename(ws, d.node, "g", 1, d.node, "h", 1, 0, &root_caller));
	MOVED(f.node, 0, 0, 1);
	MOVED(d.node, 0, 1, 1);
	RESET();
	expect(0, ws_unlink(ws, d.node, "h", 1, &root_caller));
	MOVED(f.node, 0, 0, 1);
	MOVED(d.node, 0, 1, 1);
	RESET();
	expect(0, ws_setattr(ws, f.node, WS_SET_ATIME_NOW, &old, &root_caller, NULL));
	MOVED(f.node, 1, 0, 1);
	RESET();
	expect(-ENODATA, ws_getxattr(ws, f.node, "user.x", NULL, 0));
	MOVED(f.node, 0, 0, 0);
#undef RESET
#undef MOVED
}

static void test_relatime(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	time_t now = time(NULL);
	const time_t day = 24 * 60 * 60;
	struct entry e = kit_make(ws, 1, "f", S_IFREG | 0644);
	char b[4];
	static const struct {
		time_t atime, mtime, ctime; /* seconds before now */
		bool moves;
	} cases[] = {
		{ 100, 50, 200, true },
		{ 100, 200, 50, true },
		{ 100, 100, 200, true },
		{ 50, 100, 100, false },
		{ 2 * 86400, 3 * 86400, 3 * 86400, true },
		{ 86000, 3 * 86400, 3 * 86400, false },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct attr in = { .atime = { now - cases[i].atime, 0 },
				   .mtime = { now - cases[i].mtime, 0 },
				   .ctime = { now - cases[i].ctime, 0 } },
			    out;
		(void)day;
		expect(0, ws_setattr(ws, e.node, WS_SET_ATIME | WS_SET_MTIME | WS_SET_CTIME, &in,
				     &root_caller, NULL));
		uint64_t records = layer_records(active(ws));
		expect(0, ws_read(ws, e.node, b, sizeof(b), 0));
		expect(0, ws_getattr(ws, e.node, &out));
		assert_int_equal(out.atime.tv_sec != in.atime.tv_sec, cases[i].moves);
		assert_int_equal(layer_records(active(ws)) != records, cases[i].moves);
	}
}

static void test_xattrs(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	struct entry f = kit_make(ws, 1, "f", S_IFREG | 0644), p = kit_make(ws, 1, "p", S_IFIFO);
	static char big[65537], list[70000];
	char name[300];
	memset(name, 'x', sizeof(name));
	memcpy(name, "user.", 5);
	name[256] = '\0';
	expect(-ERANGE, ws_setxattr(ws, f.node, name, "", 0, 0, &root_caller));
	name[255] = '\0';
	expect(0, ws_setxattr(ws, f.node, name, "", 0, 0, &root_caller));
	expect(-ERANGE, ws_setxattr(ws, f.node, "", "", 0, 0, &root_caller));
	expect(-EINVAL, ws_setxattr(ws, f.node, "user.", "", 0, 0, &root_caller));
	expect(-EINVAL, ws_setxattr(ws, f.node, "user.a", "", 0, 8, &root_caller));
	expect(-EOPNOTSUPP,
	       ws_setxattr(ws, f.node, "system.posix_acl_access", "", 0, 0, &root_caller));
	expect(-EOPNOTSUPP, ws_setxattr(ws, f.node, "usr.x", "", 0, 0, &root_caller));
	expect(-EPERM, ws_setxattr(ws, p.node, "user.x", "", 0, 0, &root_caller));
	expect(-ENODATA, ws_getxattr(ws, p.node, "user.x", NULL, 0));
	expect(0, ws_setxattr(ws, p.node, "trusted.x", "1", 1, 0, &root_caller));
	expect(-E2BIG, ws_setxattr(ws, f.node, "user.big", big, 65537, 0, &root_caller));
	expect(0, ws_setxattr(ws, f.node, "user.big", big, 65536, XATTR_CREATE, &root_caller));
	expect(-EEXIST, ws_setxattr(ws, f.node, "user.big", "", 0, XATTR_CREATE, &root_caller));
	expect(-ENODATA, ws_setxattr(ws, f.node, "user.no", "", 0, XATTR_REPLACE, &root_caller));
	expect(-ERANGE, ws_getxattr(ws, f.node, "user.big", list, 10));
	expect(65536, ws_getxattr(ws, f.node, "user.big", NULL, 0));
	expect(65536, ws_getxattr(ws, f.node, "user.big", list, sizeof(list)));
	expect(265, ws_listxattr(ws, f.node, NULL, 0));
	expect(-ERANGE, ws_listxattr(ws, f.node, list, 264));
	expect(265, ws_listxattr(ws, f.node, list, 265));
	kit_check_usage(ws);
	/* More names than a list may have. */
	unsigned n = 0;
	int r = 0;
	for (; r == 0 && n < 2000; n++) {
		(void)snprintf(name, 256, "user.%0249u", n);
		r = ws_setxattr(ws, f.node, name, "v", 1, 0, &root_caller);
	}
	assert_int_equal(r, -ENOSPC);
	assert_in_range(ws_listxattr(ws, f.node, list, sizeof(list)), 65000, 65536);
	/* Hidden by the child alone. */
	struct ws *c = kit_fork(ws, "c");
	expect(0, ws_removexattr(c, f.node, "user.big", &root_caller));
	expect(-ENODATA, ws_getxattr(c, f.node, "user.big", NULL, 0));
	expect(-ENODATA, ws_removexattr(c, f.node, "user.big", &root_caller));
	expect(65536, ws_getxattr(ws, f.node, "user.big", NULL, 0));
	kit_check_usage(c);
	ws_close(c);
}

struct many {
	uint64_t last, nodes[64];
	unsigned n, room;
	char seen[20000];
};

static bool count_name(void *ctx, const struct dirent_ref *d, const struct attr *a)
{
	struct many *m = ctx;
	char name[16] = "";
	if (m->room-- == 0)
		return false;
	assert_true(d->cookie > m->last);
	memcpy(name, d->name, d->name_len);
	m->seen[strtoul(name, NULL, 10)]++;
	m->last = d->cookie;
	m->n++;
	return true;
}

/* Stateless, and right while names come and go. */
static void test_readdir(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	enum { N = 3000 };
	char name[16];
	struct many *m = calloc(1, sizeof(*m));
	for (unsigned i = 0; i < N; i++) {
		(void)snprintf(name, sizeof(name), "%u", i);
		tree_mk(ws, name, S_IFREG);
	}
	struct ws *c = kit_fork(ws, "c");
	for (unsigned round = 0;; round++) {
		unsigned before = m->n;
		m->room = 97;
		expect(0, ws_readdir(c, 1, m->last, WS_NAMES, count_name, m));
		if (m->n == before)
			break;
		/* Others come and go behind and before; the rest is seen once. */
		(void)snprintf(name, sizeof(name), "%u", N + round);
		tree_mk(c, name, S_IFREG);
		(void)snprintf(name, sizeof(name), "%u", round * 2);
		tree_rm(c, name);
	}
	for (unsigned i = 0; i < N; i++)
		assert_true(m->seen[i] == 1 || (i % 2 == 0 && i < 80 && m->seen[i] == 0));
	ws_close(c);
	free(m);
}

static bool hold_entry(void *ctx, const struct dirent_ref *d, const struct attr *a)
{
	struct many *m = ctx;
	assert_non_null(a);
	if (m->room-- == 0)
		return false;
	m->nodes[m->n++] = node_of(a);
	return true;
}

static void test_readdir_references(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	struct many *m = calloc(1, sizeof(*m));
	struct attr a;
	tree_put(ws, "a", "1");
	tree_put(ws, "b", "2");
	m->room = 1;
	expect(0, ws_readdir(ws, 1, 0, WS_PLUS, hold_entry, m));
	expect(1, m->n);
	tree_rm(ws, "a");
	tree_rm(ws, "b");
	expect(0, ws_getattr(ws, m->nodes[0], &a)); /* held by the entry; the other is gone */
	expect(1, ws->orphans.count);
	ws_forget(ws, m->nodes[0], 1);
	expect(-ESTALE, ws_getattr(ws, m->nodes[0], &a));
	free(m);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, kit_setup, kit_teardown)
	const struct CMUnitTest tests[] = {
		T(test_names),           T(test_symlinks), T(test_link_limit),
		T(test_directory_links), T(test_whiteout), T(test_orphans),
		T(test_leftovers),       T(test_tmpfile),  T(test_setgid),
		T(test_kill_priv),       T(test_times),    T(test_relatime),
		T(test_xattrs),          T(test_readdir),  T(test_readdir_references),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
