#include "snapd/access.h"
#include "snapd/catalog_sandbox.h"
#include "snapd/repos.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAME_MAX = 64 /* of one name, among all owners, that are looked at */ };

/* ---- whose is what ---- */

/* A token that is good for one workspace sees that and its snapshots, one for a team what that is
 * shown, whatever its owner sees. */
static bool in_scope(const struct principal *who, const struct owned *own, const char *workspace)
{
	if (who->team[0] &&
	    (own->visibility != VISIBLE_TEAM || strcmp(own->team, who->team) != 0))
		return false;
	return !who->workspace[0] || strcmp(who->workspace, workspace) == 0;
}

/* Whether it is the team's, and that is one of those by which the caller may: 1 or 0; -errno: the
 * catalog can't say. */
static int has_role(struct snapd *sd, const struct principal *who, const struct owned *own,
		    enum role least, struct err *err)
{
	if (own->visibility != VISIBLE_TEAM)
		return 0;
	struct err why = { 0 };
	int r = catalog_role(sd->catalog, own->team, who->owner, &why);
	if (r < 0 && r != -ENOENT)
		return err_set(err, r, "%s", why.text);
	return r >= (int)least;
}

static int sees(struct snapd *sd, const struct principal *who, const struct owned *own,
		const char *workspace, struct err *err)
{
	if (!who->known || !in_scope(who, own, workspace))
		return 0;
	if (principal_owns(who, own->owner) || own->visibility == VISIBLE_GLOBAL)
		return 1;
	return has_role(sd, who, own, ROLE_READER, err);
}

static int writes(struct snapd *sd, const struct principal *who, const struct owned *own,
		  const char *workspace, struct err *err)
{
	if (!who->known || who->read_only || !in_scope(who, own, workspace))
		return 0;
	return principal_owns(who, own->owner) ? 1 : has_role(sd, who, own, ROLE_MEMBER, err);
}

bool access_sees(struct snapd *sd, const struct principal *who, const struct owned *own,
		 const char *workspace)
{
	return sees(sd, who, own, workspace, NULL) > 0;
}

bool access_writes(struct snapd *sd, const struct principal *who, const struct owned *own,
		   const char *workspace)
{
	return writes(sd, who, own, workspace, NULL) > 0;
}

bool access_sees_repo(const struct principal *who, const struct repo_row *row)
{
	return !who->team[0] && (row->global || principal_owns(who, row->owner));
}

int access_need_admin(const struct request *rq, struct err *err)
{
	const struct principal *who = rq->caller;
	return who->admin && !who->workspace[0] ? 0
						: err_set(err, -EPERM, "only an admin may do that");
}

static int need_write(struct snapd *sd, const struct principal *who, const struct meant *it,
		      const char *key, struct err *err)
{
	int r = writes(sd, who, &it->own, it->workspace, err);
	if (r == 0)
		r = err_set(err, -EPERM, "%s may be read, but not changed", key);
	return r < 0 ? r : 0;
}

/* ---- what a key means ---- */

/* "alice/app", where alice is a user with a uid, is "uid:N/app". */
static const char *true_key(struct snapd *sd, const char *key, char out[2 * NAME_SIZE])
{
	char owner[OWNER_SIZE];
	const char *slash = strchr(key, '/');
	if (!slash || slash - key >= OWNER_SIZE || strlen(slash) > NAME_SIZE)
		return key;
	(void)snprintf(owner, sizeof(owner), "%.*s", (int)(slash - key), key);
	if (auth_owner(sd, owner, owner, NULL) < 0)
		return key;
	(void)snprintf(out, 2 * NAME_SIZE, "%s%s", owner, slash);
	return out;
}

/* Of those with that key the one that is meant: it alone, or the caller's own. */
static int choose(const struct principal *who, struct meant *f, size_t n, const char *key,
		  enum noun noun, struct err *err)
{
	static const char *const nouns[] = { "workspace", "snapshot", "sandbox" };
	const char *what = nouns[noun];
	size_t mine = 0, at = 0;
	if (n == 0)
		return err_set(err, -ENOENT, "no %s \"%s\"", what, key);
	for (size_t i = 0; i < n; i++)
		if (strcmp(f[i].own.owner, who->owner) == 0)
			mine++, at = i;
	if (n == 1 || mine == 1) {
		f[0] = f[at];
		return 0;
	}
	if (noun == NOUN_SNAPSHOT && strncmp(key, "sn_", 3) == 0)
		return err_set(err, -ENOTUNIQ, "several snapshots' ids begin with \"%s\"", key);
	return err_set(err, -ENOTUNIQ, "several %s%s are called \"%s\": say OWNER/%s", what,
		       noun == NOUN_SANDBOX ? "es" : "s", key, key);
}

