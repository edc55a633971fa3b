/* Places in data files: sets and counts of ranges against a plain array, the allocator
 * against a map of who owns what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "fs/work/ranges.h"
#include "fs/work/space.h"
#include "tests/unit/oom.h"

enum { B = LAYER_BLOCK, MIB = 1 << 20 };

static uint64_t rng;

static uint64_t rnd(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng * UINT64_C(0x2545f4914f6cdd1d) >> 8;
}

static void seed(uint64_t n)
{
	const char *env = getenv("SEED");
	rng = (env ? strtoull(env, NULL, 10) : n) * 2 + 1;
	print_message("seed %llu\n", (unsigned long long)(rng / 2));
}

/* ---- ranges ---- */

enum { SLOTS = 64 };

static void check_set(const struct omap *m, const uint8_t *in)
{
	struct omap_entry e;
	unsigned at = 0;
	uint64_t end = 0;
	omap_each(m, &e) {
		assert_true(e.value.u > 0 && (e.key > end || end == 0)); /* neighbours are merged */
		for (; at < e.key / B; at++)
			assert_false(in[at]);
		for (; at < (e.key + e.value.u) / B; at++)
			assert_true(in[at]);
		end = e.key + e.value.u;
	}
	for (; at < SLOTS; at++)
		assert_false(in[at]);
}

static void sets(void **state)
{
	(void)state;
	seed(1);
	struct omap m = { 0 };
	uint8_t in[SLOTS] = { 0 };
	for (int i = 0; i < 50000; i++) {
		unsigned from = (unsigned)(rnd() % SLOTS),
			 n = 1 + (unsigned)(rnd() % (SLOTS - from));
		n = rnd() % 4 ? 1 + n % 4 : n;
		if (from + n > SLOTS)
			n = SLOTS - from;
		uint64_t at, len, taken;
		unsigned want = 0, first = from;
		for (unsigned k = from; k < from + n; k++)
			want += in[k];
		while (first < from + n && !in[first])
			first++;
		assert_int_equal(ranges_first(&m, from * B, (uint64_t)n * B, &at, &len),
				 first < from + n);
		if (first < from + n)
			assert_int_equal(at, first * B);
		if (rnd() % 2) {
			assert_int_equal(ranges_add(&m, from * B, (uint64_t)n * B), 0);
			memset(in + from, 1, n);
		} else {
			assert_int_equal(ranges_del(&m, from * B, (uint64_t)n * B, &taken), 0);
			assert_int_equal(taken, want * B);
			memset(in + from, 0, n);
		}
		check_set(&m, in);
	}
	omap_clear(&m);
}

static uint8_t none_at[SLOTS], last_at[SLOTS];

static int mark_none(void *ctx, uint64_t off, uint64_t len)
{
	(void)ctx;
	for (uint64_t k = off / B; k < (off + len) / B; k++)
		none_at[k]++;
	return 0;
}

static int mark_last(void *ctx, uint64_t off, uint64_t len)
{
	(void)ctx;
	for (uint64_t k = off / B; k < (off + len) / B; k++)
		last_at[k]++;
	return 0;
}

static void counts(void **state)
{
	(void)state;
	seed(2);
	struct omap m = { 0 };
	unsigned count[SLOTS] = { 0 };
	for (int i = 0; i < 50000; i++) {
		unsigned from = (unsigned)(rnd() % SLOTS),
			 n = 1 + (unsigned)(rnd() % (SLOTS - from));
		memset(none_at, 0, sizeof(none_at));
		memset(last_at, 0, sizeof(last_at));
		bool inc = rnd() % 2;
		if (inc)
			assert_int_equal(ranges_inc(&m, from * B, (uint64_t)n * B), 0);
		else
			assert_int_equal(ranges_dec(&m, from * B, (uint64_t)n * B, mark_none,
						    mark_last, NULL),
					 0);
		for (unsigned k = 0; k < SLOTS; k++) {
			bool here = k >= from && k < from + n;
			assert_int_equal(none_at[k], here && !inc && count[k] == 0);
			assert_int_equal(last_at[k], here && !inc && count[k] == 1);
			if (here && inc)
				count[k]++;
			else if (here && count[k] > 0)
				count[k]--;
			uint64_t at, len;
			assert_int_equal(ranges_counted(&m, k * B, B, &at, &len), count[k] > 0);
		}
	}
	omap_clear(&m);
}

