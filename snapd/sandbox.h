/* Sandboxes: containers on workspaces, and their life.
 *
 * A sandbox is a row of the catalog (catalog_sandbox.h), a hidden workspace that is its root (a
 * fork of an image's snapshot), workspaces that are attached to it, and, while it runs, a box with
 * its walls (runtime/box.h), a shim (runtime/shim.h) and a bough-io (runtime/output.h). The latter
 * three outlive boughd: sandboxes_find takes them over. What was written to its outputs stays
 * until the sandbox is removed.
 *
 *     ROOT/box/<id>/             the box
 *     ROOT/io/<id>/              outputs, and process.json: what its own process is started with
 *
 * States and what may follow:
 *     created -> running          sandbox_start
 *     running <-> paused          sandbox_pause, sandbox_resume
 *     running, paused -> stopped  its own process ends, by itself or by sandbox_stop
 *     any -> failed               it couldn't be started (boughd may have ended in the middle), or
 *                                 its shim died; what it held is freed
 *     stopped, failed -> running  sandbox_start
 *
 * Functions that change a sandbox want its lease EXCLUSIVE held by the caller; an exec SHARED.
 * Waiting for the ends of processes costs one descriptor each and no thread (SANDBOX_WORKERS do it
 * for all). Threads: any. */
#ifndef BOUGH_SNAPD_SANDBOX_H
#define BOUGH_SNAPD_SANDBOX_H

#include "runtime/box.h"
#include "runtime/output.h"
#include "runtime/shim.h"
#include "snapd/catalog_sandbox.h"
#include "snapd/sandbox_spec.h"
#include "snapd/snapd.h"

enum {
	SANDBOX_WORKERS = 4,      /* a shim that hangs holds up one of them */
	SANDBOX_GRACE_MS = 10000, /* from TERM to KILL, where nobody says otherwise */
	SANDBOX_EXECS_KEPT = 128, /* of those that have ended, with their output; and as many as */
	SANDBOX_EXECS_MAX = 512,  /* may run at once in one sandbox, */
	SANDBOX_HEARD_S = 60,     /* if they have ended within so long */
	SANDBOX_IDS_FIRST = IDS_FIRST,
	SANDBOX_IDS_COUNT = (IDS_END - IDS_FIRST) / IDS_RANGE,
};
enum { SANDBOX_KEY_SIZE = OWNER_SIZE + NAME_SIZE };
#define SANDBOX_MAIN "main" /* the key of its own process's output */

/* Where its box and its outputs are. */
void sandbox_box_path(const struct snapd *sd, const char *id, char out[PATH_SIZE]);
void sandbox_io_path(const struct snapd *sd, const char *id, char out[PATH_SIZE]);

struct principal;
struct sandboxes;
int sandboxes_new(struct sandboxes **out, struct snapd *sd, struct err *err);
/* At boughd's start: takes over what runs, and frees what those that don't run have left. */
int sandboxes_find(struct snapd *sd, struct err *err);
/* Streams end and wait no more; sandboxes go on. */
void sandboxes_quit(struct sandboxes *s);
void sandboxes_free(struct sandboxes *s); /* NULL allowed */
/* Readable once sandboxes_quit was called. */
int sandboxes_quit_fd(const struct sandboxes *s);

/* ---- life ---- */

/* Starts it. `secrets`: those that its spec names; NULL or none: those that a restore has kept
 * which was cut off, or -EINVAL. Where it can't be, all is as before, but that it has failed.
 * -ESTALE: it runs already. */
int sandbox_start(struct snapd *sd, const char *id, const struct secrets *secrets, struct err *err);
/* TERM (with that number, as shim_signal), and KILL after grace_ms; then all that it held is given
 * back. -ESTALE: it doesn't run. */
