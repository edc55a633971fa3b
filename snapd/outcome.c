#include "snapd/outcome.h"

#include <assert.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "snapd/access.h"
#include "snapd/events.h"
#include "snapd/catalog_sandbox.h"
#include "snapd/files_list.h"
#include "snapd/hooks.h"
#include "snapd/intents.h"
#include "snapd/jobs.h"
#include "snapd/journal.h"
#include "snapd/limits.h"
#include "snapd/web_task.h"

enum { KEY_MAX = 255 };

/* ---- repeated calls ---- */

/* Of the query and the body. An upload's isn't there yet: it is compared when it has come. */
static int hash_request(struct digest *out, struct request *rq, const void *data, size_t len)
{
	static const char *const heads[] = { "Upload-Length", "Upload-Metadata" };
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	bool ok = md && EVP_DigestInit_ex(md, EVP_sha256(), NULL);
	for (size_t i = 0; i < rq->nquery && ok; i++) {
		const char *parts[] = { rq->query[i].key, rq->query[i].value };
		for (size_t k = 0; k < 2 && ok; k++)
			ok = EVP_DigestUpdate(md, parts[k], strlen(parts[k]) + 1);
	}
	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]) && ok; i++) {
		const char *value = request_header(rq, heads[i]); /* of an upload to come */
		ok = !value || EVP_DigestUpdate(md, value, strlen(value) + 1);
	}
	ok = ok && EVP_DigestUpdate(md, "", 1) && (!len || EVP_DigestUpdate(md, data, len)) &&
	     EVP_DigestFinal_ex(md, out->b, NULL);
	EVP_MD_CTX_free(md);
	return ok ? 0 : -ENOMEM;
}

/* Of those who call, and what tells others: db_note_effect has said what. */
static json_t *made_account(struct snapd *sd, const char *what)
{
	struct token_row token;
	struct user_row user;
	struct team_row team;
	auto_hook_row hook = { 0 };
	struct delivery_row delivery = { 0 };
	if (id_is(what, "dl")) {
		int r = catalog_delivery_get(sd->catalog, what, &delivery, NULL);
		json_t *j = r < 0 ? NULL : api_delivery(&delivery);
		delivery_row_done(&delivery);
		return j;
	}
	if (id_is(what, "tk"))
		return catalog_token_get(sd->catalog, what, &token, NULL) < 0 ? NULL
									      : api_token(&token);
	if (id_is(what, "wh"))
		return catalog_hook_get(sd->catalog, what, &hook, NULL) < 0 ? NULL
									    : api_hook(&hook);
	if (strncmp(what, "user/", 5) == 0)
		return catalog_user_get(sd->catalog, what + 5, &user, NULL) < 0 ? NULL
										: api_user(&user);
	return catalog_team_get(sd->catalog, what, &team, NULL) < 0 ? NULL
								    : api_team(sd, &team, NULL);
}

static json_t *made_json(struct snapd *sd, char *id)
{
	if (id_is(id, "tk") || id_is(id, "wh") || id_is(id, "dl") || id_is(id, "tm") ||
	    strncmp(id, "user/", 5) == 0)
		return made_account(sd, id);
	auto_ws_row ws = { 0 };
	auto_snap_row snap = { 0 };
	auto_sandbox_row sb = { 0 };
	auto_exec_row ex = { 0 };
	/* What is about to be done to it (intents.h); a mount */
	static const char *const of[] = { "into/",    "at/",      "by/box/", "by/attach/",
					  "by/back/", "by/exec/" };
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		size_t n = strlen(of[i]);
		if (strncmp(id, of[i], n) != 0)
			continue;
		id += n;
		id[strcspn(id, "/")] = '\0';
		break;
	}
	if (id_is(id, "ex"))
		return catalog_exec_get(sd->catalog, id, &ex, NULL) < 0 ? NULL : api_exec(&ex);
	if (id_is(id, "repo"))
		return api_repo(sd, id);
	if (id_is(id, "sb"))
		return catalog_sandbox_get(sd->catalog, id, &sb, NULL) < 0 ? NULL
									   : api_sandbox(sd, &sb);
	if (id_is(id, "ws"))
		return catalog_ws_get(sd->catalog, id, &ws, NULL) < 0
			       ? NULL
			       : api_workspace(sd, &ws, NULL);
	return catalog_snap_get(sd->catalog, id, &snap, NULL) < 0 ? NULL : api_snapshot(sd, &snap);
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);
	return n >= k && strcmp(s + n - k, end) == 0;
}

