/* Walks over whole trees, and paths of inodes. */
#include "fs/work/view.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"

/* A directory on the way from the root to where the walk is. */
struct level {
	uint64_t dir, next; /* the cookie to go on from */
	size_t path_len;    /* of the directory itself */
};

struct walk {
	const struct view *v;
	struct level *levels;
	size_t depth, cap;
	struct buf path;
};

static int descend(struct walk *w, uint64_t dir)
{
	if (w->depth >= VIEW_DEPTH_MAX)
		return -EBADMSG;
	if (array_grow(&w->levels, w->depth, &w->cap) < 0)
		return -ENOMEM;
	w->levels[w->depth++] = (struct level){ .dir = dir, .path_len = w->path.len };
	return 0;
}

/* The next inode of the walk into *a, its path in w->path. 1, 0 at the end, or -errno. */
static int step(struct walk *w, struct attr *a)
{
	while (w->depth > 0) {
		struct level *l = &w->levels[w->depth - 1];
		struct dirent_ref d;
		int r = l->next == UINT64_MAX ? -ENOENT
					      : view_dirent_ceil(w->v, l->dir, l->next, &d);
		if (r == -ENOENT) {
			w->depth--;
			continue;
		}
		if (r < 0)
			return r;
		l->next = d.cookie + 1;
		w->path.len = l->path_len;
		if (l->path_len > 0)
			buf_u8(&w->path, '/');
		buf_add(&w->path, d.name, d.name_len);
		if (w->path.failed)
			return -ENOMEM;
		r = view_inode(w->v, d.ino, a);
		return r < 0 ? (r == -ENOENT ? -EIO : r) : 1;
	}
	return 0;
}

/* How much of the path an error's text shows. */
static int text_len(const struct walk *w)
{
	return w->path.len < 300 ? (int)w->path.len : 300;
}

int view_walk(const struct view *v,
	      int (*fn)(void *ctx, const char *path, size_t len, const struct attr *a), void *ctx,
	      struct err *err)
{
	return view_walk_from(v, 1, fn, ctx, err);
}

int view_walk_from(const struct view *v, uint64_t dir,
		   int (*fn)(void *ctx, const char *path, size_t len, const struct attr *a),
		   void *ctx, struct err *err)
{
	struct walk w = { .v = v };
	struct attr a;
	int r = view_inode(v, dir, &a);
	r = r < 0 ? r : 1;
	while (r > 0) {
		const char *path = w.path.data ? (const char *)w.path.data : "";
		r = fn(ctx, path, w.path.len, &a);
		if (r < 0) {
			(void)err_sys(err, r, "walk at '%.*s'", text_len(&w), path);
			goto out;
		}
		if (S_ISDIR(a.mode) && r != VIEW_SKIP)
			r = descend(&w, a.ino);
		else
			r = 0;
		if (r == 0)
			r = step(&w, &a);
	}
	if (r < 0)
		(void)err_sys(err, r, "walk the tree at '%.*s'", text_len(&w),
			      w.path.data ? (const char *)w.path.data : "");
out:
	free(w.levels);
	buf_done(&w.path);
	return r;
}

/* ---- paths ---- */

/* The names from the root to an inode, last one first, each with a '/' before it. */
static int climb(const struct view *v, uint64_t ino, struct buf *reversed)
{
	for (unsigned depth = 0; ino != 1; depth++) {
		struct attr a;
		struct dirent_ref d;
		if (depth >= VIEW_DEPTH_MAX)
			return -ENOENT;
		int r = view_inode(v, ino, &a);
		if (r == 0)
			r = a.parent_cookie ? view_dirent_ceil(v, a.parent, a.parent_cookie, &d)
					    : -ENOENT;
		if (r < 0)
			return r;
		if (d.cookie != a.parent_cookie || d.ino != ino)
			return -ENOENT;
		for (unsigned i = d.name_len; i > 0; i--)
			buf_u8(reversed, (uint8_t)d.name[i - 1]);
		buf_u8(reversed, '/');
		ino = a.parent;
	}
	return reversed->failed ? -ENOMEM : 0;
}

struct search {
	uint64_t ino;
	char *path;
};

static int search_at(void *ctx, const char *path, size_t len, const struct attr *a)
{
	struct search *s = ctx;
	if (a->ino != s->ino)
		return 0;
	s->path = strndup(path, len);
	return s->path ? -EEXIST : -ENOMEM;
}

int view_path(const struct view *v, uint64_t ino, char **out)
{
	auto_buf reversed = { 0 };
	int r = climb(v, ino, &reversed);
	if (r == 0) {
		char *path = malloc(reversed.len + 1);
		if (!path)
			return -ENOMEM;
		/* Without the '/' that stands before the first name. */
		size_t n = reversed.len ? reversed.len - 1 : 0;
		for (size_t i = 0; i < n; i++)
			path[i] = (char)reversed.data[n - 1 - i];
		path[n] = '\0';
		*out = path;
		return 0;
	}
	if (r != -ENOENT)
		return r;
	struct search s = { .ino = ino };
	r = view_walk(v, search_at, &s, NULL);
	if (s.path) {
		*out = s.path;
		return 0;
	}
	return r < 0 ? r : -ENOENT;
}
