/* The insides of struct work and struct ws, for work.c, workspace.c and ws_*.c.
 *
 * Locks, outer first:
 *   work.list_lock   the list of open workspaces, and which ids are busy
 *   ws.admin         one fork, seal, replace, restore, change of limits at a time
 *   ws.gate          shared by every operation; exclusive: the stack is swapped. Writers first, so
 *                    nothing may take it shared twice.
 *   ws.publish       writing of the workspace's durable stack file
 *   ws.stripes       by inode: shared by who reads a content, exclusive for who changes it; of
 *                    two, the lower index first
 *   ws.meta          shared: looks at the index; exclusive: changes it, and ws.quota, ws.files
 *   ws.orphan_lock, node_shard.lock, the registry's, work.ino_lock, work.watch_lock: innermost
 *                    (but work_await takes list_lock, and watch_lock in it)
 *
 * What changes when:
 *   view, file        gate exclusive (file also under admin alone: limits)
 *   attr.size, extents of an inode      its stripe exclusive, and meta exclusive
 *   all else of inodes, names, xattrs   meta exclusive */
#ifndef BOUGH_WORK_WS_IMPL_H
#define BOUGH_WORK_WS_IMPL_H

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "fs/base/cleanup.h"
#include "fs/base/u64map.h"
#include "fs/work/forget.h"
#include "fs/work/ino.h"
#include "fs/work/inos.h"
#include "fs/work/quota.h"
#include "fs/work/readahead.h"
#include "fs/work/registry.h"
#include "fs/work/workspace.h"
#include "fs/work/ws_file.h"

enum {
	WS_STRIPES = 32,
	WS_SHARDS = 8,
	WS_LINK_MAX = 65000, /* names of one inode, as ext4's */
	COMMIT_MS_DEFAULT = 5000,
	IDLE_MS = 5000,     /* without an operation for so long, memory is given back */
	TRIM_MS = 30000,    /* how often sealed layers that no open workspace shows are unloaded */
	IO_PIECE = 1 << 20, /* bytes copied at a time where a buffer is needed */
};
#define WS_FILE_SIZE_MAX ((uint64_t)INT64_MAX - LAYER_BLOCK)

/* At the start a workspace had a newer file, and this one, which counts again if power is lost
 * before that is durable. Until then what it names stays. */
struct older {
	struct older *next;
	char id[WS_ID_MAX + 1];
	struct ws_file file;
};

struct work {
	const struct io *io;
	char *root, *images;
	int root_fd, lock_fd, ws_fd;
	struct store *store;
	struct registry *registry;
	struct readahead *ahead; /* NULL: none */
	uint64_t commit_ms, big_file;
	uint8_t boot[16];
	bool resumes; /* as work_options */

	pthread_mutex_t ino_lock;
	uint64_t ino_next, ino_end; /* reserved and not given out */
	uint64_t ino_told; /* numbers from here on are not given out before ino.rest says so */

	pthread_mutex_t list_lock;
	pthread_cond_t list_cond; /* a workspace's `visits` went down; or stop */
	struct ws *list;
	struct older *older; /* their names are in the registry */
	bool stop, has_thread;
	pthread_t thread;

	void (*told)(void *ctx, const char *id, const char *text); /* as work_options */
	void *told_ctx;

	/* For work_await. */
	_Atomic bool watched; /* somebody asked once: changes are counted */
	pthread_mutex_t watch_lock;
	pthread_cond_t watch_cond;
	uint64_t changes, changes_base; /* of all workspaces; another first number each time */
	unsigned waiters;
	bool hushed;
};

/* References of the kernel: node -> count, for nodes of one shard. */
struct node_shard {
	pthread_mutex_t lock;
	struct u64map map; /* the count, as a pointer */
};

/* A file that another one has replaced: what only it names is removed once that one is durable,
 * since before, the old one might come back. */
struct stale {
	struct stale *next;
	struct ws_file file;
	uint64_t until; /* the seq of what replaced it */
};

struct ws {
	struct work *work;
	struct ws *next;
	unsigned visits; /* the background thread is at it; under list_lock */
	char id[WS_ID_MAX + 1];

