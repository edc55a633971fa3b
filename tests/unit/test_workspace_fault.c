/* Workspaces whose disk failed a sync: read-only, whoever met it first; and the ways out. */
#include "fs/base/io_fault.h"
#include "tests/unit/ws_kit.h"

struct place {
	struct kit k;
	struct io_fault *fault;
	char told[16][WS_FAULT_TEXT + 64];
	unsigned ntold;
};

static void told(void *ctx, const char *id, const char *text)
{
	struct place *p = ctx;
	assert_in_range(p->ntold, 0, 15);
	(void)snprintf(p->told[p->ntold++], sizeof(p->told[0]), "%s %s", id, text);
}

static void open_place(struct place *p, uint64_t commit_ms, bool resumes)
{
	struct err err = { 0 };
	const struct work_options opt = { .io = io_fault_io(p->fault),
					  .commit_ms = commit_ms,
					  .resumes = resumes,
					  .told = told,
					  .told_ctx = p };
	succeed(err, work_open(&p->k.root.work, p->k.root.dir, &opt, &err));
	work_view_options(p->k.root.work, &p->k.root.opt);
}

static int set_up(void **state)
{
	struct place *p = calloc(1, sizeof(*p));
	assert_non_null(p);
	p->fault = io_fault_new(NULL);
	(void)snprintf(p->k.root.dir, sizeof(p->k.root.dir), "/tmp/bough-test.XXXXXX");
	assert_non_null(mkdtemp(p->k.root.dir));
	open_place(p, UINT64_MAX, false);
	p->k.ws = tree_create(&p->k.root, "w", NULL);
	tree_put(p->k.ws, "kept", "as it was");
	expect(0, ws_fsync(p->k.ws, 1));
	*state = p;
	return 0;
}

static int tear_down(void **state)
{
	struct place *p = *state;
	io_fault_plan(p->fault, NULL);
	ws_close(p->k.ws);
	tree_root_close(&p->k.root);
	io_fault_free(p->fault);
	free(p);
	return 0;
}

static void break_disk(struct place *p, bool for_good)
{
	io_fault_plan(p->fault, &(struct io_fault_plan){ .ops = IO_OP_FDATASYNC,
							 .nth = 1,
							 .error = -EIO,
							 .for_good = for_good });
}

static void mend_disk(struct place *p)
{
	io_fault_plan(p->fault, NULL);
}

static void is_read_only(struct ws *ws)
{
	struct err err = { 0 };
	struct entry e;
	struct attr a = { 0 };
	struct stack st = { 0 };
	struct ws *child;
	const char *ids[] = { "child" };
	const uint64_t node = tree_node(ws, "kept");
	const struct caller *c = &root_caller;
	char text[WS_FAULT_TEXT];
	assert_true(ws_fault(ws, text, sizeof(text)));
	assert_non_null(strstr(text, "layers/"));
	assert_non_null(strstr(text, "(EIO)"));
	for (int i = 0; i < 3; i++)
		expect(-EIO, ws_fsync(ws, node));
	expect(-EROFS, ws_mknod(ws, 1, "new", 3, S_IFREG | 0600, 0, c, &e));
	expect(-EROFS, ws_mknod(ws, 1, "new", 3, S_IFDIR | 0700, 0, c, &e));
	expect(-EROFS, ws_symlink(ws, 1, "new", 3, "x", c, &e));
	expect(-EROFS, ws_link(ws, node, 1, "new", 3, c, &e));
	expect(-EROFS, ws_tmpfile(ws, 1, 0600, c, &e));
	expect(-EROFS, ws_unlink(ws, 1, "kept", 4, c));
	expect(-EROFS, ws_rename(ws, 1, "kept", 4, 1, "new", 3, 0, c));
	expect(-EROFS, ws_write(ws, node, "x", 1, 0, false, c));
	expect(-EROFS, ws_write(ws, node, "x", 1, 5000, false, c));
	expect(-EROFS, ws_fallocate(ws, node, 0, 0, 100000, c));
	expect(-EROFS, ws_setattr(ws, node, WS_SET_SIZE, &a, c, &a));
	expect(-EROFS, ws_setattr(ws, node, WS_SET_MODE, &a, c, &a));
	expect(-EROFS, ws_setxattr(ws, node, "user.x", "1", 1, 0, c));
	expect(-EROFS, ws_copy_range(ws, node, 0, node, 8192, 4, c));
	expect(-EROFS, ws_seal(ws, &st, &err));
	assert_non_null(strstr(err.text, "read-only: the disk failed"));
	expect(-EROFS, ws_fork(ws, ids, 1, NULL, &child, NULL, &err));
	assert_non_null(strstr(err.text, "read-only: the disk failed"));
}

