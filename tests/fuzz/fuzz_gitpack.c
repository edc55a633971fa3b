/* Git's formats from hostile bytes: entries and deltas of packs, pack indexes, loose objects.
 * The first byte says which; the rest is the input. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "fs/base/buf.h"
#include "fs/store/gitpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_MAX = 1 << 20, RESULT_MAX = 4 << 20 };

static void *must_alloc(size_t n)
{
	void *p = malloc(n ? n : 1);
	if (!p)
		abort();
	return p;
}

static int must_memfd(const void *data, size_t size)
{
	int fd = memfd_create("git", MFD_CLOEXEC);
	if (fd < 0 || io_write_full(NULL, fd, data, size, 0) < 0)
		abort();
	return fd;
}

struct sink_mem {
	uint8_t *p;
};

static uint8_t *room(void *ctx, size_t len)
{
	struct sink_mem *m = ctx;
	free(m->p);
	m->p = must_alloc(len);
	return m->p;
}

static void must_be_error(int r)
{
	assert(r == -EBADMSG || r == -EFBIG || r == -ENOMEM);
}

/* Two bytes: the length of the base, which lies before the delta. */
static void run_delta(const uint8_t *data, size_t size)
{
	if (size < 2)
		return;
	size_t n = le_get16(data);
	uint64_t result, base_size, said;
	if (n > size - 2)
		n = size - 2;
	const uint8_t *base = data + 2, *delta = base + n;
	size_t len = size - 2 - n;
	int head = git_delta_sizes(delta, len, &base_size, &said);
	int r = git_delta_check(delta, len, head > 0 ? base_size : n, &result);
	if (head < 0)
		assert(r == -EBADMSG);
	else if (r == 0)
		assert(result == said);
	if (git_delta_check(delta, len, n, &result) < 0 || result > RESULT_MAX)
		return;
	uint8_t *out = must_alloc((size_t)result);
	git_delta_apply(delta, len, base, out);
	free(out);
}

static void run_index(const uint8_t *data, size_t size)
{
	struct gitpack p = { .io = &io_host, .bytes = INPUT_MAX };
	if (size < GIT_IDX_OIDS || git_idx_decode(&p.idx, data, size) < 0)
		return;
	p.idx_fd = must_memfd(data, size);
	for (unsigned i = 0; i < 256; i++) {
		struct oid oid = { { (uint8_t)i } };
		uint32_t first = i ? p.idx.fanout[i - 1] : 0;
		uint64_t off = 0;
		if (first < p.idx.fanout[i])
			memcpy(oid.b, data + git_idx_oid_at(first), OID_BYTES);
		int r = gitpack_find(&p, &oid, &off);
		if (r < 0)
			must_be_error(r);
		else if (r > 0)
			assert(off >= GIT_PACK_HEAD && off < p.bytes - GIT_TRAILER);
	}
	(void)close(p.idx_fd); /* memory only */
}

/* Names 00… and ff… lie at offset 12 and where the last two bytes say. */
static int small_index(struct gitpack *p, uint32_t second)
{
	struct buf x = { 0 };
	uint8_t oids[2 * OID_BYTES], offs[16] = { 0 }, trailers[GIT_IDX_TRAILER] = { 0 };
	memset(oids, 0, OID_BYTES);
	memset(oids + OID_BYTES, 0xff, OID_BYTES);
	offs[11] = GIT_PACK_HEAD;
	offs[14] = (uint8_t)(second >> 8), offs[15] = (uint8_t)second;
	buf_add(&x, "\377tOc\0\0\0\2", 8);
	for (unsigned i = 0; i < 256; i++)
		buf_add(&x, i < 255 ? "\0\0\0\1" : "\0\0\0\2", 4);
	buf_add(&x, oids, sizeof(oids));
	buf_add(&x, offs, sizeof(offs));
	buf_add(&x, trailers, sizeof(trailers));
	if (buf_error(&x) < 0 || git_idx_decode(&p->idx, x.data, x.len) < 0)
		abort();
	int fd = must_memfd(x.data, x.len);
	buf_done(&x);
	return fd;
}

/* Reads it to its end. */
static int drain(void *ctx, struct gitstream *s, enum git_type type, uint64_t size, struct err *err)
{
	uint8_t part[1000];
	for (uint64_t at = 0; at < size; at += sizeof(part)) {
		size_t n = size - at < sizeof(part) ? (size_t)(size - at) : sizeof(part);
		int r = gitstream_read(s, part, n);
		if (r < 0)
			return r;
	}
	return 0;
}

