/* Processes in sandboxes: started, looked at, talked to. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/json.h"
#include "snapd/access.h"
#include "snapd/api_sandbox.h"
#include "snapd/intents.h"

enum {
	TIMEOUT_MAX_MS = 7 * 24 * 3600 * 1000,
	WAIT_MAX_S = 60,
	SIDE_MAX = 10000, /* of a terminal */
	INPUT_BLOCK = 64 * 1024,
	INPUT_LOOK_MS = 1000,
};

/* ---- JSON ---- */

json_t *api_exec(const struct exec_row *row)
{
	json_t *spec = row->spec ? json_loads(row->spec, 0, NULL) : NULL;
	json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "id", row->id,
			      "sandbox", row->sandbox, "by", row->by, "status",
			      exec_status_names[row->status], "exit_code",
			      row->exit_code < 0 ? json_null() : json_integer(row->exit_code),
			      "reason", row->reason[0] ? json_string(row->reason) : json_null(),
			      "created", api_time(row->created_ns), "started",
			      row->started_ns ? api_time(row->started_ns) : json_null(), "ended",
			      row->ended_ns ? api_time(row->ended_ns) : json_null());
	if (j && json_is_object(spec) && json_object_update_missing(j, spec) < 0) {
		json_decref(j);
		j = NULL;
	}
	json_decref(spec);
	return j;
}

/* How much there is of its output, and of its input. */
static int add_output(json_t *j, const struct snapd *sd, const char *id, const char *key)
{
	static const char *const names[] = { "stdout", "stderr" };
	struct output_status st;
	char io[PATH_SIZE];
	int bad = 0;
	sandbox_io_path(sd, id, io);
	if (output_status(io, key, &st, NULL) < 0)
		return 0; /* none is kept */
	for (int i = 0; i < 2; i++)
		bad |= json_object_set_new(
			j, names[i],
			json_pack("{s:I, s:I, s:b}", "first", (json_int_t)st.stream[i].first, "end",
				  (json_int_t)st.stream[i].end, "closed", st.stream[i].closed));
	bad |= json_object_set_new(j, "stdin_offset", json_integer((json_int_t)st.in));
	return bad;
}

/* Its own process, as an exec is shown. */
static json_t *main_json(struct snapd *sd, const char *id)
{
	auto_sandbox_row row = { 0 };
	struct exec_row as = { .exit_code = -1, .status = EXEC_CREATED };
	struct process_end end;
	if (catalog_sandbox_get(sd->catalog, id, &row, NULL) < 0)
		return NULL;
	(void)snprintf(as.id, sizeof(as.id), "%s", SANDBOX_MAIN);
	memcpy(as.sandbox, row.id, sizeof(as.sandbox));
	memcpy(as.by, row.own.owner, sizeof(as.by));
	as.created_ns = row.created_ns;
	as.started_ns = row.started_ns;
	if (row.started_ns && sandbox_ended(sd, id, SANDBOX_MAIN, &end)) {
		as.status = EXEC_EXITED;
		as.exit_code = end.code;
		as.ended_ns = end.when_ns;
		memcpy(as.reason, end.reason, sizeof(as.reason));
	} else if (row.started_ns) {
		as.status = EXEC_RUNNING;
	}
	auto_spec spec = { 0 };
	json_t *more =
		spec_read(&spec, row.spec, NULL) < 0
			? json_object()
			: json_pack("{s:o, s:o, s:s?, s:s?, s:b, s:b, s:i}", "command",
				    spec.command ? json_deep_copy(spec.command) : json_null(),
				    "env", spec.env ? json_deep_copy(spec.env) : json_array(),
				    "cwd", spec.cwd, "user", spec.user, "tty", spec.tty, "stdin",
				    spec.in, "timeout_ms", 0);
	as.spec = more ? json_text(more, JSON_COMPACT) : NULL;
	json_decref(more);
	json_t *j = api_exec(&as);
	free(as.spec);
	return j;
}

int api_exec_find(struct request *rq, struct exec_row *row, const char **key, struct err *err)
{
	struct snapd *sd = rq->ctx;
	const char *id = rq->params[1];
	*row = (struct exec_row){ 0 };
	*key = SANDBOX_MAIN;
	if (strcmp(id, SANDBOX_MAIN) == 0)
		return 0;
	int r = id_is(id, "ex") ? catalog_exec_get(sd->catalog, id, row, NULL) : -ENOENT;
	if (r >= 0 && strcmp(row->sandbox, rq->params[0]) != 0) {
		exec_row_done(row);
		r = -ENOENT;
	}
	*key = row->id;
	return r < 0 ? err_set(err, r, "no process \"%.60s\" of that sandbox is known", id) : 0;
}

static int reply_exec(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	const char *key;
	auto_exec_row row = { 0 };
	int r = api_exec_find(rq, &row, &key, err);
	if (r < 0)
		return r;
	rp->json = row.id[0] ? api_exec(&row) : main_json(sd, rq->params[0]);
	return rp->json && add_output(rp->json, sd, rq->params[0], key) == 0 ? 0
									     : err_no_memory(err);
}

