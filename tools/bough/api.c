#include "tools/bough/api.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include "fs/base/base64.h"
#include "fs/base/cleanup.h"
#include "tools/bough/json.h"
#include "tools/bough/start.h"

/* ---- targets ---- */

struct target target_new(const char *path)
{
	struct target t = { 0 };
	target_path(&t, path);
	return t;
}

static struct target target_named(const char *path, const char *name, const char *rest)
{
	struct target t = target_new(path);
	target_name(&t, name);
	target_path(&t, rest);
	return t;
}

struct target target_ws(const char *name, const char *rest)
{
	return target_named("/v1/workspaces/", name, rest);
}

struct target target_snap(const char *name, const char *rest)
{
	return target_named("/v1/snapshots/", name, rest);
}

void target_path(struct target *t, const char *literal)
{
	buf_add(&t->text, literal, strlen(literal));
}

void target_name(struct target *t, const char *name)
{
	auto_free char *s = http_escape(name);
	if (s)
		target_path(t, s);
	else
		t->text.failed = true;
}

void target_query(struct target *t, const char *key, const char *value)
{
	if (!value)
		return;
	target_path(t, t->query ? "&" : "?");
	t->query = true;
	target_path(t, key);
	target_path(t, "=");
	target_name(t, value);
}

void target_done(struct target *t)
{
	buf_done(&t->text);
}

/* ---- members ---- */

const char *get_text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));
	return s ? s : "";
}

char *get_name(const json_t *o, const char *key)
{
	char sister[32];
	(void)snprintf(sister, sizeof(sister), "%s_b64", key);
	const char *coded = get_text(o, sister);
	size_t n = strlen(coded);
	char *out = *coded ? malloc(n + 1) : strdup(get_text(o, key));
	if (!*coded || !out)
		return out;
	int len = base64_decode(coded, n, out, n);
	out[len > 0 ? len : 0] = 0;
	return out;
}

