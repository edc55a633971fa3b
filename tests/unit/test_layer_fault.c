/* A layer whose disk failed a sync: what it says, to whom, and that mending it goes back to the
 * last good commit, whatever the kernel kept or lost of what came after. */
#include <fcntl.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/io_fault.h"
#include "tests/unit/layer_kit.h"

struct place {
	struct layer_options opt;
	struct io_fault *fault;
	char dir[64];
};

static int set_up(void **state)
{
	struct place *p = calloc(1, sizeof(*p));
	char path[96];
	assert_non_null(p);
	(void)snprintf(p->dir, sizeof(p->dir), "/tmp/bough-test.XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	(void)snprintf(path, sizeof(path), "%s/layers", p->dir);
	assert_int_equal(mkdir(path, 0700), 0);
	p->fault = io_fault_new(NULL);
	p->opt = (struct layer_options){ .io = io_fault_io(p->fault), .root = p->dir };
	*state = p;
	return 0;
}

static int tear_down(void **state)
{
	struct place *p = *state;
	assert_int_equal(io_remove_tree(AT_FDCWD, p->dir, NULL), 0);
	io_fault_free(p->fault);
	free(p);
	return 0;
}

static int write_block(struct layer *l, uint64_t ino, uint64_t block, char fill)
{
	char data[LAYER_BLOCK];
	struct extent e;
	struct txn t;
	const struct layer_inode *li = layer_inode(l, ino);
	const struct extent *x = li ? layer_extent_ceil(li, block * LAYER_BLOCK) : NULL;
	memset(data, fill, sizeof(data));
	if (x && x->off == block * LAYER_BLOCK && layer_owns(l, x, x->off, LAYER_BLOCK))
		return layer_pwrite(l, x->file, data, sizeof(data), x->src); /* in its place */
	int r = layer_alloc(l, ino, block * LAYER_BLOCK, LAYER_BLOCK, &e);
	if (r == 0)
		r = layer_pwrite(l, e.file, data, sizeof(data), e.src);
	if (r < 0)
		return r;
	struct attr a = { .ino = ino, .mode = S_IFREG | 0600, .nlink = 1, .parent = 1 };
	a.size = (block + 1) * LAYER_BLOCK;
	txn_begin(&t, l, ino);
	txn_inode(&t, &a, 0);
	txn_extent(&t, ino, &e);
	return txn_commit(&t);
}

/* The block's fill; 0: there is none; -1: it isn't of one byte. */
static int block_of(struct layer *l, uint64_t ino, uint64_t block)
{
	char data[LAYER_BLOCK];
	const struct layer_inode *li = layer_inode(l, ino);
	const struct extent *x = li ? layer_extent_ceil(li, block * LAYER_BLOCK) : NULL;
	if (!x || x->off > block * LAYER_BLOCK)
		return 0;
	assert_int_equal(layer_pread(l, x->file, data, sizeof(data),
				     x->src + block * LAYER_BLOCK - x->off), 0);
	return memcmp(data, data + 1, sizeof(data) - 1) == 0 ? data[0] : -1;
}

static void fail_sync(struct place *p, uint64_t nth, bool for_good)
{
	io_fault_plan(p->fault, &(struct io_fault_plan){ .ops = IO_OPS_SYNC,
							 .nth = nth,
							 .error = -EIO,
							 .for_good = for_good });
}

static struct layer *open_it(struct place *p, const struct layer_id *id, bool writable)
{
	struct layer *l;
	struct err err;
	if (layer_open(&l, &p->opt, id, writable, &err) < 0)
		fail_msg("%s", err.text);
	return l;
}

static void layer_path_of(struct place *p, const struct layer_id *id, const char *name,
			  char out[160])
{
	char hex[2 * LAYER_ID_BYTES + 1];
	hex_encode(hex, id->b, LAYER_ID_BYTES);
	(void)snprintf(out, 160, "%s/layers/%s/%s", p->dir, hex, name);
}

/* What a kernel short of memory does: of what was never written, other bytes come back. */
static void spoil(struct place *p, const struct layer_id *id, uint64_t from, uint64_t n)
{
	char path[160], junk[LAYER_BLOCK];
	memset(junk, '#', sizeof(junk));
	layer_path_of(p, id, "data", path);
	auto_fd fd = open(path, O_WRONLY);
	assert_true(fd >= 0);
	for (uint64_t at = 0; at < n; at += sizeof(junk))
		assert_int_equal(pwrite(fd, junk, sizeof(junk), (off_t)(from + at)), sizeof(junk));
}

static bool has_mark(struct place *p, const struct layer_id *id)
{
	char path[160];
	layer_path_of(p, id, "failed", path);
	return access(path, F_OK) == 0;
}

/* Each sync of a commit: it fails, everybody hears of it, in this process and the next, and what is
 * mended is what the last good commit had. */
static void mending(void **state)
{
	struct place *p = *state;
	for (uint64_t nth = 1; nth <= 2; nth++) { /* data, journal */
		struct layer *l;
		struct layer_fault f;
		assert_int_equal(layer_create(&l, &p->opt, NULL), 0);
		const struct layer_id id = *layer_id(l);
		assert_int_equal(write_block(l, 10, 0, 'a'), 0);
		assert_int_equal(write_block(l, 10, 1, 'b'), 0);
		assert_int_equal(layer_commit(l, NULL), 0);
		assert_false(layer_fault(l, NULL));
		assert_int_equal(write_block(l, 10, 2, 'c'), 0);
		assert_int_equal(write_block(l, 11, 0, 'd'), 0);
		fail_sync(p, nth, false);
		assert_int_equal(layer_commit(l, NULL), -EIO);
		assert_true(layer_fault(l, &f));
		assert_int_equal(f.error, -EIO);
		assert_string_equal(f.file, nth == 1 ? "data" : "journal");
		assert_true(f.good_s > 0);
		for (int i = 0; i < 3; i++)
			assert_int_equal(layer_commit(l, NULL), -EIO);
		assert_int_equal(write_block(l, 12, 0, 'e'), -EROFS);
		assert_int_equal(block_of(l, 11, 0), 'd');
		layer_unref(l);

		/* The next process, behind the same mount, shows the same. */
		l = open_it(p, &id, true);
		assert_true(layer_fault(l, &f));
		assert_string_equal(f.file, nth == 1 ? "data" : "journal");
		assert_int_equal(layer_commit(l, NULL), -EIO);
		assert_int_equal(write_block(l, 12, 0, 'e'), -EROFS);
		assert_int_equal(block_of(l, 10, 2), 'c');
		const struct extent *x = layer_extent_ceil(layer_inode(l, 11), 0);
		uint64_t lost = x->src;
		layer_unref(l);
		spoil(p, &id, lost, LAYER_BLOCK);

		/* As long as the disk fails it stays so. */
		fail_sync(p, 1, true);
		assert_int_equal(layer_mend(&p->opt, &id, &f, NULL), -EIO);
		assert_true(has_mark(p, &id));
		io_fault_plan(p->fault, NULL);
		assert_int_equal(layer_mend(&p->opt, &id, &f, NULL), 1);
		assert_int_equal(f.error, -EIO);
		assert_false(has_mark(p, &id));
		assert_int_equal(layer_mend(&p->opt, &id, &f, NULL), 0);
		for (int again = 0; again < 2; again++) {
			l = open_it(p, &id, true);
			assert_false(layer_fault(l, NULL));
			assert_int_equal(block_of(l, 10, 0), 'a');
			assert_int_equal(block_of(l, 10, 1), 'b');
			assert_int_equal(block_of(l, 10, 2), 0);
			assert_null(layer_inode(l, 11));
			if (again == 0) {
				assert_int_equal(write_block(l, 13, 0, 'f'), 0);
				assert_int_equal(layer_commit(l, NULL), 0);
			}
			assert_int_equal(block_of(l, 13, 0), 'f');
			layer_unref(l);
		}
	}
}

/* What only a failed commit covers is gone even where the journal has that commit's frame. */
static void a_new_layer(void **state)
{
	struct place *p = *state;
	struct layer *l;
	struct layer_fault f;
	assert_int_equal(layer_create(&l, &p->opt, NULL), 0);
	const struct layer_id id = *layer_id(l);
	assert_int_equal(write_block(l, 10, 0, 'a'), 0);
	fail_sync(p, 3, false); /* data, folder, journal */
	assert_int_equal(layer_commit(l, NULL), -EIO);
	assert_int_equal(layer_seal(l, NULL), -EROFS);
	layer_unref(l);
	io_fault_plan(p->fault, NULL);
	assert_int_equal(layer_mend(&p->opt, &id, &f, NULL), 1);
	assert_int_equal(f.good_s, 0);
	l = open_it(p, &id, true);
	assert_true(layer_inode(l, 10) == NULL);
	assert_int_equal(write_block(l, 11, 0, 'b'), 0);
	assert_int_equal(layer_commit(l, NULL), 0);
	layer_unref(l);
}

/* A layer that is sealed loses what it never had on disk, and those on it lose what they have. */
static void sealed_ones(void **state)
{
	struct place *p = *state;
	struct layer *low, *top;
	struct layer_fault f;
	assert_int_equal(layer_create(&low, &p->opt, NULL), 0);
	assert_int_equal(layer_create(&top, &p->opt, NULL), 0);
	const struct layer_id low_id = *layer_id(low), top_id = *layer_id(top);
	assert_int_equal(write_block(low, 10, 0, 'a'), 0);
	assert_int_equal(layer_commit(low, NULL), 0);
	assert_int_equal(write_block(low, 10, 1, 'b'), 0);
	assert_int_equal(layer_seal(low, NULL), 0);
	assert_int_equal(write_block(top, 11, 0, 'c'), 0);
	fail_sync(p, 1, false);
	assert_int_equal(layer_commit(low, NULL), -EIO);
	layer_fail_with(top, low);
	assert_true(layer_fault(top, &f));
	assert_string_equal(f.file, "");
	assert_int_equal(write_block(top, 11, 1, 'd'), -EROFS);
	assert_int_equal(layer_commit(top, NULL), -EIO);
	layer_unref(low);
	layer_unref(top);
	io_fault_plan(p->fault, NULL);
	assert_int_equal(layer_mend(&p->opt, &low_id, &f, NULL), 1);
	assert_int_equal(layer_mend(&p->opt, &top_id, &f, NULL), 1);
	low = open_it(p, &low_id, false);
	top = open_it(p, &top_id, true);
	assert_int_equal(block_of(low, 10, 0), 'a');
	assert_int_equal(block_of(low, 10, 1), 0);
	assert_null(layer_inode(top, 11));
	assert_int_equal(layer_commit(low, NULL), 0);
	assert_int_equal(write_block(top, 12, 0, 'e'), 0);
	assert_int_equal(layer_commit(top, NULL), 0);
	layer_unref(low);
	layer_unref(top);
}

static int drop_block(struct layer *l, uint64_t ino, uint64_t block)
{
	struct txn t;
	txn_begin(&t, l, ino);
	txn_extent_drop(&t, ino, block * LAYER_BLOCK, (block + 1) * LAYER_BLOCK);
	return txn_commit(&t);
}

/* Opened again in one boot, the last commit's frame may be one that never got to the disk, and then
 * the one before counts. Where it is there it counts itself: what it freed is used anew since. */
static void fails_after_a_restart(void **state)
{
	struct place *p = *state;
	for (int torn = 0; torn < 2; torn++) {
		struct layer *l;
		struct layer_fault f;
		struct stat st;
		char path[160];
		assert_int_equal(layer_create(&l, &p->opt, NULL), 0);
		const struct layer_id id = *layer_id(l);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(write_block(l, 10, (uint64_t)i, (char)('a' + i)), 0);
			assert_int_equal(layer_commit(l, NULL), 0);
		}
		assert_int_equal(drop_block(l, 10, 0), 0);
		if (torn) /* what follows is neither committed */
			assert_int_equal(layer_commit(l, NULL), 0);
		assert_int_equal(write_block(l, 11, 0, 'c'), 0);
		assert_int_equal(layer_commit(l, NULL), 0);
		layer_unref(l);
		l = open_it(p, &id, true);
		fail_sync(p, 1, false);
		assert_int_equal(layer_commit(l, NULL), -EIO);
		layer_unref(l);
		io_fault_plan(p->fault, NULL);
		layer_path_of(p, &id, "journal", path);
		assert_int_equal(stat(path, &st), 0);
		if (torn)
			assert_int_equal(truncate(path, st.st_size - 1), 0);
		assert_int_equal(layer_mend(&p->opt, &id, &f, NULL), 1);
		l = open_it(p, &id, true);
		assert_int_equal(block_of(l, 10, 1), 'b');
		const struct extent *x = layer_extent_ceil(layer_inode(l, 10), 0);
		assert_true(x && x->off == LAYER_BLOCK);
		assert_int_equal(layer_inode(l, 11) != NULL, !torn);
		if (!torn)
			assert_int_equal(block_of(l, 11, 0), 'c');
		layer_unref(l);
	}
}

