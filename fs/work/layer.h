/* Layers: changes on top of what lies below, in memory an index, on disk a journal of
 * metadata records and data files.
 *
 *   ROOT/layers/<32 hex>/journal     frames: one atomic operation each (fs/FORMAT.md)
 *   ROOT/layers/<32 hex>/data        packed contents of small files, 4 KiB blocks
 *   ROOT/layers/<32 hex>/f<ino hex>  own sparse file of one big inode (logical = physical)
 *   ROOT/layers/<32 hex>/log         fsyncs since the last commit, where there are many
 *
 * A layer holds its own version of an inode whole (struct attr), but of directories,
 * xattrs and contents only what changed:
 *   - names are keyed by (directory, cookie); an entry or whiteout hides whatever lies
 *     below at the same cookie;
 *   - an xattr record hides the one of the same name below; "removed" is a record too;
 *   - an extent hides what lies below it; from below, only bytes before `base_size` count.
 * Extents of local layers start and end at multiples of LAYER_BLOCK; the bytes of an extent
 * behind the end of the file mean nothing, and are zeroed on disk before the size grows over
 * them. OBJECT and ZERO extents of a delta (layer_to_delta, layer_from_delta) start and end
 * at any byte: chunks are cut by content.
 *
 * Life: layer_create (active) -> txn … txn_commit -> layer_seal (immutable, shared) -> free;
 * or layer_open / layer_from_delta (sealed ones are only read).
 *
 * Invariants of the design kept here: 2 (the record is in the journal before txn_commit
 * returns), 3 (commit records), 4 (a sealed layer refuses txn_commit with an assertion),
 * 9 (freed space is reused only after the record that freed it is durable by layer_commit).
 *
 * Threads: the caller serialises txn_commit, layer_alloc and layer_seal against each other and
 * against readers of an active layer (the workspace's meta lock); sealed layers need none.
 * layer_pread, layer_pwrite, layer_commit and layer_idle take no part in that lock; see layer_epoch
 * for what a reader must then mind.
 * Only the process that serves a workspace commits its layers; others read them.
 *
 * Descriptors: a layer holds one for its journal, one for its data file and up to a few for
 * big files while they are used; layer_idle gives them back. */
#ifndef BOUGH_WORK_LAYER_H
#define BOUGH_WORK_LAYER_H

#include <stdbool.h>
#include <stdint.h>
#include "fs/base/err.h"
#include "fs/base/hash.h"
#include "fs/base/io.h"
#include "fs/base/omap.h"
#include "fs/image/image.h"
#include "fs/store/store.h"
#include "fs/work/stack.h"

enum {
	LAYER_BLOCK = 4096,
	LAYER_BIG_FILE = 1 << 20, /* writes beyond this offset go to a file of the inode's own */
	/* Bytes preallocated in the journal, so that unlink works on a full disk: as many as the
	 * journal has, between these two. So a fork that changes a byte takes little space, and
	 * what was made in a layer can be deleted again. */
	LAYER_RESERVE_MIN = 32 << 10,
	LAYER_RESERVE = 1 << 20,
};

static inline uint64_t block_floor(uint64_t n)
{
	return n & ~(uint64_t)(LAYER_BLOCK - 1);
}
static inline uint64_t block_ceil(uint64_t n)
{
	return block_floor(n + LAYER_BLOCK - 1);
}

struct layer;

enum extent_kind {
	EXTENT_ZERO,   /* a hole that hides what lies below */
	EXTENT_DATA,   /* bytes in a data file of a layer: this one or (reflink) one below */
	EXTENT_OBJECT, /* bytes of an object of the store */
	EXTENT_IMAGE,  /* bytes of a file of the image (reflink of untouched content) */
};

struct extent {
	uint64_t off, len;    /* in the file, bytes */
	enum extent_kind kind;
	struct layer *layer;  /* DATA: whose file; borrowed: the containing layer keeps it alive */
	uint64_t file;        /* DATA: 0 the packed file, else the inode number of a big file */
	uint64_t src;         /* DATA: place in that file; OBJECT: offset in the object;
	                         IMAGE: offset in the file */
	uint64_t image_ino;   /* IMAGE */
	union {
		struct digest image;  /* IMAGE: which image */
		struct digest object; /* OBJECT */
	};
};

