/* Whole workspaces: create, fork, seal, replace, delete, sweep, restarts, lost power. */
#include <dirent.h>
#include "fs/base/io_fault.h"
#include "ws_kit.h"

static struct err err;

static bool exists(struct kit *k, const char *sub)
{
	char path[200];
	struct stat st;
	(void)snprintf(path, sizeof(path), "%s/%s", k->root.dir, sub);
	return lstat(path, &st) == 0;
}

static void layer_path(struct kit *k, const struct layer_id *id, char out[200])
{
	char hex[2 * LAYER_ID_BYTES + 1];
	hex_encode(hex, id->b, sizeof(id->b));
	(void)snprintf(out, 200, "%s/layers/%s", k->root.dir, hex);
}

static void test_create(void **state)
{
	struct kit *k = *state;
	struct ws *ws;
	struct attr a = kit_attr(k->ws, "");
	assert_int_equal(a.ino, 1);
	assert_int_equal(a.mode, S_IFDIR | 0755);
	assert_int_equal(a.nlink, 2);
	static const char *const bad[] = {
		"", "A", "a/b", "..", ".x", "a-b", "a23456789012345678901234567890123456789012"
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		expect(-EINVAL, ws_create(&ws, k->root.work, bad[i], NULL, NULL, 0, 0, &err));
	expect(-EEXIST, ws_create(&ws, k->root.work, "w", NULL, NULL, 0, 0, &err));
	expect(-EBUSY, ws_open(&ws, k->root.work, "w", &err));
	expect(-EBUSY, ws_delete(k->root.work, "w", &err));
	expect(-ENOENT, ws_open(&ws, k->root.work, "nobody", &err));
	expect(-ENOENT, ws_delete(k->root.work, "nobody", &err));
	/* A base that isn't there leaves nothing behind. */
	unsigned layers = kit_layers(k);
	auto_stack s = { .seed = 5 };
	struct layer_id id = { { 1, 2, 3 } };
	expect(0, stack_push(&s, &id, true, NULL, 0));
	expect(-ENOENT, ws_create(&ws, k->root.work, "x", &s, NULL, 0, 0, &err));
	assert_false(exists(k, "ws/x"));
	assert_int_equal(kit_layers(k), layers);
	succeed(err, ws_create(&ws, k->root.work, "x", NULL, NULL, 3, 4, &err));
	a = kit_attr(ws, "");
	assert_int_equal(a.uid, 3);
	assert_int_equal(a.gid, 4);
	ws_close(ws);
	expect(-EEXIST, ws_create(&ws, k->root.work, "x", NULL, NULL, 3, 4, &err));
	succeed(err, ws_delete(k->root.work, "x", &err));
	assert_int_equal(kit_layers(k), layers);
	struct work *other;
	expect(-EBUSY, work_open(&other, k->root.dir, NULL, &err));
}

static void test_fork(void **state)
{
	struct kit *k = *state;
	struct ws *c[3] = { NULL }, *d;
	uint64_t pause = 0;
	tree_put(k->ws, "f", "one");
	const char *ids[] = { "a", "b", "c" };
	succeed(err, ws_fork(k->ws, ids, 3, NULL, c, &pause, &err));
	assert_true(pause > 0);
	struct attr a = kit_attr(k->ws, "f"), b;
	for (unsigned i = 0; i < 3; i++) { /* the same inode in all, to the nanosecond */
		b = kit_attr(c[i], "f");
		assert_memory_equal(&a, &b, sizeof(a));
		tree_put(c[i], "f", i == 0 ? "ONE" : i == 1 ? "uno" : "ein");
	}
	kit_expect_text(k->ws, "f", "one");
	kit_expect_text(c[0], "f", "ONE");
	kit_expect_text(c[2], "f", "ein");
	/* New inodes never meet. */
	tree_put(k->ws, "n", "x");
	tree_put(c[0], "n", "x");
	assert_int_not_equal(kit_attr(k->ws, "n").ino, kit_attr(c[0], "n").ino);
	/* A fork of a fork; of an untouched one, no layer more. */
	d = kit_fork(c[0], "d");
	assert_int_equal(d->view.nlayers, 3);
	struct ws *e = kit_fork(d, "e");
	assert_int_equal(e->view.nlayers, 3);
	kit_expect_text(e, "f", "ONE");
	struct ws_usage u;
	ws_get_usage(e, &u, NULL);
	assert_int_equal(u.layers, 3);
	assert_int_equal(u.bytes, 0);
	assert_in_range(u.file_count, 1, 10);
	/* Refusals. */
	const char *twice[] = { "x", "x" }, *taken[] = { "y", "a" };
	struct ws *none[2];
	expect(-EINVAL, ws_fork(k->ws, twice, 2, NULL, none, NULL, &err));
	expect(-EEXIST, ws_fork(k->ws, taken, 2, NULL, none, NULL, &err));
	expect(-EINVAL, ws_fork(k->ws, twice, 0, NULL, none, NULL, &err));
	assert_false(exists(k, "ws/y"));
	for (unsigned i = 0; i < 3; i++)
		ws_close(c[i]);
	ws_close(d);
	ws_close(e);
	/* The parent goes; what the children stand on stays until the last of them. */
	ws_close(k->ws);
	succeed(err, ws_delete(k->root.work, "w", &err));
	succeed(err, ws_open(&k->ws, k->root.work, "e", &err));
	kit_expect_text(k->ws, "f", "ONE");
	for (unsigned i = 0; i < 3; i++)
		succeed(err, ws_delete(k->root.work, ids[i], &err));
	succeed(err, ws_delete(k->root.work, "d", &err));
	assert_int_equal(kit_layers(k), 3); /* two sealed ones and its own */
	kit_reopen(k);
	kit_expect_text(k->ws, "f", "ONE");
}

static void test_too_deep(void **state)
{
	struct kit *k = *state;
	int r = 0;
	unsigned n = 0;
	for (; r == 0 && n < 300; n++) {
		auto_stack s = { 0 };
		tree_put(k->ws, "f", "x");
		r = ws_seal(k->ws, &s, &err);
	}
	assert_int_equal(r, -E2BIG);
	assert_int_equal(n, STACK_LAYERS_MAX + 1);
	tree_put(k->ws, "g", "still works");
	kit_expect_text(k->ws, "g", "still works");
	assert_int_equal(kit_layers(k), STACK_LAYERS_MAX + 1);
}

static void test_small_children(void **state)
{
	struct kit *k = *state;
	struct ws_usage u;
	for (unsigned i = 0; i < 2000; i++) {
		char name[16];
		(void)snprintf(name, sizeof(name), "f%u", i);
		tree_mk(k->ws, name, S_IFREG | 0644);
	}
	struct ws *c = kit_fork(k->ws, "c");
	ws_get_usage(c, &u, NULL);
	size_t alone = sizeof(*c) + layer_memory(active(c));
	assert_in_range(alone, 1, 32 * 1024);
	ws_close(c);
}

static unsigned descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;
	assert_non_null(d);
	while (readdir(d))
		n++;
	(void)closedir(d);
	return n;
}

