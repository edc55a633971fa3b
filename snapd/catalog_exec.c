/* Rows of what is attached to sandboxes, and of processes run in them. */
#include <stdio.h>
#include <stdlib.h>

#include "snapd/catalog_db.h"
#include "snapd/catalog_sandbox.h"

#define ATTACHED "sandbox, target, workspace, read_only, exclusive, caller, own"
#define EXEC                                                                           \
	"id, sandbox, caller, spec, status, reason, exit_code, pid, created, started," \
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

/* The sandbox that has a workspace, and whether for itself alone. */
struct in_the_way {
	bool exclusive;
	char name[NAME_SIZE];
};

static int read_in_the_way(sqlite3_stmt *st, void *row)
{
	struct in_the_way *w = row;
	w->exclusive = sqlite3_column_int(st, 0) != 0;
	db_get_text(st, 1, w->name, sizeof(w->name));
	return 0;
}

/* Whether somebody is in the way: a row of the workspace where either is exclusive. */
static int refuse(struct catalog *c, const struct attached_row *row, struct err *err)
{
	static const struct db_shape shape = { "look who uses a workspace",
					       sizeof(struct in_the_way), read_in_the_way, NULL };
	struct in_the_way w;
	int r = db_first(c,
			 "SELECT a.exclusive, s.name FROM attached a JOIN sandboxes s"
			 " ON s.id = a.sandbox WHERE a.workspace = ?1"
			 " AND (a.exclusive OR ?2) LIMIT 1",
			 DB(db_text(row->workspace), db_int(row->exclusive)), &shape, &w, err);
	if (r <= 0)
		return r;
	return err_set(err, -EEXIST,
		       w.exclusive ? "the workspace is sandbox %s's alone"
				   : "sandbox %s uses the workspace: it can't be another's alone",
		       w.name);
}

int catalog_attach(struct catalog *c, const struct attached_row *row, struct err *err)
{
	int r = db_start(c, err);
	if (r < 0)
		return r;
	r = refuse(c, row, err);
	if (r >= 0) {
		r = db_exec(c,
			    "INSERT INTO attached (" ATTACHED ")"
			    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
			    DB(db_text(row->sandbox), db_text(row->target), db_text(row->workspace),
			       db_int(row->read_only), db_int(row->exclusive),
			       db_text_or_null(row->by), db_int(row->own)),
			    "attach a workspace", err);
		if (r == -EEXIST)
			(void)err_set(err, r, "something is attached at %s already", row->target);
	}
	return db_finish(c, r, err);
}

int catalog_detach(struct catalog *c, const char *sandbox, const char *target, struct err *err)
{
	return db_change(c, "DELETE FROM attached WHERE sandbox = ?1 AND target = ?2",
			 DB(db_text(sandbox), db_text(target)), "detach a workspace", err);
}

int catalog_attached(struct catalog *c, const char *sandbox, const char *workspace,
		     struct attached_row **rows, size_t *n, struct err *err)
{
	return db_select(c,
			 sandbox     ? "SELECT " ATTACHED " FROM attached WHERE sandbox = ?1"
				       " ORDER BY target"
			 : workspace ? "SELECT " ATTACHED " FROM attached WHERE workspace = ?2"
				       " ORDER BY sandbox, target"
				     : "SELECT " ATTACHED " FROM attached ORDER BY sandbox, target",
			 DB(db_text(sandbox), db_text(workspace)), &attached_shape, rows, n, err);
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

int catalog_exec_insert(struct catalog *c, const struct exec_row *w, struct err *err)
{
	char what[sizeof("by/exec/") + ID_SIZE];
	(void)snprintf(what, sizeof(what), "by/exec/%s", w->id); /* intents.h */
	int r = db_start(c, err);
	if (r < 0)
		return r;
	r = db_exec(c,
		    "INSERT INTO execs (id, sandbox, caller, spec, status, created)"
		    " VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
		    DB(db_text(w->id), db_text(w->sandbox), db_text(w->by), db_text(w->spec),
		       db_int(w->status), db_int(w->created_ns)),
		    "insert a process", err);
	if (r >= 0)
		r = db_note_effect(c, what, err);
	return db_finish(c, r, err);
}

int catalog_exec_started(struct catalog *c, const char *id, uint32_t pid, int64_t when_ns,
			 struct err *err)
{
	/* One that has ended already stays so. The runtime says that it runs only after it does: no
	 * process shall have begun after its end. */
	return db_change(c,
			 "UPDATE execs SET status = max(status, 1), pid = ?2,"
			 " started = min(?3, ifnull(nullif(ended, 0), ?3)) WHERE id = ?1",
			 DB(db_text(id), db_int(pid), db_int(when_ns)), "change a process", err);
}

int catalog_exec_ended(struct catalog *c, const char *id, int exit_code, const char *reason,
		       int64_t when_ns, struct err *err)
{
	return db_change(c,
			 "UPDATE execs SET status = 2, exit_code = ?2, reason = ?3, ended = ?4,"
			 " started = CASE WHEN started > ?4 THEN ?4 ELSE started END"
			 " WHERE id = ?1 AND status < 2",
			 DB(db_text(id), db_int(exit_code), db_text(reason), db_int(when_ns)),
			 "change a process", err);
}

int catalog_exec_get(struct catalog *c, const char *id, struct exec_row *out, struct err *err)
{
	return db_find(c, "SELECT " EXEC " FROM execs WHERE id = ?1", DB(db_text(id)), &exec_shape,
		       out, "process", id, err);
}

int catalog_exec_list(struct catalog *c, const char *sandbox, struct exec_row **rows, size_t *n,
		      struct err *err)
{
	return db_select(c, "SELECT " EXEC " FROM execs WHERE sandbox = ?1 ORDER BY seq DESC",
			 DB(db_text(sandbox)), &exec_shape, rows, n, err);
}

int catalog_exec_delete(struct catalog *c, const char *id, struct err *err)
{
	return db_change(c, "DELETE FROM execs WHERE id = ?1", DB(db_text(id)), "delete a process",
			 err);
}
