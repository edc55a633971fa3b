/* Sandboxes: what there is, and what is done to them. */
#include "snapd/api_sandbox.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "snapd/access.h"
#include "snapd/intents.h"

enum { FORK_SANDBOXES_MAX = 100, GRACE_MAX_MS = 600000 };

/* ---- JSON ---- */

static json_t *optional(const char *s)
{
	return s && *s ? json_string(s) : json_null();
}

static json_t *optional_time(int64_t ns)
{
	return ns ? api_time(ns) : json_null();
}

static json_t *list_or_empty(const json_t *list)
{
	return list ? json_incref((json_t *)(uintptr_t)list) : json_array();
}

static json_t *attached_json(struct snapd *sd, const struct attached_row *row)
{
	auto_ws_row ws = { 0 };
	bool there = catalog_ws_get(sd->catalog, row->workspace, &ws, NULL) >= 0;
	return json_pack("{s:s, s:o, s:s, s:b, s:b, s:b}", "workspace", row->workspace, "name",
			 there ? json_string(ws.name) : json_null(), "target", row->target,
			 "read_only", row->read_only, "exclusive", row->exclusive, "own", row->own);
}

static json_t *all_attached(struct snapd *sd, const char *id)
{
	struct attached_row *rows = NULL;
	size_t n = 0;
	json_t *list = json_array();
	if (catalog_attached(sd->catalog, id, NULL, &rows, &n, NULL) < 0)
		return list;
	for (size_t i = 0; i < n; i++)
		(void)json_array_append_new(list, attached_json(sd, &rows[i]));
	free(rows);
	return list;
}

static json_t *limits_json(const struct sandbox_spec *s)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "cpu_milli",
			 (json_int_t)s->limits.cpu_milli, "memory_bytes",
			 (json_int_t)s->limits.memory, "pids", (json_int_t)s->limits.pids,
			 "shm_bytes", (json_int_t)s->limits.shm, "disk_bytes", (json_int_t)s->disk,
			 "inodes", (json_int_t)s->inodes);
}

static int add_spec(json_t *j, const struct sandbox_spec *s)
{
	json_t *more = json_pack(
		"{s:s, s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:b, s:b, s:b, s:o}",
		"image", s->image, "snapshot", optional(s->snapshot), "runtime", s->runtime,
		"hostname", s->hostname, "user", optional(s->user), "cwd", optional(s->cwd),
		"command", s->command ? json_incref((json_t *)(uintptr_t)s->command) : json_null(),
		"env", list_or_empty(s->env), "secrets", list_or_empty(s->secrets), "secret_env",
		list_or_empty(s->secret_env), "net", s->net_host ? "host" : "none", "tty", s->tty,
		"stdin", s->in, "auto_remove", s->auto_remove, "limits", limits_json(s));
	int bad = !more || json_object_update(j, more) < 0;
	json_decref(more);
	return bad;
}

json_t *api_sandbox(struct snapd *sd, const struct sandbox_row *row)
{
	auto_spec spec = { 0 };
	bool sound = spec_read(&spec, row->spec, NULL) >= 0;
	json_t *labels = row->labels ? json_loads(row->labels, 0, NULL) : NULL;
	json_t *j = json_pack(
		"{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "id",
		row->id, "name", row->name, "type", "sandbox", "status",
		sandbox_status_names[row->status], "created", api_time(row->created_ns), "started",
		optional_time(row->started_ns), "ended", optional_time(row->ended_ns),
		"last_activity", api_time(row->active_ns), "exit_code",
		row->exit_code < 0 ? json_null() : json_integer(row->exit_code), "reason",
		optional(row->reason), "root", optional(row->root), "policy", optional(row->policy),
		"labels", labels ? labels : json_object(), "description",
		optional(row->description), "workspaces", all_attached(sd, row->id));
	if (!j)
		return NULL;
	int bad = sound ? add_spec(j, &spec) : 0;
	if (row->pid)
		bad |= json_object_set_new(j, "pid", json_integer(row->pid));
	if (row->problem[0])
		bad |= json_object_set_new(j, "error", json_string(row->problem));
	bad |= api_own_add(sd, j, &row->own);
	if (bad) {
		json_decref(j);
		return NULL;
	}
	return j;
}

/* Which of its limits nobody enforces: looked up for one, not for each of a list. */
static int add_unenforced(json_t *j)
{
	char text[128];
	const char *runtime = json_string_value(json_object_get(j, "runtime"));
	const struct runtime_kind *kind = runtime ? runtime_find(runtime) : NULL;
	json_t *list = json_array();
	text[0] = '\0';
	if (kind)
		box_unenforced(kind, text, sizeof(text));
	for (char *save = NULL, *w = strtok_r(text, ", ", &save); w;
	     w = strtok_r(NULL, ", ", &save))
		(void)json_array_append_new(list, json_string(w));
	return json_object_set_new(j, "unenforced", list);
}

