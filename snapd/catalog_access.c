/* Rows of tokens, users, teams and their members. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapd/access.h"
#include "snapd/catalog_db.h"

enum { OWNERS_OF_NAME = 1000 };

const char *const role_names[] = { "reader", "member", "admin", NULL };

/* The rows of a SELECT with one text (or none: key NULL). */
static int list(struct catalog *c, const char *sql, const char *key, const struct db_shape *shape,
		void *rows, size_t *n, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_read(c, &st, sql, err);
	if (r < 0)
		return r;
	if (key)
		sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
	return db_list(c, st, shape, rows, n, err);
}

/* The only row, or -ENOENT with words. */
static int get(struct catalog *c, const char *sql, const char *key, const struct db_shape *shape,
	       const char *noun, void *row, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_read(c, &st, sql, err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
	return db_the(c, st, shape, row, noun, key, err);
}

/* A statement with up to two texts and a number as ?3; how many rows it changed. */
static int run(struct catalog *c, const char *sql, const char *a, const char *b, int64_t number,
	       struct err *err, const char *what)
{
	sqlite3_stmt *st;
	int r = db_prepare(c, &st, sql, err);
	if (r < 0)
		return r;
	int params = sqlite3_bind_parameter_count(st);
	sqlite3_bind_text(st, 1, a, -1, SQLITE_STATIC);
	if (params > 1)
		sqlite3_bind_text(st, 2, b, -1, SQLITE_STATIC);
	if (params > 2)
		sqlite3_bind_int64(st, 3, number);
	r = db_run(c, st, err, what);
	return r < 0 ? r : sqlite3_changes(c->db);
}

static int run_locked(struct catalog *c, const char *sql, const char *a, const char *b,
		      int64_t number, struct err *err, const char *what)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = run(c, sql, a, b, number, err, what);
	db_unlock(c);
	return r;
}

/* ---- tokens ---- */

#define TOKEN_COLUMNS "id, hash, owner, name, scope, read_only, created, expires, used, path"

static int read_token(sqlite3_stmt *st, void *row)
{
	struct token_row *t = row;
	char scope[ID_SIZE];
	const void *hash = sqlite3_column_blob(st, 1);
	db_get_text(st, 0, t->id, sizeof(t->id));
	if (hash && sqlite3_column_bytes(st, 1) == (int)sizeof(t->hash.b))
		memcpy(t->hash.b, hash, sizeof(t->hash.b));
	db_get_text(st, 2, t->owner, sizeof(t->owner));
	db_get_text(st, 3, t->name, sizeof(t->name));
	db_get_text(st, 4, scope, sizeof(scope));
	t->admin = strcmp(scope, "admin") == 0;
	if (id_is(scope, "ws"))
		memcpy(t->workspace, scope, sizeof(t->workspace));
	t->read_only = sqlite3_column_int(st, 5) != 0;
	t->created_ns = sqlite3_column_int64(st, 6);
	t->expires_ns = sqlite3_column_int64(st, 7);
	t->used_ns = sqlite3_column_int64(st, 8);
	db_get_text(st, 9, t->path, sizeof(t->path));
	return 0;
}

static const struct db_shape token_shape = { "look up tokens", sizeof(struct token_row), read_token,
					  NULL };

static int insert_token(struct catalog *c, const struct token_row *row, struct err *err)
{
	sqlite3_stmt *st;
	const char *scope = row->admin ? "admin" : row->workspace;
	int r = db_prepare(c, &st,
			   "INSERT INTO tokens (" TOKEN_COLUMNS
			   ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL, ?9)",
			   err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, row->id, -1, SQLITE_STATIC);
	sqlite3_bind_blob(st, 2, row->hash.b, sizeof(row->hash.b), SQLITE_STATIC);
	sqlite3_bind_text(st, 3, row->owner, -1, SQLITE_STATIC);
	db_bind_text(st, 4, row->name);
	sqlite3_bind_text(st, 5, *scope ? scope : "owner", -1, SQLITE_STATIC);
	sqlite3_bind_int(st, 6, row->read_only);
	sqlite3_bind_int64(st, 7, row->created_ns);
	if (row->expires_ns)
		sqlite3_bind_int64(st, 8, row->expires_ns);
	db_bind_text(st, 9, row->path);
	return db_run(c, st, err, "insert a token");
}

