/* Workspaces: the filesystem's operations on one stack with an active layer, and what is
 * done to whole workspaces: create, fork, seal, restore, quota. No FUSE types.
 *
 *   ROOT/ws/<id>/stack     the stack and settings (fs/FORMAT.md), replaced atomically
 *   ROOT/layers/…          layers (layer.h)
 *   ROOT/store, ROOT/images  objects and images
 *   ROOT/ino               the store-wide inode counter
 *   ROOT/uploads           files that ws_put takes over; whoever fills them is no part of this
 *
 * A node id is inode | gen << 48, and 1 is the root (invariant 1).
 *
 * Locks of a workspace, outer first:
 *   gate     rwlock: every operation holds it shared, fork, seal and restore exclusively,
 *            so these wait for operations in flight and see all that returned (invariant 7)
 *   stripes  mutexes by inode: operations that change or extend one file's content
 *   meta     rwlock: the view's and active layer's index
 * Data moves (layer_pread, layer_pwrite) outside meta, inside gate. */
#ifndef BOUGH_WORK_WORKSPACE_H
#define BOUGH_WORK_WORKSPACE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "fs/base/err.h"
#include "fs/image/image.h"
#include "fs/store/store.h"
#include "fs/work/stack.h"
#include "fs/work/version.h"
#include "fs/work/view.h"

/* ---- the root ---- */

struct work;
struct work_options {
	const struct io *io;
	uint64_t commit_ms;     /* background commit of dirty layers; 0: 5000; UINT64_MAX: never */
	size_t cache_bytes;     /* of the store */
	const uint8_t *boot_id; /* 16 bytes, copied; NULL: the machine's (layer.h) */
	bool resumes;           /* collect what ws_answered finds in the layers */
	/* A workspace's disk failed, or it was mended (ws_fault), or content is damaged (ws_damage;
	 * of each opening a few of these only): one line, for a log. Any thread;
	 * NULL: nobody. */
	void (*told)(void *ctx, const char *id, const char *text);
	void *told_ctx;
	uint64_t big_file;      /* layer.h; for tests */
	bool read_ahead;        /* unpack what who reads file after file will need (readahead.h) */
};
/* Opens ROOT (made when absent), and takes its server lock: -EBUSY when another process
 * serves it. One background thread commits dirty layers and trims idle memory. */
int work_open(struct work **out, const char *root, const struct work_options *opt, struct err *err);
void work_close(struct work *w); /* all workspaces were closed */
struct store *work_store(struct work *w);
/* Options to open views of this root's stacks elsewhere in the process, sharing loaded layers. */
void work_view_options(struct work *w, struct view_options *out);
/* Gives back memory and descriptors that nobody needs just now (done by itself after 5 s
 * without an operation). */
void work_trim(struct work *w);
/* Removes layers and workspace folders that nothing refers to any more. Only before any
 * workspace is open. `known` tells whether a workspace id is wanted. */
int work_sweep(struct work *w, bool (*known)(void *ctx, const char *id), void *ctx,
	       struct err *err);

/* ---- whole workspaces ---- */

struct ws;
enum { WS_ID_MAX = 40 }; /* characters: [a-z0-9_]+ */
struct ws_limits {
	uint64_t bytes, inodes; /* quota; 0: none */
	/* Set where it is made, for good: a workspace without xattrs answers no question about
	 * them, so the kernel stops asking (security.capability before a first write and a chown).
	 * What it is made from may have some: they are kept, saved and exported, and don't show;
	 * file capabilities end when the file is written or changes hands, as ever. */
	enum { WS_XATTRS_INHERIT, WS_XATTRS_ON, WS_XATTRS_OFF } xattrs; /* without a parent: on */
	/* ws_fork: what the child changes is charged as if the parent did it, beside what it is
	 * charged already, and is once the parent is restored to it (quota.h). */
	bool heir;
};
struct ws_usage {
	int64_t bytes, inodes; /* of its own changes, what the quota counts */
	uint64_t records;      /* in journals of its local layers: what a restart replays */
	uint64_t layers;       /* in the stack, the active one counted */
	uint64_t memory_bytes;
	uint64_t file_count; /* inodes that the workspace shows */
	uint64_t lost;       /* records of the active layer, which only its server reads */
	uint16_t gen;        /* another one behind each restore */
};

/* A new workspace on `base` (NULL: empty, its root owned by uid, gid with mode 0755).
 * -EEXIST; -ENOENT when the base lacks something; nothing is left behind on failure. */
int ws_create(struct ws **out, struct work *w, const char *id, const struct stack *base,
	      const struct ws_limits *limits, uid_t uid, gid_t gid, struct err *err);
