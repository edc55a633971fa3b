/* What the files that implement layer.h share.
 *
 *   layer.c        life: create, open, seal, commit, remove
 *   layer_replay.c what a journal and its data files say when they are opened
 *   layer_txn.c    building and committing operations
 *   layer_index.c  the index in memory: applying records, reading
 *   layer_io.c     descriptors and data
 *   layer_fault.c  a sync that failed, and how one goes on
 *   layer_log.c    the log of fsyncs
 *   layer_late.c   files that an fsync leaves out
 *   layer_delta.c  deltas
 *
 * Locks, none taken while another one is held unless it stands to the right:
 *   commit.lock    who commits, what is covered
 *   journal.lock   the journal's end: one frame is written at a time
 *   files.lock     the list of descriptors
 *   space.lock     places (space.h)
 * The index has none: the owner's lock covers it (layer.h). */
#ifndef BOUGH_WORK_LAYER_IMPL_H
#define BOUGH_WORK_LAYER_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include "fs/base/u64map.h"
#include "fs/work/changed_log.h"
#include "fs/work/journal.h"
#include "fs/work/layer.h"
#include "fs/work/record.h"
#include "fs/work/space.h"

enum {
	LAYER_FILES_IDLE = 8, /* big files kept open though nothing of them is dirty */
	LAYER_FILES_MAX = 64, /* beyond so many dirty ones, the one used longest ago is synced */
	LAYER_LOG_AFTER = 3,  /* fsyncs of a layer before it has a log, which takes 1 MiB */
	LAYER_LOG_DATA = 256 << 10, /* bytes of data, and of the journal, that an fsync may copy */
	LAYER_RANGES = 64,          /* … in so many pieces */
	LAYER_KEEP_MAX = 4096, /* inodes that no fsync leaves out; beyond it none is left out */
};
/* Numbers among the files. */
static const uint64_t LAYER_JOURNAL = UINT64_MAX, LAYER_LOG = UINT64_MAX - 3;
static const uint64_t LAYER_FOLDER = UINT64_MAX - 1; /* for layer_sync_failed alone */
static const uint64_t LAYER_NO_FILE = UINT64_MAX - 2;

/* One open file. Listed with the one used last in front. */
struct layer_file {
	struct layer_file *next;
	uint64_t number; /* LAYER_JOURNAL, SPACE_PACKED, or a big file's inode */
	int fd;
	uint32_t users; /* it is closed only at 0 */
	bool dirty;     /* written since the last sync began */
	bool marked;    /* the sync under way will take it */
	bool late;      /* the last commit left it out: `since` as there */
	bool logged;    /* pieces of it are in the log, and not on the disk otherwise */
	uint64_t since;
	uint64_t written, synced; /* bytes so far; what of them the last sync began with */
	uint64_t round;           /* of layer_sync_ahead, that met it last */
	bool gone;      /* unlinked: closed by its last user */
};

struct layer_range {
	uint64_t file, off, len;
};
/* What was written to data files and is neither there on the disk nor in the log. */
struct layer_pending {
	struct layer_range *range; /* LAYER_RANGES of them, or NULL */
	uint32_t n;
	uint64_t bytes;
	bool over; /* more than can be said here */
};

struct layer_tagged {
	uint64_t tag, ino;
};

/* A commit that an fsync of `ino` makes, and what it leaves out. */
struct layer_partial {
	uint64_t ino;
	uint64_t covered; /* by the commit before */
	uint32_t n;
	struct journal_late late[JOURNAL_LATE_MAX];
};

/* What a commit left out before a boot: content that the inode got by frames behind `since` and up
 * to `upto`. */
struct layer_left_out {
	uint64_t ino, since, upto;
};

