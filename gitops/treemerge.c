#include "gitops/treemerge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "gitops/changes_impl.h"
#include "gitops/convert.h"
#include "gitops/gitname.h"
#include "gitops/history.h"
#include "gitops/treediff.h"
#include "gitops/treepaths.h"

struct merging {
	struct treemerge *out;
	git_repository *repo;
	git_tree *ours, *theirs;
	struct err *err;
};

void treemerge_done(struct treemerge *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->v[i].path);
	for (size_t i = 0; i < t->nconflicts; i++)
		free(t->conflicts[i].path);
	free(t->v);
	free(t->conflicts);
	git_tree_free(t->tree);
	*t = (struct treemerge){ 0 };
}

int treemerge_conflict(struct treemerge *t, const char *path, const char *why)
{
	char *copy = strdup(path);
	if (!copy || array_grow(&t->conflicts, t->nconflicts, &t->conflicts_cap) < 0) {
		free(copy);
		return -ENOMEM;
	}
	t->conflicts[t->nconflicts++] = (struct treemerge_conflict){ copy, why };
	return 0;
}

int treemerge_base(struct oid *out, struct mirror *m, const struct oid *a, const struct oid *b,
		   struct err *err)
{
	git_oid x = oid_to_git(a), y = oid_to_git(b), base;
	int r = history_base(&base, mirror_repo(m), &x, &y, err);
	if (r == -ENOENT)
		return 0;
	if (r > 0)
		*out = oid_of_git(&base);
	return r < 0 ? err_prefix(err, r, "look for the commit that both come from") : r;
}

/* ---- the merge ---- */

static const char *why_not(const git_index_entry *a, const git_index_entry *o,
			   const git_index_entry *t)
{
	if (o && t)
		return a ? "changed in both" : "new in both, and different";
	if (!a)
		return "in the way of what the other one has or moved";
	return o   ? "removed there, changed here"
	       : t ? "changed there, removed here"
		   : "moved to different places";
}

static int list_conflicts(struct merging *mg, git_index *ix)
{
	git_index_conflict_iterator *it;
	const git_index_entry *a, *o, *t;
	int r = git_index_conflict_iterator_new(&it, ix), e = 0;
	if (r < 0)
		return git_fail(mg->err, r, "list conflicts");
	while (e >= 0 && git_index_conflict_next(&a, &o, &t, it) == 0)
		e = treemerge_conflict(mg->out,
				       o   ? o->path
				       : t ? t->path
					   : a->path,
				       why_not(a, o, t));
	git_index_conflict_iterator_free(it);
	return e < 0 ? err_no_memory(mg->err) : 0;
}

/* A name that git wouldn't write, or that leads elsewhere. */
static bool is_bad_path(const char *path)
{
	for (const char *p = path;; p++) {
		size_t n = strcspn(p, "/");
		if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && memcmp(p, "..", 2) == 0) ||
		    gitname_is_dotgit(p, n))
			return true;
		p += n;
		if (!*p)
			return false;
	}
}

/* What is at the path: 1, 0 or -errno. */
static int entry_at(struct merging *mg, const git_tree *tree, const char *path, struct oid *oid,
		    uint32_t *mode)
{
	auto_git(git_tree_entry) e = NULL;
	int r = git_tree_entry_bypath(&e, tree, path);
	if (r == GIT_ENOTFOUND) {
		git_error_clear();
		return 0;
	}
	if (r < 0)
		return git_fail(mg->err, r, "read %.300s", path);
	*oid = oid_of_git(git_tree_entry_id(e));
	*mode = git_tree_entry_filemode(e);
	return 1;
}

