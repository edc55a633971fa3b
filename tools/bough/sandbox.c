/* Sandboxes: ps, inspect, stats, start, stop, pause, resume, kill, attach, detach. */
#include "tools/bough/sandbox.h"

#include <stdio.h>
#include <string.h>
#include "fs/base/cleanup.h"
#include "tools/bough/json.h"
#include "tools/bough/list.h"
#include "tools/bough/ws.h"

enum { GRACE_MAX_MS = 600000 };

struct target target_sandbox(const char *name, const char *rest)
{
	struct target t = target_new("/v1/sandboxes/");
	target_name(&t, name);
	target_path(&t, rest);
	return t;
}

bool sandbox_is(struct cli *cli, const char *name)
{
	auto_target t = target_sandbox(name, "");
	return strncmp(name, "ws_", 3) != 0 && strncmp(name, "sn_", 3) != 0 && api_exists(cli, &t);
}

int sandbox_instead(struct cli *cli, const char *name, json_t **out)
{
	char *detail = steal_ptr(&cli->detail);
	auto_target t = target_sandbox(name, "");
	int r = api_call(cli, "GET", &t, NULL, out, NULL, NULL);
	if (r < 0) { /* what was asked for first is the one to tell of */
		free(cli->detail);
		cli->detail = detail;
	} else {
		free(detail);
	}
	return r;
}

int sandbox_set_keeping(json_t *body, const struct args *a, struct err *err)
{
	int r = ws_set_labels(body, "labels", a, err);
	return r < 0 ? r : ws_set_keeping(body, a, err);
}

/* ---- what there is ---- */

static const char *command_text(const json_t *sb, char *out, size_t size)
{
	size_t i, len = 0;
	json_t *word;
	out[0] = '\0';
	json_array_foreach(json_object_get(sb, "command"), i, word) {
		const char *s = json_string_value(word);
		int n = snprintf(out + len, size - len, "%s%s", i ? " " : "", s ? s : "");
		if (n < 0 || (size_t)n >= size - len)
			break; /* so much says enough */
		len += (size_t)n;
	}
	return out;
}

static const char *status_text(const json_t *sb, char *out, size_t size)
{
	const char *status = get_text(sb, "status");
	if (json_is_integer(json_object_get(sb, "exit_code")))
		(void)snprintf(out, size, "%s (%lld)", status, (long long)get_int(sb, "exit_code"));
	else
		(void)snprintf(out, size, "%s", status);
	return out;
}

static void ps_row(struct table *table, const struct cli *cli, const json_t *sb, time_t now)
{
	char status[40], age[OUT_AGE_MAX], command[64], names[256] = "";
	size_t i;
	json_t *ws;
	json_array_foreach(json_object_get(sb, "workspaces"), i, ws) {
		size_t len = strlen(names);
		(void)snprintf(names + len, sizeof(names) - len, "%s%s", len ? "," : "",
			       get_text(ws, "name"));
	}
	const char *cells[] = { owner_name(cli, sb, "owner"),
				get_text(sb, "name"),
				status_text(sb, status, sizeof(status)),
				get_text(sb, "image"),
				get_text(sb, "runtime"),
				out_age(age, get_text(sb, "created"), now),
				names,
				command_text(sb, command, sizeof(command)) };
	table_row(table, cells);
}

int cmd_ps(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const headings[] = { "OWNER",      "NAME",    "STATUS",
						"IMAGE",      "RUNTIME", ">AGE",
						"WORKSPACES", "COMMAND", NULL };
	static const struct list_view view = { headings, "name", OWNERS_FIRST, ps_row };
	auto_target t = target_new("/v1/sandboxes");
	int r = list_filter(&t, a, err);
	target_query(&t, "status", args_get(a, "running") ? "running" : NULL);
	return r < 0 ? r : list_show(cli, &t, &view, err);
}

int cmd_inspect(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *sb = NULL, *execs = NULL;
	auto_target t = target_sandbox(a->operands[0], ""),
		    e = target_sandbox(a->operands[0], "/exec");
	int r = api_call(cli, "GET", &t, NULL, &sb, NULL, err);
	if (r == 0)
		r = api_call(cli, "GET", &e, NULL, &execs, NULL, err);
	if (r < 0)
		return r;
	(void)json_object_set(sb, "execs", json_object_get(execs, "items"));
	return out_json(sb, err);
}

static void figure(const char *what, const char *value)
{
	printf("%-10s %s\n", what, value);
}

