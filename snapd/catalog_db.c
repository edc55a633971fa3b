/* The catalog's connection: opening, schema versions, damage, checkpoints. */
#include "snapd/catalog_db.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "snapd/journal.h"
#include "snapd/principal.h"

enum {
	WAL_PAGES = 1000,     /* 4 MB: then it is copied back into the database */
	WAL_PAGES_MAX = 4000, /* then writers wait until all of it is */
	/* On a full disk, workspaces and snapshots must be deletable: some 60 deletions fit. */
	WAL_RESERVE = 1 << 20,
	WAL_FRAME = 4096 + 24,
};

/* Ten letters of an id. */
#define ID_LETTER  "||substr('abcdefghijklmnopqrstuvwxyz234567', 1 + (random() & 31), 1)"
#define ID_LETTERS                                                                          \
	ID_LETTER ID_LETTER ID_LETTER ID_LETTER ID_LETTER ID_LETTER ID_LETTER ID_LETTER     \
		ID_LETTER ID_LETTER
#define TEAM_ID(table)                                                                      \
	"UPDATE " table " SET team = (SELECT id FROM teams_2 WHERE name = team)"            \
	" WHERE team IS NOT NULL;"                                                          \
	"UPDATE " table " SET visibility = 0 WHERE visibility = 1 AND team IS NULL;"

#define LABELS_IN(of, kind)                                                                  \
	" INSERT OR IGNORE INTO labels SELECT " kind ", l.key, l.value, " of "created, " of      \
	"seq FROM json_each(" of "labels) l;"
#define LABELS_OUT(kind)                                                                     \
	" DELETE FROM labels WHERE kind = " kind " AND born = old.created AND num = old.seq AND" \
	" (key, value) IN (SELECT l.key, l.value FROM json_each(old.labels) l);"
#define LABELS(table, kind)                                                                  \
	"INSERT OR IGNORE INTO labels SELECT " kind ", l.key, l.value, t.created, t.seq FROM "   \
	table " t, json_each(t.labels) l WHERE json_valid(t.labels);"                            \
	"CREATE TRIGGER " table "_labelled AFTER INSERT ON " table                               \
	" WHEN new.labels <> '' BEGIN" LABELS_IN("new.", kind) " END;"                     \
	"CREATE TRIGGER " table "_relabelled AFTER UPDATE OF labels ON " table                   \
	" WHEN new.labels <> '' BEGIN" LABELS_IN("new.", kind) " END;"                     \
	"CREATE TRIGGER " table "_unlabelled AFTER DELETE ON " table                             \
	" WHEN old.labels <> '' BEGIN" LABELS_OUT(kind) " END;"                            \
	"CREATE TRIGGER " table "_labels_off BEFORE UPDATE OF labels ON " table                  \
	" WHEN old.labels <> '' BEGIN" LABELS_OUT(kind) " END;"

/* Each entry brings the schema from the version of its index to the next. Never change one
 * that was released; append. */
