/* Layers on the host's disk: their life, what they promise while all goes well, descriptors,
 * memory, threads. Damage is in test_layer_damage.c, death in test_layer_power.c. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/io_fault.h"
#include "fs/work/layer_impl.h"
#include "tests/unit/layer_kit.h"

struct place {
	char root[300];
	struct layer_options opt;
};

static int set_up(void **state)
{
	static struct place p;
	const char *tmp = getenv("TMPDIR");
	char path[400];
	(void)snprintf(p.root, sizeof(p.root), "%s/test_layer.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(p.root))
		return -1;
	(void)snprintf(path, sizeof(path), "%s/layers", p.root);
	if (mkdir(path, 0700) < 0)
		return -1;
	p.opt = (struct layer_options){ .root = p.root };
	*state = &p;
	return 0;
}

static int tear_down(void **state)
{
	struct place *p = *state;
	return io_remove_tree(AT_FDCWD, p->root, NULL);
}

static struct layer *create(struct place *p)
{
	struct layer *l;
	struct err err = { 0 };
	int r = layer_create(&l, &p->opt, &err);
	if (r < 0)
		print_error("%s\n", err.text);
	assert_int_equal(r, 0);
	return l;
}

static struct layer *reopen(struct place *p, struct layer *l, bool writable)
{
	struct layer_id id = *layer_id(l);
	layer_unref(l);
	assert_int_equal(layer_open(&l, &p->opt, &id, writable, NULL), 0);
	assert_int_equal(layer_lost(l), 0);
	return l;
}

static void path_of(const struct place *p, const struct layer *l, const char *name, char out[500])
{
	char hex[2 * LAYER_ID_BYTES + 1];
	hex_encode(hex, layer_id(l)->b, LAYER_ID_BYTES);
	(void)snprintf(out, 500, "%s/layers/%s/%s", p->root, hex, name);
}

static struct stat stat_of(const struct place *p, const struct layer *l, const char *name)
{
	char path[500];
	struct stat st;
	path_of(p, l, name, path);
	assert_int_equal(stat(path, &st), 0);
	return st;
}

static unsigned open_fds(void)
{
	unsigned n = 0;
	auto_dir *d = opendir("/proc/self/fd");
	while (readdir(d))
		n++;
	return n;
}

static struct attr file_attr(uint64_t ino)
{
	return (struct attr){ .ino = ino, .mode = S_IFREG | 0644, .nlink = 1, .ctime = { 5, 6 } };
}

static int put_file(struct layer *l, uint64_t ino, uint64_t size)
{
	struct attr a = file_attr(ino);
	struct txn t;
	a.size = size;
	txn_begin(&t, l, ino);
	txn_inode(&t, &a, 0);
	return txn_commit(&t);
}

/* Writes blocks of a file that hold their own number and `mark`. */
static int write_blocks(struct layer *l, uint64_t ino, uint64_t block, unsigned n, uint8_t mark)
{
	uint8_t data[LAYER_BLOCK];
	uint64_t off = block * LAYER_BLOCK, end = off + (uint64_t)n * LAYER_BLOCK;
	struct attr a = file_attr(ino);
	struct txn t;
	int r = 0;
	txn_begin(&t, l, ino);
	txn_inode(&t, &a, 0);
	while (off < end && r == 0) {
		struct extent e;
		r = layer_alloc(l, ino, off, end - off, &e);
		for (uint64_t at = 0; r == 0 && at < e.len; at += LAYER_BLOCK) {
			memset(data, mark, sizeof(data));
			le_put64(data, (e.off + at) / LAYER_BLOCK);
			r = layer_pwrite(l, e.file, data, sizeof(data), e.src + at);
		}
		txn_extent(&t, ino, &e);
		off += e.len;
	}
	if (r < 0) {
		txn_drop(&t);
		return r;
	}
	return txn_commit(&t);
}

static void check_blocks(struct layer *l, uint64_t ino, uint64_t block, unsigned n, uint8_t mark)
{
	const struct layer_inode *li = layer_inode(l, ino);
	for (uint64_t b = block; b < block + n; b++) {
		uint8_t data[LAYER_BLOCK];
		const struct extent *e = layer_extent_ceil(li, b * LAYER_BLOCK);
		assert_true(e && e->off <= b * LAYER_BLOCK);
		assert_int_equal(layer_pread(e->layer, e->file, data, sizeof(data),
					     e->src + (b * LAYER_BLOCK - e->off)),
				 0);
		assert_int_equal(le_get64(data), b);
		assert_int_equal(data[8], mark);
		assert_int_equal(data[LAYER_BLOCK - 1], mark);
	}
}

