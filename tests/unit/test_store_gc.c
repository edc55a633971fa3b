/* Garbage collection: what it keeps and frees, beside writers and readers, and killed anywhere. */
#include "tests/unit/store_tools.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include "fs/base/buf.h"
#include "fs/base/io_fault.h"
#include "fs/store/internal.h"
#include "tests/unit/oom.h"

/* What is alive: contents n < to with n % every == 0. */
struct alive {
	uint64_t to, every;
	unsigned calls;
	int fail_at;
	void (*during)(void *ctx);
	void *ctx;
};

static int mark(void *ctx, struct store_gc *gc, struct err *err)
{
	struct alive *a = ctx;
	a->calls++;
	if (a->fail_at && --a->fail_at == 0)
		return err_set(err, -EIO, "the catalog fails");
	if (a->during)
		a->during(a->ctx);
	for (uint64_t n = 0; n < a->to; n += a->every) {
		struct digest d = digest_of(n);
		store_gc_mark(gc, &d, NULL);
	}
	return 0;
}

static const struct store_options small = { .pack_bytes = STORE_PACK_BYTES_MIN };

static void expect_alive(struct store *s, const struct alive *a)
{
	store_trim(s, 0);
	for (uint64_t n = 0; n < a->to; n += a->every)
		if (try_get(s, n) < 0)
			fail_msg("content %llu is gone", (unsigned long long)n);
}

static uint64_t disk_use(const struct scratch *sc)
{
	uint64_t sum = 0;
	char path[512];
	unsigned n = packs(sc, 0, NULL);
	for (unsigned i = 0; i < n; i++) {
		(void)packs(sc, i, path);
		sum += file_size(path);
	}
	return sum;
}

static void test_frees(void **state)
{
	struct scratch *sc = *state;
	static const struct {
		uint64_t every;
		bool works;
	} cases[] = { { 1, false }, { 7, true }, { 2, true }, { 100000, true } };
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct store *s = open_store(sc->store, &small);
		put_range(s, 0, 400); /* no session is left, so no pack is held back */
		uint64_t before = disk_use(sc);
		struct alive a = { .to = 400, .every = cases[i].every };
		struct store_gc_stats st;
		struct err err;
		ok(store_gc(s, mark, &a, &st, &err), &err);
		expect_alive(s, &a);
		assert_int_equal(check(s, false), 0);
		assert_int_equal(st.objects_live, (399 / a.every) + 1);
		assert_int_equal(st.objects_live + st.objects_dead, 400);
		if (cases[i].works) {
			assert_true(st.packs_deleted > 0);
			assert_true(a.calls == 2);
			assert_true(disk_use(sc) < before);
		} else {
			assert_int_equal(st.packs_deleted, 0);
			assert_int_equal(a.calls, 1); /* nothing was condemned */
		}
		/* At most as much is dead as alive, and what is in the open pack. */
		struct store_stats all;
		ok(store_stats(s, &all, &err), &err);
		/* A second one finds little to do, and what is gone can be put again. */
		ok(store_gc(s, mark, &a, &st, &err), &err);
		put_range(s, 0, 400);
		get_range(s, 0, 400);
		store_close(s);
		s = open_store(sc->store, &small);
		get_range(s, 0, 400);
		assert_int_equal(check(s, false), 0);
		store_close(s);
		assert_int_equal(io_remove_tree(AT_FDCWD, sc->store, NULL), 0);
	}
}

static void test_mark_fails(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, &small);
	put_range(s, 0, 200);
	store_close(s);
	s = open_store(sc->store, &small);
	for (int k = 1; k <= 2; k++) {
		struct alive a = { .to = 200, .every = 50, .fail_at = k };
		struct err err;
		assert_int_equal(store_gc(s, mark, &a, NULL, &err), -EIO);
		assert_string_equal(err.text, "the catalog fails");
		struct store_stats st0, st1;
		ok(store_stats(s, &st0, &err), &err);
		put_range(s, 0, 200); /* all is pardoned: every put is a hit */
		ok(store_stats(s, &st1, &err), &err);
		assert_int_equal(st1.put_hits - st0.put_hits, 200);
	}
	store_close(s);
}

/* One gc at a time, and none beside a check. */
static void nested(void *ctx)
{
	struct err err;
	assert_int_equal(store_gc(ctx, mark, NULL, NULL, &err), -EBUSY);
	assert_int_equal(store_check(ctx, false, NULL, NULL, &err), -EBUSY);
}

