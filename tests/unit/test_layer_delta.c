/* Deltas: what a layer says, as objects, and back. */
#include <fcntl.h>
#include "fs/base/cleanup.h"
#include "fs/work/layer_impl.h"
#include "tests/unit/layer_kit.h"
#include "tests/unit/layer_sample.h"
#include "tests/unit/oom.h"
#include "tests/unit/sim_disk.h"

struct parts {
	struct buf b[16];
	unsigned n;
	int fail_at; /* this part fails; -1: none */
};

static int keep_part(void *ctx, const void *data, size_t len, struct err *err)
{
	struct parts *p = ctx;
	assert_true(len <= STORE_OBJECT_MAX && p->n < 16);
	if ((int)p->n == p->fail_at)
		return err_set(err, -ENOSPC, "no room for part %u", p->n);
	buf_reset(&p->b[p->n]);
	buf_add(&p->b[p->n++], data, len);
	return 0;
}

static void parts_done(struct parts *p)
{
	for (unsigned i = 0; i < 16; i++)
		buf_done(&p->b[i]);
}

/* Every run of data becomes an object that is named by where it lies. */
static int content(void *ctx, const struct layer_inode *li,
		   int (*emit)(void *emit_ctx, const struct extent *e), void *emit_ctx,
		   struct err *err)
{
	const struct extent *e;
	(void)ctx;
	for (uint64_t off = 0; (e = layer_extent_ceil(li, off)); off = e->off + e->len) {
		struct extent x = { .off = e->off, .len = e->len, .kind = EXTENT_ZERO };
		if (e->kind != EXTENT_ZERO) {
			x.kind = EXTENT_OBJECT;
			x.src = e->src % 1000;
			le_put64(x.object.b, e->file);
			le_put64(x.object.b + 8, e->src);
		}
		int r = emit(emit_ctx, &x);
		if (r < 0)
			return err_sys(err, r, "emit");
	}
	return 0;
}

static struct sim sim;
static struct layer_options opt;

static int set_up(void **state)
{
	(void)state;
	sim_init(&sim, 1);
	(void)sim_new(&sim, "/root", true);
	(void)sim_new(&sim, "/root/layers", true);
	opt = (struct layer_options){ .io = &sim.io, .root = "/root" };
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	sim_done(&sim);
	return 0;
}

static struct layer *create(void)
{
	struct layer *l;
	assert_int_equal(layer_create(&l, &opt, NULL), 0);
	return l;
}

static void to_delta(struct layer *l, struct parts *p)
{
	struct delta_sink sink = { .content = content, .part = keep_part, .ctx = p };
	struct err err = { 0 };
	p->n = 0;
	p->fail_at = -1;
	int r = layer_to_delta(l, &sink, &err);
	if (r < 0)
		print_error("%s\n", err.text);
	assert_int_equal(r, 0);
}

static struct layer *from_parts(const struct parts *p)
{
	struct layer *l = layer_new_delta(&sim.io, &sample_id);
	for (unsigned i = 0; i < p->n; i++)
		assert_int_equal(layer_apply_part(l, p->b[i].data, p->b[i].len, i, i + 1 == p->n),
				 0);
	layer_mark_partial(l);
	return l;
}

static bool same_parts(const struct parts *a, const struct parts *b)
{
	if (a->n != b->n)
		return false;
	for (unsigned i = 0; i < a->n; i++)
		if (a->b[i].len != b->b[i].len ||
		    memcmp(a->b[i].data, b->b[i].data, a->b[i].len) != 0)
			return false;
	return true;
}

