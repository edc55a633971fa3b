/* The store: immutable objects named by the SHA-256 of their bytes.
 *
 * Objects lie in packs (append-only files of self-describing records, zstd), found
 * through an LMDB index that is a cache rebuilt from the packs. Several processes
 * may have one store open at once: each writer appends to packs of its own (held by
 * flock), the index is LMDB's, and gc works beside them (below).
 *
 * Life of a save:
 *     store_session_begin(s, &ss)   from here gc keeps all that this session puts or hits
 *     store_put(ss, …) …            in the page cache: survives kill, not power loss
 *     store_sync(ss)                all puts and hits of the session are durable (and all that
 *                                   this process has put before, whatever became of its session)
 *     (commit the name that leads to them: catalog, image, stack)
 *     store_session_end(ss)
 *
 * Threads: a store may be used by many threads; a session by one at a time. Not across fork: a
 * child opens the store itself. */
#ifndef BOUGH_STORE_STORE_H
#define BOUGH_STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include "fs/base/err.h"
#include "fs/base/hash.h"
#include "fs/base/io.h"

struct store;
struct store_session;

enum {
	STORE_OBJECT_MAX = 1 << 20,   /* bytes of one object's raw content */
	STORE_SMALL_MAX = 256 * 1024, /* content up to this is one object; larger is chunked */
	STORE_CACHE_DEFAULT = 64 << 20,
};

struct store_options {
	const struct io *io;    /* NULL: io_host */
	bool create;            /* make the folders when absent */
	bool read_only;         /* no session can begin */
	size_t cache_bytes;     /* bound of the cache of raw content; 0: STORE_CACHE_DEFAULT */
	uint64_t pack_bytes;    /* a pack is closed at this size; 0: 256 MiB */
	const uint8_t *boot_id; /* BOOT_ID_BYTES, copied; NULL: the machine's (boot.h) */
	const char *repos;      /* where git objects lie (gitrepo.h); NULL: there are none */
};

/* Opens `dir`. A missing or damaged index is rebuilt from the packs (which may take long).
 * -ENOENT, -EBADMSG (unknown version), -errno. The caller closes. */
int store_open(struct store **out, const char *dir, const struct store_options *opt,
	       struct err *err);
void store_close(struct store *s); /* NULL allowed; all sessions and blobs were given back */

int store_session_begin(struct store *s, struct store_session **out, struct err *err);
/* Puts `len` <= STORE_OBJECT_MAX bytes; *out is their digest. Content that is there already
 * (and not condemned by a running gc) is not written again. -ENOSPC, -EIO …: nothing happened. */
int store_put(struct store_session *ss, const void *data, size_t len, struct digest *out,
	      struct err *err);
/* By how much the store grew by its puts so far: what was new, compressed. On any thread. */
uint64_t store_session_stored(const struct store_session *ss);
int store_sync(struct store_session *ss, struct err *err);
void store_session_end(struct store_session *ss); /* NULL allowed; unsynced puts may vanish */
/* Whoever remembers that something was put, and doesn't put it again, remembers this value with it,
 * as it was before the put. It is another one when the disk has failed a sync since: then what had
 * been put may be gone, and sessions that have begun before can't be synced. `s` NULL: zeros. */
enum { STORE_LOSSES_BYTES = 16 };
void store_losses(struct store *s, uint8_t out[STORE_LOSSES_BYTES]);

/* Raw content of one object, immutable, counted. */
struct blob {
	const uint8_t *data;
	size_t len;
};
/* The object's content, verified. From the bounded cache where it is there. `d` may be the
 * address of a git blob (gitrepo.h), here and in store_has.
 * -ENOENT: no such object; -EBADMSG: found and damaged (err names object and pack);
 * give it back with blob_put. Any thread. */
int store_get(struct store *s, const struct digest *d, const struct blob **out, struct err *err);
void blob_put(const struct blob *b); /* NULL allowed */
/* 1 and the raw length when the object is known, else 0, or -errno. `size` may be NULL. */
int store_has(struct store *s, const struct digest *d, uint32_t *size);
/* Drops cached content that wasn't asked for in the last `idle_ms`; 0: all of it. */
void store_trim(struct store *s, uint64_t idle_ms);

/* Content of any size, cut as the store wants it (one object up to STORE_SMALL_MAX, FastCDC
 * above). `read` gives the bytes at `off` (exactly `len` of them, 0 or -errno); `emit` is
 * called for each piece in order. All-zero pieces are emitted as holes: digest NULL. */