/* Changes that were acknowledged show until it is closed, and are gone when it is opened. */
static void closed_and_opened(void **state)
{
	struct place *p = *state;
	tree_put(p->k.ws, "lost", "never on disk");
	break_disk(p, false);
	expect(-EIO, ws_fsync(p->k.ws, 1));
	is_read_only(p->k.ws);
	kit_expect_text(p->k.ws, "kept", "as it was");
	kit_expect_text(p->k.ws, "lost", "never on disk");
	assert_int_equal(p->ntold, 1);
	assert_non_null(strstr(p->told[0], "w read-only: the disk failed to take layers/"));
	assert_non_null(strstr(p->told[0], "mounted anew it goes back to 2"));

	/* As long as the disk fails, it stays so. */
	break_disk(p, true);
	kit_reopen(&p->k);
	is_read_only(p->k.ws);
	kit_expect_text(p->k.ws, "kept", "as it was");
	assert_int_equal(p->ntold, 2);
	mend_disk(p);
	is_read_only(p->k.ws);

	kit_reopen(&p->k);
	assert_false(ws_fault(p->k.ws, NULL, 0));
	assert_int_equal(p->ntold, 3);
	assert_non_null(strstr(p->told[2], "w mended: the disk had failed to take layers/"));
	struct entry e;
	expect(-ENOENT, ws_lookup(p->k.ws, 1, "lost", 4, &e));
	kit_expect_text(p->k.ws, "kept", "as it was");
	kit_check_usage(p->k.ws);
	tree_put(p->k.ws, "new", "goes on");
	expect(0, ws_fsync(p->k.ws, 1));
	kit_reopen(&p->k);
	kit_expect_text(p->k.ws, "new", "goes on");
	assert_int_equal(p->ntold, 3);
}

/* The background met it first: whoever asks hears of it, each time. */
static void in_the_background(void **state)
{
	struct place *p = *state;
	ws_close(p->k.ws);
	work_close(p->k.root.work);
	open_place(p, 10, false);
	struct err err = { 0 };
	succeed(err, ws_open(&p->k.ws, p->k.root.work, "w", &err));
	break_disk(p, false);
	for (int i = 0; i < 1000 && !ws_fault(p->k.ws, NULL, 0); i++) {
		struct entry e;
		char name[16];
		int len = snprintf(name, sizeof(name), "lost-%d", i);
		int r = ws_mknod(p->k.ws, 1, name, (size_t)len, S_IFREG | 0600, 0, &root_caller,
				 &e);
		assert_true(r == 0 || r == -EROFS); /* it may have met it since */
		usleep(5000);
	}
	is_read_only(p->k.ws);
}

/* The next server behind the same mount shows what the kernel has seen, and stays read-only. */
static void resumed(void **state)
{
	struct place *p = *state;
	struct err err = { 0 };
	tree_put(p->k.ws, "lost", "seen");
	break_disk(p, false);
	expect(-EIO, ws_fsync(p->k.ws, 1));
	mend_disk(p);
	ws_discard(p->k.ws); /* as good as killed */
	work_close(p->k.root.work);
	open_place(p, UINT64_MAX, true);
	succeed(err, ws_resume(&p->k.ws, p->k.root.work, "w", &err));
	is_read_only(p->k.ws);
	kit_expect_text(p->k.ws, "lost", "seen");
	kit_reopen(&p->k);
	struct entry e;
	expect(-ENOENT, ws_lookup(p->k.ws, 1, "lost", 4, &e));
}

