#include "snapd/diffpatch.h"
#include "snapd/difftext.h"

#include <errno.h>
#include <git2.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "snapd/difffiles.h"

enum {
	STAT_WIDTH = 80,
	STAT_NAME_MAX = 50, /* longer names are cut at the front, as git does */
	CONTEXT_LINES = 3,
	ID_ABBREV = 7,
};

/* One side's content; of a symlink its target. */
struct content {
	char *data;
	size_t len;
	uint64_t size; /* the inode's */
	bool too_large;
};

/* What the line diff says of one pair. */
struct compared {
	git_patch *patch; /* NULL where a side is too large */
	bool binary;
	size_t added, removed;
	struct content old, new;
};

static void compared_done(struct compared *c)
{
	git_patch_free(c->patch);
	free(c->old.data);
	free(c->new.data);
}

#define auto_compared __attribute__((cleanup(compared_done))) struct compared

static int git_failed(struct err *err, int code, const char *path)
{
	const git_error *e = git_error_last();
	return err_set(err, code == GIT_ERROR_NOMEMORY ? -ENOMEM : -EIO, "compare %s: %s", path,
		       e && e->message ? e->message : "libgit2 failed");
}

static bool has_text(const struct attr *a)
{
	return a->ino != 0 && (S_ISREG(a->mode) || S_ISLNK(a->mode));
}

static int read_content(const struct view *v, const struct attr *a, struct content *out,
			struct err *err)
{
	if (!has_text(a))
		return 0;
	out->size = a->size;
	out->too_large = a->size > DIFF_TEXT_MAX;
	if (out->too_large)
		return 0;
	size_t len = S_ISLNK(a->mode) ? PATH_MAX : (size_t)a->size;
	out->data = malloc(len + 1);
	if (!out->data)
		return err_no_memory(err);
	if (S_ISLNK(a->mode)) {
		int r = view_target(v, a->ino, out->data, len, &out->len);
		return r < 0 ? err_sys(err, r, "target of inode %llu", (unsigned long long)a->ino)
			     : 0;
	}
	while (out->len < len) {
		ssize_t n = view_read(v, a->ino, out->data + out->len, len - out->len, out->len,
				      err);
		if (n < 0)
			return (int)n;
		if (n == 0)
			break;
		out->len += (size_t)n;
	}
	return 0;
}

static int compare(const struct view *a, const struct view *b, const struct attr *old,
		   const struct attr *new, const char *path, struct compared *out, struct err *err)
{
	git_diff_options opt;
	git_diff_options_init(&opt, GIT_DIFF_OPTIONS_VERSION);
	opt.context_lines = CONTEXT_LINES;
	int r = read_content(a, old, &out->old, err);
	if (r >= 0)
		r = read_content(b, new, &out->new, err);
	if (r < 0)
		return err_prefix(err, r, "%s", path);
	if (out->old.too_large || out->new.too_large) {
		out->binary = true;
		return 0;
	}
	r = git_patch_from_buffers(&out->patch, out->old.data, out->old.len, path, out->new.data,
				   out->new.len, path, &opt);
	if (r == 0)
		r = git_patch_line_stats(NULL, &out->added, &out->removed, out->patch);
	if (r < 0)
		return git_failed(err, r, path);
	out->binary = (git_patch_get_delta(out->patch)->flags & GIT_DIFF_FLAG_BINARY) != 0;
	return 0;
}

/* ---- patch ---- */

struct patcher {
	const struct view *a, *b;
	const struct diff_sink *sink;
	struct buf out;
	struct err *err;
};

static int flush(struct patcher *p)
{
	int r = buf_error(&p->out);
	if (r >= 0 && p->out.len)
		r = p->sink->write(p->sink->ctx, p->out.data, p->out.len);
	buf_reset(&p->out);
	return r;
}

static int add_line(const git_diff_delta *delta, const git_diff_hunk *hunk,
		    const git_diff_line *line, void *ctx)
{
	struct buf *out = ctx;
	if (line->origin == GIT_DIFF_LINE_FILE_HDR || line->origin == GIT_DIFF_LINE_BINARY)
		return 0;
	if (line->origin == ' ' || line->origin == '+' || line->origin == '-')
		buf_u8(out, (uint8_t)line->origin);
	buf_add(out, line->content, line->content_len);
	return 0;
}

