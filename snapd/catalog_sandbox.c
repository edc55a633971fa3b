/* Rows of sandboxes and their ranges of ids. */
#include "snapd/catalog_sandbox.h"

#include <stdio.h>
#include <stdlib.h>

#include "snapd/catalog_db.h"

#define COLUMNS                                                                                    \
	"id, name, created, status, problem, reason, exit_code, root, spec, policy, pid, id_base," \
	" started, ended, active, made, labels, description, starting, " DB_OWNED
enum { AT_OWNED = 19 };

const char *const sandbox_status_names[] = { "created", "running",    "paused",
					     "stopped", "hibernated", "failed" };

void sandbox_row_done(struct sandbox_row *r)
{
	free(r->spec);
	free(r->labels);
	free(r->description);
	memset(r, 0, sizeof(*r));
}

void sandbox_rows_free(struct sandbox_row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sandbox_row_done(&rows[i]);
	free(rows);
}

static int read_row(sqlite3_stmt *st, void *row)
{
	struct sandbox_row *r = row;
	int status = sqlite3_column_int(st, 3);
	db_get_text(st, 0, r->id, sizeof(r->id));
	db_get_text(st, 1, r->name, sizeof(r->name));
	r->created_ns = sqlite3_column_int64(st, 2);
	r->status = status >= 0 && status <= SANDBOX_FAILED ? (enum sandbox_status)status
							    : SANDBOX_FAILED;
	db_get_text(st, 4, r->problem, sizeof(r->problem));
	db_get_text(st, 5, r->reason, sizeof(r->reason));
	r->exit_code = sqlite3_column_type(st, 6) == SQLITE_NULL ? -1 : sqlite3_column_int(st, 6);
	db_get_text(st, 7, r->root, sizeof(r->root));
	db_get_text(st, 9, r->policy, sizeof(r->policy));
	r->pid = (uint32_t)sqlite3_column_int64(st, 10);
	r->id_base = (uint32_t)sqlite3_column_int64(st, 11);
	r->started_ns = sqlite3_column_int64(st, 12);
	r->ended_ns = sqlite3_column_int64(st, 13);
	r->active_ns = sqlite3_column_int64(st, 14);
	r->made = sqlite3_column_int(st, 15) != 0;
	int e = db_copy_text(st, 8, &r->spec);
	e |= db_copy_text(st, 16, &r->labels);
	e |= db_copy_text(st, 17, &r->description);
	r->starting = sqlite3_column_int(st, 18) != 0;
	db_read_owned(st, AT_OWNED, &r->own);
	if (e < 0)
		sandbox_row_done(r);
	return e < 0 ? -ENOMEM : 0;
}

static void done_row(void *row)
{
	sandbox_row_done(row);
}

static const struct db_shape shape = { "look up sandboxes", sizeof(struct sandbox_row), read_row,
				       done_row };

