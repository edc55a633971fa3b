/* Rows of tokens, users, teams and their members. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapd/access.h"
#include "snapd/catalog_db.h"

enum { OWNERS_OF_NAME = 1000 };

const char *const role_names[] = { "reader", "member", "admin", NULL };

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
	if (id_is(scope, "tm"))
		memcpy(t->team, scope, sizeof(t->team));
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
	const char *scope = row->admin ? "admin" : row->team[0] ? row->team : row->workspace;
	return db_exec(c,
		       "INSERT INTO tokens (" TOKEN_COLUMNS
		       ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL, ?9)",
		       DB(db_text(row->id), db_blob(row->hash.b, sizeof(row->hash.b)),
			  db_text(row->owner), db_text_or_null(row->name),
			  db_text(*scope ? scope : "owner"), db_int(row->read_only),
			  db_int(row->created_ns), db_int_or_null(row->expires_ns),
			  db_text_or_null(row->path)),
		       "insert a token", err);
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
	int r = db_start(c, err);
	if (r < 0)
		return r;
	r = insert_token(c, row, err);
	if (r >= 0)
		r = db_note_effect(c, row->id, err);
	return db_finish(c, r, err);
}

int catalog_token_get(struct catalog *c, const char *id, struct token_row *out, struct err *err)
{
	return db_find(c, "SELECT " TOKEN_COLUMNS " FROM tokens WHERE id = ?1", DB(db_text(id)),
		       &token_shape, out, "token", id, err);
}

int catalog_token_list(struct catalog *c, const char *owner, struct token_row **rows, size_t *n,
		       struct err *err)
{
	return db_select(c,
			 "SELECT " TOKEN_COLUMNS " FROM tokens WHERE ?1 IS NULL OR owner = ?1"
			 " ORDER BY created DESC, id DESC",
			 DB(db_text(owner)), &token_shape, rows, n, err);
}

int catalog_token_delete(struct catalog *c, const char *id, struct err *err)
{
	return db_change_the(c, "DELETE FROM tokens WHERE id = ?1", DB(db_text(id)),
			     "delete a token", "token", id, err);
}

int catalog_token_used(struct catalog *c, const char *id, int64_t when_ns, struct err *err)
{
	return db_change(c, "UPDATE tokens SET used = ?2 WHERE id = ?1",
			 DB(db_text(id), db_int(when_ns)), "note a token's use", err);
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

/* How many it noted: none where there was such an owner. */
static int note_owner(struct catalog *c, const char *owner, struct err *err)
{
	return db_exec(c, "INSERT INTO owners (owner) VALUES (?1) ON CONFLICT DO NOTHING",
		       DB(db_text(owner)), "note an owner", err);
}

int db_note_owner(struct catalog *c, const char *owner, struct err *err)
{
	int r = !*owner || is_of_uid(owner) ? 0 : note_owner(c, owner, err);
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
		int r = note_owner(c, out, err);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	return err_set(err, -EEXIST, "too many users were called \"%.60s\"", name);
}

static int insert_user(struct catalog *c, struct user_row *row, struct err *err)
{
	int r = 0;
	if (row->has_uid)
		owner_of_uid(row->owner, row->uid);
	else if (row->owner[0])
		r = db_note_owner(c, row->owner, err);
	else
		r = fresh_owner(c, row->name, row->owner, err);
	if (r < 0)
		return r;
	r = db_exec(c, "INSERT INTO users (" USER_COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5)",
		    DB(db_text(row->name), DB_INT_AT(row->has_uid ? &row->uid : NULL),
		       db_int(row->admin), db_int(row->created_ns), db_text(row->owner)),
		    "insert a user", err);
	if (r == -EEXIST)
		(void)err_set(err, r, "there is a user with that name or uid already");
	return r;
}

int catalog_user_insert(struct catalog *c, struct user_row *row, struct err *err)
{
	int r = db_start(c, err);
	if (r < 0)
		return r;
	r = insert_user(c, row, err);
	if (r >= 0)
		r = note_named(c, "user", row->name, err);
	return db_finish(c, r, err);
}

int catalog_user_get(struct catalog *c, const char *name, struct user_row *out, struct err *err)
{
	return db_find(c, "SELECT " USER_COLUMNS " FROM users WHERE name = ?1", DB(db_text(name)),
		       &user_shape, out, "user", name, err);
}

int catalog_user_of_uid(struct catalog *c, uid_t uid, struct user_row *out, struct err *err)
{
	char text[16];
	(void)snprintf(text, sizeof(text), "%u", (unsigned)uid);
	return db_find(c, "SELECT " USER_COLUMNS " FROM users WHERE uid = ?1", DB(db_int(uid)),
		       &user_shape, out, "user with uid", text, err);
}

int catalog_user_list(struct catalog *c, struct user_row **rows, size_t *n, struct err *err)
{
	return db_select(c, "SELECT " USER_COLUMNS " FROM users ORDER BY name", DB(), &user_shape,
			 rows, n, err);
}

/* Statements with one text, one behind the other. */
static int exec_all(struct catalog *c, const char *const *sql, size_t n, const char *text,
		    const char *what, struct err *err)
{
	int r = 0;
	for (size_t i = 0; i < n && r >= 0; i++)
		r = db_exec(c, sql[i], DB(db_text(text)), what, err);
	return r;
}