/* What has no id that tells its kind is noted as "user/NAME". */
static int note_named(struct catalog *c, const char *kind, const char *name, struct err *err)
{
	char effect[NAME_SIZE + 8];
	(void)snprintf(effect, sizeof(effect), "%s/%s", kind, name);
	return db_note_effect(c, effect, err);
}

int catalog_token_insert(struct catalog *c, const struct token_row *row, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_begin(c, err);
	if (r >= 0) {
		r = insert_token(c, row, err);
		if (r >= 0)
			r = db_note_effect(c, row->id, err);
		r = db_end(c, r, err);
	}
	db_unlock(c);
	return r;
}

int catalog_token_get(struct catalog *c, const char *id, struct token_row *out, struct err *err)
{
	return get(c, "SELECT " TOKEN_COLUMNS " FROM tokens WHERE id = ?1", id, &token_shape,
		   "token", out, err);
}

int catalog_token_list(struct catalog *c, const char *owner, struct token_row **rows, size_t *n,
		       struct err *err)
{
	return list(c,
		    "SELECT " TOKEN_COLUMNS " FROM tokens WHERE ?1 IS NULL OR owner = ?1"
		    " ORDER BY created DESC, id DESC",
		    owner, &token_shape, rows, n, err);
}

int catalog_token_delete(struct catalog *c, const char *id, struct err *err)
{
	int r = run_locked(c, "DELETE FROM tokens WHERE id = ?1", id, NULL, 0, err,
			   "delete a token");
	return r == 0 ? err_set(err, -ENOENT, "no token \"%.100s\"", id) : r < 0 ? r : 0;
}

int catalog_token_used(struct catalog *c, const char *id, int64_t when_ns, struct err *err)
{
	int r = run_locked(c, "UPDATE tokens SET used = ?3 WHERE id = ?1 AND ?2 IS NOT NULL", id,
			   id, when_ns, err, "note a token's use");
	return r < 0 ? r : 0;
}

/* ---- users ---- */

#define USER_COLUMNS "name, uid, admin, created, owner"

static int read_user(sqlite3_stmt *st, void *row)
{
	struct user_row *u = row;
	db_get_text(st, 0, u->name, sizeof(u->name));
	u->has_uid = sqlite3_column_type(st, 1) != SQLITE_NULL;
	u->uid = (uid_t)sqlite3_column_int64(st, 1);
	u->admin = sqlite3_column_int(st, 2) != 0;
	u->created_ns = sqlite3_column_int64(st, 3);
	db_get_text(st, 4, u->owner, sizeof(u->owner));
	return 0;
}

static const struct db_shape user_shape = { "look up users", sizeof(struct user_row), read_user,
					  NULL };

/* Owners by number are whoever has the number. */
static bool is_of_uid(const char *owner)
{
	return strncmp(owner, "uid:", 4) == 0;
}

int db_note_owner(struct catalog *c, const char *owner, struct err *err)
{
	if (!*owner || is_of_uid(owner))
		return 0;
	int r = run(c, "INSERT INTO owners (owner) VALUES (?1) ON CONFLICT DO NOTHING", owner, NULL,
		    0, err, "note an owner");
	return r < 0 ? r : 0;
}

/* One that nobody was: the user's name, or that with a number. */
static int fresh_owner(struct catalog *c, const char *name, char out[OWNER_SIZE], struct err *err)
{
	for (unsigned i = 1; i < OWNERS_OF_NAME; i++) {
		if (i == 1)
			(void)snprintf(out, OWNER_SIZE, "%s", name);
		else
			(void)snprintf(out, OWNER_SIZE, "%.*s~%u", OWNER_SIZE - 10, name, i);
		int r = run(c, "INSERT INTO owners (owner) VALUES (?1) ON CONFLICT DO NOTHING", out,
			    NULL, 0, err, "note an owner");
		if (r != 0)
			return r < 0 ? r : 0;
	}
	return err_set(err, -EEXIST, "too many users were called \"%.60s\"", name);
}