/* Opens one from disk. -ENOENT, -EBADMSG, -EBUSY (open already). */
int ws_open(struct ws **out, struct work *w, const char *id, struct err *err);
void ws_close(struct ws *ws);
/* Closes one that is about to be deleted: waits for no disk. What it has is in its journal, but not
 * durable; should the deletion fail, it is opened and closed once more. */
void ws_discard(struct ws *ws);
/* As ws_open, where the mount of a server that died lives on: inodes without a name stay as long
 * as the kernel may hold them (ws_forget_unheld), since how often it does was lost. */
int ws_resume(struct ws **out, struct work *w, const char *id, struct err *err);
/* The host's disk failed to take what the workspace had written, and nobody knows what of it is
 * there (layer.h). Reading goes on, each change is -EROFS and each ws_fsync the disk's error, until
 * the workspace is closed and opened again, which goes back to the last good commit and writes
 * that anew (if it fails, all stays as it is), or until ws_restore. ws_resume mends nothing: the
 * kernel has seen what is lost. True, and a line that names file and error. */
enum { WS_FAULT_TEXT = 256 };
bool ws_fault(struct ws *ws, char *text, size_t size);
/* Something of it is damaged: records of a journal, blocks of its image, or content that somebody
 * read since it was opened, or restored, and got -EIO for. True, and a line that names it. */
enum { WS_DAMAGE_TEXT = 256 };
bool ws_damage(struct ws *ws, char *text, size_t size);
/* Deletes a closed workspace: its folder first, then layers that nobody else has. */
int ws_delete(struct work *w, const char *id, struct err *err);
const char *ws_id(const struct ws *ws);
/* Is what may be read next, of this root's workspaces, being unpacked just now? Any thread. */
bool ws_reads_ahead(const struct ws *ws);

/* n children of a workspace, mounted and written to or not, each with its limits (NULL: none at
 * all). O(1): no copy, no sync. The children are open; on failure none exists. *pause_ns (NULL
 * allowed): how long writers stood. */
int ws_fork(struct ws *ws, const char *const *ids, unsigned n, const struct ws_limits *limits,
	    struct ws **children, uint64_t *pause_ns, struct err *err);
/* Seals the active layer and puts a new one on top; `out` is the sealed stack (every
 * operation that returned before is in it). Nothing to seal: the same stack again. */
int ws_seal(struct ws *ws, struct stack *out, struct err *err);
/* The sealed part of the stack as it is now, without the active layer; seals nothing.
 * The caller frees. 0 or -ENOMEM. (gc marks by it, flattening starts from it.) `active` (NULL
 * allowed) gets that layer's id: each fork, seal and restore, and nothing else, makes another. */
int ws_stack(struct ws *ws, struct stack *out, struct layer_id *active);
/* Replaces the lower part of the stack, `n` layers from the bottom and the image, which
 * must be those of `old`, by `with` (same tree: flattened or saved).
 * -ESTALE: the stack begins with something else by now. */
int ws_replace(struct ws *ws, const struct stack *old, const struct stack *with, struct err *err);
/* Turns the workspace, in place, into what `to` shows. It is charged for what is its own in that
 * (quota.h), limit or not. The generation of an inode whose
 * content or type differs goes up, so old handles answer -ESTALE. Then calls, after the swap
 * and without locks, for what the kernel must forget. */
struct ws_changes {
	void (*name)(void *ctx, uint64_t dir_node, const char *name, size_t len, bool removed,
		     uint64_t child_node);
	void (*node)(void *ctx, uint64_t node); /* attributes and content */
	/* Calls tell(arg), which makes the calls above, from where they may wait; NULL: here. */
	void (*apart)(void *ctx, void (*tell)(void *arg), void *arg);
	void *ctx;
	bool renumber; /* a restore: what differs has another st_ino, too */
};
int ws_restore(struct ws *ws, const struct stack *to, const struct ws_changes *changes,
	       struct err *err);
/* The same if nothing was written since the workspace's sealed stack was `expect` (what a fork or
 * ws_seal gave). -ESTALE: something was, and nothing is done. */
int ws_restore_if(struct ws *ws, const struct stack *to, const struct stack *expect,
		  const struct ws_changes *changes, struct err *err);
/* After ws_resume: calls for what a restore, ws_put, ws_take or ws_batch that had begun may not
 * have told. */
