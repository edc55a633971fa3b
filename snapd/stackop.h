/* Comparing and rebasing stacks. Pure. */
#ifndef BOUGH_SNAPD_STACKOP_H
#define BOUGH_SNAPD_STACKOP_H

#include "fs/work/stack.h"

bool stack_equal(const struct stack *a, const struct stack *b);
/* True when `s` has `lower`'s image and layers at its bottom. */
bool stack_begins(const struct stack *s, const struct stack *lower);
/* `s`, which begins with `old`, with that replaced by `with`. 0, -ENOMEM, -E2BIG. */
int stack_rebase(struct stack *out, const struct stack *s, const struct stack *old,
		 const struct stack *with);

#endif
