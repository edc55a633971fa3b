/* Who may use the service: tokens, users, teams. */
#include <pwd.h>
#include <string.h>
#include "fs/base/cleanup.h"
#include "fs/base/rfc3339.h"
#include "tools/bough/api.h"
#include "tools/bough/cli.h"
#include "tools/bough/json.h"
#include "tools/bough/list.h"
#include "tools/bough/out.h"

static int post(struct cli *cli, const char *path, json_t *body, json_t **out, struct err *err)
{
	auto_target t = target_new(path);
	return api_call(cli, "POST", &t, body, out, NULL, err);
}

/* ---- tokens ---- */

/* "WORKSPACE:PATH" is two members; a team is "team:TEAM". */
static int set_scope(json_t *body, const char *scope, const char *team, struct err *err)
{
	if (scope && team)
		return err_set(err, -EINVAL, "--scope and --team exclude each other");
	if (team)
		return json_object_set_new(body, "scope", json_sprintf("team:%s", team)) < 0
			       ? err_no_memory(err)
			       : 0;
	const char *colon = scope ? strchr(scope, ':') : NULL;
	/* "uid:1000/app" has an owner's. */
	if (colon && strncmp(scope, "uid:", 4) == 0)
		colon = strchr(colon + 1, ':');
	if (!colon)
		return scope ? body_text(body, "scope", scope, err) : 0;
	auto_free char *ws = strndup(scope, (size_t)(colon - scope));
	if (!ws)
		return err_no_memory(err);
	int r = body_text(body, "scope", ws, err);
	return r < 0 ? r : body_text(body, "path", colon + 1, err);
}

int cmd_token_create(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const texts[] = { "name", "owner", NULL };
	static const char *const flags[] = { "read-only", NULL };
	auto_json json_t *body = json_object(), *doc = NULL;
	const char *expires = args_get(a, "expires");
	uint64_t s = 0;
	int r = body ? body_texts(body, a, texts, err) : err_no_memory(err);
	if (r == 0)
		r = body_flags(body, a, flags, err);
	if (r == 0)
		r = set_scope(body, args_get(a, "scope"), args_get(a, "team"), err);
	if (r == 0 && expires)
		r = args_seconds(expires, "--expires", &s, err);
	if (r == 0 && expires && s == 0)
		r = err_set(err, -EINVAL, "--expires 0: without the option it is good for ever");
	if (r == 0 && expires)
		r = body_number(body, "expires_s", s, err);
	if (r == 0)
		r = post(cli, "/v1/tokens", body, &doc, err);
	if (r < 0)
		return r;
	if (cli->json)
		return out_json(doc, err);
	printf("%s\n", get_text(doc, "token"));
	if (!cli->quiet)
		fprintf(stderr, "bough: that is token %s: it is shown this once\n",
			get_text(doc, "id"));
	return 0;
}

static void token_row(struct table *table, const struct cli *cli, const json_t *v, time_t now)
{
	char scope[128], made[OUT_AGE_MAX], used[OUT_AGE_MAX], expires[40];
	struct timespec end;
	const char *path = get_text(v, "path");
	(void)snprintf(scope, sizeof(scope), "%s%s%s%s", get_text(v, "scope"), *path ? ":" : "",
		       path, get_true(v, "read_only") ? ", read-only" : "");
	const char *until = get_text(v, "expires");
	bool over = rfc3339_parse(until, &end) == 0 && end.tv_sec < now;
	(void)snprintf(expires, sizeof(expires), !*until ? "-" : over ? "%.19sZ, over" : "%.19sZ",
		       until);
	const char *cells[] = { get_text(v, "id"),
				list_text(v, "name"),
				owner_name(cli, v, "owner"),
				scope,
				out_age(made, get_text(v, "created"), now),
				expires,
				out_age(used, get_text(v, "used"), now) };
	table_row(table, cells);
}

