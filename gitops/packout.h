/* New objects for a mirror, as one pack: written to a temporary file of its objects/pack as they
 * come, and in the end synced and given its index and name (gitformat-pack(5), index version 2).
 * Objects that the mirror has already are left out, and what it has is never replaced.
 *
 *     packout_new, packout_put …, packout_finish: durable, and mirror_odb() sees them
 *
 * Killed before the end it leaves a bough_pack_… file, which mirror_recover removes. Upkeep of the
 * mirror may go on beside it. Threads: one at a time. */
#ifndef BOUGH_GITOPS_PACKOUT_H
#define BOUGH_GITOPS_PACKOUT_H

#include "fs/base/io.h"
#include "fs/store/gitrepo.h"
#include "gitops/mirror.h"

#define PACKOUT_TMP_PREFIX "bough_" /* of files that haven't their name yet */

struct packout;
/* `io` NULL: the host's. The mirror is borrowed until packout_free. */
int packout_new(struct packout **out, struct mirror *m, const struct io *io, struct err *err);
void packout_free(struct packout *p); /* what wasn't finished leaves nothing; NULL allowed */

/* *oid is the object's. */
int packout_put(struct packout *p, enum git_type type, const void *data, size_t len,
		struct oid *oid, struct err *err);
/* A blob of `size` bytes in pieces: `read` gives exactly n of them at `off`, 0 or -errno. */
int packout_stream(struct packout *p, uint64_t size,
		   int (*read)(void *ctx, void *buf, size_t n, uint64_t off, struct err *err),
		   void *ctx, struct oid *oid, struct err *err);
/* Was it put, or does the mirror have it? */
bool packout_has(const struct packout *p, const struct oid *oid);

/* 0; *name (NULL allowed) is the pack's, all zero where nothing was new. */
int packout_finish(struct packout *p, struct oid *name, struct err *err);

/* What `to` reaches and `from` doesn't, gathered to be written; the caller frees *out. */
int pack_between(git_packbuilder **out, git_repository *repo, const struct oid *from,
		 const struct oid *to, struct err *err);

/* The id that such an object has. */
void git_object_id_of(struct oid *out, enum git_type type, const void *data, size_t len);

#endif
