/* Reading ahead: what is loaded, in which order, how far, and when that ends. Over a tree of
 * numbers in place of a workspace, and then over workspaces. */
#include <pthread.h>
#include <unistd.h>

#include "fs/work/readahead.h"
#include "ws_kit.h"

/* ---- a tree whose files are 1 … files, in this order ---- */

enum { FOLDER = 7, LOADS_MAX = 4096 };

struct numbers {
	pthread_mutex_t lock;
	pthread_cond_t change;
	uint64_t files;
	uint32_t bytes;           /* of each */
	bool hold_list, hold_load; /* they wait */
	bool in_list, in_load; /* it was called */
	uint64_t fail_at; /* this one can't be loaded; 0: none */
	uint64_t loads[LOADS_MAX];
	unsigned nloads, lists;
	struct readahead *ra;
};

static int number_list(void *tree, struct ahead_place *at, struct ahead_item *items, unsigned max)
{
	struct numbers *t = tree;
	unsigned n = 0;
	pthread_mutex_lock(&t->lock);
	t->lists++;
	t->in_list = true;
	pthread_cond_broadcast(&t->change);
	while (t->hold_list)
		pthread_cond_wait(&t->change, &t->lock);
	assert_int_equal(at->dir, FOLDER);
	for (; n < max && at->cookie < t->files; n++) {
		at->cookie++;
		items[n] = (struct ahead_item){ .ino = at->cookie, .bytes = t->bytes };
		memcpy(items[n].object.b, &at->cookie, sizeof(at->cookie));
	}
	t->in_list = false;
	pthread_mutex_unlock(&t->lock);
	return (int)n;
}

static int number_load(void *ctx, const struct digest *object)
{
	struct numbers *t = ctx;
	uint64_t ino;
	memcpy(&ino, object->b, sizeof(ino));
	pthread_mutex_lock(&t->lock);
	t->in_load = true;
	pthread_cond_broadcast(&t->change);
	while (t->hold_load)
		pthread_cond_wait(&t->change, &t->lock);
	if (t->nloads < LOADS_MAX)
		t->loads[t->nloads++] = ino;
	int r = ino == t->fail_at ? -EIO : 0;
	pthread_mutex_unlock(&t->lock);
	return r;
}

static void numbers_open(struct numbers *t, uint64_t files, uint32_t bytes)
{
	*t = (struct numbers){ .files = files, .bytes = bytes };
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->change, NULL);
	struct ahead_ops ops = { number_list, number_load, t };
	expect(0, readahead_new(&t->ra, &ops, 0));
}

static void numbers_close(struct numbers *t)
{
	readahead_free(t->ra);
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->change);
}

static void let_go(struct numbers *t, bool *hold)
{
	pthread_mutex_lock(&t->lock);
	*hold = false;
	pthread_cond_broadcast(&t->change);
	pthread_mutex_unlock(&t->lock);
}

