/* bough-init: what every process of a sandbox runs under, bound read-only into it as INIT_PATH. It
 * is a few kilobytes long and stands alone, without libraries: whatever is in the image.
 *
 *     /.bough/init [-n NAME] [-t MS] -- COMMAND ARGUMENT...
 *                                  runs the command
 *     /.bough/init -w              waits for nothing: a sandbox without a command lives on for its
 *                                  execs
 *     /.bough/init -s NAME SIGNAL [NUMBER]
 *                                  sends the signal to the one that was started with -n NAME (or is
 *                                  process 1: INIT_FIRST); ends with 1 where there is none. For
 *                                  runtimes whose processes aren't the host's, so that nobody else
 *                                  can.
 *     /.bough/init -f              looks at the files a, b, ... beside itself, of which there are
 *                                  more than gVisor's kernel keeps open unused (bough-runsc says
 *                                  how many): so it lets go of what else it has
 *
 * It is process 1 of a sandbox, and the parent of the command of each exec. COMMAND is looked up in
 * PATH of the environment (else INIT_PATH_DEFAULT) unless it has a slash; environment, folder, user
 * and limits are its own, as the runtime made them. With a terminal the command leads its
 * foreground group, so that keys reach the command alone.
 *
 * - What lies in INIT_ENV_FILE (env.h) is added to the command's environment.
 * - It reaps whatever process is left to it, and ends as its command does: with its code, or
 *   128 + n where signal n ended it. What the command of an exec left behind goes on below process
 *   1; process 1 takes all with it, as the kernel has it.
 * - A command that isn't there: INIT_EXIT_ABSENT; one that can't be executed:
 *   INIT_EXIT_DENIED; why is said on its standard error.
 * - A signal that it gets goes to every process that descends from it, also to what made a session
 *   of its own. What can't be caught has a stand-in: INIT_KILL kills them all, forks that race with
 *   it included, and it ends with 137.
 * - A signal may come by sigqueue(3) with a number that isn't 0 (-s: in hexadecimal). One whose
 *   number is among the last INIT_NUMBERS that came is that signal sent again, and ignored.
 * - -t: after MS milliseconds they get SIGTERM, and what still runs INIT_GRACE_MS later (or when
 *   the command has ended) is killed; it ends with INIT_EXIT_TIMEOUT.
 * - -w: SIGTERM, SIGINT, SIGHUP and SIGQUIT go to every process of the sandbox; it ends, with 128
 *   and the signal's number, once they all have.
 *
 * Needs /proc of its own pid namespace for all but process 1.
 *
 * Execs in sandboxes that run have the newest one as soon as any sandbox is started; until then,
 * and as process 1, it is that of the sandbox's start. So words never change, but come to be more:
 * one that doesn't know them ends with INIT_EXIT_USAGE (the first knew no NUMBER of -s, and no
 * -f), and whoever says them goes on without. */
#ifndef BOUGH_RUNTIME_INIT_INIT_H
#define BOUGH_RUNTIME_INIT_INIT_H

#define INIT_PATH         "/.bough/init"
#define INIT_FIRST        "-" /* a name that no exec has */
#define INIT_LETTERS      "/.bough/"
#define INIT_PATH_DEFAULT "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum {
	INIT_N_LETTERS = 24,     /* from 'a' */
	INIT_KILL = 64,          /* a signal that stands for SIGKILL; the highest */
	INIT_NAME_MAX = 128,     /* bytes of -n */
	INIT_NUMBERS = 1024,
	INIT_GRACE_MS = 2000,    /* between SIGTERM and SIGKILL of a timeout */
	INIT_EXIT_TIMEOUT = 124, /* as timeout(1) */
	INIT_EXIT_USAGE = 125,   /* it was called wrongly, or can't make a process */
	INIT_EXIT_DENIED = 126,
	INIT_EXIT_ABSENT = 127,
};

#endif
