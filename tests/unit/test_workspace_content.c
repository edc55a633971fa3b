/* Contents and quotas of workspaces: what the model test can't compare with the host. */
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/xattr.h>

#include "fs/base/io_fault.h"
#include "ws_kit.h"

static struct err err;

static void limit(struct ws *ws, uint64_t bytes, uint64_t inodes)
{
	struct ws_limits l = { .bytes = bytes, .inodes = inodes };
	succeed(err, ws_set_limits(ws, &l, &err));
}

static void test_sizes(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	const uint64_t max = WS_FILE_SIZE_MAX;
	struct entry e = kit_make(ws, 1, "f", S_IFREG | 0644), d = kit_make(ws, 1, "d", S_IFDIR);
	struct entry o = kit_make(ws, 1, "o", S_IFREG | 0644);
	struct attr in = { .size = max }, out;
	char b[8] = "";
	uint64_t at;
	/* A host's own limit (16 TiB on ext4) comes before ours. */
	const uint64_t far = UINT64_C(1) << 43;
	expect(0, ws_write(ws, e.node, "x", 1, far - 1, false, &root_caller));
	expect(-EFBIG, ws_write(ws, e.node, "x", 1, max, false, &root_caller));
	expect(-EFBIG, ws_write(ws, e.node, "xy", 2, UINT64_MAX - 1, false, &root_caller));
	expect(0, ws_getattr(ws, e.node, &out));
	assert_int_equal(out.size, far);
	assert_in_range(out.blocks, 1, 8);
	expect(1, ws_read(ws, e.node, b, 8, far - 1));
	assert_int_equal(b[0], 'x');
	expect(0, ws_read(ws, e.node, b, 8, far));
	expect(0, ws_read(ws, e.node, b, 8, UINT64_MAX));
	expect(0, ws_seek(ws, e.node, 0, SEEK_DATA, &at));
	assert_int_equal(at, far - LAYER_BLOCK);
	expect(0, ws_setattr(ws, o.node, WS_SET_SIZE, &in, &root_caller, NULL));
	in.size++;
	expect(-EFBIG, ws_setattr(ws, o.node, WS_SET_SIZE, &in, &root_caller, NULL));
	expect(-ENXIO, ws_seek(ws, o.node, 0, SEEK_DATA, &at));
	expect(0, ws_seek(ws, o.node, 5, SEEK_HOLE, &at));
	assert_int_equal(at, 5);
	expect(-EINVAL, ws_seek(ws, o.node, 5, SEEK_SET, &at));
	expect(-EFBIG, ws_fallocate(ws, o.node, 0, max, 1, &root_caller));
	/* More than any disk has is refused at once: it isn't taken, to be given back for ever. */
	for (uint64_t len = UINT64_C(1) << 62; len >= UINT64_C(1) << 56; len >>= 1) {
		expect(-ENOSPC, ws_fallocate(ws, o.node, 0, 0, len, &root_caller));
		expect(-ENOSPC, ws_fallocate(ws, o.node, FALLOC_FL_KEEP_SIZE, 1 << 20, len,
					     &root_caller));
		expect(0, ws_fsync(ws, 1));
	}
	expect(-EINVAL, ws_fallocate(ws, o.node, 0, 0, 0, &root_caller));
	expect(-EOPNOTSUPP,
	       ws_fallocate(ws, o.node, FALLOC_FL_COLLAPSE_RANGE, 0, 4096, &root_caller));
	expect(-EOPNOTSUPP, ws_fallocate(ws, o.node, FALLOC_FL_PUNCH_HOLE, 0, 1, &root_caller));
	expect(-EFBIG, ws_copy_range(ws, e.node, far - 1, o.node, max, 1, &root_caller));
	expect(-EISDIR, ws_write(ws, d.node, "x", 1, 0, false, &root_caller));
	expect(-EISDIR, ws_read(ws, d.node, b, 1, 0));
	kit_check_usage(ws);
}

