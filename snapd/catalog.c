/* Rows of workspaces; what both kinds share. */
#include "snapd/catalog.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapd/principal.h"
#include "snapd/catalog_db.h"

#define WS_COLUMNS                                                                                 \
	"id, name, base, head, parent, created, quota_bytes, quota_inodes, mount, broken, labels," \
	" git, description, sandbox, " DB_OWNED ", removed, purge, was"
enum { WS_COLUMNS_N = 17 + OWNED_COLUMNS };

const char *const visibility_names[] = { "private", "team", "global", NULL };
const char *const on_expiry_names[] = { "delete", "save", "keep", NULL };

static int index_of(const char *const *names, const char *s)
{
	for (int i = 0; names[i]; i++)
		if (strcmp(names[i], s) == 0)
			return i;
	return -EINVAL;
}

int visibility_parse(const char *s)
{
	return index_of(visibility_names, s);
}

int on_expiry_parse(const char *s)
{
	return index_of(on_expiry_names, s);
}

void ws_row_done(struct ws_row *r)
{
	free(r->labels);
	free(r->description);
	free(r->git);
	buf_done(&r->head_stack);
	memset(r, 0, sizeof(*r));
}

void ws_rows_free(struct ws_row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		ws_row_done(&rows[i]);
	free(rows);
}

void db_read_owned(sqlite3_stmt *st, int i, struct owned *out)
{
	int visibility = sqlite3_column_int(st, i + 1), on_expiry = sqlite3_column_int(st, i + 4);
	db_get_text(st, i, out->owner, sizeof(out->owner));
	/* Nobody sees more because a number is odd. */
	out->visibility = visibility == VISIBLE_TEAM || visibility == VISIBLE_GLOBAL
				  ? (enum visibility)visibility
				  : VISIBLE_PRIVATE;
	db_get_text(st, i + 2, out->team, sizeof(out->team));
	out->expires_ns = sqlite3_column_int64(st, i + 3);
	out->on_expiry = on_expiry == EXPIRY_DELETE || on_expiry == EXPIRY_SAVE
				 ? (enum on_expiry)on_expiry
				 : EXPIRY_KEEP;
}

void db_bind_owned(struct catalog *c, sqlite3_stmt *st, int i, const struct owned *own)
{
	sqlite3_bind_text(st, i, own->owner[0] ? own->owner : c->self, -1, SQLITE_STATIC);
	sqlite3_bind_int(st, i + 1, (int)own->visibility);
	db_bind_text(st, i + 2, own->team);
	if (own->expires_ns)
		sqlite3_bind_int64(st, i + 3, own->expires_ns);
	else
		sqlite3_bind_null(st, i + 3);
	sqlite3_bind_int(st, i + 4, (int)own->on_expiry);
}

const char *db_split_key(const char *key, char owner[OWNER_SIZE])
{
	const char *slash = strchr(key, '/');
	if (!slash || slash - key >= OWNER_SIZE) {
		doing_owner(owner);
		return key;
	}
	memcpy(owner, key, (size_t)(slash - key));
	owner[slash - key] = '\0';
	return slash + 1;
}

