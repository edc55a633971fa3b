/* Rows of repositories. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapd/catalog_db.h"
#include "snapd/repos.h"

#define COLUMNS "number, name, url, is_path, is_global, owner, created, fetched, head"

static const char id_prefix[] = "repo_";

void repo_lease_id(char out[ID_SIZE], uint32_t number)
{
	(void)snprintf(out, ID_SIZE, "%s%08x", id_prefix, number);
}

bool repo_id_parse(const char *s, uint32_t *number)
{
	if (strlen(s) != ID_CHARS || strncmp(s, id_prefix, 5) != 0 ||
	    strspn(s + 5, "0123456789abcdef") != 8)
		return false;
	*number = (uint32_t)strtoul(s + 5, NULL, 16);
	return true;
}

void repo_row_done(struct repo_row *r)
{
	free(r->url);
	memset(r, 0, sizeof(*r));
}

void repo_rows_free(struct repo_row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		repo_row_done(&rows[i]);
	free(rows);
}

static int read_row(sqlite3_stmt *st, void *row)
{
	struct repo_row *r = row;
	const char *name = (const char *)sqlite3_column_text(st, 1);
	const char *head = (const char *)sqlite3_column_text(st, 8);
	*r = (struct repo_row){
		.number = (uint32_t)sqlite3_column_int64(st, 0),
		.is_path = sqlite3_column_int(st, 3) != 0,
		.global = sqlite3_column_int(st, 4) != 0,
		.created_ns = sqlite3_column_int64(st, 6),
		.fetched_ns = sqlite3_column_int64(st, 7),
	};
	db_get_text(st, 5, r->owner, sizeof(r->owner));
	(void)snprintf(r->name, sizeof(r->name), "%s", name ? name : "");
	(void)snprintf(r->head, sizeof(r->head), "%s", head ? head : "");
	return db_copy_text(st, 2, &r->url);
}

static void done_row(void *row)
{
	repo_row_done(row);
}

static const struct db_shape shape = { "look up repositories", sizeof(struct repo_row), read_row,
				       done_row };

int catalog_repo_get(struct catalog *c, const char *id, struct repo_row *out, struct err *err)
{
	sqlite3_stmt *st;
	uint32_t number = 0;
	if (!repo_id_parse(id, &number))
		return err_set(err, -ENOENT, "no repository \"%s\"", id);
	int r = db_read(c, &st, "SELECT " COLUMNS " FROM repos WHERE number = ?1", err);
	if (r < 0)
		return r;
	sqlite3_bind_int64(st, 1, number);
	return db_the(c, st, &shape, out, "repository", id, err);
}

int catalog_repo_find(struct catalog *c, const char *key, struct repo_row **rows, size_t *n,
		      struct err *err)
{
	sqlite3_stmt *st;
	char owner[OWNER_SIZE];
	uint32_t number = 0;
	bool is_id = repo_id_parse(key, &number), owned = strchr(key, '/') != NULL;
	int r = db_read(c, &st,
			is_id	? "SELECT " COLUMNS " FROM repos WHERE number = ?1"
			: owned ? "SELECT " COLUMNS " FROM repos WHERE name = ?1 AND owner = ?2"
				: "SELECT " COLUMNS " FROM repos WHERE name = ?1",
			err);
	if (r < 0)
		return r;
	const char *name = db_split_key(key, owner);
	if (is_id)
		sqlite3_bind_int64(st, 1, number);
	else
		sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
	if (owned)
		sqlite3_bind_text(st, 2, owner, -1, SQLITE_STATIC);
	return db_list(c, st, &shape, rows, n, err);
}

int catalog_repo_list(struct catalog *c, struct repo_row **rows, size_t *n, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_read(c, &st, "SELECT " COLUMNS " FROM repos ORDER BY number DESC", err);
	return r < 0 ? r : db_list(c, st, &shape, rows, n, err);
}

static int insert(struct catalog *c, const struct repo_row *row, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_prepare(c, &st,
			   "INSERT INTO repos (" COLUMNS ")"
			   " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
			   err);
	if (r < 0)
		return r;
	if (row->number)
		sqlite3_bind_int64(st, 1, row->number);
	sqlite3_bind_text(st, 2, row->name, -1, SQLITE_STATIC);
	sqlite3_bind_text(st, 3, row->url ? row->url : "", -1, SQLITE_STATIC);
	sqlite3_bind_int(st, 4, row->is_path);
	sqlite3_bind_int(st, 5, row->global);
	sqlite3_bind_text(st, 6, row->owner[0] ? row->owner : c->self, -1, SQLITE_STATIC);
	sqlite3_bind_int64(st, 7, row->created_ns);
	sqlite3_bind_int64(st, 8, row->fetched_ns);
	db_bind_text(st, 9, row->head);
	r = db_run(c, st, err, "insert a repository");
	if (r == -EEXIST)
		(void)err_set(err, r, "there is a repository \"%s\" already", row->name);
	return r;
}

static int run_numbered(struct catalog *c, const char *sql, uint32_t number, struct err *err,
			const char *what)
{
	sqlite3_stmt *st;
	int r = db_prepare(c, &st, sql, err);
	if (r < 0)
		return r;
	sqlite3_bind_int64(st, 1, number);
	return db_run(c, st, err, what);
}

int catalog_repo_number(struct catalog *c, uint32_t *out, struct err *err)
{
	/* A name that nobody can give: nothing sees the row, but its number is used up. */
	const struct repo_row row = { .name = "/" };
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	uint32_t number = 0;
	r = db_begin(c, err);
	if (r >= 0) {
		r = insert(c, &row, err);
		if (r >= 0)
			number = (uint32_t)sqlite3_last_insert_rowid(c->db);
		if (r >= 0)
			r = run_numbered(c, "DELETE FROM repos WHERE number = ?1", number, err,
					 "take a repository's number");
		r = db_end(c, r, err);
	}
	db_unlock(c);
	if (r >= 0)
		*out = number;
	return r;
}

