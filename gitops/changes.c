/* Which paths differ from a commit, and how.
 *
 * The layers, and the difference of the two commits where there are two, only say where to look
 * (spots.h); what counts is what is at such a path now, and what the commit has there. So it
 * doesn't matter how often, or in what order, something was moved. */
#include "gitops/changes_impl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "gitops/gitname.h"
#include "gitops/spots.h"
#include "gitops/togit.h"
#include "gitops/viewfile.h"

/* A folder on the way to the present path. */
struct folder {
	size_t len;     /* of its path; the root: 0 */
	uint64_t ino;   /* in `now`; 0: there is none */
	git_tree *base; /* NULL: the commit has none there */
	/* Why nothing below it is looked at. */
	enum { OPEN, INNER_GIT, NESTED, SUBMODULE, ODD } closed;
};

/* The trees of a commit, asked for paths that often lie side by side. */
struct tree_at {
	git_tree *root, *dir;
	char *dir_path;
};

struct finder {
	const struct changes_options *opt;
	struct changes *out;
	struct rules *rules, *old_rules; /* of `now` and `before` */
	git_tree *base;
	struct tree_at checkout;
	size_t moved_ignored; /* files of the checkout that were left out where they are now */
	struct spots spots;
	struct folder *way;
	size_t nway, way_cap;
	struct err *err;
};

static int no_memory(struct finder *f)
{
	return err_no_memory(f->err);
}

/* ---- results ---- */

void changes_done(struct changes *c)
{
	for (size_t i = 0; i < c->n; i++) {
		free(c->v[i].path);
		free(c->v[i].old_path);
		free(c->v[i].attrs);
	}
	for (size_t i = 0; i < c->nwarnings; i++)
		free(c->warnings[i]);
	free(c->v);
	free(c->warnings);
	*c = (struct changes){ 0 };
}

int changes_warn(struct changes *c, const char *fmt, ...)
{
	if (c->nwarnings == CHANGES_WARNINGS_MAX)
		return 0;
	char *line = NULL;
	va_list ap;
	va_start(ap, fmt);
	int n = c->nwarnings + 1 == CHANGES_WARNINGS_MAX
			? asprintf(&line, "more warnings were left out")
			: vasprintf(&line, fmt, ap);
	va_end(ap);
	if (n < 0)
		return -ENOMEM;
	if (array_grow(&c->warnings, c->nwarnings, &c->warnings_cap) < 0) {
		free(line);
		return -ENOMEM;
	}
	c->warnings[c->nwarnings++] = line;
	return 0;
}

static int by_change(const void *pa, const void *pb)
{
	const struct change *a = pa, *b = pb;
	int c = strcmp(a->path, b->path);
	return c ? c : (b->kind == CHANGE_DELETE) - (a->kind == CHANGE_DELETE);
}

void changes_sort(struct changes *c)
{
	if (c->n > 1)
		qsort(c->v, c->n, sizeof(*c->v), by_change);
}

/* ---- trees of commits ---- */

int commit_tree(git_tree **out, struct mirror *m, const struct oid *commit, struct err *err)
{
	git_oid id = oid_to_git(commit);
	auto_git(git_commit) c = NULL;
	int r = git_commit_lookup(&c, mirror_repo(m), &id);
	if (r >= 0)
		r = git_commit_tree(out, c);
	char hex[OID_HEX + 1];
	oid_hex(hex, commit);
	return r < 0 ? git_fail_object(err, r, mirror_repo(m), &id, "commit %.12s", hex) : 0;
}

static void tree_at_done(struct tree_at *t)
{
	git_tree_free(t->dir);
	git_tree_free(t->root);
	free(t->dir_path);
}

/* The entry at a path, borrowed until the next call; NULL: none. */
static int tree_at_find(const git_tree_entry **out, struct tree_at *t, const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;
	*out = NULL;
	if (!slash) {
		*out = git_tree_entry_byname(t->root, path);
		return 0;
	}
	if (!t->dir_path || strlen(t->dir_path) != len || memcmp(t->dir_path, path, len) != 0) {
		auto_git(git_tree_entry) e = NULL;
		git_tree_free(steal_ptr(&t->dir));
		free(t->dir_path);
		t->dir_path = strndup(path, len);
		if (!t->dir_path)
			return -ENOMEM;
		int r = git_tree_entry_bypath(&e, t->root, t->dir_path);
		if (r >= 0 && git_tree_entry_type(e) == GIT_OBJECT_TREE)
			r = git_tree_lookup(&t->dir, git_tree_owner(t->root), git_tree_entry_id(e));
		if (r < 0 && r != GIT_ENOTFOUND)
			return r;
	}
	if (t->dir)
		*out = git_tree_entry_byname(t->dir, slash + 1);
	return 0;
}