/* Of columns WS_COLUMNS, and head_stack where that is selected. */
static int read_ws(sqlite3_stmt *st, void *row)
{
	struct ws_row *r = row;
	db_get_text(st, 0, r->id, sizeof(r->id));
	db_get_text(st, 1, r->name, sizeof(r->name));
	db_get_text(st, 2, r->base, sizeof(r->base));
	db_get_text(st, 3, r->head, sizeof(r->head));
	db_get_text(st, 4, r->parent, sizeof(r->parent));
	r->created_ns = sqlite3_column_int64(st, 5);
	r->quota_bytes = (uint64_t)sqlite3_column_int64(st, 6);
	r->quota_inodes = (uint64_t)sqlite3_column_int64(st, 7);
	r->mount = sqlite3_column_int(st, 8) != 0;
	db_get_text(st, 9, r->broken, sizeof(r->broken));
	int e = db_copy_text(st, 10, &r->labels);
	e |= db_copy_text(st, 11, &r->git);
	e |= db_copy_text(st, 12, &r->description);
	db_get_text(st, 13, r->sandbox, sizeof(r->sandbox));
	db_read_owned(st, 14, &r->own);
	r->removed_ns = sqlite3_column_int64(st, 14 + OWNED_COLUMNS);
	r->purge_ns = sqlite3_column_int64(st, 15 + OWNED_COLUMNS);
	db_get_text(st, 16 + OWNED_COLUMNS, r->was, sizeof(r->was));
	const void *stack = sqlite3_column_blob(st, WS_COLUMNS_N);
	if (stack)
		buf_add(&r->head_stack, stack, (size_t)sqlite3_column_bytes(st, WS_COLUMNS_N));
	return e < 0 || buf_error(&r->head_stack) ? -ENOMEM : 0;
}

static void done_ws(void *row)
{
	ws_row_done(row);
}

static const struct db_shape ws_shape = { "look up workspaces", sizeof(struct ws_row), read_ws,
					  done_ws };

#define WS_OF "SELECT " WS_COLUMNS ", head_stack FROM workspaces WHERE "

/* One that is bound or has an id alone, and is given back. */
static int first_ws(struct catalog *c, sqlite3_stmt *st, const char *key, struct ws_row *out,
		    struct err *err)
{
	sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
	return db_the(c, st, &ws_shape, out, "workspace", key, err);
}

int catalog_ws_get(struct catalog *c, const char *key, struct ws_row *out, struct err *err)
{
	sqlite3_stmt *st;
	char owner[OWNER_SIZE];
	int r = db_read(c, &st,
			WS_OF "(id = ?1 OR (owner = ?2 AND name = ?3)) AND removed IS NULL", err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 3, db_split_key(key, owner), -1, SQLITE_STATIC);
	sqlite3_bind_text(st, 2, owner, -1, SQLITE_STATIC);
	return first_ws(c, st, key, out, err);
}

int catalog_ws_get_any(struct catalog *c, const char *id, struct ws_row *out, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_read(c, &st, WS_OF "id = ?1", err);
	return r < 0 ? r : first_ws(c, st, id, out, err);
}

int catalog_ws_list(struct catalog *c, enum ws_which which, struct ws_row **rows, size_t *n,
		    struct err *err)
{
	static const char *const selects[] = {
		[WS_THERE] = "SELECT " WS_COLUMNS " FROM workspaces WHERE removed IS NULL"
			     " ORDER BY created DESC, seq DESC",
		[WS_REMOVED] = "SELECT " WS_COLUMNS " FROM workspaces WHERE removed IS NOT NULL"
			       " ORDER BY created DESC, seq DESC",
		[WS_ALL] = "SELECT " WS_COLUMNS " FROM workspaces ORDER BY created DESC, seq DESC",
	};
	sqlite3_stmt *st;
	int r = db_read(c, &st, selects[which], err);
	return r < 0 ? r : db_list(c, st, &ws_shape, rows, n, err);
}

