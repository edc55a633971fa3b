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

/* What git add does with ends of lines. */
enum eol_rule {
	EOL_KEEP, /* binary, or nothing is said */
	EOL_TEXT, /* CR LF becomes LF */
	EOL_AUTO, /* the same where it looks like text and has no CR LF in git yet */
};
struct path_attrs {
	enum eol_rule eol;
	bool ident;
	bool filter;       /* a filter driver is named, which is never run */
	char encoding[32]; /* of the work tree; "": as it is (UTF-8) */
};
/* True where content in the work tree and in git may differ. */
static inline bool path_attrs_convert(const struct path_attrs *a)
{
	return a->eol != EOL_KEEP || a->ident || a->encoding[0];
}
int rules_attrs(struct rules *r, const char *path, struct path_attrs *out, struct err *err);

#endif
