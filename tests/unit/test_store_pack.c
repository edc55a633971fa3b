#include "tests/unit/store_tools.h"

#include <sys/mman.h>
#include "fs/base/buf.h"
#include "fs/base/io_fault.h"
#include "fs/store/codec.h"
#include "fs/store/pack.h"
#include "tests/unit/oom.h"

#define ID UINT64_C(0x0123456789abcdef)

static void test_names(void **state)
{
	char name[PACK_NAME_BYTES];
	uint64_t id;
	pack_name(name, ID);
	assert_string_equal(name, "0123456789abcdef.pack");
	assert_int_equal(pack_name_parse(name, &id), 0);
	assert_int_equal(id, ID);
	static const char *const bad[] = {
		"",
		"0123456789abcdef",
		"0123456789abcdef.pac",
		"0123456789abcdef.packs",
		"0123456789ABCDEF.pack",
		"0123456789abcde.pack",
		"0000000000000000.pack",
		".tmp-0123456789abcdef.pack",
		"0123456789abcdeg.pack",
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(pack_name_parse(bad[i], &id), -EINVAL);
}

static void test_header(void **state)
{
	uint8_t h[PACK_HEADER_BYTES];
	pack_header_encode(h, ID);
	assert_int_equal(pack_header_decode(h, ID), 0);
	assert_int_equal(pack_header_decode(h, ID + 1), -EBADMSG);
	for (size_t i = 0; i < sizeof(h) * 8; i++) {
		h[i / 8] ^= (uint8_t)(1 << i % 8);
		assert_int_equal(pack_header_decode(h, ID), -EBADMSG);
		h[i / 8] ^= (uint8_t)(1 << i % 8);
	}
	le_put32(h + 8, PACK_VERSION + 1);
	le_put64(h + 24, hash_xxh3(h, 24, 0));
	assert_int_equal(pack_header_decode(h, ID), -EPROTONOSUPPORT);
}

/* Appends an object of raw content to a pack in memory. */
static struct pack_entry add_object(struct buf *b, const void *data, uint32_t len)
{
	struct pack_record r = { .kind = PACK_OBJECT, .raw = len, .stored = len };
	hash_sha256(&r.digest, data, len);
	size_t size = (size_t)pack_record_bytes(len);
	uint64_t off = b->len;
	uint8_t *p = buf_room(b, size);
	assert_non_null(p);
	if (len)
		memcpy(p + PACK_HEAD_BYTES, data, len);
	pack_record_encode(p, &r);
	pack_record_place(p, size, ID, off);
	b->len += size;
	return (struct pack_entry){ r.digest, off, len, len };
}

static void begin_pack(struct buf *b)
{
	uint8_t h[PACK_HEADER_BYTES];
	pack_header_encode(h, ID);
	buf_add(b, h, sizeof(h));
}

/* A file in memory with these bytes. */
static int memory_file(const void *data, size_t len)
{
	int fd = memfd_create("pack", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(io_write_full(NULL, fd, data, len, 0), 0);
	return fd;
}

static void test_record(void **state)
{
	auto_buf b = { 0 };
	begin_pack(&b);
	struct pack_entry e = add_object(&b, "hello, world", 12);
	uint8_t *p = b.data + e.off;
	size_t len = b.len - (size_t)e.off;
	struct pack_record r;
	assert_int_equal(len, PACK_HEAD_BYTES + 16);
	assert_int_equal(pack_record_decode(&r, p), 0);
	assert_true(pack_record_whole(p, len, ID, e.off));
	/* At no other place, in no other pack. */
	assert_false(pack_record_whole(p, len, ID, e.off + 8));
	assert_false(pack_record_whole(p, len, ID ^ 1, e.off));
	/* Every bit of it counts, the padding too. */
	for (size_t i = 0; i < len * 8; i++) {
		p[i / 8] ^= (uint8_t)(1 << i % 8);
		assert_false(pack_record_whole(p, len, ID, e.off));
		p[i / 8] ^= (uint8_t)(1 << i % 8);
	}
}

/* Heads that can't be one, whatever their checksum. */
static void test_record_heads(void **state)
{
	static const struct {
		const char *what;
		uint8_t kind, codec;
		uint16_t zero;
		uint32_t raw, stored;
		int result;
	} cases[] = {
		{ "empty", PACK_OBJECT, PACK_RAW, 0, 0, 0, 0 },
		{ "largest", PACK_OBJECT, PACK_RAW, 0, STORE_OBJECT_MAX, STORE_OBJECT_MAX, 0 },
		{ "zstd", PACK_OBJECT, PACK_ZSTD, 0, 100, 99, 0 },
		{ "kind 0", 0, PACK_RAW, 0, 1, 1, -EBADMSG },
		{ "kind 4", 4, PACK_RAW, 0, 1, 1, -EBADMSG },
		{ "codec 2", PACK_OBJECT, 2, 0, 1, 1, -EBADMSG },
		{ "reserved", PACK_OBJECT, PACK_RAW, 1, 1, 1, -EBADMSG },
		{ "too large", PACK_OBJECT, PACK_RAW, 0, STORE_OBJECT_MAX + 1, STORE_OBJECT_MAX + 1,
		  -EBADMSG },
		{ "raw, sizes differ", PACK_OBJECT, PACK_RAW, 0, 2, 1, -EBADMSG },
		{ "zstd, nothing gained", PACK_OBJECT, PACK_ZSTD, 0, 5, 5, -EBADMSG },
		{ "zstd, grown", PACK_OBJECT, PACK_ZSTD, 0, 5, 6, -EBADMSG },
		{ "sizes overflow", PACK_OBJECT, PACK_ZSTD, 0, UINT32_MAX, UINT32_MAX - 1,
		  -EBADMSG },
		{ "table", PACK_TOC, PACK_RAW, 0, PACK_TOC_ENTRY_BYTES, PACK_TOC_ENTRY_BYTES, 0 },
		{ "table, compressed", PACK_TOC, PACK_ZSTD, 0, 88, 44, -EBADMSG },
		{ "table, half an entry", PACK_TOC, PACK_RAW, 0, 22, 22, -EBADMSG },
		{ "end", PACK_END, PACK_RAW, 0, 16, 16, 0 },
		{ "end, short", PACK_END, PACK_RAW, 0, 8, 8, -EBADMSG },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t head[PACK_HEAD_BYTES] = { 0 };
		memcpy(head + 8, "BRec", 4);
		head[12] = cases[i].kind;
		head[13] = cases[i].codec;
		le_put16(head + 14, cases[i].zero);
		le_put32(head + 16, cases[i].raw);
		le_put32(head + 20, cases[i].stored);
		struct pack_record r;
		if (pack_record_decode(&r, head) != cases[i].result)
			fail_msg("%s", cases[i].what);
		head[8] ^= 1;
		assert_int_equal(pack_record_decode(&r, head), -EBADMSG);
	}
}

static void test_read(void **state)
{
	auto_buf b = { 0 };
	begin_pack(&b);
	struct pack_entry e = add_object(&b, "first", 5), e2 = add_object(&b, "second", 6);
	auto_fd fd = memory_file(b.data, b.len);
	uint8_t *buf = malloc(PACK_RECORD_MAX + PACK_ALIGN);
	struct pack_record r;
	assert_int_equal(pack_read(&io_host, fd, ID, &e2, buf, &r), 0);
	assert_memory_equal(buf + PACK_HEAD_BYTES, "second", 6);
	struct pack_entry wrong = e;
	wrong.digest.b[31] ^= 1;
	assert_int_equal(pack_read(&io_host, fd, ID, &wrong, buf, &r), -EBADMSG);
	wrong = e;
	wrong.off = e2.off;
	assert_int_equal(pack_read(&io_host, fd, ID, &wrong, buf, &r), -EBADMSG);
	wrong = e2;
	wrong.off = b.len; /* behind the end */
	assert_int_equal(pack_read(&io_host, fd, ID, &wrong, buf, &r), -EBADMSG);
	wrong.stored = wrong.raw = UINT32_MAX;
	assert_int_equal(pack_read(&io_host, fd, ID, &wrong, buf, &r), -EBADMSG);
	wrong = e2;
	wrong.stored = 5;
	assert_int_equal(pack_read(&io_host, fd, ID, &wrong, buf, &r), -EBADMSG);
	free(buf);
}

enum { OBJECTS = 40 };

/* A pack of OBJECTS objects of different sizes. */
static void some_pack(struct buf *b, struct pack_entry e[OBJECTS])
{
	begin_pack(b);
	uint8_t *data = malloc(STORE_OBJECT_MAX);
	for (uint32_t i = 0; i < OBJECTS; i++) {
		uint32_t len = i == 7 ? STORE_OBJECT_MAX : i == 8 ? 0 : 50 + i * 311;
		content(i * 2 + 1, data, len);
		e[i] = add_object(b, data, len);
	}
	free(data);
}

/* Scans a file and compares with the entries that should be found whole. */
static void expect_scan(int fd, uint64_t size, const struct pack_entry *e, size_t n,
			const bool *missing, unsigned stretches)
{
	struct pack_scan s;
	assert_int_equal(pack_scan_init(&s, NULL, fd, ID, PACK_HEADER_BYTES, size), 0);
	struct pack_record r;
	uint64_t off, len;
	const uint8_t *stored;
	unsigned damaged = 0;
	size_t i = 0;
	int k;
	while ((k = pack_scan_next(&s, &r, &off, &len, &stored)) != PACK_SCAN_END) {
		damaged += k == PACK_SCAN_DAMAGE;
		if (k != PACK_SCAN_RECORD || r.kind != PACK_OBJECT)
			continue;
		while (i < n && missing && missing[i])
			i++;
		assert_true(i < n);
		assert_int_equal(off, e[i].off);
		assert_true(digest_equal(&r.digest, &e[i].digest));
		struct digest d;
		hash_sha256(&d, stored, r.stored);
		assert_true(digest_equal(&d, &r.digest));
		i++;
	}
	while (i < n && missing && missing[i])
		i++;
	assert_int_equal(i, n);
	assert_int_equal(damaged, stretches);
	pack_scan_done(&s);
}

static void test_scan(void **state)
{
	auto_buf b = { 0 };
	struct pack_entry e[OBJECTS];
	some_pack(&b, e);
	auto_fd fd = memory_file(b.data, b.len);
	expect_scan(fd, b.len, e, OBJECTS, NULL, 0);
	/* Torn at any byte of the last record: that one is gone, and nothing else. */
	bool missing[OBJECTS] = { [OBJECTS - 1] = true };
	for (uint64_t size = e[OBJECTS - 1].off + 1; size < b.len; size += 577)
		expect_scan(fd, size, e, OBJECTS, missing, 1);
	expect_scan(fd, e[OBJECTS - 1].off, e, OBJECTS, missing, 0);
}

/* One byte in each part of each record is changed: that record is lost, the others found. */
static void test_scan_damage(void **state)
{
	auto_buf b = { 0 };
	struct pack_entry e[OBJECTS];
	some_pack(&b, e);
	static const size_t at[] = { 0, 8, 12, 14, 16, 20, 24, 56, 90 };
	for (size_t i = 0; i < OBJECTS; i += 3)
		for (size_t k = 0; k < sizeof(at) / sizeof(at[0]); k++) {
			if (at[k] >= pack_record_bytes(e[i].stored))
				continue;
			auto_fd fd = memory_file(b.data, b.len);
			uint8_t v = b.data[e[i].off + at[k]] ^ 0x81;
			assert_int_equal(pwrite(fd, &v, 1, (off_t)(e[i].off + at[k])), 1);
			bool missing[OBJECTS] = { false };
			missing[i] = true;
			expect_scan(fd, b.len, e, OBJECTS, missing, 1);
		}
}

/* A record inside the content of another one is never taken for one of the pack's own, even
 * where the outer head is damaged. */
static void test_scan_forged(void **state)
{
	auto_buf inner = { 0 }, b = { 0 };
	begin_pack(&inner);
	(void)add_object(&inner, "evil", 4);
	begin_pack(&b);
	struct pack_entry e[2];
	e[0] = add_object(&b, inner.data, (uint32_t)inner.len);
	e[1] = add_object(&b, "good", 4);
	b.data[e[0].off + 9] ^= 1;
	auto_fd fd = memory_file(b.data, b.len);
	expect_scan(fd, b.len, e, 2, (bool[2]){ true, false }, 1);
}

/* A disk that can't read some sectors gives what lies in the others. */
static void test_scan_unreadable(void **state)
{
	auto_buf b = { 0 };
	struct pack_entry e[OBJECTS];
	some_pack(&b, e);
	auto_fd fd = memory_file(b.data, b.len);
	struct io_fault *f = io_fault_new(NULL);
	struct pack_scan s;
	assert_int_equal(pack_scan_init(&s, io_fault_io(f), fd, ID, PACK_HEADER_BYTES, b.len), 0);
	io_fault_plan(f, &(struct io_fault_plan){
				 .ops = IO_OP_PREAD, .nth = 1, .error = -EIO, .for_good = true });
	struct pack_record r;
	uint64_t off, len;
	const uint8_t *stored;
	assert_int_equal(pack_scan_next(&s, &r, &off, &len, &stored), PACK_SCAN_DAMAGE);
	assert_true(s.unreadable);
	assert_int_equal(off, PACK_HEADER_BYTES);
	assert_int_equal(off + len, b.len);
	assert_int_equal(pack_scan_next(&s, &r, &off, &len, &stored), PACK_SCAN_END);
	pack_scan_done(&s);
	/* A single failure is got over by reading again in small steps. */
	assert_int_equal(pack_scan_init(&s, io_fault_io(f), fd, ID, PACK_HEADER_BYTES, b.len), 0);
	io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OP_PREAD, .nth = 1, .error = -EIO });
	size_t n = 0;
	while (pack_scan_next(&s, &r, &off, &len, &stored) == PACK_SCAN_RECORD)
		n++;
	assert_int_equal(n, OBJECTS);
	assert_true(s.unreadable);
	pack_scan_done(&s);
	io_fault_free(f);
}

