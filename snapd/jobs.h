/* Work that a caller left behind: `Prefer: respond-async` on a call whose answer takes long gives a
 * job at once, which goes on whatever becomes of the connection. Its result is kept for a day.
 * Running ones are in memory, all of them in the catalog (journal.h). What boughd's end cuts off
 * has ended where it had its effect (each job has a key, if none of its caller's), is begun anew at
 * the next start where its reply says from what (web.h), and has failed otherwise. Begun anew are a
 * save and an export, from what was sealed for them when they were asked for, an import and a
 * workspace from an archive, from the upload that is kept for it, a gc, an fsck, a fetch without a
 * new secret. All others need what their caller sent.
 *
 * Threads: any; each job has one of its own. */
#ifndef BOUGH_SNAPD_JOBS_H
#define BOUGH_SNAPD_JOBS_H

#include <jansson.h>
#include "snapd/journal.h"
#include "snapd/web.h"

enum {
	JOBS_MAX = 256,      /* that run at once */
	JOBS_OWNER_MAX = 32, /* of one owner */
	JOB_WAIT_MAX_S = 60,
};

struct snapd;
struct jobs;
int jobs_new(struct jobs **out, struct snapd *sd, struct err *err);
/* Asks all to end, and waits up to wait_ms. True when all did. */
bool jobs_stop(struct jobs *j, int wait_ms);
void jobs_free(struct jobs *j); /* after a true jobs_stop; NULL allowed */
unsigned jobs_running(struct jobs *j);

/* web_options.background: takes the reply's work over and starts it; *out is the job's JSON. */
int jobs_start(void *ctx, const struct reply *reply, json_t **out, struct err *err);
/* At the start, behind intents_resolve and before others are begun: goes on with those that were
 * cut off. */
void jobs_resume(struct jobs *j);
/* Waits up to wait_ms for the end of a running one; what is no running one is none. */
void jobs_wait(struct jobs *j, const char *id, int wait_ms);
/* Asks it to end. -ESTALE: it has. */
int jobs_cancel(struct jobs *j, const char *id, struct err *err);
/* {id, state, …} */
json_t *job_json(struct jobs *j, const struct job_row *row);

#endif