struct store_content {
	int (*read)(void *ctx, void *buf, size_t len, uint64_t off, struct err *err);
	int (*emit)(void *ctx, uint64_t off, uint32_t len, const struct digest *d, struct err *err);
	void *ctx;
};
int store_put_content(struct store_session *ss, uint64_t off, uint64_t len,
		      const struct store_content *c, struct err *err);
/* The same of content whose length isn't known before: `read` returns how many bytes it gave,
 * fewer than `len` at the end only, or -errno. */
int store_put_stream(struct store_session *ss, const struct store_content *c, struct err *err);

/* Small contents of which one knows that they will be put next, in that order: the store's workers,
 * as many as there are cores, for all sessions of the process, put them meanwhile. They take from
 * the sessions in turn (large content goes to them by itself). Memory is bounded: some 256 KiB for
 * each worker and two more. */
struct store_ahead;
int store_ahead_new(struct store_ahead **out, struct store_session *ss, struct err *err);
/* All that store_put_content would put from 0 to `len` (1 to STORE_SMALL_MAX); `c` is only read
 * from (its emit isn't called), before it returns. 1; 0: not now, some must be taken first. */
int store_ahead_add(struct store_ahead *a, uint64_t key, uint32_t len,
		    const struct store_content *c, struct err *err);
/* The one that was added first and isn't taken yet, waited for: 1 if it is that of this key, else
 * 0. *zero: it is a hole. -errno: it couldn't be put. */
int store_ahead_take(struct store_ahead *a, uint64_t key, struct digest *out, bool *zero,
		     struct err *err);
/* Before the session's sync or end. NULL allowed; waits for what is under way. */
void store_ahead_free(struct store_ahead *a);

/* Garbage collection: in-flight sessions and new saves go on meanwhile.
 *   0 calls mark() to find the packs that are mostly dead; where there are none, that was all;
 *   1 condemns those: from now on a put does not rely on them;
 *   2 waits for the sessions that began before (a dead process's session doesn't count);
 *   3 calls mark() again, which reports each object that is alive by store_gc_mark (the catalog's
 *     snapshots, images and workspaces: all that the sessions of step 2 have named by now);
 *   4 copies the live objects of the condemned packs, syncs, moves the index, deletes.
 * At most as much stays dead as is alive, besides the packs that are being written to. Memory: 4
 * bytes for each object, 128 MiB at most (of 100 million objects one in a hundred dead ones stays
 * then, of more more, and none that is alive goes), the table of one pack, and 100 bytes
 * for each pack. The thread that calls may have no session open: it would wait for itself.
 * One gc or check at a time (-EBUSY). Killed at any point it loses nothing; the next one goes
 * on. */
struct store_gc;
struct store_gc_stats {
	uint64_t objects_live, objects_dead, bytes_freed, packs_rewritten, packs_deleted;
};
typedef int (*store_gc_mark_fn)(void *ctx, struct store_gc *gc, struct err *err);
int store_gc(struct store *s, store_gc_mark_fn mark, void *ctx, struct store_gc_stats *st,
	     struct err *err);
/* Any thread. *size (NULL allowed): the object's bytes, 0 where it isn't in the store. Addresses of
 * git objects are passed over: others keep mirrors. */
void store_gc_mark(struct store_gc *gc, const struct digest *d, uint32_t *size);
/* For mark() to call: what is asked from then on, by the thread that collects, while it waits for
 * sessions (`total` is 0) and before each pack of step 4. True ends it there with -ECANCELED: what
 * it had done stays done, and a next one does the rest. */
void store_gc_ask(struct store_gc *gc, bool (*stop)(void *ctx, uint64_t done, uint64_t total),
		  void *ctx);

/* Reads every record of every pack, compares hashes (XXH3 and SHA-256) and the index.
 * `report` is called for each fault. `repair`: the index is made right, torn tails are cut,
 * damaged records are left out of the index (the pack keeps them); nothing whole is dropped.
 * Where the index itself can't be read and other programs have the store open, that is the one
 * fault that is reported. Returns the number of faults found, or -errno (-EBUSY: a gc runs). */
struct store_fault {
	const char *pack; /* file name, or NULL for the index */
	uint64_t offset;
	const struct digest *object; /* NULL: unknown */
	const char *what;
	bool repaired;
};
int64_t store_check(struct store *s, bool repair,
		    void (*report)(void *ctx, const struct store_fault *f), void *ctx,
		    struct err *err);

struct store_stats {
	uint64_t objects, packs, bytes_raw, bytes_stored, cache_bytes, cache_hits, cache_misses,
		puts, put_hits, bytes_put,
		waiting; /* pieces of contents that no worker of this process has taken yet */
};
int store_stats(struct store *s, struct store_stats *out, struct err *err);

#endif
