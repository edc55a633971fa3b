/* What the service does and did: jobs, events, the audit log. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "tools/bough/api.h"
#include "tools/bough/json.h"
#include "tools/bough/list.h"
#include "tools/bough/sse.h"
#include "tools/bough/transfer.h"

enum { WAIT_S = 2 /* of one question how far a job is */ };

/* ---- jobs ---- */

static void job_row(struct table *table, const struct cli *cli, const json_t *v, time_t now)
{
	char age[OUT_AGE_MAX];
	const json_t *p = json_object_get(v, "progress");
	char how[64] = "";
	if (p)
		(void)snprintf(how, sizeof(how), "%s %lld", get_text(p, "what"),
			       (long long)get_int(p, "done"));
	const char *cells[] = { get_text(v, "id"),
				get_text(v, "state"),
				owner_name(cli, v, "owner"),
				out_age(age, get_text(v, "created"), now),
				how,
				get_text(v, "path") };
	table_row(table, cells);
}

int cmd_jobs_ls(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const headings[] = { "ID",       "STATE", "OWNER", ">AGE",
						"PROGRESS", "CALL",  NULL };
	static const struct list_view view = { headings, "id", OWNERS_SHOWN, job_row };
	auto_target t = target_new("/v1/jobs");
	return list_show(cli, &t, &view, err);
}

static int get_job(struct cli *cli, const char *id, unsigned wait_s, json_t **out, struct err *err)
{
	char text[16];
	auto_target t = target_new("/v1/jobs/");
	target_name(&t, id);
	(void)snprintf(text, sizeof(text), "%u", wait_s);
	target_query(&t, "wait", wait_s ? text : NULL);
	return api_call(cli, "GET", &t, NULL, out, NULL, err);
}

int cmd_jobs_show(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *job = NULL;
	int r = get_job(cli, a->operands[0], 0, &job, err);
	if (r < 0 || cli->json)
		return r < 0 ? r : out_json(job, err);
	out_line("id", get_text(job, "id"));
	out_line("state", get_text(job, "state"));
	owners_load(cli);
	out_line("owner", owner_name(cli, job, "owner"));
	out_line("call", get_text(job, "path"));
	out_line("created", get_text(job, "created"));
	out_line("ended", get_text(job, "ended"));
	const json_t *result = json_object_get(job, "result"), *e = json_object_get(job, "error");
	if (*get_text(result, "id"))
		out_line("result", get_text(result, "id"));
	if (e)
		out_line("error", get_text(e, "message"));
	return 0;
}

/* As the call that it does would have failed. */
static int failure(struct cli *cli, const json_t *job, struct err *err)
{
	auto_json json_t *e = json_deep_copy(json_object_get(job, "error"));
	auto_json json_t *doc = json_pack("{s:O*}", "error", e);
	if (e)
		(void)json_object_set(e, "status", json_object_get(job, "status"));
	int r = doc ? api_line_error(cli, doc, err) : 0;
	return r < 0 ? r : err_set(err, -ECANCELED, "it was cancelled");
}

int cmd_jobs_wait(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *job = NULL;
	struct progress p;
	int r;
	progress_begin(&p, cli, "waiting");
	do {
		json_decref(job);
		job = NULL;
		r = get_job(cli, a->operands[0], WAIT_S, &job, err);
		const json_t *at = json_object_get(job, "progress");
		if (at)
			progress_update(&p, (uint64_t)get_int(at, "done"),
					(uint64_t)get_int(at, "total"), get_text(at, "unit"),
					get_text(at, "what"));
	} while (r == 0 && strcmp(get_text(job, "state"), "running") == 0);
	progress_end(&p);
	if (r == 0 && strcmp(get_text(job, "state"), "done") != 0)
		return failure(cli, job, err);
	if (r < 0)
		return r;
	const json_t *result = json_object_get(job, "result");
	transfer_note_lost(cli, json_object_get(result, "lost"), get_text(result, "format"));
	if (cli->json)
		return out_json(json_is_object(result) ? result : job, err);
	if (*get_text(result, "id"))
		printf("%s\n", get_text(result, "id"));
	return 0;
}

