/* Who watches workspaces: woken when something happened, by one thread and one connection to
 * bough-fs for all of them (`await`, ctl.h), however many there are. Idle ones cost nothing; those
 * who watch the same workspace from the same moment share one answer.
 *
 * Threads: any. */
#ifndef BOUGH_SNAPD_WATCH_H
#define BOUGH_SNAPD_WATCH_H

#include "snapd/snapd.h"

struct watches;
struct watched; /* one workspace that somebody watches */

struct watches *watches_new(struct fsclient *fs); /* NULL: out of memory */
/* Whoever waits is told -ESHUTDOWN; the thread ends. */
void watches_stop(struct watches *ws);
void watches_free(struct watches *ws); /* after watches_stop, when nobody watches; NULL allowed */
/* Something happened to that workspace that bough-fs doesn't tell of: it was removed. */
void watches_ring(struct watches *ws, const char *id);

int watched_join(struct watches *ws, const char *id, struct watched **out, struct err *err);
void watched_leave(struct watched *w); /* NULL allowed */
/* Counts what happened; before the first look at it, and then for watched_wait. */
uint64_t watched_count(struct watched *w);
/* Waits up to wait_ms for more than `seen`. 1; 2: watches_ring was called; 0: nothing happened;
 * -ESHUTDOWN. */
int watched_wait(struct watched *w, uint64_t seen, int wait_ms);
/* fs_changes; shared, so it is only read, and given to watched_drop in the end. */
int watched_changes(struct watched *w, const char *since, json_t **answer, struct err *err);
void watched_drop(struct watched *w, json_t *answer); /* NULL allowed */

#endif