/* ---- the way to a path ---- */

bool changes_in_scope(const struct changes_options *opt, const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t dir = slash ? (size_t)(slash - path) : 0;
	if (opt->nscopes == 0 || dir == 0)
		return true;
	for (size_t i = 0; i < opt->nscopes; i++) {
		const char *s = opt->scopes[i];
		size_t n = strlen(s);
		if (n <= dir && memcmp(s, path, n) == 0 && path[n] == '/')
			return true;
		if (n > dir && memcmp(s, path, dir) == 0 && s[dir] == '/')
			return true; /* files of the folders above a scope are there */
	}
	return false;
}

/* A folder in which git would look for no files of ours: it has a repository of its own. */
static int has_repository(struct finder *f, uint64_t ino)
{
	static const char *const parts[] = { "HEAD", "objects", "refs" };
	struct attr git, a;
	int r = viewfile_at(f->opt->now, ino, ".git", 4, &git);
	if (r >= 0 && S_ISDIR(git.mode)) {
		for (size_t i = 0; i < 3 && r >= 0; i++)
			r = viewfile_at(f->opt->now, git.ino, parts[i], strlen(parts[i]), &a);
		return r == -ENOENT ? 0 : r < 0 ? r : 1;
	}
	return r == -ENOENT ? 0 : r < 0 ? r : S_ISREG(git.mode);
}

/* Fills the folder `name`, in the folder `up`. */
static int open_folder(struct finder *f, struct folder *in, const struct folder *up,
		       const char *path, const char *name, size_t name_len)
{
	struct attr a = { 0 };
	int r = up->ino ? viewfile_at(f->opt->now, up->ino, name, name_len, &a) : -ENOENT;
	if (r < 0 && r != -ENOENT)
		return err_sys(f->err, r, "look at %s", path);
	in->ino = S_ISDIR(a.mode) ? a.ino : 0;
	auto_free char *own = strndup(name, name_len);
	if (!own)
		return no_memory(f);
	const git_tree_entry *e = up->base ? git_tree_entry_byname(up->base, own) : NULL;
	if (e && git_tree_entry_type(e) == GIT_OBJECT_TREE) {
		r = git_tree_lookup(&in->base, mirror_repo(f->opt->mirror), git_tree_entry_id(e));
		return r < 0 ? git_fail(f->err, r, "tree of %s", path) : 0;
	}
	if (strcmp(own, ".git") == 0) {
		in->closed = INNER_GIT;
		return changes_warn(f->out, "%.*s: what is in it is left out", (int)in->len, path);
	}
	if (gitname_is_dotgit(name, name_len)) {
		in->closed = ODD;
		return changes_warn(f->out, "%.*s: no tree can have that name, so it is left out",
				    (int)in->len, path);
	}
	if (e && git_tree_entry_filemode(e) == GIT_FILEMODE_COMMIT) {
		in->closed = SUBMODULE;
		return changes_warn(f->out, "%.*s: a submodule, which is left as it was",
				    (int)in->len, path);
	}
	r = in->ino ? has_repository(f, in->ino) : 0;
	if (r < 0)
		return err_sys(f->err, r, "look at %s", path);
	if (r > 0) {
		in->closed = NESTED;
		return changes_warn(f->out, "%.*s: a repository of its own, which is left out",
				    (int)in->len, path);
	}
	return 0;
}

static void leave(struct finder *f)
{
	git_tree_free(f->way[--f->nway].base);
}