static const char *const migrations[] = {
	"CREATE TABLE workspaces ("
	" seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
	" name TEXT NOT NULL UNIQUE, created INTEGER NOT NULL, base TEXT, head TEXT, parent TEXT,"
	" quota_bytes INTEGER NOT NULL, quota_inodes INTEGER NOT NULL, mount INTEGER NOT NULL,"
	" broken TEXT, labels TEXT, head_stack BLOB);"
	"CREATE TABLE snapshots ("
	" seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, created INTEGER NOT NULL,"
	" workspace TEXT, parent TEXT, manifest BLOB NOT NULL, files INTEGER NOT NULL,"
	" bytes INTEGER NOT NULL, stored_bytes INTEGER NOT NULL, message TEXT, labels TEXT);"
	"CREATE INDEX snapshots_parent ON snapshots(parent);"
	"CREATE INDEX snapshots_workspace ON snapshots(workspace);"
	"CREATE INDEX workspaces_head ON workspaces(head);"
	"CREATE TABLE snapshot_names ("
	" name TEXT PRIMARY KEY, snapshot TEXT NOT NULL, pos INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE INDEX snapshot_names_snapshot ON snapshot_names(snapshot);",
	"ALTER TABLE workspaces ADD COLUMN git TEXT;"
	"ALTER TABLE snapshots ADD COLUMN git TEXT;",
	"CREATE TABLE repos ("
	" number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, url TEXT NOT NULL,"
	" is_path INTEGER NOT NULL, is_global INTEGER NOT NULL, owner INTEGER NOT NULL,"
	" created INTEGER NOT NULL, fetched INTEGER NOT NULL, head TEXT);",
	/* Names are unique for each owner, so the tables that say so are made anew. */
	"CREATE TABLE workspaces_2 ("
	" seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL,"
	" created INTEGER NOT NULL, base TEXT, head TEXT, parent TEXT,"
	" quota_bytes INTEGER NOT NULL, quota_inodes INTEGER NOT NULL, mount INTEGER NOT NULL,"
	" broken TEXT, labels TEXT, head_stack BLOB, git TEXT, owner TEXT NOT NULL DEFAULT '',"
	" visibility INTEGER NOT NULL DEFAULT 0, team TEXT, expires INTEGER,"
	" on_expiry INTEGER NOT NULL DEFAULT 0, description TEXT, UNIQUE (owner, name));"
	"INSERT INTO workspaces_2 (seq, id, name, created, base, head, parent, quota_bytes,"
	" quota_inodes, mount, broken, labels, head_stack, git)"
	" SELECT seq, id, name, created, base, head, parent, quota_bytes, quota_inodes, mount,"
	" broken, labels, head_stack, git"
	" FROM workspaces;"
	"DROP TABLE workspaces;"
	"ALTER TABLE workspaces_2 RENAME TO workspaces;"
	"CREATE INDEX workspaces_head ON workspaces(head);"
	"CREATE INDEX workspaces_name ON workspaces(name);"
	"CREATE INDEX workspaces_expires ON workspaces(expires) WHERE expires IS NOT NULL;"
	"ALTER TABLE snapshots ADD COLUMN owner TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE snapshots ADD COLUMN visibility INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE snapshots ADD COLUMN team TEXT;"
	"ALTER TABLE snapshots ADD COLUMN expires INTEGER;"
	"ALTER TABLE snapshots ADD COLUMN on_expiry INTEGER NOT NULL DEFAULT 0;"
	"CREATE INDEX snapshots_expires ON snapshots(expires) WHERE expires IS NOT NULL;"
	"CREATE TABLE snapshot_names_2 ("
	" owner TEXT NOT NULL, name TEXT NOT NULL, snapshot TEXT NOT NULL, pos INTEGER NOT NULL,"
	" PRIMARY KEY (owner, name)) WITHOUT ROWID;"
	"INSERT INTO snapshot_names_2 SELECT '', name, snapshot, pos FROM snapshot_names;"
	"DROP TABLE snapshot_names;"
	"ALTER TABLE snapshot_names_2 RENAME TO snapshot_names;"
	"CREATE INDEX snapshot_names_snapshot ON snapshot_names(snapshot);"
	"CREATE INDEX snapshot_names_name ON snapshot_names(name);"
	"CREATE TABLE users (name TEXT PRIMARY KEY, uid INTEGER UNIQUE, admin INTEGER NOT NULL,"
	" created INTEGER NOT NULL);"
	"CREATE TABLE tokens (id TEXT PRIMARY KEY, hash BLOB NOT NULL, owner TEXT NOT NULL,"
	" name TEXT, scope TEXT NOT NULL, read_only INTEGER NOT NULL, created INTEGER NOT NULL,"
	" expires INTEGER, used INTEGER);"
	"CREATE TABLE teams (name TEXT PRIMARY KEY, created INTEGER NOT NULL);"
	"CREATE TABLE members (team TEXT NOT NULL, owner TEXT NOT NULL, role INTEGER NOT NULL,"
	" PRIMARY KEY (team, owner)) WITHOUT ROWID;"
	"CREATE TABLE audit (seq INTEGER PRIMARY KEY AUTOINCREMENT, time INTEGER NOT NULL,"
	" owner TEXT NOT NULL, token TEXT, source TEXT NOT NULL, method TEXT NOT NULL,"
	" path TEXT NOT NULL, object TEXT, status INTEGER NOT NULL, about TEXT);"
	"CREATE INDEX audit_object ON audit(object);"
	"CREATE TABLE repeats (owner TEXT NOT NULL, method TEXT NOT NULL, path TEXT NOT NULL,"
	" key TEXT NOT NULL, body BLOB NOT NULL, time INTEGER NOT NULL, effect TEXT,"
	" status INTEGER, answer TEXT, PRIMARY KEY (owner, method, path, key));"
	"CREATE INDEX repeats_time ON repeats(time);",
	"CREATE TABLE jobs (id TEXT PRIMARY KEY, owner TEXT NOT NULL, object TEXT,"
	" state TEXT NOT NULL, path TEXT NOT NULL, answer TEXT, status INTEGER,"
	" created INTEGER NOT NULL, ended INTEGER);"
	"CREATE INDEX jobs_owner ON jobs(owner);",
	"ALTER TABLE snapshots ADD COLUMN image TEXT;",
	"ALTER TABLE workspaces ADD COLUMN sandbox TEXT;"
	"CREATE TABLE sandboxes ("
	" seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL,"
	" created INTEGER NOT NULL, owner TEXT NOT NULL, visibility INTEGER NOT NULL, team TEXT,"
	" expires INTEGER, on_expiry INTEGER NOT NULL, labels TEXT, description TEXT,"
	" status INTEGER NOT NULL, problem TEXT, reason TEXT, exit_code INTEGER, root TEXT,"
	" spec TEXT NOT NULL, policy TEXT, pid INTEGER, id_base INTEGER UNIQUE,"
	" started INTEGER, ended INTEGER, active INTEGER NOT NULL, made INTEGER NOT NULL,"
	" UNIQUE (owner, name));"
	"CREATE INDEX sandboxes_name ON sandboxes(name);"
	"CREATE INDEX sandboxes_expires ON sandboxes(expires) WHERE expires IS NOT NULL;"
	"CREATE TABLE attached (sandbox TEXT NOT NULL, target TEXT NOT NULL,"
	" workspace TEXT NOT NULL, read_only INTEGER NOT NULL, exclusive INTEGER NOT NULL,"
	" PRIMARY KEY (sandbox, target)) WITHOUT ROWID;"
	"CREATE INDEX attached_workspace ON attached(workspace);"
	"CREATE TABLE execs (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
	" sandbox TEXT NOT NULL, caller TEXT NOT NULL, spec TEXT NOT NULL, status INTEGER NOT NULL,"
	" reason TEXT, exit_code INTEGER, pid INTEGER, created INTEGER NOT NULL, started INTEGER,"
	" ended INTEGER);"
	"CREATE INDEX execs_sandbox ON execs(sandbox);",
	/* One that was removed has its id for a name, so that the one it had is free. */
	"ALTER TABLE workspaces ADD COLUMN removed INTEGER;"
	"ALTER TABLE workspaces ADD COLUMN purge INTEGER;"
	"ALTER TABLE workspaces ADD COLUMN was TEXT;"
	"CREATE INDEX workspaces_purge ON workspaces(purge) WHERE purge IS NOT NULL;",
	/* An owner that somebody was is nobody else's: each is given out once. */
	"CREATE TABLE quotas (owner TEXT PRIMARY KEY, workspaces INTEGER, snapshots INTEGER,"
	" bytes INTEGER) WITHOUT ROWID;"
	"CREATE TABLE owners (owner TEXT PRIMARY KEY) WITHOUT ROWID;"
	"INSERT OR IGNORE INTO owners SELECT name FROM users WHERE uid IS NULL"
	" UNION SELECT owner FROM workspaces UNION SELECT owner FROM snapshots"
	" UNION SELECT owner FROM audit UNION SELECT owner FROM tokens;"
	"ALTER TABLE users ADD COLUMN owner TEXT;"
	"UPDATE users SET owner = CASE WHEN uid IS NULL THEN name ELSE 'uid:' || uid END;"
	"ALTER TABLE tokens ADD COLUMN path TEXT;",
	"CREATE TABLE webhooks (id TEXT PRIMARY KEY, owner TEXT NOT NULL,"
	" everybody INTEGER NOT NULL, active INTEGER NOT NULL, url TEXT NOT NULL, events TEXT,"
	" secret BLOB NOT NULL, created INTEGER NOT NULL);"
	"CREATE TABLE deliveries (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL,"
	" hook TEXT NOT NULL, type TEXT NOT NULL, body TEXT NOT NULL, created INTEGER NOT NULL,"
	" next INTEGER, tries INTEGER NOT NULL, status INTEGER, delivered INTEGER NOT NULL,"
	" error TEXT);"
	"CREATE INDEX deliveries_hook ON deliveries(hook);"
	"CREATE INDEX deliveries_next ON deliveries(next) WHERE next IS NOT NULL;",
	"CREATE INDEX snapshots_image ON snapshots(image) WHERE image IS NOT NULL;",
	"ALTER TABLE attached ADD COLUMN caller TEXT;"
	"ALTER TABLE attached ADD COLUMN own INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE sandboxes ADD COLUMN starting INTEGER NOT NULL DEFAULT 0;",
	"ALTER TABLE jobs ADD COLUMN again TEXT;"
	"ALTER TABLE jobs ADD COLUMN begun INTEGER NOT NULL DEFAULT 0;",
	/* Owners are texts, as everywhere, and names are unique for each. Numbers stay used up. */
	"CREATE TABLE repos_2 ("
	" number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, url TEXT NOT NULL,"
	" is_path INTEGER NOT NULL, is_global INTEGER NOT NULL, owner TEXT NOT NULL,"
	" created INTEGER NOT NULL, fetched INTEGER NOT NULL, head TEXT, UNIQUE (owner, name));"
	"INSERT INTO repos_2 SELECT number, name, url, is_path, is_global,"
	" CASE WHEN owner = 4294967295 THEN '' ELSE 'uid:' || owner END, created, fetched, head"
	" FROM repos;"
	"DELETE FROM sqlite_sequence WHERE name = 'repos_2';"
	"INSERT INTO sqlite_sequence SELECT 'repos_2', seq FROM sqlite_sequence"
	" WHERE name = 'repos';"
	"DROP TABLE repos;"
	"ALTER TABLE repos_2 RENAME TO repos;"
	"CREATE INDEX repos_name ON repos(name);",
	"ALTER TABLE webhooks ADD COLUMN anywhere INTEGER NOT NULL DEFAULT 0;",
	"ALTER TABLE repeats ADD COLUMN job TEXT;"
	"CREATE INDEX repeats_job ON repeats(job) WHERE job IS NOT NULL;",
	"ALTER TABLE repeats ADD COLUMN sum BLOB;",
	/* Names of teams are unique for each owner; one of before is its first admin's. What no
	 * team is there for any more is private. */
	"CREATE TABLE teams_2 (id TEXT PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL,"
	" created INTEGER NOT NULL, UNIQUE (owner, name)) WITHOUT ROWID;"
	"INSERT INTO teams_2 SELECT 'tm_'" ID_LETTERS ", coalesce((SELECT min(owner) FROM members"
	" WHERE team = name AND role = 2), ''), name, created FROM teams;"
	"DELETE FROM members WHERE team NOT IN (SELECT name FROM teams);"
	"UPDATE members SET team = (SELECT id FROM teams_2 WHERE name = team);"
	TEAM_ID("workspaces") TEAM_ID("snapshots") TEAM_ID("sandboxes")
	"DROP TABLE teams;"
	"ALTER TABLE teams_2 RENAME TO teams;"
	"CREATE INDEX teams_name ON teams(name);",
	"CREATE INDEX repeats_open ON repeats(time) WHERE status IS NULL;",
	/* How many rows of the audit log are whose (catalog_journal.c). */
	"CREATE TABLE audit_counts (owner TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;"
	"INSERT INTO audit_counts SELECT owner, count(*) FROM audit GROUP BY owner;"
	"CREATE INDEX audit_counts_n ON audit_counts(n);"
	"CREATE INDEX audit_owner ON audit(owner);"
	"CREATE TRIGGER audit_more AFTER INSERT ON audit BEGIN"
	" INSERT INTO audit_counts VALUES (new.owner, 1)"
	" ON CONFLICT (owner) DO UPDATE SET n = n + 1; END;"
	"CREATE TRIGGER audit_less AFTER DELETE ON audit BEGIN"
	" UPDATE audit_counts SET n = n - 1 WHERE owner = old.owner;"
	" DELETE FROM audit_counts WHERE owner = old.owner AND n <= 0; END;",
	/* Lists go page by page along these, with what is asked of most rows in the index; labels
	 * have a table of their own for that: `kind` of what, and its `created` and `seq`. */
	"CREATE INDEX workspaces_list ON workspaces(created, seq, owner, visibility, team, removed,"
	" sandbox);"
	"CREATE INDEX snapshots_list ON snapshots(created, seq, owner, visibility, team);"
	"DROP INDEX IF EXISTS snapshots_workspace;"
	"CREATE INDEX snapshots_workspace ON snapshots(workspace, created, seq);"
	"CREATE INDEX sandboxes_list ON sandboxes(created, seq, owner, visibility, team, made,"
	" status);"
	"CREATE INDEX jobs_list ON jobs(created, id, owner);"
	"DROP INDEX IF EXISTS jobs_owner;"
	"CREATE INDEX jobs_owner ON jobs(owner, created, id);"
	"CREATE TABLE labels (kind INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,"
	" born INTEGER NOT NULL, num INTEGER NOT NULL, PRIMARY KEY (kind, key, value, born, num))"
	" WITHOUT ROWID;"
	LABELS("workspaces", "0") LABELS("snapshots", "1") LABELS("sandboxes", "2"),
};
enum { SCHEMA_VERSION = sizeof(migrations) / sizeof(migrations[0]) };