static void test_toc(void **state)
{
	auto_buf b = { 0 };
	struct pack_entry e[OBJECTS], *got;
	some_pack(&b, e);
	auto_fd fd = memory_file(b.data, b.len);
	uint64_t size;
	size_t n;
	assert_int_equal(pack_toc_read(&io_host, fd, ID, b.len, &got, &n), -ENODATA);
	assert_int_equal(pack_toc_write(&io_host, fd, ID, b.len, e, OBJECTS, &size), 0);
	assert_int_equal(pack_toc_read(&io_host, fd, ID, size, &got, &n), 0);
	assert_int_equal(n, OBJECTS);
	for (size_t i = 0; i < n; i++) {
		assert_true(digest_equal(&got[i].digest, &e[i].digest));
		assert_int_equal(got[i].off, e[i].off);
		assert_int_equal(got[i].raw, e[i].raw);
		assert_int_equal(got[i].stored, e[i].stored);
	}
	free(got);
	/* Scanned, the table is no damage and no object. */
	expect_scan(fd, size, e, OBJECTS, NULL, 0);
	/* Every byte of table and end counts. */
	for (uint64_t off = b.len; off < size; off++) {
		uint8_t v;
		assert_int_equal(pread(fd, &v, 1, (off_t)off), 1);
		v ^= 4;
		assert_int_equal(pwrite(fd, &v, 1, (off_t)off), 1);
		int r = pack_toc_read(&io_host, fd, ID, size, &got, &n);
		assert_int_equal(r, off < size - PACK_END_BYTES ? -EBADMSG : -ENODATA);
		v ^= 4;
		assert_int_equal(pwrite(fd, &v, 1, (off_t)off), 1);
	}
	for (uint64_t at = 1;; at++) {
		oom_at(at);
		int r = pack_toc_read(&io_host, fd, ID, size, &got, &n);
		if (!oom_hit()) {
			assert_int_equal(r, 0);
			free(got);
			break;
		}
		assert_int_equal(r, -ENOMEM);
	}
}

