/* The index by itself: values, growth, several users, order, proving. */
#include "tests/unit/store_tools.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <unistd.h>
#include "fs/store/index.h"
#include "fs/store/pending.h"
#include "tests/unit/oom.h"

static struct digest digest_no(uint64_t n)
{
	struct digest d;
	hash_sha256(&d, &n, sizeof(n));
	return d;
}

static void test_values(void **state)
{
	struct digest d = digest_no(1), d2 = digest_no(2);
	struct place p = { .pack = 7, .off = UINT64_C(1) << 40, .raw = 10, .stored = 9 }, q;
	uint8_t b[INDEX_ENTRY_BYTES];
	for (int damaged = 0; damaged < 2; damaged++) {
		p.damaged = damaged;
		index_entry_encode(b, &d, &p);
		assert_int_equal(index_entry_decode(&q, &d, b, sizeof(b)), 0);
		assert_true(q.pack == p.pack && q.off == p.off && q.raw == 10 && q.stored == 9 &&
			    q.damaged == damaged);
		assert_int_equal(index_entry_decode(&q, &d2, b, sizeof(b)), -EBADMSG);
		assert_int_equal(index_entry_decode(&q, &d, b, sizeof(b) - 1), -EBADMSG);
		for (size_t i = 0; i < sizeof(b) * 8; i++) {
			b[i / 8] ^= (uint8_t)(1 << i % 8);
			assert_int_equal(index_entry_decode(&q, &d, b, sizeof(b)), -EBADMSG);
			b[i / 8] ^= (uint8_t)(1 << i % 8);
		}
	}
	struct pack_row row = { 5, 100, 90, 3, 400, 300, ROW_SEALED | ROW_CONDEMNED }, back;
	uint8_t rb[INDEX_ROW_BYTES];
	index_row_encode(rb, &row);
	assert_int_equal(index_row_decode(&back, 5, rb, sizeof(rb)), 0);
	assert_true(back.id == 5 && back.indexed == 100 && back.synced == 90 && back.records == 3 &&
		    back.raw == 400 && back.stored == 300 && back.flags == row.flags);
	assert_int_equal(index_row_decode(&back, 6, rb, sizeof(rb)), -EBADMSG);
	for (size_t i = 0; i < sizeof(rb) * 8; i++) {
		rb[i / 8] ^= (uint8_t)(1 << i % 8);
		assert_int_equal(index_row_decode(&back, 5, rb, sizeof(rb)), -EBADMSG);
		rb[i / 8] ^= (uint8_t)(1 << i % 8);
	}
}

struct range {
	uint64_t from, to;
	bool remove;
	unsigned calls;
};

static int range_txn(struct index_txn *t, void *ctx)
{
	struct range *g = ctx;
	g->calls++;
	for (uint64_t n = g->from; n < g->to; n++) {
		struct digest d = digest_no(n);
		struct place p = { .pack = 1, .off = n * 8 };
		int r = g->remove ? index_txn_del(t, &d) : index_txn_put(t, &d, &p);
		if (r < 0)
			return r;
	}
	return g->remove ? 0 : index_txn_row_put(t, &(struct pack_row){ .id = 1 });
}

static struct index *open_index(const struct scratch *sc)
{
	struct index *ix;
	struct err err;
	(void)mkdir(sc->store, 0700);
	ok(index_open(&ix, sc->store, false, &err), &err);
	return ix;
}

/* Programs that are started get no descriptor of it. */
static void test_descriptors(void **state)
{
	struct index *ix = open_index(*state);
	char path[64], target[PATH_MAX];
	unsigned found = 0;
	for (int fd = 0; fd < 256; fd++) {
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, target, sizeof(target));
		if (n < 4 || memcmp(target + n - 4, ".mdb", 4) != 0)
			continue;
		assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
		found++;
	}
	assert_true(found >= 2);
	index_close(ix);
}

static void expect(struct index *ix, uint64_t n, int found)
{
	struct digest d = digest_no(n);
	struct place p;
	struct pack_row row;
	assert_int_equal(index_get(ix, &d, &p, &row), found);
	if (found)
		assert_int_equal(p.off, n * 8);
}

static int count_entry(void *ctx, const struct digest *d, const struct place *p)
{
	struct digest *last = ctx;
	assert_true(memcmp(last[1].b, d->b, sizeof(d->b)) < 0);
	last[1] = *d;
	last[0].b[0]++; /* wraps: a checksum of the count */
	return 0;
}

