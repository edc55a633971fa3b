/* The store when disks fail, space runs out, processes are killed, power is lost and bits flip. */
#include "tests/unit/store_tools.h"

#include <pthread.h>
#include <stdatomic.h>
#include "fs/base/buf.h"
#include "fs/base/io_fault.h"
#include "fs/store/internal.h"
#include "tests/unit/oom.h"

/* ---- a disk that fails the n-th call ---- */

/* What a program does that saves: returns how many contents are acknowledged as durable. */
static uint64_t save_some(const struct scratch *sc, const struct io *io, uint64_t from)
{
	struct store *s;
	struct store_session *ss;
	struct store_options opt = { .io = io, .create = true, .pack_bytes = STORE_PACK_BYTES_MIN };
	uint64_t acked = from;
	if (store_open(&s, sc->store, &opt, NULL) < 0)
		return acked;
	if (store_session_begin(s, &ss, NULL) == 0) {
		for (uint64_t n = from; n < from + 60; n++) {
			if (try_put(ss, n) < 0)
				break;
			if (n % 20 == 19 && store_sync(ss, NULL) == 0)
				acked = n + 1;
		}
		store_session_end(ss);
	}
	store_close(s);
	return acked;
}

/* All of it, for one kind of failure. `step` leaves out calls to save time. */
static void fail_each(const struct scratch *sc, struct io_fault_plan plan, unsigned step)
{
	for (uint64_t n = 1;; n += step) {
		assert_int_equal(io_remove_tree(AT_FDCWD, sc->store, NULL), 0);
		assert_int_equal(save_some(sc, NULL, 1000), 1060);
		struct io_fault *f = io_fault_new(NULL);
		plan.nth = n;
		io_fault_plan(f, &plan);
		uint64_t acked = save_some(sc, io_fault_io(f), 0);
		bool failed = io_fault_hits(f) > 0;
		io_fault_free(f);
		struct store *s = open_store(sc->store, NULL);
		get_range(s, 1000, 1060);
		get_range(s, 0, acked);
		int64_t faults = check(s, false);
		if (faults > (plan.for_good && plan.torn ? 1 : 0))
			fail_msg("call %llu: %lld faults", (unsigned long long)n,
				 (long long)faults);
		put_range(s, 0, 70);
		get_range(s, 0, 70);
		(void)check(s, true);
		assert_int_equal(check(s, false), 0);
		store_close(s);
		if (!failed) {
			assert_int_equal(acked, 60);
			return;
		}
	}
}

static void test_each_call_fails(void **state)
{
	fail_each(*state, (struct io_fault_plan){ .ops = IO_OPS_CHANGE, .error = -EIO }, 1);
}

static void test_each_call_kills(void **state)
{
	fail_each(*state,
		  (struct io_fault_plan){ .ops = IO_OPS_CHANGE, .error = -EIO, .for_good = true },
		  2);
}

static void test_torn_writes(void **state)
{
	fail_each(*state,
		  (struct io_fault_plan){
			  .ops = IO_OP_PWRITE, .error = -EIO, .for_good = true, .torn = 100 },
		  3);
}

static void test_reads_fail(void **state)
{
	fail_each(*state, (struct io_fault_plan){ .ops = IO_OP_PREAD | IO_OP_FSTAT | IO_OP_OPEN },
		  3);
}

static void test_short_transfers(void **state)
{
	struct scratch *sc = *state;
	struct io_fault *f = io_fault_new(NULL);
	io_fault_chunk(f, 100);
	struct store *s = open_store(sc->store, &(struct store_options){ .io = io_fault_io(f) });
	put_range(s, 0, 50);
	get_range(s, 0, 50);
	assert_int_equal(check(s, false), 0);
	store_close(s);
	io_fault_free(f);
}