/* A table of more than one record, and one without any. */
static void test_toc_sizes(void **state)
{
	static const size_t sizes[] = { 0, 1, 23831, 23832, 60000 };
	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		size_t n = sizes[k], got_n;
		struct pack_entry *e = calloc(n + 1, sizeof(*e)), *got;
		for (size_t i = 0; i < n; i++) {
			e[i].off = PACK_HEADER_BYTES + i * PACK_HEAD_BYTES;
			memcpy(e[i].digest.b, &i, sizeof(i));
		}
		auto_fd fd = memory_file("", 0);
		uint64_t off = PACK_HEADER_BYTES + n * PACK_HEAD_BYTES, size;
		assert_int_equal(pack_toc_write(&io_host, fd, ID, off, e, n, &size), 0);
		assert_int_equal(pack_toc_read(&io_host, fd, ID, size, &got, &got_n), 0);
		assert_int_equal(got_n, n);
		for (size_t i = 0; i < n; i++)
			assert_memory_equal(&e[i], &got[i], sizeof(*e));
		free(e);
		free(got);
	}
}

/* Tables with right checksums and wrong entries. */
static void test_toc_lies(void **state)
{
	static const struct {
		uint64_t off;
		uint32_t raw, stored;
	} lies[] = {
		{ 0, 5, 5 },                                    /* in the header */
		{ PACK_HEADER_BYTES, STORE_OBJECT_MAX + 1, 5 }, /* too large */
		{ PACK_HEADER_BYTES, 5, 6 },                    /* grown */
		{ PACK_HEADER_BYTES, 500, 500 },                /* into the next one */
		{ UINT64_C(8) * UINT32_MAX, 5, 5 },             /* behind the end */
	};
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct pack_entry e[2] = { { .off = lies[i].off,
					     .raw = lies[i].raw,
					     .stored = lies[i].stored },
					   { .off = 96, .raw = 3, .stored = 3 } },
				  *got;
		auto_fd fd = memory_file("", 0);
		uint64_t size;
		size_t n;
		assert_int_equal(pack_toc_write(&io_host, fd, ID, 160, e, 2, &size), 0);
		assert_int_equal(pack_toc_read(&io_host, fd, ID, size, &got, &n), -EBADMSG);
	}
}

