/* The parts of bough-jail (errand.h). Each is called once, in a process of its own with one thread,
 * before a program that may not be trusted is run. */
#ifndef BOUGH_GITOPS_JAIL_H
#define BOUGH_GITOPS_JAIL_H

#include <stddef.h>

enum { JAIL_DIRS_MAX = 8 };
struct jail_dir {
	const char *path; /* absolute, without links */
	int writable;
};

/* jail_root.c: from here on nothing is there but an empty root with the system's programs and
 * libraries, /dev/null and urandom, and these folders, at their paths; all but the writable ones
 * to be read only. The present folder is kept if it is in one of them. `program` is there too.
 * As another user than root it takes a user namespace, where the system lets everybody have one.
 * 0; 1: that isn't allowed here, and nothing has changed but perhaps namespaces; -1: it failed
 * halfway, with *step saying where and errno why. */
int jail_root(const struct jail_dir *dirs, size_t n, const char *program, const char **step);

/* jail_calls.c: from here on only system calls that a program needs which computes and works on
 * files: no sockets, no namespaces, nothing that looks at other processes or changes the system.
 * Others give ENOSYS, as on a kernel that hasn't them. 0 or -1. no_new_privs is set before. */
int jail_calls(void);

#endif