/* The repository that is meant, as choose() says for the others; `id` gets how handlers call it. */
static int find_repo(struct request *rq, const char *key, bool write, char id[ID_SIZE],
		     struct err *err)
{
	struct snapd *sd = rq->ctx;
	const struct principal *who = rq->caller;
	struct repo_row *rows = NULL;
	const struct repo_row *own = NULL, *other = NULL;
	char buf[2 * NAME_SIZE];
	size_t n = 0, others = 0;
	int r = catalog_repo_find(sd->catalog, true_key(sd, key, buf), &rows, &n, err);
	for (size_t i = 0; i < n; i++) {
		if (!access_sees_repo(who, &rows[i]))
			continue;
		if (strcmp(rows[i].owner, who->owner) == 0)
			own = &rows[i];
		else
			other = &rows[i], others++;
	}
	const struct repo_row *row = own ? own : other;
	if (r >= 0 && !row)
		r = err_set(err, -ENOENT,
			    "no repository \"%s\": `bough repo ls` shows what there is", key);
	else if (r >= 0 && !own && others > 1)
		r = err_set(err, -ENOTUNIQ, "several repositories are called \"%s\": say OWNER/%s",
			    key, key);
	else if (r >= 0 && write && !own && !who->admin)
		r = err_set(err, -EPERM, "%s may be read, but not changed", key);
	if (r >= 0)
		repo_lease_id(id, row->number);
	repo_rows_free(rows, n);
	return r < 0 ? r : 0;
}

int access_find_team(struct snapd *sd, const struct principal *who, const char *key,
		     struct team_row *out, struct err *err)
{
	struct team_row *rows = NULL;
	const struct team_row *own = NULL, *other = NULL;
	char buf[2 * NAME_SIZE];
	size_t n = 0, others = 0;
	int role = -ENOENT;
	int r = catalog_team_find(sd->catalog, true_key(sd, key, buf), &rows, &n, err);
	for (size_t i = 0; r >= 0 && i < n; i++) {
		struct err why = { 0 };
		int in = who->admin ? ROLE_ADMIN
				    : catalog_role(sd->catalog, rows[i].id, who->owner, &why);
		bool mine = strcmp(rows[i].owner, who->owner) == 0;
		if (in < 0 && in != -ENOENT)
			r = err_set(err, in, "%s", why.text);
		if (in < 0)
			continue;
		if (mine || !own)
			role = in;
		if (mine)
			own = &rows[i];
		else
			other = &rows[i], others++;
	}
	const struct team_row *row = own ? own : other;
	if (r >= 0 && !row)
		r = err_set(err, -ENOENT, "no team \"%.200s\"", key);
	else if (r >= 0 && !own && others > 1)
		r = err_set(err, -ENOTUNIQ, "several teams are called \"%s\": say OWNER/%s", key,
			    key);
	if (r >= 0)
		*out = *row;
	free(rows);
	return r < 0 ? r : role;
}

/* Nothing else is called so: perhaps a sandbox is, which has a name of its own. */
static void tell_sandbox(struct snapd *sd, const struct principal *who, const char *key,
			 struct err *err)
{
	struct meant found;
	if (err && access_find(sd, who, NOUN_SANDBOX, false, key, &found, NULL) >= 0)
		(void)err_set(err, -ENOENT,
			      "\"%s\" is a sandbox: `bough inspect %s` tells its root and "
			      "workspaces",
			      key, key);
}