/* What a layer says that is made of parts gives the same parts again, and says the same. */
static void round_trip(void **state)
{
	(void)state;
	static struct kit k;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct parts a = { 0 }, b = { 0 };
		memset(&k, 0, sizeof(k));
		k.rng = seed * 77 + 5;
		k.opt = opt;
		k.layer = create();
		for (int i = 0; i < 300; i++)
			assert_int_equal(kit_step(&k), 0);
		assert_int_equal(layer_seal(k.layer, NULL), 0);
		to_delta(k.layer, &a);
		assert_int_equal(a.n, 1);
		struct layer *l = from_parts(&a);
		assert_true(layer_is_sealed(l) && !layer_is_local(l) && !layer_is_dirty(l));
		assert_int_equal(layer_commit(l, NULL), 0);
		layer_idle(l);
		struct delta_sink own = { .part = keep_part, .ctx = &b };
		b.fail_at = -1;
		assert_int_equal(layer_to_delta(l, &own, NULL), 0);
		assert_true(same_parts(&a, &b));
		/* The same but for where contents are and the counters. */
		for (unsigned i = 0; i < KIT_INODES; i++) {
			const struct layer_inode *x = layer_inode(k.layer, KIT_FIRST + i);
			const struct layer_inode *y = layer_inode(l, KIT_FIRST + i);
			assert_int_equal(!x, !y);
			if (!x)
				continue;
			assert_int_equal(x->dead, y->dead);
			if (!x->dead)
				assert_memory_equal(&x->attr, &y->attr, sizeof(x->attr));
			for (unsigned s = 0; s < KIT_SLOTS; s++) {
				uint64_t off = kit_block(s) * LAYER_BLOCK;
				const struct extent *e = layer_extent_ceil(x, off);
				const struct extent *f = layer_extent_ceil(y, off);
				assert_int_equal(e && e->off <= off, f && f->off <= off);
				if (e && e->off <= off)
					assert_int_equal(e->kind == EXTENT_ZERO,
							 f->kind == EXTENT_ZERO);
			}
		}
		uint8_t byte;
		assert_int_equal(layer_pread(l, 0, &byte, 1, 0), -EIO);
		layer_unref(l);
		layer_unref(k.layer);
		parts_done(&a);
		parts_done(&b);
	}
}

static int put(struct layer *l, const struct attr *a)
{
	struct txn t;
	txn_begin(&t, l, a->ino);
	txn_inode(&t, a, 0);
	return txn_commit(&t);
}

/* Equal states give equal objects, whichever way they came about. */
static void canonical(void **state)
{
	(void)state;
	struct layer *l[2] = { create(), create() };
	struct parts p[2] = { 0 };
	static const char *const names[] = { "user.a", "user.aa", "user.b", "user.z" };
	for (int i = 0; i < 2; i++) {
		struct txn t;
		for (uint64_t n = 0; n < 200; n++) {
			uint64_t m = i ? 199 - n : n;
			struct attr a = sample_attr(10 + m, S_IFREG | 0600);
			a.size = m;
			if (i) {
				a.size = 77; /* not for long */
				assert_int_equal(put(l[i], &a), 0);
				a.size = m;
			}
			assert_int_equal(put(l[i], &a), 0);
			txn_begin(&t, l[i], 2);
			txn_dirent(&t, 2 + m % 3, m * 1000, "name", 4, 10 + m, 8);
			txn_dirent_del(&t, 2 + m % 3, m * 1000 + 1, true);
			for (int x = 0; x < 4; x++)
				txn_xattr(&t, 10 + m, names[i ? 3 - x : x],
					  strlen(names[i ? 3 - x : x]), "v", 1);
			if (i) {
				txn_dirent(&t, 5000, 1, "gone", 4, 10, 8);
				txn_dirent_del(&t, 5000, 1, false);
			}
			txn_usage(&t, i, i);
			assert_int_equal(txn_commit(&t), 0);
		}
		assert_int_equal(layer_seal(l[i], NULL), 0);
		to_delta(l[i], &p[i]);
	}
	assert_true(same_parts(&p[0], &p[1]));
	for (int i = 0; i < 2; i++) {
		layer_unref(l[i]);
		parts_done(&p[i]);
	}
}

