/* Tokens, users and teams. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/log.h"
#include "snapd/access.h"
#include "snapd/hooks.h"
#include "snapd/sandbox.h"
#include "snapd/web_parse.h"

enum { EXPIRY_MAX_S = 10 * 365 * 24 * 3600 };

static json_t *optional(const char *s)
{
	return *s ? json_string(s) : json_null();
}

static json_t *time_or_null(int64_t ns)
{
	return ns ? api_time(ns) : json_null();
}

static int give(struct reply *rp, unsigned status, json_t *j, struct err *err)
{
	rp->json = j;
	rp->status = status;
	return j ? 0 : err_no_memory(err);
}

/* ---- tokens ---- */

json_t *api_token(const struct token_row *t)
{
	return json_pack("{s:s, s:o, s:s, s:s, s:o, s:b, s:o, s:o, s:o}", "id", t->id, "name",
			 optional(t->name), "owner", t->owner, "scope",
			 t->admin          ? "admin"
			 : t->workspace[0] ? t->workspace
			 : t->team[0]      ? t->team
					   : "owner",
			 "path", optional(t->path), "read_only", t->read_only, "created",
			 api_time(t->created_ns), "expires", time_or_null(t->expires_ns), "used",
			 time_or_null(t->used_ns));
}

int api_token_list(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct token_row *rows;
	struct page page;
	size_t n;
	const char *owner = rq->caller->admin ? NULL : rq->caller->owner;
	int r = page_begin(&page, rq, err);
	if (r >= 0)
		r = catalog_token_list(sd->catalog, owner, &rows, &n, err);
	if (r < 0)
		return r;
	json_t *items = json_array();
	for (size_t i = 0; i < n && r >= 0; i++)
		if (page_takes(&page, rows[i].created_ns, rows[i].id) &&
		    json_array_append_new(items, api_token(&rows[i])) < 0)
			r = err_no_memory(err);
	free(rows);
	json_t *j = page_end(&page, items);
	if (r < 0) {
		json_decref(j);
		return r;
	}
	return give(rp, 200, j, err);
}

/* "/src/lib/" is "src/lib"; by the rules of paths in targets. */
static int take_path(struct request *rq, const char *path, struct token_row *t, struct err *err)
{
	struct err why = { 0 };
	path += *path == '/';
	size_t n = strlen(path);
	n -= n > 0 && path[n - 1] == '/';
	if (n >= sizeof(t->path))
		return request_bad_field(rq, "path", err, "at most %d bytes", PATH_SCOPE_SIZE - 1);
	memcpy(t->path, path, n);
	t->path[n] = '\0';
	return web_file_path_check(t->path, &why) < 0
		       ? request_bad_field(rq, "path", err, "%s", why.text)
		       : 0;
}

/* "team:KEY", or a team's id. */
static const char *team_of_scope(const char *scope)
{
	return strncmp(scope, "team:", 5) == 0 ? scope + 5 : id_is(scope, "tm") ? scope : NULL;
}

/* What the token is good for: never for more than who asks for it. */
static int take_scope(struct request *rq, struct token_row *t, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct meant ws;
	const char *scope = request_string(rq, "scope"), *path = request_string(rq, "path");
	const struct principal *who = rq->caller;
	const char *key = scope ? team_of_scope(scope) : NULL;
	bool of_one = scope && !key && strcmp(scope, "owner") != 0 && strcmp(scope, "admin") != 0;
	if (path && !of_one)
		return request_bad_field(rq, "path", err, "it goes with a workspace as scope");
	if (path && take_path(rq, path, t, err) < 0)
		return -EINVAL;
	if (!scope || strcmp(scope, "owner") == 0)
		return 0;
	if (strcmp(scope, "admin") == 0) {
		t->admin = true;
		return who->admin ? 0 : err_set(err, -EPERM, "only an admin gives such a token");
	}
	struct team_row team;
	int r = key ? access_find_team(sd, who, key, &team, err)
		    : access_find(sd, who, NOUN_WORKSPACE, false, scope, &ws, err);
	if (r < 0)
		return r;
	if (key)
		memcpy(t->team, team.id, sizeof(t->team));
	else
		memcpy(t->workspace, ws.id, sizeof(t->workspace));
	return 0;
}