/* What was sealed fails: the parent and all forks are read-only, and go back together. */
static void forks(void **state)
{
	struct place *p = *state;
	struct err err = { 0 };
	struct entry e;
	tree_put(p->k.ws, "lost", "x");
	struct ws *a = kit_fork(p->k.ws, "a"), *b = kit_fork(p->k.ws, "b");
	tree_put(a, "of-a", "x");
	tree_put(p->k.ws, "of-w", "x");
	break_disk(p, false);
	expect(-EIO, ws_fsync(a, 1));
	mend_disk(p);
	assert_int_equal(p->ntold, 3);
	is_read_only(p->k.ws);
	is_read_only(a);
	is_read_only(b);
	kit_expect_text(b, "lost", "x");

	/* While another one shows the layer it can't be mended. */
	ws_close(a);
	succeed(err, ws_open(&a, p->k.root.work, "a", &err));
	assert_true(ws_fault(a, NULL, 0));
	ws_close(a);
	ws_close(b);
	kit_reopen(&p->k);
	succeed(err, ws_open(&a, p->k.root.work, "a", &err));
	succeed(err, ws_open(&b, p->k.root.work, "b", &err));
	struct ws *all[] = { p->k.ws, a, b };
	for (int i = 0; i < 3; i++) {
		assert_false(ws_fault(all[i], NULL, 0));
		kit_expect_text(all[i], "kept", "as it was");
		expect(-ENOENT, ws_lookup(all[i], 1, "lost", 4, &e));
		expect(-ENOENT, ws_lookup(all[i], 1, i == 1 ? "of-a" : "of-w", 4, &e));
		tree_put(all[i], "new", "x");
		expect(0, ws_fsync(all[i], 1));
	}
	ws_close(a);
	ws_close(b);
}

/* A fork that isn't open when what it lies on fails, and is mended for another one, goes back with
 * it, whichever of them is opened first. */
static void forks_not_open(void **state)
{
	struct place *p = *state;
	struct err err = { 0 };
	struct entry e;
	for (int first = 0; first < 2; first++) {
		struct ws *ws[2];
		const char *ids[] = { first ? "a1" : "a", first ? "b1" : "b" };
		tree_put(p->k.ws, "lost", "x");
		ws[0] = kit_fork(p->k.ws, ids[0]);
		ws[1] = kit_fork(p->k.ws, ids[1]);
		uint64_t node = tree_node(ws[1], "lost");
		tree_put(ws[1], "of-b", "x");
		expect(0, ws_rename(ws[1], 1, "lost", 4, 1, "moved", 5, 0, &root_caller));
		expect(0, ws_write(ws[1], node, "y", 1, 0, false, &root_caller));
		/* The server is killed; behind none of them a next one goes on but for w and a. */
		ws_discard(ws[1]);
		break_disk(p, false);
		expect(-EIO, ws_fsync(ws[0], 1));
		mend_disk(p);
		ws_close(ws[0]);
		ws_close(p->k.ws);
		p->ntold = 0;
		succeed(err, ws_open(&ws[first], p->k.root.work, ids[first], &err));
		succeed(err, ws_open(&ws[!first], p->k.root.work, ids[!first], &err));
		succeed(err, ws_open(&p->k.ws, p->k.root.work, "w", &err));
		assert_int_equal(p->ntold, 3);
		for (int i = 0; i < 3; i++) {
			struct ws *one = i < 2 ? ws[i] : p->k.ws;
			assert_non_null(strstr(p->told[i], " mended: the disk had failed to take"));
			assert_false(ws_fault(one, NULL, 0));
			kit_expect_text(one, "kept", "as it was");
			expect(-ENOENT, ws_lookup(one, 1, "lost", 4, &e));
			expect(-ENOENT, ws_lookup(one, 1, "moved", 5, &e));
			expect(-ENOENT, ws_lookup(one, 1, "of-b", 4, &e));
			kit_check_usage(one);
			tree_put(one, "new", "x");
			expect(0, ws_fsync(one, 1));
			expect(0, ws_unlink(one, 1, "new", 3, &root_caller));
		}
		ws_close(ws[0]);
		ws_close(ws[1]);
	}
}

