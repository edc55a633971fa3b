/* Parts of deltas: as they are, and as the records of a part whose header is right. What is
 * taken gives a part again, and that one the same. */
#include <assert.h>
#include "fs/work/layer_impl.h"
#include "tests/unit/layer_sample.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 32 };

static int keep(void *ctx, const void *data, size_t len, struct err *err)
{
	struct buf *b = ctx;
	(void)err;
	buf_add(b, data, len);
	return 0;
}

static struct layer *take(const uint8_t *data, size_t size)
{
	struct layer *l = layer_new_delta(NULL, &sample_id);
	int r = layer_apply_part(l, data, size, 0, true);
	assert(r == 0 || r == -EBADMSG);
	if (r == 0) {
		layer_mark_partial(l);
		return l;
	}
	assert(layer_is_empty(l) && l->inodes.count == 0 && l->dirs.count == 0);
	layer_unref(l);
	return NULL;
}

static void round_trip(const uint8_t *data, size_t size)
{
	struct buf a = { 0 }, b = { 0 };
	struct delta_sink sink = { .part = keep, .ctx = &a };
	struct layer *l = take(data, size);
	if (!l)
		return;
	/* Refused are inodes that no record describes; and parts that grow beyond one. */
	if (layer_to_delta(l, &sink, NULL) == 0 && a.len <= STORE_OBJECT_MAX) {
		struct layer *m = take(a.data, a.len);
		assert(m);
		sink.ctx = &b;
		assert(layer_to_delta(m, &sink, NULL) == 0);
		assert(a.len == b.len && memcmp(a.data, b.data, a.len) == 0);
		layer_unref(m);
	}
	layer_unref(l);
	buf_done(&a);
	buf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 1 << 16)
		return 0;
	round_trip(data, size);
	if (size <= HEAD)
		return 0;
	/* Count the records, for the header to say so. */
	struct cur c = cur_init(data + HEAD, size - HEAD);
	struct record r;
	uint32_t n = 0;
	while (record_next(&c, &r) > 0)
		n++;
	uint8_t *fixed = malloc(size);
	memcpy(fixed, data, size);
	memset(fixed, 0, HEAD);
	memcpy(fixed, "BoughDlt", 8);
	le_put32(fixed + 8, 1);
	le_put32(fixed + 16, 1);
	le_put32(fixed + 20, n);
	round_trip(fixed, size);
	free(fixed);
	return 0;
}