static int no_fallocate(void *ctx, int fd, int mode, uint64_t off, uint64_t len)
{
	(void)ctx, (void)fd, (void)mode, (void)off, (void)len;
	return -EOPNOTSUPP;
}

/* ---- life ---- */

static void life(void **state)
{
	struct place *p = *state;
	struct layer *l = create(p);
	struct layer_id id = *layer_id(l);
	struct err err;
	assert_true(layer_is_local(l) && layer_is_empty(l) && !layer_is_sealed(l));
	assert_true(layer_is_dirty(l)); /* its name */
	assert_int_equal(layer_commit(l, NULL), 0);
	assert_false(layer_is_dirty(l));
	assert_int_equal(put_file(l, 10, 5), 0);
	assert_true(layer_is_dirty(l) && !layer_is_empty(l));
	assert_int_equal(layer_records(l), 1);
	assert_int_equal(layer_commit(l, NULL), 0);
	assert_false(layer_is_dirty(l));
	l = reopen(p, l, true);
	assert_true(!layer_is_sealed(l) && layer_records(l) == 1);
	assert_int_equal(layer_inode(l, 10)->attr.size, 5);
	assert_null(layer_inode(l, 11));
	assert_int_equal(layer_seal(l, NULL), 0);
	assert_true(layer_is_sealed(l) && layer_is_dirty(l));
	assert_int_equal(layer_commit(l, NULL), 0);
	/* Taking part in a commit of what another process sealed. */
	l = reopen(p, l, false);
	assert_true(layer_is_sealed(l));
	assert_int_equal(layer_commit(l, NULL), 0);
	assert_false(layer_is_dirty(l));
	l = reopen(p, l, true);
	assert_true(layer_is_sealed(l));
	assert_memory_equal(layer_id(l), &id, sizeof(id));
	layer_unref(layer_ref(l));
	layer_unref(l);
	layer_unref(NULL);
	assert_int_equal(layer_remove(NULL, p->root, &id, NULL), 0);
	assert_int_equal(layer_remove(NULL, p->root, &id, NULL), 0);
	assert_int_equal(layer_open(&l, &p->opt, &id, true, &err), -ENOENT);
	assert_int_equal(err.code, -ENOENT);
}

static void new_ones_are_cheap(void **state)
{
	struct place *p = *state;
	struct io_fault *f = io_fault_new(NULL);
	struct layer_options opt = p->opt;
	struct layer *l;
	opt.io = io_fault_io(f);
	assert_int_equal(layer_create(&l, &opt, NULL), 0);
	assert_true(layer_memory(l) < 4096);
	assert_int_equal(io_fault_calls(f, IO_OP_MKDIR), 1);
	assert_int_equal(io_fault_calls(f, IO_OP_PWRITE), 1);
	assert_int_equal(io_fault_calls(f, IO_OP_FALLOCATE | IO_OPS_SYNC), 0);
	/* One block of disk, until it is written to. */
	assert_true(stat_of(p, l, "journal").st_blocks <= 16);
	assert_int_equal(put_file(l, 10, 0), 0);
	assert_true(stat_of(p, l, "journal").st_blocks * 512 >= LAYER_RESERVE_MIN);
	assert_true(stat_of(p, l, "journal").st_blocks * 512 <= 60 * 1024);
	assert_int_equal(stat_of(p, l, "journal").st_size, 4096 + 64 + 24);
	/* What was reserved is given back when it is sealed. */
	assert_int_equal(layer_seal(l, NULL), 0);
	assert_int_equal(layer_commit(l, NULL), 0);
	assert_true(stat_of(p, l, "journal").st_blocks <= 32);
	layer_unref(l);
	io_fault_free(f);
}

/* Where programs fsync, frames are written over zeros that are on the disk: in what is preallocated
 * anyway at first, and then in steps that grow. A sync in between finds nothing new to note. */
