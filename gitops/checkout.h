/* From a commit to the image of a workspace: its tree (or the part in scope) and a `.git` that
 * git itself takes for its own.
 *
 *   checkout.c    puts it together
 *   tree.c        the files: walk of the tree, sizes, conversions by .gitattributes
 *   index_file.c  .git/index with TREE, FSMN, UNTR and valid stat data
 *   pack_write.c  .git/objects/pack: what the workspace may see of the history, copied raw
 *   dotgit.c      HEAD, config, refs, shallow, hooks
 *
 * No file is written out: contents are addresses of blobs in the mirror (fs/store/gitrepo.h), or
 * objects of the store where git would convert them or they are larger than one object.
 * Two checkouts with equal specs give the same image, byte by byte, so they are built once.
 *
 * What secrecy rests on: nothing but objects reachable from the commit (within depth, and
 * blobs within scope) is in the image's packs; trees are all there, so names outside of the scope
 * are visible and contents aren't. */
#ifndef BOUGH_GITOPS_CHECKOUT_H
#define BOUGH_GITOPS_CHECKOUT_H

#include <sys/types.h>
#include "fs/base/hash.h"
#include "fs/image/image.h"
#include "fs/base/buf.h"
#include "fs/store/store.h"
#include "fs/work/stack.h"
#include "gitops/mirror.h"

enum {
	SCOPES_MAX = 64,
	SCOPE_BYTES_MAX = 4096,
};

struct checkout_spec {
	struct oid commit;
	const char *branch; /* HEAD is refs/heads/<branch>; NULL: detached */
	const char
		*upstream; /* origin's branch that it follows, as refs/remotes/origin/<it>; NULL */
	/* Where that ref is: the commit or an ancestor that is in its history (within depth); NULL:
	 * the commit. */
	const struct oid *tracked;
	const char *const *scopes; /* folders of a cone, without slashes at the ends; sorted */
	size_t nscopes;            /* 0: everything */
	unsigned depth;            /* commits of history; 0: all */
	uid_t uid;
	gid_t gid;
	int64_t time_s;         /* of every file: min(commit time, fetch time), whole seconds */
	const char *origin_url; /* for .git/config, without credentials; NULL: none */
};

struct checkout_known {
	struct oid commit;
	struct digest image;
};

struct checkout_options {
	struct mirror *mirror;
	struct store_session *session;
	struct store *store; /* the session's, for reading; NULL: `known` isn't looked at */
	const struct io *io; /* for the image and the mirror's packs; NULL: the host's */
	const char *images;  /* folder where the image is published */
	uint64_t seed;       /* of name_hash */
	/* Takes n numbers off the store-wide counter. */
	int (*reserve)(void *ctx, uint64_t n, uint64_t *first, struct err *err);
	void *reserve_ctx;
	int (*progress)(void *ctx, uint64_t done, uint64_t total,
			const char *what); /* NULL: none */
	void *progress_ctx;
	/* Images of other commits of that repository that are in `images`, and stay until the
	 * build is over: one that is an ancestor, whole in history and of the same scope, lends
	 * its packs, so that only the difference is written. One that is a descendant tells what
	 * the commit's history holds, which spares the look through it. The others do no harm.
	 * Left empty, checkout_build takes those that it has made itself. */
	const struct checkout_known *known;
	size_t nknown;
	/* Commits that are looked at before it counts as far from them all; 0: the usual. */
	unsigned near;
};

enum {
	CHECKOUT_META_MAX = 256,
	CHECKOUT_NAMES = 20, /* paths that are told of each kind */
	CHECKOUT_NAMES_BYTES = 4096,
	CHECKOUT_KEEP_S = 14 * 24 * 3600, /* for how long gc keeps what nobody uses */
};

/* The first paths of a kind, each with a zero behind it; long ones may be left out. */
struct checkout_names {
	uint32_t n, len;
	char text[CHECKOUT_NAMES_BYTES];
};

struct checkout_result {
	struct digest image;
	uint64_t seed;            /* of the image, so of every stack with it */
	uint64_t files, bytes;    /* in scope */
	uint64_t submodules, lfs; /* empty folders; pointers left as they are */
	struct checkout_names submodule_names, lfs_names;
	/* .git/index in the image: its number, and how long the two parts are that all paths have
	 * in common; and what checkout_stack needs to make the others. */
	uint64_t index_ino, index_head, index_rest;
	uint64_t here_ino; /* of .git/bough/here, which checkout_stack fills as well */
	uint8_t index_meta[CHECKOUT_META_MAX];
	uint32_t index_meta_len;
};

/* Builds the image, and remembers it beside the mirror (MIRROR.checkouts/). Contents are synced
 * before the image is published; it is kept by gc as long as something names it, or
 * checkout_each does.
 * -ENOENT: a scope that isn't a folder of the commit (err names it); -ENOTSUP: the commit
 * is malformed (err says where); -EBADMSG: an object is damaged; -EFBIG; -ECANCELED. */
int checkout_build(struct checkout_result *out, const struct checkout_options *opt,
		   const struct checkout_spec *spec, struct err *err);
/* 1 and what an earlier checkout_build of an equal spec gave, which counts as used now; 0: none, or
 * its image is gone or damaged. -errno. */
int checkout_find(struct checkout_result *out, const struct checkout_options *opt,
		  const struct checkout_spec *spec, struct err *err);
/* A name for the spec, the same for equal ones: who builds holds a lock of that name. */
void checkout_key(struct digest *out, const struct checkout_options *opt,
		  const struct checkout_spec *spec);

/* A stack of that image and, above it, a delta with the rest of .git/index for a work tree that is
 * seen at `path`: what the workspace is made from. Of `opt` session, store, io and images count.
 * Its objects are durable after store_sync(session). */
int checkout_stack(struct stack *out, const struct checkout_result *co,
		   const struct checkout_options *opt, const char *path, struct err *err);

/* For gc. Calls fn with the image of each checkout under ROOT/repos that was used in the last
 * keep_s seconds; forgets the others, those whose repository is gone, and those for which fn gives
 * -ESTALE. Another failure of fn ends the listing. Nobody may be in
 * checkout_find or checkout_build's beginning meanwhile: the caller has a lock for the three. */
int checkout_each(const char *repos, int64_t keep_s,
		  int (*fn)(void *ctx, const struct digest *image), void *ctx, struct err *err);

#endif
