/* Rows of the audit log, of keys that were used, and of jobs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "snapd/catalog_db.h"
#include "snapd/journal.h"

/* ---- audit ---- */

#define AUDIT_COLUMNS "time, owner, token, source, method, path, object, status, about"

static void done_audit(void *row)
{
	struct audit_row *a = row;
	free(a->path);
	free(a->about);
}

void audit_rows_free(struct audit_row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		done_audit(&rows[i]);
	free(rows);
}

static int insert_audit(struct catalog *c, const struct audit_row *row, struct err *err)
{
	return db_exec(c,
		       "INSERT INTO audit (" AUDIT_COLUMNS
		       ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
		       DB(db_int(row->time_ns), db_text(row->owner), db_text_or_null(row->token),
			  db_text(row->from), db_text(row->method), db_text(row->path),
			  db_text_or_null(row->object), db_int(row->status),
			  db_text_or_null(row->about)),
		       "write the audit log", err);
}

/* Who has how many rows of it; triggers count. */
struct audit_share {
	char owner[OWNER_SIZE];
	int64_t n, next, sum; /* next: of who has most but for him; sum: of all */
};

static int read_share(sqlite3_stmt *st, void *row)
{
	struct audit_share *s = row;
	db_get_text(st, 0, s->owner, sizeof(s->owner));
	s->n = sqlite3_column_int64(st, 1);
	s->next = sqlite3_column_int64(st, 2);
	s->sum = sqlite3_column_int64(st, 3);
	return 0;
}

static int most_of_audit(struct catalog *c, struct audit_share *out, struct err *err)
{
	static const struct db_shape shape = { "count the audit log", sizeof(struct audit_share),
					       read_share, NULL };
	*out = (struct audit_share){ 0 };
	return db_first(c,
			"SELECT owner, n, ifnull((SELECT n FROM audit_counts ORDER BY n DESC"
			" LIMIT 1 OFFSET 1), 0), (SELECT sum(n) FROM audit_counts)"
			" FROM audit_counts ORDER BY n DESC LIMIT 1",
			DB(), &shape, out, err);
}

static int recount_audit(struct catalog *c, struct err *err)
{
	int r = db_exec(c, "DELETE FROM audit_counts", DB(), "count the audit log", err);
	return r < 0 ? r
		     : db_exec(c,
			       "INSERT INTO audit_counts SELECT owner, count(*) FROM audit"
			       " GROUP BY owner",
			       DB(), "count the audit log", err);
}

/* Whoever has most loses his oldest, until it is no more than may be: who writes much pushes out
 * nobody else's. */
static int trim_audit(struct catalog *c, int64_t max, struct err *err)
{
	struct audit_share most;
	int r = most_of_audit(c, &most, err);
	while (r >= 0 && most.sum > max) {
		int64_t over = most.sum - max, lead = most.n - most.next;
		int64_t n = lead < 1 ? 1 : lead < over ? lead : over;
		r = db_exec(c,
			    "DELETE FROM audit WHERE seq IN (SELECT seq FROM audit"
			    " WHERE owner = ?1 ORDER BY seq LIMIT ?2)",
			    DB(db_text(most.owner), db_int(n)), "trim the audit log", err);
		if (r >= 0 && sqlite3_changes(c->db) == 0) /* else this had no end */
			r = recount_audit(c, err);
		if (r >= 0)
			r = most_of_audit(c, &most, err);
	}
	return r < 0 ? r : 0;
}

int catalog_audit_add(struct catalog *c, const struct audit_row *row, struct err *err)
{
	int r = db_start(c, err);
	if (r < 0)
		return r;
	r = insert_audit(c, row, err);
	if (r >= 0 && sqlite3_last_insert_rowid(c->db) % AUDIT_BESIDE == 0)
		r = trim_audit(c, c->audit_max, err);
	return db_finish(c, r, err);
}

static int read_audit(sqlite3_stmt *st, void *row)
{
	struct audit_row *a = row;
	a->time_ns = sqlite3_column_int64(st, 0);
	db_get_text(st, 1, a->owner, sizeof(a->owner));
	db_get_text(st, 2, a->token, sizeof(a->token));
	db_get_text(st, 3, a->from, sizeof(a->from));
	db_get_text(st, 4, a->method, sizeof(a->method));
	int e = db_copy_text(st, 5, &a->path);
	db_get_text(st, 6, a->object, sizeof(a->object));
	a->status = (unsigned)sqlite3_column_int(st, 7);
	e |= db_copy_text(st, 8, &a->about);
	a->seq = sqlite3_column_int64(st, 9);
	db_get_text(st, 10, a->user, sizeof(a->user));
	return e;
}