/* A sandbox's save, by its root's snapshot (borrowed), which says what goes with it. */
static json_t *saved_sandbox(struct snapd *sd, json_t *root)
{
	const json_t *group, *one;
	size_t i;
	json_t *list = json_array();
	group = json_object_get(json_object_get(json_object_get(root, "image"), "sandbox"),
				"workspaces");
	json_array_foreach(group, i, one) {
		auto_snap_row row = { 0 };
		const char *id = json_string_value(json_object_get(one, "snapshot"));
		if (id && catalog_snap_get(sd->catalog, id, &row, NULL) >= 0)
			(void)json_array_append_new(list, api_snapshot(sd, &row));
	}
	return json_pack("{s:O, s:o, s:i}", "root", root, "workspaces", list, "pause_ns", 0);
}

/* The daemon ended between the effect and its answer, or that was too long to keep: it is told
 * again from what was made, as far as that is still there. */
json_t *outcome_rebuilt(struct snapd *sd, const char *path, const char *effect)
{
	auto_free char *text = strdup(effect);
	json_t *items = json_array(), *j;
	bool box = strncmp(path, "/v1/sandboxes", 13) == 0;
	bool many = ends_with(path, "/fork"), save = box && ends_with(path, "/snapshots");
	for (char *rest = NULL, *id = text ? strtok_r(text, " ", &rest) : NULL; id;
	     id = strtok_r(NULL, " ", &rest)) {
		/* A sandbox's trees are noted beside it. */
		json_t *one = box && many && !id_is(id, "sb") ? NULL : made_json(sd, id);
		if (one)
			(void)json_array_append_new(items, one);
	}
	if (save)
		j = saved_sandbox(sd, json_array_get(items, 0));
	else
		j = many ? json_pack("{s:O, s:i}", "items", items, "pause_ns", 0)
			 : json_incref(json_array_get(items, 0));
	json_decref(items);
	return j ? j : json_object();
}

/* The first answer was the job, which still runs. */
static int tell_job(struct snapd *sd, const char *id, struct reply *rp, struct err *err)
{
	struct job_row row = { 0 };
	int r = catalog_job_get(sd->catalog, id, &row, err);
	if (r == -ENOENT) /* of a catalog that was damaged: nobody knows how it ended */
		r = err_set(err, -EALREADY, "the job %s of that key isn't known any more", id);
	if (r < 0)
		return r;
	rp->status = 202;
	rp->json = job_json(sd->jobs, &row);
	reply_header(rp, "Location", "/v1/jobs/%s", id);
	job_row_done(&row);
	return rp->json ? 0 : err_no_memory(err);
}

static int not_the_same(struct err *err)
{
	return err_set(err, -EBADE, "that Idempotency-Key came with another request");
}

/* A repeated upload: its body is read before it is told that it was done. */
struct replay {
	struct stream *in;
	struct doing *doing;
	struct digest sum;
	struct reply answer;
	bool same;
};

static void replay_free(void *task)
{
	struct replay *p = task;
	doing_unref(p->doing);
	json_decref(p->answer.json);
	web_headers_free(&p->answer);
	free(p);
}

static int replay_run(void *task, struct progress *progress, unsigned *status, json_t **result,
		      struct err *err)
{
	enum { PIECE = 64 * 1024 };
	struct replay *p = task;
	auto_free char *buf = malloc(PIECE);
	ssize_t n = 0;
	if (!buf)
		return err_no_memory(err);
	while ((n = stream_read(p->in, buf, PIECE, -1)) > 0)
		; /* it is summed up before it gets here */
	const struct digest *sum = doing_summed(p->doing);
	if (n < 0 || !sum)
		return err_set(err, -EBADMSG, "the upload broke off");
	if (!digest_equal(sum, &p->sum))
		return not_the_same(err);
	p->same = true;
	*status = p->answer.status;
	*result = json_incref(p->answer.json);
	return 0;
}