static int reply_sandbox(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_sandbox_row row = { 0 };
	int r = catalog_sandbox_get(sd->catalog, rq->params[0], &row, err);
	if (r < 0)
		return r;
	rp->json = api_sandbox(sd, &row);
	return rp->json && add_unenforced(rp->json) >= 0 ? 0 : err_no_memory(err);
}

/* ---- reading ---- */

/* -1: any; one that there isn't has no sandboxes. */
static int asked_status(const struct request *rq)
{
	const char *status = request_query(rq, "status");
	int i = 0;
	while (status && i <= SANDBOX_FAILED && strcmp(status, sandbox_status_names[i]) != 0)
		i++;
	return status ? i : -1;
}

int api_sandbox_list(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct page page;
	bool more = true;
	int r = page_begin_want(&page, rq, err);
	if (r < 0)
		return r;
	json_t *items = json_array();
	while (r >= 0 && more) {
		struct sandbox_row *rows;
		size_t n;
		r = catalog_sandbox_page(sd->catalog, asked_status(rq), &page.want, &rows, &n, err);
		if (r < 0)
			break;
		for (size_t i = 0; i < n && r >= 0; i++)
			if (access_sees(sd, rq->caller, &rows[i].own, "") &&
			    page_has_labels(rq, rows[i].labels) &&
			    page_takes(&page, rows[i].created_ns, rows[i].id) &&
			    json_array_append_new(items, api_sandbox(sd, &rows[i])) < 0)
				r = err_no_memory(err);
		more = n > 0 && page_goes_on(&page, n, rows[n - 1].created_ns, rows[n - 1].id);
		sandbox_rows_free(rows, n);
	}
	return page_reply(rp, &page, items, r, err);
}

int api_sandbox_get(struct request *rq, struct reply *rp, struct err *err)
{
	return reply_sandbox(rq, rp, err);
}

int api_sandbox_stats(struct request *rq, struct reply *rp, struct err *err)
{
	struct sandbox_figures f;
	int r = sandbox_figures(rq->ctx, rq->params[0], &f, err);
	if (r < 0)
		return r;
	rp->json = json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "running",
			     f.running, "cpu_ns", (json_int_t)f.shim.cpu_ns, "memory_bytes",
			     (json_int_t)f.shim.memory, "memory_peak_bytes",
			     (json_int_t)f.shim.memory_peak, "memory_limit_bytes",
			     (json_int_t)f.shim.memory_limit, "pids", (json_int_t)f.shim.pids,
			     "pids_limit", (json_int_t)f.shim.pids_limit, "oom_kills",
			     (json_int_t)f.shim.oom_kills, "disk_bytes", (json_int_t)f.disk_bytes,
			     "inodes", (json_int_t)f.inodes);
	return rp->json ? 0 : err_no_memory(err);
}

/* ---- changing ---- */

static int lease(struct request *rq, struct lease *out, const char *what, struct err *err)
{
	struct snapd *sd = rq->ctx;
	return lease_take(out, sd->leases, rq->params[0], LEASE_EXCLUSIVE, what, LEASE_WAIT_MS,
			  err);
}

int api_sandbox_patch(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_lease held = { 0 };
	auto_sandbox_row row = { 0 };
	auto_free char *labels = NULL;
	const char *name = request_string(rq, "name");
	int owned = 0, r = lease(rq, &held, "change", err);
	if (r >= 0)
		r = catalog_sandbox_get(sd->catalog, rq->params[0], &row, err);
	if (r >= 0 && name && strcmp(name, row.name) != 0)
		r = api_sandbox_name(rq, "name", name, err);
	if (r >= 0)
		r = api_labels_merge(rq, row.labels, &labels, err);
	if (r >= 0)
		r = owned = api_own_take(rq, &row.own, err);
	const struct sandbox_patch p = { .name = name,
					 .labels = labels,
					 .description = request_string(rq, "description"),
					 .own = owned > 0 ? &row.own : NULL };
	if (r >= 0)
		r = catalog_sandbox_patch(sd->catalog, row.id, &p, err);
	return r < 0 ? r : reply_sandbox(rq, rp, err);
}