/* Makes the way that of the folders above `path`; prev is where it led before. */
static int go_to(struct finder *f, const char *prev, const char *path)
{
	while (f->nway > 1) {
		size_t n = f->way[f->nway - 1].len;
		if (strncmp(prev, path, n) == 0 && path[n] == '/')
			break;
		leave(f);
	}
	size_t at = f->way[f->nway - 1].len;
	at += at > 0;
	for (const char *slash; (slash = strchr(path + at, '/')); at = (size_t)(slash - path) + 1) {
		if (f->way[f->nway - 1].closed != OPEN)
			return 0;
		if (f->nway > CHANGE_DEPTH_MAX)
			return err_set(f->err, -ENAMETOOLONG, "more than %d folders deep: %.60s…",
				       CHANGE_DEPTH_MAX, path);
		if (array_grow(&f->way, f->nway, &f->way_cap) < 0)
			return no_memory(f);
		struct folder in = { .len = (size_t)(slash - path) };
		int r = open_folder(f, &in, &f->way[f->nway - 1], path, path + at,
				    (size_t)(slash - path) - at);
		f->way[f->nway++] = in;
		if (r < 0)
			return r == -ENOMEM ? no_memory(f) : r;
	}
	return 0;
}

/* ---- what is at a path ---- */

static int warned(struct finder *f, int r)
{
	return r < 0 ? no_memory(f) : 0;
}

static int add_change(struct finder *f, const struct change *c, const char *path)
{
	struct change own = *c;
	own.path = strdup(path);
	if (!own.path || array_grow(&f->out->v, f->out->n, &f->out->cap) < 0) {
		free(own.path);
		return no_memory(f);
	}
	f->out->v[f->out->n++] = own;
	return 0;
}

/* The path that a living inode was checked out at; NULL: it came since. */
static int first_path(struct finder *f, const struct attr *a, struct attr *old, char **path)
{
	*path = NULL;
	int r = view_inode(f->opt->before, a->ino, old);
	if (r >= 0 && old->nlink > 0)
		r = view_path(f->opt->before, a->ino, path);
	if (r < 0 && r != -ENOENT)
		return err_sys(f->err, r, "inode %llu", (unsigned long long)a->ino);
	return 0;
}

/* Is what the work tree has there the same to git as what was checked out at the other path? Not
 * where one of them is converted: what git keeps of it is another content then. 1, 0, -errno. */
static int same_rules(struct finder *f, const char *was, const char *is)
{
	struct path_attrs old, now;
	if (strcmp(was, is) == 0)
		return 1;
	int r = rules_attrs(f->old_rules, was, &old, f->err);
	if (r >= 0)
		r = rules_attrs(f->rules, is, &now, f->err);
	return r < 0 ? r : path_attrs_same(&old, &now);
}

/* The id of the file at `now` whose content is, as its layers say, what was checked out at `path`:
 * 1; 0: it isn't known. */
static int known_oid(struct finder *f, const struct attr *a, const struct attr *old,
		     const char *path, const char *now, struct oid *out)
{
	const git_tree_entry *e;
	/* Of a file with several names, the layers tell only one of them as changed. */
	if (!path || ((old->mode ^ a->mode) & S_IFMT) || old->size != a->size || a->nlink != 1)
		return 0;
	int r = S_ISREG(a->mode) ? same_rules(f, path, now) : 1;
	if (r <= 0)
		return r;
	r = tree_at_find(&e, &f->checkout, path);
	if (r < 0)
		return r == -ENOMEM ? no_memory(f) : git_fail(f->err, r, "%s", path);
	if (!e || git_tree_entry_type(e) != GIT_OBJECT_BLOB)
		return 0;
	*out = oid_of_git(git_tree_entry_id(e));
	return 1;
}

/* Can it be converted? Asked here, so that what isn't is told before anything is made of it. */
static int check_encoding(struct finder *f, struct change *c, const char *path)
{
	auto_buf text = { 0 };
	struct err why = { 0 };
	int r = change_convert(&text, f->opt, c, TOGIT_MAX, &why);
	if (r >= 0)
		return 0;
	if (!f->opt->lenient || (r != -EILSEQ && r != -ENOTSUP))
		return err_set(f->err, r, "%s: %s", path, why.text);
	c->attrs->encoding[0] = '\0';
	return warned(f, changes_warn(f->out, "%s: it is taken as it is: %s", path, why.text));
}

static int set_attrs(struct finder *f, struct change *c, const char *path)
{
	struct path_attrs attrs;
	if (c->mode == MODE_LINK)
		return 0;
	int r = rules_attrs(f->rules, path, &attrs, f->err);
	if (r < 0)
		return r;
	if (attrs.filter)
		r = warned(f, changes_warn(f->out, "%s: its filter isn't run: it is taken as it is",
					   path));
	if (r < 0 || !path_attrs_convert(&attrs))
		return r;
	c->attrs = malloc(sizeof(*c->attrs));
	if (!c->attrs)
		return no_memory(f);
	*c->attrs = attrs;
	return attrs.encoding[0] ? check_encoding(f, c, path) : 0;
}

