/* What the parts of the store share. Not for others.
 *
 *   store.c    opening, reading            files.c   descriptors of packs that are read
 *   session.c  sessions, putting, syncing  writer.c, writer_sync.c  packs that are written
 *   workers.c  who hashes and compresses   ahead.c   small contents, given to them ahead
 *   recover.c  the index after a kill, power loss or damage
 *   gc.c, check.c
 *   gitblob.c  content that lies in git repositories: gitrepo.c and what is below it
 *
 * Order of locks: writer.flush, writer.append, writer.pending_lock; all others are taken last.
 * Locks between processes are flocks, taken without waiting except where said:
 *   STORE/lock      shared by all that have the store open; exclusive while the index is
 *                   made anew or proven, and while the last user closes it
 *   STORE/gc.lock   the one gc
 *   packs/ID.pack   who may append to it or delete it; sealed packs are changed by gc only
 *   sessions/NAME   a session that is alive */
#ifndef BOUGH_STORE_INTERNAL_H
#define BOUGH_STORE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include "fs/base/boot.h"
#include "fs/base/u64map.h"
#include "fs/store/cache.h"
#include "fs/store/codec.h"
#include "fs/store/gitrepo.h"
#include "fs/store/index.h"
#include "fs/store/pack.h"
#include "fs/store/pending.h"
#include "fs/store/store.h"
#include "fs/store/workers.h"

enum {
	STORE_PACK_BYTES = 256 << 20, /* default size at which a pack is sealed */
	STORE_PACK_BYTES_MIN = 64 << 10,
	/* Objects in a pack: bounds its table of contents and the memory of its writer. */
	STORE_PACK_OBJECTS = 128 * 1024,
	/* Pending objects that are worth a commit of the index: each takes a page or two of it, and
	 * those of the last two commits can't be used again yet. */
	STORE_FLUSH_AT = 128,
	STORE_PENDING_MAX = 1 << 20, /* puts fail when the index takes no more */
	STORE_READERS_KEPT = 8,      /* buffers and contexts kept for the next read */
	STORE_FILES_KEPT = 64,       /* packs kept open for reading */
	STORE_RECORD_BUF = PACK_RECORD_MAX + PACK_ALIGN, /* a record that is being made */
};

/* ---- packs that are read ---- */

struct pack_file {
	uint64_t id;
	int fd;
	unsigned users;
	uint64_t used; /* when last, in calls */
};

struct pack_files {
	pthread_mutex_t lock;
	struct u64map by_id;
	uint64_t clock;
};

/* Opens the pack or shares it; given back by files_put. -ENOENT: there is no such file. */
int files_get(struct store *s, uint64_t id, struct pack_file **out);
void files_put(struct store *s, struct pack_file *f);
/* Closes unused ones that were deleted meanwhile, so that their space is free; or all. */
void files_sweep(struct store *s, bool all);
void files_done(struct store *s);

/* ---- packs that are written ---- */

/* A pack that this process appends to, and holds by flock. */
struct wpack {
	struct wpack *next; /* in a list of the writer */
	uint64_t id;
	int fd;
	atomic_uint users;
	_Atomic uint64_t written; /* its end; changed under writer.append */

	pthread_mutex_t lock; /* guards the four below */
	pthread_cond_t done;  /* a sync has ended */
	uint64_t durable;
	bool syncing, named; /* named: its entry in the folder is durable */
	int failed;          /* what a sync met: nothing behind `durable` may be relied on */

	/* Under writer.append. */
	struct pack_entry *toc; /* objects from toc_from on, in order */
	size_t ntoc, cap_toc;
	uint64_t toc_from;
	uint64_t records, raw, stored; /* of the whole pack, as in its row */
	/* Under writer.flush: what its row says. */
	uint64_t row_indexed, row_synced;
};

struct writer {
	pthread_mutex_t flush, append, pending_lock;
	struct wpack *cur;    /* NULL: none is open */
	struct wpack *full;   /* to be sealed once all of them is durable and indexed */
	struct wpack *failed; /* kept locked, so that nobody appends to them */
	unsigned nfull;
	struct pending fresh, flushing;
};

