/* Keeps one bough-fs running: takes over one that outlived the last boughd, else starts one;
 * notices its death, starts it again, and has the workspaces mounted again before requests
 * reach it. It opens and closes the fsclient's gate.
 *
 * With the transport dev its mounts outlive it (bough-hold), and programs on them wait. So a
 * new one is started at once, however often it is killed: one that served for
 * SUPERVISOR_LIFE_MS was of use. After SUPERVISOR_USELESS in a row that weren't and ended by
 * their own fault (of those that were killed, SUPERVISOR_CRASH times as many) the mounts end, so
 * that nobody waits for ever; then it rests for SUPERVISOR_REST_MS between tries, and requests
 * are told so at once.
 *
 * One that it takes over and that runs another file than would be started now is asked to
 * leave, and the next goes on with its mounts: so a restart of boughd upgrades bough-fs as well.
 *
 * bough-fs is in a session of its own and isn't ended with boughd. */
#ifndef BOUGH_SNAPD_SUPERVISOR_H
#define BOUGH_SNAPD_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>
#include "fs/base/err.h"
#include "snapd/fsclient.h"

enum {
	SUPERVISOR_LIFE_MS = 100,
	SUPERVISOR_CRASH = 8,
	SUPERVISOR_USELESS = 12,     /* with the pauses between them it takes some 6 s */
	SUPERVISOR_PAUSE_MS = 50,    /* from the third on, doubled each time, up to: */
	SUPERVISOR_PAUSE_MAX_MS = 1000,
	SUPERVISOR_REST_MS = 30000,
	SUPERVISOR_START_MS =
		60000, /* from exec to the first hello: it may have to replay and repair things */
};

struct supervisor_options {
	const char *root;
	const char *binary;    /* of bough-fs */
	const char *transport; /* its --transport; NULL: its default */
	struct fsclient *client;
	/* It answers, and nobody else can reach it yet. `fresh`: it has just begun and went on with
	 * nothing, no workspace is open in it. Through fsclient_direct. Failing closes the gate
	 * until it is tried again. */
	int (*ready)(void *ctx, bool fresh, struct err *err);
	void *ctx;
};

struct supervisor_status {
	bool up;
	int pid; /* 0: none */
	uint64_t starts, deaths;
	char problem[256]; /* why it isn't up; "" */
};

struct supervisor;
/* Begins in a thread of its own. Strings are copied. Where mounts wait for a server it starts one
 * at once; `ready` is called only after supervisor_go. */
int supervisor_start(struct supervisor **out, const struct supervisor_options *opt,
		     struct err *err);
/* Before there is a supervisor: starts a bough-fs where mounts wait for one. A boughd that was
 * killed with its bough-fs while it waited for that one's answer on a mount isn't gone before
 * another one answers, and has its lock until then. In a process with one thread. */
void supervisor_rescue(const char *root, const char *binary, const char *transport);
/* What `ready` needs is there. Once. */
void supervisor_go(struct supervisor *s);
void supervisor_get(struct supervisor *s, struct supervisor_status *out);
/* Asks bough-fs to end (it unmounts all), and waits until it has. No start follows. */
int supervisor_quit(struct supervisor *s, struct err *err);
/* Ends supervision; bough-fs goes on. NULL allowed. */
void supervisor_free(struct supervisor *s);

#endif
