/* Names that other systems can't hold, found before a commit leaves this host. */
#ifndef BOUGH_GITOPS_PUSHNAMES_H
#define BOUGH_GITOPS_PUSHNAMES_H

#include "gitops/mirror.h"

/* Looks at the paths that `commit` has and `base` hasn't: reserved names, characters and ends
 * (gitname.h), and names that differ from another one in their folder by case alone. What was in
 * `base` is others' choice. -EINVAL names one. */
int pushnames_check(struct mirror *m, const struct oid *base, const struct oid *commit,
		    struct err *err);

#endif