/* Layers of workspaces that are gone don't stay open until nobody is busy any more. */
static void test_nothing_stays_open(void **state)
{
	struct kit *k = *state;
	ws_close(kit_fork(k->ws, "a"));
	succeed(err, ws_delete(k->root.work, "a", &err));
	unsigned before = descriptors();
	struct ws *c = kit_fork(k->ws, "c");
	tree_mk(c, "g", S_IFREG | 0644);
	struct ws *d = kit_fork(c, "d"); /* c's layer is sealed, and theirs both */
	assert_true(descriptors() > before);
	ws_close(d);
	ws_close(c);
	succeed(err, ws_delete(k->root.work, "c", &err));
	succeed(err, ws_delete(k->root.work, "d", &err));
	assert_int_equal(descriptors(), before);
}

/* ---- lost servers and lost power ---- */

static void crash(struct ws *ws) /* what a kill leaves: nothing is synced, forgotten, published */
{
	ws_free(ws);
}

/* A fork that was killed between its steps: the file names the new layer, the old one has no
 * seal frame; or the old file counts and the layer is sealed. */
static void test_killed_fork(void **state)
{
	struct kit *k = *state;
	auto_stack s = { 0 };
	tree_put(k->ws, "f", "before");
	struct ws_file old = { 0 };
	expect(0, ws_file_copy(&old, &k->ws->file));
	struct layer_id first = k->ws->file.active;
	succeed(err, ws_seal(k->ws, &s, &err));
	/* As if the file had not been written: the sealed layer is its active one. */
	old.seq = k->ws->file.seq + 1;
	struct version v;
	succeed(err, version_open(&v, k->root.work, "w", old.seq, &err));
	succeed(err, version_write(&v, k->root.work, &old, &err));
	version_done(&v, k->root.work, k->ws->file.seq);
	expect(0, registry_name(k->root.work->registry, &old));
	registry_unname(k->root.work->registry, &k->ws->file);
	crash(k->ws);
	succeed(err, ws_open(&k->ws, k->root.work, "w", &err));
	assert_int_equal(k->ws->view.nlayers, 2);
	assert_memory_equal(&k->ws->file.stack.layers[0].id, &first, sizeof(first));
	kit_expect_text(k->ws, "f", "before");
	tree_put(k->ws, "f", "after!");
	kit_reopen(k);
	kit_expect_text(k->ws, "f", "after!");
	assert_int_equal(k->ws->view.nlayers, 2);
	kit_check_usage(k->ws);
	ws_file_done(&old);
}

