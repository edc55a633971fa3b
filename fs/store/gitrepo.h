/* Objects of git repositories as content of the store: the second kind of address.
 *
 * A checkout copies nothing: its image's pieces name blobs of a mirror (a bare repository,
 * ROOT/repos/<8 hex digits of its number>), which are read from there by this reader. An
 * address of that kind fits where a digest does:
 *
 *     8 bytes GIT_ADDRESS_MAGIC | u32 number of the repository, little-endian | 20 bytes oid
 *
 * No content can be made whose SHA-256 is a given one of these (that is a second preimage), and
 * one that begins with the magic by chance, once in 2^64, only spoils itself: store_put refuses
 * it. So the two kinds never mix.
 *
 * Only blobs up to STORE_OBJECT_MAX are addressed so; larger ones are put into the store.
 *
 * The reader knows packs with index version 2 (OFS and REF deltas, chains up to
 * GIT_CHAIN_MAX), and loose objects; no alternates, no SHA-256 repositories. Everything that
 * is handed out was hashed (SHA-1 over "<type> <size>\0" and the bytes) and matches its oid;
 * sizes are bounded before memory is taken. Sources: gitformat-pack(5), gitformat-index.
 *
 * Packs may come and go meanwhile (fetch, repack): an object that isn't found makes the reader
 * look at the folder again, once.
 *
 * Threads: any. */
#ifndef BOUGH_STORE_GITREPO_H
#define BOUGH_STORE_GITREPO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/base/err.h"
#include "fs/base/hash.h"
#include "fs/base/io.h"

enum {
	OID_BYTES = 20,
	OID_HEX = 40,
	GIT_CHAIN_MAX = 4096, /* deltas below each other; git's own default is 50 */
	REPO_NAME_BYTES = 8 + 1,
};
#define GIT_ADDRESS_MAGIC "\xb0ugh\0git" /* 8 bytes */

struct oid {
	uint8_t b[OID_BYTES];
};

void digest_of_git(struct digest *out, uint32_t repo, const struct oid *oid);
/* False: an ordinary digest. `repo` and `oid` may be NULL. */
bool digest_is_git(const struct digest *d, uint32_t *repo, struct oid *oid);

void oid_hex(char out[OID_HEX + 1], const struct oid *oid);
int oid_parse(struct oid *out, const char *hex); /* exactly 40 digits: 0, or -EINVAL */
void repo_folder_name(char out[REPO_NAME_BYTES], uint32_t repo);

/* Numbers as in packs. */
enum git_type { GIT_COMMIT = 1, GIT_TREE = 2, GIT_BLOB = 3, GIT_TAG = 4 };

struct gitrepos;
/* `dir` is ROOT/repos, which need not exist yet. `io` NULL: the host's. */
int gitrepos_new(struct gitrepos **out, const struct io *io, const char *dir, struct err *err);
void gitrepos_free(struct gitrepos *g); /* NULL allowed */
/* Forgets packs and descriptors that were not used for `idle_ms` milliseconds; 0: all unused. */
void gitrepos_trim(struct gitrepos *g, uint64_t idle_ms);

/* Type and size of an object, without reading all of it where the pack allows (a delta's size is
 * in its first bytes). Nothing is verified but the form.
 * -ENOENT: no such object or repository; -EBADMSG: damaged; -errno. */
int gitrepos_stat(struct gitrepos *g, uint32_t repo, const struct oid *oid, enum git_type *type,
		  uint64_t *size, struct err *err);
/* The whole object, verified; `max` bounds its size (-EFBIG). The caller frees *data.
 * -ENOENT, -EBADMSG (err names repository, object and pack), -ENOMEM, -errno. */
int gitrepos_read(struct gitrepos *g, uint32_t repo, const struct oid *oid, uint64_t max,
		  enum git_type *type, uint8_t **data, size_t *len, struct err *err);

/* An object too large for memory, read from its start to its end: `fn` gets it as a stream, whose
 * bytes it asks for in order. Its hash is known at the end only, so what fn made of it counts when
 * gitrepos_stream has returned 0, and of damaged copies fn is called for one after the other.
 * -EOPNOTSUPP: it is a delta, which is made in memory (gitrepos_read; git makes none of files
 * above core.bigFileThreshold, 512 MiB); what fn failed with; else as above. */
struct gitstream;
struct git_use {
	int (*fn)(void *ctx, struct gitstream *s, enum git_type type, uint64_t size,
		  struct err *err);
	void *ctx;
};
int gitrepos_stream(struct gitrepos *g, uint32_t repo, const struct oid *oid,
		    const struct git_use *use, struct err *err);
/* The next n bytes, no more than are left; fn returns what this failed with. */
int gitstream_read(struct gitstream *s, void *buf, size_t n);

#endif
