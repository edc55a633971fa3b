/* Putting, syncing and getting; several stores, threads and processes. What happens to the
 * store when disks and processes fail is in test_store_faults.c. */
#include "tests/unit/store_tools.h"

#include <pthread.h>
#include <sys/file.h>
#include "fs/base/buf.h"
#include "fs/base/io_fault.h"
#include "fs/store/internal.h"

static void test_round_trip(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, NULL);
	put_range(s, 0, 500);
	get_range(s, 0, 500);
	struct digest d = digest_of(7);
	uint32_t size;
	assert_int_equal(store_has(s, &d, &size), 1);
	assert_int_equal(size, content_len(7));
	d = digest_of(501);
	assert_int_equal(store_has(s, &d, NULL), 0);
	const struct blob *b;
	struct err err;
	assert_int_equal(store_get(s, &d, &b, &err), -ENOENT);
	assert_non_null(strstr(err.text, "no object "));
	assert_int_equal(check(s, false), 0);
	store_close(s);
	store_close(NULL);
}

static void test_sizes(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, NULL);
	struct store_session *ss = begin(s);
	uint8_t *p = malloc(STORE_OBJECT_MAX + 1);
	static const size_t sizes[] = { 0, 1, 31, 32, 4096, STORE_SMALL_MAX, STORE_OBJECT_MAX };
	struct err err;
	struct digest d;
	for (uint64_t k = 0; k < 2; k++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			content(k, p, sizes[i]);
			ok(store_put(ss, p, sizes[i], &d, &err), &err);
			struct digest want;
			hash_sha256(&want, p, sizes[i]);
			assert_true(digest_equal(&d, &want));
			const struct blob *b;
			ok(store_get(s, &d, &b, &err), &err);
			assert_int_equal(b->len, sizes[i]);
			assert_memory_equal(b->data, p, sizes[i]);
			blob_put(b);
		}
	assert_int_equal(store_put(ss, p, STORE_OBJECT_MAX + 1, &d, &err), -EFBIG);
	free(p);
	store_session_end(ss);
	store_close(s);
}

static void test_dedup(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, NULL);
	struct store_session *a = begin(s), *b = begin(s);
	struct err err;
	struct store_stats st;
	for (uint64_t n = 0; n < 100; n++) {
		ok(try_put(a, n), NULL);
		ok(try_put(b, n), NULL); /* only this process knows it yet */
	}
	ok(store_sync(b, &err), &err);
	for (uint64_t n = 0; n < 100; n++)
		ok(try_put(a, n), NULL);
	ok(store_stats(s, &st, &err), &err);
	assert_int_equal(st.puts, 300);
	assert_int_equal(st.put_hits, 200);
	assert_int_equal(st.objects, 100);
	assert_int_equal(st.packs, 1);
	store_session_end(a);
	store_session_end(b);
	store_close(s);
	s = open_store(sc->store, NULL);
	put_range(s, 0, 100);
	ok(store_stats(s, &st, &err), &err);
	assert_int_equal(st.put_hits, 100);
	store_close(s);
}

/* Ten small puts and a sync cost one fdatasync, and nothing else that waits for the disk. */
static void test_cost_of_sync(void **state)
{
	struct scratch *sc = *state;
	struct io_fault *f = io_fault_new(NULL);
	struct store *s = open_store(sc->store, &(struct store_options){ .io = io_fault_io(f) });
	put_range(s, 0, 10); /* a new pack: its folder is synced, too */
	for (uint64_t n = 10; n < 50; n += 10) {
		uint64_t before = io_fault_calls(f, IO_OPS_SYNC),
			 writes = io_fault_calls(f, IO_OP_PWRITE);
		put_range(s, n, n + 10);
		assert_int_equal(io_fault_calls(f, IO_OPS_SYNC) - before, 1);
		assert_int_equal(io_fault_calls(f, IO_OP_PWRITE) - writes, 10);
	}
	uint64_t before = io_fault_calls(f, IO_OPS_SYNC);
	put_range(s, 0, 50); /* all there and durable */
	assert_int_equal(io_fault_calls(f, IO_OPS_SYNC) - before, 0);
	store_close(s);
	io_fault_free(f);
}

