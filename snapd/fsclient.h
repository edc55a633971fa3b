/* boughd's side of the control protocol (fs/mount/ctl.h): a small pool of connections to
 * bough-fs, and one function for each operation.
 *
 * Calls wait while bough-fs is being started (the supervisor opens and closes the gate), and
 * fail with -ECONNREFUSED and the reason when it can't be. When bough-fs dies under a call, one
 * that may be repeated, or bears a tag by which the next one knows whether it was done, is repeated
 * once it is back; create, fork, replace, and a restore that expects something give -ECONNRESET.
 *
 * Threads: any; each call under way has a connection of its own. */
#ifndef BOUGH_SNAPD_FSCLIENT_H
#define BOUGH_SNAPD_FSCLIENT_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "fs/base/buf.h"
#include "fs/base/err.h"
#include "fs/work/stack.h"
#include "fs/work/workspace.h"

enum {
	FSCLIENT_WAIT_MS = 20000,    /* for bough-fs to be up; a restart takes some 100 ms */
	FSCLIENT_ANSWER_MS = 300000, /* one call: opening a workspace may replay a long journal */
	FSCLIENT_IDLE = 8,           /* connections kept */
	FSCLIENT_CALLS = 128,        /* at once, each with a connection; more wait for their turn */
};

struct fsclient;
int fsclient_new(struct fsclient **out, const char *socket_path, struct err *err);
void fsclient_free(struct fsclient *fc); /* no call is under way; NULL allowed */

/* fn is called before each call by which a workspace's tree as it is may be lost: fs_replace,
 * fs_restore, fs_delete. To be said before any call. */
void fsclient_before_loss(struct fsclient *fc, void (*fn)(void *ctx, const char *id), void *ctx);

/* For the supervisor. A closed gate with a reason fails waiting calls at once; with NULL they
 * wait. All idle connections go when the gate closes. */
void fsclient_open_gate(struct fsclient *fc);
void fsclient_close_gate(struct fsclient *fc, const char *why);
/* One request, past the gate, never repeated. `request` is taken over; *answer (NULL allowed)
 * is the caller's. The error of an answer is returned as its -errno and text. */
int fsclient_direct(struct fsclient *fc, json_t *request, json_t **answer, struct err *err);

/* It runs, and what should be mounted is: waits for that as any call does. */
int fs_ping(struct fsclient *fc, struct err *err);

struct fs_new {
	const char *id, *path;  /* path NULL: not mounted */
	uint64_t bytes, inodes; /* quota; 0: none */
	/* Whether it shows xattrs; else as its parent, and without one it does. */
	enum { FS_XATTRS_INHERIT, FS_XATTRS_ON, FS_XATTRS_OFF } xattrs;
	bool heir; /* of a fork: as in ws_limits */
};
struct fs_usage {
	int64_t bytes, inodes;
	uint64_t records, layers, memory_bytes, files;
	uint64_t lost; /* records of its active layer, which fsck can't read */
	uint64_t gen; /* another one behind each restore */
	bool mounted, xattrs;
	char fault[WS_FAULT_TEXT];   /* it is read-only: why; "" */
	char damage[WS_DAMAGE_TEXT]; /* what of it is damaged (ws_damage); "" */
};
int fs_create(struct fsclient *fc, const struct fs_new *w, const struct stack *stack, uid_t uid,
	      gid_t gid, struct err *err); /* stack NULL: empty */
int fs_fork(struct fsclient *fc, const char *id, const struct fs_new *children, size_t n,
	    uint64_t *pause_ns, struct err *err);
int fs_mount(struct fsclient *fc, const char *id, const char *path, struct err *err);
int fs_umount(struct fsclient *fc, const char *id, bool *busy, struct err *err);
int fs_seal(struct fsclient *fc, const char *id, struct stack *out, struct err *err);
int fs_stack(struct fsclient *fc, const char *id, struct stack *out, struct err *err);
/* Its active layer: another one behind each fork, seal and restore. */
int fs_active(struct fsclient *fc, const char *id, struct layer_id *out, struct err *err);
/* Whether a layer that was active is so still, or lies sealed below the one that is: 1; 0: it was
 * restored since, or flattened. */
int fs_has_layer(struct fsclient *fc, const char *id, const struct layer_id *layer,
		 struct err *err);
/* Nothing that was asked for before, by this boughd or one before it, is done behind it; what other
 * threads have asked for and isn't begun, is asked for again. Waits up to wait_ms for what is under
 * way: -ETIMEDOUT. */
