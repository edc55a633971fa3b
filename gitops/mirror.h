/* Mirrors: bare repositories with full history that boughd keeps, ROOT/repos/<8 hex digits>.
 *
 * Reading goes through libgit2. Moving data (fetch, push) and maintenance run the host's `git`, in
 * the mirror only, as a child that is killed at a deadline, with an environment and a
 * configuration of ours: no hooks, no system or user configuration, an allow-list of
 * protocols, credentials by a helper that reads a descriptor (never in arguments, environment or
 * files that git sees). Where no git is found, libgit2's own transport does it.
 *
 * A mirror is made in a folder with a temporary name and renamed when it is whole; an interrupted
 * fetch leaves no trace (a quarantine is git's own; temporary packs are removed) and the next one
 * starts over. Objects are never pruned, so what an image or a workspace refers to
 * stays; kept commits have a ref besides (mirror_keep).
 *
 * Threads: a struct mirror by one at a time; any number may be open. Functions that take
 * root and number: any, the caller holds the repository's lease against two fetches at once. */
#ifndef BOUGH_GITOPS_MIRROR_H
#define BOUGH_GITOPS_MIRROR_H

#include <stdbool.h>
#include <stdint.h>
#include "fs/base/buf.h"
#include "fs/base/err.h"
#include "fs/base/netaddr.h"
#include "gitops/git.h"

struct mirror;
/* -ENOENT: there is none of that number. */
int mirror_open(struct mirror **out, const char *root, uint32_t number, struct err *err);
void mirror_close(struct mirror *m); /* NULL allowed */
#define auto_mirror __attribute__((cleanup(mirror_auto_done))) struct mirror *
static inline void mirror_auto_done(struct mirror **m)
{
	mirror_close(*m);
}
/* A repository at `path`, which is made and goes with mirror_close: it shows all objects of `of`
 * and no refs, and what is written to it doesn't touch that one. What a killed process left there
 * is the caller's to remove. */
int mirror_scratch(struct mirror **out, const struct mirror *of, const char *path, struct err *err);
git_repository *mirror_repo(struct mirror *m); /* borrowed */
git_odb *mirror_odb(struct mirror *m);         /* borrowed; sees packs that came later */
uint32_t mirror_number(const struct mirror *m);
const char *mirror_path(const struct mirror *m);

/* What a person means by `ref`: NULL (the mirror's HEAD), a branch, a tag (peeled), a full ref
 * name, "origin/<branch>", "local/<branch>", or a commit's id (7 digits or more of it); each may
 * be followed by ~N and ^N (gitrevisions(7)). A branch, HEAD's too, is the other side's as the last
 * fetch or push saw it, refs/remotes/origin/<branch>; one that only is here, and "local/<branch>",
 * is refs/heads/<branch>, to which commits made here go. *commit is a commit; refname (NULL
 * allowed; the caller frees) the full name, or NULL for an id and behind ~N or ^N.
 * -ENOENT in words that name what is near; -ENOTUNIQ; -EINVAL: no commit. */
int mirror_resolve(struct mirror *m, const char *ref, struct oid *commit, char **refname,
		   struct err *err);

/* ---- mirror_branch.c: the other side's branches and those that are here ---- */

struct mirror_branch {
	char *name;
	struct oid upstream, local;
	bool has_upstream, has_local;
	/* Commits that only the local one, only the other side's has; -1: it wasn't counted. */
	long ahead, behind;
};
struct mirror_branches {
	struct mirror_branch *v; /* those whose two sides are different first, then by name */
	size_t n, different;     /* `different` counts no branch that the other side hasn't */
};
void mirror_branches_done(struct mirror_branches *b);
#define auto_mirror_branches __attribute__((cleanup(mirror_branches_done))) struct mirror_branches
/* Commits are counted for the first MIRROR_COUNTED of those that are different. */
enum { MIRROR_COUNTED = 20 };
int mirror_branches(struct mirror_branches *out, struct mirror *m, struct err *err);

struct mirror_reset {
	struct oid was, now; /* `was`: where there was one; `now`: only without `removed` */
	long lost;           /* commits that the branch had and has no more; kept (mirror_keep) */
	bool had, moved, removed; /* there was a local branch; it becomes another; it goes */
};
/* What it is to put the local branch to where the other side's is. Without force only where no
 * commit leaves it so; with force also one that the other side hasn't, which goes.
 * -ENOENT: no such branch; -ESTALE: commits would leave it. */
