/* The log of fsyncs: its bytes, what a replay makes of it, and when it is gone. */
#include "fs/base/cleanup.h"
#include "fs/base/io_fault.h"
#include "fs/work/layer_impl.h"
#include "fs/work/synclog.h"
#include "tests/unit/layer_kit.h"
#include "tests/unit/sim_disk.h"

enum { SALT = 77, KEPT = 64 };

/* ---- bytes ---- */

static void sample(struct buf *b, struct synclog_record *r)
{
	*r = (struct synclog_record){ .number = 3,
				      .base = 9,
				      .boot = { 1, 2, 3 },
				      .upto = 10,
				      .from = 5000,
				      .end = 5008,
				      .seq = 12,
				      .last_ino = 44,
				      .pieces = 2 };
	assert_non_null(buf_room(b, SYNCLOG_HEAD));
	b->len = SYNCLOG_HEAD;
	buf_add(b, "8 bytes.", 8);
	synclog_piece_head(b, 0, 4096, 5);
	buf_add(b, "small", 5);
	synclog_piece_head(b, 44, 1 << 20, 3);
	buf_add(b, "big", 3);
	synclog_finish(b, r, SALT);
	assert_int_equal(buf_error(b), 0);
	assert_int_equal(b->len % SYNCLOG_ALIGN, 0);
}

static void bytes(void **state)
{
	(void)state;
	auto_buf b = { 0 };
	struct synclog_record in, out;
	struct synclog_piece p;
	sample(&b, &in);
	assert_int_equal(synclog_decode(&out, b.data, b.len, SALT), 0);
	assert_true(out.number == 3 && out.base == 9 && out.upto == 10 && out.from == 5000 &&
		    out.end == 5008 && out.seq == 12 && out.last_ino == 44 && out.pieces == 2);
	assert_memory_equal(out.boot, in.boot, sizeof(in.boot));
	assert_memory_equal(out.body, "8 bytes.", 8);
	struct cur c = synclog_pieces(&out);
	assert_int_equal(synclog_next(&c, &p), 1);
	assert_true(p.file == 0 && p.off == 4096 && p.len == 5 && !memcmp(p.bytes, "small", 5));
	assert_int_equal(synclog_next(&c, &p), 1);
	assert_true(p.file == 44 && p.off == 1 << 20 && p.len == 3 && !memcmp(p.bytes, "big", 3));
	assert_int_equal(synclog_next(&c, &p), 0);
	assert_int_equal(synclog_decode(&out, b.data, b.len, SALT + 1), -EBADMSG);
	for (size_t n = 0; n < b.len; n++)
		assert_int_equal(synclog_decode(&out, b.data, n, SALT), -EBADMSG);
	size_t end = SYNCLOG_HEAD + out.len;
	for (size_t at = 0; at < end; at++) {
		b.data[at] ^= (uint8_t)(1 << at % 8);
		assert_int_equal(synclog_decode(&out, b.data, b.len, SALT), -EBADMSG);
		b.data[at] ^= (uint8_t)(1 << at % 8);
	}
}

/* Right checks on what makes no sense. */
static void refused(void **state)
{
	(void)state;
	static const struct {
		const char *what;
		uint64_t file, off, len;
		uint64_t from, end, upto;
		uint32_t pieces;
	} bad[] = {
		{ "all right", 1, 0, 4, 10, 10, 1, 1 },
		{ "a file that can't be", UINT64_C(1) << 48, 0, 4, 10, 10, 1, 1 },
		{ "the journal as a file", UINT64_MAX, 0, 4, 10, 10, 1, 1 },
		{ "an empty piece", 1, 0, 0, 10, 10, 1, 1 },
		{ "a piece that is longer", 1, 0, 5, 10, 10, 1, 1 },
		{ "a piece beyond 2^63", 1, INT64_MAX - 2, 4, 10, 10, 1, 1 },
		{ "fewer pieces", 1, 0, 4, 10, 10, 1, 2 },
		{ "more pieces", 1, 0, 4, 10, 10, 1, 0 },
		{ "a journal backwards", 1, 0, 4, 10, 9, 1, 1 },
		{ "more of the journal than there is", 1, 0, 4, 10, 100, 1, 1 },
		{ "frames that aren't there yet", 1, 0, 4, 10, 10, 3, 1 },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		auto_buf b = { 0 };
		struct synclog_record r = { .seq = 2,
					    .upto = bad[i].upto,
					    .from = bad[i].from,
					    .end = bad[i].end,
					    .pieces = bad[i].pieces };
		assert_non_null(buf_room(&b, SYNCLOG_HEAD));
		b.len = SYNCLOG_HEAD;
		synclog_piece_head(&b, bad[i].file, bad[i].off, bad[i].len);
		buf_add(&b, "four", 4);
		synclog_finish(&b, &r, SALT);
		int e = synclog_decode(&r, b.data, b.len, SALT);
		if (e != (i ? -EBADMSG : 0))
			print_error("%s\n", bad[i].what);
		assert_int_equal(e, i ? -EBADMSG : 0);
	}
}