/* The first byte changed in a large file of a fork costs one block. */
static void test_one_block(void **state)
{
	struct kit *k = *state;
	struct entry e = kit_make(k->ws, 1, "big", S_IFREG | 0644);
	char *mib = malloc(1 << 20), got[16];
	memset(mib, 'm', 1 << 20);
	for (uint64_t off = 0; off < 64 << 20; off += 1 << 20)
		expect(0, ws_write(k->ws, e.node, mib, 1 << 20, off, false, &root_caller));
	struct ws *c = kit_fork(k->ws, "c");
	expect(0, ws_write(c, e.node, "X", 1, 33 << 20, false, &root_caller));
	assert_int_equal(c->quota.bytes, LAYER_BLOCK);
	assert_in_range(layer_data_bytes(active(c)), LAYER_BLOCK, 64 * 1024);
	expect(3, ws_read(c, e.node, got, 3, (33 << 20) - 1));
	assert_memory_equal(got, "mXm", 3);
	expect(3, ws_read(k->ws, e.node, got, 3, (33 << 20) - 1));
	assert_memory_equal(got, "mmm", 3);
	kit_check_usage(c);
	ws_close(c);
	free(mib);
}

/* copy_file_range takes no space, whatever is written afterwards stays apart. */
static void test_reflink(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	struct entry a = kit_make(ws, 1, "a", S_IFREG | 0644),
		     b = kit_make(ws, 1, "b", S_IFREG | 0644);
	enum { N = 3 << 20 };
	char *x = malloc(N), *y = malloc(N);
	for (unsigned i = 0; i < N; i++)
		x[i] = (char)(i / 1000 + i);
	expect(0, ws_write(ws, a.node, x, N, 0, false, &root_caller));
	uint64_t used = layer_data_bytes(active(ws)), records = layer_records(active(ws));
	expect(N, ws_copy_range(ws, a.node, 0, b.node, 0, N, &root_caller));
	assert_int_equal(layer_data_bytes(active(ws)), used);
	assert_in_range(layer_records(active(ws)) - records, 1, 20);
	assert_int_equal(ws->quota.bytes, 2 * N); /* charged as if it were copied */
	expect(0, ws_write(ws, a.node, "changed", 7, 5000, false, &root_caller));
	expect(N, ws_read(ws, b.node, y, N, 0));
	assert_memory_equal(x, y, N);
	expect(0, ws_write(ws, b.node, "other", 5, 100, false, &root_caller));
	expect(N, ws_read(ws, a.node, y, N, 0));
	memcpy(x + 5000, "changed", 7);
	assert_memory_equal(x, y, N);
	/* What was shared lives as long as one of both. */
	tree_rm(ws, "a");
	expect(0, ws_fsync(ws, 1));
	ws_forget(ws, a.node, 1);
	expect(0, ws_fsync(ws, 1));
	expect(7, ws_read(ws, b.node, y, 7, 5000));
	assert_int_equal(y[0], (char)(5000 / 1000 + 5000));
	kit_check_usage(ws);
	expect(-EINVAL, ws_copy_range(ws, b.node, 0, b.node, 10, 100, &root_caller));
	free(x);
	free(y);
}

/* Where bytes are copied, much takes several calls, between which a fork comes in. */
static void test_copy_in_parts(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	struct entry a = kit_make(ws, 1, "a", S_IFREG | 0644),
		     b = kit_make(ws, 1, "b", S_IFREG | 0644);
	const struct attr size = { .size = (40 << 20) + 1 };
	struct attr out;
	char x[3];
	expect(0, ws_setattr(ws, a.node, WS_SET_SIZE, &size, &root_caller, &out));
	expect(0, ws_write(ws, a.node, "end", 3, 40 << 20, false, &root_caller));
	expect(32 << 20, ws_copy_range(ws, a.node, 1, b.node, 0, INT32_MAX, &root_caller));
	expect((8 << 20) + 2, ws_copy_range(ws, a.node, (32 << 20) + 1, b.node, 32 << 20,
					    INT32_MAX, &root_caller));
	expect(3, ws_read(ws, b.node, x, 3, (40 << 20) - 1));
	assert_memory_equal(x, "end", 3);
	/* In one piece where it is shared. */
	expect((40 << 20) + 3, ws_copy_range(ws, a.node, 0, b.node, 0, INT32_MAX, &root_caller));
	kit_check_usage(ws);
}

