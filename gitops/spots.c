/* What the layers tell is where something was made, removed, renamed or written; of a folder that
 * came, went or moved all that is below it, here and in the commit. */
#include "gitops/spots.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/work/diff.h"
#include "fs/work/tree_names.h"
#include "gitops/treediff.h"

struct finder {
	struct spots *out;
	const struct changes_options *opt;
	git_tree *base;
	struct err *err;
};

static int no_memory(struct finder *f)
{
	return err_no_memory(f->err);
}

static bool in_git_folder(const char *path)
{
	return strncmp(path, ".git", 4) == 0 && (!path[4] || path[4] == '/');
}

static int add_spot(struct finder *f, const char *path, size_t len, bool content)
{
	if (len == 0 || in_git_folder(path))
		return 0;
	char *own = strndup(path, len);
	if (!own || array_grow(&f->out->v, f->out->n, &f->out->cap) < 0) {
		free(own);
		return no_memory(f);
	}
	f->out->v[f->out->n++] = (struct spot){ own, content };
	return 0;
}

/* A folder that is still to be listed: its inode in `now`, or its tree. */
struct todo {
	uint64_t ino;
	git_oid tree;
	char *path;
};
struct todos {
	struct todo *v;
	size_t n, cap;
};

static void todos_done(struct todos *t)
{
	while (t->n > 0)
		free(t->v[--t->n].path);
	free(t->v);
}

static char *join(const char *dir, const char *name, size_t len)
{
	char *p = NULL;
	return asprintf(&p, "%s/%.*s", dir, (int)len, name) < 0 ? NULL : p;
}

static int push(struct finder *f, struct todos *t, uint64_t ino, const git_oid *tree, char *path)
{
	if (!path || array_grow(&t->v, t->n, &t->cap) < 0) {
		free(path);
		return no_memory(f);
	}
	t->v[t->n] = (struct todo){ .ino = ino, .path = path };
	if (tree)
		t->v[t->n].tree = *tree;
	t->n++;
	return 0;
}

static int list_now(struct finder *f, struct todos *todos, const struct todo *t)
{
	auto_names names = { 0 };
	int r = names_all(&names, f->opt->now, t->ino);
	if (r < 0)
		return err_sys(f->err, r, "list %s", t->path);
	for (size_t i = 0; i < names.n && r >= 0; i++) {
		const struct name *n = names.v[i];
		char *path = join(t->path, n->text, n->len);
		r = path ? add_spot(f, path, strlen(path), false) : no_memory(f);
		if (r >= 0 && n->type == DT_DIR)
			r = push(f, todos, n->ino, NULL, path);
		else
			free(path);
	}
	return r;
}

static int list_tree(struct finder *f, struct todos *todos, const struct todo *t)
{
	auto_git(git_tree) tree = NULL;
	int r = git_tree_lookup(&tree, mirror_repo(f->opt->mirror), &t->tree);
	if (r < 0)
		return git_fail_object(f->err, r, mirror_repo(f->opt->mirror), &t->tree, "list %s",
				       t->path);
	for (size_t i = 0; i < git_tree_entrycount(tree) && r >= 0; i++) {
		const git_tree_entry *e = git_tree_entry_byindex(tree, i);
		const char *name = git_tree_entry_name(e);
		char *path = join(t->path, name, strlen(name));
		r = path ? add_spot(f, path, strlen(path), false) : no_memory(f);
		if (r >= 0 && git_tree_entry_type(e) == GIT_OBJECT_TREE)
			r = push(f, todos, 0, git_tree_entry_id(e), path);
		else
			free(path);
	}
	return r;
}

/* All that is below a folder of `now` (ino), or of the commit. */
static int list_below(struct finder *f, uint64_t ino, const git_oid *tree, const char *path)
{
	struct todos todos = { 0 };
	if (in_git_folder(path))
		return 0;
	int r = push(f, &todos, ino, tree, strdup(path));
	while (todos.n > 0 && r >= 0) {
		struct todo t = todos.v[--todos.n];
		r = t.ino ? list_now(f, &todos, &t) : list_tree(f, &todos, &t);
		free(t.path);
	}
	todos_done(&todos);
	return r;
}

