#include "snapd/jobs.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "snapd/api.h"
#include "snapd/events.h"
#include "snapd/outcome.h"
#include "snapd/web_task.h"

struct job {
	struct jobs *jobs;
	struct job *next;
	struct job_row row;
	struct reply reply;
	struct doing *doing;
	struct progress progress;
	bool cancelled; /* atomic: the work reads it without the lock */
	bool asked;     /* somebody cancelled it; else it is boughd that ends */
	uint64_t done, total;
	char unit[16], what[64]; /* "": nothing was told yet */
};

struct jobs {
	struct snapd *sd;
	pthread_mutex_t lock; /* all below, and each job's progress */
	pthread_cond_t ended;
	struct job *running;
	unsigned n;
	bool stopping;
};

int jobs_new(struct jobs **out, struct snapd *sd, struct err *err)
{
	struct jobs *j = calloc(1, sizeof(*j));
	if (!j)
		return err_no_memory(err);
	j->sd = sd;
	pthread_mutex_init(&j->lock, NULL);
	clock_cond_init(&j->ended);
	*out = j;
	return 0;
}

void jobs_free(struct jobs *j)
{
	if (!j)
		return;
	pthread_cond_destroy(&j->ended);
	pthread_mutex_destroy(&j->lock);
	free(j);
}

unsigned jobs_running(struct jobs *j)
{
	pthread_mutex_lock(&j->lock);
	unsigned n = j->n;
	pthread_mutex_unlock(&j->lock);
	return n;
}

static struct job *find(struct jobs *j, const char *id)
{
	struct job *job = j->running;
	while (job && strcmp(job->row.id, id) != 0)
		job = job->next;
	return job;
}

bool jobs_stop(struct jobs *j, int wait_ms)
{
	struct timespec until = clock_in_ms(wait_ms);
	int r = 0;
	pthread_mutex_lock(&j->lock);
	j->stopping = true;
	for (struct job *job = j->running; job; job = job->next)
		__atomic_store_n(&job->cancelled, true, __ATOMIC_RELAXED);
	while (j->n > 0 && r == 0)
		r = pthread_cond_timedwait(&j->ended, &j->lock, &until);
	bool all = j->n == 0;
	pthread_mutex_unlock(&j->lock);
	return all;
}

/* ---- JSON ---- */

static void add(json_t *j, const char *key, json_t *v)
{
	(void)json_object_set_new(j, key, v); /* a NULL is left out; job_json looks at the rest */
}

json_t *job_json(struct jobs *j, const struct job_row *row)
{
	json_t *out = json_pack("{s:s, s:s, s:s, s:s, s:o, s:o}", "id", row->id, "state",
				row->state, "owner", row->owner, "path", row->path ? row->path : "",
				"created", api_time(row->created_ns), "ended",
				row->ended_ns ? api_time(row->ended_ns) : json_null());
	if (!out)
		return NULL;
	if (row->object[0])
		add(out, "object", json_string(row->object));
	pthread_mutex_lock(&j->lock);
	const struct job *job = find(j, row->id);
	if (job && job->what[0])
		add(out, "progress",
		    json_pack("{s:I, s:I, s:s, s:s}", "done", (json_int_t)job->done, "total",
			      (json_int_t)job->total, "unit", job->unit, "what", job->what));
	pthread_mutex_unlock(&j->lock);
	if (row->status) {
		json_t *answer = row->answer ? json_loads(row->answer, 0, NULL) : NULL;
		add(out, "status", json_integer(row->status));
		add(out, row->status < 400 ? "result" : "error", answer ? answer : json_null());
	}
	return out;
}

/* ---- running ---- */

static void on_progress(void *ctx, uint64_t done, uint64_t total, const char *unit,
			const char *what)
{
	struct job *job = ctx;
	pthread_mutex_lock(&job->jobs->lock);
	job->done = done;
	job->total = total;
	(void)snprintf(job->unit, sizeof(job->unit), "%s", unit);
	(void)snprintf(job->what, sizeof(job->what), "%s", what);
	pthread_mutex_unlock(&job->jobs->lock);
}

static void tell_event(struct job *job, const char *type)
{
	struct event e = { .own = job->doing->own };
	(void)snprintf(e.type, sizeof(e.type), "job.%s", type);
	memcpy(e.object, job->row.id, sizeof(e.object));
	memcpy(e.workspace, job->doing->workspace, sizeof(e.workspace));
	memcpy(e.by, job->row.owner, sizeof(e.by));
	/* A job is its caller's, whoever owns what it works on. */
	memset(&e.own, 0, sizeof(e.own));
	memcpy(e.own.owner, job->row.owner, sizeof(e.own.owner));
	events_add(job->jobs->sd->events, &e);
}