/* Of one that runs; what the others took is gone with their cgroups. */
static void stats_live(const struct cli *cli, const json_t *doc)
{
	char used[OUT_SIZE_MAX], most[OUT_SIZE_MAX], peak[OUT_SIZE_MAX], text[128];
	figure("cpu", out_duration(text, get_int(doc, "cpu_ns")));
	(void)snprintf(text, sizeof(text), "%s of %s, at most %s so far",
		       out_size(used, get_int(doc, "memory_bytes"), cli->bytes),
		       out_size(most, get_int(doc, "memory_limit_bytes"), cli->bytes),
		       out_size(peak, get_int(doc, "memory_peak_bytes"), cli->bytes));
	figure("memory", text);
	(void)snprintf(text, sizeof(text), "%lld of %lld", (long long)get_int(doc, "pids"),
		       (long long)get_int(doc, "pids_limit"));
	figure("processes", text);
	(void)snprintf(text, sizeof(text), "%lld", (long long)get_int(doc, "oom_kills"));
	figure("oom kills", text);
}

int cmd_stats_of(struct cli *cli, const struct args *a, struct err *err)
{
	char used[OUT_SIZE_MAX], text[128];
	auto_json json_t *doc = NULL;
	auto_target t = target_sandbox(a->operands[0], "/stats");
	int r = api_call(cli, "GET", &t, NULL, &doc, NULL, err);
	if (r < 0 || cli->json)
		return r < 0 ? r : out_json(doc, err);
	figure("running", get_true(doc, "running") ? "yes" : "no");
	if (get_true(doc, "running"))
		stats_live(cli, doc);
	(void)snprintf(text, sizeof(text), "%s in %lld files",
		       out_size(used, get_int(doc, "disk_bytes"), cli->bytes),
		       (long long)get_int(doc, "inodes"));
	figure("disk", text);
	return 0;
}

/* ---- what is done to them ---- */

/* Each operand; the first failure is the result, and the others go on. */
static int each(struct cli *cli, const struct args *a, const char *rest, json_t *body,
		struct err *err)
{
	int first = 0;
	auto_json json_t *items = json_array();
	for (unsigned i = 0; i < a->n; i++) {
		json_t *doc = NULL;
		struct err e = { 0 };
		auto_target t = target_sandbox(a->operands[i], rest);
		int r = api_call(cli, "POST", &t, body, &doc, NULL, &e);
		if (r == 0) {
			(void)json_array_append_new(items, doc);
		} else {
			first = list_failed(a, first, r, &e, err);
		}
	}
	if (first < 0 || !cli->json)
		return first;
	auto_json json_t *doc = json_pack("{s:O}", "items", items);
	return doc ? out_json(doc, err) : err_no_memory(err);
}

int cmd_pause(struct cli *cli, const struct args *a, struct err *err)
{
	return each(cli, a, "/pause", NULL, err);
}

int cmd_resume(struct cli *cli, const struct args *a, struct err *err)
{
	return each(cli, a, "/resume", NULL, err);
}

int cmd_start(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *body = json_object();
	int r = body ? sandbox_set_secrets(body, a, err) : err_no_memory(err);
	return r < 0 ? r : each(cli, a, "/start", body, err);
}

int sandbox_set_grace(json_t *body, const struct args *a, struct err *err)
{
	const char *grace = args_get(a, "grace");
	uint64_t ms = 0;
	int r = grace ? args_duration(grace, "--grace", &ms, err) : 0;
	if (r == 0 && ms > GRACE_MAX_MS)
		r = err_set(err, -EINVAL, "--grace takes at most %dm", GRACE_MAX_MS / 60000);
	return r < 0 || !grace ? r : body_number(body, "grace_ms", ms, err);
}

int cmd_stop(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *body = json_object();
	int r = body ? sandbox_set_grace(body, a, err) : err_no_memory(err);
	return r < 0 ? r : each(cli, a, "/stop", body, err);
}

int cmd_kill(struct cli *cli, const struct args *a, struct err *err)
{
	const char *sig = args_get(a, "signal");
	auto_json json_t *body = json_object();
	int r = !body ? err_no_memory(err) : sig ? body_text(body, "signal", sig, err) : 0;
	return r < 0 ? r : each(cli, a, "/kill", body, err);
}

int cmd_attach_workspace(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *body = json_object(), *doc = NULL;
	auto_target t = target_sandbox(a->operands[0], "/workspaces");
	int r = body ? sandbox_set_attachment(body, a->operands[1], err) : err_no_memory(err);
	if (r == 0)
		r = api_call(cli, "POST", &t, body, &doc, NULL, err);
	return r < 0 ? r : cli->json ? out_json(doc, err) : 0;
}