/* As git has them: a symlink's permissions mean nothing. */
static uint32_t git_mode(const struct attr *a)
{
	return S_ISLNK(a->mode) ? S_IFLNK : a->mode;
}

/* Of the permissions git knows one bit, and takes a patch that changes others alone for garbage. */
static bool git_sees_mode(const struct attr *old, const struct attr *new)
{
	return ((old->mode ^ new->mode) & (S_IFMT | S_IXUSR)) != 0;
}

static void add_index_line(struct buf *out, const struct compared *c, uint32_t same_mode)
{
	char old[ID_ABBREV + 1], new[ID_ABBREV + 1];
	const git_diff_delta *d = git_patch_get_delta(c->patch);
	git_oid_tostr(old, sizeof(old), &d->old_file.id);
	git_oid_tostr(new, sizeof(new), &d->new_file.id);
	buf_printf(out, "index %s..%s", old, new);
	if (same_mode)
		buf_printf(out, " %06o", same_mode);
	buf_u8(out, '\n');
}

/* One file from old to new; either may be all zero. */
static int patch_file(struct patcher *p, const struct attr *old, const struct attr *new,
		      const char *old_path, const char *new_path, bool renamed, unsigned what)
{
	auto_compared c = { 0 };
	struct buf *out = &p->out;
	bool has_old = old->ino != 0, has_new = new->ino != 0;
	/* A rename of what is the same is not read: a folder may hold much. */
	bool same = renamed && !(what & (DIFF_CONTENT | DIFF_TARGET));
	int r = same ? 0 : compare(p->a, p->b, old, new, new_path, &c, p->err);
	if (r < 0)
		return r;
	bool differs = !same && (!c.patch || c.old.len != c.new.len ||
				 (c.old.len && memcmp(c.old.data, c.new.data, c.old.len) != 0));
	if (has_old && has_new && !differs && !renamed && !git_sees_mode(old, new)) {
		/* As patch_special: a line that tools pass over. */
		buf_printf(out, "Modes of ");
		diff_quote(out, "a/", old_path);
		buf_printf(out, " (%04o) and ", old->mode & 07777);
		diff_quote(out, "b/", new_path);
		buf_printf(out, " (%04o) differ\n", new->mode & 07777);
		return flush(p);
	}
	buf_printf(out, "diff --git ");
	diff_quote(out, "a/", old_path);
	buf_u8(out, ' ');
	diff_quote(out, "b/", new_path);
	buf_u8(out, '\n');
	if (!has_old)
		buf_printf(out, "new file mode %06o\n", git_mode(new));
	else if (!has_new)
		buf_printf(out, "deleted file mode %06o\n", git_mode(old));
	else if (git_mode(old) != git_mode(new))
		buf_printf(out, "old mode %06o\nnew mode %06o\n", git_mode(old), git_mode(new));
	if (renamed) {
		if (!differs)
			buf_printf(out, "similarity index 100%%\n");
		buf_printf(out, "rename from ");
		diff_quote(out, "", old_path);
		buf_printf(out, "\nrename to ");
		diff_quote(out, "", new_path);
		buf_u8(out, '\n');
	}
	if (!differs && has_old && has_new)
		return flush(p);
	bool same_mode = has_old && has_new && git_mode(old) == git_mode(new);
	if (c.patch)
		add_index_line(out, &c, same_mode ? git_mode(new) : 0);
	if (c.binary) {
		diff_side(out, "Binary files ", "a/", has_old ? old_path : NULL, false);
		diff_side(out, " and ", "b/", has_new ? new_path : NULL, false);
		buf_printf(out, " differ\n");
	} else if (c.patch && (c.added || c.removed)) {
		diff_side(out, "--- ", "a/", has_old ? old_path : NULL, true);
		diff_side(out, "+++ ", "b/", has_new ? new_path : NULL, true);
		if (git_patch_print(c.patch, add_line, out) < 0)
			return git_failed(p->err, -1, new_path);
	}
	return flush(p);
}

static const struct attr no_attr;

static bool is_special(const struct attr *a)
{
	return a->ino != 0 && !has_text(a) && !S_ISDIR(a->mode);
}