/* ---- reading ---- */

int api_exec_list(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct exec_row *rows;
	struct page page;
	size_t n;
	int r = page_begin(&page, rq, err);
	if (r >= 0)
		r = catalog_exec_list(sd->catalog, rq->params[0], &rows, &n, err);
	if (r < 0)
		return r;
	json_t *items = json_array();
	for (size_t i = 0; i < n && r >= 0; i++)
		if (page_takes(&page, rows[i].created_ns, rows[i].id) &&
		    json_array_append_new(items, api_exec(&rows[i])) < 0)
			r = err_no_memory(err);
	exec_rows_free(rows, n);
	rp->json = page_end(&page, items);
	return rp->json ? r : err_no_memory(err);
}

/* `wait`: until it has ended, at most so many seconds. */
int api_exec_get(struct request *rq, struct reply *rp, struct err *err)
{
	const char *wait = request_query(rq, "wait"), *key;
	char *end;
	long s = wait ? strtol(wait, &end, 10) : 0;
	if (wait && (!*wait || *end || s < 0 || s > WAIT_MAX_S))
		return request_bad_field(rq, "wait", err, "0 to %d", WAIT_MAX_S);
	auto_exec_row row = { 0 };
	int r = api_exec_find(rq, &row, &key, err);
	uint64_t until = clock_ms() + (uint64_t)s * 1000, seen = 0;
	struct process_end how;
	while (r >= 0 && s && !sandbox_ended(rq->ctx, rq->params[0], key, &how)) {
		uint64_t now = clock_ms();
		if (now >= until)
			break;
		sandbox_wait_any(rq->ctx, &seen, (int)(until - now));
	}
	return r < 0 ? r : reply_exec(rq, rp, err);
}

/* ---- starting ---- */

static int check(struct request *rq, struct exec_new *n, struct err *err)
{
	struct err why = { 0 };
	n->command = json_object_get(rq->body, "command");
	n->env = json_object_get(rq->body, "env");
	if (!json_is_array(n->env))
		n->env = NULL;
	if (spec_words_check(n->command, 1, &why) < 0)
		return request_bad_field(rq, "command", err, "%s", why.text);
	if (spec_env_check(n->env, &why) < 0)
		return request_bad_field(rq, "env", err, "%s", why.text);
	n->cwd = request_string(rq, "cwd");
	if (n->cwd && n->cwd[0] != '/')
		return request_bad_field(rq, "cwd", err, "an absolute path");
	n->user = request_string(rq, "user");
	n->tty = request_bool(rq, "tty", false);
	n->in = request_bool(rq, "stdin", false);
	uint64_t ms = request_number(rq, "timeout_ms", 0), w = request_number(rq, "columns", 0),
		 h = request_number(rq, "rows", 0);
	if (ms > TIMEOUT_MAX_MS)
		return request_bad_field(rq, "timeout_ms", err, "at most %d", TIMEOUT_MAX_MS);
	if (w > SIDE_MAX || h > SIDE_MAX)
		return request_bad_field(rq, "columns", err, "at most %d", SIDE_MAX);
	n->timeout_ms = (uint32_t)ms;
	n->columns = (uint32_t)w;
	n->rows = (uint32_t)h;
	return 0;
}

int api_exec_start(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct exec_new n = { 0 };
	auto_lease held = { 0 };
	auto_exec_row row = { 0 };
	int r = check(rq, &n, err);
	if (r >= 0)
		r = lease_take(&held, sd->leases, rq->params[0], LEASE_SHARED, "exec",
			       LEASE_WAIT_MS, err);
	if (r >= 0)
		r = sandbox_exec(sd, rq->params[0], &n, &row, err);
	if (r < 0)
		return r;
	rp->status = 201;
	rp->json = api_exec(&row);
	return rp->json ? 0 : err_no_memory(err);
}

/* ---- signals, sizes ---- */

int api_exec_send(struct request *rq, const char *exec, int sig, struct err *err)
{
	struct signal_note note = { 0 };
	int r = intent_signal(&note, rq->ctx, rq->params[0], exec, err);
	if (r >= 0)
		r = sandbox_signal(rq->ctx, rq->params[0], exec, sig, &note, err);
	/* It may have ended by the first one, which was cut off. */
	return r == -ESTALE && note.again ? 0 : r;
}

int api_exec_signal(struct request *rq, struct reply *rp, struct err *err)
{
	const char *key;
	auto_exec_row row = { 0 };
	int sig = api_signal_parse(request_string(rq, "signal"));
	if (sig < 0)
		return request_bad_field(rq, "signal", err,
					 "a name like TERM, or a number up to 31");
	int r = api_exec_find(rq, &row, &key, err);
	if (r >= 0)
		r = api_exec_send(rq, key, sig, err);
	rp->status = 204;
	return r;
}

