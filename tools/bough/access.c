/* Who may use the service: tokens, users, teams. */
#include <string.h>
#include "tools/bough/api.h"
#include "tools/bough/cli.h"
#include "tools/bough/json.h"
#include "tools/bough/out.h"

static int no_memory(struct err *err)
{
	return err_set(err, -ENOMEM, "out of memory");
}

/* DELETE of each operand below `path`. */
static int remove_each(struct cli *cli, const struct args *a, const char *path, struct err *err)
{
	for (unsigned i = 0; i < a->n; i++) {
		auto_target t = target_new(path);
		target_name(&t, a->operands[i]);
		int r = api_call(cli, "DELETE", &t, NULL, NULL, NULL, err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int fetch(struct cli *cli, const char *path, json_t **out, struct err *err)
{
	auto_target t = target_new(path);
	return api_call(cli, "GET", &t, NULL, out, NULL, err);
}

static int post(struct cli *cli, const char *path, json_t *body, json_t **out, struct err *err)
{
	auto_target t = target_new(path);
	return api_call(cli, "POST", &t, body, out, NULL, err);
}

/* Names only, for --quiet. */
static void print_each(const json_t *doc, const char *key)
{
	size_t i;
	json_t *v;
	json_array_foreach(json_object_get(doc, "items"), i, v) {
		out_clean(stdout, get_text(v, key));
		printf("\n");
	}
}

/* ---- tokens ---- */

int cmd_token_create(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const texts[] = { "name", "scope", "owner" };
	auto_json json_t *body = json_object(), *doc = NULL;
	const char *expires = args_get(a, "expires");
	uint64_t s = 0;
	int r = body ? 0 : no_memory(err);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]) && r == 0; i++)
		if (args_get(a, texts[i]))
			r = api_set_text(body, texts[i], args_get(a, texts[i]), err);
	if (r == 0 && expires)
		r = args_duration(expires, "--expires", &s, err);
	if (r == 0 && expires &&
	    json_object_set_new(body, "expires_s", json_integer((json_int_t)s)))
		r = no_memory(err);
	if (r == 0 && args_get(a, "read-only") &&
	    json_object_set_new(body, "read_only", json_true()) < 0)
		r = no_memory(err);
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

int cmd_token_ls(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const headings[] = { "ID",      "NAME",    "OWNER", "SCOPE",
						"CREATED", "EXPIRES", "USED",  NULL };
	auto_json json_t *doc = NULL;
	time_t now = time(NULL);
	size_t i;
	json_t *v;
	int r = fetch(cli, "/v1/tokens", &doc, err);
	if (r < 0)
		return r;
	if (cli->json)
		return out_json(doc, err);
	if (cli->quiet) {
		print_each(doc, "id");
		return 0;
	}
	auto_table *table = table_new(headings);
	json_array_foreach(json_object_get(doc, "items"), i, v) {
		char scope[64], made[OUT_AGE_MAX], used[OUT_AGE_MAX], expires[32];
		(void)snprintf(scope, sizeof(scope), "%s%s", get_text(v, "scope"),
			       get_true(v, "read_only") ? ", reading" : "");
		(void)snprintf(expires, sizeof(expires), "%.19s",
			       *get_text(v, "expires") ? get_text(v, "expires") : "-");
		const char *cells[] = { get_text(v, "id"),
					*get_text(v, "name") ? get_text(v, "name") : "-",
					get_text(v, "owner"),
					scope,
					out_age(made, get_text(v, "created"), now),
					expires,
					out_age(used, get_text(v, "used"), now) };
		table_row(table, cells);
	}
	return table_print(table, stdout, err);
}

int cmd_token_rm(struct cli *cli, const struct args *a, struct err *err)
{
	return remove_each(cli, a, "/v1/tokens/", err);
}

/* ---- users ---- */

int cmd_user_add(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *body = json_object(), *doc = NULL;
	const char *uid = args_get(a, "uid");
	uint64_t n = 0;
	int r = body ? api_set_text(body, "name", a->operands[0], err) : no_memory(err);
	if (r == 0 && uid)
		r = args_number(uid, "--uid", 0, UINT32_MAX - 1, &n, err);
	if (r == 0 && uid && json_object_set_new(body, "uid", json_integer((json_int_t)n)) < 0)
		r = no_memory(err);
	if (r == 0 && args_get(a, "admin") && json_object_set_new(body, "admin", json_true()) < 0)
		r = no_memory(err);
	if (r == 0)
		r = post(cli, "/v1/users", body, &doc, err);
	return r < 0 ? r : cli->json ? out_json(doc, err) : 0;
}

int cmd_user_ls(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const headings[] = { "NAME", "OWNER", "ADMIN", NULL };
	auto_json json_t *doc = NULL;
	size_t i;
	json_t *v;
	int r = fetch(cli, "/v1/users", &doc, err);
	if (r < 0)
		return r;
	if (cli->json)
		return out_json(doc, err);
	if (cli->quiet) {
		print_each(doc, "name");
		return 0;
	}
	auto_table *table = table_new(headings);
	json_array_foreach(json_object_get(doc, "items"), i, v) {
		const char *cells[] = { get_text(v, "name"), get_text(v, "owner"),
					get_true(v, "admin") ? "yes" : "no" };
		table_row(table, cells);
	}
	return table_print(table, stdout, err);
}

int cmd_user_rm(struct cli *cli, const struct args *a, struct err *err)
{
	return remove_each(cli, a, "/v1/users/", err);
}

/* ---- teams ---- */

int cmd_team_add(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *body = json_object(), *doc = NULL;
	int r = body ? api_set_text(body, "name", a->operands[0], err) : no_memory(err);
	if (r == 0)
		r = post(cli, "/v1/teams", body, &doc, err);
	return r < 0 ? r : cli->json ? out_json(doc, err) : 0;
}

int cmd_team_ls(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const headings[] = { "TEAM", "MEMBER", "ROLE", NULL };
	auto_json json_t *doc = NULL;
	size_t i, k;
	json_t *v, *m;
	int r = fetch(cli, "/v1/teams", &doc, err);
	if (r < 0)
		return r;
	if (cli->json)
		return out_json(doc, err);
	if (cli->quiet) {
		print_each(doc, "name");
		return 0;
	}
	auto_table *table = table_new(headings);
	json_array_foreach(json_object_get(doc, "items"), i, v) {
		json_array_foreach(json_object_get(v, "members"), k, m) {
			const char *cells[] = { get_text(v, "name"), get_text(m, "owner"),
						get_text(m, "role") };
			table_row(table, cells);
		}
	}
	return table_print(table, stdout, err);
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
		return no_memory(err);
	auto_target t = member(a);
	int r = api_call(cli, "PUT", &t, body, &doc, NULL, err);
	return r < 0 ? r : cli->json ? out_json(doc, err) : 0;
}

int cmd_team_leave(struct cli *cli, const struct args *a, struct err *err)
{
	auto_target t = member(a);
	return api_call(cli, "DELETE", &t, NULL, NULL, NULL, err);
}

int cmd_team_rm(struct cli *cli, const struct args *a, struct err *err)
{
	return remove_each(cli, a, "/v1/teams/", err);
}