/* What another workspace has as sealed is never written to again, seal frame or not. */
static void test_sealed_elsewhere(void **state)
{
	struct kit *k = *state;
	tree_put(k->ws, "f", "shared");
	struct ws_file old = { 0 };
	expect(0, ws_file_copy(&old, &k->ws->file));
	struct ws *c = kit_fork(k->ws, "c");
	ws_close(c);
	/* The parent's file from before the fork comes back. */
	old.seq = k->ws->file.seq + 1;
	struct version v;
	succeed(err, version_open(&v, k->root.work, "w", old.seq, &err));
	succeed(err, version_write(&v, k->root.work, &old, &err));
	version_done(&v, k->root.work, k->ws->file.seq);
	expect(0, registry_name(k->root.work->registry, &old));
	registry_unname(k->root.work->registry, &k->ws->file);
	crash(k->ws);
	succeed(err, ws_open(&k->ws, k->root.work, "w", &err));
	tree_put(k->ws, "f", "parent");
	succeed(err, ws_open(&c, k->root.work, "c", &err));
	kit_expect_text(c, "f", "shared");
	ws_close(c);
	ws_file_done(&old);
}

/* A restart with or without another boot in between. */
static void restart(struct kit *k, uint8_t boot)
{
	uint8_t id[16] = { boot };
	struct work_options o = { .commit_ms = UINT64_MAX, .boot_id = id };
	work_close(k->root.work);
	succeed(err, work_open(&k->root.work, k->root.dir, &o, &err));
	work_view_options(k->root.work, &k->root.opt);
}

static void test_power(void **state)
{
	struct kit *k = *state;
	ws_close(k->ws);
	restart(k, 1);
	succeed(err, ws_open(&k->ws, k->root.work, "w", &err));
	tree_put(k->ws, "f", "synced");
	expect(0, ws_fsync(k->ws, 1));
	struct ws *c = kit_fork(k->ws, "c"), *d;
	tree_put(c, "g", "child");
	expect(0, ws_fsync(c, 1)); /* with all that lies below */
	d = kit_fork(c, "d");      /* never synced */
	tree_put(k->ws, "h", "lost");
	tree_put(d, "i", "lost too");
	crash(k->ws);
	crash(c);
	crash(d);
	restart(k, 2);
	succeed(err, ws_open(&k->ws, k->root.work, "w", &err));
	kit_expect_text(k->ws, "f", "synced");
	struct entry e;
	expect(-ENOENT, ws_lookup(k->ws, 1, "h", 1, &e));
	succeed(err, ws_open(&c, k->root.work, "c", &err));
	kit_expect_text(c, "f", "synced");
	kit_expect_text(c, "g", "child");
	succeed(err, ws_open(&d, k->root.work, "d", &err));
	kit_expect_text(d, "g", "child");
	expect(-ENOENT, ws_lookup(d, 1, "i", 1, &e));
	kit_check_usage(k->ws);
	kit_check_usage(c);
	kit_check_usage(d);
	tree_put(d, "i", "again");
	ws_close(c);
	ws_close(d);
}