static void add_special(struct buf *out, const char *prefix, const char *path, const struct attr *a)
{
	if (!is_special(a)) {
		buf_printf(out, "/dev/null");
		return;
	}
	diff_quote(out, prefix, path);
	if (S_ISFIFO(a->mode) || S_ISSOCK(a->mode))
		buf_printf(out, " (%s,", S_ISFIFO(a->mode) ? "fifo" : "socket");
	else
		buf_printf(out, " (%s device %u:%u,", S_ISCHR(a->mode) ? "char" : "block",
			   major((dev_t)a->rdev), minor((dev_t)a->rdev));
	buf_printf(out, " mode %04o)", a->mode & 07777);
}

/* A fifo, socket or device has no form in git's patches, which tools would refuse: it is told in a
 * line that they pass over, as in the text before a patch. */
static int patch_special(struct patcher *p, const struct diff_entry *e)
{
	buf_printf(&p->out, "Special files ");
	add_special(&p->out, "a/", e->old_path ? e->old_path : e->path, &e->old_attr);
	buf_printf(&p->out, " and ");
	add_special(&p->out, "b/", e->path, &e->new_attr);
	buf_printf(&p->out, " differ\n");
	return flush(p);
}

/* What a patch can say of it. */
static const struct attr *patchable(const struct attr *a)
{
	return has_text(a) ? a : &no_attr;
}

static int patch_entry(void *ctx, const struct diff_entry *e)
{
	struct patcher *p = ctx;
	const char *old_path = e->old_path ? e->old_path : e->path;
	const struct attr *old = patchable(&e->old_attr), *new = patchable(&e->new_attr);
	bool said = e->kind != DIFF_MODIFIED || (e->what & (DIFF_CONTENT | DIFF_MODE));
	if (said && (is_special(&e->old_attr) || is_special(&e->new_attr))) {
		int r = patch_special(p, e);
		if (r < 0)
			return r;
	}
	if (!old->ino && !new->ino)
		return 0; /* a folder, or told above */
	if (old->ino && new->ino && (old->mode & S_IFMT) != (new->mode &S_IFMT)) {
		int r = patch_file(p, old, &no_attr, old_path, old_path, false, e->what);
		return r < 0 ? r : patch_file(p, &no_attr, new, e->path, e->path, false, e->what);
	}
	bool renamed = e->kind == DIFF_RENAMED && old->ino && new->ino;
	if (old->ino && new->ino && !renamed &&
	    !(e->what & (DIFF_CONTENT | DIFF_MODE | DIFF_TARGET)))
		return 0; /* owner, times, xattrs: nothing that a patch can say */
	return patch_file(p, old, new, old_path, e->path, renamed, e->what);
}

int diffpatch_patch(const struct view *a, const struct view *b, const struct diff_sink *sink,
		    struct err *err)
{
	struct err own = { 0 };
	struct patcher p = { .a = a, .b = b, .sink = sink, .err = err ? err : &own };
	int r = diff_files(a, b, patch_entry, &p, p.err);
	buf_done(&p.out);
	return r;
}

/* ---- stat ---- */

struct stat_line {
	char *path; /* by which they are sorted */
	char *name; /* quoted */
	bool binary;
	uint64_t added, removed; /* lines; of binary content: sizes after and before */
};

struct stater {
	const struct view *a, *b;
	struct stat_line *lines;
	size_t n, cap;
	struct err *err;
};

static int stat_entry(void *ctx, const struct diff_entry *e)
{
	struct stater *s = ctx;
	auto_compared c = { 0 };
	auto_buf name = { 0 };
	const char *old_path = e->old_path ? e->old_path : e->path;
	const struct attr *old = S_ISDIR(e->old_attr.mode) ? &no_attr : &e->old_attr;
	const struct attr *new = S_ISDIR(e->new_attr.mode) ? &no_attr : &e->new_attr;
	bool both = old->ino && new->ino;
	if ((!old->ino && !new->ino) ||
	    (both && e->kind != DIFF_RENAMED &&
	     !(e->what & (DIFF_CONTENT | DIFF_MODE | DIFF_TARGET)) && e->kind != DIFF_TYPE))
		return 0;
	bool same = e->kind == DIFF_RENAMED && !(e->what & (DIFF_CONTENT | DIFF_TARGET));
	int r = same ? 0 : compare(s->a, s->b, old, new, e->path, &c, s->err);
	if (r < 0)
		return r;
	if (e->old_path) {
		diff_quote(&name, "", old_path);
		buf_printf(&name, " => ");
	}
	diff_quote(&name, "", e->path);
	buf_u8(&name, '\0');
	auto_free char *path = strdup(e->path);
	if (!path || buf_error(&name) || array_grow(&s->lines, s->n, &s->cap) < 0)
		return -ENOMEM;
	struct stat_line *l = &s->lines[s->n++];
	*l = (struct stat_line){ .path = steal_ptr(&path),
				 .name = (char *)steal_ptr(&name.data),
				 .binary = c.binary };
	l->added = c.binary ? c.new.size : c.added;
	l->removed = c.binary ? c.old.size : c.removed;
	return 0;
}