static void many_parts(void **state)
{
	(void)state;
	struct layer *l = create();
	struct parts p = { 0 };
	static char value[65536];
	for (uint64_t i = 0; i < 60; i++) {
		struct attr a = sample_attr(10 + i, S_IFREG | 0600);
		struct txn t;
		memset(value, (int)i, sizeof(value));
		txn_begin(&t, l, 10 + i);
		txn_inode(&t, &a, 0);
		txn_xattr(&t, 10 + i, "user.big", 8, value, sizeof(value));
		assert_int_equal(txn_commit(&t), 0);
	}
	assert_int_equal(layer_seal(l, NULL), 0);
	to_delta(l, &p);
	assert_int_equal(p.n, 4);
	struct layer *d = from_parts(&p);
	auto_free char *x = kit_text(l), *y = kit_text(d);
	assert_string_equal(x, y);
	layer_unref(d);
	/* Part 1 is not part 0, the last one is not the one before. */
	d = layer_new_delta(&sim.io, &sample_id);
	assert_int_equal(layer_apply_part(d, p.b[1].data, p.b[1].len, 0, false), -EBADMSG);
	assert_int_equal(layer_apply_part(d, p.b[3].data, p.b[3].len, 3, false), -EBADMSG);
	assert_int_equal(layer_apply_part(d, p.b[2].data, p.b[2].len, 2, true), -EBADMSG);
	layer_unref(d);
	/* What the sink fails with comes back. */
	struct delta_sink sink = { .content = content, .part = keep_part, .ctx = &p };
	struct err err;
	for (p.fail_at = 0; p.fail_at < 4; p.fail_at++) {
		p.n = 0;
		assert_int_equal(layer_to_delta(l, &sink, &err), -ENOSPC);
	}
	layer_unref(l);
	parts_done(&p);
}

static void an_empty_layer(void **state)
{
	(void)state;
	struct layer *l = create();
	struct parts p = { 0 };
	assert_int_equal(layer_seal(l, NULL), 0);
	to_delta(l, &p);
	assert_int_equal(p.n, 1);
	assert_int_equal(p.b[0].len, 32);
	struct layer *d = from_parts(&p);
	assert_true(layer_is_empty(d));
	layer_unref(d);
	layer_unref(l);
	parts_done(&p);
}

static void nameless_and_kept(void **state)
{
	(void)state;
	struct layer *l = create();
	struct parts p = { 0 };
	struct attr orphan = sample_attr(10, S_IFREG), folder = sample_attr(11, S_IFDIR);
	struct txn t;
	orphan.nlink = folder.nlink = 0;
	txn_begin(&t, l, 10);
	txn_inode(&t, &orphan, 0);
	txn_xattr(&t, 10, "user.x", 6, "y", 1);
	txn_inode(&t, &folder, 0);
	txn_dirent_del(&t, 11, 5, true);
	txn_dead(&t, 12, false);
	txn_dirent(&t, 13, 1, "n", 1, 14, 8); /* in a folder that this layer has no version of */
	assert_int_equal(txn_commit(&t), 0);
	assert_int_equal(layer_seal(l, NULL), 0);
	to_delta(l, &p);
	struct layer *d = from_parts(&p);
	assert_true(layer_inode(d, 10)->dead); /* what is below must not come back */
	assert_null(layer_inode(d, 10)->xattrs);
	assert_true(layer_inode(d, 11)->dead);
	assert_false(layer_has_dir(d, 11));
	assert_true(layer_inode(d, 12)->dead);
	assert_int_equal(layer_dirent_ceil(d, 13, 0)->ino, 14);
	layer_unref(d);
	layer_unref(l);
	parts_done(&p);
}

/* What can't be said, or shouldn't. */
static int bad_content(void *ctx, const struct layer_inode *li,
		       int (*emit)(void *emit_ctx, const struct extent *e), void *emit_ctx,
		       struct err *err)
{
	static const struct extent bad[][2] = {
		{ { .off = 0, .len = 10, .kind = EXTENT_DATA } },
		{ { .off = 0, .len = 10, .kind = EXTENT_IMAGE } },
		{ { .off = 0, .len = 0, .kind = EXTENT_ZERO } },
		{ { .off = 10, .len = 10, .kind = EXTENT_ZERO }, { .off = 5, .len = 10 } },
		{ { .off = UINT64_MAX - 5, .len = 10, .kind = EXTENT_ZERO } },
	};
	const struct parts *p = ctx;
	(void)li;
	int r = emit(emit_ctx, &bad[p->fail_at][0]);
	if (r == 0)
		r = emit(emit_ctx, &bad[p->fail_at][1]);
	return r < 0 ? err_sys(err, r, "emit") : 0;
}