/* The newer file and what it names didn't make it to the disk: the durable one counts. */
static void test_power_newer_file(void **state)
{
	struct kit *k = *state;
	char path[200];
	auto_stack s = { 0 };
	ws_close(k->ws);
	restart(k, 1);
	succeed(err, ws_open(&k->ws, k->root.work, "w", &err));
	tree_put(k->ws, "f", "durable");
	expect(0, ws_fsync(k->ws, 1));
	tree_put(k->ws, "g", "no");
	succeed(err, ws_seal(k->ws, &s, &err));
	layer_path(k, layer_id(active(k->ws)), path);
	crash(k->ws);
	succeed(err, io_remove_tree(AT_FDCWD, path, &err));
	restart(k, 2);
	succeed(err, ws_open(&k->ws, k->root.work, "w", &err));
	kit_expect_text(k->ws, "f", "durable");
	tree_put(k->ws, "h", "on");
	kit_reopen(k);
	kit_expect_text(k->ws, "h", "on");
}

/* In the same boot a layer that isn't there is damage, and is said to be. */
static void test_missing_layer(void **state)
{
	struct kit *k = *state;
	char path[200];
	struct ws *c = kit_fork(k->ws, "c");
	tree_put(c, "f", "x");
	layer_path(k, layer_id(active(c)), path);
	ws_close(c);
	succeed(err, io_remove_tree(AT_FDCWD, path, &err));
	expect(-ENOENT, ws_open(&c, k->root.work, "c", &err));
	assert_non_null(strstr(err.text, "workspace c"));
	tree_put(k->ws, "g", "served");
	succeed(err, ws_delete(k->root.work, "c", &err));
}

static void test_bad_files(void **state)
{
	struct kit *k = *state;
	struct ws *c = kit_fork(k->ws, "c");
	char path[200];
	ws_close(c);
	(void)snprintf(path, sizeof(path), "%s/ws/c/stack", k->root.dir);
	int fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, "\xff", 1, 40), 1);
	(void)close(fd);
	expect(-EBADMSG, ws_open(&c, k->root.work, "c", &err));
	assert_non_null(strstr(err.text, "workspace c"));
	(void)unlink(path);
	expect(-EBADMSG, ws_open(&c, k->root.work, "c", &err));
	succeed(err, ws_delete(k->root.work, "c", &err));
	assert_false(exists(k, "ws/c"));
}

/* fork with the n-th disk call failing, for every n. */
static void test_failing_fork(void **state)
{
	for (uint64_t n = 1;; n++) {
		struct kit k = { .ws = NULL };
		(void)snprintf(k.root.dir, sizeof(k.root.dir), "/tmp/bough-test.XXXXXX");
		assert_non_null(mkdtemp(k.root.dir));
		struct io_fault *f = io_fault_new(NULL);
		struct work_options o = { .io = io_fault_io(f), .commit_ms = UINT64_MAX };
		succeed(err, work_open(&k.root.work, k.root.dir, &o, &err));
		succeed(err, ws_create(&k.ws, k.root.work, "w", NULL, NULL, 0, 0, &err));
		tree_put(k.ws, "f", "content");
		const char *ids[] = { "a", "b" };
		struct ws *c[2];
		io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OPS_CHANGE & ~IO_OPS_SYNC,
							  .nth = n,
							  .error = -EIO });
		int r = ws_fork(k.ws, ids, 2, NULL, c, NULL, &err);
		bool failed = io_fault_hits(f) > 0;
		io_fault_plan(f, NULL);
		if (r < 0) {
			assert_false(exists(&k, "ws/a") || exists(&k, "ws/b"));
		} else {
			kit_expect_text(c[1], "f", "content");
			ws_close(c[0]);
			ws_close(c[1]);
		}
		kit_expect_text(k.ws, "f", "content");
		crash(k.ws);
		succeed(err, ws_open(&k.ws, k.root.work, "w", &err));
		kit_expect_text(k.ws, "f", "content");
		kit_check_usage(k.ws);
		/* Nothing but what is named. */
		assert_int_equal(kit_layers(&k), (r < 0 ? 0 : 2) + k.ws->view.nlayers);
		ws_close(k.ws);
		tree_root_close(&k.root);
		io_fault_free(f);
		if (!failed)
			break;
		assert_true(n < 60);
	}
}

/* ---- replace and restore ---- */

