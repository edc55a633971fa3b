/* bough watch: what happens in a workspace, a line each, until it is interrupted. */
#include <stdio.h>
#include <string.h>
#include "fs/base/cleanup.h"
#include "tools/bough/api.h"
#include "tools/bough/json.h"
#include "tools/bough/sse.h"

struct watch {
	struct cli *cli;
	const char *name, *path;
	bool here;
	uint64_t left; /* events to print; UINT64_MAX: all */
};

static int print_text(const json_t *e, struct err *err)
{
	auto_free char *path = get_name(e, "path"), *old = get_name(e, "old_path");
	auto_free char *to = path ? out_quoted(path) : NULL, *from = old ? out_quoted(old) : NULL;
	if (!to || !from)
		return err_no_memory(err);
	printf("%-8s %s%s%s\n", get_text(e, "event"), from, *from ? " -> " : "", to);
	return 0;
}

static int print_event(void *ctx, const char *data, struct err *err)
{
	struct watch *w = ctx;
	auto_json json_t *e = json_loads(data, 0, NULL);
	if (!e)
		return err_set(err, -EPROTO, "boughd sent what isn't an event");
	int r = 0;
	if (w->cli->json)
		(void)puts(data);
	else
		r = print_text(e, err);
	if (r < 0)
		return r;
	/* A pipe's reader gets each as it comes. */
	if (fflush(stdout) != 0)
		return err_sys(err, -errno, "write");
	w->left -= w->left != UINT64_MAX;
	return w->left > 0;
}

static struct target target(void *ctx, const char *id)
{
	const struct watch *w = ctx;
	struct target t = target_ws(w->name, "/watch");
	target_query(&t, "path", w->path);
	target_query(&t, "recursive", w->here ? NULL : "1");
	target_query(&t, "since", *id ? id : NULL);
	return t;
}

int cmd_watch(struct cli *cli, const struct args *a, struct err *err)
{
	struct watch w = { .cli = cli, .name = a->operands[0], .left = UINT64_MAX };
	struct sse s = { .cli = cli, .target = target, .event = print_event, .ctx = &w };
	const char *since = args_get(a, "since"), *count = args_get(a, "count");
	w.path = a->n > 1 ? a->operands[1] : NULL;
	w.here = args_get(a, "here") != NULL;
	if (since && strlen(since) >= sizeof(s.id))
		return err_set(err, -EINVAL, "--since: no id of an event");
	if (since)
		(void)snprintf(s.id, sizeof(s.id), "%s", since);
	int r = count ? args_number(count, "--count", 1, INT64_MAX, &w.left, err) : 0;
	return r < 0 ? r : sse_read(&s, true, err);
}
