/* The processes that descend from this one, out of /proc. */
#ifndef BOUGH_RUNTIME_INIT_TREE_H
#define BOUGH_RUNTIME_INIT_TREE_H

/* Looks at all processes. How many descend from this one, those that have ended but weren't waited
 * for left out; a negated errno where /proc can't be read. */
long tree_read(void);
/* Sends the signal to those that the last tree_read found. */
void tree_signal(int sig);
/* Kills them all, also what they fork meanwhile. Returns when none is left. */
void tree_kill(void);
/* Waits, so long at most, until all of them have ended, and reaps them. */
void tree_await(int ms);
/* Calls fn with every process whose command line begins with these bytes (as /proc shows it: a NUL
 * behind each argument). How many times that gave 0. */
long tree_each_named(const char *begin, long len, long (*fn)(long pid, void *arg), void *arg);

#endif