static const struct db_shape audit_shape = { "read the audit log", sizeof(struct audit_row),
					     read_audit, done_audit };

int catalog_audit_list(struct catalog *c, const struct audit_query *q, int64_t before, size_t max,
		       struct audit_row **rows, size_t *n, struct err *err)
{
	return db_select(c,
			 "SELECT " AUDIT_COLUMNS ", seq, (SELECT name FROM users"
			 " WHERE users.owner = audit.owner ORDER BY users.created LIMIT 1)"
			 " FROM audit WHERE (?1 IS NULL OR owner = ?1)"
			 " AND (?2 IS NULL OR object = ?2) AND seq < ?3"
			 " AND (?5 IS NULL OR token = ?5) AND (?6 IS NULL OR method = ?6)"
			 " AND time >= ?7 AND time < ?8"
			 " AND (NOT ?9 OR status >= 400) ORDER BY seq DESC LIMIT ?4",
			 DB(db_text_or_null(q->owner), db_text_or_null(q->object),
			    db_int(before ? before : INT64_MAX), db_int((int64_t)max),
			    db_text_or_null(q->token), db_text_or_null(q->method),
			    db_int(q->since_ns), db_int(q->until_ns ? q->until_ns : INT64_MAX),
			    db_int(q->failed)),
			 &audit_shape, rows, n, err);
}

/* ---- repeated calls ---- */

/* A key is its caller's: of two tokens of one owner each has its own. */
enum { CALLER_SIZE = OWNER_SIZE + ID_SIZE + 1 };
#define REPEAT_KEY "owner = ?1 AND method = ?2 AND path = ?3 AND key = ?4"

void repeat_done(struct repeat *r)
{
	free(r->answer);
	free(r->effect);
	memset(r, 0, sizeof(*r));
}

/* Its owner, and the token's id behind a space. */
static const char *caller_of(const struct doing *d, char out[CALLER_SIZE])
{
	(void)snprintf(out, CALLER_SIZE, "%s%s%s", d->caller.owner, d->caller.token[0] ? " " : "",
		       d->caller.token);
	return out;
}

/* The values of REPEAT_KEY. */
#define DB_KEY(d)                                                                           \
	db_text(caller_of((d), (char[CALLER_SIZE]){ "" })), db_text((d)->method),           \
		db_text((d)->path), db_text((d)->key)

/* ---- who works for a key ---- */

struct key_work {
	struct key_work *next;
	char of[]; /* KEY_OF; only the path may have a newline in it */
};
#define KEY_OF "owner || char(10) || method || char(10) || path || char(10) || key"

static struct key_work **find_work(struct catalog *c, const char *of)
{
	struct key_work **at = &c->works;
	while (*at && strcmp((*at)->of, of) != 0)
		at = &(*at)->next;
	return at;
}

/* The caller frees; NULL: out of memory. */
static char *key_of(const struct doing *d)
{
	char *of, caller[CALLER_SIZE];
	int n = asprintf(&of, "%s\n%s\n%s\n%s", caller_of(d, caller), d->method, d->path, d->key);
	return n < 0 ? NULL : of;
}

/* With the lock. */
static int begin_work(struct catalog *c, const char *of, struct err *err)
{
	struct key_work *w;
	size_t n = strlen(of) + 1;
	if (*find_work(c, of))
		return 0;
	w = malloc(sizeof(*w) + n);
	if (!w)
		return err_no_memory(err);
	w->next = c->works;
	memcpy(w->of, of, n);
	c->works = w;
	return 0;
}

void catalog_repeat_leave(struct catalog *c, const struct doing *d)
{
	auto_free char *of = key_of(d);
	if (!of)
		return; /* it stays taken, as one that is under way */
	pthread_mutex_lock(&c->lock); /* whether it is damaged or not */
	struct key_work **at = find_work(c, of), *w = *at;
	if (w)
		*at = w->next;
	pthread_mutex_unlock(&c->lock);
	free(w);
}