struct layer_xattr {
	struct layer_xattr *next;
	bool removed;
	uint8_t name_len;
	uint32_t value_len;
	const char *name; /* not terminated */
	const void *value;
};

struct layer_inode {
	struct attr attr;
	bool dead;           /* tombstone: from here up the inode doesn't exist */
	bool damaged;        /* a record of it was lost to corruption: content answers -EIO. With
	                        attr.mode 0 nothing but that is known of it here, and its
	                        attributes are what lies below, if anything */
	uint32_t target_len; /* of `target`; attr.size is the same */
	uint64_t base_size;  /* bytes of content from below that count; 0 for inodes made here */
	struct omap extents; /* off -> struct extent * */
	struct layer_xattr *xattrs;
	const char *target;  /* symlink made in this layer, else NULL; attr.size bytes */
};

struct layer_dirent {
	uint64_t cookie, ino; /* ino 0: whiteout */
	uint8_t type, name_len;
	char name[];
};

/* ---- life ---- */

struct layer_options {
	const struct io *io;
	const char *root;     /* ROOT */
	struct store *store;  /* for OBJECT extents; borrowed */
	/* Gives a reference to another layer by id, for extents that point into it. */
	int (*resolve)(void *ctx, const struct layer_id *id, struct layer **out, struct err *err);
	void *resolve_ctx;
	/* 16 bytes; NULL: those of the machine's present boot. Another boot than a journal's own
	 * means that what no commit covers may not have reached the disk. */
	const uint8_t *boot_id;
	bool tags; /* layer_open collects what layer_tag finds */
	uint64_t big_file; /* 0: LAYER_BIG_FILE; tests have smaller files */
};

/* A new, empty, active layer with a random id. Durable only after layer_commit. */
int layer_create(struct layer **out, const struct layer_options *opt, struct err *err);
/* Preallocates the reserve of one that has just been created, if there is space, instead of at its
 * first change. */
void layer_reserve(struct layer *l);
/* Loads a local layer by replaying its journal. `writable`: it stays active unless it was
 * sealed (see layer_is_sealed); false: it is taken as sealed wherever its valid records end,
 * which is right only for layers that are not anybody's active one.
 * -ENOENT, -EBADMSG (header damaged), -errno. Damage further in is survived (layer_lost): the
 * inodes that it is about are marked. */
int layer_open(struct layer **out, const struct layer_options *opt, const struct layer_id *id,
	       bool writable, struct err *err);
/* How many frames were lost, and inodes whose data file was missing, when it was opened; 0 of a
 * delta. */
uint64_t layer_lost(const struct layer *l);
/* How many frames of the journal counted then though a bit of their header had flipped. */
uint64_t layer_corrected(const struct layer *l);
struct layer *layer_ref(struct layer *l);
void layer_unref(struct layer *l); /* NULL allowed; files stay on disk */
/* Deletes a local layer's files (nobody may use it any more). 0 also when absent. */
int layer_remove(const struct io *io, const char *root, const struct layer_id *id, struct err *err);

const struct layer_id *layer_id(const struct layer *l);
bool layer_is_local(const struct layer *l);
bool layer_is_sealed(const struct layer *l);
bool layer_is_empty(const struct layer *l);    /* no record, and none lost */
uint64_t layer_records(const struct layer *l); /* replayed or written: the cost of a replay */
uint64_t layer_data_bytes(const struct layer *l); /* of data files that extents refer to */
size_t layer_memory(const struct layer *l);    /* bytes of heap, about */

/* No more changes. Writes a seal frame; not synced. -ENOSPC, -EIO: still active. */
int layer_seal(struct layer *l, struct err *err);
/* Makes everything acknowledged so far durable: fdatasync of dirty data files, a commit frame,
 * fdatasync of the journal, the folder on first use. Joins a commit that is under way and
 * covers it. 0, or -EIO … (sticky after a failed sync, see below). Any thread; other calls go on
 * meanwhile. */
