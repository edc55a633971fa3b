/* The space in a layer's data files: who may use which place. In memory only; after a
 * replay it is derived from the extents.
 *
 * The packed file (number 0) holds places of many inodes. A place there is free, handed out
 * (held), in use by one extent or by several (counted in `extra`), or freed and waiting for
 * the commit that covers its freeing (queued).
 * A big file belongs to one inode: its own extents lie where logical = physical and need no
 * record of space; extents of others, or of the same inode elsewhere (reflinks), are counted.
 *
 * Invariants:
 * 1. A place is in at most one of: free, a stream's reserve, held, in use, queued, being freed.
 * 2. A place goes from queued to free only by a commit that began after it was queued (9).
 * 3. A big file's place that is in use or held is in no queue, so it is never punched.
 * 4. A place that was shared is overwritten in place only after a commit that covers the end
 *    of the sharing: until then a power cut may bring the other extent back. Until the first
 *    commit after a replay of what no commit covered (`unsettled`), nothing is.
 *
 * Threads: alloc, cancel, take and drop are serialised by the layer's owner; the two halves
 * of a commit run beside them in one other thread. The lock is taken inside. */
#ifndef BOUGH_WORK_SPACE_H
#define BOUGH_WORK_SPACE_H

#include <pthread.h>
#include <stdatomic.h>
#include "fs/base/omap.h"
#include "fs/base/u64map.h"
#include "fs/work/layer.h"

enum {
	SPACE_PACKED = 0,        /* number of the packed file */
	SPACE_PUNCH_MIN = 65536, /* free ranges from this size on are given back to the host */
	SPACE_PUNCH_STEP =
		64 << 20,   /* bytes punched at once: bounds how long an allocation waits */
	SPACE_STREAMS = 16, /* inodes that are being appended to, at once */
};

/* One inode that is being appended to. */
struct space_stream {
	uint64_t ino;      /* 0: unused */
	uint64_t off;      /* where in the file it would go on */
	uint64_t src, end; /* the reserve: the place that follows, and where the reserve ends */
	uint64_t written;  /* bytes that came one behind the other: the next reserve's size */
	uint64_t tick;     /* of its last use */
};

/* The own file of one inode. */
struct space_big {
	uint64_t ino;
	struct omap own;   /* set: in use by the inode's own extents, logical = physical */
	struct omap extra; /* counts: in use by other extents */
	struct omap held, queued, freeing, unshared, unsharing; /* sets, as in struct space */
	bool dying; /* was unused when the present commit began */
};

struct space {
	pthread_mutex_t lock;
	pthread_cond_t idle;       /* nothing of a big file is being freed any more */
	struct omap free, by_size; /* of the packed file: begin -> length; length and begin -> 0 */
	struct omap held;          /* handed out, in no extent yet */
	struct omap queued, freeing;     /* free after the next commit; after the one under way */
	struct omap unshared, unsharing; /* in use by one extent only, after the same */
	struct omap extra;            /* counts: extents beyond the first that refer to a place */
	bool unsettled, settling;     /* until the next commit; until the one under way */
	uint64_t big_from; /* writes beyond this offset go to a file of the inode's own */
	uint64_t end;                 /* the packed file is unused from here on */
	uint64_t used;                /* bytes of it that extents refer to */
	uint64_t punching;            /* bytes of it that a commit is punching */
	uint64_t big_used;            /* bytes of big files that are in use by their own inodes */
	struct u64map big;            /* inode -> struct space_big */
	struct space_stream *streams; /* SPACE_STREAMS of them, or NULL */
	uint64_t tick;
	uint64_t busy_file, busy_off, busy_len; /* being punched (or unlinked: all of it) */
	_Atomic uint64_t epoch;                 /* layer_epoch */
};

void space_init(struct space *s);
void space_done(struct space *s);

/* Finds a place for [off, off + len) of an inode: *file, *src and *n <= len. 0 or -ENOMEM. */
int space_alloc(struct space *s, uint64_t ino, uint64_t off, uint64_t len, uint64_t *file,
		uint64_t *src, uint64_t *n);
void space_cancel(struct space *s, uint64_t file, uint64_t src, uint64_t len);
/* An extent of `ino` at `off` begins to refer to a place. `counting` false: a replay, after
 * which space_rebuild says how the packed file is used. 0, -ENOMEM, -EMLINK. */
int space_take(struct space *s, uint64_t ino, uint64_t off, uint64_t file, uint64_t src,
	       uint64_t len, bool counting);
/* … ceases to. */
int space_drop(struct space *s, uint64_t ino, uint64_t off, uint64_t file, uint64_t src,
	       uint64_t len);
/* No second extent refers to any of it. The owner's lock is held (shared is enough). */
bool space_alone(struct space *s, uint64_t file, uint64_t src, uint64_t len);
/* Whether nothing of its own file is in use. */
bool space_is_unused(struct space *s, uint64_t ino);
/* Whether it was so when the commit began that is under way (of this thread), and still is. */
bool space_is_dying(struct space *s, uint64_t ino);
/* No more allocations will come: reserves are given up. */
void space_settle(struct space *s);

/* The packed file after a replay: which places extents refer to, in any order (sorted here),
 * and how long the file is. What no extent refers to waits for the next commit. */
struct space_use {
	uint64_t src, len;
};
int space_rebuild(struct space *s, struct space_use *uses, size_t n, uint64_t file_size,
		  bool unsettled);

/* After a replay that left content out: the inode's own file may be there, and be so long, though
 * no extent leads to it. What nobody uses of it waits for the next commit. 0 or -ENOMEM. */
int space_note_big(struct space *s, uint64_t ino, uint64_t file_size);
/* Whether anything is known of the inode's own file. */
bool space_has_big(struct space *s, uint64_t ino);

/* Called before a commit's first sync: what is queued now will be covered by it. */
void space_commit_begin(struct space *s);
/* After it: places are free again. punch(ctx, file, off, len) gives a range back to the host, and
 * unlink_file(ctx, file) a whole file; what they fail with is no matter. */
struct space_host {
	void (*punch)(void *ctx, uint64_t file, uint64_t off, uint64_t len);
	void (*unlink_file)(void *ctx, uint64_t file);
	void *ctx;
};
void space_commit_end(struct space *s, const struct space_host *host);
bool space_has_queued(struct space *s);
size_t space_memory(struct space *s);
/* Calls fn for the number of each big file that may exist. */
int space_each_file(struct space *s, int (*fn)(void *ctx, uint64_t file), void *ctx);

/* Asserts invariant 1 and that the two free maps agree. O(ranges). */
void space_check(struct space *s);

#endif