int access_find(struct snapd *sd, const struct principal *who, enum noun noun, bool write,
		const char *key, struct meant *out, struct err *err)
{
	struct meant *f = calloc(SAME_MAX, sizeof(*f));
	char buf[2 * NAME_SIZE];
	size_t n = 0, seen = 0;
	if (!f)
		return err_no_memory(err);
	int r = catalog_find(sd->catalog, noun, true_key(sd, key, buf), who->owner, f, SAME_MAX, &n,
			     err);
	for (size_t i = 0; r >= 0 && i < n; i++) {
		int seeing = sees(sd, who, &f[i].own, f[i].workspace, err);
		if (seeing > 0)
			f[seen++] = f[i];
		r = seeing < 0 ? seeing : r;
	}
	if (r >= 0)
		r = choose(who, f, seen, key, noun, err);
	if (r >= 0 && write)
		r = need_write(sd, who, &f[0], key, err);
	if (r >= 0 || r == -EPERM)
		*out = f[0];
	else if (r == -ENOENT && noun != NOUN_SANDBOX)
		tell_sandbox(sd, who, key, err);
	free(f);
	return r;
}

/* Of those that were removed under that name the last one; one's own before others'. */
static int find_removed(struct snapd *sd, const struct principal *who, const char *key,
			struct meant *out, struct err *err)
{
	struct meant *f = calloc(SAME_MAX, sizeof(*f)), *best = NULL;
	char buf[2 * NAME_SIZE];
	size_t n = 0;
	bool mixed = false;
	if (!f)
		return err_no_memory(err);
	int r = catalog_find(sd->catalog, NOUN_REMOVED, true_key(sd, key, buf), who->owner, f,
			     SAME_MAX, &n, err);
	for (size_t i = 0; r >= 0 && i < n; i++) {
		int seeing = sees(sd, who, &f[i].own, f[i].workspace, err);
		r = seeing < 0 ? seeing : r;
		if (seeing <= 0)
			continue;
		bool mine = strcmp(f[i].own.owner, who->owner) == 0;
		if (best && strcmp(best->own.owner, who->owner) != 0)
			mixed |= strcmp(best->own.owner, f[i].own.owner) != 0;
		if (!best || (mine && strcmp(best->own.owner, who->owner) != 0))
			best = &f[i];
	}
	if (r >= 0 && !best)
		r = err_set(err, -ENOENT, "no workspace \"%s\" that could be brought back", key);
	else if (r >= 0 && mixed && strcmp(best->own.owner, who->owner) != 0)
		r = err_set(err, -ENOTUNIQ, "several workspaces were called \"%s\": say OWNER/%s",
			    key, key);
	else if (r >= 0)
		r = need_write(sd, who, best, key, err);
	if (r >= 0)
		*out = *best;
	free(f);
	return r;
}

/* Of two kinds of things with that name, one's own is meant. */
static int choose_kind(const struct principal *who, const char *key, const char *const names[2],
		       const struct meant found[2], struct err *err)
{
	bool own[2];
	for (unsigned i = 0; i < 2; i++)
		own[i] = strcmp(found[i].own.owner, who->owner) == 0;
	if (own[0] != own[1])
		return own[1];
	return err_set(err, -ENOTUNIQ, "\"%s\" is both a %s (%s) and a %s (%s): give the id", key,
		       names[0], found[0].id, names[1], found[1].id);
}

int access_find_any(struct snapd *sd, const struct principal *who, unsigned nouns, bool write,
		    const char *key, struct meant *out, struct err *err)
{
	static const struct {
		enum noun noun;
		const char *name, *id;
	} kinds[] = { { NOUN_SNAPSHOT, "snapshot", "sn_" },
		      { NOUN_SANDBOX, "sandbox", "sb_" }, /* whose root has its id for a name */
		      { NOUN_WORKSPACE, "workspace", "ws_" } };
	struct meant found[2];
	const char *names[2] = { NULL };
	struct err refusal = { 0 };
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		unsigned at = names[0] != NULL;
		if (!(nouns & 1u << kinds[i].noun))
			continue;
		int r = access_find(sd, who, kinds[i].noun, write, key, &found[at], err);
		if (r == -EPERM && err)
			refusal = *err;
		if (r < 0 && r != -ENOENT && r != -EPERM)
			return r;
		if (r < 0)
			continue;
		names[at] = kinds[i].name;
		r = at ? choose_kind(who, key, names, found, err) : 0;
		if (r < 0)
			return r;
		found[0] = found[r];
		names[0] = names[r];
		if (strncmp(key, kinds[i].id, 3) == 0)
			break; /* an id, or the beginning of a snapshot's */
	}
	if (names[0]) {
		*out = found[0];
		return 0;
	}
	if (refusal.code) {
		*err = refusal;
		return -EPERM;
	}
	bool boxes = nouns & 1u << NOUN_SANDBOX;
	(void)err_set(err, -ENOENT, "no %ssnapshot or workspace \"%s\"", boxes ? "sandbox, " : "",
		      key);
	if (!boxes)
		tell_sandbox(sd, who, key, err);
	return -ENOENT;
}

