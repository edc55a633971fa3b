/* Whether layers hold nothing that a person would call a change. */
#ifndef BOUGH_SNAPD_UNCHANGED_H
#define BOUGH_SNAPD_UNCHANGED_H

#include "fs/work/stack.h"
#include "fs/work/view.h"

/* `sealed` begins with `head` (else 0): 1 when the layers between hold only newer access times,
 * which reading a file leaves behind, and files that have no name, nor had one; 0 when anything
 * else; -errno. O(those layers). */
int tree_unchanged(const struct stack *sealed, const struct stack *head,
		   const struct view_options *opt, struct err *err);

#endif
