#include "snapd/gitdiff.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "gitops/git.h"
#include "gitops/packout.h"
#include "snapd/files_list.h"
#include "snapd/gitstat.h"

enum {
	CONTEXT_LINES = 3,
	ID_ABBREV = 12, /* digits: git's own for a repository of the kernel's size */
	MODE_LINK = 0120000,
	MODE_GITLINK = 0160000,
};

struct writer {
	const struct changes_options *opt;
	const struct diff_sink *sink;
	struct buf out;
	struct err *err;
};

static int flush(struct writer *w)
{
	int r = buf_error(&w->out);
	if (r >= 0 && w->out.len)
		r = w->sink->write(w->sink->ctx, w->out.data, w->out.len);
	buf_reset(&w->out);
	return r < 0 ? err_sys(w->err, r, "write the difference") : 0;
}

/* ---- contents ---- */

/* One file's two sides. */
struct pair {
	struct buf old, new;
	uint64_t old_size, new_size;
	bool large; /* one is above DIFF_TEXT_MAX, or not to be shown */
	git_patch *patch;
};

static void pair_done(struct pair *p)
{
	git_patch_free(p->patch);
	buf_done(&p->old);
	buf_done(&p->new);
}
#define auto_pair __attribute__((cleanup(pair_done))) struct pair

/* git shows a submodule as this line. */
static void add_subproject(struct buf *out, const struct oid *oid)
{
	char hex[OID_HEX + 1];
	oid_hex(hex, oid);
	buf_printf(out, "Subproject commit %s\n", hex);
}

static int load(struct writer *w, const struct change *c, bool old, bool new, struct pair *p)
{
	int r = 1;
	if (old && w->opt->hide_outside &&
	    !changes_in_scope(w->opt, c->old_path ? c->old_path : c->path)) {
		p->large = true;
		p->new_size = c->size;
		return 0;
	}
	if (old && c->old_mode == MODE_GITLINK)
		add_subproject(&p->old, &c->old_oid);
	else if (old)
		r = change_old_content(&p->old, &p->old_size, w->opt, c, DIFF_TEXT_MAX, w->err);
	p->large = r == 0;
	if (r >= 0 && new)
		r = change_content(&p->new, &p->new_size, w->opt, c, DIFF_TEXT_MAX, w->err);
	p->large |= r == 0;
	return r < 0 ? r : buf_error(&p->old) | buf_error(&p->new) ? err_no_memory(w->err) : 0;
}

static int compare(struct writer *w, const struct change *c, struct pair *p, uint32_t flags)
{
	git_diff_options opt;
	if (p->large)
		return 0;
	git_diff_options_init(&opt, GIT_DIFF_OPTIONS_VERSION);
	opt.context_lines = CONTEXT_LINES;
	opt.flags |= flags;
	int r = git_patch_from_buffers(&p->patch, p->old.data, p->old.len, c->path, p->new.data,
				       p->new.len, c->path, &opt);
	return r < 0 ? git_fail(w->err, r, "compare %s", c->path) : 0;
}

static bool is_binary(const struct pair *p)
{
	return p->large ||
	       (p->patch && git_patch_get_delta(p->patch)->flags & GIT_DIFF_FLAG_BINARY);
}

/* ---- patch ---- */

static int add_line(const git_diff_delta *delta, const git_diff_hunk *hunk,
		    const git_diff_line *line, void *ctx)
{
	struct buf *out = ctx;
	if (line->origin == GIT_DIFF_LINE_FILE_HDR)
		return 0;
	if (line->origin == ' ' || line->origin == '+' || line->origin == '-')
		buf_u8(out, (uint8_t)line->origin);
	buf_add(out, line->content, line->content_len);
	return 0;
}

/* One file from old to new; a change of type is two of these. */
struct file {
	const struct change *c;
	const char *old_path, *path;
	uint32_t old_mode, mode; /* 0: not on that side */
};

static void add_head(struct buf *out, const struct file *f, bool differs)
{
	buf_printf(out, "diff --git ");
	diff_quote(out, "a/", f->old_path);
	buf_u8(out, ' ');
	diff_quote(out, "b/", f->path);
	buf_u8(out, '\n');
	if (!f->old_mode)
		buf_printf(out, "new file mode %06o\n", f->mode);
	else if (!f->mode)
		buf_printf(out, "deleted file mode %06o\n", f->old_mode);
	else if (f->old_mode != f->mode)
		buf_printf(out, "old mode %06o\nnew mode %06o\n", f->old_mode, f->mode);
	if (f->c->kind == CHANGE_RENAME) {
		/* What differs isn't called wholly the same, however little it is. */
		unsigned percent = f->c->similarity == 100 && differs ? 99 : f->c->similarity;
		buf_printf(out, "similarity index %u%%\nrename from ", percent);
		diff_quote(out, "", f->old_path);
		buf_printf(out, "\nrename to ");
		diff_quote(out, "", f->path);
		buf_u8(out, '\n');
	}
}