/* A store that was closed is opened without reading its packs. */
static void test_reopen(void **state)
{
	struct scratch *sc = *state;
	struct store_options opt = { .pack_bytes = STORE_PACK_BYTES_MIN };
	struct store *s = open_store(sc->store, &opt);
	put_range(s, 0, 600);
	store_close(s);
	unsigned n = packs(sc, 0, NULL);
	assert_true(n > 5);
	struct io_fault *f = io_fault_new(NULL);
	opt.io = io_fault_io(f);
	s = open_store(sc->store, &opt);
	assert_true(io_fault_calls(f, IO_OP_PREAD) <= 4); /* version and state */
	get_range(s, 0, 600);
	put_range(s, 600, 620); /* continues the pack that wasn't full */
	assert_int_equal(check(s, false), 0);
	store_close(s);
	assert_true(packs(sc, 0, NULL) <= n + 1);
	io_fault_free(f);
}

static void test_sealed(void **state)
{
	struct scratch *sc = *state;
	struct store_options opt = { .pack_bytes = STORE_PACK_BYTES_MIN };
	struct store *s = open_store(sc->store, &opt);
	for (uint64_t n = 0; n < 600; n += 50)
		put_range(s, n, n + 50);
	struct pack_row *rows;
	size_t n, sealed = 0;
	ok(index_rows(s->index, &rows, &n), NULL);
	for (size_t i = 0; i < n; i++) {
		struct pack_file *pf;
		struct pack_entry *e;
		size_t k;
		ok(files_get(s, rows[i].id, &pf), NULL);
		int r = pack_toc_read(s->io, pf->fd, rows[i].id, rows[i].indexed, &e, &k);
		assert_int_equal(r, rows[i].flags & ROW_SEALED ? 0 : -ENODATA);
		if (r == 0) {
			assert_int_equal(k, rows[i].records);
			free(e);
			sealed++;
		}
		files_put(s, pf);
	}
	assert_int_equal(sealed, n - 1);
	free(rows);
	store_close(s);
}

static void test_open_errors(void **state)
{
	struct scratch *sc = *state;
	struct store *s;
	struct err err;
	assert_int_equal(store_open(&s, sc->store, NULL, &err), -ENOENT);
	s = open_store(sc->store, NULL);
	put_range(s, 0, 3);
	store_close(s);
	s = open_store(sc->store, &(struct store_options){ .read_only = true });
	struct store_session *ss;
	assert_int_equal(store_session_begin(s, &ss, &err), -EROFS);
	assert_int_equal(store_gc(s, NULL, NULL, NULL, &err), -EROFS);
	get_range(s, 0, 3);
	store_close(s);
	write_file(store_file(sc, "version"), "bough store 2\n", 14, 0);
	assert_int_equal(store_open(&s, sc->store, NULL, &err), -EBADMSG);
	assert_int_equal(store_open(&s, sc->store, &(struct store_options){ .create = true }, &err),
			 -EBADMSG);
	write_file(store_file(sc, "version"), "bough store 1\n", 14, 0);
	/* A pack of a later version is left alone, and said. */
	char path[512];
	uint8_t h[PACK_HEADER_BYTES];
	assert_int_equal(packs(sc, 0, path), 1);
	uint64_t id;
	ok(pack_name_parse(strrchr(path, '/') + 1, &id), NULL);
	pack_header_encode(h, id);
	le_put32(h + 8, PACK_VERSION + 1);
	le_put64(h + 24, hash_xxh3(h, 24, 0));
	write_file(path, h, sizeof(h), 0);
	assert_int_equal(unlink(store_file(sc, "index/state")), 0);
	assert_int_equal(store_open(&s, sc->store, NULL, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "version"));
}

static void test_open_twice(void **state)
{
	struct scratch *sc = *state;
	struct store *a = open_store(sc->store, NULL), *b = open_store(sc->store, NULL);
	put_range(a, 0, 20);
	get_range(b, 0, 20);
	put_range(b, 10, 40);
	get_range(a, 0, 40);
	assert_int_equal(packs(sc, 0, NULL), 1); /* written in turn */
	store_close(a);
	put_range(b, 40, 50);
	assert_int_equal(check(b, false), 0);
	store_close(b);
	a = open_store(sc->store, NULL);
	get_range(a, 0, 50);
	store_close(a);
}

