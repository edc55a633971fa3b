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

int catalog_ws_get(struct catalog *c, const char *key, struct ws_row *out, struct err *err)
{
	char owner[OWNER_SIZE];
	const char *name = db_split_key(key, owner);
	return db_find(c, WS_OF "(id = ?1 OR (owner = ?2 AND name = ?3)) AND removed IS NULL",
		       DB(db_text(key), db_text(owner), db_text(name)), &ws_shape, out, "workspace",
		       key, err);
}

int catalog_ws_get_any(struct catalog *c, const char *id, struct ws_row *out, struct err *err)
{
	return db_find(c, WS_OF "id = ?1", DB(db_text(id)), &ws_shape, out, "workspace", id, err);
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
	return db_select(c, selects[which], DB(), &ws_shape, rows, n, err);
}

int catalog_ws_page(struct catalog *c, bool removed, bool roots, const struct list_want *want,
		    struct ws_row **rows, size_t *n, struct err *err)
{
#define WHICH "(removed IS NOT NULL) = ?7 AND (?8 OR sandbox IS NULL)"
	return db_select(c,
			 want->label
				 ? DB_LIST_LABELLED(WS_COLUMNS, "workspaces", "", "0", WHICH)
				 : DB_LIST(WS_COLUMNS, "workspaces INDEXED BY workspaces_list",
					   "workspaces", "created", "seq",
					   WHICH),
			 DB(DB_LIST_VALUES(want), db_int(removed), db_int(roots)), &ws_shape, rows,
			 n, err);
#undef WHICH
}

static int name_taken(int r, const char *name, struct err *err)
{
	if (r == -EEXIST)
		(void)err_set(err, r, "there is a workspace \"%s\" already", name);
	return r;
}

static int insert_ws(struct catalog *c, const struct ws_row *w, struct err *err)
{
	const struct buf *stack = &w->head_stack;
	int r = db_exec(
		c,
		"INSERT INTO workspaces (id, name, base, head, quota_bytes, quota_inodes,"
		" mount, broken, labels, head_stack, parent, created, git, description, " DB_OWNED
		", sandbox, removed, purge, was) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,"
		" ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)",
		DB(db_text(w->id), db_text(w->name), db_text_or_null(w->base),
		   db_text_or_null(w->head), db_int((int64_t)w->quota_bytes),
		   db_int((int64_t)w->quota_inodes), db_int(w->mount), db_text_or_null(w->broken),
		   db_text_or_null(w->labels), db_blob(stack->len ? stack->data : NULL, stack->len),
		   db_text_or_null(w->parent), db_int(w->created_ns), db_text_or_null(w->git),
		   db_text_or_null(w->description), DB_OWN(c, &w->own), db_text_or_null(w->sandbox),
		   db_int_or_null(w->removed_ns), db_int_or_null(w->purge_ns),
		   db_text_or_null(w->was)),
		"insert a workspace", err);
	return name_taken(r, w->name, err);
}

static int insert_all(struct catalog *c, const struct ws_row *rows, size_t n, struct err *err)
{
	int r = 0;
	for (size_t i = 0; i < n && r >= 0; i++) {
		r = insert_ws(c, &rows[i], err);
		if (r >= 0)
			r = db_note_owner(c, rows[i].own.owner, err);
		if (r >= 0)
			r = db_note_effect(c, rows[i].id, err);
	}
	/* all of one call are of one owner */
	return r >= 0 && n > 0 ? db_keep_quota(c, rows[0].own.owner, err) : r;
}

int catalog_ws_insert(struct catalog *c, const struct ws_row *rows, size_t n, struct err *err)
{
	int r = db_start(c, err);
	if (r < 0)
		return r;
	r = insert_all(c, rows, n, err);
	return db_finish(c, r, err);
}

