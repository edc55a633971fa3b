/* Reading single objects of git's packs and loose files, for gitrepo.c. Nothing is verified
 * here but the form. */
#ifndef BOUGH_STORE_GITPACK_H
#define BOUGH_STORE_GITPACK_H

#include <libdeflate.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <zlib.h>
#include "fs/base/io.h"
#include "fs/store/gitbase.h"
#include "fs/store/gitform.h"
#include "fs/store/gitrepo.h"

enum {
	/* The largest object that others may be deltas of: git makes none of files above
	 * core.bigFileThreshold, which is this. */
	GIT_BASE_MAX = 512 << 20,
	/* Readers that need a base or a delta above this wait for each other, so that hostile packs
	 * can't make them take GIT_BASE_MAX each. */
	GIT_BASE_BIG = 32 << 20,
	GIT_WINDOW = 16 * 1024, /* bytes of a pack that a reader keeps, for what lies behind */
};

/* Where an object's content goes. `room` gives memory for it, or NULL: none is left. It is
 * called again when what was written turned out to be damaged, and another copy is tried. */
struct git_sink {
	uint8_t *(*room)(void *ctx, size_t len);
	void *ctx;
	uint64_t max; /* larger objects are -EFBIG */
};

struct git_head {
	enum git_type type;
	uint64_t size;
};

/* ---- what reading needs; used by one thread at a time ---- */

struct git_step {      /* a delta of a chain */
	uint64_t at;   /* its entry, which is also the key of what it makes */
	uint64_t data; /* its zlib stream */
	uint64_t size; /* of the delta, inflated */
};

struct git_scratch {
	uint8_t *p;
	size_t cap;
};

struct gitreader {
	struct gitreader *next;                  /* in its owner's list */
	struct libdeflate_decompressor *inflate; /* whole streams, quickly */
	z_stream z;                              /* the beginnings of streams */
	EVP_MD_CTX *sha;
	struct git_step *steps;
	size_t nsteps, cap_steps;
	struct git_scratch in, delta;
	/* What was read last of a pack. */
	uint64_t win_pack, win_off; /* win_pack 0: nothing */
	size_t win_len;
	uint8_t win[GIT_WINDOW];
};

struct gitreader *gitreader_new(void);     /* NULL: no memory */
void gitreader_free(struct gitreader *rd); /* NULL allowed */
/* Whether SHA-1 of head and content is `oid`: 0, -EBADMSG, -ENOMEM. */
int gitreader_verify(struct gitreader *rd, const struct oid *oid, enum git_type type,
		     const uint8_t *data, size_t len);

/* ---- packs ---- */

/* An open pack and its index. Pure reading: any thread. */
struct gitpack {
	const struct io *io;
	uint64_t serial; /* of this opening: above 0, and no other one has it */
	int fd, idx_fd;
	uint64_t bytes;
	struct git_idx idx;
};

/* `name` without its ".idx" or ".pack"; `dirfd` is objects/pack. The caller sets p->io, and
 * p->serial. -ENOENT: one of the two files isn't there; -EBADMSG: their form is wrong, or they
 * don't belong together; -errno: *p has nothing open. */
int gitpack_open(struct gitpack *p, int dirfd, const char *name);
void gitpack_close(struct gitpack *p);

/* The offset of the object's entry: 1; 0: it isn't in there; -EBADMSG, -errno. */
int gitpack_find(const struct gitpack *p, const struct oid *oid, uint64_t *off);
/* -EBADMSG, -errno. */
int gitpack_stat(const struct gitpack *p, struct gitreader *rd, struct gitbases *bases,
		 uint64_t off, struct git_head *out);
/* `big` is held while a base or a delta above GIT_BASE_BIG is in memory. -EBADMSG, -EFBIG, -ENOMEM,
 * -errno. */
int gitpack_load(const struct gitpack *p, struct gitreader *rd, struct gitbases *bases,
		 pthread_mutex_t *big, uint64_t off, const struct git_sink *sink,
		 struct git_head *out, uint8_t **data);

/* ---- streams: an object's content from its start on ---- */

/* A zlib stream in a file: of what it inflates to `left` bytes are still to be given out. */
struct gitstream {
	const struct io *io;
	int fd;
	struct gitreader *rd;   /* its window holds the input; nobody else uses it meanwhile */
	uint64_t at, end;       /* of the input: what was read, and where there is no more */
	bool ended;             /* the zlib stream */
	uint8_t first[GIT_LOOSE_HEAD_MAX]; /* content that came with a loose object's head … */
	size_t nfirst, first_at;           /* … so many bytes, of which so many were given out */
	uint64_t left;
	int failed; /* what reading met */
};

int gitstream_begin(struct gitstream *s, const struct io *io, int fd, struct gitreader *rd,
		    uint64_t at, uint64_t end);
/* Inflates until `n` bytes are there or the stream ends: the count, or -errno. */
ssize_t gitstream_inflate(struct gitstream *s, uint8_t *out, size_t n);
/* Passes it to `use`, and hashes what that reads. 0; -EBADMSG: it isn't that object; -errno: of
 * reading; 1 and *r: `use` failed with that. */
int gitstream_run(struct gitstream *s, const struct oid *oid, const struct git_head *h,
		  const struct git_use *use, int *r, struct err *err);

/* -EOPNOTSUPP: a delta. */
int gitpack_stream(const struct gitpack *p, struct gitreader *rd, uint64_t off,
		   struct gitstream *s, struct git_head *out);
int gitloose_stream(const struct io *io, int fd, struct gitreader *rd, struct gitstream *s,
		    struct git_head *out);

/* ---- loose objects ---- */

/* `fd`: the file, of which only the head is read when `sink` is NULL. As above. */
int gitloose_load(const struct io *io, int fd, struct gitreader *rd, const struct git_sink *sink,
		  struct git_head *out, uint8_t **data);

#endif
