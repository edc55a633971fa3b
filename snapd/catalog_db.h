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
	int64_t audit_max;       /* AUDIT_MAX, or what a test says */
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
	struct key_work *works; /* for which keys somebody works (catalog_journal.c) */
	pthread_cond_t wake; /* of the checkpoint thread, and of who waits for it */
	pthread_t thread;
	bool stop, want_checkpoint, checkpointing;
};

/* Locks, or -EUCLEAN (and unlocked) while the catalog is damaged. */
int db_lock(struct catalog *c, struct err *err);
void db_unlock(struct catalog *c);
/* The result for SQLite's `rc`, in words; remembers damage. The lock is held. */
int db_error(struct catalog *c, int rc, struct err *err, const char *what);
/* The same of either connection, and of either one's lock. */
int db_error_of(struct catalog *c, sqlite3 *db, int rc, struct err *err, const char *what);
int db_lock_sound(struct catalog *c, pthread_mutex_t *lock, struct err *err);
/* A transaction: the lock and BEGIN, then COMMIT where r >= 0, else ROLLBACK, and unlocked. The end
 * returns 0, r, or the commit's failure. */
int db_start(struct catalog *c, struct err *err);
int db_finish(struct catalog *c, int r, struct err *err);

/* A statement's ?1, ?2, … : DB(db_text(id), db_int(n)); each has one, and those that it hasn't are
 * ignored. What they point to is borrowed until the call that gets them returns. */
struct db_value {
	enum { DB_END, DB_NULL, DB_INT, DB_TEXT, DB_BLOB } kind;
	int64_t n; /* also a blob's bytes */
	const void *p;
};
#define DB(...) ((const struct db_value[]){ __VA_ARGS__ __VA_OPT__(, ){ .kind = DB_END } })

static inline struct db_value db_int(int64_t n)
{
	return (struct db_value){ .kind = DB_INT, .n = n };
}

/* 0 is NULL. */
static inline struct db_value db_int_or_null(int64_t n)
{
	return (struct db_value){ .kind = n ? DB_INT : DB_NULL, .n = n };
}

/* A pointer to a number of any kind; NULL is NULL. */
#define DB_INT_AT(p) ((p) ? db_int(*(p)) : (struct db_value){ .kind = DB_NULL })

/* NULL is NULL. */
static inline struct db_value db_text(const char *s)
{
	return (struct db_value){ .kind = s ? DB_TEXT : DB_NULL, .p = s };
}

/* "" and NULL are NULL. */
static inline struct db_value db_text_or_null(const char *s)
{
	return db_text(s && *s ? s : NULL);
}

/* No bytes are an empty blob; NULL is NULL. */
static inline struct db_value db_blob(const void *p, size_t len)
{
	return (struct db_value){ .kind = p ? DB_BLOB : DB_NULL, .n = (int64_t)len, .p = p };
}

/* `sql` is a literal everywhere: statements are kept by its address. `what` is done by it, for the
 * error. -EEXIST for a broken UNIQUE.
 * db_exec: with the lock, in a transaction or alone; how many rows it changed.
 * db_change: takes the lock; 0. …_the: 0, or -ENOENT, 'no NOUN "KEY"', where it changed none. */
int db_exec(struct catalog *c, const char *sql, const struct db_value *values, const char *what,
	    struct err *err);
int db_exec_the(struct catalog *c, const char *sql, const struct db_value *values,
		const char *what, const char *noun, const char *key, struct err *err);
int db_change(struct catalog *c, const char *sql, const struct db_value *values, const char *what,
	      struct err *err);
int db_change_the(struct catalog *c, const char *sql, const struct db_value *values,
		  const char *what, const char *noun, const char *key, struct err *err);
/* With the lock: whether the SELECT finds a row; 1 or 0. */
int db_has(struct catalog *c, const char *sql, const struct db_value *values, const char *what,
	   struct err *err);

/* What a row of a SELECT becomes: `size` bytes of zeros that `read` fills in, 0 or -ENOMEM. `done`
 * (NULL: nothing to free) frees what one holds that `read` has seen, and doesn't free itself. */
struct db_shape {
	const char *what; /* is done by such a SELECT: "list users" */
	size_t size;
	int (*read)(sqlite3_stmt *st, void *row);
	void (*done)(void *row);
};
/* With the lock: the first row: 1; 0 when there is none. */
int db_first(struct catalog *c, const char *sql, const struct db_value *values,
	     const struct db_shape *shape, void *row, struct err *err);