void db_forget_works(struct catalog *c)
{
	while (c->works) {
		struct key_work *w = c->works;
		c->works = w->next;
		free(w);
	}
}

/* ---- keys ---- */

static int take_key(struct catalog *c, const struct doing *d, int64_t now_ns, struct err *err)
{
	return db_exec(
		c,
		"INSERT INTO repeats (owner, method, path, key, body, time)"
		" VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO UPDATE SET body = ?5,"
		" time = ?6, status = NULL, answer = NULL, effect = NULL, job = NULL, sum = NULL"
		" WHERE time < ?7",
		DB(DB_KEY(d), db_blob(d->body.b, sizeof(d->body.b)), db_int(now_ns),
		   db_int(now_ns - (int64_t)KEPT_S * 1000000000)),
		"note an Idempotency-Key", err);
}

static bool get_digest(sqlite3_stmt *st, int i, struct digest *out)
{
	const void *b = sqlite3_column_blob(st, i);
	bool whole = b && sqlite3_column_bytes(st, i) == (int)sizeof(out->b);
	if (whole)
		memcpy(out->b, b, sizeof(out->b));
	return whole;
}

/* NULL where it isn't known. */
static struct db_value sum_of(const struct doing *d)
{
	const struct digest *sum = doing_summed(d);
	return db_blob(sum ? sum->b : NULL, sizeof(sum->b));
}

static int read_repeat(sqlite3_stmt *st, void *row)
{
	struct repeat *r = row;
	(void)get_digest(st, 0, &r->body);
	r->status = (unsigned)sqlite3_column_int(st, 1);
	int e = db_copy_text(st, 2, &r->answer) | db_copy_text(st, 3, &r->effect);
	db_get_text(st, 4, r->job, sizeof(r->job));
	r->has_sum = get_digest(st, 5, &r->sum);
	r->row = sqlite3_column_int64(st, 6);
	r->time_ns = sqlite3_column_int64(st, 7);
	return e;
}

static void done_repeat(void *row)
{
	repeat_done(row);
}

/* With the lock. What isn't there leaves *out as it is. */
static int get_repeat(struct catalog *c, const struct doing *d, struct repeat *out, struct err *err)
{
	static const struct db_shape shape = { "look up an Idempotency-Key", sizeof(struct repeat),
					       read_repeat, done_repeat };
	int r = db_first(c,
			 "SELECT body, status, answer, effect, job, sum, rowid, time"
			 " FROM repeats WHERE " REPEAT_KEY,
			 DB(DB_KEY(d)), &shape, out, err);
	return r < 0 ? r : 0;
}

static const char AGAIN[] = "again/";

/* What is left of it is done by who has asked for it again: 1. */
static int take_again(struct catalog *c, const struct doing *d, int64_t now_ns, struct repeat *was,
		      struct err *err)
{
	if (!was->effect || strncmp(was->effect, AGAIN, sizeof(AGAIN) - 1) != 0 ||
	    !digest_equal(&was->body, &d->body))
		return 0;
	int r = db_exec(c,
			"UPDATE repeats SET effect = 'by/' || substr(effect, 7), time = ?5"
			" WHERE " REPEAT_KEY,
			DB(DB_KEY(d), db_int(now_ns)), "take a key again", err);
	if (r < 0)
		return r;
	memmove(was->effect, "by/", 3);
	memmove(was->effect + 3, was->effect + 6, strlen(was->effect + 6) + 1);
	return 1;
}

int catalog_repeat_begin(struct catalog *c, const struct doing *d, struct repeat *out,
			 struct err *err)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	const int64_t now_ns = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
	auto_free char *of = key_of(d);
	int r = of ? db_lock(c, err) : err_no_memory(err);
	if (r < 0)
		return r;
	r = take_key(c, d, now_ns, err);
	if (r == 0 && (r = get_repeat(c, d, out, err)) == 0 && !out->status) {
		out->idle = !*find_work(c, of);
		r = out->idle ? take_again(c, d, now_ns, out, err) : 0;
	}
	if (r > 0 && begin_work(c, of, err) < 0)
		r = -ENOMEM;
	db_unlock(c);
	return r < 0 ? r : r > 0;
}

