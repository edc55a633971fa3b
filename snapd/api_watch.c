/* What happens in a workspace, as server-sent events. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/hash.h"
#include "fs/base/json.h"
#include "fs/work/watch.h"
#include "snapd/access.h"
#include "snapd/api_sandbox.h"
#include "snapd/files_list.h"
#include "snapd/sse.h"
#include "snapd/watch.h"
#include "snapd/web_parse.h"

enum { RETRY_MS = 500 /* while bough-fs isn't there */ };

struct watching {
	struct snapd *sd;
	struct principal who;
	char id[ID_SIZE];
	char box[ID_SIZE]; /* the sandbox that the paths are of; "": the workspace's */
	char *asked; /* the path that was asked for */
	char *above; /* what stands before the workspace's paths: "", or ends in a slash */
	char *path; /* the workspace's; "" is the root */
	bool recursive;
	struct watched *watched;
	uint64_t seen;
	char token[WATCH_TOKEN_MAX];
	struct auth_look looked;
	struct sse sse;
};

static void watching_free(void *task)
{
	struct watching *w = task;
	watched_leave(w->watched);
	sse_done(&w->sse);
	free(w->asked);
	free(w->above);
	free(w->path);
	free(w);
}

/* ---- which events ---- */

static bool is_below(const char *path, const char *top)
{
	size_t n = strlen(top);
	return n == 0 || (strncmp(path, top, n) == 0 && path[n] == '/');
}

/* The path is the folder that is watched, or in it. */
static bool is_in(const struct watching *w, const char *path)
{
	size_t n = strlen(w->path);
	if (strcmp(path, w->path) == 0)
		return true;
	if (!is_below(path, w->path))
		return false;
	return w->recursive || !strchr(path + n + (n > 0), '/');
}

/* What becomes of a folder above it becomes of it. */
static bool concerns(const struct watching *w, const char *path, bool name)
{
	return is_in(w, path) || (name && is_below(w->path, path));
}

struct shown {
	enum watch_kind kind;
	const char *path, *old_path; /* NULL: none */
};

/* Of a rename from or to elsewhere, what it is here. False: nothing. */
static bool show(const struct watching *w, struct shown *s)
{
	bool here = concerns(w, s->path, s->kind != WATCH_MODIFIED);
	if (s->kind != WATCH_RENAMED)
		return here;
	bool was = concerns(w, s->old_path, true);
	if (here && !was)
		s->kind = WATCH_CREATED;
	if (was && !here) {
		s->kind = WATCH_DELETED;
		s->path = s->old_path;
	}
	if (!here || !was)
		s->old_path = NULL;
	return here || was;
}

/* ---- as text ---- */

static const char *const kind_names[WATCH_KINDS] = { "created", "modified", "deleted", "renamed" };

static int set_path(json_t *j, const char *key, const struct watching *w, const char *path)
{
	auto_free char *whole = NULL;
	if (asprintf(&whole, "%s%s", w->above, path) < 0) {
		whole = NULL;
		return -1;
	}
	return listing_set_name(j, key, whole, strlen(whole));
}

static int put_event(struct watching *w, const struct shown *s, int type, const char *token)
{
	json_t *j = json_pack("{s:s}", "event", kind_names[s->kind]);
	int bad = j ? set_path(j, "path", w, s->path) : -1;
	if (s->old_path)
		bad |= set_path(j, "old_path", w, s->old_path);
	bad |= json_object_set_new(j, "type", json_string(place_type(DTTOIF((unsigned)type))));
	auto_free char *text = bad ? NULL : json_text(j, JSON_COMPACT);
	json_decref(j);
	if (!text)
		return -ENOMEM;
	buf_printf(&w->sse.out, "id: %s\nevent: %s\ndata: %s\n\n", token, kind_names[s->kind],
		   text);
	return buf_error(&w->sse.out);
}

/* A path in hex, terminated; the caller frees. NULL: none, or no memory. */
static char *unhex(const json_t *j)
{
	const char *hex = json_string_value(j);
	size_t n = json_string_length(j) / 2;
	char *out = hex ? calloc(1, n + 1) : NULL;
	if (out && hex_decode(out, n, hex) < 0) {
		free(out);
		out = NULL;
	}
	return out;
}

