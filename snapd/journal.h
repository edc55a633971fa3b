/* What outlives a request: who did what (audit), what was answered to which Idempotency-Key, which
 * jobs there were. Rows of the catalog. */
#ifndef BOUGH_SNAPD_JOURNAL_H
#define BOUGH_SNAPD_JOURNAL_H

#include "snapd/catalog.h"
#include "snapd/principal.h"

enum {
	AUDIT_MAX = 1000000, /* rows; the oldest go */
	KEPT_S = 24 * 3600,  /* answers to keys, results of jobs */
	JOB_AGAIN_MAX = 3,
	ANSWER_MAX =
		1 << 20 /* bytes of one that are kept; longer ones are told by what they made */
};

/* ---- audit ---- */

struct audit_row {
	int64_t seq, time_ns;
	char owner[OWNER_SIZE], token[ID_SIZE], from[FROM_SIZE], object[ID_SIZE];
	char user[NAME_SIZE]; /* the name that the owner has by now; "": none. Not written */
	char method[8];
	char *path, *about; /* about: a JSON text; NULL: nothing */
	unsigned status;
};
void audit_rows_free(struct audit_row *rows, size_t n);
int catalog_audit_add(struct catalog *c, const struct audit_row *row, struct err *err);
/* Which are asked for. */
struct audit_query {
	char owner[OWNER_SIZE], object[ID_SIZE], token[ID_SIZE]; /* "": any */
	char method[8];
	int64_t since_ns, until_ns; /* from the one on, and before the other; 0: no bound */
	bool failed;                /* only those that were refused */
};
/* Newest first: up to `max` with a seq below `before` (0: all). */
int catalog_audit_list(struct catalog *c, const struct audit_query *q, int64_t before, size_t max,
		       struct audit_row **rows, size_t *n, struct err *err);

/* ---- repeated calls ---- */

struct repeat {
	struct digest body;
	struct digest sum; /* of the upload (doing_summed), where has_sum */
	bool has_sum;
	unsigned status; /* 0: it isn't known how it ended */
	char *answer;    /* JSON; NULL: none */
	char *effect;    /* ids of what was made, separated by blanks; NULL: nothing */
	char job[ID_SIZE]; /* that does it; "": none does */
};
void repeat_done(struct repeat *r);
/* Takes the key for this work (1), or tells what is there already (0). What a kill left to be done
 * again (a push, catalog_intent_left) is: 1, and out->effect says what it was. */
int catalog_repeat_begin(struct catalog *c, const struct doing *d, struct repeat *out,
			 struct err *err);
/* What is there. */
int catalog_repeat_get(struct catalog *c, const struct doing *d, struct repeat *out,
		       struct err *err);
/* How it ended; status 0: as if it had never been, but for a push, which then is left to be done
 * again with its commit. */
int catalog_repeat_end(struct catalog *c, const struct doing *d, unsigned status,
		       const char *answer, struct err *err);

/* It ended, and what bough-fs was asked for (intent_files) may have happened, or happen yet: the
 * effect is kept, as "ask/…", until catalog_repeat_settle. 1; 0: nothing like that was noted. */
int catalog_repeat_doubt(struct catalog *c, const struct doing *d, struct err *err);
/* Of one that was left so: how it has ended; status 0: it never happened. */
int catalog_repeat_settle(struct catalog *c, const struct doing *d, const char *effect,
			  unsigned status, const char *answer, struct err *err);

/* That `id` is about to be made for the key of this thread's work: for a snapshot or repository,
 * which a kill can leave as a record that the next start adopts, so that it isn't made once more
 * then. */
int catalog_intend(struct catalog *c, const char *id, struct err *err);

/* The same of what the catalog doesn't see (intents.h): `effect` is kept in place of what was noted
 * before, and `answer` (JSON; NULL: none) for when it is asked for again. */
int catalog_intend_into(struct catalog *c, const char *effect, const char *answer,
			struct err *err);
/* Those of which it isn't known how they ended. */
struct intent_row {
	char *effect, *answer;
};
void intent_rows_free(struct intent_row *rows, size_t n);
int catalog_intents(struct catalog *c, struct intent_row **rows, size_t *n, struct err *err);
/* Such a one has happened, and is answered so (NULL: as it was noted); status 0: it is as if it had
 * never been. */
int catalog_intent_end(struct catalog *c, const char *effect, unsigned status, const char *answer,
		       struct err *err);
/* Of such a one something is left, noted in place of it as "again/…": who asks for it again does
 * that, and finds it noted as "by/…" (catalog_repeat_begin). */
int catalog_intent_left(struct catalog *c, const char *effect, const char *left, struct err *err);
/* Whether a key waits whose first effect was to make `id`: 1 or 0. */
int catalog_intended(struct catalog *c, const char *id, struct err *err);

/* ---- jobs ---- */

struct job_row {
	char id[ID_SIZE], owner[OWNER_SIZE], object[ID_SIZE], state[12];
	char *path;   /* what was asked for */
	char *answer; /* JSON of the result or the error; NULL: none yet */
	char *again;  /* JSON from which it is begun anew after a kill; NULL: it isn't */
	unsigned status;
	int64_t created_ns, ended_ns;
};
void job_row_done(struct job_row *r);
void job_rows_free(struct job_row *rows, size_t n);
/* It does the work of this thread's key from now on; without one its id is the key, so that what it
 * does is noted like any other's. */
int catalog_job_insert(struct catalog *c, const struct job_row *row, struct err *err);
/* The key that a job left by a boughd that ended works for, into *d (key, body, caller's token),
 * and how far it is known how that ended. -ENOENT. */
int catalog_job_repeat(struct catalog *c, const char *id, struct doing *d, struct repeat *out,
		       struct err *err);
int catalog_job_end(struct catalog *c, const struct job_row *row, struct err *err);
/* It ends because boughd does, which isn't killed: that is no try (catalog_jobs_cut). */
int catalog_job_left(struct catalog *c, const char *id, struct err *err);
int catalog_job_get(struct catalog *c, const char *id, struct job_row *out, struct err *err);
/* Newest first; of one owner unless NULL. */
int catalog_job_list(struct catalog *c, const char *owner, struct job_row **rows, size_t *n,
		     struct err *err);
/* Those that run. */
int catalog_job_running(struct catalog *c, struct job_row **rows, size_t *n, struct err *err);
/* At the start, behind intents_resolve and once those are ended of which it is known how they
 * ended: of the others those have failed that aren't to be begun anew (again), or were it
 * JOB_AGAIN_MAX times: it may be what boughd dies of. */
int catalog_jobs_cut(struct catalog *c, struct err *err);

/* ---- both ---- */

/* At the start, once what the catalog had lost is adopted, and what was half made is removed: what
 * was under way when boughd died is as if it had never been asked for, or left its effect, or is a
 * job's (catalog_jobs_cut). */
int catalog_journal_begin(struct catalog *c, struct err *err);
/* Now and then: takes away what is kept no longer. */
int catalog_journal_trim(struct catalog *c, int64_t now_ns, struct err *err);

#endif