/* The first who finds it says what it is. */
static void note_damage(struct catalog *c, const char *text)
{
	if (atomic_exchange(&c->harmed, true))
		return;
	(void)snprintf(c->damage, sizeof(c->damage), "%s", text);
	atomic_store(&c->is_damaged, true);
}

int db_error_of(struct catalog *c, sqlite3 *db, int rc, struct err *err, const char *what)
{
	const char *text = db ? sqlite3_errmsg(db) : sqlite3_errstr(rc);
	int sys = db ? sqlite3_system_errno(db) : 0;
	switch (rc & 0xff) {
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		note_damage(c, text);
		return err_set(err, -EUCLEAN,
			       "the catalog %s is damaged (%s); bough fsck --repair makes it anew",
			       c->path, text);
	case SQLITE_FULL:
		return err_set(err, -ENOSPC, "%s: no space for the catalog %s", what, c->path);
	case SQLITE_NOMEM:
		return err_set(err, -ENOMEM, "%s: out of memory", what);
	case SQLITE_CONSTRAINT:
		return err_set(err, -EEXIST, "%s: it exists already", what);
	case SQLITE_READONLY:
		return err_set(err, -EROFS, "%s: the catalog %s is read-only", what, c->path);
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return err_set(err, -EBUSY, "%s: another program holds the catalog %s", what,
			       c->path);
	case SQLITE_IOERR:
		if (rc == SQLITE_IOERR_NOMEM)
			return err_set(err, -ENOMEM, "%s: out of memory", what);
		if (sys == ENOSPC || sys == EDQUOT)
			return err_set(err, -ENOSPC, "%s: no space for the catalog %s", what,
				       c->path);
		/* fallthrough */
	default:
		return err_set(err, -EIO, "%s: catalog %s: %s", what, c->path, text);
	}
}

