/* Rows of what is attached to sandboxes, and of processes run in them. */
#include <stdio.h>
#include <stdlib.h>

#include "snapd/catalog_db.h"
#include "snapd/catalog_sandbox.h"

#define ATTACHED "sandbox, target, workspace, read_only, exclusive, caller, own"
#define EXEC                                                                                   \
	"id, sandbox, caller, spec, status, reason, exit_code, pid, created, started,"          \
	" ended"

const char *const exec_status_names[] = { "created", "running", "exited" };

/* ---- attached ---- */

static int read_attached(sqlite3_stmt *st, void *row)
{
	struct attached_row *r = row;
	db_get_text(st, 0, r->sandbox, sizeof(r->sandbox));
	db_get_text(st, 1, r->target, sizeof(r->target));
	db_get_text(st, 2, r->workspace, sizeof(r->workspace));
	r->read_only = sqlite3_column_int(st, 3) != 0;
	r->exclusive = sqlite3_column_int(st, 4) != 0;
	db_get_text(st, 5, r->by, sizeof(r->by));
	r->own = sqlite3_column_int(st, 6) != 0;
	return 0;
}

static const struct db_shape attached_shape = { "look up what is attached",
						sizeof(struct attached_row), read_attached, NULL };

/* Whether somebody is in the way: a row of the workspace where either is exclusive. */
static int refuse(struct catalog *c, const struct attached_row *row, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_prepare(c, &st,
			   "SELECT a.exclusive, s.name FROM attached a JOIN sandboxes s"
			   " ON s.id = a.sandbox WHERE a.workspace = ?1"
			   " AND (a.exclusive OR ?2) LIMIT 1",
			   err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, row->workspace, -1, SQLITE_STATIC);
	sqlite3_bind_int(st, 2, row->exclusive);
	int rc = sqlite3_step(st);
	if (rc == SQLITE_ROW) {
		const char *name = (const char *)sqlite3_column_text(st, 1);
		r = err_set(err, -EEXIST,
			    sqlite3_column_int(st, 0)
				    ? "the workspace is sandbox %s's alone"
				    : "sandbox %s uses the workspace: it can't be another's alone",
			    name ? name : "?");
	} else if (rc != SQLITE_DONE) {
		r = db_error(c, rc, err, "look who uses a workspace");
	}
	sqlite3_reset(st);
	return r;
}

static int insert_attached(struct catalog *c, const struct attached_row *row, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_prepare(c, &st,
			   "INSERT INTO attached (" ATTACHED ")"
			   " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
			   err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, row->sandbox, -1, SQLITE_STATIC);
	sqlite3_bind_text(st, 2, row->target, -1, SQLITE_STATIC);
	sqlite3_bind_text(st, 3, row->workspace, -1, SQLITE_STATIC);
	sqlite3_bind_int(st, 4, row->read_only);
	sqlite3_bind_int(st, 5, row->exclusive);
	db_bind_text(st, 6, row->by);
	sqlite3_bind_int(st, 7, row->own);
	r = db_run(c, st, err, "attach a workspace");
	return r == -EEXIST ? err_set(err, r, "something is attached at %s already", row->target)
			    : r;
}

int catalog_attach(struct catalog *c, const struct attached_row *row, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_begin(c, err);
	if (r >= 0) {
		r = refuse(c, row, err);
		if (r >= 0)
			r = insert_attached(c, row, err);
		r = db_end(c, r, err);
	}
	db_unlock(c);
	return r;
}

int catalog_detach(struct catalog *c, const char *sandbox, const char *target, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_prepare(c, &st, "DELETE FROM attached WHERE sandbox = ?1 AND target = ?2", err);
	if (r >= 0) {
		sqlite3_bind_text(st, 1, sandbox, -1, SQLITE_STATIC);
		sqlite3_bind_text(st, 2, target, -1, SQLITE_STATIC);
		r = db_run(c, st, err, "detach a workspace");
	}
	db_unlock(c);
	return r;
}

int catalog_attached(struct catalog *c, const char *sandbox, const char *workspace,
		     struct attached_row **rows, size_t *n, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_read(c, &st,
		       sandbox     ? "SELECT " ATTACHED " FROM attached WHERE sandbox = ?1"
				     " ORDER BY target"
		       : workspace ? "SELECT " ATTACHED " FROM attached WHERE workspace = ?1"
				     " ORDER BY sandbox, target"
				   : "SELECT " ATTACHED " FROM attached ORDER BY sandbox, target",
		       err);
	if (r < 0)
		return r;
	if (sandbox || workspace)
		sqlite3_bind_text(st, 1, sandbox ? sandbox : workspace, -1, SQLITE_STATIC);
	return db_list(c, st, &attached_shape, rows, n, err);
}

/* ---- processes ---- */

void exec_row_done(struct exec_row *r)
{
	free(r->spec);
	memset(r, 0, sizeof(*r));
}