int sandbox_stop(struct snapd *sd, const char *id, int grace_ms, uint64_t number, struct err *err);
/* The row says how it is: what has ended, and nobody has dealt with yet, is dealt with. */
int sandbox_settle(struct snapd *sd, const char *id, struct err *err);
int sandbox_pause(struct snapd *sd, const char *id, struct err *err);
int sandbox_resume(struct snapd *sd, const char *id, struct err *err);
/* Removes every trace; a running one (-EBUSY) only with SANDBOX_FORCE. SANDBOX_OWN: with the
 * workspaces that were made for it and that no other has attached; they can be brought back, but
 * for those of one that was to be removed at its end. */
enum { SANDBOX_FORCE = 1, SANDBOX_OWN = 2 };
int sandbox_remove(struct snapd *sd, const char *id, unsigned how, struct err *err);
/* Ends all that run, before their file systems end: as sandbox_stop, at the same time; those, too,
 * that are just being started. None is started any more (-ESHUTDOWN), until sandboxes_open. */
void sandbox_stop_all(struct snapd *sd, int grace_ms);
void sandboxes_open(struct snapd *sd);
/* Somebody used it: at most one write in some seconds. */
void sandbox_touch(struct snapd *sd, const struct sandbox_row *row);

/* ---- making ---- */

struct sandbox_new {
	const char *name, *labels, *description; /* labels "": none; description NULL: none */
	struct owned own;
	struct sandbox_spec spec; /* command and environment of its process: process.json */
	bool start;               /* a start follows: one that never comes has failed */
	json_t *process;          /* {"argv": […]|null, "env": ["K=V", …]}; taken over */
	const struct attached_row *attached; /* without `sandbox` */
	size_t n_attached;
};
/* The row, a root and what is attached; not started. The caller is to be known (doing_now). */
int sandbox_make(struct snapd *sd, const struct sandbox_new *n, struct sandbox_row *out,
		 struct err *err);

/* ---- images (sandbox_image.c) ---- */

struct sandbox_image {
	char snapshot[ID_SIZE];
	bool host;      /* its /usr is this machine's */
	json_t *config; /* oci.h's object; never NULL */
};
void sandbox_image_done(struct sandbox_image *im);
#define auto_image __attribute__((cleanup(sandbox_image_done))) struct sandbox_image
/* "host", or a snapshot's id or name: of an image, or of a sandbox that was saved. */
int sandbox_image_find(struct snapd *sd, const char *key, struct sandbox_image *out,
		       struct err *err);

/* ---- processes ---- */

struct exec_new {
	json_t *command; /* borrowed: strings, at least one */
	json_t *env;     /* borrowed: "K=V" strings; NULL: none */
	const char *cwd, *user;
	bool tty, in;
	uint32_t timeout_ms, columns, rows;
};
/* Starts it; *out is its row. -ETIMEDOUT: its shim doesn't answer, and it may have begun. */
int sandbox_exec(struct snapd *sd, const char *id, const struct exec_new *n, struct exec_row *out,
		 struct err *err);
enum exec_fate {
	EXEC_NEVER, /* it hasn't begun, and never will: its row is gone */
	EXEC_BEGUN, /* as its row says */
	EXEC_LOST,  /* nobody can tell: its row says that it has ended, as lost */
};
/* What became of one whose call was cut off: an enum exec_fate; -errno: it can't be told now. */
int sandbox_exec_settle(struct snapd *sd, const char *exec, struct err *err);
/* `number` of shim_signal; `again`: it may have been sent before. */
struct signal_note {
	uint64_t number;
	bool again;
};
/* `exec`: an exec's id, or SANDBOX_MAIN. -ESTALE: it has ended. */
int sandbox_signal(struct snapd *sd, const char *id, const char *exec, int sig,
		   const struct signal_note *note, struct err *err);
int sandbox_resize(struct snapd *sd, const char *id, const char *exec, uint32_t columns,
		   uint32_t rows, struct err *err);
/* Input at an offset; as output_write and output_close_input, with the shim told. */
int sandbox_input(struct snapd *sd, const char *id, const char *exec, uint64_t offset,
		  const void *data, size_t n, struct err *err);