int api_sandbox_delete(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_lease held = { 0 };
	auto_sandbox_row row = { 0 };
	auto_spec spec = { 0 };
	int r = lease(rq, &held, "rm", err);
	if (r >= 0)
		r = catalog_sandbox_get(sd->catalog, rq->params[0], &row, err);
	bool own = request_query_true(rq, "workspaces") ||
		   (r >= 0 && spec_read(&spec, row.spec, NULL) >= 0 && spec.auto_remove);
	if (r >= 0)
		r = sandbox_remove(sd, row.id,
				   (request_query_true(rq, "force") ? SANDBOX_FORCE : 0) |
					   (own ? SANDBOX_OWN : 0),
				   err);
	rp->status = 204;
	return r;
}

int api_sandbox_start(struct request *rq, struct reply *rp, struct err *err)
{
	auto_lease held = { 0 };
	auto_secrets secrets = { 0 };
	int r = api_sandbox_secrets(rq, &secrets, err);
	if (r >= 0)
		r = lease(rq, &held, "start", err);
	if (r >= 0)
		r = intent_box(rq->ctx, rq->params[0], BOX_START, NULL, err);
	if (r >= 0)
		r = sandbox_start(rq->ctx, rq->params[0], &secrets, err);
	return r < 0 ? r : reply_sandbox(rq, rp, err);
}

/* The lease is held. A repeated call whose first had its effect changes nothing, whoever has
 * started it again since. */
static int end_it(struct request *rq, struct reply *rp, int grace_ms, struct err *err)
{
	const char *id = rq->params[0];
	uint64_t number;
	if (intent_box_stopped(rq->ctx, id))
		return reply_sandbox(rq, rp, err);
	int r = intent_box(rq->ctx, id, BOX_STOP, &number, err);
	if (r >= 0)
		r = sandbox_stop(rq->ctx, id, grace_ms, number, err);
	if (r == -ESTALE && intent_box_stopped(rq->ctx, id)) /* it ended by itself just now */
		r = 0;
	return r < 0 ? r : reply_sandbox(rq, rp, err);
}

int api_grace(struct request *rq, struct err *err)
{
	uint64_t grace = request_number(rq, "grace_ms", SANDBOX_GRACE_MS);
	if (grace > GRACE_MAX_MS)
		return request_bad_field(rq, "grace_ms", err, "at most %d", GRACE_MAX_MS);
	return (int)grace;
}

int api_sandbox_stop(struct request *rq, struct reply *rp, struct err *err)
{
	auto_lease held = { 0 };
	int grace = api_grace(rq, err);
	int r = grace < 0 ? grace : lease(rq, &held, "stop", err);
	return r < 0 ? r : end_it(rq, rp, grace, err);
}

int api_signal_parse(const char *text)
{
	char *end;
	if (!text)
		return SIGKILL;
	if (strncmp(text, "SIG", 3) == 0)
		text += 3;
	for (int sig = 1; sig < 32; sig++) {
		const char *name = sigabbrev_np(sig);
		if (name && strcmp(name, text) == 0)
			return sig;
	}
	long n = strtol(text, &end, 10);
	return !*text || *end || n < 1 || n > 31 ? -EINVAL : (int)n;
}

int api_sandbox_kill(struct request *rq, struct reply *rp, struct err *err)
{
	auto_lease held = { 0 };
	int sig = api_signal_parse(request_string(rq, "signal"));
	if (sig < 0)
		return request_bad_field(rq, "signal", err,
					 "a name like TERM, or a number up to 31");
	int r = lease(rq, &held, "kill", err);
	if (r >= 0 && sig == SIGKILL)
		return end_it(rq, rp, 0, err);
	if (r >= 0)
		r = api_exec_send(rq, SANDBOX_MAIN, sig, err);
	return r < 0 ? r : reply_sandbox(rq, rp, err);
}

int api_sandbox_pause(struct request *rq, struct reply *rp, struct err *err)
{
	auto_lease held = { 0 };
	int r = lease(rq, &held, "pause", err);
	if (r >= 0)
		r = intent_box(rq->ctx, rq->params[0], BOX_PAUSE, NULL, err);
	if (r >= 0)
		r = sandbox_pause(rq->ctx, rq->params[0], err);
	return r < 0 ? r : reply_sandbox(rq, rp, err);
}

int api_sandbox_resume(struct request *rq, struct reply *rp, struct err *err)
{
	auto_lease held = { 0 };
	int r = lease(rq, &held, "resume", err);
	if (r >= 0)
		r = intent_box(rq->ctx, rq->params[0], BOX_RESUME, NULL, err);
	if (r >= 0)
		r = sandbox_resume(rq->ctx, rq->params[0], err);
	return r < 0 ? r : reply_sandbox(rq, rp, err);
}

