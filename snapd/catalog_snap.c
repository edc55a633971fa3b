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

static void read_digest(sqlite3_stmt *st, int i, struct digest *out)
{
	const void *d = sqlite3_column_blob(st, i);
	if (d && sqlite3_column_bytes(st, i) == (int)sizeof(out->b))
		memcpy(out->b, d, sizeof(out->b));
}

static int read_snap(sqlite3_stmt *st, void *row)
{
	struct snap_row *r = row;
	db_get_text(st, 0, r->id, sizeof(r->id));
	db_get_text(st, 1, r->workspace, sizeof(r->workspace));
	db_get_text(st, 2, r->parent, sizeof(r->parent));
	r->created_ns = sqlite3_column_int64(st, 3);
	read_digest(st, 4, &r->manifest);
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

int catalog_snap_get(struct catalog *c, const char *key, struct snap_row *out, struct err *err)
{
	struct snap_row *rows;
	size_t n;
	char owner[OWNER_SIZE];
	const char *name = db_split_key(key, owner);
	int r = db_select(c,
			  "SELECT " SNAP_COLUMNS " FROM snapshots s WHERE id = ?1 OR id ="
			  " (SELECT snapshot FROM snapshot_names WHERE owner = ?2 AND name = ?3)",
			  DB(db_text(key), db_text(owner), db_text(name)), &snap_shape, &rows, &n,
			  err);
	if (r < 0)
		return r;
	if (n > 0 || strlen(key) < ID_PREFIX_MIN || strncmp(key, "sn_", 3) != 0)
		return only(rows, n, key, out, err);
	snap_rows_free(rows, n);
	/* '~' sorts behind all characters of ids, which have no wildcard's meaning here. */
	r = db_select(c,
		      "SELECT " SNAP_COLUMNS " FROM snapshots s"
		      " WHERE id >= ?1 AND id < ?1 || '~' LIMIT 2",
		      DB(db_text(key)), &snap_shape, &rows, &n, err);
	return r < 0 ? r : only(rows, n, key, out, err);
}

int catalog_snap_list(struct catalog *c, struct snap_row **rows, size_t *n, struct err *err)
{
	return db_select(c,
			 "SELECT " SNAP_COLUMNS " FROM snapshots s ORDER BY created DESC, seq DESC",
			 DB(), &snap_shape, rows, n, err);
}

int catalog_snap_page(struct catalog *c, const char *workspace, bool images,
		      const struct list_want *want, struct snap_row **rows, size_t *n,
		      struct err *err)
{
#define OF_ALL(index, when)                                                                    \
	DB_LIST(SNAP_COLUMNS, "snapshots s INDEXED BY " index, "snapshots", "created", "seq", when)
#define IMAGES	     "(NOT ?8 OR image IS NOT NULL)"
	return db_select(c,
			 want->label ? DB_LIST_LABELLED(
					       SNAP_COLUMNS, "snapshots", " s", "1",
					       "(?7 IS NULL OR workspace = ?7) AND " IMAGES)
			 : workspace ? OF_ALL("snapshots_workspace", "workspace = ?7 AND " IMAGES)
				     : OF_ALL("snapshots_list", IMAGES),
			 DB(DB_LIST_VALUES(want), db_text(workspace), db_int(images)), &snap_shape,
			 rows, n, err);
#undef OF_ALL
#undef IMAGES
}

int catalog_snap_trees(struct catalog *c, struct snap_row **rows, size_t *n, struct err *err)
{
	return db_select(c,
			 "SELECT id, workspace, parent, created, manifest, files, bytes,"
			 " stored_bytes, NULL, NULL, git, NULL, owner, visibility, team, expires,"
			 " on_expiry, NULL FROM snapshots",
			 DB(), &snap_shape, rows, n, err);
}

static int read_tree(sqlite3_stmt *st, void *row)
{
	struct tree_row *r = row;
	db_get_text(st, 0, r->id, sizeof(r->id));
	read_digest(st, 1, &r->manifest);
	r->removed = sqlite3_column_int(st, 2) != 0;
	return db_copy_text(st, 3, &r->git);
}

int catalog_trees(struct catalog *c, bool snapshots,
		  int (*fn)(void *ctx, const struct tree_row *row, struct err *err), void *ctx,
		  struct err *err)
{
	static const struct db_shape shape = { "list trees", sizeof(struct tree_row), read_tree,
					       NULL };
	sqlite3_stmt *st;
	struct tree_row row;
	int r = db_open_rows(c, &st,
			     snapshots ? "SELECT id, manifest, 0, git FROM snapshots ORDER BY id"
				       : "SELECT id, NULL, removed IS NOT NULL, git FROM workspaces"
					 " WHERE broken IS NULL ORDER BY id",
			     DB(), err);
	if (r < 0)
		return r;
	while ((r = db_next(c, st, &shape, &row, err)) > 0) {
		r = fn(ctx, &row, err);
		free(row.git);
		if (r != 0)
			break;
	}
	db_close_rows(c, st);
	return r;
}

int catalog_snap_children(struct catalog *c, const char *id, struct snap_row **rows, size_t *n,
			  struct err *err)
{
	return db_select(c, "SELECT " SNAP_COLUMNS " FROM snapshots s WHERE parent = ?1",
			 DB(db_text(id)), &snap_shape, rows, n, err);
}

int catalog_snap_below(struct catalog *c, const char *id, size_t max, struct snap_row **rows,
		       size_t *n, struct err *err)
{
	return db_select(
		c,
		"WITH RECURSIVE below(id, depth) AS (VALUES (?1, 0) UNION ALL"
		" SELECT s.id, below.depth + 1 FROM below JOIN snapshots s"
		" ON s.parent = below.id LIMIT ?2)"
		"SELECT " SNAP_COLUMNS
		" FROM below JOIN snapshots s ON s.id = below.id ORDER BY below.depth DESC",
		DB(db_text(id), db_int((int64_t)max)), &snap_shape, rows, n, err);
}

int catalog_snap_log(struct catalog *c, const char *id, size_t max, struct snap_row **rows,
		     size_t *n, struct err *err)
{
	return db_select(
		c,
		"WITH RECURSIVE line(id, depth) AS (VALUES (?1, 0) UNION ALL"
		" SELECT p.parent, line.depth + 1 FROM line JOIN snapshots p ON p.id = line.id"
		" WHERE p.parent IS NOT NULL LIMIT ?2)"
		"SELECT " SNAP_COLUMNS
		" FROM line JOIN snapshots s ON s.id = line.id ORDER BY line.depth",
		DB(db_text(id), db_int(max && max < LOG_MAX ? (int64_t)max : LOG_MAX)),
		&snap_shape, rows, n, err);
}

/* ---- names ---- */

static int read_id(sqlite3_stmt *st, void *row)
{
	db_get_text(st, 0, row, ID_SIZE);
	return 0;
}

static const struct db_shape id_shape = { "look up a name", ID_SIZE, read_id, NULL };

int catalog_snap_has_name(struct catalog *c, const char *owner, const char *name, char id[ID_SIZE],
			  struct err *err)
{
	char own[ID_SIZE];
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_first(c, "SELECT snapshot FROM snapshot_names WHERE owner = ?1 AND name = ?2",
		     DB(db_text(owner), db_text(name)), &id_shape, id ? id : own, err);
	db_unlock(c);
	return r;
}

static int put_name(struct catalog *c, const char *id, const char *name, size_t pos,
		    struct err *err)
{
	int r = db_exec(c,
			"INSERT INTO snapshot_names (owner, name, snapshot, pos) VALUES"
			" ((SELECT owner FROM snapshots WHERE id = ?2), ?1, ?2, ?3)",
			DB(db_text(name), db_text(id), db_int((int64_t)pos)), "name a snapshot",
			err);
	if (r == -EEXIST)
		(void)err_set(err, r, "there is a snapshot \"%s\" already", name);
	return r;
}

/* Replaces the names of a snapshot by those of a JSON array (NULL: none). */
static int put_names(struct catalog *c, const char *id, const char *names, struct err *err)
{
	int r = db_exec(c, "DELETE FROM snapshot_names WHERE snapshot = ?1", DB(db_text(id)),
			"name a snapshot", err);
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
	return db_exec(c,
		       "INSERT INTO snapshots (id, created, workspace, parent, manifest, files,"
		       " bytes, stored_bytes, message, labels, git, " DB_OWNED
		       ", image) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12,"
		       " ?13, ?14, ?15, ?16, ?17)",
		       DB(db_text(s->id), db_int(s->created_ns), db_text_or_null(s->workspace),
			  db_text_or_null(s->parent), db_blob(s->manifest.b, sizeof(s->manifest.b)),
			  db_int((int64_t)s->files), db_int((int64_t)s->bytes),
			  db_int((int64_t)s->stored_bytes), db_text_or_null(s->message),
			  db_text_or_null(s->labels), db_text_or_null(s->git), DB_OWN(c, &s->own),
			  db_text_or_null(s->image)),
		       "insert a snapshot", err);
}

int db_insert_snap(struct catalog *c, const struct snap_row *row, struct err *err)
{
	int r = insert_snap(c, row, err);
	if (r >= 0)
		r = put_names(c, row->id, row->names, err);
	if (r >= 0)
		r = db_note_effect(c, row->id, err);
	if (r >= 0)
		r = db_note_owner(c, row->own.owner, err);
	if (r >= 0)
		r = db_keep_quota(c, row->own.owner, err);
	return r;
}

int catalog_snap_insert(struct catalog *c, const struct snap_row *row, const char *ws,
			const void *stack, size_t len, struct err *err)
{
	int r = db_start(c, err);
	if (r < 0)
		return r;
	r = db_insert_snap(c, row, err);
	if (r >= 0 && ws)
		r = db_set_head(c, ws, row->id, stack, len, err);
	return db_finish(c, r, err);
}

int catalog_snap_update(struct catalog *c, const struct snap_row *s, struct err *err)
{
	int r = db_start(c, err);
	if (r < 0)
		return r;
	r = db_exec_the(
		c,
		"UPDATE snapshots SET message = ?2, labels = ?3, parent = ?4, manifest = ?5,"
		" visibility = ?7, team = ?8, expires = ?9, on_expiry = ?10 WHERE id = ?1",
		DB(db_text(s->id), db_text_or_null(s->message), db_text_or_null(s->labels),
		   db_text_or_null(s->parent), db_blob(s->manifest.b, sizeof(s->manifest.b)),
		   DB_OWN(c, &s->own)), /* ?6, the owner, stays as it is */
		"change a snapshot", "snapshot", s->id, err);
	if (r >= 0)
		r = put_names(c, s->id, s->names, err);
	return db_finish(c, r, err);
}

enum { NEED_SIZE = NAME_SIZE + 128 };

static int read_need(sqlite3_stmt *st, void *row)
{
	db_get_text(st, 0, row, NEED_SIZE);
	return 0;
}

/* Who would lose the snapshot: a workspace's head, or a child. */
static int refuse_used(struct catalog *c, const char *id, const char *who, struct err *err)
{
	static const struct db_shape shape = { "look for who needs a snapshot", NEED_SIZE,
					       read_need, NULL };
	char need[NEED_SIZE];
	int r = db_first(c,
			 "SELECT coalesce((SELECT 'sandbox ' || s.name FROM sandboxes s"
			 " WHERE s.root = w.id), 'workspace ' || w.name) || ' stands on it:"
			 " delete that, or restore or save another there'"
			 " FROM workspaces w WHERE head = ?1"
			 " AND removed IS NULL AND " DB_SEEN " UNION ALL"
			 " SELECT id || ' was made from it: delete that first, or use --cascade"
			 " or --force'"
			 " FROM snapshots WHERE parent = ?1 AND " DB_SEEN " LIMIT 1",
			 DB(db_text(id), db_text(who)), &shape, need, err);
	return r > 0 ? err_set(err, -ENOTUNIQ, "snapshot %s is needed: %s", id, need) : r;
}

int catalog_snap_refuse(struct catalog *c, const char *id, const char *who, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = refuse_used(c, id, who, err);
	db_unlock(c);
	return r;
}

int catalog_snap_delete(struct catalog *c, const char *id, bool force, struct err *err)
{
	static const char *const changes[] = {
		"UPDATE snapshots SET parent = (SELECT parent FROM snapshots WHERE id = ?1)"
		" WHERE parent = ?1",
		/* Without the stack it came from, the next save can't say "unchanged": it saves. */
		"UPDATE workspaces SET head_stack = NULL, head ="
		" (SELECT parent FROM snapshots WHERE id = ?1) WHERE head = ?1",
		"UPDATE workspaces SET base = NULL WHERE base = ?1",
		"DELETE FROM snapshot_names WHERE snapshot = ?1",
	};
	static const char what[] = "delete a snapshot";
	int r = db_start(c, err);
	if (r < 0)
		return r;
	r = force ? 0 : refuse_used(c, id, NULL, err);
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]) && r >= 0; i++)
		r = db_exec(c, changes[i], DB(db_text(id)), what, err);
	if (r >= 0)
		r = db_exec_the(c, "DELETE FROM snapshots WHERE id = ?1", DB(db_text(id)), what,
				"snapshot", id, err);
	return db_finish(c, r, err);
}

int catalog_snap_of_image(struct catalog *c, const char *image, char id[ID_SIZE], struct err *err)
{
	static const struct db_shape shape = { "look up an image", ID_SIZE, read_id, NULL };
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_first(c, "SELECT id FROM snapshots WHERE image = ?1 ORDER BY seq DESC LIMIT 1",
		     DB(db_text(image)), &shape, id, err);
	db_unlock(c);
	return r == 0 ? err_set(err, -ENOENT, "no snapshot of that image") : r < 0 ? r : 0;
}