int catalog_ws_insert_with(struct catalog *c, const struct ws_row *row,
			   const struct snap_row *snap, struct err *err)
{
	int r = db_start(c, err);
	if (r < 0)
		return r;
	r = insert_all(c, row, 1, err); /* noted first: it is what an answer tells of */
	if (r >= 0)
		r = db_insert_snap(c, snap, err);
	return db_finish(c, r, err);
}

/* A change of the row of ?1. */
static int change(struct catalog *c, const char *sql, const struct db_value *values, const char *id,
		  struct err *err)
{
	return db_change_the(c, sql, values, "change a workspace", "workspace", id, err);
}

/* The same with the lock held. */
static int exec_the(struct catalog *c, const char *sql, const struct db_value *values,
		    const char *id, struct err *err)
{
	return db_exec_the(c, sql, values, "change a workspace", "workspace", id, err);
}

int catalog_ws_patch(struct catalog *c, const char *id, const struct ws_patch *p, struct err *err)
{
	static const struct owned none;
	const struct owned *own = p->own ? p->own : &none;
	int r = change(c,
		       "UPDATE workspaces SET name = ifnull(?2, name),"
		       " labels = nullif(ifnull(?3, labels), ''),"
		       " quota_bytes = ifnull(?4, quota_bytes),"
		       " quota_inodes = ifnull(?5, quota_inodes),"
		       " git = nullif(ifnull(?6, git), ''),"
		       " description = nullif(ifnull(?7, description), ''),"
		       " sandbox = nullif(ifnull(?8, sandbox), ''),"
		       " visibility = CASE WHEN ?9 THEN ?11 ELSE visibility END,"
		       " team = CASE WHEN ?9 THEN ?12 ELSE team END,"
		       " expires = CASE WHEN ?9 THEN ?13 ELSE expires END,"
		       " on_expiry = CASE WHEN ?9 THEN ?14 ELSE on_expiry END WHERE id = ?1",
		       DB(db_text(id), db_text_or_null(p->name), db_text(p->labels),
			  DB_INT_AT(p->quota_bytes), DB_INT_AT(p->quota_inodes), db_text(p->git),
			  db_text(p->description), db_text(p->sandbox), db_int(p->own != NULL),
			  DB_OWN(c, own)),
		       id, err);
	return name_taken(r, p->name, err);
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
	return exec_the(c,
			"UPDATE workspaces SET head = ifnull(?2, head), head_stack = ?3"
			" WHERE id = ?1",
			DB(db_text(id), db_text_or_null(head), db_blob(stack, len)), id, err);
}

int catalog_ws_set_mount(struct catalog *c, const char *id, bool mount, struct err *err)
{
	return change(c, "UPDATE workspaces SET mount = ?2 WHERE id = ?1",
		      DB(db_text(id), db_int(mount)), id, err);
}

/* As an effect: what is noted of it is that it was changed, not made. */
enum { AT_SIZE = ID_SIZE + 4 };
static const char *at(char effect[AT_SIZE], const char *id)
{
	(void)snprintf(effect, AT_SIZE, "at/%s", id);
	return effect;
}

int catalog_ws_ask_mount(struct catalog *c, const char *id, bool mount, struct err *err)
{
	char effect[sizeof("by/umount/") + ID_SIZE];
	int r = db_start(c, err);
	if (r < 0)
		return r;
	(void)snprintf(effect, sizeof(effect), "%s/%s", mount ? "at" : "by/umount", id);
	r = exec_the(c, "UPDATE workspaces SET mount = ?2 WHERE id = ?1",
		     DB(db_text(id), db_int(mount)), id, err);
	if (r >= 0)
		r = db_note_effect(c, effect, err);
	return db_finish(c, r, err);
}

int catalog_ws_set_broken(struct catalog *c, const char *id, const char *why, struct err *err)
{
	return change(c, "UPDATE workspaces SET broken = ?2 WHERE id = ?1",
		      DB(db_text(id), db_text_or_null(why)), id, err);
}

int catalog_ws_delete(struct catalog *c, const char *id, struct err *err)
{
	return change(c, "DELETE FROM workspaces WHERE id = ?1", DB(db_text(id)), id, err);
}

