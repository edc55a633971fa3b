/* The service for those who look after it, and for programs that wait: version, figures, audit log,
 * events, jobs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/json.h"
#include "snapd/access.h"
#include "snapd/events.h"
#include "snapd/flattener.h"
#include "snapd/jobs.h"
#include "snapd/journal.h"
#include "snapd/outcome.h"
#include "snapd/sse.h"
#include "snapd/tidier.h"

enum {
	AUDIT_PAGE = 1000,
	EVENTS_AT_ONCE = 16384, /* bytes, about, that a stream of events sends together */
};

int api_version(struct request *rq, struct reply *rp, struct err *err)
{
	rp->json = json_pack("{s:s, s:s, s:s}", "name", "bough", "version", BOUGH_VERSION, "api",
			     "v1");
	return rp->json ? 0 : err_no_memory(err);
}

/* ---- figures ---- */

struct text {
	struct buf buf;
};

static void text_free(void *task)
{
	struct text *t = task;
	buf_done(&t->buf);
	free(t);
}

static ssize_t text_read(void *task, uint64_t pos, void *buf, size_t n, struct err *err)
{
	const struct text *t = task;
	if (pos >= t->buf.len)
		return 0;
	size_t left = t->buf.len - (size_t)pos;
	n = n < left ? n : left;
	memcpy(buf, t->buf.data + pos, n);
	return (ssize_t)n;
}

static void gauge(struct buf *b, const char *name, const char *kind, double v)
{
	buf_printf(b, "# TYPE bough_%s %s\nbough_%s %.15g\n", name, kind, name, v);
}

static void print_store(struct snapd *sd, struct buf *b)
{
	struct store_stats st;
	if (store_stats(sd->store, &st, NULL) < 0)
		return;
	gauge(b, "store_objects", "gauge", (double)st.objects);
	gauge(b, "store_packs", "gauge", (double)st.packs);
	gauge(b, "store_raw_bytes", "gauge", (double)st.bytes_raw);
	gauge(b, "store_stored_bytes", "gauge", (double)st.bytes_stored);
	gauge(b, "store_compression_ratio", "gauge",
	      st.bytes_stored ? (double)st.bytes_raw / (double)st.bytes_stored : 1);
	gauge(b, "store_puts_total", "counter", (double)st.puts);
	gauge(b, "store_put_hits_total", "counter", (double)st.put_hits);
	gauge(b, "store_work_waiting", "gauge", (double)st.waiting);
	uint64_t held = 0;
	double ratio = tidier_dedup(sd, &held);
	if (ratio > 0) { /* as the last gc found it; before the first nobody knows */
		gauge(b, "store_held_bytes", "gauge", (double)held);
		gauge(b, "store_dedup_ratio", "gauge", ratio);
	}
	gauge(b, "store_cache_bytes", "gauge", (double)st.cache_bytes);
	gauge(b, "store_cache_hits_total", "counter", (double)st.cache_hits);
	gauge(b, "store_cache_misses_total", "counter", (double)st.cache_misses);
}

static void print_fs(struct snapd *sd, struct buf *b)
{
	struct supervisor_status st;
	json_t *fs = NULL, *v;
	const char *name;
	supervisor_get(sd->supervisor, &st);
	gauge(b, "fs_up", "gauge", st.up);
	gauge(b, "fs_deaths_total", "counter", (double)st.deaths);
	if (!st.up || fs_stats(sd->fs, &fs, NULL) < 0)
		return;
	buf_printf(b, "# TYPE bough_fs_requests_total counter\n");
	json_object_foreach(json_object_get(fs, "opcodes"), name, v)
		buf_printf(b, "bough_fs_requests_total{opcode=\"%s\"} %lld\n", name,
			   (long long)json_integer_value(v));
	json_decref(fs);
}

static void print_catalog(struct snapd *sd, struct buf *b)
{
	struct catalog_counts n;
	if (catalog_count(sd->catalog, &n, NULL) < 0)
		return;
	gauge(b, "workspaces", "gauge", (double)n.workspaces);
	gauge(b, "workspaces_mounted", "gauge", (double)n.mounted);
	gauge(b, "workspaces_broken", "gauge", (double)n.broken);
	gauge(b, "workspaces_read_only", "gauge", (double)problems_count(sd->faults));
	gauge(b, "snapshots", "gauge", (double)n.snapshots);
	gauge(b, "workspaces_deleted", "gauge", (double)n.removed);
	gauge(b, "catalog_bytes", "gauge", (double)n.bytes);
	gauge(b, "webhook_deliveries_waiting", "gauge", (double)n.deliveries);
}