void ws_retell(struct ws *ws, const struct ws_changes *changes);
int ws_set_limits(struct ws *ws, const struct ws_limits *limits, struct err *err); /* quota only */
bool ws_shows_xattrs(const struct ws *ws); /* never changes */
void ws_get_usage(struct ws *ws, struct ws_usage *out, struct ws_limits *limits);
/* Forgets all the kernel's references (after an unmount): orphans go. */
void ws_forget_all(struct ws *ws);
/* Ends inodes without a name that the kernel doesn't hold, after ws_resume: `held` asks it about
 * a node, without locks. Those of which it said no twice in a row go. True: some are left. */
bool ws_forget_unheld(struct ws *ws, bool (*held)(void *ctx, uint64_t node), void *ctx);
/* Where the highest generation that was shown is kept beyond this process's life: raised to ours,
 * ours to it, and kept so. `where` lives as long as the workspace is open; NULL: no more. */
void ws_keep_gen(struct ws *ws, _Atomic uint16_t *where);
/* A consistent look: `fn` runs with the gate held shared and meta shared, so it may call nothing
 * else of this header for that workspace. */
int ws_with_view(struct ws *ws, int (*fn)(void *ctx, const struct view *v), void *ctx);

/* ---- operations; 0 or -errno as the system call's. Any thread. ---- */

struct caller {
	uid_t uid;
	gid_t gid;
	uint64_t tag; /* txn.tag; 0: none */
	uint64_t who; /* whose ws_hold pays first for a new file and for content; 0: none does */
};
/* Whether the request of that tag was done before the workspace was opened, or has WS_TAG_OURS and
 * was done since: 1, and the node that it is mainly about (of what makes one: that; 0 where it is
 * gone, and of one of ours in this life); 0: it wasn't; -errno. The answer is the
 * one it would give now, but for what made a node, see ws_again. */
int ws_answered(struct ws *ws, uint64_t tag, uint64_t *node);
struct entry {
	uint64_t node;
	struct attr attr;
};
static inline uint64_t node_of(const struct attr *a)
{
	return a->ino == 1 ? 1 : a->ino | (uint64_t)a->gen << 48;
}
/* st_ino: the number, or the whole node id where a restore was to be seen by who takes a file for
 * the one that it knows as long as st_ino is the same (ws_changes.renumber). */
static inline uint64_t ino_shown(const struct attr *a)
{
	return a->flags & ATTR_SHOWS_GEN ? node_of(a) : a->ino;
}
/* The number behind an st_ino. */
static inline uint64_t ino_meant(uint64_t st_ino)
{
	return st_ino & ((UINT64_C(1) << 48) - 1);
}

/* Each entry handed out by lookup, mknod, symlink, link, tmpfile and a true return of
 * readdir's callback counts one reference that ws_forget gives back. */
int ws_lookup(struct ws *ws, uint64_t dir, const char *name, size_t len, struct entry *out);
/* The entry of a node that ws_answered gave. */
int ws_again(struct ws *ws, uint64_t node, struct entry *out);
void ws_forget(struct ws *ws, uint64_t node, uint64_t n);
/* Inodes without a name that the kernel holds, and how many ended since it was opened: their
 * quota has come free. */
bool ws_has_orphans(struct ws *ws);
uint64_t ws_ended(struct ws *ws);
int ws_getattr(struct ws *ws, uint64_t node, struct attr *out);
enum {
	WS_SET_MODE = 1,
	WS_SET_UID = 2,
	WS_SET_GID = 4,
	WS_SET_SIZE = 8,
	WS_SET_ATIME = 16,
	WS_SET_MTIME = 32,
	WS_SET_CTIME = 64,
	WS_SET_ATIME_NOW = 128,
	WS_SET_MTIME_NOW = 256,
	WS_KILL_SUID = 512, /* clear suid, sgid and capabilities (HANDLE_KILLPRIV_V2) */
};
int ws_setattr(struct ws *ws, uint64_t node, unsigned what, const struct attr *in,
	       const struct caller *c, struct attr *out);
/* mode with type: regular, directory, fifo, socket, device. A setgid parent gives its group. */
int ws_mknod(struct ws *ws, uint64_t dir, const char *name, size_t len, uint32_t mode,
	     uint32_t rdev, const struct caller *c, struct entry *out);
int ws_symlink(struct ws *ws, uint64_t dir, const char *name, size_t len, const char *target,
	       const struct caller *c, struct entry *out);
int ws_link(struct ws *ws, uint64_t node, uint64_t dir, const char *name, size_t len,
	    const struct caller *c, struct entry *out);
int ws_tmpfile(struct ws *ws, uint64_t dir, uint32_t mode, const struct caller *c,
	       struct entry *out);