/* One of bough-fs's answer: [letter, type, path, old path, token]. */
static int take_event(struct watching *w, const json_t *one)
{
	static const char letters[] = "cmdr";
	const char *letter = json_string_value(json_array_get(one, 0));
	const char *token = json_string_value(json_array_get(one, 4));
	const char *at = letter && *letter ? strchr(letters, *letter) : NULL;
	auto_free char *path = unhex(json_array_get(one, 2));
	auto_free char *old = unhex(json_array_get(one, 3));
	if (!at || !token || !path || !old)
		return -EPROTO;
	struct shown s = { .kind = (enum watch_kind)(at - letters), .path = path };
	s.old_path = s.kind == WATCH_RENAMED ? old : NULL;
	int type = (int)json_integer_value(json_array_get(one, 1));
	return show(w, &s) ? put_event(w, &s, type, token) : 0;
}

static void put_reset(struct watching *w, const char *token)
{
	buf_printf(&w->sse.out, "id: %s\nevent: reset\ndata: {\"event\":\"reset\"}\n\n", token);
}

/* All that happened: what of it concerns the client is in w->out. */
static int take_answer(struct watching *w, const json_t *a, bool *more, struct err *err)
{
	const json_t *events = json_object_get(a, "events");
	const char *token = json_string_value(json_object_get(a, "token"));
	int r = token ? 0 : -EPROTO;
	for (size_t i = 0; i < json_array_size(events) && r == 0; i++)
		r = take_event(w, json_array_get(events, i));
	if (r < 0)
		return r == -ENOMEM ? err_no_memory(err)
				    : err_set(err, r, "bough-fs told nonsense of what happened");
	if (json_is_true(json_object_get(a, "lost")))
		put_reset(w, token);
	*more = json_is_true(json_object_get(a, "more"));
	(void)snprintf(w->token, sizeof(w->token), "%s", token);
	return 0;
}

/* ---- the stream ---- */

/* 0 when it is the caller's to see no longer: who comes back hears why. */
static int still_seen(struct watching *w, struct err *err)
{
	auto_ws_row row = { 0 };
	if (!auth_look_due(w->sd, &w->who, &w->looked))
		return 1;
	int r = auth_still(w->sd, &w->who, err);
	if (r >= 0 && w->box[0])
		return sandbox_place_still(w->sd, &w->who, w->box, w->asked, w->id, err);
	if (r >= 0)
		r = catalog_ws_get(w->sd->catalog, w->id, &row, err);
	if (r == -EKEYREJECTED || r == -ENOENT)
		return 0;
	return r < 0 ? r : access_sees(w->sd, &w->who, &row.own, w->id);
}

static bool is_away(int r)
{
	return r == -ECONNREFUSED || r == -ECONNRESET || r == -ETIMEDOUT;
}

/* One look. 1: something is in w->out, or there is more; 0: nothing happened. */
static int look(struct watching *w, struct err *err)
{
	json_t *a = NULL;
	bool more = false;
	w->seen = watched_count(w->watched);
	int r = watched_changes(w->watched, w->token, &a, err);
	if (r >= 0)
		r = take_answer(w, a, &more, err);
	watched_drop(w->watched, a);
	return r < 0 ? r : w->sse.out.len > 0 || more;
}

/* 1: something may have happened, or a beat is in the buffer; 0: the stream ends. */
static int wait_for_more(struct watching *w, bool away, struct err *err)
{
	for (;;) {
		int ms = sse_patience(&w->sse);
		if (ms == -EPIPE)
			return 0;
		if (ms == 0) {
			sse_beat(&w->sse, "still here", away ? NULL : w->token);
			return 1;
		}
		int r = watched_wait(w->watched, w->seen, away && ms > RETRY_MS ? RETRY_MS : ms);
		if (r == -ESHUTDOWN)
			return 0; /* the client comes back */
		if (r == 2)
			w->looked = (struct auth_look){ 0 };
		if (r > 0 || away)
			return 1;
		r = still_seen(w, err);
		if (r <= 0)
			return r;
	}
}

