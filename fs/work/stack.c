#include "fs/work/stack.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t magic[8] = { 'B', 'o', 'u', 'g', 'h', 'S', 't', 'k' };

enum {
	VERSION = 1,
	CHECK = 8, /* bytes of XXH3 at the end */
	LAYER_MIN = LAYER_ID_BYTES + 1 + 4,
};

void stack_done(struct stack *s)
{
	for (uint32_t i = 0; i < s->nlayers; i++)
		free(s->layers[i].parts);
	free(s->layers);
	*s = (struct stack){ 0 };
}

int stack_push(struct stack *s, const struct layer_id *id, bool local, const struct digest *parts,
	       uint32_t nparts)
{
	if (s->nlayers >= STACK_LAYERS_MAX)
		return -E2BIG;
	assert(nparts <= DELTA_PARTS_MAX && (!local || nparts == 0));
	struct stack_layer sl = { .id = *id, .local = local, .nparts = nparts };
	if (nparts) {
		sl.parts = malloc(nparts * sizeof(*parts));
		if (!sl.parts)
			return -ENOMEM;
		memcpy(sl.parts, parts, nparts * sizeof(*parts));
	}
	struct stack_layer *layers = reallocarray(s->layers, s->nlayers + 1, sizeof(*layers));
	if (!layers) {
		free(sl.parts);
		return -ENOMEM;
	}
	s->layers = layers;
	layers[s->nlayers++] = sl;
	return 0;
}

int stack_copy(struct stack *out, const struct stack *in)
{
	auto_stack s = { .seed = in->seed, .image = in->image };
	for (uint32_t i = 0; i < in->nlayers; i++) {
		const struct stack_layer *sl = &in->layers[i];
		int r = stack_push(&s, &sl->id, sl->local, sl->parts, sl->nparts);
		if (r < 0)
			return r;
	}
	*out = s;
	s = (struct stack){ 0 };
	return 0;
}

void stack_encode(const struct stack *s, struct buf *out)
{
	size_t start = out->len;
	buf_add(out, magic, sizeof(magic));
	buf_u32(out, VERSION);
	buf_u32(out, s->nlayers);
	buf_u64(out, s->seed);
	buf_add(out, s->image.b, sizeof(s->image.b));
	for (uint32_t i = 0; i < s->nlayers; i++) {
		const struct stack_layer *sl = &s->layers[i];
		buf_add(out, sl->id.b, LAYER_ID_BYTES);
		buf_u8(out, sl->local);
		buf_u32(out, sl->nparts);
		buf_add(out, sl->parts, sl->nparts * sizeof(*sl->parts));
	}
	if (!out->failed)
		buf_u64(out, hash_xxh3(out->data + start, out->len - start, 0));
}

static int decode_layer(struct stack *s, struct cur *c)
{
	struct layer_id id = { 0 };
	const uint8_t *p = cur_take(c, LAYER_ID_BYTES);
	uint8_t local = cur_u8(c);
	uint32_t nparts = cur_u32(c);
	if (c->bad || local > 1 || nparts > DELTA_PARTS_MAX || (local == 1) != (nparts == 0))
		return -EBADMSG;
	memcpy(id.b, p, LAYER_ID_BYTES);
	const uint8_t *parts = cur_take(c, nparts * sizeof(struct digest));
	if (!parts)
		return -EBADMSG;
	return stack_push(s, &id, local, (const struct digest *)parts, nparts);
}

int stack_decode(struct stack *out, const void *data, size_t len)
{
	if (len < CHECK)
		return -EBADMSG;
	const uint8_t *p = data;
	struct cur c = cur_init(p, len - CHECK);
	const uint8_t *m = cur_take(&c, sizeof(magic));
	uint32_t version = cur_u32(&c), nlayers = cur_u32(&c);
	auto_stack s = { .seed = cur_u64(&c) };
	const uint8_t *image = cur_take(&c, sizeof(s.image.b));
	if (c.bad || memcmp(m, magic, sizeof(magic)) != 0 || version != VERSION ||
	    nlayers > STACK_LAYERS_MAX || cur_left(&c) < (size_t)nlayers * LAYER_MIN)
		return -EBADMSG;
	if (le_get64(p + len - CHECK) != hash_xxh3(p, len - CHECK, 0))
		return -EBADMSG;
	memcpy(s.image.b, image, sizeof(s.image.b));
	for (uint32_t i = 0; i < nlayers; i++) {
		int r = decode_layer(&s, &c);
		if (r < 0)
			return r;
	}
	if (cur_left(&c) != 0)
		return -EBADMSG;
	*out = s;
	s = (struct stack){ 0 };
	return 0;
}

void layer_delta_id(struct layer_id *out, const struct digest *parts, uint32_t nparts)
{
	struct digest d;
	hash_sha256(&d, parts, (size_t)nparts * sizeof(*parts));
	memcpy(out->b, d.b, LAYER_ID_BYTES);
}

bool stack_is_saved(const struct stack *s)
{
	for (uint32_t i = 0; i < s->nlayers; i++)
		if (s->layers[i].local)
			return false;
	return true;
}

static bool layer_equal(const struct stack_layer *a, const struct stack_layer *b)
{
	return a->local == b->local && memcmp(&a->id, &b->id, sizeof(a->id)) == 0 &&
	       a->nparts == b->nparts &&
	       (a->nparts == 0 || memcmp(a->parts, b->parts, a->nparts * sizeof(*a->parts)) == 0);
}

bool stack_begins(const struct stack *s, const struct stack *lower)
{
	if (s->seed != lower->seed || !digest_equal(&s->image, &lower->image) ||
	    s->nlayers < lower->nlayers)
		return false;
	for (uint32_t i = 0; i < lower->nlayers; i++)
		if (!layer_equal(&s->layers[i], &lower->layers[i]))
			return false;
	return true;
}

bool stack_equal(const struct stack *a, const struct stack *b)
{
	return a->nlayers == b->nlayers && stack_begins(a, b);
}
