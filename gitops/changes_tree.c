/* The tree of a commit with changes applied. Changes come in order of path, so all of one folder
 * are together: the folders on the way to the present path are held as lists of entries, and each
 * is written when the way leaves it. Nothing else of the commit's trees is read. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "gitops/changes_impl.h"
#include "gitops/togit.h"
#include "gitops/packout.h"

struct tree_entry {
	char *name;
	uint32_t mode; /* 0: removed */
	struct oid oid;
};

struct level {
	size_t len; /* of its path */
	struct tree_entry *v;
	size_t n, cap, loaded; /* the first `loaded` came from the tree; by bytes of the name */
	bool dirty;
};

struct builder {
	struct packout *pack;
	struct mirror *mirror;
	const struct changes_options *opt;
	struct level *way;
	size_t n, cap;
	struct err *err;
};

/* One thing to be done: an entry put, or (mode 0) removed. */
struct edit {
	const char *path;
	uint32_t mode;
	struct oid oid;
};

static int no_memory(struct builder *b)
{
	return err_no_memory(b->err);
}

/* ---- lists of entries ---- */

static void level_done(struct level *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i].name);
	free(l->v);
}

static int add_entry(struct builder *b, struct level *l, const char *name, size_t len,
		     uint32_t mode, const struct oid *oid)
{
	char *own = strndup(name, len);
	if (!own || array_grow(&l->v, l->n, &l->cap) < 0) {
		free(own);
		return no_memory(b);
	}
	l->v[l->n++] = (struct tree_entry){ .name = own, .mode = mode, .oid = *oid };
	return 0;
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(((const struct tree_entry *)a)->name, ((const struct tree_entry *)b)->name);
}

static int load(struct builder *b, struct level *l, const struct oid *tree)
{
	git_oid id = oid_to_git(tree);
	auto_git(git_tree) t = NULL;
	int r = git_tree_lookup(&t, mirror_repo(b->mirror), &id);
	if (r < 0)
		return git_fail_object(b->err, r, mirror_repo(b->mirror), &id, "read a tree");
	for (size_t i = 0; i < git_tree_entrycount(t) && r >= 0; i++) {
		const git_tree_entry *e = git_tree_entry_byindex(t, i);
		struct oid oid = oid_of_git(git_tree_entry_id(e));
		const char *name = git_tree_entry_name(e);
		r = add_entry(b, l, name, strlen(name), git_tree_entry_filemode_raw(e), &oid);
	}
	if (l->n > 1)
		qsort(l->v, l->n, sizeof(*l->v), by_bytes);
	l->loaded = l->n;
	return r;
}

/* Among those of the commit: what was added is never asked for again, since changes come in order
 * and name each path once. */
