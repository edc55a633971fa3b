#include <fcntl.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/io_fault.h"
#include "tests/unit/layer_kit.h"
#include "tests/unit/layer_sample.h"

static uint64_t rng;

static uint64_t rnd(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng * UINT64_C(0x2545f4914f6cdd1d);
}

static void seed(uint64_t n)
{
	const char *env = getenv("SEED");
	rng = (env ? strtoull(env, NULL, 10) : n) * 2 + 1;
	print_message("seed %llu\n", (unsigned long long)(rng / 2));
}

/* ---- a file in memory ---- */

static struct buf mem; /* what mem_io reads */

static ssize_t mem_pread(void *ctx, int fd, void *buf, size_t n, uint64_t off)
{
	(void)ctx, (void)fd;
	if (off >= mem.len)
		return 0;
	n = n < mem.len - off ? n : mem.len - off;
	memcpy(buf, mem.data + off, n);
	return (ssize_t)n;
}

static int mem_fstat(void *ctx, int fd, struct stat *st)
{
	(void)ctx, (void)fd;
	*st = (struct stat){ .st_size = (off_t)mem.len };
	return 0;
}

static const struct io mem_io = { .pread = mem_pread, .fstat = mem_fstat };

static void mem_set(const void *data, size_t len)
{
	buf_reset(&mem);
	buf_add(&mem, data, len);
}

/* ---- header ---- */

