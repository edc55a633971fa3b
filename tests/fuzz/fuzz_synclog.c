/* Logs of fsyncs: records, and a layer that is opened behind a power loss with them.
 *
 * The first byte says how the rest is taken: even, as the log's bytes; odd, as records whose checks
 * are made right, so that what is in them is reached. Of each: a byte that says which numbers are
 * wrong (mostly none), two of its length, and the body. */
#include <assert.h>
#include "fs/base/cleanup.h"
#include "fs/work/layer_impl.h"
#include "fs/work/synclog.h"
#include "tests/unit/layer_sample.h"
#include "tests/unit/sim_disk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_MAX = 1 << 16, BASE = 6 };

/* Up to the commit. Where it ends. */
static size_t put_journal(struct sim *sim, const char *path)
{
	auto_buf j = { 0 };
	sample_journal(&j);
	size_t end = j.len - FRAME_HEAD; /* without the seal */
	struct sim_file *f = &sim->files[sim_new(sim, path, false)];
	sim_resize(&f->now, end);
	memcpy(f->now.p, j.data, end);
	return end;
}

static void build(struct buf *log, const uint8_t *p, size_t n, uint64_t from)
{
	struct synclog_record r = { .base = BASE, .seq = BASE, .upto = BASE };
	memcpy(r.boot, sample_boot, BOOT_ID_BYTES);
	while (n >= 5) {
		struct buf b = { 0 };
		size_t len = le_get16(p + 1);
		len = len < n - 5 ? len : n - 5;
		r.number += p[0] % 16 != 15;
		r.from = from;
		r.end = from += p[3] < len ? p[3] : len;
		r.seq += p[0] / 16;
		r.upto = r.seq - (p[0] / 16 == 14);
		r.pieces = p[4];
		(void)buf_room(&b, SYNCLOG_HEAD);
		b.len = SYNCLOG_HEAD;
		buf_add(&b, p + 5, len);
		synclog_finish(&b, &r, SAMPLE_SALT);
		buf_add(log, b.data, b.len);
		buf_done(&b);
		p += 5 + len;
		n -= 5 + len;
	}
}

/* It opens or is refused, and then in the same way. */
static void open_it(const struct layer_options *opt)
{
	struct layer *l;
	uint64_t lost = 0, records = 0;
	int first = layer_open(&l, opt, &sample_id, true, NULL);
	if (first == 0) {
		records = layer_records(l);
		lost = layer_lost(l);
		space_check(&l->space);
		layer_unref(l);
	}
	int second = layer_open(&l, opt, &sample_id, true, NULL);
	assert(first == second);
	if (second < 0)
		return;
	/* What was missing is noted once, in a record. */
	assert(layer_records(l) >= records && layer_lost(l) <= lost);
	assert(layer_fsync(l, 0, NULL) == 0);
	layer_unref(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct sim sim;
	if (size < 2 || size > INPUT_MAX)
		return 0;
	char path[100], hex[2 * LAYER_ID_BYTES + 1];
	hex_encode(hex, sample_id.b, LAYER_ID_BYTES);
	sim_init(&sim, 1);
	(void)sim_new(&sim, "/root", true);
	(void)sim_new(&sim, "/root/layers", true);
	(void)snprintf(path, sizeof(path), "/root/layers/%s", hex);
	(void)sim_new(&sim, path, true);
	(void)snprintf(path, sizeof(path), "/root/layers/%s/journal", hex);
	size_t end = put_journal(&sim, path);
	auto_buf log = { 0 };
	if (data[0] % 2)
		build(&log, data + 1, size - 1, end);
	else
		buf_add(&log, data + 1, size - 1);
	(void)snprintf(path, sizeof(path), "/root/layers/%s/log", hex);
	struct sim_file *f = &sim.files[sim_new(&sim, path, false)];
	sim_resize(&f->now, log.len);
	if (log.len)
		memcpy(f->now.p, log.data, log.len);
	uint8_t boot[BOOT_ID_BYTES];
	memcpy(boot, sample_boot, sizeof(boot));
	boot[0] ^= 1;
	struct layer_options opt = { .io = &sim.io, .root = "/root", .boot_id = boot };
	open_it(&opt);
	sim_done(&sim);
	return 0;
}