/* ---- contiguity ---- */

/* Writes a file of `size` in steps, as an extent after the other; how many pieces it is in. */
static unsigned write_file(struct space *s, uint64_t ino, uint64_t size, uint64_t step)
{
	uint64_t next = UINT64_MAX;
	unsigned pieces = 0;
	for (uint64_t off = 0; off < size;) {
		uint64_t want = step < size - off ? step : size - off, file, src, n;
		assert_int_equal(space_alloc(s, ino, off, want, &file, &src, &n), 0);
		assert_true(n > 0 && n <= want);
		assert_int_equal(space_take(s, ino, off, file, src, n, true), 0);
		pieces += src != next;
		next = src + n;
		off += n;
	}
	return pieces;
}

static void one_writer_is_contiguous(void **state)
{
	(void)state;
	struct space s;
	space_init(&s);
	assert_int_equal(write_file(&s, 10, MIB, B), 1);
	assert_int_equal(write_file(&s, 11, 3 * B, 3 * B), 1);
	assert_int_equal(write_file(&s, 12, 40 * B, 3 * B), 1);
	space_check(&s);
	space_done(&s);
}

/* An untar: files of 1 to 50 KiB in steps of 10 KiB, one after the other. */
static void many_small_files(void **state)
{
	(void)state;
	seed(3);
	struct space s;
	uint64_t bytes = 0;
	unsigned pieces = 0, files = 20000;
	space_init(&s);
	for (unsigned i = 0; i < files; i++) {
		uint64_t size = (1 + rnd() % 12) * B;
		pieces += write_file(&s, 10 + i, size, 2 * B);
		bytes += size;
	}
	space_check(&s);
	assert_true(pieces <= files + files / 20);
	space_settle(&s);
	/* Reserves that weren't used are used by those that came later. */
	assert_true(s.end < bytes + bytes / 20);
	space_done(&s);
}

/* Eight files that grow side by side are in few pieces each. */
static void side_by_side(void **state)
{
	(void)state;
	struct space s;
	uint64_t next[8] = { 0 };
	unsigned pieces = 0;
	space_init(&s);
	for (uint64_t off = 0; off < MIB; off += B) {
		for (uint64_t i = 0; i < 8; i++) {
			uint64_t file, src, n;
			assert_int_equal(space_alloc(&s, 10 + i, off, B, &file, &src, &n), 0);
			assert_int_equal(n, B);
			assert_int_equal(space_take(&s, 10 + i, off, file, src, n, true), 0);
			pieces += src != next[i];
			next[i] = src + n;
		}
	}
	assert_true(pieces <= 8 * 16);
	space_check(&s);
	space_done(&s);
}

/* ---- against a model ---- */

enum { PLACES = 4096, FILES = 12, FILE_BLOCKS = 24, BIG_AT = 252 };

/* The model's packed file: what each block is. Time is counted in commits. */
struct model {
	struct space s;
	uint32_t refs[PLACES];
	bool held[PLACES];
	uint64_t freed[PLACES]; /* in which commit's time it was freed, +1; 0: not waiting */
	uint64_t now;
	struct extent map[FILES][FILE_BLOCKS]; /* block by block; len 0: none */
	uint64_t big_refs[FILES][600];         /* extents of others on a file's own block */
	bool big_own[FILES][600];
	uint64_t punched;
};

static uint64_t file_block(unsigned k)
{
	return k < FILE_BLOCKS / 2 ? k : BIG_AT + k;
}