int sandbox_input_end(struct snapd *sd, const char *id, const char *exec, struct err *err);

/* How a process ended; false: it hasn't. */
struct process_end {
	int code;
	char reason[REASON_SIZE];
	int64_t when_ns;
};
bool sandbox_ended(struct snapd *sd, const char *id, const char *exec, struct process_end *out);
/* Waits until some process of any sandbox has ended, or wait_ms are over. */
void sandbox_wait_any(struct snapd *sd, uint64_t *seen, int wait_ms);
/* "exited", "signal", "oom", "timeout", "not_found", "denied"; "lost" is said by others. */
const char *process_reason(uint32_t exit_status, bool oom);

/* ---- workspaces (sandbox_mounts.c) ---- */

int sandbox_attach(struct snapd *sd, const char *id, const struct attached_row *row,
		   struct err *err);
/* -EBUSY: something uses it, unless `force`. */
int sandbox_detach(struct snapd *sd, const char *id, const char *target, bool force,
		   struct err *err);
/* A sandbox that uses the workspace: as its root (is_root), or attached; *key is as sandbox_key.
 * 1, 0, -errno. */
int sandbox_of_workspace(struct snapd *sd, const struct ws_row *ws, bool running_only,
			 char key[SANDBOX_KEY_SIZE], struct err *err);
/* Before the workspace is restored or merged into: -EBUSY where a sandbox that runs, other than
 * `but` (NULL: none), has it and wouldn't see that (runtime_kind.sees_restores). 1: one needs
 * another st_ino for that (spec_own_kernel, fs_restore). */
int sandbox_check_seen(struct snapd *sd, const char *workspace, const char *but, struct err *err);

/* ---- rights (sandbox_rights.c) ---- */

/* What the caller names it by: NAME, or OWNER/NAME of another's. */
void sandbox_key(const struct sandbox_row *row, char out[SANDBOX_KEY_SIZE]);
/* By whose rights the caller attaches: his own, or those of an admin. */
void sandbox_vouch(char by[OWNER_SIZE]);
/* Whether it may still use what it is to use, or (`target`) what is attached there: -EPERM or
 * -ENOENT (a workspace that is gone) tells what not. */
int sandbox_judge(struct snapd *sd, const char *id, const char *target, struct err *err);
/* Whether somebody may make a sandbox of its image: -EPERM. */
int sandbox_judge_image(struct snapd *sd, const struct sandbox_spec *spec,
			const struct principal *who, struct err *err);
/* Somebody may less than before: what sandboxes that run may no longer use is taken off by force,
 * and where it can't be, they are stopped. `workspace` NULL: all. */
int sandboxes_judge(struct snapd *sd, const char *workspace, struct err *err);
/* Takes the workspace off all sandboxes in that way. */
int sandboxes_let_go(struct snapd *sd, const char *workspace, struct err *err);

/* ---- saving (sandbox_save.c) ---- */

struct progress;
/* {"root": snapshot, "workspaces": […], "pause_ns"} */
int sandbox_save(struct snapd *sd, const char *id, const char *name, const char *message,
		 struct progress *p, json_t **out, struct err *err);
/* Forks it: rows of new sandboxes with forks of its root and of what it may write to. */
int sandbox_fork(struct snapd *sd, const char *id, const char *const *names, size_t n,
		 struct sandbox_row *out, uint64_t *pause_ns, struct err *err);
/* Back to what `snapshot` (a root that was saved) says; `live`: only workspaces, under running
 * processes. */
int sandbox_restore(struct snapd *sd, const char *id, const char *snapshot, bool live,
		    struct err *err);

struct sandbox_figures {
	bool running;
	struct shim_stats shim;
	uint64_t disk_bytes, inodes;
};
int sandbox_figures(struct snapd *sd, const char *id, struct sandbox_figures *out, struct err *err);

#endif
