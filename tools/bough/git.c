/* Back to git: commit and push. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/cleanup.h"
#include "tools/bough/api.h"
#include "tools/bough/json.h"
#include "tools/bough/out.h"

/* Whose commit it is, when not said: GIT_AUTHOR_NAME and GIT_AUTHOR_EMAIL, as for git itself; else
 * boughd decides. */
static int set_author(json_t *body, const char *given, struct err *err)
{
	const char *name = getenv("GIT_AUTHOR_NAME"), *email = getenv("GIT_AUTHOR_EMAIL");
	auto_free char *both = NULL;
	if (given)
		return body_text(body, "author", given, err);
	if (!name || !*name || !email || !*email)
		return 0;
	if (asprintf(&both, "%s <%s>", name, email) < 0) {
		both = NULL;
		return err_no_memory(err);
	}
	return body_text(body, "author", both, err);
}

/* A workspace of that name, or else a snapshot. */
static int post_commit(struct cli *cli, const char *name, json_t *body, json_t **res,
		       struct err *err)
{
	struct progress p;
	progress_begin(&p, cli, "commit");
	int r = -ENOENT;
	if (strncmp(name, "sn_", 3) != 0) {
		auto_target t = target_ws(name, "/commit");
		r = api_job(cli, "POST", &t, body, NULL, &p, res, err);
	}
	if (r == -ENOENT) {
		auto_target t = target_snap(name, "/commit");
		r = api_job(cli, "POST", &t, body, NULL, &p, res, err);
	}
	if (r == -ENOENT) {
		free(steal_ptr(&cli->detail)); /* it tells of one of the two only */
		return err_set(err, r,
			       "no workspace or snapshot \"%s\": `bough ls` and `bough snapshots "
			       "ls` show what there is",
			       name);
	}
	return r;
}

int cmd_commit(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const texts[] = { "message", "branch", NULL };
	static const char *const flags[] = { "squash", "history", "sync", "ignored", NULL };
	auto_json json_t *body = json_object(), *res = NULL;
	if (!args_get(a, "message") && !args_get(a, "history"))
		return err_set(err, -EINVAL, "-m MESSAGE says what the commit is about");
	int r = body ? body_texts(body, a, texts, err) : err_no_memory(err);
	if (r >= 0)
		r = set_author(body, args_get(a, "author"), err);
	if (r >= 0)
		r = body_flags(body, a, flags, err);
	if (r >= 0)
		r = post_commit(cli, a->operands[0], body, &res, err);
	if (r < 0)
		return r;
	if (cli->json)
		return out_json(res, err);
	out_warnings(cli, res);
	if (!cli->quiet) {
		int64_t n = get_int(res, "files");
		(void)fputs("bough: ", stderr);
		out_clean(stderr, get_text(res, "branch"));
		if (get_true(res, "unchanged"))
			(void)fputs(get_true(res, "branch_moved")
					    ? " is there now: nothing has changed since\n"
					    : ": nothing has changed since\n",
				    stderr);
		else
			(void)fprintf(stderr, ": %lld path%s%s\n", (long long)n, n == 1 ? "" : "s",
				      get_true(res, "history") ? ", after its own commits" : "");
	}
	printf("%s\n", get_text(res, "commit"));
	return 0;
}

int cmd_push(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const texts[] = { "branch", "remote", NULL };
	static const char *const flags[] = { "any-names", NULL };
	auto_json json_t *body = json_object(), *res = NULL;
	const char *of = args_get(a, "force-with-lease-of");
	int r = body ? body_texts(body, a, texts, err) : err_no_memory(err);
	if (r >= 0 && (of || args_get(a, "force-with-lease")))
		r = body_text(body, "force_with_lease", of ? of : "", err);
	if (r >= 0)
		r = body_flags(body, a, flags, err);
	if (r < 0)
		return r;
	struct progress p;
	auto_target t = target_ws(a->operands[0], "/push");
	progress_begin(&p, cli, "push");
	r = api_job(cli, "POST", &t, body, NULL, &p, &res, err);
	if (r < 0)
		return r;
	if (cli->json)
		return out_json(res, err);
	printf("%s\n", get_text(res, "commit"));
	if (!cli->quiet) {
		(void)fputs("bough: on ", stderr);
		out_clean(stderr, get_text(res, "branch"));
		(void)fputs(" of ", stderr);
		out_clean(stderr, get_text(res, "remote"));
		(void)fputc('\n', stderr);
	}
	return 0;
}