int64_t get_int(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

bool get_true(const json_t *o, const char *key)
{
	return json_is_true(json_object_get(o, key));
}

/* ---- errors ---- */

static const struct {
	const char *code;
	int err;
	const char *hint; /* what to do, where the message alone may leave one puzzled */
} error_codes[] = {
	{ "invalid", -EINVAL, NULL },
	{ "not_found", -ENOENT, NULL }, /* not_found_hint */
	{ "exists", -EEXIST, "choose another name" },
	{ "conflict", -EEXIST, NULL },
	{ "busy", -EBUSY, "end what uses it and try again" },
	{ "too_large", -EFBIG, NULL },
	{ "no_space", -ENOSPC, "make room on the disk, or run `bough gc`" },
	{ "quota", -EDQUOT, "free space in the workspace or give it a larger quota" },
	{ "unavailable", -ECONNREFUSED, "try again; `bough doctor` tells what is missing" },
	{ "overloaded", -EBUSY, "try again" },
	{ "refused", -EACCES, NULL },
	{ "not_mounted", -EBUSY, "`bough mount` mounts it" },
	{ "changed", -EEXIST, NULL },
	{ "gone", -ENOENT, NULL },
	{ "locked", -EBUSY, NULL },
	{ "range", -EINVAL, NULL },
	{ "not_implemented", -ENOSYS, NULL },
	{ "unsupported", -ENOTSUP, NULL },
	{ "remote", -EREMOTEIO, NULL },
	{ "unauthenticated", -EACCES, NULL },
	{ "forbidden", -EACCES, NULL },
	{ "in_flight", -EBUSY, NULL },
	{ "key_reused", -EEXIST, NULL },
	{ "too_many", -EBUSY, NULL },
	{ "cancelled", -ECANCELED, NULL },
	{ "internal", -EIO, NULL },
};

const char *mount_hint(const char *why)
{
	bool fuse = strstr(why, "/dev/fuse") || strstr(why, "fusermount");
	return fuse && !strchr(why, '`') ? ": `bough doctor` tells what is missing" : "";
}

/* Not of a ref, or a folder of a commit. */
static const char *not_found_hint(const char *text)
{
	bool ws = strstr(text, "workspace"), snap = strstr(text, "snapshot");
	return strstr(text, "brought back")  ? "`bough ls --deleted` shows what there is"
	       : strstr(text, "attached")    ? "`bough inspect` shows what is"
	       : strstr(text, "no sandbox ") ? "`bough ps` shows what there is"
	       : strstr(text, "no token ")   ? "`bough token ls` shows what there is"
	       : strstr(text, "no team ")    ? "`bough team ls` shows what there is"
	       : strstr(text, "no user ")    ? "`bough user ls` shows what there is"
	       : strstr(text, "no job ")     ? "`bough jobs ls` shows what there is"
	       : strstr(text, "no webhook ") ? "`bough webhook ls` shows what there is"
	       : ws && snap ? "`bough ls` and `bough snapshots ls` show what there is"
	       : ws         ? "`bough ls` shows what there is"
	       : snap       ? "`bough snapshots ls` shows what there is"
			    : NULL;
}

/* The API's error object as our error; `status` decides when its code is unknown. */
static int from_error(struct cli *cli, const json_t *e, unsigned status, struct err *err)
{
	const char *code = get_text(e, "code"), *text = get_text(e, "message");
	const char *hint = NULL;
	int r = status == 404   ? -ENOENT
		: status == 409 ? -EEXIST
		: status == 507 ? -ENOSPC
		: status == 400 ? -EINVAL
				: -EIO;
	for (size_t i = 0; i < sizeof(error_codes) / sizeof(error_codes[0]); i++)
		if (!strcmp(error_codes[i].code, code)) {
			r = error_codes[i].err;
			hint = error_codes[i].hint;
		}
	/* A wrong field is the caller's usage; what else is invalid was the data: an archive. */
	if (r == -EINVAL && status == 400 &&
	    !json_object_get(json_object_get(e, "details"), "field") && cli->uploading)
		r = -EBADMSG;
	if (json_is_object(e)) {
		free(cli->detail);
		cli->detail = json_dumps(e, JSON_COMPACT);
	}
	if (!*text)
		return err_set(err, r, "boughd answered %u without a reason", status);
	if (!strncmp(text, "import: ", 8) || !strncmp(text, "export: ", 8))
		text += 8; /* the command's own name will be said before it */
	if (*mount_hint(text))
		return err_set(err, r, "%s%s", text, mount_hint(text));
	static const char no_ws[] = "no workspace \"";
	if (r == -ENOENT && cli->sandbox_too && !strncmp(text, no_ws, sizeof(no_ws) - 1) &&
	    !strstr(text, "brought back"))
		return err_set(err, r,
			       "no workspace or sandbox %s: `bough ls` and `bough ps` show what "
			       "there is",
			       text + sizeof(no_ws) - 2);
	if (r == -ENOENT)
		hint = not_found_hint(text);
	else if (r == -EEXIST && strstr(text, "something is attached at"))
		hint = "choose another path";
	else if (r == -EEXIST && strstr(text, "'s alone"))
		hint = "`bough detach-workspace` there first";
	/* A message that already tells what to do needs nothing from us. */
	if (!hint || strchr(text, ';') || strchr(text, '`'))
		return err_set(err, r, "%s", text);
	return err_set(err, r, "%s: %s", text, hint);
}

int api_line_error(struct cli *cli, const json_t *line, struct err *err)
{
	const json_t *e = json_object_get(line, "error");
	if (!e)
		return 0;
	int64_t status = get_int(e, "status");
	return from_error(cli, e, status >= 400 && status < 600 ? (unsigned)status : 500, err);
}

/* The body of an answer with an error status. */
static int read_error(struct cli *cli, struct http *h, const struct http_head *head,
		      struct err *err)
{
	auto_free char *text = NULL;
	size_t len;
	if (http_read_all(h, API_LINE_MAX, &text, &len, NULL) < 0)
		return from_error(cli, NULL, head->status, err);
	json_t *doc = json_loadb(text, len, 0, NULL);
	if (!doc) { /* a stream whose only line is {"error": …} is JSON too */
		return from_error(cli, NULL, head->status, err);
	}
	const json_t *inner = json_object_get(doc, "error");
	int r = from_error(cli, json_is_object(inner) ? inner : doc, head->status, err);
	json_decref(doc);
	return r;
}

/* ---- calls ---- */

enum { SILENT_MS = 5000 };

/* 'R', 'S', 'T' …: the state of a process; 0: unknown. */
static char process_state(pid_t pid)
{
	char path[48], text[512];
	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *f = fopen(path, "re");
	size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
	if (f)
		(void)fclose(f);
	text[n] = 0;
	const char *at = strrchr(text, ')'); /* behind the name, which may hold anything */
	return at && at[1] == ' ' ? at[2] : 0;
}

/* One wonders what takes so long, and which process to look at. */
static void tell_silence(void *ctx, pid_t pid)
{
	char who[40] = "boughd";
	if (pid > 0)
		(void)snprintf(who, sizeof(who), "boughd (pid %d)", (int)pid);
	if (pid > 0 && process_state(pid) == 'T')
		fprintf(stderr, "bough: %s is stopped: `kill -CONT %d` lets it go on\n", who,
			(int)pid);
	else
		fprintf(stderr, "bough: %s hasn't answered yet; waiting\n", who);
}

/* What should be answered at once; the rest may have to wait for others, and a person at a
 * terminal is told then too. A job's stream begins at once. */
static bool wants_silence_told(const struct cli *cli, const char *method, const char *accept)
{
	bool quick = !strcmp(method, "GET") || !strcmp(method, "PATCH") ||
		     (accept && !strcmp(accept, "application/x-ndjson"));
	return !cli->quiet && (quick || isatty(STDERR_FILENO));
}

/* Whether a POST is marked, so that it counts once however often it is asked. Not what tells a
 * secret, which isn't told twice, nor what ends the daemon, or mends it, perhaps on a full disk. */
static bool may_be_keyed(const char *method, const struct target *t)
{
	static const char *const never[] = { "/v1/shutdown", "/v1/tokens", "/v1/webhooks", "/v1/gc",
					     "/v1/fsck" };
	bool may = strcmp(method, "POST") == 0 && !t->headers && !t->upgrade;
	for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++)
		may = may && strncmp((const char *)t->text.data, never[i], strlen(never[i])) != 0;
	return may;
}