static void test_one_at_a_time(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, &small);
	put_range(s, 0, 10);
	struct alive a = { .to = 10, .every = 1, .during = nested, .ctx = s };
	ok(store_gc(s, mark, &a, NULL, NULL), NULL);
	store_close(s);
}

/* ---- beside others ---- */

/* A put between condemning and marking: it may not rely on what is condemned, and what it
 * puts stays though nobody marks it. */
struct during {
	struct store *s;
	struct store_session *ss;
	unsigned calls;
};

static void put_during(void *ctx)
{
	struct during *d = ctx;
	if (++d->calls != 2)
		return;
	d->ss = begin(d->s);
	for (uint64_t n = 1; n < 100; n += 2)
		ok(try_put(d->ss, n), NULL);
}

static void test_put_during(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, &small);
	put_range(s, 0, 200);
	store_close(s);
	s = open_store(sc->store, &small);
	struct during d = { .s = s };
	struct alive a = { .to = 200, .every = 10, .during = put_during, .ctx = &d };
	struct store_gc_stats st;
	struct err err;
	ok(store_gc(s, mark, &a, &st, &err), &err);
	assert_true(st.packs_deleted > 0);
	ok(store_sync(d.ss, &err), &err);
	store_session_end(d.ss);
	expect_alive(s, &a);
	for (uint64_t n = 1; n < 100; n += 2)
		ok(try_get(s, n), NULL);
	assert_int_equal(check(s, false), 0);
	store_close(s);
}

/* A session that began before is waited for, and what it relied on is kept if it was named by
 * then. */
struct waiter {
	struct store *s;
	atomic_bool done;
	struct alive a;
	int result;
};

static void *collect(void *ctx)
{
	struct waiter *w = ctx;
	w->result = store_gc(w->s, mark, &w->a, NULL, NULL);
	atomic_store(&w->done, true);
	return NULL;
}

static void test_waits(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, &small);
	put_range(s, 0, 200);
	store_close(s);
	s = open_store(sc->store, &small);
	struct store_session *ss = begin(s);
	ok(try_put(ss, 33), NULL); /* a hit in a pack that will be condemned */
	struct waiter w = { .s = s, .a = { .to = 200, .every = 33 } };
	pthread_t t;
	assert_int_equal(pthread_create(&t, NULL, collect, &w), 0);
	usleep(50000);
	assert_false(atomic_load(&w.done));
	ok(store_sync(ss, NULL), NULL);
	store_session_end(ss);
	(void)pthread_join(t, NULL);
	ok(w.result, NULL);
	expect_alive(s, &w.a);
	store_close(s);
}

/* It ends where it is asked to, at a pack or while it waits for a session: what is alive stays,
 * what was condemned is relied on again, and the next one does the rest. */
struct asking {
	struct alive a;
	uint64_t after, total; /* packs that it goes through; those that there were */
	bool waits;
};

static bool stop_asking(void *ctx, uint64_t done, uint64_t total)
{
	struct asking *k = ctx;
	k->waits |= total == 0;
	k->total = total;
	return total == 0 || done >= k->after;
}

static int mark_asking(void *ctx, struct store_gc *gc, struct err *err)
{
	struct asking *k = ctx;
	store_gc_ask(gc, stop_asking, k);
	return mark(&k->a, gc, err);
}

static void test_cancelled(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, &small);
	struct store_gc_stats st;
	struct err err;
	put_range(s, 0, 400);
	store_close(s);
	s = open_store(sc->store, &small);
	uint64_t before = disk_use(sc);
	for (int waiting = 1; waiting >= 0; waiting--) {
		struct asking k = { .a = { .to = 400, .every = 50 } };
		struct store_session *ss = waiting ? begin(s) : NULL;
		assert_int_equal(store_gc(s, mark_asking, &k, NULL, &err), -ECANCELED);
		assert_int_equal(k.waits, waiting);
		assert_true(waiting || k.total > 2);
		if (ss)
			store_session_end(ss);
		assert_int_equal(disk_use(sc), before);
		get_range(s, 0, 400);
		struct store_stats st0, st1;
		ok(store_stats(s, &st0, &err), &err);
		put_range(s, 0, 400);
		ok(store_stats(s, &st1, &err), &err);
		assert_int_equal(st1.put_hits - st0.put_hits, 400);
	}
	struct asking k = { .a = { .to = 400, .every = 50 }, .after = 2 };
	assert_int_equal(store_gc(s, mark_asking, &k, NULL, &err), -ECANCELED);
	assert_true(disk_use(sc) < before);
	expect_alive(s, &k.a);
	ok(store_gc(s, mark, &k.a, &st, &err), &err);
	assert_true(st.packs_deleted > 0);
	expect_alive(s, &k.a);
	assert_int_equal(check(s, false), 0);
	store_close(s);
}

