/* The catalog's statements: kept prepared, given values, and what they find as structs. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/array.h"
#include "snapd/catalog_db.h"

static int prepare(struct catalog *c, sqlite3 *db, struct db_statements *known, sqlite3_stmt **out,
		   const char *sql, struct err *err)
{
	for (size_t i = 0; i < known->n; i++) {
		if (known->of[i].sql == sql) {
			*out = known->of[i].stmt;
			return 0;
		}
	}
	if (known->n == CATALOG_STATEMENTS)
		return err_set(err, -ENOBUFS, "too many statements of the catalog");
	sqlite3_stmt *st;
	int rc = sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &st, NULL);
	/* Ours always fit our tables: where one doesn't, the schema's text is damaged. */
	if (rc == SQLITE_ERROR)
		rc = SQLITE_CORRUPT;
	if (rc != SQLITE_OK)
		return db_error_of(c, db, rc, err, "prepare");
	known->of[known->n].sql = sql;
	known->of[known->n++].stmt = st;
	*out = st;
	return 0;
}

static int bind(struct catalog *c, sqlite3_stmt *st, const struct db_value *values,
		const char *what, struct err *err)
{
	int rc = SQLITE_OK, n = sqlite3_bind_parameter_count(st);
	const struct db_value *v = values;
	for (int i = 1; i <= n && v->kind != DB_END && rc == SQLITE_OK; i++, v++) {
		switch (v->kind) {
		case DB_INT:
			rc = sqlite3_bind_int64(st, i, v->n);
			break;
		case DB_TEXT:
			rc = sqlite3_bind_text(st, i, v->p, -1, SQLITE_STATIC);
			break;
		case DB_BLOB:
			rc = sqlite3_bind_blob64(st, i, v->p, (sqlite3_uint64)v->n, SQLITE_STATIC);
			break;
		default:
			rc = sqlite3_bind_null(st, i);
		}
	}
	assert(rc != SQLITE_OK || v - values == n); /* one that is forgotten would be NULL */
	if (rc == SQLITE_OK)
		return 0;
	sqlite3_clear_bindings(st);
	return db_error_of(c, sqlite3_db_handle(st), rc, err, what);
}

static void give_back(sqlite3_stmt *st)
{
	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
}

/* Of the connection that changes. With the lock. */
static int open_write(struct catalog *c, sqlite3_stmt **st, const char *sql,
		      const struct db_value *values, const char *what, struct err *err)
{
	int r = prepare(c, c->db, &c->writes, st, sql, err);
	return r < 0 ? r : bind(c, *st, values, what, err);
}

int db_has(struct catalog *c, const char *sql, const struct db_value *values, const char *what,
	   struct err *err)
{
	sqlite3_stmt *st;
	int r = open_write(c, &st, sql, values, what, err);
	if (r < 0)
		return r;
	int rc = sqlite3_step(st);
	r = rc == SQLITE_ROW ? 1 : rc == SQLITE_DONE ? 0 : db_error(c, rc, err, what);
	give_back(st);
	return r;
}

int db_exec(struct catalog *c, const char *sql, const struct db_value *values, const char *what,
	    struct err *err)
{
	int r = db_has(c, sql, values, what, err);
	return r < 0 ? r : sqlite3_changes(c->db);
}

static int none(const char *noun, const char *key, struct err *err)
{
	return err_set(err, -ENOENT, "no %s \"%.200s\"", noun, key);
}

int db_exec_the(struct catalog *c, const char *sql, const struct db_value *values,
		const char *what, const char *noun, const char *key, struct err *err)
{
	int r = db_exec(c, sql, values, what, err);
	return r == 0 ? none(noun, key, err) : r < 0 ? r : 0;
}

int db_change(struct catalog *c, const char *sql, const struct db_value *values, const char *what,
	      struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_exec(c, sql, values, what, err);
	db_unlock(c);
	return r < 0 ? r : 0;
}