static void replay_tell(void *task, struct reply *rp)
{
	struct replay *p = task;
	if (p->same)
		web_headers_move(rp, &p->answer);
}

/* The reply becomes work that gives it, if the upload is that of the first one. */
static int replay_upload(struct request *rq, struct doing *d, const struct repeat *was,
			 struct reply *rp, struct err *err)
{
	struct replay *p = calloc(1, sizeof(*p));
	if (!p)
		return err_no_memory(err);
	*p = (struct replay){
		.in = rq->upload, .doing = doing_ref(d), .sum = was->sum, .answer = *rp
	};
	*rp = (struct reply){
		.status = 200, .job = replay_run, .tell = replay_tell, .task = p,
		.task_free = replay_free
	};
	return 0;
}

/* Takes the key (1), or tells what is there (0): of a call that was cut off, what became of it. */
static int take_key(struct snapd *sd, struct doing *d, struct repeat *was, struct err *err)
{
	struct err why = { 0 };
	int r = catalog_repeat_begin(sd->catalog, d, was, err);
	if (r != 0 || !was->idle || !digest_equal(&was->body, &d->body))
		return r;
	if (intent_settle(sd, was, true, &why) < 0)
		return err_set(err, -EALREADY,
			       "it isn't known yet whether the first request with that key was "
			       "done: %s",
			       why.text);
	repeat_done(was);
	return catalog_repeat_begin(sd->catalog, d, was, err);
}

/* Which upload it has announced; NULL: none. */
static const char *announced(const struct repeat *was)
{
	static const char upload[] = "by/upload/";
	const char *id = was->effect;
	if (id && strncmp(id, upload, sizeof(upload) - 1) == 0)
		id += sizeof(upload) - 1;
	return id && was->status == 201 && id_is(id, "up") ? id : NULL;
}

/* What the first one was answered: 1. Ends *was. */
static int tell_first(struct request *rq, const struct route *rt, struct doing *d,
		      struct repeat *was, struct reply *rp, struct err *err)
{
	const char *up = announced(was);
	int r = 0;
	if (!digest_equal(&was->body, &d->body))
		r = not_the_same(err);
	else if (!was->status && was->job[0])
		r = tell_job(rq->ctx, was->job, rp, err);
	else if (!was->status)
		r = err_set(err, -EALREADY, "the first request with that key is still under way");
	if (r == 0 && !rp->json) {
		rp->status = was->status;
		rp->json = was->status == 204 || up ? NULL
			   : was->answer ? json_loads(was->answer, 0, NULL)
			   : was->effect ? outcome_rebuilt(rq->ctx, rt->path, was->effect)
					 : NULL;
	}
	if (r >= 0)
		reply_header(rp, "Idempotency-Replayed", "true");
	if (r >= 0 && up)
		reply_header(rp, "Location", "/v1/%s/%s/uploads/%s",
			     strncmp(rt->path, "/v1/sandboxes/", 14) ? "workspaces" : "sandboxes",
			     rq->params[0], up);
	if (r >= 0 && rt->upload && was->has_sum && d->sum)
		r = replay_upload(rq, d, was, rp, err);
	repeat_done(was);
	return r < 0 ? r : 1;
}

static int repeat_admit(struct request *rq, const struct route *rt, struct doing *d,
			const void *data, size_t len, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct repeat was = { 0 };
	size_t n = strlen(d->key);
	for (const char *p = d->key; *p; p++)
		if (*p < ' ' || *p > '~')
			n = 0;
	if (n < 1 || n > KEY_MAX)
		return err_set(err, -EINVAL, "Idempotency-Key: 1 to %d printable characters",
			       KEY_MAX);
	if (hash_request(&d->body, rq, data, len) < 0)
		return err_no_memory(err);
	int r = take_key(sd, d, &was, err);
	if (r != 0) {
		d->keyed = r > 0;
		d->was = steal_ptr(&was.effect);
		repeat_done(&was);
		return r < 0 ? r : 0;
	}
	return tell_first(rq, rt, d, &was, rp, err);
}

