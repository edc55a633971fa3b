/* The checks of `bough doctor`. They need no daemon, change nothing, and each ends in time. */
#ifndef BOUGH_TOOLS_DOCTOR_H
#define BOUGH_TOOLS_DOCTOR_H

#include "tools/bough/cli.h"

enum doctor_level {
	DOCTOR_OK,
	DOCTOR_INFO,    /* absent, and only needed for something extra */
	DOCTOR_WARN,    /* works, but not as well as it could */
	DOCTOR_MISSING, /* no workspace can run without it */
};

struct doctor_line {
	const char *name;
	enum doctor_level level;
	char found[200];  /* what there is */
	char advice[200]; /* what to do; "" when nothing */
};

enum { DOCTOR_LINES_MAX = 40 };
/* Runs every check; the number of lines. */
unsigned doctor_run(struct cli *cli, struct doctor_line lines[DOCTOR_LINES_MAX]);

#endif
