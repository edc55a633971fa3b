#include "gitops/rules.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "gitops/attributes.h"
#include "gitops/ignore.h"
#include "gitops/viewfile.h"

/* What all matching for one workspace may take: some seconds. Real ones take thousandths of it. */
static const uint64_t steps_max = UINT64_C(4) << 30;

/* A folder on the way to the last path. */
struct frame {
	size_t len;   /* of its path; what follows in `path` is a slash */
	uint64_t ino; /* 0: it isn't there */
	bool excluded, knows_excluded;
	bool has_ignore, has_attrs; /* they were looked for */
	struct ignore_file ignore;
	int attrs; /* of attributes_add: the nearest file's */
};

struct rules {
	const struct view *view;
	struct frame *frames; /* the root first */
	size_t n, cap;
	char *path; /* of the last frame */
	size_t path_cap;
	struct ignore_file exclude; /* .git/info/exclude */
	struct attributes *attrs;
	uint64_t steps;
};

/* ---- ignore files ---- */

static int read_ignore(struct rules *r, uint64_t dir, const char *name, struct ignore_file *out,
		       struct err *err)
{
	auto_buf text = { 0 };
	int got = viewfile_named(&text, r->view, dir, name, RULES_FILE_MAX, err);
	if (got > 0 && (got = ignore_parse(out, text.data, text.len)) < 0)
		return err_set(err, got, "out of memory");
	return got < 0 ? got : 0;
}

static int load_ignore(struct rules *r, struct frame *f, struct err *err)
{
	if (f->has_ignore)
		return 0;
	f->has_ignore = true;
	return f->ino ? read_ignore(r, f->ino, ".gitignore", &f->ignore, err) : 0;
}

/* By the files of the first n frames. */
static int ask_all(struct rules *r, size_t n, const char *path, size_t len, bool dir,
		   struct err *err)
{
	for (size_t i = n; i-- > 0;) {
		struct frame *f = &r->frames[i];
		int got = load_ignore(r, f, err);
		if (got < 0)
			return got;
		size_t skip = f->len ? f->len + 1 : 0;
		got = ignore_ask(&f->ignore, path + skip, len - skip, dir, &r->steps);
		if (got == -ENOMEM)
			return err_set(err, got, "out of memory");
		if (r->steps > steps_max)
			return err_set(err, -E2BIG,
				       "the patterns of .gitignore take too long to match");
		if (got >= 0)
			return got;
	}
	return ignore_ask(&r->exclude, path, len, dir, &r->steps) > 0;
}

/* ---- the way to a path ---- */

/* Makes the frames those of the folders above `path`. */
static int go_to(struct rules *r, const char *path, struct err *err)
{
	while (r->n > 1) {
		const struct frame *f = &r->frames[r->n - 1];
		if (strncmp(r->path, path, f->len) == 0 && path[f->len] == '/')
			break;
		ignore_done(&r->frames[--r->n].ignore);
	}
	size_t len = strlen(path), at = r->frames[r->n - 1].len;
	if (len + 1 > r->path_cap) {
		char *more = realloc(r->path, 2 * len + 1);
		if (!more)
			return err_no_memory(err);
		r->path = more;
		r->path_cap = 2 * len + 1;
	}
	memcpy(r->path, path, len + 1);
	at += at > 0;
	for (const char *slash; (slash = strchr(path + at, '/')); at = (size_t)(slash - path) + 1) {
		struct attr a = { 0 };
		const struct frame *up = &r->frames[r->n - 1];
		size_t name_len = (size_t)(slash - path) - at;
		int got = up->ino ? viewfile_at(r->view, up->ino, path + at, name_len, &a)
				  : -ENOENT;
		if (got < 0 && got != -ENOENT)
			return err_sys(err, got, "look at %s", path);
		if (r->n > RULES_DEPTH_MAX)
			return err_set(err, -ENAMETOOLONG, "more than %d folders deep: %.60s…",
				       RULES_DEPTH_MAX, path);
		if (array_grow(&r->frames, r->n, &r->cap) < 0)
			return err_no_memory(err);
		r->frames[r->n++] = (struct frame){ .len = (size_t)(slash - path),
						    .ino = S_ISDIR(a.mode) ? a.ino : 0 };
	}
	return 0;
}