static void fsyncs_have_room(void **state)
{
	struct place *p = *state;
	struct io_fault *f = io_fault_new(NULL);
	struct layer_options opt = p->opt;
	struct layer *l;
	opt.io = io_fault_io(f);
	assert_int_equal(layer_create(&l, &opt, NULL), 0);
	assert_int_equal(put_file(l, 10, 0), 0);
	assert_int_equal(layer_commit(l, NULL), 0); /* nobody waits for that one */
	int64_t blocks = stat_of(p, l, "journal").st_blocks;
	assert_true(stat_of(p, l, "journal").st_size < LAYER_RESERVE_MIN);
	unsigned grown = 0;
	off_t size = 0;
	for (unsigned i = 0; i < 1000; i++) {
		assert_int_equal(put_file(l, 11 + i, 0), 0);
		int r = i ? layer_commit(l, NULL) : layer_fsync(l, 0, NULL);
		assert_int_equal(r, 0);
		struct stat st = stat_of(p, l, "journal");
		grown += st.st_size != size;
		size = st.st_size;
		assert_true((uint64_t)size >= l->journal.end);
		if (i == 0)
			assert_int_equal(st.st_blocks, blocks);
	}
	assert_true(l->journal.end > 100 << 10 && grown >= 2 && grown <= 5);
	assert_true(size < 512 << 10);
	/* The next server keeps the room, as its own writes can go on there … */
	struct layer_id id = *layer_id(l);
	layer_unref(l);
	assert_int_equal(layer_open(&l, &opt, &id, true, NULL), 0);
	assert_int_equal(layer_lost(l), 0);
	assert_int_equal(put_file(l, 5000, 0), 0);
	assert_int_equal(layer_commit(l, NULL), 0);
	assert_int_equal(stat_of(p, l, "journal").st_size, size);
	/* … and who seals it gives it back. */
	assert_int_equal(layer_seal(l, NULL), 0);
	assert_int_equal(layer_commit(l, NULL), 0);
	assert_int_equal(stat_of(p, l, "journal").st_size, l->journal.end);
	layer_unref(l);
	io_fault_free(f);
}

/* ---- against the model ---- */

static void random_life(void **state)
{
	struct place *p = *state;
	const char *env = getenv("SEED");
	static struct kit k;
	for (uint64_t run = 0; run < 10; run++) {
		memset(&k, 0, sizeof(k));
		k.rng = (env ? strtoull(env, NULL, 10) : 1 + run) * 77 + 5;
		k.opt = p->opt;
		k.layer = create(p);
		print_message("seed %llu\n", (unsigned long long)(k.rng - 5) / 77);
		for (int i = 0; i < 600; i++) {
			assert_int_equal(kit_step(&k), 0);
			uint64_t what = kit_random(&k) % 100;
			if (what < 6)
				assert_int_equal(layer_commit(k.layer, NULL), 0);
			else if (what == 6)
				layer_idle(k.layer);
			else if (what == 7)
				k.layer = reopen(p, k.layer, true);
			if (i % 10 == 0)
				kit_check(&k);
		}
		auto_free char *before = kit_text(k.layer);
		size_t memory = layer_memory(k.layer);
		uint64_t bytes = layer_data_bytes(k.layer);
		space_check(&k.layer->space);
		k.layer = reopen(p, k.layer, true);
		auto_free char *after = kit_text(k.layer);
		assert_string_equal(before, after);
		assert_int_equal(layer_data_bytes(k.layer), bytes);
		assert_true(layer_memory(k.layer) < memory * 2 + 10000);
		kit_check(&k);
		layer_unref(k.layer);
	}
}

/* ---- index ---- */

static void forgotten_inodes_leave_nothing(void **state)
{
	struct place *p = *state;
	struct layer *l = create(p);
	assert_int_equal(put_file(l, 9, 0), 0);
	assert_int_equal(layer_commit(l, NULL), 0);
	size_t before = layer_memory(l);
	for (uint64_t i = 10; i < 2010; i++) {
		assert_int_equal(write_blocks(l, i, 0, 2, 1), 0);
		struct txn t;
		txn_begin(&t, l, i);
		txn_dirent(&t, 2, i * 99, "some name", 9, i, 8);
		txn_xattr(&t, i, "user.x", 6, "12345", 5);
		assert_int_equal(txn_commit(&t), 0);
	}
	assert_int_equal(layer_data_bytes(l), 2000 * 2 * LAYER_BLOCK);
	assert_true(layer_memory(l) > before + 2000 * 300);
	for (uint64_t i = 10; i < 2010; i++) {
		struct txn t;
		txn_begin(&t, l, i);
		txn_dirent_del(&t, 2, i * 99, false);
		txn_dead(&t, i, true);
		assert_int_equal(txn_commit(&t), 0);
	}
	assert_int_equal(layer_commit(l, NULL), 0);
	assert_int_equal(layer_data_bytes(l), 0);
	/* But for the log of what was touched lately, which is bounded. */
	size_t log = changed_log_bytes(layer_changed(l));
	assert_true(log < CHANGED_LOG_MAX * 128);
	assert_true(layer_memory(l) - log < before + 2000);
	assert_false(layer_has_dir(l, 2));
	/* Their room on disk is given back, too. */
	assert_true(stat_of(p, l, "data").st_blocks * 512 < 100 * LAYER_BLOCK);
	layer_unref(l);
}

