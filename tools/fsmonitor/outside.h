/* The hook post-index-change of a checkout with a scope. From its beginning what is outside of the
 * scope is marked in the index as skip-worktree and as assumed unchanged: libgit2 calls a file
 * deleted that has the first mark alone. git sets and takes away the first only, so the second
 * follows it here, once git has written the index. */
#ifndef BOUGH_TOOLS_FSMONITOR_OUTSIDE_H
#define BOUGH_TOOLS_FSMONITOR_OUTSIDE_H

/* In .git/index of the working directory. Nothing is told: where another git is at the index, or it
 * isn't of a form that we know, it stays as it is. */
void outside_mark(void);

#endif
