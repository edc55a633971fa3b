/* Rows of snapshots. */
#include "snapd/catalog.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapd/catalog_db.h"

enum {
	LOG_MAX = 100000
}; /* a line of snapshots longer than this is cut: it is a cycle, or absurd */

#define SNAP_COLUMNS                                                                             \
	"s.id, s.workspace, s.parent, s.created, s.manifest, s.files, s.bytes, s.stored_bytes,"  \
	" s.message, s.labels, s.git, (SELECT json_group_array(n.name) FROM (SELECT name FROM"   \
	" snapshot_names WHERE snapshot = s.id ORDER BY pos) n), s.owner, s.visibility, s.team," \
	" s.expires, s.on_expiry, s.image"

void snap_row_done(struct snap_row *r)
{
	free(r->message);
	free(r->labels);
	free(r->git);
	free(r->image);
	free(r->names);
	memset(r, 0, sizeof(*r));
}

void snap_rows_free(struct snap_row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		snap_row_done(&rows[i]);
	free(rows);
}

static void column_id(sqlite3_stmt *st, int i, char out[ID_SIZE])
{
	const char *s = (const char *)sqlite3_column_text(st, i);
	(void)snprintf(out, ID_SIZE, "%s", s ? s : "");
}

static int read_snap(sqlite3_stmt *st, void *row)
{
	struct snap_row *r = row;
	column_id(st, 0, r->id);
	column_id(st, 1, r->workspace);
	column_id(st, 2, r->parent);
	r->created_ns = sqlite3_column_int64(st, 3);
	const void *m = sqlite3_column_blob(st, 4);
	if (m && sqlite3_column_bytes(st, 4) == (int)sizeof(r->manifest.b))
		memcpy(r->manifest.b, m, sizeof(r->manifest.b));
	r->files = (uint64_t)sqlite3_column_int64(st, 5);
	r->bytes = (uint64_t)sqlite3_column_int64(st, 6);
	r->stored_bytes = (uint64_t)sqlite3_column_int64(st, 7);
	int e = db_copy_text(st, 8, &r->message);
	e |= db_copy_text(st, 9, &r->labels);
	e |= db_copy_text(st, 10, &r->git);
	e |= db_copy_text(st, 11, &r->names);
	db_read_owned(st, 12, &r->own);
	e |= db_copy_text(st, 17, &r->image);
	return e < 0 ? -ENOMEM : 0;
}

static void done_snap(void *row)
{
	snap_row_done(row);
}

static const struct db_shape snap_shape = { "look up snapshots", sizeof(struct snap_row), read_snap,
					    done_snap };

/* SELECT with one text parameter (or none: key NULL). */
static int select_snaps(struct catalog *c, const char *sql, const char *key, struct snap_row **rows,
			size_t *n, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_read(c, &st, sql, err);
	if (r < 0)
		return r;
	if (key)
		sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
	return db_list(c, st, &snap_shape, rows, n, err);
}

/* The only row of `rows`, moved to *out. */
static int only(struct snap_row *rows, size_t n, const char *key, struct snap_row *out,
		struct err *err)
{
	if (n == 1) {
		*out = rows[0];
		free(rows);
		return 0;
	}
	snap_rows_free(rows, n);
	if (n == 0)
		return err_set(err, -ENOENT, "no snapshot \"%s\"", key);
	return err_set(err, -ENOTUNIQ, "several snapshots' ids begin with \"%s\"", key);
}

