/* Which workspaces, snapshots or sandboxes a key may mean, whoever they belong to. */
#include "snapd/catalog.h"

#include <stdio.h>
#include <string.h>

#include "snapd/catalog_db.h"

/* However many others have things of that name, the caller's own is among the first, and those that
 * are shown to more come before those that aren't. */
#define OWN_FIRST     " ORDER BY owner = ?4 DESC"
#define NEAREST_FIRST OWN_FIRST ", visibility DESC"

static const char *statement(enum noun noun, bool owner)
{
	bool snapshots = noun == NOUN_SNAPSHOT;
	if (noun == NOUN_SANDBOX)
		return owner ? "SELECT id, NULL, " DB_OWNED " FROM sandboxes WHERE owner = ?1"
			       " AND name = ?2"
			     : "SELECT id, NULL, " DB_OWNED " FROM sandboxes WHERE id = ?2"
			       " OR name = ?2" NEAREST_FIRST;
	if (noun == NOUN_REMOVED)
		return owner ? "SELECT id, id, " DB_OWNED " FROM workspaces WHERE removed IS NOT"
			       " NULL AND owner = ?1 AND was = ?2 ORDER BY removed DESC"
			     : "SELECT id, id, " DB_OWNED " FROM workspaces WHERE removed IS NOT"
			       " NULL AND (id = ?2 OR was = ?2)" OWN_FIRST ", removed DESC";
	if (snapshots && owner)
		return "SELECT id, workspace, " DB_OWNED " FROM snapshots WHERE id ="
		       " (SELECT snapshot FROM snapshot_names WHERE owner = ?1 AND name = ?2)";
	/* '~' sorts behind all characters of ids. */
	if (snapshots)
		return "SELECT id, workspace, " DB_OWNED " FROM snapshots WHERE id = ?2 OR"
		       " (?3 AND id >= ?2 AND id < ?2 || '~') OR"
		       " id IN (SELECT snapshot FROM snapshot_names WHERE name = ?2)" NEAREST_FIRST;
	return owner ? "SELECT id, id, " DB_OWNED " FROM workspaces WHERE owner = ?1 AND name = ?2"
		       " AND removed IS NULL"
		     : "SELECT id, id, " DB_OWNED " FROM workspaces WHERE (id = ?2 OR name = ?2)"
		       " AND removed IS NULL" NEAREST_FIRST;
}

static int read_meant(sqlite3_stmt *st, void *row)
{
	struct meant *f = row;
	db_get_text(st, 0, f->id, sizeof(f->id));
	db_get_text(st, 1, f->workspace, sizeof(f->workspace));
	db_read_owned(st, 2, &f->own);
	return 0;
}

static const struct db_shape meant_shape = { "look up what is asked for", sizeof(struct meant),
					     read_meant, NULL };

/* As many rows as there are, and room for, of a statement that is given back. */
static int take(struct catalog *c, sqlite3_stmt *st, const struct db_shape *shape, void *out,
		size_t max, size_t *n, struct err *err)
{
	int r = 1;
	size_t count = 0;
	for (char *at = out; count < max && r > 0; at += shape->size) {
		r = db_next(c, st, shape, at, err);
		count += r > 0;
	}
	db_leave(c, st);
	*n = r < 0 ? 0 : count;
	return r < 0 ? r : 0;
}

int catalog_find(struct catalog *c, enum noun noun, const char *key, const char *first,
		 struct meant *out, size_t max, size_t *n, struct err *err)
{
	sqlite3_stmt *st;
	char owner[OWNER_SIZE];
	bool owned = strchr(key, '/') != NULL;
	*n = 0;
	int r = db_read(c, &st, statement(noun, owned), err);
	if (r < 0)
		return r;
	const char *name = db_split_key(key, owner);
	if (owned)
		sqlite3_bind_text(st, 1, owner, -1, SQLITE_STATIC);
	else
		sqlite3_bind_text(st, 4, first, -1, SQLITE_STATIC);
	sqlite3_bind_text(st, 2, name, -1, SQLITE_STATIC);
	if (!owned && noun == NOUN_SNAPSHOT)
		sqlite3_bind_int(st, 3,
				 strlen(key) >= ID_PREFIX_MIN && strncmp(key, "sn_", 3) == 0);
	return take(c, st, &meant_shape, out, max, n, err);
}

static int read_expired(sqlite3_stmt *st, void *row)
{
	struct expired *e = row;
	struct owned own;
	db_get_text(st, 0, e->id, sizeof(e->id));
	db_read_owned(st, 1, &own);
	e->on_expiry = own.on_expiry;
	return 0;
}

static const struct db_shape expired_shape = { "look what has expired", sizeof(struct expired),
					       read_expired, NULL };

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
	*n = 0;
	int r = db_read(c, &st, selects[noun], err);
	if (r < 0)
		return r;
	sqlite3_bind_int64(st, 1, now_ns);
	sqlite3_bind_int64(st, 2, (sqlite3_int64)max);
	sqlite3_bind_int64(st, 3, (sqlite3_int64)skip);
	return take(c, st, &expired_shape, out, max, n, err);
}