static void test_disk_full(void **state)
{
	struct scratch *sc = *state;
	struct io_fault *f = io_fault_new(NULL);
	struct store *s = open_store(sc->store, &(struct store_options){ .io = io_fault_io(f) });
	put_range(s, 0, 20);
	uint64_t n = 20;
	for (uint64_t space = 0; space < 20000; space += 1999) {
		struct store_session *ss = begin(s);
		io_fault_space(f, space);
		int r = 0;
		while (n < 1000 && (r = try_put(ss, n)) == 0)
			n++;
		assert_int_equal(r, -ENOSPC);
		get_range(s, 0, n); /* what was put is there */
		io_fault_space(f, UINT64_MAX);
		ok(try_put(ss, n++), NULL); /* and it goes on when space returns */
		ok(store_sync(ss, NULL), NULL);
		store_session_end(ss);
		assert_int_equal(check(s, false), 0);
	}
	store_close(s);
	/* Space that ends when the first pack is to be made. */
	assert_int_equal(io_remove_tree(AT_FDCWD, sc->store, NULL), 0);
	s = open_store(sc->store, &(struct store_options){ .io = io_fault_io(f) });
	io_fault_space(f, 10);
	struct store_session *ss = begin(s);
	assert_int_equal(try_put(ss, 1), -ENOSPC);
	assert_int_equal(packs(sc, 0, NULL), 0);
	io_fault_space(f, UINT64_MAX);
	ok(try_put(ss, 1), NULL);
	store_session_end(ss);
	store_close(s);
	io_fault_free(f);
}

/* After a failed fdatasync the kernel may have dropped the pages: what wasn't durable before is
 * lost for whoever relied on it, in any session, and is written anew by the next. */
static void test_sync_fails(void **state)
{
	struct scratch *sc = *state;
	struct io_fault *f = io_fault_new(NULL);
	struct store *s = open_store(sc->store, &(struct store_options){ .io = io_fault_io(f) });
	put_range(s, 0, 20);
	struct store_session *a = begin(s), *b = begin(s);
	for (uint64_t n = 0; n < 40; n++) {
		ok(try_put(a, n), NULL);
		ok(try_put(b, n), NULL);
	}
	struct err err;
	io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OP_FDATASYNC, .nth = 1 });
	assert_int_equal(store_sync(a, &err), -EIO);
	assert_int_equal(store_sync(b, &err), -EIO);
	assert_int_equal(try_put(b, 50), -EIO);
	store_session_end(a);
	store_session_end(b);
	get_range(s, 0, 20);
	for (uint64_t n = 20; n < 40; n++)
		assert_int_equal(try_get(s, n), -ENOENT);
	put_range(s, 20, 40);
	get_range(s, 0, 40);
	assert_int_equal(check(s, false), 0);
	store_close(s);
	s = open_store(sc->store, NULL);
	get_range(s, 0, 40);
	store_close(s);
	io_fault_free(f);
}

/* ---- kills and power loss ---- */

static void put_and_die(void *ctx)
{
	struct scratch *sc = ctx;
	struct store *s = open_store(sc->store, NULL);
	put_range(s, 0, 30);
	struct store_session *ss = begin(s);
	for (uint64_t n = 30; n < 60; n++)
		ok(try_put(ss, n), NULL);
}

static void test_killed_writer(void **state)
{
	struct scratch *sc = *state;
	char path[512];
	in_child(put_and_die, sc);
	struct store *s = open_store(sc->store, NULL);
	get_range(s, 0, 60); /* a kill takes nothing that was written */
	put_range(s, 60, 70);
	assert_int_equal(packs(sc, 0, path), 1); /* it goes on in the dead one's pack */
	assert_int_equal(check(s, false), 0);
	store_close(s);
	/* A torn record at the end of a pack is cut before more is appended. */
	static const uint8_t junk[77] = { 1, 2, 3 };
	write_file(path, junk, sizeof(junk), file_size(path));
	s = open_store(sc->store, NULL);
	assert_int_equal(check(s, false), 1);
	put_range(s, 70, 80);
	get_range(s, 0, 80);
	assert_int_equal(check(s, false), 0);
	assert_int_equal(packs(sc, 0, NULL), 1);
	store_close(s);
}

/* Another process's pack, whose writer died before it synced, is taken over, and cut when the disk
 * fails: what was in it is written anew, and found where it is then. */
