/* What the files of a checkout share (checkout.h lists them). Not for others. */
#ifndef BOUGH_GITOPS_CHECKOUT_IMPL_H
#define BOUGH_GITOPS_CHECKOUT_IMPL_H

#include "fs/base/buf.h"
#include "gitops/checkout.h"

/* One entry of the index, in its order (bytes of the path). */
struct co_file {
	const char *path;
	uint32_t mode; /* git's: 0100644, 0100755, 0120000, 0160000 */
	struct oid oid;
	uint32_t dir;  /* which of the tree's folders it is in */
	uint64_t ino;  /* of the file, or of a submodule's folder; 0: outside of the scope */
	uint64_t size; /* as stat gives it: of what git would have written out */
};

/* One folder, in preorder, children in the order of the index; the first is the root. */
struct co_dir {
	const char *path; /* "" for the root, no slash at the end */
	const char *name; /* its last component */
	struct oid tree;
	uint32_t parent;   /* the root: 0 */
	uint32_t files;    /* index entries below it, at any depth */
	uint32_t subdirs;  /* direct ones */
	uint64_t ino;      /* 0: outside of the scope */
	struct oid ignore;     /* its .gitignore as git's untracked cache names it; zero: none … */
	struct oid attributes; /* its .gitattributes' blob; zero: none (in scope only, both) */
};

/* A file whose content is in the store, since it is larger than one object. */
struct co_large {
	struct oid oid;
	uint64_t size;
	const char *path;     /* for messages */
	struct piece *pieces; /* holes left out */
	size_t npieces;
};

struct co_names; /* tree.c: what paths point into */
struct co_tree {
	struct co_file *files;
	size_t nfiles;
	struct co_dir *dirs;
	size_t ndirs;
	uint64_t bytes, in_scope, submodules, lfs;
	struct checkout_names submodule_names, lfs_names;
	struct co_names *names;
	struct co_large *large;
	size_t nlarge;
};

/* Numbers for new inodes, off the store-wide counter in batches. */
struct co_inos {
	const struct checkout_options *opt;
	uint64_t next, end;
};
int co_ino(struct co_inos *s, uint64_t *ino, struct err *err);
/* n of them will be asked for: one reservation, which costs a sync, for all. */
int co_inos_expect(struct co_inos *s, uint64_t n, struct err *err);

/* ---- checkout_record.c: what is remembered of a checkout ---- */

struct co_record {
	char name[DIGEST_HEX + 1]; /* as co_past_load found it; not kept */
	struct oid commit;
	struct checkout_result result;
	struct co_large *large; /* by oid */
	size_t nlarge;
};
void co_record_done(struct co_record *r);
void co_record_encode(const struct co_record *r, struct buf *out); /* appends */
/* Any bytes: 0, -EBADMSG, -ENOMEM. */
int co_record_decode(struct co_record *out, const void *data, size_t len);

/* Earlier checkouts of the repository whose images are there, the last used first. */
struct co_past {
	struct co_record *v;
	size_t n;
};
void co_past_done(struct co_past *p);
int co_past_load(struct co_past *out, const struct checkout_options *opt, struct err *err);
/* That one counts as used now. */
void co_past_used(const struct checkout_options *opt, const struct co_record *r);
const struct co_large *co_past_large(const struct co_past *p, const struct oid *oid);
int co_record_write(const struct checkout_options *opt, const struct checkout_spec *spec,
		    const struct co_record *r, struct err *err);

/* ---- tree.c: the files ---- */

/* Adds the commit's tree (in scope) to the builder, under inode 1, which it makes; `out` is
 * freed by co_tree_done. `past`: what earlier checkouts put into the store; NULL: nothing. */
int co_tree_add(struct co_tree *out, struct image_builder *b, struct co_inos *inos,
		const struct checkout_options *opt, const struct checkout_spec *spec,
		const struct co_past *past, struct err *err);
void co_tree_done(struct co_tree *t);

/* Owner and times of every inode of a checkout. */
void co_attr(struct attr *out, const struct checkout_spec *spec);

/* ---- large.c: contents above STORE_OBJECT_MAX ---- */

/* Puts the content of each that has no pieces yet into the store. -EFBIG: above 2 GiB, and made
 * by a delta; -EBADMSG. */
int co_large_put(struct co_large *v, size_t n, const struct checkout_options *opt,
		 struct err *err);
void co_large_done(struct co_large *v, size_t n);

/* ---- index_file.c ---- */

