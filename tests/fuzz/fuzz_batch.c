/* Operations of a batch, and its contents: any bytes are operations in which batch.h's promises
 * hold, or -EBADMSG; and what was understood is understood again when it is written anew. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "fs/work/batch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct batch_op *o)
{
	struct version_id match[BATCH_VERSIONS_MAX], unless[BATCH_VERSIONS_MAX];
	assert(o->kind < BATCH_KINDS && o->path_len > 0 && o->path_len <= BATCH_PATH_MAX);
	assert(!memchr(o->path, 0, o->path_len) && o->path[0] != '/');
	assert(o->nmatch <= BATCH_VERSIONS_MAX && o->nunless <= BATCH_VERSIONS_MAX);
	for (size_t i = 0; i < o->nmatch; i++)
		match[i] = batch_version(o->match, i);
	for (size_t i = 0; i < o->nunless; i++)
		unless[i] = batch_version(o->unless, i);
	struct buf b = { 0 };
	struct batch_op again;
	batch_encode(&b, o,
		     &(struct batch_conditions){ match, unless, o->nmatch, o->nunless });
	assert(!buf_error(&b));
	struct cur c = cur_init(b.data, b.len);
	assert(batch_decode(&c, &again) == 1 && cur_left(&c) == 0);
	assert(again.mode == o->mode && again.path_len == o->path_len &&
	       memcmp(again.path, o->path, o->path_len) == 0);
	buf_done(&b);
}

static void contents(const uint8_t *data, size_t size)
{
	struct cur c = cur_init(data, size);
	struct batch_content content;
	int r;
	while ((r = batch_decode_content(&c, &content)) > 0)
		for (size_t i = 0; i < content.n; i++) {
			struct batch_piece p = batch_piece_at(&content, i);
			assert(p.len > 0 && p.off + p.len <= content.size);
			assert(p.at + p.len <= INT64_MAX);
		}
	assert(r == 0 || r == -EBADMSG);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	contents(data, size);
	struct cur c = cur_init(data, size);
	struct batch_op o;
	int r;
	while ((r = batch_decode(&c, &o)) > 0)
		check(&o);
	assert(r == 0 || r == -EBADMSG);
	return 0;
}