static void die_in_session(void *ctx)
{
	struct scratch *sc = ctx;
	struct store *s = open_store(sc->store, &small);
	struct store_session *ss = begin(s);
	ok(try_put(ss, 5), NULL);
}

/* A dead process's session counts for nothing. */
static void test_dead_session(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, &small);
	put_range(s, 0, 200);
	store_close(s);
	in_child(die_in_session, sc);
	s = open_store(sc->store, &small);
	struct alive a = { .to = 200, .every = 40 };
	ok(store_gc(s, mark, &a, NULL, NULL), NULL);
	expect_alive(s, &a);
	auto_dir *dir = opendir(store_file(sc, "sessions"));
	struct dirent *de;
	while ((de = readdir(dir)))
		assert_true(de->d_name[0] == '.');
	store_close(s);
}

/* Threads that read and save while one collects again and again. */
struct mill {
	struct store *s;
	atomic_bool stop;
	atomic_uint bad;
};

static void *read_alive(void *ctx)
{
	struct mill *m = ctx;
	uint64_t seed = 99;
	while (!atomic_load(&m->stop)) {
		struct digest d = digest_of(rnd(&seed) % 20 * 10);
		const struct blob *b;
		if (store_get(m->s, &d, &b, NULL) < 0)
			atomic_fetch_add(&m->bad, 1);
		else
			blob_put(b);
		store_trim(m->s, 0);
	}
	return NULL;
}

static void *save_and_lose(void *ctx)
{
	struct mill *m = ctx;
	for (uint64_t k = 0; !atomic_load(&m->stop); k++) {
		struct store_session *ss;
		if (store_session_begin(m->s, &ss, NULL) < 0) {
			atomic_fetch_add(&m->bad, 1);
			continue;
		}
		for (uint64_t n = 0; n < 60; n++)
			if (try_put(ss, 200 + (k * 13 + n) % 300) < 0)
				atomic_fetch_add(&m->bad, 1);
		if (store_sync(ss, NULL) < 0)
			atomic_fetch_add(&m->bad, 1);
		/* As long as the session lasts, all of it is there. */
		for (uint64_t n = 0; n < 60; n++)
			if (try_get(m->s, 200 + (k * 13 + n) % 300) < 0)
				atomic_fetch_add(&m->bad, 1);
		store_session_end(ss);
	}
	return NULL;
}

static void test_mill(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, &small);
	put_range(s, 0, 200);
	struct mill m = { .s = s };
	pthread_t t[3];
	assert_int_equal(pthread_create(&t[0], NULL, read_alive, &m), 0);
	assert_int_equal(pthread_create(&t[1], NULL, save_and_lose, &m), 0);
	assert_int_equal(pthread_create(&t[2], NULL, save_and_lose, &m), 0);
	uint64_t deleted = 0;
	for (int i = 0; i < 10; i++) {
		struct alive a = { .to = 200, .every = 10 };
		struct store_gc_stats st;
		struct err err;
		ok(store_gc(s, mark, &a, &st, &err), &err);
		deleted += st.packs_deleted;
	}
	atomic_store(&m.stop, true);
	for (int i = 0; i < 3; i++)
		(void)pthread_join(t[i], NULL);
	assert_int_equal(atomic_load(&m.bad), 0);
	assert_true(deleted > 0);
	struct alive a = { .to = 200, .every = 10 };
	expect_alive(s, &a);
	assert_int_equal(check(s, false), 0);
	store_close(s);
}

/* A reader of another process that has a condemned pack open, and looks again. */
static void collect_in_child(void *ctx)
{
	struct scratch *sc = ctx;
	struct store *s = open_store(sc->store, &small);
	struct alive a = { .to = 200, .every = 20 };
	struct store_gc_stats st;
	ok(store_gc(s, mark, &a, &st, NULL), NULL);
	assert_true(st.packs_deleted > 0);
	store_close(s);
}

static void test_other_reader(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, &small);
	put_range(s, 0, 200);
	store_close(s);
	/* LMDB is not to be used across fork: the reader opens in the parent only after it. */
	int go[2], done[2];
	assert_true(pipe(go) == 0 && pipe(done) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		char c;
		(void)!read(go[0], &c, 1);
		collect_in_child(sc);
		(void)!write(done[1], "x", 1);
		_exit(0);
	}
	s = open_store(sc->store, &small);
	get_range(s, 0, 100); /* some packs are open now, others not */
	char c;
	assert_int_equal(write(go[1], "x", 1), 1);
	assert_int_equal(read(done[0], &c, 1), 1);
	struct alive a = { .to = 200, .every = 20 };
	expect_alive(s, &a);
	for (uint64_t n = 1; n < 200; n++)
		if (n % 20)
			assert_true(try_get(s, n) == 0 || try_get(s, n) == -ENOENT);
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(check(s, false), 0);
	store_close(s);
}