static int insert_ws(struct catalog *c, const struct ws_row *w, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_prepare(
		c, &st,
		"INSERT INTO workspaces (id, name, base, head, quota_bytes, quota_inodes,"
		" mount, broken, labels, head_stack, parent, created, git, description, " DB_OWNED
		", sandbox, removed, purge, was) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,"
		" ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, nullif(?21, 0),"
		" nullif(?22, 0), ?23)",
		err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, w->id, -1, SQLITE_STATIC);
	sqlite3_bind_text(st, 2, w->name, -1, SQLITE_STATIC);
	db_bind_text(st, 3, w->base);
	db_bind_text(st, 4, w->head);
	sqlite3_bind_int64(st, 5, (sqlite3_int64)w->quota_bytes);
	sqlite3_bind_int64(st, 6, (sqlite3_int64)w->quota_inodes);
	sqlite3_bind_int(st, 7, w->mount);
	db_bind_text(st, 8, w->broken);
	db_bind_text(st, 9, w->labels);
	if (w->head_stack.len)
		sqlite3_bind_blob64(st, 10, w->head_stack.data, w->head_stack.len, SQLITE_STATIC);
	db_bind_text(st, 11, w->parent);
	sqlite3_bind_int64(st, 12, w->created_ns);
	db_bind_text(st, 13, w->git);
	db_bind_text(st, 14, w->description);
	db_bind_owned(c, st, 15, &w->own);
	db_bind_text(st, 20, w->sandbox);
	sqlite3_bind_int64(st, 21, w->removed_ns);
	sqlite3_bind_int64(st, 22, w->purge_ns);
	db_bind_text(st, 23, w->was);
	r = db_run(c, st, err, "insert a workspace");
	if (r == -EEXIST)
		(void)err_set(err, r, "there is a workspace \"%s\" already", w->name);
	return r;
}

int catalog_ws_insert(struct catalog *c, const struct ws_row *rows, size_t n, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_begin(c, err);
	if (r >= 0) {
		for (size_t i = 0; i < n && r >= 0; i++) {
			r = insert_ws(c, &rows[i], err);
			if (r >= 0)
				r = db_note_owner(c, rows[i].own.owner, err);
			if (r >= 0)
				r = db_note_effect(c, rows[i].id, err);
		}
		if (r >= 0 && n > 0) /* all of one call are of one owner */
			r = db_keep_quota(c, rows[0].own.owner, err);
		r = db_end(c, r, err);
	}
	db_unlock(c);
	return r;
}

/* Runs a statement that changes the row of ?1. */
static int change_row(struct catalog *c, sqlite3_stmt *st, const char *id, struct err *err)
{
	sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
	int r = db_run(c, st, err, "change a workspace");
	if (r >= 0 && sqlite3_changes(c->db) == 0)
		r = err_set(err, -ENOENT, "no workspace \"%s\"", id);
	return r;
}

int catalog_ws_patch(struct catalog *c, const char *id, const struct ws_patch *p, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_prepare(c, &st,
		       "UPDATE workspaces SET name = ifnull(?2, name),"
		       " labels = nullif(ifnull(?3, labels), ''),"
		       " git = nullif(ifnull(?6, git), ''),"
		       " description = nullif(ifnull(?7, description), ''),"
		       " visibility = ifnull(?9, visibility),"
		       " team = CASE WHEN ?9 IS NULL THEN team ELSE ?10 END,"
		       " expires = CASE WHEN ?9 IS NULL THEN expires ELSE ?11 END,"
		       " on_expiry = ifnull(?12, on_expiry),"
		       " sandbox = nullif(ifnull(?13, sandbox), ''),"
		       " quota_bytes = ifnull(?4, quota_bytes),"
		       " quota_inodes = ifnull(?5, quota_inodes) WHERE id = ?1",
		       err);
	if (r >= 0) {
		db_bind_text(st, 2, p->name);
		if (p->labels)
			sqlite3_bind_text(st, 3, p->labels, -1, SQLITE_STATIC);
		if (p->quota_bytes)
			sqlite3_bind_int64(st, 4, (sqlite3_int64)*p->quota_bytes);
		if (p->quota_inodes)
			sqlite3_bind_int64(st, 5, (sqlite3_int64)*p->quota_inodes);
		if (p->git)
			sqlite3_bind_text(st, 6, p->git, -1, SQLITE_STATIC);
		if (p->description)
			sqlite3_bind_text(st, 7, p->description, -1, SQLITE_STATIC);
		if (p->sandbox)
			sqlite3_bind_text(st, 13, p->sandbox, -1, SQLITE_STATIC);
		if (p->own)
			db_bind_owned(c, st, 8, p->own); /* ?8, the owner, stays as it is */
		r = change_row(c, st, id, err);
		if (r == -EEXIST)
			(void)err_set(err, r, "there is a workspace \"%s\" already", p->name);
	}
	db_unlock(c);
	return r;
}