static void add_index_line(struct buf *out, const struct file *f, const struct oid *old,
			   const struct oid *new, bool whole)
{
	char a[OID_HEX + 1], b[OID_HEX + 1];
	oid_hex(a, old);
	oid_hex(b, new);
	if (!whole)
		a[ID_ABBREV] = b[ID_ABBREV] = '\0';
	buf_printf(out, "index %s..%s", a, b);
	if (f->old_mode == f->mode)
		buf_printf(out, " %06o", f->mode);
	buf_u8(out, '\n');
}

static int add_body(struct writer *w, const struct file *f, struct pair *p)
{
	static const struct oid none;
	struct buf *out = &w->out;
	struct oid old = f->old_mode ? f->c->old_oid : none, new = none;
	bool binary = is_binary(p), empty = !p->large && p->old.len + p->new.len == 0;
	if (f->mode && !p->large)
		git_object_id_of(&new, GIT_BLOB, p->new.data, p->new.len);
	else if (f->mode)
		new = f->c->oid;
	if (!p->large || !binary)
		add_index_line(out, f, &old, &new, binary);
	if (p->large) {
		diff_side(out, "Binary files ", "a/", f->old_mode ? f->old_path : NULL, false);
		diff_side(out, " and ", "b/", f->mode ? f->path : NULL, false);
		buf_printf(out, " differ\n");
		return 0;
	}
	if (empty)
		return 0;
	if (!binary) {
		diff_side(out, "--- ", "a/", f->old_mode ? f->old_path : NULL, true);
		diff_side(out, "+++ ", "b/", f->mode ? f->path : NULL, true);
	}
	int r = git_patch_print(p->patch, add_line, out);
	return r < 0 ? git_fail(w->err, r, "compare %s", f->path) : 0;
}

static int patch_file(struct writer *w, const struct file *f)
{
	auto_pair p = { 0 };
	const struct change *c = f->c;
	bool same = f->old_mode && f->mode && memcmp(&c->oid, &c->old_oid, sizeof(c->oid)) == 0;
	int r = same ? 0 : load(w, c, f->old_mode != 0, f->mode != 0, &p);
	if (r >= 0 && !same)
		r = compare(w, c, &p, GIT_DIFF_SHOW_BINARY);
	if (r < 0)
		return r;
	bool differs = !same && (p.large || !f->old_mode || !f->mode || p.old.len != p.new.len ||
				 (p.old.len && memcmp(p.old.data, p.new.data, p.old.len) != 0));
	add_head(&w->out, f, differs);
	if (differs)
		r = add_body(w, f, &p);
	return r < 0 ? r : flush(w);
}

static int write_patch(struct writer *w, const struct change *c)
{
	const char *old = c->old_path ? c->old_path : c->path;
	struct file f = { c, old, c->path, c->old_mode, c->mode };
	if (c->kind != CHANGE_TYPE)
		return patch_file(w, &f);
	struct file gone = f, come = f;
	gone.mode = 0;
	come.old_mode = 0;
	int r = patch_file(w, &gone);
	return r < 0 ? r : patch_file(w, &come);
}

/* ---- name-status ---- */

static int write_name(struct writer *w, const struct change *c)
{
	if (c->kind == CHANGE_RENAME) {
		buf_printf(&w->out, "R%03u\t", c->similarity);
		diff_quote(&w->out, "", c->old_path);
	} else {
		buf_u8(&w->out, (uint8_t)c->kind);
	}
	buf_u8(&w->out, '\t');
	diff_quote(&w->out, "", c->path);
	buf_u8(&w->out, '\n');
	return flush(w);
}

/* ---- stat ---- */