/* A shared last block that grows shows zeros, not what the other file has there. */
static void test_shared_tail(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	struct entry a = kit_make(ws, 1, "a", S_IFREG | 0644),
		     b = kit_make(ws, 1, "b", S_IFREG | 0644);
	char x[LAYER_BLOCK], y[LAYER_BLOCK];
	memset(x, 'x', sizeof(x));
	expect(0, ws_write(ws, a.node, x, sizeof(x), 0, false, &root_caller));
	expect(0, ws_setattr(ws, a.node, WS_SET_SIZE, &(struct attr){ .size = 100 }, &root_caller,
			     NULL));
	expect(100, ws_copy_range(ws, a.node, 0, b.node, 0, 5000, &root_caller));
	expect(0, ws_setattr(ws, b.node, WS_SET_SIZE, &(struct attr){ .size = sizeof(y) },
			     &root_caller, NULL));
	expect(sizeof(y), ws_read(ws, b.node, y, sizeof(y), 0));
	memset(x + 100, 0, sizeof(x) - 100);
	assert_memory_equal(x, y, sizeof(x));
	expect(0, ws_write(ws, a.node, "end", 3, 4000, false, &root_caller));
	expect(4003, ws_read(ws, a.node, y, sizeof(y), 0));
	memcpy(x + 4000, "end", 3);
	assert_memory_equal(x, y, 4003);
	kit_check_usage(ws);
}

/* ---- quota ---- */

static void test_quota_byte(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	struct entry e = kit_make(ws, 1, "f", S_IFREG | 0644),
		     g = kit_make(ws, 1, "g", S_IFREG | 0644);
	char *x = calloc(1, 20000), y[4];
	limit(ws, 10000, 0);
	expect(-EDQUOT, ws_write(ws, e.node, x, 10001, 0, false, &root_caller));
	assert_int_equal(kit_attr(ws, "f").size, 0);
	expect(0, ws_write(ws, e.node, x, 9999, 0, false, &root_caller));
	expect(0, ws_write(ws, e.node, "l", 1, 9999, false, &root_caller));
	expect(-EDQUOT, ws_write(ws, e.node, "m", 1, 10000, false, &root_caller));
	expect(-EDQUOT, ws_write(ws, g.node, "m", 1, 0, false, &root_caller));
	expect(-EDQUOT, ws_setxattr(ws, g.node, "user.a", "1", 1, 0, &root_caller));
	expect(-EDQUOT, ws_fallocate(ws, g.node, FALLOC_FL_KEEP_SIZE, 0, 1, &root_caller));
	expect(-EDQUOT, ws_copy_range(ws, e.node, 0, g.node, 0, 4096, &root_caller));
	expect(0, ws_write(ws, e.node, "over", 4, 5000, false, &root_caller)); /* its own already */
	assert_int_equal(kit_attr(ws, "f").size, 10000);
	assert_int_equal(ws->quota.bytes, 10000);
	expect(0, ws_setattr(ws, g.node, WS_SET_SIZE, &(struct attr){ .size = 1 << 30 },
			     &root_caller, NULL)); /* a hole is free */
	struct ws_statfs st;
	expect(0, ws_statfs(ws, &st));
	assert_int_equal(st.blocks, 2);
	assert_int_equal(st.blocks_free, 0);
	/* Space comes back by all that takes away. */
	expect(0, ws_fallocate(ws, e.node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096,
			       &root_caller));
	assert_int_equal(ws->quota.bytes, 10000 - 4096);
	expect(0, ws_setattr(ws, e.node, WS_SET_SIZE, &(struct attr){ .size = 8192 }, &root_caller,
			     NULL));
	assert_int_equal(ws->quota.bytes, 4096);
	expect(4, ws_read(ws, e.node, y, 4, 5000));
	assert_memory_equal(y, "over", 4);
	tree_rm(ws, "f");
	assert_int_equal(ws->quota.bytes, 4096); /* held */
	ws_forget(ws, e.node, 1);
	assert_int_equal(ws->quota.bytes, 0);
	expect(0, ws_setxattr(ws, g.node, "user.a", x, 9994, 0, &root_caller));
	expect(-EDQUOT, ws_setxattr(ws, g.node, "user.a", x, 9995, 0, &root_caller));
	expect(0, ws_removexattr(ws, g.node, "user.a", &root_caller));
	assert_int_equal(ws->quota.bytes, 0);
	kit_check_usage(ws);
	free(x);
}