static void test_codec(void **state)
{
	static const size_t sizes[] = { 0, 1, 31, 32, 100, 4096, 65536, 300000, STORE_OBJECT_MAX };
	struct codec *c = codec_new();
	uint8_t *raw = malloc(STORE_OBJECT_MAX), *out = malloc(STORE_OBJECT_MAX),
		*back = malloc(STORE_OBJECT_MAX);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (uint64_t n = 0; n < 2; n++) {
			uint32_t stored;
			uint8_t codec;
			size_t len = sizes[i];
			content(n, raw, len);
			codec_store(c, raw, len, out, &stored, &codec);
			assert_int_equal(codec, n == 0 && len >= 100 ? PACK_ZSTD : PACK_RAW);
			assert_true(codec == PACK_RAW ? stored == len : stored < len);
			assert_int_equal(codec_load(c, codec, out, stored, back, len), 0);
			if (len)
				assert_memory_equal(raw, back, len);
			if (codec == PACK_ZSTD) {
				assert_int_equal(codec_load(c, codec, out, stored - 1, back, len),
						 -EBADMSG);
				assert_int_equal(codec_load(c, codec, out, stored, back, len - 1),
						 -EBADMSG);
			}
		}
	/* Text behind a random front is still found worth it. */
	content(1, raw, 8192);
	content(2, raw + 8192, 200000);
	uint32_t stored;
	uint8_t codec;
	codec_store(c, raw, 208192, out, &stored, &codec);
	assert_int_equal(codec, PACK_ZSTD);
	assert_int_equal(codec_load(c, 9, out, stored, back, 10), -EBADMSG);
	assert_int_equal(codec_load(c, PACK_RAW, out, 5, back, 6), -EBADMSG);
	codec_free(c);
	codec_free(NULL);
	free(raw);
	free(out);
	free(back);
}

