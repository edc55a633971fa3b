/* Rows of webhooks and of what is to be told to them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapd/catalog_db.h"
#include "snapd/hooks.h"

#define HOOK_COLUMNS     "id, owner, everybody, active, url, events, secret, created, anywhere"
#define DELIVERY_COLUMNS "seq, id, hook, type, body, created, next, tries, status, delivered, error"
enum { DELIVERY_COLUMN_COUNT = 11 };

/* ---- hooks ---- */

void hook_row_done(struct hook_row *r)
{
	free(r->url);
	free(r->events);
	buf_done(&r->secret);
	memset(r, 0, sizeof(*r));
}

void hook_rows_free(struct hook_row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		hook_row_done(&rows[i]);
	free(rows);
}

static int read_hook(sqlite3_stmt *st, void *row)
{
	struct hook_row *h = row;
	db_get_text(st, 0, h->id, sizeof(h->id));
	db_get_text(st, 1, h->owner, sizeof(h->owner));
	h->all = sqlite3_column_int(st, 2) != 0;
	h->active = sqlite3_column_int(st, 3) != 0;
	int e = db_copy_text(st, 4, &h->url) | db_copy_text(st, 5, &h->events);
	const void *secret = sqlite3_column_blob(st, 6);
	if (secret)
		buf_add(&h->secret, secret, (size_t)sqlite3_column_bytes(st, 6));
	h->created_ns = sqlite3_column_int64(st, 7);
	h->anywhere = sqlite3_column_int(st, 8) != 0;
	return e < 0 || buf_error(&h->secret) ? -ENOMEM : 0;
}

static void done_hook(void *row)
{
	hook_row_done(row);
}

static const struct db_shape hook_shape = { "look up webhooks", sizeof(struct hook_row), read_hook,
					    done_hook };

/* A statement with all of a hook's columns. */
static int put_hook(struct catalog *c, const char *sql, const struct hook_row *h, struct err *err)
{
	return db_exec_the(c, sql,
			   DB(db_text(h->id), db_text(h->owner), db_int(h->all), db_int(h->active),
			      db_text(h->url), db_text_or_null(h->events),
			      db_blob(h->secret.data, h->secret.len), db_int(h->created_ns),
			      db_int(h->anywhere)),
			   "write a webhook", "webhook", h->id, err);
}

int catalog_hook_insert(struct catalog *c, const struct hook_row *row, struct err *err)
{
	int r = db_start(c, err);
	if (r < 0)
		return r;
	r = put_hook(c,
		     "INSERT INTO webhooks (" HOOK_COLUMNS
		     ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
		     row, err);
	if (r >= 0)
		r = db_note_effect(c, row->id, err);
	return db_finish(c, r, err);
}

int catalog_hook_update(struct catalog *c, const struct hook_row *row, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = put_hook(c,
		     "UPDATE webhooks SET owner = ?2, everybody = ?3, active = ?4, url = ?5,"
		     " events = ?6, secret = ?7, created = ?8, anywhere = ?9 WHERE id = ?1",
		     row, err);
	db_unlock(c);
	return r;
}

int catalog_hook_get(struct catalog *c, const char *id, struct hook_row *out, struct err *err)
{
	return db_find(c, "SELECT " HOOK_COLUMNS " FROM webhooks WHERE id = ?1", DB(db_text(id)),
		       &hook_shape, out, "webhook", id, err);
}

int catalog_hook_list(struct catalog *c, const char *owner, struct hook_row **rows, size_t *n,
		      struct err *err)
{
	return db_select(c,
			 "SELECT " HOOK_COLUMNS " FROM webhooks WHERE ?1 IS NULL OR owner = ?1"
			 " ORDER BY created DESC, id DESC",
			 DB(db_text_or_null(owner)), &hook_shape, rows, n, err);
}

int catalog_hook_delete(struct catalog *c, const char *id, struct err *err)
{
	int r = db_start(c, err);
	if (r < 0)
		return r;
	r = db_exec_the(c, "DELETE FROM webhooks WHERE id = ?1", DB(db_text(id)),
			"delete a webhook", "webhook", id, err);
	if (r >= 0)
		r = db_exec(c, "DELETE FROM deliveries WHERE hook = ?1", DB(db_text(id)),
			    "delete a webhook", err);
	return db_finish(c, r, err);
}

/* ---- deliveries ---- */

void delivery_row_done(struct delivery_row *r)
{
	free(r->body);
	memset(r, 0, sizeof(*r));
}

void delivery_rows_free(struct delivery_row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		delivery_row_done(&rows[i]);
	free(rows);
}

static int read_delivery(sqlite3_stmt *st, void *row)
{
	struct delivery_row *d = row;
	d->seq = sqlite3_column_int64(st, 0);
	db_get_text(st, 1, d->id, sizeof(d->id));
	db_get_text(st, 2, d->hook, sizeof(d->hook));
	db_get_text(st, 3, d->type, sizeof(d->type));
	int e = db_copy_text(st, 4, &d->body);
	d->created_ns = sqlite3_column_int64(st, 5);
	d->next_ns = sqlite3_column_int64(st, 6);
	d->tries = (unsigned)sqlite3_column_int(st, 7);
	d->status = (unsigned)sqlite3_column_int(st, 8);
	d->delivered = sqlite3_column_int(st, 9) != 0;
	db_get_text(st, 10, d->error, sizeof(d->error));
	return e;
}