/* ---- a layer ---- */

static struct {
	struct sim sim;
	struct kit k;
	uint8_t boot[16];
	struct kit_model at[KEPT]; /* [n]: with the n-th record; [0]: of the whole commit before */
	uint64_t n;
} h;

static struct sim_file *file(const char *name)
{
	char path[200], hex[2 * LAYER_ID_BYTES + 1];
	hex_encode(hex, layer_id(h.k.layer)->b, LAYER_ID_BYTES);
	(void)snprintf(path, sizeof(path), "/root/layers/%s/%s", hex, name);
	int i = sim_find(&h.sim, path);
	return i < 0 || !h.sim.files[i].linked ? NULL : &h.sim.files[i];
}

/* A layer that has so many records in its log. */
static void start(uint64_t seed, uint64_t records)
{
	memset(&h, 0, sizeof(h));
	sim_init(&h.sim, seed);
	(void)sim_new(&h.sim, "/root", true);
	(void)sim_new(&h.sim, "/root/layers", true);
	h.k.rng = seed * 77 + 5;
	h.k.opt = (struct layer_options){ .io = &h.sim.io, .root = "/root", .boot_id = h.boot };
	assert_int_equal(layer_create(&h.k.layer, &h.k.opt, NULL), 0);
	for (unsigned i = 0; h.n < records; i++) {
		assert_true(i < 2000);
		for (int n = 0; n < 3; n++)
			assert_int_equal(kit_step(&h.k), 0);
		assert_int_equal(layer_fsync(h.k.layer, 0, NULL), 0);
		h.n = h.k.layer->log.count;
		assert_true(h.n < KEPT);
		h.at[h.n] = h.k.m;
	}
}

static void stop(void)
{
	layer_unref(h.k.layer);
	sim_done(&h.sim);
}

/* The power goes, and nothing is left of what wasn't synced. */
static void lose_all(void)
{
	for (int i = 0; i < SIM_FILES; i++) {
		struct sim_file *f = &h.sim.files[i];
		if (!f->path || f->dir)
			continue;
		sim_copy(&f->now, &f->safe);
	}
	h.boot[0]++;
}

static void reopen(bool writable)
{
	struct layer_id id = *layer_id(h.k.layer);
	layer_unref(h.k.layer);
	assert_int_equal(layer_open(&h.k.layer, &h.k.opt, &id, writable, NULL), 0);
	assert_int_equal(layer_lost(h.k.layer), 0);
}

static void one_sync_each(void **state)
{
	(void)state;
	start(1, 1);
	struct io_fault *f = io_fault_new(&h.sim.io);
	h.k.layer->io = io_fault_io(f);
	uint64_t calls = 0, logged = 0;
	for (int i = 0; i < 200; i++) {
		uint64_t count = h.k.layer->log.count;
		assert_int_equal(kit_step(&h.k), 0);
		assert_int_equal(layer_fsync(h.k.layer, 0, NULL), 0);
		uint64_t now = io_fault_calls(f, IO_OPS_SYNC);
		if (h.k.layer->log.count == count + 1) {
			assert_true(now <= calls + 1);
			logged++;
		}
		calls = now;
		/* Nothing is left to do, but the background has. */
		assert_int_equal(layer_fsync(h.k.layer, 0, NULL), 0);
		assert_int_equal(io_fault_calls(f, IO_OPS_SYNC), calls);
	}
	assert_true(logged > 150);
	if (h.k.layer->log.count == 0) {
		assert_int_equal(kit_step(&h.k), 0);
		assert_int_equal(layer_fsync(h.k.layer, 0, NULL), 0);
	}
	assert_true(layer_is_dirty(h.k.layer));
	assert_int_equal(layer_commit(h.k.layer, NULL), 0);
	assert_false(layer_is_dirty(h.k.layer));
	assert_int_equal(h.k.layer->log.count, 0);
	/* An idle layer has no log, one that is sealed neither. */
	assert_non_null(file("log"));
	layer_idle(h.k.layer);
	assert_null(file("log"));
	h.k.layer->io = &h.sim.io;
	stop();
	io_fault_free(f);
	start(2, 2);
	assert_int_equal(layer_seal(h.k.layer, NULL), 0);
	assert_int_equal(layer_fsync(h.k.layer, 0, NULL), 0);
	assert_null(file("log"));
	h.boot[0]++;
	reopen(false);
	kit_check(&h.k);
	stop();
}

/* Whatever was lost, the state of the last fsync is there; also for who only reads, and for who
 * comes later; and it goes on from there. */