/* What trees are of. */
static int find_either(struct snapd *sd, const struct principal *who, const char *key,
		       struct meant *out, struct err *err)
{
	return access_find_any(sd, who, 1u << NOUN_SNAPSHOT | 1u << NOUN_WORKSPACE, false, key, out,
			       err);
}

/* ---- requests ---- */

enum family { ADMINS, ANYBODYS, WORKSPACES, SNAPSHOTS, SANDBOXES };

/* What lies behind "/v1/". Handlers of those that are anybody's show each caller's own. */
static enum family family_of(const char *pattern)
{
	static const struct {
		const char *name;
		enum family family;
	} table[] = {
		{ "/v1/workspaces", WORKSPACES }, { "/v1/snapshots", SNAPSHOTS },
		{ "/v1/sandboxes", SANDBOXES },   { "/v1/import", ANYBODYS },
		{ "/v1/health", ANYBODYS },       { "/v1/version", ANYBODYS },
		{ "/v1/openapi.json", ANYBODYS }, { "/v1/tokens", ANYBODYS },
		{ "/v1/teams", ANYBODYS },        { "/v1/jobs", ANYBODYS },
		{ "/v1/events", ANYBODYS },       { "/v1/audit", ANYBODYS },
		{ "/v1/usage", ANYBODYS },        { "/v1/repos", ANYBODYS },
		{ "/v1/webhooks", ANYBODYS },     { "/v1/whoami", ANYBODYS },
		{ "/v1/exports", ANYBODYS },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		size_t n = strlen(table[i].name);
		if (strncmp(pattern, table[i].name, n) == 0 && (!pattern[n] || pattern[n] == '/'))
			return table[i].family;
	}
	return ADMINS;
}

static bool is_route(const struct route *rt, const char *method, const char *pattern)
{
	return strcmp(rt->method, method) == 0 && strcmp(rt->path, pattern) == 0;
}

bool access_sends_list(const char *method, const char *path)
{
	return strcmp(method, "POST") == 0 && strstr(path, "/archive/{...}");
}

/* A terminal is one to write to, whatever the method. */
bool access_only_reads(const struct route *rt)
{
	return strcmp(rt->method, "HEAD") == 0 || access_sends_list(rt->method, rt->path) ||
	       (strcmp(rt->method, "GET") == 0 &&
		strcmp(rt->path, "/v1/sandboxes/{}/exec/{}/terminal") != 0);
}

/* About something beside workspaces and snapshots: not for a token of one of them, or of a team. */
static bool is_about_others(const struct route *rt)
{
	return strncmp(rt->path, "/v1/tokens", 10) == 0 ||
	       strncmp(rt->path, "/v1/webhooks", 12) == 0 ||
	       strncmp(rt->path, "/v1/exports", 11) == 0 ||
	       strncmp(rt->path, "/v1/teams", 9) == 0 || is_route(rt, "POST", "/v1/import") ||
	       strncmp(rt->path, "/v1/repos", 9) == 0 ||
	       strncmp(rt->path, "/v1/sandboxes", 13) == 0;
}

static bool makes_workspaces(const struct route *rt)
{
	return is_route(rt, "POST", "/v1/workspaces") ||
	       is_route(rt, "POST", "/v1/workspaces/import") ||
	       is_route(rt, "POST", "/v1/workspaces/{}/fork");
}

/* ---- tokens of a path ---- */

bool access_path_covers(const char *scope, const char *path)
{
	size_t n = strlen(scope);
	return n == 0 || (strncmp(path, scope, n) == 0 && (!path[n] || path[n] == '/'));
}

int access_path(const char *path, struct err *err)
{
	const struct doing *d = doing_now();
	if (!d || access_path_covers(d->caller.path, path))
		return 0;
	return err_set(err, -EPERM, "the token is for %.200s only", d->caller.path);
}

