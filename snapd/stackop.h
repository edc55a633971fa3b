/* Rebasing stacks, and stacks in JSON. Pure. */
#ifndef BOUGH_SNAPD_STACKOP_H
#define BOUGH_SNAPD_STACKOP_H

#include <jansson.h>
#include "fs/work/stack.h"

/* `s`, which begins with `old`, with that replaced by `with`. 0, -ENOMEM, -E2BIG. */
int stack_rebase(struct stack *out, const struct stack *s, const struct stack *old,
		 const struct stack *with);

/* Hex of stack_encode; NULL: out of memory. */
json_t *stack_to_json(const struct stack *s);
/* Any JSON (NULL too): 0, -EBADMSG, -ENOMEM. */
int stack_from_json(struct stack *out, const json_t *j);

#endif
