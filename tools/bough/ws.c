/* Workspaces: create, path, ls, show, fork, rename, set, rm, mount, umount. */
#include <string.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "tools/bough/api.h"
#include "tools/bough/checkout.h"
#include "tools/bough/cli.h"
#include "tools/bough/json.h"
#include "tools/bough/list.h"
#include "tools/bough/out.h"
#include "tools/bough/sandbox.h"
#include "tools/bough/transfer.h"
#include "tools/bough/ws.h"

/* ---- request members from options ---- */

int ws_set_labels(json_t *body, const char *field, const struct args *a, struct err *err)
{
	const char *kv;
	for (unsigned i = 0; (kv = args_each(a, "label", i)); i++) {
		const char *eq = strchr(kv, '=');
		if (!eq || eq == kv)
			return err_set(err, -EINVAL, "--label takes K=V, not \"%s\"", kv);
		json_t *labels = json_object_get(body, field);
		if (!labels) {
			labels = json_object();
			if (json_object_set_new(body, field, labels) < 0)
				return err_no_memory(err);
		}
		auto_free char *key = strndup(kv, (size_t)(eq - kv));
		if (!key)
			return err_no_memory(err);
		if (json_object_get(labels, key))
			return err_set(err, -EINVAL, "--label %s is given twice", key);
		int r = body_text(labels, key, eq + 1, err);
		if (r < 0)
			return r;
	}
	return 0;
}

/* One limit; "none" is the API's 0. */
static int set_limit(json_t *body, const char *key, const char *text,
		     int (*parse)(const char *, const char *, uint64_t *, struct err *),
		     const char *option, struct err *err)
{
	uint64_t v = 0;
	int r = strcmp(text, "none") != 0 ? parse(text, option, &v, err) : 0;
	return r < 0 ? r : body_number(body, key, v, err);
}

static int set_limits(json_t *body, const struct args *a, struct err *err)
{
	const char *quota = args_get(a, "quota"), *inodes = args_get(a, "inodes");
	int r = 0;
	if (quota)
		r = set_limit(body, "quota_bytes", quota, args_size, "--quota", err);
	if (r == 0 && inodes)
		r = set_limit(body, "quota_inodes", inodes, args_count, "--inodes", err);
	return r;
}

int ws_set_keeping(json_t *body, const struct args *a, struct err *err)
{
	const char *seen = args_get(a, "visibility"), *ttl = args_get(a, "ttl");
	static const char *const texts[] = { "description", "on-expiry", NULL };
	uint64_t s = 0;
	int r = body_texts(body, a, texts, err);
	if (r == 0 && seen && !strncmp(seen, "team:", 5)) {
		r = body_text(body, "team", seen + 5, err);
		seen = "team";
	} else if (r == 0 && seen && strcmp(seen, "private") != 0 && strcmp(seen, "global") != 0) {
		r = err_set(err, -EINVAL, "--visibility is private, team:TEAM or global");
	}
	if (r == 0 && seen)
		r = body_text(body, "visibility", seen, err);
	if (r == 0 && ttl && strcmp(ttl, "none") != 0)
		r = args_seconds(ttl, "--ttl", &s, err);
	if (r == 0 && ttl)
		r = body_number(body, "ttl_s", s, err);
	return r;
}

/* ---- create ---- */

static int not_mounted(const json_t *ws, const char *what, struct err *err)
{
	const char *why = get_text(ws, "error");
	return err_set(err, -EIO, "%s %s: %s%s", get_text(ws, "name"), what, why, mount_hint(why));
}

/* What one goes on with: the mount point, or of a boughd elsewhere, which has that, the name. */
static void print_where(const struct cli *cli, const json_t *ws)
{
	printf("%s\n", get_text(ws, cli->remote ? "name" : "path"));
}

static int print_workspace(struct cli *cli, const json_t *ws, const char *otherwise,
			   struct err *err)
{
	if (cli->json)
		return out_json(ws, err);
	if (get_true(ws, "mounted"))
		print_where(cli, ws);
	else if (*get_text(ws, "error"))
		return not_mounted(ws, otherwise, err);
	return 0;
}

/* What the workspace begins with, but for what comes with the request. */
static int set_origin(const struct args *a, json_t *body, struct err *err)
{
	const char *from = args_get(a, "from");
	if (!!from + !!args_get(a, "dir") + !!args_get(a, "tar") + !!args_get(a, "git") > 1)
		return err_set(err, -EINVAL, "give one of --from, --dir, --tar and --git");
	return from ? body_text(body, "from", from, err) : 0;
}

/* The first checkout of a commit takes long enough for a progress, as an upload does; all else is
 * there at once. */