/* Sends it, to a daemon that is started where none listens; once more where that one was killed
 * before it answered, and asking again does no harm. */
static int send_request(struct cli *cli, const struct http_request *rq, bool again,
			struct http **out, struct http_head *head, struct err *err)
{
	for (;;) {
		int r = daemon_connect_or_start(cli, out, err);
		if (r < 0)
			return r;
		r = http_send(*out, rq, head, err);
		if (r != -ECONNRESET || !again)
			return r;
		again = false;
		http_free(*out);
		*out = NULL;
	}
}

static int open_exchange(struct cli *cli, const char *method, struct target *t, json_t *body,
			 const struct http_body *upload, const char *accept, struct http **out,
			 struct http_head *head, struct err *err)
{
	buf_u8(&t->text, 0);
	if (buf_error(&t->text) < 0)
		return err_no_memory(err);
	auto_free char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	if (body && !text)
		return err_no_memory(err);
	struct http_body memory = { .type = "application/json",
				    .data = text,
				    .len = text ? strlen(text) : 0,
				    .fd = -1,
				    .size = -1 };
	struct http_request rq = { .method = method,
				   .target = (const char *)t->text.data,
				   .accept = accept,
				   .headers = t->headers,
				   .upgrade = t->upgrade,
				   .prefer = cli->background ? "respond-async" : NULL,
				   .body = upload ? upload
					   : text ? &memory
						  : NULL };
	if (wants_silence_told(cli, upload ? "PUT" : method, accept)) {
		rq.silent = tell_silence;
		rq.silent_ms = SILENT_MS;
	}
	cli->uploading = upload;
	char key[sizeof("Idempotency-Key: \r\n") + 32] = "";
	uint64_t random[2];
	if (!upload && may_be_keyed(method, t) &&
	    getrandom(random, sizeof(random), 0) == sizeof(random)) {
		(void)snprintf(key, sizeof(key),
			       "Idempotency-Key: %016" PRIx64 "%016" PRIx64 "\r\n", random[0],
			       random[1]);
		rq.headers = key;
	}
	bool again = key[0] || (!upload && strcmp(method, "GET") == 0);
	int r = send_request(cli, &rq, again, out, head, err);
	if (r < 0 && !*out)
		return r;
	if (r == 0 && head->status >= 400)
		r = read_error(cli, *out, head, err);
	else if (r == 0 && head->status >= 300)
		r = err_set(err, -EPROTO, "boughd answered %u, which isn't in its contract",
			    head->status);
	if (r < 0) {
		http_free(*out);
		*out = NULL;
	}
	return r;
}