static int on_path(void *ctx, const char *path, uint32_t old_mode, uint32_t mode)
{
	struct merging *mg = ctx;
	struct treemerge_entry e = { .old_mode = old_mode, .mode = mode };
	struct oid ours = { 0 }, theirs = { 0 };
	uint32_t m = 0, their_mode = 0;
	if (is_bad_path(path))
		return err_set(mg->err, -ENOTSUP, "git refuses the name %.300s", path);
	int r = mode ? entry_at(mg, mg->out->tree, path, &e.oid, &m) : 1;
	if (r == 0)
		return err_set(mg->err, -EBADMSG, "%.300s isn't in the merged tree", path);
	if (r >= 0)
		r = entry_at(mg, mg->ours, path, &ours, &m);
	if (r >= 0 && mode)
		r = entry_at(mg, mg->theirs, path, &theirs, &their_mode);
	if (r < 0)
		return r;
	e.same_content = mode && oid_equal(&e.oid, &ours) && (mode ^ old_mode) < 01000;
	e.merged = mode && !e.same_content && !oid_equal(&e.oid, &theirs);
	if (mode == MODE_GITLINK || old_mode == MODE_GITLINK)
		return treemerge_conflict(mg->out, path, "a submodule was changed there") < 0
			       ? err_no_memory(mg->err)
			       : 0;
	e.path = strdup(path);
	if (!e.path || array_grow(&mg->out->v, mg->out->n, &mg->out->cap) < 0) {
		free(e.path);
		return err_no_memory(mg->err);
	}
	mg->out->v[mg->out->n++] = e;
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct treemerge_entry *)a)->path,
		      ((const struct treemerge_entry *)b)->path);
}

static int list_entries(struct merging *mg, git_index *ix)
{
	git_oid id;
	int r = git_index_write_tree_to(&id, ix, mg->repo);
	if (r >= 0)
		r = git_tree_lookup(&mg->out->tree, mg->repo, &id);
	if (r < 0)
		return git_fail(mg->err, r, "write the merged tree");
	r = treediff(mg->repo, mg->ours, mg->out->tree, on_path, mg, mg->err);
	if (mg->out->n > 1)
		qsort(mg->out->v, mg->out->n, sizeof(*mg->out->v), by_path);
	return r;
}

/* libgit2 lets a file and a folder of one name through, of which its tree would have the folder
 * alone. */
static int list_clashes(struct merging *mg, git_index *ix)
{
	auto_free char *dir = strdup("");
	for (size_t i = 0; i < git_index_entrycount(ix) && dir; i++) {
		const char *path = git_index_get_byindex(ix, i)->path, *end = strrchr(path, '/');
		size_t n = end ? (size_t)(end - path) : 0;
		if (strncmp(dir, path, n) == 0 && !dir[n])
			continue; /* as the one before */
		free(dir);
		dir = strndup(path, n);
		for (size_t at = n; dir && at; at = end ? (size_t)(end - path) : 0) {
			auto_free char *above = strndup(path, at);
			if (!above)
				return err_no_memory(mg->err);
			if (git_index_get_bypath(ix, above, 0) &&
			    treemerge_conflict(mg->out, above,
					       "a file in one, a folder in the "
					       "other") < 0)
				return err_no_memory(mg->err);
			end = memrchr(path, '/', at);
		}
	}
	return dir ? 0 : err_no_memory(mg->err);
}

static int merge(struct merging *mg, const git_tree *base)
{
	auto_git(git_index) ix = NULL;
	git_merge_options opt;
	int r = git_merge_options_init(&opt, GIT_MERGE_OPTIONS_VERSION);
	if (r >= 0)
		r = git_merge_trees(&ix, mg->repo, base, mg->ours, mg->theirs, &opt);
	if (r < 0)
		return git_fail(mg->err, r, "merge");
	r = git_index_has_conflicts(ix) ? list_conflicts(mg, ix) : list_clashes(mg, ix);
	return r < 0 || mg->out->nconflicts > 0 ? r : list_entries(mg, ix);
}

static int tree_of(git_tree **out, git_repository *repo, const struct oid *tree, struct err *err)
{
	git_oid id = oid_to_git(tree);
	int r = git_tree_lookup(out, repo, &id);
	return r < 0 ? git_fail_object(err, r, repo, &id, "read a tree") : 0;
}

int treemerge_make(struct treemerge *out, struct mirror *scratch, const struct oid *base,
		   const struct oid *ours, const struct oid *theirs, struct err *err)
{
	auto_treemerge made = { 0 };
	auto_git(git_tree) b = NULL;
	auto_git(git_tree) o = NULL;
	auto_git(git_tree) t = NULL;
	int r = commit_tree(&b, scratch, base, err);
	if (r >= 0)
		r = tree_of(&o, mirror_repo(scratch), ours, err);
	if (r >= 0)
		r = tree_of(&t, mirror_repo(scratch), theirs, err);
	struct merging mg = { &made, mirror_repo(scratch), o, t, err };
	if (r >= 0) /* libgit2 walks all of it; the others come from work trees */
		r = treepaths_check(mg.repo, git_tree_id(b), err);
	if (r >= 0)
		r = merge(&mg, b);
	if (r < 0)
		return r;
	*out = made;
	made = (struct treemerge){ 0 };
	return 0;
}