static int take_owner(struct request *rq, struct token_row *t, struct err *err)
{
	const char *owner = request_string(rq, "owner");
	memcpy(t->owner, rq->caller->owner, sizeof(t->owner));
	if (!owner)
		return 0;
	int r = auth_owner(rq->ctx, owner, t->owner, err);
	if (r >= 0 && !principal_owns(rq->caller, t->owner))
		r = err_set(err, -EPERM, "only an admin gives tokens to others");
	return r;
}

int api_token_create(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct token_row t = { .created_ns = snapd_now_ns() };
	struct err why = { 0 };
	char text[TOKEN_TEXT];
	const char *name = request_string(rq, "name");
	uint64_t expires_s = request_number(rq, "expires_s", 0);
	if (rq->caller->token[0] && !rq->caller->admin)
		return err_set(err, -EPERM, "a token makes no tokens, unless it is an admin's");
	if (name && name_check(name, &why) < 0)
		return request_bad_field(rq, "name", err, "%s", why.text);
	if (json_object_get(rq->body, "expires_s") && (expires_s < 1 || expires_s > EXPIRY_MAX_S))
		return request_bad_field(rq, "expires_s", err,
					 "1 to %d; left out it is good for ever", EXPIRY_MAX_S);
	if (name)
		(void)snprintf(t.name, sizeof(t.name), "%s", name);
	t.read_only = request_bool(rq, "read_only", false);
	t.expires_ns = expires_s ? t.created_ns + (int64_t)expires_s * 1000000000 : 0;
	int r = take_owner(rq, &t, err);
	if (r >= 0)
		r = take_scope(rq, &t, err);
	if (r < 0)
		return r;
	auth_token_make(&t, text);
	r = catalog_token_insert(sd->catalog, &t, err);
	if (r >= 0)
		r = catalog_sync(sd->catalog, err);
	json_t *j = r < 0 ? NULL : api_token(&t);
	if (j && json_object_set_new(j, "token", json_string(text)) < 0) {
		json_decref(j);
		j = NULL;
	}
	explicit_bzero(text, sizeof(text));
	return r < 0 ? r : give(rp, 201, j, err);
}

int api_token_delete(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct token_row t;
	const char *id = rq->params[0];
	int r = catalog_token_get(sd->catalog, id, &t, err);
	if (r >= 0 && !principal_owns(rq->caller, t.owner))
		r = err_set(err, -ENOENT, "no token \"%.100s\"", id);
	if (r >= 0)
		r = catalog_token_delete(sd->catalog, t.id, err);
	if (r >= 0)
		r = catalog_sync(sd->catalog, err); /* it must not come back */
	rp->status = 204;
	return r;
}

/* ---- who one is ---- */

int api_whoami(struct request *rq, struct reply *rp, struct err *err)
{
	const struct principal *who = rq->caller;
	return give(rp, 200,
		    json_pack("{s:s, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:s}", "owner", who->owner,
			      "admin", who->admin, "read_only", who->read_only, "uid",
			      who->uid == (uid_t)-1 ? json_null()
						    : json_integer((json_int_t)who->uid),
			      "token", optional(who->token), "workspace", optional(who->workspace),
			      "team", optional(who->team), "path", optional(who->path), "from",
			      who->from),
		    err);
}

/* ---- users ---- */

json_t *api_user(const struct user_row *u)
{
	return json_pack("{s:s, s:s, s:o, s:b, s:o}", "name", u->name, "owner", u->owner, "uid",
			 u->has_uid ? json_integer((json_int_t)u->uid) : json_null(), "admin",
			 u->admin, "created", api_time(u->created_ns));
}

int api_user_list(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct user_row *rows;
	struct page page;
	size_t n;
	int r = page_begin_names(&page, rq, err);
	if (r >= 0)
		r = catalog_user_list(sd->catalog, &rows, &n, err);
	if (r < 0)
		return r;
	json_t *items = json_array();
	int bad = 0;
	for (size_t i = 0; i < n; i++)
		if (page_takes_name(&page, rows[i].name))
			bad |= json_array_append_new(items, api_user(&rows[i]));
	free(rows);
	json_t *j = page_end(&page, items);
	if (bad) {
		json_decref(j);
		return err_no_memory(err);
	}
	return give(rp, 200, j, err);
}

