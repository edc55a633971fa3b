/* What comes before and after each request: may it be done, was it done before (its
 * Idempotency-Key), and how it ended, for the audit log, the events and the figures. */
#ifndef BOUGH_SNAPD_OUTCOME_H
#define BOUGH_SNAPD_OUTCOME_H

#include "snapd/api.h"

/* web_options.admit and .done; ctx is the struct snapd. */
int outcome_admit(struct request *rq, const struct route *rt, const void *data, size_t len,
		  struct reply *rp, struct err *err);
void outcome_done(void *ctx, struct doing *d, unsigned status, const json_t *answer);
/* The answer to a POST of that path that made what `effect` names (db_note_effect), as far as that
 * is still there. NULL: out of memory. */
json_t *outcome_rebuilt(struct snapd *sd, const char *path, const char *effect);
/* What else this thread's caller did by it, for the audit log and the events. `what` is as in
 * events.h. */
void outcome_beside(struct snapd *sd, const char *what, const struct owned *own,
		    const char *object, const char *workspace);
/* What the service did by itself, likewise. `what` is as in events.h. */
void outcome_own(struct snapd *sd, const char *what, const struct owned *own, const char *object,
		 const char *workspace);
/* Whether there ever is an event of that type. */
bool outcome_tells(const char *type);

/* What a request, or the service (`what`, then), did to something beside what it is about: for the
 * audit log, with one more word. */
void outcome_also(struct snapd *sd, const char *what, const char *object, const char *key,
		  const char *value);

/* ---- figures (metrics.c) ---- */

struct metrics;
struct buf;
struct metrics *metrics_new(void);    /* NULL: out of memory */
void metrics_free(struct metrics *m); /* NULL allowed */
void metrics_count(struct metrics *m, const struct doing *d, unsigned status);
/* Prometheus' text of requests and how long they took. */
void metrics_print(struct metrics *m, struct buf *out);

#endif