static void test_replace(void **state)
{
	struct kit *k = *state;
	auto_stack sealed = { 0 }, saved = { 0 }, flat = { 0 };
	struct entry held = kit_make(k->ws, 1, "held", S_IFREG | 0644);
	expect(0, ws_write(k->ws, held.node, "orphan", 6, 0, false, &root_caller));
	expect(0, ws_setxattr(k->ws, held.node, "user.x", "value", 5, 0, &root_caller));
	tree_put(k->ws, "f", "content of f");
	tree_put(k->ws, "g", "g");
	tree_rm(k->ws, "held");
	tree_seal(k->ws, &sealed);
	tree_save(&k->root, &sealed, &saved);
	tree_flatten(&k->root, &saved, &flat);
	tree_put(k->ws, "g", "later");
	struct attr before = kit_attr(k->ws, "f"), after;
	int64_t used = k->ws->quota.bytes;
	struct ws *c = kit_fork(k->ws, "c");
	succeed(err, ws_replace(k->ws, &sealed, &flat, &err));
	assert_int_equal(k->ws->view.nlayers, 2);
	after = kit_attr(k->ws, "f");
	assert_memory_equal(&before, &after, sizeof(before));
	kit_expect_text(k->ws, "f", "content of f");
	kit_expect_text(k->ws, "g", "later");
	char b[16];
	expect(6, ws_read(k->ws, held.node, b, sizeof(b), 0));
	assert_memory_equal(b, "orphan", 6);
	expect(5, ws_getxattr(k->ws, held.node, "user.x", b, sizeof(b)));
	assert_int_equal(k->ws->quota.bytes, used); /* what was charged stays charged */
	/* The old layers are the child's alone; the stack is another one now. */
	expect(-ESTALE, ws_replace(k->ws, &sealed, &flat, &err));
	kit_expect_text(c, "f", "content of f");
	ws_close(c);
	unsigned layers = kit_layers(k);
	succeed(err, ws_delete(k->root.work, "c", &err));
	assert_int_equal(kit_layers(k), layers - 2);
	ws_forget_all(k->ws);
	kit_reopen(k);
	kit_expect_text(k->ws, "f", "content of f");
}

/* An extent that leads into a layer that is replaced keeps that layer's data alive. */
static void test_pins(void **state)
{
	struct kit *k = *state;
	auto_stack sealed = { 0 }, saved = { 0 };
	char *x = malloc(50000), *y;
	for (unsigned i = 0; i < 50000; i++)
		x[i] = (char)(i * 7 + i / 256);
	tree_write(k->ws, "a", x, 50000, 0);
	tree_mk(k->ws, "b", S_IFREG | 0644);
	tree_seal(k->ws, &sealed);
	tree_save(&k->root, &sealed, &saved);
	expect(50000, ws_copy_range(k->ws, tree_node(k->ws, "a"), 0, tree_node(k->ws, "b"), 0,
				    50000, &root_caller));
	tree_rm(k->ws, "a");
	succeed(err, ws_replace(k->ws, &sealed, &saved, &err));
	assert_int_equal(k->ws->file.npins, 1);
	assert_int_equal(kit_layers(k), 2);
	y = kit_read(k->ws, "b", NULL);
	assert_memory_equal(x, y, 50000);
	free(y);
	struct ws *c = kit_fork(k->ws, "c");
	ws_close(c);
	ws_close(k->ws);
	restart(k, 0);
	succeed(err, ws_open(&k->ws, k->root.work, "w", &err));
	succeed(err, ws_open(&c, k->root.work, "c", &err));
	for (unsigned i = 0; i < 2; i++) {
		y = kit_read(i ? c : k->ws, "b", NULL);
		assert_memory_equal(x, y, 50000);
		free(y);
	}
	ws_close(c);
	succeed(err, ws_delete(k->root.work, "c", &err));
	/* Saved again, nothing leads there any more. */
	stack_done(&sealed);
	stack_done(&saved);
	tree_seal(k->ws, &sealed);
	tree_save(&k->root, &sealed, &saved);
	succeed(err, ws_replace(k->ws, &sealed, &saved, &err));
	assert_int_equal(k->ws->file.npins, 0);
	assert_int_equal(kit_layers(k), 1);
	y = kit_read(k->ws, "b", NULL);
	assert_memory_equal(x, y, 50000);
	free(y);
	free(x);
}

/* ---- sweeping, numbers ---- */

