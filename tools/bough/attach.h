/* This terminal's side of a process in a sandbox: its output from any byte on, its input, signals
 * and size. A connection that breaks, or a boughd that is started anew, is connected to again, and
 * everything goes on at its byte. */
#ifndef BOUGH_TOOLS_ATTACH_H
#define BOUGH_TOOLS_ATTACH_H

#include <signal.h>
#include "tools/bough/api.h"

struct attach {
	const char *sandbox, *exec; /* exec: an id, or "main" */
	bool follow;                /* until it ends; else what there is */
	bool in;                    /* stdin is its input */
	bool tty;                   /* it has a terminal: terminal.h */
	bool signals;               /* INT, TERM, … go to it */
	uint64_t at[2];             /* the next byte of stdout and stderr */
	/* Filled in: */
	bool ended;
	int code; /* of its exit */
	char reason[16];
};
/* 0 when it has ended, or (without `follow`) what there is was printed. */
int attach_run(struct cli *cli, struct attach *a, struct err *err);

/* ---- what terminal.c does likewise ---- */

enum {
	ATTACH_AGAIN_MS = 100,      /* between tries to connect */
	ATTACH_GIVE_UP_MS = 120000, /* of tries without a byte */
	ATTACH_INSIST = 3, /* as often INT and TERM are passed on, though nobody listens */
};
/* The process's calls. */
struct target attach_target(const struct attach *a, const char *rest);
/* Whether such a failure passes. */
bool attach_may_come_back(int r);
/* Those that go to the process. */
void attach_signals(sigset_t *set);
int attach_write(int fd, const uint8_t *p, size_t n, struct err *err);
/* Bytes that aren't kept any longer; how it ended. */
void attach_gap(const struct cli *cli, struct attach *a, bool is_err, uint64_t offset);
void attach_end(struct attach *a, const json_t *j);

#endif
