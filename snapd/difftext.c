/* Entries as ndjson and name-status; what all formats share. Patches are in diffpatch.c. */
#include "snapd/difftext.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "fs/base/rfc3339.h"
#include "snapd/diffpatch.h"
#include "snapd/files_list.h"

int diff_format_parse(const char *name, struct err *err)
{
	static const char *const names[] = { "json", "name-status", "stat", "patch" };
	for (int i = 0; i < 4; i++)
		if (!name || strcmp(name, names[i]) == 0)
			return i;
	return err_set(err, -EINVAL, "no format \"%.40s\": json, name-status, stat, patch", name);
}

const char *diff_format_mime(enum diff_format f)
{
	return f == DIFF_FORMAT_JSON ? "application/x-ndjson" : "text/plain; charset=utf-8";
}

/* ---- bytes of paths ---- */

void diff_quote(struct buf *out, const char *prefix, const char *path)
{
	static const char plain[] = "\a\b\t\n\v\f\r\"\\", letter[] = "abtnvfr\"\\";
	bool needs = false;
	for (const char *p = path; *p && !needs; p++)
		needs = (unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f || *p == '"' ||
			*p == '\\';
	if (!needs) {
		buf_add(out, prefix, strlen(prefix));
		buf_add(out, path, strlen(path));
		return;
	}
	buf_u8(out, '"');
	buf_add(out, prefix, strlen(prefix));
	for (const char *p = path; *p; p++) {
		const char *at = strchr(plain, *p);
		if (at)
			buf_printf(out, "\\%c", letter[at - plain]);
		else if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f)
			buf_printf(out, "\\%03o", (unsigned char)*p);
		else
			buf_u8(out, (uint8_t)*p);
	}
	buf_u8(out, '"');
}

void diff_side(struct buf *out, const char *mark, const char *prefix, const char *path, bool line)
{
	buf_add(out, mark, strlen(mark));
	if (path)
		diff_quote(out, prefix, path);
	else
		buf_printf(out, "/dev/null");
	if (line && path && strchr(path, ' '))
		buf_u8(out, '\t');
	if (line)
		buf_u8(out, '\n');
}

/* Length of the UTF-8 sequence at p (n bytes left), as RFC 3629 has them; 0: none. */
static size_t utf8_sequence(const uint8_t *p, size_t n)
{
	uint8_t low = 0x80, high = 0xbf;
	size_t len;
	if (p[0] < 0x80)
		return 1;
	if (p[0] >= 0xc2 && p[0] <= 0xdf)
		len = 2;
	else if (p[0] >= 0xe0 && p[0] <= 0xef)
		len = 3;
	else if (p[0] >= 0xf0 && p[0] <= 0xf4)
		len = 4;
	else
		return 0;
	if (len > n)
		return 0;
	if (p[0] == 0xe0)
		low = 0xa0;
	else if (p[0] == 0xed)
		high = 0x9f;
	else if (p[0] == 0xf0)
		low = 0x90;
	else if (p[0] == 0xf4)
		high = 0x8f;
	if (p[1] < low || p[1] > high)
		return 0;
	for (size_t i = 2; i < len; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	return len;
}

bool diff_utf8(struct buf *out, const char *bytes, size_t len)
{
	const uint8_t *p = (const uint8_t *)bytes, *end = p + len;
	bool bad = false;
	while (p < end) {
		size_t n = utf8_sequence(p, (size_t)(end - p));
		if (n)
			buf_add(out, p, n);
		else
			buf_add(out, "\xef\xbf\xbd", 3);
		bad |= n == 0;
		p += n ? n : 1;
	}
	return bad;
}

/* ---- ndjson ---- */

struct writer {
	const struct diff_sink *sink;
	struct buf line;
};

static const char *type_name(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return "file";
	case S_IFDIR:
		return "dir";
	case S_IFLNK:
		return "symlink";
	case S_IFIFO:
		return "fifo";
	case S_IFSOCK:
		return "socket";
	case S_IFCHR:
		return "char";
	case S_IFBLK:
		return "block";
	default:
		return "unknown";
	}
}

static json_t *attr_json(const struct attr *a)
{
	char mode[16], mtime[RFC3339_SIZE];
	if (a->ino == 0)
		return json_null();
	(void)snprintf(mode, sizeof(mode), "%04o", a->mode & 07777);
	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:s, s:I}", "type", type_name(a->mode), "mode",
			 mode, "uid", (json_int_t)a->uid, "gid", (json_int_t)a->gid, "size",
			 (json_int_t)a->size, "mtime", rfc3339_text(mtime, &a->mtime), "ino",
			 (json_int_t)a->ino);
}

static const char *kind_name(enum diff_kind kind)
{
	switch (kind) {
	case DIFF_ADDED:
		return "added";
	case DIFF_DELETED:
		return "deleted";
	case DIFF_MODIFIED:
		return "modified";
	case DIFF_RENAMED:
		return "renamed";
	case DIFF_TYPE:
		return "type";
	}
	return "unknown";
}

static json_t *what_json(unsigned what)
{
	static const char *const names[] = {
		"content", "mode", "owner", "mtime", "xattr", "target"
	};
	json_t *list = json_array();
	for (int i = 0; i < 6; i++)
		if (what & 1u << i)
			(void)json_array_append_new(list, json_string(names[i]));
	return list;
}

static int append(const char *data, size_t n, void *ctx)
{
	buf_add(ctx, data, n);
	return 0;
}

static int write_json(void *ctx, const struct diff_entry *e)
{
	struct writer *w = ctx;
	json_t *j = json_pack("{s:s, s:o, s:o, s:o}", "kind", kind_name(e->kind), "what",
			      what_json(e->what), "old", attr_json(&e->old_attr), "new",
			      attr_json(&e->new_attr));
	int r = j ? listing_set_name(j, "path", e->path, strlen(e->path)) : -ENOMEM;
	if (r == 0 && e->old_path)
		r = listing_set_name(j, "old_path", e->old_path, strlen(e->old_path));
	buf_reset(&w->line);
	if (r == 0)
		r = json_dump_callback(j, append, &w->line, JSON_COMPACT);
	json_decref(j);
	buf_u8(&w->line, '\n');
	if (r != 0 || buf_error(&w->line))
		return -ENOMEM;
	return w->sink->write(w->sink->ctx, w->line.data, w->line.len);
}

/* ---- name-status ---- */

static int write_name_status(void *ctx, const struct diff_entry *e)
{
	struct writer *w = ctx;
	buf_reset(&w->line);
	buf_printf(&w->line, "%c\t", e->kind);
	if (e->old_path) {
		diff_quote(&w->line, "", e->old_path);
		buf_u8(&w->line, '\t');
	}
	diff_quote(&w->line, "", e->path);
	buf_u8(&w->line, '\n');
	if (buf_error(&w->line))
		return -ENOMEM;
	return w->sink->write(w->sink->ctx, w->line.data, w->line.len);
}

int difftext_write(enum diff_format format, const struct view *a, const struct view *b,
		   const struct diff_sink *sink, struct err *err)
{
	struct writer w = { .sink = sink };
	int r;
	switch (format) {
	case DIFF_FORMAT_STAT:
		return diffpatch_stat(a, b, sink, err);
	case DIFF_FORMAT_PATCH:
		return diffpatch_patch(a, b, sink, err);
	default:
		r = diff_views(a, b, format == DIFF_FORMAT_JSON ? write_json : write_name_status,
			       &w, err);
	}
	buf_done(&w.line);
	return r;
}