int cmd_jobs_cancel(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *body = json_object(), *job = NULL;
	auto_target t = target_new("/v1/jobs/");
	target_name(&t, a->operands[0]);
	target_path(&t, "/cancel");
	int r = body ? api_call(cli, "POST", &t, body, &job, NULL, err) : err_no_memory(err);
	return r < 0 ? r : cli->json ? out_json(job, err) : 0;
}

/* ---- events ---- */

struct events {
	struct cli *cli;
	bool follow;
};

static struct target events_target(void *ctx, const char *id)
{
	const struct events *e = ctx;
	struct target t = target_new("/v1/events");
	target_query(&t, "since", *id ? id : "0");
	target_query(&t, "follow", e->follow ? NULL : "false");
	return t;
}

static int print_event(void *ctx, const char *data, struct err *err)
{
	const struct events *e = ctx;
	auto_json json_t *v = json_loads(data, 0, NULL);
	if (!v)
		return err_set(err, -EPROTO, "boughd sent what isn't an event");
	if (e->cli->json) {
		(void)puts(data);
	} else {
		printf("%.19sZ  %-22s ", get_text(v, "time"), get_text(v, "type"));
		out_clean(stdout, list_text(v, "object"));
		printf("%*s", *get_text(v, "object") ? 2 : 14, ""); /* an id is 13 long */
		out_clean(stdout, owner_name(e->cli, v, "by"));
		printf("\n");
	}
	return fflush(stdout) != 0 ? err_sys(err, -errno, "write") : 1;
}

int cmd_events(struct cli *cli, const struct args *a, struct err *err)
{
	struct events e = { .cli = cli, .follow = args_get(a, "follow") != NULL };
	struct sse s = { .cli = cli, .target = events_target, .event = print_event, .ctx = &e };
	if (!cli->json)
		owners_load(cli);
	int r = sse_read(&s, e.follow, err);
	while (r == -ENOENT && e.follow && *s.id) { /* another boughd's begin anew */
		*s.id = 0;
		r = sse_read(&s, true, err);
	}
	return r;
}

/* ---- audit ---- */

static void audit_row(struct table *table, const struct cli *cli, const json_t *v, time_t now)
{
	char when[32], status[16];
	(void)snprintf(when, sizeof(when), "%.19sZ", get_text(v, "time"));
	(void)snprintf(status, sizeof(status), "%lld", (long long)get_int(v, "status"));
	const char *user = get_text(v, "user");
	const char *cells[] = { when,
				*user ? user : get_text(v, "owner"),
				get_text(v, "from"),
				list_text(v, "method"),
				get_text(v, "path"),
				list_text(v, "object"),
				status };
	table_row(table, cells);
}

static int export_lines(struct cli *cli, struct target *t, struct err *err)
{
	struct http *h = NULL;
	const char *text;
	size_t len;
	int r = api_stream(cli, t, "application/x-ndjson", &h, err);
	if (r < 0)
		return r;
	while ((r = http_read_line(h, API_LINE_MAX, &text, &len, err)) > 0)
		if (fwrite(text, 1, len, stdout) != len || fputc('\n', stdout) == EOF) {
			r = err_sys(err, -errno, "write");
			break;
		}
	if (r < 0)
		r = api_stream_error(cli, h, r, err);
	if (r == 0 && fflush(stdout) != 0)
		r = err_sys(err, -errno, "write");
	http_free(h);
	return r;
}

int cmd_audit(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const headings[] = { "TIME", "OWNER",  "FROM",   "CALL",
						"PATH", "OBJECT", "STATUS", NULL };
	static const struct list_view view = { headings, "path", OWNERS_NONE, audit_row };
	static const char *const filters[] = { "owner", "token", "method", "since", "until" };
	auto_target t = target_new("/v1/audit");
	target_query(&t, "object", a->n ? a->operands[0] : NULL);
	for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++)
		target_query(&t, filters[i], args_get(a, filters[i]));
	target_query(&t, "failed", args_get(a, "failed") ? "1" : NULL);
	if (args_get(a, "export")) {
		target_query(&t, "format", "ndjson");
		return export_lines(cli, &t, err);
	}
	target_query(&t, "limit", args_get(a, "limit"));
	return list_show(cli, &t, &view, err);
}
