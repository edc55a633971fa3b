/* Lists of refs, the file packed-refs (gitrepository-layout(5), git-pack-refs(1)), and what a
 * fetch makes of a mirror's refs. Pure.
 *
 * In a mirror the other side's branches are refs/remotes/origin/<branch>, only ever in packed-refs;
 * so one rename of that file moves all of them. refs/heads/<branch> begins as the same
 * and follows, until a commit is made on it here (mirror_move_branch); then it follows again once
 * the other side has that commit. Tags are the other side's. */
#ifndef BOUGH_GITOPS_REFS_H
#define BOUGH_GITOPS_REFS_H

#include <stddef.h>
#include "fs/base/buf.h"
#include "fs/base/err.h"
#include "fs/store/gitrepo.h"

enum {
	REFS_MAX = 1 << 20,
	REF_NAME_SIZE = 1024,
	REFS_FILE_MAX = 256 << 20, /* bytes of packed-refs */
};
#define REFS_ORIGIN "refs/remotes/origin/"
#define REFS_HEADS  "refs/heads/"
#define REFS_TAGS   "refs/tags/"

struct ref {
	char *name;
	struct oid oid;
};
struct refs {
	struct ref *v;
	size_t n, cap;
};
void refs_done(struct refs *r);
#define auto_refs __attribute__((cleanup(refs_done))) struct refs

/* -ENOMEM; -E2BIG above REFS_MAX. The name is copied. */
int refs_add(struct refs *r, const char *name, const struct oid *oid);
void refs_sort(struct refs *r);
/* In a sorted list; NULL. */
const struct ref *refs_find(const struct refs *r, const char *name);

/* Any bytes of a packed-refs: 0 and a sorted list (peeled values are left out), -EBADMSG,
 * -ENOMEM. Names are those that git allows. */
int packed_refs_parse(struct refs *out, const void *data, size_t len);
/* A whole file of a sorted list; failures stay in the buf. */
void packed_refs_write(struct buf *out, const struct refs *r);

/* True: `now` has all of the commits of `was`. */
struct refs_merge {
	bool (*descends)(void *ctx, const struct oid *now, const struct oid *was);
	/* The value of a loose ref of the mirror: 1, 0 (none), -errno. */
	int (*loose)(void *ctx, const char *name, struct oid *out);
	void *ctx;
};
/* What packed-refs becomes: `out` sorted, from the mirror's present file and what the other side
 * has now (sorted, names in REFS_ORIGIN and REFS_TAGS only). `moves`: loose branches to be moved
 * after that by compare and swap, each with a value in `from` (same index) and in `moves`,
 * all zero there: it goes. *changed: how many of the other side's refs are new, gone or moved. */
int refs_merge(struct refs *out, struct refs *moves, struct refs *from, uint64_t *changed,
	       const struct refs *mine, const struct refs *theirs, const struct refs_merge *m,
	       struct err *err);

/* A name that git would allow for a ref. */
bool ref_name_ok(const char *name);
/* A name for a branch that somebody chooses: one that git allows, isn't taken for an option, means
 * nothing else ("HEAD", "refs/…"), and whose parts fit a folder, with git's ".lock". */
bool branch_name_ok(const char *branch);

#endif