int writer_init(struct store *s);
/* Syncs, indexes, and lets go of what is open. The store is usable no more. */
void writer_done(struct store *s);
/* Appends a record (pack_record_encode) and notes it as pending. If the object is pending
 * already, that one is used and nothing is written, unless `moved`. Gives the pack (one use is the
 * caller's) and the offset behind the record. */
int writer_append(struct store *s, uint8_t *rec, const struct pack_record *r, bool moved,
		  struct wpack **w, uint64_t *end, bool *written, struct err *err);
/* The pack of this process with that id, one more use; NULL: none. *lost: it has failed. */
struct wpack *writer_find(struct store *s, uint64_t id, bool *lost);
void wpack_unuse(struct store *s, struct wpack *w);
/* Makes the pack durable up to `end`; concurrent calls share. -errno: what lay behind the last
 * success is gone for good. */
int wpack_sync(struct store *s, struct wpack *w, uint64_t end, struct err *err);
/* Makes all durable that this process has written by now. */
int writer_sync(struct store *s, struct err *err);
/* Puts all that is pending into the index. */
int writer_flush(struct store *s, struct err *err);
/* Seals full packs as far as they are durable, after a flush (whose error it gives). */
int writer_seal(struct store *s, struct err *err);
/* Lets go of the open pack if all of it is durable and indexed, so that gc and other processes
 * can have it. Called when no session is left. */
void writer_park(struct store *s);
/* Enters what is in our own packs in an index that was made anew; under writer.flush. */
int writer_reindex(struct store *s, struct err *err);

/* Enters the object in the index unless a place that can be relied on is there already. A later
 * copy in the same pack counts as better: it was written since the first one was bad. */
int entry_offer(struct index_txn *t, const struct digest *d, const struct place *p, bool moved);
/* Notes in the pack's row that it is durable up to here (a sync of another process's pack).
 * -EIO: its writer has cut it back meanwhile. */
int row_note_synced(struct store *s, uint64_t id, uint64_t synced);

/* Between writer.c and writer_sync.c. */
enum {
	WRITER_FULL_MAX = 2,    /* full packs that wait; then a put syncs and seals them itself */
	WRITER_FULL_LIMIT = 16, /* where the index takes nothing, puts end here */
};
/* Like writer_find, under writer.append and without a use. */
struct wpack *writer_own(struct store *s, uint64_t id, bool *lost);
int writer_flush_locked(struct store *s, struct err *err); /* under writer.flush */
/* Asserts what holds of the writer between calls; under writer.append. Nothing in release
 * builds. */
void writer_check(const struct store *s);

/* ---- the index over time ---- */

enum { INDEX_STATE_BYTES = 72 };

/* What the file index/state says. */
struct index_state {
	uint8_t boot[BOOT_ID_BYTES];
	bool closed;
	/* Of a closed index: */
	uint64_t used, hash;     /* index_hash */
	uint64_t size, mtime_ns; /* of data.mdb */
};
void index_state_encode(uint8_t out[INDEX_STATE_BYTES], const struct index_state *st);
int index_state_decode(struct index_state *st, const uint8_t *in, size_t len); /* 0, -EBADMSG */

/* Opens the index, and makes it right: anew, proven, or caught up. `alone`: nobody else has
 * the store open. */
int recover_open(struct store *s, bool alone, struct err *err);
/* Makes a pack durable that another process wrote, under its name, which may be new too. */
int store_sync_found(struct store *s, int fd);
/* If nobody else has the store open, leaves the index in a state that is trusted later. */
void recover_close(struct store *s);
/* Makes the index anew, if nobody else has the store open: -EWOULDBLOCK otherwise. Until it is
 * done, other threads of this process may miss objects. */
int recover_rebuild(struct store *s, struct err *err);
/* Indexes what dead writers left and finishes deletions. */
int recover_catch_up(struct store *s, struct err *err);
/* A pack that we hold locked, and that isn't written to now: enters what its row doesn't know. */
int recover_index_locked(struct store *s, int fd, uint64_t id, struct err *err);
/* Before the first change since the store was opened: the state says "in use". 0 or -errno. */
int recover_mark_used(struct store *s);
/* Makes the next one who is alone with the store rebuild the index. */
void recover_distrust(struct store *s);
/* What was put and not durable is gone, or will be: store_losses tells. */
void recover_note_loss(struct store *s);
/* index_write, noting first that the index isn't what it was when it was last closed. */
int store_index_write(struct store *s, int (*fn)(struct index_txn *t, void *ctx), void *ctx);
/* The ids of all pack files, ascending; the caller frees. */
int store_list_packs(struct store *s, uint64_t **ids, size_t *n, struct err *err);
/* Takes the flock of a file that was just opened by its name: 0; -EWOULDBLOCK: somebody has it;
 * -ENOENT: whoever had it has deleted it; -errno. */
