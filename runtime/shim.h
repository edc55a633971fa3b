/* One container, driven through containerd's shim v2 protocol, without containerd.
 *
 * A shim is the small process that containerd keeps beside each container. It is started by
 *
 *     SHIM -namespace NS -address '' -publish-binary '' -id ID -bundle BUNDLE start
 *
 * prints the address of its socket and outlives its caller, so that the container and its exit code
 * outlive boughd. The calls are ttrpc (ttrpc.h) with the messages of
 * containerd.task.v2.Task, or v3 where a shim says so. runc, crun, runsc and Kata are all driven
 * so; what differs between them is in struct runtime_kind and nowhere else.
 *
 * Source: containerd's runtime/v2/README.md and api/runtime/task/v2/shim.proto.
 *
 * A handle may be used by several threads: each call has a connection of its own. All calls end
 * after a deadline but shim_wait, which ends when the process does. Errors: -ENOENT the shim
 * doesn't know the container or process; -ESRCH it has ended already; -ECONNREFUSED the shim is
 * gone (shim_remove cleans up); -ETIMEDOUT; -EIO with the shim's own words. */
#ifndef BOUGH_RUNTIME_SHIM_H
#define BOUGH_RUNTIME_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/base/err.h"

/* What is known of a runtime on this machine. */
struct runtime_kind {
	const char *name;    /* "runc", "runsc", "kata", "crun": as the user says it */
	const char *shim;    /* file name of the shim's program */
	const char *binary;  /* of the OCI runtime that the shim is to run; NULL: the shim's own */
	const char *wrapper; /* runs that with the flags that it needs here; NULL: needs none */
	bool shifts_ids;     /* takes a user namespace and idmapped mounts */
	bool mounts_later;   /* a mount can be attached to a running container */
	bool sees_restores;  /* what a restore made another file is another: a guest goes on with
				what it had read */
	bool freezes;        /* all of it is in the box's cgroup: box_freeze stops it */
	bool reports_pids;   /* its processes are the host's, and the cgroup's counters theirs */
	bool signals_execs;  /* a signal to an exec reaches it; else a second exec must send it */
	bool numbers_signals; /* bough-init sees their numbers */
};
/* NULL: no such name. */
const struct runtime_kind *runtime_find(const char *name);
/* What is meant where nobody names one: $BOUGH_DEFAULT_RUNTIME, or else runc, or crun where that
 * isn't installed. */
const char *runtime_default(void);
/* The n-th kind; NULL past the last. */
const struct runtime_kind *runtime_nth(unsigned n);

/* Whether it works here. `version` and `why` are for people; `why` is "" when it works. */
struct runtime_probe {
	bool works;
	char shim[256], binary[256]; /* paths found; "" */
	char version[128];
	char why[256];
};
/* Looks only (PATH, the project's own folder of programs, --version): starts no container. */
void runtime_probe(const struct runtime_kind *kind, struct runtime_probe *out);

/* In a bundle: the user namespace that its container is to be created in, by runtimes with a
 * `wrapper`; where it isn't, the caller's. */
#define SHIM_USER_NS "outer"

/* The path of a program that runs for the caller: a shim, bough-io, bough-init, ... Looked for in
 * $BOUGH_PROGRAMS, beside this program, in ../libexec/bough from there (where `make install` puts
 * it), and in PATH: -ENOENT when it is nowhere, -ENAMETOOLONG. */
int runtime_program(char *out, size_t size, const char *name);

struct shim;

struct shim_config {
	const struct runtime_kind *kind;
	const char *ns;     /* containerd's namespace: one for each BOUGH_ROOT */
	const char *id;     /* of the container; the bundle's folder has this name */
	const char *bundle; /* absolute */
	const char *log;    /* fifo with a reader, for the shim's own messages; NULL: none */
};

/* Starts the shim. */
int shim_start(struct shim **out, const struct shim_config *config, struct err *err);
/* One that was started before, by this or an earlier process: -ECONNREFUSED when it is gone. */
int shim_reopen(struct shim **out, const struct shim_config *config, struct err *err);
const struct runtime_kind *shim_kind(const struct shim *s);
void shim_free(struct shim *s); /* the shim goes on; NULL allowed */
#define auto_shim __attribute__((cleanup(shim_freep))) struct shim
void shim_freep(struct shim **s);

