/* bough-jail [-r FOLDER | -w FOLDER]… PROGRAM ARGUMENT…: runs a program on data of somebody who may
 * want to do harm, with what it needs and no more: bounds on memory, time and files, no
 * privileges even as root, no network, a root with nothing in it but the system's programs and
 * those folders (to read; to write to), and few system calls. The caller chose its environment,
 * folder and descriptors. */
#include "gitops/jail.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "gitops/errand.h"

enum {
	CAPABILITIES = 64,
	CPU_S = 300,
	FILES = 1024,
};
static const rlim_t memory_max = (rlim_t)4 << 30, file_max = (rlim_t)4 << 30;

static int bound(__rlimit_resource_t what, rlim_t n)
{
	struct rlimit now, want = { n, n };
	if (getrlimit(what, &now) < 0)
		return -1;
	if (now.rlim_max != RLIM_INFINITY && now.rlim_max < n)
		want = (struct rlimit){ now.rlim_max, now.rlim_max };
	return setrlimit(what, &want);
}

static int set_bounds(void)
{
	return bound(RLIMIT_CORE, 0) < 0 || bound(RLIMIT_CPU, CPU_S) < 0 ||
			       bound(RLIMIT_FSIZE, file_max) < 0 || bound(RLIMIT_NOFILE, FILES) < 0
		       ? -1
		       : 0;
}

static int failed(const char *what)
{
	(void)fprintf(stderr, "fatal: the jail can't be built: %s: %s\n", what,
		      strerrordesc_np(errno));
	return 127;
}

int errand_jail(int argc, char **argv)
{
	struct jail_dir dirs[JAIL_DIRS_MAX];
	const char *step = "";
	size_t n = 0;
	int i = 1;
	for (; i + 1 < argc && n < JAIL_DIRS_MAX; i += 2) {
		if (strcmp(argv[i], "-r") != 0 && strcmp(argv[i], "-w") != 0)
			break;
		dirs[n++] = (struct jail_dir){ argv[i + 1], argv[i][1] == 'w' };
	}
	if (i >= argc)
		return 127;
	if (set_bounds() < 0)
		return failed("bounds");
	/* Where namespaces aren't allowed, as in a container without them, the rest must do. */
	if (jail_root(dirs, n, argv[i], &step) < 0)
		return failed(step);
	/* After this an exec gives even root no capability. */
	for (int c = 0; c < CAPABILITIES; c++)
		(void)prctl(PR_CAPBSET_DROP, c, 0, 0, 0); /* the kernel may know fewer */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return failed("no new privileges");
	if (jail_calls() < 0)
		return failed("system calls");
	/* The last, for a sanitizer's own memory in this program is more. */
	if (bound(RLIMIT_AS, memory_max) < 0)
		return failed("bounds");
	(void)execv(argv[i], argv + i);
	(void)fputs("fatal: the jailed program can't be run\n", stderr);
	return 127;
}