static void test_cache(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, &(struct store_options){ .cache_bytes = 200000 });
	put_range(s, 0, 300);
	struct err err;
	struct store_stats st;
	struct digest d = digest_of(11);
	const struct blob *held, *again;
	ok(store_get(s, &d, &held, &err), &err);
	ok(store_get(s, &d, &again, &err), &err);
	assert_ptr_equal(held, again);
	blob_put(again);
	for (uint64_t n = 0; n < 300; n++)
		ok(try_get(s, n), NULL);
	ok(store_stats(s, &st, &err), &err);
	assert_true(st.cache_bytes > 100000 && st.cache_bytes <= 200000);
	assert_true(st.cache_misses >= 300 && st.cache_hits >= 1);
	store_trim(s, 100000); /* all is younger */
	struct store_stats after;
	ok(store_stats(s, &after, &err), &err);
	assert_int_equal(after.cache_bytes, st.cache_bytes);
	store_trim(s, 0);
	ok(store_stats(s, &after, &err), &err);
	assert_int_equal(after.cache_bytes, 0);
	/* What somebody holds outlives the cache. */
	uint8_t want[CONTENT_MAX];
	content(11, want, content_len(11));
	assert_memory_equal(held->data, want, held->len);
	blob_put(held);
	blob_put(NULL);
	store_close(s);
}

/* ---- content ---- */

struct source {
	const uint8_t *p;
	uint64_t off; /* of p[0] in the content */
	struct store *s;
	uint8_t *out;
	uint64_t next;
	unsigned pieces, holes;
	int fail_at;
	size_t len; /* read_some's */
};

static int source_read(void *ctx, void *buf, size_t len, uint64_t off, struct err *err)
{
	struct source *src = ctx;
	if (src->fail_at && --src->fail_at == 0)
		return err_set(err, -EIO, "the source fails");
	memcpy(buf, src->p + (off - src->off), len);
	return 0;
}

/* Tells how much it gave; the end comes without a word before. */
static int read_some(void *ctx, void *buf, size_t len, uint64_t off, struct err *err)
{
	const struct source *src = ctx;
	size_t n = src->len - off < len ? (size_t)(src->len - off) : len;
	int r = source_read(ctx, buf, n, off, err);
	return r < 0 ? r : (int)n;
}

static int source_emit(void *ctx, uint64_t off, uint32_t len, const struct digest *d,
		       struct err *err)
{
	struct source *src = ctx;
	assert_int_equal(off, src->next);
	src->next += len;
	src->pieces++;
	src->holes += !d;
	uint8_t *to = src->out + (off - src->off);
	if (!d) {
		memset(to, 0, len);
		return 0;
	}
	const struct blob *b;
	int r = store_get(src->s, d, &b, err);
	if (r < 0)
		return r;
	assert_int_equal(b->len, len);
	memcpy(to, b->data, len);
	blob_put(b);
	return 0;
}

/* Puts, reassembles and compares; tells pieces and holes. */
static void put_content(struct store_session *ss, struct store *s, const uint8_t *p, size_t len,
			unsigned *pieces, unsigned *holes)
{
	uint8_t *out = malloc(len + 1);
	struct source src = { .p = p, .off = 12345, .next = 12345, .s = s, .out = out };
	struct store_content c = { source_read, source_emit, &src };
	struct err err;
	ok(store_put_content(ss, 12345, len, &c, &err), &err);
	assert_int_equal(src.next, 12345 + len);
	assert_memory_equal(out, p, len);
	*pieces = src.pieces;
	*holes = src.holes;
	/* The same where the length isn't known before. */
	src = (struct source){ .p = p, .s = s, .out = out, .len = len };
	c.read = read_some;
	memset(out, 1, len);
	ok(store_put_stream(ss, &c, &err), &err);
	assert_int_equal(src.next, len);
	assert_memory_equal(out, p, len);
	assert_int_equal(src.pieces, *pieces);
	free(out);
}

