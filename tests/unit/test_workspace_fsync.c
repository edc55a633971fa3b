/* fsync of one file beside a big one that nobody fsynced: what is synced for it, and what each of
 * the two has after a power loss (invariant 3 of fs/DESIGN.md). */
#include <pthread.h>
#include <sched.h>

#include "fs/base/io_power.h"
#include "fs/work/layer_impl.h"
#include "ws_kit.h"

enum {
	BIG = 2 << 20, /* bytes: most of it lies in a file of its own */
	FDS = 1024,
};

/* ---- a disk that remembers, and who is synced ---- */

static struct {
	struct io_power *power;
	struct io io;
	char dir[40], root[60], after[60];
	uint8_t boot;
	uint64_t big_file;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	uint64_t file[FDS]; /* whose own file is open there; 0: none */
	uint64_t syncs;     /* of own files */
	bool hold, held; /* a sync of an own file waits while `hold` is set */
} d = { .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };

static int disk_open(void *ctx, int dirfd, const char *name, int flags, mode_t mode)
{
	const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
	int fd = io_power_io(d.power)->open(ctx, dirfd, name, flags, mode);
	unsigned long long ino = 0;
	if (fd < 0)
		return fd;
	assert_true(fd < FDS);
	if (*base != 'f' || strcmp(base, "failed") == 0 || sscanf(base + 1, "%llx", &ino) != 1)
		ino = 0;
	d.file[fd] = ino;
	return fd;
}

static int disk_sync(void *ctx, int fd)
{
	pthread_mutex_lock(&d.lock);
	bool own = d.file[fd] != 0;
	d.syncs += own;
	while (own && d.hold) {
		d.held = true;
		pthread_cond_broadcast(&d.cond);
		pthread_cond_wait(&d.cond, &d.lock);
	}
	pthread_mutex_unlock(&d.lock);
	return io_power_io(d.power)->fdatasync(ctx, fd);
}

static void open_root(struct kit *k, const char *root, const struct io *io)
{
	struct err err = { 0 };
	uint8_t boot[16] = { ++d.boot };
	const struct work_options opt = {
		.io = io, .boot_id = boot, .commit_ms = UINT64_MAX, .big_file = d.big_file
	};
	succeed(err, work_open(&k->root.work, root, &opt, &err));
	work_view_options(k->root.work, &k->root.opt);
}

static int setup(void **state)
{
	struct kit *k = calloc(1, sizeof(*k));
	assert_non_null(k);
	(void)snprintf(d.dir, sizeof(d.dir), "/tmp/bough-test.XXXXXX");
	assert_non_null(mkdtemp(d.dir));
	(void)snprintf(d.root, sizeof(d.root), "%s/root", d.dir);
	(void)snprintf(d.after, sizeof(d.after), "%s/after", d.dir);
	expect(0, mkdir(d.root, 0700));
	d.power = io_power_new(d.root);
	assert_non_null(d.power);
	d.io = *io_power_io(d.power);
	d.io.open = disk_open;
	d.io.fdatasync = disk_sync;
	d.boot = 0;
	d.hold = d.held = false;
	open_root(k, d.root, d.big_file ? NULL : &d.io);
	k->ws = tree_create(&k->root, "w", NULL);
	*state = k;
	return 0;
}

/* Files are big from 16 KiB on, and the disk is the host's. */
static int setup_little(void **state)
{
	d.big_file = 16 << 10;
	return setup(state);
}

static int teardown(void **state)
{
	struct kit *k = *state;
	struct err err = { 0 };
	ws_close(k->ws);
	work_close(k->root.work);
	io_power_free(d.power);
	d.big_file = 0;
	free(k);
	succeed(err, io_remove_tree(AT_FDCWD, d.dir, &err));
	return 0;
}

/* The power goes now, and of what wasn't synced nothing is left, or all. */
static void lose_power(struct kit *k, bool all)
{
	struct io_power_loss loss = { .what = all ? LOSE_ALL : LOSE_NONE };
	struct err err = { 0 };
	succeed(err, io_power_make(d.power, io_power_now(d.power), &loss, d.after, &err));
	ws_discard(k->ws);
	work_close(k->root.work);
	open_root(k, d.after, NULL);
	succeed(err, ws_open(&k->ws, k->root.work, "w", &err));
	kit_check_usage(k->ws);
}

