/* The walls of one sandbox: its ids, mounts, limits and OCI bundle.
 *
 * A box is a folder:
 *     config.json      for the runtime (spec.h: one profile for each kind of runtime)
 *     rootfs/          the root workspace, an idmapped clone of its mount
 *     mnt/N/           each attached workspace, in the same way; with gVisor they are in rootfs
 *     tmp/             the root's /tmp, with gVisor
 *     shm/             its /dev/shm, a tmpfs
 *     user             the user namespace (bind mount of its nsfs file), owned by the first id of
 *                      the sandbox's range, so that limits of users count for the sandbox alone
 *     outer            with gVisor, which makes its own user namespace: another with all ids of the
 *                      host's, owned likewise, for it to make that in (SHIM_USER_NS)
 *     secrets/         a tmpfs with what --secret brought; never in config.json
 * and a cgroup folder /NS-ID in each hierarchy, which the runtime makes: not below a common one,
 * or who shares that with a busy sandbox would wait for a processor whenever it has had its share.
 * (Where version 2 is alone it is /NS-ID/box, which box_make makes.)
 * Boxes of one parent folder share `.share` in it: a tmpfs with bough-init, bound in read-only as
 * /.bough, so that no path of the host shows. box_clear removes every trace of a box, however far
 * box_make came and whoever died meanwhile; box_end what they shared. All of it lives in the
 * caller's mount namespace and outlives the caller. Folders on the way to the box must be open to
 * others (0711): the container's root is nobody outside. The box is open to its group alone (0710).
 *
 * Needs root, and Linux 6.12 where a runtime shifts ids. Errors carry one line that says what is
 * missing. Threads: any, for different boxes. */
#ifndef BOUGH_RUNTIME_BOX_H
#define BOUGH_RUNTIME_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/base/buf.h"
#include "fs/base/err.h"
#include "fs/base/ids.h"
#include "runtime/init/init.h"
#include "runtime/shim.h"

enum {
	BOX_IDS = IDS_RANGE, /* ids of a sandbox: base ... base + BOX_IDS - 1 on the host */
	BOX_SECRET_MAX = 1 << 20,
	BOX_SECRETS_MAX = 128, /* of a box */
	BOX_MOUNTS = 32, /* workspaces that can be attached */
};

struct box_limits {
	uint32_t cpu_milli;      /* thousandths of a core; 1000 */
	uint64_t memory;         /* bytes, swap included; 2 GiB */
	uint32_t pids;           /* 512 */
	uint64_t shm;            /* bytes of /dev/shm; 64 MiB */
};
/* Disk and inodes are the root workspace's quota. */
extern const struct box_limits BOX_LIMITS;

struct box_mount {
	const char *source; /* where the workspace is mounted */
	const char *target; /* absolute, inside; made when it isn't there */
	bool read_only;
};

/* The name of one that holds environment: "K=V" strings, each ended by NUL. bough-init adds them to
 * that of every process. */
#define BOX_SECRET_ENV ".env"
struct box_secret {
	const char *name; /* file name under /run/secrets */
	int fd;           /* its content, from the start; at most BOX_SECRET_MAX bytes */
};

struct box_config {
	const char *dir;      /* the box; its last part is the id */
	const char *id;       /* shown nowhere inside but in hostname's default */
	const char *ns;       /* as shim_config.ns */
	const struct runtime_kind *kind;
	const char *init;     /* path of the static bough-init */
	const char *root;     /* where the root workspace is mounted */
	bool host_image;      /* its /usr is the host's (hostimage.h) */
	bool usr_local;       /* and /usr/local too */
	const char *hostname;
	uint32_t id_base;     /* first host id of the range (ids.h); a multiple of BOX_IDS */
	bool net_host;        /* for admins; else a loopback of its own */
	struct box_limits limits;
	const struct box_mount *mounts;
	size_t n_mounts;
	const struct box_secret *secrets;
	size_t n_secrets;
};

/* What runs in it: the container's own process, or an exec. */
struct box_process {
	const char *const *argv; /* NULL-terminated; NULL: bough-init waits for execs */
	const char *const *env;  /* NULL-terminated; "K=V". HOME, PATH and TERM are added */
	const char *cwd;         /* absolute; NULL: /workspace, else the first workspace, or /. The
				    main one's is made where it isn't there, mode 0755 */
	const char *user;        /* "name", "uid", "name:group", "uid:gid"; NULL: root */
	bool terminal;
	uint32_t columns, rows;  /* of the terminal; 0: not known yet */
	uint32_t timeout_ms;     /* 0: none */
};