/* Scopes as `token create` takes them, where the caller sees what they name; else its id stays. */
static void name_scopes(struct cli *cli, json_t *tokens)
{
	static const struct {
		const char *route, *id, *before;
	} kinds[] = { { "/v1/workspaces", "ws_", "" }, { "/v1/teams", "tm_", "team:" } };
	size_t i, j;
	json_t *token, *one;
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		auto_json json_t *all = NULL;
		json_array_foreach(tokens, i, token) {
			const char *scope = get_text(token, "scope");
			auto_target t = target_new(kinds[k].route);
			if (strncmp(scope, kinds[k].id, 3) != 0 ||
			    (!all && api_aside(cli, "GET", &t, &all) < 0))
				continue;
			json_array_foreach(json_object_get(all, "items"), j, one)
				if (strcmp(get_text(one, "id"), scope) == 0) {
					(void)json_object_set_new(
						token, "scope",
						json_sprintf("%s%s", kinds[k].before,
							     get_text(one, "name")));
					break;
				}
		}
	}
}

int cmd_token_ls(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const headings[] = { "ID",      "NAME",    "OWNER",    "SCOPE",
						"CREATED", "EXPIRES", "LAST USE", NULL };
	static const struct list_view view = { headings, "id", OWNERS_SHOWN, token_row };
	auto_target t = target_new("/v1/tokens");
	auto_json json_t *doc = NULL;
	int r = api_call(cli, "GET", &t, NULL, &doc, NULL, err);
	if (r == 0 && !cli->json && !cli->quiet)
		name_scopes(cli, json_object_get(doc, "items"));
	return r < 0 ? r : list_print(cli, doc, &view, err);
}

int cmd_token_rm(struct cli *cli, const struct args *a, struct err *err)
{
	return list_remove_each(cli, a, "/v1/tokens/", NULL, err);
}

/* ---- users ---- */

int cmd_user_add(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const texts[] = { "owner", NULL };
	static const char *const flags[] = { "admin", NULL };
	auto_json json_t *body = json_object(), *doc = NULL;
	const char *uid = args_get(a, "uid");
	uint64_t n = 0;
	int r = body_text(body, "name", a->operands[0], err);
	if (r == 0)
		r = body_texts(body, a, texts, err);
	if (r == 0)
		r = body_flags(body, a, flags, err);
	if (r == 0 && uid)
		r = args_number(uid, "--uid", 0, UINT32_MAX - 1, &n, err);
	if (r == 0 && uid)
		r = body_number(body, "uid", n, err);
	if (r == 0)
		r = post(cli, "/v1/users", body, &doc, err);
	if (r < 0 || cli->json)
		return r < 0 ? r : out_json(doc, err);
	/* What that account makes here is "uid:N"'s, which is somebody else. */
	const struct passwd *pw = uid || cli->remote || args_get(a, "owner")
					  ? NULL
					  : getpwnam(a->operands[0]);
	if (pw && !cli->quiet)
		fprintf(stderr,
			"bough: %s isn't this machine's account of that name: `bough user rm %s`, "
			"and --uid %u makes one that is\n",
			pw->pw_name, pw->pw_name, (unsigned)pw->pw_uid);
	return 0;
}

static void user_row(struct table *table, const struct cli *cli, const json_t *v, time_t now)
{
	const char *cells[] = { get_text(v, "name"), get_text(v, "owner"),
				get_true(v, "admin") ? "yes" : "no" };
	table_row(table, cells);
}

int cmd_user_ls(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const headings[] = { "NAME", "OWNER", "ADMIN", NULL };
	static const struct list_view view = { headings, "name", OWNERS_NONE, user_row };
	auto_target t = target_new("/v1/users");
	return list_show(cli, &t, &view, err);
}

int cmd_user_rm(struct cli *cli, const struct args *a, struct err *err)
{
	return list_remove_each(cli, a, "/v1/users/", NULL, err);
}

/* ---- quotas ---- */

static const char *limit_text(char buf[OUT_SIZE_MAX], const json_t *v, const char *key, bool exact)
{
	const json_t *n = json_object_get(v, key);
	return json_is_integer(n) ? out_size(buf, json_integer_value(n), exact) : "none";
}

static void quota_row(struct table *table, const struct cli *cli, const json_t *v, time_t now)
{
	char ws[OUT_SIZE_MAX], snaps[OUT_SIZE_MAX], bytes[OUT_SIZE_MAX];
	const char *cells[] = { owner_name(cli, v, "owner"), limit_text(ws, v, "workspaces", true),
				limit_text(snaps, v, "snapshots", true),
				limit_text(bytes, v, "bytes", cli->bytes) };
	table_row(table, cells);
}

static const char *const quota_headings[] = { "OWNER", ">WORKSPACES", ">SNAPSHOTS", ">BYTES",
					      NULL };