void exec_rows_free(struct exec_row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		exec_row_done(&rows[i]);
	free(rows);
}

static int read_exec(sqlite3_stmt *st, void *row)
{
	struct exec_row *r = row;
	int status = sqlite3_column_int(st, 4);
	db_get_text(st, 0, r->id, sizeof(r->id));
	db_get_text(st, 1, r->sandbox, sizeof(r->sandbox));
	db_get_text(st, 2, r->by, sizeof(r->by));
	r->status = status == EXEC_CREATED || status == EXEC_RUNNING ? (enum exec_status)status
								     : EXEC_EXITED;
	db_get_text(st, 5, r->reason, sizeof(r->reason));
	r->exit_code = sqlite3_column_type(st, 6) == SQLITE_NULL ? -1 : sqlite3_column_int(st, 6);
	r->pid = (uint32_t)sqlite3_column_int64(st, 7);
	r->created_ns = sqlite3_column_int64(st, 8);
	r->started_ns = sqlite3_column_int64(st, 9);
	r->ended_ns = sqlite3_column_int64(st, 10);
	return db_copy_text(st, 3, &r->spec);
}

static void done_exec(void *row)
{
	exec_row_done(row);
}

static const struct db_shape exec_shape = { "look up processes", sizeof(struct exec_row), read_exec,
					    done_exec };

static int insert_exec(struct catalog *c, const struct exec_row *w, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_prepare(c, &st,
			   "INSERT INTO execs (id, sandbox, caller, spec, status, created)"
			   " VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
			   err);
	if (r >= 0) {
		sqlite3_bind_text(st, 1, w->id, -1, SQLITE_STATIC);
		sqlite3_bind_text(st, 2, w->sandbox, -1, SQLITE_STATIC);
		sqlite3_bind_text(st, 3, w->by, -1, SQLITE_STATIC);
		sqlite3_bind_text(st, 4, w->spec, -1, SQLITE_STATIC);
		sqlite3_bind_int(st, 5, (int)w->status);
		sqlite3_bind_int64(st, 6, w->created_ns);
		r = db_run(c, st, err, "insert a process");
	}
	return r < 0 ? r : db_note_effect(c, w->id, err);
}

int catalog_exec_insert(struct catalog *c, const struct exec_row *w, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_begin(c, err);
	if (r >= 0)
		r = db_end(c, insert_exec(c, w, err), err);
	db_unlock(c);
	return r;
}

int catalog_exec_started(struct catalog *c, const char *id, uint32_t pid, int64_t when_ns,
			 struct err *err)
{
	sqlite3_stmt *st;
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	/* One that has ended already stays so. The runtime says that it runs only after it does: no
	 * process shall have begun after its end. */
	r = db_prepare(c, &st,
		       "UPDATE execs SET status = max(status, 1), pid = ?2,"
		       " started = min(?3, ifnull(nullif(ended, 0), ?3)) WHERE id = ?1",
		       err);
	if (r >= 0) {
		sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
		sqlite3_bind_int64(st, 2, pid);
		sqlite3_bind_int64(st, 3, when_ns);
		r = db_run(c, st, err, "change a process");
	}
	db_unlock(c);
	return r;
}

int catalog_exec_ended(struct catalog *c, const char *id, int exit_code, const char *reason,
		       int64_t when_ns, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_prepare(c, &st,
		       "UPDATE execs SET status = 2, exit_code = ?2, reason = ?3, ended = ?4,"
		       " started = CASE WHEN started > ?4 THEN ?4 ELSE started END"
		       " WHERE id = ?1 AND status < 2",
		       err);
	if (r >= 0) {
		sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
		sqlite3_bind_int(st, 2, exit_code);
		sqlite3_bind_text(st, 3, reason, -1, SQLITE_STATIC);
		sqlite3_bind_int64(st, 4, when_ns);
		r = db_run(c, st, err, "change a process");
	}
	db_unlock(c);
	return r;
}

int catalog_exec_get(struct catalog *c, const char *id, struct exec_row *out, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_read(c, &st, "SELECT " EXEC " FROM execs WHERE id = ?1", err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
	return db_the(c, st, &exec_shape, out, "process", id, err);
}

int catalog_exec_list(struct catalog *c, const char *sandbox, struct exec_row **rows, size_t *n,
		      struct err *err)
{
	sqlite3_stmt *st;
	int r = db_read(c, &st, "SELECT " EXEC " FROM execs WHERE sandbox = ?1 ORDER BY seq DESC",
		       err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, sandbox, -1, SQLITE_STATIC);
	return db_list(c, st, &exec_shape, rows, n, err);
}

int catalog_exec_delete(struct catalog *c, const char *id, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_prepare(c, &st, "DELETE FROM execs WHERE id = ?1", err);
	if (r >= 0) {
		sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
		r = db_run(c, st, err, "delete a process");
	}
	db_unlock(c);
	return r;
}
