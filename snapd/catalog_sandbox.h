/* Rows of sandboxes, of what is attached to them, and of the processes that were run in them.
 *
 * No secret is ever in them: of an environment the names alone, of a process its words. Threads and
 * durability are the catalog's. */
#ifndef BOUGH_SNAPD_CATALOG_SANDBOX_H
#define BOUGH_SNAPD_CATALOG_SANDBOX_H

#include "snapd/catalog.h"

enum sandbox_status {
	SANDBOX_CREATED,
	SANDBOX_RUNNING,
	SANDBOX_PAUSED,
	SANDBOX_STOPPED,
	SANDBOX_HIBERNATED,
	SANDBOX_FAILED,
};
extern const char *const sandbox_status_names[];

enum { REASON_SIZE = 16 };

struct sandbox_row {
	char id[ID_SIZE], name[NAME_SIZE]; /* "sb_…" */
	struct owned own;
	int64_t created_ns, started_ns, ended_ns, active_ns; /* 0: never */
	enum sandbox_status status;
	char problem[BROKEN_SIZE]; /* of SANDBOX_FAILED */
	char reason[REASON_SIZE];  /* how its last run ended (process_reason); "" */
	int exit_code;             /* of its own process's last run; -1: none yet */
	char root[ID_SIZE];        /* the workspace that is its root; "": not made yet */
	char policy[ID_SIZE];      /* "": none */
	uint32_t pid;              /* of its first process on the host; 0 */
	uint32_t id_base;          /* 0: it has no range of ids now */
	bool made;                 /* false: boughd died while it was made */
	bool starting;             /* it is to run, and doesn't yet */
	char *spec;                /* what doesn't change (sandbox_spec.h), as JSON */
	char *labels, *description;
};
void sandbox_row_done(struct sandbox_row *r);
void sandbox_rows_free(struct sandbox_row *rows, size_t n);
#define auto_sandbox_row __attribute__((cleanup(sandbox_row_done))) struct sandbox_row

/* As a workspace's: by id, name, "OWNER/NAME". */
int catalog_sandbox_get(struct catalog *c, const char *key, struct sandbox_row *out,
			struct err *err);
/* Newest first. */
int catalog_sandbox_list(struct catalog *c, struct sandbox_row **rows, size_t *n, struct err *err);
/* Those that are made; of a status (its name's number) unless < 0. */
int catalog_sandbox_page(struct catalog *c, int status, const struct list_want *want,
			 struct sandbox_row **rows, size_t *n, struct err *err);
/* -EEXIST: the name is taken. */
int catalog_sandbox_insert(struct catalog *c, const struct sandbox_row *row, struct err *err);
int catalog_sandbox_has_name(struct catalog *c, const char *owner, const char *name,
			     struct err *err);

/* What is not NULL of it is changed. -ENOENT, -EEXIST (the name). */
struct sandbox_patch {
	const char *name, *labels, *description; /* "" takes the last two away */
	const struct owned *own;                 /* all of it but the owner */
	const char *root, *problem, *reason, *spec;
	const enum sandbox_status *status;
	const int *exit_code;
	const uint32_t *pid;
	const int64_t *started_ns, *ended_ns;
	const bool *made, *starting;
};
int catalog_sandbox_patch(struct catalog *c, const char *id, const struct sandbox_patch *p,
			  struct err *err);
/* They are made to the end: all of them, or none. */
int catalog_sandboxes_made(struct catalog *c, const struct sandbox_row *rows, size_t n,
			   struct err *err);
/* Somebody used it. */
int catalog_sandbox_active(struct catalog *c, const char *id, int64_t when_ns, struct err *err);
/* With its execs and attachments. */
int catalog_sandbox_delete(struct catalog *c, const char *id, struct err *err);

/* Begins a start. The range of `size` ids that begins with *base, of `count` that begin at `first`;
 * one that was given back comes as late as may be. -ENOSPC: all are taken. */
int catalog_range_take(struct catalog *c, const char *id, uint32_t first, uint32_t size,
		       uint32_t count, uint32_t *base, struct err *err);
int catalog_range_give(struct catalog *c, const char *id, struct err *err);

/* ---- attached workspaces ---- */

enum { TARGET_SIZE = 1024 };

struct attached_row {
	char sandbox[ID_SIZE], workspace[ID_SIZE];
	char target[TARGET_SIZE]; /* absolute, inside */
	bool read_only, exclusive;
	char by[OWNER_SIZE]; /* by whose rights; "": the sandbox's owner's */
	bool own;            /* it was made for the sandbox */
};
/* -EEXIST: something is at that target, or one of the two wants the workspace for itself alone. */
int catalog_attach(struct catalog *c, const struct attached_row *row, struct err *err);
int catalog_detach(struct catalog *c, const char *sandbox, const char *target, struct err *err);
/* Of a sandbox, or of a workspace (the other is NULL), in the order of their targets; both NULL:
 * all. */
int catalog_attached(struct catalog *c, const char *sandbox, const char *workspace,
		     struct attached_row **rows, size_t *n, struct err *err);

/* ---- processes ---- */

enum exec_status { EXEC_CREATED, EXEC_RUNNING, EXEC_EXITED };
extern const char *const exec_status_names[];

struct exec_row {
	char id[ID_SIZE], sandbox[ID_SIZE]; /* "ex_…" */
	char by[OWNER_SIZE];
	enum exec_status status;
	char reason[REASON_SIZE];
	int exit_code; /* -1: it hasn't */
	uint32_t pid;
	int64_t created_ns, started_ns, ended_ns;
	char *spec; /* {"command": […], "env": [names], "cwd", "user", "tty", "stdin", …} */
};
void exec_row_done(struct exec_row *r);
void exec_rows_free(struct exec_row *rows, size_t n);
#define auto_exec_row __attribute__((cleanup(exec_row_done))) struct exec_row

int catalog_exec_insert(struct catalog *c, const struct exec_row *row, struct err *err);
int catalog_exec_started(struct catalog *c, const char *id, uint32_t pid, int64_t when_ns,
			 struct err *err);
int catalog_exec_ended(struct catalog *c, const char *id, int exit_code, const char *reason,
		       int64_t when_ns, struct err *err);
int catalog_exec_get(struct catalog *c, const char *id, struct exec_row *out, struct err *err);
/* Newest first. */
int catalog_exec_list(struct catalog *c, const char *sandbox, struct exec_row **rows, size_t *n,
		      struct err *err);
int catalog_exec_delete(struct catalog *c, const char *id, struct err *err);

#endif