/* What a call is about is gone by now, or isn't the caller's to see: whoever was answered before it
 * went is told that. 0: nobody was. */
static int gone_admit(struct request *rq, const struct route *rt, struct doing *d,
		      const void *data, size_t len, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct repeat was = { 0 };
	int r = hash_request(&d->body, rq, data, len) < 0
			? err_no_memory(err)
			: catalog_repeat_get(sd->catalog, d, &was, err);
	if (r == 0 && (was.status || was.job[0]))
		return tell_first(rq, rt, d, &was, rp, err);
	repeat_done(&was);
	return r;
}

int outcome_admit(struct request *rq, const struct route *rt, const void *data, size_t len,
		  struct reply *rp, struct err *err)
{
	struct doing *d = doing_now();
	struct err why = { 0 };
	int r = access_admit(rq, rt, data, len, rp, err), told = 0;
	/* What only reads is done as often as it is asked for. */
	bool once = d && d->key && !access_only_reads(rt);
	if (r == 0 && once)
		r = repeat_admit(rq, rt, d, data, len, rp, err);
	else if (r == -ENOENT && once && (told = gone_admit(rq, rt, d, data, len, rp, &why)) != 0) {
		r = told;
		*err = why;
	}
	if (r == 0) /* what was done already is told in any case */
		r = limits_admit(rq, rt, err);
	return r;
}

/* Answers that another try may change aren't kept. */
static bool is_passing(unsigned status, const json_t *answer)
{
	const char *code = json_string_value(json_object_get(answer, "code"));
	return status >= 500 || status == 429 ||
	       (code && (strcmp(code, "busy") == 0 || strcmp(code, "cancelled") == 0));
}

/* Its effect may have come all the same, or come yet. */
static void end_cut_off(struct snapd *sd, const struct doing *d, unsigned status)
{
	struct repeat was = { 0 };
	struct err err = { 0 };
	bool late = status >= 500 && status != 507; /* that one, bough-fs has said */
	/* As it is before others may take it. */
	int r = catalog_repeat_get(sd->catalog, d, &was, &err);
	catalog_repeat_leave(sd->catalog, d);
	if (r >= 0 && !was.status && was.row)
		r = intent_settle(sd, &was, late, &err);
	if (r < 0) /* it is asked about when it is asked for again */
		log_warn("%s: it isn't known whether that was done: %s", d->path, err.text);
	repeat_done(&was);
}

/* Secrets never are kept. */
static void end_repeat(struct snapd *sd, const struct doing *d, unsigned status,
		       const json_t *answer)
{
	struct err err = { 0 };
	bool cut = status >= 400 && __atomic_load_n(&d->cut, __ATOMIC_ACQUIRE);
	if (cut || is_passing(status, answer)) {
		end_cut_off(sd, d, status);
		return;
	}
	json_t *j = json_copy((json_t *)(uintptr_t)answer);
	(void)json_object_del(j, "token"); /* most have none */
	(void)json_object_del(j, "secret");
	auto_free char *text = j ? json_text(j, JSON_COMPACT) : NULL;
	json_decref(j);
	if (text && strlen(text) > ANSWER_MAX) {
		free(text);
		text = NULL;
	}
	if (catalog_repeat_end(sd->catalog, d, status, text, &err) < 0)
		log_error("%s", err.text); /* it is asked about when it is asked for again */
	catalog_repeat_leave(sd->catalog, d);
}

/* ---- what happened ---- */

static bool only_reads(const char *method, const char *pattern)
{
	return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0 ||
	       access_sends_list(method, pattern);
}

