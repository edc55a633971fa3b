/* Input and output of a sandbox's processes, kept by offset.
 *
 * A `bough-io` process for each sandbox holds the fifos that a shim is given, opened before the
 * process is made, and moves what comes out into files of a bounded size. So a program never waits
 * for a reader and never dies of SIGPIPE, and what it wrote is there for whoever comes back:
 * bough-io outlives boughd, and its files outlive bough-io. Only the newest `limit` bytes of a
 * stream are kept, and OUTPUT_TOTAL of all together (room.c); first to end are the offsets that
 * exist.
 *
 *     output_open     before shim_create or shim_exec: bough-io holds both ends of each fifo, so
 *                     that nothing ends before the shim has come
 *     output_started  after shim_start_process (or shim_create, of all but Kata): the shim holds
 *                     ends of its own, bough-io lets go of those that it took in its stead. From
 *                     now on a stream ends when nothing writes to it any more.
 *     output_finish   when the process has ended: its input ends, and it waits for the others to.
 *                     What it left running in the background may hold them for long: -ETIMEDOUT,
 *                     they go on.
 *     output_drop     when nobody will ask for the output; after shim_delete, since a program that
 *                     still writes would die of SIGPIPE, or wait, when its fifo is gone.
 *
 * All of a sandbox's is in one folder:
 *     io.sock          of bough-io
 *     KEY.in .out .err the fifos of process KEY (an exec's id, or "main")
 *     KEY.log          what is kept (output.c has the format)
 *
 * Errors: -ENOENT no such process; -ECONNREFUSED bough-io is gone: output_start begins a new one,
 * which goes on with the fifos and files that are there. Meanwhile programs wait once a pipe is
 * full, and nothing is lost, since the shim holds both ends of its fifos too; only of a process
 * that ended meanwhile what was in the pipe (64 KiB or less) is.
 *
 * Threads: each call has a connection of its own; any thread may make any. */
#ifndef BOUGH_RUNTIME_OUTPUT_H
#define BOUGH_RUNTIME_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/base/err.h"

enum output_stream { OUTPUT_STDOUT, OUTPUT_STDERR };

/* Starts bough-io for the folder unless one runs there. program: its path. Returns its pid. */
int output_start(const char *dir, const char *program, struct err *err);
/* Ends bough-io; the files stay. Idempotent. */
int output_stop(const char *dir, struct err *err);

struct output_config {
	const char *key;
	uint64_t limit;    /* bytes kept of each stream; 0: OUTPUT_LIMIT */
	bool in;           /* it reads its input */
	bool terminal;     /* one stream: stdout */
	uint32_t uid, gid; /* owner of the fifos */
};
enum {
	OUTPUT_LIMIT = 16 << 20,
	OUTPUT_TOTAL = 256 << 20, /* bytes kept of all streams of a sandbox together */
	OUTPUT_KEY_MAX = 64,
	OUTPUT_RATE = 256 << 20, /* bytes a second of all streams of a sandbox, at most: who copies
				    them uses processors outside of the sandbox's share */
};

/* Makes the fifos and holds their ends. -EEXIST: the key is in use; -EINVAL: it isn't made of
 * OUTPUT_KEY_MAX or fewer letters, digits, `_`, `-` and (not first) `.`. */
int output_open(const char *dir, const struct output_config *config, struct err *err);
/* Holds a connection, by which the process is about to be started, until output_started, or its
 * peer says something or ends it: so it doesn't end with the caller (shim_connection).
 * A bough-io that runs since before an upgrade may not know of it: that holds none, which is no
 * error, and output_held fails. */
int output_hold(const char *dir, const char *key, int fd, struct err *err);
/* Whether all that was to be held of the process since output_open was: 1; 0: bough-io has died
 * meanwhile. */
int output_held(const char *dir, const char *key, struct err *err);
/* Idempotent; for a process whose start failed output_drop alone will do. */
int output_started(const char *dir, const char *key, struct err *err);
/* As output_started and output_close_input, and waits until the streams have ended, wait_ms at most
 * from bough-io's first answer on: -ETIMEDOUT, something still holds them. */
int output_finish(const char *dir, const char *key, int wait_ms, struct err *err);
/* Removes the process's fifos and what was kept. Idempotent; works without bough-io. */
int output_drop(const char *dir, const char *key, struct err *err);

struct output_status {
	struct {
		uint64_t first, end; /* offsets that exist: first <= offset < end */
		bool closed;         /* nothing comes after `end` */
	} stream[2];
	uint64_t in; /* bytes of input in the pipe so far */
};
/* From the files: works without bough-io. */
int output_status(const char *dir, const char *key, struct output_status *out, struct err *err);

/* Bytes of the disk that the folder's kept output takes; 0 where there is none. */
int output_disk(const char *dir, uint64_t *bytes, struct err *err);

/* Reads up to `size` bytes from `offset` on: what there is; 0 at the present end. -ERANGE: the
 * offset was dropped, or never was (status tells). Works without bough-io. */
int output_read(const char *dir, const char *key, enum output_stream stream, uint64_t offset,
		void *buf, size_t size, struct err *err);

/* A descriptor that becomes readable when any stream of the process grows or ends, when its fifo
 * takes input again after output_write took less than it was given, and (for good: read gives 0)
 * when all three have ended, bough-io has, or the process is dropped. It doesn't block: read it
 * empty, then look; the caller closes it. */
int output_watch(const char *dir, const char *key, struct err *err);

/* Gives the process input at `offset` (bytes given before; so that a caller whose connection broke
 * doesn't give any twice: what lies below output_status.in is left out; -ERANGE above it). Takes
 * what fits into the pipe and returns how much of `buf` is done with: less than `len` when the
 * program doesn't read; 0: wait for the watch descriptor. -EPIPE: it has ended or closed its
 * input. */
int output_write(const char *dir, const char *key, uint64_t offset, const void *buf, size_t len,
		 struct err *err);
/* No input follows: the program's input ends behind what was given, as soon as the caller has told
 * the shim too (shim_close_stdin). Idempotent. */
int output_close_input(const char *dir, const char *key, struct err *err);

#endif