static void test_content(void **state)
{
	enum { LEN = 10 << 20 };
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, NULL);
	struct store_session *ss = begin(s);
	struct store_stats st, st2;
	struct err err;
	uint8_t *p = malloc(LEN);
	content(3, p, LEN);
	unsigned pieces, holes;
	put_content(ss, s, p, 0, &pieces, &holes);
	assert_int_equal(pieces, 0);
	put_content(ss, s, p, 1, &pieces, &holes);
	assert_int_equal(pieces, 1);
	put_content(ss, s, p, STORE_SMALL_MAX, &pieces, &holes);
	assert_int_equal(pieces, 1);
	put_content(ss, s, p, STORE_SMALL_MAX + 1, &pieces, &holes);
	assert_true(pieces >= 1 && pieces <= 5);
	put_content(ss, s, p, LEN, &pieces, &holes);
	assert_true(pieces > 10 && holes == 0);
	/* One changed byte costs one chunk or two. */
	ok(store_stats(s, &st, &err), &err);
	p[LEN / 2] ^= 1;
	put_content(ss, s, p, LEN, &pieces, &holes);
	ok(store_stats(s, &st2, &err), &err);
	assert_true(st2.bytes_put - st.bytes_put <= 2 << 20);
	/* Zeros are holes. */
	memset(p + (2 << 20), 0, 5 << 20);
	put_content(ss, s, p, LEN, &pieces, &holes);
	assert_true(holes >= 1 && holes <= 3);
	memset(p, 0, LEN);
	put_content(ss, s, p, LEN, &pieces, &holes);
	assert_int_equal(pieces, holes);
	put_content(ss, s, p, 1000, &pieces, &holes);
	assert_int_equal(holes, 1);
	/* A source that fails ends it. */
	content(5, p, LEN);
	struct source src = { .p = p, .s = s, .out = malloc(LEN), .fail_at = 2 };
	struct store_content c = { source_read, source_emit, &src };
	assert_int_equal(store_put_content(ss, 0, LEN, &c, &err), -EIO);
	assert_string_equal(err.text, "the source fails");
	src = (struct source){ .p = p, .s = s, .out = src.out, .fail_at = 2, .len = LEN };
	c.read = read_some;
	assert_int_equal(store_put_stream(ss, &c, &err), -EIO);
	free(src.out);
	free(p);
	store_session_end(ss);
	store_close(s);
}

/* ---- threads and processes ---- */

enum { THREADS = 4, EACH = 400 };
struct worker {
	struct store *s;
	uint64_t from;
	pthread_t t;
};

static void *work(void *ctx)
{
	struct worker *w = ctx;
	struct store_session *ss;
	intptr_t bad = store_session_begin(w->s, &ss, NULL) < 0;
	for (uint64_t n = 0; n < EACH && !bad; n++) {
		bad += try_put(ss, w->from + n) < 0;
		if (n % 50 == 49)
			bad += store_sync(ss, NULL) < 0;
		struct digest d = digest_of(w->from + n / 2);
		const struct blob *b;
		if (store_get(w->s, &d, &b, NULL) < 0)
			bad++;
		else
			blob_put(b);
	}
	store_session_end(ss);
	return (void *)bad;
}

