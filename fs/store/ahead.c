/* Small contents, given to the workers before it is their turn: batches of them, in a ring. */
#include <assert.h>
#include <stdlib.h>
#include "fs/store/chunk.h"
#include "fs/store/internal.h"

enum {
	/* A batch goes off with so many contents or bytes: what it costs to wake a worker doesn't
	 * count then, and a session's turn is short. */
	BATCH_CONTENTS = 16,
	BATCH_BYTES = 64 * 1024,
	BATCH_ROOM = STORE_SMALL_MAX,
	BATCHES_BESIDE = 2, /* beside one for each worker */
};

struct batch {
	struct work work;
	struct store_session *ss;
	uint8_t *data; /* BATCH_ROOM */
	uint32_t used, n, taken;
	struct content {
		uint64_t key;
		uint32_t off, len;
		int result;
		bool zero;
		struct digest digest;
	} of[BATCH_CONTENTS];
	struct err err; /* of the first that failed */
};

/* Batches from `from` up to `to` have contents that aren't taken yet; the last one is being filled
 * while `filling`, the others are with the workers. */
struct store_ahead {
	struct store_session *ss;
	struct batch *batches;
	unsigned n;
	uint64_t from, to;
	bool filling;
};

static struct batch *batch_at(struct store_ahead *a, uint64_t i)
{
	return &a->batches[i % a->n];
}

int store_ahead_new(struct store_ahead **out, struct store_session *ss, struct err *err)
{
	struct store_ahead *a = calloc(1, sizeof(*a));
	if (a) {
		a->ss = ss;
		a->n = workers_count() + BATCHES_BESIDE;
		a->batches = calloc(a->n, sizeof(*a->batches));
	}
	if (!a || !a->batches) {
		store_ahead_free(a);
		return err_no_memory(err);
	}
	*out = a;
	return 0;
}

static void run_batch(struct work *w, const struct store_worker *with)
{
	struct batch *b = (struct batch *)w; /* its first member */
	for (uint32_t i = 0; i < b->n; i++) {
		struct content *c = &b->of[i];
		const uint8_t *p = b->data + c->off;
		c->zero = chunk_is_zero(p, c->len);
		if (!c->zero)
			c->result = session_put(b->ss, with, p, c->len, &c->digest,
						b->err.code ? NULL : &b->err);
	}
}

static void send_off(struct store_ahead *a)
{
	a->filling = false;
	session_give(a->ss, &batch_at(a, a->to - 1)->work);
}

/* An empty one is the one that is filled: 1; 0: there is none. */
static int begin_batch(struct store_ahead *a, struct err *err)
{
	if (a->to - a->from == a->n)
		return 0;
	struct batch *b = batch_at(a, a->to);
	uint8_t *data = b->data ? b->data : malloc(BATCH_ROOM);
	if (!data)
		return err_no_memory(err);
	b->work = (struct work){ .run = run_batch };
	b->ss = a->ss;
	b->data = data;
	b->used = b->n = b->taken = 0;
	b->err = (struct err){ 0 };
	a->to++;
	a->filling = true;
	return 1;
}

int store_ahead_add(struct store_ahead *a, uint64_t key, uint32_t len,
		    const struct store_content *c, struct err *err)
{
	assert(len > 0 && len <= STORE_SMALL_MAX);
	if (a->filling && batch_at(a, a->to - 1)->used + len > BATCH_ROOM)
		send_off(a);
	int r = a->filling ? 1 : begin_batch(a, err);
	if (r <= 0)
		return r;
	struct batch *b = batch_at(a, a->to - 1);
	r = c->read(c->ctx, b->data + b->used, len, 0, err);
	if (r < 0)
		return r;
	b->of[b->n++] = (struct content){ .key = key, .off = b->used, .len = len };
	b->used += len;
	if (b->n == BATCH_CONTENTS || b->used >= BATCH_BYTES)
		send_off(a);
	return 1;
}

int store_ahead_take(struct store_ahead *a, uint64_t key, struct digest *out, bool *zero,
		     struct err *err)
{
	if (a->from == a->to)
		return 0;
	struct batch *b = batch_at(a, a->from);
	if (b->taken == b->n || b->of[b->taken].key != key)
		return 0;
	if (a->filling && a->from == a->to - 1)
		send_off(a);
	session_wait(a->ss, &b->work);
	const struct content *c = &b->of[b->taken++];
	if (b->taken == b->n)
		a->from++;
	if (c->result < 0) {
		if (err)
			*err = b->err;
		return c->result;
	}
	*out = c->digest;
	*zero = c->zero;
	return 1;
}

void store_ahead_free(struct store_ahead *a)
{
	if (!a)
		return;
	for (unsigned i = 0; a->batches && i < a->n; i++) {
		session_wait(a->ss, &a->batches[i].work);
		free(a->batches[i].data);
	}
	free(a->batches);
	free(a);
}