static void a_dead_folder_drops_its_names(void **state)
{
	struct place *p = *state;
	struct layer *l = create(p);
	struct txn t;
	txn_begin(&t, l, 2);
	txn_dirent(&t, 2, 100, "x", 1, 10, 8);
	txn_dirent_del(&t, 2, 200, true);
	assert_int_equal(txn_commit(&t), 0);
	assert_int_equal(layer_dirent_ceil(l, 2, 101)->cookie, 200);
	assert_int_equal(layer_dirent_ceil(l, 2, 101)->ino, 0);
	assert_null(layer_dirent_ceil(l, 2, 201));
	txn_begin(&t, l, 2);
	txn_dead(&t, 2, false);
	assert_int_equal(txn_commit(&t), 0);
	assert_false(layer_has_dir(l, 2));
	assert_true(layer_inode(l, 2)->dead);
	layer_unref(l);
}

static void streams_make_one_extent(void **state)
{
	struct place *p = *state;
	struct layer *l = create(p);
	for (unsigned b = 0; b < 256; b++)
		assert_int_equal(write_blocks(l, 10, b, 1, 3), 0);
	for (unsigned b = 256; b < 512; b += 32)
		assert_int_equal(write_blocks(l, 10, b, 32, 3), 0);
	assert_int_equal(layer_inode(l, 10)->extents.count, 2);
	check_blocks(l, 10, 0, 512, 3);
	layer_unref(l);
}

/* Zeros that are asked of the host, and written where it can't. */
static void zeros(void **state)
{
	struct place *p = *state;
	struct io io[2] = { io_host, io_host };
	io[1].fallocate = no_fallocate;
	for (int i = 0; i < 2; i++) {
		struct layer_options opt = p->opt;
		struct layer *l;
		uint8_t data[3 * LAYER_BLOCK], zero[LAYER_BLOCK] = { 0 };
		opt.io = &io[i];
		assert_int_equal(layer_create(&l, &opt, NULL), 0);
		memset(data, 7, sizeof(data));
		assert_int_equal(layer_pwrite(l, 0, data, sizeof(data), 0), 0);
		assert_int_equal(layer_zero(l, 0, LAYER_BLOCK, LAYER_BLOCK), 0);
		assert_int_equal(layer_zero(l, 0, 300 * LAYER_BLOCK, 8 * LAYER_BLOCK), 0);
		assert_int_equal(layer_pread(l, 0, data, sizeof(data), 0), 0);
		assert_memory_equal(data + LAYER_BLOCK, zero, LAYER_BLOCK);
		assert_true(data[LAYER_BLOCK - 1] == 7 && data[2 * LAYER_BLOCK] == 7);
		assert_true(stat_of(p, l, "data").st_blocks * 512 >= 302 * LAYER_BLOCK);
		assert_true(layer_is_dirty(l));
		assert_int_equal(put_file(l, 10, 0), 0); /* nor is there a reserve */
		layer_unref(l);
	}
}

static void reflinks(void **state)
{
	struct place *p = *state;
	struct layer *l = create(p);
	struct txn t;
	assert_int_equal(write_blocks(l, 10, 0, 8, 1), 0);
	assert_int_equal(put_file(l, 11, 0), 0);
	struct extent e = *layer_extent_ceil(layer_inode(l, 10), 0);
	assert_true(layer_owns(l, &e, 0, e.len));
	assert_false(layer_owns(l, &e, 0, e.len + LAYER_BLOCK));
	struct extent share = e;
	share.len = 4 * LAYER_BLOCK;
	share.src += 2 * LAYER_BLOCK;
	txn_begin(&t, l, 11);
	txn_extent(&t, 11, &share);
	assert_int_equal(txn_commit(&t), 0);
	assert_false(layer_owns(l, &e, 0, e.len));
	assert_true(layer_owns(l, &e, 0, 2 * LAYER_BLOCK));
	assert_false(layer_owns(l, &share, 0, LAYER_BLOCK));
	assert_int_equal(layer_data_bytes(l), 8 * LAYER_BLOCK);
	txn_begin(&t, l, 10);
	txn_dead(&t, 10, true);
	assert_int_equal(txn_commit(&t), 0);
	assert_int_equal(layer_data_bytes(l), 4 * LAYER_BLOCK);
	/* Until the end of the sharing is durable, the other may come back. */
	assert_false(layer_owns(l, &share, 0, LAYER_BLOCK));
	assert_int_equal(layer_commit(l, NULL), 0);
	assert_true(layer_owns(l, &share, 0, share.len));
	layer_unref(l);
}

/* Extents that point into a layer below hold it, and find it again. */
static int resolve(void *ctx, const struct layer_id *id, struct layer **out, struct err *err)
{
	struct layer *below = *(struct layer **)ctx;
	(void)err;
	if (!below || memcmp(id, layer_id(below), sizeof(*id)) != 0)
		return -ENOENT;
	*out = layer_ref(below);
	return 0;
}

