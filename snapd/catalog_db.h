/* What the catalog's files share: two SQLite connections, each under a lock of its own. One makes
 * all changes; the other only reads, what is committed, and waits for no writer. Not for others. */
#ifndef BOUGH_SNAPD_CATALOG_DB_H
#define BOUGH_SNAPD_CATALOG_DB_H

#include <pthread.h>
#include <errno.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "snapd/catalog.h"
#include "snapd/principal.h"

enum { CATALOG_STATEMENTS = 192 };

struct db_statements {
	size_t n;
	struct {
		const char *sql; /* literals: compared by address */
		sqlite3_stmt *stmt;
	} of[CATALOG_STATEMENTS];
};

struct catalog {
	const struct io *io;
	char *root, *path;
	char self[OWNER_SIZE];   /* whoever boughd runs as */
	pthread_mutex_t reading; /* the next two; is taken after `lock` where both are */
	sqlite3 *reader;         /* NULL while damaged */
	struct db_statements reads;
	atomic_bool is_damaged, harmed; /* `damage` is written; somebody has begun to */
	char damage[256];               /* "": sound */
	pthread_mutex_t lock;           /* all below */
	sqlite3 *db;                    /* NULL while damaged */
	struct db_statements writes;
	int wal_fd;
	uint32_t next_range; /* of ids, which sandboxes take (catalog_sandbox.h) */
	off_t reserved;      /* bytes of the log that have their place on the disk */
	bool dirty;          /* a commit since the last sync began */
	pthread_cond_t wake; /* of the checkpoint thread, and of who waits for it */
	pthread_t thread;
	bool stop, want_checkpoint, checkpointing;
};

/* Locks, or -EUCLEAN (and unlocked) while the catalog is damaged. */
int db_lock(struct catalog *c, struct err *err);
void db_unlock(struct catalog *c);
/* The result for SQLite's `rc`, in words; remembers damage. The lock is held. */
int db_error(struct catalog *c, int rc, struct err *err, const char *what);
/* A prepared statement, reset; `sql` is a literal. Owned by the catalog. */
int db_prepare(struct catalog *c, sqlite3_stmt **out, const char *sql, struct err *err);
/* Lock and statement, and both given back. */
int db_use(struct catalog *c, sqlite3_stmt **st, const char *sql, struct err *err);
/* The same for a SELECT, on the connection that waits for no writer: it sees all that was committed
 * before. Not with the lock of db_lock. */
int db_read(struct catalog *c, sqlite3_stmt **st, const char *sql, struct err *err);
void db_leave(struct catalog *c, sqlite3_stmt *st);
/* Steps a statement that gives no rows, and resets it. -EEXIST for a broken UNIQUE. */
int db_run(struct catalog *c, sqlite3_stmt *st, struct err *err, const char *what);

/* What a row of a SELECT becomes: `size` bytes of zeros that `read` fills in, 0 or -ENOMEM. `done`
 * (NULL: nothing to free) frees what one holds that `read` has seen, and doesn't free itself. */
struct db_shape {
	const char *what; /* is done by such a SELECT: "list users" */
	size_t size;
	int (*read)(sqlite3_stmt *st, void *row);
	void (*done)(void *row);
};
/* The rows of a bound statement, `max` of them at most, and it is reset. `rows` points to a pointer
 * to such structs; the caller frees them. With the lock. */
int db_rows(struct catalog *c, sqlite3_stmt *st, const struct db_shape *shape, size_t max,
	    void *rows, size_t *n, struct err *err);
/* The first row: 1; 0 when there is none. With the lock. */
int db_row(struct catalog *c, sqlite3_stmt *st, const struct db_shape *shape, void *row,
	   struct err *err);
/* As db_row, without the reset: for the next row. */
int db_next(struct catalog *c, sqlite3_stmt *st, const struct db_shape *shape, void *row,
	    struct err *err);
/* db_rows and db_row of a statement from db_use or db_read, and db_leave. db_the: 0, or -ENOENT
 * with the words 'no NOUN "KEY"'. */
int db_list(struct catalog *c, sqlite3_stmt *st, const struct db_shape *shape, void *rows,
	    size_t *n, struct err *err);
int db_the(struct catalog *c, sqlite3_stmt *st, const struct db_shape *shape, void *row,
	   const char *noun, const char *key, struct err *err);

int db_begin(struct catalog *c, struct err *err);
/* Commits where r >= 0, else rolls back; returns r or the commit's failure. */
int db_end(struct catalog *c, int r, struct err *err);

/* Where this thread works for an Idempotency-Key: that it made `id`. In the transaction that does.
 * (catalog_journal.c) */
int db_note_effect(struct catalog *c, const char *id, struct err *err);
/* That the owner ("": the service's own) has no more workspaces and snapshots than its quota
 * allows, in the transaction that made one, for whoever isn't the service itself. -EDQUOT.
 * (catalog_quota.c) */
int db_keep_quota(struct catalog *c, const char *owner, struct err *err);
/* That there is or was such an owner: it won't be given to a new user. (catalog_access.c) */
int db_note_owner(struct catalog *c, const char *owner, struct err *err);
/* catalog_ws_set_head with the lock held. */
int db_set_head(struct catalog *c, const char *id, const char *head, const void *stack, size_t len,
		struct err *err);

/* Columns "owner, visibility, team, expires, on_expiry" from i on; and their five parameters. */
enum { OWNED_COLUMNS = 5 };
#define DB_OWNED "owner, visibility, team, expires, on_expiry"
void db_read_owned(sqlite3_stmt *st, int i, struct owned *out);
void db_bind_owned(struct catalog *c, sqlite3_stmt *st, int i, const struct owned *own);
/* A key "OWNER/NAME", or the name of the owner whom this thread works for; borrowed from `key`. */
const char *db_split_key(const char *key, char owner[OWNER_SIZE]);

/* The column's text; "" for NULL. */
static inline void db_get_text(sqlite3_stmt *st, int i, char *out, size_t size)
{
	const char *s = (const char *)sqlite3_column_text(st, i);
	(void)snprintf(out, size, "%s", s ? s : "");
}

/* The column's text, which the caller frees; NULL for NULL. 0 or -ENOMEM. */
static inline int db_copy_text(sqlite3_stmt *st, int i, char **out)
{
	const char *s = (const char *)sqlite3_column_text(st, i);
	*out = s ? strdup(s) : NULL;
	return s && !*out ? -ENOMEM : 0;
}

static inline void db_bind_text(sqlite3_stmt *st, int i, const char *s) /* "" and NULL: NULL */
{
	if (s && *s)
		sqlite3_bind_text(st, i, s, -1, SQLITE_STATIC);
	else
		sqlite3_bind_null(st, i);
}

#endif