int catalog_repeat_get(struct catalog *c, const struct doing *d, struct repeat *out,
		       struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = get_repeat(c, d, out, err);
	db_unlock(c);
	return r;
}

int catalog_repeat_end(struct catalog *c, const struct doing *d, unsigned status,
		       const char *answer, struct err *err)
{
	return db_change(c,
			 status ? "UPDATE repeats SET status = ?5, answer = ?6,"
				  " sum = ifnull(?7, sum) WHERE " REPEAT_KEY
				: "DELETE FROM repeats WHERE " REPEAT_KEY,
			 DB(DB_KEY(d), db_int(status), db_text_or_null(answer), sum_of(d)),
			 "keep an answer", err);
}

int db_note_effect(struct catalog *c, const char *id, struct err *err)
{
	const struct doing *d = doing_now();
	if (!d || !d->keyed)
		return 0;
	int r = db_exec(c,
			"UPDATE repeats SET effect = ifnull(effect || ' ', '') || ?5,"
			" sum = ifnull(?6, sum) WHERE " REPEAT_KEY
			" AND instr(ifnull(effect, ''), ?5) = 0",
			DB(DB_KEY(d), db_text(id), sum_of(d)),
			"note what an Idempotency-Key made", err);
	return r < 0 ? r : 0;
}

int catalog_intend(struct catalog *c, const char *id, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_note_effect(c, id, err);
	db_unlock(c);
	return r;
}

int catalog_intend_into(struct catalog *c, const char *effect, const char *answer,
			struct err *err)
{
	const struct doing *d = doing_now();
	if (!d || !d->keyed)
		return 0;
	return db_change(c,
			 "UPDATE repeats SET effect = ?5, answer = ?6, sum = ifnull(?7, sum)"
			 " WHERE " REPEAT_KEY,
			 DB(DB_KEY(d), db_text(effect), db_text_or_null(answer), sum_of(d)),
			 "note what is about to be done", err);
}

static int run_with(struct catalog *c, const char *sql, int64_t number, struct err *err)
{
	return db_change(c, sql, DB(db_int(number)), "look after the journal", err);
}

/* Of which nothing is left, and nobody goes on with it. */
static int drop_unmade(struct catalog *c, struct err *err)
{
	return run_with(c,
			"DELETE FROM repeats WHERE status IS NULL AND effect IS NULL"
			" AND job IS NULL",
			0, err);
}

/* Of which the catalog alone can't tell whether it happened; and what is left to be done. */
#define INTENT "(effect LIKE 'into/%' OR effect LIKE 'by/%')"
#define LEFT "effect LIKE 'again/%'"
/* What was only about to be made, or was taken away again: by what it was mainly to make, which is
 * noted first. */
#define UNMADE \
	"((effect LIKE 'sn%' AND substr(effect, 1, 13) NOT IN (SELECT id FROM snapshots)) OR" \
	" (effect LIKE 'ws%' AND substr(effect, 1, 13) NOT IN (SELECT id FROM workspaces)) OR" \
	" (effect LIKE 'sb%' AND substr(effect, 1, 13) NOT IN (SELECT id FROM sandboxes)) OR" \
	" (effect LIKE 'repo%' AND effect NOT IN" \
	" (SELECT printf('repo_%08x', number) FROM repos)))"
#define MADE "effect IS NOT NULL AND NOT " LEFT " AND NOT " INTENT " AND NOT " UNMADE
#define MADE_STATUS \
	"CASE WHEN effect LIKE 'at/%' THEN 200 WHEN effect LIKE 'dl%' THEN 202 ELSE 201 END"

static int read_idle(sqlite3_stmt *st, void *row)
{
	struct idle_key *k = row;
	k->repeat.row = sqlite3_column_int64(st, 0);
	k->repeat.time_ns = sqlite3_column_int64(st, 1);
	db_get_text(st, 4, k->repeat.job, sizeof(k->repeat.job));
	return db_copy_text(st, 2, &k->repeat.effect) | db_copy_text(st, 3, &k->repeat.answer) |
	       db_copy_text(st, 5, &k->of);
}

static void done_idle(void *row)
{
	struct idle_key *k = row;
	repeat_done(&k->repeat);
	free(k->of);
}

