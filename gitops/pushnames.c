#include "gitops/pushnames.h"

#include <errno.h>
#include <stdlib.h>
#include <strings.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "gitops/changes_impl.h"
#include "gitops/gitname.h"
#include "gitops/treediff.h"

/* A folder on the way to the last path. */
struct folder {
	size_t len;          /* of its path; the root: 0 */
	git_tree *base, *now; /* NULL: that side has none */
	const char **names;   /* of now, by strcasecmp */
	size_t n;
};

struct checker {
	git_repository *repo;
	struct folder *way; /* the root first */
	size_t n, cap;
	char *path; /* the last one */
	struct err *err;
};

static void leave(struct checker *c)
{
	struct folder *f = &c->way[--c->n];
	git_tree_free(f->base);
	git_tree_free(f->now);
	free(f->names);
}

static int by_folded(const void *a, const void *b)
{
	return strcasecmp(*(const char *const *)a, *(const char *const *)b);
}

/* Takes the trees over, whatever the result. */
static int enter(struct checker *c, size_t len, git_tree *base, git_tree *now)
{
	struct folder f = { .len = len, .base = base, .now = now };
	size_t n = now ? git_tree_entrycount(now) : 0;
	f.names = calloc(n + 1, sizeof(*f.names));
	if (!f.names || array_grow(&c->way, c->n, &c->cap) < 0) {
		git_tree_free(base);
		git_tree_free(now);
		free(f.names);
		return err_no_memory(c->err);
	}
	for (; f.n < n; f.n++)
		f.names[f.n] = git_tree_entry_name(git_tree_entry_byindex(now, f.n));
	if (n > 1)
		qsort(f.names, n, sizeof(*f.names), by_folded);
	c->way[c->n++] = f;
	return 0;
}

/* The folder of that name; none: *out stays NULL. */
static int tree_in(struct checker *c, const git_tree *in, const char *name, git_tree **out)
{
	const git_tree_entry *e = in ? git_tree_entry_byname(in, name) : NULL;
	int r = e && git_tree_entry_type(e) == GIT_OBJECT_TREE
			? git_tree_lookup(out, c->repo, git_tree_entry_id(e))
			: 0;
	return r < 0 ? git_fail(c->err, r, "look at %s", name) : 0;
}

/* Another name of the folder that differs by case alone; NULL: none. */
static const char *twin_of(const struct folder *f, const char *name)
{
	size_t low = 0, high = f->n;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (strcasecmp(f->names[mid], name) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	for (; low < f->n && strcasecmp(f->names[low], name) == 0; low++)
		if (strcmp(f->names[low], name) != 0)
			return f->names[low];
	return NULL;
}

/* A component of the path, in the last folder. */
static int check_name(struct checker *c, const char *path, const char *name)
{
	const struct folder *f = &c->way[c->n - 1];
	if (f->base && git_tree_entry_byname(f->base, name))
		return 0;
	const char *why = gitname_problem(name, strlen(name)), *other = twin_of(f, name);
	if (why)
		return err_set(c->err, -EINVAL, "other systems can't hold %.200s: %s", path, why);
	if (other)
		return err_set(c->err, -EINVAL,
			       "other systems can't hold %.200s beside %.100s, which differs by "
			       "case alone",
			       path, other);
	return 0;
}

/* Makes the way that of the folders above `path`; each that is new on it is looked at once. */
static int go_to(struct checker *c, const char *path)
{
	while (c->n > 1) {
		size_t len = c->way[c->n - 1].len;
		if (strncmp(c->path, path, len) == 0 && path[len] == '/')
			break;
		leave(c);
	}
	free(c->path);
	c->path = strdup(path);
	if (!c->path)
		return err_no_memory(c->err);
	size_t at = c->way[c->n - 1].len;
	at += at > 0;
	for (const char *slash; (slash = strchr(path + at, '/')); at = (size_t)(slash - path) + 1) {
		const struct folder *up = &c->way[c->n - 1];
		git_tree *base = NULL, *now = NULL;
		auto_free char *name = strndup(path + at, (size_t)(slash - path) - at);
		if (!name)
			return err_no_memory(c->err);
		int r = check_name(c, path, name);
		if (r >= 0)
			r = tree_in(c, up->base, name, &base);
		if (r >= 0)
			r = tree_in(c, up->now, name, &now);
		if (r < 0) {
			git_tree_free(base);
			return r;
		}
		r = enter(c, (size_t)(slash - path), base, now);
		if (r < 0)
			return r;
	}
	return 0;
}

static int on_difference(void *ctx, const char *path, uint32_t old_mode, uint32_t mode)
{
	struct checker *c = ctx;
	if (old_mode || !mode)
		return 0;
	const char *slash = strrchr(path, '/');
	int r = go_to(c, path);
	return r < 0 ? r : check_name(c, path, slash ? slash + 1 : path);
}

static int check(struct checker *c, git_tree *base, git_tree *now)
{
	git_tree *root[2];
	if (git_tree_dup(&root[0], base) < 0)
		return err_no_memory(c->err);
	if (git_tree_dup(&root[1], now) < 0) {
		git_tree_free(root[0]);
		return err_no_memory(c->err);
	}
	int r = enter(c, 0, root[0], root[1]);
	return r < 0 ? r : treediff(c->repo, base, now, on_difference, c, c->err);
}

int pushnames_check(struct mirror *m, const struct oid *base, const struct oid *commit,
		    struct err *err)
{
	struct err own = { 0 };
	struct checker c = { .repo = mirror_repo(m), .err = err ? err : &own };
	auto_git(git_tree) was = NULL;
	auto_git(git_tree) is = NULL;
	int r = commit_tree(&was, m, base, c.err);
	if (r >= 0)
		r = commit_tree(&is, m, commit, c.err);
	if (r >= 0)
		r = check(&c, was, is);
	while (c.n > 0)
		leave(&c);
	free(c.way);
	free(c.path);
	return r < 0 ? r : 0;
}