int api_user_create(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct user_row u = { .created_ns = snapd_now_ns() };
	struct err why = { 0 };
	const char *name = request_string(rq, "name");
	uint64_t uid = request_number(rq, "uid", UINT64_MAX);
	if (name_check(name, &why) < 0)
		return request_bad_field(rq, "name", err, "%s", why.text);
	if (uid != UINT64_MAX && uid >= UINT32_MAX)
		return request_bad_field(rq, "uid", err, "it is no uid");
	(void)snprintf(u.name, sizeof(u.name), "%s", name);
	const char *owner = request_string(rq, "owner");
	if (owner && (uid != UINT64_MAX || strncmp(owner, "uid:", 4) == 0))
		return request_bad_field(rq, "owner", err, "one with a uid is \"uid:N\"");
	if (owner)
		(void)snprintf(u.owner, sizeof(u.owner), "%s", owner);
	u.has_uid = uid != UINT64_MAX;
	u.uid = u.has_uid ? (uid_t)uid : 0;
	u.admin = request_bool(rq, "admin", false);
	int r = catalog_user_insert(sd->catalog, &u, err);
	if (r >= 0)
		r = catalog_sync(sd->catalog, err);
	return r < 0 ? r : give(rp, 201, api_user(&u), err);
}

int api_user_delete(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct user_row u;
	int r = catalog_user_get(sd->catalog, rq->params[0], &u, err);
	if (r < 0)
		return r;
	r = catalog_user_delete(sd->catalog, u.name, u.owner, err);
	hooks_changed(sd->hooks);
	if (r >= 0)
		r = catalog_sync(sd->catalog, err);
	if (r >= 0)
		r = sandboxes_judge(sd, NULL, err);
	rp->status = 204;
	return r;
}

/* ---- teams ---- */

/* The one that the path names, and the caller's role in it. -ENOENT: none. */
static int find_team(struct request *rq, struct team_row *out, struct err *err)
{
	return access_find_team(rq->ctx, rq->caller, rq->params[0], out, err);
}

static int find_as_admin(struct request *rq, struct team_row *out, struct err *err)
{
	int r = find_team(rq, out, err);
	if (r >= 0 && r < ROLE_ADMIN)
		return err_set(err, -EPERM, "only an admin of the team may do that");
	return r;
}

json_t *api_team(struct snapd *sd, const struct team_row *t, struct err *err)
{
	struct member_row *rows;
	size_t n;
	int bad = 0;
	if (catalog_members(sd->catalog, t->id, &rows, &n, err) < 0)
		return NULL;
	json_t *members = json_array();
	for (size_t i = 0; i < n; i++)
		bad |= json_array_append_new(members,
					     json_pack("{s:s, s:s}", "owner", rows[i].owner, "role",
						       role_names[rows[i].role]));
	free(rows);
	json_t *j = json_pack("{s:s, s:s, s:s, s:o, s:o}", "id", t->id, "owner", t->owner, "name",
			      t->name, "created", api_time(t->created_ns), "members", members);
	if (!bad)
		return j;
	json_decref(j);
	return NULL;
}

int api_team_list(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct team_row *rows;
	struct page page;
	size_t n;
	int r = page_begin_names(&page, rq, err);
	if (r >= 0)
		r = catalog_team_list(sd->catalog, rq->caller->admin ? NULL : rq->caller->owner,
				      &rows, &n, err);
	if (r < 0)
		return r;
	json_t *items = json_array();
	int bad = 0;
	for (size_t i = 0; i < n; i++) {
		char at[PAGE_ID_SIZE]; /* several may have one name */
		(void)snprintf(at, sizeof(at), "%s,%s", rows[i].name, rows[i].id);
		if (page_takes_name(&page, at))
			bad |= json_array_append_new(items, api_team(sd, &rows[i], err));
	}
	free(rows);
	json_t *j = page_end(&page, items);
	if (bad) {
		json_decref(j);
		return err_no_memory(err);
	}
	return give(rp, 200, j, err);
}

int api_team_get(struct request *rq, struct reply *rp, struct err *err)
{
	struct team_row t;
	int r = find_team(rq, &t, err);
	return r < 0 ? r : give(rp, 200, api_team(rq->ctx, &t, err), err);
}

int api_team_create(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct team_row t = { .created_ns = snapd_now_ns() };
	struct err why = { 0 };
	const char *name = request_string(rq, "name");
	if (name_check(name, &why) < 0)
		return request_bad_field(rq, "name", err, "%s", why.text);
	if (rq->caller->workspace[0])
		return err_set(err, -EPERM, "the token is for one workspace only");
	(void)snprintf(t.name, sizeof(t.name), "%s", name);
	memcpy(t.owner, rq->caller->owner, sizeof(t.owner));
	id_make(t.id, "tm");
	int r = catalog_team_insert(sd->catalog, &t, err);
	if (r >= 0)
		r = catalog_sync(sd->catalog, err);
	return r < 0 ? r : give(rp, 201, api_team(sd, &t, err), err);
}

