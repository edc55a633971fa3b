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

/* As many rows as there are, and room for. */
static int take(struct catalog *c, const char *sql, const struct db_value *values,
		const struct db_shape *shape, void *out, size_t max, size_t *n, struct err *err)
{
	sqlite3_stmt *st;
	size_t count = 0;
	*n = 0;
	int r = db_open_rows(c, &st, sql, values, err);
	if (r < 0)
		return r;
	r = 1;
	for (char *at = out; count < max && r > 0; at += shape->size) {
		r = db_next(c, st, shape, at, err);
		count += r > 0;
	}
	db_close_rows(c, st);
	*n = r < 0 ? 0 : count;
	return r < 0 ? r : 0;
}

int catalog_find(struct catalog *c, enum noun noun, const char *key, const char *first,
		 struct meant *out, size_t max, size_t *n, struct err *err)
{
	char owner[OWNER_SIZE];
	bool is_prefix = strlen(key) >= ID_PREFIX_MIN && strncmp(key, "sn_", 3) == 0;
	const char *name = db_split_key(key, owner);
	return take(c, statement(noun, strchr(key, '/')),
		    DB(db_text(owner), db_text(name), db_int(is_prefix), db_text(first)),
		    &meant_shape, out, max, n, err);
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
	return take(c, selects[noun],
		    DB(db_int(now_ns), db_int((int64_t)max), db_int((int64_t)skip)), &expired_shape,
		    out, max, n, err);
}