static void other_layers(void **state)
{
	struct place *p = *state;
	struct layer *below = create(p), *l = create(p);
	struct layer *resolved = below;
	assert_int_equal(write_blocks(below, 10, 0, 8, 7), 0);
	assert_int_equal(layer_seal(below, NULL), 0);
	struct extent e = *layer_extent_ceil(layer_inode(below, 10), 0);
	assert_false(layer_owns(l, &e, 0, LAYER_BLOCK));
	assert_int_equal(put_file(l, 11, 0), 0);
	struct txn t;
	for (int i = 0; i < 2; i++) { /* twice: one reference */
		txn_begin(&t, l, 11);
		txn_extent(&t, 11, &e);
		assert_int_equal(txn_commit(&t), 0);
	}
	assert_int_equal(l->ndeps, 1);
	assert_int_equal(put_file(l, 12, 0), 0);
	p->opt.resolve = resolve;
	p->opt.resolve_ctx = &resolved;
	l = reopen(p, l, true);
	layer_unref(below);
	check_blocks(l, 11, 0, 8, 7);
	/* Without that layer only this file's content is lost. */
	struct layer_id id = *layer_id(l);
	layer_unref(l);
	resolved = NULL;
	assert_int_equal(layer_open(&l, &p->opt, &id, false, NULL), 0);
	assert_true(layer_inode(l, 11)->damaged);
	assert_false(layer_inode(l, 12)->damaged);
	p->opt.resolve = NULL;
	layer_unref(l);
}

static void tags(void **state)
{
	struct place *p = *state;
	struct layer *l = create(p);
	uint64_t ino = 0;
	for (uint64_t i = 1; i <= 100; i++) {
		struct attr a = file_attr(10);
		struct txn t;
		txn_begin(&t, l, 10 + i);
		t.tag = i * 2;
		txn_inode(&t, &a, 0);
		assert_int_equal(txn_commit(&t), 0);
	}
	assert_int_equal(layer_tag(l, 2, &ino), 0); /* nobody asks whoever did it */
	l = reopen(p, l, true);
	assert_int_equal(layer_tag(l, 2, &ino), 0); /* nor was it asked for */
	p->opt.tags = true;
	l = reopen(p, l, true);
	p->opt.tags = false;
	assert_int_equal(layer_tag(l, 0, &ino), 0);
	assert_int_equal(layer_tag(l, 3, &ino), 0);
	for (uint64_t i = 1; i <= 100; i++) {
		assert_int_equal(layer_tag(l, i * 2, &ino), 1);
		assert_int_equal(ino, 10 + i);
	}
	/* The last so many count. */
	for (uint64_t i = 101; i <= LAYER_TAGS + 1; i++)
		assert_int_equal(layer_add_tag(l, i * 2, 1), 0);
	assert_int_equal(layer_tag(l, 2, &ino), 0);
	assert_int_equal(layer_tag(l, 4, &ino), 1);
	assert_int_equal(layer_tag(l, (LAYER_TAGS + 1) * 2, &ino), 1);
	layer_unref(l);
}

static void large_and_small_txns(void **state)
{
	struct place *p = *state;
	struct layer *l = create(p);
	struct txn t;
	txn_begin(&t, l, 10); /* nothing in it */
	assert_int_equal(txn_commit(&t), 0);
	assert_true(layer_is_empty(l));
	txn_begin(&t, l, 10);
	txn_usage(&t, 1, 2);
	txn_drop(&t);
	assert_true(layer_is_empty(l));
	/* Larger than what a replay looks at in one piece. */
	static char value[65536];
	txn_begin(&t, l, 10);
	for (int i = 0; i < 40; i++) {
		char name[16];
		size_t n = (size_t)snprintf(name, sizeof(name), "user.%d", i);
		memset(value, i, sizeof(value));
		txn_xattr(&t, 10, name, n, value, sizeof(value));
	}
	struct attr a = file_attr(10);
	txn_inode(&t, &a, 0);
	assert_int_equal(txn_commit(&t), 0);
	l = reopen(p, l, true);
	const struct layer_xattr *x = layer_xattr(layer_inode(l, 10), "user.7", 6);
	assert_int_equal(x->value_len, sizeof(value));
	assert_int_equal(((const char *)x->value)[sizeof(value) - 1], 7);
	txn_begin(&t, l, 10);
	for (int i = 0; i < 1025; i++)
		txn_xattr(&t, 10, "user.x", 6, value, sizeof(value));
	assert_int_equal(txn_commit(&t), -E2BIG);
	assert_int_equal(put_file(l, 11, 0), 0);
	layer_unref(l);
}

/* ---- space on the host ---- */

/* A disk that can be full: then it takes only what fits into blocks that were preallocated. */
static struct {
	bool full;
	uint64_t allocated; /* the largest end of a preallocation */
} disk;