static int insert_user(struct catalog *c, struct user_row *row, struct err *err)
{
	sqlite3_stmt *st;
	int r = 0;
	if (row->has_uid)
		owner_of_uid(row->owner, row->uid);
	else if (row->owner[0])
		r = db_note_owner(c, row->owner, err);
	else
		r = fresh_owner(c, row->name, row->owner, err);
	if (r >= 0)
		r = db_prepare(c, &st,
			       "INSERT INTO users (" USER_COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5)",
			       err);
	if (r >= 0) {
		sqlite3_bind_text(st, 1, row->name, -1, SQLITE_STATIC);
		if (row->has_uid)
			sqlite3_bind_int64(st, 2, row->uid);
		sqlite3_bind_int(st, 3, row->admin);
		sqlite3_bind_int64(st, 4, row->created_ns);
		sqlite3_bind_text(st, 5, row->owner, -1, SQLITE_STATIC);
		r = db_run(c, st, err, "insert a user");
		if (r == -EEXIST)
			(void)err_set(err, r, "there is a user with that name or uid already");
	}
	return r;
}

int catalog_user_insert(struct catalog *c, struct user_row *row, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_begin(c, err);
	if (r >= 0) {
		r = insert_user(c, row, err);
		if (r >= 0)
			r = note_named(c, "user", row->name, err);
		r = db_end(c, r, err);
	}
	db_unlock(c);
	return r;
}

int catalog_user_get(struct catalog *c, const char *name, struct user_row *out, struct err *err)
{
	return get(c, "SELECT " USER_COLUMNS " FROM users WHERE name = ?1", name, &user_shape,
		   "user", out, err);
}

int catalog_user_of_uid(struct catalog *c, uid_t uid, struct user_row *out, struct err *err)
{
	char text[16];
	(void)snprintf(text, sizeof(text), "%u", (unsigned)uid);
	return get(c, "SELECT " USER_COLUMNS " FROM users WHERE uid = cast(?1 AS INTEGER)", text,
		   &user_shape, "user with uid", out, err);
}

int catalog_user_list(struct catalog *c, struct user_row **rows, size_t *n, struct err *err)
{
	return list(c, "SELECT " USER_COLUMNS " FROM users ORDER BY name", NULL, &user_shape, rows,
		    n, err);
}

int catalog_user_delete(struct catalog *c, const char *name, const char *owner, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_begin(c, err);
	if (r >= 0) {
		r = run(c, "DELETE FROM users WHERE name = ?1", name, NULL, 0, err,
			"delete a user");
		if (r == 0)
			r = err_set(err, -ENOENT, "no user \"%.100s\"", name);
		if (r >= 0)
			r = run(c, "DELETE FROM tokens WHERE owner = ?1", owner, NULL, 0, err,
				"delete a user's tokens");
		if (r >= 0)
			r = run(c, "DELETE FROM members WHERE owner = ?1", owner, NULL, 0, err,
				"delete a user's memberships");
		if (r >= 0)
			r = run(c,
				"DELETE FROM deliveries WHERE hook IN"
				" (SELECT id FROM webhooks WHERE owner = ?1)",
				owner, NULL, 0, err, "delete a user's webhooks");
		if (r >= 0)
			r = run(c, "DELETE FROM webhooks WHERE owner = ?1", owner, NULL, 0, err,
				"delete a user's webhooks");
		r = db_end(c, r < 0 ? r : 0, err);
	}
	db_unlock(c);
	return r;
}

/* ---- teams ---- */

static int read_team(sqlite3_stmt *st, void *row)
{
	struct team_row *t = row;
	db_get_text(st, 0, t->name, sizeof(t->name));
	t->created_ns = sqlite3_column_int64(st, 1);
	return 0;
}

static const struct db_shape team_shape = { "look up teams", sizeof(struct team_row), read_team,
					  NULL };

static int read_member(sqlite3_stmt *st, void *row)
{
	struct member_row *m = row;
	int role = sqlite3_column_int(st, 1);
	db_get_text(st, 0, m->owner, sizeof(m->owner));
	m->role = role == ROLE_ADMIN || role == ROLE_MEMBER ? (enum role)role : ROLE_READER;
	return 0;
}