int catalog_repo_insert(struct catalog *c, const struct repo_row *row, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_begin(c, err);
	if (r >= 0) {
		r = insert(c, row, err);
		if (r >= 0)
			r = db_note_owner(c, row->owner, err);
		r = db_end(c, r, err);
	}
	db_unlock(c);
	return r;
}

int catalog_repo_fetched(struct catalog *c, const struct repo_row *row, struct err *err)
{
	sqlite3_stmt *st;
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_prepare(c, &st, "UPDATE repos SET fetched = ?2, head = ?3 WHERE number = ?1", err);
	if (r >= 0) {
		sqlite3_bind_int64(st, 1, row->number);
		sqlite3_bind_int64(st, 2, row->fetched_ns);
		db_bind_text(st, 3, row->head);
		r = db_run(c, st, err, "change a repository");
	}
	db_unlock(c);
	return r;
}

int catalog_repo_delete(struct catalog *c, uint32_t number, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = run_numbered(c, "DELETE FROM repos WHERE number = ?1", number, err,
			 "delete a repository");
	db_unlock(c);
	return r;
}

/* One of the two tables: how many, and one of them. */
static int count_pins(struct catalog *c, const char *sql, uint32_t number, uint64_t *n,
		      char one[NAME_SIZE], struct err *err)
{
	sqlite3_stmt *st;
	int r = db_prepare(c, &st, sql, err);
	if (r < 0)
		return r;
	sqlite3_bind_int64(st, 1, number);
	int rc = sqlite3_step(st);
	if (rc == SQLITE_ROW) {
		const char *s = (const char *)sqlite3_column_text(st, 1);
		*n = (uint64_t)sqlite3_column_int64(st, 0);
		if (s && one && !one[0])
			(void)snprintf(one, NAME_SIZE, "%s", s);
	} else {
		r = db_error(c, rc, err, "look who uses a repository");
	}
	sqlite3_reset(st);
	return r;
}

int catalog_repo_pins(struct catalog *c, uint32_t number, uint64_t *workspaces, uint64_t *snapshots,
		      char one[NAME_SIZE], struct err *err)
{
	if (one)
		one[0] = '\0';
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = count_pins(c,
		       "SELECT count(*), min(ifnull(was, name)) FROM workspaces"
		       " WHERE git IS NOT NULL AND json_extract(git, '$.repo') = ?1",
		       number, workspaces, one, err);
	if (r >= 0)
		r = count_pins(c,
			       "SELECT count(*), min(id) FROM snapshots"
			       " WHERE git IS NOT NULL AND json_extract(git, '$.repo') = ?1",
			       number, snapshots, one, err);
	db_unlock(c);
	return r;
}
