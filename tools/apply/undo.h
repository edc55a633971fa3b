/* Puts a work tree back to how it was before a checkout that failed in the middle: libgit2 refuses
 * before the first file where local changes are in the way, but not where a folder can't be
 * written to, or the disk is full. */
#ifndef BOUGH_TOOLS_APPLY_UNDO_H
#define BOUGH_TOOLS_APPLY_UNDO_H

#include <git2.h>
#include <stdbool.h>
#include <stddef.h>
#include "fs/base/err.h"

struct undo_path;
struct undo {
	git_repository *repo; /* borrowed */
	git_tree *head;       /* borrowed */
	struct undo_path *v;
	size_t n, cap;
};
void undo_done(struct undo *u);
#define auto_undo __attribute__((cleanup(undo_done))) struct undo

/* Before anything is written: how each path of `diff` (from HEAD's tree to what will be written) is
 * now. The repository and the tree are borrowed until undo_done. */
int undo_note(struct undo *u, git_repository *repo, git_tree *head, git_diff *diff,
	      struct err *err);
/* Puts them back: 0, or what hindered it. `index`: the index too, which was written. */
int undo_run(struct undo *u, bool index, struct err *err);

#endif