/* Where the workspaces can't all be told, nothing goes back yet. */
static void forks_not_told(void **state)
{
	struct place *p = *state;
	struct err err = { 0 };
	struct entry e;
	tree_put(p->k.ws, "lost", "x");
	struct ws *a = kit_fork(p->k.ws, "a");
	tree_put(a, "of-a", "x");
	ws_discard(a);
	break_disk(p, false);
	expect(-EIO, ws_fsync(p->k.ws, 1));
	mend_disk(p);
	/* pwrite is the mark's first, of the one folder that has none. */
	io_fault_plan(p->fault, &(struct io_fault_plan){ .ops = IO_OP_PWRITE,
							 .nth = 1,
							 .error = -ENOSPC,
							 .for_good = true });
	kit_reopen(&p->k);
	assert_true(ws_fault(p->k.ws, NULL, 0));
	kit_expect_text(p->k.ws, "lost", "x");
	mend_disk(p);
	kit_reopen(&p->k);
	assert_false(ws_fault(p->k.ws, NULL, 0));
	expect(-ENOENT, ws_lookup(p->k.ws, 1, "lost", 4, &e));
	succeed(err, ws_open(&a, p->k.root.work, "a", &err));
	expect(-ENOENT, ws_lookup(a, 1, "of-a", 4, &e));
	ws_close(a);
}

/* A restore in place leads out, too: nothing that failed is in what it shows. */
static void restored(void **state)
{
	struct place *p = *state;
	struct err err = { 0 };
	auto_stack sealed = { 0 }, saved = { 0 };
	tree_seal(p->k.ws, &sealed);
	tree_save(&p->k.root, &sealed, &saved);
	tree_put(p->k.ws, "lost", "x");
	break_disk(p, false);
	expect(-EIO, ws_fsync(p->k.ws, 1));
	mend_disk(p);
	is_read_only(p->k.ws);
	succeed(err, ws_restore(p->k.ws, &saved, NULL, &err));
	assert_false(ws_fault(p->k.ws, NULL, 0));
	tree_put(p->k.ws, "new", "x");
	expect(0, ws_fsync(p->k.ws, 1));
	kit_expect_text(p->k.ws, "kept", "as it was");
}

/* What was saved of a layer before its disk failed isn't what it has once it is mended. */
static void saved_before(void **state)
{
	struct place *p = *state;
	struct err err = { 0 };
	struct entry e;
	struct ws *of = NULL;
	auto_stack sealed = { 0 }, saved = { 0 }, again = { 0 }, after = { 0 };
	tree_put(p->k.ws, "lost", "x");
	tree_seal(p->k.ws, &sealed);
	tree_save(&p->k.root, &sealed, &saved);
	break_disk(p, false);
	expect(-EIO, ws_fsync(p->k.ws, 1));
	mend_disk(p);
	kit_reopen(&p->k);
	expect(-ENOENT, ws_lookup(p->k.ws, 1, "lost", 4, &e));
	tree_seal(p->k.ws, &again);
	tree_save(&p->k.root, &again, &after);
	succeed(err, ws_create(&of, p->k.root.work, "of", &after, NULL, 0, 0, &err));
	expect(-ENOENT, ws_lookup(of, 1, "lost", 4, &e));
	kit_expect_text(of, "kept", "as it was");
	ws_close(of);
}

/* A full disk is nothing of the kind: the write says so, and service goes on. */
static void full_disk(void **state)
{
	struct place *p = *state;
	struct entry e = kit_make(p->k.ws, 1, "f", S_IFREG | 0600);
	io_fault_plan(p->fault, &(struct io_fault_plan){ .ops = IO_OP_PWRITE | IO_OP_FALLOCATE,
							 .nth = 1,
							 .error = -ENOSPC,
							 .for_good = true });
	expect(-ENOSPC, ws_write(p->k.ws, e.node, "x", 1, 0, false, &root_caller));
	expect(-ENOSPC, ws_fsync(p->k.ws, 1));
	mend_disk(p);
	assert_false(ws_fault(p->k.ws, NULL, 0));
	expect(0, ws_write(p->k.ws, e.node, "x", 1, 0, false, &root_caller));
	expect(0, ws_fsync(p->k.ws, 1));
	assert_int_equal(p->ntold, 0);
}

