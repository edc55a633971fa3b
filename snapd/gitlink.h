/* What a workspace or snapshot has to do with a repository: the `git` column of its row.
 *
 *   {"repo": 3, "base": HEX, "anchor": HEX, "ref": "refs/heads/main", "branch": "work",
 *    "scopes": ["drivers/net"], "depth": 0, "stack": HEX, "pending": HEX,
 *    "pending_branch": "work"}
 *
 * "pending…" is there only while a commit is being made, or when that was interrupted.
 *
 * It goes along with fork, save, restore and create --from. */
#ifndef BOUGH_SNAPD_GITLINK_H
#define BOUGH_SNAPD_GITLINK_H

#include <stdbool.h>
#include <stdint.h>
#include "fs/base/err.h"
#include "fs/store/gitrepo.h"
#include "fs/work/stack.h"

struct gitlink {
	uint32_t repo;
	struct oid base;    /* the commit that was checked out */
	struct oid anchor;  /* the last host commit made from it; at first the base */
	struct oid pending; /* the anchor to be, once a branch is there */
	bool has_pending;
	char *pending_branch; /* NULL: `branch` */
	char *ref, *branch;   /* NULL: none */
	char **scopes;
	size_t nscopes;
	unsigned depth;
	struct stack stack; /* saved: the tree as it was checked out, for diff and commit */
};
void gitlink_done(struct gitlink *g);
#define auto_gitlink __attribute__((cleanup(gitlink_done))) struct gitlink

/* Any text: 0 and a link that the caller frees, -EBADMSG, -ENOMEM. */
int gitlink_parse(struct gitlink *out, const char *json, struct err *err);
char *gitlink_text(const struct gitlink *g); /* the caller frees; NULL: out of memory */

#endif