static bool only_w(void *ctx, const char *id)
{
	return strcmp(id, "w") == 0;
}

static void test_sweep(void **state)
{
	struct kit *k = *state;
	char path[200];
	tree_put(k->ws, "f", "kept");
	ws_close(kit_fork(k->ws, "c"));
	expect(-EBUSY, work_sweep(k->root.work, only_w, NULL, &err));
	ws_close(k->ws);
	/* What a kill leaves in the middle of things. */
	struct view_options vo;
	struct layer *l;
	work_view_options(k->root.work, &vo);
	succeed(err, layer_create(&l, &vo.layer, &err));
	layer_unref(l);
	(void)snprintf(path, sizeof(path), "%s/ws/" IO_TMP_PREFIX "x-1", k->root.dir);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(kit_layers(k), 4);
	succeed(err, work_sweep(k->root.work, only_w, NULL, &err));
	assert_int_equal(kit_layers(k), 2);
	assert_false(exists(k, "ws/c"));
	assert_false(exists(k, "ws/" IO_TMP_PREFIX "x-1"));
	succeed(err, ws_open(&k->ws, k->root.work, "w", &err));
	kit_expect_text(k->ws, "f", "kept");
}

/* While one workspace can't be read nobody knows what its layers are. */
static void test_sweep_spares(void **state)
{
	struct kit *k = *state;
	struct ws *c = kit_fork(k->ws, "c");
	char path[200];
	tree_put(c, "f", "x");
	ws_close(c);
	ws_close(k->ws);
	unsigned layers = kit_layers(k);
	(void)snprintf(path, sizeof(path), "%s/ws/w/stack", k->root.dir);
	assert_int_equal(truncate(path, 20), 0);
	restart(k, 0);
	succeed(err, work_sweep(k->root.work, only_w, NULL, &err)); /* c isn't known: it goes */
	assert_int_equal(kit_layers(k), layers - 1);
	restart(k, 0);
	succeed(err, work_sweep(k->root.work, only_w, NULL, &err));
	assert_int_equal(kit_layers(k), layers - 1);
	succeed(err, ws_create(&k->ws, k->root.work, "v", NULL, NULL, 0, 0, &err));
}

/* A server ends before the file of a restore is durable. What the one before it names may be the
 * workspace again, and stays until then, though the next server deletes the last other one that
 * has it. */
static void test_older_stays(void **state)
{
	struct kit *k = *state;
	auto_stack other = { 0 };
	char path[200], old[220], layer[200], text[512];
	tree_put(k->ws, "f", "old");
	ws_close(kit_fork(k->ws, "c"));
	layer_path(k, layer_id(k->ws->view.layers[1]), layer);
	succeed(err, ws_fsync(k->ws, 1));
	(void)snprintf(path, sizeof(path), "%s/ws/w/stack", k->root.dir);
	(void)snprintf(old, sizeof(old), "%s.old", path);
	(void)snprintf(text, sizeof(text), "cp %s %s", path, old);
	expect(0, system(text));
	struct ws *v = tree_create(&k->root, "v", NULL);
	tree_put(v, "f", "new");
	tree_seal(v, &other);
	ws_close(v);
	succeed(err, ws_restore(k->ws, &other, NULL, &err));
	ws_close(k->ws);
	assert_int_equal(rename(old, path), 0);
	restart(k, 0);
	succeed(err, ws_delete(k->root.work, "c", &err));
	assert_int_equal(access(layer, F_OK), 0);
	succeed(err, ws_open(&k->ws, k->root.work, "w", &err));
	kit_expect_text(k->ws, "f", "new");
	assert_int_equal(access(layer, F_OK), 0);
	expect(0, ws_fsync(k->ws, 1));
	assert_int_equal(access(layer, F_OK), -1);
	kit_expect_text(k->ws, "f", "new");
}

/* The newest version didn't come through a power loss as a whole: the one before it counts, in that
 * boot and its servers. */