/* ---- failing and dying ---- */

/* A gc in which the n-th call fails, or from then on all do. */
static void fail_each(const struct scratch *sc, struct io_fault_plan plan, unsigned step)
{
	const struct alive all = { .to = 150, .every = 15 };
	for (uint64_t n = 1;; n += step) {
		assert_int_equal(io_remove_tree(AT_FDCWD, sc->store, NULL), 0);
		struct store *s = open_store(sc->store, &small);
		put_range(s, 0, 150);
		store_close(s);
		struct io_fault *f = io_fault_new(NULL);
		struct store_options opt = small;
		opt.io = io_fault_io(f);
		s = open_store(sc->store, &opt);
		plan.nth = n;
		io_fault_plan(f, &plan);
		struct alive a = all;
		int r = store_gc(s, mark, &a, NULL, NULL);
		bool failed = io_fault_hits(f) > 0;
		if (!failed)
			assert_int_equal(r, 0);
		if (!plan.for_good) {
			io_fault_plan(f, NULL);
			expect_alive(s, &all);
			put_range(s, 0, 20);
			get_range(s, 0, 20);
		}
		store_close(s);
		io_fault_free(f);
		s = open_store(sc->store, &small);
		expect_alive(s, &all);
		assert_int_equal(check(s, false), 0);
		a = all;
		ok(store_gc(s, mark, &a, NULL, NULL), NULL);
		expect_alive(s, &all);
		/* Nothing stays condemned. */
		struct pack_row *rows;
		size_t k;
		ok(index_rows(s->index, &rows, &k), NULL);
		for (size_t i = 0; i < k; i++)
			assert_int_equal(rows[i].flags & ROW_UNUSABLE, 0);
		free(rows);
		assert_int_equal(check(s, false), 0);
		store_close(s);
		if (!failed)
			return;
	}
}

static void test_each_call_fails(void **state)
{
	fail_each(*state, (struct io_fault_plan){ .ops = IO_OPS_CHANGE, .error = -EIO }, 1);
}

static void test_each_call_kills(void **state)
{
	fail_each(*state,
		  (struct io_fault_plan){
			  .ops = IO_OPS_CHANGE, .error = -ENOSPC, .for_good = true },
		  1);
}

static void test_reads_fail(void **state)
{
	fail_each(*state, (struct io_fault_plan){ .ops = IO_OP_PREAD | IO_OP_OPEN, .error = -EIO },
		  5);
}

static void die_collecting(void *ctx)
{
	_exit(0);
}

static int mark_and_die(void *ctx, struct store_gc *gc, struct err *err)
{
	struct alive *a = ctx;
	if (a->calls == 1)
		die_collecting(NULL);
	return mark(ctx, gc, err);
}

static void collect_and_die(void *ctx)
{
	struct scratch *sc = ctx;
	struct store *s = open_store(sc->store, &small);
	struct alive a = { .to = 150, .every = 15 };
	(void)store_gc(s, mark_and_die, &a, NULL, NULL);
}

/* Killed with packs condemned: puts write anew meanwhile, and the next gc pardons. */
static void test_killed_condemned(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, &small);
	put_range(s, 0, 150);
	store_close(s);
	in_child(collect_and_die, sc);
	s = open_store(sc->store, &small);
	get_range(s, 0, 150);
	put_range(s, 0, 150);
	get_range(s, 0, 150);
	struct alive a = { .to = 150, .every = 1 };
	struct store_gc_stats st;
	ok(store_gc(s, mark, &a, &st, NULL), NULL);
	get_range(s, 0, 150);
	assert_int_equal(check(s, false), 0);
	store_close(s);
}

/* A live object that is damaged keeps its pack; the others of that pack are as they were. */
static void test_damaged_alive(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, &small);
	put_range(s, 0, 150);
	struct digest d = digest_of(45);
	struct place p;
	struct pack_row row;
	assert_int_equal(index_get(s->index, &d, &p, &row), 1);
	store_close(s);
	char path[600], name[PACK_NAME_BYTES];
	pack_name(name, p.pack);
	(void)snprintf(path, sizeof(path), "%s/packs/%s", sc->store, name);
	flip(path, p.off + 60);
	s = open_store(sc->store, &small);
	struct alive a = { .to = 150, .every = 15 };
	struct err err;
	ok(store_gc(s, mark, &a, NULL, &err), &err);
	store_trim(s, 0);
	for (uint64_t n = 0; n < 150; n += 15)
		assert_int_equal(try_get(s, n), n == 45 ? -EBADMSG : 0);
	assert_int_equal(access(path, F_OK), 0);
	store_close(s);
}

