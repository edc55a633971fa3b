/* bough-jail PROGRAM ARGUMENT…: runs a program on data of somebody who may want to do harm, with
 * what it needs and no more: bounds on memory, time and files, no privileges even as root, and (as
 * root) no network. The caller chose its environment, folder and descriptors. */
#include <sched.h>
#include <stdio.h>
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

/* After this an exec gives even root no capability. */
static void drop_rights(void)
{
	/* Where that isn't allowed, as in a container without it, there is less to take away. */
	(void)unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS);
	for (int i = 0; i < CAPABILITIES; i++)
		(void)prctl(PR_CAPBSET_DROP, i, 0, 0, 0); /* the kernel may know fewer */
}

int errand_jail(int argc, char **argv)
{
	if (argc < 2)
		return 127;
	if (bound(RLIMIT_CORE, 0) < 0 || bound(RLIMIT_AS, memory_max) < 0 ||
	    bound(RLIMIT_CPU, CPU_S) < 0 || bound(RLIMIT_FSIZE, file_max) < 0 ||
	    bound(RLIMIT_NOFILE, FILES) < 0) {
		(void)fputs("fatal: the jail's bounds can't be set\n", stderr);
		return 127;
	}
	if (geteuid() == 0)
		drop_rights();
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return 127;
	(void)execv(argv[1], argv + 1);
	(void)fputs("fatal: the jailed program can't be run\n", stderr);
	return 127;
}