int catalog_ws_set_head(struct catalog *c, const char *id, const char *head, const void *stack,
			size_t len, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_set_head(c, id, head, stack, len, err);
	db_unlock(c);
	return r;
}

int db_set_head(struct catalog *c, const char *id, const char *head, const void *stack, size_t len,
		struct err *err)
{
	sqlite3_stmt *st;
	int r = db_prepare(c, &st,
			   "UPDATE workspaces SET head = ifnull(?2, head), head_stack = ?3"
			   " WHERE id = ?1",
			   err);
	if (r < 0)
		return r;
	db_bind_text(st, 2, head);
	sqlite3_bind_blob64(st, 3, stack, len, SQLITE_STATIC);
	return change_row(c, st, id, err);
}

/* One statement with an id and up to one value; -ENOENT when it changed nothing. */
static int change_ws(struct catalog *c, const char *sql, const char *id, const char *text,
		     int number, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_prepare(c, &st, sql, err);
	if (r >= 0) {
		if (text)
			db_bind_text(st, 2, text);
		else if (sqlite3_bind_parameter_count(st) > 1)
			sqlite3_bind_int(st, 2, number);
		r = change_row(c, st, id, err);
	}
	db_unlock(c);
	return r;
}

int catalog_ws_set_mount(struct catalog *c, const char *id, bool mount, struct err *err)
{
	return change_ws(c, "UPDATE workspaces SET mount = ?2 WHERE id = ?1", id, NULL, mount, err);
}

/* As an effect: what is noted of it is that it was changed, not made. */
enum { AT_SIZE = ID_SIZE + 4 };
static const char *at(char effect[AT_SIZE], const char *id)
{
	(void)snprintf(effect, AT_SIZE, "at/%s", id);
	return effect;
}

int catalog_ws_ask_mount(struct catalog *c, const char *id, struct err *err)
{
	sqlite3_stmt *st;
	char effect[AT_SIZE];
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_begin(c, err);
	if (r >= 0) {
		r = db_prepare(c, &st, "UPDATE workspaces SET mount = 1 WHERE id = ?1", err);
		if (r >= 0)
			r = change_row(c, st, id, err);
		if (r >= 0)
			r = db_note_effect(c, at(effect, id), err);
		r = db_end(c, r, err);
	}
	db_unlock(c);
	return r;
}

int catalog_ws_set_broken(struct catalog *c, const char *id, const char *why, struct err *err)
{
	return change_ws(c, "UPDATE workspaces SET broken = ?2 WHERE id = ?1", id, why, 0, err);
}

int catalog_ws_delete(struct catalog *c, const char *id, struct err *err)
{
	return change_ws(c, "DELETE FROM workspaces WHERE id = ?1", id, NULL, 0, err);
}

int catalog_ws_remove(struct catalog *c, const char *id, int64_t now_ns, int64_t purge_ns,
		      struct err *err)
{
	sqlite3_stmt *st;
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_prepare(c, &st,
		       "UPDATE workspaces SET removed = ?2, purge = ?3, was = name, name = id"
		       " WHERE id = ?1 AND removed IS NULL",
		       err);
	if (r >= 0) {
		sqlite3_bind_int64(st, 2, now_ns);
		sqlite3_bind_int64(st, 3, purge_ns);
		r = change_row(c, st, id, err);
	}
	db_unlock(c);
	return r;
}