static unsigned digits(uint64_t n)
{
	unsigned d = 1;
	while (n >= 10)
		n /= 10, d++;
	return d;
}

/* The bar's part for n of `most` lines in `room` columns: at least 1 for anything. */
static unsigned scaled(uint64_t n, uint64_t most, unsigned room)
{
	if (most <= room)
		return (unsigned)n;
	return n ? 1 + (unsigned)((double)n * (room - 2) / (double)most) : 0;
}

static void add_stat_line(struct buf *out, const struct stat_line *l, unsigned name_width,
			  unsigned number_width, uint64_t most, unsigned room)
{
	size_t len = strlen(l->name);
	if (len > name_width)
		buf_printf(out, " ...%s", l->name + len - (name_width - 3));
	else
		buf_printf(out, " %-*s", (int)name_width, l->name);
	if (l->binary) {
		buf_printf(out, " | %*s %llu -> %llu bytes\n", (int)number_width, "Bin",
			   (unsigned long long)l->removed, (unsigned long long)l->added);
		return;
	}
	buf_printf(out, " | %*llu%s", (int)number_width,
		   (unsigned long long)(l->added + l->removed), l->added + l->removed ? " " : "");
	for (unsigned i = scaled(l->added, most, room); i > 0; i--)
		buf_u8(out, '+');
	for (unsigned i = scaled(l->removed, most, room); i > 0; i--)
		buf_u8(out, '-');
	buf_u8(out, '\n');
}

/* The files of a renamed folder come last from diff_files. */
static int by_stat_path(const void *a, const void *b)
{
	const struct stat_line *x = a, *y = b;
	return strcmp(x->path, y->path);
}

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

static int write_stat(struct stater *s, const struct diff_sink *sink)
{
	auto_buf out = { 0 };
	uint64_t most = 0, added = 0, removed = 0;
	unsigned name_width = 0, number_width = 1;
	if (s->n > 1)
		qsort(s->lines, s->n, sizeof(*s->lines), by_stat_path);
	for (size_t i = 0; i < s->n; i++) {
		const struct stat_line *l = &s->lines[i];
		unsigned len = (unsigned)strlen(l->name);
		if (len > name_width)
			name_width = len;
		if (l->binary) {
			number_width = number_width < 3 ? 3 : number_width;
			continue;
		}
		added += l->added;
		removed += l->removed;
		if (l->added + l->removed > most)
			most = l->added + l->removed;
	}
	if (digits(most) > number_width)
		number_width = digits(most);
	if (name_width > STAT_NAME_MAX)
		name_width = STAT_NAME_MAX;
	unsigned room = STAT_WIDTH - name_width - number_width - 6;
	for (size_t i = 0; i < s->n; i++)
		add_stat_line(&out, &s->lines[i], name_width, number_width, most, room);
	if (s->n) {
		buf_printf(&out, " %zu file%s changed", s->n, plural(s->n));
		if (added || !removed)
			buf_printf(&out, ", %llu insertion%s(+)", (unsigned long long)added,
				   plural(added));
		if (removed || !added)
			buf_printf(&out, ", %llu deletion%s(-)", (unsigned long long)removed,
				   plural(removed));
		buf_u8(&out, '\n');
	}
	if (buf_error(&out))
		return -ENOMEM;
	return out.len ? sink->write(sink->ctx, out.data, out.len) : 0;
}

int diffpatch_stat(const struct view *a, const struct view *b, const struct diff_sink *sink,
		   struct err *err)
{
	struct err own = { 0 };
	struct stater s = { .a = a, .b = b, .err = err ? err : &own };
	int r = diff_files(a, b, stat_entry, &s, s.err);
	if (r >= 0) {
		r = write_stat(&s, sink);
		if (r < 0)
			(void)err_sys(s.err, r, "write the statistics");
	}
	for (size_t i = 0; i < s.n; i++) {
		free(s.lines[i].path);
		free(s.lines[i].name);
	}
	free(s.lines);
	return r;
}
