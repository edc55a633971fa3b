/* Reading ahead among files: who reads one small file after the other (grep -r, tar, cp -a) waits
 * for each content to be unpacked, on one core. So while somebody reads files in the order of
 * directories, a thread unpacks what comes next, on another core, into the store's cache. Nothing
 * depends on it: that cache holds immutable, verified content, and a file that isn't there is read
 * as ever.
 *
 * What is read is noted. Two reads of which the second is among the next few files behind the
 * first begin a stream: from there on files are listed in the order in which a walk meets them and
 * loaded, as long as they are no more than a window of bytes ahead, which begins small and grows
 * as what was foreseen is read. A stream ends when reads go elsewhere, when most of what was
 * foreseen isn't read, at the end of the tree, and at the first content that can't be loaded; who
 * reads here and there is looked at more and more rarely.
 *
 * There is one thread, started with the first stream, that gives way to others; with nothing to do
 * it sleeps. A few streams share it. Trees are the caller's and opaque: workspaces, in ws_ahead.c.
 *
 * Threads: any; readahead_note never waits. */
#ifndef BOUGH_WORK_READAHEAD_H
#define BOUGH_WORK_READAHEAD_H

#include <stdbool.h>
#include <stdint.h>
#include "fs/base/err.h"
#include "fs/base/hash.h"

enum {
	AHEAD_STREAMS = 4,
	AHEAD_NEAR = 6,   /* a next file is one of so many contents behind the one before */
	AHEAD_LIST = 16,  /* contents listed at a time, since fork waits meanwhile */
	AHEAD_ITEMS = 512, /* a stream's list; half of it is for what was read */
	AHEAD_WINDOW_MIN = 128 << 10,
	AHEAD_WINDOW_MAX = 2 << 20, /* bytes unpacked and not read yet */
};

/* A place in the order of a walk: behind this name. */
struct ahead_place {
	uint64_t dir, cookie;
};

struct ahead_item {
	uint64_t ino;
	struct digest object;
	uint32_t bytes; /* about what it takes in the cache */
};

struct ahead_ops {
	/* Contents of files behind *at, which moves on: up to `max`, those of one file together.
	 * 0: there is no more, or nothing near; so too < 0. */
	int (*list)(void *tree, struct ahead_place *at, struct ahead_item *items, unsigned max);
	/* Brings it into the cache: 0, or -errno. */
	int (*load)(void *ctx, const struct digest *object);
	void *ctx;
};

struct readahead;
/* `window_max` 0: AHEAD_WINDOW_MAX. 0 or -ENOMEM. */
int readahead_new(struct readahead **out, const struct ahead_ops *ops, uint32_t window_max);
void readahead_free(struct readahead *ra); /* NULL allowed; ends the thread */
/* The first bytes of a file were read, which lies there. */
void readahead_note(struct readahead *ra, void *tree, uint64_t ino, struct ahead_place at);
/* The tree goes: afterwards nothing is listed of it. May wait for one list(). */
void readahead_forget(struct readahead *ra, void *tree);
/* Ends streams and gives back their memory. */
void readahead_trim(struct readahead *ra);
/* Is the thread at work just now? Then who would spin had better sleep, if cores are few. */
bool readahead_is_busy(const struct readahead *ra);

struct ahead_stats {
	uint64_t notes, foreseen, checks, streams, loads, skips, ends;
};
void readahead_stats(struct readahead *ra, struct ahead_stats *out);

#endif