static void test_torn_version(void **state)
{
	struct kit *k = *state;
	char path[200];
	struct ws_limits limits = { 0 };
	tree_put(k->ws, "f", "kept");
	succeed(err, ws_fsync(k->ws, 1));
	ws_close(k->ws);
	(void)snprintf(path, sizeof(path), "%s/ws/w/stack-00000000000000f0", k->root.dir);
	for (int i = 0; i < 2; i++) {
		int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		assert_int_equal(write(fd, "torn", 4), 4);
		(void)close(fd);
		restart(k, 1 + i);
		succeed(err, ws_open(&k->ws, k->root.work, "w", &err));
		limits.inodes = 1000 + (uint64_t)i;
		succeed(err, ws_set_limits(k->ws, &limits, &err));
		ws_close(k->ws);
		restart(k, 1 + i);
		succeed(err, ws_open(&k->ws, k->root.work, "w", &err));
		kit_expect_text(k->ws, "f", "kept");
		assert_int_equal(k->ws->quota.limits.inodes, limits.inodes);
		ws_close(k->ws);
	}
	restart(k, 2);
	succeed(err, ws_open(&k->ws, k->root.work, "w", &err));
}

static void next_server(struct kit *k)
{
	ws_close(k->ws);
	work_close(k->root.work);
	succeed(err, work_open(&k->root.work, k->root.dir, NULL, &err));
	succeed(err, ws_open(&k->ws, k->root.work, "w", &err));
}

static void test_ino(void **state)
{
	struct kit *k = *state;
	uint64_t a, b, next;
	char path[200];
	struct attr first;
	tree_put(k->ws, "f", "x");
	first = kit_attr(k->ws, "f");
	succeed(err, ino_reserve(NULL, k->root.dir, 10, &a, &err));
	assert_true(a > first.ino);
	succeed(err, ino_reserve(NULL, k->root.dir, 1, &b, &err));
	assert_int_equal(b, a + 10);
	/* A workspace that is made now numbers from above all of these. */
	struct ws *c;
	succeed(err, ws_create(&c, k->root.work, "c", NULL, NULL, 0, 0, &err));
	tree_put(c, "g", "x");
	assert_true(kit_attr(c, "g").ino > b);
	ws_close(c);
	kit_reopen(k);
	tree_put(k->ws, "h", "x");
	assert_true(kit_attr(k->ws, "h").ino > b);
	/* Who opens the root next goes on with the range, which is durable already, unless somebody
	 * has reserved since, or what says so is damaged. */
	next_server(k);
	tree_put(k->ws, "i", "x");
	a = kit_attr(k->ws, "i").ino;
	assert_in_range(a, kit_attr(k->ws, "h").ino + 1, kit_attr(k->ws, "h").ino + INO_TELL);
	succeed(err, ino_reserve(NULL, k->root.dir, 1, &b, &err));
	next_server(k);
	tree_put(k->ws, "j", "x");
	assert_true(kit_attr(k->ws, "j").ino > b);
	(void)snprintf(path, sizeof(path), "%s/ino.rest", k->root.dir);
	int fd = open(path, O_RDWR);
	assert_int_equal(pwrite(fd, "\1", 1, 25), 1);
	(void)close(fd);
	succeed(err, ino_peek(NULL, k->root.dir, &next, &err));
	next_server(k);
	tree_put(k->ws, "k", "x");
	assert_true(kit_attr(k->ws, "k").ino >= next);
	(void)snprintf(path, sizeof(path), "%s/ino", k->root.dir);
	fd = open(path, O_RDWR);
	assert_int_equal(pwrite(fd, "\1", 1, 9), 1);
	expect(-EBADMSG, ino_reserve(NULL, k->root.dir, 1, &b, &err));
	expect(-EBADMSG, ino_peek(NULL, k->root.dir, &next, &err));
	succeed(err, ino_rebuild(NULL, k->root.dir, 1000000, &err));
	succeed(err, ino_reserve(NULL, k->root.dir, 1, &b, &err));
	assert_int_equal(b, 1000000);
	succeed(err, ino_rebuild(NULL, k->root.dir, 5, &err)); /* never back */
	succeed(err, ino_peek(NULL, k->root.dir, &next, &err));
	assert_int_equal(next, 1000001);
	(void)close(fd);
	assert_int_equal(unlink(path), 0);
	expect(-EBADMSG, ino_reserve(NULL, k->root.dir, 1, &b, &err));
	succeed(err, ino_rebuild(NULL, k->root.dir, INO_MAX - 5, &err));
	expect(-ENOSPC, ino_reserve(NULL, k->root.dir, 100, &b, &err));
	succeed(err, ino_rebuild(NULL, k->root.dir, 2000000, &err));
}