static int undelete_ws(struct catalog *c, const char *id, const char *name, int64_t now_ns,
		       struct err *err)
{
	sqlite3_stmt *st;
	int r = db_prepare(
		c, &st,
		"UPDATE workspaces SET removed = NULL, purge = NULL, was = NULL, name = ?2,"
		" expires = CASE WHEN expires > ?3 THEN expires END"
		" WHERE id = ?1 AND removed IS NOT NULL",
		err);
	if (r >= 0) {
		sqlite3_bind_text(st, 2, name, -1, SQLITE_STATIC);
		sqlite3_bind_int64(st, 3, now_ns);
		r = change_row(c, st, id, err);
		if (r == -EEXIST)
			(void)err_set(err, r, "there is a workspace \"%s\" already", name);
	}
	return r;
}

static int owner_of(struct catalog *c, const char *id, char owner[OWNER_SIZE], struct err *err)
{
	sqlite3_stmt *st;
	int r = db_prepare(c, &st, "SELECT owner FROM workspaces WHERE id = ?1", err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
	int rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		db_get_text(st, 0, owner, OWNER_SIZE);
	else if (rc != SQLITE_DONE)
		r = db_error(c, rc, err, "look up an owner");
	sqlite3_reset(st);
	return r;
}

int catalog_ws_undelete(struct catalog *c, const char *id, const char *name, int64_t now_ns,
			struct err *err)
{
	char owner[OWNER_SIZE] = "", effect[AT_SIZE];
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_begin(c, err);
	if (r >= 0) {
		r = undelete_ws(c, id, name, now_ns, err);
		if (r >= 0)
			r = db_note_effect(c, at(effect, id), err);
		if (r >= 0)
			r = owner_of(c, id, owner, err);
		if (r >= 0)
			r = db_keep_quota(c, owner, err);
		r = db_end(c, r, err);
	}
	db_unlock(c);
	return r;
}

int catalog_ws_has_name(struct catalog *c, const char *owner, const char *name, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_prepare(c, &st, "SELECT 1 FROM workspaces WHERE owner = ?1 AND name = ?2", err);
	if (r >= 0) {
		sqlite3_bind_text(st, 1, owner, -1, SQLITE_STATIC);
		sqlite3_bind_text(st, 2, name, -1, SQLITE_STATIC);
		int rc = sqlite3_step(st);
		r = rc == SQLITE_ROW    ? 1
		    : rc == SQLITE_DONE ? 0
					: db_error(c, rc, err, "look up a name");
		sqlite3_reset(st);
	}
	db_unlock(c);
	return r;
}

int catalog_count(struct catalog *c, struct catalog_counts *out, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_prepare(c, &st,
		       "SELECT (SELECT count(*) FROM workspaces WHERE removed IS NULL),"
		       " (SELECT count(*) FROM workspaces WHERE mount AND removed IS NULL),"
		       " (SELECT count(*) FROM workspaces WHERE broken IS NOT NULL),"
		       " (SELECT count(*) FROM snapshots), (SELECT count(*) FROM snapshot_names),"
		       " (SELECT page_count * page_size FROM pragma_page_count, pragma_page_size),"
		       " (SELECT count(*) FROM workspaces WHERE removed IS NOT NULL),"
		       " (SELECT count(*) FROM deliveries WHERE next IS NOT NULL)",
		       err);
	if (r >= 0) {
		int rc = sqlite3_step(st);
		if (rc == SQLITE_ROW) {
			*out = (struct catalog_counts){
				.workspaces = (uint64_t)sqlite3_column_int64(st, 0),
				.mounted = (uint64_t)sqlite3_column_int64(st, 1),
				.broken = (uint64_t)sqlite3_column_int64(st, 2),
				.snapshots = (uint64_t)sqlite3_column_int64(st, 3),
				.names = (uint64_t)sqlite3_column_int64(st, 4),
				.bytes = (uint64_t)sqlite3_column_int64(st, 5),
				.removed = (uint64_t)sqlite3_column_int64(st, 6),
				.deliveries = (uint64_t)sqlite3_column_int64(st, 7),
			};
		} else {
			r = db_error(c, rc, err, "count");
		}
		sqlite3_reset(st);
	}
	db_unlock(c);
	return r;
}
