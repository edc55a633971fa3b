/* This terminal's side of a process in a sandbox: its output from any byte on, its input, signals
 * and size. A connection that breaks, or a boughd that is started anew, is connected to again, and
 * everything goes on at its byte. */
#ifndef BOUGH_TOOLS_ATTACH_H
#define BOUGH_TOOLS_ATTACH_H

#include "tools/bough/cli.h"

struct attach {
	const char *sandbox, *exec; /* exec: an id, or "main" */
	bool follow;                /* until it ends; else what there is */
	bool in;                    /* stdin is its input */
	bool tty;                   /* raw, and resized with this terminal */
	bool signals;               /* INT, TERM, … go to it */
	uint64_t at[2];             /* the next byte of stdout and stderr */
	/* Filled in: */
	bool ended;
	int code; /* of its exit */
	char reason[16];
};
/* 0 when it has ended, or (without `follow`) what there is was printed. */
int attach_run(struct cli *cli, struct attach *a, struct err *err);
/* The size of this terminal; false: it is none. */
bool attach_size(unsigned *columns, unsigned *rows);

#endif
