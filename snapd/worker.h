/* A thread of the service that has work now and then: when it is woken, and when its time has
 * come. What it is to do is its owner's to remember: being woken twice before it runs is being
 * woken once.
 *
 * Threads: any but its own may stop it; any may wake it. */
#ifndef BOUGH_SNAPD_WORKER_H
#define BOUGH_SNAPD_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/base/err.h"

struct worker;
struct worker_options {
	const char *what;  /* a literal, for "start WHAT" */
	int64_t first_ms;  /* until its time comes first; 0: every_ms */
	int64_t every_ms;  /* and then, after each such run; 0: it only works when it is woken */
	int64_t settle_ms; /* after being woken, so as not to slow down what follows it */
	bool low;          /* with low priority for CPU and disk */
	/* `due`: its time has come; else it was woken. */
	void (*run)(void *ctx, bool due);
	void *ctx;
};
int worker_start(struct worker **out, const struct worker_options *opt, struct err *err);
/* It runs soon, at least once more. Never blocks. */
void worker_wake(struct worker *w);
/* For long runs: whether worker_stop waits. */
bool worker_stopping(const struct worker *w);
/* Ends after the run it is at; NULL allowed. */
void worker_stop(struct worker *w);

#endif