	pthread_mutex_t admin, publish;
	pthread_rwlock_t gate, meta;
	pthread_rwlock_t stripes[WS_STRIPES];

	struct view view;             /* layers[0] is the active one */
	struct ws_file file;          /* as on disk; base_* of the present active layer */
	bool no_xattrs;               /* file.no_xattrs; needs no lock */
	_Atomic uint64_t durable_seq; /* of the durable stack file; changed under publish */
	_Atomic bool folder_durable;  /* its name in ROOT/ws; changed under publish */
	_Atomic bool record_durable;  /* the file meta.json in its folder */
	struct stale *stale;          /* under publish */
	struct quota quota;
	struct ws_hold *holds; /* under meta */
	struct timespec stamped; /* of the last change; under meta */
	int64_t files;        /* inodes that got their first name less those that lost the last,
	                       * since the active layer was new */
	_Atomic uint16_t gen; /* the highest generation shown */
	_Atomic(_Atomic uint16_t *) gen_kept; /* and where that outlives us; NULL: nowhere */
	/* Resumed: the kernel may hold inodes below this number, however often we gave them out.
	 * 0: all its references are counted. */
	_Atomic uint64_t held_below;
	/* ws_damage.c: the last that was met by a read, "": none, under damage_lock; whose it was,
	 * and how often that was told. */
	pthread_mutex_t damage_lock;
	char damage[WS_DAMAGE_TEXT];
	_Atomic uint64_t damage_ino;
	_Atomic unsigned damage_told;
	_Atomic bool fault_told; /* a layer's failed sync is known to all who show it */
	_Atomic bool touched; /* an operation came since the background thread looked */
	uint64_t changed;     /* work.changes of its last change; under work.watch_lock */

	struct node_shard nodes[WS_SHARDS];
	pthread_mutex_t orphan_lock;
	/* Inodes with nlink 0 that are kept: ino -> ORPHAN, or ORPHAN_UNHELD when the kernel
	 * said once that it doesn't hold it. */
	struct u64map orphans;
	_Atomic size_t norphans;
	_Atomic uint64_t ended; /* orphans that ended */

	/* Tags of what was done for boughd in this life: a ring; under meta. */
	uint64_t *ours; /* WS_OURS of them; NULL: none yet */
	unsigned ours_at;
};
/* As many as can be between their change and boughd's note of it, and more. */
enum { WS_OURS = 1024 };

/* ---- ws_resume.c ---- */

/* With meta, to write: before a change that bears such a tag, and behind it. */
int ws_ours_room(struct ws *ws); /* 0, -ENOMEM */
void ws_ours_done(struct ws *ws, uint64_t tag);

/* ---- ws_watch.c ---- */

void ws_changed_now(struct ws *ws); /* its log has grown; cheap where nobody watches */

/* ---- work.c ---- */

int work_ino(struct work *w, uint64_t *ino); /* a number nobody has: 0, -ENOSPC, -EIO … */
/* A number above all that have been reserved by anybody so far, next to be given out. */
int work_birth(struct work *w, uint64_t *ino, struct err *err);
/* A number above all that the open workspaces show. Nothing is reserved, so there is no sync. */
int work_above(struct work *w, uint64_t *ino, struct err *err);
/* A number that this process gives none below of from now on; reserves nothing. */
int work_ino_floor(struct work *w, uint64_t *ino, struct err *err);
/* Puts the workspace on the list. -EBUSY: one of that id is open. */
int work_add(struct work *w, struct ws *ws);
void work_remove(struct work *w, struct ws *ws); /* waits until the background thread is off it */
bool work_has(struct work *w, const char *id);
/* The caller's from now on, with its names in the registry. False: there is none. */
bool work_take_older(struct work *w, const char *id, struct ws_file *out);
/* Calls fn for each open workspace, which stays open meanwhile; without the list's lock. */
void work_each(struct work *w, void (*fn)(struct ws *ws, void *ctx), void *ctx);
int ws_id_check(const char *id, struct err *err);
/* Calls fn with each name in a folder of the root, but for . and .., until it fails. */
int work_each_name(struct work *w, const char *folder,
		   int (*fn)(struct work *w, const char *name, void *ctx, struct err *err),
		   void *ctx, struct err *err);