static int disk_fallocate(void *ctx, int fd, int mode, uint64_t off, uint64_t len)
{
	bool punch = mode & FALLOC_FL_PUNCH_HOLE;
	if (!punch && disk.full)
		return -ENOSPC;
	int r = io_host.fallocate(ctx, fd, mode, off, len);
	if (r == 0 && !punch && off + len > disk.allocated)
		disk.allocated = off + len;
	return r;
}

static ssize_t disk_pwrite(void *ctx, int fd, const void *buf, size_t n, uint64_t off)
{
	if (disk.full && off + n > disk.allocated) {
		if (off >= disk.allocated)
			return -ENOSPC;
		n = (size_t)(disk.allocated - off);
	}
	return io_host.pwrite(ctx, fd, buf, n, off);
}

static int delete_file(struct layer *l, uint64_t i)
{
	struct txn t;
	txn_begin(&t, l, 10 + i);
	txn_dirent_del(&t, 2, i, false);
	txn_dead(&t, 10 + i, true);
	txn_usage(&t, 0, 0);
	return txn_commit(&t);
}

/* On a full disk what takes away goes on, for as long as the reserve lasts. */
static void full_disk(void **state)
{
	struct place *p = *state;
	struct io io = io_host;
	struct layer_options opt = p->opt;
	struct layer *l;
	struct txn t;
	io.fallocate = disk_fallocate;
	io.pwrite = disk_pwrite;
	opt.io = &io;
	assert_int_equal(layer_create(&l, &opt, NULL), 0);
	for (uint64_t i = 0; i < 20000; i++) {
		struct attr a = file_attr(10 + i);
		txn_begin(&t, l, 10 + i);
		txn_inode(&t, &a, 0);
		txn_dirent(&t, 2, i, "name", 4, 10 + i, 8);
		assert_int_equal(txn_commit(&t), 0);
	}
	disk.full = true;
	int r = 0;
	while (r == 0) /* up to the reserve anything goes */
		r = put_file(l, 5, 0);
	assert_int_equal(r, -ENOSPC);
	uint64_t before = layer_records(l);
	assert_int_equal(put_file(l, 6, 0), -ENOSPC);
	assert_null(layer_inode(l, 6));
	assert_int_equal(layer_records(l), before);
	uint64_t gone = 0;
	while (delete_file(l, gone) == 0)
		gone++;
	assert_true(gone > LAYER_RESERVE / 120);
	/* A rename takes away and adds: it doesn't live on the reserve. */
	txn_begin(&t, l, 10 + gone);
	txn_dirent_del(&t, 2, gone, false);
	txn_dirent(&t, 2, 99999, "x", 1, 10 + gone, 8);
	assert_int_equal(txn_commit(&t), -ENOSPC);
	assert_int_equal(layer_commit(l, NULL), 0);
	/* There is room again, and all goes on. */
	disk.full = false;
	assert_int_equal(delete_file(l, gone), 0);
	assert_int_equal(put_file(l, 6, 0), 0);
	assert_int_equal(layer_seal(l, NULL), 0);
	assert_int_equal(layer_commit(l, NULL), 0);
	l = reopen(p, l, false);
	assert_int_equal(l->inodes.count, 20000 - gone - 1 + 2);
	layer_unref(l);
}

/* A write that fails half-way leaves no trace, and the next ones are found by a replay. */
static void failed_writes(void **state)
{
	struct place *p = *state;
	struct io_fault *f = io_fault_new(NULL);
	struct layer_options opt = p->opt;
	struct layer *l;
	opt.io = io_fault_io(f);
	assert_int_equal(layer_create(&l, &opt, NULL), 0);
	for (size_t torn = 0; torn < 200; torn++) {
		assert_int_equal(put_file(l, 10, torn), 0);
		io_fault_plan(f,
			      &(struct io_fault_plan){
				      .ops = IO_OP_PWRITE, .nth = 1, .error = -EIO, .torn = torn });
		assert_int_equal(put_file(l, 11, torn), -EIO);
		io_fault_plan(f, NULL);
		assert_null(layer_inode(l, 11));
		if (torn % 8 == 0) { /* at the end of the journal */
			layer_unref(layer_ref(l));
			struct layer *other;
			assert_int_equal(layer_open(&other, &p->opt, layer_id(l), true, NULL), 0);
			assert_int_equal(layer_lost(other), 0);
			assert_null(layer_inode(other, 11));
			assert_int_equal(layer_inode(other, 10)->attr.size, torn);
			layer_unref(other);
		}
	}
	l = reopen(p, l, true);
	assert_int_equal(layer_inode(l, 10)->attr.size, 199);
	layer_unref(l);
	io_fault_free(f);
}