static int create(struct cli *cli, const struct args *a, json_t *body, json_t **ws,
		  struct err *err)
{
	const char *dir = args_get(a, "dir"), *tar = args_get(a, "tar");
	const struct import im = { .workspace = body };
	struct progress p;
	auto_target t = target_new("/v1/workspaces");
	if (dir)
		return transfer_import_folder(cli, dir, &im, ws, err);
	if (tar)
		return transfer_import_file(cli, tar, &im, ws, err);
	if (!json_object_get(body, "git"))
		return api_call(cli, "POST", &t, body, ws, NULL, err);
	progress_begin(&p, cli, "checking out");
	return api_job(cli, "POST", &t, body, NULL, &p, ws, err);
}

int cmd_create(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *body = json_object();
	int r = body_text(body, "name", a->operands[0], err);
	if (r == 0)
		r = set_limits(body, a, err);
	if (r == 0)
		r = ws_set_labels(body, "labels", a, err);
	if (r == 0)
		r = ws_set_keeping(body, a, err);
	if (r == 0 && args_get(a, "no-mount"))
		r = body_bool(body, "mount", false, err);
	if (r == 0 && args_get(a, "no-xattrs"))
		r = body_bool(body, "xattrs", false, err);
	if (r == 0)
		r = checkout_set(body, a, err);
	if (r == 0)
		r = set_origin(a, body, err);
	auto_json json_t *ws = NULL;
	if (r == 0)
		r = create(cli, a, body, &ws, err);
	if (r < 0)
		return r;
	checkout_notes(cli, ws);
	return print_workspace(cli, ws, "is made but not mounted", err);
}

/* ---- path, show ---- */

/* Of a sandbox: its root, and *sandbox, the caller's. */
static int get_workspace(struct cli *cli, const char *name, json_t **out, json_t **sandbox,
			 struct err *err)
{
	auto_target t = target_ws(name, "");
	bool box;
	int r = sandbox_choose(cli, name, &box, err);
	if (r == 0)
		r = api_call(cli, "GET", &t, NULL, out, NULL, err);
	if (r != -ENOENT || sandbox_instead(cli, name, sandbox) < 0)
		return api_tell_snapshot(cli, name, r, err);
	auto_target root = target_ws(get_text(*sandbox, "root"), "");
	return api_call(cli, "GET", &root, NULL, out, NULL, err);
}

int cmd_path(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *ws = NULL, *sandbox = NULL;
	int r = get_workspace(cli, a->operands[0], &ws, &sandbox, err);
	if (r < 0)
		return r;
	if (cli->json)
		return out_json(ws, err);
	if (!get_true(ws, "mounted")) {
		const char *why = get_text(ws, "error");
		return err_set(err, -ENOENT, "%s isn't mounted%s%s: `bough mount %s` mounts it",
			       a->operands[0], *why ? ": " : "", why, a->operands[0]);
	}
	printf("%s\n", get_text(ws, "path")); /* for "$(…)": byte for byte */
	return 0;
}

static void line_time(const char *key, const char *rfc3339)
{
	char text[OUT_TIME_MAX];
	out_line(key, out_time(text, rfc3339, time(NULL)));
}

static void line_keeping(const json_t *o)
{
	if (*get_text(o, "description"))
		out_line("description", get_text(o, "description"));
	if (*get_text(o, "expires")) {
		out_line("expires", get_text(o, "expires"));
		out_line("then", get_text(o, "on_expiry"));
	}
}

static void show_usage(const struct cli *cli, const json_t *ws)
{
	char used[OUT_SIZE_MAX], limit[OUT_SIZE_MAX], text[128];
	int64_t quota = get_int(ws, "quota_bytes"), inodes = get_int(ws, "quota_inodes");
	out_size(used, get_int(ws, "used_bytes"), cli->bytes);
	out_size(limit, quota, cli->bytes);
	(void)snprintf(text, sizeof(text), "%s%s%s", used, quota ? " of " : "", quota ? limit : "");
	out_line("written", text);
	out_size(used, get_int(ws, "used_inodes"), true);
	out_size(limit, inodes, true);
	(void)snprintf(text, sizeof(text), "%s%s%s of its own, %lld shown", used,
		       inodes ? " of " : "", inodes ? limit : "", (long long)get_int(ws, "files"));
	out_line("files", text);
	(void)snprintf(text, sizeof(text), "%lld, with %lld records",
		       (long long)get_int(ws, "layers"), (long long)get_int(ws, "records"));
	out_line("layers", text);
	if (json_is_false(json_object_get(ws, "xattrs")))
		out_line("xattrs", "none are shown");
}

