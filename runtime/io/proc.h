/* The processes whose fifos this bough-io holds, and the loop that serves them. One thread. */
#ifndef BOUGH_RUNTIME_IO_PROC_H
#define BOUGH_RUNTIME_IO_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "runtime/io_msg.h"
#include "runtime/kept.h"

enum {
	PROCS_MAX = 4096, /* as many descriptors times 8 must be allowed */
	WATCHES_MAX = 64, /* of a process */
	IN_GRACE_MS = 1000,
	PACE_BYTES = 2 << 20, /* that come out without a look at the clock */
};

/* What an event of epoll is about: the first member of whatever it is. */
struct source {
	enum {
		SOURCE_LISTENER,
		SOURCE_PEER,
		SOURCE_STREAM,
		SOURCE_INPUT,
		SOURCE_WATCH,
		SOURCE_HELD,
	} kind;
	int fd;
	bool dead; /* freed once the present events are through */
	struct proc *proc;
	struct source *next; /* watches: of the process; dead ones: of the list */
};

struct proc {
	struct proc *next;
	char key[OUTPUT_KEY_MAX + 1];
	bool adopted; /* from an earlier bough-io */
	struct source held; /* the connection by which it is being started */
	int log;
	struct kept kept;
	struct source stream[2], in; /* fd -1: has ended, or isn't there */
	int hold[2];                 /* write ends held in the shim's stead; -1 */
	int hold_in;                 /* a read end */
	uint64_t hold_in_until;      /* clock_ms; 0: no end */
	bool in_full;                /* a writer waits for room */
	struct source *watches;
	unsigned n_watches;
};

struct io_loop {
	int dir, epoll;
	struct proc *procs;
	unsigned n_procs;
	struct source *dead;
	struct proc *dead_procs;
	uint64_t taken, paced_ns; /* bytes of streams since then (clock_ns) */
	uint64_t room, kept;      /* bytes that all may keep together; that they do, or fewer */
};

struct proc *proc_find(struct io_loop *io, const char *key); /* NULL: none is held */
/* -errno. */
int proc_open_log(struct io_loop *io, const char *key, int flags);
/* Calls `found` for each that has a log, held or not. */
int proc_each_log(struct io_loop *io, void (*found)(void *ctx, const char *key), void *ctx);

/* Where more is kept than may be (room.c): what ended first goes first, and of what runs the older
 * half of the longest stream. Then an eighth is free. -errno: nothing was dropped. */
int room_make(struct io_loop *io);

/* Goes on with what an earlier bough-io held. */
int proc_recover(struct io_loop *io);

/* The operations of io_msg.h; >= 0 or -errno. */
int proc_open(struct io_loop *io, const struct io_msg *m);
int proc_started(struct io_loop *io, const char *key);
int proc_finish(struct io_loop *io, const char *key);
int proc_drop(struct io_loop *io, const char *key);
int proc_write(struct io_loop *io, const struct io_msg *m);
int proc_close_in(struct io_loop *io, const char *key);
/* `fd` is taken over, but where it fails. */
int proc_hold(struct io_loop *io, const char *key, int fd);
int proc_held(struct io_loop *io, const char *key);
/* A read end, which the caller closes. */
int proc_watch(struct io_loop *io, const char *key);

/* What epoll says of a source that is a process's. */
void proc_event(struct io_loop *io, struct source *s, uint32_t events);
/* Does what has become due; milliseconds until more is, -1: nothing. */
int proc_tick(struct io_loop *io);
/* Frees what ended during the last events. */
void proc_bury(struct io_loop *io);
/* Waits, some milliseconds at most, where more came out than OUTPUT_RATE. */
void proc_pace(struct io_loop *io);

#endif