int db_change_the(struct catalog *c, const char *sql, const struct db_value *values,
		  const char *what, const char *noun, const char *key, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_exec_the(c, sql, values, what, noun, key, err);
	db_unlock(c);
	return r;
}

int db_open_rows(struct catalog *c, sqlite3_stmt **st, const char *sql,
		 const struct db_value *values, struct err *err)
{
	int r = db_lock_sound(c, &c->reading, err);
	if (r < 0)
		return r;
	r = prepare(c, c->reader, &c->reads, st, sql, err);
	if (r >= 0)
		r = bind(c, *st, values, "look up", err);
	if (r < 0)
		pthread_mutex_unlock(&c->reading);
	return r;
}

void db_close_rows(struct catalog *c, sqlite3_stmt *st)
{
	give_back(st);
	pthread_mutex_unlock(&c->reading);
}

int db_next(struct catalog *c, sqlite3_stmt *st, const struct db_shape *shape, void *row,
	    struct err *err)
{
	int rc = sqlite3_step(st);
	if (rc == SQLITE_DONE)
		return 0;
	if (rc != SQLITE_ROW)
		return db_error_of(c, sqlite3_db_handle(st), rc, err, shape->what);
	memset(row, 0, shape->size); /* not before: the key that is bound may lie in it */
	if (shape->read(st, row) >= 0)
		return 1;
	if (shape->done)
		shape->done(row);
	return err_set(err, -ENOMEM, "%s: out of memory", shape->what);
}

int db_first(struct catalog *c, const char *sql, const struct db_value *values,
	     const struct db_shape *shape, void *row, struct err *err)
{
	sqlite3_stmt *st;
	int r = open_write(c, &st, sql, values, shape->what, err);
	if (r < 0)
		return r;
	r = db_next(c, st, shape, row, err);
	give_back(st);
	return r;
}

int db_select(struct catalog *c, const char *sql, const struct db_value *values,
	      const struct db_shape *shape, void *rows, size_t *n, struct err *err)
{
	sqlite3_stmt *st;
	char *all = NULL;
	size_t count = 0, cap = 0;
	int r = db_open_rows(c, &st, sql, values, err);
	if (r < 0)
		return r;
	do {
		char *more = array_room(all, count, &cap, shape->size);
		if (!more) {
			r = err_set(err, -ENOMEM, "%s: out of memory", shape->what);
			break;
		}
		all = more;
		r = db_next(c, st, shape, all + count * shape->size, err);
		count += r > 0;
	} while (r > 0);
	db_close_rows(c, st);
	if (r < 0) {
		for (size_t i = 0; i < count && shape->done; i++)
			shape->done(all + i * shape->size);
		free(all);
		return r;
	}
	memcpy(rows, &all, sizeof(all)); /* a pointer of the caller's type */
	*n = count;
	return 0;
}

int db_find(struct catalog *c, const char *sql, const struct db_value *values,
	    const struct db_shape *shape, void *row, const char *noun, const char *key,
	    struct err *err)
{
	sqlite3_stmt *st;
	int r = db_open_rows(c, &st, sql, values, err);
	if (r < 0)
		return r;
	r = db_next(c, st, shape, row, err);
	db_close_rows(c, st);
	return r == 0 ? none(noun, key, err) : r < 0 ? r : 0;
}

int db_start(struct catalog *c, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_exec(c, "BEGIN IMMEDIATE", DB(), "begin", err);
	if (r < 0)
		db_unlock(c);
	return r < 0 ? r : 0;
}

int db_finish(struct catalog *c, int r, struct err *err)
{
	int e = r < 0 ? r : db_exec(c, "COMMIT", DB(), "commit", err);
	if (e < 0)
		(void)db_exec(c, "ROLLBACK", DB(), "roll back", NULL); /* the first is told */
	db_unlock(c);
	return e < 0 ? e : 0;
}
