/* Rebasing stacks. Pure. */
#ifndef BOUGH_SNAPD_STACKOP_H
#define BOUGH_SNAPD_STACKOP_H

#include "fs/work/stack.h"

/* `s`, which begins with `old`, with that replaced by `with`. 0, -ENOMEM, -E2BIG. */
int stack_rebase(struct stack *out, const struct stack *s, const struct stack *old,
		 const struct stack *with);

#endif