/* layer_create, of one that will be active. */
int work_new_layer(struct work *w, struct layer **out, struct err *err);

/* ---- ws_open.c: life on disk ---- */

/* Publishing a version of the file: it is made (nothing yet) before the gate is taken, written in
 * one step under it, and then the one before is removed. */
struct version {
	int dir, fd;
	uint64_t seq;
	bool written;
};
int version_open(struct version *v, struct work *w, const char *id, uint64_t seq, struct err *err);
/* What f says counts from now on, though not after power loss. f->seq is the version's. */
int version_write(struct version *v, struct work *w, const struct ws_file *f, struct err *err);
/* Closes; removes the file unless it was written, else the one of `before` (0: none). */
void version_done(struct version *v, struct work *w, uint64_t before);
/* The root of a workspace on nothing, in its active layer. */
int ws_make_root(struct layer *l, uid_t uid, gid_t gid);
/* Makes a folder with that file in it. -EEXIST; nothing is left when it fails. */
int ws_make_folder(struct work *w, const char *id, const struct ws_file *f, struct err *err);
int ws_drop_folder(struct work *w, const char *id, struct err *err);
/* A workspace in memory, on that view and that file (both are taken over on success) and on
 * the list. -EBUSY: one of that id is there. */
int ws_new(struct ws **out, struct work *w, const char *id, struct view *view, struct ws_file *file,
	   struct err *err);
void ws_free(struct ws *ws); /* off the list, references given back */
bool ws_is_dirty(struct ws *ws);
/* The workspace's file has just replaced old->file; `old` is taken over. Under admin. */
void ws_retire(struct ws *ws, struct stale *old);

/* ---- ws_damage.c ---- */

/* Content of the inode is damaged, as `why` says. Without meta. */
void ws_note_damage(struct ws *ws, uint64_t ino, const struct err *why);
void ws_forget_damage(struct ws *ws); /* it shows another tree now */

/* ---- ws_fault.c ---- */

/* A commit has failed. If a layer's sync has, all who show the layer turn read-only: true. */
bool ws_spread_fault(struct ws *ws);
int ws_check_fault(struct ws *ws, struct err *err); /* -EROFS, and why */
/* Before it is opened: what failed once and can be written now is mended. True: something was. */
bool ws_mend(struct work *w, const char *id, const struct ws_file *f);

/* ---- ws_resume.c: what a server needs that goes on behind another's mount ---- */

/* Before a restore's version is written into the workspace's folder `dir`: what the kernel must be
 * told to forget, so that it is, whatever becomes of this process. Best effort. */
void forget_list_write(struct ws *ws, int dir, uint64_t seq, const struct forget_list *f);
void forget_list_drop(struct ws *ws); /* it was told */
int ws_open_folder(struct ws *ws);    /* a descriptor, or -errno */

/* ---- workspace.c ---- */

/* Inodes that it shows, by what its layers say of themselves. */
uint64_t ws_count_files(const struct view *v);
/* What of the quota is for inodes without a name that are still held. Under meta. */
void ws_orphans_charged(struct ws *ws, int64_t *bytes, int64_t *inodes);
/* Everything of a new workspace on `base` but its folder: a view with a new active layer on
 * top and the file that says so, both the caller's; what the file names is named in the
 * registry. */
int ws_prepare(struct work *w, const struct stack *base, const struct ws_limits *limits,
	       struct view *view, struct ws_file *file, struct err *err);

/* A stack to be and, once it was swapped, the one that was. */
struct swap {
	struct view view;
	struct ws_file file;
	struct version version; /* of the file to be */
	bool named;             /* the file's layers are, in the registry */
};
void swap_now(struct ws *ws, struct swap *s);  /* under the gate; the version is written */
void swap_done(struct ws *ws, struct swap *s); /* gives back what is in it */

/* ---- ws_op.c: what operations are made of ---- */

