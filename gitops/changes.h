/* What a workspace changed since a commit, as git would say it, from its layers and not by a
 * walk; and from that a tree, a commit, a merge.
 *
 * Workspaces are hostile: nothing of one is executed, its configuration is not read, its
 * .git is looked at as bounded regular files only (HEAD and one ref).
 *
 *   changes.c         which paths, and what of each
 *   changes_rename.c  deletes and adds that belong together
 *   changes_text.c    contents of both sides
 *   changes_tree.c    the tree that results
 *   rules.c ignore.c togit.c   .gitignore, .gitattributes
 *   gitname.c         names that git or other systems refuse */
#ifndef BOUGH_GITOPS_CHANGES_H
#define BOUGH_GITOPS_CHANGES_H

#include "fs/base/buf.h"
#include "fs/work/view.h"
#include "gitops/mirror.h"

enum change_kind {
	CHANGE_ADD = 'A',
	CHANGE_DELETE = 'D',
	CHANGE_MODIFY = 'M',
	CHANGE_RENAME = 'R',
	CHANGE_TYPE = 'T',
};

struct path_attrs;
struct change {
	enum change_kind kind;
	uint8_t similarity;       /* CHANGE_RENAME: per cent */
	char *path, *old_path;    /* old_path: CHANGE_RENAME only */
	uint32_t mode, old_mode;  /* git's: 0100644, 0100755, 0120000, 0160000; 0: none */
	struct oid old_oid;       /* of the base's entry; zero: none */
	struct oid oid;           /* of what it is now; zero: none, or not computed */
	uint64_t ino;             /* in the view; 0 for CHANGE_DELETE */
	uint64_t size;            /* in the view */
	struct path_attrs *attrs; /* git add would convert it so; NULL: it wouldn't */
};

struct changes {
	struct change *v; /* in order of path */
	size_t n, cap;
	/* One line each: nested repositories that were skipped, special files, odd names. At most
	 * CHANGES_WARNINGS_MAX, the last one then says so. */
	char **warnings;
	size_t nwarnings, warnings_cap;
};
enum { CHANGES_WARNINGS_MAX = 200 };
void changes_done(struct changes *c);
/* Appends a line to the warnings. 0 or -ENOMEM. */
int changes_warn(struct changes *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define auto_changes __attribute__((cleanup(changes_done))) struct changes

struct changes_options {
	struct mirror *mirror;
	struct oid base;           /* a commit: what is compared with */
	struct oid checkout;       /* the commit that `before` shows; zero: base */
	const struct view *before; /* the tree as it was checked out: same lineage as `now` */
	const struct view *now;    /* sealed */
	const char *const *scopes; /* as in checkout_spec */
	size_t nscopes;
	/* What can't be converted as .gitattributes says is taken as it is, with a warning, as git
	 * diff does; else it is an error, as for git add: -EILSEQ, -ENOTSUP. */
	bool lenient;
	/* What the base has outside of the scope is told by its id alone (gitdiff_write). */
	bool hide_outside;
	bool ignored;    /* untracked files that .gitignore excludes count too */
	bool no_renames; /* deletes and adds stay apart */
};
/* Costs what changed since the checkout, and what the two commits differ in.
 *
 * Tracked is what `base` has. Tracked files stay tracked even when ignored; untracked ones that
 * .gitignore (nested ones too) or .git/info/exclude hides are left out. Paths outside of the
 * scope count only where something is there now. A difference in times, owners or xattrs is
 * none, and of a mode only the owner's x bit counts. What .gitattributes makes git convert is
 * compared as git would keep it; filter drivers (LFS …) aren't run: such files are taken as they
 * are, with a warning. Folders with a repository of their own and submodules are left alone.
 * Renames: equal contents first, then similar ones, below a number of pairs and a deadline.
 *
 * -ENOENT: no such commit; -ENOTSUP: a malformed one; -EBADMSG: a damaged object; -E2BIG:
 * patterns that take too long; -EIO: a damaged file; -ENOMEM. */
int changes_find(struct changes *out, const struct changes_options *opt, struct err *err);

/* Is the file at this path, or would it be, part of the checkout? */
bool changes_in_scope(const struct changes_options *opt, const char *path);

/* What a change's path has now, or had, as git keeps it, in *out (empty before). 1; or 0 where it
 * is larger than `max`: *out stays empty. *size is how large it is. A gitlink's is "". */
int change_content(struct buf *out, uint64_t *size, const struct changes_options *opt,
		   const struct change *c, uint64_t max, struct err *err);
int change_old_content(struct buf *out, uint64_t *size, const struct changes_options *opt,
		       const struct change *c, uint64_t max, struct err *err);

/* What HEAD of the inner .git says: 1 and the commit and (when on one) the branch, which the caller
 * frees; 0: nothing that can be understood (no .git, a link, garbage), with the reason, a
 * literal, in *why. -EIO, -ENOMEM. */
int inner_head(const struct view *now, struct oid *commit, char **branch, const char **why,
	       struct err *err);

/* The tree of `onto` (a commit) with the changes applied, its new objects in the mirror
 * (durable). Contents are converted as git add would (eol …). */
int changes_tree(struct oid *tree, const struct changes *c, const struct changes_options *opt,
		 const struct oid *onto, struct err *err);

struct commit_spec {
	struct oid tree, parent;
	const char *message, *author, *author_email; /* author NULL: bough's own */
	int64_t time_s;
	int offset_min;
};
/* Durable on return; who is named is author and committer. -EINVAL: a name or message that git
 * can't hold. */
int commit_make(struct oid *commit, struct mirror *m, const struct commit_spec *spec,
		struct err *err);

/* Both of these as one pack: changes_tree and commit_make with the objects put to `p`, which the
 * caller finishes before anything names them. */
struct packout;
int changes_tree_put(struct oid *tree, struct packout *p, const struct changes *c,
		     const struct changes_options *opt, const struct oid *onto, struct err *err);
int commit_put(struct oid *commit, struct packout *p, const struct commit_spec *spec,
	       struct err *err);

#endif
