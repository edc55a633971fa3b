/* Snapshots: save, restore, log, and the snapshots group. */
#include <string.h>
#include "tools/bough/api.h"
#include "tools/bough/checkout.h"
#include "tools/bough/cli.h"
#include "tools/bough/json.h"
#include "tools/bough/list.h"
#include "tools/bough/out.h"
#include "tools/bough/sandbox.h"

/* ---- save, restore ---- */

int cmd_save(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *body = json_object(), *snap = NULL;
	const char *message = args_get(a, "message"), *name = args_get(a, "as");
	if (!body)
		return err_no_memory(err);
	int r = message ? body_text(body, "message", message, err) : 0;
	bool box = false;
	if (r == 0 && name)
		r = body_text(body, "name", name, err);
	if (r == 0)
		r = sandbox_choose(cli, a->operands[0], &box, err);
	if (r < 0 || box)
		return r < 0 ? r : sandbox_save(cli, a, body, err);
	struct progress p;
	auto_target t = target_ws(a->operands[0], "/snapshots");
	if (args_get(a, "background"))
		return api_background(cli, "POST", &t, body, err);
	progress_begin(&p, cli, "saving");
	r = api_job(cli, "POST", &t, body, NULL, &p, &snap, err);
	if (r < 0)
		return r;
	if (cli->json)
		return out_json(snap, err);
	printf("%s\n", get_text(snap, "id"));
	if (!get_true(snap, "unchanged") || cli->quiet)
		return 0;
	fprintf(stderr, "bough: nothing has changed since that snapshot");
	if (message && strcmp(message, get_text(snap, "message")) != 0)
		fprintf(stderr,
			", so its message stays; `bough snapshots tag %s -m TEXT` changes it",
			get_text(snap, "id"));
	(void)fputc('\n', stderr);
	return 0;
}

int cmd_restore(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *body = json_object(), *ws = NULL;
	bool box = false;
	int r = body_text(body, "snapshot", a->operands[1], err);
	if (r == 0)
		r = sandbox_choose(cli, a->operands[0], &box, err);
	if (r < 0 || box)
		return r < 0 ? r : sandbox_restore(cli, a, body, err);
	auto_target t = target_ws(a->operands[0], "/restore");
	r = api_call(cli, "POST", &t, body, &ws, NULL, err);
	return r < 0 ? r : cli->json ? out_json(ws, err) : 0;
}

/* ---- lists ---- */

static void join_names(char *buf, size_t size, const json_t *snap)
{
	size_t i, at = 0;
	json_t *name;
	buf[0] = 0;
	json_array_foreach(json_object_get(snap, "names"), i, name) {
		const char *s = json_string_value(name);
		int n = s ? snprintf(buf + at, size - at, "%s%s", i ? "," : "", s) : 0;
		if (n < 0 || (size_t)n >= size - at)
			return; /* cut: `show` has them all */
		at += (size_t)n;
	}
}

/* The first line of a message. */
static void first_line(char *buf, size_t size, const char *message)
{
	(void)snprintf(buf, size, "%.*s", (int)strcspn(message, "\r\n"), message);
}

static void snap_row(struct table *t, const struct cli *cli, const json_t *s, time_t now)
{
	char age[OUT_AGE_MAX], files[OUT_SIZE_MAX], bytes[OUT_SIZE_MAX], stored[OUT_SIZE_MAX];
	char names[256], message[96];
	join_names(names, sizeof(names), s);
	first_line(message, sizeof(message), get_text(s, "message"));
	const char *cells[] = {
		owner_name(cli, s, "owner"),
		get_text(s, "id"),
		names,
		out_age(age, get_text(s, "created"), now),
		out_size(files, get_int(s, "files"), true),
		out_size(bytes, get_int(s, "bytes"), cli->bytes),
		out_size(stored, get_int(s, "stored_bytes"), cli->bytes),
		message,
	};
	table_row(t, cells);
}

static int print_snapshots(struct cli *cli, struct target *t, struct err *err)
{
	static const char *const headings[] = { "OWNER", "SNAPSHOT", "NAMES",   ">AGE", ">FILES",
						">NEW",  ">STORED",  "MESSAGE", NULL };
	static const struct list_view view = { headings, "id", OWNERS_FIRST, snap_row };
	return list_show(cli, t, &view, err);
}

int cmd_log(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *sandbox = NULL;
	auto_target t = target_ws(a->operands[0], "/log");
	bool box;
	int r = sandbox_choose(cli, a->operands[0], &box, err);
	if (r == 0)
		r = print_snapshots(cli, &t, err);
	if (r != -ENOENT || sandbox_instead(cli, a->operands[0], &sandbox) < 0)
		return api_tell_snapshot(cli, a->operands[0], r, err);
	auto_target root = target_ws(get_text(sandbox, "root"), "/log");
	return print_snapshots(cli, &root, err);
}