/* Makes the box, ready for shim_start. On failure nothing is left. -ENOENT: a mount or image that
 * isn't there; -EINVAL: a user that the root doesn't know, a bad target; -EPERM: not root. */
int box_make(const struct box_config *config, const struct box_process *main, struct err *err);
/* The container's root passes through the box to its files, by its group, and no other user of the
 * host: files would be as open to him as they are in the sandbox, secrets and all. box_make does
 * it; a box of before an upgrade may be open. */
int box_guard(const struct box_config *config, struct err *err);
/* The OCI Process (JSON) of an exec in it. The user is looked up in the root as it is now. */
int box_exec_spec(const struct box_config *config, const struct box_process *process,
		  struct buf *out, struct err *err);
/* Unmounts, empties the cgroups (their processes are killed), removes the folder. Idempotent. After
 * shim_remove: a shim that lives would come in its way. */
int box_clear(const char *dir, const char *ns, struct err *err);
/* What boxes in the folder `parent` shared, once no box is left; while one is: 0, and nothing
 * happens. Idempotent. */
int box_end(const char *parent, struct err *err);
/* Which of the limits nobody enforces with this runtime on this machine, for people; "" none. */
void box_unenforced(const struct runtime_kind *kind, char *out, size_t size);

/* Which of the mounts that every sandbox has the path (absolute, plain) lies on, like "/proc";
 * NULL: none, it is a file of the root. */
const char *box_own_mount(const char *path);
/* Whether a workspace may be attached there: -EINVAL, unless it is an absolute and plain path, not
 * of those mounts, and neither /etc nor the host's /usr. */
int box_check_target(const char *target, bool host_image, struct err *err);

/* Between a container's creation and its start: attaches what the runtime doesn't mount by itself,
 * which is all workspaces with gVisor, and none elsewhere. */
int box_attach_first(const struct box_config *config, struct err *err);
/* Attaches to a running container whose first process is `pid`, and takes it off again: -EBUSY
 * while something uses it, unless `force` (it is detached lazily). Only where
 * runtime_kind.mounts_later; elsewhere -EOPNOTSUPP: attach before the start. So it is with gVisor's
 * /tmp itself, and whatever is attached there at the start. */
int box_attach(const struct box_config *config, uint32_t pid, const struct box_mount *mount,
	       struct err *err);
int box_detach(const struct box_config *config, uint32_t pid, const char *target, bool force,
	       struct err *err);

/* Whether something is mounted there in a running container: 1 or 0; where workspaces aren't
 * attached to one that runs, 1. */
int box_attached(const struct box_config *config, uint32_t pid, const char *target,
		 struct err *err);

/* Freezes its processes at once, without the runtime's knowing, or lets them go on: for a moment.
 * -ENOENT: they aren't in a cgroup of this machine's; -ETIMEDOUT. */
int box_freeze(const char *id, const char *ns, bool on, struct err *err);

/* Makes what a root workspace of the `host` image needs: links, /etc, mount points. `root` is an
 * empty folder (of a workspace's mount) that is filled. Owner: 0 of the caller; idmapped mounts
 * show them as the container's root. */
int hostimage_fill(const char *root, struct err *err);
/* Another number once what it takes of the host's /etc (the alternatives, ld.so's list, ...) isn't
 * what it was: with another /usr, a root that was filled before lacks what is new there. */
uint64_t hostimage_stamp(void);
/* What every root is to have, whatever image it comes from: mount points, and the files of /etc by
 * which programs find localhost and, with the host's network, names. Ends with a NULL path.
 * box_make makes the mount points, where they are missing, all the same. */
struct box_entry {
	const char *path; /* without '/' in front; what it lies in comes before it, or is 0755 */
	unsigned mode;    /* with its type */
	const char *text; /* what an empty file gets, too; NULL: none */
};
extern const struct box_entry box_entries[];
/* Makes those of them that aren't there: before the image's snapshot, so that a fresh sandbox
 * differs from it in nothing. An import puts them into its tree by itself. */
int box_fill_root(const char *root, struct err *err);

/* Every process runs under a bough-init of its own (runtime/init/init.h has its command line and
 * exit codes): KILL can't be caught, so this signal stands for it. */
enum { BOX_SIGNAL_KILL = INIT_KILL, BOX_EXIT_TIMEOUT = INIT_EXIT_TIMEOUT };

#endif
