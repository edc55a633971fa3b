/* Damaged journals, failing disks and failing memory: what a layer shows afterwards. */
#include "fs/base/cleanup.h"
#include "fs/base/io_fault.h"
#include "fs/work/layer_impl.h"
#include "tests/unit/layer_kit.h"
#include "tests/unit/oom.h"
#include "tests/unit/sim_disk.h"

enum { STEPS = 40 };

/* A layer's journal, and what the layer showed after each of its frames. */
struct history {
	struct sim sim;
	struct kit k;
	uint8_t boot[16];
	uint8_t *bytes;
	size_t len;
	unsigned n;              /* frames */
	uint64_t end[STEPS + 1]; /* of each in the file; end[0]: of the header */
	uint64_t ino[STEPS + 1]; /* which it is about; 0 for a commit */
	char *text[STEPS + 1];   /* what the layer shows with it as the last one */
};

static struct history h;

static void start(uint64_t seed)
{
	memset(&h, 0, sizeof(h));
	sim_init(&h.sim, seed);
	(void)sim_new(&h.sim, "/root", true);
	(void)sim_new(&h.sim, "/root/layers", true);
	h.k.rng = seed * 77 + 5;
	h.k.opt = (struct layer_options){ .io = &h.sim.io, .root = "/root", .boot_id = h.boot };
	assert_int_equal(layer_create(&h.k.layer, &h.k.opt, NULL), 0);
}

static void stop(void)
{
	layer_unref(h.k.layer);
	for (unsigned i = 0; i <= h.n; i++)
		free(h.text[i]);
	free(h.bytes);
	sim_done(&h.sim);
}

static struct sim_file *journal(void)
{
	char path[200], hex[2 * LAYER_ID_BYTES + 1];
	hex_encode(hex, layer_id(h.k.layer)->b, LAYER_ID_BYTES);
	(void)snprintf(path, sizeof(path), "/root/layers/%s/journal", hex);
	int i = sim_find(&h.sim, path);
	assert_true(i >= 0);
	return &h.sim.files[i];
}

static uint64_t txn_ino;

static void note(uint64_t ino)
{
	h.end[h.n] = h.k.layer->journal.end;
	h.ino[h.n] = ino;
	h.text[h.n] = kit_text(h.k.layer);
}

/* Random operations; `commit_at`: after so many frames there is a commit. */
static void record(uint64_t seed, unsigned commit_at)
{
	start(seed);
	note(0);
	while (h.n < STEPS) {
		uint64_t before = h.k.layer->journal.end;
		if (h.n + 1 == commit_at)
			assert_int_equal(layer_commit(h.k.layer, NULL), 0);
		else
			assert_int_equal(kit_step(&h.k), 0);
		if (h.k.layer->journal.end == before)
			continue;
		h.n++;
		txn_ino = h.k.layer->journal.last_ino;
		note(txn_ino);
	}
	struct sim_file *f = journal();
	h.len = f->now.len;
	h.bytes = malloc(h.len);
	memcpy(h.bytes, f->now.p, h.len);
	assert_int_equal(h.end[h.n], h.len);
}

static struct layer *open_now(void)
{
	struct layer *l = NULL;
	struct err err = { 0 };
	int r = layer_open(&l, &h.k.opt, layer_id(h.k.layer), true, &err);
	if (r < 0)
		print_error("%s\n", err.text);
	assert_int_equal(r, 0);
	return l;
}

static struct layer *open_bytes(size_t len)
{
	struct sim_file *f = journal();
	f->now.len = 0;
	sim_resize(&f->now, len);
	memcpy(f->now.p, h.bytes, len);
	return open_now();
}

static void add_one(struct layer *l)
{
	struct attr a = { .ino = 9999, .mode = S_IFREG };
	struct txn t;
	txn_begin(&t, l, 9999);
	txn_inode(&t, &a, 0);
	assert_int_equal(txn_commit(&t), 0);
}

/* Cut at any byte: the state after the longest whole prefix, and it goes on from there. */
static void torn_tails(void **state)
{
	(void)state;
	record(1, 0);
	unsigned whole = 0;
	for (size_t len = JOURNAL_HEAD; len <= h.len; len++) {
		while (whole < h.n && h.end[whole + 1] <= len)
			whole++;
		struct layer *l = open_bytes(len);
		auto_free char *text = kit_text(l);
		assert_string_equal(text, h.text[whole]);
		assert_int_equal(layer_lost(l), 0);
		if (len % 16 == 5) {
			add_one(l);
			auto_free char *more = kit_text(l);
			layer_unref(l);
			assert_int_equal(layer_open(&l, &h.k.opt, layer_id(h.k.layer), true, NULL),
					 0);
			auto_free char *again = kit_text(l);
			assert_string_equal(more, again);
			assert_int_equal(layer_lost(l), 0);
		}
		layer_unref(l);
	}
	stop();
}