static void lines_attached(const json_t *list, const char *key)
{
	size_t i;
	json_t *one;
	json_array_foreach(list, i, one) {
		char text[2048];
		const char *owner = get_text(one, "owner");
		(void)snprintf(text, sizeof(text), "%s%s%s at %s%s%s", owner, *owner ? "/" : "",
			       *get_text(one, "name") ? get_text(one, "name")
						      : get_text(one, "workspace"),
			       get_text(one, "target"), get_true(one, "read_only") ? ", ro" : "",
			       get_true(one, "exclusive") ? ", exclusive" : "");
		out_line(key, text);
	}
}

static int show_sandbox(struct cli *cli, const json_t *sb, const json_t *root)
{
	static const char *const keys[] = { "status",  "error",    "reason", "image",
					    "runtime", "hostname", "user" };
	out_line("name", get_text(sb, "name"));
	out_line("id", get_text(sb, "id"));
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (*get_text(sb, keys[i]))
			out_line(keys[i], get_text(sb, keys[i]));
	list_owner(cli, sb);
	line_time("created", get_text(sb, "created"));
	out_line("root", get_text(root, "path"));
	out_line("base", get_text(root, "base"));
	out_line("head", get_text(root, "head"));
	lines_attached(json_object_get(sb, "workspaces"), "attached");
	line_keeping(sb);
	list_labels(sb);
	return 0;
}

int cmd_show(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *ws = NULL, *sandbox = NULL;
	int r = get_workspace(cli, a->operands[0], &ws, &sandbox, err);
	if (r < 0)
		return r;
	if (cli->json)
		return out_json(sandbox ? sandbox : ws, err);
	if (sandbox)
		return show_sandbox(cli, sandbox, ws);
	out_line("name", get_text(ws, "name"));
	out_line("id", get_text(ws, "id"));
	out_line("state", strcmp(get_text(ws, "state"), "ready") ? get_text(ws, "state")
			  : get_true(ws, "mounted")              ? "mounted"
								 : "not mounted");
	if (*get_text(ws, "error"))
		out_line("error", get_text(ws, "error"));
	if (*get_text(ws, "damage"))
		out_line("damage", get_text(ws, "damage"));
	out_line("path", get_text(ws, "path"));
	line_time("created", get_text(ws, "created"));
	out_line("base", get_text(ws, "base"));
	out_line("head", get_text(ws, "head"));
	out_line("parent", get_text(ws, "parent"));
	list_owner(cli, ws);
	checkout_show(ws);
	line_keeping(ws);
	lines_attached(json_object_get(ws, "sandboxes"), "sandbox");
	show_usage(cli, ws);
	list_labels(ws);
	return 0;
}

/* ---- ls ---- */

static const char *ws_state(const json_t *ws)
{
	const char *state = get_text(ws, "state");
	if (*state && strcmp(state, "ready") != 0)
		return state;
	if (*get_text(ws, "damage"))
		return "damaged";
	return get_true(ws, "mounted") ? "mounted" : *get_text(ws, "error") ? "failed" : "-";
}

static void ls_row(struct table *t, const struct cli *cli, const json_t *ws, time_t now)
{
	char used[OUT_SIZE_MAX], quota[OUT_SIZE_MAX], age[OUT_AGE_MAX];
	int64_t limit = get_int(ws, "quota_bytes");
	const char *head = get_text(ws, "head");
	const char *cells[] = {
		owner_name(cli, ws, "owner"),
		get_text(ws, "name"),
		ws_state(ws),
		*head ? head : get_text(ws, "base"),
		json_object_get(ws, "used_bytes")
			? out_size(used, get_int(ws, "used_bytes"), cli->bytes)
			: "-",
		limit ? out_size(quota, limit, cli->bytes) : "-",
		out_age(age, get_text(ws, "created"), now),
		get_text(ws, "path"),
	};
	table_row(t, cells);
}

static void deleted_row(struct table *t, const struct cli *cli, const json_t *ws, time_t now)
{
	char age[OUT_AGE_MAX], until[32];
	(void)snprintf(until, sizeof(until), "%.19sZ", get_text(ws, "purges"));
	const char *cells[] = { owner_name(cli, ws, "owner"), get_text(ws, "name"),
				get_text(ws, "id"), out_age(age, get_text(ws, "deleted"), now),
				until };
	table_row(t, cells);
}