/* So it is where the first change of a new layer is one that keeps a file whole (txn_keep). */
static void full_disk_at_first(void **state)
{
	struct place *p = *state;
	struct attr empty = { 0 }, out;
	tree_put(p->k.ws, "new", "newer");
	struct ws *child = kit_fork(p->k.ws, "child");
	io_fault_plan(p->fault, &(struct io_fault_plan){ .ops = IO_OP_PWRITE | IO_OP_FALLOCATE,
							 .nth = 1,
							 .error = -ENOSPC,
							 .for_good = true });
	for (int i = 0; i < 2; i++) {
		struct ws *ws = i ? child : p->k.ws;
		expect(-ENOSPC, ws_rename(ws, 1, "new", 3, 1, "kept", 4, 0, &root_caller));
		expect(-ENOSPC, ws_setattr(ws, tree_node(ws, "kept"), WS_SET_SIZE, &empty,
					   &root_caller, &out));
		kit_expect_text(ws, "kept", "as it was");
	}
	mend_disk(p);
	expect(0, ws_rename(child, 1, "new", 3, 1, "kept", 4, 0, &root_caller));
	kit_expect_text(child, "kept", "newer");
	expect(0, ws_fsync(child, 1));
	ws_close(child);
}

static const char *unread; /* the folder of that workspace can't be opened */

static int not_the_unread(void *ctx, int dirfd, const char *name, int flags, mode_t mode)
{
	const char *end = strrchr(name, '/');
	return end && strcmp(end + 1, unread) == 0 ? -EMFILE
						   : io_host.open(ctx, dirfd, name, flags, mode);
}

static bool all_known(void *ctx, const char *id)
{
	(void)ctx;
	(void)id;
	return true;
}

/* A workspace that couldn't be read at the start is whole when it can be: what it names isn't
 * removed, neither by a sweep nor with the last other one that names it. */
static void unread_at_start(void **state)
{
	struct place *p = *state;
	struct kit *k = &p->k;
	struct err err = { 0 };
	struct io io = io_host;
	struct ws *child = kit_fork(k->ws, "child");
	tree_put(k->ws, "own", "too");
	ws_close(child);
	ws_close(k->ws);
	work_close(k->root.work);
	unread = "w";
	io.open = not_the_unread;
	const struct work_options opt = { .io = &io, .commit_ms = UINT64_MAX };
	succeed(err, work_open(&k->root.work, k->root.dir, &opt, &err));
	io.open = io_host.open;
	succeed(err, work_sweep(k->root.work, all_known, NULL, &err));
	succeed(err, ws_delete(k->root.work, "child", &err));
	for (int i = 0; i < 3; i++) {
		char id[] = { 'a' + i, 0 };
		succeed(err, ws_open(&k->ws, k->root.work, "w", &err));
		kit_expect_text(k->ws, "kept", "as it was");
		kit_expect_text(k->ws, "own", "too");
		ws_close(kit_fork(k->ws, id));
		ws_close(k->ws);
		work_trim(k->root.work);
	}
	succeed(err, ws_delete(k->root.work, "a", &err));
	succeed(err, ws_delete(k->root.work, "w", &err));
	succeed(err, ws_open(&k->ws, k->root.work, "b", &err));
	kit_expect_text(k->ws, "kept", "as it was");
	ws_close(k->ws);
	succeed(err, ws_delete(k->root.work, "b", &err));
	succeed(err, ws_delete(k->root.work, "c", &err));
	work_close(k->root.work);

	open_place(p, UINT64_MAX, false); /* the next start knows all */
	succeed(err, work_sweep(k->root.work, all_known, NULL, &err));
	assert_int_equal(kit_layers(k), 0);
	k->ws = tree_create(&k->root, "w", NULL);
}

static void copy(const char *root, const char *from, const char *to)
{
	char text[512];
	(void)snprintf(text, sizeof(text), "cd %s && rm -rf %s && cp -a %s %s", root, to, from, to);
	expect(0, system(text));
}

/* A power loss has left the file of a fork, and not that of its parent, which is as before. What
 * the fork shows isn't written to by the parent, though nobody can read that at the start. */