static int add_stat(struct writer *w, struct gitstat *s, const struct change *c)
{
	auto_pair p = { 0 };
	struct gitstat_file f = { .old_path = c->old_path, .path = c->path };
	bool same = c->old_mode && memcmp(&c->oid, &c->old_oid, sizeof(c->oid)) == 0;
	int r = same ? 0 : load(w, c, c->old_mode != 0, c->mode != 0, &p);
	if (r >= 0 && !same)
		r = compare(w, c, &p, 0);
	if (r < 0)
		return r;
	f.binary = is_binary(&p);
	if (f.binary) {
		f.removed = p.large ? p.old_size : p.old.len;
		f.added = p.large ? p.new_size : p.new.len;
	} else if (p.patch) {
		size_t added, removed;
		r = git_patch_line_stats(NULL, &added, &removed, p.patch);
		if (r < 0)
			return git_fail(w->err, r, "compare %s", c->path);
		f.added = added;
		f.removed = removed;
	}
	return gitstat_add(s, &f) < 0 ? err_no_memory(w->err) : 0;
}

static int write_stat(struct writer *w, const struct changes *c)
{
	struct gitstat s = { 0 };
	int r = 0;
	for (size_t i = 0; i < c->n && r >= 0; i++)
		r = add_stat(w, &s, &c->v[i]);
	if (r >= 0)
		gitstat_write(&s, &w->out);
	gitstat_done(&s);
	return r < 0 ? r : flush(w);
}

/* ---- json ---- */

static json_t *side_json(uint32_t mode, const struct oid *oid)
{
	static const struct oid none;
	char text[16], hex[OID_HEX + 1];
	if (!mode)
		return json_null();
	(void)snprintf(text, sizeof(text), "%06o", mode);
	oid_hex(hex, oid);
	return memcmp(oid, &none, sizeof(none)) ? json_pack("{s:s, s:s}", "mode", text, "oid", hex)
						: json_pack("{s:s}", "mode", text);
}

static int append(const char *data, size_t n, void *ctx)
{
	buf_add(ctx, data, n);
	return 0;
}

static int write_line(struct writer *w, json_t *j)
{
	int r = j ? json_dump_callback(j, append, &w->out, JSON_COMPACT) : -1;
	json_decref(j);
	buf_u8(&w->out, '\n');
	return r < 0 ? err_no_memory(w->err) : flush(w);
}

static int write_json(struct writer *w, const struct change *c)
{
	const char *kind = c->kind == CHANGE_ADD      ? "added"
			   : c->kind == CHANGE_DELETE ? "deleted"
			   : c->kind == CHANGE_MODIFY ? "modified"
			   : c->kind == CHANGE_RENAME ? "renamed"
						      : "type";
	json_t *j = json_pack("{s:s, s:o, s:o}", "kind", kind, "old",
			      side_json(c->old_mode, &c->old_oid), "new",
			      side_json(c->mode, &c->oid));
	int r = j ? listing_set_name(j, "path", c->path, strlen(c->path)) : -ENOMEM;
	if (r == 0 && c->old_path)
		r = listing_set_name(j, "old_path", c->old_path, strlen(c->old_path));
	if (r == 0 && c->old_path)
		r = json_object_set_new(j, "similarity", json_integer(c->similarity));
	if (r == 0)
		return write_line(w, j);
	json_decref(j);
	return err_no_memory(w->err);
}

static int write_warning(struct writer *w, const char *text)
{
	auto_buf clean = { 0 };
	(void)diff_utf8(&clean, text, strlen(text));
	if (buf_error(&clean) < 0)
		return err_no_memory(w->err);
	return write_line(w, json_pack("{s:s, s:o}", "kind", "warning", "message",
				       json_stringn((const char *)clean.data, clean.len)));
}

int gitdiff_write(enum diff_format format, const struct changes *c,
		  const struct changes_options *opt, const struct diff_sink *sink, struct err *err)
{
	struct err own = { 0 };
	struct writer w = { .opt = opt, .sink = sink, .err = err ? err : &own };
	int r = 0;
	if (format == DIFF_FORMAT_STAT)
		r = write_stat(&w, c);
	for (size_t i = 0; i < c->n && r >= 0 && format != DIFF_FORMAT_STAT; i++)
		r = format == DIFF_FORMAT_JSON          ? write_json(&w, &c->v[i])
		    : format == DIFF_FORMAT_NAME_STATUS ? write_name(&w, &c->v[i])
							: write_patch(&w, &c->v[i]);
	for (size_t i = 0; i < c->nwarnings && r >= 0 && format == DIFF_FORMAT_JSON; i++)
		r = write_warning(&w, c->warnings[i]);
	buf_done(&w.out);
	return r;
}