static void test_sync_fails_of_left(void **state)
{
	struct scratch *sc = *state;
	struct io_fault *f = io_fault_new(NULL);
	struct store *s = open_store(sc->store, &(struct store_options){ .io = io_fault_io(f) });
	struct store *dead = open_store(sc->store, NULL);
	struct store_session *ss = begin(dead);
	for (uint64_t n = 0; n < 30; n++)
		ok(try_put(ss, n), NULL);
	ok(writer_flush(dead, NULL), NULL);
	store_session_end(ss);
	wpack_unuse(dead, dead->w.cur);
	dead->w.cur = NULL;
	ss = begin(s);
	ok(try_put(ss, 30), NULL);
	assert_int_equal(packs(sc, 0, NULL), 1);
	io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OP_FDATASYNC, .nth = 1 });
	assert_int_equal(store_sync(ss, NULL), -EIO);
	store_session_end(ss);
	put_range(s, 0, 31);
	get_range(s, 0, 31);
	assert_int_equal(check(s, false), 0);
	store_close(dead);
	store_close(s);
	io_fault_free(f);
}

static struct {
	struct io io;
	struct stat packs;
	unsigned syncs; /* of the folder of packs */
} folder;

static int folder_fsync(void *ctx, int fd)
{
	struct stat st;
	(void)ctx;
	assert_int_equal(fstat(fd, &st), 0);
	folder.syncs += st.st_ino == folder.packs.st_ino && st.st_dev == folder.packs.st_dev;
	return io_host.fsync(NULL, fd);
}

static void put_only(void *ctx)
{
	struct scratch *sc = ctx;
	struct store *s = open_store(sc->store, NULL);
	struct store_session *ss = begin(s);
	for (uint64_t n = 0; n < 30; n++)
		ok(try_put(ss, n), NULL);
}

/* What a killed writer left counts as durable once it is, and its name, too. */
static void test_name_of_left(void **state)
{
	struct scratch *sc = *state;
	char path[512];
	in_child(put_only, sc);
	assert_int_equal(stat(store_file(sc, "packs"), &folder.packs), 0);
	folder.io = io_host;
	folder.io.fsync = folder_fsync;
	folder.syncs = 0;
	struct store *s = open_store(sc->store, &(struct store_options){ .io = &folder.io });
	struct pack_row *rows;
	size_t n;
	ok(index_rows(s->index, &rows, &n), NULL);
	assert_int_equal(n, 1);
	assert_int_equal(packs(sc, 0, path), 1);
	assert_int_equal(rows[0].synced, file_size(path));
	assert_int_equal(folder.syncs, 1);
	free(rows);
	store_close(s);
}

static void flush_and_die(void *ctx)
{
	struct scratch *sc = ctx;
	struct store *s = open_store(sc->store, NULL);
	struct store_session *ss = begin(s);
	for (uint64_t n = 30; n < 60; n++)
		ok(try_put(ss, n), NULL);
	ok(writer_flush(s, NULL), NULL);
}

/* When the disk fails to take it, it is gone for good: the next sync would say that all is well. */
static void test_sync_fails_at_open(void **state)
{
	struct scratch *sc = *state;
	struct io_fault *f = io_fault_new(NULL);
	struct store *s;
	uint8_t before[STORE_LOSSES_BYTES], after[STORE_LOSSES_BYTES];
	char path[512];
	for (int flushed = 0; flushed < 2; flushed++) {
		assert_int_equal(io_remove_tree(AT_FDCWD, sc->store, NULL), 0);
		s = open_store(sc->store, NULL);
		put_range(s, 0, 30);
		store_losses(s, before);
		store_close(s);
		assert_int_equal(packs(sc, 0, path), 1);
		uint64_t durable = file_size(path);
		in_child(flushed ? flush_and_die : put_and_die, sc);
		io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OP_FDATASYNC, .nth = 1 });
		const struct store_options opt = { .io = io_fault_io(f) };
		assert_int_equal(store_open(&s, sc->store, &opt, NULL), -EIO);
		assert_int_equal(io_fault_hits(f), 1);
		io_fault_plan(f, NULL);
		assert_int_equal(file_size(path), durable);
		s = open_store(sc->store, NULL);
		store_losses(s, after);
		assert_memory_not_equal(before, after, sizeof(after));
		put_range(s, 0, 60);
		get_range(s, 0, 60);
		assert_int_equal(check(s, false), 0);
		store_close(s);
	}
	io_fault_free(f);
}