static void done_delivery(void *row)
{
	delivery_row_done(row);
}

static const struct db_shape delivery_shape = { "look up what webhooks are told",
						sizeof(struct delivery_row), read_delivery,
						done_delivery };

int catalog_delivery_add(struct catalog *c, const struct delivery_row *row, struct err *err)
{
	int r = db_start(c, err);
	if (r < 0)
		return r;
	r = db_exec(
		c,
		"INSERT INTO deliveries (id, hook, type, body, created, next, tries, delivered,"
		" error) SELECT ?1, ?2, ?3, ?4, ?5, CASE WHEN n < ?6 THEN ?5 END, 0, 0,"
		" CASE WHEN n < ?6 THEN NULL ELSE 'too many wait already' END FROM"
		" (SELECT count(*) AS n FROM deliveries WHERE hook = ?2 AND next IS NOT NULL)",
		DB(db_text(row->id), db_text(row->hook), db_text(row->type), db_text(row->body),
		   db_int(row->created_ns), db_int(HOOK_PENDING_MAX)),
		"note what a webhook is to be told", err);
	if (r >= 0)
		r = db_note_effect(c, row->id, err);
	return db_finish(c, r, err);
}

int catalog_delivery_get(struct catalog *c, const char *id, struct delivery_row *out,
			 struct err *err)
{
	return db_find(c, "SELECT " DELIVERY_COLUMNS " FROM deliveries WHERE id = ?1",
		       DB(db_text(id)), &delivery_shape, out, "delivery", id, err);
}

/* One that is due, with its hook's owner behind it. */
struct due_row {
	struct delivery_row row;
	char owner[OWNER_SIZE];
};

static int read_due(sqlite3_stmt *st, void *row)
{
	struct due_row *d = row;
	db_get_text(st, DELIVERY_COLUMN_COUNT, d->owner, sizeof(d->owner));
	return read_delivery(st, &d->row);
}

static void done_due(void *row)
{
	delivery_row_done(&((struct due_row *)row)->row);
}

static const struct db_shape due_shape = { "look up what webhooks are due", sizeof(struct due_row),
					   read_due, done_due };

static bool may_begin(const struct due_row *d, const struct hook_busy *busy, size_t nbusy)
{
	unsigned of_owner = 0;
	for (size_t i = 0; i < nbusy; i++) {
		if (strcmp(busy[i].hook, d->row.hook) == 0)
			return false;
		of_owner += strcmp(busy[i].owner, d->owner) == 0;
	}
	return of_owner < HOOKS_BUSY_OF_OWNER;
}

int catalog_delivery_due(struct catalog *c, int64_t now_ns, const struct hook_busy *busy,
			 size_t nbusy, struct delivery_row *out, char owner[OWNER_SIZE],
			 struct err *err)
{
	sqlite3_stmt *st;
	struct due_row d;
	bool found = false;
	/* One of each hook: SQLite takes the other columns from the row that has the minimum. */
	int r = db_open_rows(c, &st,
			     "SELECT deliveries.seq, deliveries.id, hook, type, body,"
			     " deliveries.created, next, tries, status, delivered, error, owner,"
			     " min(next) FROM deliveries JOIN webhooks ON webhooks.id = hook"
			     " WHERE next <= ?1 AND active GROUP BY hook ORDER BY min(next)",
			     DB(db_int(now_ns)), err);
	if (r < 0)
		return r;
	while (!found && (r = db_next(c, st, &due_shape, &d, err)) > 0) {
		found = may_begin(&d, busy, nbusy);
		if (!found)
			done_due(&d);
	}
	db_close_rows(c, st);
	if (found) {
		*out = d.row;
		memcpy(owner, d.owner, OWNER_SIZE);
	}
	return r < 0 ? r : found;
}

int catalog_delivery_end(struct catalog *c, const struct delivery_row *row, struct err *err)
{
	return db_change(c,
			 "UPDATE deliveries SET next = ?2, tries = ?3, status = ?4,"
			 " delivered = ?5, error = ?6 WHERE seq = ?1",
			 DB(db_int(row->seq), db_int_or_null(row->next_ns), db_int(row->tries),
			    db_int(row->status), db_int(row->delivered),
			    db_text_or_null(row->error)),
			 "note how a webhook was told", err);
}

int catalog_delivery_list(struct catalog *c, const char *hook, int64_t before, size_t max,
			  struct delivery_row **rows, size_t *n, struct err *err)
{
	return db_select(c,
			 "SELECT " DELIVERY_COLUMNS " FROM deliveries WHERE hook = ?1 AND seq < ?2"
			 " ORDER BY seq DESC LIMIT ?3",
			 DB(db_text(hook), db_int(before ? before : INT64_MAX),
			    db_int((int64_t)max)),
			 &delivery_shape, rows, n, err);
}