int catalog_user_delete(struct catalog *c, const char *name, const char *owner, struct err *err)
{
	static const char *const also[] = {
		"DELETE FROM tokens WHERE owner = ?1",
		"DELETE FROM members WHERE owner = ?1",
		"DELETE FROM deliveries WHERE hook IN (SELECT id FROM webhooks WHERE owner = ?1)",
		"DELETE FROM webhooks WHERE owner = ?1",
	};
	int r = db_start(c, err);
	if (r < 0)
		return r;
	r = db_exec_the(c, "DELETE FROM users WHERE name = ?1", DB(db_text(name)),
			"delete a user", "user", name, err);
	if (r >= 0)
		r = exec_all(c, also, sizeof(also) / sizeof(also[0]), owner, "delete a user", err);
	return db_finish(c, r, err);
}

/* ---- teams ---- */

static int read_team(sqlite3_stmt *st, void *row)
{
	struct team_row *t = row;
	db_get_text(st, 0, t->id, sizeof(t->id));
	db_get_text(st, 1, t->owner, sizeof(t->owner));
	db_get_text(st, 2, t->name, sizeof(t->name));
	t->created_ns = sqlite3_column_int64(st, 3);
	return 0;
}

#define TEAM_COLUMNS "id, owner, name, created"

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

static int put_member(struct catalog *c, const char *team, const char *owner, enum role role,
		      struct err *err)
{
	return db_exec(c,
		       "INSERT INTO members (team, owner, role) VALUES (?1, ?2, ?3)"
		       " ON CONFLICT (team, owner) DO UPDATE SET role = ?3",
		       DB(db_text(team), db_text(owner), db_int(role)), "change a team", err);
}

int catalog_team_insert(struct catalog *c, const struct team_row *row, struct err *err)
{
	int r = db_start(c, err);
	if (r < 0)
		return r;
	r = db_exec(c, "INSERT INTO teams (" TEAM_COLUMNS ") VALUES (?1, ?2, ?3, ?4)",
		    DB(db_text(row->id), db_text(row->owner), db_text(row->name),
		       db_int(row->created_ns)),
		    "insert a team", err);
	if (r == -EEXIST)
		(void)err_set(err, r, "there is a team \"%s\" already", row->name);
	if (r >= 0)
		r = put_member(c, row->id, row->owner, ROLE_ADMIN, err);
	if (r >= 0)
		r = db_note_owner(c, row->owner, err);
	if (r >= 0)
		r = db_note_effect(c, row->id, err);
	return db_finish(c, r, err);
}

int catalog_team_get(struct catalog *c, const char *id, struct team_row *out, struct err *err)
{
	return db_find(c, "SELECT " TEAM_COLUMNS " FROM teams WHERE id = ?1", DB(db_text(id)),
		       &team_shape, out, "team", id, err);
}

int catalog_team_find(struct catalog *c, const char *key, struct team_row **rows, size_t *n,
		      struct err *err)
{
	char owner[OWNER_SIZE];
	if (!strchr(key, '/'))
		return db_select(c,
				 "SELECT " TEAM_COLUMNS " FROM teams WHERE name = ?1 OR id = ?1",
				 DB(db_text(key)), &team_shape, rows, n, err);
	const char *name = db_split_key(key, owner);
	return db_select(c,
			 "SELECT " TEAM_COLUMNS " FROM teams WHERE name = ?1 AND owner = ?2",
			 DB(db_text(name), db_text(owner)), &team_shape, rows, n, err);
}

int catalog_team_list(struct catalog *c, const char *member, struct team_row **rows, size_t *n,
		      struct err *err)
{
	return db_select(c,
			 "SELECT " TEAM_COLUMNS " FROM teams WHERE ?1 IS NULL OR id IN"
			 " (SELECT team FROM members WHERE owner = ?1) ORDER BY name || ',' || id",
			 DB(db_text(member)), &team_shape, rows, n, err);
}

int catalog_team_delete(struct catalog *c, const char *id, struct err *err)
{
	static const char *const also[] = {
		"DELETE FROM members WHERE team = ?1",
		"UPDATE workspaces SET visibility = 0, team = NULL WHERE team = ?1",
		"UPDATE snapshots SET visibility = 0, team = NULL WHERE team = ?1",
		"UPDATE sandboxes SET visibility = 0, team = NULL WHERE team = ?1",
		"DELETE FROM tokens WHERE scope = ?1",
	};
	int r = db_start(c, err);
	if (r < 0)
		return r;
	r = db_exec_the(c, "DELETE FROM teams WHERE id = ?1", DB(db_text(id)), "delete a team",
			"team", id, err);
	if (r >= 0)
		r = exec_all(c, also, sizeof(also) / sizeof(also[0]), id, "delete a team", err);
	return db_finish(c, r, err);
}

int catalog_members(struct catalog *c, const char *team, struct member_row **rows, size_t *n,
		    struct err *err)
{
	return db_select(c, "SELECT owner, role FROM members WHERE team = ?1 ORDER BY owner",
			 DB(db_text(team)), &member_shape, rows, n, err);
}

int catalog_member_set(struct catalog *c, const char *team, const char *owner, enum role role,
		       struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = put_member(c, team, owner, role, err);
	db_unlock(c);
	return r < 0 ? r : 0;
}

int catalog_member_delete(struct catalog *c, const char *team, const char *owner, struct err *err)
{
	int r = db_change_the(c, "DELETE FROM members WHERE team = ?1 AND owner = ?2",
			      DB(db_text(team), db_text(owner)), "change a team", "member", owner,
			      err);
	return r == -ENOENT ? err_set(err, r, "%.100s is not in team \"%.100s\"", owner, team) : r;
}

int catalog_role(struct catalog *c, const char *team, const char *owner, struct err *err)
{
	struct member_row m;
	int r = db_find(c, "SELECT owner, role FROM members WHERE team = ?1 AND owner = ?2",
			DB(db_text(team), db_text(owner)), &member_shape, &m, "member of", team,
			err);
	return r < 0 ? r : (int)m.role;
}
