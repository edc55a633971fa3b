/* bough watch: what happens in a workspace, a line each, until it is interrupted. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "fs/base/cleanup.h"
#include "tools/bough/api.h"
#include "tools/bough/json.h"

enum {
	LINE_MAX_BYTES = 256 * 1024, /* two paths of 16 KiB, escaped */
	ID_MAX_BYTES = 96,
	AGAIN_MS = 200, /* after a stream that ended: boughd is being restarted */
};

struct watch {
	struct cli *cli;
	const char *name, *path;
	bool here;
	uint64_t left; /* events to print; UINT64_MAX: all */
	char id[ID_MAX_BYTES];
};

static void print_text(const json_t *e)
{
	const char *path = get_text(e, "path"), *old = get_text(e, "old_path");
	path = *path ? path : get_text(e, "path_b64");
	old = *old ? old : get_text(e, "old_path_b64");
	printf("%-8s ", get_text(e, "event"));
	if (*old) {
		out_clean(stdout, old);
		printf(" -> ");
	}
	out_clean(stdout, path);
	printf("\n");
}

static int print_event(struct watch *w, const char *data, struct err *err)
{
	auto_json json_t *e = json_loads(data, 0, NULL);
	if (!e)
		return err_set(err, -EPROTO, "boughd sent what isn't an event");
	if (w->cli->json)
		(void)puts(data);
	else
		print_text(e);
	/* A pipe's reader gets each as it comes. */
	if (fflush(stdout) != 0)
		return err_sys(err, -errno, "write");
	w->left -= w->left != UINT64_MAX;
	return 0;
}

/* One line of the stream. */
static int take_line(struct watch *w, const char *line, struct err *err)
{
	if (strncmp(line, "id: ", 4) == 0)
		(void)snprintf(w->id, sizeof(w->id), "%s", line + 4);
	return strncmp(line, "data: ", 6) == 0 ? print_event(w, line + 6, err) : 0;
}

/* Until the stream ends: 0; or why it can't be had. */
static int listen(struct watch *w, struct err *err)
{
	struct http *h = NULL;
	const char *line;
	size_t len;
	auto_target t = target_ws(w->name, "/watch");
	target_query(&t, "path", w->path);
	target_query(&t, "recursive", w->here ? NULL : "1");
	target_query(&t, "since", *w->id ? w->id : NULL);
	int r = api_stream(w->cli, &t, "text/event-stream", &h, err);
	if (r < 0)
		return r;
	while (w->left > 0 && (r = http_read_line(h, LINE_MAX_BYTES, &line, &len, err)) > 0) {
		r = take_line(w, line, err);
		if (r < 0)
			break;
	}
	if (r == -ECONNRESET) /* boughd is gone: another one goes on from there */
		r = 0;
	else if (r < 0)
		r = api_stream_error(w->cli, h, r, err);
	http_free(h);
	return r < 0 ? r : 0;
}

int cmd_watch(struct cli *cli, const struct args *a, struct err *err)
{
	struct watch w = { .cli = cli, .name = a->operands[0], .left = UINT64_MAX };
	const char *since = args_get(a, "since"), *count = args_get(a, "count");
	w.path = a->n > 1 ? a->operands[1] : NULL;
	w.here = args_get(a, "here") != NULL;
	if (since && strlen(since) >= sizeof(w.id))
		return err_set(err, -EINVAL, "--since: no id of an event");
	if (since)
		(void)snprintf(w.id, sizeof(w.id), "%s", since);
	int r = count ? args_number(count, "--count", 1, INT64_MAX, &w.left, err) : 0;
	while (r == 0 && w.left > 0) {
		r = listen(&w, err);
		if (r == 0 && w.left > 0)
			(void)nanosleep(&(struct timespec){ .tv_nsec = AGAIN_MS * 1000000L }, NULL);
	}
	return r;
}
