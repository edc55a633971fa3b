#include "snapd/stackop.h"

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