static void wait_for(struct numbers *t, const bool *flag)
{
	pthread_mutex_lock(&t->lock);
	while (!*flag)
		pthread_cond_wait(&t->change, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

static void read_one(struct numbers *t, uint64_t ino)
{
	struct ahead_stats before, after;
	readahead_stats(t->ra, &before);
	do { /* the thread may just have the lock: then a note is lost */
		readahead_note(t->ra, t, ino, (struct ahead_place){ FOLDER, ino });
		readahead_stats(t->ra, &after);
	} while (after.notes == before.notes);
}

/* Until the thread has nothing to do. */
static struct ahead_stats settle(struct numbers *t)
{
	struct ahead_stats st;
	for (int i = 0; readahead_is_busy(t->ra); i++) {
		assert_true(i < 60000);
		usleep(1000);
	}
	readahead_stats(t->ra, &st);
	return st;
}

static void order_and_bound(void **state)
{
	struct numbers t;
	const uint32_t bytes = 10000;
	numbers_open(&t, 3000, bytes);
	read_one(&t, 1);
	struct ahead_stats st = settle(&t);
	assert_int_equal(st.checks, 0); /* one read says nothing */
	read_one(&t, 2);
	st = settle(&t);
	assert_int_equal(st.streams, 1);
	assert_int_equal(t.nloads, AHEAD_WINDOW_MIN / bytes + 1);
	for (uint64_t i = 3; i <= 3000; i++) {
		read_one(&t, i);
		if (i % 4 == 0 && i < 2900) {
			st = settle(&t);
			uint64_t ahead = t.loads[t.nloads - 1] - i;
			assert_in_range(ahead, 1, AHEAD_WINDOW_MAX / bytes + 1);
		}
	}
	st = settle(&t);
	assert_int_equal(st.streams, 1);
	assert_int_equal(st.skips, 0);
	assert_true(st.foreseen > 2800);
	for (unsigned i = 1; i < t.nloads; i++)
		assert_true(t.loads[i] > t.loads[i - 1]); /* in order, none twice */
	assert_true(t.nloads > 2000); /* but for those that the reader was quicker at */
	assert_true(t.nloads <= 2998);
	numbers_close(&t);
}

static void here_and_there(void **state)
{
	struct numbers t;
	numbers_open(&t, 1000000, 1);
	for (uint64_t i = 1; i <= 2000; i++) {
		read_one(&t, i * 7919 % 1000000 + 1);
		if (i < 200)
			(void)settle(&t);
	}
	struct ahead_stats st = settle(&t);
	assert_in_range(st.checks, 1, 50);
	assert_int_equal(st.streams, 0);
	assert_int_equal(t.nloads, 0);
	for (uint64_t i = 1; i <= 100; i++) /* who comes to reason is found out */
		read_one(&t, 500 + i);
	st = settle(&t);
	assert_int_equal(st.streams, 1);
	numbers_close(&t);
}

/* Most of what was foreseen isn't read, since the kernel has it. */
static void passed_over(void **state)
{
	struct numbers t;
	numbers_open(&t, 100000, 1000);
	for (uint64_t i = 1; i < 100; i++)
		read_one(&t, i);
	struct ahead_stats st = settle(&t);
	assert_int_equal(st.streams, 1);
	for (uint64_t i = 100; i < 20000; i += 100) {
		read_one(&t, i);
		st = settle(&t);
	}
	assert_true(st.ends >= 1);
	assert_true(t.nloads < 2500);
	numbers_close(&t);
}

static void end_of_tree(void **state)
{
	struct numbers t;
	numbers_open(&t, 40, 1000);
	for (uint64_t i = 1; i <= 40; i++)
		read_one(&t, i);
	struct ahead_stats st = settle(&t);
	unsigned lists = t.lists;
	for (uint64_t i = 1; i <= 5; i++)
		read_one(&t, 1);
	st = settle(&t);
	assert_int_equal(st.ends, 1);
	assert_true(t.lists <= lists + 1);
	numbers_close(&t);
}

static void bad_content(void **state)
{
	struct numbers t;
	numbers_open(&t, 1000, 1000);
	t.fail_at = 20;
	read_one(&t, 1);
	read_one(&t, 2);
	struct ahead_stats st = settle(&t);
	assert_int_equal(st.ends, 1);
	assert_int_equal(t.loads[t.nloads - 1], 20);
	/* Reads go on, and after a while so do we. */
	for (uint64_t i = 3; i <= 60; i++)
		read_one(&t, i);
	st = settle(&t);
	assert_true(st.streams >= 2);
	assert_true(t.loads[t.nloads - 1] > 60);
	numbers_close(&t);
}

/* A reader that is faster leaves no work behind that nobody needs. */
static void overtaken(void **state)
{
	struct numbers t;
	numbers_open(&t, 1000, 1000);
	t.hold_load = true;
	read_one(&t, 1);
	read_one(&t, 2);
	wait_for(&t, &t.in_load);
	for (uint64_t i = 3; i <= 12; i++)
		read_one(&t, i);
	let_go(&t, &t.hold_load);
	(void)settle(&t);
	assert_int_equal(t.loads[0], 3); /* was under way */
	assert_true(t.loads[1] > 12);
	numbers_close(&t);
}

static void *forget_thread(void *arg)
{
	struct numbers *t = arg;
	readahead_forget(t->ra, t);
	assert_false(t->in_list);
	return NULL;
}

static void forget(void **state)
{
	struct numbers t;
	pthread_t thread;
	numbers_open(&t, 1000, 1000);
	t.hold_list = true;
	read_one(&t, 1);
	read_one(&t, 2);
	wait_for(&t, &t.in_list);
	assert_int_equal(pthread_create(&thread, NULL, forget_thread, &t), 0);
	usleep(5000);
	let_go(&t, &t.hold_list);
	assert_int_equal(pthread_join(thread, NULL), 0);
	struct ahead_stats st = settle(&t);
	assert_int_equal(st.streams, 0);
	assert_int_equal(t.nloads, 0);
	assert_int_equal(t.lists, 1);
	numbers_close(&t); /* and with a load under way: */
	numbers_open(&t, 1000, 1000);
	read_one(&t, 1);
	read_one(&t, 2);
	readahead_trim(t.ra);
	readahead_forget(t.ra, &t);
	numbers_close(&t);
	readahead_note(NULL, NULL, 1, (struct ahead_place){ 0 });
	readahead_forget(NULL, NULL);
	readahead_trim(NULL);
	readahead_free(NULL);
}

/* ---- workspaces ---- */

enum { DIRS = 12, FILES = 9, FILE_BYTES = 5000 };

struct walk {
	uint64_t files[DIRS * FILES + FILES]; /* in the order of a walk */
	size_t n;
};

static void fill(struct ws *ws)
{
	char path[64], data[FILE_BYTES];
	for (int d = 0; d <= DIRS; d++) {
		(void)snprintf(path, sizeof(path), "d%d", d);
		if (d < DIRS)
			tree_mk(ws, path, S_IFDIR | 0755);
		for (int f = 0; f < FILES; f++) {
			(void)snprintf(path, sizeof(path), d < DIRS ? "d%d/f%d" : "top%d%d", d, f);
			memset(data, 'a' + (d * FILES + f) % 26, sizeof(data));
			(void)snprintf(data, sizeof(data), "%d %d", d, f);
			tree_write(ws, path, data, sizeof(data), 0);
		}
	}
}

static int walk_one(void *ctx, const char *path, size_t len, const struct attr *a)
{
	struct walk *w = ctx;
	if (S_ISREG(a->mode))
		w->files[w->n++] = node_of(a);
	return 0;
}

static int walk_all(void *ctx, const struct view *v)
{
	return view_walk(v, walk_one, ctx, NULL);
}

struct scene {
	struct tree_root root;
	struct stack saved;
};

static void scene_open(struct scene *s)
{
	auto_stack sealed = { 0 };
	struct err err = { 0 };
	tree_root_open(&s->root);
	struct ws *ws = tree_create(&s->root, "first", NULL);
	fill(ws);
	tree_seal(ws, &sealed);
	tree_save(&s->root, &sealed, &s->saved);
	ws_close(ws);
	work_close(s->root.work);
	struct work_options opt = { .commit_ms = UINT64_MAX, .read_ahead = true };
	succeed(err, work_open(&s->root.work, s->root.dir, &opt, &err));
	work_view_options(s->root.work, &s->root.opt);
}

static void scene_close(struct scene *s)
{
	stack_done(&s->saved);
	tree_root_close(&s->root);
}

static struct store_stats stats(struct scene *s)
{
	struct store_stats st;
	expect(0, store_stats(work_store(s->root.work), &st, NULL));
	return st;
}

/* All of the tree, across its folders, comes after the first two files. */
static void whole_tree(void **state)
{
	struct scene s;
	struct walk w = { .n = 0 };
	char buf[FILE_BYTES];
	scene_open(&s);
	struct ws *ws = tree_create(&s.root, "second", &s.saved);
	expect(0, ws_with_view(ws, walk_all, &w));
	assert_int_equal(w.n, DIRS * FILES + FILES);
	uint64_t misses = stats(&s).cache_misses;
	expect(FILE_BYTES, ws_read(ws, w.files[0], buf, sizeof(buf), 0));
	expect(FILE_BYTES, ws_read(ws, w.files[1], buf, sizeof(buf), 0));
	for (int i = 0; i < 60000 && stats(&s).cache_misses < misses + 20; i++)
		usleep(1000);
	assert_true(stats(&s).cache_misses >= misses + 20);
	for (size_t i = 2; i < w.n; i++) {
		expect(FILE_BYTES, ws_read(ws, w.files[i], buf, sizeof(buf), 0));
		assert_int_equal(strlen(buf) + 1 < 8, 1);
	}
	for (int i = 0; i < 60000 && ws_reads_ahead(ws); i++)
		usleep(1000);
	assert_true(stats(&s).cache_misses <= misses + 2 * w.n); /* at worst, both at the same */
	ws_close(ws);
	scene_close(&s);
}

/* Forked, closed and deleted while the thread is at it. */
static void goes_meanwhile(void **state)
{
	struct scene s;
	struct err err = { 0 };
	scene_open(&s);
	for (int round = 0; round < 40; round++) {
		struct walk w = { .n = 0 };
		char buf[FILE_BYTES];
		work_trim(s.root.work);
		struct ws *ws = tree_create(&s.root, "second", &s.saved);
		expect(0, ws_with_view(ws, walk_all, &w));
		for (size_t i = 0; i < 2 + (size_t)round; i++)
			expect(FILE_BYTES, ws_read(ws, w.files[i], buf, sizeof(buf), 0));
		struct ws *child = kit_fork(ws, "child");
		ws_close(ws);
		succeed(err, ws_delete(s.root.work, "second", &err));
		expect(FILE_BYTES, ws_read(child, w.files[0], buf, sizeof(buf), 0));
		expect(FILE_BYTES, ws_read(child, w.files[1], buf, sizeof(buf), 0));
		ws_close(child);
		succeed(err, ws_delete(s.root.work, "child", &err));
	}
	scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(order_and_bound), cmocka_unit_test(here_and_there),
		cmocka_unit_test(passed_over),     cmocka_unit_test(end_of_tree),
		cmocka_unit_test(bad_content),     cmocka_unit_test(overtaken),
		cmocka_unit_test(forget),          cmocka_unit_test(whole_tree),
		cmocka_unit_test(goes_meanwhile),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