static void give(struct model *m, unsigned f, unsigned k, const struct extent *e)
{
	struct extent *old = &m->map[f][k];
	uint64_t off = file_block(k) * B;
	assert_int_equal(space_take(&m->s, 10 + f, off, e->file, e->src, B, true), 0);
	if (e->file == SPACE_PACKED)
		m->refs[e->src / B]++;
	else if (e->file == 10 + f && e->src == off)
		m->big_own[f][e->src / B] = true;
	else
		m->big_refs[e->file - 10][e->src / B]++;
	if (old->len)
		assert_true(old->file != e->file || old->src != e->src);
}

static void drop(struct model *m, unsigned f, unsigned k, const struct extent *e)
{
	uint64_t off = file_block(k) * B;
	assert_int_equal(space_drop(&m->s, 10 + f, off, e->file, e->src, B), 0);
	if (e->file == SPACE_PACKED) {
		if (--m->refs[e->src / B] == 0)
			m->freed[e->src / B] = m->now + 1;
	} else if (e->file == 10 + f && e->src == off) {
		m->big_own[f][e->src / B] = false;
	} else {
		m->big_refs[e->file - 10][e->src / B]--;
	}
}

static void set(struct model *m, unsigned f, unsigned k, const struct extent *e)
{
	struct extent old = m->map[f][k];
	give(m, f, k, e);
	if (old.len)
		drop(m, f, k, &old);
	m->map[f][k] = *e;
}

static void model_write(struct model *m)
{
	unsigned f = (unsigned)(rnd() % FILES), half = FILE_BLOCKS / 2;
	unsigned k = (unsigned)(rnd() % 2) * half, at = (unsigned)(rnd() % half);
	unsigned n = 1 + (unsigned)(rnd() % (half - at));
	k += at;
	while (n > 0) {
		uint64_t off = file_block(k) * B, file, src, len;
		assert_int_equal(
			space_alloc(&m->s, 10 + f, off, (uint64_t)n * B, &file, &src, &len), 0);
		assert_true(len > 0 && len <= (uint64_t)n * B && len % B == 0);
		bool cancel = rnd() % 8 == 0;
		for (uint64_t i = 0; i < len / B; i++) {
			struct extent e = { .len = B, .file = file, .src = src + i * B };
			if (file == SPACE_PACKED) {
				uint64_t p = e.src / B;
				assert_true(p < PLACES);
				/* Nobody has it, and whoever had it is gone for good. */
				assert_int_equal(m->refs[p], 0);
				assert_true(m->freed[p] == 0 || m->freed[p] <= m->now);
				m->freed[p] = 0;
			} else {
				assert_int_equal(file, 10 + f);
				assert_int_equal(e.src, off + i * B);
				assert_int_equal(m->big_refs[f][e.src / B], 0);
			}
		}
		if (cancel) {
			space_cancel(&m->s, file, src, len);
		} else {
			for (uint64_t i = 0; i < len / B; i++) {
				struct extent e = { .len = B, .file = file, .src = src + i * B };
				struct extent *old = &m->map[f][k + i];
				if (old->len && old->file == e.file && old->src == e.src)
					continue; /* its own file's place again */
				set(m, f, k + (unsigned)i, &e);
			}
		}
		k += (unsigned)(len / B);
		n -= (unsigned)(len / B);
	}
}

static void model_step(struct model *m)
{
	unsigned f = (unsigned)(rnd() % FILES), k = (unsigned)(rnd() % FILE_BLOCKS);
	unsigned g = (unsigned)(rnd() % FILES), j = (unsigned)(rnd() % FILE_BLOCKS);
	struct extent e = m->map[g][j], old = m->map[f][k];
	switch (rnd() % 4) {
	case 0:
	case 1:
		model_write(m);
		break;
	case 2: /* share */
		if (e.len && !(old.len && old.file == e.file && old.src == e.src))
			set(m, f, k, &e);
		break;
	default:
		for (k = 0; k < FILE_BLOCKS; k++) { /* a file, or a block */
			if (rnd() % 4 && m->map[f][k].len) {
				old = m->map[f][k];
				m->map[f][k].len = 0;
				drop(m, f, k, &old);
			}
		}
	}
}

