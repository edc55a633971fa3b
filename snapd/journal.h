/* What outlives a request: who did what (audit), what was answered to which Idempotency-Key, which
 * jobs there were. Rows of the catalog. */
#ifndef BOUGH_SNAPD_JOURNAL_H
#define BOUGH_SNAPD_JOURNAL_H

#include "snapd/catalog.h"
#include "snapd/principal.h"

enum {
	/* Rows. Where there are more, who has most of them loses his oldest. */
	AUDIT_MAX = 1000000,
	AUDIT_BESIDE = 256, /* rows that there may be beyond that until it is looked at */
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

/* ---- repeated calls ----
 *
 * A key is somebody's from catalog_repeat_begin until catalog_repeat_leave. Where nobody works for
 * one, and it isn't known how it ended, its call was cut off: by a kill, or by a failure behind
 * which its effect may have come, or come yet. Such a key is idle, and intent_settle (intents.h)
 * finds out what became of it. */

struct repeat {
	int64_t row, time_ns; /* of its row, by which it is known again */
	struct digest body;
	struct digest sum; /* of the upload (doing_summed), where has_sum */
	bool has_sum;
	bool idle;       /* catalog_repeat_begin's; what follows is as it was noted */
	unsigned status; /* 0: it isn't known how it ended */
	char *answer;    /* JSON; NULL: none */
	char *effect;    /* ids of what was made, separated by blanks; NULL: nothing */
	char job[ID_SIZE]; /* that does it; "": none does */
};
void repeat_done(struct repeat *r);
/* Takes the key for this work (1), or tells what is there already (0). Of what is left to be done
 * (catalog_repeat_left) by who asks again: 1, and out->effect says what it was. */
int catalog_repeat_begin(struct catalog *c, const struct doing *d, struct repeat *out,
			 struct err *err);
/* What is there. */
int catalog_repeat_get(struct catalog *c, const struct doing *d, struct repeat *out,
		       struct err *err);
/* How it ended; status 0: as if it had never been. */
int catalog_repeat_end(struct catalog *c, const struct doing *d, unsigned status,
		       const char *answer, struct err *err);
/* Nobody works for it any more. */
void catalog_repeat_leave(struct catalog *c, const struct doing *d);

/* The idle ones of which the catalog alone can't tell what became of them (intents.h); `about`
 * (NULL: all): of that workspace. The caller frees. */
struct idle_key {
	struct repeat repeat; /* without body and sum */
	char *of;             /* the catalog's own */
};
void idle_keys_free(struct idle_key *rows, size_t n);
int catalog_idle_keys(struct catalog *c, const char *about, struct idle_key **rows, size_t *n,
		      struct err *err);
/* What became of such a one; nothing happens where it isn't as `was` any more. status 0: as if it
 * had never been. answer NULL: as it was noted. */
int catalog_repeat_settle(struct catalog *c, const struct repeat *was, unsigned status,
			  const char *answer, struct err *err);
/* At the start: it never happened, and a job may do it (jobs_resume). */
int catalog_repeat_undone(struct catalog *c, const struct repeat *was, struct err *err);
/* Something of it is left, noted as "again/…" (NULL: as its effect is): who asks for it again does
 * that, and finds it noted as "by/…". */
int catalog_repeat_left(struct catalog *c, const struct repeat *was, const char *left,
			struct err *err);
/* 1: what it was to make is there, and that it has happened is noted; 0: it isn't. */
int catalog_repeat_made(struct catalog *c, const struct repeat *was, struct err *err);

/* That `id` is about to be made for the key of this thread's work: for a snapshot or repository,
 * which a kill can leave as a record that the next start adopts, so that it isn't made once more
 * then. */
int catalog_intend(struct catalog *c, const char *id, struct err *err);

/* The same of what the catalog doesn't see (intents.h): `effect` is kept in place of what was noted
 * before, and `answer` (JSON; NULL: none) for when it is asked for again. */
int catalog_intend_into(struct catalog *c, const char *effect, const char *answer,
			struct err *err);
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
/* `sees`: of that owner alone. */
int catalog_job_page(struct catalog *c, const struct list_want *want, struct job_row **rows,
		     size_t *n, struct err *err);
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