int cmd_ls(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const headings[] = { "OWNER",  "NAME", "STATE", "SNAPSHOT", ">WRITTEN",
						">QUOTA", ">AGE", "PATH",  NULL };
	static const char *const deleted[] = { "OWNER", "NAME", "ID", "DELETED", "UNTIL", NULL };
	static const struct list_view views[] = { { headings, "name", OWNERS_FIRST, ls_row },
						  { deleted, "name", OWNERS_FIRST, deleted_row } };
	bool gone = args_get(a, "deleted");
	auto_target t = target_new("/v1/workspaces");
	int r = list_filter(&t, a, err);
	target_query(&t, "deleted", gone ? "true" : NULL);
	target_query(&t, "usage", cli->quiet && !cli->json ? NULL : "1");
	return r < 0 ? r : list_show(cli, &t, &views[gone], err);
}

/* ---- fork ---- */

enum { FORK_MAX = 1000 }; /* boughd makes no more at once */

static int fork_names(const struct args *a, json_t *body, struct err *err)
{
	const char *count = args_get(a, "count");
	if (count) {
		uint64_t n;
		int r = args_number(count, "--count", 1, FORK_MAX, &n, err);
		if (r < 0)
			return r;
		if (a->n > 2)
			return err_set(err, -EINVAL, "--count takes one NEW, not %u", a->n - 1);
		r = body_text(body, "name", a->operands[a->n - 1], err);
		return r < 0 ? r : body_number(body, "count", n, err);
	}
	if (a->n < 2)
		return err_set(err, -EINVAL, "it needs a NEW name, or --count");
	int r = 0;
	for (unsigned i = 1; i < a->n && r == 0; i++)
		r = body_add(body, "names", a->operands[i], err);
	return r;
}

/* A child that is made but couldn't be mounted: its name is printed, and it is a failure. */
static int report_unmounted(const json_t *items, struct err *err)
{
	size_t i;
	json_t *ws;
	json_array_foreach(items, i, ws)
		if (*get_text(ws, "error"))
			return not_mounted(ws, "is made but not mounted", err);
	return 0;
}

/* Where the name is a snapshot's, something else does what was meant. */
static int hint_snapshot(struct cli *cli, const struct args *a, int r, struct err *err)
{
	auto_target t = target_snap(a->operands[0], "");
	if (r != -ENOENT || !api_exists(cli, &t))
		return r;
	return err_set(err, r,
		       "\"%s\" is a snapshot: `bough create %s --from %s` makes a workspace "
		       "of it",
		       a->operands[0], a->n > 1 ? a->operands[1] : "NEW", a->operands[0]);
}

int cmd_fork(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *body = json_object(), *doc = NULL;
	int r = fork_names(a, body, err);
	if (r == 0)
		r = ws_set_labels(body, "labels", a, err);
	if (r == 0)
		r = ws_set_keeping(body, a, err);
	bool box = false;
	if (r == 0)
		r = sandbox_choose(cli, a->operands[0], &box, err);
	if (r < 0 || box)
		return r < 0 ? r : sandbox_fork(cli, a, err);
	auto_target t = target_ws(a->operands[0], "/fork");
	r = api_call(cli, "POST", &t, body, &doc, NULL, err);
	if (r < 0)
		return hint_snapshot(cli, a, r, err);
	if (cli->json)
		return out_json(doc, err);
	list_names(doc, "name");
	return report_unmounted(json_object_get(doc, "items"), err);
}

/* ---- set ---- */

/* Changes what the first operand names, a workspace or a sandbox. */
static int patch(struct cli *cli, const struct args *a, json_t *body, struct err *err)
{
	auto_json json_t *doc = NULL;
	bool box;
	int r = sandbox_choose(cli, a->operands[0], &box, err);
	if (r < 0)
		return r;
	if (box && (json_object_get(body, "quota_bytes") || json_object_get(body, "quota_inodes")))
		return err_set(err, -EINVAL, "a sandbox has the limits that it was made with");
	auto_target t = box ? target_sandbox(a->operands[0], "") : target_ws(a->operands[0], "");
	r = api_call(cli, "PATCH", &t, body, &doc, NULL, err);
	return r < 0 ? r : cli->json ? out_json(doc, err) : 0;
}

int cmd_set(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *body = json_object();
	const char *key;
	int r = body ? set_limits(body, a, err) : err_no_memory(err);
	if (r == 0)
		r = ws_set_labels(body, "add_labels", a, err);
	for (unsigned i = 0; r == 0 && (key = args_each(a, "no-label", i)); i++)
		r = body_add(body, "remove_labels", key, err);
	if (r == 0)
		r = ws_set_keeping(body, a, err);
	if (r == 0 && json_object_size(body) == 0)
		r = err_set(err, -EINVAL,
			    "give it --quota, --label or what else `bough help set` tells");
	return r < 0 ? r : patch(cli, a, body, err);
}

