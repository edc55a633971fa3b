/* What the files that write a workspace's packs share. Not for others.
 *
 *   pack_src.c    the mirror's objects: which there are, where they lie, what they hold
 *   pack_reach.c  which of them the workspace may see
 *   pack_known.c  packs that another image has already
 *   pack_idx.c    the index of a pack
 *   pack_write.c  from a set of objects to packs in the store
 *
 * Sources: gitformat-pack(5), and for what a commit, a tree and a tag look like git's
 * documentation of its user manual. */
#ifndef BOUGH_GITOPS_PACK_IMPL_H
#define BOUGH_GITOPS_PACK_IMPL_H

#include "fs/base/array.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/u64map.h"
#include "fs/store/gitform.h"
#include "gitops/checkout_impl.h"

/* ---- pack_src.c ---- */

enum {
	OBJ_NONE = UINT32_MAX,
	SHA1_BYTES = GIT_TRAILER,
	/* An object whose bytes are needed at once (trees, commits; blobs that can't be copied). */
	OBJECT_BYTES_MAX = INT32_MAX,
};

/* A set of objects in order of their ids: of one pack, or (fd < 0) the loose ones. */
struct src_pack {
	int fd;
	uint64_t size;    /* of the pack's file */
	uint8_t *idx;     /* its index, whole; loose: the ids alone */
	const uint8_t *oids, *crcs, *offs, *bigs; /* tables in it */
	uint32_t n, nbig;
	uint32_t *fanout; /* NULL: loose */
	uint32_t first;   /* number of its first object */
	uint64_t *starts; /* where its entries begin, by place in the pack; then where they end */
	uint32_t *order, *place; /* positions by place, places by position */
	char name[64];
};

/* Content of an object. */
struct src_data {
	unsigned refs;
	enum git_type type;
	size_t len;
	uint32_t obj;                    /* in the cache: its number … */
	struct src_data *newer, *older; /* … and neighbours there */
	uint8_t data[];
};

struct src_block;
/* All objects of a mirror as they were when it was opened, numbered: those of the first pack in
 * order of their ids, of the second … An object that lies in several packs has several numbers;
 * src_find gives the same one always. */
struct src {
	const struct io *io;
	git_odb *odb;
	struct src_pack *packs;
	size_t npacks;
	uint32_t total;
	bool lent; /* the packs are another's */
	struct u64map cached; /* number + 1 -> struct src_data */
	struct src_data *newest, *oldest;
	size_t cached_bytes;
	struct src_block *blocks; /* pieces of packs, read a moment ago */
	uint8_t *raw; /* one entry as it lies in the pack, where no block has it whole */
	size_t raw_cap;
	struct libdeflate_decompressor *inflate;
};
int src_open(struct src *s, struct mirror *m, const struct io *io, struct err *err);
void src_close(struct src *s); /* also one that is all zero */
/* The same objects for another thread, with a cache of its own; closed before `of` is. */
int src_share(struct src *s, const struct src *of, struct err *err);

uint32_t src_find(const struct src *s, const struct oid *oid); /* OBJ_NONE */
/* The number that src_find gives for the object of that one. */
uint32_t src_first(const struct src *s, uint32_t obj);
/* As src_find; -ENOENT in words. */
int src_need(const struct src *s, const struct oid *oid, uint32_t *obj, struct err *err);
struct src_pack *src_pack_of(const struct src *s, uint32_t obj);
void src_oid(const struct src *s, uint32_t obj, struct oid *out);

struct src_entry {
	uint64_t off, len;   /* the whole entry in the pack */
	uint64_t size;       /* of what is compressed */
	uint8_t kind;        /* enum git_type, or a delta */
	uint8_t head;        /* bytes before what is compressed */
	uint32_t base;       /* number of a delta's base, in the same pack; else OBJ_NONE */
	uint32_t crc;        /* of the whole entry */
};
/* The entry that is the i-th by place. -EBADMSG. */
int src_entry_at(struct src *s, const struct src_pack *p, uint32_t i, struct src_entry *out,
		 struct err *err);
int src_type(struct src *s, uint32_t obj, enum git_type *type, struct err *err);
/* Its content, from the cache where it is there; the entries' checks are verified. The caller
 * gives it back. */
int src_read(struct src *s, uint32_t obj, struct src_data **out, struct err *err);
void src_put(struct src_data *d); /* NULL allowed */
#define auto_src_data __attribute__((cleanup(src_data_auto))) struct src_data
static inline void src_data_auto(struct src_data **d)
{
	src_put(*d);
}

/* ---- pack_known.c ---- */

/* The packs of that image, in their order, appended to `out`; each of their objects gets `bit`
 * in mark[number]. -ESTALE: they aren't of use here (an image without history, of another scope,
 * of objects that the mirror lacks, too many packs); nothing is appended then. */
int known_packs(struct pack_set *out, uint8_t *mark, uint8_t bit, const struct src *s,
		const struct checkout_options *opt, const struct checkout_spec *spec,
		const struct checkout_known *k, struct err *err);

/* ---- pack_reach.c ---- */

enum {
	MARK_TYPE = 7,   /* enum git_type: it belongs into a pack that is written now */
	MARK_KNOWN = 8,  /* a pack that is taken over has it */
	MARK_IN = 16,    /* a tree: all below it is marked, contents too … */
	MARK_NAMES = 32, /* … or only trees */
};
/* Marks what is reachable, puts known packs, tags and ends of history into `out`. `mark`:
 * s->total bytes, zero. */
int reach_mark(struct pack_set *out, uint8_t *mark, struct src *s,
	       const struct checkout_options *opt, const struct checkout_spec *spec,
	       struct err *err);

/* ---- pack_idx.c ---- */

struct idx_entry {
	uint64_t at;
	uint32_t obj, crc;
};
/* Appends the index (version 2) of a pack with these entries, by number. */
int idx_encode(struct buf *out, const struct src *s, const struct idx_entry *e, uint32_t n,
	       const uint8_t pack_sha[SHA1_BYTES], struct err *err);
/* The tables of an index: 0, or -EBADMSG unless it is one and its own check holds. */
struct idx_view {
	const uint8_t *oids, *crcs, *offs, *bigs, *pack_sha;
	uint32_t n, nbig;
	struct git_idx idx;
};
int idx_decode(struct idx_view *out, const void *data, size_t len);

#endif