void idle_keys_free(struct idle_key *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		done_idle(&rows[i]);
	free(rows);
}

int catalog_idle_keys(struct catalog *c, const char *about, struct idle_key **rows, size_t *n,
		      struct err *err)
{
	static const struct db_shape shape = { "look up what was under way",
					       sizeof(struct idle_key), read_idle, done_idle };
	size_t kept = 0;
	int r = db_select(c,
			  "SELECT rowid, time, effect, answer, job, " KEY_OF " FROM repeats"
			  " WHERE status IS NULL AND " INTENT
			  " AND (?1 IS NULL OR instr(effect, '/' || ?1 || '/'))",
			  DB(db_text(about)), &shape, rows, n, err);
	if (r < 0)
		return r;
	pthread_mutex_lock(&c->lock);
	for (size_t i = 0; i < *n; i++) {
		if (*find_work(c, (*rows)[i].of))
			done_idle(&(*rows)[i]);
		else
			(*rows)[kept++] = (*rows)[i];
	}
	pthread_mutex_unlock(&c->lock);
	*n = kept;
	return 0;
}

/* A statement on that row of `repeats`, if it is as it was and still open: how many it changed. */
static int change_idle(struct catalog *c, const char *sql, const struct repeat *was,
		       unsigned status, const char *text, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_exec(c, sql,
		    DB(db_int(was->row), db_int(was->time_ns), db_int(status),
		       db_text_or_null(text)),
		    "tell how it ended", err);
	db_unlock(c);
	return r;
}
#define IDLE_ROW "rowid = ?1 AND time = ?2 AND status IS NULL"

int catalog_repeat_made(struct catalog *c, const struct repeat *was, struct err *err)
{
	return change_idle(c,
			   "UPDATE repeats SET status = " MADE_STATUS " WHERE " IDLE_ROW
			   " AND " MADE,
			   was, 0, NULL, err);
}

int catalog_repeat_settle(struct catalog *c, const struct repeat *was, unsigned status,
			  const char *answer, struct err *err)
{
	int r = change_idle(c,
			    status ? "UPDATE repeats SET status = ?3, answer = ifnull(?4, answer)"
				     " WHERE " IDLE_ROW
				   : "DELETE FROM repeats WHERE " IDLE_ROW,
			    was, status, answer, err);
	return r < 0 ? r : 0;
}

int catalog_repeat_undone(struct catalog *c, const struct repeat *was, struct err *err)
{
	int r = change_idle(c, "UPDATE repeats SET effect = NULL, answer = NULL WHERE " IDLE_ROW,
			    was, 0, NULL, err);
	return r < 0 ? r : drop_unmade(c, err);
}

int catalog_repeat_left(struct catalog *c, const struct repeat *was, const char *left,
			struct err *err)
{
	int r = change_idle(c,
			    "UPDATE repeats SET effect = ifnull(?4, 'again' || substr(effect, 3)),"
			    " job = NULL WHERE " IDLE_ROW,
			    was, 0, left, err);
	return r < 0 ? r : 0;
}

int catalog_intended(struct catalog *c, const char *id, struct err *err)
{
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_has(c, "SELECT 1 FROM repeats WHERE status IS NULL AND substr(effect, 1, ?2) = ?1",
		   DB(db_text(id), db_int((int64_t)strlen(id))), "look up what was to be made",
		   err);
	db_unlock(c);
	return r;
}

/* ---- jobs ---- */

#define JOB_COLUMNS "id, owner, object, state, path, answer, status, created, ended, again"

void job_row_done(struct job_row *r)
{
	free(r->path);
	free(r->answer);
	free(r->again);
	memset(r, 0, sizeof(*r));
}

void job_rows_free(struct job_row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		job_row_done(&rows[i]);
	free(rows);
}

static int insert_job(struct catalog *c, const struct job_row *row, struct err *err)
{
	return db_exec(c,
		       "INSERT INTO jobs (id, owner, object, state, path, created, again)"
		       " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
		       DB(db_text(row->id), db_text(row->owner), db_text_or_null(row->object),
			  db_text(row->state), db_text(row->path), db_int(row->created_ns),
			  db_text_or_null(row->again)),
		       "insert a job", err);
}

