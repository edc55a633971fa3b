/* Rows of quotas, and what owners have. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapd/catalog_db.h"
#include "snapd/principal.h"
#include "snapd/quota.h"

static int64_t limit_of(sqlite3_stmt *st, int i)
{
	return sqlite3_column_type(st, i) == SQLITE_NULL ? QUOTA_NONE : sqlite3_column_int64(st, i);
}

static int read_quota(sqlite3_stmt *st, void *row)
{
	struct quota *q = row;
	db_get_text(st, 0, q->owner, sizeof(q->owner));
	q->workspaces = limit_of(st, 1);
	q->snapshots = limit_of(st, 2);
	q->bytes = limit_of(st, 3);
	return 0;
}

static const struct db_shape quota_shape = { "look up quotas", sizeof(struct quota), read_quota,
					     NULL };

#define QUOTA_COLUMNS "owner, workspaces, snapshots, bytes"

/* With the lock. */
static int get_quota(struct catalog *c, const char *owner, struct quota *out, struct err *err)
{
	int r = db_first(c, "SELECT " QUOTA_COLUMNS " FROM quotas WHERE owner = ?1",
			 DB(db_text(owner)), &quota_shape, out, err);
	if (r == 0)
		*out = (struct quota){ .workspaces = QUOTA_NONE,
				       .snapshots = QUOTA_NONE,
				       .bytes = QUOTA_NONE };
	return r < 0 ? r : 0;
}

int catalog_quota_get(struct catalog *c, const char *owner, struct quota *out, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = get_quota(c, owner, out, err);
	db_unlock(c);
	(void)snprintf(out->owner, sizeof(out->owner), "%s", owner);
	return r;
}

static struct db_value limit(int64_t n)
{
	return n == QUOTA_NONE ? db_text(NULL) : db_int(n);
}

int catalog_quota_set(struct catalog *c, const struct quota *q, struct err *err)
{
	return db_change(c,
			 "INSERT INTO quotas (" QUOTA_COLUMNS ") VALUES (?1, ?2, ?3, ?4)"
			 " ON CONFLICT (owner) DO UPDATE SET workspaces = ?2, snapshots = ?3,"
			 " bytes = ?4",
			 DB(db_text(q->owner), limit(q->workspaces), limit(q->snapshots),
			    limit(q->bytes)),
			 "set a quota", err);
}

int catalog_quota_delete(struct catalog *c, const char *owner, struct err *err)
{
	return db_change_the(c, "DELETE FROM quotas WHERE owner = ?1", DB(db_text(owner)),
			     "delete a quota", "quota of", owner, err);
}

int catalog_quota_list(struct catalog *c, struct quota **rows, size_t *n, struct err *err)
{
	return db_select(c, "SELECT " QUOTA_COLUMNS " FROM quotas ORDER BY owner", DB(),
			 &quota_shape, rows, n, err);
}

/* ---- what there is ---- */

#define OF_OWNER(table, more) "(SELECT count(*) FROM " table " t WHERE t.owner = o.owner" more ")"
#define HOLDING                                                                              \
	"SELECT o.owner, " OF_OWNER("workspaces", " AND t.removed IS NULL") ", " OF_OWNER(   \
		"snapshots", "") ", (SELECT ifnull(sum(t.stored_bytes), 0) FROM snapshots t" \
				 " WHERE t.owner = o.owner) FROM "

static int read_holding(sqlite3_stmt *st, void *row)
{
	struct holding *h = row;
	db_get_text(st, 0, h->owner, sizeof(h->owner));
	h->workspaces = (uint64_t)sqlite3_column_int64(st, 1);
	h->snapshots = (uint64_t)sqlite3_column_int64(st, 2);
	h->stored_bytes = (uint64_t)sqlite3_column_int64(st, 3);
	return 0;
}

static const struct db_shape holding_shape = { "count what owners have", sizeof(struct holding),
					       read_holding, NULL };

/* With the lock. */
static int get_holding(struct catalog *c, const char *owner, struct holding *out, struct err *err)
{
	return db_first(c, HOLDING "(SELECT ?1 AS owner) o", DB(db_text(owner)), &holding_shape,
			out, err);
}

int catalog_holding(struct catalog *c, const char *owner, struct holding *out, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = get_holding(c, owner, out, err);
	db_unlock(c);
	return r < 0 ? r : 0;
}

int catalog_holdings(struct catalog *c, const char *owner, struct holding **rows, size_t *n,
		     struct err *err)
{
	return db_select(c,
			 HOLDING "(SELECT owner FROM workspaces UNION SELECT owner FROM snapshots"
				 " UNION SELECT owner FROM quotas UNION SELECT ?1) o"
				 " WHERE o.owner IS NOT NULL AND (?1 IS NULL OR o.owner = ?1)"
				 " ORDER BY o.owner",
			 DB(db_text_or_null(owner)), &holding_shape, rows, n, err);
}

int db_keep_quota(struct catalog *c, const char *owner, struct err *err)
{
	struct quota q;
	struct holding h;
	char self[OWNER_SIZE];
	if (!doing_now()) /* the service's own work isn't somebody's to be refused */
		return 0;
	owner_self(self);
	owner = *owner ? owner : self;
	int r = get_quota(c, owner, &q, err);
	if (r < 0 || (q.workspaces == QUOTA_NONE && q.snapshots == QUOTA_NONE))
		return r;
	r = get_holding(c, owner, &h, err);
	if (r < 0)
		return r;
	if (q.workspaces != QUOTA_NONE && h.workspaces > (uint64_t)q.workspaces)
		return err_set(err, -EDQUOT, "%s may have %lld workspaces; `bough rm` makes room",
			       owner, (long long)q.workspaces);
	if (q.snapshots != QUOTA_NONE && h.snapshots > (uint64_t)q.snapshots)
		return err_set(err, -EDQUOT,
			       "%s may have %lld snapshots; `bough snapshots rm` makes room", owner,
			       (long long)q.snapshots);
	return 0;
}