/* However many packs' tables nobody has synced, the folder is synced once. */
static void test_names_at_close(void **state)
{
	struct scratch *sc = *state;
	folder.io = io_host;
	folder.io.fsync = folder_fsync;
	const struct store_options opt = { .io = &folder.io, .pack_bytes = STORE_PACK_BYTES_MIN };
	struct store *s = open_store(sc->store, &opt);
	assert_int_equal(stat(store_file(sc, "packs"), &folder.packs), 0);
	struct store_session *ss = begin(s);
	for (uint64_t n = 0; n < 200; n++)
		ok(try_put(ss, n), NULL);
	ok(store_sync(ss, NULL), NULL);
	store_session_end(ss);
	assert_true(packs(sc, 0, NULL) > 3);
	folder.syncs = 0;
	store_close(s);
	assert_int_equal(folder.syncs, 1);
	s = open_store(sc->store, NULL);
	struct pack_row *rows;
	size_t n;
	ok(index_rows(s->index, &rows, &n), NULL);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(rows[i].synced, rows[i].indexed);
	free(rows);
	get_range(s, 0, 200);
	store_close(s);
}

/* What can't be read of a pack is looked at again, and counted once. */
static void test_unreadable_tail(void **state)
{
	struct scratch *sc = *state;
	char path[512];
	in_child(put_and_die, sc);
	assert_int_equal(packs(sc, 0, path), 1);
	struct sick disk = { .at = file_size(path) - 5000 };
	for (int i = 0; i < 3; i++) {
		struct store *s = open_store(sc->store,
					     &(struct store_options){ .io = sick_io(&disk) });
		struct pack_row *rows;
		size_t n;
		ok(index_rows(s->index, &rows, &n), NULL);
		assert_int_equal(n, 1);
		assert_int_equal(rows[0].records, i < 2 ? 30 : 60);
		free(rows);
		store_close(s);
		disk.at = i < 1 ? disk.at : 0;
	}
}

/* ---- an index that is made anew while others put ---- */

static struct {
	struct io io;
	struct store *s;
	pthread_t thread;
	bool began;
	atomic_bool ended;
} rebuilding;

static void *put_beside(void *ctx)
{
	(void)ctx;
	put_range(rebuilding.s, 200, 210);
	atomic_store(&rebuilding.ended, true);
	return NULL;
}

static int open_beside(void *ctx, int dirfd, const char *name, int flags, mode_t mode)
{
	uint64_t id;
	(void)ctx;
	if (rebuilding.s && !rebuilding.began && pack_name_parse(name, &id) == 0) {
		rebuilding.began = true;
		assert_int_equal(pthread_create(&rebuilding.thread, NULL, put_beside, NULL), 0);
		for (int i = 0; i < 100 && !atomic_load(&rebuilding.ended); i++)
			(void)usleep(1000);
	}
	return io_host.open(NULL, dirfd, name, flags, mode);
}

static void test_rebuilt_beside(void **state)
{
	struct scratch *sc = *state;
	rebuilding.io = io_host;
	rebuilding.io.open = open_beside;
	const struct store_options opt = { .io = &rebuilding.io,
					   .pack_bytes = STORE_PACK_BYTES_MIN };
	struct store *s = open_store(sc->store, &opt);
	struct store_session *ss = begin(s);
	for (uint64_t n = 0; n < 100; n++)
		ok(try_put(ss, n), NULL);
	struct err err;
	ok(store_sync(ss, &err), &err);
	rebuilding.s = s;
	ok(recover_rebuild(s, &err), &err);
	assert_true(rebuilding.began);
	(void)pthread_join(rebuilding.thread, NULL);
	rebuilding.s = NULL;
	store_session_end(ss);
	get_range(s, 0, 100);
	get_range(s, 200, 210);
	assert_int_equal(check(s, false), 0);
	store_close(s);
}