/* The bytes of the format may not change: what this version writes is what the file says, and
 * what the file holds is read. tests/golden/pack-v1.pack has five objects, of which one is
 * compressed, and a table. */
static void test_golden(void **state)
{
	auto_fd fd = open("tests/golden/pack-v1.pack", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		fail_msg("run it in the project's top folder");
	struct stat st;
	assert_int_equal(fstat(fd, &st), 0);
	uint64_t size = (uint64_t)st.st_size;
	struct pack_entry *e;
	size_t n;
	assert_int_equal(pack_toc_read(&io_host, fd, ID, size, &e, &n), 0);
	assert_int_equal(n, 5);
	auto_buf b = { 0 };
	begin_pack(&b);
	uint8_t *buf = malloc(PACK_RECORD_MAX + PACK_ALIGN), raw[1000], want[1000];
	struct codec *c = codec_new();
	for (size_t i = 0; i < n; i++) {
		static const uint32_t lens[] = { 0, 1, 8, 600, 1000 };
		struct pack_record r;
		assert_int_equal(pack_read(&io_host, fd, ID, &e[i], buf, &r), 0);
		assert_int_equal(r.raw, lens[i]);
		assert_int_equal(r.codec, i == 4 ? PACK_ZSTD : PACK_RAW);
		assert_int_equal(
			codec_load(c, r.codec, buf + PACK_HEAD_BYTES, r.stored, raw, r.raw), 0);
		content(i == 4 ? 4 : 1, want, lens[i]);
		assert_memory_equal(raw, want, lens[i]);
		if (i < 4)
			(void)add_object(&b, want, lens[i]);
	}
	/* zstd's output may differ between its versions: that record is taken as it is. */
	size_t len = (size_t)pack_record_bytes(e[4].stored);
	buf_add(&b, buf, len);
	auto_fd mine = memory_file(b.data, b.len);
	uint64_t mine_size;
	assert_int_equal(pack_toc_write(&io_host, mine, ID, b.len, e, n, &mine_size), 0);
	assert_int_equal(mine_size, size);
	uint8_t *x = malloc((size_t)size), *y = malloc((size_t)size);
	assert_int_equal(io_read_full(NULL, fd, x, (size_t)size, 0), size);
	assert_int_equal(io_read_full(NULL, mine, y, (size_t)size, 0), size);
	assert_memory_equal(x, y, (size_t)size);
	free(x);
	free(y);
	free(e);
	free(buf);
	codec_free(c);
}

/* Makes the golden file, when it is asked for. */
static int write_golden(const char *path)
{
	auto_buf b = { 0 };
	struct pack_entry e[5];
	uint8_t raw[1000];
	static const uint32_t lens[] = { 0, 1, 8, 600 };
	begin_pack(&b);
	for (size_t i = 0; i < 4; i++) {
		content(1, raw, lens[i]);
		e[i] = add_object(&b, raw, lens[i]);
	}
	content(4, raw, sizeof(raw));
	struct codec *c = codec_new();
	struct pack_record r = { .kind = PACK_OBJECT, .raw = sizeof(raw) };
	hash_sha256(&r.digest, raw, sizeof(raw));
	uint8_t *p = buf_room(&b, PACK_HEAD_BYTES + sizeof(raw) + PACK_ALIGN);
	codec_store(c, raw, sizeof(raw), p + PACK_HEAD_BYTES, &r.stored, &r.codec);
	codec_free(c);
	pack_record_encode(p, &r);
	size_t len = (size_t)pack_record_bytes(r.stored);
	pack_record_place(p, len, ID, b.len);
	e[4] = (struct pack_entry){ r.digest, b.len, r.raw, r.stored };
	b.len += len;
	auto_fd fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	uint64_t size;
	return fd < 0 || io_write_full(NULL, fd, b.data, b.len, 0) < 0 ||
	       pack_toc_write(&io_host, fd, ID, b.len, e, 5, &size) < 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "--write-golden") == 0)
		return write_golden(argv[2]);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_header),
		cmocka_unit_test(test_record),
		cmocka_unit_test(test_record_heads),
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_scan),
		cmocka_unit_test(test_scan_damage),
		cmocka_unit_test(test_scan_forged),
		cmocka_unit_test(test_scan_unreadable),
		cmocka_unit_test(test_toc),
		cmocka_unit_test(test_toc_sizes),
		cmocka_unit_test(test_toc_lies),
		cmocka_unit_test(test_codec),
		cmocka_unit_test(test_golden),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