/* What such a token is good for at all: a route that isn't here is none for it. */
static int check_path(const struct request *rq, const struct route *rt, struct err *err)
{
	static const char *const tails[] = { "/v1/workspaces/{}/files/{...}",
					     "/v1/workspaces/{}/archive/{...}",
					     "/v1/snapshots/{}/files/{...}",
					     "/v1/snapshots/{}/archive/{...}" };
	static const char *const others[] = { "/v1/health", "/v1/version", "/v1/openapi.json",
					      "/v1/whoami",
					      /* Their handlers ask access_path. */
					      "/v1/workspaces/{}/watch",
					      "/v1/workspaces/{}/batch",
					      "/v1/workspaces/{}/uploads",
					      "/v1/workspaces/{}/uploads/{}" };
	const char *scope = rq->caller->path;
	if (!*scope)
		return 0;
	for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++)
		if (strcmp(rt->path, tails[i]) == 0 && rq->tail &&
		    access_path_covers(scope, rq->tail))
			return 0;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (strcmp(rt->path, others[i]) == 0)
			return 0;
	if (is_route(rt, "GET", "/v1/workspaces/{}"))
		return 0;
	return err_set(err, -EPERM, "the token is for %.200s only", scope);
}

static bool changes_who_sees(const struct request *rq, const struct route *rt)
{
	return strcmp(rt->method, "PATCH") == 0 &&
	       (json_object_get(rq->body, "visibility") || json_object_get(rq->body, "team"));
}

static int check_limits(const struct request *rq, const struct route *rt, struct err *err)
{
	const struct principal *who = rq->caller;
	if (strncmp(rt->path, "/v1/signed/", 11) == 0)
		return 0; /* the handler judges by the signature */
	if (!who->known)
		return err_set(err, -EKEYREJECTED, "a token is needed");
	if (family_of(rt->path) == ADMINS && access_need_admin(rq, err) < 0)
		return -EPERM;
	if (who->read_only && !access_only_reads(rt))
		return err_set(err, -EPERM, "the token is for reading only");
	if (check_path(rq, rt, err) < 0)
		return -EPERM;
	if (who->workspace[0] &&
	    (is_about_others(rt) || makes_workspaces(rt) || changes_who_sees(rq, rt)))
		return err_set(err, -EPERM, "the token is for workspace %s only", who->workspace);
	if (who->team[0] && (is_about_others(rt) || changes_who_sees(rq, rt)))
		return err_set(err, -EPERM, "the token is for team %s only", who->team);
	return 0;
}

/* Commits and pushes of a checkout move branches of the repository, too. */
static int admit_git(struct request *rq, const struct route *rt, bool snapshot, const char *id,
		     struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_ws_row ws = { 0 };
	auto_snap_row snap = { 0 };
	char repo[ID_SIZE];
	const char *last = strrchr(rt->path, '/');
	if (rq->caller->admin || (strcmp(last, "/commit") != 0 && strcmp(last, "/push") != 0))
		return 0;
	int r = snapshot ? catalog_snap_get(sd->catalog, id, &snap, err)
			 : catalog_ws_get(sd->catalog, id, &ws, err);
	const char *text = snapshot ? snap.git : ws.git;
	if (r < 0 || !text)
		return r; /* it is no checkout: the handler says so */
	json_t *git = json_loads(text, 0, NULL);
	repo_lease_id(repo, (uint32_t)json_integer_value(json_object_get(git, "repo")));
	json_decref(git);
	return find_repo(rq, repo, true, repo, err);
}

/* Whoever owns a workspace takes it off any sandbox, also one that isn't shown to him: the one that
 * has the workspace attached, and is called so. -ENOENT: none. */