static void test_leftovers(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, NULL);
	put_range(s, 0, 10);
	store_close(s);
	/* Killed right after the file was made; names that are none of ours; a dead session. */
	write_file(store_file(sc, "packs/00000000000000aa.pack"), "", 0, 0);
	write_file(store_file(sc, "packs/00000000000000ab.pack"), "Bough", 5, 0);
	write_file(store_file(sc, "packs/README"), "hello", 5, 0);
	write_file(store_file(sc, "sessions/1-x"), "", 0, 0);
	s = open_store(sc->store, NULL);
	assert_int_equal(packs(sc, 0, NULL), 2);
	get_range(s, 0, 10);
	assert_int_equal(check(s, false), 0);
	store_close(s);
}

/* The ids of three boots. */
static const uint8_t boots[][BOOT_ID_BYTES] = { { 1 }, { 2 }, { 3 } };

static void put_and_lose_power(void *ctx)
{
	struct scratch *sc = ctx;
	struct store_options opt = { .boot_id = boots[0] };
	struct store *s = open_store(sc->store, &opt);
	put_range(s, 0, 30);
	struct store_session *ss = begin(s);
	for (uint64_t n = 30; n < 60; n++)
		ok(try_put(ss, n), NULL);
	ok(writer_flush(s, NULL), NULL); /* the index knows them, and nothing is durable */
}

/* Power loss: the tail of the pack is gone, and the index still points there. */
static void test_power_loss(void **state)
{
	struct scratch *sc = *state;
	struct store_options opt = { .boot_id = boots[0] };
	char path[512];
	in_child(put_and_lose_power, sc);
	assert_int_equal(packs(sc, 0, path), 1);
	struct store *s = open_store(sc->store, &opt); /* the same boot: all is there */
	get_range(s, 0, 60);
	struct pack_row *rows;
	struct place p;
	struct pack_row row;
	size_t n;
	ok(index_rows(s->index, &rows, &n), NULL);
	assert_int_equal(n, 1);
	free(rows);
	struct digest d = digest_of(45);
	assert_int_equal(index_get(s->index, &d, &p, &row), 1);
	store_close(s);
	/* As if the last open had not been: unclosed, and cut in the middle. */
	assert_int_equal(io_remove_tree(AT_FDCWD, sc->store, NULL), 0);
	in_child(put_and_lose_power, sc);
	assert_int_equal(packs(sc, 0, path), 1);
	assert_int_equal(truncate(path, (off_t)p.off + 20), 0);
	opt.boot_id = boots[1];
	s = open_store(sc->store, &opt);
	get_range(s, 0, 45);
	for (uint64_t i = 45; i < 60; i++)
		assert_int_equal(try_get(s, i), -ENOENT);
	put_range(s, 0, 60);
	get_range(s, 0, 60);
	assert_int_equal(check(s, false), 0);
	store_close(s);
	/* Closed cleanly, another boot: trusted by its hash. */
	opt.boot_id = boots[2];
	s = open_store(sc->store, &opt);
	assert_false(s->dirty);
	get_range(s, 0, 60);
	store_close(s);
}

/* The index that comes back from power loss may be an old one that was closed: packs have grown,
 * and others are new. */
static void test_old_index(void **state)
{
	struct scratch *sc = *state;
	struct store_options opt = { .boot_id = boots[0], .pack_bytes = STORE_PACK_BYTES_MIN };
	struct store *s = open_store(sc->store, &opt);
	put_range(s, 0, 30);
	store_close(s);
	static const char *const files[] = { "index/data.mdb", "index/state" };
	void *data[2];
	size_t len[2];
	for (size_t i = 0; i < 2; i++)
		ok(io_slurp(NULL, AT_FDCWD, store_file(sc, files[i]), 64 << 20, &data[i], &len[i],
			    NULL),
		   NULL);
	s = open_store(sc->store, &opt);
	put_range(s, 30, 200);
	store_close(s);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(unlink(store_file(sc, files[i])), 0);
		write_file(store_file(sc, files[i]), data[i], len[i], 0);
		free(data[i]);
	}
	opt.boot_id = boots[1];
	s = open_store(sc->store, &opt);
	get_range(s, 0, 200);
	assert_int_equal(check(s, false), 0);
	store_close(s);
}

/* ---- damage ---- */