static void test_quota_inodes(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	struct entry e;
	limit(ws, 0, 4);
	tree_mk(ws, "a", S_IFREG);
	tree_mk(ws, "b", S_IFDIR | 0755);
	expect(0, ws_symlink(ws, 1, "c", 1, "x", &root_caller, &e));
	expect(0, ws_tmpfile(ws, 1, 0600, &root_caller, &e));
	expect(-EDQUOT, ws_mknod(ws, 1, "d", 1, S_IFREG, 0, &root_caller, &e));
	expect(-EDQUOT, ws_mknod(ws, 1, "d", 1, S_IFDIR, 0, &root_caller, &e));
	expect(-EDQUOT, ws_symlink(ws, 1, "d", 1, "x", &root_caller, &e));
	expect(-EDQUOT, ws_rename(ws, 1, "a", 1, 1, "z", 1, RENAME_WHITEOUT, &root_caller));
	expect(0, ws_rename(ws, 1, "a", 1, 1, "z", 1, 0, &root_caller));
	expect(0, ws_link(ws, tree_node(ws, "z"), 1, "l", 1, &root_caller, &e)); /* no inode */
	struct ws_statfs st;
	expect(0, ws_statfs(ws, &st));
	assert_int_equal(st.files, 4);
	assert_int_equal(st.files_free, 0);
	tree_rm(ws, "b");
	tree_mk(ws, "d", S_IFREG);
	kit_check_usage(ws);
}

/* What a workspace was made from is free; what it changes is its own, once. */
/* A fork by a server that has given out no inode number yet. */
static void test_quota_fork_first(void **state)
{
	struct kit *k = *state;
	struct work_options o = { .commit_ms = UINT64_MAX };
	tree_put(k->ws, "f", "12345");
	ws_close(k->ws);
	work_close(k->root.work);
	succeed(err, work_open(&k->root.work, k->root.dir, &o, &err));
	work_view_options(k->root.work, &k->root.opt);
	succeed(err, ws_open(&k->ws, k->root.work, "w", &err));
	struct ws *c = kit_fork(k->ws, "c");
	kit_check_usage(c);
	tree_rm(c, "f"); /* the parent's, which was never charged */
	assert_int_equal(c->quota.inodes, 0);
	tree_put(c, "g", "its own");
	assert_int_equal(c->quota.inodes, 1);
	kit_check_usage(c);
	ws_close(c);
}

static void test_quota_fork(void **state)
{
	struct kit *k = *state;
	char *x = calloc(1, 100000);
	tree_write(k->ws, "f", x, 100000, 0);
	tree_put(k->ws, "g", "12345");
	struct ws_limits l = { .bytes = 8192, .inodes = 2 };
	const char *id = "c";
	struct ws *c;
	succeed(err, ws_fork(k->ws, &id, 1, &l, &c, NULL, &err));
	assert_int_equal(k->ws->quota.bytes, 100005);
	assert_int_equal(c->quota.bytes, 0);
	assert_int_equal(c->quota.inodes, 0);
	uint64_t f = tree_node(c, "f");
	expect(0, ws_write(c, f, "x", 1, 50000, false, &root_caller));
	assert_int_equal(c->quota.bytes, 4096);
	expect(0, ws_write(c, f, "yz", 2, 50001, false, &root_caller));
	assert_int_equal(c->quota.bytes, 4096);
	expect(-EDQUOT, ws_write(c, f, x, 4097, 8192, false, &root_caller));
	expect(0, ws_write(c, f, x, 4096, 8192, false, &root_caller));
	expect(-EDQUOT, ws_write(c, tree_node(c, "g"), "1", 1, 0, false, &root_caller));
	tree_rm(c, "f");
	assert_int_equal(c->quota.bytes, 0);
	tree_put(c, "g", "6");
	assert_int_equal(c->quota.bytes, 5); /* its block is copied, up to the end */
	/* The parent goes on in its new layer: its own stays its own. */
	expect(0, ws_write(k->ws, tree_node(k->ws, "f"), "x", 1, 0, false, &root_caller));
	assert_int_equal(k->ws->quota.bytes, 100005);
	tree_truncate(k->ws, "f", 10);
	assert_int_equal(k->ws->quota.bytes, 15);
	kit_check_usage(k->ws);
	kit_check_usage(c);
	/* And after a restart. */
	kit_reopen(k);
	assert_int_equal(k->ws->quota.bytes, 15);
	assert_int_equal(k->ws->quota.inodes, 2);
	ws_close(c);
	succeed(err, ws_open(&c, k->root.work, "c", &err));
	assert_int_equal(c->quota.bytes, 5);
	assert_int_equal(c->quota.limits.bytes, 8192);
	assert_int_equal(c->quota.limits.inodes, 2);
	ws_close(c);
	free(x);
}

