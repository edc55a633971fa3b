/* The store's workers: whose turn it is, and that what they put is what would have been put. */
#include "tests/unit/store_tools.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include "fs/base/io_fault.h"
#include "fs/store/internal.h"

/* ---- turns ---- */

enum { MANY = 50 };

struct step {
	struct work work;
	sem_t *gate;
	atomic_uint *clock;
	unsigned at; /* when it was done */
};

static void do_step(struct work *w, const struct store_worker *with)
{
	struct step *s = (struct step *)w;
	assert_non_null(with->codec);
	(void)sem_wait(s->gate);
	s->at = atomic_fetch_add(s->clock, 1);
}

static void test_turns(void **state)
{
	struct workers p;
	struct work_queue big = { .done = PTHREAD_COND_INITIALIZER }, small = big, other = big;
	struct step of_big[MANY], of_small, of_other[2];
	atomic_uint clock = 0;
	sem_t gate;
	(void)sem_init(&gate, 0, 0);
	/* One core, so one worker: only then it is certain what is done before what. */
	cpu_set_t all, one;
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	CPU_ZERO(&one);
	for (int i = 0; CPU_COUNT(&one) == 0; i++)
		if (CPU_ISSET(i, &all))
			CPU_SET(i, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	assert_int_equal(workers_count(), 1);
	const struct step step = { .work.run = do_step, .gate = &gate, .clock = &clock };
	workers_init(&p);
	for (unsigned i = 0; i < MANY; i++) {
		of_big[i] = step;
		ok(workers_add(&p, &big, &of_big[i].work), &(struct err){ .text = "no threads" });
	}
	of_small = of_other[0] = of_other[1] = step;
	ok(workers_add(&p, &small, &of_small.work), NULL);
	ok(workers_add(&p, &other, &of_other[0].work), NULL);
	ok(workers_add(&p, &other, &of_other[1].work), NULL);
	assert_in_range(workers_waiting(&p), MANY + 2, MANY + 3); /* the first may be taken */
	for (unsigned i = 0; i < MANY + 3; i++)
		(void)sem_post(&gate);
	workers_wait(&p, &small, &of_small.work);
	workers_wait(&p, &other, &of_other[1].work);
	workers_wait(&p, &big, &of_big[MANY - 1].work);
	/* What was begun before, and one of each other queue in each round, not fifty. */
	assert_true(of_small.at <= 2);
	assert_true(of_other[1].at <= 5);
	assert_int_equal(atomic_load(&clock), MANY + 3);
	assert_int_equal(workers_waiting(&p), 0);
	workers_wait(&p, &big, &(struct work){ 0 }); /* one that never was added */
	workers_end(&p);
	(void)sem_destroy(&gate);
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

/* ---- contents ---- */

enum { FILES = 300, LARGE = 5 << 20 };

static size_t file_len(uint64_t n)
{
	return n % 50 == 7 ? STORE_SMALL_MAX : n % 11 == 3 ? 70000 : 1 + n * 97 % 9000;
}

static void file_content(uint64_t n, uint8_t *p)
{
	if (n % 13 == 5)
		memset(p, 0, file_len(n));
	else
		content(n, p, file_len(n));
}

static int read_file(void *ctx, void *buf, size_t len, uint64_t off, struct err *err)
{
	assert_int_equal(off, 0);
	assert_int_equal(len, file_len(*(uint64_t *)ctx));
	file_content(*(uint64_t *)ctx, buf);
	return 0;
}

static void taken(uint64_t n, int r, const struct digest *d, bool zero, const struct err *err)
{
	static _Thread_local uint8_t b[STORE_SMALL_MAX];
	struct digest want;
	ok(r, err);
	assert_int_equal(r, 1);
	assert_int_equal(zero, n % 13 == 5);
	file_content(n, b);
	hash_sha256(&want, b, file_len(n));
	assert_true(zero || digest_equal(d, &want));
}

/* As a save does it: as far ahead as there is room, each third one by itself. */
static void put_ahead(struct store_session *ss, uint64_t from)
{
	struct store_ahead *a;
	struct err err = { 0 };
	uint64_t next = from;
	unsigned far = 0;
	ok(store_ahead_new(&a, ss, &err), &err);
	for (uint64_t n = from; n < from + FILES; n++) {
		int r = 1;
		next = next < n ? n : next;
		while (next < from + FILES && r > 0) {
			struct store_content c = { .read = read_file, .ctx = &next };
			if (next % 3)
				r = store_ahead_add(a, next, (uint32_t)file_len(next), &c, &err);
			ok(r, &err);
			next += r > 0;
		}
		far = next - n > far ? (unsigned)(next - n) : far;
		struct digest d;
		bool zero;
		r = store_ahead_take(a, n, &d, &zero, &err);
		if (n % 3)
			taken(n, r, &d, zero, &err);
		else
			assert_int_equal(r, 0);
	}
	/* Some, and not all of them unless many workers have room for these. */
	assert_true(far > 16 && (far < FILES || workers_count() > 16));
	store_ahead_free(a);
}

struct large {
	uint8_t *p;
	uint64_t next;
	struct store *s;
};

static int read_large(void *ctx, void *buf, size_t len, uint64_t off, struct err *err)
{
	memcpy(buf, ((struct large *)ctx)->p + off, len);
	return 0;
}

static int emit_large(void *ctx, uint64_t off, uint32_t len, const struct digest *d,
		      struct err *err)
{
	struct large *l = ctx;
	struct digest want;
	assert_int_equal(off, l->next);
	l->next += len;
	hash_sha256(&want, l->p + off, len);
	assert_true(d && digest_equal(d, &want));
	return 0;
}

static void put_large(struct store_session *ss, uint64_t n)
{
	struct large l = { .p = malloc(LARGE) };
	struct store_content c = { read_large, emit_large, &l };
	struct err err = { 0 };
	content(n, l.p, LARGE);
	ok(store_put_content(ss, 0, LARGE, &c, &err), &err);
	assert_int_equal(l.next, LARGE);
	free(l.p);
}

static void *one_session(void *arg)
{
	struct store *s = arg;
	struct err err = { 0 };
	for (uint64_t i = 0; i < 3; i++) {
		struct store_session *ss = begin(s);
		put_ahead(ss, i * FILES / 2);
		put_large(ss, i);
		ok(store_sync(ss, &err), &err);
		store_session_end(ss);
	}
	return NULL;
}

static void all_there(struct store *s)
{
	uint8_t *b = malloc(STORE_SMALL_MAX);
	for (uint64_t n = 0; n < 2 * FILES; n++) {
		const struct blob *blob;
		struct digest d;
		struct err err;
		if (n % 3 == 0 || n % 13 == 5)
			continue;
		file_content(n, b);
		hash_sha256(&d, b, file_len(n));
		ok(store_get(s, &d, &blob, &err), &err);
		assert_int_equal(blob->len, file_len(n));
		assert_memory_equal(blob->data, b, blob->len);
		blob_put(blob);
	}
	free(b);
	assert_int_equal(store_check(s, false, NULL, NULL, NULL), 0);
}

/* Several sessions at once that put the same. */
static void test_sessions(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, NULL);
	pthread_t t[6];
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(pthread_create(&t[i], NULL, one_session, s), 0);
	for (size_t i = 0; i < 6; i++)
		(void)pthread_join(t[i], NULL);
	all_there(s);
	store_close(s);
}

/* What fails is told where it is taken, and what is under way is waited for. */
static void test_failures(void **state)
{
	struct scratch *sc = *state;
	struct io_fault *f = io_fault_new(NULL);
	struct store *s = open_store(sc->store, &(struct store_options){ .io = io_fault_io(f) });
	struct store_session *ss = begin(s);
	struct store_ahead *a;
	struct err err = { 0 };
	struct digest d;
	bool zero;
	put_ahead(ss, 0); /* without workers it is the same */
	ok(store_ahead_new(&a, ss, &err), &err);
	assert_int_equal(store_ahead_take(a, 1, &d, &zero, &err), 0);
	io_fault_space(f, 0);
	for (uint64_t n = 1000; n < 1003; n++) {
		struct store_content c = { .read = read_file, .ctx = &n };
		assert_int_equal(store_ahead_add(a, n, (uint32_t)file_len(n), &c, &err), 1);
	}
	assert_int_equal(store_ahead_take(a, 999, &d, &zero, &err), 0);
	assert_int_equal(store_ahead_take(a, 1000, &d, &zero, &err), -ENOSPC);
	assert_non_null(strstr(err.text, "pack"));
	assert_int_equal(store_ahead_take(a, 1001, &d, &zero, &err), -ENOSPC);
	store_ahead_free(a);
	store_session_end(ss);
	store_close(s);
	io_fault_free(f);
}

/* A session that ends with contents that nobody takes. */
static void test_left(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, NULL);
	struct store_session *ss = begin(s);
	struct store_ahead *a;
	struct err err = { 0 };
	ok(store_ahead_new(&a, ss, &err), &err);
	for (uint64_t n = 1, r = 1; r > 0; n++) {
		struct store_content c = { .read = read_file, .ctx = &n };
		int got = store_ahead_add(a, n, (uint32_t)file_len(n), &c, &err);
		ok(got, &err);
		r = (uint64_t)got;
	}
	store_ahead_free(a);
	store_session_end(ss);
	store_close(s);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, scratch_set_up, scratch_tear_down)
	const struct CMUnitTest tests[] = {
		T(test_turns), T(test_sessions), T(test_failures), T(test_left),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