static int fill(void *task, struct err *err)
{
	struct watching *w = task;
	for (;;) {
		int still = still_seen(w, err);
		if (still <= 0)
			return still;
		int r = look(w, err);
		if (r < 0 && !is_away(r))
			return r == -ENOENT ? 0 : r;
		if (r <= 0)
			still = wait_for_more(w, r < 0, err);
		if (still <= 0 || w->sse.out.len > 0)
			return still;
	}
}

static ssize_t watching_read(void *task, uint64_t pos, void *buf, size_t n, struct err *err)
{
	struct watching *w = task;
	return sse_pull(&w->sse, fill, w, buf, n, err);
}

/* ---- the request ---- */

static int take_path(struct watching *w, struct request *rq, bool box, struct err *err)
{
	const char *path = request_query(rq, "path");
	path = path ? path : "";
	path += *path == '/';
	w->asked = strdup(path);
	if (!w->asked)
		return err_no_memory(err);
	size_t n = strlen(w->asked);
	if (n > 0 && w->asked[n - 1] == '/')
		w->asked[n - 1] = '\0';
	w->recursive = request_query_true(rq, "recursive");
	int r = *w->asked ? web_file_path_check(w->asked, err) : 0;
	const char *rest = w->asked;
	if (r >= 0)
		r = box ? sandbox_place(rq->ctx, rq->caller, rq->params[0], w->asked, false, w->id,
					&rest, err)
			: access_path(w->asked, err);
	if (r < 0)
		return r;
	int len = (int)(rest - w->asked);
	if (box)
		memcpy(w->box, rq->params[0], sizeof(w->box));
	if (asprintf(&w->above, "%.*s%s", len, w->asked, len && rest[-1] != '/' ? "/" : "") < 0)
		w->above = NULL; /* undefined then */
	w->path = strdup(rest);
	return w->above && w->path ? 0 : err_no_memory(err);
}

/* Where it begins: what the client has, or now. */
static int begin(struct watching *w, struct request *rq, struct err *err)
{
	const char *since = request_query(rq, "since");
	json_t *a = NULL;
	bool more;
	since = since ? since : request_header(rq, "Last-Event-ID");
	if (since && watch_token_check(since) < 0)
		return request_bad_field(rq, "since", err, "it is no id of an event");
	w->seen = watched_count(w->watched);
	int r = watched_changes(w->watched, since, &a, err);
	if (r >= 0 && json_is_true(json_object_get(a, "lost")))
		r = err_set(err, -EKEYEXPIRED,
			    "what happened since then isn't known any longer: list anew");
	buf_printf(&w->sse.out, ": bough\n");
	if (r >= 0 && !since)
		buf_printf(&w->sse.out, "id: %s\n",
			   json_string_value(json_object_get(a, "token")));
	buf_printf(&w->sse.out, "\n");
	if (r >= 0)
		r = take_answer(w, a, &more, err);
	watched_drop(w->watched, a);
	return r < 0 ? r : buf_error(&w->sse.out) ? err_no_memory(err) : 0;
}

static int watch(struct request *rq, struct reply *rp, bool box, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_source src = { 0 };
	struct watching *w = calloc(1, sizeof(*w));
	if (!w)
		return err_no_memory(err);
	w->sd = sd;
	w->who = *rq->caller;
	sse_begin(&w->sse, rq);
	int r = take_path(w, rq, box, err);
	if (r >= 0)
		r = source_find_ws(&src, sd, box ? w->id : rq->params[0], LEASE_NONE, "watch", err);
	if (r >= 0) {
		memcpy(w->id, src.ws.id, sizeof(w->id));
		r = watched_join(sd->watches, w->id, &w->watched, err);
	}
	if (r >= 0)
		r = begin(w, rq, err);
	if (r < 0) {
		watching_free(w);
		return r;
	}
	sse_reply(rp, w, watching_free, watching_read);
	return 0;
}

int api_ws_watch(struct request *rq, struct reply *rp, struct err *err)
{
	return watch(rq, rp, false, err);
}

int api_sandbox_watch(struct request *rq, struct reply *rp, struct err *err)
{
	return watch(rq, rp, true, err);
}
