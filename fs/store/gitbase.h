/* Objects of git packs that others are deltas of, kept so that reading a folder's files doesn't
 * inflate the same ones again and again: by pack and offset, least recently used out first.
 * What lies here was not verified; whoever makes an object from it verifies that. */
#ifndef BOUGH_STORE_GITBASE_H
#define BOUGH_STORE_GITBASE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/store/gitrepo.h"

struct gitbase {
	enum git_type type;
	size_t len;
	/* The cache's own. */
	atomic_uint uses;
	uint64_t pack, off, used_ms;
	struct gitbase *chain, *newer, *older;
	uint8_t data[];
};

/* With room for `len` bytes; one use is the caller's. NULL: no memory. */
struct gitbase *gitbase_new(enum git_type type, size_t len);
void gitbase_put(struct gitbase *b); /* NULL allowed */

struct gitbases {
	pthread_mutex_t lock;
	struct gitbase **buckets; /* GITBASE_BUCKETS of them */
	size_t bytes, max_bytes;
	struct gitbase *newest, *oldest;
};

int gitbases_init(struct gitbases *c, size_t max_bytes); /* 0 or -ENOMEM */
void gitbases_done(struct gitbases *c);                  /* of a zeroed one too */
/* One more use, or NULL. `pack` is a number that no other pack has, or had. */
struct gitbase *gitbases_get(struct gitbases *c, uint64_t pack, uint64_t off);
/* Keeps it, unless it is too large or there already; the use stays the caller's. */
void gitbases_add(struct gitbases *c, uint64_t pack, uint64_t off, struct gitbase *b);
void gitbases_trim(struct gitbases *c, uint64_t idle_ms); /* as cache_trim */

#endif