static void test_quota_preallocated(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	struct entry e = kit_make(ws, 1, "f", S_IFREG | 0644);
	char x[9000] = "", y[9000];
	limit(ws, 16384, 0);
	expect(0, ws_fallocate(ws, e.node, FALLOC_FL_KEEP_SIZE, 0, 16384, &root_caller));
	assert_int_equal(ws->quota.bytes, 16384);
	assert_int_equal(kit_attr(ws, "f").size, 0);
	expect(-EDQUOT, ws_fallocate(ws, e.node, FALLOC_FL_KEEP_SIZE, 16384, 1, &root_caller));
	memset(x, 'x', sizeof(x));
	expect(0, ws_write(ws, e.node, x, 9000, 0, false, &root_caller));
	assert_int_equal(ws->quota.bytes, 9000 + 4096);
	kit_check_usage(ws);
	/* Growing over what was allocated shows zeros. */
	expect(0, ws_setattr(ws, e.node, WS_SET_SIZE, &(struct attr){ .size = 18000 }, &root_caller,
			     NULL));
	expect(9000, ws_read(ws, e.node, y, 9000, 9000));
	for (unsigned i = 0; i < 9000; i++)
		assert_int_equal(y[i], 0);
	kit_check_usage(ws);
	expect(0, ws_setattr(ws, e.node, WS_SET_SIZE, &(struct attr){ .size = 0 }, &root_caller,
			     NULL));
	assert_int_equal(ws->quota.bytes, 0);
	expect(0, ws_fallocate(ws, e.node, 0, 100, 8092, &root_caller));
	assert_int_equal(kit_attr(ws, "f").size, 8192);
	assert_int_equal(ws->quota.bytes, 8192);
	kit_check_usage(ws);
}

/* Two writers at the limit: one gets the last byte. */
struct racer {
	struct ws *ws;
	uint64_t node;
	unsigned done;
};

static void *race(void *arg)
{
	struct racer *r = arg;
	char x[100] = "";
	for (unsigned i = 0; i < 2000; i++)
		r->done += ws_write(r->ws, r->node, x, sizeof(x), i * 100, false, &root_caller) ==
			   0;
	return NULL;
}

static void test_quota_race(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	struct racer r[4];
	pthread_t t[4];
	limit(ws, 250000, 0);
	for (unsigned i = 0; i < 4; i++) {
		char name[2] = { (char)('a' + i), 0 };
		r[i] = (struct racer){ ws, kit_make(ws, 1, name, S_IFREG | 0644).node, 0 };
	}
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, race, &r[i]), 0);
	unsigned done = 0;
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(t[i], NULL);
		done += r[i].done;
	}
	assert_in_range(ws->quota.bytes, done * 100, 250000);
	assert_in_range(done, 1, 8000);
	kit_check_usage(ws);
}

/* ---- the disk ---- */

/* A workspace on a disk of its own that can fail. */
struct failing {
	struct io_fault *f;
	struct work *work;
	struct ws *ws;
	char dir[64];
};