/* So many bytes of that letter. */
static void fill(struct kit *k, const char *path, char c, uint64_t n, uint64_t off)
{
	char *b = malloc(n);
	assert_non_null(b);
	memset(b, c, n);
	tree_write(k->ws, path, b, n, off);
	free(b);
}

/* It has that many bytes, of which each block is of one of these letters. */
static void look(struct kit *k, const char *path, uint64_t want, const char *letters)
{
	size_t size;
	char *b = kit_read(k->ws, path, &size);
	if (size != want)
		fail_msg("%s has %zu bytes", path, size);
	for (size_t at = 0; at < size; at++)
		if (!strchr(letters, b[at]) || (at % 4096 && b[at] != b[at - 1]))
			fail_msg("%s: %d at %zu", path, b[at], at);
	free(b);
}

static void sync_it(struct kit *k, const char *path)
{
	expect(0, ws_fsync(k->ws, tree_node(k->ws, path)));
}

/* A workspace that is durable, with one file of each kind. */
static void begin(struct kit *k)
{
	struct err err = { 0 };
	tree_put(k->ws, "small", "old");
	fill(k, "big", 'a', BIG, 0);
	succeed(err, ws_commit(k->ws, &err));
	assert_false(layer_is_dirty(active(k->ws)));
	d.syncs = 0;
}

/* ---- left out ---- */

static void test_left_out(void **state)
{
	struct kit *k = *state;
	begin(k);
	fill(k, "big", 'b', BIG, 4096);
	fill(k, "big", 'b', BIG, BIG + 4096);
	fill(k, "new", 'n', 2 * BIG, 0);
	tree_put(k->ws, "small", "new");
	sync_it(k, "small");
	assert_int_equal(d.syncs, 0);
	assert_true(layer_is_dirty(active(k->ws)));
	sync_it(k, "small");
	assert_int_equal(d.syncs, 0);
	lose_power(k, true);
	kit_expect_text(k->ws, "small", "new");
	look(k, "big", BIG, "ab");
	look(k, "new", 0, "");
	/* It goes on from there. */
	fill(k, "big", 'c', 2 * BIG, BIG / 2);
	look(k, "big", BIG / 2 * 5, "abc");
	kit_check_usage(k->ws);
	kit_reopen(k);
	kit_check_usage(k->ws);
	look(k, "big", BIG / 2 * 5, "abc");
	look(k, "new", 0, "");
}

/* What the disk has of it nevertheless is given back. */
static void test_leftovers(void **state)
{
	struct kit *k = *state;
	struct err err = { 0 };
	char path[200], hex[2 * LAYER_ID_BYTES + 1];
	begin(k);
	fill(k, "new", 'n', BIG, 0);
	uint64_t ino = kit_attr(k->ws, "new").ino;
	sync_it(k, "small");
	lose_power(k, false);
	look(k, "new", 0, "");
	hex_encode(hex, layer_id(active(k->ws))->b, LAYER_ID_BYTES);
	(void)snprintf(path, sizeof(path), "%s/layers/%s/f%llx", d.after, hex,
		       (unsigned long long)ino);
	assert_int_equal(access(path, F_OK), 0);
	tree_put(k->ws, "small", "newer");
	succeed(err, ws_commit(k->ws, &err));
	assert_int_equal(access(path, F_OK), -1);
	fill(k, "new", 'm', BIG, 0);
	look(k, "new", BIG, "m");
}

/* What it had is nobody else's yet, though it has something else there now. */
static void test_nothing_freed(void **state)
{
	struct kit *k = *state;
	struct err err = { 0 };
	fill(k, "z", 'z', 65536, 0);
	tree_mk(k->ws, "big", S_IFREG | 0644);
	tree_put(k->ws, "small", "old");
	expect(65536, ws_copy_range(k->ws, tree_node(k->ws, "z"), 0, tree_node(k->ws, "big"), 0,
				    65536, &root_caller));
	succeed(err, ws_commit(k->ws, &err));
	fill(k, "big", 'b', 2 * BIG, 0);
	tree_rm(k->ws, "z");
	for (unsigned i = 0; i < 4; i++) {
		char name[8];
		(void)snprintf(name, sizeof(name), "w%u", i);
		sync_it(k, "small");
		fill(k, name, 'w', 65536, 0);
		sync_it(k, name);
	}
	lose_power(k, true);
	look(k, "big", 65536, "z");
	look(k, "w3", 65536, "w");
}