/* Is the i-th frame's folder ignored? All in it then is, whatever files in it say. */
static int know_excluded(struct rules *r, struct err *err)
{
	for (size_t i = 1; i < r->n; i++) {
		struct frame *f = &r->frames[i];
		if (f->knows_excluded)
			continue;
		int got = r->frames[i - 1].excluded ? 1 : ask_all(r, i, r->path, f->len, true, err);
		if (got < 0)
			return got;
		f->excluded = got;
		f->knows_excluded = true;
	}
	return r->frames[r->n - 1].excluded;
}

int rules_ignored(struct rules *r, const char *path, bool is_dir, struct err *err)
{
	int got = go_to(r, path, err);
	if (got >= 0)
		got = know_excluded(r, err);
	return got ? got : ask_all(r, r->n, path, strlen(path), is_dir, err);
}

/* ---- attributes ---- */

static int load_attrs(struct rules *r, size_t i, struct err *err)
{
	struct frame *f = &r->frames[i];
	auto_buf text = { 0 };
	if (f->has_attrs)
		return 0;
	f->has_attrs = true;
	f->attrs = i ? r->frames[i - 1].attrs : ATTR_NONE;
	int got = f->ino ? viewfile_named(&text, r->view, f->ino, ".gitattributes", RULES_FILE_MAX,
					  err)
			 : 0;
	if (got <= 0)
		return got;
	auto_free char *dir = strndup(r->path ? r->path : "", f->len);
	got = dir ? attributes_add(r->attrs, f->attrs, dir, text.data, text.len, err)
		  : err_no_memory(err);
	if (got < ATTR_NONE)
		return got;
	f->attrs = got;
	return 0;
}

int rules_attrs(struct rules *r, const char *path, struct path_attrs *out, struct err *err)
{
	struct attr_values values;
	int got = go_to(r, path, err);
	for (size_t i = 0; i < r->n && got >= 0; i++)
		got = load_attrs(r, i, err);
	if (got < 0)
		return got;
	got = attributes_find(r->attrs, r->frames[r->n - 1].attrs, path, &values);
	if (got == -E2BIG)
		return err_set(err, got, "the patterns of .gitattributes take too long to match");
	if (got < 0)
		return err_set(err, got, "out of memory");
	path_attrs_of(out, &values);
	return 0;
}

/* ---- life ---- */

static int load_exclude(struct rules *r, struct err *err)
{
	struct attr dir;
	static const char info[] = ".git/info";
	int got = viewfile_at(r->view, 1, info, sizeof(info) - 1, &dir);
	if (got == -ENOENT || (got >= 0 && !S_ISDIR(dir.mode)))
		return 0;
	if (got < 0)
		return err_sys(err, got, "look at %s", info);
	return read_ignore(r, dir.ino, "exclude", &r->exclude, err);
}

int rules_new(struct rules **out, const struct view *v, struct err *err)
{
	struct rules *r = calloc(1, sizeof(*r));
	if (r)
		r->attrs = attributes_new();
	if (!r || !r->attrs || array_grow(&r->frames, r->n, &r->cap) < 0) {
		rules_free(r);
		return err_no_memory(err);
	}
	r->view = v;
	r->frames[r->n++] = (struct frame){ .ino = 1, .knows_excluded = true };
	int got = load_exclude(r, err);
	if (got < 0) {
		rules_free(r);
		return got;
	}
	*out = r;
	return 0;
}

void rules_free(struct rules *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->n; i++)
		ignore_done(&r->frames[i].ignore);
	ignore_done(&r->exclude);
	attributes_free(r->attrs);
	free(r->frames);
	free(r->path);
	free(r);
}