static int forget(struct index_txn *t, void *digest)
{
	return index_txn_del(t, digest);
}

/* So does one in a pack without a table: not to be read for now, damaged, or damaged and not in the
 * index either, so that it may be anywhere. */
static void test_unsealed(void **state)
{
	struct scratch *sc = *state;
	enum { SICK, DAMAGED, LOST, CASES };
	for (int how = 0; how < CASES; how++) {
		bool sick = how == SICK;
		struct sick disk = { .at = 0 };
		struct store *s = open_store(sc->store, NULL);
		put_range(s, 0, 150);
		struct digest d = digest_of(45);
		struct place p;
		struct pack_row row;
		assert_int_equal(index_get(s->index, &d, &p, &row), 1);
		store_close(s);
		char path[512];
		assert_int_equal(packs(sc, 0, path), 1);
		if (!sick)
			flip(path, p.off + 60);
		s = open_store(sc->store, &(struct store_options){ .io = sick_io(&disk) });
		disk.at = sick ? p.off + 60 : 0;
		if (how == LOST)
			assert_int_equal(index_write(s->index, forget, &d), 0);
		struct alive a = { .to = 150, .every = 15 };
		struct err err;
		ok(store_gc(s, mark, &a, NULL, &err), &err);
		disk.at = 0;
		store_trim(s, 0);
		for (uint64_t n = 0; n < 150; n += 15)
			assert_int_equal(try_get(s, n), n != 45 || sick ? 0
							: how == LOST   ? -ENOENT
									: -EBADMSG);
		assert_int_equal(access(path, F_OK), 0);
		store_close(s);
		assert_int_equal(io_remove_tree(AT_FDCWD, sc->store, NULL), 0);
	}
}

static void test_no_memory(void **state)
{
	struct scratch *sc = *state;
	const struct alive all = { .to = 150, .every = 15 };
	for (uint64_t at = 1;; at++) {
		struct store *s = open_store(sc->store, &small);
		put_range(s, 0, 150);
		store_close(s);
		s = open_store(sc->store, &small);
		struct alive a = all;
		oom_at(at);
		int r = store_gc(s, mark, &a, NULL, NULL);
		bool hit = oom_hit();
		oom_at(0);
		if (!hit)
			assert_int_equal(r, 0);
		expect_alive(s, &all);
		assert_int_equal(check(s, false), 0);
		store_close(s);
		if (!hit)
			return;
	}
}

/* Marks of any number and in any order are all found, and take no more memory for being many. */
static int mark_many(void *ctx, struct store_gc *gc, struct err *err)
{
	struct digest d = { { 0 } };
	store_gc_mark(gc, &d, NULL);
	struct mallinfo2 before = mallinfo2();
	for (uint64_t n = 0; n < 200000; n++) {
		hash_sha256(&d, &n, sizeof(n));
		store_gc_mark(gc, &d, NULL);
	}
	struct mallinfo2 after = mallinfo2();
	assert_true(after.uordblks + after.hblkhd < before.uordblks + before.hblkhd + (1 << 20));
	return mark(ctx, gc, err);
}

static void test_many_marks(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, &small);
	put_range(s, 0, 150);
	store_close(s);
	s = open_store(sc->store, &small);
	struct alive a = { .to = 150, .every = 3 };
	struct store_gc_stats st;
	ok(store_gc(s, mark_many, &a, &st, NULL), NULL);
	assert_int_equal(st.objects_live + st.objects_dead, 150);
	assert_true(st.objects_live >= 50);
	expect_alive(s, &a);
	store_close(s);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, scratch_set_up, scratch_tear_down)
	const struct CMUnitTest tests[] = {
		T(test_frees),
		T(test_mark_fails),
		T(test_one_at_a_time),
		T(test_put_during),
		T(test_waits),
		T(test_cancelled),
		T(test_dead_session),
		T(test_mill),
		T(test_other_reader),
		T(test_each_call_fails),
		T(test_each_call_kills),
		T(test_reads_fail),
		T(test_killed_condemned),
		T(test_damaged_alive),
		T(test_unsealed),
		T(test_no_memory),
		T(test_many_marks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
