/* libgit2 as this folder uses it: start, errors, ids. */
#ifndef BOUGH_GITOPS_GIT_H
#define BOUGH_GITOPS_GIT_H

#include <git2.h>
#if __has_include(<git2/sys/errors.h>) /* where 1.9 has git_error_clear */
#include <git2/sys/errors.h>
#endif
#include <string.h>
#include "fs/base/err.h"
#include "fs/store/gitrepo.h"

/* Once a process, before anything else here; any thread. Settings: strict object creation, no
 * search in the home's or the system's configuration, no ownership check (mirrors are ours),
 * objects are hashed when read. */
int gitops_init(struct err *err);

/* The one place where libgit2's errors become ours: gives -errno for the negative result `r`
 * of a call just made (GIT_ENOTFOUND: -ENOENT, GIT_EEXISTS: -EEXIST, GIT_EAMBIGUOUS:
 * -ENOTUNIQ, GIT_ECONFLICT and GIT_ENONFASTFORWARD: -ESTALE … ; else by the error's class:
 * odb, zlib: -EBADMSG, os: errno, nomemory: -ENOMEM; a commit without a proper author: -ENOTSUP)
 * and sets err to "<what>: <its words>". */
int git_fail(struct err *err, int r, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* What is wrong with an object that can't be understood: -ENOTSUP where its bytes are those that
 * its id says, so that it came like this with the repository; else -EBADMSG: it is damaged here. */
int git_bad_object(git_odb *odb, const git_oid *id);
/* As git_fail, of a call that looked an object up: -ENOTSUP as above. */
int git_fail_object(struct err *err, int r, git_repository *repo, const git_oid *id,
		    const char *fmt, ...) __attribute__((format(printf, 5, 6)));

static inline git_oid oid_to_git(const struct oid *o)
{
	git_oid g;
	memcpy(g.id, o->b, OID_BYTES);
	return g;
}
static inline struct oid oid_of_git(const git_oid *g)
{
	struct oid o;
	memcpy(o.b, g->id, OID_BYTES);
	return o;
}

/* Clean-up attributes for libgit2's types, e.g. auto_git_tree. */
#define GITOPS_AUTO(type)                             \
	static inline void type##_auto_done(type **p) \
	{                                             \
		type##_free(*p);                      \
	}
GITOPS_AUTO(git_repository)
GITOPS_AUTO(git_odb)
GITOPS_AUTO(git_odb_object)
GITOPS_AUTO(git_commit)
GITOPS_AUTO(git_tree)
GITOPS_AUTO(git_tree_entry)
GITOPS_AUTO(git_blob)
GITOPS_AUTO(git_tag)
GITOPS_AUTO(git_config)
GITOPS_AUTO(git_object)
GITOPS_AUTO(git_reference)
GITOPS_AUTO(git_revwalk)
GITOPS_AUTO(git_signature)
GITOPS_AUTO(git_index)
GITOPS_AUTO(git_diff)
GITOPS_AUTO(git_treebuilder)
#define auto_git(type) __attribute__((cleanup(type##_auto_done))) type *

#endif