int db_error(struct catalog *c, int rc, struct err *err, const char *what)
{
	return db_error_of(c, c->db, rc, err, what);
}

static int damaged(struct catalog *c, struct err *err)
{
	return err_set(err, -EUCLEAN,
		       "the catalog %s is damaged (%s); bough fsck --repair makes it anew", c->path,
		       c->damage);
}

int db_lock_sound(struct catalog *c, pthread_mutex_t *lock, struct err *err)
{
	pthread_mutex_lock(lock);
	if (!atomic_load(&c->is_damaged))
		return 0;
	pthread_mutex_unlock(lock);
	return damaged(c, err);
}

int db_lock(struct catalog *c, struct err *err)
{
	return db_lock_sound(c, &c->lock, err);
}

void db_unlock(struct catalog *c)
{
	pthread_mutex_unlock(&c->lock);
}

/* ---- checkpoints ---- */

/* Keeps a place on the disk for what is added to the log behind `used` bytes, as far as there is
 * one: what can't be had now is tried again by the next commit. */
static void reserve_log(struct catalog *c, off_t used)
{
	if (used + WAL_RESERVE / 2 <= c->reserved)
		return;
	if (c->io->fallocate(c->io->ctx, c->wal_fd, FALLOC_FL_KEEP_SIZE, 0,
			     (uint64_t)used + WAL_RESERVE) == 0)
		c->reserved = used + WAL_RESERVE;
}