/* Contents that the disk doesn't give back are EIO from then on, and all else is there. */
static void unreadable_contents(void **state)
{
	struct place *p = *state;
	bool hit = true, lost = false;
	for (uint64_t nth = 1; hit; nth++) {
		struct layer *l;
		struct layer_fault f;
		assert_int_equal(layer_create(&l, &p->opt, NULL), 0);
		const struct layer_id id = *layer_id(l);
		assert_int_equal(write_block(l, 10, 0, 'a'), 0);
		assert_int_equal(layer_commit(l, NULL), 0);
		fail_sync(p, 1, false);
		assert_int_equal(write_block(l, 10, 0, 'z'), 0);
		assert_int_equal(layer_commit(l, NULL), -EIO);
		layer_unref(l);
		io_fault_plan(p->fault, &(struct io_fault_plan){ .ops = IO_OP_PREAD,
								 .nth = nth,
								 .error = -EIO });
		int r = layer_mend(&p->opt, &id, &f, NULL);
		hit = io_fault_hits(p->fault) > 0;
		io_fault_plan(p->fault, NULL);
		assert_true(r == 1 || (r == -EIO && has_mark(p, &id)));
		l = open_it(p, &id, true);
		lost |= layer_inode(l, 10)->damaged;
		if (r == 1) {
			assert_int_equal(write_block(l, 11, 0, 'b'), 0);
			assert_int_equal(layer_commit(l, NULL), 0);
		}
		layer_unref(l);
	}
	assert_true(lost);
}