static void test_threads(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store,
				     &(struct store_options){ .pack_bytes = STORE_PACK_BYTES_MIN,
							      .cache_bytes = 100000 });
	struct worker w[THREADS];
	for (int i = 0; i < THREADS; i++) { /* neighbours put the same things at once */
		w[i] = (struct worker){ .s = s, .from = (uint64_t)i / 2 * EACH };
		assert_int_equal(pthread_create(&w[i].t, NULL, work, &w[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		void *bad;
		(void)pthread_join(w[i].t, &bad);
		assert_null(bad);
	}
	get_range(s, 0, THREADS / 2 * EACH);
	assert_int_equal(check(s, false), 0);
	store_close(s);
}

/* A writing process that stays alive while we use the store. */
struct peer {
	pid_t pid;
	int to, from;
};

static void peer_wait(struct peer *p)
{
	char c;
	assert_int_equal(read(p->from, &c, 1), 1);
}

static struct peer peer_start(const struct scratch *sc, uint64_t from, uint64_t to, bool sync)
{
	int a[2], b[2];
	assert_true(pipe(a) == 0 && pipe(b) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct store *s;
		struct store_session *ss;
		if (store_open(&s, sc->store, NULL, NULL) < 0 ||
		    store_session_begin(s, &ss, NULL) < 0)
			_exit(1);
		for (uint64_t n = from; n < to; n++)
			if (try_put(ss, n) < 0)
				_exit(1);
		if (sync && store_sync(ss, NULL) < 0)
			_exit(1);
		char c = 'x';
		(void)!write(b[1], &c, 1);
		(void)!read(a[0], &c, 1);
		store_session_end(ss);
		store_close(s);
		_exit(0);
	}
	(void)close(a[0]);
	(void)close(b[1]);
	struct peer p = { pid, a[1], b[0] };
	peer_wait(&p);
	return p;
}

static void peer_stop(struct peer *p)
{
	int status;
	/* A byte, since other peers may hold this end open, too. */
	assert_int_equal(write(p->to, "x", 1), 1);
	(void)close(p->to);
	(void)close(p->from);
	assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
	assert_int_equal(status, 0);
}

static void test_processes(void **state)
{
	struct scratch *sc = *state;
	store_close(open_store(sc->store, NULL));
	struct peer a = peer_start(sc, 0, 100, true), b = peer_start(sc, 50, 150, true);
	struct store *s = open_store(sc->store, NULL);
	get_range(s, 0, 150);
	struct store_stats st;
	put_range(s, 0, 200);
	ok(store_stats(s, &st, NULL), NULL);
	assert_int_equal(st.put_hits, 150);
	assert_int_equal(packs(sc, 0, NULL), 3);
	assert_int_equal(check(s, false), 0);
	peer_stop(&a);
	store_close(s); /* not the last one */
	peer_stop(&b);
	s = open_store(sc->store, NULL);
	get_range(s, 0, 200);
	/* The packs of the gone are taken over. */
	put_range(s, 200, 210);
	assert_int_equal(packs(sc, 0, NULL), 3);
	store_close(s);
}

/* What another process has written, and not synced, is made durable by who relies on it. */
static void test_other_durable(void **state)
{
	struct scratch *sc = *state;
	store_close(open_store(sc->store, NULL));
	/* So many that the index has most of them before any sync. */
	struct peer a = peer_start(sc, 0, STORE_FLUSH_AT + 500, false);
	struct io_fault *f = io_fault_new(NULL);
	struct store *s = open_store(sc->store, &(struct store_options){ .io = io_fault_io(f) });
	uint64_t before = io_fault_calls(f, IO_OP_FDATASYNC);
	put_range(s, 0, 10);
	assert_int_equal(io_fault_calls(f, IO_OP_FDATASYNC) - before, 1);
	struct store_stats st;
	ok(store_stats(s, &st, NULL), NULL);
	assert_int_equal(st.put_hits, 10);
	/* Known to be durable from now on. */
	before = io_fault_calls(f, IO_OPS_SYNC);
	put_range(s, 0, 10);
	assert_int_equal(io_fault_calls(f, IO_OPS_SYNC) - before, 0);
	/* A disk that fails then makes the sync fail, and the session with it. */
	struct store_session *ss = begin(s);
	ok(try_put(ss, 5000), NULL);
	io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OP_FDATASYNC, .nth = 1 });
	struct err err;
	assert_int_equal(store_sync(ss, &err), -EIO);
	assert_int_equal(store_sync(ss, &err), -EIO);
	assert_int_equal(try_put(ss, 5001), -EIO);
	store_session_end(ss);
	store_close(s);
	peer_stop(&a);
	io_fault_free(f);
}

/* The last one to close leaves a state that is trusted; its layout is what FORMAT.md says. */
static void test_state_file(void **state)
{
	struct scratch *sc = *state;
	static const uint8_t boot[BOOT_ID_BYTES] = {
		0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
		0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10
	};
	struct store_options opt = { .boot_id = boot };
	struct store *s = open_store(sc->store, &opt);
	put_range(s, 0, 10);
	auto_free uint8_t *b = NULL;
	auto_free uint8_t *b2 = NULL;
	size_t len;
	ok(io_slurp(NULL, AT_FDCWD, store_file(sc, "index/state"), 1000, (void **)&b, &len, NULL),
	   NULL);
	assert_int_equal(len, 72);
	assert_memory_equal(b + 8, "BIdx", 4);
	assert_int_equal(le_get32(b + 12), 1);
	assert_memory_equal(b + 16, boot, sizeof(boot));
	assert_int_equal(le_get32(b + 32), 0); /* in use */
	assert_true(le_get64(b) == hash_xxh3(b + 8, 64, 0));
	store_close(s);
	ok(io_slurp(NULL, AT_FDCWD, store_file(sc, "index/state"), 1000, (void **)&b2, &len, NULL),
	   NULL);
	assert_int_equal(le_get32(b2 + 32), 1); /* closed */
	uint64_t hash;
	ok(index_hash_file(store_file(sc, "index"), le_get64(b2 + 40), &hash), NULL);
	assert_true(le_get64(b2 + 48) == hash);
	assert_int_equal(le_get64(b2 + 56), file_size(store_file(sc, "index/data.mdb")));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, scratch_set_up, scratch_tear_down)
	const struct CMUnitTest tests[] = {
		T(test_round_trip),  T(test_sizes),         T(test_dedup),   T(test_reopen),
		T(test_sealed),      T(test_cost_of_sync),  T(test_cache),   T(test_content),
		T(test_open_errors), T(test_open_twice),    T(test_threads), T(test_processes),
		T(test_state_file),  T(test_other_durable),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