int ws_unlink(struct ws *ws, uint64_t dir, const char *name, size_t len, const struct caller *c);
int ws_rmdir(struct ws *ws, uint64_t dir, const char *name, size_t len, const struct caller *c);
/* flags: RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT (a 0:0 character device stays). */
int ws_rename(struct ws *ws, uint64_t dir, const char *name, size_t len, uint64_t newdir,
	      const char *newname, size_t newlen, unsigned flags, const struct caller *c);
int ws_readlink(struct ws *ws, uint64_t node, char *buf, size_t cap, size_t *len); /* cap >= 4096 */

/* Up to n bytes; the count. Moves atime by relatime's rule. */
ssize_t ws_read(struct ws *ws, uint64_t node, void *buf, size_t n, uint64_t off);
/* All n bytes or -errno; a write that would be over the quota is refused whole (-EDQUOT). Killed or
 * failing in the middle, a range that is overwritten in place may hold old or new bytes. */
int ws_write(struct ws *ws, uint64_t node, const void *buf, size_t n, uint64_t off, bool kill_suid,
	     const struct caller *c);
/* How many bytes the quota leaves for a write at `off`, at the file's end or behind it; 0 for
 * another one. What lies between may need some of them. */
size_t ws_room(struct ws *ws, uint64_t node, uint64_t off);
/* Modes 0 and KEEP_SIZE give holes space of the host's that reads as zeros and is charged at once;
 * a later write into it needs no more. What is there is left as it is, also where it is shared.
 * PUNCH_HOLE and ZERO_RANGE (with or without KEEP_SIZE) leave holes, parts of blocks are
 * zeroed; ZERO_RANGE reserves nothing. -EOPNOTSUPP: other modes. */
int ws_fallocate(struct ws *ws, uint64_t node, int mode, uint64_t off, uint64_t len,
		 const struct caller *c);
int ws_seek(struct ws *ws, uint64_t node, uint64_t off, int whence, uint64_t *out);
/* Shares whole blocks, copies the ragged ends; the count copied, which an error in the middle
 * makes less than asked for. -EINVAL: the ranges overlap in one file. Of several steps only the
 * last has the caller's tag: without it, it is done once more. */
enum { WS_COPY_MAX = INT32_MAX & ~4095 }; /* bytes, of one call */
ssize_t ws_copy_range(struct ws *ws, uint64_t from, uint64_t from_off, uint64_t to, uint64_t to_off,
		      uint64_t n, const struct caller *c);
/* That inode is durable, and all that was acknowledged before but for the content of other big
 * files (layer_fsync): ws_commit takes all. */
int ws_fsync(struct ws *ws, uint64_t node);
/* Everything acknowledged so far is durable. Holds the gate only for a moment. */
int ws_commit(struct ws *ws, struct err *err);

enum ws_plus { WS_NAMES, WS_PLUS, WS_PLUS_FOLDERS }; /* whose attributes: nobody's, all, folders' */
/* Entries with cookie > `after` (0: from the start), without "." and "..". `fn` gets each
 * entry; with `plus` its attributes too (then a true return counts a reference), else NULL.
 * It returns false when there is no room; that entry isn't counted. An entry whose inode is lost
 * comes without attributes, with `plus` too. `fn` may call nothing else of this header. */
int ws_readdir(struct ws *ws, uint64_t dir, uint64_t after, enum ws_plus plus,
	       bool (*fn)(void *ctx, const struct dirent_ref *d, const struct attr *a), void *ctx);

int ws_setxattr(struct ws *ws, uint64_t node, const char *name, const void *value, size_t len,
		int flags, const struct caller *c);
/* The length; -ERANGE when cap is not 0 and too small. */
ssize_t ws_getxattr(struct ws *ws, uint64_t node, const char *name, void *buf, size_t cap);
ssize_t ws_listxattr(struct ws *ws, uint64_t node, char *buf, size_t cap);
int ws_removexattr(struct ws *ws, uint64_t node, const char *name, const struct caller *c);

/* What changed below the folder since the token (changed.h), in at most `max` bytes; appended.
 * -EPERM: the caller neither
 * owns it nor is root: names of what others may not look into would come out. */
int ws_changed(struct ws *ws, uint64_t dir, const char *token, const struct caller *c,
	       size_t max, struct buf *out);

/* What happened since the token (watch.h). */
struct watch_event;
int ws_watch(struct ws *ws, const char *token,
	     int (*fn)(void *ctx, const struct watch_event *e), void *ctx, char *next);
/* Waits up to wait_ms until a workspace's log grows beyond what was at the moment `since`, a number
 * that this gave as *now (0: none). The ids of those are the caller's to free, each and the array.
 * 1; 0: nothing happened; 2: that number is none of this process, or too many: any may have
 * changed, and *ids is NULL; -ENOMEM; -ESHUTDOWN after work_hush. */