static void test_cut_back(void **state)
{
	struct kit *k = *state;
	struct attr in = { .size = BIG / 2 }, out;
	begin(k);
	expect(0, ws_setattr(k->ws, tree_node(k->ws, "big"), WS_SET_SIZE, &in, &root_caller, &out));
	fill(k, "big", 'b', BIG * 2, BIG / 2);
	sync_it(k, "small");
	lose_power(k, false);
	look(k, "big", BIG / 2, "a");
}

static void test_since_its_own_fsync(void **state)
{
	struct kit *k = *state;
	begin(k);
	fill(k, "big", 'b', BIG, BIG);
	sync_it(k, "big");
	assert_true(d.syncs > 0);
	d.syncs = 0;
	fill(k, "big", 'c', BIG, BIG * 2);
	sync_it(k, "small");
	fill(k, "big", 'd', BIG, BIG * 3);
	tree_put(k->ws, "small", "newer");
	sync_it(k, "small");
	assert_int_equal(d.syncs, 0);
	lose_power(k, true);
	kit_expect_text(k->ws, "small", "newer");
	look(k, "big", BIG * 2, "ab");
}

/* What the log of fsyncs has of a file isn't lost when the log ends. */
static void test_log(void **state)
{
	struct kit *k = *state;
	begin(k);
	fill(k, "other", 'o', BIG, 0);
	sync_it(k, "other");
	for (unsigned i = 0; i < 4; i++) {
		struct err err = { 0 };
		succeed(err, ws_commit(k->ws, &err));
		fill(k, "other", 'p', 4096, BIG + i * 4096);
		sync_it(k, "other");
	}
	assert_true(active(k->ws)->log.count > 0);
	fill(k, "other", 'q', BIG, BIG + 4 * 4096);
	fill(k, "big", 'b', BIG, BIG);
	sync_it(k, "small");
	assert_int_equal(active(k->ws)->log.count, 0);
	lose_power(k, true);
	look(k, "other", BIG * 2 + 4 * 4096, "opq");
	look(k, "big", BIG, "a");
}

/* ---- not left out ---- */

static void take_rename(struct kit *k)
{
	fill(k, "big.tmp", 'b', BIG, 0);
	expect(0, ws_rename(k->ws, 1, "big.tmp", 7, 1, "big", 3, 0, &root_caller));
}

static void take_exchange(struct kit *k)
{
	fill(k, "big.tmp", 'b', BIG, 0);
	expect(0, ws_rename(k->ws, 1, "big.tmp", 7, 1, "big", 3, RENAME_EXCHANGE, &root_caller));
}

static void take_anew(struct kit *k)
{
	struct attr in = { .size = 0 }, out;
	expect(0, ws_setattr(k->ws, tree_node(k->ws, "big"), WS_SET_SIZE, &in, &root_caller, &out));
	fill(k, "big", 'b', BIG, 0);
}

/* Its copy leads into its file. */
static void take_copy(struct kit *k)
{
	fill(k, "from", 'b', BIG, 0);
	tree_rm(k->ws, "big");
	tree_mk(k->ws, "big", S_IFREG | 0644);
	uint64_t from = tree_node(k->ws, "from"), to = tree_node(k->ws, "big");
	uint64_t n = 0;
	while (n < BIG) {
		ssize_t r = ws_copy_range(k->ws, from, n, to, n, BIG - n, &root_caller);
		assert_true(r > 0);
		n += (uint64_t)r;
	}
}

static void test_taken(void **state)
{
	static void (*const how[])(struct kit *k) = { take_rename, take_exchange, take_anew,
						      take_copy };
	(void)state;
	for (unsigned i = 0; i < sizeof(how) / sizeof(how[0]); i++) {
		void *s;
		setup(&s);
		struct kit *k = s;
		begin(k);
		fill(k, "beside", 'x', BIG, 0);
		how[i](k);
		sync_it(k, "small");
		assert_true(d.syncs > 0);
		lose_power(k, true);
		look(k, "big", BIG, "b");
		look(k, "beside", 0, "");
		teardown(&s);
	}
}

/* A fork's child has all that was written before it. */
static void test_fork(void **state)
{
	struct kit *k = *state;
	struct err err = { 0 };
	begin(k);
	fill(k, "big", 'b', BIG, BIG);
	sync_it(k, "small");
	struct ws *c = kit_fork(k->ws, "c");
	tree_put(c, "child", "x");
	expect(0, ws_fsync(c, tree_node(c, "child")));
	ws_discard(c);
	lose_power(k, true);
	succeed(err, ws_open(&c, k->root.work, "c", &err));
	struct attr a = kit_attr(c, "big");
	assert_int_equal(a.size, 2 * BIG);
	kit_check_usage(c);
	ws_close(c);
}