/* By id or name. */
static int get_named(struct catalog *c, const char *key, struct snap_row **rows, size_t *n,
		     struct err *err)
{
	sqlite3_stmt *st;
	char owner[OWNER_SIZE];
	int r = db_read(c, &st,
		       "SELECT " SNAP_COLUMNS " FROM snapshots s WHERE id = ?1 OR id ="
		       " (SELECT snapshot FROM snapshot_names WHERE owner = ?2 AND name = ?3)",
		       err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
	sqlite3_bind_text(st, 3, db_split_key(key, owner), -1, SQLITE_STATIC);
	sqlite3_bind_text(st, 2, owner, -1, SQLITE_STATIC);
	return db_list(c, st, &snap_shape, rows, n, err);
}

int catalog_snap_get(struct catalog *c, const char *key, struct snap_row *out, struct err *err)
{
	struct snap_row *rows;
	size_t n;
	int r = get_named(c, key, &rows, &n, err);
	if (r < 0)
		return r;
	if (n > 0 || strlen(key) < ID_PREFIX_MIN || strncmp(key, "sn_", 3) != 0)
		return only(rows, n, key, out, err);
	snap_rows_free(rows, n);
	/* '~' sorts behind all characters of ids, which have no wildcard's meaning here. */
	r = select_snaps(c,
			 "SELECT " SNAP_COLUMNS " FROM snapshots s"
			 " WHERE id >= ?1 AND id < ?1 || '~' LIMIT 2",
			 key, &rows, &n, err);
	return r < 0 ? r : only(rows, n, key, out, err);
}

int catalog_snap_list(struct catalog *c, const char *workspace, struct snap_row **rows, size_t *n,
		      struct err *err)
{
	if (workspace)
		return select_snaps(c,
				    "SELECT " SNAP_COLUMNS " FROM snapshots s WHERE workspace = ?1"
				    " ORDER BY created DESC, seq DESC",
				    workspace, rows, n, err);
	return select_snaps(c,
			    "SELECT " SNAP_COLUMNS
			    " FROM snapshots s ORDER BY created DESC, seq DESC",
			    NULL, rows, n, err);
}

int catalog_snap_children(struct catalog *c, const char *id, struct snap_row **rows, size_t *n,
			  struct err *err)
{
	return select_snaps(c, "SELECT " SNAP_COLUMNS " FROM snapshots s WHERE parent = ?1", id,
			    rows, n, err);
}

int catalog_snap_log(struct catalog *c, const char *id, struct snap_row **rows, size_t *n,
		     struct err *err)
{
	sqlite3_stmt *st;
	int r = db_read(
		c, &st,
		"WITH RECURSIVE line(id, depth) AS (VALUES (?1, 0) UNION ALL"
		" SELECT p.parent, line.depth + 1 FROM line JOIN snapshots p ON p.id = line.id"
		" WHERE p.parent IS NOT NULL LIMIT ?2)"
		"SELECT " SNAP_COLUMNS
		" FROM line JOIN snapshots s ON s.id = line.id ORDER BY line.depth",
		err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
	sqlite3_bind_int(st, 2, LOG_MAX);
	return db_list(c, st, &snap_shape, rows, n, err);
}

/* ---- names ---- */

static int name_owner(struct catalog *c, const char *owner, const char *name, char id[ID_SIZE],
		      struct err *err)
{
	sqlite3_stmt *st;
	int r = db_prepare(c, &st,
			   "SELECT snapshot FROM snapshot_names WHERE owner = ?1 AND name = ?2",
			   err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, owner, -1, SQLITE_STATIC);
	sqlite3_bind_text(st, 2, name, -1, SQLITE_STATIC);
	int rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		column_id(st, 0, id);
	r = rc == SQLITE_ROW ? 1 : rc == SQLITE_DONE ? 0 : db_error(c, rc, err, "look up a name");
	sqlite3_reset(st);
	return r;
}

int catalog_snap_has_name(struct catalog *c, const char *owner, const char *name, char id[ID_SIZE],
			  struct err *err)
{
	char own[ID_SIZE];
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = name_owner(c, owner, name, id ? id : own, err);
	db_unlock(c);
	return r;
}

static int put_name(struct catalog *c, const char *id, const char *name, size_t pos,
		    struct err *err)
{
	sqlite3_stmt *st;
	int r = db_prepare(c, &st,
			   "INSERT INTO snapshot_names (owner, name, snapshot, pos) VALUES"
			   " ((SELECT owner FROM snapshots WHERE id = ?2), ?1, ?2, ?3)",
			   err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
	sqlite3_bind_text(st, 2, id, -1, SQLITE_STATIC);
	sqlite3_bind_int64(st, 3, (sqlite3_int64)pos);
	r = db_run(c, st, err, "name a snapshot");
	if (r == -EEXIST)
		(void)err_set(err, r, "there is a snapshot \"%s\" already", name);
	return r;
}

/* Replaces the names of a snapshot by those of a JSON array (NULL: none). */
static int put_names(struct catalog *c, const char *id, const char *names, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_prepare(c, &st, "DELETE FROM snapshot_names WHERE snapshot = ?1", err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
	r = db_run(c, st, err, "name a snapshot");
	if (r < 0 || !names)
		return r;
	json_t *list = json_loads(names, 0, NULL), *one;
	size_t i;
	if (!json_is_array(list))
		r = err_set(err, -EINVAL, "a snapshot's names aren't a list");
	else
		json_array_foreach(list, i, one) {
			if (r >= 0)
				r = put_name(c, id, json_string_value(one), i, err);
		}
	json_decref(list);
	return r;
}

/* ---- changes ---- */

static int insert_snap(struct catalog *c, const struct snap_row *s, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_prepare(c, &st,
			   "INSERT INTO snapshots (id, created, workspace, parent, manifest, files,"
			   " bytes, stored_bytes, message, labels, git, " DB_OWNED
			   ", image) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12,"
			   " ?13, ?14, ?15, ?16, ?17)",
			   err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, s->id, -1, SQLITE_STATIC);
	sqlite3_bind_int64(st, 2, s->created_ns);
	db_bind_text(st, 3, s->workspace);
	db_bind_text(st, 4, s->parent);
	sqlite3_bind_blob(st, 5, s->manifest.b, sizeof(s->manifest.b), SQLITE_STATIC);
	sqlite3_bind_int64(st, 6, (sqlite3_int64)s->files);
	sqlite3_bind_int64(st, 7, (sqlite3_int64)s->bytes);
	sqlite3_bind_int64(st, 8, (sqlite3_int64)s->stored_bytes);
	db_bind_text(st, 9, s->message);
	db_bind_text(st, 10, s->labels);
	db_bind_text(st, 11, s->git);
	db_bind_owned(c, st, 12, &s->own);
	db_bind_text(st, 17, s->image);
	return db_run(c, st, err, "insert a snapshot");
}

int catalog_snap_insert(struct catalog *c, const struct snap_row *row, const char *ws,
			const void *stack, size_t len, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_begin(c, err);
	if (r >= 0) {
		r = insert_snap(c, row, err);
		if (r >= 0)
			r = put_names(c, row->id, row->names, err);
		if (r >= 0)
			r = db_note_effect(c, row->id, err);
		if (r >= 0)
			r = db_note_owner(c, row->own.owner, err);
		if (r >= 0)
			r = db_keep_quota(c, row->own.owner, err);
		if (r >= 0 && ws)
			r = db_set_head(c, ws, row->id, stack, len, err);
		r = db_end(c, r, err);
	}
	db_unlock(c);
	return r;
}

static int update_snap(struct catalog *c, const struct snap_row *s, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_prepare(c, &st,
			   "UPDATE snapshots SET message = ?2, labels = ?3, parent = ?4,"
			   " manifest = ?5, visibility = ?7, team = ?8, expires = ?9,"
			   " on_expiry = ?10 WHERE id = ?1",
			   err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, s->id, -1, SQLITE_STATIC);
	db_bind_text(st, 2, s->message);
	db_bind_text(st, 3, s->labels);
	db_bind_text(st, 4, s->parent);
	sqlite3_bind_blob(st, 5, s->manifest.b, sizeof(s->manifest.b), SQLITE_STATIC);
	db_bind_owned(c, st, 6, &s->own); /* ?6, the owner, stays as it is */
	r = db_run(c, st, err, "change a snapshot");
	if (r >= 0 && sqlite3_changes(c->db) == 0)
		r = err_set(err, -ENOENT, "no snapshot \"%s\"", s->id);
	return r;
}

int catalog_snap_update(struct catalog *c, const struct snap_row *row, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_begin(c, err);
	if (r >= 0) {
		r = update_snap(c, row, err);
		if (r >= 0)
			r = put_names(c, row->id, row->names, err);
		r = db_end(c, r, err);
	}
	db_unlock(c);
	return r;
}

/* Who would lose the snapshot: a workspace's head, or a child. */
static int refuse_used(struct catalog *c, const char *id, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_prepare(c, &st,
			   "SELECT coalesce((SELECT 'sandbox ' || s.name FROM sandboxes s"
			   " WHERE s.root = w.id), 'workspace ' || w.name) || ' stands on it:"
			   " delete that, or restore or save another there'"
			   " FROM workspaces w WHERE head = ?1"
			   " AND removed IS NULL UNION ALL"
			   " SELECT id || ' was made from it: delete that first, or use --force'"
			   " FROM snapshots WHERE parent = ?1 LIMIT 1",
			   err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
	int rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		r = err_set(err, -ENOTUNIQ, "snapshot %s is needed: %s", id,
			    (const char *)sqlite3_column_text(st, 0));
	else if (rc != SQLITE_DONE)
		r = db_error(c, rc, err, "look for who needs a snapshot");
	sqlite3_reset(st);
	return r;
}

int catalog_snap_refuse(struct catalog *c, const char *id, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = refuse_used(c, id, err);
	db_unlock(c);
	return r;
}

/* One statement whose only parameter is the snapshot's id. */
static int with_id(struct catalog *c, const char *sql, const char *id, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_prepare(c, &st, sql, err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
	return db_run(c, st, err, "delete a snapshot");
}

static int delete_snap(struct catalog *c, const char *id, struct err *err)
{
	int r = with_id(c,
			"UPDATE snapshots SET parent = (SELECT parent FROM snapshots WHERE id = ?1)"
			" WHERE parent = ?1",
			id, err);
	/* Without the stack it came from, the next save can't say "unchanged": it saves. */
	if (r >= 0)
		r = with_id(c,
			    "UPDATE workspaces SET head_stack = NULL, head ="
			    " (SELECT parent FROM snapshots WHERE id = ?1) WHERE head = ?1",
			    id, err);
	if (r >= 0)
		r = with_id(c, "UPDATE workspaces SET base = NULL WHERE base = ?1", id, err);
	if (r >= 0)
		r = with_id(c, "DELETE FROM snapshot_names WHERE snapshot = ?1", id, err);
	if (r >= 0)
		r = with_id(c, "DELETE FROM snapshots WHERE id = ?1", id, err);
	if (r >= 0 && sqlite3_changes(c->db) == 0)
		r = err_set(err, -ENOENT, "no snapshot \"%s\"", id);
	return r;
}

int catalog_snap_delete(struct catalog *c, const char *id, bool force, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_begin(c, err);
	if (r >= 0) {
		r = force ? 0 : refuse_used(c, id, err);
		if (r >= 0)
			r = delete_snap(c, id, err);
		r = db_end(c, r, err);
	}
	db_unlock(c);
	return r;
}

int catalog_snap_of_image(struct catalog *c, const char *image, char id[ID_SIZE], struct err *err)
{
	sqlite3_stmt *st;
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_prepare(c, &st,
		       "SELECT id FROM snapshots WHERE image = ?1 ORDER BY seq DESC LIMIT 1", err);
	if (r >= 0) {
		sqlite3_bind_text(st, 1, image, -1, SQLITE_STATIC);
		int rc = sqlite3_step(st);
		if (rc == SQLITE_ROW)
			(void)snprintf(id, ID_SIZE, "%s", (const char *)sqlite3_column_text(st, 0));
		else if (rc == SQLITE_DONE)
			r = err_set(err, -ENOENT, "no snapshot of that image");
		else
			r = db_error(c, rc, err, "look up an image");
		sqlite3_reset(st);
		sqlite3_clear_bindings(st);
	}
	db_unlock(c);
	return r;
}