/* .git/index is, in this order: `head` (entries, IEOT, TREE) and `rest` (most of UNTR), which are
 * the same for all workspaces of the image and lie in it one behind the other; and between and
 * behind them `front` (FSMN, UNTR's beginning with the work tree's path) and `trailer` (SHA-1),
 * which a layer above the image has (checkout_stack).
 *
 * Entries: version 2, or 3 where there is a scope (4 is a quarter smaller, but GitPython and others
 * can't read it). All are valid by stat data, fsmonitor and untracked cache: gitformat-index(5),
 * git's read-cache.c, dir.c, fsmonitor.c, ewah/. The trailer begins with EOIE, by which git reads
 * entries and the rest at once, and tools/fsmonitor finds UNTR. */
enum {
	INDEX_TRAILER = 32 + 20,
	/* Entries from which on there is IEOT too, between them and TREE, and the settings have git
	 * read them by several threads. */
	INDEX_LARGE = 20000,
};

/* All three are appended to; `meta` gets what index_tail needs, at most CHECKOUT_META_MAX bytes.
 * -EFBIG: more than an index can hold. */
int index_head(struct buf *head, struct buf *rest, struct buf *meta, const struct co_tree *t,
	       const struct checkout_spec *spec, struct err *err);
/* For a work tree that git sees at `path`: it trusts the untracked cache there only. The token says
 * what FSMN is valid as of; it names the image (changed.h), so it is known only here.
 * -EBADMSG: `meta` isn't what index_head gave. */
int index_tail(struct buf *front, uint8_t trailer[INDEX_TRAILER], const void *meta,
	       size_t meta_len, const void *rest, size_t rest_len, const char *token,
	       const char *path, struct err *err);
/* The id by which the untracked cache knows patterns that git read from a file. */
void index_exclude_oid(struct oid *out, const void *data, size_t len);

/* ---- pack_write.c ---- */

/* One pack of a workspace: what it may see of the history; compressed entries and deltas are
 * copied raw from the mirror's packs where they can be. */
struct pack_out {
	/* pack and idx as content: pieces in order, as in an image. */
	struct piece *pack, *idx;
	size_t npack, nidx;
	uint64_t pack_bytes, idx_bytes, objects;
	/* What each of its commits brings, for older ones (pack_gain.c); none: 0. */
	struct piece *gains;
	size_t ngains;
	uint64_t gains_bytes;
	uint8_t name[OID_BYTES]; /* the pack's checksum: pack-<hex>.pack */
	bool promisor;           /* blobs outside of the scope are missing from it */
};
/* A tag of the mirror that leads to a commit of that history. */
struct pack_tag {
	char *name;             /* without refs/tags/ */
	struct oid oid, peeled; /* different: an annotated one, whose objects are in a pack */
};
struct pack_set {
	/* Those of a known ancestor first, in its order; then what is new; annotated tags have one
	 * of their own at the end, which no later checkout takes over. */
	struct pack_out *packs;
	struct pack_tag *tags; /* by name */
	struct oid *shallow;   /* commits at which a history of limited depth ends */
	size_t npacks, ntags, nshallow;
	size_t told_by; /* which known commit's notes told what is in them, plus one; 0: none */
};
void pack_set_done(struct pack_set *s);
/* The file in .git/bough where a pack's gains are, by the pack's name. */
#define GAINS_NAME "pack-%s.gains"
enum { GAINS_NAME_MAX = OID_HEX + 16 };
/* All that is reachable from spec->commit within depth and scope, nothing else: outside of the
 * scope there are trees but no blobs. -ENOENT, -EBADMSG: the mirror lacks an object, or it is
 * damaged (err names it). */
int pack_write(struct pack_set *out, const struct checkout_options *opt,
	       const struct checkout_spec *spec, struct err *err);

/* ---- dotgit.c ---- */

/* .git/info/exclude has these bytes; UNTR names the blob. */
#define DOTGIT_EXCLUDE "# What only this work tree ignores.\n"
/* core.fsmonitor, a line for the shell in the work tree's root: the helper. In a linked work tree
 * (git worktree), where .git is a file, the line fails without a word, and git looks for itself. */
#define DOTGIT_FSMONITOR "test -d .git && exec .git/bough/fsmonitor"

/* Files that are empty in the image, as what is in them depends on the work tree's path. */
struct dotgit_inos {
	uint64_t index, here; /* .git/index, .git/bough/here */
};
/* Adds .git below inode 1, with the packs' contents: everything but the bytes of those. `entries`:
 * of the index. */
int dotgit_add(struct dotgit_inos *out, struct image_builder *b, struct co_inos *inos,
	       size_t entries, const struct pack_set *packs, const struct checkout_options *opt,
	       const struct checkout_spec *spec, struct err *err);
/* What .git/bough/here holds for a work tree that git sees at `path`; appended. */
void dotgit_here(struct buf *out, const char *path);
/* What .git/info/sparse-checkout holds for that scope; appended. */
void dotgit_sparse(struct buf *out, const struct checkout_spec *spec);

#endif