/* ---- descriptors ---- */

static void idle_layers_hold_nothing(void **state)
{
	struct place *p = *state;
	struct layer *layers[100];
	unsigned before = open_fds();
	for (unsigned i = 0; i < 100; i++) {
		layers[i] = create(p);
		assert_int_equal(write_blocks(layers[i], 10, 0, 2, (uint8_t)i), 0);
		assert_int_equal(write_blocks(layers[i], 11, 300, 2, (uint8_t)i), 0);
	}
	assert_int_equal(open_fds(), before + 300);
	layer_idle(layers[0]); /* not yet durable: they stay open, to be told of errors */
	assert_int_equal(open_fds(), before + 300);
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(layer_commit(layers[i], NULL), 0);
		layer_idle(layers[i]);
	}
	assert_int_equal(open_fds(), before);
	for (unsigned i = 0; i < 100; i++) {
		check_blocks(layers[i], 10, 0, 2, (uint8_t)i);
		check_blocks(layers[i], 11, 300, 2, (uint8_t)i);
		assert_int_equal(put_file(layers[i], 12, 1), 0);
		layer_unref(layers[i]);
	}
	assert_int_equal(open_fds(), before);
}

static void many_big_files(void **state)
{
	struct place *p = *state;
	struct layer *l = create(p);
	unsigned before = open_fds();
	for (uint64_t i = 0; i < 150; i++) {
		assert_int_equal(write_blocks(l, 10 + i, 300, 1, (uint8_t)i), 0);
		assert_true(open_fds() <= before + LAYER_FILES_MAX + 1);
	}
	assert_int_equal(layer_commit(l, NULL), 0);
	for (uint64_t i = 0; i < 150; i++) {
		check_blocks(l, 10 + i, 300, 1, (uint8_t)i);
		assert_true(open_fds() <= before + LAYER_FILES_MAX + 1);
	}
	assert_true(open_fds() <= before + LAYER_FILES_IDLE + 2);
	/* An inode that is gone takes its file along, once that is durable. */
	char path[500];
	struct txn t;
	path_of(p, l, "fa", path);
	txn_begin(&t, l, 10);
	txn_dead(&t, 10, true);
	assert_int_equal(txn_commit(&t), 0);
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(layer_commit(l, NULL), 0);
	assert_int_equal(access(path, F_OK), -1);
	layer_unref(l);
}

static void few_descriptors(void **state)
{
	struct place *p = *state;
	struct layer *l = create(p);
	struct rlimit was, now;
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(write_blocks(l, 10 + i, 300, 1, (uint8_t)i), 0);
	assert_int_equal(layer_commit(l, NULL), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	now = was;
	auto_fd probe = open("/dev/null", O_RDONLY | O_CLOEXEC);
	now.rlim_cur = (rlim_t)probe; /* none above those that are open */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
	for (uint64_t i = 0; i < 10; i++)
		check_blocks(l, 10 + i, 300, 1, (uint8_t)i);
	assert_int_equal(put_file(l, 30, 0), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	layer_unref(l);
}

/* ---- threads ---- */

struct party {
	struct layer *l;
	pthread_rwlock_t meta;
	atomic_bool stop;
	atomic_uint failed;
	uint64_t ino;
};

static void *committer(void *arg)
{
	struct party *p = arg;
	while (!atomic_load(&p->stop)) {
		if (layer_commit(p->l, NULL) < 0)
			atomic_fetch_add(&p->failed, 1);
		(void)layer_is_dirty(p->l);
		layer_idle(p->l);
	}
	return NULL;
}

static void *reader(void *arg)
{
	struct party *p = arg;
	while (!atomic_load(&p->stop)) {
		for (uint64_t ino = 10; ino < 14; ino++) {
			uint8_t data[LAYER_BLOCK];
			pthread_rwlock_rdlock(&p->meta);
			uint64_t epoch = layer_epoch(p->l);
			const struct layer_inode *li = layer_inode(p->l, ino);
			const struct extent *e = li ? layer_extent_ceil(li, 0) : NULL;
			struct extent x = { 0 };
			if (e)
				x = *e;
			pthread_rwlock_unlock(&p->meta);
			if (!x.len)
				continue;
			int r = layer_pread(x.layer, x.file, data, sizeof(data), x.src);
			if (layer_epoch(p->l) != epoch)
				continue; /* it may be anybody's now */
			if (r < 0 || data[8] != ino)
				atomic_fetch_add(&p->failed, 1);
		}
	}
	return NULL;
}

/* Writers under the owner's lock; readers of data, commits and idling beside it. */
static void side_by_side(void **state)
{
	struct place *p = *state;
	struct party party = { .l = create(p) };
	pthread_t t[4];
	pthread_rwlock_init(&party.meta, NULL);
	for (unsigned i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, i < 2 ? committer : reader, &party);
	for (int i = 0; i < 1500; i++) {
		uint64_t ino = 10 + (uint64_t)i % 4;
		pthread_rwlock_wrlock(&party.meta);
		int r;
		if (i % 7 == 6 && layer_inode(party.l, ino)) {
			struct txn x;
			txn_begin(&x, party.l, ino);
			txn_dead(&x, ino, true);
			r = txn_commit(&x);
		} else {
			r = write_blocks(party.l, ino, i % 3 ? 0 : 300, 1 + (unsigned)i % 40,
					 (uint8_t)ino);
		}
		if (r < 0)
			atomic_fetch_add(&party.failed, 1);
		pthread_rwlock_unlock(&party.meta);
	}
	atomic_store(&party.stop, true);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(atomic_load(&party.failed), 0);
	pthread_rwlock_destroy(&party.meta);
	space_check(&party.l->space);
	layer_unref(party.l);
}

/* ---- syncs ---- */

/* Once a sync has failed, no later commit says that all is well. */
static void failed_syncs_are_told(void **state)
{
	struct place *p = *state;
	for (uint64_t nth = 1; nth <= 4; nth++) { /* data, folder, journal, folder above */
		struct io_fault *f = io_fault_new(NULL);
		struct layer_options opt = p->opt;
		struct layer *l;
		struct err err;
		opt.io = io_fault_io(f);
		assert_int_equal(layer_create(&l, &opt, NULL), 0);
		assert_int_equal(write_blocks(l, 10, 0, 2, 1), 0);
		io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OPS_SYNC, .nth = nth });
		assert_int_equal(layer_commit(l, &err), -EIO);
		io_fault_plan(f, NULL);
		assert_int_equal(layer_commit(l, NULL), -EIO);
		assert_int_equal(put_file(l, 11, 0), -EROFS);
		assert_int_equal(layer_seal(l, NULL), -EROFS);
		assert_int_equal(layer_commit(l, NULL), -EIO);
		assert_true(layer_is_dirty(l));
		layer_unref(l);
		io_fault_free(f);
	}
}