static struct tree_entry *find(struct level *l, const char *name, size_t len)
{
	size_t low = 0, high = l->loaded;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		const char *is = l->v[mid].name;
		int c = strncmp(is, name, len);
		if (c == 0 && !is[len])
			return &l->v[mid];
		if (c < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

/* As git has them: a folder's name counts as if it ended in a slash. */
static int by_name(const void *pa, const void *pb)
{
	const struct tree_entry *a = pa, *b = pb;
	size_t na = strlen(a->name), nb = strlen(b->name), n = na < nb ? na : nb;
	int c = memcmp(a->name, b->name, n);
	if (c)
		return c;
	unsigned char ca = (unsigned char)a->name[n], cb = (unsigned char)b->name[n];
	if (!ca && a->mode == MODE_TREE)
		ca = '/';
	if (!cb && b->mode == MODE_TREE)
		cb = '/';
	return (ca > cb) - (ca < cb);
}

/* An empty one is written as a root only. */
static int write_level(struct builder *b, struct level *l, struct oid *out, bool *empty)
{
	auto_buf text = { 0 };
	*empty = true;
	if (l->n > 1)
		qsort(l->v, l->n, sizeof(*l->v), by_name);
	const char *last = "";
	for (size_t i = 0; i < l->n; i++) {
		const struct tree_entry *e = &l->v[i];
		if (e->mode == 0)
			continue;
		if (strcmp(last, e->name) == 0)
			return err_set(b->err, -EINVAL, "two changes of one path: %s", last);
		last = e->name;
		*empty = false;
		buf_printf(&text, "%o %s", e->mode, e->name);
		buf_u8(&text, 0);
		buf_add(&text, e->oid.b, OID_BYTES);
	}
	if (buf_error(&text) < 0)
		return no_memory(b);
	if (*empty && l->len)
		return 0;
	return packout_put(b->pack, GIT_TREE, text.data, text.len, out, b->err);
}

/* ---- the way ---- */

static int push(struct builder *b, size_t len, const struct oid *tree)
{
	if (b->n > CHANGE_DEPTH_MAX)
		return err_set(b->err, -ENAMETOOLONG, "more than %d folders deep",
			       CHANGE_DEPTH_MAX);
	if (array_grow(&b->way, b->n, &b->cap) < 0)
		return no_memory(b);
	struct level *l = &b->way[b->n++];
	*l = (struct level){ .len = len };
	return tree ? load(b, l, tree) : 0;
}

/* Writes the last folder, and enters it into the one above. `path` leads at least to it. */
static int pop(struct builder *b, const char *path)
{
	struct level *l = &b->way[b->n - 1], *up = &b->way[b->n - 2];
	struct oid oid = { 0 };
	bool empty = false;
	int r = l->dirty ? write_level(b, l, &oid, &empty) : 0;
	if (r >= 0 && l->dirty) {
		size_t at = up->len ? up->len + 1 : 0;
		struct tree_entry *e = find(up, path + at, l->len - at);
		up->dirty = true;
		if (empty && e) {
			e->mode = 0;
		} else if (!empty && e) {
			e->mode = MODE_TREE;
			e->oid = oid;
		} else if (!empty) {
			r = add_entry(b, up, path + at, l->len - at, MODE_TREE, &oid);
		}
	}
	level_done(l);
	b->n--;
	return r;
}

/* Makes the way that of the folders above `path`. 1; 0: there is no such folder, and `make` is
 * false. */
static int go_to(struct builder *b, const char *prev, const char *path, bool make)
{
	int r = 0;
	while (b->n > 1 && r >= 0) {
		size_t n = b->way[b->n - 1].len;
		if (strncmp(prev, path, n) == 0 && path[n] == '/')
			break;
		r = pop(b, prev);
	}
	size_t at = b->way[b->n - 1].len;
	at += at > 0;
	for (const char *slash; r >= 0 && (slash = strchr(path + at, '/'));
	     at = (size_t)(slash - path) + 1) {
		size_t len = (size_t)(slash - path);
		struct tree_entry *e = find(&b->way[b->n - 1], path + at, len - at);
		bool is_tree = e && e->mode == MODE_TREE;
		if (!is_tree && !make)
			return 0;
		struct oid tree = is_tree ? e->oid : (struct oid){ 0 };
		r = push(b, len, is_tree ? &tree : NULL);
	}
	return r < 0 ? r : 1;
}

static int apply(struct builder *b, const struct edit *e)
{
	struct level *l = &b->way[b->n - 1];
	const char *name = e->path + (l->len ? l->len + 1 : 0);
	struct tree_entry *there = find(l, name, strlen(name));
	if (!e->mode && (!there || there->mode == MODE_TREE || there->mode == 0))
		return 0; /* something else is there now, which another change says */
	l->dirty = true;
	if (!there)
		return add_entry(b, l, name, strlen(name), e->mode, &e->oid);
	there->mode = e->mode;
	there->oid = e->oid;
	return 0;
}

/* ---- contents ---- */

struct reader {
	const struct view *view;
	uint64_t ino;
};

static int read_view(void *ctx, void *buf, size_t n, uint64_t off, struct err *err)
{
	struct reader *rd = ctx;
	for (size_t got = 0; got < n;) {
		ssize_t k = view_read(rd->view, rd->ino, (char *)buf + got, n - got, off + got,
				      err);
		if (k <= 0)
			return k < 0 ? (int)k : err_set(err, -EIO, "it ends too early");
		got += (size_t)k;
	}
	return 0;
}

/* The blob of what a change has now is in the pack, or in the mirror. */
static int put_content(struct builder *b, const struct change *c, struct oid *oid)
{
	if (!oid_is_zero(&c->oid) && packout_has(b->pack, &c->oid)) {
		*oid = c->oid;
		return 0;
	}
	int r;
	if (c->mode != MODE_LINK && (!c->attrs || c->size > TOGIT_MAX)) {
		struct reader rd = { b->opt->now, c->ino };
		r = packout_stream(b->pack, c->size, read_view, &rd, oid, b->err);
	} else {
		auto_buf text = { 0 };
		r = change_convert(&text, b->opt, c, TOGIT_MAX, b->err);
		if (r > 0)
			r = packout_put(b->pack, GIT_BLOB, text.data, text.len, oid, b->err);
	}
	return r < 0 ? err_prefix(b->err, r, "%s", c->path) : 0;
}

static int by_path(const void *a, const void *b)
{
	const struct edit *x = a, *y = b;
	int c = strcmp(x->path, y->path);
	return c ? c : (x->mode != 0) - (y->mode != 0); /* removals first */
}

static int make_edits(struct builder *b, const struct changes *c, struct edit **out, size_t *n)
{
	int r = 0;
	*n = 0;
	*out = calloc(2 * c->n + 1, sizeof(**out));
	if (!*out)
		return no_memory(b);
	for (size_t i = 0; i < c->n && r >= 0; i++) {
		const struct change *x = &c->v[i];
		struct edit *e = &(*out)[*n];
		if (x->kind == CHANGE_RENAME) {
			*e++ = (struct edit){ .path = x->old_path };
			++*n;
		}
		*e = (struct edit){ .path = x->path, .mode = x->mode };
		++*n;
		if (x->mode)
			r = put_content(b, x, &e->oid);
	}
	if (*n > 1)
		qsort(*out, *n, sizeof(**out), by_path);
	return r;
}

static int build(struct builder *b, const struct changes *c, const struct oid *onto,
		 struct oid *tree)
{
	auto_free struct edit *edits = NULL;
	auto_git(git_tree) root = NULL;
	size_t n = 0;
	int r = commit_tree(&root, b->mirror, onto, b->err);
	if (r >= 0)
		r = make_edits(b, c, &edits, &n);
	if (r < 0)
		return r;
	struct oid id = oid_of_git(git_tree_id(root));
	const char *prev = "";
	r = push(b, 0, &id);
	for (size_t i = 0; i < n && r >= 0; i++) {
		r = go_to(b, prev, edits[i].path, edits[i].mode != 0);
		/* Where a way ends early, what it has is a beginning of this path all the same. */
		prev = edits[i].path;
		if (r > 0)
			r = apply(b, &edits[i]);
	}
	while (b->n > 1 && r >= 0)
		r = pop(b, prev);
	bool empty;
	if (r >= 0)
		r = b->way[0].dirty ? write_level(b, &b->way[0], &id, &empty) : 0;
	*tree = id;
	return r;
}

int changes_tree_put(struct oid *tree, struct packout *p, const struct changes *c,
		     const struct changes_options *opt, const struct oid *onto, struct err *err)
{
	struct builder b = { .pack = p, .mirror = opt->mirror, .opt = opt, .err = err };
	struct oid id;
	int r = build(&b, c, onto, &id);
	while (b.n > 0)
		level_done(&b.way[--b.n]);
	free(b.way);
	if (r < 0)
		return r;
	*tree = id;
	return 0;
}

int changes_tree(struct oid *tree, const struct changes *c, const struct changes_options *opt,
		 const struct oid *onto, struct err *err)
{
	struct packout *p = NULL;
	struct oid id;
	int r = packout_new(&p, opt->mirror, NULL, err);
	if (r >= 0)
		r = changes_tree_put(&id, p, c, opt, onto, err);
	if (r >= 0)
		r = packout_finish(p, NULL, err);
	packout_free(p);
	if (r < 0)
		return r;
	*tree = id;
	return 0;
}