int catalog_sandbox_get(struct catalog *c, const char *key, struct sandbox_row *out,
			struct err *err)
{
	sqlite3_stmt *st;
	char owner[OWNER_SIZE];
	int r = db_read(c, &st,
		       "SELECT " COLUMNS " FROM sandboxes"
		       " WHERE id = ?1 OR (owner = ?2 AND name = ?3)",
		       err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
	sqlite3_bind_text(st, 3, db_split_key(key, owner), -1, SQLITE_STATIC);
	sqlite3_bind_text(st, 2, owner, -1, SQLITE_STATIC);
	return db_the(c, st, &shape, out, "sandbox", key, err);
}

int catalog_sandbox_list(struct catalog *c, struct sandbox_row **rows, size_t *n, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_read(c, &st,
		       "SELECT " COLUMNS " FROM sandboxes ORDER BY created DESC, seq DESC", err);
	return r < 0 ? r : db_list(c, st, &shape, rows, n, err);
}

static int insert(struct catalog *c, const struct sandbox_row *w, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_prepare(c, &st,
			   "INSERT INTO sandboxes (id, name, created, status, root, spec, policy,"
			   " active, made, labels, description, starting, " DB_OWNED
			   ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14,"
			   " ?15, ?16, ?17)",
			   err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, w->id, -1, SQLITE_STATIC);
	sqlite3_bind_text(st, 2, w->name, -1, SQLITE_STATIC);
	sqlite3_bind_int64(st, 3, w->created_ns);
	sqlite3_bind_int(st, 4, (int)w->status);
	db_bind_text(st, 5, w->root);
	sqlite3_bind_text(st, 6, w->spec, -1, SQLITE_STATIC);
	db_bind_text(st, 7, w->policy);
	sqlite3_bind_int64(st, 8, w->active_ns);
	sqlite3_bind_int(st, 9, w->made);
	db_bind_text(st, 10, w->labels);
	db_bind_text(st, 11, w->description);
	sqlite3_bind_int(st, 12, w->starting);
	db_bind_owned(c, st, 13, &w->own);
	r = db_run(c, st, err, "insert a sandbox");
	return r == -EEXIST ? err_set(err, r, "there is a sandbox \"%s\" already", w->name) : r;
}

int catalog_sandbox_insert(struct catalog *c, const struct sandbox_row *row, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_begin(c, err);
	if (r >= 0) {
		r = insert(c, row, err);
		if (r >= 0)
			r = db_note_effect(c, row->id, err);
		r = db_end(c, r, err);
	}
	db_unlock(c);
	return r;
}

int catalog_sandbox_has_name(struct catalog *c, const char *owner, const char *name,
			     struct err *err)
{
	sqlite3_stmt *st;
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_prepare(c, &st, "SELECT 1 FROM sandboxes WHERE owner = ?1 AND name = ?2", err);
	if (r >= 0) {
		sqlite3_bind_text(st, 1, owner, -1, SQLITE_STATIC);
		sqlite3_bind_text(st, 2, name, -1, SQLITE_STATIC);
		int rc = sqlite3_step(st);
		r = rc == SQLITE_ROW    ? 1
		    : rc == SQLITE_DONE ? 0
					: db_error(c, rc, err, "look up a name");
		sqlite3_reset(st);
		sqlite3_clear_bindings(st);
	}
	db_unlock(c);
	return r;
}

/* ---- changing ---- */

static void bind_patch(struct catalog *c, sqlite3_stmt *st, const struct sandbox_patch *p)
{
	const char *const texts[] = { p->name,    p->labels, p->description, p->root,
				      p->problem, p->reason, p->spec };
	for (int i = 0; i < 7; i++)
		if (texts[i])
			sqlite3_bind_text(st, 2 + i, texts[i], -1, SQLITE_STATIC);
	if (p->status)
		sqlite3_bind_int(st, 9, (int)*p->status);
	if (p->exit_code)
		sqlite3_bind_int(st, 10, *p->exit_code);
	if (p->pid)
		sqlite3_bind_int64(st, 11, *p->pid);
	if (p->started_ns)
		sqlite3_bind_int64(st, 12, *p->started_ns);
	if (p->ended_ns)
		sqlite3_bind_int64(st, 13, *p->ended_ns);
	if (p->made)
		sqlite3_bind_int(st, 14, *p->made);
	if (p->own)
		db_bind_owned(c, st, 15, p->own); /* ?15, the owner, stays as it is */
	if (p->starting)
		sqlite3_bind_int(st, 20, *p->starting);
}

int catalog_sandbox_patch(struct catalog *c, const char *id, const struct sandbox_patch *p,
			  struct err *err)
{
	sqlite3_stmt *st;
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_prepare(c, &st,
		       "UPDATE sandboxes SET name = ifnull(?2, name),"
		       " labels = nullif(ifnull(?3, labels), ''),"
		       " description = nullif(ifnull(?4, description), ''),"
		       " root = nullif(ifnull(?5, root), ''),"
		       " problem = nullif(ifnull(?6, problem), ''),"
		       " reason = nullif(ifnull(?7, reason), ''), spec = ifnull(?8, spec),"
		       " status = ifnull(?9, status),"
		       " exit_code = nullif(ifnull(?10, exit_code), -1), pid = ifnull(?11, pid),"
		       " started = ifnull(?12, started), ended = ifnull(?13, ended),"
		       " made = ifnull(?14, made), visibility = ifnull(?16, visibility),"
		       " team = CASE WHEN ?16 IS NULL THEN team ELSE ?17 END,"
		       " expires = CASE WHEN ?16 IS NULL THEN expires ELSE ?18 END,"
		       " on_expiry = ifnull(?19, on_expiry), starting = ifnull(?20, starting)"
		       " WHERE id = ?1",
		       err);
	if (r >= 0) {
		sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
		bind_patch(c, st, p);
		r = db_run(c, st, err, "change a sandbox");
		if (r == -EEXIST)
			(void)err_set(err, r, "there is a sandbox \"%s\" already",
				      p->name ? p->name : id);
		if (r >= 0 && sqlite3_changes(c->db) == 0)
			r = err_set(err, -ENOENT, "no sandbox \"%s\"", id);
	}
	db_unlock(c);
	return r;
}

/* A statement with an id and up to one number. */
static int run_one(struct catalog *c, const char *sql, const char *id, int64_t number,
		   struct err *err, const char *what)
{
	sqlite3_stmt *st;
	int r = db_prepare(c, &st, sql, err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
	if (sqlite3_bind_parameter_count(st) > 1)
		sqlite3_bind_int64(st, 2, number);
	return db_run(c, st, err, what);
}

int catalog_sandboxes_made(struct catalog *c, const struct sandbox_row *rows, size_t n,
			   struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_begin(c, err);
	if (r >= 0) {
		for (size_t i = 0; i < n && r >= 0; i++)
			r = run_one(c, "UPDATE sandboxes SET made = 1 WHERE id = ?1", rows[i].id, 0,
				    err, "change a sandbox");
		r = db_end(c, r, err);
	}
	db_unlock(c);
	return r;
}

int catalog_sandbox_active(struct catalog *c, const char *id, int64_t when_ns, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = run_one(c, "UPDATE sandboxes SET active = max(active, ?2) WHERE id = ?1", id, when_ns,
		    err, "change a sandbox");
	db_unlock(c);
	return r;
}

int catalog_sandbox_delete(struct catalog *c, const char *id, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_begin(c, err);
	if (r >= 0) {
		r = run_one(c, "DELETE FROM execs WHERE sandbox = ?1", id, 0, err,
			    "delete a sandbox's processes");
		if (r >= 0)
			r = run_one(c, "DELETE FROM attached WHERE sandbox = ?1", id, 0, err,
				    "detach a sandbox's workspaces");
		if (r >= 0)
			r = run_one(c, "DELETE FROM sandboxes WHERE id = ?1", id, 0, err,
				    "delete a sandbox");
		r = db_end(c, r, err);
	}
	db_unlock(c);
	return r;
}

/* ---- ranges ---- */

/* The first free one behind the one taken last. */
static int choose_range(struct catalog *c, uint32_t first, uint32_t size, uint32_t count,
			uint32_t *base, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_prepare(c, &st, "SELECT 1 FROM sandboxes WHERE id_base = ?1", err);
	for (uint32_t i = 0; i < count && r >= 0; i++) {
		uint32_t at = first + (c->next_range + i) % count * size;
		sqlite3_bind_int64(st, 1, at);
		int rc = sqlite3_step(st);
		sqlite3_reset(st);
		if (rc == SQLITE_DONE) {
			c->next_range = (c->next_range + i + 1) % count;
			*base = at;
			return 0;
		}
		if (rc != SQLITE_ROW)
			r = db_error(c, rc, err, "look for a range of ids");
	}
	return r < 0 ? r
		     : err_set(err, -ENOSPC, "all %u ranges of ids are taken by sandboxes that run",
			       count);
}

int catalog_range_take(struct catalog *c, const char *id, uint32_t first, uint32_t size,
		       uint32_t count, uint32_t *base, struct err *err)
{
	uint32_t found = 0;
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = choose_range(c, first, size, count, &found, err);
	if (r >= 0)
		r = run_one(c, "UPDATE sandboxes SET id_base = ?2, starting = 1 WHERE id = ?1", id,
			    found, err, "take a range of ids");
	db_unlock(c);
	if (r >= 0)
		*base = found;
	return r;
}

int catalog_range_give(struct catalog *c, const char *id, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = run_one(c, "UPDATE sandboxes SET id_base = NULL WHERE id = ?1", id, 0, err,
		    "give a range of ids back");
	db_unlock(c);
	return r;
}