static void failing_open(struct failing *x)
{
	(void)snprintf(x->dir, sizeof(x->dir), "/tmp/bough-test.XXXXXX");
	assert_non_null(mkdtemp(x->dir));
	x->f = io_fault_new(NULL);
	struct work_options o = { .io = io_fault_io(x->f), .commit_ms = UINT64_MAX };
	succeed(err, work_open(&x->work, x->dir, &o, &err));
	succeed(err, ws_create(&x->ws, x->work, "w", NULL, NULL, 0, 0, &err));
}

static void failing_close(struct failing *x)
{
	io_fault_plan(x->f, NULL);
	ws_close(x->ws);
	work_close(x->work);
	io_fault_free(x->f);
	succeed(err, io_remove_tree(AT_FDCWD, x->dir, &err));
}

/* A small disk of this process's own. False where the machine doesn't allow it. */
static bool small_disk(char dir[64], const char *size)
{
	char opt[32];
	(void)snprintf(dir, 64, "/tmp/bough-test.XXXXXX");
	assert_non_null(mkdtemp(dir));
	(void)snprintf(opt, sizeof(opt), "size=%s", size);
	int flags = geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER;
	return unshare(flags) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("none", dir, "tmpfs", 0, opt) == 0;
}

/* A full disk: -ENOSPC, nothing half done, taking away works, and then there is space. */
static void test_full_disk(void **state)
{
	struct failing x = { .f = NULL };
	if (!small_disk(x.dir, "12m")) {
		(void)rmdir(x.dir);
		print_message("skip: needs root or user namespaces\n");
		skip();
	}
	struct work_options o = { .commit_ms = UINT64_MAX };
	succeed(err, work_open(&x.work, x.dir, &o, &err));
	succeed(err, ws_create(&x.ws, x.work, "w", NULL, NULL, 0, 0, &err));
	struct entry e = kit_make(x.ws, 1, "f", S_IFREG | 0644), n;
	char *b = malloc(65536), name[16];
	memset(b, 'b', 65536);
	tree_put(x.ws, "g", "before");
	tree_mk(x.ws, "d", S_IFDIR | 0755);
	int r = 0;
	uint64_t size = 0;
	for (; r == 0 && size < 100 << 20; size += 65536)
		r = ws_write(x.ws, e.node, b, 65536, size, false, &root_caller);
	expect(-ENOSPC, r);
	size -= 65536;
	assert_int_equal(kit_attr(x.ws, "f").size, size);
	kit_check_usage(x.ws);
	/* Names go into the journal, until that is full too; its reserve is not for them. */
	unsigned made = 0;
	for (r = 0; r == 0 && made < 200000; made++) {
		int len = snprintf(name, sizeof(name), "n%u", made);
		r = ws_mknod(x.ws, 1, name, (size_t)len, S_IFREG, 0, &root_caller, &n);
	}
	expect(-ENOSPC, r);
	expect(-ENOENT, ws_lookup(x.ws, 1, name, strlen(name), &n));
	const char *id = "c";
	struct ws *c;
	expect(-ENOSPC, ws_fork(x.ws, &id, 1, NULL, &c, NULL, &err));
	kit_expect_text(x.ws, "g", "before");
	for (unsigned i = 0; i < 2; i++)
		tree_rm(x.ws, i ? "d" : "g");
	for (unsigned i = 0; i + 1 < made; i++) {
		(void)snprintf(name, sizeof(name), "n%u", i);
		tree_rm(x.ws, name);
	}
	tree_rm(x.ws, "f");
	ws_forget(x.ws, e.node, 1);
	ws_forget_all(x.ws);
	assert_int_equal(x.ws->quota.bytes, 0);
	assert_int_equal(x.ws->quota.inodes, 0);
	kit_check_usage(x.ws);
	expect(0, ws_fsync(x.ws, 1));
	tree_put(x.ws, "g", "after");
	kit_expect_text(x.ws, "g", "after");
	kit_check_usage(x.ws);
	free(b);
	ws_close(x.ws);
	work_close(x.work);
	assert_int_equal(umount(x.dir), 0);
	(void)rmdir(x.dir);
}

/* Each operation with the n-th disk call failing, for every n: it says so and nothing of it is to
 * be seen, or it coped and all is. */
