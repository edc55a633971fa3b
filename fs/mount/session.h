/* A session: one mount of one workspace, from mount(2) until the kernel has let go of the
 * superblock. There is one superblock a workspace, always: two would break locks and caches.
 *
 *   LIVE      mounted at its path
 *   DETACHED  nobody finds it any more (umount -l, or it lives on in another namespace), but those
 *             who have files open or their current folder in it are still served
 *   ENDED     the kernel has let go; all references it held were given back to the workspace
 *
 * Threads: requests are answered by any number of threads; session_mount, _umount, _end
 * and _free are called by one at a time. */
#ifndef BOUGH_MOUNT_SESSION_H
#define BOUGH_MOUNT_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include "fs/base/err.h"
#include "fs/mount/counters.h"
#include "fs/mount/held.h"
#include "fs/mount/holder.h"
#include "fs/mount/loop.h"
#include "fs/work/workspace.h"

struct session;
enum session_state { SESSION_LIVE, SESSION_DETACHED, SESSION_ENDED };

struct session_options {
	struct loop *loop; /* dev transport; NULL: a ring of its own */
	uint64_t mask;     /* FUSE_CAP_* that are taken as not offered by the kernel */
	/* Keeps the mount beyond this process, where the kernel can send its requests again
	 * (Linux 6.9); borrowed until the session has ended. NULL: it ends with the process. */
	struct holder *holder;
};

/* Mounts `ws` (borrowed until the session has ended) at `path`. On failure nothing is left
 * behind. */
int session_mount(struct session **out, struct ws *ws, const char *path,
		  const struct session_options *opt, struct err *err);
/* Goes on where the server before was: the kernel sends what that one hasn't answered. `fd` is
 * taken over in any case; on failure nobody serves the mount, nor keeps it. `ws`: of ws_resume. */
int session_resume(struct session **out, struct ws *ws, uint64_t key, int fd,
		   const struct held *held, const struct session_options *opt, struct err *err);
bool session_is_held(struct session *s); /* it outlives this process */
/* Whether the kernel has that inode. Only from a thread that serves no requests. */
bool session_holds(struct session *s, uint64_t node);
enum session_state session_state(struct session *s);
const char *session_path(const struct session *s);
const struct counters *session_counters(const struct session *s);
/* Unmounts, and removes the mount point where it is empty; afterwards it is ENDED or, when it
 * was busy, DETACHED. */
int session_umount(struct session *s, struct err *err);
/* Ends it whatever its state: who still uses it gets ENOTCONN. On return it is ENDED, also
 * when the unmount failed (then a dead mount stays at the path, and the error says so). */
int session_end(struct session *s, struct err *err);
void session_free(struct session *s); /* an ended one; NULL allowed */

/* Tells the kernel to forget, for ws_restore. Only from a thread that serves no requests, and names
 * and nodes within session_apart. */
void session_forget_name(struct session *s, uint64_t dir_node, const char *name, size_t len,
			 bool removed);
void session_forget_node(struct session *s, uint64_t node);
void session_forget_attr(struct session *s, uint64_t node); /* its content stays known */
/* Calls fn(arg) in a process that shares this one's memory, and returns when that is done. The
 * kernel has who tells it wait for folders and pages that programs hold while they wait for an
 * answer of ours, also if he is killed meanwhile: a thread here would keep the server from ending,
 * and so the next one from giving the answer. */
void session_apart(struct session *s, void (*fn)(void *arg), void *arg);

/* Names of capabilities, for --mask-cap: 0 for an unknown name. */
uint64_t session_cap(const char *name);
/* Whether the ring transport works here; else one line that says what is missing. */
int session_ring_check(struct err *err);

#endif