/* The part of a text that is about one inode (or a folder's names): its length. */
static size_t section(const char *p)
{
	const char *q = p;
	do {
		q = strchr(q, '\n');
		q = q ? q + 1 : p + strlen(p);
	} while (*q == ' ');
	return (size_t)(q - p);
}

/* Everything that `whole` says of others than the inode (or folder), `part` says, too. */
static void assert_others_same(const char *whole, const char *part, uint64_t ino)
{
	char mine[32], names[32];
	int n = snprintf(mine, sizeof(mine), "inode %llu ", (unsigned long long)ino);
	int m = snprintf(names, sizeof(names), "dir %llu\n", (unsigned long long)ino);
	while (*whole) {
		size_t len = section(whole);
		/* Usage goes along with any frame. */
		if (strncmp(whole, mine, (size_t)n) != 0 && strncmp(whole, names, (size_t)m) != 0 &&
		    strncmp(whole, "usage", 5) != 0) {
			auto_free char *one = strndup(whole, len);
			if (!strstr(part, one))
				print_error("lost: %s\n", one);
			assert_non_null(strstr(part, one));
		}
		whole += len;
	}
}

/* Who goes on behind a lost frame whose inode nobody knows writes over it, and it is told all the
 * same whenever the layer is opened. */
static void go_on_behind(struct layer *l)
{
	assert_false(layer_is_empty(l));
	add_one(l);
	auto_free char *text = kit_text(l);
	layer_unref(l);
	for (unsigned i = 0; i < 2; i++) {
		l = open_now();
		auto_free char *again = kit_text(l);
		assert_string_equal(again, text);
		assert_int_equal(layer_lost(l), 1);
		layer_unref(l);
	}
}

/* A flipped bit of a frame's header costs nothing. One of its body, or two, cost the frame, and no
 * more; the inode says so. */
static void flipped_bits(void **state)
{
	(void)state;
	record(2, 0);
	unsigned k = 0;
	for (size_t at = JOURNAL_HEAD; at < h.len; at++) {
		while (h.end[k + 1] <= at)
			k++;
		uint64_t body_end = h.end[k] + FRAME_HEAD + le_get32(h.bytes + h.end[k] + 8);
		h.bytes[at] ^= (uint8_t)(1 << at % 8);
		struct layer *l = open_bytes(h.len);
		if (at < h.end[k] + FRAME_HEAD) {
			auto_free char *put_right = kit_text(l);
			assert_string_equal(put_right, h.text[h.n]);
			assert_int_equal(layer_lost(l), 0);
			assert_int_equal(layer_corrected(l), 1);
			layer_unref(l);
			h.bytes[at] ^= (uint8_t)(1 << (at + 3) % 8);
			l = open_bytes(h.len);
			h.bytes[at] ^= (uint8_t)(1 << (at + 3) % 8);
		}
		h.bytes[at] ^= (uint8_t)(1 << at % 8);
		auto_free char *text = kit_text(l);
		if (at >= body_end) { /* padding */
			assert_int_equal(layer_lost(l), 0);
			assert_string_equal(text, h.text[h.n]);
		} else {
			const struct layer_inode *li = layer_inode(l, h.ino[k + 1]);
			assert_int_equal(layer_lost(l), 1);
			assert_others_same(h.text[h.n], text, h.ino[k + 1]);
			/* In the last frame's header, nothing says which inode it was about; one
			 * that died later is no matter. */
			bool unknown = k + 1 == h.n && at < h.end[k] + FRAME_HEAD;
			if (!unknown && li)
				assert_true(li->damaged || li->dead);
			if (unknown && at % 8 == 0) {
				go_on_behind(l);
				continue;
			}
		}
		layer_unref(l);
	}
	stop();
}