/* "workspace.forked" of POST /v1/workspaces/{}/fork; false: nothing that one tells of. */
static bool event_type(const char *method, const char *pattern, char *out, size_t size)
{
	static const struct {
		const char *path, *verb;
	} verbs[] = {
		{ "snapshots", "saved" },  { "fork", "forked" },      { "restore", "restored" },
		{ "merge", "merged" },     { "mount", "mounted" },    { "umount", "unmounted" },
		{ "commit", "committed" }, { "push", "pushed" },      { "fetch", "fetched" },
		{ "import", "imported" },  { "cancel", "cancelled" }, { "undelete", "undeleted" },
		{ "start", "started" },    { "stop", "stopped" },     { "kill", "killed" },
		{ "pause", "paused" },     { "resume", "resumed" },   { "exec", "executed" },
		{ "workspaces", "attached" }, { "reset", "reset" },   { "test", "tested" },
	};
	const char *family = pattern + (strncmp(pattern, "/v1/", 4) == 0 ? 4 : 1);
	size_t n = strcspn(family, "/");
	const char *rest = strrchr(pattern, '/') + 1;
	const char *verb = strcmp(method, "POST") == 0     ? "created"
			   : strcmp(method, "DELETE") == 0 ? "deleted"
							      : "changed";
	if (strstr(pattern, "/files") || strstr(pattern, "/archive") ||
	    strstr(pattern, "/uploads") || strstr(pattern, "/batch") ||
	    strstr(pattern, "/exec/"))
		return false; /* what happens to files, watch tells; to processes, their output */
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(method, "POST") == 0 && rest > family + n &&
		    strcmp(rest, verbs[i].path) == 0)
			verb = verbs[i].verb;
	if (strcmp(family, "workspaces/import") == 0)
		verb = "created";
	else if (strcmp(method, "DELETE") == 0 && strstr(family, "/workspaces/"))
		verb = "detached";
	else if (strcmp(method, "DELETE") == 0 && strstr(family, "/members/"))
		verb = "changed";
	if (strcmp(family, "import") == 0)
		family = "snapshots", n = 9;
	else if (n == strlen(family) && family[n - 1] != 's')
		verb = "done"; /* gc, fsck, shutdown */
	bool box = strncmp(family, "sandboxes", n) == 0;
	(void)snprintf(out, size, "%.*s.%s", (int)(n - (box ? 2 : family[n - 1] == 's')), family,
		       verb);
	return true;
}

/* What boughd does by itself, and jobs: no call is named so. */
static const char *const own_events[] = {
	"workspace.read_only", "workspace.writable", "workspace.damaged", "workspace.expired",
	"workspace.purged",    "snapshot.created",   "snapshot.expired",  "sandbox.exited",
	"sandbox.failed",      "sandbox.expired",    "sandbox.detached",  "job.created",
	"job.done",            "job.failed",         "job.cancelled",     "gc.done",
	"sandbox.impaired",    "sandbox.mended",
};

static bool is_own(const char *type)
{
	for (size_t i = 0; i < sizeof(own_events) / sizeof(own_events[0]); i++)
		if (strcmp(own_events[i], type) == 0)
			return true;
	return false;
}

bool outcome_tells(const char *type)
{
	char of[sizeof(((struct event *)0)->type)];
	bool found = is_own(type);
	for (size_t i = 0; i < api_nroutes && !found; i++) {
		const struct route *rt = &api_routes[i];
		found = !only_reads(rt->method, rt->path) &&
			event_type(rt->method, rt->path, of, sizeof(of)) &&
			strcmp(of, type) == 0;
	}
	return found;
}

/* `own`: whose the object is; of nobody: the caller's. */
static void tell_event(struct snapd *sd, const struct principal *caller, const struct owned *own,
		       const char *type, const char *object, const char *workspace)
{
	struct event e = { .own = *own };
	(void)snprintf(e.type, sizeof(e.type), "%s", type);
	(void)snprintf(e.object, sizeof(e.object), "%s", object);
	(void)snprintf(e.workspace, sizeof(e.workspace), "%s", workspace);
	memcpy(e.by, caller->owner, sizeof(e.by));
	if (!e.own.owner[0])
		memcpy(e.own.owner, caller->owner, sizeof(e.own.owner));
	events_add(sd->events, &e);
}

