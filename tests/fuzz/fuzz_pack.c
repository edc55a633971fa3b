/* Packs of hostile bytes: scanning, the table of contents, records, and the values of the index.
 * Checksums would keep mutations out, so each input is also run with those made right. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "fs/base/buf.h"
#include "fs/store/codec.h"
#include "fs/store/index.h"
#include "fs/store/internal.h"
#include "fs/store/pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SIZE_MAX_HERE = 1 << 20 };

static void *must_alloc(size_t n)
{
	void *p = malloc(n ? n : 1);
	if (!p)
		abort();
	return p;
}

/* Gives everything that can be a record a right checksum. */
static void fix(uint8_t *p, size_t size, uint64_t id)
{
	for (size_t off = PACK_HEADER_BYTES; size - off >= PACK_HEAD_BYTES && off < size;
	     off += PACK_ALIGN) {
		struct pack_record r;
		if (pack_record_decode(&r, p + off) < 0)
			continue;
		size_t len = (size_t)pack_record_bytes(r.stored);
		if (len > size - off)
			continue;
		pack_record_place(p + off, len, id, off);
		off += len - PACK_ALIGN;
	}
}

static void try_unpack(struct codec *c, const struct pack_record *r, const uint8_t *stored)
{
	uint8_t *raw = must_alloc(r->raw);
	(void)codec_load(c, r->codec, stored, r->stored, raw, r->raw); /* it may well refuse */
	free(raw);
}

static void run_file(int fd, uint64_t id, size_t size)
{
	struct codec *c = codec_new();
	struct pack_scan s;
	if (!c || pack_scan_init(&s, NULL, fd, id, PACK_HEADER_BYTES, size) < 0)
		abort();
	struct pack_record r;
	uint64_t off, len, next = PACK_HEADER_BYTES;
	const uint8_t *stored;
	int k;
	while ((k = pack_scan_next(&s, &r, &off, &len, &stored)) != PACK_SCAN_END) {
		/* Records and damage cover the file without a gap. */
		assert(off == next && len > 0 && off + len <= size);
		next = off + len;
		if (k == PACK_SCAN_RECORD)
			try_unpack(c, &r, stored);
	}
	assert(size < PACK_HEADER_BYTES || next == size);
	assert(s.objects <= s.whole && s.whole <= (size < PACK_HEADER_BYTES ? next : size));
	pack_scan_done(&s);

	struct pack_entry *e;
	size_t n;
	if (pack_toc_read(&io_host, fd, id, size, &e, &n) == 0) {
		uint8_t *buf = must_alloc(PACK_RECORD_MAX + PACK_ALIGN);
		for (size_t i = 0; i < n; i++) {
			assert(e[i].off + pack_record_bytes(e[i].stored) <= size);
			if (pack_read(&io_host, fd, id, &e[i], buf, &r) == 0)
				try_unpack(c, &r, buf + PACK_HEAD_BYTES);
		}
		free(buf);
		free(e);
	}
	codec_free(c);
}

static void run_values(const uint8_t *data, size_t size)
{
	struct digest d = { { 1 } };
	struct place p;
	struct pack_row row;
	uint64_t id;
	char name[32] = { 0 };
	memcpy(name, data, size < sizeof(name) - 1 ? size : sizeof(name) - 1);
	if (pack_name_parse(name, &id) == 0) {
		char back[PACK_NAME_BYTES];
		pack_name(back, id);
		assert(strcmp(back, name) == 0);
	}
	if (size >= PACK_HEADER_BYTES)
		(void)pack_header_decode(data, le_get64(data + 16));
	if (index_entry_decode(&p, &d, data, size) == 0) {
		uint8_t back[INDEX_ENTRY_BYTES];
		index_entry_encode(back, &d, &p);
		assert(memcmp(back, data, sizeof(back)) == 0);
	}
	if (index_row_decode(&row, 1, data, size) == 0)
		assert(row.id == 1);
	struct index_state st;
	if (index_state_decode(&st, data, size) == 0)
		assert(size == INDEX_STATE_BYTES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > SIZE_MAX_HERE)
		return 0;
	run_values(data, size);
	uint64_t id = size >= PACK_HEADER_BYTES ? le_get64(data + 16) : 1;
	uint8_t *copy = must_alloc(size);
	if (size)
		memcpy(copy, data, size);
	int fd = memfd_create("pack", MFD_CLOEXEC);
	if (fd < 0 || io_write_full(NULL, fd, copy, size, 0) < 0)
		abort();
	run_file(fd, id, size);
	if (size >= PACK_HEADER_BYTES) {
		fix(copy, size, id);
		if (io_write_full(NULL, fd, copy, size, 0) < 0)
			abort();
		run_file(fd, id, size);
	}
	free(copy);
	(void)close(fd); /* memory only */
	return 0;
}