/* The job does what the key is for. */
static int give_key(struct catalog *c, const struct doing *d, const char *job, struct err *err)
{
	return db_exec(c, "UPDATE repeats SET job = ?5, sum = ifnull(?6, sum) WHERE " REPEAT_KEY,
		       DB(DB_KEY(d), db_text(job), sum_of(d)), "note whose job it is", err);
}

int catalog_job_insert(struct catalog *c, const struct job_row *row, struct err *err)
{
	struct doing *d = doing_now();
	bool fresh = d && d->path && !d->keyed;
	if (fresh && !d->key && !(d->key = strdup(row->id)))
		return err_no_memory(err);
	auto_free char *of = fresh ? key_of(d) : NULL;
	int r = fresh && !of ? err_no_memory(err) : db_start(c, err);
	if (r < 0)
		return r;
	r = insert_job(c, row, err);
	if (r >= 0 && fresh)
		r = take_key(c, d, row->created_ns, err);
	if (r >= 0 && (fresh || (d && d->keyed)))
		r = give_key(c, d, row->id, err);
	if (r >= 0 && fresh)
		r = begin_work(c, of, err);
	r = db_finish(c, r, err);
	if (r >= 0 && fresh)
		d->keyed = true;
	return r < 0 ? r : 0;
}

/* A key that a job has, and who began it. */
struct job_key {
	char caller[CALLER_SIZE];
	char *key;
	struct repeat was;
};

static int read_key(sqlite3_stmt *st, void *row)
{
	struct job_key *k = row;
	db_get_text(st, 0, k->caller, sizeof(k->caller));
	int e = db_copy_text(st, 1, &k->key) | db_copy_text(st, 4, &k->was.answer) |
		db_copy_text(st, 5, &k->was.effect);
	(void)get_digest(st, 2, &k->was.body);
	k->was.status = (unsigned)sqlite3_column_int(st, 3);
	return e < 0 || !k->key ? -ENOMEM : 0;
}

static void done_key(void *row)
{
	struct job_key *k = row;
	free(k->key);
	repeat_done(&k->was);
}

/* What `k` has becomes theirs. */
static void take_job_key(struct job_key *k, struct doing *d, struct repeat *out)
{
	const char *token = strchr(k->caller, ' ');
	(void)snprintf(d->caller.token, sizeof(d->caller.token), "%s", token ? token + 1 : "");
	free(d->key);
	d->key = k->key;
	d->keyed = true;
	d->body = k->was.body;
	*out = k->was;
}

int catalog_job_repeat(struct catalog *c, const char *id, struct doing *d, struct repeat *out,
		       struct err *err)
{
	static const struct db_shape shape = { "look up a job's key", sizeof(struct job_key),
					       read_key, done_key };
	struct job_key k;
	*out = (struct repeat){ 0 };
	int r = db_lock(c, err);
	if (r < 0)
		return r;
	r = db_first(c,
		     "SELECT owner, key, body, status, answer, effect FROM repeats WHERE job = ?1",
		     DB(db_text(id)), &shape, &k, err);
	if (r > 0) {
		take_job_key(&k, d, out);
		auto_free char *of = key_of(d);
		r = of ? begin_work(c, of, err) : err_no_memory(err);
	} else if (r == 0) {
		r = -ENOENT;
	}
	db_unlock(c);
	if (r == -ENOMEM)
		repeat_done(out);
	return r;
}

int catalog_job_end(struct catalog *c, const struct job_row *row, struct err *err)
{
	return db_change(c,
			 "UPDATE jobs SET state = ?2, answer = ?3, status = ?4, ended = ?5"
			 " WHERE id = ?1",
			 DB(db_text(row->id), db_text(row->state), db_text_or_null(row->answer),
			    db_int(row->status), db_int(row->ended_ns)),
			 "end a job", err);
}

int catalog_job_left(struct catalog *c, const char *id, struct err *err)
{
	return db_change(c, "UPDATE jobs SET begun = begun - 1 WHERE id = ?1", DB(db_text(id)),
			 "leave a job", err);
}

