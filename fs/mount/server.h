/* The server: the workspaces of one ROOT that this process has open, and their mounts.
 *
 * A workspace is opened by the first call that names it, and stays open until it is
 * closed or deleted. Calls on different workspaces go on beside each other; calls on
 * one do too, but mounting, unmounting and restoring go one at a time, and closing and
 * deleting wait for all others.
 *
 *     server_open -> served_get … served_put, served_create, served_delete … -> server_close
 *
 * All functions: 0, or a negated errno and one line that a person will read. Any thread
 * that serves no requests. */
#ifndef BOUGH_MOUNT_SERVER_H
#define BOUGH_MOUNT_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "fs/base/err.h"
#include "fs/mount/counters.h"
#include "fs/work/workspace.h"

struct server;
struct served; /* an open workspace and its mount */

struct server_options {
	const char *root;
	bool ring;          /* transport ring instead of dev */
	unsigned workers;   /* of the dev transport; 0: 2 x cores + 4, at least 32 */
	uint64_t commit_ms; /* as work_options */
	size_t cache_bytes; /* as work_options */
	uint64_t mask;      /* session_options.mask */
	/* Mounts outlive this process, and those of the one before are gone on with. Somebody must
	 * be there to start the next one: programs on the mounts wait for it. NULL: they don't. */
	struct starter *starter;
	bool crashed; /* the one before ended by its own fault */
};

/* Opens ROOT and starts the workers. -EBUSY: another server has it. */
int server_open(struct server **out, const struct server_options *opt, struct err *err);
/* Unmounts all, makes all durable, closes. No workspace is held any more. The first failure
 * is reported; it goes on all the same, and the server is gone. NULL allowed. */
int server_close(struct server *s, struct err *err);
const char *server_transport(const struct server *s);
unsigned server_workers(const struct server *s); /* 0: ring transport */
bool server_holds(struct server *s);                /* all its mounts outlive it */
const char *server_program(const struct server *s); /* its file, by hold_identity */
/* Answers what was begun and serves no more; the mounts wait for the next server. The process
 * must end now, without server_close. */
void server_leave(struct server *s);
unsigned server_resumed(const struct server *s); /* mounts that it went on with at its start */
/* Counters since the start, over all mounts there were and are. */
void server_counters(struct server *s, struct counters *out);
void server_trim(struct server *s);
/* work_await and work_hush. */
int server_await(struct server *s, uint64_t since, int wait_ms, uint64_t *now, char ***ids,
		 size_t *n);
void server_hush(struct server *s);
/* Who asks. */
struct peer {
	uint64_t number; /* of the connection; later ones have higher numbers */
	pid_t pid;       /* whose it is */
};
/* Around what was asked for by the connection of that number. -ECONNRESET: a later one has
 * settled. */
int server_begin(struct server *s, uint64_t number, struct err *err);
void server_done(struct server *s);
/* The process has no connection any more: what it held (ws_hold) is free. */
void server_peer_gone(struct server *s, pid_t pid);
/* Waits for all that has begun; from then on earlier connections begin nothing. */
void server_settle(struct server *s, uint64_t number);
/* work_sweep; -EBUSY when a workspace is open. */
int server_sweep(struct server *s, bool (*known)(void *ctx, const char *id), void *ctx,
		 struct err *err);
/* Ids of the open workspaces in order, for served_get. The caller frees the array and
 * each of them. */
int server_list(struct server *s, char ***ids, size_t *count, struct err *err);

/* A workspace whose disk failed (ws_fault) and that isn't mounted is closed, so that whoever asks
 * for it next opens it anew, which mends it; and so are all others of that kind, since they may
 * show the same layers. */
void served_mend(struct server *s, const char *id);
/* The workspace, opened where it isn't; it stays open until served_put. -ENOENT. */
int served_get(struct server *s, const char *id, struct served **out, struct err *err);
void served_put(struct served *w); /* NULL allowed */
/* ws_hold by that process. */
int served_hold(struct served *w, uint64_t who, pid_t pid, uint64_t bytes, uint64_t inodes);
struct ws *served_ws(struct served *w);

struct served_child {
	const char *id;
	const char *path; /* NULL: not mounted */
	struct ws_limits limits;
};
/* A new workspace, mounted if the child says so. On failure nothing is left. */
int served_create(struct server *s, const struct served_child *child, const struct stack *base,
		  uid_t uid, gid_t gid, struct err *err);
/* n children of a workspace; on failure none is left. */
int served_fork(struct served *w, const struct served_child *children, unsigned n,
		uint64_t *pause_ns, struct err *err);
/* Mounts; nothing to do when it is mounted there already; -EBUSY when elsewhere. Those who
 * still use a detached mount of it get ENOTCONN from now on. */
int served_mount(struct served *w, const char *path, struct err *err);
/* Unmounts if it is mounted. *busy: it is detached and lives on for those who use it. */
int served_umount(struct served *w, bool *busy, struct err *err);
/* ws_replace, once nobody can ask any more whether a request was done in the layers that go. */
int served_replace(struct served *w, const struct stack *old, const struct stack *with,
		   struct err *err);
/* ws_restore_if, with the kernel's caches; counts of what it was told to forget. `expect` NULL:
 * whatever it is. renumber: as in ws_changes. */
int served_restore(struct served *w, const struct stack *to, const struct stack *expect,
		   bool renumber, uint64_t *names, uint64_t *nodes, struct err *err);
/* ws_put, or ws_take, with the kernel's caches. */
int served_put_file(struct served *w, const struct ws_put *want, bool put,
		    struct ws_put_result *out, struct err *err);
/* ws_batch, with the kernel's caches. */
int served_batch(struct served *w, const struct ws_batch *batch, size_t *failed);
struct served_state {
	bool mounted;
	char *path;               /* where; NULL when it isn't mounted; the caller frees */
	struct counters counters; /* of the present mount; all zero when there is none */
};
int served_state(struct served *w, struct served_state *out, struct err *err);
/* Unmounts for good, whoever is in it. It stays open, and what it has isn't made durable. */
int served_end(struct server *s, const char *id, struct err *err);
/* Unmounts for good and closes. 0 also when it wasn't open. */
int served_close(struct server *s, const char *id, struct err *err);
/* Unmounts for good and deletes. -ENOENT. */
int served_delete(struct server *s, const char *id, struct err *err);

#endif