/* A layer of which 'a' is committed, and whose sync of 'b' failed. */
static struct layer_id failed_one(struct place *p)
{
	struct layer *l;
	assert_int_equal(layer_create(&l, &p->opt, NULL), 0);
	const struct layer_id id = *layer_id(l);
	assert_int_equal(write_block(l, 10, 0, 'a'), 0);
	assert_int_equal(layer_commit(l, NULL), 0);
	assert_int_equal(write_block(l, 10, 1, 'b'), 0);
	fail_sync(p, 1, false);
	assert_int_equal(layer_commit(l, NULL), -EIO);
	layer_unref(l);
	return id;
}

/* The n-th call fails while it is mended, for every n: then it is mended the next time. */
static void faults_while_mending(void **state)
{
	struct place *p = *state;
	for (uint64_t nth = 1;; nth++) {
		struct layer *l;
		struct layer_fault f;
		const struct layer_id id = failed_one(p);
		io_fault_plan(p->fault, &(struct io_fault_plan){ .ops = IO_OPS_CHANGE,
								 .nth = nth,
								 .error = -EIO });
		int r = layer_mend(&p->opt, &id, &f, NULL);
		bool hit = io_fault_hits(p->fault) > 0;
		io_fault_plan(p->fault, NULL);
		if (r < 0)
			r = layer_mend(&p->opt, &id, &f, NULL);
		assert_true(r >= 0);
		l = open_it(p, &id, true);
		assert_int_equal(block_of(l, 10, 0), 'a');
		assert_int_equal(block_of(l, 10, 1), 0);
		assert_int_equal(write_block(l, 11, 0, 'c'), 0);
		assert_int_equal(layer_commit(l, NULL), 0);
		layer_unref(l);
		if (!hit)
			break;
	}
}

