/* This terminal as a sandbox process's: raw, over one WebSocket (snapd/API.md, Terminal). Keys,
 * signals and the size go out, output comes in. Input is kept until boughd has told that it was
 * given: after a connection that broke both directions go on at their byte. */
#ifndef BOUGH_TOOLS_TERMINAL_H
#define BOUGH_TOOLS_TERMINAL_H

#include "tools/bough/attach.h"

/* 0 when the process has ended. */
int terminal_run(struct cli *cli, struct attach *a, struct err *err);
/* The size of this terminal; false: it is none. */
bool terminal_size(unsigned *columns, unsigned *rows);

#endif