struct layer {
	atomic_uint refs;
	const struct io *io;
	char *dir; /* ROOT/layers/<id>; NULL for a delta */
	struct layer_id id;
	bool writable; /* opened so; false: only commit frames are ever written */
	atomic_bool sealed;
	_Atomic int broken; /* the error that every later change answers; 0: none */
	bool mends;         /* layer_mend: replayed as after a power loss, whatever the boot */
	uint64_t believe;   /* then: commits of later frames than this one count for nothing */
	_Atomic uint64_t records;
	uint64_t lost, corrected; /* layer_lost, layer_corrected */

	/* the index */
	struct u64map inodes; /* -> struct layer_inode * */
	struct u64map dirs;   /* -> struct omap *: cookie -> struct layer_dirent * */
	struct layer **deps;  /* layers that extents point into; a reference each */
	uint32_t ndeps;
	bool want_tags;
	uint64_t ours; /* layer_last_ours */
	uint32_t ntags, tag_at, tag_cap; /* a ring, which grows up to LAYER_TAGS */
	struct layer_tagged *tags;
	int64_t usage_bytes, usage_inodes, shown;
	struct layer_left_out *left_out; /* found when it was loaded */
	uint32_t nleft_out;
	uint64_t loaded; /* the last frame of an operation that counted then */
	size_t heap; /* bytes of what the index points to, maps left out */
	uint64_t dirents, extents;
	/* What was touched lately; NULL: nobody knows. A delta's is set once at most, when it takes
	 * the place of the local layer that it was made from. */
	_Atomic(struct changed_log *) changed;

	struct {
		pthread_mutex_t lock;
		uint64_t salt;
		uint8_t boot[BOOT_ID_BYTES]; /* present boot */
		uint64_t seq;                /* of the last frame */
		uint64_t last_ino;           /* which that frame is about */
		uint64_t last_op;            /* of the last frame that a commit must cover */
		uint64_t end;                /* where the next frame goes */
		uint64_t allocated;          /* bytes of the file known to be preallocated */
		uint64_t zeroed; /* the file is zeros from `end` up to here; below `end`: no room */
		bool cut;   /* what lies behind `end` must go before anything is written */
		bool reset; /* a FRAME_RESET must come first */
		uint64_t reset_upto;
		bool no_prealloc; /* the host's filesystem can't */
		bool trimmed;     /* sealed, and the preallocated rest given back */
		bool roomy;       /* programs fsync: what is preallocated is zeroed, too */
	} journal;

	struct {
		pthread_mutex_t lock;
		struct layer_file *list;
		uint32_t count;
		bool dir_dirty; /* a file was created since the folder was synced */
		bool all_dirty; /* replayed without knowing which files were synced */
		struct layer_pending pending;
		/* Inodes that no fsync leaves out -> number of the frame that said so. */
		struct u64map keep;
		bool keep_all;      /* there were too many, up to that frame */
		uint64_t keep_upto;
		uint64_t round;
	} files;

	struct {
		pthread_mutex_t lock;
		pthread_cond_t wake;
		bool running; /* somebody syncs */
		bool freeing; /* somebody frees what the last commit covers */
		bool created; /* nothing of the layer is durable yet, its name included */
		uint64_t begun,
			done; /* number of the last commit begun, and of the last that succeeded */
		uint64_t whole; /* of the last that succeeded and wasn't only put into the log */
		uint64_t covered; /* all frames up to this one are durable, but for what is late */
		bool partial;     /* the last commit of the journal was made by an fsync alone … */
		uint32_t nlate;   /* … and left that out */
		struct journal_late *late; /* JOURNAL_LATE_MAX of them, or NULL */
		uint64_t before;  /* the same, as an earlier process of this boot has noted it */
		int error;        /* of a sync; sticky */
		int64_t good_s;   /* when the last one succeeded, Unix time */
		struct layer_fault fault;
	} commit;

