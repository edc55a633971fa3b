/* Which workspaces, snapshots or sandboxes a key may mean, whoever they belong to. */
#include "snapd/catalog.h"

#include <stdio.h>
#include <string.h>

#include "snapd/catalog_db.h"

static const char *statement(enum noun noun, bool owner)
{
	bool snapshots = noun == NOUN_SNAPSHOT;
	if (noun == NOUN_SANDBOX)
		return owner ? "SELECT id, NULL, " DB_OWNED " FROM sandboxes WHERE owner = ?1"
			       " AND name = ?2"
			     : "SELECT id, NULL, " DB_OWNED " FROM sandboxes WHERE id = ?2"
			       " OR name = ?2";
	if (noun == NOUN_REMOVED)
		return owner ? "SELECT id, id, " DB_OWNED " FROM workspaces WHERE removed IS NOT"
			       " NULL AND owner = ?1 AND was = ?2 ORDER BY removed DESC"
			     : "SELECT id, id, " DB_OWNED " FROM workspaces WHERE removed IS NOT"
			       " NULL AND (id = ?2 OR was = ?2) ORDER BY removed DESC";
	if (snapshots && owner)
		return "SELECT id, workspace, " DB_OWNED " FROM snapshots WHERE id ="
		       " (SELECT snapshot FROM snapshot_names WHERE owner = ?1 AND name = ?2)";
	/* '~' sorts behind all characters of ids. */
	if (snapshots)
		return "SELECT id, workspace, " DB_OWNED " FROM snapshots WHERE id = ?2 OR"
		       " (?3 AND id >= ?2 AND id < ?2 || '~') OR"
		       " id IN (SELECT snapshot FROM snapshot_names WHERE name = ?2)";
	return owner ? "SELECT id, id, " DB_OWNED " FROM workspaces WHERE owner = ?1 AND name = ?2"
		       " AND removed IS NULL"
		     : "SELECT id, id, " DB_OWNED " FROM workspaces WHERE (id = ?2 OR name = ?2)"
		       " AND removed IS NULL";
}

static void read_meant(sqlite3_stmt *st, struct meant *f)
{
	const char *id = (const char *)sqlite3_column_text(st, 0);
	const char *ws = (const char *)sqlite3_column_text(st, 1);
	(void)snprintf(f->id, sizeof(f->id), "%s", id ? id : "");
	(void)snprintf(f->workspace, sizeof(f->workspace), "%s", ws ? ws : "");
	db_read_owned(st, 2, &f->own);
}

int catalog_find(struct catalog *c, enum noun noun, const char *key, struct meant *out, size_t max,
		 size_t *n, struct err *err)
{
	sqlite3_stmt *st;
	char owner[OWNER_SIZE];
	size_t count = 0;
	int rc = SQLITE_DONE;
	bool owned = strchr(key, '/') != NULL;
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_prepare(c, &st, statement(noun, owned), err);
	if (r >= 0) {
		const char *name = db_split_key(key, owner);
		if (owned)
			sqlite3_bind_text(st, 1, owner, -1, SQLITE_STATIC);
		sqlite3_bind_text(st, 2, name, -1, SQLITE_STATIC);
		if (!owned && noun == NOUN_SNAPSHOT)
			sqlite3_bind_int(
				st, 3, strlen(key) >= ID_PREFIX_MIN && strncmp(key, "sn_", 3) == 0);
		while (count < max && (rc = sqlite3_step(st)) == SQLITE_ROW)
			read_meant(st, &out[count++]);
		if (count < max && rc != SQLITE_DONE)
			r = db_error(c, rc, err, "look up what is asked for");
		sqlite3_reset(st);
		sqlite3_clear_bindings(st);
	}
	db_unlock(c);
	*n = r < 0 ? 0 : count;
	return r;
}

#define EXPIRED(table, when, more)                                                           \
	"SELECT id, " DB_OWNED " FROM " table " WHERE " when " <= ?1" more " ORDER BY " when \
	", id LIMIT ?2 OFFSET ?3"

int catalog_expired(struct catalog *c, enum noun noun, int64_t now_ns, size_t skip,
		    struct expired *out, size_t max, size_t *n, struct err *err)
{
	static const char *const selects[] = {
		[NOUN_WORKSPACE] = EXPIRED("workspaces", "expires", " AND removed IS NULL"),
		[NOUN_SNAPSHOT] = EXPIRED("snapshots", "expires", ""),
		[NOUN_SANDBOX] = EXPIRED("sandboxes", "expires", ""),
		[NOUN_REMOVED] = EXPIRED("workspaces", "purge", ""),
	};
	sqlite3_stmt *st;
	size_t count = 0;
	int rc = SQLITE_DONE, r = db_lock(c, err);
	*n = 0;
	if (r < 0)
		return r;
	r = db_prepare(c, &st, selects[noun], err);
	if (r >= 0) {
		sqlite3_bind_int64(st, 1, now_ns);
		sqlite3_bind_int64(st, 2, (sqlite3_int64)max);
		sqlite3_bind_int64(st, 3, (sqlite3_int64)skip);
		while (count < max && (rc = sqlite3_step(st)) == SQLITE_ROW) {
			struct owned own;
			const char *id = (const char *)sqlite3_column_text(st, 0);
			db_read_owned(st, 1, &own);
			(void)snprintf(out[count].id, sizeof(out[count].id), "%s", id ? id : "");
			out[count++].on_expiry = own.on_expiry;
		}
		if (count < max && rc != SQLITE_DONE)
			r = db_error(c, rc, err, "look what has expired");
		sqlite3_reset(st);
	}
	db_unlock(c);
	*n = r < 0 ? 0 : count;
	return r;
}
