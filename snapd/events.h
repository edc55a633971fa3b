/* What happens to workspaces, snapshots and jobs, for those who listen: a ring of the latest in
 * memory. Numbers begin anew with each boughd, whose mark stands before them.
 *
 * Threads: any. */
#ifndef BOUGH_SNAPD_EVENTS_H
#define BOUGH_SNAPD_EVENTS_H

#include "snapd/catalog.h"

enum { EVENTS_KEPT = 4096, EVENT_ID_SIZE = 32 };

struct event {
	uint64_t seq; /* from 1 on */
	int64_t time_ns;
	char type[40];           /* "workspace.created" */
	char object[ID_SIZE];    /* "": the service */
	char workspace[ID_SIZE]; /* that it is, or is of; "": none */
	char by[OWNER_SIZE];
	struct owned own; /* who may hear of it */
};

struct events;
struct events *events_new(void);    /* NULL: out of memory */
void events_free(struct events *e); /* after events_stop, when nobody waits; NULL allowed */
/* Whoever waits is told -ESHUTDOWN. */
void events_stop(struct events *e);
/* Takes seq and time for its own. */
void events_add(struct events *e, const struct event *what);
/* The number of the latest one. */
uint64_t events_last(struct events *e);
/* The first behind `after`, waiting up to wait_ms for it. 1; 0: none came; -EKEYEXPIRED: what
 * followed `after` isn't kept any longer; -ESHUTDOWN. */
int events_next(struct events *e, uint64_t after, struct event *out, int wait_ms);
/* "MARK.SEQ" of one, and back: -EKEYEXPIRED: another boughd's; -EINVAL. */
void event_id(struct events *e, uint64_t seq, char out[EVENT_ID_SIZE]);
int event_id_parse(struct events *e, const char *text, uint64_t *seq);

#endif
