#include "snapd/stackop.h"

#include <string.h>

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

int stack_rebase(struct stack *out, const struct stack *s, const struct stack *old,
		 const struct stack *with)
{
	auto_stack res = { 0 };
	int r = stack_copy(&res, with);
	for (uint32_t i = old->nlayers; i < s->nlayers && r >= 0; i++) {
		const struct stack_layer *l = &s->layers[i];
		r = stack_push(&res, &l->id, l->local, l->parts, l->nparts);
	}
	if (r < 0)
		return r;
	*out = res;
	res = (struct stack){ 0 };
	return 0;
}