int api_exec_resize(struct request *rq, struct reply *rp, struct err *err)
{
	const char *key;
	auto_exec_row row = { 0 };
	uint64_t w = request_number(rq, "columns", 0), h = request_number(rq, "rows", 0);
	if (w < 1 || h < 1 || w > SIDE_MAX || h > SIDE_MAX)
		return request_bad_field(rq, "columns", err, "columns and rows: 1 to %d", SIDE_MAX);
	int r = api_exec_find(rq, &row, &key, err);
	if (r >= 0)
		r = sandbox_resize(rq->ctx, rq->params[0], key, (uint32_t)w, (uint32_t)h, err);
	rp->status = 204;
	return r;
}

/* ---- input ---- */

struct input {
	struct snapd *sd;
	char id[ID_SIZE], key[ID_SIZE];
	struct stream *in;
	uint64_t offset;
	bool last; /* no more follows this body */
};

/* Until the program takes more, or has ended. */
static int await_room(struct input *in, int watch, struct err *err)
{
	struct process_end end;
	char drain[256];
	struct pollfd p[] = { { .fd = watch, .events = POLLIN },
			      { .fd = sandboxes_quit_fd(in->sd->sandboxes), .events = POLLIN } };
	if (poll(p, 2, INPUT_LOOK_MS) > 0 && p[1].revents)
		return err_set(err, -ESHUTDOWN, "boughd ends");
	while (watch >= 0 && read(watch, drain, sizeof(drain)) > 0)
		;
	if (sandbox_ended(in->sd, in->id, in->key, &end))
		return err_set(err, -EPIPE, "the process has ended");
	return 0;
}

static int give(struct input *in, const char *data, size_t n, int *watch, struct err *err)
{
	char io[PATH_SIZE];
	sandbox_io_path(in->sd, in->id, io);
	while (n > 0) {
		int did = sandbox_input(in->sd, in->id, in->key, in->offset, data, n, err);
		if (did == 0) {
			if (*watch < 0)
				*watch = output_watch(io, in->key, err);
			did = *watch < 0 ? *watch : await_room(in, *watch, err);
			if (did >= 0)
				continue;
		}
		if (did < 0)
			return did;
		in->offset += (uint64_t)did;
		data += did;
		n -= (size_t)did;
	}
	return 0;
}

static int input_run(void *task, struct progress *p, unsigned *status, json_t **result,
		     struct err *err)
{
	struct input *in = task;
	auto_free char *buf = malloc(INPUT_BLOCK);
	auto_fd watch = -1;
	ssize_t n = 0;
	int r = buf ? 0 : err_no_memory(err);
	while (r >= 0 && (n = stream_read(in->in, buf, INPUT_BLOCK, -1)) > 0)
		r = give(in, buf, (size_t)n, &watch, err);
	if (r == -ERANGE)
		r = err_set(err, r, "the input hasn't been given up to %llu yet",
			    (unsigned long long)in->offset);
	if (r >= 0 && n < 0)
		r = err_set(err, -EBADMSG, "the input broke off");
	if (r >= 0 && in->last)
		r = sandbox_input_end(in->sd, in->id, in->key, err);
	/* One that reads no more is no mistake of who writes; when all of a sandbox has ended,
	 * nobody is left who would say so. */
	struct process_end end;
	bool closed = r == -EPIPE || ((r == -ECONNREFUSED || r == -ENOENT || r == -ESTALE) &&
				      sandbox_ended(in->sd, in->id, in->key, &end));
	if (r < 0 && !closed)
		return r;
	*result = json_pack("{s:I, s:b}", "offset", (json_int_t)in->offset, "closed",
			    closed || in->last);
	return *result ? 0 : err_no_memory(err);
}

int api_exec_offset(struct request *rq, const char *name, uint64_t *out, struct err *err)
{
	const char *s = request_query(rq, name);
	char *end;
	*out = 0;
	if (!s)
		return 0;
	errno = 0;
	*out = strtoull(s, &end, 10);
	return errno || *s < '0' || *s > '9' || *end
		       ? request_bad_field(rq, name, err, "a whole number from 0 is expected")
		       : 0;
}

int api_exec_stdin(struct request *rq, struct reply *rp, struct err *err)
{
	const char *key;
	auto_exec_row row = { 0 };
	uint64_t offset;
	int r = api_exec_offset(rq, "offset", &offset, err);
	if (r >= 0)
		r = api_exec_find(rq, &row, &key, err);
	if (r < 0)
		return r;
	struct input *in = calloc(1, sizeof(*in));
	if (!in)
		return err_no_memory(err);
	*in = (struct input){ .sd = rq->ctx,
			      .in = rq->upload,
			      .offset = offset,
			      .last = request_query_true(rq, "last") };
	(void)snprintf(in->id, sizeof(in->id), "%s", rq->params[0]);
	(void)snprintf(in->key, sizeof(in->key), "%s", key);
	rp->job = input_run;
	rp->task = in;
	rp->task_free = free;
	return 0;
}
