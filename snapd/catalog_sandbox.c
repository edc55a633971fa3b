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
	char owner[OWNER_SIZE];
	const char *name = db_split_key(key, owner);
	return db_find(c,
		       "SELECT " COLUMNS " FROM sandboxes"
		       " WHERE id = ?1 OR (owner = ?2 AND name = ?3)",
		       DB(db_text(key), db_text(owner), db_text(name)), &shape, out, "sandbox", key,
		       err);
}

int catalog_sandbox_list(struct catalog *c, struct sandbox_row **rows, size_t *n, struct err *err)
{
	return db_select(c, "SELECT " COLUMNS " FROM sandboxes ORDER BY created DESC, seq DESC",
			 DB(), &shape, rows, n, err);
}

int catalog_sandbox_page(struct catalog *c, int status, const struct list_want *want,
			 struct sandbox_row **rows, size_t *n, struct err *err)
{
#define WHICH "made AND (?7 < 0 OR status = ?7)"
	return db_select(c,
			 want->label ? DB_LIST_LABELLED(COLUMNS, "sandboxes", "", "2", WHICH)
				     : DB_LIST(COLUMNS, "sandboxes INDEXED BY sandboxes_list",
					       "sandboxes", "created", "seq", WHICH),
			 DB(DB_LIST_VALUES(want), db_int(status)), &shape, rows, n, err);
#undef WHICH
}

static int name_taken(int r, const char *name, struct err *err)
{
	if (r == -EEXIST)
		(void)err_set(err, r, "there is a sandbox \"%s\" already", name);
	return r;
}

static int insert(struct catalog *c, const struct sandbox_row *w, struct err *err)
{
	int r = db_exec(c,
			"INSERT INTO sandboxes (id, name, created, status, root, spec, policy,"
			" active, made, labels, description, starting, " DB_OWNED
			") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14,"
			" ?15, ?16, ?17)",
			DB(db_text(w->id), db_text(w->name), db_int(w->created_ns),
			   db_int(w->status), db_text_or_null(w->root), db_text(w->spec),
			   db_text_or_null(w->policy), db_int(w->active_ns), db_int(w->made),
			   db_text_or_null(w->labels), db_text_or_null(w->description),
			   db_int(w->starting), DB_OWN(c, &w->own)),
			"insert a sandbox", err);
	return name_taken(r, w->name, err);
}

int catalog_sandbox_insert(struct catalog *c, const struct sandbox_row *row, struct err *err)
{
	int r = db_start(c, err);
	if (r < 0)
		return r;
	r = insert(c, row, err);
	if (r >= 0)
		r = db_note_effect(c, row->id, err);
	return db_finish(c, r, err);
}

int catalog_sandbox_has_name(struct catalog *c, const char *owner, const char *name,
			     struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_has(c, "SELECT 1 FROM sandboxes WHERE owner = ?1 AND name = ?2",
		   DB(db_text(owner), db_text(name)), "look up a name", err);
	db_unlock(c);
	return r;
}

/* ---- changing ---- */

int catalog_sandbox_patch(struct catalog *c, const char *id, const struct sandbox_patch *p,
			  struct err *err)
{
	static const struct owned none;
	const struct owned *own = p->own ? p->own : &none;
	int r = db_change_the(
		c,
		"UPDATE sandboxes SET name = ifnull(?2, name),"
		" labels = nullif(ifnull(?3, labels), ''),"
		" description = nullif(ifnull(?4, description), ''),"
		" root = nullif(ifnull(?5, root), ''),"
		" problem = nullif(ifnull(?6, problem), ''),"
		" reason = nullif(ifnull(?7, reason), ''), spec = ifnull(?8, spec),"
		" status = ifnull(?9, status),"
		" exit_code = nullif(ifnull(?10, exit_code), -1), pid = ifnull(?11, pid),"
		" started = ifnull(?12, started), ended = ifnull(?13, ended),"
		" made = ifnull(?14, made), starting = ifnull(?15, starting),"
		" visibility = CASE WHEN ?16 THEN ?18 ELSE visibility END,"
		" team = CASE WHEN ?16 THEN ?19 ELSE team END,"
		" expires = CASE WHEN ?16 THEN ?20 ELSE expires END,"
		" on_expiry = CASE WHEN ?16 THEN ?21 ELSE on_expiry END WHERE id = ?1",
		DB(db_text(id), db_text(p->name), db_text(p->labels), db_text(p->description),
		   db_text(p->root), db_text(p->problem), db_text(p->reason), db_text(p->spec),
		   DB_INT_AT(p->status), DB_INT_AT(p->exit_code), DB_INT_AT(p->pid),
		   DB_INT_AT(p->started_ns), DB_INT_AT(p->ended_ns), DB_INT_AT(p->made),
		   DB_INT_AT(p->starting), db_int(p->own != NULL), DB_OWN(c, own)),
		"change a sandbox", "sandbox", id, err);
	return name_taken(r, p->name ? p->name : id, err);
}

int catalog_sandboxes_made(struct catalog *c, const struct sandbox_row *rows, size_t n,
			   struct err *err)
{
	int r = db_start(c, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n && r >= 0; i++)
		r = db_exec(c, "UPDATE sandboxes SET made = 1 WHERE id = ?1",
			    DB(db_text(rows[i].id)), "change a sandbox", err);
	return db_finish(c, r, err);
}

int catalog_sandbox_active(struct catalog *c, const char *id, int64_t when_ns, struct err *err)
{
	return db_change(c, "UPDATE sandboxes SET active = max(active, ?2) WHERE id = ?1",
			 DB(db_text(id), db_int(when_ns)), "change a sandbox", err);
}

int catalog_sandbox_delete(struct catalog *c, const char *id, struct err *err)
{
	static const char *const deletes[] = {
		"DELETE FROM execs WHERE sandbox = ?1",
		"DELETE FROM attached WHERE sandbox = ?1",
		"DELETE FROM sandboxes WHERE id = ?1",
	};
	int r = db_start(c, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < sizeof(deletes) / sizeof(deletes[0]) && r >= 0; i++)
		r = db_exec(c, deletes[i], DB(db_text(id)), "delete a sandbox", err);
	return db_finish(c, r, err);
}

/* ---- ranges ---- */

/* The first free one behind the one taken last. */
static int choose_range(struct catalog *c, uint32_t first, uint32_t size, uint32_t count,
			uint32_t *base, struct err *err)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t at = first + (c->next_range + i) % count * size;
		int r = db_has(c, "SELECT 1 FROM sandboxes WHERE id_base = ?1", DB(db_int(at)),
			       "look for a range of ids", err);
		if (r < 0)
			return r;
		if (r == 0) {
			c->next_range = (c->next_range + i + 1) % count;
			*base = at;
			return 0;
		}
	}
	return err_set(err, -ENOSPC, "all %u ranges of ids are taken by sandboxes that run", count);
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
		r = db_exec(c, "UPDATE sandboxes SET id_base = ?2, starting = 1 WHERE id = ?1",
			    DB(db_text(id), db_int(found)), "take a range of ids", err);
	db_unlock(c);
	if (r < 0)
		return r;
	*base = found;
	return 0;
}

int catalog_range_give(struct catalog *c, const char *id, struct err *err)
{
	return db_change(c, "UPDATE sandboxes SET id_base = NULL WHERE id = ?1", DB(db_text(id)),
			 "give a range of ids back", err);
}