static void leave(struct job *job)
{
	struct jobs *j = job->jobs;
	pthread_mutex_lock(&j->lock);
	struct job **at = &j->running;
	while (*at != job)
		at = &(*at)->next;
	*at = job->next;
	j->n--;
	pthread_cond_broadcast(&j->ended);
	pthread_mutex_unlock(&j->lock);
}

static void job_free(struct job *job)
{
	doing_unref(job->doing);
	job_row_done(&job->row);
	free(job);
}

static void keep_end(struct job *job, int r, const json_t *answer)
{
	struct job_row *row = &job->row;
	struct err err = { 0 };
	bool ours = __atomic_load_n(&job->cancelled, __ATOMIC_RELAXED);
	(void)snprintf(row->state, sizeof(row->state), "%s",
		       r >= 0                    ? "done"
		       : ours && r == -ECANCELED ? "cancelled"
						 : "failed");
	row->answer = answer ? json_text(answer, JSON_COMPACT) : NULL;
	if (row->answer && strlen(row->answer) > ANSWER_MAX) {
		free(row->answer);
		row->answer = NULL;
	}
	row->ended_ns = snapd_now_ns();
	if (catalog_job_end(job->jobs->sd->catalog, row, &err) < 0)
		log_error("job %s: %s", row->id, err.text); /* the next start ends it */
}

/* ---- begun anew ---- */

/* `call` of what is kept; the rest of that is the call's body, and `of` what its path names. */
static const struct {
	const char *call, *pattern;
	web_handler handle;
} calls[] = {
	{ "gc", "/v1/gc", api_gc },
	{ "export", "/v1/exports", api_export_new },
	{ "fetch", "/v1/repos/{}/fetch", api_repo_fetch },
	{ "save", "/v1/workspaces/{}/snapshots", api_ws_save },
	{ "fsck", "/v1/fsck", api_fsck },
	{ "import", "/v1/import", api_import },
	{ "create", "/v1/workspaces/import", api_ws_import },
};

static size_t find_call(const json_t *again)
{
	const char *call = json_string_value(json_object_get(again, "call"));
	size_t i = 0, n = sizeof(calls) / sizeof(calls[0]);
	while (i < n && strcmp(calls[i].call, call ? call : "") != 0)
		i++;
	return i;
}

/* The call's handler once more, which was admitted when it was asked for. */
static int begin_anew(struct job *job, struct err *err)
{
	json_t *again = json_loads(job->row.again, 0, NULL);
	size_t i = find_call(again);
	struct request rq = { .ctx = job->jobs->sd,
			      .caller = &job->doing->caller,
			      .method = job->doing->method,
			      .params = { json_string_value(json_object_get(again, "of")) },
			      .body = again,
			      .socket = -1 };
	int r = i < sizeof(calls) / sizeof(calls[0])
			? calls[i].handle(&rq, &job->reply, err)
			: err_set(err, -EIO, "boughd was replaced by one that can't go on with it");
	json_decref(rq.details);
	json_decref(again);
	return r;
}

/* boughd's end alone ended it, and the next start goes on. */
static bool is_left(struct job *job, int r)
{
	struct jobs *j = job->jobs;
	pthread_mutex_lock(&j->lock);
	bool left = r == -ECANCELED && job->row.again && j->stopping && !job->asked;
	pthread_mutex_unlock(&j->lock);
	return left;
}

static void tell_end(struct job *job, int r, unsigned status, const json_t *result)
{
	job->row.status = status;
	doing_tell(job->doing, status, result);
	keep_end(job, r, result);
	tell_event(job, job->row.state);
}