static void sealed_by_unread(void **state)
{
	struct place *p = *state;
	struct kit *k = &p->k;
	struct err err = { 0 };
	struct io io = io_host;
	struct ws_usage u;
	char hex[2 * LAYER_ID_BYTES + 1], journal[80];
	hex_encode(hex, layer_id(k->ws->view.layers[0])->b, LAYER_ID_BYTES);
	(void)snprintf(journal, sizeof(journal), "layers/%s/journal", hex);
	expect(0, ws_fsync(k->ws, 1));
	copy(k->root.dir, "ws/w", "w");
	copy(k->root.dir, journal, "journal");
	ws_close(kit_fork(k->ws, "child"));
	ws_close(k->ws);
	work_close(k->root.work);
	copy(k->root.dir, "w", "ws/w");
	copy(k->root.dir, "journal", journal);

	unread = "child";
	io.open = not_the_unread;
	const struct work_options opt = { .io = &io, .commit_ms = UINT64_MAX };
	succeed(err, work_open(&k->root.work, k->root.dir, &opt, &err));
	io.open = io_host.open;
	for (int i = 0; i < 3; i++) {
		succeed(err, ws_open(&k->ws, k->root.work, "w", &err));
		expect(0, ws_write(k->ws, tree_node(k->ws, "kept"), "not", 3, 0, false,
				   &root_caller));
		ws_get_usage(k->ws, &u, NULL);
		assert_int_equal(u.layers, 2);
		ws_close(k->ws);
	}
	work_close(k->root.work);

	open_place(p, UINT64_MAX, false);
	succeed(err, ws_open(&k->ws, k->root.work, "child", &err));
	kit_expect_text(k->ws, "kept", "as it was");
	ws_close(k->ws);
	succeed(err, ws_open(&k->ws, k->root.work, "w", &err));
	kit_expect_text(k->ws, "kept", "notit was");
}

static int is_there(void *ctx, const struct digest *d)
{
	expect(1, store_has(ctx, d, NULL));
	return 0;
}

/* What a layer was saved as is forgotten when the disk failed to take that: the next save would
 * build a snapshot on what isn't there. */
static void sync_of_a_save(void **state)
{
	struct place *p = *state;
	struct kit *k = &p->k;
	struct err err = { 0 };
	struct store *store = work_store(k->root.work);
	struct store_session *first, *beside, *next;
	const struct reach_sink all = { .object = is_there, .ctx = store };
	auto_stack sealed = { 0 }, a = { 0 }, b = { 0 }, c = { 0 };
	tree_put(k->ws, "new", "content");
	tree_seal(k->ws, &sealed);
	succeed(err, ws_commit(k->ws, &err));
	succeed(err, store_session_begin(store, &first, &err));
	succeed(err, save_stack(&a, &sealed, &k->root.opt, first, NULL, NULL, &err));
	succeed(err, store_session_begin(store, &beside, &err));
	succeed(err, save_stack(&b, &sealed, &k->root.opt, beside, NULL, NULL, &err));
	break_disk(p, false);
	expect(-EIO, store_sync(first, &err));
	mend_disk(p);
	expect(-EIO, store_sync(beside, &err)); /* which has put nothing itself */
	store_session_end(first);
	store_session_end(beside);
	succeed(err, store_session_begin(store, &next, &err));
	succeed(err, save_stack(&c, &sealed, &k->root.opt, next, NULL, NULL, &err));
	succeed(err, store_sync(next, &err));
	store_session_end(next);
	succeed(err, stack_reach(&c, &k->root.opt, &all, &err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(closed_and_opened, set_up, tear_down),
		cmocka_unit_test_setup_teardown(in_the_background, set_up, tear_down),
		cmocka_unit_test_setup_teardown(resumed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(forks, set_up, tear_down),
		cmocka_unit_test_setup_teardown(forks_not_open, set_up, tear_down),
		cmocka_unit_test_setup_teardown(forks_not_told, set_up, tear_down),
		cmocka_unit_test_setup_teardown(restored, set_up, tear_down),
		cmocka_unit_test_setup_teardown(saved_before, set_up, tear_down),
		cmocka_unit_test_setup_teardown(sync_of_a_save, set_up, tear_down),
		cmocka_unit_test_setup_teardown(full_disk, set_up, tear_down),
		cmocka_unit_test_setup_teardown(full_disk_at_first, set_up, tear_down),
		cmocka_unit_test_setup_teardown(unread_at_start, set_up, tear_down),
		cmocka_unit_test_setup_teardown(sealed_by_unread, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