int api_metrics(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct text *t = calloc(1, sizeof(*t));
	if (!t)
		return err_no_memory(err);
	buf_printf(&t->buf, "# TYPE bough_info gauge\nbough_info{version=\"%s\"} 1\n",
		   BOUGH_VERSION);
	print_catalog(sd, &t->buf);
	print_store(sd, &t->buf);
	print_fs(sd, &t->buf);
	gauge(&t->buf, "jobs_running", "gauge", jobs_running(sd->jobs));
	gauge(&t->buf, "flatten_waiting", "gauge", (double)flattener_waiting(sd->flattener));
	gauge(&t->buf, "events_total", "counter", (double)events_last(sd->events));
	gauge(&t->buf, "layers_memory_bytes", "gauge", (double)layercache_memory(sd->layers));
	metrics_print(sd->metrics, &t->buf);
	if (buf_error(&t->buf)) {
		text_free(t);
		return err_no_memory(err);
	}
	rp->read = text_read;
	rp->length = t->buf.len;
	rp->type = "text/plain; version=0.0.4; charset=utf-8";
	rp->task = t;
	rp->task_free = text_free;
	return 0;
}

/* ---- audit ---- */

/* Who may see an entry may know who that was. */
static json_t *audit_json(const struct audit_row *a)
{
	json_t *about = a->about ? json_loads(a->about, 0, NULL) : NULL;
	return json_pack("{s:I, s:o, s:s, s:o, s:o, s:s, s:s, s:s, s:o, s:i, s:o}", "seq",
			 (json_int_t)a->seq, "time", api_time(a->time_ns), "owner", a->owner,
			 "user", a->user[0] ? json_string(a->user) : json_null(), "token",
			 a->token[0] ? json_string(a->token) : json_null(), "from", a->from,
			 "method", a->method, "path", a->path, "object",
			 a->object[0] ? json_string(a->object) : json_null(), "status",
			 (int)a->status, "about", about ? about : json_null());
}

static int parse_seq(struct request *rq, const char *key, int64_t *out, struct err *err)
{
	const char *s = request_query(rq, key);
	char *end;
	if (!s)
		return 0;
	errno = 0;
	long long n = strtoll(s, &end, 10);
	if (errno || !*s || *end || n < 1)
		return request_bad_field(rq, key, err, "a number from 1 on is expected");
	*out = n;
	return 0;
}

struct audit_export {
	struct snapd *sd;
	struct audit_query q;
};

/* All of it as lines, newest first, a page at a time. */
static int audit_lines(void *task, struct stream *out, struct err *err)
{
	const struct audit_export *x = task;
	int64_t before = 0;
	for (;;) {
		struct audit_row *rows;
		size_t n;
		int r = catalog_audit_list(x->sd->catalog, &x->q, before, AUDIT_PAGE, &rows, &n,
					   err);
		if (r < 0)
			return r;
		for (size_t i = 0; i < n && r >= 0; i++) {
			json_t *j = audit_json(&rows[i]);
			auto_free char *text = j ? json_text(j, JSON_COMPACT) : NULL;
			json_decref(j);
			r = text ? stream_write(out, text, strlen(text)) : err_no_memory(err);
			if (r >= 0)
				r = stream_write(out, "\n", 1);
			before = rows[i].seq;
		}
		audit_rows_free(rows, n);
		if (r < 0 || n < AUDIT_PAGE)
			return r;
	}
}

/* RFC 3339, UTC; a date alone is its beginning. */
static int parse_time(struct request *rq, const char *key, int64_t *out, struct err *err)
{
	const char *s = request_query(rq, key), *end;
	struct tm tm = { 0 };
	if (!s)
		return 0;
	end = strptime(s, "%Y-%m-%d", &tm);
	if (end && *end == 'T')
		end = strptime(end + 1, "%H:%M:%S", &tm);
	if (end && *end == '.')
		end += 1 + strspn(end + 1, "0123456789"); /* entries are found by the second */
	time_t t = end && (!*end || strcmp(end, "Z") == 0) ? timegm(&tm) : -1;
	if (t < 0 || t > INT64_MAX / 1000000000)
		return request_bad_field(rq, key, err, "a time like 2026-01-31T12:00:00Z");
	*out = (int64_t)t * 1000000000;
	return 0;
}

