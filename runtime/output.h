/* Input and output of a sandbox's processes, kept by offset.
 *
 * A `bough-io` process for each sandbox holds both ends of the fifos that a shim is given, opened
 * before the process is made, and moves what comes out into files of a bounded size. So a program
 * never waits for a reader and never dies of SIGPIPE, and what it wrote is there for whoever comes
 * back: bough-io outlives boughd, and its files outlive bough-io. Only the newest `limit` bytes of
 * a stream are kept; first to end are the offsets that exist.
 *
 * All of a sandbox's is in one folder:
 *     io.sock          of bough-io
 *     KEY.in .out .err the fifos of process KEY (an exec's id, or "main")
 *     KEY.log          what is kept (output.c has the format)
 *
 * Errors: -ENOENT no such process; -ECONNREFUSED bough-io is gone (output_start begins a new one,
 * which goes on with the fifos and files that are there; what was in the pipe of a process that
 * still runs isn't lost, since the fifo's other end is the shim's). */
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
	uint64_t limit;      /* bytes kept of each stream; 0: OUTPUT_LIMIT */
	bool in;             /* it reads its input */
	bool terminal;       /* one stream: stdout */
	uint32_t uid, gid;   /* owner of the fifos */
};
enum { OUTPUT_LIMIT = 16 << 20 };

/* Makes the fifos and holds their ends. -EEXIST: the key is in use. */
int output_open(const char *dir, const struct output_config *config, struct err *err);
/* The process has ended: what is still in the pipes is kept, then the streams end. */
int output_finish(const char *dir, const char *key, struct err *err);
/* Removes the process's fifos and what was kept. */
int output_drop(const char *dir, const char *key, struct err *err);

struct output_status {
	struct {
		uint64_t first, end; /* offsets that exist: first <= offset < end */
		bool closed;         /* nothing comes after `end` */
	} stream[2];
	uint64_t in;                 /* bytes of input taken so far */
};
/* From the files: works without bough-io. */
int output_status(const char *dir, const char *key, struct output_status *out, struct err *err);

/* Reads up to `size` bytes from `offset` on: what there is; 0 at the present end. -ERANGE: the
 * offset was dropped, or never was (status tells). Works without bough-io. */
int output_read(const char *dir, const char *key, enum output_stream stream, uint64_t offset,
		void *buf, size_t size, struct err *err);

/* A descriptor that becomes readable when any stream of the process grows or ends (read it empty,
 * then look); the caller closes it. Needs bough-io. */
int output_watch(const char *dir, const char *key, struct err *err);

/* Gives the process input at `offset` (bytes given before; so that a caller whose connection broke
 * doesn't give any twice: what lies below output_status.in is left out; -ERANGE above it). Takes
 * what fits into bounded memory and returns how much: fewer than `len` when the program doesn't
 * read; 0: wait for the watch descriptor. -EPIPE: it has ended or closed its input. */
int output_write(const char *dir, const char *key, uint64_t offset, const void *buf, size_t len,
		 struct err *err);
/* No input follows: once what was given has been taken, the fifo ends (the shim is told by the
 * caller: shim_close_stdin). Waits for that up to `timeout_ms`. */
int output_close_input(const char *dir, const char *key, int timeout_ms, struct err *err);

#endif