static inline uint64_t ino_of(uint64_t node)
{
	return node & INO_MAX;
}
static inline uint32_t own_layers(const struct ws *ws) /* of the view, from the top */
{
	return ws->view.nlayers - ws->file.foreign;
}
static inline struct layer *active(const struct ws *ws)
{
	return ws->view.layers[0];
}
void ws_enter(struct ws *ws); /* gate shared */
void ws_leave(struct ws *ws);
void meta_read(struct ws *ws);
void meta_write(struct ws *ws);
void meta_done(struct ws *ws);
void stripe_read(struct ws *ws, uint64_t ino);
void stripe_write(struct ws *ws, uint64_t ino);
void stripe_done(struct ws *ws, uint64_t ino);

/* The inode of a node; the caller holds meta. -ESTALE: gone, or another generation. */
int ws_get(struct ws *ws, uint64_t node, struct attr *out);
int ws_get_dir(struct ws *ws, uint64_t node, struct attr *out);     /* -ENOTDIR; -ENOENT: removed */
int ws_get_regular(struct ws *ws, uint64_t node, struct attr *out); /* -EISDIR, -EINVAL */

/* The kernel's references. node_ref: 0 or -ENOMEM. */
int node_ref(struct ws *ws, const struct attr *a);
uint64_t node_unref(struct ws *ws, uint64_t node, uint64_t n); /* how many are left */
uint64_t node_refs(struct ws *ws, uint64_t node);
void gen_shown(struct ws *ws, uint16_t gen); /* a generation of what is given out */

struct timespec ws_now(void);

/* One operation's change: a txn and what it does to the usage. Under meta exclusive
 * from op_begin to op_commit. */
struct op {
	struct ws *ws;
	struct txn t;
	struct timespec now;
	int64_t bytes, inodes, files;
	int error;         /* of a build call; op_commit returns it */
	const char *xattr; /* to be removed once the inode has its record; borrowed */
	size_t xattr_len;
	bool xattr_hide;
};
void op_begin(struct op *op, struct ws *ws, uint64_t ino, const struct caller *c);
/* The inode's new version. On its first in this layer, what the copy hides is accounted for. */
void op_inode(struct op *op, struct attr *a);
/* As op_inode, with a base_size that is lower than the present one. */
void op_inode_size(struct op *op, struct attr *a, uint64_t base_size);
void op_new_inode(struct op *op, struct attr *a);
/* The inode goes: its names are gone (op_unlinked) and nobody holds it. */
void op_dead(struct op *op, const struct attr *a);
/* Its last name is gone: kept as an orphan while the kernel holds it, else dead. */
void op_unlinked(struct op *op, struct attr *a);
void op_dirent_del(struct op *op, uint64_t dir, uint64_t cookie);
/* Removes an xattr that shows (-ENODATA); at most one in an op. *a is changed accordingly, and
 * op_inode must follow, which writes both. The name is borrowed until then. */
int op_xattr_del(struct op *op, struct attr *a, const char *name, size_t name_len);
/* Clears suid, sgid, capabilities in *a. */
void op_kill_priv(struct op *op, struct attr *a);
/* For changes of content or owner: where the kernel knows of no xattrs it can't ask for
 * capabilities to be cleared, so that is done here. */
void op_kill_hidden(struct op *op, struct attr *a);
/* own_bytes changes by that. The inode's first change by this workspace charges it, if it isn't
 * older than that (what a restore brought). */
void op_own(struct op *op, struct attr *a, int64_t bytes);
/* Where own changes lie in what was flattened: quota_cap, `xattrs` being the bytes of all that the
 * inode will have, and `size` and `blocks` its own. 0 or -errno. */
int ws_cap_growth(const struct ws *ws, const struct attr *a, uint64_t size, int64_t blocks,
		  int64_t xattrs, int64_t *growth);
int op_commit(struct op *op);                              /* 0, or -errno: then nothing was done */
/* What the lower layers count of the inode in this layer. */
int ws_base_size(const struct ws *ws, const struct attr *a, uint64_t *base_size);

extern char ORPHAN[1], ORPHAN_UNHELD[1];
void orphan_add(struct ws *ws, uint64_t ino); /* memory short: it stays until the next open */
bool orphan_del(struct ws *ws, uint64_t ino);
/* Ends the orphan when it is one and nobody holds it. Under meta exclusive. */
void orphan_reap(struct ws *ws, uint64_t ino, uint64_t node);
void orphan_end(struct ws *ws, uint64_t ino); /* where the caller knows that nobody holds it */