static void header(void **state)
{
	(void)state;
	struct journal_head h = { .id = sample_id, .salt = UINT64_C(0x0123456789abcdef) }, got;
	memcpy(h.boot, sample_boot, sizeof(h.boot));
	uint8_t block[JOURNAL_HEAD];
	journal_head_encode(block, &h);
	assert_int_equal(journal_head_decode(&got, block, sizeof(block)), 0);
	assert_memory_equal(&got, &h, sizeof(h));
	assert_int_equal(journal_head_decode(&got, block, sizeof(block) - 1), -EBADMSG);
	assert_int_equal(journal_head_decode(&got, block, 0), -EBADMSG);
	for (size_t bit = 0; bit < 64 * 8; bit++) {
		block[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(journal_head_decode(&got, block, sizeof(block)), -EBADMSG);
		block[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	le_put32(block + 8, JOURNAL_VERSION + 1);
	le_put64(block + 56, hash_xxh3(block, 56, 0));
	assert_int_equal(journal_head_decode(&got, block, sizeof(block)), -EPROTONOSUPPORT);
}

/* ---- records ---- */

static void records_of_samples(void **state)
{
	(void)state;
	auto_buf b = { 0 };
	struct record r;
	sample_records(&b, 0);
	struct cur c = cur_init(b.data, b.len);
	assert_int_equal(record_next(&c, &r), 1);
	assert_int_equal(r.type, REC_INODE);
	assert_int_equal(r.base_size, 123456);
	assert_int_equal(r.attr.ino, (UINT64_C(1) << 48) - 1);
	assert_int_equal(r.attr.ctime.tv_sec, INT64_MIN);
	assert_int_equal(r.attr.mtime.tv_sec, INT64_MAX);
	assert_int_equal(r.attr.atime.tv_sec, -1);
	assert_int_equal(r.attr.blocks, UINT64_MAX);
	assert_int_equal(r.attr.parent_cookie, UINT64_MAX);
	assert_int_equal(record_next(&c, &r), 1);
	struct attr a = sample_attr(101, S_IFSOCK);
	assert_memory_equal(&r.attr, &a, sizeof(a));
	assert_int_equal(record_next(&c, &r), 0);
	buf_reset(&b);
	sample_records(&b, 3);
	c = cur_init(b.data, b.len);
	for (int i = 0; i < 5; i++)
		assert_int_equal(record_next(&c, &r), 1);
	assert_int_equal(r.extent.kind, EXTENT_OBJECT);
	assert_int_equal(r.extent.len, 777);
	assert_int_equal(r.extent.src, 11);
	assert_memory_equal(r.extent.object.b, "an object's digest", 18);
	for (int i = 0; i < 3; i++)
		assert_int_equal(record_next(&c, &r), 1);
	assert_int_equal(r.type, REC_EXTENT_DROP);
	assert_int_equal(r.from, 7 << 20);
	assert_int_equal(r.to, UINT64_MAX);
}

/* What a commit leaves out comes back as it was, and what isn't a commit's body is none. */
static void commit_bodies(void **state)
{
	(void)state;
	const struct journal_late good[] = { { 103, 4 }, { (UINT64_C(1) << 48) - 1, 9 } };
	struct journal_late got[JOURNAL_LATE_MAX];
	uint64_t upto;
	auto_buf b = { 0 };
	journal_commit_body(&b, 9, good, 2);
	assert_int_equal(buf_error(&b), 0);
	struct journal_frame f = { .seq = 10, .body = b.data, .len = (uint32_t)b.len };
	assert_int_equal(journal_commit_decode(&f, &upto, got), 2);
	assert_int_equal(upto, 9);
	assert_memory_equal(got, good, sizeof(good));
	f.len = 8;
	assert_int_equal(journal_commit_decode(&f, &upto, got), 0);
	for (uint32_t len = 0; len < b.len; len++) {
		f.len = len;
		if (len != 8 && len != 24)
			assert_int_equal(journal_commit_decode(&f, &upto, got), -EBADMSG);
	}
	f.len = (uint32_t)b.len;
	f.seq = 9; /* it covers itself */
	assert_int_equal(journal_commit_decode(&f, &upto, got), -EBADMSG);
	static const struct journal_late bad[] = {
		{ 0, 4 }, { UINT64_C(1) << 48, 4 }, { 103, 10 }
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		buf_reset(&b);
		journal_commit_body(&b, 9, &bad[i], 1);
		f = (struct journal_frame){ .seq = 10, .body = b.data, .len = (uint32_t)b.len };
		assert_int_equal(journal_commit_decode(&f, &upto, got), -EBADMSG);
	}
	struct journal_late many[JOURNAL_LATE_MAX + 1];
	for (size_t i = 0; i < JOURNAL_LATE_MAX + 1; i++)
		many[i] = (struct journal_late){ 200 + i, 1 };
	for (uint32_t n = JOURNAL_LATE_MAX; n < JOURNAL_LATE_MAX + 2; n++) {
		buf_reset(&b);
		journal_commit_body(&b, 9, many, n);
		f = (struct journal_frame){ .seq = 10, .body = b.data, .len = (uint32_t)b.len };
		assert_int_equal(journal_commit_decode(&f, &upto, got),
				 n > JOURNAL_LATE_MAX ? -EBADMSG : (int)n);
	}
}

static uint64_t any_number(void)
{
	return rnd() >> (rnd() % 64);
}

static struct attr any_attr(void)
{
	static const uint32_t types[] = { S_IFREG,  S_IFDIR, S_IFLNK, S_IFIFO,
					  S_IFSOCK, S_IFCHR, S_IFBLK };
	struct attr a = { .ino = 1 + any_number() % ((UINT64_C(1) << 48) - 1) };
	a.mode = types[rnd() % 7] | (uint32_t)(rnd() & 07777);
	a.uid = (uint32_t)any_number();
	a.gid = (uint32_t)any_number();
	a.nlink = (uint32_t)any_number();
	a.rdev = rnd() % 2 ? (uint32_t)any_number() : 0;
	a.gen = rnd() % 2 ? (uint16_t)any_number() : 0;
	a.flags = rnd() % 2 ? (uint16_t)any_number() : 0;
	a.size = any_number() & INT64_MAX;
	a.blocks = any_number();
	a.ctime = (struct timespec){ (int64_t)any_number(), (long)(rnd() % 1000000000) };
	a.mtime = rnd() % 2 ? a.ctime : (struct timespec){ (int64_t)rnd(), 5 };
	a.atime = rnd() % 2 ? a.mtime : (struct timespec){ -(int64_t)(rnd() >> 2), 0 };
	a.btime = rnd() % 2 ? a.ctime : (struct timespec){ 1, 999999999 };
	a.parent = rnd() % 2 ? any_number() >> 16 : 0;
	a.parent_cookie = rnd() % 2 ? rnd() : 0;
	a.own_tag = rnd() % 2 ? rnd() : 0;
	a.own_bytes = rnd() % 2 ? any_number() : 0;
	return a;
}

static void records_at_random(void **state)
{
	(void)state;
	seed(1);
	auto_buf b = { 0 };
	for (int i = 0; i < 20000; i++) {
		struct attr a = any_attr();
		uint64_t base = any_number() & INT64_MAX;
		int64_t bytes = (int64_t)rnd() >> (rnd() % 64);
		struct record r;
		buf_reset(&b);
		record_inode(&b, &a, base);
		size_t len = b.len;
		record_usage(&b, bytes, -bytes);
		record_files(&b, bytes);
		struct cur c = cur_init(b.data, b.len);
		assert_int_equal(record_next(&c, &r), 1);
		assert_memory_equal(&r.attr, &a, sizeof(a));
		assert_int_equal(r.base_size, base);
		assert_int_equal(record_next(&c, &r), 1);
		assert_int_equal(r.bytes, bytes);
		assert_int_equal(r.inodes, -bytes);
		assert_int_equal(record_next(&c, &r), 1);
		assert_int_equal(r.type, REC_FILES);
		assert_int_equal(r.files, bytes);
		assert_int_equal(record_next(&c, &r), 0);
		c = cur_init(b.data, (size_t)(rnd() % len));
		if (cur_left(&c) > 0)
			assert_int_equal(record_next(&c, &r), -EBADMSG);
	}
}

/* Every beginning of a record that isn't the whole of it is refused. */
static void records_cut(void **state)
{
	(void)state;
	for (unsigned which = 0; which < SAMPLE_OPS; which++) {
		auto_buf b = { 0 };
		struct record r;
		sample_records(&b, which);
		size_t ends[16], n = 0;
		struct cur c = cur_init(b.data, b.len);
		for (ends[n++] = 0; record_next(&c, &r) > 0;)
			ends[n++] = b.len - cur_left(&c);
		for (size_t len = 0; len <= b.len; len++) {
			bool whole = false;
			for (size_t i = 0; i < n; i++)
				whole |= ends[i] == len;
			/* In memory of its own, so that a sanitizer sees a step too far. */
			auto_free uint8_t *copy = malloc(len ? len : 1);
			memcpy(copy, b.data, len);
			c = cur_init(copy, len);
			int e;
			while ((e = record_next(&c, &r)) > 0)
				;
			assert_int_equal(e, whole ? 0 : -EBADMSG);
		}
	}
}

static void records_refused(void **state)
{
	(void)state;
	static const struct {
		const char *what;
		uint8_t bytes[40];
		size_t len;
	} bad[] = {
		{ "type 0", { 0, 1 }, 2 },
		{ "type 13", { 13, 1 }, 2 },
		{ "inode 0", { REC_DEAD, 0, 1 }, 3 },
		{ "inode 2^48", { REC_DEAD, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40, 1 }, 9 },
		{ "a number that doesn't end",
		  { REC_DEAD, 0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0 },
		  12 },
		{ "a number above 2^64",
		  { REC_DEAD, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2, 0 },
		  12 },
		{ "bool 2", { REC_DEAD, 1, 2 }, 3 },
		{ "no type of file", { REC_INODE, 1, 0, 0, 0, 0, 0, 0, 0, 0 }, 10 },
		{ "mask bit 13", { REC_INODE, 1, 0, 0x20, 0x80, 0x80, 2, 0, 0, 0, 0, 0 }, 12 },
		{ "1e9 nanoseconds",
		  { REC_INODE, 1, 0, 0, 0x80, 0x80, 2, 0, 0, 0xca, 0x9a, 0x3b },
		  12 },
		{ "an empty name", { REC_DIRENT, 1, 1, 1, 1, 1, 1, 1, 1, 1, 5, 8, 0 }, 13 },
		{ "child 0", { REC_DIRENT, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 8, 1, 'x' }, 14 },
		{ "an empty target", { REC_TARGET, 1, 0 }, 3 },
		{ "a target of 4096", { REC_TARGET, 1, 0x80, 0x20 }, 4 },
		{ "an empty xattr name", { REC_XATTR, 1, 0, 0 }, 4 },
		{ "a value of 65537", { REC_XATTR, 1, 1, 0x81, 0x80, 4, 'x' }, 7 },
		{ "extent kind 4", { REC_EXTENT, 1, 4, 0, 0x80, 0x20 }, 6 },
		{ "an empty extent", { REC_EXTENT, 1, 0, 0, 0 }, 5 },
		{ "an extent beyond 2^63",
		  { REC_EXTENT, 1, 0, 1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1 },
		  14 },
		{ "data off a block's border", { REC_EXTENT, 1, 1, 1, 0x80, 0x20, 0, 0, 0 }, 9 },
		{ "data from off a block's border",
		  { REC_EXTENT, 1, 1, 0, 0x80, 0x20, 0, 0, 1 },
		  9 },
		{ "data in a third place", { REC_EXTENT, 1, 1, 0, 0x80, 0x20, 2, 0, 0 }, 9 },
		{ "a drop of nothing", { REC_EXTENT_DROP, 1, 5, 5 }, 4 },
		{ "a drop backwards", { REC_EXTENT_DROP, 1, 5, 4 }, 4 },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct record r;
		struct cur c = cur_init(bad[i].bytes, bad[i].len);
		int e = record_next(&c, &r);
		if (e != -EBADMSG)
			print_error("%s\n", bad[i].what);
		assert_int_equal(e, -EBADMSG);
	}
}

/* ---- the walk ---- */

/* What the walk says of the file in `mem`, frame by frame. */
struct seen {
	uint64_t seq[32], end[32];
	bool ok[32];
	enum journal_gap gap[32];
	size_t n;
	struct journal_walk last; /* as it was at the end */
	int r;
};

static void walk(struct seen *s)
{
	struct journal_walk w;
	struct journal_frame f;
	memset(s, 0, sizeof(*s));
	assert_int_equal(journal_walk_init(&w, &mem_io, 0, SAMPLE_SALT), 0);
	while ((s->r = journal_walk_next(&w, &f)) > 0) {
		assert_true(s->n < 32);
		s->seq[s->n] = f.seq;
		s->ok[s->n] = f.body_ok;
		s->gap[s->n] = w.gap;
		s->end[s->n++] = f.end;
	}
	s->last = w;
	journal_walk_done(&w);
}

static void walk_whole(struct seen *s, struct buf *j)
{
	sample_journal(j);
	mem_set(j->data, j->len);
	walk(s);
	assert_int_equal(s->n, 7);
	assert_int_equal(s->r, 0);
	for (size_t i = 0; i < s->n; i++) {
		assert_int_equal(s->seq[i], i + 1);
		assert_true(s->ok[i] && s->gap[i] == GAP_NONE);
	}
	assert_int_equal(s->last.gap_at, j->len);
	assert_int_equal(s->last.gap, GAP_NONE);
}

static void walk_cut(void **state)
{
	(void)state;
	auto_buf j = { 0 };
	struct seen all, s;
	walk_whole(&all, &j);
	for (size_t len = JOURNAL_HEAD; len < j.len; len++) {
		size_t whole = 0;
		mem_set(j.data, len);
		walk(&s);
		while (all.end[whole] <= len)
			whole++;
		uint64_t end = whole ? all.end[whole - 1] : JOURNAL_HEAD;
		assert_int_equal(s.n, whole);
		assert_int_equal(s.last.gap_at, end);
		assert_int_equal(s.last.gap, len == end ? GAP_NONE : GAP_GARBAGE);
		assert_int_equal(s.last.torn, len > end);
	}
}

/* Zeros behind the last frame are room; what a kill leaves of a frame there is written back to
 * front, page by page, and a whole frame that is damaged is none of these. */
static void walk_room(void **state)
{
	(void)state;
	auto_buf j = { 0 };
	enum { ROOM = 70000 };
	struct seen all, s;
	walk_whole(&all, &j);
	for (size_t k = 0; k <= all.n; k++) {
		size_t end = k ? all.end[k - 1] : JOURNAL_HEAD, next = k < all.n ? all.end[k] : end;
		auto_free uint8_t *file = calloc(1, end + ROOM);
		memcpy(file, j.data, end);
		mem_set(file, end + ROOM);
		walk(&s);
		assert_int_equal(s.n, k);
		assert_int_equal(s.last.gap_at, end);
		assert_true(s.last.room && s.last.blank && !s.last.torn);
		if (next == end)
			continue;
		/* All of the next one but its first bytes. */
		memcpy(file + end + FRAME_ALIGN, j.data + end + FRAME_ALIGN,
		       next - end - FRAME_ALIGN);
		mem_set(file, end + ROOM);
		walk(&s);
		assert_int_equal(s.n, k);
		assert_true(!s.last.room && s.last.blank);
		memcpy(file + end, j.data + end, FRAME_ALIGN);
		file[end + 20] ^= 3; /* two bits: one is put right */
		mem_set(file, end + ROOM);
		walk(&s);
		assert_true(s.n == k && !s.last.room && !s.last.blank && !s.last.torn);
	}
}

/* A flipped bit of a header is put right; two lose the frame, or one its body; all others are
 * found. */
static void walk_flipped(void **state)
{
	(void)state;
	auto_buf j = { 0 };
	struct seen all, s;
	walk_whole(&all, &j);
	for (size_t at = JOURNAL_HEAD; at < j.len; at++) {
		size_t k = 0;
		mem_set(j.data, j.len);
		mem.data[at] ^= (uint8_t)(1 << at % 8);
		walk(&s);
		while (all.end[k] <= at)
			k++;
		uint64_t begin = k ? all.end[k - 1] : JOURNAL_HEAD;
		uint64_t body_end = begin + FRAME_HEAD + le_get32(j.data + begin + 8);
		if (at < begin + FRAME_HEAD) {
			assert_int_equal(s.n, 7);
			assert_int_equal(s.last.corrected, 1);
			for (size_t i = 0; i < s.n; i++)
				assert_true(s.ok[i] && s.seq[i] == i + 1);
			mem.data[at] ^= (uint8_t)(1 << (at + 3) % 8);
			walk(&s);
			assert_int_equal(s.n, 6);
			for (size_t i = 0; i < s.n; i++) {
				assert_int_equal(s.seq[i], i < k ? i + 1 : i + 2);
				assert_int_equal(s.gap[i], i == k ? GAP_GARBAGE : GAP_NONE);
			}
			assert_int_equal(s.last.gap, k == 6 ? GAP_GARBAGE : GAP_NONE);
			assert_false(s.last.torn || s.last.blank);
		} else {
			assert_int_equal(s.n, 7);
			for (size_t i = 0; i < s.n; i++)
				assert_int_equal(s.ok[i], i != k || at >= body_end);
		}
	}
}

static void walk_unwritten(void **state)
{
	(void)state;
	auto_buf j = { 0 };
	struct seen all, s;
	walk_whole(&all, &j);
	/* The file is longer than what was written. */
	static const uint8_t zeros[10000];
	buf_add(&mem, zeros, sizeof(zeros));
	walk(&s);
	assert_int_equal(s.n, 7);
	assert_int_equal(s.last.gap, GAP_UNWRITTEN);
	assert_true(s.last.blank && !s.last.torn);
	/* A sector in the middle of a frame never got there: its body is bad and has a hole. */
	auto_buf long_one = { 0 };
	struct journal_frame f = { .kind = FRAME_OP, .seq = 8 };
	(void)buf_room(&long_one, FRAME_HEAD);
	long_one.len = FRAME_HEAD;
	for (int i = 0; i < 3000; i++)
		buf_u8(&long_one, (uint8_t)(i | 1));
	journal_frame_finish(&long_one, &f, SAMPLE_SALT);
	mem_set(j.data, j.len);
	buf_add(&mem, long_one.data, long_one.len);
	size_t sector = (j.len + 2000) / 512 * 512;
	memset(mem.data + sector, 0, 512);
	struct journal_walk w;
	assert_int_equal(journal_walk_init(&w, &mem_io, 0, SAMPLE_SALT), 0);
	for (int i = 0; i < 8; i++)
		assert_int_equal(journal_walk_next(&w, &f), 1);
	assert_true(!f.body_ok && journal_frame_has_hole(&f));
	journal_walk_done(&w);
}

/* What looks like a frame and isn't this journal's: other salt, older number. */
static void walk_foreign(void **state)
{
	(void)state;
	auto_buf j = { 0 };
	struct seen all, s;
	walk_whole(&all, &j);
	size_t first = (size_t)(all.end[0] - JOURNAL_HEAD);
	buf_add(&mem, j.data + JOURNAL_HEAD, first); /* number 1 again */
	walk(&s);
	assert_int_equal(s.n, 7);
	assert_int_equal(s.last.gap_at, j.len);
	uint8_t head[FRAME_HEAD];
	struct journal_frame f;
	memcpy(head, j.data + JOURNAL_HEAD, FRAME_HEAD);
	assert_int_equal(journal_frame_decode(&f, head, SAMPLE_SALT), 0);
	assert_int_equal(journal_frame_decode(&f, head, SAMPLE_SALT + 1), -EBADMSG);
	for (int bad = 0; bad < 3; bad++) {
		memcpy(head, j.data + JOURNAL_HEAD, FRAME_HEAD);
		if (bad == 0)
			head[4] = 0;
		else if (bad == 1)
			head[4] = FRAME_RESET + 1;
		else
			le_put32(head + 8, JOURNAL_FRAME_MAX + 1);
		le_put64(head + 56, hash_xxh3(head, 56, SAMPLE_SALT));
		assert_int_equal(journal_frame_decode(&f, head, SAMPLE_SALT), -EBADMSG);
	}
}

/* A bad sector: the pages around it are read, and it counts as garbage. */
static void walk_unreadable(void **state)
{
	(void)state;
	auto_buf j = { 0 };
	struct seen s;
	struct journal_walk w;
	struct journal_frame f;
	sample_journal(&j);
	mem_set(j.data, j.len);
	struct io_fault *fault = io_fault_new(&mem_io);
	for (uint64_t nth = 1; nth <= 3; nth++) {
		io_fault_plan(fault, &(struct io_fault_plan){ .ops = IO_OP_PREAD, .nth = nth });
		assert_int_equal(journal_walk_init(&w, io_fault_io(fault), 0, SAMPLE_SALT), 0);
		s.n = 0;
		while ((s.r = journal_walk_next(&w, &f)) > 0)
			s.n++;
		assert_int_equal(s.n, 7); /* at the second try it is there */
		journal_walk_done(&w);
	}
	io_fault_plan(fault,
		      &(struct io_fault_plan){ .ops = IO_OP_PREAD, .nth = 1, .for_good = true });
	assert_int_equal(journal_walk_init(&w, io_fault_io(fault), 0, SAMPLE_SALT), 0);
	assert_int_equal(journal_walk_next(&w, &f), 0);
	assert_true(w.unreadable);
	journal_walk_done(&w);
	io_fault_free(fault);
}

/* ---- golden ---- */

static void golden_file(const char *name, const void *made, size_t n)
{
	char path[600];
	const char *src = getenv("BOUGH_SRC");
	auto_free void *want = NULL;
	size_t m;
	(void)snprintf(path, sizeof(path), "%s/tests/golden/%s", src ? src : ".", name);
	if (getenv("BOUGH_GOLDEN")) { /* a new version of the format */
		auto_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
		assert_int_equal(io_write_full(NULL, fd, made, n, 0), 0);
	}
	assert_int_equal(io_slurp(NULL, AT_FDCWD, path, 1 << 20, &want, &m, NULL), 0);
	assert_int_equal(n, m);
	assert_memory_equal(made, want, n);
}

/* The journal's bytes, and what a layer shows that is opened from them. */
static void golden(void **state)
{
	(void)state;
	auto_buf j = { 0 };
	char root[300], path[600], hex[2 * LAYER_ID_BYTES + 1];
	const char *tmp = getenv("TMPDIR");
	sample_journal(&j);
	golden_file("layer-v1.journal", j.data, j.len);
	(void)snprintf(root, sizeof(root), "%s/test_journal.XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(root));
	hex_encode(hex, sample_id.b, LAYER_ID_BYTES);
	(void)snprintf(path, sizeof(path), "%s/layers", root);
	assert_int_equal(mkdir(path, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/layers/%s", root, hex);
	assert_int_equal(mkdir(path, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/layers/%s/journal", root, hex);
	auto_fd fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(io_write_full(NULL, fd, j.data, j.len, 0), 0);
	static const char *const files[] = { "data", "f67" };
	for (int i = 0; i < 2; i++) {
		(void)snprintf(path, sizeof(path), "%s/layers/%s/%s", root, hex, files[i]);
		auto_fd file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		assert_true(file >= 0);
	}
	struct layer_options opt = { .root = root, .boot_id = sample_boot, .tags = true };
	struct layer *l;
	uint64_t ino;
	assert_int_equal(layer_open(&l, &opt, &sample_id, true, NULL), 0);
	assert_int_equal(layer_lost(l), 0);
	assert_true(layer_is_sealed(l));
	assert_int_equal(layer_records(l), 24);
	assert_int_equal(layer_tag(l, 5 * 256, &ino), 1);
	auto_free char *text = kit_text(l);
	golden_file("layer-v1.txt", text, strlen(text));
	layer_unref(l);
	/* After another boot, only what the commit covers. */
	opt.boot_id = (const uint8_t *)"another boot id";
	assert_int_equal(layer_open(&l, &opt, &sample_id, true, NULL), 0);
	assert_false(layer_is_sealed(l));
	assert_int_equal(layer_records(l), 21);
	assert_int_equal(layer_tag(l, 5 * 256, &ino), 0);
	layer_unref(l);
	assert_int_equal(io_remove_tree(AT_FDCWD, root, NULL), 0);
}

static int tear_down(void **state)
{
	(void)state;
	buf_done(&mem);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(header),
		cmocka_unit_test(records_of_samples),
		cmocka_unit_test(commit_bodies),
		cmocka_unit_test(records_at_random),
		cmocka_unit_test(records_cut),
		cmocka_unit_test(records_refused),
		cmocka_unit_test(walk_cut),
		cmocka_unit_test(walk_room),
		cmocka_unit_test(walk_flipped),
		cmocka_unit_test(walk_unwritten),
		cmocka_unit_test(walk_foreign),
		cmocka_unit_test(walk_unreadable),
		cmocka_unit_test(golden),
	};
	return cmocka_run_group_tests(tests, NULL, tear_down);
}