static int find_holder(struct request *rq, struct meant *out, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct meant ws;
	struct attached_row *rows = NULL;
	struct meant *f = calloc(SAME_MAX, sizeof(*f));
	char buf[2 * NAME_SIZE];
	size_t n = 0, at = 0, hits = 0;
	if (!f)
		return err_no_memory(err);
	int r = access_find(sd, rq->caller, NOUN_WORKSPACE, true, rq->params[1], &ws, err);
	if (r >= 0 && strcmp(ws.own.owner, rq->caller->owner) != 0)
		r = -ENOENT;
	if (r >= 0)
		r = catalog_attached(sd->catalog, NULL, ws.id, &rows, &at, err);
	if (r >= 0)
		r = catalog_find(sd->catalog, NOUN_SANDBOX, true_key(sd, rq->params[0], buf),
				 rq->caller->owner, f, SAME_MAX, &n, err);
	for (size_t i = 0; r >= 0 && i < n; i++)
		for (size_t k = 0; k < at; k++)
			if (strcmp(rows[k].sandbox, f[i].id) == 0) {
				*out = f[i];
				hits++;
				break;
			}
	free(rows);
	free(f);
	if (r >= 0 && hits > 1)
		return err_set(err, -ENOTUNIQ, "several sandboxes are called \"%s\": say OWNER/%s",
			       rq->params[0], rq->params[0]);
	return r < 0 ? r : hits ? 0 : -ENOENT;
}

/* What the path names: workspaces and snapshots have their key first. */
static int admit_path(struct request *rq, const struct route *rt, enum family family,
		      struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct meant found = { 0 };
	if (strncmp(rt->path, "/v1/repos/{}", 12) == 0) {
		int r = find_repo(rq, rq->params[0], !access_only_reads(rt), rq->ids[0], err);
		if (r >= 0)
			rq->params[0] = rq->ids[0];
		return r;
	}
	bool fork = is_route(rt, "POST", "/v1/workspaces/{}/fork");
	if (!rq->params[0] || (family != WORKSPACES && family != SNAPSHOTS && family != SANDBOXES))
		return 0;
	const char *key = rq->params[0];
	auto_exec_row exec = { 0 };
	/* A process's id is as good as its sandbox's. */
	if (family == SANDBOXES && id_is(key, "ex") &&
	    catalog_exec_get(sd->catalog, key, &exec, NULL) >= 0)
		key = exec.sandbox;
	enum noun noun = family == SNAPSHOTS   ? NOUN_SNAPSHOT
			 : family == SANDBOXES ? NOUN_SANDBOX
					       : NOUN_WORKSPACE;
	bool undelete = is_route(rt, "POST", "/v1/workspaces/{}/undelete");
	int r = undelete ? find_removed(sd, rq->caller, rq->params[0], &found, err)
			 : access_find(sd, rq->caller, noun, !access_only_reads(rt) && !fork,
				       key, &found, err);
	if ((r == -ENOENT || r == -EPERM) &&
	    is_route(rt, "DELETE", "/v1/sandboxes/{}/workspaces/{}")) {
		struct err why = { 0 };
		int holds = find_holder(rq, &found, &why);
		if (holds >= 0)
			r = 0;
		else if (holds == -ENOTUNIQ)
			r = err_set(err, holds, "%s", why.text);
	}
	/* One that came back already: with its key that is told again. */
	struct doing *d = doing_now();
	if (r == -ENOENT && undelete && d && d->key &&
	    access_find(sd, rq->caller, noun, true, key, &found, NULL) >= 0)
		r = 0;
	/* One that is there before one that was. */
	if (r == -ENOENT && is_route(rt, "DELETE", "/v1/workspaces/{}") &&
	    request_query_true(rq, "purge") &&
	    find_removed(sd, rq->caller, rq->params[0], &found, NULL) >= 0)
		r = 0;
	if (d && (r >= 0 || r == -EPERM)) { /* its owner hears of what was refused, too */
		memcpy(d->object, found.id, ID_SIZE);
		memcpy(d->workspace, found.workspace, ID_SIZE);
		d->own = found.own;
	}
	if (r < 0)
		return r;
	memcpy(rq->ids[0], found.id, ID_SIZE);
	rq->params[0] = rq->ids[0];
	return family == SANDBOXES ? 0 : admit_git(rq, rt, family == SNAPSHOTS, found.id, err);
}

static int admit_field(struct request *rq, const char *key, bool either, struct err *err)
{
	struct meant found;
	const char *text = request_string(rq, key);
	if (!text)
		return 0;
	int r = either ? find_either(rq->ctx, rq->caller, text, &found, err)
		       : access_find(rq->ctx, rq->caller, NOUN_SNAPSHOT, false, text, &found, err);
	if (r < 0)
		return r;
	return json_object_set_new(rq->body, key, json_string(found.id)) < 0 ? err_no_memory(err)
									     : 0;
}