int catalog_ws_remove(struct catalog *c, const char *id, int64_t now_ns, int64_t purge_ns,
		      struct err *err)
{
	return change(c,
		      "UPDATE workspaces SET removed = ?2, purge = ?3, was = name, name = id"
		      " WHERE id = ?1 AND removed IS NULL",
		      DB(db_text(id), db_int(now_ns), db_int(purge_ns)), id, err);
}

static int undelete_ws(struct catalog *c, const char *id, const char *name, int64_t now_ns,
		       struct err *err)
{
	int r = exec_the(c,
			 "UPDATE workspaces SET removed = NULL, purge = NULL, was = NULL,"
			 " name = ?2, expires = CASE WHEN expires > ?3 THEN expires END"
			 " WHERE id = ?1 AND removed IS NOT NULL",
			 DB(db_text(id), db_text(name), db_int(now_ns)), id, err);
	return name_taken(r, name, err);
}

static int read_owner(sqlite3_stmt *st, void *row)
{
	db_get_text(st, 0, row, OWNER_SIZE);
	return 0;
}

static const struct db_shape owner_shape = { "look up an owner", OWNER_SIZE, read_owner, NULL };

int catalog_ws_undelete(struct catalog *c, const char *id, const char *name, int64_t now_ns,
			struct err *err)
{
	char owner[OWNER_SIZE] = "", effect[AT_SIZE];
	int r = db_start(c, err);
	if (r < 0)
		return r;
	r = undelete_ws(c, id, name, now_ns, err);
	if (r >= 0)
		r = db_note_effect(c, at(effect, id), err);
	if (r >= 0)
		r = db_first(c, "SELECT owner FROM workspaces WHERE id = ?1", DB(db_text(id)),
			     &owner_shape, owner, err);
	if (r >= 0)
		r = db_keep_quota(c, owner, err);
	return db_finish(c, r, err);
}

int catalog_ws_has_name(struct catalog *c, const char *owner, const char *name, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_has(c, "SELECT 1 FROM workspaces WHERE owner = ?1 AND name = ?2",
		   DB(db_text(owner), db_text(name)), "look up a name", err);
	db_unlock(c);
	return r;
}

static int read_counts(sqlite3_stmt *st, void *row)
{
	*(struct catalog_counts *)row = (struct catalog_counts){
		.workspaces = (uint64_t)sqlite3_column_int64(st, 0),
		.mounted = (uint64_t)sqlite3_column_int64(st, 1),
		.broken = (uint64_t)sqlite3_column_int64(st, 2),
		.snapshots = (uint64_t)sqlite3_column_int64(st, 3),
		.names = (uint64_t)sqlite3_column_int64(st, 4),
		.bytes = (uint64_t)sqlite3_column_int64(st, 5),
		.removed = (uint64_t)sqlite3_column_int64(st, 6),
		.deliveries = (uint64_t)sqlite3_column_int64(st, 7),
	};
	return 0;
}

int catalog_count(struct catalog *c, struct catalog_counts *out, struct err *err)
{
	static const struct db_shape shape = { "count", sizeof(struct catalog_counts), read_counts,
					       NULL };
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_first(c,
		     "SELECT (SELECT count(*) FROM workspaces WHERE removed IS NULL),"
		     " (SELECT count(*) FROM workspaces WHERE mount AND removed IS NULL),"
		     " (SELECT count(*) FROM workspaces WHERE broken IS NOT NULL),"
		     " (SELECT count(*) FROM snapshots), (SELECT count(*) FROM snapshot_names),"
		     " (SELECT page_count * page_size FROM pragma_page_count, pragma_page_size),"
		     " (SELECT count(*) FROM workspaces WHERE removed IS NOT NULL),"
		     " (SELECT count(*) FROM deliveries WHERE next IS NOT NULL)",
		     DB(), &shape, out, err);
	db_unlock(c);
	return r < 0 ? r : 0;
}