static void commits_sync_what_is_needed(void **state)
{
	struct place *p = *state;
	struct io_fault *f = io_fault_new(NULL);
	struct layer_options opt = p->opt;
	struct layer *l;
	opt.io = io_fault_io(f);
	assert_int_equal(layer_create(&l, &opt, NULL), 0);
	static const struct {
		const char *what;
		uint64_t syncs;
	} want[] = {
		{ "a new layer: journal, folder, folder above", 3 },
		{ "nothing", 0 },
		{ "a record", 1 },
		{ "a record and the first data: the folder, too", 3 },
		{ "a record and data", 2 },
		{ "data alone", 1 },
		{ "the seal", 1 },
	};
	for (unsigned i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		uint64_t before = io_fault_calls(f, IO_OPS_SYNC);
		if (i == 2)
			assert_int_equal(put_file(l, 9, 0), 0);
		else if (i == 3 || i == 4)
			assert_int_equal(write_blocks(l, 10, i, 1, 1), 0);
		else if (i == 5)
			assert_int_equal(layer_pwrite(l, 0, "x", 1, 0), 0);
		else if (i == 6)
			assert_int_equal(layer_seal(l, NULL), 0);
		assert_int_equal(layer_commit(l, NULL), 0);
		if (io_fault_calls(f, IO_OPS_SYNC) - before != want[i].syncs)
			print_error("%s\n", want[i].what);
		assert_int_equal(io_fault_calls(f, IO_OPS_SYNC) - before, want[i].syncs);
		assert_false(layer_is_dirty(l));
	}
	layer_unref(l);
	io_fault_free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(life),
		cmocka_unit_test(new_ones_are_cheap),
		cmocka_unit_test(fsyncs_have_room),
		cmocka_unit_test(random_life),
		cmocka_unit_test(forgotten_inodes_leave_nothing),
		cmocka_unit_test(a_dead_folder_drops_its_names),
		cmocka_unit_test(streams_make_one_extent),
		cmocka_unit_test(zeros),
		cmocka_unit_test(reflinks),
		cmocka_unit_test(other_layers),
		cmocka_unit_test(tags),
		cmocka_unit_test(large_and_small_txns),
		cmocka_unit_test(full_disk),
		cmocka_unit_test(failed_writes),
		cmocka_unit_test(idle_layers_hold_nothing),
		cmocka_unit_test(many_big_files),
		cmocka_unit_test(few_descriptors),
		cmocka_unit_test(side_by_side),
		cmocka_unit_test(failed_syncs_are_told),
		cmocka_unit_test(commits_sync_what_is_needed),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