/* Paths of fifos; both outputs must be given, also for a terminal (the second is unused then). */
struct shim_io {
	const char *in, *out, *err; /* in: NULL for none */
	bool terminal;
	uint32_t uid, gid; /* owner of the program's ends: the host's ids of its root */
};

struct shim_state {
	enum shim_status {
		SHIM_UNKNOWN,
		SHIM_CREATED,
		SHIM_RUNNING,
		SHIM_STOPPED,
		SHIM_PAUSED
	} status;
	uint32_t pid;
	uint32_t exit_status; /* 128 + n: by signal n */
	int64_t exited_ns;    /* since 1970; 0: it hasn't */
	bool with_all;        /* an exec: because its container did */
};

/* exec: id of a process made by shim_exec; NULL: the container's first. */
int shim_create(struct shim *s, const struct shim_io *io, uint32_t *pid, struct err *err);
/* A connection for shim_start_process. When a call's connection ends a shim gives it up, and kills
 * the runtime in the middle of it, so that nobody could tell whether the process began: who may be
 * killed himself has another process hold it, too (output_hold). */
int shim_connection(struct shim *s, struct err *err);
/* `over`: a connection, which stays the caller's; -1: one of its own. It may have begun, or begin
 * yet, also after -ETIMEDOUT and -ECONNREFUSED. */
int shim_start_process(struct shim *s, const char *exec, int over, uint32_t *pid, struct err *err);
/* spec: JSON of an OCI Process. Created only: shim_start_process runs it. */
int shim_exec(struct shim *s, const char *exec, const struct shim_io *io, const char *spec,
	      size_t len, struct err *err);
int shim_get(struct shim *s, const char *exec, struct shim_state *out, struct err *err);
/* What became of a start that got no answer, or an error: 1, and *pid, it has begun; 0: it hasn't,
 * and the exec is removed, so that it never will; -ENOENT: it was never made. Else it can't be told
 * now. Waits 5 s at most for the answer. */
int shim_begun(struct shim *s, const char *exec, uint32_t *pid, struct err *err);
/* Waits until it has ended, however long it takes, or until `stop_fd` (-1: none) can be read:
 * -ECANCELED. */
int shim_wait(struct shim *s, const char *exec, int stop_fd, struct shim_state *out,
	      struct err *err);
/* The same without a thread: a descriptor that becomes readable once it has ended, or the shim has.
 * shim_wait_end then tells how, and closes it in any case; -EAGAIN (and it stays open): not yet. */
int shim_wait_begin(struct shim *s, const char *exec, struct err *err);
int shim_wait_end(struct shim *s, int fd, struct shim_state *out, struct err *err);
/* To every process of the container. */
int shim_kill_all(struct shim *s, int sig, struct err *err);
/* To the bough-init of an exec, or (NULL) the container's first process. What is sent again with
 * its number, which is random, comes once (runtime_kind.numbers_signals); 0: without one.
 * INIT_KILL always is. */
int shim_signal(struct shim *s, const char *exec, int sig, uint64_t number, struct err *err);
/* Of a running container with a kernel of its own (spec_own_kernel): what nobody in it uses is not
 * kept open any more. It costs an exec. */
int shim_let_go(struct shim *s, struct err *err);
int shim_close_stdin(struct shim *s, const char *exec, struct err *err);
int shim_resize(struct shim *s, const char *exec, uint32_t columns, uint32_t rows, struct err *err);
int shim_pause(struct shim *s, struct err *err);
int shim_resume(struct shim *s, struct err *err);
/* limits: JSON of OCI LinuxResources. */
int shim_update(struct shim *s, const char *limits, size_t len, struct err *err);

struct shim_stats {
	uint64_t cpu_ns, memory, memory_peak, memory_limit, pids, pids_limit, oom_kills;
};
int shim_stats(struct shim *s, struct shim_stats *out, struct err *err);
/* Of the host; the caller frees *pids. */
int shim_pids(struct shim *s, uint32_t **pids, size_t *n, struct err *err);

/* Removes an ended process from the shim (-EBUSY: it hasn't ended). Without exec the container is
 * removed. */
int shim_delete(struct shim *s, const char *exec, struct shim_state *last, struct err *err);
/* Ends the shim, by force if it must, and removes what it leaves behind: its socket, the
 * runtime's state, processes that still run. Works when the shim has died. Idempotent. */
int shim_remove(const struct shim_config *config, struct err *err);

#endif