static int read_job(sqlite3_stmt *st, void *row)
{
	struct job_row *j = row;
	db_get_text(st, 0, j->id, sizeof(j->id));
	db_get_text(st, 1, j->owner, sizeof(j->owner));
	db_get_text(st, 2, j->object, sizeof(j->object));
	db_get_text(st, 3, j->state, sizeof(j->state));
	int e = db_copy_text(st, 4, &j->path) | db_copy_text(st, 5, &j->answer) |
		db_copy_text(st, 9, &j->again);
	j->status = (unsigned)sqlite3_column_int(st, 6);
	j->created_ns = sqlite3_column_int64(st, 7);
	j->ended_ns = sqlite3_column_int64(st, 8);
	return e;
}

static void done_job(void *row)
{
	job_row_done(row);
}

static const struct db_shape job_shape = { "look up jobs", sizeof(struct job_row), read_job,
					   done_job };

int catalog_job_get(struct catalog *c, const char *id, struct job_row *out, struct err *err)
{
	return db_find(c, "SELECT " JOB_COLUMNS " FROM jobs WHERE id = ?1", DB(db_text(id)),
		       &job_shape, out, "job", id, err);
}

int catalog_job_page(struct catalog *c, const struct list_want *want, struct job_row **rows,
		     size_t *n, struct err *err)
{
#define PAGE(when)                                                                           \
	"SELECT " JOB_COLUMNS " FROM jobs WHERE " when " created <= ?1 AND (created < ?1 OR" \
	" id < ?2) ORDER BY created DESC, id DESC LIMIT ?4"
	return db_select(c, want->sees ? PAGE("owner = ?3 AND") : PAGE(""),
			 DB(DB_LIST_VALUES(want)), &job_shape, rows, n, err);
#undef PAGE
}

int catalog_job_running(struct catalog *c, struct job_row **rows, size_t *n, struct err *err)
{
	return db_select(c,
			 "SELECT " JOB_COLUMNS " FROM jobs WHERE state = 'running'"
			 " ORDER BY created, id",
			 DB(), &job_shape, rows, n, err);
}

/* ---- all of them ---- */

int catalog_journal_begin(struct catalog *c, struct err *err)
{
	int r = run_with(c,
			 "UPDATE repeats SET effect = NULL, answer = NULL"
			 " WHERE status IS NULL AND " UNMADE,
			 0, err);
	if (r >= 0)
		r = drop_unmade(c, err);
	if (r >= 0) /* intents_resolve looks at the others */
		r = run_with(c,
			     "UPDATE repeats SET status = " MADE_STATUS
			     " WHERE status IS NULL AND " MADE,
			     0, err);
	return r;
}

int catalog_jobs_cut(struct catalog *c, struct err *err)
{
	int r = run_with(c,
			 "UPDATE jobs SET begun = begun + 1"
			 " WHERE state = 'running' AND again IS NOT NULL",
			 0, err);
	if (r >= 0)
		r = run_with(
			c,
			"UPDATE jobs SET state = 'failed', status = 503, ended = created, answer ="
			" '{\"code\":\"unavailable\",\"message\":\"the daemon ended' ||"
			" CASE WHEN again IS NOT NULL THEN ' each time that this was begun'"
			" WHEN path LIKE '%/push' THEN ': the other side may have it, and nothing"
			" changes there when it is pushed again'"
			" ELSE ': nothing of it is left, ask again' END ||"
			" '\",\"details\":{}}'"
			" WHERE state = 'running' AND (again IS NULL OR begun > ?1)",
			JOB_AGAIN_MAX, err);
	if (r >= 0) /* their keys are free */
		r = run_with(c,
			     "UPDATE repeats SET job = NULL WHERE status IS NULL AND job IN"
			     " (SELECT id FROM jobs WHERE state = 'failed')",
			     0, err);
	return r < 0 ? r : drop_unmade(c, err);
}

int catalog_journal_trim(struct catalog *c, int64_t now_ns, struct err *err)
{
	int64_t old = now_ns - (int64_t)KEPT_S * 1000000000;
	int r = run_with(c, "DELETE FROM repeats WHERE time < ?1", old, err);
	if (r >= 0)
		r = run_with(c, "DELETE FROM jobs WHERE state <> 'running' AND ended < ?1", old,
			     err);
	if (r >= 0)
		r = run_with(c, "DELETE FROM tokens WHERE expires < ?1", old, err);
	if (r >= 0)
		r = run_with(c, "DELETE FROM deliveries WHERE next IS NULL AND created < ?1", old,
			     err);
	return r;
}