/* After a boot only what the commit covers counts, however the rest looks. */
static void after_a_boot(void **state)
{
	(void)state;
	record(3, 25);
	assert_int_equal(h.ino[25], 0);
	h.boot[0]++;
	for (size_t len = h.end[25]; len <= h.len; len++) {
		struct layer *l = open_bytes(len);
		auto_free char *text = kit_text(l);
		assert_string_equal(text, h.text[24]);
		assert_int_equal(layer_lost(l), 0);
		assert_false(layer_is_dirty(l));
		layer_unref(l);
	}
	/* Without the commit, nothing. */
	for (size_t len = h.end[24]; len < h.end[25]; len += 7) {
		struct layer *l = open_bytes(len);
		auto_free char *text = kit_text(l);
		assert_string_equal(text, h.text[0]);
		layer_unref(l);
	}
	/* A flipped bit in what was committed is no reason to doubt the commit … */
	for (size_t at = JOURNAL_HEAD; at < h.end[24]; at += 5) {
		h.bytes[at] ^= 0x40;
		struct layer *l = open_bytes(h.len);
		h.bytes[at] ^= 0x40;
		assert_true(layer_lost(l) <= 1);
		auto_free char *text = kit_text(l);
		assert_true(strlen(text) > strlen(h.text[24]) / 2);
		layer_unref(l);
	}
	/* … but a block that never got to the disk is: the commit was not done. */
	for (size_t at = JOURNAL_HEAD; at + 512 < h.end[24]; at += 512) {
		auto_free uint8_t *keep = malloc(512);
		memcpy(keep, h.bytes + at, 512);
		memset(h.bytes + at, 0, 512);
		struct layer *l = open_bytes(h.len);
		memcpy(h.bytes + at, keep, 512);
		auto_free char *text = kit_text(l);
		assert_string_equal(text, h.text[0]);
		assert_int_equal(layer_lost(l), 0);
		layer_unref(l);
	}
	stop();
}

/* What is appended after a boot counts, and what was void stays so; over many boots. */
static void many_boots(void **state)
{
	(void)state;
	start(4);
	assert_int_equal(layer_commit(h.k.layer, NULL), 0);
	struct kit_model committed = h.k.m;
	for (int i = 0; i < 30; i++) {
		struct layer_id id = *layer_id(h.k.layer);
		if (i % 3) {
			for (int n = 0; n < 5; n++)
				assert_int_equal(kit_step(&h.k), 0);
			int r = i % 4 ? layer_fsync(h.k.layer, 0, NULL)
				      : layer_commit(h.k.layer, NULL);
			assert_int_equal(r, 0);
			committed = h.k.m;
		}
		for (int n = 0; n < i % 4; n++)
			assert_int_equal(kit_step(&h.k), 0);
		bool boots = i % 5 != 4;
		layer_unref(h.k.layer);
		h.boot[0] += boots;
		assert_int_equal(layer_open(&h.k.layer, &h.k.opt, &id, true, NULL), 0);
		assert_int_equal(layer_lost(h.k.layer), 0);
		if (boots)
			h.k.m = committed;
		h.k.later_ok = boots;
		kit_check(&h.k);
		h.k.later_ok = false;
		/* In-place writes of what didn't count are seen: they are taken as they are. */
		for (unsigned f = 0; f < KIT_INODES; f++)
			for (unsigned s = 0; s < KIT_SLOTS; s++) {
				const struct layer_inode *li = layer_inode(h.k.layer,
									   KIT_FIRST + f);
				uint64_t off = kit_block(s) * LAYER_BLOCK;
				uint8_t got[LAYER_BLOCK];
				if (!li || li->dead || h.k.m.inode[f].kind[s] != BLOCK_DATA)
					continue;
				const struct extent *e = layer_extent_ceil(li, off);
				assert_int_equal(layer_pread(e->layer, e->file, got, sizeof(got),
							     e->src + (off - e->off)),
						 0);
				memcpy(&h.k.m.inode[f].stamp[s], got, sizeof(struct kit_stamp));
			}
		if (boots)
			committed = h.k.m;
	}
	stop();
}

static void bad_headers(void **state)
{
	(void)state;
	record(5, 0);
	struct layer *l;
	struct err err;
	struct sim_file *f = journal();
	for (size_t at = 0; at < 64; at++) {
		f->now.p[at] ^= 4;
		err.text[0] = '\0';
		assert_int_equal(layer_open(&l, &h.k.opt, layer_id(h.k.layer), true, &err),
				 -EBADMSG);
		assert_non_null(strstr(err.text, "journal"));
		f->now.p[at] ^= 4;
	}
	for (size_t len = 0; len < JOURNAL_HEAD; len += 100) {
		f->now.len = len;
		assert_int_equal(layer_open(&l, &h.k.opt, layer_id(h.k.layer), true, NULL),
				 -EBADMSG);
	}
	f->now.len = h.len;
	stop();
}