int layer_commit(struct layer *l, struct err *err);
/* For a program that waits until inode `ino` (0: none in particular) and everything else is
 * durable, but for the content of big files that others write: a file of one inode's own with
 * LAYER_BIG_FILE bytes or more that no sync has covered is left out. After a power loss it has what
 * it had when it was durable last, but for what was taken away since: it isn't longer than it was
 * then, and than it ever was since, and what was overwritten in place may be old or new for each
 * 4 KiB. The program will come again: from now on the layer's journal is written where the host's
 * disk has room already, and what is little goes to a log, by one sync. So the layer stays dirty: a
 * layer_commit should follow within seconds. Errors as layer_commit's. */
int layer_fsync(struct layer *l, uint64_t ino, struct err *err);
bool layer_is_dirty(const struct layer *l); /* something since the last layer_commit; new: true */
/* A failed sync. The kernel takes pages that it couldn't write for clean ones: what was
 * acknowledged since the last good commit may read as it should now, and as before once memory is
 * short, and no later sync proves anything. So from then on the layer takes no change (-EROFS),
 * each layer_commit gives the error, and a small file `failed` in its folder says so to whoever
 * opens it later. Until it is mended: layer_mend, while nobody has the layer open, goes back to the
 * last good commit, as after a power loss, and writes anew what that leads to. */
enum { LAYER_FAULT_NAME = 32 };
struct layer_fault {
	int error;      /* -errno of the sync; 0: none failed */
	uint64_t upto; /* frames up to that one are durable; UINT64_MAX: the last commit says */
	int64_t good_s; /* when the last good commit ended, Unix time; 0: not known, or never */
	char file[LAYER_FAULT_NAME]; /* in the layer's folder; "": another layer's, below it */
};
bool layer_fault(const struct layer *l, struct layer_fault *out); /* out: NULL allowed */
/* A layer below has failed, so what lies on it can't become durable either. Any thread. */
void layer_fail_with(struct layer *l, const struct layer *below);
/* Whether its folder says that it failed; *out is how. */
bool layer_is_marked(const struct io *io, const char *root, const struct layer_id *id,
		     struct layer_fault *out);
/* layer_fail_with of a layer that nobody has open: its folder says so from now on. 0 too where it
 * did already, and where there is no such layer. */
int layer_mark(const struct io *io, const char *root, const struct layer_id *id, int error);
int layer_refuses(const struct layer *l); /* 0, or the error that each change gets; any thread */
/* 0: nothing had failed; 1: mended, and *was is what had; -errno: the disk still fails. */
int layer_mend(const struct layer_options *opt, const struct layer_id *id, struct layer_fault *was,
	       struct err *err);
enum { LAYER_FAULT_BYTES = 72 };
void layer_fault_encode(uint8_t out[LAYER_FAULT_BYTES], const struct layer_fault *f);
/* Any bytes: what isn't whole is some failure, of which nothing is known. */
void layer_fault_decode(struct layer_fault *out, const void *data, size_t len);

/* Gives back the descriptors and memory that nobody uses just now (those of files with
 * bytes that no layer_commit has made durable stay open). Any thread. */
void layer_idle(struct layer *l);

/* What the layer's operations touched lately (changed_log.h), borrowed; NULL: not known. */
struct changed_log;
const struct changed_log *layer_changed(const struct layer *l);
/* The delta `to` was made from `from` and takes its place: it goes on to know what that knew. Where
 * it knows already, nothing happens. Any thread. */
void layer_lend_changed(struct layer *to, const struct layer *from);

/* ---- reading the index ---- */

const struct layer_inode *layer_inode(const struct layer *l, uint64_t ino); /* NULL: untouched */
/* The entry or whiteout with the least cookie >= `cookie` in directory `dir`; NULL: none. */
const struct layer_dirent *layer_dirent_ceil(const struct layer *l, uint64_t dir, uint64_t cookie);
bool layer_has_dir(const struct layer *l, uint64_t dir); /* any entry or whiteout in it */
/* The extent that covers `off` or the first behind it; NULL: none. */
const struct extent *layer_extent_ceil(const struct layer_inode *li, uint64_t off);
const struct layer_xattr *layer_xattr(const struct layer_inode *li, const char *name, size_t len);
/* All inodes / directories touched, in no order: fn returns 0 to go on. */
int layer_each_inode(const struct layer *l, int (*fn)(void *ctx, const struct layer_inode *li),
		     void *ctx);
