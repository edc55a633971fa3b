/* What a workspace's .gitignore and .gitattributes say of its paths.
 *
 * They are read from the tree as it is, nested ones too, as bounded regular files (git doesn't
 * follow links there either); so is .git/info/exclude, whose patterns can only hide untracked
 * files. .git/info/attributes and all configuration are not looked at.
 *
 * Asked in the order of paths, each file is read once: only the folders on the way to the last
 * path are kept. Threads: one at a time. */
#ifndef BOUGH_GITOPS_RULES_H
#define BOUGH_GITOPS_RULES_H

#include "fs/work/view.h"
#include "gitops/togit.h"

enum {
	RULES_FILE_MAX = 1 << 20, /* bytes of one such file; a larger one counts as absent */
	RULES_DEPTH_MAX = 1024,   /* folders on the way to a path */
};

struct rules;
/* The view is borrowed until rules_free. */
int rules_new(struct rules **out, const struct view *v, struct err *err);
void rules_free(struct rules *r); /* NULL allowed */

/* 1: git would ignore it, were it untracked; 0: it wouldn't.
 * -E2BIG: the patterns take too long; -EIO, -ENOMEM. */
int rules_ignored(struct rules *r, const char *path, bool is_dir, struct err *err);

int rules_attrs(struct rules *r, const char *path, struct path_attrs *out, struct err *err);

#endif