static int list_base_below(struct finder *f, const char *path)
{
	auto_git(git_tree_entry) e = NULL;
	int r = git_tree_entry_bypath(&e, f->base, path);
	if (r == GIT_ENOTFOUND)
		return 0;
	if (r < 0)
		return git_fail(f->err, r, "%s", path);
	return git_tree_entry_type(e) == GIT_OBJECT_TREE
		       ? list_below(f, 0, git_tree_entry_id(e), path)
		       : 0;
}

/* Of a file with several names only one is told as changed: the one it was checked out as is
 * looked at too, and names that came since are told anyway. */
static int add_first_name(struct finder *f, uint64_t ino)
{
	auto_free char *path = NULL;
	struct attr a;
	int r = view_inode(f->opt->before, ino, &a);
	if (r >= 0 && a.nlink > 0)
		r = view_path(f->opt->before, ino, &path);
	if (r == -ENOENT || (r >= 0 && !path))
		return 0;
	if (r < 0)
		return err_sys(f->err, r, "inode %llu", (unsigned long long)ino);
	return add_spot(f, path, strlen(path), true);
}

/* A folder that both trees have, at different paths, isn't told with what is in it. */
static int add_folder(struct finder *f, const struct diff_entry *e)
{
	const char *old = e->kind == DIFF_DELETED ? e->path : e->old_path;
	struct attr a = { 0 };
	int r = 0;
	if (old && S_ISDIR(e->old_attr.mode))
		r = list_base_below(f, old);
	if (r < 0 || e->kind == DIFF_DELETED || !S_ISDIR(e->new_attr.mode))
		return r;
	r = view_inode(f->opt->before, e->new_attr.ino, &a);
	if (r < 0 && r != -ENOENT)
		return err_sys(f->err, r, "look at %s", e->path);
	return a.nlink > 0 ? list_below(f, e->new_attr.ino, NULL, e->path) : 0;
}

static int on_entry(void *ctx, const struct diff_entry *e)
{
	struct finder *f = ctx;
	bool content = e->what & (DIFF_CONTENT | DIFF_TARGET) ||
		       (e->kind != DIFF_RENAMED && e->kind != DIFF_MODIFIED);
	int r = add_spot(f, e->path, strlen(e->path), content);
	if (r >= 0 && e->old_path)
		r = add_spot(f, e->old_path, strlen(e->old_path), false);
	if (r >= 0 && e->kind != DIFF_MODIFIED)
		r = add_folder(f, e);
	if (r >= 0 && !S_ISDIR(e->new_attr.mode) && e->new_attr.nlink > 1)
		r = add_first_name(f, e->new_attr.ino);
	return r;
}

static int on_difference(void *ctx, const char *path, uint32_t old_mode, uint32_t mode)
{
	return add_spot(ctx, path, strlen(path), false);
}

static int by_spot(const void *a, const void *b)
{
	return strcmp(((const struct spot *)a)->path, ((const struct spot *)b)->path);
}

static void sort(struct spots *s)
{
	size_t n = 0;
	if (s->n > 1)
		qsort(s->v, s->n, sizeof(*s->v), by_spot);
	for (size_t i = 0; i < s->n; i++) {
		if (n > 0 && strcmp(s->v[n - 1].path, s->v[i].path) == 0) {
			s->v[n - 1].content |= s->v[i].content;
			free(s->v[i].path);
		} else {
			s->v[n++] = s->v[i];
		}
	}
	s->n = n;
}

/* All of a checkout's files have one time, and nothing in a workspace can be given it later. */
static int ask_layers(struct finder *f)
{
	const struct changes_options *opt = f->opt;
	struct attr root;
	int r = view_inode(opt->before, 1, &root);
	if (r < 0 && r != -ENOENT)
		return err_sys(f->err, r, "look at the tree as it was checked out");
	return diff_views_since(opt->before, opt->now, r < 0 ? NULL : &root.ctime, on_entry, f,
				f->err);
}

void spots_done(struct spots *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->v[i].path);
	free(s->v);
	*s = (struct spots){ 0 };
}

int spots_find(struct spots *out, const struct changes_options *opt, git_tree *base,
	       git_tree *checkout, struct err *err)
{
	struct finder f = { .out = out, .opt = opt, .base = base, .err = err };
	int r = ask_layers(&f);
	if (r >= 0 && !git_oid_equal(git_tree_id(checkout), git_tree_id(base)))
		r = treediff(mirror_repo(opt->mirror), checkout, base, on_difference, &f, err);
	if (r >= 0)
		sort(out);
	return r;
}