/* Moves atime by relatime's rule; takes meta itself. */
void ws_accessed(struct ws *ws, uint64_t node, const struct attr *a);

/* ---- ws_names.c: what ws_put.c needs too. Under meta, but the first and the last ---- */

/* -ENOENT, -ENAMETOOLONG, -EEXIST (dots), -EINVAL. */
int ws_name_check(const char *name, size_t len);
/* The entry and the inode behind it. */
int ws_find(struct ws *ws, uint64_t dir, const char *name, size_t len, struct dirent_ref *d,
	    struct attr *a);
/* The directory is as it is after a change of its names. */
void ws_dir_changed(struct op *op, struct attr *dir, int links);
/* One name of the inode is gone; *a is its new version. The entry itself is the caller's. */
void ws_name_gone(struct op *op, struct attr *a, uint64_t dir, uint64_t cookie);
/* Before a file made without a name gets its first: all of it comes up to the active layer. Gate
 * shared, no other lock. */
int ws_prepare_first_name(struct ws *ws, uint64_t node);

/* ---- ws_put.c: under meta ---- */

/* What a file that replaces `from` takes over of its xattrs: all but capabilities. Their bytes, and
 * unless `to` is 0 their records for that inode. */
int ws_inherit_xattrs(struct ws *ws, struct op *op, uint64_t from, uint64_t to, int64_t *bytes);

/* ---- ws_ahead.c ---- */

int work_ahead_new(struct work *w, size_t cache_bytes); /* after the store; 0 or -ENOMEM */
/* Stored content of the file is about to be read, from its beginning. Gate shared. */
void ws_note_read(struct ws *ws, const struct attr *a);

/* ---- ws_read.c: gate shared, the stripe held ---- */

/* Up to n bytes, clipped by the size; *a: the inode as it was. */
ssize_t content_read(struct ws *ws, uint64_t node, void *buf, size_t n, uint64_t off,
		     struct attr *a);
/* Exactly n bytes of an inode of that size; zeros behind its end. */
int content_read_full(struct ws *ws, uint64_t ino, uint64_t size, void *buf, size_t n,
		      uint64_t off);

/* ---- ws_write.c: gate shared, the stripe exclusive ---- */

/* A change of content: planned under meta (space and quota), its bytes moved outside it,
 * committed under meta. All that is asked for happens, or nothing. */
struct change {
	enum {
		CHANGE_WRITE,    /* [off, off + n) gets the bytes of buf */
		CHANGE_RESIZE,   /* the file ends at off */
		CHANGE_ALLOCATE, /* the holes in [off, off + n) get space that reads as zeros */
		CHANGE_PUNCH,    /* [off, off + n) becomes a hole, but for parts of blocks */
	} what;
	uint64_t off, n;
	const void *buf;
	bool keep_size; /* ALLOCATE, PUNCH: the file doesn't grow */
	bool kill_suid;
	bool no_quota; /* charged, but never refused */
	/* Changes *a too, before it is put; NULL: nothing. */
	int (*also)(struct op *op, struct attr *a, void *ctx);
	void *ctx;
};
/* *a (NULL allowed): the inode afterwards. */
int content_change(struct ws *ws, uint64_t node, const struct change *ch, const struct caller *c,
		   struct attr *a);
/* Gives the active layer all that the inode (not a directory) has, so that nothing below counts. */
int ws_pull_up(struct ws *ws, const struct attr *a);
/* Bytes of [from, to) that are no hole. Under meta. */
int content_data_bytes(struct ws *ws, uint64_t ino, uint64_t from, uint64_t to, uint64_t *out);

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}
static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* ---- ws_hold.c ---- */

/* quota_check, where what `who` (0: nobody) holds pays first. Under meta, as the next two. */
int hold_check(struct ws *ws, uint64_t who, int64_t bytes, int64_t inodes);
/* It has paid: so many bytes of these. They don't count as reserved any more. */
int64_t hold_spend(struct ws *ws, uint64_t who, int64_t bytes, int64_t inodes);
void hold_give_back(struct ws *ws, uint64_t who, int64_t bytes);
void ws_holds_free(struct ws *ws);

#endif