static int parse_doc(const char *text, size_t len, json_t **out, struct err *err)
{
	json_error_t je;
	json_t *doc = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
	if (!json_is_object(doc)) {
		json_decref(doc);
		return err_set(err, -EPROTO, "boughd answered what isn't JSON: %s",
			       doc ? "no object" : je.text);
	}
	*out = doc;
	return 0;
}

static int read_doc(struct http *h, const struct http_head *head, json_t **out, struct err *err)
{
	auto_free char *text = NULL;
	size_t len;
	int r = http_read_all(h, API_DOC_MAX, &text, &len, err);
	if (r < 0)
		return r;
	if (head->status == 204 && len == 0) {
		*out = json_object();
		return *out ? 0 : err_no_memory(err);
	}
	return parse_doc(text, len, out, err);
}

int api_call(struct cli *cli, const char *method, struct target *t, json_t *body, json_t **out,
	     unsigned *status, struct err *err)
{
	struct http *h = NULL;
	struct http_head head;
	int r = open_exchange(cli, method, t, body, NULL, NULL, &h, &head, err);
	if (r < 0)
		return r;
	json_t *doc = NULL;
	r = read_doc(h, &head, &doc, err);
	http_free(h);
	if (r < 0)
		return r;
	if (status)
		*status = head.status;
	if (out)
		*out = doc;
	else
		json_decref(doc);
	return 0;
}

/* One line of a job's stream. 1: it was the result. */
static int take_line(struct cli *cli, json_t *line, struct progress *progress, json_t **out,
		     struct err *err)
{
	const json_t *p = json_object_get(line, "progress");
	if (json_is_object(p)) {
		int64_t done = get_int(p, "done"), total = get_int(p, "total");
		const char *unit = get_text(p, "unit");
		progress_update(progress, done > 0 ? (uint64_t)done : 0,
				total > 0 ? (uint64_t)total : 0, *unit ? unit : "files",
				get_text(p, "what"));
		return 0;
	}
	json_t *result = json_object_get(line, "result");
	if (json_is_object(result)) {
		*out = json_incref(result);
		return 1;
	}
	return api_line_error(cli, line, err); /* unknown lines are a newer daemon's */
}

