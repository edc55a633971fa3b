/* Where to look for what differs from a commit (changes.c): paths that may differ, never less. */
#ifndef BOUGH_GITOPS_SPOTS_H
#define BOUGH_GITOPS_SPOTS_H

#include "gitops/changes_impl.h"

/* A path to look at. */
struct spot {
	char *path;
	bool content; /* the layers say that the content of its inode is another */
};
struct spots {
	struct spot *v;
	size_t n, cap;
};
void spots_done(struct spots *s);

/* Into an empty list, by path, each once: what the layers between opt->before and opt->now say, and
 * where the tree of the checkout isn't the base's. spots_done, also after a failure. */
int spots_find(struct spots *out, const struct changes_options *opt, git_tree *base,
	       git_tree *checkout, struct err *err);

#endif