/* It grows far beyond its first map, and gives up nothing it held. */
static void test_growth(void **state)
{
	struct index *ix = open_index(*state);
	enum { STEP = 50000, ALL = 200000 };
	unsigned again = 0;
	for (uint64_t n = 0; n < ALL; n += STEP) {
		struct range g = { n, n + STEP, false, 0 };
		ok(index_write(ix, range_txn, &g), NULL);
		again += g.calls - 1;
		expect(ix, n, 1);
	}
	assert_true(again > 0);
	uint64_t count;
	ok(index_count(ix, &count), NULL);
	assert_int_equal(count, ALL);
	for (uint64_t n = 0; n < ALL; n += 97)
		expect(ix, n, 1);
	expect(ix, ALL, 0);
	ok(index_verify(ix), NULL);
	struct digest seen[2] = { 0 };
	ok(index_each(ix, count_entry, seen), NULL);
	assert_int_equal(seen[0].b[0], ALL % 256);
	/* With a list of free pages in it. */
	for (uint64_t n = 0; n < ALL; n += 1000) {
		struct range g = { n, n + 500, true, 0 };
		ok(index_write(ix, range_txn, &g), NULL);
	}
	ok(index_verify(ix), NULL);
	ok(index_sync(ix), NULL);
	uint64_t used, hash, hash2;
	ok(index_hash(ix, &used, &hash), NULL);
	index_close(ix);
	ok(index_hash_file(((struct scratch *)*state)->store, used, &hash2), NULL);
	assert_true(hash == hash2);
	assert_int_equal(index_hash_file(((struct scratch *)*state)->store, 1ull << 40, &hash2),
			 -EBADMSG);
	ix = open_index(*state);
	ok(index_verify(ix), NULL);
	expect(ix, 499, 0);
	expect(ix, 500, 1);
	index_close(ix);
}

static int failing_txn(struct index_txn *t, void *ctx)
{
	struct digest d = digest_no(1);
	int r = index_txn_put(t, &d, &(struct place){ .pack = 1, .off = 8 });
	return r < 0 ? r : -EXDEV;
}

static void test_all_or_nothing(void **state)
{
	struct index *ix = open_index(*state);
	assert_int_equal(index_write(ix, failing_txn, NULL), -EXDEV);
	expect(ix, 1, 0);
	struct pack_row row;
	assert_int_equal(index_row(ix, 1, &row), 0);
	ok(index_write(ix, range_txn, &(struct range){ 0, 10, false, 0 }), NULL);
	assert_int_equal(index_row(ix, 1, &row), 1);
	/* Made anew under a second user. */
	struct index *other = open_index(*state);
	assert_ptr_equal(ix, other);
	ok(index_reset(ix), NULL);
	expect(other, 1, 0);
	ok(index_write(other, range_txn, &(struct range){ 0, 10, false, 0 }), NULL);
	index_close(ix);
	expect(other, 1, 1);
	index_close(other);
	index_close(NULL);
}

struct reader {
	struct index *ix;
	atomic_bool stop;
	atomic_uint bad;
};

static void *read_on(void *ctx)
{
	struct reader *r = ctx;
	for (uint64_t n = 0; !atomic_load(&r->stop); n++) {
		struct digest d = digest_no(n % 1000);
		struct place p;
		struct pack_row row;
		if (index_get(r->ix, &d, &p, &row) != 1 || p.off != n % 1000 * 8)
			atomic_fetch_add(&r->bad, 1);
	}
	return NULL;
}

static void grow_elsewhere(void *ctx)
{
	struct index *ix = open_index(ctx);
	ok(index_write(ix, range_txn, &(struct range){ 100000, 220000, false, 0 }), NULL);
	index_close(ix);
}

/* Readers go on while the map grows, here and in another process. */
static void test_readers(void **state)
{
	struct index *ix = open_index(*state);
	index_close(ix);
	in_child(grow_elsewhere, *state);
	ix = open_index(*state);
	ok(index_write(ix, range_txn, &(struct range){ 0, 1000, false, 0 }), NULL);
	struct reader r = { .ix = ix };
	pthread_t t[2];
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i], NULL, read_on, &r), 0);
	for (uint64_t n = 1000; n < 80000; n += 20000)
		ok(index_write(ix, range_txn, &(struct range){ n, n + 20000, false, 0 }), NULL);
	atomic_store(&r.stop, true);
	for (int i = 0; i < 2; i++)
		(void)pthread_join(t[i], NULL);
	assert_int_equal(atomic_load(&r.bad), 0);
	index_close(ix);
}

/* Another process makes the map larger than this one has it. */
static void test_resized(void **state)
{
	int go[2], done[2];
	assert_true(pipe(go) == 0 && pipe(done) == 0);
	(void)mkdir(((struct scratch *)*state)->store, 0700);
	pid_t pid = fork(); /* before this process opens it */
	if (pid == 0) {
		char c;
		(void)!read(go[0], &c, 1);
		grow_elsewhere(*state);
		(void)!write(done[1], "x", 1);
		_exit(0);
	}
	struct index *ix = open_index(*state);
	ok(index_write(ix, range_txn, &(struct range){ 0, 10, false, 0 }), NULL);
	char c;
	assert_int_equal(write(go[1], "x", 1), 1);
	assert_int_equal(read(done[0], &c, 1), 1);
	expect(ix, 5, 1);
	expect(ix, 219999, 1);
	ok(index_write(ix, range_txn, &(struct range){ 10, 20, false, 0 }), NULL);
	expect(ix, 15, 1);
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	index_close(ix);
	for (int i = 0; i < 2; i++) {
		(void)close(go[i]);
		(void)close(done[i]);
	}
}