static void refused_to_write(void **state)
{
	(void)state;
	struct layer *l = create();
	struct parts p = { 0 };
	struct attr a = sample_attr(10, S_IFREG);
	struct err err;
	struct extent e;
	struct txn t;
	assert_int_equal(put(l, &a), 0);
	assert_int_equal(layer_alloc(l, 10, 0, 4096, &e), 0);
	txn_begin(&t, l, 10);
	txn_extent(&t, 10, &e);
	assert_int_equal(txn_commit(&t), 0);
	assert_int_equal(layer_seal(l, NULL), 0);
	struct delta_sink sink = { .content = bad_content, .part = keep_part, .ctx = &p };
	for (p.fail_at = 0; p.fail_at < 5; p.fail_at++)
		assert_int_equal(layer_to_delta(l, &sink, &err), -EINVAL);
	sink.content = NULL; /* its own: not objects */
	assert_int_equal(layer_to_delta(l, &sink, &err), -EINVAL);
	sink.content = content;
	layer_mark_damaged(l, 10);
	assert_int_equal(layer_to_delta(l, &sink, &err), -EIO);
	assert_non_null(strstr(err.text, "inode 10"));
	layer_unref(l);
	parts_done(&p);
}

static void part_of(struct buf *out, const struct buf *records, uint32_t n)
{
	buf_reset(out);
	buf_add(out, "BoughDlt", 8);
	buf_u32(out, 1);
	buf_u32(out, 0);
	buf_u32(out, 1);
	buf_u32(out, n);
	buf_u64(out, 0);
	buf_add(out, records->data, records->len);
}

static int apply(const struct buf *part)
{
	struct layer *l = layer_new_delta(&sim.io, &sample_id);
	int r = layer_apply_part(l, part->data, part->len, 0, true);
	if (r < 0)
		assert_int_equal(l->inodes.count + l->dirs.count, 0);
	layer_unref(l);
	return r;
}

static void refused_to_read(void **state)
{
	(void)state;
	auto_buf rec = { 0 }, part = { 0 };
	struct attr a = sample_attr(10, S_IFREG);
	struct extent data = { .len = 4096, .kind = EXTENT_DATA };
	struct extent image = { .len = 4096, .kind = EXTENT_IMAGE, .image_ino = 5 };
	record_inode(&rec, &a, 0);
	part_of(&part, &rec, 1);
	assert_int_equal(apply(&part), 0);
	for (size_t at = 0; at < 32; at++) {
		part.data[at] ^= 2;
		assert_int_equal(apply(&part), -EBADMSG);
		part.data[at] ^= 2;
	}
	while (part.len-- > 0)
		assert_int_equal(apply(&part), -EBADMSG);
	for (int bad = 0; bad < 7; bad++) {
		size_t before = rec.len;
		switch (bad) {
		case 0:
			record_extent(&rec, 10, &data, NULL);
			break;
		case 1:
			record_extent(&rec, 10, &image, NULL);
			break;
		case 2:
			record_extent_drop(&rec, 10, 0, 4096);
			break;
		case 3:
			record_usage(&rec, 1, 1);
			break;
		case 4:
			record_dead(&rec, 10, true);
			break;
		case 5:
			record_dirent_del(&rec, 10, 1, false);
			break;
		case 6:
			record_xattr_del(&rec, 10, "user.x", 6, false);
			break;
		}
		part_of(&part, &rec, 2);
		assert_int_equal(apply(&part), -EBADMSG);
		rec.len = before;
	}
	part_of(&part, &rec, 2);
	assert_int_equal(apply(&part), -EBADMSG);
}