int layer_each_dir(const struct layer *l, int (*fn)(void *ctx, uint64_t dir), void *ctx);

/* How often places in data files became free for other use (by layer_commit). A reader that
 * takes an extent from an active layer's index under its owner's lock and reads outside it
 * asks before both and after: a different number means that the bytes may be somebody
 * else's, and that it must look again. */
uint64_t layer_epoch(const struct layer *l);
/* Bytes of a DATA extent, from `src` on. Exactly n bytes (a short file reads as zeros), or
 * -errno; -EIO where the file is missing. */
int layer_pread(struct layer *l, uint64_t file, void *buf, size_t n, uint64_t src);

/* ---- changing an active layer ---- */

/* Space for [off, off + len) of `ino` (multiples of LAYER_BLOCK) in the packed file, or in
 * the inode's own file when off + len > LAYER_BIG_FILE. Fills *out with one DATA extent
 * that begins at `off` and may be shorter than asked (call again). The place is nobody
 * else's until txn_commit takes it over or layer_alloc_cancel gives it back; what
 * bytes are there is undefined. Grows in place behind the inode's last extent where that is
 * free. May wait for a hole that layer_commit is punching. 0, -ENOMEM. */
int layer_alloc(struct layer *l, uint64_t ino, uint64_t off, uint64_t len, struct extent *out);
void layer_alloc_cancel(struct layer *l, const struct extent *e);
/* True when the range of that extent is this layer's own, and no other extent shares it,
 * so it may be overwritten in place. */
bool layer_owns(const struct layer *l, const struct extent *e, uint64_t off, uint64_t len);
int layer_pwrite(struct layer *l, uint64_t file, const void *buf, size_t n, uint64_t src);
/* Instead of writing what layer_alloc gave as a big file's whole content: the host's file `path`
 * below `dir`, to which nobody writes any more, gets its name in the layer as well, so that its
 * bytes are there without a copy. A kill before the txn leaves that name, which goes with the next
 * server's first commit. -EXDEV: the host can't do that with the two; -EMLINK: somebody else has
 * made another name of it meanwhile. */
int layer_adopt(struct layer *l, const struct extent *e, int dir, const char *path);
/* Before layer_alloc_cancel of that: the name in the layer goes. */
void layer_disown(struct layer *l, const struct extent *e);
/* As layer_pwrite of n zeros, which then have space of the host's; mostly without writing them. */
int layer_zero(struct layer *l, uint64_t file, uint64_t n, uint64_t src);

/* One atomic operation. Built up, then committed or dropped:
 *     struct txn t; txn_begin(&t, layer, ino_it_is_mainly_about);
 *     txn_… (&t, …);
 *     r = txn_commit(&t);          always ends the txn
 * Build calls don't fail; txn_commit returns -ENOMEM, -ENOSPC, -E2BIG (above LAYER_TXN_MAX
 * bytes), -EIO …, then nothing was done. On a full disk a txn that only takes away (names,
 * inodes, extents, xattrs) lives on the journal's reserve; others get -ENOSPC.
 * Memory for a change is held in reserve before it is written; should another thread use that
 * up, txn_commit and every later one of that layer fail with -EIO, and opened anew it shows what
 * its journal has. */
struct txn {
	struct layer *layer;
	uint64_t ino;
	struct buf body;
	uint32_t records;
	bool frees, creates; /* it takes something away; it adds something */
	bool quiet; /* set by the caller: nothing that layer_changed() need tell */
	struct buf others;   /* pointers to other layers that its extents point into, borrowed */
	struct buf keeps;    /* u64: what txn_keep was called with */
	/* Of the request that is done once this is: whoever resumes a server's work finds it in the
	 * journal, and answers without doing it again. 0: none. */
	uint64_t tag;
};
enum { LAYER_TXN_MAX = 64 << 20 };
void txn_begin(struct txn *t, struct layer *l, uint64_t ino);
/* The inode's new version, whole. base_size as in layer_inode; it never grows. */
void txn_inode(struct txn *t, const struct attr *a, uint64_t base_size);
/* Tombstone, or with `forget` no trace at all (nothing below knows the inode). Its extents
 * here are freed, its names, xattrs and (for a directory) whiteouts here are dropped. */
