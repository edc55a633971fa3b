/* Work that a reply starts in a thread of its own, and the streams that tie it to the
 * connection. Used by web.c, jobs.c and outcome.c only. */
#ifndef BOUGH_SNAPD_WEB_TASK_H
#define BOUGH_SNAPD_WEB_TASK_H

#include "snapd/web.h"

/* Where a job's progress goes: lines of a stream, or a function. */
struct progress {
	struct stream *out;
	uint64_t told_ms;
	void (*sink)(void *ctx, uint64_t done, uint64_t total, const char *unit, const char *what);
	void *ctx;
	const bool *cancelled; /* atomic; NULL: it can't be */
};

struct task;
/* Counts running tasks for web_quiesce. */
struct task_count;
struct task_count *task_count_new(void);
void task_count_free(struct task_count *c);
void task_count_add(struct task_count *c, int n);
/* Waits until it is 0; true then. */
bool task_count_wait(struct task_count *c, int wait_ms);

/* Takes the reply's work over (its task_free is called in the end) and starts it. `lines`: the
 * job's progress and result go to the task's output as ndjson; a stream's bytes always do.
 * `upload` (NULL allowed): the writer's side of a request's body; the task takes over a
 * reference for its end. */
int task_start(struct task **out, const struct reply *reply, bool lines, struct stream *upload,
	       struct task_count *count, struct err *err);
/* The reader's side of the output; the caller's reference. NULL when there is none. */
struct stream *task_output(struct task *t);
/* Waits for the end, and moves the outcome to the reply (status, json): of a job without
 * lines, or a stream's summary. */
int task_wait(struct task *t, struct reply *reply, struct err *err);
void task_unref(struct task *t); /* the work goes on; NULL allowed */

/* Runs a job here and now, without progress. */
int task_run_here(struct reply *reply, struct err *err);
/* ---- headers (web_headers.c) ---- */

struct MHD_Response;
void web_kept_free(struct web_kept *k);
void web_headers_move(struct reply *to, struct reply *from); /* those that `to` had are freed */
void web_headers_free(struct reply *rp);
bool web_headers_put(struct MHD_Response *response, const struct reply *rp); /* false: no memory */

/* {"code", "message", "details"}; details is taken over. NULL: out of memory. */
json_t *web_error_json(int r, const struct err *err, json_t *details);

#endif
