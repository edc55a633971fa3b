#include "snapd/files_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/base64.h"
#include "fs/base/cleanup.h"
#include "fs/base/rfc3339.h"
#include "snapd/archive_lib.h"
#include "snapd/files_head.h"

enum { FLUSH_BYTES = 64 * 1024 };

void listing_free(void *task)
{
	struct listing *l = task;
	found_done(&l->dir);
	place_done(&l->place);
	free(l->path);
	free(l);
}

/* ---- entries ---- */

int listing_set_name(json_t *o, const char *key, const char *text, size_t len)
{
	char other[32];
	if (archive_is_utf8_n(text, len))
		return json_object_set_new(o, key, json_stringn(text, len));
	(void)snprintf(other, sizeof(other), "%s_b64", key);
	auto_free char *b64 = base64_encode(text, len);
	return b64 ? json_object_set_new(o, other, json_string(b64)) : -1;
}

json_t *listing_entry(const char *name, size_t len, const struct found *f, const char *target)
{
	char mode[8], time[RFC3339_SIZE];
	json_t *o = json_object();
	(void)snprintf(mode, sizeof(mode), "%04o", (unsigned)f->mode & 07777);
	int bad = o ? listing_set_name(o, "name", name, len) : -1;
	bad |= json_object_set_new(o, "size", json_integer((json_int_t)f->size));
	bad |= json_object_set_new(o, "type", json_string(place_type(f->mode)));
	bad |= json_object_set_new(o, "modified_at", json_string(rfc3339_text(time, &f->mtime)));
	bad |= json_object_set_new(o, "mode", json_string(mode));
	if (f->btime.tv_sec)
		bad |= json_object_set_new(o, "created_at",
					   json_string(rfc3339_text(time, &f->btime)));
	if (target)
		bad |= listing_set_name(o, "target", target, strlen(target));
	if (!bad)
		return o;
	json_decref(o);
	return NULL;
}

/* ---- the stream ---- */

struct writing {
	const struct listing *l;
	struct stream *out;
	struct buf text;
	uint64_t count, last; /* entries so far, cookie of the last one */
	bool full;            /* the limit is reached, and there is more */
};

static int add_text(const char *text, size_t n, void *ctx)
{
	buf_add(ctx, text, n);
	return 0;
}

static int flush(struct writing *w, size_t least)
{
	if (buf_error(&w->text))
		return -ENOMEM;
	if (w->text.len < least)
		return 0;
	int r = stream_write(w->out, w->text.data, w->text.len);
	buf_reset(&w->text);
	return r;
}

static int put_json(struct writing *w, json_t *j)
{
	if (!j)
		return -ENOMEM;
	(void)json_dump_callback(j, add_text, &w->text, JSON_COMPACT | JSON_ENCODE_ANY);
	json_decref(j);
	return flush(w, FLUSH_BYTES);
}

/* 1: no more are wanted. */
static int put_entry(struct writing *w, const char *name, size_t len, const struct found *f,
		     uint64_t cookie)
{
	if (w->l->limit && w->count == w->l->limit) {
		w->full = true;
		return 1;
	}
	buf_add(&w->text, w->count ? ",\n" : "\n", w->count ? 2 : 1);
	w->count++;
	w->last = cookie;
	return put_json(w, listing_entry(name, len, f, NULL));
}

static int put_fs_entry(void *ctx, const struct fs_entry *e)
{
	const struct found f = { .mode = e->mode, .size = e->size, .mtime = e->mtime };
	return put_entry(ctx, e->name, e->len, &f, e->cookie);
}

/* Asked of bough-fs: through the mount, the kernel and bough-fs would keep what they were asked for
 * of each entry. */
static int list_mount(struct writing *w, struct err *err)
{
	const struct listing *l = w->l;
	w->last = l->after;
	for (bool more = true; more;) {
		int r = fs_entries(l->place.sd->fs, l->place.src.ws.id, l->dir.ino, w->last,
				   put_fs_entry, w, &more, err);
		if (r)
			return r;
	}
	return 0;
}

static int list_view(struct writing *w, struct err *err)
{
	const struct view *v = &w->l->place.view;
	struct dirent_ref d;
	int r = 0;
	for (uint64_t at = w->l->after; r == 0 && at != UINT64_MAX; at = d.cookie) {
		struct attr a;
		r = view_dirent_ceil(v, w->l->dir.ino, at + 1, &d);
		if (r == -ENOENT)
			return 0;
		if (r == 0)
			r = view_inode(v, d.ino, &a);
		if (r < 0)
			return place_error(err, r == -ENOENT ? -EIO : r, "list", w->l->path);
		struct found f = { .mode = a.mode, .size = a.size, .mtime = a.mtime };
		r = put_entry(w, d.name, d.name_len, &f, d.cookie);
	}
	return r;
}

static int put_below(void *ctx, const char *path, size_t len, const struct attr *a)
{
	struct writing *w = ctx;
	struct found f = { .mode = a->mode,
			   .size = a->size,
			   .mtime = a->mtime,
			   .btime = a->btime };
	return len ? put_entry(w, path, len, &f, 0) : 0;
}

int listing_stream(void *task, struct stream *out, struct err *err)
{
	const struct listing *l = task;
	struct writing w = { .l = l, .out = out };
	json_t *head = json_object();
	int r = head && listing_set_name(head, "path", l->path, strlen(l->path)) == 0
			? put_json(&w, head)
			: -ENOMEM;
	if (r == 0) {
		w.text.len--; /* the closing brace comes later */
		buf_printf(&w.text, ",\"entries\":[");
		r = l->recursive ? view_walk_from(&l->place.view, l->dir.ino, put_below, &w, err)
		    : l->place.has_view ? list_view(&w, err)
					: list_mount(&w, err);
	}
	if (r >= 0) {
		buf_printf(&w.text, "%s]", w.count ? "\n" : "");
		if (w.full)
			buf_printf(&w.text, ",\"next\":\"%llx\"", (unsigned long long)w.last);
		buf_printf(&w.text, "}\n");
		r = flush(&w, 1);
	}
	buf_done(&w.text);
	if (r == -ENOMEM)
		return err_set(err, r, "out of memory");
	return r == -EPIPE ? err_set(err, r, "the client left") : r;
}
