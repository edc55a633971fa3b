/* A program that is run for us and can't outlive us.
 *
 * It gets a process group of its own under a guard, a small process forked from ours that
 * does nothing but wait: when this process dies, however it dies, or when a deadline passes,
 * the guard's whole group is killed. No shell, an environment of the caller's, no descriptors but
 * 0, 1, 2 and those named.
 *
 * Threads: any. Sources: the "lifeline" is a pipe whose other end only we hold. */
#ifndef BOUGH_GITOPS_CHILD_H
#define BOUGH_GITOPS_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include "fs/base/buf.h"
#include "fs/base/err.h"

enum {
	CHILD_OUT_MAX = 64 << 20, /* bytes of stdout that are kept; more: -EFBIG */
	CHILD_ERR_MAX = 16 << 10, /* of stderr: the last ones */
	CHILD_LINE_MAX = 1 << 10, /* of one line of stderr; the rest of it is left out */
	CHILD_GRACE_MS = 2000,    /* between the asking and the killing */
};

struct child_options {
	const char *const *argv; /* argv[0] is a path; NULL ends */
	const char *const *envp;
	const char *dir;   /* where it runs; NULL: / */
	const void *input; /* its stdin; NULL: none */
	size_t input_len;
	int keep;            /* a descriptor that it gets under the number CHILD_KEPT; -1: none */
	int keep2;           /* and CHILD_KEPT + 1 */
	unsigned deadline_s; /* 0: none */
	unsigned stall_s;    /* without a line, output or work of a processor; 0: none */
	int nice;            /* added to its niceness */
	/* Each line of stderr, ended by \n or \r. True: it tells how far it is, and isn't kept. */
	bool (*line)(void *ctx, char *text);
	/* Asked some times a second; other than 0: it is ended, and that is the result. */
	int (*tick)(void *ctx);
	void *ctx;
};
enum { CHILD_KEPT = 3 };

struct child_result {
	int status;          /* its exit code; 128 and more: killed by that signal */
	struct buf out, err; /* NUL-terminated, the NUL not counted */
};
void child_result_done(struct child_result *r);
#define auto_child_result __attribute__((cleanup(child_result_done))) struct child_result

/* 0 whatever its exit code. -ENOENT: there is no such program; -ETIMEDOUT (in words which of both);
 * what tick() said; -errno. Afterwards nothing of its group runs. */
int child_run(struct child_result *out, const struct child_options *opt, struct err *err);

#endif