static void test_pending(void **state)
{
	struct pending p = { 0 };
	struct digest d = digest_no(0);
	assert_null(pending_find(&p, &d));
	for (uint64_t n = 0; n < 10000; n++) {
		ok(pending_reserve(&p), NULL);
		pending_add(&p,
			    &(struct pending_entry){ .digest = digest_no(n),
						     .place = { .pack = 1 + n % 2, .off = n } });
	}
	ok(pending_reserve(&p), NULL);
	pending_add(&p, &(struct pending_entry){ .digest = digest_no(3),
						 .place = { .pack = 9, .off = 9 } });
	assert_int_equal(p.n, 10000);
	pending_drop(&p, 1, 5000);
	for (uint64_t n = 0; n < 10000; n++) {
		d = digest_no(n);
		const struct pending_entry *e = pending_find(&p, &d);
		if (n % 2 == 0 && n >= 5000) {
			assert_null(e);
			continue;
		}
		assert_non_null(e);
		assert_int_equal(e->place.off, n == 3 ? 9 : n);
	}
	pending_clear(&p);
	assert_null(pending_find(&p, &d));
	for (uint64_t at = 1;; at++) {
		oom_at(at);
		int r = pending_reserve(&p);
		if (!oom_hit()) {
			assert_int_equal(r, 0);
			break;
		}
		assert_int_equal(r, -ENOMEM);
	}
	pending_add(&p, &(struct pending_entry){ .digest = d, .place = { .pack = 1, .off = 1 } });
	pending_clear(&p);
	assert_null(pending_find(&p, &d));
	pending_done(&p);
}

/* On a filesystem of its own, made anew: so the two files have one number. */
static struct index *open_on_tmpfs(const char *path)
{
	struct index *ix;
	return mkdir(path, 0700) == 0 && mount("index", path, "tmpfs", 0, "size=64m") == 0 &&
			       index_open(&ix, path, false, NULL) == 0
		       ? ix
		       : NULL;
}

/* Pages that vanish of one are zeros in its own map, not in that of the other, and the other is
 * whole. 0, or what was wrong. */
static int cut_second(const char *dir)
{
	char path[2][PATH_MAX], file[PATH_MAX + 20];
	struct index *ix[2];
	struct stat st[2];
	struct place p;
	struct pack_row row;
	unsigned good[2] = { 0 };
	if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return 77;
	for (int i = 0; i < 2; i++) {
		(void)snprintf(path[i], PATH_MAX, "%s.%d", dir, i);
		ix[i] = open_on_tmpfs(path[i]);
		if (!ix[i])
			return 1;
	}
	/* Made anew, the first is mapped above the second again, where it is looked for later. */
	for (int i = 1; i >= 0; i--) {
		(void)snprintf(file, sizeof(file), "%s/data.mdb", path[i]);
		if (index_reset(ix[i]) < 0 || stat(file, &st[i]) < 0 ||
		    index_write(ix[i], range_txn, &(struct range){ 0, 2000, false, 0 }) < 0)
			return 1;
	}
	if (st[0].st_ino != st[1].st_ino || st[0].st_dev == st[1].st_dev)
		return 2;
	for (int cut = 0; cut < 2; cut++) {
		(void)snprintf(file, sizeof(file), "%s/data.mdb", path[cut]);
		if (truncate(file, 8192) < 0)
			return 3;
		for (int i = 0; i < 2; i++) {
			good[i] = 0;
			for (uint64_t n = 0; n < 2000; n++) {
				struct digest d = digest_no(n);
				good[i] += index_get(ix[i], &d, &p, &row) == 1;
			}
		}
		if (good[cut] == 2000 || (cut == 0 && good[1] != 2000))
			return 4;
	}
	return 0;
}

static void test_same_number(void **state)
{
	int status;
	pid_t pid = fork();
	if (pid == 0)
		_exit(cut_second(((struct scratch *)*state)->store));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		print_message("skip: needs root: to mount\n");
		skip();
	}
	assert_int_equal(status, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, scratch_set_up, scratch_tear_down)
	const struct CMUnitTest tests[] = {
		T(test_values),  T(test_growth),  T(test_all_or_nothing), T(test_descriptors),
		T(test_readers), T(test_resized), T(test_pending),       T(test_same_number),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