static void after_a_boot(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed < 12; seed++) {
		start(seed, 3 + seed);
		for (int n = 0; n < 2; n++)
			assert_int_equal(kit_step(&h.k), 0);
		layer_files_close(h.k.layer);
		lose_all();
		for (int i = 0; i < 3; i++) {
			h.k.m = h.at[h.n];
			reopen((seed + (uint64_t)i) % 2);
			kit_check(&h.k);
			if (i == 1) /* what was carried out is durable */
				lose_all();
		}
		reopen(true);
		for (int n = 0; n < 5; n++)
			assert_int_equal(kit_step(&h.k), 0);
		assert_int_equal(layer_fsync(h.k.layer, 0, NULL), 0);
		lose_all();
		reopen(true);
		kit_check(&h.k);
		stop();
	}
}

static void put(struct layer *l, const struct extent *e, char c, size_t n, bool first)
{
	uint8_t bytes[LAYER_BLOCK];
	struct attr a = { .ino = 9999, .mode = S_IFREG, .size = LAYER_BLOCK };
	struct txn t;
	memset(bytes, c, sizeof(bytes));
	assert_int_equal(layer_pwrite(l, e->file, bytes, n, e->src), 0);
	txn_begin(&t, l, a.ino);
	txn_inode(&t, &a, 0);
	if (first)
		txn_extent(&t, a.ino, e);
	assert_int_equal(txn_commit(&t), 0);
}

/* What was overwritten in place since, and reached the disk, is there for whole blocks or not. */
static void whole_blocks(void **state)
{
	(void)state;
	struct extent e;
	uint8_t got[LAYER_BLOCK], before[LAYER_BLOCK], since[LAYER_BLOCK];
	start(1, 1);
	assert_int_equal(layer_alloc(h.k.layer, 9999, 0, LAYER_BLOCK, &e), 0);
	put(h.k.layer, &e, 'a', LAYER_BLOCK, true);
	assert_int_equal(layer_commit(h.k.layer, NULL), 0);
	put(h.k.layer, &e, 'b', 100, false);
	assert_int_equal(layer_fsync(h.k.layer, 0, NULL), 0);
	assert_int_equal(h.k.layer->log.count, 1);
	put(h.k.layer, &e, 'c', LAYER_BLOCK, false);
	h.boot[0]++;
	reopen(true);
	assert_int_equal(layer_pread(h.k.layer, e.file, got, sizeof(got), e.src), 0);
	memset(before, 'a', sizeof(before));
	memset(before, 'b', 100);
	memset(since, 'c', sizeof(since));
	assert_true(!memcmp(got, before, sizeof(got)) || !memcmp(got, since, sizeof(got)));
	stop();
}

/* In the same boot it counts for nothing, and a whole commit ends it. */
static void dead_records(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed < 6; seed++) {
		start(seed, 4);
		for (int n = 0; n < 10; n++)
			assert_int_equal(kit_step(&h.k), 0);
		reopen(true);
		kit_check(&h.k);
		assert_int_equal(layer_commit(h.k.layer, NULL), 0);
		struct sim_file *f = file("log");
		assert_non_null(f);
		lose_all();
		reopen(true);
		kit_check(&h.k);
		stop();
	}
}

/* A record that is damaged or was never whole: the state of the one before it. */
static void damaged_records(void **state)
{
	(void)state;
	for (uint64_t n = 1; n <= 6; n++) {
		start(3, 6);
		layer_files_close(h.k.layer);
		lose_all();
		struct sim_file *f = file("log");
		size_t at = 0;
		struct synclog_record r;
		for (uint64_t i = 1;; i++) {
			assert_int_equal(synclog_decode(&r, f->now.p + at, f->now.len - at,
							h.k.layer->journal.salt),
					 0);
			if (i == n)
				break;
			at += synclog_bytes(r.len);
		}
		f->now.p[at + 3 + n * 40 % (SYNCLOG_HEAD + r.len - 4)] ^= 16;
		h.k.m = h.at[n - 1];
		reopen(true);
		kit_check(&h.k);
		stop();
	}
}

/* Whatever fails while records are carried out, it is done again. */
static void failing_recovery(void **state)
{
	(void)state;
	for (uint64_t nth = 1;; nth++) {
		start(5, 4);
		layer_files_close(h.k.layer);
		lose_all();
		struct io_fault *f = io_fault_new(&h.sim.io);
		struct layer_options opt = h.k.opt;
		struct layer_id id = *layer_id(h.k.layer);
		struct layer *l = NULL;
		opt.io = io_fault_io(f);
		io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OPS_ALL & ~IO_OP_CLOSE,
							  .nth = nth,
							  .torn = nth * 13 % 700 });
		int r = layer_open(&l, &opt, &id, true, NULL);
		uint64_t hits = io_fault_hits(f);
		assert_true(r == 0 || hits > 0);
		if (r == 0)
			layer_unref(l);
		h.k.m = h.at[h.n];
		lose_all();
		reopen(true);
		kit_check(&h.k);
		stop();
		io_fault_free(f);
		if (hits == 0)
			break;
	}
}

