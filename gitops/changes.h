/* What a workspace changed since a commit, as git would say it, from its layers and not by a
 * walk; and from that a tree, a commit, a merge.
 *
 * Workspaces are hostile: nothing of one is executed, its configuration is not read, its
 * .git is looked at as bounded regular files only (HEAD and one ref). */
#ifndef BOUGH_GITOPS_CHANGES_H
#define BOUGH_GITOPS_CHANGES_H

#include "fs/work/view.h"
#include "gitops/mirror.h"

enum change_kind {
	CHANGE_ADD = 'A',
	CHANGE_DELETE = 'D',
	CHANGE_MODIFY = 'M',
	CHANGE_RENAME = 'R',
	CHANGE_TYPE = 'T',
};

struct change {
	enum change_kind kind;
	char *path, *old_path;   /* old_path: CHANGE_RENAME only */
	uint32_t mode, old_mode; /* git's: 0100644, 0100755, 0120000, 0160000; 0: none */
	struct oid old_oid;      /* of the base's entry; zero: none */
	uint64_t ino;            /* in the view; 0 for CHANGE_DELETE */
	uint64_t size;
};

struct changes {
	struct change *v; /* in order of path */
	size_t n, cap;
	char **warnings; /* nested repositories that were skipped, special files, odd names */
	size_t nwarnings;
};
void changes_done(struct changes *c);
#define auto_changes __attribute__((cleanup(changes_done))) struct changes

struct changes_options {
	struct mirror *mirror;
	struct oid base;           /* a commit */
	const struct view *before; /* the tree as it was checked out: same lineage as `now` */
	const struct view *now;    /* sealed */
	const char *const *scopes; /* as in checkout_spec */
	size_t nscopes;
	bool ignored;    /* untracked files that .gitignore excludes count too */
	bool no_renames; /* deletes and adds stay apart */
};
/* Tracked files stay tracked even when ignored. Renames: equal contents first, then similar ones,
 * below a number of pairs and a deadline. -EBADMSG … */
int changes_find(struct changes *out, const struct changes_options *opt, struct err *err);

/* What HEAD of the inner .git says: 1 and the commit and (when on one) the branch; 0: nothing that
 * can be understood (no .git, a link, garbage), with the reason in *why. -errno */
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
int commit_make(struct oid *commit, struct mirror *m, const struct commit_spec *spec,
		struct err *err);

#endif