static int read_job(struct cli *cli, struct http *h, struct progress *progress, json_t **out,
		    struct err *err)
{
	const char *text;
	size_t len;
	int r;
	while ((r = http_read_line(h, API_LINE_MAX, &text, &len, err)) > 0) {
		json_t *line = NULL;
		if (len == 0)
			continue;
		r = parse_doc(text, len, &line, err);
		if (r == 0)
			r = take_line(cli, line, progress, out, err);
		json_decref(line);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	return r < 0 ? r : err_set(err, -EPROTO, "boughd ended its answer without a result");
}

int api_job(struct cli *cli, const char *method, struct target *t, json_t *body,
	    const struct http_body *upload, struct progress *progress, json_t **out,
	    struct err *err)
{
	struct http *h = NULL;
	struct http_head head;
	int r = open_exchange(cli, method, t, body, upload, "application/x-ndjson", &h, &head, err);
	if (r == 0) {
		json_t *doc = NULL;
		if (!strcmp(head.type, "application/x-ndjson"))
			r = read_job(cli, h, progress, &doc, err);
		else
			r = read_doc(h, &head, &doc, err);
		if (r == 0)
			*out = doc;
	}
	progress_end(progress);
	http_free(h);
	return r;
}

int api_background(struct cli *cli, const char *method, struct target *t, json_t *body,
		   struct err *err)
{
	json_t *job = NULL;
	cli->background = true;
	int r = api_call(cli, method, t, body, &job, NULL, err);
	cli->background = false;
	if (r == 0 && cli->json)
		r = out_json(job, err);
	else if (r == 0)
		printf("%s\n", get_text(job, "id"));
	json_decref(job);
	return r;
}

int api_stream(struct cli *cli, struct target *t, const char *accept, struct http **out,
	       struct err *err)
{
	struct http_head head;
	return open_exchange(cli, "GET", t, NULL, NULL, accept, out, &head, err);
}

int api_exchange(struct cli *cli, const char *method, struct target *t,
		 const struct http_body *upload, struct http **out, struct http_head *head,
		 struct err *err)
{
	return open_exchange(cli, method, t, NULL, upload, NULL, out, head, err);
}

int api_aside(struct cli *cli, const char *method, struct target *t, json_t **out)
{
	char *detail = steal_ptr(&cli->detail);
	int r = api_call(cli, method, t, NULL, out, NULL, NULL);
	free(cli->detail);
	cli->detail = detail;
	return r;
}

bool api_exists(struct cli *cli, struct target *t)
{
	return api_aside(cli, "GET", t, NULL) == 0;
}

int api_tell_snapshot(struct cli *cli, const char *name, int r, struct err *err)
{
	auto_target t = target_snap(name, "");
	if (r != -ENOENT || !api_exists(cli, &t))
		return r;
	return err_set(err, r, "\"%s\" is a snapshot: see `bough snapshots show %s`", name, name);
}

/* ---- names of several kinds ---- */

enum { KINDS = 3 };
static const struct {
	unsigned kind;
	const char *path, *id, *noun;
} kinds_of[KINDS] = {
	{ KIND_WORKSPACE, "/v1/workspaces/", "ws_", "workspace" },
	{ KIND_SNAPSHOT, "/v1/snapshots/", "sn_", "snapshot" },
	{ KIND_SANDBOX, "/v1/sandboxes/", "sb_", "sandbox" },
};

/* An id is no name. The sandbox's that a workspace is the root of is that one's name, too. */
static bool id_of_other(unsigned i, const char *name)
{
	size_t n = strlen(name);
	return n == 13 && strncmp(name, kinds_of[i].id, 3) != 0 && name[2] == '_' &&
	       strspn(name + 3, "abcdefghijklmnopqrstuvwxyz234567") == n - 3 &&
	       (strncmp(name, "ws", 2) == 0 || strncmp(name, "sn", 2) == 0 ||
		strncmp(name, "sb", 2) == 0);
}

/* 0: it isn't there, or not for the caller; *doc is what it is, the caller's. */
static int look_for(struct cli *cli, unsigned i, const char *name, json_t **doc, struct err *err)
{
	auto_target t = target_new(kinds_of[i].path);
	char *detail = steal_ptr(&cli->detail);
	target_name(&t, name);
	int r = api_call(cli, "GET", &t, NULL, doc, NULL, err);
	bool none = r == -ENOENT || r == -EACCES || r == -EPERM;
	if (r == 0 || none) {
		free(cli->detail);
		cli->detail = detail;
		return r == 0;
	}
	free(detail);
	return r;
}

/* Things of others don't stand in the way of one's own. */
static unsigned leave_own(struct cli *cli, json_t *found[KINDS], unsigned n)
{
	auto_json json_t *self = NULL;
	auto_target t = target_new("/v1/whoami");
	unsigned own = 0;
	bool mine[KINDS] = { false };
	if (api_call(cli, "GET", &t, NULL, &self, NULL, NULL) < 0)
		return n;
	for (unsigned i = 0; i < KINDS; i++) {
		mine[i] = found[i] &&
			  strcmp(get_text(found[i], "owner"), get_text(self, "owner")) == 0;
		own += mine[i];
	}
	for (unsigned i = 0; i < KINDS && own > 0; i++)
		if (!mine[i]) {
			json_decref(found[i]);
			found[i] = NULL;
		}
	return own > 0 ? own : n;
}

static int name_both(const char *name, json_t *const found[KINDS], struct err *err)
{
	char list[128] = "";
	for (unsigned i = 0; i < KINDS; i++) {
		size_t n = strlen(list);
		if (found[i])
			(void)snprintf(list + n, sizeof(list) - n, "%sa %s (%.20s)",
				       n ? " and " : "", kinds_of[i].noun,
				       get_text(found[i], "id"));
	}
	return err_set(err, -EEXIST, "\"%s\" is %s: give the id", name, list);
}

int api_kind(struct cli *cli, const char *name, unsigned kinds, unsigned *kind, struct err *err)
{
	json_t *found[KINDS] = { NULL };
	unsigned n = 0;
	int r = 0;
	if (cli->kind_name && cli->kind_of == kinds && strcmp(cli->kind_name, name) == 0) {
		*kind = cli->kind;
		return 0;
	}
	/* Snapshots first: the beginning of an id does. */
	for (unsigned i = 0; i < KINDS && r >= 0; i++) {
		unsigned at = i == 0 ? 1 : i == 1 ? 0 : 2;
		if (!(kinds & kinds_of[at].kind) || id_of_other(at, name))
			continue;
		r = look_for(cli, at, name, &found[at], err);
		if (r <= 0)
			continue;
		n++;
		if (strncmp(name, kinds_of[at].id, 3) == 0)
			break;
	}
	if (r >= 0 && n > 1)
		n = leave_own(cli, found, n);
	if (r >= 0)
		r = n > 1 ? name_both(name, found, err) : n == 1 ? 0 : -ENOENT;
	for (unsigned i = 0; i < KINDS; i++) {
		if (r == 0 && found[i])
			*kind = kinds_of[i].kind;
		json_decref(found[i]);
	}
	if (r < 0)
		return r;
	free(cli->kind_name);
	cli->kind_name = strdup(name); /* without it, it is asked for again */
	cli->kind_of = kinds;
	cli->kind = *kind;
	return 0;
}

/* Of what it is none of `kinds`. */
static int not_of(struct cli *cli, const char *name, unsigned kinds, struct err *err)
{
	auto_target self = target_new("/v1/sandboxes/");
	target_name(&self, name);
	if (!(kinds & KIND_SANDBOX) && api_exists(cli, &self))
		return err_set(err, -ENOENT, "\"%s\" is a sandbox: `bough ps` shows its workspaces",
			       name);
	return err_set(
		err, -ENOENT,
		"no workspace, snapshot or sandbox \"%s\": `bough ls`, `bough snapshots ls` and "
		"`bough ps` show what there is",
		name);
}

int api_target_of(struct cli *cli, const char *name, unsigned kinds, struct target *rest,
		  struct target *out, struct err *err)
{
	unsigned kind = KIND_WORKSPACE;
	buf_u8(&rest->text, 0);
	if (buf_error(&rest->text) < 0)
		return err_no_memory(err);
	int r = api_kind(cli, name, kinds, &kind, err);
	if (r == -ENOENT)
		return not_of(cli, name, kinds, err);
	if (r < 0)
		return r;
	*out = target_new(kind == KIND_WORKSPACE  ? "/v1/workspaces/"
			  : kind == KIND_SNAPSHOT ? "/v1/snapshots/"
						  : "/v1/sandboxes/");
	out->headers = rest->headers;
	target_name(out, name);
	target_path(out, (const char *)rest->text.data);
	return 0;
}

int api_stream_of(struct cli *cli, const char *name, unsigned kinds, struct target *rest,
		  const char *accept, struct http **out, struct err *err)
{
	auto_target t = { 0 };
	int r = api_target_of(cli, name, kinds, rest, &t, err);
	return r < 0 ? r : api_stream(cli, &t, accept, out, err);
}

int api_stream_error(struct cli *cli, const struct http *h, int r, struct err *err)
{
	const char *code, *reason = http_reason(h, &code);
	if (!reason)
		return r;
	auto_json json_t *e = json_pack("{s:s, s:s, s:{}}", "code", code, "message", reason,
					"details");
	/* Words that aren't UTF-8 stay as they came. */
	return e ? from_error(cli, e, 500, err) : r;
}