int mirror_reset_plan(struct mirror_reset *out, struct mirror *m, const char *branch, bool force,
		      struct err *err);
/* Does that. -ESTALE: the branch has moved since. */
int mirror_reset_branch(struct mirror *m, const char *branch, const struct mirror_reset *plan,
			struct err *err);

/* A ref that keeps the commit: refs/bough/keep/<hex>. Idempotent. */
int mirror_keep(struct mirror *m, const struct oid *commit, struct err *err);

/* Where a mirror's data comes from. Secrets are borrowed, never logged, wiped by who owns them. */
struct mirror_origin {
	const char *url;   /* https, http, ssh, git or scp-like; with credentials in it: -EINVAL */
	const char *token; /* for http(s): a token, or USER:PASSWORD; NULL: none */
	const char *ssh_key;     /* a private key's text; NULL: none */
	const char *known_hosts; /* its text; NULL: the host's own file decides nothing: refused */
	const struct netrules
		*guard; /* only public addresses and these; NULL: any, for callers on this host */
	bool elsewhere;          /* a push to another place: the mirror learns nothing of it */
	unsigned deadline_s;     /* of the whole transfer; 0: 3600 */
	unsigned stall_s;        /* without any progress; 0: 60 */
};
struct mirror_progress {
	/* A return other than 0 cancels: -ECANCELED. */
	int (*fn)(void *ctx, uint64_t done, uint64_t total, const char *what);
	void *ctx;
};
struct mirror_result {
	uint64_t refs_changed, objects, bytes;
};

/* -EEXIST: the number is taken. -ETIMEDOUT, -EACCES (authentication), -EHOSTUNREACH …: one line
 * that says what the other side said; nothing is left. SHA-256 repositories: -ENOTSUP. */
int mirror_clone(const char *root, uint32_t number, const struct mirror_origin *o,
		 const struct mirror_progress *p, struct mirror_result *res, struct err *err);
int mirror_fetch(const char *root, uint32_t number, const struct mirror_origin *o,
		 const struct mirror_progress *p, struct mirror_result *res, struct err *err);
/* The same from a tar stream of a repository's own files (objects/pack, loose objects, refs,
 * packed-refs, HEAD), which the command line makes with the caller's rights. Nothing else in it is
 * looked at; what a ref names must be there and whole (connectivity is checked). `number` may
 * exist: then it is a fetch. */
int mirror_take(const char *root, uint32_t number,
		ssize_t (*read)(void *ctx, void *buf, size_t n, struct err *err), void *ctx,
		const struct mirror_progress *p, struct mirror_result *res, struct err *err);
/* Appends the names (40 hex digits, a pack's checksum) of the packs that mirror_take has taken, and
 * "o" and the id of loose objects, one a line: who makes the stream may leave them out. */
int mirror_taken(const char *root, uint32_t number, struct buf *out, struct err *err);
/* Pushes `commit` to the origin's branch. `expect`: what the branch must be there now: an oid
 * (force-with-lease), or NULL: a fast-forward or a new branch only.
 * -ESTALE: not a fast-forward, or it moved. */
int mirror_push(const char *root, uint32_t number, const struct mirror_origin *o,
		const struct oid *commit, const char *branch, const struct oid *expect,
		const struct mirror_progress *p, struct err *err);
/* Geometric repack, multi-pack-index, commit-graph, with low priority; never drops an object. */
int mirror_maintain(const char *root, uint32_t number, const struct mirror_progress *p,
		    struct err *err);
/* Has it MIRROR_PACKS_MANY packs or more? Each commit that is made here is one, and each look for
 * an object goes through all. */
enum { MIRROR_PACKS_MANY = 50 };
bool mirror_crowded(const char *root, uint32_t number);
int mirror_remove(const char *root, uint32_t number, struct err *err); /* absent: 0 */
/* Once at the start, before anything else uses them: what an ended process left is removed, or
 * finished where all of it was there. */
int mirror_recover(const char *root, struct err *err);

/* Puts a branch of the mirror from `expect` (NULL: it doesn't exist) to `commit`, atomically.
 * -ESTALE: it is something else. */
int mirror_move_branch(struct mirror *m, const char *branch, const struct oid *expect,
		       const struct oid *commit, const char *why, struct err *err);

#endif
