/* The index: digest to place, and a row for each pack, in LMDB.
 *
 * It is a cache of what the packs say, never synced on the way (MDB_NOSYNC): after a kill
 * it is as good as the page cache, after power loss it is thrown away (recover.c decides).
 * Entries carry a checksum of their own, and whoever reads a record compares its digest,
 * so a wrong entry is found out.
 *
 * LMDB allows one environment a process and file, so environments are shared inside
 * the process by a registry. The map is read-only memory: writing goes by pwrite, so a full
 * disk is an error and not SIGBUS; the data file is as long as the map (sparse), so
 * that damaged page numbers can't lead behind its end. A page that the disk refuses reads as zeros
 * (fs/base/mapguard.h), which LMDB takes for damage (-EBADMSG) as well.
 *
 * Threads: any. A function called back in a write must not call the other functions here. */
#ifndef BOUGH_STORE_INDEX_H
#define BOUGH_STORE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/base/err.h"
#include "fs/base/hash.h"

enum {
	INDEX_ENTRY_BYTES = 32, /* of a value in the database of objects */
	INDEX_ROW_BYTES = 56,   /* of a value in the database of packs */
};

/* Where an object is. */
struct place {
	uint64_t pack, off;
	uint32_t raw, stored;
	bool damaged; /* it was read and found bad: puts write it again */
};

enum {
	ROW_SEALED = 1,    /* has a table of contents; nothing is appended any more */
	ROW_CONDEMNED = 2, /* a gc may delete it: puts don't rely on it */
	ROW_DOOMED = 4,    /* nothing in it is needed: the file is about to go */
	ROW_BROKEN = 8,    /* the file is missing or shorter than it was: puts don't rely on it */
	ROW_UNUSABLE = ROW_CONDEMNED | ROW_DOOMED | ROW_BROKEN,
};

struct pack_row {
	uint64_t id;          /* first: array_by_u64 */
	uint64_t indexed;     /* every whole record below this offset has been seen */
	uint64_t synced;      /* the file is durable up to here */
	uint64_t records;     /* objects seen in it, with their sizes */
	uint64_t raw, stored; /* `stored` counts whole records, heads included */
	uint32_t flags;       /* ROW_* */
};

struct index;

/* Opens the index in the folder `path` (made by the caller), or shares it when this process has it
 * open. `fresh` removes the old files first; only for who is alone with the store. */
int index_open(struct index **out, const char *path, bool fresh, struct err *err);
void index_close(struct index *ix); /* NULL allowed */
/* Empties it by making its files anew: for who is alone with the store and finds it damaged. */
int index_reset(struct index *ix);

/* 1: found, 0: absent (a damaged entry too), or -errno; -EBADMSG: the database is damaged.
 * *row is the row of its pack; without one it says ROW_BROKEN. */
int index_get(struct index *ix, const struct digest *d, struct place *p, struct pack_row *row);
int index_row(struct index *ix, uint64_t id, struct pack_row *row); /* 1, 0 or -errno */
/* All rows; the caller frees *rows. */
int index_rows(struct index *ix, struct pack_row **rows, size_t *n);
/* Calls fn for every entry in the order of digests, outside of any transaction (changes made
 * meanwhile may be seen or not). A result other than 0 ends it and is returned.
 * A damaged entry is given with pack 0. */
int index_each(struct index *ix,
	       int (*fn)(void *ctx, const struct digest *d, const struct place *p), void *ctx);
int index_count(struct index *ix, uint64_t *objects);

/* One write transaction: all that fn does happens, or nothing. fn is called again when the
 * map has to grow, so it starts from the same input each time. */
struct index_txn;
int index_write(struct index *ix, int (*fn)(struct index_txn *t, void *ctx), void *ctx);
int index_txn_get(struct index_txn *t, const struct digest *d, struct place *p);
int index_txn_put(struct index_txn *t, const struct digest *d, const struct place *p);
int index_txn_del(struct index_txn *t, const struct digest *d);            /* absent is fine */
int index_txn_row(struct index_txn *t, uint64_t id, struct pack_row *row); /* 1, 0, -errno */
int index_txn_row_put(struct index_txn *t, const struct pack_row *row);
int index_txn_row_del(struct index_txn *t, uint64_t id);

/* Walks both databases as far as their structure and order can be checked by reading.
 * 0, or -EBADMSG. */
int index_verify(struct index *ix);
/* Makes what is committed durable. */
int index_sync(struct index *ix);
/* Bytes at the front of the data file that are in use, and a hash over them. */
int index_hash(struct index *ix, uint64_t *used, uint64_t *hash);
/* The same of a data file that nobody has open; -EBADMSG when it is shorter. */
int index_hash_file(const char *path, uint64_t used, uint64_t *hash);

/* Of values, for tests and fuzzing; decoding gives -EBADMSG. */
void index_entry_encode(uint8_t out[INDEX_ENTRY_BYTES], const struct digest *d,
			const struct place *p);
int index_entry_decode(struct place *p, const struct digest *d, const uint8_t *in, size_t len);
void index_row_encode(uint8_t out[INDEX_ROW_BYTES], const struct pack_row *row);
int index_row_decode(struct pack_row *row, uint64_t id, const uint8_t *in, size_t len);

#endif