/* Nobody reads behind a target, whatever the size says. */
static void targets_and_sizes(void **state)
{
	(void)state;
	for (int order = 0; order < 3; order++) {
		auto_buf rec = { 0 }, part = { 0 };
		struct attr a = sample_attr(10, S_IFLNK);
		a.size = 4000;
		if (order != 1)
			record_inode(&rec, &a, 0);
		if (order == 2)
			a.mode = S_IFREG;
		record_target(&rec, 10, "short", 5);
		if (order > 0)
			record_inode(&rec, &a, 0);
		part_of(&part, &rec, order == 2 ? 3 : 2);
		struct layer *l = layer_new_delta(&sim.io, &sample_id);
		assert_int_equal(layer_apply_part(l, part.data, part.len, 0, true), 0);
		const struct layer_inode *li = layer_inode(l, 10);
		assert_int_equal(li->target != NULL, order != 2);
		assert_int_equal(li->attr.size, order == 2 ? 4000 : 5);
		layer_unref(l);
	}
}

/* ---- by the store ---- */

static void by_the_store(void **state)
{
	(void)state;
	char dir[300];
	const char *tmp = getenv("TMPDIR");
	(void)snprintf(dir, sizeof(dir), "%s/test_delta.XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(dir));
	struct store *store;
	struct store_session *ss;
	struct store_options so = { .create = true };
	assert_int_equal(store_open(&store, dir, &so, NULL), 0);
	assert_int_equal(store_session_begin(store, &ss, NULL), 0);
	struct layer *l = create();
	struct parts p = { 0 };
	static char value[65536];
	for (uint64_t i = 0; i < 30; i++) {
		struct attr a = sample_attr(10 + i, S_IFREG | 0600);
		struct txn t;
		txn_begin(&t, l, 10 + i);
		txn_inode(&t, &a, 0);
		txn_xattr(&t, 10 + i, "user.big", 8, value, sizeof(value));
		assert_int_equal(txn_commit(&t), 0);
	}
	assert_int_equal(layer_seal(l, NULL), 0);
	to_delta(l, &p);
	assert_int_equal(p.n, 2);
	struct digest parts[2], swapped[2];
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(store_put(ss, p.b[i].data, p.b[i].len, &parts[i], NULL), 0);
	struct stack_layer desc = { .parts = parts, .nparts = 2 };
	struct layer_options o = opt;
	struct layer *d;
	struct err err;
	o.store = store;
	layer_delta_id(&desc.id, parts, 2);
	assert_int_equal(layer_from_delta(&d, &o, &desc, &err), 0);
	assert_memory_equal(layer_id(d), &desc.id, sizeof(desc.id));
	auto_free char *x = kit_text(l), *y = kit_text(d);
	assert_string_equal(x, y);
	layer_unref(d);
	/* Another order, another id; one missing; none at all. */
	swapped[0] = parts[1];
	swapped[1] = parts[0];
	desc.parts = swapped;
	assert_int_equal(layer_from_delta(&d, &o, &desc, &err), -EBADMSG);
	layer_delta_id(&desc.id, swapped, 2);
	assert_int_equal(layer_from_delta(&d, &o, &desc, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "part 0"));
	memset(&parts[1], 1, sizeof(parts[1]));
	desc.parts = parts;
	layer_delta_id(&desc.id, parts, 2);
	assert_int_equal(layer_from_delta(&d, &o, &desc, &err), -ENOENT);
	desc.nparts = 0;
	assert_int_equal(layer_from_delta(&d, &o, &desc, &err), -EBADMSG);
	store_session_end(ss);
	store_close(store);
	layer_unref(l);
	parts_done(&p);
	assert_int_equal(io_remove_tree(AT_FDCWD, dir, NULL), 0);
}

static int count_objects(void *ctx, const struct digest *d)
{
	unsigned *n = ctx;
	(void)d;
	return ++*n == 3 ? 77 : 0;
}

static void objects(void **state)
{
	(void)state;
	auto_buf rec = { 0 }, part = { 0 };
	struct attr a = sample_attr(10, S_IFREG);
	record_inode(&rec, &a, 0);
	for (unsigned i = 0; i < 5; i++) {
		struct extent e = { .off = i * 1000, .len = 500, .kind = EXTENT_OBJECT };
		e.object.b[0] = (uint8_t)i;
		record_extent(&rec, 10, &e, NULL);
	}
	part_of(&part, &rec, 6);
	struct layer *l = layer_new_delta(&sim.io, &sample_id);
	assert_int_equal(layer_apply_part(l, part.data, part.len, 0, true), 0);
	unsigned n = 0;
	assert_int_equal(layer_objects(l, count_objects, &n), 77);
	assert_int_equal(n, 3);
	layer_unref(l);
}

static void golden(void **state)
{
	(void)state;
	char path[600];
	const char *src = getenv("BOUGH_SRC");
	auto_free void *want = NULL;
	size_t n;
	struct layer *l = create();
	struct parts p = { 0 };
	struct attr a = sample_attr(10, S_IFREG | 0644), link = sample_attr(11, S_IFLNK | 0777);
	struct extent e = { .off = 4096,
			    .len = 1234,
			    .kind = EXTENT_OBJECT,
			    .src = 5,
			    .object = { "an object's digest, 32 bytes..." } };
	struct extent hole = { .off = 8192, .len = 4096, .kind = EXTENT_ZERO };
	struct txn t;
	a.size = 12288;
	link.size = 4;
	txn_begin(&t, l, 10);
	txn_inode(&t, &a, 8192);
	txn_xattr(&t, 10, "user.b", 6, "2", 1);
	txn_xattr(&t, 10, "user.a", 6, "1", 1);
	txn_xattr_del(&t, 10, "user.c", 6, true);
	txn_extent(&t, 10, &hole);
	txn_extent(&t, 10, &e);
	txn_inode(&t, &link, 0);
	txn_target(&t, 11, "else", 4);
	txn_dead(&t, 9, false);
	txn_dirent(&t, 2, 300, "b", 1, 11, 10);
	txn_dirent(&t, 2, 200, "a", 1, 10, 8);
	txn_dirent_del(&t, 2, 400, true);
	assert_int_equal(txn_commit(&t), 0);
	assert_int_equal(layer_seal(l, NULL), 0);
	struct delta_sink sink = { .part = keep_part, .ctx = &p };
	p.fail_at = -1;
	assert_int_equal(layer_to_delta(l, &sink, NULL), 0);
	(void)snprintf(path, sizeof(path), "%s/tests/golden/delta-v1", src ? src : ".");
	if (getenv("BOUGH_GOLDEN")) { /* a new version of the format */
		auto_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
		assert_int_equal(io_write_full(NULL, fd, p.b[0].data, p.b[0].len, 0), 0);
	}
	assert_int_equal(io_slurp(NULL, AT_FDCWD, path, 1 << 20, &want, &n, NULL), 0);
	assert_int_equal(n, p.b[0].len);
	assert_memory_equal(p.b[0].data, want, n);
	layer_unref(l);
	parts_done(&p);
}

static void no_memory(void **state)
{
	(void)state;
	static struct kit k;
	struct parts p = { .fail_at = -1 };
	k.rng = 5;
	k.opt = opt;
	k.layer = create();
	for (int i = 0; i < 100; i++)
		assert_int_equal(kit_step(&k), 0);
	assert_int_equal(layer_seal(k.layer, NULL), 0);
	to_delta(k.layer, &p);
	for (uint64_t nth = 1;; nth++) {
		struct delta_sink sink = { .content = content, .part = keep_part, .ctx = &p };
		struct layer *l = layer_new_delta(&sim.io, &sample_id);
		oom_at(nth);
		p.n = 0;
		int r = layer_to_delta(k.layer, &sink, NULL);
		if (r == 0)
			r = layer_apply_part(l, p.b[0].data, p.b[0].len, 0, true);
		bool hit = oom_hit();
		assert_true(r == 0 || (r == -ENOMEM && hit));
		layer_unref(l);
		if (!hit)
			break;
	}
	layer_unref(k.layer);
	parts_done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip),
		cmocka_unit_test(canonical),
		cmocka_unit_test(many_parts),
		cmocka_unit_test(an_empty_layer),
		cmocka_unit_test(nameless_and_kept),
		cmocka_unit_test(refused_to_write),
		cmocka_unit_test(refused_to_read),
		cmocka_unit_test(targets_and_sizes),
		cmocka_unit_test(by_the_store),
		cmocka_unit_test(objects),
		cmocka_unit_test(golden),
		cmocka_unit_test(no_memory),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