static const struct db_shape member_shape = { "look up members", sizeof(struct member_row),
					      read_member, NULL };

static const char put_member[] = "INSERT INTO members (team, owner, role) VALUES (?1, ?2, ?3)"
				 " ON CONFLICT (team, owner) DO UPDATE SET role = ?3";

int catalog_team_insert(struct catalog *c, const struct team_row *row, const char *admin,
			struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_begin(c, err);
	if (r >= 0) {
		r = run(c, "INSERT INTO teams (name, created) SELECT ?1, ?3 WHERE ?2 IS NOT NULL",
			row->name, row->name, row->created_ns, err, "insert a team");
		if (r == -EEXIST)
			(void)err_set(err, r, "there is a team \"%s\" already", row->name);
		if (r >= 0)
			r = run(c, put_member, row->name, admin, ROLE_ADMIN, err,
				"insert a team's admin");
		if (r >= 0)
			r = note_named(c, "team", row->name, err);
		r = db_end(c, r < 0 ? r : 0, err);
	}
	db_unlock(c);
	return r;
}

int catalog_team_get(struct catalog *c, const char *name, struct team_row *out, struct err *err)
{
	return get(c, "SELECT name, created FROM teams WHERE name = ?1", name, &team_shape, "team",
		   out, err);
}

int catalog_team_list(struct catalog *c, const char *member, struct team_row **rows, size_t *n,
		      struct err *err)
{
	return list(c,
		    "SELECT name, created FROM teams WHERE ?1 IS NULL OR name IN"
		    " (SELECT team FROM members WHERE owner = ?1) ORDER BY name",
		    member, &team_shape, rows, n, err);
}

int catalog_team_delete(struct catalog *c, const char *name, struct err *err)
{
	static const char *const also[] = {
		"DELETE FROM members WHERE team = ?1",
		"UPDATE workspaces SET visibility = 0, team = NULL WHERE team = ?1",
		"UPDATE snapshots SET visibility = 0, team = NULL WHERE team = ?1",
	};
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_begin(c, err);
	if (r >= 0) {
		r = run(c, "DELETE FROM teams WHERE name = ?1", name, NULL, 0, err,
			"delete a team");
		if (r == 0)
			r = err_set(err, -ENOENT, "no team \"%.100s\"", name);
		for (size_t i = 0; i < sizeof(also) / sizeof(also[0]) && r >= 0; i++)
			r = run(c, also[i], name, NULL, 0, err, "delete a team");
		r = db_end(c, r < 0 ? r : 0, err);
	}
	db_unlock(c);
	return r;
}

int catalog_members(struct catalog *c, const char *team, struct member_row **rows, size_t *n,
		    struct err *err)
{
	return list(c, "SELECT owner, role FROM members WHERE team = ?1 ORDER BY owner", team,
		    &member_shape, rows, n, err);
}

int catalog_member_set(struct catalog *c, const char *team, const char *owner, enum role role,
		       struct err *err)
{
	int r = run_locked(c, put_member, team, owner, role, err, "change a team");
	return r < 0 ? r : 0;
}

int catalog_member_delete(struct catalog *c, const char *team, const char *owner, struct err *err)
{
	int r = run_locked(c, "DELETE FROM members WHERE team = ?1 AND owner = ?2", team, owner, 0,
			   err, "change a team");
	return r == 0  ? err_set(err, -ENOENT, "%.100s is not in team \"%.100s\"", owner, team)
	       : r < 0 ? r
		       : 0;
}

int catalog_role(struct catalog *c, const char *team, const char *owner, struct err *err)
{
	sqlite3_stmt *st;
	struct member_row m;
	int r = db_read(c, &st, "SELECT owner, role FROM members WHERE team = ?1 AND owner = ?2",
		       err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, team, -1, SQLITE_STATIC);
	sqlite3_bind_text(st, 2, owner, -1, SQLITE_STATIC);
	r = db_the(c, st, &member_shape, &m, "member of", team, err);
	return r < 0 ? r : (int)m.role;
}