static const struct list_view quota_view = { quota_headings, "owner", OWNERS_SHOWN, quota_row };

/* What isn't said stays as it is. 1: something was said. */
static int change_quota(json_t *quota, const struct args *a, struct err *err)
{
	static const struct {
		const char *name, *key;
		int (*parse)(const char *, const char *, uint64_t *, struct err *);
	} limits[] = { { "workspaces", "workspaces", args_count },
		       { "snapshots", "snapshots", args_count },
		       { "size", "bytes", args_size } };
	int said = 0;
	(void)json_object_del(quota, "owner");
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		const char *text = args_get(a, limits[i].name);
		uint64_t n = 0;
		if (!text)
			continue;
		bool none = strcmp(text, "none") == 0;
		int r = none ? 0 : limits[i].parse(text, limits[i].name, &n, err);
		if (r < 0)
			return r;
		if (json_object_set_new(quota, limits[i].key,
					none ? json_null() : json_integer((json_int_t)n)) < 0)
			return err_no_memory(err);
		said = 1;
	}
	return said;
}

int cmd_user_quota(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *quota = NULL, *now = NULL;
	if (a->n == 0) {
		auto_target all = target_new("/v1/quotas");
		return list_show(cli, &all, &quota_view, err);
	}
	auto_target get = target_new("/v1/quotas/"), put = target_new("/v1/quotas/");
	target_name(&get, a->operands[0]);
	target_name(&put, a->operands[0]);
	int r = api_call(cli, "GET", &get, NULL, &quota, NULL, err);
	if (r < 0)
		return r;
	now = json_copy(quota);
	r = now ? change_quota(now, a, err) : err_no_memory(err);
	if (r > 0) {
		json_decref(quota);
		quota = NULL;
		r = api_call(cli, "PUT", &put, now, &quota, NULL, err);
	}
	if (r < 0)
		return r;
	if (cli->json)
		return out_json(quota, err);
	auto_table *table = table_new(quota_headings);
	quota_row(table, cli, quota, 0);
	return table_print(table, stdout, err);
}

/* ---- teams ---- */

int cmd_team_add(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *body = json_object(), *doc = NULL;
	int r = body_text(body, "name", a->operands[0], err);
	if (r == 0)
		r = post(cli, "/v1/teams", body, &doc, err);
	return r < 0 ? r : cli->json ? out_json(doc, err) : 0;
}

static void team_rows(struct table *table, const struct cli *cli, const json_t *v, time_t now)
{
	size_t i;
	json_t *m;
	json_array_foreach(json_object_get(v, "members"), i, m) {
		const char *cells[] = { get_text(v, "name"), owner_name(cli, m, "owner"),
					get_text(m, "role"), owner_name(cli, v, "owner") };
		table_row(table, cells);
	}
}

int cmd_team_ls(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const headings[] = { "TEAM", "MEMBER", "ROLE", "OWNER", NULL };
	static const struct list_view view = { headings, "name", OWNERS_SHOWN, team_rows };
	auto_target t = target_new("/v1/teams");
	return list_show(cli, &t, &view, err);
}

static struct target member(const struct args *a)
{
	struct target t = target_new("/v1/teams/");
	target_name(&t, a->operands[0]);
	target_path(&t, "/members/");
	target_name(&t, a->operands[1]);
	return t;
}

int cmd_team_join(struct cli *cli, const struct args *a, struct err *err)
{
	const char *role = args_get(a, "role");
	auto_json json_t *body = json_pack("{s:s}", "role", role ? role : "member"), *doc = NULL;
	if (!body)
		return err_no_memory(err);
	auto_target t = member(a);
	int r = api_call(cli, "PUT", &t, body, &doc, NULL, err);
	return r < 0 ? r : cli->json ? out_json(doc, err) : 0;
}

int cmd_team_leave(struct cli *cli, const struct args *a, struct err *err)
{
	auto_target t = member(a);
	auto_json json_t *doc = NULL;
	int r = api_call(cli, "DELETE", &t, NULL, &doc, NULL, err);
	return r < 0 ? r : cli->json ? out_json(doc, err) : 0;
}

int cmd_team_rm(struct cli *cli, const struct args *a, struct err *err)
{
	return list_remove_each(cli, a, "/v1/teams/", NULL, err);
}
