/* What the files of sandboxes share. Not for others. */
#ifndef BOUGH_SNAPD_SANDBOX_IMPL_H
#define BOUGH_SNAPD_SANDBOX_IMPL_H

#include <pthread.h>
#include "snapd/sandbox.h"
#include "snapd/worker.h"

struct live;

/* A process whose end is waited for. */
struct proc {
	struct proc *next;
	struct live *live; /* holds a reference */
	char id[ID_SIZE];  /* of an exec; "": the sandbox's own; PROC_IO */
	int fd;            /* of shim_wait_begin; a pidfd; a timer, once until_ms is set */
	bool claimed;      /* somebody deals with its end */
	/* Of an exec whose process has ended, and something holds its output: */
	uint64_t until_ms; /* clock_ms: it isn't told of its end before that; 0: it hasn't ended */
	unsigned pause_ms; /* between two looks */
	bool told;
	bool known; /* `end` is the shim's word */
	struct process_end end;
};

enum live_frozen { LIVE_NOT_FROZEN, LIVE_BY_GROUP, LIVE_BY_RUNTIME };

#define PROC_IO "io" /* its bough-io, which is begun anew when it dies */

/* A sandbox that runs, or whose end isn't dealt with yet. */
struct live {
	struct live *next;
	struct sandboxes *all;
	unsigned refs; /* one is the list's */
	char id[ID_SIZE];
	struct shim *shim;
	struct proc *procs;
	unsigned nexecs;
	uint64_t oom_kills; /* as last seen */
	uint64_t io_ms; /* when its bough-io died first, ... */
	unsigned io_deaths; /* and how often since */
	bool paused;
	enum live_frozen frozen; /* for a moment that is over: it couldn't be thawed yet */
	bool impaired;           /* sandboxes_mend is to try again, */
	uint64_t round;          /* after this round */
	bool told;  /* to end, by sandbox_stop_all */
	bool ended; /* its own process has: `end` says how */
	bool lost;  /* nobody knows how: its shim has died */
	bool gone;  /* all that it held was given back */
	struct process_end end;
	pthread_mutex_t ending; /* held by who gives that back */
};

struct sandboxes {
	struct snapd *sd;
	char ns[32];                         /* containerd's namespace: of this ROOT alone */
	char init[PATH_SIZE], io[PATH_SIZE]; /* programs; "": not found */
	int epoll, quit_fd;
	pthread_t workers[SANDBOX_WORKERS];
	unsigned nworkers;
	struct worker *mender;
	uint64_t round; /* of its */
	pthread_mutex_t images; /* the host image is made once */
	pthread_mutex_t lock;   /* all below, and what structs live and proc have */
	pthread_cond_t changed;
	uint64_t ends; /* of processes, counted */
	unsigned starting; /* sandboxes that are just being started */
	bool closed;       /* none is, any more */
	struct live *live;
};

/* The live one; the caller's reference. NULL: it doesn't run. */
struct live *live_get(struct snapd *sd, const char *id);
/* The same of one whose own process hasn't ended; -ESTALE. */
int live_running(struct snapd *sd, const char *id, struct live **out, struct err *err);
bool live_ended(struct live *l);
bool live_paused(struct live *l);
struct live *live_new(struct snapd *sd, const char *id, struct shim *shim);
void live_put(struct live *l); /* NULL allowed */
static inline void live_putp(struct live **l)
{
	live_put(*l);
}
#define auto_live __attribute__((cleanup(live_putp))) struct live
/* Listed: live_get finds it. */
void live_list(struct live *l);
void live_unlist(struct live *l); /* nobody finds it any more */
/* Waits for the end of a process from now on; `exec` NULL: its own. Before it is started. */
int live_watch(struct live *l, const char *exec, struct err *err);
/* Not any more: it was never started. */
void live_unwatch(struct live *l, const char *exec);
/* Thaws one that was frozen for a moment; where that fails its row says so, and it is tried
 * again. */
void live_thaw(struct live *l, enum live_frozen by);
enum live_frozen live_frozen(struct live *l);
/* -ESTALE while it couldn't be thawed yet. */
int live_may_run(struct live *l, struct err *err);
/* Thaws one that still is, and attaches what isn't and should be; what fails likewise. It takes
 * its lease: where somebody has that, it is tried again. */