/* ---- workspaces ---- */

int api_sandbox_attach(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_lease held = { 0 };
	auto_sandbox_row sb = { 0 };
	auto_spec spec = { 0 };
	struct attached_row row;
	int r = lease(rq, &held, "attach", err);
	if (r >= 0)
		r = catalog_sandbox_get(sd->catalog, rq->params[0], &sb, err);
	if (r >= 0)
		r = spec_read(&spec, sb.spec, err);
	if (r >= 0)
		r = api_sandbox_attachment(rq, rq->body, spec.host_image, &row, err);
	if (r < 0)
		return r;
	memcpy(row.sandbox, rq->params[0], ID_SIZE);
	r = intent_attach(sd, &row, err);
	if (r >= 0)
		r = sandbox_attach(rq->ctx, rq->params[0], &row, err);
	rp->status = 201;
	return r < 0 ? r : reply_sandbox(rq, rp, err);
}

/* By a workspace's id, name, or "OWNER/NAME"; of one that its owner shows no longer, or that is
 * gone, by its id. Where it is at several targets, one is to be said. */
static int find_target(struct request *rq, char out[TARGET_SIZE], struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct meant found = { 0 };
	struct attached_row *rows = NULL;
	size_t n = 0, hits = 0;
	const char *target = request_query(rq, "target"), *id = rq->params[1];
	struct err why = { 0 };
	int seen = access_find(sd, rq->caller, NOUN_WORKSPACE, false, id, &found, &why);
	if (seen >= 0)
		id = found.id;
	int r = catalog_attached(sd->catalog, rq->params[0], NULL, &rows, &n, err);
	for (size_t i = 0; i < n && r >= 0; i++) {
		if (strcmp(rows[i].workspace, id) != 0 ||
		    (target && strcmp(rows[i].target, target) != 0))
			continue;
		(void)snprintf(out, TARGET_SIZE, "%s", rows[i].target);
		hits++;
	}
	free(rows);
	if (r < 0)
		return r;
	if (hits > 1)
		return err_set(err, -ENOTUNIQ,
			       "it is attached at %zu places; target (--target) says which", hits);
	if (!hits && seen < 0)
		return err_set(err, seen, "%s", why.text);
	return hits ? 0 : err_set(err, -ENOENT, "workspace %s isn't attached there", rq->params[1]);
}

int api_sandbox_detach(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_lease held = { 0 };
	auto_sandbox_row row = { 0 };
	char target[TARGET_SIZE] = "";
	int r = lease(rq, &held, "detach", err);
	if (r >= 0)
		r = find_target(rq, target, err);
	if (r >= 0)
		r = sandbox_detach(sd, rq->params[0], target, request_query_true(rq, "force"), err);
	if (r >= 0)
		r = catalog_sandbox_get(sd->catalog, rq->params[0], &row, err);
	if (r < 0)
		return r;
	/* The workspace's owner needn't be one who is shown the sandbox. */
	if (access_sees(sd, rq->caller, &row.own, ""))
		return reply_sandbox(rq, rp, err);
	rp->status = 204;
	return 0;
}

/* ---- saving ---- */

struct saving {
	struct snapd *sd;
	struct lease lease;
	char *name, *message;
};

static void saving_free(void *task)
{
	struct saving *s = task;
	lease_give(&s->lease);
	free(s->name);
	free(s->message);
	free(s);
}

static int saving_run(void *task, struct progress *p, unsigned *status, json_t **result,
		      struct err *err)
{
	struct saving *s = task;
	*status = 201;
	return sandbox_save(s->sd, s->lease.id, s->name, s->message, p, result, err);
}

int api_sandbox_save(struct request *rq, struct reply *rp, struct err *err)
{
	const char *name = request_string(rq, "name"), *message = request_string(rq, "message");
	int r = name ? api_snap_name_free(rq, name, err) : 0;
	if (r < 0)
		return r;
	struct saving *s = calloc(1, sizeof(*s));
	if (!s)
		return err_no_memory(err);
	s->sd = rq->ctx;
	s->name = name ? strdup(name) : NULL;
	s->message = message ? strdup(message) : NULL;
	r = (name && !s->name) || (message && !s->message) ? err_no_memory(err)
							   : lease(rq, &s->lease, "save", err);
	if (r < 0) {
		saving_free(s);
		return r;
	}
	rp->job = saving_run;
	rp->task = s;
	rp->task_free = saving_free;
	return 0;
}

/* ---- forking ---- */

