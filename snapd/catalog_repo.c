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
	*r = (struct repo_row){
		.number = (uint32_t)sqlite3_column_int64(st, 0),
		.is_path = sqlite3_column_int(st, 3) != 0,
		.global = sqlite3_column_int(st, 4) != 0,
		.created_ns = sqlite3_column_int64(st, 6),
		.fetched_ns = sqlite3_column_int64(st, 7),
	};
	db_get_text(st, 5, r->owner, sizeof(r->owner));
	db_get_text(st, 1, r->name, sizeof(r->name));
	db_get_text(st, 8, r->head, sizeof(r->head));
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
	uint32_t number = 0;
	if (!repo_id_parse(id, &number))
		return err_set(err, -ENOENT, "no repository \"%s\"", id);
	return db_find(c, "SELECT " COLUMNS " FROM repos WHERE number = ?1", DB(db_int(number)),
		       &shape, out, "repository", id, err);
}

int catalog_repo_find(struct catalog *c, const char *key, struct repo_row **rows, size_t *n,
		      struct err *err)
{
	char owner[OWNER_SIZE];
	uint32_t number = 0;
	bool is_id = repo_id_parse(key, &number), owned = strchr(key, '/') != NULL;
	const char *name = db_split_key(key, owner);
	return db_select(c,
			 is_id   ? "SELECT " COLUMNS " FROM repos WHERE number = ?1"
			 : owned ? "SELECT " COLUMNS " FROM repos WHERE name = ?2 AND owner = ?3"
				 : "SELECT " COLUMNS " FROM repos WHERE name = ?2",
			 DB(db_int(number), db_text(name), db_text(owner)), &shape, rows, n, err);
}

int catalog_repo_list(struct catalog *c, struct repo_row **rows, size_t *n, struct err *err)
{
	return db_select(c, "SELECT " COLUMNS " FROM repos ORDER BY number DESC", DB(), &shape,
			 rows, n, err);
}

static int insert(struct catalog *c, const struct repo_row *row, struct err *err)
{
	int r = db_exec(c,
			"INSERT INTO repos (" COLUMNS ")"
			" VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
			DB(db_int_or_null(row->number), db_text(row->name),
			   db_text(row->url ? row->url : ""), db_int(row->is_path),
			   db_int(row->global), db_text(row->owner[0] ? row->owner : c->self),
			   db_int(row->created_ns), db_int(row->fetched_ns),
			   db_text_or_null(row->head)),
			"insert a repository", err);
	if (r == -EEXIST)
		(void)err_set(err, r, "there is a repository \"%s\" already", row->name);
	return r;
}

int catalog_repo_number(struct catalog *c, uint32_t *out, struct err *err)
{
	/* A name that nobody can give: nothing sees the row, but its number is used up. */
	const struct repo_row row = { .name = "/" };
	uint32_t number = 0;
	int r = db_start(c, err);
	if (r < 0)
		return r;
	r = insert(c, &row, err);
	if (r >= 0)
		number = (uint32_t)sqlite3_last_insert_rowid(c->db);
	if (r >= 0)
		r = db_exec(c, "DELETE FROM repos WHERE number = ?1", DB(db_int(number)),
			    "take a repository's number", err);
	r = db_finish(c, r, err);
	if (r >= 0)
		*out = number;
	return r;
}

int catalog_repo_insert(struct catalog *c, const struct repo_row *row, struct err *err)
{
	int r = db_start(c, err);
	if (r < 0)
		return r;
	r = insert(c, row, err);
	if (r >= 0)
		r = db_note_owner(c, row->owner, err);
	return db_finish(c, r, err);
}

int catalog_repo_fetched(struct catalog *c, const struct repo_row *row, struct err *err)
{
	return db_change(c, "UPDATE repos SET fetched = ?2, head = ?3 WHERE number = ?1",
			 DB(db_int(row->number), db_int(row->fetched_ns),
			    db_text_or_null(row->head)),
			 "change a repository", err);
}

int catalog_repo_delete(struct catalog *c, uint32_t number, struct err *err)
{
	return db_change(c, "DELETE FROM repos WHERE number = ?1", DB(db_int(number)),
			 "delete a repository", err);
}

/* Of one of the two tables: how many there are, and one of them. */
struct pins {
	uint64_t n;
	char one[NAME_SIZE];
};

static int read_pins(sqlite3_stmt *st, void *row)
{
	struct pins *p = row;
	p->n = (uint64_t)sqlite3_column_int64(st, 0);
	db_get_text(st, 1, p->one, sizeof(p->one));
	return 0;
}

int catalog_repo_pins(struct catalog *c, uint32_t number, const char *who, uint64_t *workspaces,
		      uint64_t *snapshots, char one[NAME_SIZE], struct err *err)
{
	static const struct db_shape pins_shape = { "look who uses a repository",
						    sizeof(struct pins), read_pins, NULL };
	struct pins ws = { 0 }, sn = { 0 };
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_first(c,
		     "SELECT count(*), min(ifnull(was, name)) FROM workspaces"
		     " WHERE git IS NOT NULL AND json_extract(git, '$.repo') = ?1 AND " DB_SEEN,
		     DB(db_int(number), db_text(who)), &pins_shape, &ws, err);
	if (r >= 0)
		r = db_first(c,
			     "SELECT count(*), min(id) FROM snapshots"
			     " WHERE git IS NOT NULL AND json_extract(git, '$.repo') = ?1"
			     " AND " DB_SEEN,
			     DB(db_int(number), db_text(who)), &pins_shape, &sn, err);
	db_unlock(c);
	if (r < 0)
		return r;
	*workspaces = ws.n;
	*snapshots = sn.n;
	if (one)
		(void)snprintf(one, NAME_SIZE, "%s", ws.n ? ws.one : sn.one);
	return 0;
}