/* Is the content that c->ino has now what the commit has (c->old_oid)? 1, 0 or -errno. */
static int same_as_base(struct finder *f, struct change *c, const struct attr *a,
			const struct spot *s)
{
	auto_free char *path = NULL;
	struct attr old;
	int r = s->content ? 0 : first_path(f, a, &old, &path);
	if (r >= 0 && path)
		r = known_oid(f, a, &old, path, s->path, &c->oid);
	if (r != 0)
		return r < 0 ? r : oid_equal(&c->oid, &c->old_oid);
	r = set_attrs(f, c, s->path);
	if (r < 0)
		return r;
	if (!c->attrs) {
		git_oid id = oid_to_git(&c->old_oid);
		git_object_t type;
		size_t size;
		r = git_odb_read_header(&size, &type, mirror_odb(f->opt->mirror), &id);
		if (r < 0)
			return git_fail(f->err, r, "%s", s->path);
		if (size != a->size)
			return 0;
	}
	r = change_hash(c, f->opt, f->err);
	return r < 0 ? err_prefix(f->err, r, "%s", s->path) : oid_equal(&c->oid, &c->old_oid);
}

/* A file or link where the commit has one too. */
static int tracked(struct finder *f, struct change *c, const struct attr *a, const struct spot *s)
{
	bool link = c->mode == MODE_LINK, old_link = c->old_mode == MODE_LINK;
	int r = 0;
	c->kind = CHANGE_MODIFY;
	if (c->old_mode == MODE_GITLINK || link != old_link) {
		c->kind = CHANGE_TYPE;
		r = set_attrs(f, c, s->path);
	} else {
		r = same_as_base(f, c, a, s);
		if (r > 0 && c->mode == c->old_mode) {
			free(c->attrs);
			return 0;
		}
	}
	if (r >= 0)
		r = add_change(f, c, s->path);
	if (r < 0)
		free(c->attrs);
	return r;
}

static int left_out(struct finder *f, const struct change *c, const struct attr *a)
{
	struct attr old;
	int r = c->mode ? view_inode(f->opt->before, a->ino, &old) : -ENOENT;
	if (r < 0 && r != -ENOENT)
		return err_sys(f->err, r, "inode %llu", (unsigned long long)a->ino);
	f->moved_ignored += r >= 0 && old.nlink > 0;
	return 0;
}

/* Else what is told is deletions, without a word of where the files went. */
static int tell_left_out(struct finder *f)
{
	size_t n = f->moved_ignored;
	if (n == 0)
		return 0;
	return warned(f, changes_warn(f->out,
				      "%zu file%s moved %s ignored there, and left out: commit "
				      "--ignored takes what is ignored",
				      n, n == 1 ? " that was" : "s that were",
				      n == 1 ? "is" : "are"));
}

static int untracked(struct finder *f, struct change *c, const struct attr *a, const struct spot *s,
		     const char *name)
{
	int r = 0;
	if (!f->opt->ignored) {
		r = rules_ignored(f->rules, s->path, false, f->err);
		if (r != 0)
			return r < 0 ? r : left_out(f, c, a);
	}
	if (c->mode == 0)
		return warned(f, changes_warn(f->out, "%s: a special file, which is left out",
					      s->path));
	if (gitname_is_dotgit(name, strlen(name)) ||
	    (c->mode == MODE_LINK && gitname_is_dotgitmodules(name, strlen(name))))
		return warned(f, changes_warn(f->out,
					      "%s: no tree can have that name, so it is left out",
					      s->path));
	struct attr old;
	c->kind = CHANGE_ADD;
	r = first_path(f, a, &old, &c->old_path); /* a hint for changes_pair */
	if (r >= 0 && !s->content)
		r = known_oid(f, a, &old, c->old_path, s->path, &c->oid);
	if (r == 0)
		r = set_attrs(f, c, s->path);
	if (r >= 0)
		r = add_change(f, c, s->path);
	if (r < 0) {
		free(c->attrs);
		free(c->old_path);
	}
	return r;
}