/* A data file that is gone costs what was in it, and no more; and that stays so. */
static void missing_files(void **state)
{
	(void)state;
	for (int big = 0; big < 2; big++) {
		record(11, 0);
		struct layer_id id = *layer_id(h.k.layer);
		char path[200], hex[2 * LAYER_ID_BYTES + 1];
		uint64_t hurt = 0, file = 0;
		for (unsigned i = 0; big && i < KIT_INODES; i++) {
			const struct layer_inode *li = layer_inode(h.k.layer, KIT_FIRST + i);
			const struct extent *e = li ? layer_extent_ceil(li, 256 * LAYER_BLOCK)
						    : NULL;
			file = e && e->file ? e->file : file;
		}
		layer_unref(h.k.layer);
		hex_encode(hex, id.b, LAYER_ID_BYTES);
		int n = snprintf(path, sizeof(path), "/root/layers/%s/%s", hex, big ? "f" : "data");
		if (big)
			(void)snprintf(path + n, sizeof(path) - (size_t)n, "%llx",
				       (unsigned long long)file);
		sim_wipe(&h.sim.files[sim_find(&h.sim, path)]);
		for (int again = 0; again < 3; again++) {
			assert_int_equal(layer_open(&h.k.layer, &h.k.opt, &id, true, NULL), 0);
			for (unsigned i = 0; i < KIT_INODES; i++) {
				const struct layer_inode *li = layer_inode(h.k.layer,
									   KIT_FIRST + i);
				const struct extent *e;
				bool lost = false;
				for (uint64_t off = 0; li && (e = layer_extent_ceil(li, off));
				     off = e->off + e->len)
					lost |= e->kind == EXTENT_DATA && e->file == file;
				if (li)
					assert_int_equal(li->damaged, lost);
				hurt += lost && !again;
			}
			assert_int_equal(layer_lost(h.k.layer), again ? 0 : hurt);
			assert_true(hurt > 0);
			/* New contents go where the file was. */
			struct extent e;
			assert_int_equal(layer_alloc(h.k.layer, KIT_FIRST + 90, 0, 4096, &e), 0);
			assert_int_equal(layer_pwrite(h.k.layer, e.file, "x", 1, e.src), 0);
			add_one(h.k.layer);
			if (again < 2)
				layer_unref(h.k.layer);
		}
		stop();
	}
}

/* ---- a disk that fails ---- */

/* A life with everything in it. What fails is left out; returns how many steps failed. */
static unsigned live(struct kit *k)
{
	unsigned failed = 0;
	for (int i = 0; i < 60; i++) {
		int r = kit_step(k);
		if (i % 15 == 14)
			r = layer_fsync(k->layer, 0, NULL) < 0 ? -1 : r;
		if (i % 20 == 19)
			layer_idle(k->layer);
		failed += r < 0;
	}
	return failed;
}

static void failing_calls(void **state)
{
	(void)state;
	for (uint64_t nth = 1;; nth++) {
		start(6);
		struct io_fault *f = io_fault_new(&h.sim.io);
		struct layer_id id = *layer_id(h.k.layer);
		layer_unref(h.k.layer);
		h.k.opt.io = io_fault_io(f);
		assert_int_equal(layer_open(&h.k.layer, &h.k.opt, &id, true, NULL), 0);
		io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OPS_ALL & ~IO_OP_CLOSE,
							  .nth = nth,
							  .error = nth % 2 ? -EIO : -ENOSPC,
							  .torn = nth % 1000 });
		unsigned failed = live(&h.k);
		uint64_t hits = io_fault_hits(f);
		io_fault_plan(f, NULL);
		assert_true(hits > 0 || failed == 0);
		kit_check(&h.k);
		layer_unref(h.k.layer);
		assert_int_equal(layer_open(&h.k.layer, &h.k.opt, &id, true, NULL), 0);
		assert_int_equal(layer_lost(h.k.layer), 0);
		kit_check(&h.k);
		space_check(&h.k.layer->space);
		stop();
		io_fault_free(f);
		if (hits == 0)
			break;
	}
}