/* A workspace that is gone may still have snapshots: by its id they are found, as far as they are
 * the caller's to see. */
static int admit_query(struct request *rq, const struct route *rt, enum family family,
		       struct err *err)
{
	struct meant found;
	size_t at = 1;
	if (is_route(rt, "GET", "/v1/snapshots/{}/diff/{}")) { /* the other one of the two */
		int r = find_either(rq->ctx, rq->caller, rq->params[1], &found, err);
		if (r < 0)
			return r;
		memcpy(rq->ids[at], found.id, ID_SIZE);
		rq->params[1] = rq->ids[at++];
	}
	for (size_t i = 0; i < rq->nquery; i++) {
		struct web_query *q = &rq->query[i];
		bool against = strcmp(q->key, "against") == 0;
		bool of = family == SNAPSHOTS && strcmp(q->key, "workspace") == 0 &&
			  !id_is(q->value, "ws");
		if ((!against && !of) || at == WEB_IDS)
			continue;
		int r = against ? find_either(rq->ctx, rq->caller, q->value, &found, err)
				: access_find(rq->ctx, rq->caller, NOUN_WORKSPACE, false, q->value,
					      &found, err);
		if (r < 0)
			return r;
		memcpy(rq->ids[at], found.id, ID_SIZE);
		q->value = rq->ids[at++];
	}
	return 0;
}

static gid_t group_of(uid_t uid)
{
	struct passwd pw, *found = NULL;
	char buf[4096];
	return getpwuid_r(uid, &pw, buf, sizeof(buf), &found) == 0 && found ? found->pw_gid
									    : (gid_t)uid;
}

/* Who isn't an admin gives a new tree to nobody but himself. Only root's boughd can do so at all:
 * another's gives all to its own user. */
static int admit_owner(struct request *rq, struct err *err)
{
	const struct principal *who = rq->caller;
	if (who->admin || who->uid == (uid_t)-1 || geteuid() != 0 || !rq->body)
		return who->admin || !(json_object_get(rq->body, "uid") ||
				       json_object_get(rq->body, "gid"))
			       ? 0
			       : err_set(err, -EPERM, "only an admin may say uid and gid");
	gid_t gid = who->gid == (gid_t)-1 ? group_of(who->uid) : who->gid;
	if (request_number(rq, "uid", who->uid) != who->uid ||
	    request_number(rq, "gid", gid) != gid)
		return err_set(err, -EPERM, "uid and gid are those of the caller: %u and %u",
			       (unsigned)who->uid, (unsigned)gid);
	int bad = json_object_set_new(rq->body, "uid", json_integer(who->uid));
	bad |= json_object_set_new(rq->body, "gid", json_integer(gid));
	return bad ? err_no_memory(err) : 0;
}

/* The repository that a checkout is made of. */
static int admit_checkout(struct request *rq, struct err *err)
{
	json_t *git = json_object_get(rq->body, "git");
	const char *key = json_string_value(json_object_get(git, "repo"));
	char id[ID_SIZE];
	if (!key)
		return 0;
	int r = find_repo(rq, key, false, id, err);
	if (r < 0)
		return r;
	return json_object_set_new(git, "repo", json_string(id)) < 0 ? err_no_memory(err) : 0;
}

int access_admit(struct request *rq, const struct route *rt, const void *data, size_t len,
		 struct reply *rp, struct err *err)
{
	enum family family = family_of(rt->path);
	int r = check_limits(rq, rt, err);
	if (r >= 0)
		r = admit_path(rq, rt, family, err);
	if (r >= 0 && (family == WORKSPACES || family == SNAPSHOTS || family == SANDBOXES)) {
		r = admit_query(rq, rt, family, err);
		if (r >= 0 && family != SANDBOXES)
			r = admit_field(rq, "from", true, err);
		if (r >= 0)
			r = admit_field(rq, "snapshot", false, err);
	}
	if (r >= 0 && is_route(rt, "POST", "/v1/exports"))
		r = admit_field(rq, "from", true, err);
	if (r >= 0 && makes_workspaces(rt) && !rq->params[0])
		r = admit_owner(rq, err);
	return r < 0 ? r : admit_checkout(rq, err);
}