static int start_forks(struct snapd *sd, struct sandbox_row *rows, size_t n, struct err *err)
{
	int r = 0;
	for (size_t i = 0; i < n && r >= 0; i++) {
		auto_lease held = { 0 };
		r = lease_take(&held, sd->leases, rows[i].id, LEASE_EXCLUSIVE, "start",
			       LEASE_WAIT_MS, err);
		if (r >= 0)
			r = sandbox_start(sd, rows[i].id, NULL, err);
	}
	return r;
}

static int fork_names(struct request *rq, const char **names, size_t n, struct err *err)
{
	int r = 0;
	for (size_t i = 0; i < n && r >= 0; i++) {
		names[i] = json_string_value(json_array_get(json_object_get(rq->body, "names"), i));
		for (size_t k = 0; k < i && r >= 0; k++)
			if (strcmp(names[i], names[k]) == 0)
				r = request_bad_field(rq, "names", err, "\"%.100s\" twice",
						      names[i]);
		if (r >= 0)
			r = api_sandbox_name(rq, "names", names[i], err);
	}
	return r;
}

static json_t *forks_json(struct snapd *sd, const struct sandbox_row *rows, size_t n,
			  uint64_t pause_ns)
{
	json_t *items = json_array();
	for (size_t i = 0; i < n; i++) {
		auto_sandbox_row now = { 0 };
		if (catalog_sandbox_get(sd->catalog, rows[i].id, &now, NULL) >= 0)
			(void)json_array_append_new(items, api_sandbox(sd, &now));
	}
	return json_pack("{s:o, s:I}", "items", items, "pause_ns", (json_int_t)pause_ns);
}

/* The fork is the caller's own, and stays so when the other is shown to him no longer: it has
 * nothing that he couldn't give to one that he makes. */
static int may_fork(struct request *rq, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_sandbox_row row = { 0 };
	auto_spec spec = { 0 };
	struct attached_row *rows = NULL;
	struct meant found;
	size_t n = 0;
	int r = catalog_sandbox_get(sd->catalog, rq->params[0], &row, err);
	if (r >= 0)
		r = spec_read(&spec, row.spec, err);
	if (r >= 0 && spec.net_host && access_need_admin(rq, NULL) < 0)
		r = err_set(err, -EPERM, "only an admin may give a sandbox this host's network");
	if (r >= 0)
		r = sandbox_judge_image(sd, &spec, rq->caller, err);
	if (r >= 0)
		r = catalog_attached(sd->catalog, row.id, NULL, &rows, &n, err);
	for (size_t i = 0; i < n && r >= 0; i++) {
		if (!rows[i].read_only) /* he gets a copy */
			continue;
		r = access_find(sd, rq->caller, NOUN_WORKSPACE, false, rows[i].workspace, &found,
				err);
		if (r < 0)
			r = err_prefix(err, r, "what is attached at %s", rows[i].target);
	}
	free(rows);
	return r;
}

int api_sandbox_fork(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_lease held = { 0 };
	uint64_t pause_ns = 0;
	size_t n = json_array_size(json_object_get(rq->body, "names"));
	if (n < 1 || n > FORK_SANDBOXES_MAX)
		return request_bad_field(rq, "names", err, "1 to %d", FORK_SANDBOXES_MAX);
	auto_free const char **names = calloc(n, sizeof(*names));
	struct sandbox_row *rows = calloc(n, sizeof(*rows));
	int r = names && rows ? fork_names(rq, names, n, err) : err_no_memory(err);
	if (r >= 0)
		r = lease(rq, &held, "fork", err);
	if (r >= 0)
		r = may_fork(rq, err);
	if (r >= 0)
		r = sandbox_fork(sd, rq->params[0], names, n, rows, &pause_ns, err);
	if (r < 0) {
		free(rows);
		return r;
	}
	lease_give(&held);
	if (request_bool(rq, "start", false))
		r = start_forks(sd, rows, n, err); /* those that are made stay, and say why */
	rp->json = r < 0 ? NULL : forks_json(sd, rows, n, pause_ns);
	rp->status = 201;
	sandbox_rows_free(rows, n);
	return r < 0 ? r : rp->json ? 0 : err_no_memory(err);
}

int api_sandbox_restore(struct request *rq, struct reply *rp, struct err *err)
{
	auto_lease held = { 0 };
	int r = lease(rq, &held, "restore", err);
	if (r >= 0)
		r = sandbox_restore(rq->ctx, rq->params[0], request_string(rq, "snapshot"),
				    request_bool(rq, "live", false), err);
	return r < 0 ? r : reply_sandbox(rq, rp, err);
}