/* A block of the layer's own, somewhere; NULL: there is none. */
static const struct extent *own_block(void)
{
	for (unsigned i = 0; i < KIT_INODES; i++) {
		const struct layer_inode *li = layer_inode(h.k.layer, KIT_FIRST + i);
		for (uint64_t at = 0; li && at != UINT64_MAX;) {
			const struct extent *x = layer_extent_ceil(li, at);
			if (x && x->kind == EXTENT_DATA && x->layer == h.k.layer)
				return x;
			at = x ? x->off + x->len : UINT64_MAX;
		}
	}
	return NULL;
}

/* An fsync fails, though no sync has. The next one holds, in spite of the records from before,
 * which have what was there then. */
static void failed_whole_commit(void **state)
{
	(void)state;
	uint8_t old[LAYER_BLOCK], new[LAYER_BLOCK], got[LAYER_BLOCK];
	memset(old, 1, sizeof(old));
	memset(new, 2, sizeof(new));
	start(6, 4);
	const struct extent *x = own_block();
	assert_non_null(x);
	const uint64_t number = x->file, src = x->src;
	struct io_fault *f = io_fault_new(&h.sim.io);
	h.k.layer->io = io_fault_io(f);
	assert_int_equal(layer_pwrite(h.k.layer, number, old, sizeof(old), src), 0);
	assert_int_equal(layer_fsync(h.k.layer, 0, NULL), 0);
	assert_int_equal(h.k.layer->log.count, 5);
	assert_int_equal(layer_pwrite(h.k.layer, number, new, sizeof(new), src), 0);
	io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OP_PWRITE,
						  .nth = 1,
						  .error = -ENOSPC,
						  .for_good = true });
	assert_int_equal(layer_fsync(h.k.layer, 0, NULL), -ENOSPC);
	io_fault_plan(f, NULL);
	assert_int_equal(layer_fsync(h.k.layer, 0, NULL), 0);
	h.k.layer->io = &h.sim.io;
	layer_files_close(h.k.layer);
	lose_all();
	reopen(true);
	assert_int_equal(layer_pread(h.k.layer, number, got, sizeof(got), src), 0);
	assert_memory_equal(got, new, sizeof(got));
	stop();
	io_fault_free(f);
}

/* A disk that fails a sync: mended, the layer is as of the last fsync, by whichever server. */
static void failed_syncs(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 12; i++) {
		start(20 + i, 4);
		for (int n = 0; n < 5; n++)
			assert_int_equal(kit_step(&h.k), 0);
		struct io_fault *f = io_fault_new(&h.sim.io);
		struct layer_options opt = h.k.opt;
		struct layer_id id = *layer_id(h.k.layer);
		struct layer_fault was;
		layer_files_close(h.k.layer);
		opt.io = io_fault_io(f);
		if (i % 2) {
			layer_unref(h.k.layer);
			assert_int_equal(layer_open(&h.k.layer, &opt, &id, true, NULL), 0);
		} else {
			h.k.layer->io = opt.io;
		}
		assert_int_equal(kit_step(&h.k), 0);
		io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OP_FDATASYNC,
							  .nth = 1 + i / 4 });
		int r = i % 3 ? layer_commit(h.k.layer, NULL) : layer_fsync(h.k.layer, 0, NULL);
		io_fault_plan(f, NULL);
		if (r == 0) /* it took fewer syncs */
			h.at[h.n] = h.k.m;
		layer_unref(h.k.layer);
		h.boot[0] += i >= 8;
		/* The kernel tells who opens a file next of an error that nobody heard of. */
		io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OP_FDATASYNC, .nth = 1 });
		int e = layer_mend(&opt, &id, &was, NULL);
		io_fault_plan(f, NULL);
		assert_int_equal(e, r < 0);
		assert_int_equal(layer_open(&h.k.layer, &h.k.opt, &id, true, NULL), 0);
		assert_int_equal(layer_lost(h.k.layer), 0);
		h.k.m = h.at[h.n];
		h.k.later_ok = true;
		kit_check(&h.k);
		stop();
		io_fault_free(f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes),           cmocka_unit_test(refused),
		cmocka_unit_test(one_sync_each),   cmocka_unit_test(after_a_boot),
		cmocka_unit_test(dead_records),    cmocka_unit_test(damaged_records),
		cmocka_unit_test(failing_recovery), cmocka_unit_test(failed_syncs),
		cmocka_unit_test(failed_whole_commit),
		cmocka_unit_test(whole_blocks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
