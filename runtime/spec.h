/* The OCI configuration of a container: config.json, in a profile for each kind of runtime.
 *
 *     shares the kernel   runc, crun: joins a user namespace that is there, seccomp, cgroups
 *     shifts ids          gVisor: a user namespace of its own making; its sentry is the kernel
 *     neither             Kata: no user namespace, nothing shifted; a guest's kernel
 *
 * Writes only; looks at nothing of the machine. Source: OCI runtime-spec 1.0.2. */
#ifndef BOUGH_RUNTIME_SPEC_H
#define BOUGH_RUNTIME_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/base/buf.h"
#include "fs/base/err.h"
#include "runtime/box.h"
#include "runtime/shim.h"
#include "runtime/user.h"

/* A path of the host, bound in. */
struct spec_bind {
	const char *source, *target;
	bool read_only;
	bool recursive; /* with what is mounted in it, */
	bool later;     /* also what will be */
	bool no_exec;
};

#define SPEC_SHM "/dev/shm"
/* How many files it may have, of so many bytes: one for each page, but some at least. */
unsigned spec_shm_files(uint64_t bytes);

struct spec {
	const struct runtime_kind *kind;
	const char *hostname;
	const char *user_ns; /* path of its nsfs file */
	const char *cgroup;  /* from the root of each hierarchy */
	uint32_t id_base;
	bool net_host;
	bool cgroup2;       /* there is nothing but cgroup v2 */
	bool counts_swap;   /* memory and swap can be limited together */
	bool hide_usr_local;
	struct box_limits limits;
	const struct spec_bind *binds; /* in this order, after /proc, /dev and so on; with
					* gVisor SPEC_SHM, too */
	size_t n_binds;
};

struct spec_process {
	const struct box_process *process;
	const struct user *user;
	const char *cwd;
	/* The most that the limit of open files can be; 0: the runtime may set no limits of
	 * processes, which keep those of their shim. */
	uint64_t files_max;
	uint32_t pids; /* as box_limits.pids, for kinds that count processes by user */
};

/* Appends. 0; -ENOMEM; -EINVAL: arguments that aren't UTF-8 (JSON has no others). */
int spec_write(const struct spec *s, const struct spec_process *p, struct buf *out,
	       struct err *err);
/* The `process` of it alone, for an exec. */
int spec_write_process(const struct runtime_kind *kind, const struct spec_process *p,
		       struct buf *out, struct err *err);
/* gVisor: a kernel of its own that is processes of the host's. Its limit of processes is one of
 * each user in it (RLIMIT_NPROC, which it obeys for root, too). A cgroup counts that kernel's own
 * threads, about two for each process: it only keeps the sandbox from using up the host's, and ends
 * all of it. It takes no mount from outside: what is mounted in the box's root here, or in its
 * /tmp, spreads to the copies of them that its gofer has, and it finds that at its next look. It
 * keeps folders open that nobody uses any more (shim_let_go), and knows a file by its st_ino: what
 * a restore made another needs another one, or it goes on with what it had open, which is stale. */
static inline bool spec_own_kernel(const struct runtime_kind *kind)
{
	return kind->shifts_ids && !kind->reports_pids;
}
/* Whether its processes are the host kernel's. */
static inline bool spec_shares_kernel(const struct runtime_kind *kind)
{
	return kind->shifts_ids && kind->reports_pids;
}

#endif
