/* Merging what one workspace changed into another. */
#include <stdio.h>
#include "fs/base/cleanup.h"
#include "tools/bough/api.h"
#include "tools/bough/json.h"

/* The conflicts of a refused merge, one a line. */
static void list_conflicts(const struct cli *cli)
{
	auto_json json_t *error = cli->detail ? json_loads(cli->detail, 0, NULL) : NULL;
	const json_t *details = json_object_get(error, "details"), *c;
	const json_t *all = json_object_get(details, "conflicts");
	size_t i;
	json_array_foreach(all, i, c) {
		auto_free char *path = get_name(c, "path");
		auto_free char *shown = path ? out_quoted(path) : NULL;
		fprintf(stderr, "  %s: %s\n", shown ? shown : "?", get_text(c, "why"));
	}
	int64_t count = get_int(details, "count");
	if (count > (int64_t)json_array_size(all))
		fprintf(stderr, "  and %lld more\n",
			(long long)count - (long long)json_array_size(all));
}

static void print_count(const json_t *res, const char *key, bool *any)
{
	int64_t n = get_int(res, key);
	if (n > 0)
		printf("%s%lld %s", *any ? ", " : "", (long long)n, key);
	*any |= n > 0;
}

int cmd_merge(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const counts[] = { "added", "removed", "moved", "changed", "merged" };
	auto_json json_t *body = json_object();
	auto_json json_t *res = NULL;
	const char *into = args_get(a, "into");
	if (!into)
		return err_set(err, -EINVAL,
			       "--into OTHER names the workspace that gets the changes");
	auto_target t = target_ws(into, "/merge");
	int r = body_text(body, "from", a->operands[0], err);
	if (r >= 0)
		r = api_call(cli, "POST", &t, body, &res, NULL, err);
	if (r < 0) {
		if (!cli->json)
			list_conflicts(cli);
		return r;
	}
	if (cli->json)
		return out_json(res, err);
	bool any = false;
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		print_count(res, counts[i], &any);
	printf("%s\n", any ? "" : "nothing to merge");
	return 0;
}