/* ---- contents ---- */

/* The .gitattributes of one folder, the first `len` bytes of the path. */
static int add_attributes(struct merging *mg, struct attributes *a, const char *path, size_t len,
			  int *at)
{
	auto_free char *dir = strndup(path, len);
	auto_free char *name = NULL;
	auto_git(git_blob) blob = NULL;
	struct oid oid;
	uint32_t mode;
	if (!dir || asprintf(&name, "%s%s.gitattributes", dir, len ? "/" : "") < 0)
		return err_no_memory(mg->err);
	int r = entry_at(mg, mg->out->tree, name, &oid, &mode);
	if (r <= 0 || (mode != MODE_FILE && mode != MODE_EXEC))
		return r < 0 ? r : 0;
	git_oid id = oid_to_git(&oid);
	auto_git(git_odb) odb = NULL;
	git_object_t type;
	size_t size;
	r = git_repository_odb(&odb, mg->repo);
	if (r >= 0)
		r = git_odb_read_header(&size, &type, odb, &id);
	if (r >= 0 && size > ATTR_FILE_MAX) /* it doesn't count, as with git */
		return 0;
	if (r >= 0)
		r = git_blob_lookup(&blob, mg->repo, &id);
	if (r < 0)
		return git_fail(mg->err, r, "read %.300s", name);
	*at = attributes_add(a, *at, dir, git_blob_rawcontent(blob), git_blob_rawsize(blob),
			     mg->err);
	return *at < ATTR_NONE ? *at : 0;
}

static int conversion_at(struct merging *mg, struct attributes *a, const char *path,
			 struct conversion *out)
{
	struct attr_values v;
	int at = ATTR_NONE;
	int r = add_attributes(mg, a, path, 0, &at);
	for (const char *slash = path; r >= 0 && (slash = strchr(slash, '/')); slash++)
		r = add_attributes(mg, a, path, (size_t)(slash - path), &at);
	if (r < 0)
		return r;
	r = attributes_find(a, at, path, &v);
	if (r == -E2BIG)
		return err_set(mg->err, r, "the .gitattributes take too long to apply");
	if (r < 0)
		return err_no_memory(mg->err);
	conversion_of(out, &v);
	return 0;
}

int treemerge_content(struct buf *out, struct mirror *scratch, const struct treemerge *t,
		      const struct treemerge_entry *e, struct err *err)
{
	struct treemerge made = *t; /* only its tree is looked at */
	struct merging mg = { .out = &made, .repo = mirror_repo(scratch), .err = err };
	git_oid id = oid_to_git(&e->oid);
	auto_git(git_blob) blob = NULL;
	size_t size;
	git_object_t type;
	int r = git_odb_read_header(&size, &type, mirror_odb(scratch), &id);
	if (r < 0)
		return git_fail(err, r, "read %.300s", e->path);
	if (size > CONVERT_MAX)
		return err_set(err, -EFBIG, "%.300s is larger than %d MiB", e->path,
			       CONVERT_MAX >> 20);
	r = git_blob_lookup(&blob, mirror_repo(scratch), &id);
	if (r < 0)
		return git_fail(err, r, "read %.300s", e->path);
	const void *data = git_blob_rawcontent(blob);
	struct attributes *a = attributes_new();
	if (!a)
		return err_no_memory(err);
	struct conversion how = { 0 };
	if (e->mode != MODE_LINK) {
		r = conversion_at(&mg, a, e->path, &how);
		if (r >= 0)
			r = convert_out(out, &how, data, size, &e->oid);
		if (r == -ENOMEM)
			(void)err_no_memory(err);
	}
	attributes_free(a);
	if (r == 0) {
		buf_add(out, data, size);
		r = buf_error(out) < 0 ? err_no_memory(err) : 0;
	}
	return r < 0 ? r : 0;
}