/* What is punched, nobody has. */
static void model_punch(void *ctx, uint64_t file, uint64_t off, uint64_t len)
{
	struct model *m = ctx;
	assert_true(len >= SPACE_PUNCH_MIN && off % B == 0 && len % B == 0);
	m->punched += len;
	for (uint64_t p = off / B; p < (off + len) / B; p++) {
		if (file == SPACE_PACKED) {
			assert_int_equal(m->refs[p], 0);
			assert_true(m->freed[p] == 0 || m->freed[p] <= m->now);
		} else {
			assert_int_equal(m->big_refs[file - 10][p], 0);
			assert_false(m->big_own[file - 10][p]);
		}
	}
}

static void model_unlink(void *ctx, uint64_t file)
{
	struct model *m = ctx;
	for (unsigned p = 0; p < 600; p++)
		assert_false(m->big_refs[file - 10][p] || m->big_own[file - 10][p]);
}

static void model_commit(struct model *m, bool works)
{
	struct space_host host = { model_punch, model_unlink, m };
	space_commit_begin(&m->s);
	uint64_t before = m->now++;
	for (int i = 0; i < 3; i++)
		model_step(m); /* goes on while it syncs */
	if (works)
		space_commit_end(&m->s, &host);
	else /* nothing that was freed may be used: it is as if it were freed now */
		for (unsigned p = 0; p < PLACES; p++)
			m->freed[p] = m->freed[p] > before ? m->now + 1 : m->freed[p];
	space_check(&m->s);
}

static void model_alone(struct model *m)
{
	for (unsigned f = 0; f < FILES; f++) {
		for (unsigned k = 0; k < FILE_BLOCKS; k++) {
			const struct extent *e = &m->map[f][k];
			if (!e->len || !space_alone(&m->s, e->file, e->src, B))
				continue;
			if (e->file == SPACE_PACKED)
				assert_int_equal(m->refs[e->src / B], 1);
			else
				assert_int_equal(m->big_refs[e->file - 10][e->src / B], 0);
		}
	}
}

static void random_use(void **state)
{
	(void)state;
	seed(4);
	static struct model m;
	for (int run = 0; run < 20; run++) {
		memset(&m, 0, sizeof(m));
		space_init(&m.s);
		for (int i = 0; i < 2000; i++) {
			model_step(&m);
			if (rnd() % 16 == 0)
				model_commit(&m, rnd() % 4 > 0);
			if (rnd() % 32 == 0)
				model_alone(&m);
		}
		uint64_t used = 0;
		for (unsigned p = 0; p < PLACES; p++)
			used += m.refs[p] > 0;
		assert_int_equal(m.s.used, used * B);
		space_done(&m.s);
	}
	assert_true(m.punched > 0);
}

/* ---- one by one ---- */

static void host_nothing(void *ctx, uint64_t file, uint64_t off, uint64_t len)
{
	uint64_t *sum = ctx;
	(void)file, (void)off;
	*sum += len;
}

static void host_unlink(void *ctx, uint64_t file)
{
	uint64_t *sum = ctx;
	*sum += file << 40;
}

static void commit(struct space *s, uint64_t *freed)
{
	struct space_host host = { host_nothing, host_unlink, freed };
	*freed = 0;
	space_commit_begin(s);
	space_commit_end(s, &host);
}

