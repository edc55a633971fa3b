/* The bytes of git's packs, pack indexes and loose objects. Decoders are pure and total: any
 * bytes give a struct or -EBADMSG. Sources: gitformat-pack(5); the size of a loose object's head
 * is bounded as git bounds it. */
#ifndef BOUGH_STORE_GITFORM_H
#define BOUGH_STORE_GITFORM_H

#include <stddef.h>
#include <stdint.h>
#include "fs/store/gitrepo.h"

/* ---- entries of a pack ---- */

enum { GIT_OFS_DELTA = 6, GIT_REF_DELTA = 7 }; /* beside enum git_type, in packs only */

enum {
	GIT_PACK_HEAD = 12,      /* "PACK", version, number of objects */
	GIT_TRAILER = OID_BYTES, /* SHA-1 of all before, at the end of packs and indexes */
	GIT_ENTRY_HEAD_MAX = 10 + OID_BYTES,
};

struct git_entry {
	uint8_t type;    /* enum git_type, or one of the two deltas */
	uint8_t head;    /* bytes before the zlib stream */
	uint64_t size;   /* of the object, or of the delta, inflated */
	uint64_t back;   /* GIT_OFS_DELTA: its base's entry begins so many bytes before this one */
	struct oid base; /* GIT_REF_DELTA */
};
/* `len` bytes from the start of an entry, of which GIT_ENTRY_HEAD_MAX always suffice. 0 or
 * -EBADMSG. */
int git_entry_decode(struct git_entry *out, const uint8_t *p, size_t len);
/* Version and magic of a pack: 0 and its number of objects, or -EBADMSG. */
int git_pack_head_decode(uint32_t *count, const uint8_t p[GIT_PACK_HEAD]);

/* No zlib stream of `bytes` holds more than this: a claim of more is false, and costs nothing. */
static inline uint64_t git_inflated_max(uint64_t bytes)
{
	return bytes > UINT64_MAX / 2048 ? UINT64_MAX : bytes * 1032 + 64;
}

/* ---- deltas ---- */

enum { GIT_DELTA_HEAD_MAX = 20 };

/* The two sizes at the start of a delta. The bytes they take, or -EBADMSG. */
int git_delta_sizes(const uint8_t *delta, size_t len, uint64_t *base, uint64_t *result);
/* Checks that the delta makes exactly *result bytes from a base of `base` bytes: 0, -EBADMSG. */
int git_delta_check(const uint8_t *delta, size_t len, uint64_t base, uint64_t *result);
/* Applies a delta that was checked against this base; out has the room that it said. */
void git_delta_apply(const uint8_t *delta, size_t len, const uint8_t *base, uint8_t *out);

/* ---- pack indexes, version 2 ---- */

enum {
	GIT_IDX_OIDS = 8 + 256 * 4,        /* where the sorted names begin */
	GIT_IDX_TRAILER = 2 * GIT_TRAILER, /* of the pack, and its own */
};

struct git_idx {
	uint32_t count;       /* objects */
	uint32_t large;       /* entries of the table of 8-byte offsets */
	uint32_t fanout[256]; /* never falls; [255] == count */
};
/* The first GIT_IDX_OIDS bytes of an index of `bytes` bytes: 0 or -EBADMSG. */
int git_idx_decode(struct git_idx *out, const uint8_t head[GIT_IDX_OIDS], uint64_t bytes);

static inline uint64_t git_idx_oid_at(uint32_t i)
{
	return GIT_IDX_OIDS + (uint64_t)OID_BYTES * i;
}
static inline uint64_t git_idx_offset_at(const struct git_idx *x, uint32_t i)
{
	return GIT_IDX_OIDS + (uint64_t)(OID_BYTES + 4) * x->count + (uint64_t)4 * i;
}
static inline uint64_t git_idx_large_at(const struct git_idx *x, uint32_t i)
{
	return GIT_IDX_OIDS + (uint64_t)(OID_BYTES + 8) * x->count + (uint64_t)8 * i;
}

/* Where `oid` lies among n >= 1 sorted names: before or behind all of them, between two, or
 * it is the one at *at. */
enum git_search { GIT_BEFORE, GIT_ABSENT, GIT_FOUND, GIT_BEHIND };
enum git_search git_idx_search(const uint8_t *oids, uint32_t n, const struct oid *oid,
			       uint32_t *at);

/* ---- loose objects ---- */

enum { GIT_LOOSE_HEAD_MAX = 32 };

/* "<type> <size>\0" at the start of the inflated bytes. The bytes it takes, or -EBADMSG. */
int git_loose_head(const uint8_t *p, size_t len, enum git_type *type, uint64_t *size);
/* Writes it, and gives its length with the NUL. */
size_t git_head_encode(char out[GIT_LOOSE_HEAD_MAX], enum git_type type, uint64_t size);
const char *git_type_name(enum git_type type);

static inline void be_put32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 24), p[1] = (uint8_t)(v >> 16);
	p[2] = (uint8_t)(v >> 8), p[3] = (uint8_t)v;
}
static inline uint32_t be_get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static inline uint64_t be_get64(const uint8_t *p)
{
	return (uint64_t)be_get32(p) << 32 | be_get32(p + 4);
}

#endif
