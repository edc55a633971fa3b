/* What the other side of a copy has already: who sends a tree leaves out the contents of files that
 * are there as they are. A list is records, each ended by a NUL:
 *
 *     SIZE SECONDS NANOSECONDS MODE PATH      "12 1700000000 5 0644 src/a.c"
 *
 * of regular files: bytes, modification time (seconds may be negative), permissions in octal with
 * set-id bits, and the path below the top of the tree, of any bytes, without "./" in front.
 *
 * Equal size, time and mode alone don't make two files equal: a list names only files that were
 * made since the copy began, and a sender that is told when that was (`before`) trusts it only
 * of files that haven't changed since, in folders that haven't.
 *
 *     have_add …      the list, in pieces as they come
 *     have_ready
 *     have_visit      for each entry of the tree: parents first, what lies in a folder behind it
 *     have_left       in the end: what is there and isn't in the tree any more
 *     have_done
 *
 * All zero is an empty list. Used by one thread. */
#ifndef BOUGH_BASE_HAVE_H
#define BOUGH_BASE_HAVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>
#include <time.h>
#include "fs/base/buf.h"
#include "fs/base/u64map.h"

enum { HAVE_BYTES_MAX = 256 << 20 }; /* of a list: some three million files */

struct have {
	struct buf text;
	struct u64map by_path;  /* hash -> record */
	struct timespec before; /* may be set by the owner; 0: nothing is trusted */
	/* May be set by the owner: bytes of memory, about, that are left for all lists that share
	 * it. What finds none is forgotten, and so sent again. NULL: there is no such limit. */
	_Atomic int64_t *room;
	int64_t taken; /* of it */
	uint64_t seen; /* bytes that came */
	bool cut;      /* the rest is forgotten */
	struct buf changed;     /* path of a folder that has changed: nothing below counts */
	bool in_changed;
	uint64_t skipped; /* files that have_visit told to leave out */
};

struct have_file {
	const char *path; /* terminated; "" is the top */
	mode_t mode;      /* with the type */
	uint64_t size;
	struct timespec mtime, ctime;
};

/* Appends a record to `out`. */
void have_put(struct buf *out, const struct have_file *f);
/* -EFBIG: the list is longer than HAVE_BYTES_MAX; -ENOMEM. */
int have_add(struct have *h, const void *data, size_t n);
/* -EBADMSG: it isn't such a list; -ENOMEM. */
int have_ready(struct have *h);
/* Whether the file's content is there already. A path is good for one visit. */
bool have_visit(struct have *h, const struct have_file *f);
/* How many files of the list weren't visited; *one (NULL: not wanted) is the path of one of them,
 * borrowed, or NULL. */
size_t have_left(const struct have *h, const char **one);
void have_done(struct have *h);

/* -1, 0, 1 */
int have_time_order(const struct timespec *a, const struct timespec *b);

#endif