void txn_dead(struct txn *t, uint64_t ino, bool forget);
void txn_dirent(struct txn *t, uint64_t dir, uint64_t cookie, const char *name, size_t len,
		uint64_t child, uint8_t type);
/* Removes the record at that cookie; `whiteout` where something below must stay hidden. */
void txn_dirent_del(struct txn *t, uint64_t dir, uint64_t cookie, bool whiteout);
void txn_target(struct txn *t, uint64_t ino, const char *target, size_t len);
void txn_xattr(struct txn *t, uint64_t ino, const char *name, size_t name_len, const void *value,
	       size_t len);
void txn_xattr_del(struct txn *t, uint64_t ino, const char *name, size_t name_len, bool hide);
/* Puts the extent, replacing what it overlaps. The inode has a version in this layer
 * (earlier or in this txn, before). A DATA extent's place is one that layer_alloc gave, or
 * (a reflink) one that some extent refers to at that moment. */
void txn_extent(struct txn *t, uint64_t ino, const struct extent *e);
/* Drops own extents in [from, to) (multiples of LAYER_BLOCK; to may be UINT64_MAX) without
 * hiding what is below: the caller lowered base_size, or puts a ZERO extent. */
void txn_extent_drop(struct txn *t, uint64_t ino, uint64_t from, uint64_t to);
/* From this operation on no layer_fsync of something else leaves out what the inode has now. */
void txn_keep(struct txn *t, uint64_t ino);
/* Workspace counters carried with the record (state, not change), for a quick start. */
void txn_usage(struct txn *t, int64_t bytes, int64_t inodes);
/* How many more inodes with a name than what is below it the layer shows now: state as well. */
void txn_files(struct txn *t, int64_t files);
int txn_commit(struct txn *t);
void txn_drop(struct txn *t);
void layer_usage(const struct layer *l, int64_t *bytes, int64_t *inodes); /* last committed */
int64_t layer_files(const struct layer *l); /* last committed; of a delta as well */
/* Calls fn with each inode that came back shorter from a power loss (layer_fsync) when the layer
 * was opened, unless operations followed then: own_bytes, blocks and usage still are those of what
 * it would be otherwise. */
int layer_each_cut(const struct layer *l, int (*fn)(void *ctx, uint64_t ino), void *ctx);
/* The inode that the operation of that tag was mainly about: 1, 0 when none of the last
 * LAYER_TAGS tagged frames that were there when the layer was opened has it. So many that a
 * worker of the server before, stopped between a change and its answer, is never left behind. */
enum { LAYER_TAGS = 65536 };
int layer_tag(const struct layer *l, uint64_t tag, uint64_t *ino);
/* The last frame that was there when the layer was opened whose tag has the highest bit, or 0. */
uint64_t layer_last_ours(const struct layer *l);

/* ---- deltas ---- */

/* Writes one sealed layer's state into `put` as delta parts (each up to STORE_OBJECT_MAX): the same
 * records as the journal's, in a canonical order. The caller gives for each regular inode's
 * contents EXTENT_OBJECT or EXTENT_ZERO extents by `content` (NULL: the inode's own extents,
 * which then are all OBJECT or ZERO). Inodes with nlink 0 become tombstones. */
struct delta_sink {
	int (*content)(void *ctx, const struct layer_inode *li,
		       int (*emit)(void *emit_ctx, const struct extent *e), void *emit_ctx,
		       struct err *err);
	int (*part)(void *ctx, const void *data, size_t len, struct err *err);
	/* Tells of inodes whose content will be asked for, in that order; 0: later, this one again.
	 * NULL: nobody needs to know. */
	int (*ahead)(void *ctx, const struct layer_inode *li, struct err *err);
	void *ctx;
};
int layer_to_delta(struct layer *l, const struct delta_sink *sink, struct err *err);
/* A sealed layer from its delta parts in the store. */
int layer_from_delta(struct layer **out, const struct layer_options *opt,
		     const struct stack_layer *desc, struct err *err);
/* Calls fn with every object that the layer's extents refer to. */
int layer_objects(const struct layer *l, int (*fn)(void *ctx, const struct digest *d), void *ctx);

#endif