/* What is deleted is neither synced nor kept. */
static void test_deleted(void **state)
{
	struct kit *k = *state;
	struct err err = { 0 };
	begin(k);
	fill(k, "gone", 'g', BIG, 0);
	tree_rm(k->ws, "gone");
	sync_it(k, "small");
	assert_int_equal(d.syncs, 0);
	succeed(err, ws_commit(k->ws, &err));
	assert_int_equal(d.syncs, 0);
	lose_power(k, true);
	look(k, "big", BIG, "a");
}

/* ---- at the same time ---- */

static void *commit_thread(void *arg)
{
	struct kit *k = arg;
	struct err err = { 0 };
	succeed(err, ws_commit(k->ws, &err));
	return NULL;
}

/* An fsync doesn't wait for the bytes that a whole commit writes out. */
static void test_beside_a_commit(void **state)
{
	struct kit *k = *state;
	pthread_t thread;
	begin(k);
	fill(k, "big", 'b', BIG, 0);
	tree_put(k->ws, "small", "new");
	d.hold = true;
	expect(0, pthread_create(&thread, NULL, commit_thread, k));
	pthread_mutex_lock(&d.lock);
	while (!d.held)
		pthread_cond_wait(&d.cond, &d.lock);
	pthread_mutex_unlock(&d.lock);
	sync_it(k, "small");
	pthread_mutex_lock(&d.lock);
	d.hold = false;
	pthread_cond_broadcast(&d.cond);
	pthread_mutex_unlock(&d.lock);
	expect(0, pthread_join(thread, NULL));
	assert_false(layer_is_dirty(active(k->ws)));
	lose_power(k, true);
	kit_expect_text(k->ws, "small", "new");
	look(k, "big", BIG, "b");
}

enum { LITTLE = LAYER_LOG_DATA + 65536, ROUNDS = 40 };
static _Atomic bool enough;
static _Atomic unsigned begun;

static void *write_thread(void *arg)
{
	struct kit *k = arg;
	static const char b[LITTLE];
	uint64_t node = tree_node(k->ws, "big");
	for (begun++; !enough;)
		expect(0, ws_write(k->ws, node, b, LITTLE, LITTLE, false, &root_caller));
	return NULL;
}

static void *small_thread(void *arg)
{
	struct kit *k = arg;
	uint64_t node = tree_node(k->ws, "small");
	for (begun++; !enough;) {
		expect(0, ws_write(k->ws, node, "again", 5, 0, false, &root_caller));
		expect(0, ws_fsync(k->ws, node));
	}
	return NULL;
}

/* Who waits for another's fsync has his own file synced, though it is being written to. */
static void test_joined(void **state)
{
	struct kit *k = *state;
	pthread_t small, writer;
	unsigned left_out = 0;
	fill(k, "big", 'a', LITTLE, 0);
	tree_put(k->ws, "small", "old");
	sync_it(k, "big");
	struct layer *l = active(k->ws);
	uint64_t big = kit_attr(k->ws, "big").ino;
	enough = false;
	begun = 0;
	expect(0, pthread_create(&small, NULL, small_thread, k));
	expect(0, pthread_create(&writer, NULL, write_thread, k));
	while (begun < 2)
		(void)sched_yield();
	for (unsigned i = 0; i < ROUNDS; i++) {
		fill(k, "big", 'm', LITTLE, 0);
		pthread_mutex_lock(&l->journal.lock);
		uint64_t frame = l->journal.last_op;
		pthread_mutex_unlock(&l->journal.lock);
		sync_it(k, "big");
		pthread_mutex_lock(&l->commit.lock);
		for (uint32_t j = 0; j < l->commit.nlate; j++)
			left_out += l->commit.late[j].ino == big &&
				    l->commit.late[j].since < frame;
		pthread_mutex_unlock(&l->commit.lock);
	}
	enough = true;
	expect(0, pthread_join(small, NULL));
	expect(0, pthread_join(writer, NULL));
	assert_int_equal(left_out, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_left_out),
		T(test_leftovers),
		T(test_nothing_freed),
		T(test_cut_back),
		T(test_since_its_own_fsync),
		T(test_log),
		cmocka_unit_test(test_taken),
		T(test_fork),
		T(test_deleted),
		T(test_beside_a_commit),
		cmocka_unit_test_setup_teardown(test_joined, setup_little, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