	/* The log of fsyncs: of whom commits (`running`); `count` is read by others, too. */
	struct {
		bool there, ready; /* the file exists; and is zeros or dead records, synced */
		bool usable;       /* the next fsync may be a record */
		uint32_t asked;    /* fsyncs since it was opened or was idle */
		_Atomic uint64_t count; /* records since the last whole commit */
		uint64_t base;     /* number of that commit's frame; 0: none since it was opened */
		uint64_t from;     /* the journal is durable up to here */
		uint64_t pos;      /* of the next record */
		uint64_t found_base, found_upto; /* of the records of an earlier process */
	} log;

	struct space space;
};

/* layer_index.c */

/* A place that an extent of the inode ceased to refer to. */
struct layer_drop {
	uint64_t ino, off, file, src, len;
};
/* How records are applied, and what is put off until the last of them is. */
struct layer_apply {
	bool replay;                     /* the packed file's space isn't counted yet */
	uint64_t seq; /* of the frame, for the log of what changed; 0: it isn't noted */
	const struct layer_options *opt; /* replay: whose resolve() finds other layers; a
	                                    layer that isn't found marks the inode damaged */
	struct layer_drop *drops;
	size_t ndrops, cap;
	const struct layer_left_out *left_out; /* replay */
	uint32_t nleft_out;
	struct u64map named; /* what a long frame's names are in, and lead to … */
	bool named_whole;    /* … all of that */
};
/* Applies a body of records. -EBADMSG (only in a replay): nothing was applied; -ENOMEM: a
 * part was. */
int layer_apply(struct layer *l, const void *body, size_t len, struct layer_apply *how);
void layer_apply_done(struct layer_apply *how);         /* frees what it holds */
void layer_mark_damaged(struct layer *l, uint64_t ino); /* best effort: without memory, not */
void layer_mark_partial(struct layer *l); /* after a replay: inodes that no record describes */
int layer_add_tag(struct layer *l, uint64_t tag, uint64_t ino); /* 0 or -ENOMEM */
int layer_add_dep(struct layer *l, struct layer *dep, bool have_ref);
int layer_rebuild_space(struct layer *l, uint64_t data_size, bool unsettled);
void layer_free_index(struct layer *l);

/* layer_io.c */

enum layer_open_mode { LAYER_EXISTING, LAYER_CREATE };
/* The file, open, until layer_file_put. -ENOENT … */
int layer_file_get(struct layer *l, uint64_t number, enum layer_open_mode mode,
		   struct layer_file **out);
void layer_file_put(struct layer *l, struct layer_file *f);
/* Data files written since the last time, but for what an fsync leaves out, which is told (NULL: it
 * is none); then the folder. */
int layer_files_sync(struct layer *l, struct layer_partial *p);
void layer_files_close(struct layer *l);
void layer_trim(struct layer *l); /* gives back what is preallocated behind a sealed journal */
int layer_sync_dir(struct layer *l, const char *path);
/* That part of it was written to. */
void layer_file_dirty(struct layer *l, struct layer_file *f, uint64_t off, uint64_t len);
void layer_file_name(char *out, size_t size, uint64_t number); /* in the layer's folder */
void layer_punch(void *ctx, uint64_t file, uint64_t off, uint64_t len);
void layer_unlink_file(void *ctx, uint64_t file);
/* The path of one of the layer's files, which the caller frees. */
char *layer_path(const struct layer *l, uint64_t number);

/* layer.c */

/* A local layer that isn't loaded yet; NULL: no memory. */
struct layer *layer_new_local(const struct layer_options *opt, const struct layer_id *id);
/* The frame, which is told; not synced. `p`: what it leaves out; NULL: nothing. */
int layer_append_commit(struct layer *l, uint64_t upto, const struct layer_partial *p,
			struct journal_frame *f);

/* layer_fault.c */

/* The sync of that file, or of the folder: from now on every commit fails, and every change. */
void layer_sync_failed(struct layer *l, uint64_t number, int error);
int layer_load_fault(struct layer *l, struct err *err); /* what an earlier process found */
/* While it is mended, before anything is written to a file: the kernel tells whoever opens it next
 * of an error that nobody has been told of, such as one that came after the sync that failed. */