static int audit_filters(struct request *rq, struct audit_query *q, struct err *err)
{
	const char *owner = request_query(rq, "owner"), *token = request_query(rq, "token");
	const char *method = request_query(rq, "method");
	int r = parse_time(rq, "since", &q->since_ns, err);
	if (r >= 0)
		r = parse_time(rq, "until", &q->until_ns, err);
	if (r >= 0 && token && !id_is(token, "tk"))
		r = request_bad_field(rq, "token", err, "a token's id");
	if (r >= 0 && method && (!*method || strlen(method) >= sizeof(q->method)))
		r = request_bad_field(rq, "method", err, "POST, PUT, PATCH or DELETE");
	if (r >= 0 && owner)
		r = auth_owner(rq->ctx, owner, q->owner, err);
	if (r == -ENOENT) /* one who is no user any more did things, too */
		r = strlen(owner) < sizeof(q->owner)
			    ? snprintf(q->owner, sizeof(q->owner), "%s", owner)
			    : request_bad_field(rq, "owner", err, "it is too long");
	(void)snprintf(q->token, sizeof(q->token), "%s", token ? token : "");
	(void)snprintf(q->method, sizeof(q->method), "%s", method ? method : "");
	q->failed = request_query_true(rq, "failed");
	return r < 0 ? r : 0;
}

/* An object's is for who may change it; without one, one's own. */
static int audit_whose(struct request *rq, struct audit_export *x, struct err *err)
{
	struct meant m;
	const char *object = request_query(rq, "object");
	char only[OWNER_SIZE] = "";
	bool whole = rq->caller->admin && !rq->caller->workspace[0] && !rq->caller->team[0];
	if (!whole)
		memcpy(only, rq->caller->owner, sizeof(only));
	if (rq->caller->workspace[0])
		memcpy(x->q.object, rq->caller->workspace, sizeof(x->q.object));
	if (!object) {
		if (*only && x->q.owner[0] && strcmp(only, x->q.owner) != 0)
			return err_set(err, -EPERM, "what others did is the admins' to read");
		if (*only)
			memcpy(x->q.owner, only, sizeof(only));
		if (rq->caller->team[0]) /* of its owner's what it did itself */
			memcpy(x->q.token, rq->caller->token, sizeof(x->q.token));
		return 0;
	}
	if (whole && strlen(object) < ID_SIZE) {
		(void)snprintf(x->q.object, sizeof(x->q.object), "%s", object); /* it may be gone */
		if (id_is(object, "ws") || id_is(object, "sn") || id_is(object, "sb"))
			return 0;
	}
	struct principal who = *rq->caller;
	who.read_only = false; /* what it may change, it may read about */
	unsigned any = 1u << NOUN_SNAPSHOT | 1u << NOUN_WORKSPACE | 1u << NOUN_SANDBOX;
	int r = access_find_any(rq->ctx, &who, any, true, object, &m, err);
	if (r < 0)
		return r;
	memcpy(x->q.object, m.id, sizeof(x->q.object));
	return 0;
}

int api_audit(struct request *rq, struct reply *rp, struct err *err)
{
	struct audit_export x = { .sd = rq->ctx };
	struct audit_row *rows;
	size_t n, max = 0;
	int64_t before = 0, limit = 100;
	const char *format = request_query(rq, "format");
	int r = parse_seq(rq, "cursor", &before, err);
	if (r >= 0)
		r = parse_seq(rq, "limit", &limit, err);
	if (r >= 0 && limit > AUDIT_PAGE)
		r = request_bad_field(rq, "limit", err, "1 to %d", AUDIT_PAGE);
	if (r >= 0 && format && strcmp(format, "ndjson") != 0 && strcmp(format, "json") != 0)
		r = request_bad_field(rq, "format", err, "json or ndjson");
	if (r >= 0)
		r = audit_filters(rq, &x.q, err);
	if (r >= 0)
		r = audit_whose(rq, &x, err);
	if (r < 0)
		return r;
	if (format && strcmp(format, "ndjson") == 0) {
		struct audit_export *task = malloc(sizeof(*task));
		if (!task)
			return err_no_memory(err);
		*task = x;
		rp->stream = audit_lines;
		rp->type = "application/x-ndjson";
		rp->task = task;
		rp->task_free = free;
		return 0;
	}
	max = (size_t)limit;
	r = catalog_audit_list(x.sd->catalog, &x.q, before, max + 1, &rows, &n, err);
	if (r < 0)
		return r;
	json_t *items = json_array();
	int bad = 0;
	for (size_t i = 0; i < n && i < max; i++)
		bad |= json_array_append_new(items, audit_json(&rows[i]));
	rp->json = json_pack("{s:o}", "items", items);
	if (n > max) {
		char cursor[24];
		(void)snprintf(cursor, sizeof(cursor), "%lld", (long long)rows[max - 1].seq);
		bad |= json_object_set_new(rp->json, "next", json_string(cursor));
	}
	audit_rows_free(rows, n);
	return rp->json && !bad ? 0 : err_no_memory(err);
}