static void test_index_damage(void **state)
{
	struct scratch *sc = *state;
	struct store_options opt = { .pack_bytes = STORE_PACK_BYTES_MIN };
	const char *data = store_file(sc, "index/data.mdb"), *st = store_file(sc, "index/state");
	for (unsigned k = 0; k < 40; k++) {
		struct store *s = open_store(sc->store, &opt);
		put_range(s, 0, 200);
		store_close(s);
		switch (k) {
		case 0:
			assert_int_equal(unlink(data), 0);
			break;
		case 1:
			assert_int_equal(unlink(st), 0);
			break;
		case 2:
			flip(st, 40);
			break;
		case 3:
			assert_int_equal(truncate(data, 0), 0);
			break;
		case 4:
			assert_int_equal(truncate(data, 5000), 0);
			break;
		case 5:
			assert_int_equal(truncate(data, 8192), 0);
			break;
		case 6:
			assert_int_equal(io_remove_tree(AT_FDCWD, store_file(sc, "index"), NULL),
					 0);
			break;
		default:
			flip(data, (k - 7) * 1511);
		}
		s = open_store(sc->store, &opt);
		get_range(s, 0, 200);
		assert_int_equal(check(s, false), 0);
		store_close(s);
	}
}

/* An index that was in use when its users were killed is proven by a walk. */
static void test_index_damage_unclosed(void **state)
{
	struct scratch *sc = *state;
	for (unsigned k = 0; k < 30; k++) {
		assert_int_equal(io_remove_tree(AT_FDCWD, sc->store, NULL), 0);
		in_child(put_and_die, sc);
		const char *data = store_file(sc, "index/data.mdb");
		if (k == 0)
			assert_int_equal(truncate(data, 8192), 0);
		else if (k == 1)
			assert_int_equal(truncate(data, 100), 0);
		else
			for (unsigned i = 0; i < 64; i++)
				flip(data, 8192 + k * 1009 + i * 8);
		struct store *s = open_store(sc->store, NULL);
		get_range(s, 0, 30);
		(void)check(s, true);
		get_range(s, 0, 60);
		store_close(s);
	}
}

/* What the disk can't give of it raises SIGBUS: here, the file is cut under LMDB's map. Then some
 * objects aren't found; nobody dies, and the next who is alone makes it anew. */
static void test_index_pages_vanish(void **state)
{
	struct scratch *sc = *state;
	enum { OBJECTS = 2000 };
	static const int left[] = { 0, 1, 2, 8, 14, 20, 26, 32, 38 };
	for (unsigned k = 0; k < sizeof(left) / sizeof(*left); k++) {
		int pages = left[k]; /* of 0 and 1 LMDB would say which tree is the newest */
		struct store *s = open_store(sc->store, NULL);
		put_range(s, 0, OBJECTS);
		get_range(s, 0, OBJECTS);
		store_trim(s, 0);
		assert_int_equal(truncate(store_file(sc, "index/data.mdb"), pages * 4096), 0);
		unsigned bad = 0;
		for (uint64_t n = 0; n < OBJECTS; n++)
			bad += try_get(s, n) < 0;
		assert_true(bad > 0);
		struct store_session *ss = begin(s);
		(void)try_put(ss, OBJECTS + 1); /* it may, or not */
		(void)store_sync(ss, NULL);
		store_session_end(ss);
		store_close(s);
		assert_int_equal(access(store_file(sc, "index/distrust"), F_OK), 0);
		s = open_store(sc->store, NULL);
		get_range(s, 0, OBJECTS);
		assert_int_equal(check(s, false), 0);
		store_close(s);
	}
}