static int gone(struct finder *f, const struct change *c, const char *path)
{
	struct change d = *c;
	if (c->old_mode == 0)
		return 0;
	d.kind = CHANGE_DELETE;
	d.mode = 0;
	d.ino = d.size = 0;
	return add_change(f, &d, path);
}

static int look_at(struct finder *f, const struct spot *s)
{
	const struct folder *up = &f->way[f->nway - 1];
	const char *slash = strrchr(s->path, '/'), *name = slash ? slash + 1 : s->path;
	const git_tree_entry *e = up->base ? git_tree_entry_byname(up->base, name) : NULL;
	struct change c = { 0 };
	struct attr a = { 0 };
	int r = up->ino ? viewfile_at(f->opt->now, up->ino, name, strlen(name), &a) : -ENOENT;
	if (r < 0 && r != -ENOENT)
		return err_sys(f->err, r, "look at %s", s->path);
	if (e && git_tree_entry_type(e) != GIT_OBJECT_TREE) {
		c.old_mode = git_tree_entry_filemode(e);
		c.old_oid = oid_of_git(git_tree_entry_id(e));
	}
	if (r == -ENOENT)
		return changes_in_scope(f->opt, s->path) ? gone(f, &c, s->path) : 0;
	c.ino = a.ino;
	c.size = a.size;
	if (S_ISDIR(a.mode))
		return c.old_mode == MODE_GITLINK ? 0 : gone(f, &c, s->path);
	if (S_ISREG(a.mode))
		c.mode = a.mode & 0100 ? MODE_EXEC : MODE_FILE;
	else if (S_ISLNK(a.mode))
		c.mode = MODE_LINK;
	if (c.old_mode == 0)
		return untracked(f, &c, &a, s, name);
	if (c.mode == 0) {
		r = warned(f, changes_warn(f->out,
					   "%s: a special file is there now; it counts as deleted",
					   s->path));
		return r < 0 ? r : gone(f, &c, s->path);
	}
	return tracked(f, &c, &a, s);
}

static int look(struct finder *f)
{
	int r = 0;
	if (array_grow(&f->way, f->nway, &f->way_cap) < 0)
		return no_memory(f);
	f->way[f->nway++] = (struct folder){ .ino = 1 };
	r = git_tree_dup(&f->way[0].base, f->base);
	if (r < 0)
		return no_memory(f);
	const char *prev = "";
	for (size_t i = 0; i < f->spots.n && r >= 0; i++) {
		const struct spot *s = &f->spots.v[i];
		r = go_to(f, prev, s->path);
		prev = s->path;
		if (r >= 0 && f->way[f->nway - 1].closed == OPEN)
			r = look_at(f, s);
	}
	return r;
}

/* ---- all of it ---- */

static int open_commits(struct finder *f)
{
	const struct changes_options *opt = f->opt;
	const struct oid *checkout = oid_is_zero(&opt->checkout) ? &opt->base : &opt->checkout;
	int r = commit_tree(&f->base, opt->mirror, &opt->base, f->err);
	return r < 0 ? r : commit_tree(&f->checkout.root, opt->mirror, checkout, f->err);
}

static int find(struct finder *f)
{
	const struct changes_options *opt = f->opt;
	int r = open_commits(f);
	if (r >= 0)
		r = rules_new(&f->rules, opt->now, f->err);
	if (r >= 0)
		r = rules_new(&f->old_rules, opt->before, f->err);
	if (r >= 0)
		r = spots_find(&f->spots, opt, f->base, f->checkout.root, f->err);
	if (r < 0)
		return r;
	r = look(f);
	if (r >= 0)
		r = tell_left_out(f);
	if (r >= 0)
		r = changes_pair(f->out, opt, f->err);
	changes_sort(f->out);
	return r;
}

int changes_find(struct changes *out, const struct changes_options *opt, struct err *err)
{
	struct err own = { 0 };
	auto_changes c = { 0 };
	struct finder f = { .opt = opt, .out = &c, .err = err ? err : &own };
	int r = find(&f);
	spots_done(&f.spots);
	while (f.nway > 0)
		leave(&f);
	free(f.way);
	rules_free(f.rules);
	rules_free(f.old_rules);
	tree_at_done(&f.checkout);
	git_tree_free(f.base);
	if (r < 0)
		return r;
	*out = c;
	c = (struct changes){ 0 };
	return 0;
}