static int wal_grew(void *ctx, sqlite3 *db, const char *name, int pages)
{
	struct catalog *c = ctx; /* locked: it is called inside a commit */
	c->dirty = true;
	reserve_log(c, (off_t)pages * WAL_FRAME);
	if (pages >= WAL_PAGES && !c->want_checkpoint) {
		c->want_checkpoint = true;
		pthread_cond_broadcast(&c->wake);
	}
	return SQLITE_OK;
}

static void checkpoint(const char *path)
{
	sqlite3 *db = NULL;
	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK) {
		sqlite3_busy_timeout(db, 1000);
		/* Only a connection that has read something knows that there is a log. */
		(void)sqlite3_exec(db, "SELECT 1 FROM sqlite_schema", NULL, NULL, NULL);
		/* The log begins anew once all of it is copied while nobody adds to it. Under
		 * steady writing that moment may not come by itself. One that fails is tried
		 * again by the next commit; nothing is lost meanwhile. */
		int logged = 0;
		(void)sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, &logged, NULL);
		if (logged > WAL_PAGES_MAX)
			(void)sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_RESTART, NULL,
							NULL);
	}
	sqlite3_close(db);
}

static void *checkpoint_thread(void *arg)
{
	struct catalog *c = arg;
	pthread_mutex_lock(&c->lock);
	for (;;) {
		while (!c->stop && !c->want_checkpoint)
			pthread_cond_wait(&c->wake, &c->lock);
		if (c->stop)
			break;
		c->checkpointing = true;
		pthread_mutex_unlock(&c->lock);
		checkpoint(c->path);
		pthread_mutex_lock(&c->lock);
		c->want_checkpoint = c->checkpointing = false;
		pthread_cond_broadcast(&c->wake);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* ---- opening ---- */

static int exec(struct catalog *c, const char *sql, struct err *err)
{
	int rc = sqlite3_exec(c->db, sql, NULL, NULL, NULL);
	return rc == SQLITE_OK ? 0 : db_error(c, rc, err, "open the catalog");
}

static int schema_version(struct catalog *c, int *version, struct err *err)
{
	sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(c->db, "PRAGMA user_version", -1, &st, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		*version = sqlite3_column_int(st, 0);
	sqlite3_finalize(st);
	return rc == SQLITE_ROW ? 0 : db_error(c, rc, err, "read the catalog's version");
}

/* What was made when there were no owners belongs to who boughd runs as. */
static int own_all(struct catalog *c, struct err *err)
{
	const char *owner = c->self; /* digits and a colon: nothing to quote */
	char sql[1024];
	(void)snprintf(sql, sizeof(sql),
		       "UPDATE workspaces SET owner = '%s' WHERE owner = '';"
		       "UPDATE snapshots SET owner = '%s' WHERE owner = '';"
		       "UPDATE snapshot_names SET owner = '%s' WHERE owner = '';"
		       "UPDATE repos SET owner = '%s' WHERE owner = '';"
		       "UPDATE teams SET owner = '%s' WHERE owner = ''",
		       owner, owner, owner, owner, owner);
	return exec(c, sql, err);
}

static int migrate(struct catalog *c, struct err *err)
{
	int version = 0;
	int r = schema_version(c, &version, err);
	if (r < 0)
		return r;
	if (version < 0 || version > SCHEMA_VERSION)
		return err_set(err, -ENOTSUP,
			       "the catalog %s has version %d; this boughd knows up to %d", c->path,
			       version, SCHEMA_VERSION);
	for (; version < SCHEMA_VERSION; version++) {
		char pragma[64];
		(void)snprintf(pragma, sizeof(pragma), "PRAGMA user_version = %d", version + 1);
		r = exec(c, "BEGIN IMMEDIATE", err);
		if (r >= 0)
			r = exec(c, migrations[version], err);
		if (r >= 0)
			r = exec(c, pragma, err);
		if (r >= 0)
			r = exec(c, "COMMIT", err);
		if (r < 0)
			return err_prefix(err, r, "bring the catalog to version %d", version + 1);
	}
	return own_all(c, err);
}

/* SQLite's code where its check couldn't look, or had no memory: that is no damage. 0: it could. */
static int check_failure(const char *text)
{
	static const char unread[] = "unable to get the page. error code=";
	const char *at = text ? strstr(text, unread) : NULL;
	int rc = at ? (int)strtol(at + sizeof(unread) - 1, NULL, 10) : 0;
	if (!text || strcmp(text, "out of memory") == 0)
		rc = SQLITE_NOMEM;
	return (rc & 0xff) == SQLITE_NOMEM || (rc & 0xff) == SQLITE_IOERR ? rc : 0;
}

static int check_sound(struct catalog *c, struct err *err)
{
	sqlite3_stmt *st = NULL;
	int r = 0, rc = sqlite3_prepare_v2(c->db, "PRAGMA quick_check(1)", -1, &st, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_step(st);
	if (rc != SQLITE_ROW) {
		r = db_error(c, rc, err, "check the catalog");
	} else {
		const char *text = (const char *)sqlite3_column_text(st, 0);
		int failed = check_failure(text);
		if (failed) {
			r = db_error(c, failed, err, "check the catalog");
		} else if (!text || strcmp(text, "ok") != 0) {
			note_damage(c, text ? text : "?");
			r = damaged(c, err);
		}
	}
	sqlite3_finalize(st);
	return r;
}

/* The log's own descriptor, for catalog_sync. SQLite takes no POSIX locks on this file
 * (they are on the database and -shm), so closing it does no harm. */
static int open_wal(struct catalog *c, struct err *err)
{
	char path[4096];
	if (snprintf(path, sizeof(path), "%s-wal", c->path) >= (int)sizeof(path))
		return err_set(err, -ENAMETOOLONG, "the catalog's path is too long");
	c->wal_fd = c->io->open(c->io->ctx, AT_FDCWD, path, O_RDWR, 0);
	if (c->wal_fd < 0)
		return err_sys(err, c->wal_fd, "open %s", path);
	struct stat st;
	c->reserved = 0;
	reserve_log(c, fstat(c->wal_fd, &st) == 0 ? st.st_size : 0);
	auto_fd dir = open(c->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = dir < 0 ? -errno : c->io->fsync(c->io->ctx, dir);
	return r < 0 ? err_sys(err, r, "sync %s", c->root) : 0;
}

static void close_one(sqlite3 **db, struct db_statements *known)
{
	for (size_t i = 0; i < known->n; i++)
		sqlite3_finalize(known->of[i].stmt);
	known->n = 0;
	sqlite3_close(*db);
	*db = NULL;
}

static void db_close(struct catalog *c)
{
	close_one(&c->reader, &c->reads);
	close_one(&c->db, &c->writes);
	if (c->wal_fd >= 0)
		(void)c->io->close(c->io->ctx, c->wal_fd); /* synced where that was promised */
	c->wal_fd = -1;
}

static int open_one(struct catalog *c, sqlite3 **db, int more, const char *pragmas, struct err *err)
{
	int rc = sqlite3_open_v2(c->path, db,
				 SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX |
					 SQLITE_OPEN_PRIVATECACHE | more,
				 NULL);
	if (rc == SQLITE_OK) {
		sqlite3_extended_result_codes(*db, 1);
		sqlite3_busy_timeout(*db, 5000);
		rc = sqlite3_exec(*db, pragmas, NULL, NULL, NULL);
	}
	return rc == SQLITE_OK ? 0 : db_error_of(c, *db, rc, err, "open the catalog");
}

static int db_open(struct catalog *c, struct err *err)
{
	int r = open_one(c, &c->db, SQLITE_OPEN_CREATE,
			 "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
			 "PRAGMA temp_store=MEMORY; PRAGMA trusted_schema=OFF",
			 err);
	if (r >= 0)
		r = check_sound(c, err);
	if (r >= 0)
		r = migrate(c, err);
	if (r >= 0)
		r = open_wal(c, err); /* made by the reads above, where it wasn't there */
	if (r >= 0)
		sqlite3_wal_hook(c->db, wal_grew, c); /* in place of checkpoints in commits */
	if (r >= 0)
		r = open_one(c, &c->reader, 0,
			     "PRAGMA query_only=ON; PRAGMA temp_store=MEMORY;"
			     "PRAGMA trusted_schema=OFF",
			     err);
	return r;
}

int catalog_open(struct catalog **out, const char *root, const struct io *io, struct err *err)
{
	struct catalog *c = calloc(1, sizeof(*c));
	if (!c || !(c->root = strdup(root)) || asprintf(&c->path, "%s/catalog.db", root) < 0) {
		if (c)
			free(c->root);
		free(c);
		return err_no_memory(err);
	}
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->reading, NULL);
	pthread_cond_init(&c->wake, NULL);
	c->io = io ? io : &io_host;
	owner_self(c->self);
	const char *most = getenv("BOUGH_AUDIT_MAX"); /* for tests */
	c->audit_max = most ? strtoll(most, NULL, 10) : AUDIT_MAX;
	c->wal_fd = -1;
	int r = db_open(c, err);
	if (r < 0)
		db_close(c);
	if (r >= 0 || r == -EUCLEAN) {
		r = -pthread_create(&c->thread, NULL, checkpoint_thread, c);
		if (r == 0) {
			*out = c;
			return 0;
		}
		(void)err_sys(err, r, "start the catalog's thread");
		db_close(c);
	}
	pthread_cond_destroy(&c->wake);
	pthread_mutex_destroy(&c->reading);
	pthread_mutex_destroy(&c->lock);
	free(c->path);
	free(c->root);
	free(c);
	return r;
}

void catalog_close(struct catalog *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->stop = true;
	pthread_cond_broadcast(&c->wake);
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->thread, NULL);
	db_close(c);
	db_forget_works(c);
	pthread_cond_destroy(&c->wake);
	pthread_mutex_destroy(&c->reading);
	pthread_mutex_destroy(&c->lock);
	free(c->path);
	free(c->root);
	free(c);
}

const char *catalog_damage(struct catalog *c)
{
	return atomic_load(&c->is_damaged) ? c->damage : NULL;
}

static int set_aside(const char *path, const char *suffix, const char *stamp, struct err *err)
{
	char from[4096], to[4096];
	if (snprintf(from, sizeof(from), "%s%s", path, suffix) >= (int)sizeof(from) ||
	    snprintf(to, sizeof(to), "%s.damaged-%s%s", path, stamp, suffix) >= (int)sizeof(to))
		return err_set(err, -ENAMETOOLONG, "the catalog's path is too long");
	if (rename(from, to) < 0 && errno != ENOENT)
		return err_sys(err, -errno, "set %s aside", from);
	return 0;
}

int catalog_rebuild(struct catalog *c, struct err *err)
{
	char stamp[32];
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	(void)snprintf(stamp, sizeof(stamp), "%lld", (long long)now.tv_sec);
	pthread_mutex_lock(&c->lock);
	while (c->checkpointing)
		pthread_cond_wait(&c->wake, &c->lock);
	pthread_mutex_lock(&c->reading);
	db_close(c);
	/* The log first: an old log beside a new database must never be. */
	int r = set_aside(c->path, "-wal", stamp, err);
	if (r >= 0)
		r = set_aside(c->path, "-shm", stamp, err);
	if (r >= 0)
		r = set_aside(c->path, "", stamp, err);
	if (r >= 0) {
		atomic_store(&c->is_damaged, false);
		atomic_store(&c->harmed, false);
		r = db_open(c, err);
	}
	if (r < 0) {
		db_close(c);
		note_damage(c, "it couldn't be made anew");
	}
	pthread_mutex_unlock(&c->reading);
	pthread_mutex_unlock(&c->lock);
	return r;
}

int catalog_check(struct catalog *c, void (*report)(void *ctx, const char *what), void *ctx,
		  struct err *err)
{
	int n = 0;
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(c->db, "PRAGMA integrity_check(100)", -1, &st, NULL);
	while (rc == SQLITE_OK || rc == SQLITE_ROW) {
		rc = sqlite3_step(st);
		const char *text = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(st, 0)
						    : NULL;
		int failed = rc == SQLITE_ROW ? check_failure(text) : 0;
		if (failed)
			rc = failed;
		if (failed || !text || strcmp(text, "ok") == 0)
			continue;
		report(ctx, text);
		n++;
	}
	if (n > 0)
		note_damage(c, "the integrity check failed");
	r = rc == SQLITE_DONE ? n : db_error(c, rc, err, "check the catalog");
	sqlite3_finalize(st);
	db_unlock(c);
	return r;
}

static int sync_log(struct catalog *c, bool always, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	bool needed = always || c->dirty;
	auto_fd fd = needed ? fcntl(c->wal_fd, F_DUPFD_CLOEXEC, 3) : -1;
	r = needed && fd < 0 ? -errno : 0;
	c->dirty = false;
	db_unlock(c); /* others commit while the disk works */
	if (fd >= 0)
		r = c->io->fdatasync(c->io->ctx, fd);
	if (r >= 0)
		return 0;
	pthread_mutex_lock(&c->lock);
	c->dirty = true;
	pthread_mutex_unlock(&c->lock);
	return err_sys(err, r, "sync the catalog");
}

int catalog_sync(struct catalog *c, struct err *err)
{
	return sync_log(c, true, err);
}

int catalog_flush(struct catalog *c, struct err *err)
{
	return sync_log(c, false, err);
}