/* ---- rename, rm, mount, umount ---- */

int cmd_rename(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *body = json_object();
	int r = body_text(body, "name", a->operands[1], err);
	return r < 0 ? r : patch(cli, a, body, err);
}

static void set_rm(struct target *t, const struct args *a, bool box)
{
	static const char *const options[] = { "now", "force", "workspaces" };
	static const char *const queries[] = { "purge", "force", "workspaces" };
	for (int i = box ? 1 : 0; i < (box ? 3 : 2); i++)
		if (args_get(a, options[i]))
			target_query(t, queries[i], "true");
}

/* A name that rm found nothing under: of what else may it be? */
static int not_removed(struct cli *cli, const char *name, struct err *err)
{
	auto_target t = target_snap(name, "");
	if (api_exists(cli, &t))
		return err_set(err, -ENOENT, "%s is a snapshot: `bough snapshots rm %s`", name,
			       name);
	return err_set(err, -ENOENT,
		       "no workspace or sandbox \"%s\": `bough ls` and `bough ps` show what there "
		       "is",
		       name);
}

/* Does one thing to each operand. A failure doesn't keep the others from being done; the first
 * one decides how it ends, and each is told. `items` collects the answers. */
static int each_operand(struct cli *cli, const struct args *a, const char *method, const char *rest,
			json_t *items, struct err *err)
{
	int first = 0;
	for (unsigned i = 0; i < a->n; i++) {
		json_t *doc = NULL;
		struct err e = { 0 };
		bool rm = a->cmd->run == cmd_rm, box = false;
		int r = rm ? sandbox_choose(cli, a->operands[i], &box, &e) : 0;
		auto_target t = box ? target_sandbox(a->operands[i], rest)
				    : target_ws(a->operands[i], rest);
		auto_buf stays = { 0 };
		if (rm)
			set_rm(&t, a, box);
		if (r == 0 && box && !args_get(a, "workspaces"))
			sandbox_own_workspaces(cli, a->operands[i], &stays);
		if (r == 0)
			r = api_call(cli, method, &t, NULL, &doc, NULL, &e);
		if (rm && r == -ENOENT)
			r = not_removed(cli, a->operands[i], &e);
		if (r == 0 && !cli->quiet && stays.len > 1)
			fprintf(stderr, "bough: what was made for %s stays: `bough rm%s`\n",
				a->operands[i], (const char *)stays.data);
		if (r == 0 && !strcmp(method, "DELETE"))
			(void)json_object_set_new(doc, "name", json_string(a->operands[i]));
		if (r == 0 && json_array_append_new(items, doc) < 0)
			r = err_no_memory(&e);
		if (r < 0)
			first = list_failed(a, first, r, &e, err);
	}
	return first;
}

static int done_items(struct cli *cli, const struct args *a, const char *method, const char *rest,
		      bool paths, struct err *err)
{
	auto_json json_t *items = json_array();
	if (!items)
		return err_no_memory(err);
	int r = each_operand(cli, a, method, rest, items, err);
	if (cli->json && r == 0) {
		auto_json json_t *doc = json_pack("{s:O}", "items", items);
		return doc ? out_json(doc, err) : err_no_memory(err);
	}
	size_t i;
	json_t *ws;
	json_array_foreach(items, i, ws) {
		if (!cli->json && paths)
			print_where(cli, ws);
		if (get_true(ws, "busy") && !cli->quiet)
			fprintf(stderr,
				"bough: %s is still in use: its programs go on with a mount that "
				"nobody else sees\n",
				get_text(ws, "name"));
		if (r == 0 && paths && !get_true(ws, "mounted"))
			r = not_mounted(ws, "isn't mounted", err);
	}
	return r;
}

int cmd_rm(struct cli *cli, const struct args *a, struct err *err)
{
	return done_items(cli, a, "DELETE", "", false, err);
}

int cmd_undelete(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *body = json_object(), *ws = NULL;
	const char *name = args_get(a, "as");
	int r = body ? 0 : err_no_memory(err);
	if (r == 0 && name)
		r = body_text(body, "name", name, err);
	if (r < 0)
		return r;
	auto_target t = target_ws(a->operands[0], "/undelete");
	r = api_call(cli, "POST", &t, body, &ws, NULL, err);
	return r < 0 ? r : print_workspace(cli, ws, "is back but not mounted", err);
}

int cmd_mount(struct cli *cli, const struct args *a, struct err *err)
{
	return done_items(cli, a, "POST", "/mount", true, err);
}

int cmd_umount(struct cli *cli, const struct args *a, struct err *err)
{
	return done_items(cli, a, "POST", "/umount", false, err);
}
