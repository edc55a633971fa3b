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

/* With the lock. */
static int get_quota(struct catalog *c, const char *owner, struct quota *out, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_prepare(
		c, &st, "SELECT owner, workspaces, snapshots, bytes FROM quotas WHERE owner = ?1",
		err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, owner, -1, SQLITE_STATIC);
	r = db_row(c, st, &quota_shape, out, err);
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

static void bind_limit(sqlite3_stmt *st, int i, int64_t n)
{
	if (n != QUOTA_NONE)
		sqlite3_bind_int64(st, i, n);
}

int catalog_quota_set(struct catalog *c, const struct quota *q, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_prepare(c, &st,
		       "INSERT INTO quotas (owner, workspaces, snapshots, bytes) VALUES"
		       " (?1, ?2, ?3, ?4) ON CONFLICT (owner) DO UPDATE SET workspaces = ?2,"
		       " snapshots = ?3, bytes = ?4",
		       err);
	if (r >= 0) {
		sqlite3_bind_text(st, 1, q->owner, -1, SQLITE_STATIC);
		bind_limit(st, 2, q->workspaces);
		bind_limit(st, 3, q->snapshots);
		bind_limit(st, 4, q->bytes);
		r = db_run(c, st, err, "set a quota");
	}
	db_unlock(c);
	return r;
}

int catalog_quota_delete(struct catalog *c, const char *owner, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_prepare(c, &st, "DELETE FROM quotas WHERE owner = ?1", err);
	if (r >= 0) {
		sqlite3_bind_text(st, 1, owner, -1, SQLITE_STATIC);
		r = db_run(c, st, err, "delete a quota");
		if (r >= 0 && sqlite3_changes(c->db) == 0)
			r = err_set(err, -ENOENT, "%.100s has no quota", owner);
	}
	db_unlock(c);
	return r;
}

int catalog_quota_list(struct catalog *c, struct quota **rows, size_t *n, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_read(c, &st,
		       "SELECT owner, workspaces, snapshots, bytes FROM quotas ORDER BY owner",
		       err);
	return r < 0 ? r : db_list(c, st, &quota_shape, rows, n, err);
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
	sqlite3_stmt *st;
	int r = db_prepare(c, &st, HOLDING "(SELECT ?1 AS owner) o", err);
	if (r < 0)
		return r;
	sqlite3_bind_text(st, 1, owner, -1, SQLITE_STATIC);
	r = db_row(c, st, &holding_shape, out, err);
	return r < 0 ? r : 0;
}

int catalog_holding(struct catalog *c, const char *owner, struct holding *out, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = get_holding(c, owner, out, err);
	db_unlock(c);
	return r;
}

int catalog_holdings(struct catalog *c, const char *owner, struct holding **rows, size_t *n,
		     struct err *err)
{
	sqlite3_stmt *st;
	int r = db_read(c, &st,
		       HOLDING "(SELECT owner FROM workspaces UNION SELECT owner FROM snapshots"
			       " UNION SELECT owner FROM quotas UNION SELECT ?1) o"
			       " WHERE o.owner IS NOT NULL AND (?1 IS NULL OR o.owner = ?1)"
			       " ORDER BY o.owner",
		       err);
	if (r < 0)
		return r;
	db_bind_text(st, 1, owner);
	return db_list(c, st, &holding_shape, rows, n, err);
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
