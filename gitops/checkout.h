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
	 * its packs, so that only the difference is written. The others do no harm. */
	const struct checkout_known *known;
	size_t nknown;
};

struct checkout_result {
	struct digest image;
	uint64_t files, bytes;    /* in scope */
	uint64_t submodules, lfs; /* empty folders; pointers left as they are */
	uint64_t index_ino;       /* of .git/index … */
	uint64_t index_head;      /* … whose first bytes are the same for every path … */
	struct digest index_meta; /* … and the object that index_tail makes the rest from */
};

/* 0; everything is durable after store_sync(session), and the caller names the image before the
 * session ends. -ENOENT: a scope that isn't a folder of the commit (err names it); -EBADMSG:
 * a damaged object; -ENOTSUP; -ECANCELED. */
int checkout_build(struct checkout_result *out, const struct checkout_options *opt,
		   const struct checkout_spec *spec, struct err *err);

/* The rest of .git/index (from index_head on, its checksum included) for a work tree that is seen
 * at `path`: the untracked cache is valid for the paths that it names only, the file monitor's
 * token is that of the image. Appends to *out. */
int checkout_index_tail(struct buf *out, struct store *store, const struct checkout_result *co,
			const char *const *paths, size_t npaths, struct err *err);

/* A stack of that image and, above it, a delta with that tail: what the workspace is made from. */
int checkout_stack(struct stack *out, const struct checkout_result *co, uint64_t seed,
		   struct store_session *session, const struct buf *tail, struct err *err);

#endif