void live_mend(struct live *l);
/* A worker's run: those that were to be tried again. */
void sandboxes_mend(void *ctx, bool due);
/* A connection for shim_start_process, which its bough-io holds, too. The caller closes. */
int live_connect(struct live *l, const char *exec, struct err *err);
/* What became of an exec whose row says CREATED, and that nobody is just starting: an enum
 * exec_fate; -errno: it can't be told now. */
int exec_settle(struct live *l, const char *id, struct err *err);
/* Its bough-io runs, and is begun anew when it dies, until its own process has ended. */
void live_keep_io(struct live *l);
/* Gives back all that it held, once its own process has ended; waits for who does so already. */
int live_finish(struct live *l, struct err *err);
/* Waits up to wait_ms until its own process has ended. */
bool live_await_end(struct live *l, int wait_ms);
/* Its shim has died: nothing will be heard of it. */
void live_lose(struct live *l, const char *why);

/* What a row says, as runtime/ wants it. */
struct sandbox_box {
	struct sandbox_row row;
	struct sandbox_spec spec;
	struct box_config config;
	struct shim_config shim;
	struct attached_row *attached;
	size_t n_attached;
	char dir[PATH_SIZE], io[PATH_SIZE], root[PATH_SIZE];
	char (*sources)[PATH_SIZE];
	struct box_mount mounts[BOX_MOUNTS];
	struct box_secret secrets[SANDBOX_SECRETS_MAX + 1];
};
void sandbox_box_free(struct sandbox_box *b); /* NULL allowed */
static inline void sandbox_box_freep(struct sandbox_box **b)
{
	sandbox_box_free(*b);
}
#define auto_box __attribute__((cleanup(sandbox_box_freep))) struct sandbox_box
/* As the catalog has it now. */
int sandbox_box_get(struct sandbox_box **out, struct snapd *sd, const char *id, struct err *err);

struct sandbox_fifos {
	char in[PATH_SIZE + 32], out[PATH_SIZE + 32], err[PATH_SIZE + 32];
};
/* Those of output.h for a process, as the shim wants them; *io borrows from *fifos. */
void sandbox_fifos(const struct sandbox_box *b, const char *key, bool in, bool tty,
		   struct sandbox_fifos *fifos, struct shim_io *io);

/* What its own process is started with: process.json. */
int sandbox_process_write(struct snapd *sd, const char *id, const json_t *process, struct err *err);
int sandbox_process_read(struct snapd *sd, const char *id, json_t **out, struct err *err);
/* An array of "K=V" from what every process has, the image's, `own` and `more` (NULL: none). */
int sandbox_environment(struct snapd *sd, const struct sandbox_spec *spec, const json_t *own,
			const json_t *more, json_t **keep, const char ***out, struct err *err);

/* The secrets that it runs with are kept until it has started again, or is removed. */
int sandbox_secrets_keep(struct snapd *sd, const struct sandbox_box *b, struct err *err);
/* Those, if any, are added. */
int sandbox_secrets_kept(struct snapd *sd, const char *id, struct secrets *out, struct err *err);
void sandbox_secrets_drop(struct snapd *sd, const char *id);
void sandbox_secrets_drop_all(struct snapd *sd);

/* Removes what a sandbox that doesn't run has left on the machine. */
int sandbox_sweep(struct snapd *sd, const char *id, const char *runtime, struct err *err);
/* Shim and box of a sandbox whose processes are to end now, by force. */
int sandbox_clear(const struct sandbox_box *b, struct err *err);
int sandbox_set_failed(struct snapd *sd, const char *id, const char *why);
/* Its row said that it runs, and it never did. */
void sandbox_never_started(struct snapd *sd, const char *id);
/* One that is to be removed at its end (auto_remove) goes a minute after it: who waits for its
 * output has so long to take it. One that is started again in that minute stays. True: *own, a copy
 * of the row's, was changed. */
bool sandbox_goes(const struct sandbox_row *row, struct owned *own);
bool sandbox_stays(const struct sandbox_row *row, struct owned *own);
/* The workspaces among the rows of a sandbox, which is gone, that were made for it. */
void sandbox_take_own(struct snapd *sd, const struct sandbox_row *row,
		      const struct attached_row *rows, size_t n, bool purge);
/* Before an exec is lost: where its runtime has written that it began (the pid file of its box),
 * its row says so. */
void exec_note_begun(struct snapd *sd, const char *sandbox, const char *exec);
/* As one ends of which nobody knows how. */
void process_lost(struct process_end *end);
/* How a process of it ended, told to the catalog and to who waits. */
void sandbox_tell_end(struct live *l, const char *exec, const struct process_end *end);

#endif
