/* What the files that write a workspace's packs share. Not for others.
 *
 *   pack_open.c   the mirror's objects: which there are, where they lie
 *   pack_src.c    what they hold
 *   pack_reach.c  which of them the workspace may see
 *   pack_known.c  packs that another image has already
 *   pack_gain.c   what each commit brings, as newer ones have noted it
 *   pack_idx.c    the index of a pack
 *   pack_put.c    entries that are made anew; pieces and indexes of packs, as they are put
 *   pack_part.c   from a set of objects to a pack that takes what it can from another image's
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

/* ---- pack_open.c, pack_src.c ---- */

enum {
	OBJ_NONE = UINT32_MAX,
	SHA1_BYTES = GIT_TRAILER,
	/* An object whose bytes are needed at once: blobs that can't be copied; and all others,
	 * which nobody makes as large. */
	OBJECT_BYTES_MAX = INT32_MAX,
	OBJECT_BYTES_USUAL = 128 << 20,
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
/* Fills s->packs and s->total; s->io is set. Packs that are replaced meanwhile are looked for
 * anew. */
int src_packs_open(struct src *s, const char *path, struct err *err);
void src_packs_close(struct src *s);
struct idx_view;
/* The tables of an index whose bytes p->idx has. 0, -ENOMEM. */
int src_pack_tables(struct src_pack *p, const struct idx_view *v);
/* starts, order and place, by the tables and the size. -EBADMSG, -ENOMEM. */
int src_pack_order(struct src_pack *p, struct err *err);
void src_pack_free(struct src_pack *p); /* all but the file */
/* -EBADMSG: the pack is damaged. */
int src_bad(struct err *err, const struct src_pack *p, const char *what);

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

/* Which of a pack's objects has that id: its position; and which entry, by place and before the
 * i-th, begins there. OBJ_NONE: none. */
uint32_t src_find_in(const struct src_pack *p, const uint8_t *oid);
uint32_t src_find_place(const struct src_pack *p, uint32_t i, uint64_t off);

struct src_entry {
	uint64_t off, len;   /* the whole entry in the pack */
	uint64_t size;       /* of what is compressed */
	uint8_t kind;        /* enum git_type, or a delta */
	uint8_t head;        /* bytes before what is compressed */
	uint32_t base;       /* number of a delta's base, in the same pack; else OBJ_NONE */
	uint32_t crc;        /* of the whole entry */
};
/* The entry that is the i-th by place, whose first bytes are those: GIT_ENTRY_HEAD_MAX, or all.
 * -EBADMSG. */
int src_entry_decode(const struct src_pack *p, uint32_t i, const uint8_t *head, size_t n,
		     struct src_entry *out, struct err *err);
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

/* ---- pack_gain.c ---- */

/* How a tree was met: above a scope as a node of it (some of what is below is in it), or … */
enum {
	STATE_OUT = 0xffff, /* outside of it */
	STATE_IN = 0xfffe,  /* in it; where there is none all are */
};

#define GAIN_OBJ 0x3fffffffU   /* a gain is an object's number … */
#define GAIN_OBJ_MAX 0x3fffffffU
#define GAIN_TREE 0x80000000U  /* … a tree's, else a blob's … */
#define GAIN_AGAIN 0x40000000U /* … and what is below it was noted with another commit */

/* Notes as they are made: for each commit its parents and gains, by numbers of src. They are a
 * help only: where they become too many, or there is no memory, there are none (on: false). */
struct gains {
	uint32_t *number;  /* of an object among all that the packs have, in order of packs and
			    * in them of ids, plus one; 0: none has it */
	uint32_t numbered; /* so many */
	uint32_t *words;
	size_t n, cap, max, record;
	bool on, scoped; /* scoped: behind each gain the state in which it was met */
};
void gains_init(struct gains *g, const struct src *s, bool scoped); /* gains_off frees */
void gains_off(struct gains *g);
void gains_begin(struct gains *g, uint32_t commit, const uint32_t *parents, uint32_t nparents);
void gains_add(struct gains *g, uint32_t obj, uint32_t flags, uint16_t state);
/* Appends what another thread noted; trees for which `met` says so were noted before. */
void gains_append(struct gains *g, struct gains *more,
		  bool (*met)(void *ctx, uint32_t tree, uint16_t state), void *ctx);
/* Appends the bytes of a part: numbers are of the packs by now. 0, -ENOMEM. */
int gains_encode(struct buf *out, const struct gains *g);

/* A pack of that image, for who writes a part of it: `pack` isn't open, and `first` is the place of
 * its first object in cover.src. */
struct lent {
	struct src_pack pack;
	struct piece *pieces; /* its bytes, without a hole */
	size_t npieces;
};
/* The notes of all packs of an image; numbers are those of its packs. */
struct cover {
	uint32_t *src; /* the objects of its packs: numbers in src */
	size_t n;
	uint32_t tip; /* the commit that was looked for */
	uint32_t *words, *at; /* at: of a commit, where its record begins, plus one; else 0 */
	size_t nwords;
	bool scoped;
	struct lent *packs;
	size_t npacks;
};
struct gain_record {
	uint32_t commit, nparents, count;
	const uint32_t *parents, *gains; /* scoped: two words for each gain */
};
/* Appends the part of a pack whose objects are in c->src, as are those of all packs before.
 * Any bytes: 0, -EBADMSG, -ENOMEM. */
int cover_add(struct cover *c, const void *data, size_t len);
int cover_index(struct cover *c); /* after the last: 0, -EBADMSG, -ENOMEM */
int cover_record(struct gain_record *out, const struct cover *c, uint32_t commit);
/* The record at `at` of c->words: where the next one is; 0 at the end. */
size_t cover_next(struct gain_record *out, const struct cover *c, size_t at);
void cover_done(struct cover *c);

/* ---- pack_known.c ---- */

/* The packs of that image, in their order, appended to `out`; each of their objects gets `bit`
 * in mark[number], and its number in `g`. -ESTALE: they aren't of use here (an image without
 * history, of another scope, of objects that the mirror lacks, too many packs); nothing is appended
 * then. */
int known_packs(struct pack_set *out, uint8_t *mark, uint8_t bit, struct gains *g,
		const struct src *s, const struct checkout_options *opt,
		const struct checkout_spec *spec, const struct checkout_known *k, struct err *err);
/* The notes of that image, if its history holds that commit: 1, and the caller frees them; 0: they
 * aren't of use, for any such reason. -ENOMEM. */
int known_cover(struct cover *out, const struct oid *commit, const struct src *s,
		const struct checkout_options *opt, const struct checkout_spec *spec,
		const struct checkout_known *k, struct err *err);

/* ---- pack_reach.c ---- */

enum {
	MARK_TYPE = 7,   /* enum git_type: it belongs into a pack that is written now */
	MARK_KNOWN = 8,  /* a pack that is taken over has it */
	MARK_IN = 16,    /* a tree: all below it is marked, contents too … */
	MARK_NAMES = 32, /* … or only trees */
	MARK_NEWER = 2,  /* the same two, this far to the left, by the newer half of commits */
};
/* What is noted on the way, and what others have noted. */
struct notes {
	struct gains made;
	struct cover told; /* npacks 0: nothing was */
};
/* Marks what is reachable, puts known packs, tags and ends of history into `out`, and notes into
 * n->made. `mark`: s->total bytes, zero. Where n->told has packs, all that is marked and no tag
 * lies in them. The caller frees both in any case. */
int reach_mark(struct pack_set *out, uint8_t *mark, struct notes *n, struct src *s,
	       const struct checkout_options *opt, const struct checkout_spec *spec,
	       struct err *err);

/* ---- pack_idx.c ---- */

struct idx_entry {
	uint64_t at;
	uint32_t obj, crc;
};
/* Appends the index (version 2) of a pack with these entries, which it puts in order of ids. */
int idx_encode(struct buf *out, const struct src *s, struct idx_entry *e, uint32_t n,
	       const uint8_t pack_sha[SHA1_BYTES], struct err *err);
/* The tables of an index: 0, or -EBADMSG unless it is one and its own check holds. */
struct idx_view {
	const uint8_t *oids, *crcs, *offs, *bigs, *pack_sha;
	uint32_t n, nbig;
	struct git_idx idx;
};
int idx_decode(struct idx_view *out, const void *data, size_t len);

/* ---- pack_put.c ---- */

/* What an entry begins with: kind and size; in a delta, how far back its base begins. The bytes it
 * took. */
unsigned entry_put_size(uint8_t *p, unsigned kind, uint64_t size);
unsigned entry_put_back(uint8_t *p, uint64_t back);

/* An object that is written whole, since it can't be copied as it lies: the entry. */
struct whole {
	struct libdeflate_compressor *deflate;
	uint8_t *data;
	size_t cap;
};
int whole_make(struct whole *c, struct src *s, uint32_t obj, uint64_t *len, struct err *err);
void whole_done(struct whole *c);

/* Content as it is put: its pieces, in order. */
struct pieces {
	struct piece **v;
	size_t *n, cap;
};
/* As store_content.emit. */
int pieces_add(struct pieces *s, uint64_t off, uint32_t len, const struct digest *d,
	       struct err *err);
/* Puts bytes that are the content's from `off` on. */
int pieces_put(struct pieces *s, uint64_t off, const void *data, uint64_t len,
	       struct store_session *ss, struct err *err);

/* Puts the index of the pack with these entries, which it puts in order of ids. */
int pack_put_idx(struct pack_out *out, const struct src *s, struct idx_entry *e, uint32_t n,
		 struct store_session *ss, struct err *err);
int pack_set_add(struct pack_set *set, struct pack_out *out, struct err *err); /* takes it */
void pack_out_done(struct pack_out *out);

/* Whether an object belongs into a pack that is written now, beside commits, trees and blobs. */
static inline bool mark_wants(uint8_t mark)
{
	return mark & MARK_TYPE && (mark & MARK_TYPE) != GIT_TAG && !(mark & MARK_KNOWN);
}

/* ---- pack_part.c ---- */

/* One pack of all that is wanted, out of the packs of `from`. 1; 0: those are of no use, and
 * nothing was done. */
int pack_part(struct pack_set *set, struct cover *from, struct src *s, const uint8_t *mark,
	      const struct checkout_options *opt, const struct checkout_spec *spec,
	      struct err *err);

#endif