/* ---- events ---- */

struct listener {
	struct snapd *sd;
	struct principal who;
	uint64_t after;
	struct auth_look looked;
	bool once; /* ends behind the last one that there is */
	struct sse sse;
};

static void listener_free(void *task)
{
	struct listener *l = task;
	sse_done(&l->sse);
	free(l);
}

json_t *api_event(const struct event *e)
{
	return json_pack("{s:s, s:o, s:o, s:s, s:s}", "type", e->type, "time", api_time(e->time_ns),
			 "object", e->object[0] ? json_string(e->object) : json_null(), "owner",
			 e->own.owner, "by", e->by);
}

static int put_event(struct listener *l, const struct event *e, struct err *err)
{
	char id[EVENT_ID_SIZE];
	json_t *j = api_event(e);
	auto_free char *text = j ? json_text(j, JSON_COMPACT) : NULL;
	json_decref(j);
	if (!text)
		return err_no_memory(err);
	event_id(l->sd->events, e->seq, id);
	buf_printf(&l->sse.out, "id: %s\nevent: %s\ndata: %s\n\n", id, e->type, text);
	return 0;
}

/* 0 when the token is good no longer: the client hears why when it comes back. */
static int still_heard(struct listener *l, struct err *err)
{
	if (!auth_look_due(l->sd, &l->who, &l->looked))
		return 1;
	int r = auth_still(l->sd, &l->who, err);
	return r == -EKEYREJECTED ? 0 : r < 0 ? r : 1;
}

/* Says where the stream is, by an id without an event: a client that heard nothing for long comes
 * back to that, too. */
static void put_place(struct listener *l, const char *comment)
{
	char id[EVENT_ID_SIZE];
	event_id(l->sd->events, l->after, id);
	sse_beat(&l->sse, comment, id);
}

/* The next event, if it comes in time, and is for the listener to hear. 1: it was there. */
static int hear(struct listener *l, int wait_ms, struct err *err)
{
	struct event e;
	int r = events_next(l->sd->events, l->after, &e, wait_ms);
	if (r == -EKEYEXPIRED) /* it reads too slowly; so it will be told */
		return err_set(err, r, "events were missed");
	if (r <= 0)
		return r;
	l->after = e.seq;
	if (access_sees(l->sd, &l->who, &e.own, e.workspace))
		r = put_event(l, &e, err);
	return r < 0 ? r : 1;
}

static int events_fill(void *task, struct err *err)
{
	struct listener *l = task;
	for (;;) {
		int ms = l->once ? 0 : sse_patience(&l->sse);
		if (ms == -EPIPE)
			return 0;
		int r = hear(l, l->sse.out.len ? 0 : ms, err);
		if (r == -ESHUTDOWN)
			return 0; /* the client comes back, and hears that numbers begin anew */
		if (r < 0)
			return r;
		int still = still_heard(l, err);
		if (still <= 0)
			return still;
		if (l->sse.out.len > (r > 0 ? EVENTS_AT_ONCE : 0))
			return 1;
		if (r == 0 && l->once)
			return 0;
		if (r == 0 && ms == 0) {
			put_place(l, "still here");
			return 1;
		}
	}
}

static ssize_t events_read(void *task, uint64_t pos, void *buf, size_t n, struct err *err)
{
	struct listener *l = task;
	return sse_pull(&l->sse, events_fill, l, buf, n, err);
}