/* The records beside what the team saw follow the catalog. One that stays behind counts only once
 * the catalog is lost. */
static void record_team_less(struct snapd *sd, const char *team, struct ws_row *ws, size_t nws,
			     struct snap_row *snaps, size_t nsnaps)
{
	struct err why = { 0 };
	int r = 0;
	for (size_t i = 0; i < nws; i++)
		if (strcmp(ws[i].own.team, team) == 0)
			r |= snapd_record_ws(sd, ws[i].id, &why);
	for (size_t i = 0; i < nsnaps; i++) {
		if (strcmp(snaps[i].own.team, team) != 0)
			continue;
		snaps[i].own.visibility = VISIBLE_PRIVATE;
		snaps[i].own.team[0] = '\0';
		rows_lock(sd, snaps[i].id);
		r |= records_snap_write(sd->records, &snaps[i], false, &why);
		rows_unlock(sd, snaps[i].id);
	}
	if (r < 0)
		log_warn("team %s: %s", team, why.text);
}

int api_team_delete(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct ws_row *ws = NULL;
	struct snap_row *snaps = NULL;
	struct team_row team;
	size_t nws = 0, nsnaps = 0;
	int r = find_as_admin(rq, &team, err);
	if (r >= 0)
		r = catalog_ws_list(sd->catalog, WS_ALL, &ws, &nws, err);
	if (r >= 0)
		r = catalog_snap_list(sd->catalog, &snaps, &nsnaps, err);
	if (r >= 0)
		r = catalog_team_delete(sd->catalog, team.id, err);
	if (r >= 0)
		r = catalog_sync(sd->catalog, err);
	if (r >= 0)
		record_team_less(sd, team.id, ws, nws, snaps, nsnaps);
	if (r >= 0)
		r = sandboxes_judge(sd, NULL, err);
	ws_rows_free(ws, nws);
	snap_rows_free(snaps, nsnaps);
	rp->status = 204;
	return r;
}

/* Whoever isn't in it doesn't find it, and its name stays taken. */
static int keep_owner(const struct team_row *t, const char *owner, enum role role, struct err *err)
{
	if (role == ROLE_ADMIN || strcmp(t->owner, owner) != 0)
		return 0;
	return err_set(err, -EPERM, "the owner of team \"%s\" stays its admin: delete the team",
		       t->name);
}

int api_member_set(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct team_row team;
	char owner[OWNER_SIZE];
	const char *role = request_string(rq, "role");
	int v;
	for (v = 0; role_names[v] && strcmp(role_names[v], role) != 0; v++)
		;
	if (!role_names[v])
		return request_bad_field(rq, "role", err, "reader, member or admin");
	int r = find_as_admin(rq, &team, err);
	if (r >= 0)
		r = auth_owner(sd, rq->params[1], owner, err);
	if (r >= 0)
		r = keep_owner(&team, owner, (enum role)v, err);
	if (r >= 0)
		r = catalog_member_set(sd->catalog, team.id, owner, (enum role)v, err);
	if (r >= 0)
		r = catalog_sync(sd->catalog, err);
	if (r >= 0)
		r = sandboxes_judge(sd, NULL, err);
	return r < 0 ? r : give(rp, 200, api_team(sd, &team, err), err);
}

int api_member_delete(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct team_row team;
	char owner[OWNER_SIZE];
	int r = auth_owner(sd, rq->params[1], owner, err);
	bool self = r >= 0 && strcmp(owner, rq->caller->owner) == 0; /* one may leave */
	if (r >= 0)
		r = self ? find_team(rq, &team, err) : find_as_admin(rq, &team, err);
	if (r >= 0)
		r = keep_owner(&team, owner, ROLE_READER, err);
	if (r >= 0)
		r = catalog_member_delete(sd->catalog, team.id, owner, err);
	if (r >= 0)
		r = catalog_sync(sd->catalog, err);
	if (r >= 0)
		r = sandboxes_judge(sd, NULL, err);
	rp->status = 204;
	return r;
}
