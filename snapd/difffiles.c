#include "snapd/difffiles.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"

/* A folder that was renamed; both paths are ours. */
struct move {
	char *path, *old;
};

struct files {
	int (*fn)(void *ctx, const struct diff_entry *e);
	void *ctx;
	struct move *moves; /* by path */
	size_t nmoves, moves_cap;
	char **told; /* paths below moves that were reported; ours */
	size_t ntold, told_cap;
};

static void files_done(struct files *f)
{
	for (size_t i = 0; i < f->nmoves; i++) {
		free(f->moves[i].path);
		free(f->moves[i].old);
	}
	for (size_t i = 0; i < f->ntold; i++)
		free(f->told[i]);
	free(f->moves);
	free(f->told);
}

/* Where the path of `len` bytes is among the moves, or belongs. */
static size_t move_index(const struct files *f, const char *path, size_t len, bool *found)
{
	size_t low = 0, high = f->nmoves;
	*found = false;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		const char *p = f->moves[mid].path;
		int c = strncmp(p, path, len);
		if (c == 0 && !p[len]) {
			*found = true;
			return mid;
		}
		if (c < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static int add_move(struct files *f, const char *path, const char *old)
{
	struct move m = { strdup(path), strdup(old) };
	if (!m.path || !m.old || array_grow(&f->moves, f->nmoves, &f->moves_cap) < 0) {
		free(m.path);
		free(m.old);
		return -ENOMEM;
	}
	bool found;
	size_t at = move_index(f, path, strlen(path), &found);
	memmove(f->moves + at + 1, f->moves + at, (f->nmoves - at) * sizeof(m));
	f->moves[at] = m;
	f->nmoves++;
	return 0;
}

/* The old path of what is at `path` below a renamed folder (the nearest one). 1 with *old, the
 * caller's; 0: it is below none. */
static int old_path_of(const struct files *f, const char *path, char **old)
{
	for (size_t n = strlen(path); f->nmoves && n > 0; n--) {
		bool found;
		if (path[n] != '/')
			continue;
		size_t i = move_index(f, path, n, &found);
		if (found)
			return asprintf(old, "%s%s", f->moves[i].old, path + n) < 0 ? -ENOMEM : 1;
	}
	return 0;
}

static int files_entry(void *ctx, const struct diff_entry *e)
{
	struct files *f = ctx;
	if (e->kind == DIFF_DELETED)
		return f->fn(f->ctx, e); /* its path is of the old tree */
	auto_free char *old = NULL;
	struct diff_entry own = *e;
	int r = old_path_of(f, e->path, &old);
	if (r > 0) {
		char *path = strdup(e->path);
		if (!path || array_grow(&f->told, f->ntold, &f->told_cap) < 0) {
			free(path);
			return -ENOMEM;
		}
		f->told[f->ntold++] = path;
		if (!e->old_path && e->old_attr.ino)
			own.old_path = old;
		if (own.old_path && e->kind == DIFF_MODIFIED)
			own.kind = DIFF_RENAMED;
	}
	if (r >= 0 && e->kind == DIFF_RENAMED && S_ISDIR(e->old_attr.mode) &&
	    S_ISDIR(e->new_attr.mode))
		r = add_move(f, e->path, e->old_path);
	return r < 0 ? r : f->fn(f->ctx, &own);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* True when a renamed folder is at this path or below it. */
static bool leads_to_move(const struct files *f, const char *path, size_t len)
{
	if (len == 0)
		return true;
	for (size_t i = 0; i < f->nmoves; i++) {
		const char *p = f->moves[i].path;
		if (!strncmp(p, path, len) && (!p[len] || p[len] == '/'))
			return true;
	}
	return false;
}

static int rest_entry(void *ctx, const char *path, size_t len, const struct attr *a)
{
	struct files *f = ctx;
	auto_free char *own = strndup(path, len), *old = NULL;
	if (!own)
		return -ENOMEM;
	int r = old_path_of(f, own, &old);
	if (r < 0)
		return r;
	if (S_ISDIR(a->mode))
		return r || leads_to_move(f, own, len) ? 0 : VIEW_SKIP;
	if (!r || (f->ntold && bsearch(&own, f->told, f->ntold, sizeof(*f->told), by_text)))
		return 0;
	struct diff_entry e = { .kind = DIFF_RENAMED, .path = own, .old_path = old };
	e.old_attr = e.new_attr = *a;
	return f->fn(f->ctx, &e);
}

int diff_files(const struct view *a, const struct view *b,
	       int (*fn)(void *ctx, const struct diff_entry *e), void *ctx, struct err *err)
{
	__attribute__((cleanup(files_done))) struct files f = { .fn = fn, .ctx = ctx };
	int r = diff_views(a, b, files_entry, &f, err);
	if (r < 0 || f.nmoves == 0)
		return r;
	if (f.ntold)
		qsort(f.told, f.ntold, sizeof(*f.told), by_text);
	return view_walk(b, rest_entry, &f, err);
}