int fs_settle(struct fsclient *fc, int wait_ms, struct err *err);
/* Whether the put, take or batch of that tag was done: 1 or 0. */
int fs_answered(struct fsclient *fc, const char *id, uint64_t tag, struct err *err);
uint64_t fs_tag(void); /* a new one, which isn't 0 */
int fs_replace(struct fsclient *fc, const char *id, const struct stack *old,
	       const struct stack *with, struct err *err);
/* `expect` (NULL: whatever it is): -ESTALE where its sealed stack is another, or it was written to
 * since. renumber: as in ws_changes. */
int fs_restore(struct fsclient *fc, const char *id, const struct stack *to,
	       const struct stack *expect, bool renumber, struct err *err);
/* ws_put: what has the name afterwards. -EREMCHG. One that may have been done is repeated. Its tag
 * is of fs_tag, or 0: any. */
struct fs_named {
	bool created;
	uint32_t mode;
	char version[VERSION_TEXT];
};
int fs_put(struct fsclient *fc, const char *id, const struct ws_put *want, struct fs_named *out,
	   struct err *err);
int fs_take(struct fsclient *fc, const char *id, const struct ws_put *want, struct err *err);
/* ws_batch of the operations that `ops` holds (batch.h). *failed: which of them can't be done;
 * SIZE_MAX for none. *results (NULL: not wanted): ctl.h's, the caller's. */
struct fs_batch {
	const void *ops, *contents; /* encoded; without contents no operation has one */
	size_t ops_len, contents_len;
	uint64_t tag; /* of fs_tag; 0: any */
	int file;    /* that holds the contents' pieces; -1: there are none */
	uint64_t at; /* where it ends: behind it, this writes the two for bough-fs */
};
int fs_batch(struct fsclient *fc, const char *id, const struct fs_batch *b, size_t *failed,
	     json_t **results, struct err *err);
/* Keeps room in the workspace's quota for the batch of that tag, in place of what was kept for it
 * before (0 and 0: none): for all others it is used. It goes with this process. -EDQUOT. With tag 0
 * nothing is kept: it only tells whether there is so much. */
int fs_hold(struct fsclient *fc, const char *id, uint64_t tag, uint64_t bytes, uint64_t inodes,
	    struct err *err);
/* Entries of the folder of that inode number behind the cookie, about 300 at most, in order: fn
 * returns other than 0 to end it, which is returned. *more: ask again with the last cookie. */
struct fs_entry {
	const char *name; /* terminated, borrowed */
	size_t len;
	uint32_t mode;
	uint64_t size, cookie;
	struct timespec mtime;
};
int fs_entries(struct fsclient *fc, const char *id, uint64_t dir, uint64_t after,
	       int (*fn)(void *ctx, const struct fs_entry *e), void *ctx, bool *more,
	       struct err *err);
int fs_limits(struct fsclient *fc, const char *id, uint64_t bytes, uint64_t inodes,
	      struct err *err);
int fs_usage(struct fsclient *fc, const char *id, struct fs_usage *out, struct err *err);
/* What happened in the workspace since the token (NULL: nothing, but the token of now): the answer
 * as ctl.h has it, the caller's. */
int fs_changes(struct fsclient *fc, const char *id, const char *since, json_t **answer,
	       struct err *err);
/* `await`, on a connection of its own that is kept in *w (all zero but fd -1) between the calls.
 * Never repeated; past a closed gate it fails with -ECONNREFUSED at once. fs_wait_end, from another
 * thread, ends a call under way, and every later one: -ESHUTDOWN. */
struct fs_wait {
	pthread_mutex_t lock;
	int fd;
	bool ended;
};
int fs_await(struct fsclient *fc, struct fs_wait *w, uint64_t moment, int wait_ms, json_t **answer,
	     struct err *err);
void fs_wait_end(struct fs_wait *w);
/* Calls fn for each workspace that is open in bough-fs, past the gate. */
int fs_each_open(struct fsclient *fc,
		 void (*fn)(void *ctx, const char *id, const struct fs_usage *u), void *ctx,
		 struct err *err);
/* Unmounts it, whoever is in it, and lets go of it. */
int fs_close(struct fsclient *fc, const char *id, struct err *err);
int fs_delete(struct fsclient *fc, const char *id, struct err *err);
/* Unmounts it, whoever is in it, and waits for no disk; fs_close is to follow. */
int fs_end(struct fsclient *fc, const char *id, struct err *err);
int fs_stats(struct fsclient *fc, json_t **out, struct err *err);

#endif