/* What is freed is used again only after a commit that began later, and given back. */
static void freed_places_wait(void **state)
{
	(void)state;
	struct space s;
	uint64_t file, src, n, freed, epoch;
	space_init(&s);
	assert_int_equal(space_alloc(&s, 10, 0, 256 * B, &file, &src, &n), 0);
	assert_int_equal(space_take(&s, 10, 0, file, src, n, true), 0);
	assert_int_equal(space_alloc(&s, 11, 0, B, &file, &src, &n), 0);
	assert_int_equal(src, 256 * B);
	assert_int_equal(space_take(&s, 11, 0, file, src, n, true), 0);
	space_commit_begin(&s);
	assert_int_equal(space_drop(&s, 10, 0, 0, 0, 256 * B), 0); /* too late for it */
	struct space_host host = { host_nothing, host_unlink, &freed };
	freed = 0;
	space_commit_end(&s, &host);
	assert_int_equal(freed, 0);
	assert_int_equal(space_alloc(&s, 12, 0, B, &file, &src, &n), 0);
	assert_int_equal(src, 257 * B);
	assert_true(space_has_queued(&s));
	epoch = s.epoch;
	commit(&s, &freed);
	assert_int_equal(freed, 256 * B);
	assert_true(s.epoch > epoch);
	assert_int_equal(space_alloc(&s, 13, 0, 4 * B, &file, &src, &n), 0);
	assert_int_equal(src, 0);
	assert_int_equal(s.used, B);
	space_check(&s);
	space_done(&s);
}

static void big_files(void **state)
{
	(void)state;
	struct space s;
	uint64_t file, src, n, freed;
	space_init(&s);
	/* Up to the border it is packed, beyond it and across it not. */
	assert_int_equal(space_alloc(&s, 10, MIB - B, B, &file, &src, &n), 0);
	assert_int_equal(file, SPACE_PACKED);
	space_cancel(&s, file, src, n);
	assert_int_equal(space_alloc(&s, 10, MIB - B, 3 * B, &file, &src, &n), 0);
	assert_true(file == 10 && src == MIB - B && n == 3 * B);
	assert_int_equal(space_take(&s, 10, src, 10, src, n, true), 0);
	assert_true(space_alone(&s, 10, src, n));
	assert_int_equal(s.big_used, 3 * B);
	/* Another inode shares its middle: new bytes for that go elsewhere. */
	assert_int_equal(space_take(&s, 11, 0, 10, MIB, B, true), 0);
	assert_false(space_alone(&s, 10, MIB - B, 3 * B));
	assert_true(space_alone(&s, 10, MIB - B, B));
	assert_int_equal(space_alloc(&s, 10, MIB - B, 3 * B, &file, &src, &n), 0);
	assert_true(file == 10 && n == B);
	space_cancel(&s, file, src, n);
	assert_int_equal(space_alloc(&s, 10, MIB, 2 * B, &file, &src, &n), 0);
	assert_true(file == SPACE_PACKED && n == B);
	space_cancel(&s, file, src, n);
	/* It stays so when the other lets go, until that is durable. */
	assert_int_equal(space_drop(&s, 11, 0, 10, MIB, B), 0);
	assert_false(space_alone(&s, 10, MIB, B));
	space_commit_begin(&s);
	assert_false(space_alone(&s, 10, MIB, B));
	struct space_host host = { host_nothing, host_unlink, &freed };
	space_commit_end(&s, &host);
	assert_true(space_alone(&s, 10, MIB, B));
	/* The inode is gone, a sharer is left; then that goes, too, and the file with it. */
	assert_int_equal(space_take(&s, 11, 0, 10, MIB, B, true), 0);
	assert_int_equal(space_drop(&s, 10, MIB - B, 10, MIB - B, 3 * B), 0);
	commit(&s, &freed);
	assert_int_equal(freed, 0); /* too small to punch */
	assert_int_equal(space_drop(&s, 11, 0, 10, MIB, B), 0);
	assert_int_equal(u64map_get(&s.big, 10) != NULL, 1);
	commit(&s, &freed);
	assert_int_equal(freed, UINT64_C(10) << 40);
	assert_null(u64map_get(&s.big, 10));
	assert_int_equal(s.big_used, 0);
	space_done(&s);
}