void layer_hear_error(struct layer *l, struct layer_file *f);

/* layer.c */

struct layer *layer_new_delta(const struct io *io, const struct layer_id *id); /* NULL: no memory */

/* layer_log.c */

/* Bytes of a data file aren't on the disk. files.lock is held. */
void layer_note_range(struct layer *l, uint64_t file, uint64_t off, uint64_t len);
void layer_forget_ranges(struct layer *l); /* … a sync that begins now covers them */
/* An fsync by the log alone: 1, and *upto is what is durable; 0: a whole commit must follow;
 * -errno: a sync failed. */
int layer_log_commit(struct layer *l, uint64_t *upto);
/* A whole commit has succeeded, by the frame of that number that ends there (0: it needed none) */
void layer_log_settle(struct layer *l, uint64_t base, uint64_t end);
void layer_log_idle(struct layer *l); /* gives its room back */
/* Before a journal is read that was made in the boot `boot`: carries out what records of another
 * boot than this one have. 0 or -errno. */
int layer_log_recover(struct layer *l, int journal, const uint8_t boot[BOOT_ID_BYTES]);

/* layer_late.c */

/* Whether an fsync of `ino` could leave a file out. */
bool layer_has_late(struct layer *l, uint64_t ino);
/* Whether that one is left out, and noted in *p. files.lock is held. */
bool layer_take_late(struct layer *l, struct layer_partial *p, const struct layer_file *f);
/* A commit of the journal has succeeded; NULL: a whole one. */
void layer_late_settle(struct layer *l, uint64_t upto, const struct layer_partial *p);
/* Those inodes (u64 each) aren't left out before a whole commit covers frame `seq`; UINT64_MAX: it
 * isn't written yet. */
void layer_keep(struct layer *l, const struct buf *inos, uint64_t seq);
/* Syncs files of which much isn't on the disk (`ino`: that one alone; 0: all), so that the commit
 * that follows, for which others wait, is short. */
void layer_sync_ahead(struct layer *l, uint64_t ino);
/* A sync of it has succeeded, before which `written` was `mark`. */
void layer_file_synced(struct layer *l, struct layer_file *f, uint64_t mark);

/* layer_replay.c */

/* The commits that records may follow, if the journal's last boot is that of the records: the last
 * one, and the one before where the last may not have been done. seq 0: none. */
struct layer_base {
	uint64_t seq, end;
};
int layer_find_bases(struct layer *l, int fd, const uint8_t made[BOOT_ID_BYTES],
		     const uint8_t boot[BOOT_ID_BYTES], struct layer_base out[2]);

/* Reads the journal into the index of a new layer. */
int layer_load(struct layer *l, const struct layer_options *opt, struct err *err);
/* Then: which places are used, and which files are missing. */
int layer_load_space(struct layer *l, struct err *err);

/* layer_delta.c */

/* Applies one part of a delta to a new layer. -EBADMSG: it isn't one. For tests, too. */
int layer_apply_part(struct layer *l, const void *data, size_t len, uint32_t index, bool last);

/* layer_txn.c */

enum layer_append_mode {
	APPEND_GROWING, /* the reserve must be there behind it, too */
	APPEND_FREEING, /* the reserve is refilled if that can be, else used */
	APPEND_SMALL,   /* as it is */
};
/* Appends a frame that is built up to its header: numbers it and writes it. 0, -ENOSPC,
 * -EIO …: then it isn't there. */
int layer_append(struct layer *l, struct buf *b, struct journal_frame *f,
		 enum layer_append_mode mode);
/* Writes zeros where the journal is preallocated, so that the syncs of what is written there
 * needn't wait for the host to note where it lies. Before a sync, which then waits for it once. */
void layer_make_room(struct layer *l);

#endif