int cmd_snapshots_ls(struct cli *cli, const struct args *a, struct err *err)
{
	auto_target t = target_new("/v1/snapshots");
	target_query(&t, "workspace", args_get(a, "workspace"));
	return print_snapshots(cli, &t, err);
}

/* ---- show, rm, tag ---- */

static void show_message(const char *text)
{
	if (!*text)
		return;
	printf("\n");
	for (const char *p = text; *p;) {
		char part[1024];
		size_t n = strcspn(p, "\n");
		size_t k = n < sizeof(part) - 1 ? n : sizeof(part) - 1;
		memcpy(part, p, k);
		part[k] = 0;
		printf("    ");
		out_clean(stdout, part);
		printf("\n");
		p += k == n && p[n] == '\n' ? n + 1 : k;
	}
}

/* The workspace that it was saved from: "app (ws_…)" while that is there. */
static void show_workspace(struct cli *cli, const char *id)
{
	auto_json json_t *ws = NULL;
	auto_target t = target_ws(id, "");
	char text[256];
	if (!*id || api_call(cli, "GET", &t, NULL, &ws, NULL, NULL) < 0) {
		out_line("workspace", id);
		return;
	}
	(void)snprintf(text, sizeof(text), "%s (%s)", get_text(ws, "name"), id);
	out_line("workspace", text);
}

/* Of a checkout's snapshot the API tells the repository's number. */
static void name_repo(struct cli *cli, json_t *git)
{
	auto_json json_t *repo = NULL;
	char id[32];
	if (!json_is_object(git))
		return;
	(void)snprintf(id, sizeof(id), "repo_%08llx", (unsigned long long)get_int(git, "repo"));
	auto_target t = target_new("/v1/repos/");
	target_name(&t, id);
	bool known = api_call(cli, "GET", &t, NULL, &repo, NULL, NULL) >= 0;
	/* Without memory for it, a dash is shown. */
	(void)json_object_set_new(git, "name", json_string(known ? get_text(repo, "name") : id));
}

int cmd_snapshots_show(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *s = NULL;
	auto_target t = target_snap(a->operands[0], "");
	int r = api_call(cli, "GET", &t, NULL, &s, NULL, err);
	if (r < 0)
		return r;
	if (cli->json)
		return out_json(s, err);
	char buf[OUT_SIZE_MAX], text[128];
	size_t i;
	json_t *name;
	out_line("id", get_text(s, "id"));
	json_array_foreach(json_object_get(s, "names"), i, name)
		out_line("name", json_string_value(name) ? json_string_value(name) : "");
	out_line("created", out_time(text, get_text(s, "created"), time(NULL)));
	show_workspace(cli, get_text(s, "workspace"));
	out_line("parent", get_text(s, "parent"));
	out_line("manifest", get_text(s, "manifest"));
	list_owner(cli, s);
	name_repo(cli, json_object_get(s, "git"));
	checkout_show(s);
	out_line("files", out_size(buf, get_int(s, "files"), true));
	out_line("new", out_size(buf, get_int(s, "bytes"), cli->bytes));
	out_line("stored", out_size(buf, get_int(s, "stored_bytes"), cli->bytes));
	list_labels(s);
	show_message(get_text(s, "message"));
	return 0;
}

int cmd_snapshots_rm(struct cli *cli, const struct args *a, struct err *err)
{
	return list_remove_each(cli, a, "/v1/snapshots/", list_snapshots_rm, err);
}

int cmd_snapshots_tag(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const texts[] = { "message", NULL };
	auto_json json_t *body = json_object(), *snap = NULL;
	const char *name;
	int r = body ? body_texts(body, a, texts, err) : err_no_memory(err);
	for (unsigned i = 1; i < a->n && r == 0; i++)
		r = body_add(body, "add_names", a->operands[i], err);
	for (unsigned i = 0; r == 0 && (name = args_each(a, "remove", i)); i++)
		r = body_add(body, "remove_names", name, err);
	if (r == 0 && json_object_size(body) == 0)
		r = err_set(err, -EINVAL, "give it a NAME, --remove NAME or --message TEXT");
	if (r < 0)
		return r;
	auto_target t = target_snap(a->operands[0], "");
	r = api_call(cli, "PATCH", &t, body, &snap, NULL, err);
	return r < 0 ? r : cli->json ? out_json(snap, err) : 0;
}