/* One flipped bit in a record, of a sealed pack and of an open one. */
static void test_flipped_bit(void **state)
{
	struct scratch *sc = *state;
	for (unsigned k = 0; k < 2; k++) {
		struct store *s = open_store(sc->store,
					     &(struct store_options){
						     .pack_bytes = k ? 0 : STORE_PACK_BYTES_MIN });
		put_range(s, 0, 200);
		struct digest d = digest_of(33);
		struct place p;
		struct pack_row row;
		assert_int_equal(index_get(s->index, &d, &p, &row), 1);
		char name[PACK_NAME_BYTES], path[600];
		pack_name(name, p.pack);
		(void)snprintf(path, sizeof(path), "%s/packs/%s", sc->store, name);
		flip(path, p.off + PACK_HEAD_BYTES + 11);
		store_trim(s, 0);
		const struct blob *b;
		struct err err;
		assert_int_equal(store_get(s, &d, &b, &err), -EBADMSG);
		assert_non_null(strstr(err.text, "is damaged"));
		get_range(s, 0, 33);
		get_range(s, 34, 200);
		struct faults f = { 0 };
		assert_int_equal(store_check(s, false, on_fault, &f, &err), 2);
		assert_int_equal(f.n, 2); /* the record, and the entry that points at it */
		assert_int_equal(f.index, 1);
		assert_true(digest_equal(&f.object, &d));
		/* Put again, it is whole again. */
		put_range(s, 33, 34);
		get_range(s, 0, 200);
		assert_int_equal(store_check(s, true, on_fault, &f, &err), 1);
		get_range(s, 0, 200);
		store_close(s);
		s = open_store(sc->store, NULL);
		get_range(s, 0, 200);
		store_close(s);
		/* Read from the packs alone, the whole copy is what counts. */
		assert_int_equal(unlink(store_file(sc, "index/state")), 0);
		s = open_store(sc->store, NULL);
		store_trim(s, 0);
		get_range(s, 0, 200);
		store_close(s);
		assert_int_equal(io_remove_tree(AT_FDCWD, sc->store, NULL), 0);
	}
}

static void test_missing_pack(void **state)
{
	struct scratch *sc = *state;
	struct store_options opt = { .pack_bytes = STORE_PACK_BYTES_MIN };
	struct store *s = open_store(sc->store, &opt);
	put_range(s, 0, 200);
	store_close(s);
	char path[512];
	unsigned n = packs(sc, 0, path);
	assert_int_equal(unlink(path), 0);
	s = open_store(sc->store, &opt);
	unsigned lost = 0;
	for (uint64_t i = 0; i < 200; i++) {
		int r = try_get(s, i);
		assert_true(r == 0 || r == -EBADMSG);
		lost += r < 0;
	}
	assert_true(lost > 0 && lost < 200);
	struct faults f = { 0 };
	struct err err;
	assert_int_equal(store_check(s, false, on_fault, &f, &err), lost + 1);
	assert_int_equal(store_check(s, true, on_fault, &f, &err), lost + 1);
	assert_int_equal(check(s, false), 0);
	for (uint64_t i = 0; i < 200; i++) {
		int r = try_get(s, i);
		assert_true(r == 0 || r == -ENOENT);
	}
	put_range(s, 0, 200); /* nothing relies on what is missing */
	get_range(s, 0, 200);
	assert_true(packs(sc, 0, NULL) >= n);
	store_close(s);
	/* The same without a repair: puts alone heal it. */
	assert_true(packs(sc, 0, path) > 0);
	assert_int_equal(unlink(path), 0);
	s = open_store(sc->store, &opt);
	put_range(s, 0, 200);
	get_range(s, 0, 200);
	store_close(s);
}

static void test_pack_header(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, NULL);
	put_range(s, 0, 20);
	store_close(s);
	char path[512];
	assert_int_equal(packs(sc, 0, path), 1);
	flip(path, 18);
	assert_int_equal(unlink(store_file(sc, "index/state")), 0);
	s = open_store(sc->store, NULL);
	get_range(s, 0, 20);
	assert_int_equal(check(s, true), 1);
	assert_int_equal(check(s, false), 0);
	store_close(s);
}