/* An error that nobody had been told of is the next one's to hear who opens the file: mending
 * hears it, and isn't hindered. */
static void old_errors(void **state)
{
	struct place *p = *state;
	for (uint64_t nth = 1; nth <= 2; nth++) { /* journal, data */
		struct layer *l;
		struct layer_fault f;
		const struct layer_id id = failed_one(p);
		fail_sync(p, nth, false);
		assert_int_equal(layer_mend(&p->opt, &id, &f, NULL), 1);
		assert_int_equal(io_fault_hits(p->fault), 1);
		io_fault_plan(p->fault, NULL);
		l = open_it(p, &id, true);
		assert_int_equal(block_of(l, 10, 0), 'a');
		assert_int_equal(block_of(l, 10, 1), 0);
		assert_int_equal(layer_commit(l, NULL), 0);
		layer_unref(l);
	}
}

/* Of every flipped bit: some failure. */
static void bytes(void **state)
{
	const struct layer_fault want = {
		.error = -ENOSPC, .upto = 77, .good_s = 1700000000, .file = "f12ab"
	};
	uint8_t b[LAYER_FAULT_BYTES];
	struct layer_fault f;
	layer_fault_encode(b, &want);
	layer_fault_decode(&f, b, sizeof(b));
	assert_int_equal(f.error, want.error);
	assert_true(f.upto == want.upto && f.good_s == want.good_s);
	assert_string_equal(f.file, want.file);
	for (size_t i = 0; i < 8 * sizeof(b); i++) {
		b[i / 8] ^= (uint8_t)(1 << i % 8);
		layer_fault_decode(&f, b, sizeof(b));
		assert_int_equal(f.error, -EIO);
		assert_true(f.upto == UINT64_MAX);
		b[i / 8] ^= (uint8_t)(1 << i % 8);
	}
	layer_fault_decode(&f, b, sizeof(b) - 1);
	assert_true(f.upto == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mending),
		cmocka_unit_test(a_new_layer),
		cmocka_unit_test(sealed_ones),
		cmocka_unit_test(fails_after_a_restart),
		cmocka_unit_test(unreadable_contents),
		cmocka_unit_test(faults_while_mending),
		cmocka_unit_test(old_errors),
		cmocka_unit_test(bytes),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