/* ---- many at once ---- */

struct worker {
	struct kit *k;
	unsigned seed, number;
	_Atomic bool *stop;
	unsigned ops;
};

/* Files of its own, each written whole with one byte: a fork sees whole writes only. */
static void *work_on(void *arg)
{
	struct worker *w = arg;
	struct ws *ws = w->k->ws;
	char name[16], b[9000];
	for (unsigned i = 0; !*w->stop; i++) {
		struct entry e;
		int len = snprintf(name, sizeof(name), "%u-%u", w->number, i % 10);
		int r = ws_mknod(ws, 1, name, (size_t)len, S_IFREG | 0644, 0, &root_caller, &e);
		if (r == -EEXIST)
			r = ws_lookup(ws, 1, name, (size_t)len, &e);
		memset(b, 'A' + (int)(i % 26), sizeof(b));
		if (r == 0)
			r = ws_write(ws, e.node, b, sizeof(b), 0, false, &root_caller);
		if (r == 0 && i % 3 == 0)
			r = ws_unlink(ws, 1, name, (size_t)len, &root_caller);
		if (r < 0)
			abort();
		ws_forget(ws, e.node, 1);
		w->ops++;
	}
	return NULL;
}

static bool whole_file(void *ctx, const struct dirent_ref *d, const struct attr *a)
{
	return true;
}

static void check_whole(struct ws *ws)
{
	for (unsigned n = 0; n < 3; n++) {
		for (unsigned i = 0; i < 10; i++) {
			char name[16];
			struct entry e;
			(void)snprintf(name, sizeof(name), "%u-%u", n, i);
			if (ws_lookup(ws, 1, name, strlen(name), &e) == -ENOENT)
				continue;
			ws_forget(ws, e.node, 1);
			if (e.attr.size == 0)
				continue; /* made and not yet written */
			size_t size;
			char *b = kit_read(ws, name, &size);
			assert_int_equal(size, 9000);
			for (unsigned x = 1; x < size; x++)
				assert_int_equal(b[x], b[0]);
			free(b);
		}
	}
}

static void test_threads(void **state)
{
	struct kit *k = *state;
	_Atomic bool stop = false;
	struct worker w[3];
	pthread_t t[3];
	for (unsigned i = 0; i < 3; i++) {
		w[i] = (struct worker){ k, i, i, &stop, 0 };
		assert_int_equal(pthread_create(&t[i], NULL, work_on, &w[i]), 0);
	}
	auto_stack sealed = { 0 }, saved = { 0 };
	for (unsigned i = 0; i < 30; i++) {
		char id[8];
		(void)snprintf(id, sizeof(id), "f%u", i);
		struct ws *c = kit_fork(k->ws, id);
		check_whole(c);
		kit_check_usage(c);
		ws_close(c);
		if (i % 10 == 9) {
			stack_done(&sealed);
			stack_done(&saved);
			tree_seal(k->ws, &sealed);
			tree_save(&k->root, &sealed, &saved);
			succeed(err, ws_replace(k->ws, &sealed, &saved, &err));
		}
		expect(0, ws_fsync(k->ws, 1));
		struct ws_usage u;
		ws_get_usage(k->ws, &u, NULL);
		expect(0, ws_readdir(k->ws, 1, 0, WS_NAMES, whole_file, NULL));
	}
	stop = true;
	for (unsigned i = 0; i < 3; i++) {
		pthread_join(t[i], NULL);
		assert_true(w[i].ops > 0);
	}
	check_whole(k->ws);
	kit_reopen(k);
	check_whole(k->ws);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, kit_setup, kit_teardown)
	const struct CMUnitTest tests[] = {
		T(test_create),
		T(test_fork),
		T(test_too_deep),
		T(test_small_children),
		T(test_nothing_stays_open),
		T(test_killed_fork),
		T(test_sealed_elsewhere),
		T(test_power),
		T(test_power_newer_file),
		T(test_missing_layer),
		T(test_bad_files),
		cmocka_unit_test(test_failing_fork),
		T(test_replace),
		T(test_pins),
		T(test_sweep),
		T(test_sweep_spares),
		T(test_older_stays),
		T(test_torn_version),
		T(test_ino),
		T(test_threads),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