/* Everything that a sealed pack's end can suffer. */
static void test_damaged_table(void **state)
{
	struct scratch *sc = *state;
	struct store_options opt = { .pack_bytes = STORE_PACK_BYTES_MIN };
	for (unsigned back = 1; back < 400; back += 57) {
		struct store *s = open_store(sc->store, &opt);
		put_range(s, 0, 100);
		store_close(s);
		char path[512];
		unsigned n = packs(sc, 0, NULL), k = 0;
		do
			(void)packs(sc, k, path);
		while (file_size(path) < STORE_PACK_BYTES_MIN * 9 / 10 && ++k < n);
		assert_true(k < n);
		flip(path, file_size(path) - back);
		s = open_store(sc->store, &opt);
		get_range(s, 0, 100);
		assert_int_equal(check(s, true), 1);
		assert_int_equal(check(s, false), 0);
		put_range(s, 100, 200);
		get_range(s, 0, 200);
		assert_int_equal(check(s, false), 0);
		store_close(s);
		flip(path, file_size(path) - back);
		assert_int_equal(unlink(store_file(sc, "index/state")), 0);
		s = open_store(sc->store, &opt);
		get_range(s, 0, 200);
		store_close(s);
		assert_int_equal(io_remove_tree(AT_FDCWD, sc->store, NULL), 0);
	}
}

struct lie {
	struct digest d;
	struct place p;
};

static int lie_txn(struct index_txn *t, void *ctx)
{
	struct lie *l = ctx;
	return index_txn_put(t, &l->d, &l->p);
}

static void lie(struct store *s, uint64_t n, uint64_t m)
{
	struct lie l = { .d = digest_of(n) };
	struct digest other = digest_of(m);
	struct pack_row row;
	assert_int_equal(index_get(s->index, &other, &l.p, &row), 1);
	ok(store_index_write(s, lie_txn, &l), NULL);
	store_trim(s, 0);
}

/* The index says, with a right checksum, that an object lies where another one does. */
static void test_lying_index(void **state)
{
	struct scratch *sc = *state;
	struct store *s = open_store(sc->store, NULL);
	put_range(s, 0, 50);
	lie(s, 10, 11);
	assert_int_equal(try_get(s, 10), -EBADMSG);
	get_range(s, 11, 50);
	assert_int_equal(check(s, true), 1);
	get_range(s, 0, 50); /* the repair has found it at its true place */
	assert_int_equal(check(s, false), 0);
	store_close(s);
}

/* ---- memory ---- */

static void test_no_memory(void **state)
{
	struct scratch *sc = *state;
	for (uint64_t at = 1;; at++) {
		struct store *s = NULL;
		struct store_session *ss = NULL;
		struct store_options opt = { .create = true };
		oom_at(at);
		int r = store_open(&s, sc->store, &opt, NULL);
		if (r == 0)
			r = store_session_begin(s, &ss, NULL);
		for (uint64_t n = 0; r == 0 && n < 70; n++)
			r = try_put(ss, n);
		if (r == 0)
			r = store_sync(ss, NULL);
		if (r == 0) {
			struct digest d = digest_of(5);
			const struct blob *b;
			r = store_get(s, &d, &b, NULL);
			if (r == 0)
				blob_put(b);
		}
		bool hit = oom_hit();
		oom_at(0);
		if (!hit)
			assert_int_equal(r, 0);
		store_session_end(ss);
		store_close(s);
		s = open_store(sc->store, NULL);
		put_range(s, 0, 70);
		get_range(s, 0, 70);
		assert_int_equal(check(s, false), 0);
		store_close(s);
		assert_int_equal(io_remove_tree(AT_FDCWD, sc->store, NULL), 0);
		if (!hit)
			return;
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, scratch_set_up, scratch_tear_down)
	const struct CMUnitTest tests[] = {
		T(test_each_call_fails),
		T(test_each_call_kills),
		T(test_torn_writes),
		T(test_reads_fail),
		T(test_short_transfers),
		T(test_disk_full),
		T(test_sync_fails),
		T(test_killed_writer),
		T(test_sync_fails_of_left),
		T(test_name_of_left),
		T(test_sync_fails_at_open),
		T(test_names_at_close),
		T(test_unreadable_tail),
		T(test_rebuilt_beside),
		T(test_leftovers),
		T(test_power_loss),
		T(test_old_index),
		T(test_index_damage),
		T(test_index_damage_unclosed),
		T(test_index_pages_vanish),
		T(test_flipped_bit),
		T(test_missing_pack),
		T(test_pack_header),
		T(test_damaged_table),
		T(test_lying_index),
		T(test_no_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