/* A file that is written again before it was unlinked stays. */
static void a_file_comes_back(void **state)
{
	(void)state;
	struct space s;
	uint64_t file, src, n, freed = 0;
	struct space_host host = { host_nothing, host_unlink, &freed };
	space_init(&s);
	assert_int_equal(space_alloc(&s, 10, 2 * MIB, MIB, &file, &src, &n), 0);
	assert_int_equal(space_take(&s, 10, src, file, src, n, true), 0);
	assert_int_equal(space_drop(&s, 10, src, file, src, n), 0);
	space_commit_begin(&s);
	assert_int_equal(space_alloc(&s, 10, 2 * MIB, 2 * B, &file, &src, &n), 0);
	assert_int_equal(file, 10);
	space_commit_end(&s, &host);
	assert_int_equal(freed, MIB - 2 * B); /* without what was taken again */
	assert_int_equal(space_take(&s, 10, src, file, src, n, true), 0);
	commit(&s, &freed);
	assert_int_equal(freed, 0);
	space_done(&s);
}

static void rebuilt(void **state)
{
	(void)state;
	struct space s;
	uint64_t file, src, n, freed;
	struct space_use uses[] = {
		{ 10 * B, 4 * B }, { 2 * B, 2 * B }, { 3 * B, 4 * B }, { 11 * B, B }, { 11 * B, B },
	};
	space_init(&s);
	assert_int_equal(space_rebuild(&s, uses, 5, 20 * B + 1, true), 0);
	assert_int_equal(s.end, 21 * B);
	assert_int_equal(s.used, 9 * B);
	assert_false(space_alone(&s, 0, 13 * B, B)); /* nothing is, until a commit */
	assert_int_equal(space_alloc(&s, 10, 0, B, &file, &src, &n), 0);
	assert_int_equal(src, 21 * B); /* nor free */
	commit(&s, &freed);
	static const struct {
		unsigned block;
		bool alone;
	} want[] = { { 2, true },  { 3, false },  { 4, true },
		     { 10, true }, { 11, false }, { 13, true } };
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
		assert_int_equal(space_alone(&s, 0, want[i].block * B, B), want[i].alone);
	assert_int_equal(space_drop(&s, 10, 0, 0, 11 * B, B), 0);
	assert_int_equal(space_drop(&s, 10, 0, 0, 11 * B, B), 0);
	assert_int_equal(s.used, 9 * B);
	assert_int_equal(space_drop(&s, 10, 0, 0, 11 * B, B), 0);
	assert_int_equal(s.used, 8 * B);
	assert_int_equal(space_alloc(&s, 11, 0, 7 * B, &file, &src, &n), 0);
	assert_int_equal(src, 14 * B); /* the gap at the end */
	assert_int_equal(space_alloc(&s, 12, 0, 2 * B, &file, &src, &n), 0);
	assert_int_equal(src, 0);
	space_check(&s);
	space_done(&s);
}

static void no_memory(void **state)
{
	(void)state;
	for (uint64_t at = 1;; at++) {
		struct space s;
		uint64_t file, src, n, freed;
		space_init(&s);
		oom_at(at);
		int r = space_alloc(&s, 10, 0, 5 * B, &file, &src, &n);
		if (r == 0)
			r = space_take(&s, 10, 0, file, src, n, true);
		if (r == 0)
			r = space_alloc(&s, 11, 3 * MIB, B, &file, &src, &n);
		if (r == 0)
			r = space_take(&s, 11, 3 * MIB, file, src, n, true);
		if (r == 0)
			r = space_drop(&s, 10, B, 0, B, B);
		if (r == 0)
			commit(&s, &freed);
		bool hit = oom_hit();
		assert_true(r == 0 || (r == -ENOMEM && hit));
		space_check(&s);
		space_done(&s);
		if (!hit)
			break;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sets),
		cmocka_unit_test(counts),
		cmocka_unit_test(one_writer_is_contiguous),
		cmocka_unit_test(many_small_files),
		cmocka_unit_test(side_by_side),
		cmocka_unit_test(random_use),
		cmocka_unit_test(freed_places_wait),
		cmocka_unit_test(big_files),
		cmocka_unit_test(a_file_comes_back),
		cmocka_unit_test(rebuilt),
		cmocka_unit_test(no_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