static const char *id_in(const json_t *j)
{
	const char *id = json_string_value(json_object_get(j, "id"));
	return id && strlen(id) < ID_SIZE ? id : "";
}

/* Whose what was made is, and who else hears of it: its answer says so. */
static struct owned own_in(const json_t *j)
{
	struct owned own = { 0 };
	const char *owner = json_string_value(json_object_get(j, "owner"));
	const char *team = json_string_value(json_object_get(j, "team_id"));
	const char *seen = json_string_value(json_object_get(j, "visibility"));
	int v = seen ? visibility_parse(seen) : -ENOENT;
	if (!owner || v < 0)
		return own; /* it is the caller's */
	(void)snprintf(own.owner, sizeof(own.owner), "%s", owner);
	(void)snprintf(own.team, sizeof(own.team), "%s", team ? team : "");
	own.visibility = (enum visibility)v;
	return own;
}

static void tell_events(struct snapd *sd, const struct doing *d, const json_t *answer)
{
	char type[40];
	const json_t *items = json_object_get(answer, "items");
	if (!event_type(d->method, d->pattern, type, sizeof(type)))
		return;
	for (size_t i = 0; i < json_array_size(items); i++) {
		/* A fork is its maker's, whoever owns its origin. */
		const char *id = id_in(json_array_get(items, i));
		const struct owned own = own_in(json_array_get(items, i));
		if (id_is(id, "sb"))
			tell_event(sd, &d->caller, &own, "sandbox.created", id, "");
		else
			tell_event(sd, &d->caller, &own, "workspace.created", id, id);
	}
	const char *made = id_in(answer);
	const char *object = d->object[0] ? d->object : made;
	const struct owned own = d->object[0] ? d->own : own_in(answer);
	tell_event(sd, &d->caller, &own, type, object,
		   d->workspace[0]       ? d->workspace
		   : id_is(object, "ws") ? object
					 : "");
	if (d->object[0] && id_is(made, "sn") && !json_object_get(answer, "unchanged"))
		tell_event(sd, &d->caller, &d->own, "snapshot.created", made, d->workspace);
}

/* Which files a batch changed: as many of its paths as have room. 0, or not: no memory. */
static int add_paths(json_t *about, const json_t *results)
{
	enum { ROOM = 4096 };
	const json_t *one;
	json_t *paths = json_array();
	size_t i, room = ROOM;
	int bad = json_object_set_new(about, "paths", paths);
	bad |= json_object_set_new(about, "operations",
				   json_integer((json_int_t)json_array_size(results)));
	json_array_foreach(results, i, one) {
		json_t *path = json_object_get(one, "path");
		json_t *coded = json_object_get(one, "path_b64");
		size_t len = json_string_length(path ? path : coded);
		if (bad || len > room)
			break;
		room -= len;
		bad |= path ? json_array_append(paths, path)
			    : json_array_append_new(paths, json_pack("{s:O}", "path_b64", coded));
	}
	return bad;
}

/* What method and path don't say. NULL: nothing. */
static char *about_text(const struct doing *d, unsigned status, const json_t *answer)
{
	const char *made = id_in(answer);
	json_t *entry = json_object_get(answer, "entry"), *name = json_object_get(entry, "name");
	json_t *coded = json_object_get(entry, "name_b64");
	json_t *j = json_object();
	int bad = !j;
	if (status >= 400) {
		json_t *why = json_object_get(answer, "message");
		bad |= why && json_object_set(j, "message", why) < 0;
	} else if (d->stored) {
		bad |= bad || listing_set_name(j, "made", d->stored, strlen(d->stored)) < 0;
	} else if (name || coded) {
		bad |= json_object_set(j, name ? "made" : "made_b64", name ? name : coded);
	} else if (d->object[0] && *made && strcmp(made, d->object) != 0) {
		bad |= json_object_set_new(j, "made", json_string(made));
	} else if (!bad && json_is_array(json_object_get(answer, "results"))) {
		bad |= add_paths(j, json_object_get(answer, "results"));
	}
	if (d->op[0])
		bad |= json_object_set_new(j, "op", json_string(d->op));
	char *text = !bad && json_object_size(j) ? json_text(j, JSON_COMPACT) : NULL;
	json_decref(j);
	return text;
}