/* These two without it, on the connection that waits for no writer: they see all that was committed
 * before. db_select: all rows; `rows` points to a pointer to such structs, which the caller frees.
 * db_find: the first one, or -ENOENT with the words 'no NOUN "KEY"'. */
int db_select(struct catalog *c, const char *sql, const struct db_value *values,
	      const struct db_shape *shape, void *rows, size_t *n, struct err *err);
int db_find(struct catalog *c, const char *sql, const struct db_value *values,
	    const struct db_shape *shape, void *row, const char *noun, const char *key,
	    struct err *err);
/* Those of a list_want, by an index: DB(DB_LIST_VALUES(want), …) are ?1 to ?6, others follow.
 * `born` and `num` are the columns that order `from`: `created` and `seq` of `table`, or of its
 * labels. */
#define DB_LIST(columns, from, table, born, num, when)                                       \
	"SELECT " columns " FROM " from " WHERE " when " AND " born " <= ?1 AND (" born      \
	" < ?1 OR " num " < ifnull((SELECT seq FROM " table " WHERE id = ?2), 0))"           \
	" AND (?3 IS NULL OR owner = ?3 OR visibility = 2 OR team IN"                        \
	" (SELECT team FROM members WHERE owner = ?3)) ORDER BY " born " DESC, " num         \
	" DESC LIMIT ?4"
#define DB_LIST_LABELLED(columns, table, as, kind, when)                                     \
	DB_LIST(columns, "labels CROSS JOIN " table as " ON seq = num", table, "born", "num", \
		"kind = " kind " AND key = ?5 AND value = ?6 AND " when)
#define DB_LIST_VALUES(w)                                                                    \
	db_int((w)->after_id ? (w)->after_ns : INT64_MAX), db_text((w)->after_id),           \
		db_text((w)->sees), db_int((w)->max ? (int64_t)(w)->max : -1),               \
		db_text((w)->label), db_text((w)->value)
/* The same row by row: db_open_rows, db_next (1, or 0 at the end), db_close_rows. */
int db_open_rows(struct catalog *c, sqlite3_stmt **st, const char *sql,
		 const struct db_value *values, struct err *err);
int db_next(struct catalog *c, sqlite3_stmt *st, const struct db_shape *shape, void *row,
	    struct err *err);
void db_close_rows(struct catalog *c, sqlite3_stmt *st);

/* Where this thread works for an Idempotency-Key: that it made `id`. In the transaction that does.
 * (catalog_journal.c) */
int db_note_effect(struct catalog *c, const char *id, struct err *err);
void db_forget_works(struct catalog *c);
/* That the owner ("": the service's own) has no more workspaces and snapshots than its quota
 * allows, in the transaction that made one, for whoever isn't the service itself. -EDQUOT.
 * (catalog_quota.c) */
int db_keep_quota(struct catalog *c, const char *owner, struct err *err);
/* That there is or was such an owner: it won't be given to a new user. (catalog_access.c) */
int db_note_owner(struct catalog *c, const char *owner, struct err *err);
/* catalog_snap_insert in a transaction; without a workspace. */
int db_insert_snap(struct catalog *c, const struct snap_row *row, struct err *err);
/* catalog_ws_set_head with the lock held. */
int db_set_head(struct catalog *c, const char *id, const char *head, const void *stack, size_t len,
		struct err *err);

/* Columns "owner, visibility, team, expires, on_expiry" from i on; and their five values. */
enum { OWNED_COLUMNS = 5 };
#define DB_OWNED "owner, visibility, team, expires, on_expiry"
/* Whether ?2 (NULL: everybody) sees a row with them. */
#define DB_SEEN                                                                       \
	"(?2 IS NULL OR owner = ?2 OR visibility = 2 OR (visibility = 1 AND team IN " \
	"(SELECT team FROM members WHERE owner = ?2)))"
void db_read_owned(sqlite3_stmt *st, int i, struct owned *out);
#define DB_OWN(c, own)                                                                  \
	db_text((own)->owner[0] ? (own)->owner : (c)->self), db_int((own)->visibility), \
		db_text_or_null((own)->team), db_int_or_null((own)->expires_ns),        \
		db_int((own)->on_expiry)
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

#endif