/* What can be loaded whole can be read as a stream, and has the same hash. */
static void run_stream(int r, struct gitstream *s, const struct git_head *h,
		       const struct git_head *as, const uint8_t *data)
{
	static const struct git_use use = { drain, NULL };
	struct gitreader *rd = s->rd;
	struct oid oid = { { 0 } };
	char head[GIT_LOOSE_HEAD_MAX];
	int failed = 0;
	if (r == 0 && h->size > RESULT_MAX)
		return;
	if (r == 0 && as && EVP_DigestInit_ex(rd->sha, NULL, NULL)) {
		EVP_DigestUpdate(rd->sha, head, git_head_encode(head, as->type, as->size));
		EVP_DigestUpdate(rd->sha, data, as->size);
		EVP_DigestFinal_ex(rd->sha, oid.b, NULL);
	}
	if (r == 0)
		r = gitstream_run(s, &oid, h, &use, &failed, NULL);
	assert(failed == 0 && (r == 0) == (as != NULL));
	if (r < 0)
		must_be_error(r);
}

/* What is loaded must be what stat says of it. */
static void run_entry(const struct gitpack *p, struct gitreader *rd, struct gitbases *bases,
		      uint64_t off)
{
	pthread_mutex_t big = PTHREAD_MUTEX_INITIALIZER;
	struct sink_mem mem = { 0 };
	struct git_sink sink = { .room = room, .ctx = &mem, .max = RESULT_MAX };
	struct git_head h, s;
	uint8_t *at = NULL;
	int e = gitpack_stat(p, rd, bases, off, &s);
	int r = gitpack_load(p, rd, bases, &big, off, &sink, &h, &at);
	if (e < 0)
		must_be_error(e);
	if (r < 0)
		must_be_error(r);
	else
		assert(e == 0 && h.type == s.type && h.size == s.size && at == mem.p);
	struct gitstream st = { .rd = rd };
	struct git_head as;
	e = gitpack_stream(p, rd, off, &st, &as);
	if (e != -EOPNOTSUPP)
		run_stream(e, &st, &as, r == 0 ? &h : NULL, at);
	free(mem.p);
}

static void run_pack(const uint8_t *data, size_t size)
{
	struct gitpack p = { .io = &io_host, .serial = 1, .bytes = size };
	struct gitbases bases;
	struct gitreader *rd = gitreader_new();
	if (!rd || gitbases_init(&bases, 1 << 20) < 0)
		abort();
	if (size > GIT_PACK_HEAD + GIT_TRAILER + 2) {
		uint32_t second = (uint32_t)data[size - 2] << 8 | data[size - 1];
		static const struct oid names[2] = { { { 0 } }, { { 0xff } } };
		p.fd = must_memfd(data, size);
		p.idx_fd = small_index(&p, second);
		for (unsigned i = 0; i < 4; i++) {
			struct oid oid = names[i % 2];
			uint64_t off;
			if (i % 2)
				memset(oid.b, 0xff, OID_BYTES);
			int r = gitpack_find(&p, &oid, &off);
			assert(r == 1 || (r == -EBADMSG && i % 2));
			if (r == 1)
				run_entry(&p, rd, &bases, off);
		}
		gitpack_close(&p);
	}
	gitbases_done(&bases);
	gitreader_free(rd);
}

static void run_loose(const uint8_t *data, size_t size)
{
	struct gitreader *rd = gitreader_new();
	struct sink_mem mem = { 0 };
	struct git_sink sink = { .room = room, .ctx = &mem, .max = RESULT_MAX };
	struct git_head h, s;
	uint8_t *at = NULL;
	if (!rd)
		abort();
	int fd = must_memfd(data, size);
	int e = gitloose_load(&io_host, fd, rd, NULL, &s, NULL);
	int r = gitloose_load(&io_host, fd, rd, &sink, &h, &at);
	if (e < 0)
		must_be_error(e);
	if (r < 0)
		must_be_error(r);
	else
		assert(e == 0 && h.type == s.type && h.size == s.size && at == mem.p);
	struct gitstream st = { .rd = rd };
	struct git_head as;
	e = gitloose_stream(&io_host, fd, rd, &st, &as);
	run_stream(e, &st, &as, r == 0 ? &h : NULL, at);
	(void)close(fd); /* memory only */
	free(mem.p);
	gitreader_free(rd);
}

static void run_heads(const uint8_t *data, size_t size)
{
	struct git_entry e;
	enum git_type type;
	uint64_t n;
	uint32_t count;
	char back[GIT_LOOSE_HEAD_MAX];
	if (git_entry_decode(&e, data, size) == 0)
		assert(e.head <= size && e.head <= GIT_ENTRY_HEAD_MAX);
	if (size >= GIT_PACK_HEAD)
		(void)git_pack_head_decode(&count, data); /* it may well refuse */
	int used = git_loose_head(data, size, &type, &n);
	if (used > 0) {
		assert((size_t)used == git_head_encode(back, type, n));
		assert(memcmp(back, data, (size_t)used) == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const runs[])(const uint8_t *, size_t) = {
		run_heads, run_delta, run_index, run_pack, run_loose,
	};
	if (size < 1 || size > INPUT_MAX)
		return 0;
	runs[data[0] % (sizeof(runs) / sizeof(runs[0]))](data + 1, size - 1);
	return 0;
}