int store_lock_file(struct store *s, int fd);
/* Opens a pack for writing and takes its flock: the descriptor, or as store_lock_file. */
int store_lock_pack(struct store *s, uint64_t id);

/* ---- reading ---- */

struct reader { /* what reading a record needs; used by one thread at a time */
	struct reader *next;
	struct codec *codec;
	uint8_t buf[PACK_RECORD_MAX + PACK_ALIGN];
};

struct reader *reader_get(struct store *s); /* NULL: out of memory */
void reader_put(struct store *s, struct reader *r);
/* Where the object is: pending or in the index. 1, 0 or -errno. *pending: only this process
 * knows. */
int store_locate(struct store *s, const struct digest *d, struct place *p, struct pack_row *row,
		 bool *pending);
/* Reads and verifies the record; its stored bytes are at rd->buf + PACK_HEAD_BYTES then. */
int store_read_record(struct store *s, struct reader *rd, const struct digest *d,
		      const struct place *p, struct pack_record *r);
/* The blob at a git address, verified (gitblob.c). As store_get. */
int store_git_load(struct store *s, const struct digest *d, struct cache_blob **out,
		   struct err *err);
/* As store_has. */
int store_git_has(struct store *s, const struct digest *d, uint32_t *size);

/* ---- gc and check ---- */

/* The lock of whoever deletes packs or counts on none being deleted: a descriptor to be closed,
 * or -EBUSY. */
int gc_lock(struct store *s, struct err *err);

/* ---- sessions ---- */

/* Waits until every session that is registered now has ended, or `stop` says so: -ECANCELED. */
int sessions_wait(struct store *s, bool (*stop)(void *ctx), void *ctx, struct err *err);
/* store_put with what `with` has, on any thread, also several at once in one session. */
int session_put(struct store_session *ss, const struct store_worker *with, const void *data,
		size_t len, struct digest *out, struct err *err);
/* Has a worker do it, or does it here. It is done behind session_wait. */
void session_give(struct store_session *ss, struct work *w);
void session_wait(struct store_session *ss, struct work *w);
/* One object: `data` is borrowed until session_wait(ss, &p->work); then the result counts. */
struct session_put {
	struct work work;
	struct store_session *ss;
	const void *data;
	size_t len;
	int result;
	struct digest digest;
	struct err err;
};
void session_put_begin(struct session_put *p, struct store_session *ss, const void *data,
		       size_t len);
/* Copies a record that lies in rd->buf to a pack of this process (gc). */
int session_move(struct store_session *ss, uint8_t *rec, const struct pack_record *r,
		 struct err *err);

struct store {
	const struct io *io;
	char *path, *index_path;
	uint8_t boot[BOOT_ID_BYTES];
	int dirfd, packs_fd, sessions_fd, index_fd, lock_fd;
	bool read_only;
	uint64_t pack_bytes;
	struct index *index;
	pthread_mutex_t dirty_lock;
	bool dirty; /* the state file says so */
	uint8_t losses[STORE_LOSSES_BYTES]; /* STORE/losses; changes under dirty_lock, too */
	atomic_uint nlosses; /* how often it did in this process */
	bool power_lost; /* before it was opened: what isn't whole at the end of a pack was torn */
	struct cache cache;
	struct pack_files files;
	struct gitrepos *git; /* NULL: none */
	struct writer w;
	struct workers workers;
	pthread_mutex_t readers_lock;
	struct reader *readers;
	unsigned nreaders;
	atomic_uint sessions; /* that are open in this process */
	_Atomic uint64_t cache_hits, cache_misses, puts, put_hits, bytes_put;
};

static inline uint64_t place_end(const struct place *p)
{
	return p->off + pack_record_bytes(p->stored);
}

#endif