static void add_row(struct snapd *sd, const struct doing *d, const char *object, unsigned status,
		    char *about)
{
	struct err err = { 0 };
	struct audit_row row = { .status = status, .path = d->path, .about = about };
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	row.time_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
	memcpy(row.owner, d->caller.owner, sizeof(row.owner));
	memcpy(row.token, d->caller.token, sizeof(row.token));
	memcpy(row.from, d->caller.from, sizeof(row.from));
	(void)snprintf(row.method, sizeof(row.method), "%s", d->method);
	(void)snprintf(row.object, sizeof(row.object), "%s", object);
	if (catalog_audit_add(sd->catalog, &row, &err) < 0 && err.code != -EUCLEAN)
		log_error("%s", err.text);
}

static void write_audit(struct snapd *sd, const struct doing *d, unsigned status,
			const json_t *answer)
{
	auto_free char *about = about_text(d, status, answer);
	add_row(sd, d, d->object[0] ? d->object : id_in(answer), status, about);
}

void outcome_also(struct snapd *sd, const char *what, const char *object, const char *key,
		  const char *value)
{
	const struct doing *now = doing_now();
	struct doing d = { .method = "", .path = (char *)(uintptr_t)what };
	json_t *j = json_pack("{s:s}", key, value);
	auto_free char *about = j ? json_text(j, JSON_COMPACT) : NULL;
	json_decref(j);
	if (now && now->method && now->path) {
		d.caller = now->caller;
		d.method = now->method;
		d.path = now->path;
	} else {
		principal_of_service(&d.caller);
	}
	add_row(sd, &d, object, 200, about);
}

/* An upload that was left to a job, which tells what becomes of it. */
static bool is_left(const struct doing *d, unsigned status, const json_t *answer)
{
	return status == 202 && id_is(id_in(answer), "jb") &&
	       strncmp(d->pattern, "/v1/jobs/", 9) != 0;
}

void outcome_done(void *ctx, struct doing *d, unsigned status, const json_t *answer)
{
	struct snapd *sd = ctx;
	/* Of an upload counts what it becomes, of a process that it was begun. */
	bool passing = (strstr(d->pattern, "/uploads") && !d->stored) ||
		       strstr(d->pattern, "/exec/{}/");
	metrics_count(sd->metrics, d, status);
	if (d->keyed)
		end_repeat(sd, d, status, answer);
	if (only_reads(d->method, d->pattern) || is_left(d, status, answer))
		return;
	if ((status < 400 && !passing) || status == 403)
		write_audit(sd, d, status, answer);
	if (status < 400)
		tell_events(sd, d, answer);
}

/* `who` did it. */
static void tell_of(struct snapd *sd, const struct principal *who, const char *what,
		    const struct owned *own, const char *object, const char *workspace)
{
	struct doing d = { .method = "", .path = (char *)(uintptr_t)what, .caller = *who };
	(void)snprintf(d.object, sizeof(d.object), "%s", object);
	write_audit(sd, &d, 200, NULL);
	tell_event(sd, who, own, what, object, workspace);
}

void outcome_beside(struct snapd *sd, const char *what, const struct owned *own,
		    const char *object, const char *workspace)
{
	tell_of(sd, &doing_now()->caller, what, own, object, workspace);
}

void outcome_own(struct snapd *sd, const char *what, const struct owned *own, const char *object,
		 const char *workspace)
{
	struct principal self;
	assert(is_own(what));
	principal_of_service(&self);
	tell_of(sd, &self, what, own, object, workspace);
}