static void *job_thread(void *arg)
{
	struct job *job = arg;
	struct reply *rp = &job->reply;
	struct err err = { 0 };
	const char *code;
	json_t *result = NULL;
	unsigned status = rp->status;
	(void)doing_set(job->doing);
	int r = rp->job ? 0 : begin_anew(job, &err);
	if (r >= 0)
		r = rp->job(rp->task, &job->progress, &status, &result, &err);
	if (rp->tell)
		rp->tell(rp->task, rp);
	web_headers_free(rp);
	bool left = is_left(job, r);
	if (left && rp->leave)
		rp->leave(rp->task);
	if (left && catalog_job_left(job->jobs->sd->catalog, job->row.id, &err) < 0)
		log_warn("job %s: %s", job->row.id, err.text); /* it counts as a try */
	if (rp->task_free)
		rp->task_free(rp->task);
	if (r < 0) {
		json_decref(result);
		result = web_error_json(r, &err, result);
		status = web_status(r, &code);
	}
	if (!left)
		tell_end(job, r, status, result);
	json_decref(result);
	(void)doing_set(NULL);
	leave(job);
	job_free(job);
	return NULL;
}

static int enter(struct jobs *j, struct job *job, struct err *err)
{
	unsigned same = 0;
	int r = 0;
	pthread_mutex_lock(&j->lock);
	for (const struct job *o = j->running; o; o = o->next)
		same += strcmp(o->row.owner, job->row.owner) == 0;
	if (j->n >= JOBS_MAX || same >= JOBS_OWNER_MAX)
		r = err_set(err, -EUSERS, "too many jobs run already: %u, %u of them yours", j->n,
			    same);
	if (r == 0) {
		job->next = j->running;
		j->running = job;
		j->n++;
	}
	pthread_mutex_unlock(&j->lock);
	return r;
}

static int start_thread(struct job *job, struct err *err)
{
	pthread_attr_t attr;
	pthread_t thread;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	int r = -pthread_create(&thread, &attr, job_thread, job);
	pthread_attr_destroy(&attr);
	return r < 0 ? err_sys(err, r, "start a job") : 0;
}

static struct job *job_new(struct jobs *j, const struct reply *reply)
{
	struct job *job = calloc(1, sizeof(*job));
	struct doing *d = doing_now();
	if (!job || !d || !(job->row.path = strdup(d->path ? d->path : ""))) {
		free(job);
		return NULL;
	}
	job->jobs = j;
	job->reply = *reply;
	job->reply.nheaders = 0; /* they stay the caller's */
	job->doing = doing_ref(d);
	job->progress =
		(struct progress){ .sink = on_progress, .ctx = job, .cancelled = &job->cancelled };
	id_make(job->row.id, "jb");
	memcpy(job->row.owner, d->caller.owner, sizeof(job->row.owner));
	memcpy(job->row.object, d->object, sizeof(job->row.object));
	json_t *again = reply->again ? reply->again(reply->task) : NULL;
	job->row.again = again ? json_text(again, JSON_COMPACT) : NULL;
	json_decref(again);
	memcpy(job->row.state, "running", sizeof("running"));
	job->row.created_ns = snapd_now_ns();
	return job;
}

int jobs_start(void *ctx, const struct reply *reply, json_t **out, struct err *err)
{
	struct snapd *sd = ctx;
	struct jobs *j = sd->jobs;
	struct job *job = job_new(j, reply);
	int r = job ? enter(j, job, err) : err_no_memory(err);
	if (r < 0) {
		if (job)
			job_free(job);
		goto fail;
	}
	r = catalog_job_insert(sd->catalog, &job->row, err);
	if (r >= 0 && !(*out = job_json(j, &job->row)))
		r = err_no_memory(err);
	if (r >= 0) {
		tell_event(job, "created");
		r = start_thread(job, err);
	}
	if (r >= 0)
		return 0;
	json_decref(*out);
	*out = NULL;
	job->row.status = 500;
	keep_end(job, r, NULL);
	leave(job);
	job_free(job);
fail:
	if (reply->task_free)
		reply->task_free(reply->task);
	return r;
}

/* The row is taken over. */
static struct job *job_of_row(struct jobs *j, struct job_row *row)
{
	struct job *job = calloc(1, sizeof(*job));
	struct doing *d = doing_new();
	json_t *again = row->again ? json_loads(row->again, 0, NULL) : NULL;
	size_t i = find_call(again);
	json_decref(again);
	if (!job || !d || !(d->path = strdup(row->path))) {
		doing_unref(d);
		free(job);
		return NULL;
	}
	/* The caller's own: what it may was looked at before. */
	principal_of_service(&d->caller);
	memcpy(d->caller.owner, row->owner, sizeof(d->caller.owner));
	d->caller.admin = false;
	d->caller.uid = (uid_t)-1;
	d->method = "POST";
	d->pattern = i < sizeof(calls) / sizeof(calls[0]) ? calls[i].pattern : "";
	memcpy(d->object, row->object, sizeof(d->object));
	d->done = outcome_done;
	d->ctx = j->sd;
	job->jobs = j;
	job->doing = d;
	job->reply.status = 200;
	job->progress =
		(struct progress){ .sink = on_progress, .ctx = job, .cancelled = &job->cancelled };
	job->row = *row;
	*row = (struct job_row){ 0 };
	return job;
}