static void fail_each(void (*prepare)(struct ws *ws), int (*op)(struct ws *ws),
		      void (*check)(struct ws *ws, bool done))
{
	for (uint64_t n = 1;; n++) {
		struct failing x;
		failing_open(&x);
		prepare(x.ws);
		io_fault_plan(x.f, &(struct io_fault_plan){ .ops = IO_OPS_CHANGE & ~IO_OPS_SYNC,
							    .nth = n,
							    .error = -ENOSPC });
		int r = op(x.ws);
		bool failed = io_fault_hits(x.f) > 0;
		io_fault_plan(x.f, NULL);
		if (r < 0 && r != -ENOSPC)
			fail_msg("call %d: %s", (int)n, strerror(-r));
		check(x.ws, r >= 0);
		kit_check_usage(x.ws);
		failing_close(&x);
		if (!failed)
			break;
		assert_true(n < 50);
	}
}

static void prepare_some(struct ws *ws)
{
	char x[20000];
	memset(x, 'o', sizeof(x));
	tree_write(ws, "f", x, sizeof(x), 0);
	tree_write(ws, "g", x, 5000, 0);
	tree_mk(ws, "d", S_IFDIR | 0755);
	struct err e = { 0 };
	auto_stack s = { 0 };
	succeed(e, ws_seal(ws, &s, &e)); /* so that all that follows is copied up */
}

static int write_some(struct ws *ws)
{
	char x[10000];
	memset(x, 'n', sizeof(x));
	return ws_write(ws, tree_node(ws, "f"), x, sizeof(x), 5000, false, &root_caller);
}

static void check_written(struct ws *ws, bool done)
{
	char *x = kit_read(ws, "f", NULL);
	for (unsigned i = 0; i < 20000; i++)
		assert_int_equal(x[i], done && i >= 5000 && i < 15000 ? 'n' : 'o');
	free(x);
}

static int rename_some(struct ws *ws)
{
	return ws_rename(ws, 1, "f", 1, tree_node(ws, "d"), "moved", 5, 0, &root_caller);
}

static void check_renamed(struct ws *ws, bool done)
{
	struct entry e;
	expect(done ? -ENOENT : 0, ws_lookup(ws, 1, "f", 1, &e));
	expect(done ? 0 : -ENOENT, ws_lookup(ws, tree_node(ws, "d"), "moved", 5, &e));
}

static int copy_some(struct ws *ws)
{
	ssize_t n = ws_copy_range(ws, tree_node(ws, "f"), 0, tree_node(ws, "g"), 8192, 12288,
				  &root_caller);
	return n < 0 ? (int)n : n == 12288 ? 0 : -EIO;
}

static void check_copied(struct ws *ws, bool done)
{
	size_t size;
	char *x = kit_read(ws, "g", &size);
	assert_int_equal(size, done ? 8192 + 12288 : 5000);
	for (unsigned i = 0; i < size; i++)
		assert_int_equal(x[i], i < 5000 || i >= 8192 ? 'o' : 0);
	free(x);
}

static int punch_some(struct ws *ws)
{
	return ws_fallocate(ws, tree_node(ws, "f"), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100,
			    12000, &root_caller);
}

static void check_punched(struct ws *ws, bool done)
{
	char *x = kit_read(ws, "f", NULL);
	for (unsigned i = 0; i < 20000; i++)
		assert_int_equal(x[i], done && i >= 100 && i < 12100 ? 0 : 'o');
	free(x);
}

static void test_failing_disk(void **state)
{
	fail_each(prepare_some, write_some, check_written);
	fail_each(prepare_some, rename_some, check_renamed);
	fail_each(prepare_some, copy_some, check_copied);
	fail_each(prepare_some, punch_some, check_punched);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, kit_setup, kit_teardown)
	const struct CMUnitTest tests[] = {
		T(test_sizes),
		T(test_one_block),
		T(test_reflink),
		T(test_copy_in_parts),
		T(test_shared_tail),
		T(test_quota_byte),
		T(test_quota_inodes),
		T(test_quota_fork),
		T(test_quota_fork_first),
		T(test_quota_preallocated),
		T(test_quota_race),
		cmocka_unit_test(test_full_disk),
		cmocka_unit_test(test_failing_disk),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