static void failing_opens(void **state)
{
	(void)state;
	record(7, 20);
	for (uint64_t nth = 1;; nth++) {
		struct io_fault *f = io_fault_new(&h.sim.io);
		struct layer_options opt = h.k.opt;
		struct layer *l = NULL;
		opt.io = io_fault_io(f);
		io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OPS_ALL, .nth = nth });
		int r = layer_open(&l, &opt, layer_id(h.k.layer), true, NULL);
		uint64_t hits = io_fault_hits(f);
		assert_true(r == 0 || hits > 0);
		if (r == 0) {
			auto_free char *text = kit_text(l);
			assert_string_equal(text, h.text[h.n]);
			assert_int_equal(layer_lost(l), 0);
			layer_unref(l);
		}
		io_fault_free(f);
		if (hits == 0)
			break;
	}
	/* Bytes at the end that can't be had are no end. */
	struct io_fault *f = io_fault_new(&h.sim.io);
	struct layer_options opt = h.k.opt;
	struct layer *l = NULL;
	opt.io = io_fault_io(f);
	io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OP_PREAD, .nth = 2, .for_good = true });
	assert_int_equal(layer_open(&l, &opt, layer_id(h.k.layer), true, NULL), -EIO);
	/* Who only reads gets what there is, and can't say that all is well. */
	io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OP_PREAD, .nth = 2, .for_good = true });
	assert_int_equal(layer_open(&l, &opt, layer_id(h.k.layer), false, NULL), 0);
	assert_true(layer_lost(l) > 0);
	assert_int_equal(layer_commit(l, NULL), -EIO);
	layer_unref(l);
	io_fault_free(f);
	stop();
}

static void failing_creates(void **state)
{
	(void)state;
	start(8);
	for (uint64_t nth = 1;; nth++) {
		struct io_fault *f = io_fault_new(&h.sim.io);
		struct layer_options opt = h.k.opt;
		struct layer *l = NULL;
		struct err err = { 0 };
		opt.io = io_fault_io(f);
		io_fault_plan(f, &(struct io_fault_plan){
					 .ops = IO_OPS_CHANGE, .nth = nth, .error = -ENOSPC });
		int r = layer_create(&l, &opt, &err);
		uint64_t hits = io_fault_hits(f);
		assert_int_equal(r, hits ? -ENOSPC : 0);
		assert_int_equal(r, err.code);
		unsigned files = 0;
		for (int i = 0; i < SIM_FILES; i++)
			files += h.sim.files[i].path && h.sim.files[i].linked;
		assert_int_equal(files, r < 0 ? 4 : 6); /* two folders, and two of a layer each */
		layer_unref(l);
		io_fault_free(f);
		if (hits == 0)
			break;
	}
	stop();
}

/* ---- memory that fails ---- */

/* Whichever allocation fails, the operation is done or it isn't. */
static void no_memory(void **state)
{
	(void)state;
	for (uint64_t nth = 1;; nth += 1 + nth / 200) {
		start(9);
		struct layer_id id = *layer_id(h.k.layer);
		bool hit = false;
		oom_at(nth);
		for (int i = 0; i < 60; i++) {
			int r = i % 15 == 14 ? layer_fsync(h.k.layer, 0, NULL) : kit_step(&h.k);
			if (r == 0)
				continue;
			assert_false(hit);
			hit = oom_hit();
			assert_true(hit && r == -ENOMEM);
		}
		hit |= oom_hit();
		kit_check(&h.k);
		space_check(&h.k.layer->space);
		layer_unref(h.k.layer);
		assert_int_equal(layer_open(&h.k.layer, &h.k.opt, &id, true, NULL), 0);
		kit_check(&h.k);
		stop();
		if (!hit)
			break;
	}
}

static void no_memory_to_open(void **state)
{
	(void)state;
	record(10, 20);
	for (uint64_t nth = 1;; nth++) {
		struct layer *l = NULL;
		oom_at(nth);
		int r = layer_open(&l, &h.k.opt, layer_id(h.k.layer), true, NULL);
		bool hit = oom_hit();
		assert_true(r == 0 || (hit && r == -ENOMEM));
		if (r == 0) {
			auto_free char *text = kit_text(l);
			assert_string_equal(text, h.text[h.n]);
			layer_unref(l);
		}
		if (!hit)
			break;
	}
	stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(torn_tails),        cmocka_unit_test(flipped_bits),
		cmocka_unit_test(after_a_boot),      cmocka_unit_test(many_boots),
		cmocka_unit_test(bad_headers),       cmocka_unit_test(missing_files),
		cmocka_unit_test(failing_calls),     cmocka_unit_test(failing_opens),
		cmocka_unit_test(failing_creates),   cmocka_unit_test(no_memory),
		cmocka_unit_test(no_memory_to_open),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