/* Of one that had done its work when boughd ended, or failed: `was` says so. */
static void end_left(struct jobs *j, struct job *job, const struct repeat *was)
{
	json_t *answer = was->status == 204 ? NULL
			 : was->answer      ? json_loads(was->answer, 0, NULL)
			 : was->effect ? outcome_rebuilt(j->sd, job->row.path, was->effect)
				       : NULL;
	log_info("job %s (%s) had ended before the last boughd did", job->row.id, job->row.path);
	job->row.status = was->status;
	keep_end(job, was->status < 400 ? 0 : -EIO, answer);
	tell_event(job, job->row.state);
	json_decref(answer);
}

/* A job that was left, with the key it works for, and how far it is known how that ended. */
static int take_up(struct jobs *j, struct job_row *row, struct job **out, struct repeat *was,
		   struct err *err)
{
	struct job *job = job_of_row(j, row);
	if (!job)
		return err_no_memory(err);
	*was = (struct repeat){ 0 };
	int r = catalog_job_repeat(j->sd->catalog, job->row.id, job->doing, was, err);
	if (r < 0 && r != -ENOENT) {
		job_free(job);
		return r;
	}
	*out = job;
	return 0;
}

/* Ends what is known to have ended. */
static int settle(struct jobs *j, struct job_row *row, struct err *err)
{
	struct repeat was;
	struct job *job;
	int r = take_up(j, row, &job, &was, err);
	if (r < 0)
		return r;
	if (was.status)
		end_left(j, job, &was);
	if (job->doing->keyed) /* or until it is resumed */
		catalog_repeat_leave(j->sd->catalog, job->doing);
	repeat_done(&was);
	job_free(job);
	return 0;
}

static int resume(struct jobs *j, struct job_row *row, struct err *err)
{
	struct repeat was;
	struct job *job;
	int r = take_up(j, row, &job, &was, err);
	if (r < 0)
		return r;
	repeat_done(&was);
	log_info("job %s (%s) goes on after the last boughd's end", job->row.id, job->row.path);
	pthread_mutex_lock(&j->lock);
	job->next = j->running;
	j->running = job;
	j->n++;
	pthread_mutex_unlock(&j->lock);
	r = start_thread(job, err);
	if (r >= 0)
		return r;
	log_error("job %s: %s", job->row.id, err->text);
	job->row.status = 500;
	keep_end(job, r, NULL);
	leave(job);
	job_free(job);
	return 0; /* it has failed, and the others go on */
}

static int each_running(struct jobs *j,
			int (*fn)(struct jobs *j, struct job_row *row, struct err *err),
			struct err *err)
{
	struct job_row *rows = NULL;
	size_t n = 0;
	int r = catalog_job_running(j->sd->catalog, &rows, &n, err);
	for (size_t i = 0; i < n && r >= 0; i++)
		r = fn(j, &rows[i], err);
	job_rows_free(rows, n);
	return r;
}

void jobs_resume(struct jobs *j)
{
	struct err err = { 0 };
	int r = each_running(j, settle, &err);
	if (r >= 0)
		r = catalog_jobs_cut(j->sd->catalog, &err);
	if (r >= 0)
		imports_sweep(j->sd);
	if (r >= 0)
		r = each_running(j, resume, &err);
	if (r < 0) /* they are looked at again, or fail, at the next start */
		log_error("jobs that were cut off: %s", err.text);
}

void jobs_wait(struct jobs *j, const char *id, int wait_ms)
{
	struct timespec until = clock_in_ms(wait_ms);
	int r = 0;
	pthread_mutex_lock(&j->lock);
	while (find(j, id) && r == 0)
		r = pthread_cond_timedwait(&j->ended, &j->lock, &until);
	pthread_mutex_unlock(&j->lock);
}

int jobs_cancel(struct jobs *j, const char *id, struct err *err)
{
	pthread_mutex_lock(&j->lock);
	struct job *job = find(j, id);
	if (job) {
		job->asked = true;
		__atomic_store_n(&job->cancelled, true, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&j->lock);
	return job ? 0 : err_set(err, -ESTALE, "job %s has ended", id);
}