int cmd_detach_workspace(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *doc = NULL;
	auto_target t = target_sandbox(a->operands[0], "/workspaces/");
	target_name(&t, a->operands[1]);
	target_query(&t, "target", args_get(a, "target"));
	target_query(&t, "force", args_get(a, "force") ? "true" : NULL);
	int r = api_call(cli, "DELETE", &t, NULL, &doc, NULL, err);
	if (r < 0 || !cli->json)
		return r;
	/* Of another's, which isn't shown, nothing comes. */
	auto_json json_t *none = json_object();
	return doc || none ? out_json(doc ? doc : none, err) : err_no_memory(err);
}

/* ---- what workspaces have, too: rm, fork, save, restore ---- */

int sandbox_choose(struct cli *cli, const char *name, bool *yes, struct err *err)
{
	unsigned kind = 0;
	int r = api_kind(cli, name, KIND_WORKSPACE | KIND_SANDBOX, &kind, err);
	*yes = r == 0 && kind == KIND_SANDBOX;
	return r == -ENOENT ? 0 : r;
}

void sandbox_own_workspaces(struct cli *cli, const char *name, struct buf *out)
{
	auto_json json_t *sb = NULL;
	auto_target t = target_sandbox(name, "");
	size_t i;
	json_t *ws;
	if (api_call(cli, "GET", &t, NULL, &sb, NULL, NULL) < 0 || get_true(sb, "auto_remove"))
		return; /* what fails, the removal tells */
	json_array_foreach(json_object_get(sb, "workspaces"), i, ws) {
		const char *key = get_text(ws, "name");
		if (!get_true(ws, "own") || !*key)
			continue;
		buf_u8(out, ' ');
		buf_add(out, key, strlen(key));
	}
	buf_u8(out, 0);
	if (buf_error(out) < 0)
		out->len = 0;
}

static void note_pause(const struct cli *cli, const json_t *doc)
{
	char text[OUT_SIZE_MAX];
	int64_t ns = get_int(doc, "pause_ns");
	if (!cli->quiet && !cli->json && ns > 0)
		fprintf(stderr, "bough: it was paused for %s\n", out_duration(text, ns));
}

static int fork_list(const struct args *a, json_t *body, struct err *err)
{
	const char *count = args_get(a, "count"), *last = a->operands[a->n - 1];
	uint64_t n = a->n - 1;
	int r = count ? args_number(count, "--count", 1, 100, &n, err) : 0;
	if (r == 0 && !count && n == 0)
		r = err_set(err, -EINVAL, "it needs a NEW name, or --count");
	for (uint64_t i = 1; i <= n && r == 0; i++) {
		char name[128];
		(void)snprintf(name, sizeof(name), "%.110s", count ? last : a->operands[i]);
		if (count)
			(void)snprintf(name, sizeof(name), "%.110s-%u", last, (unsigned)i);
		r = body_add(body, "names", name, err);
	}
	return r;
}

int sandbox_fork(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *body = json_object(), *doc = NULL;
	int r = body_bool(body, "start", args_get(a, "start"), err);
	if (r == 0)
		r = fork_list(a, body, err);
	if (r < 0)
		return r;
	auto_target t = target_sandbox(a->operands[0], "/fork");
	r = api_call(cli, "POST", &t, body, &doc, NULL, err);
	if (r < 0 || cli->json)
		return r < 0 ? r : out_json(doc, err);
	list_names(doc, "name");
	note_pause(cli, doc);
	return 0;
}

int sandbox_save(struct cli *cli, const struct args *a, json_t *body, struct err *err)
{
	auto_json json_t *doc = NULL;
	struct progress p;
	auto_target t = target_sandbox(a->operands[0], "/snapshots");
	progress_begin(&p, cli, "saving");
	int r = api_job(cli, "POST", &t, body, NULL, &p, &doc, err);
	if (r < 0 || cli->json)
		return r < 0 ? r : out_json(doc, err);
	printf("%s\n", get_text(json_object_get(doc, "root"), "id"));
	note_pause(cli, doc);
	return 0;
}

int sandbox_restore(struct cli *cli, const struct args *a, json_t *body, struct err *err)
{
	auto_json json_t *doc = NULL;
	static const char *const flags[] = { "live", NULL };
	auto_target t = target_sandbox(a->operands[0], "/restore");
	int r = body_flags(body, a, flags, err);
	if (r == 0)
		r = api_call(cli, "POST", &t, body, &doc, NULL, err);
	return r < 0 ? r : cli->json ? out_json(doc, err) : 0;
}