int api_events(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	const char *since = request_header(rq, "Last-Event-ID");
	const char *follow = request_query(rq, "follow");
	uint64_t after = events_last(sd->events);
	if (request_query(rq, "since"))
		since = request_query(rq, "since");
	bool all = since && strcmp(since, "0") == 0; /* whatever is kept */
	int r = since && !all ? event_id_parse(sd->events, since, &after) : 0;
	if (all)
		after = after > EVENTS_KEPT - 1 ? after - (EVENTS_KEPT - 1) : 0;
	struct event first;
	if (r >= 0 && since && !all)
		r = events_next(sd->events, after, &first, 0);
	if (r == -EINVAL)
		return request_bad_field(rq, "since", err, "it is no event's id");
	if (r == -EKEYEXPIRED)
		return err_set(err, r, "what came behind %s isn't known any longer: list anew",
			       since);
	struct listener *l = calloc(1, sizeof(*l));
	if (!l)
		return err_no_memory(err);
	*l = (struct listener){ .sd = sd,
				.who = *rq->caller,
				.after = after,
				.once = follow && !request_query_true(rq, "follow") };
	sse_begin(&l->sse, rq);
	put_place(l, "bough");
	sse_reply(rp, l, listener_free, events_read);
	return 0;
}

/* ---- jobs ---- */

static bool sees_job(struct snapd *sd, const struct principal *who, const struct job_row *row)
{
	struct meant m;
	unsigned any = 1u << NOUN_SNAPSHOT | 1u << NOUN_WORKSPACE;
	if (!principal_owns(who, row->owner))
		return false;
	if (who->workspace[0] && strcmp(row->object, who->workspace) != 0)
		return false;
	return !who->team[0] ||
	       access_find_any(sd, who, any, false, row->object, &m, NULL) >= 0;
}

static int get_job(struct request *rq, struct job_row *row, struct err *err)
{
	struct snapd *sd = rq->ctx;
	const char *id = rq->params[0];
	int r = catalog_job_get(sd->catalog, id, row, err);
	if (r >= 0 && !sees_job(sd, rq->caller, row)) {
		job_row_done(row);
		r = err_set(err, -ENOENT, "no job \"%.100s\"", id);
	}
	return r;
}

int api_job_list(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct page page;
	bool more = true;
	int r = page_begin_want(&page, rq, err);
	if (r < 0)
		return r;
	json_t *items = json_array();
	while (r >= 0 && more) {
		struct job_row *rows;
		size_t n;
		r = catalog_job_page(sd->catalog, &page.want, &rows, &n, err);
		if (r < 0)
			break;
		for (size_t i = 0; i < n && r >= 0; i++)
			if (sees_job(sd, rq->caller, &rows[i]) &&
			    page_takes(&page, rows[i].created_ns, rows[i].id) &&
			    json_array_append_new(items, job_json(sd->jobs, &rows[i])) < 0)
				r = err_no_memory(err);
		more = n > 0 && page_goes_on(&page, n, rows[n - 1].created_ns, rows[n - 1].id);
		job_rows_free(rows, n);
	}
	return page_reply(rp, &page, items, r, err);
}

int api_job_get(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct job_row row = { 0 };
	int64_t wait_s = 0;
	int r = get_job(rq, &row, err);
	if (r >= 0)
		r = parse_seq(rq, "wait", &wait_s, err);
	if (r >= 0 && wait_s > JOB_WAIT_MAX_S)
		r = request_bad_field(rq, "wait", err, "at most %d", JOB_WAIT_MAX_S);
	if (r >= 0 && wait_s && strcmp(row.state, "running") == 0) {
		jobs_wait(sd->jobs, row.id, (int)wait_s * 1000);
		job_row_done(&row);
		r = get_job(rq, &row, err);
	}
	rp->json = r >= 0 ? job_json(sd->jobs, &row) : NULL;
	job_row_done(&row);
	return r < 0 ? r : rp->json ? 0 : err_no_memory(err);
}

int api_job_cancel(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct job_row row = { 0 };
	int r = get_job(rq, &row, err);
	if (r >= 0)
		r = jobs_cancel(sd->jobs, row.id, err);
	rp->status = 202;
	rp->json = r >= 0 ? job_json(sd->jobs, &row) : NULL;
	job_row_done(&row);
	return r < 0 ? r : rp->json ? 0 : err_no_memory(err);
}
