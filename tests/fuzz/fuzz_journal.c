/* Journals: the walk over frames, the records in them, and a layer opened from all of it.
 *
 * The first byte says how the rest is taken:
 *   0  as it is, behind a header that is right
 *   1  as frames whose numbers, lengths and checks are made right, so that the records are reached
 *   2  as the whole file, header and all
 *   3  as the body of one frame
 * and, by its upper bits, which boot opens it, and whether room follows the frames. */
#include <assert.h>
#include "fs/base/cleanup.h"
#include "fs/work/layer_impl.h"
#include "tests/unit/layer_sample.h"
#include "tests/unit/sim_disk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_MAX = 1 << 16, ROOM = 6000 };

static void put_head(struct buf *j)
{
	struct journal_head h = { .id = sample_id, .salt = SAMPLE_SALT };
	memcpy(h.boot, sample_boot, BOOT_ID_BYTES);
	uint8_t *p = buf_room(j, JOURNAL_HEAD);
	journal_head_encode(p, &h);
	j->len += JOURNAL_HEAD;
}

/* One frame from the input's next bytes: a kind, two bytes of length, how its number and checks
 * are wrong (mostly not), the body. */
static size_t put_frame(struct buf *j, const uint8_t *p, size_t n, uint64_t *seq)
{
	struct buf b = { 0 };
	size_t len = le_get16(p + 1) % 2048;
	len = len < n - 5 ? len : n - 5;
	(void)buf_room(&b, FRAME_HEAD);
	b.len = FRAME_HEAD;
	buf_add(&b, p + 5, len);
	*seq += p[3] % 16 == 15 ? p[4] : 1;
	struct journal_frame f = { .kind = (enum frame_kind)(FRAME_OP + p[0] % 4),
				   .seq = *seq,
				   .ino = p[4],
				   .prev_ino = 7,
				   .tag = p[3],
				   .records = 1 };
	journal_frame_finish(&b, &f, SAMPLE_SALT);
	if (p[3] / 16 == 15) /* a flipped bit somewhere */
		b.data[p[4] % b.len] ^= 1;
	buf_add(j, b.data, b.len);
	buf_done(&b);
	return 5 + len;
}

static void build(struct buf *j, unsigned how, const uint8_t *p, size_t n)
{
	uint64_t seq = 0;
	if (how == 2) {
		buf_add(j, p, n);
		return;
	}
	put_head(j);
	if (how == 0) {
		buf_add(j, p, n);
	} else if (how == 1) {
		while (n >= 5) {
			size_t used = put_frame(j, p, n, &seq);
			p += used;
			n -= used;
		}
	} else {
		struct buf b = { 0 };
		(void)buf_room(&b, FRAME_HEAD);
		b.len = FRAME_HEAD;
		buf_add(&b, p, n);
		sample_frame(j, &b, FRAME_OP, 1, 10, 0, 1);
		buf_done(&b);
	}
}

static int look_at(void *ctx, const struct layer_inode *li)
{
	uint64_t end = 0;
	const struct extent *e;
	uint64_t *sum = ctx;
	for (uint64_t off = 0; (e = layer_extent_ceil(li, off)); off = end) {
		assert(e->len > 0 && e->off >= end && e->off <= INT64_MAX);
		end = e->off + e->len;
	}
	for (const struct layer_xattr *x = li->xattrs; x; x = x->next)
		*sum += hash_xxh3(x->value, x->value_len, x->name_len ? (uint8_t)x->name[0] : 0);
	if (li->target) {
		assert(li->attr.size == li->target_len);
		*sum += hash_xxh3(li->target, li->attr.size, 0);
	}
	assert(li->dead || li->damaged || li->attr.mode);
	return 0;
}

static int look_into(void *ctx, uint64_t dir)
{
	uint64_t *n = ctx;
	(void)dir;
	++*n;
	return 0;
}

/* It opens or it is refused; what opens goes on, and opens again. */
static void open_and_go_on(struct sim *sim, const struct layer_options *opt, bool writable)
{
	struct layer *l;
	uint64_t sum = 0;
	for (int i = 0; i < 2; i++) {
		if (layer_open(&l, opt, &sample_id, writable, NULL) < 0)
			return;
		(void)layer_each_inode(l, look_at, &sum);
		(void)layer_each_dir(l, look_into, &sum);
		space_check(&l->space);
		uint64_t records = layer_records(l), lost = layer_lost(l);
		if (writable && !layer_is_sealed(l)) {
			struct attr a = sample_attr(77, S_IFREG);
			struct txn t;
			txn_begin(&t, l, 77);
			txn_inode(&t, &a, 0);
			assert(txn_commit(&t) == 0);
			records++;
		}
		assert(layer_fsync(l, 0, NULL) == 0);
		space_check(&l->space);
		layer_unref(l);
		assert(layer_open(&l, opt, &sample_id, writable, NULL) == 0);
		assert(layer_records(l) == records && layer_lost(l) <= lost);
		layer_unref(l);
	}
	(void)sim;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct sim sim;
	if (size < 2 || size > INPUT_MAX)
		return 0;
	struct buf j = { 0 };
	build(&j, data[0] % 4, data + 1, size - 1);
	char path[100], hex[2 * LAYER_ID_BYTES + 1];
	hex_encode(hex, sample_id.b, LAYER_ID_BYTES);
	(void)snprintf(path, sizeof(path), "/root/layers/%s/journal", hex);
	sim_init(&sim, 1);
	(void)sim_new(&sim, "/root", true);
	(void)sim_new(&sim, "/root/layers", true);
	(void)sim_new(&sim, "/root/layers/676f6c64656e206c6179657220696400", true);
	struct sim_file *f = &sim.files[sim_new(&sim, path, false)];
	sim_resize(&f->now, j.len + (data[0] & 16 ? ROOM : 0));
	if (j.len)
		memcpy(f->now.p, j.data, j.len);
	uint8_t boot[BOOT_ID_BYTES];
	memcpy(boot, sample_boot, sizeof(boot));
	boot[0] ^= data[0] >> 2 & 1;
	struct layer_options opt = { .io = &sim.io, .root = "/root", .boot_id = boot };
	open_and_go_on(&sim, &opt, !(data[0] & 8));
	sim_done(&sim);
	buf_done(&j);
	return 0;
}