int work_await(struct work *w, uint64_t since, int wait_ms, uint64_t *now, char ***ids, size_t *n);
void work_hush(struct work *w); /* nobody waits any more, and nobody will */

/* What is done for who isn't the kernel: it must be told afterwards. Whoever asks gives a random
 * number with this bit as the tag, so that ws_answered tells him when a server has died whether it
 * was done. The names of the last one are told again by ws_retell. */
#define WS_TAG_OURS (UINT64_C(1) << 63)

/* Compare and replace, for who isn't the kernel: it must be told afterwards to forget the name
 * and what it knows of the inodes. Directory and file are given by their inode numbers. */
struct ws_put {
	uint64_t tag; /* WS_TAG_OURS is in it */
	uint64_t dir;
	const char *name;
	size_t len;
	uint64_t file; /* regular and without a name yet (ws_tmpfile), which the kernel holds */
	/* Or the name of a file of `size` bytes in ROOT/uploads, which becomes a new file's content
	 * without a copy, and has a second name from then on. NULL: it is `file`. */
	const char *upload;
	uint64_t size;
	bool as_is; /* the file has its owner, mode and xattrs already */
	bool set_mode;
	uint32_t mode; /* else as what it replaces, without set-id bits; a new one has 0644 */
	/* What must be there; else -EREMCHG, and nothing is done. */
	bool must_exist, must_not_exist;
	const struct version_id *match, *unless; /* one of these, if there are any; none of these */
	size_t nmatch, nunless;
};
struct ws_put_result {
	uint64_t dir_node, node, old_node; /* old_node: of what it replaced or took; 0: none */
	struct attr attr;                  /* of the file now; ws_take: of what was taken */
};
/* The file gets the name, in place of a regular file that has it: owner, xattrs (but capabilities)
 * and mode stay. A new file belongs to its folder's owner. -ENOENT: no such folder; -EISDIR,
 * -ELOOP: the name is something else's than a regular file's. 0 again where that was done.
 * Of an upload, which nobody may write to any more once this is called, unless it fails: -EXDEV: it
 * must be copied (it is too small for a file of its own, or the host can't link it); -EMLINK: it is
 * some file's content already; -EIO also where it isn't a file of that size. Calls for one upload
 * must not overlap; where its tag was done before, the answer tells what has the name now. */
int ws_put(struct ws *ws, const struct ws_put *want, struct ws_put_result *out);
/* The name goes: of anything but a directory (-EISDIR). `file` and `mode` mean nothing. -ENOENT. */
int ws_take(struct ws *ws, const struct ws_put *want, struct ws_put_result *out);

/* Many changes, all or none (batch.h). The kernel is told by `changes`, afterwards and without
 * locks (NULL: nobody is), and by ws_retell if this process dies before. */
struct batch_op;
struct ws_batch_result {
	bool there; /* something has the name now: */
	struct attr attr;
};
struct ws_batch {
	const struct batch_op *ops;
	size_t n;
	uint64_t tag;                    /* WS_TAG_OURS is in it */
	struct ws_batch_result *results; /* n of them, all zero, filled on success; NULL: none */
	uint64_t who; /* whose ws_hold pays first; 0: none does */
};
/* 0; or -errno, and *failed is the operation that can't be done, n where all of them can't:
 * -EDQUOT, -ENOSPC, -E2BIG. -EREMCHG as in ws_put; -ENOENT, -EEXIST, -ENOTEMPTY, -EISDIR,
 * -ENOTDIR, -ELOOP;
 * -EINVAL: a folder into itself, or a file of PUT that isn't one without a name. */
int ws_batch(struct ws *ws, const struct ws_batch *w, const struct ws_changes *changes,
	     size_t *failed);

/* Keeps room in the quota for what `who` (caller.who) is about to write, in place of what he held
 * before: for everybody else it is used. 0 and 0: none. It ends with the workspace's use, and with
 * ws_hold_end of the process that it is held `by`. -EDQUOT: there isn't so much, and he holds what
 * he did. Where `who` is 0 nothing is kept: it only tells whether there is so much. */
int ws_hold(struct ws *ws, uint64_t who, pid_t by, uint64_t bytes, uint64_t inodes);
void ws_hold_end(struct ws *ws, pid_t by);

struct ws_statfs {
	uint64_t block_size, blocks, blocks_free, files, files_free;
};
/* The quota where there is one, else the host's. */
int ws_statfs(struct ws *ws, struct ws_statfs *out);

#endif
