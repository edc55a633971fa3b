#include "tools/bough/checkout.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "tools/bough/api.h"
#include "tools/bough/json.h"
#include "tools/bough/out.h"

enum {
	DEPTH_MAX = 1 << 30,
	SHORT_ID = 12, /* digits of a commit's id that are shown */
};

int checkout_set(json_t *body, const struct args *a, struct err *err)
{
	static const char *const others[] = { "ref", "scope", "depth", "branch", "seen-at" };
	static const char *const texts[] = { "ref", "branch", "seen-at", NULL };
	const char *repo = args_get(a, "git"), *depth = args_get(a, "depth"), *scope;
	for (size_t i = 0; !repo && i < sizeof(others) / sizeof(others[0]); i++)
		if (args_get(a, others[i]))
			return err_set(err, -EINVAL, "--%s needs --git", others[i]);
	if (!repo)
		return 0;
	json_t *git = json_object();
	if (json_object_set_new(body, "git", git) < 0)
		return err_no_memory(err);
	int r = body_text(git, "repo", repo, err);
	if (r == 0)
		r = body_texts(git, a, texts, err);
	for (unsigned i = 0; r == 0 && (scope = args_each(a, "scope", i)); i++)
		r = body_add(git, "scopes", scope, err);
	uint64_t n;
	if (r == 0 && depth)
		r = args_number(depth, "--depth", 1, DEPTH_MAX, &n, err);
	if (r == 0 && depth)
		r = body_number(git, "depth", n, err);
	return r;
}

/* "3 files of git-lfs are left as pointers:", and which. */
static void tell_paths(int64_t n, const json_t *paths, const char *one, const char *many)
{
	size_t i;
	json_t *path;
	int64_t told = 0;
	if (n == 0)
		return;
	fprintf(stderr, "bough: %" PRId64 " %s:\n", n, n == 1 ? one : many);
	json_array_foreach((json_t *)(uintptr_t)paths, i, path) {
		fprintf(stderr, "  ");
		out_clean(stderr, json_string_value(path) ? json_string_value(path) : "");
		(void)fputc('\n', stderr);
		told++;
	}
	if (told < n)
		fprintf(stderr, "  … and %" PRId64 " more\n", n - told);
}

void checkout_notes(const struct cli *cli, const json_t *ws)
{
	const json_t *co = json_object_get(ws, "checkout");
	int64_t uid = get_int(co, "uid");
	if (!co || cli->quiet || cli->json)
		return;
	tell_paths(get_int(co, "submodules"), json_object_get(co, "submodule_paths"),
		   "submodule is left as an empty folder", "submodules are left as empty folders");
	tell_paths(get_int(co, "lfs"), json_object_get(co, "lfs_paths"),
		   "file of git-lfs is left as a pointer", "files of git-lfs are left as pointers");
	if (uid != (int64_t)geteuid())
		fprintf(stderr,
			"bough: all belongs to user %" PRId64
			"; git of others wants it in safe.directory\n",
			uid);
}

static void line_commit(const char *key, const char *id)
{
	char text[SHORT_ID + 1];
	(void)snprintf(text, sizeof(text), "%s", id); /* cut */
	out_line(key, text);
}

void checkout_show(const json_t *ws)
{
	const json_t *git = json_object_get(ws, "git");
	char text[32];
	size_t i;
	json_t *scope;
	if (!json_is_object(git))
		return;
	out_line("repo", get_text(git, "name"));
	out_line("ref", get_text(git, "ref"));
	line_commit("commit", get_text(git, "base"));
	if (strcmp(get_text(git, "base"), get_text(git, "anchor")) != 0)
		line_commit("anchor", get_text(git, "anchor"));
	out_line("branch", get_text(git, "branch"));
	json_array_foreach(json_object_get(git, "scopes"), i, scope)
		out_line("scope", json_string_value(scope) ? json_string_value(scope) : "");
	(void)snprintf(text, sizeof(text), "%" PRId64, get_int(git, "depth"));
	if (get_int(git, "depth"))
		out_line("depth", text);
}
