/* What reads whole trees: diff and archive. Both stream; all that can be refused is looked at
 * before the first byte. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "fs/base/rfc3339.h"
#include "snapd/api.h"
#include "snapd/archive_export.h"
#include "snapd/difftext.h"
#include "snapd/files_list.h"
#include "snapd/files_place.h"
#include "snapd/gitwork.h"

enum { LIST_BLOCK = 64 * 1024 };

/* For the lists of all callers. */
static _Atomic int64_t list_room = 512 << 20;

/* A tree that is held for reading: leased, and its view. */
struct tree {
	struct source src; /* id "" : the empty tree */
	struct view view;
	bool open;
};

static void tree_done(struct tree *t)
{
	if (t->open)
		view_done(&t->view);
	source_done(&t->src);
}

static int tree_open(struct tree *t, struct snapd *sd, struct err *err)
{
	struct view_options opt;
	auto_stack stack = { 0 };
	bool nothing = !t->src.is_snap && !t->src.ws.id[0];
	int r = nothing ? 0 : source_stack(sd, &t->src, &stack, err);
	if (r < 0)
		return r;
	layercache_options(sd->layers, &opt);
	r = view_open(&t->view, &opt, &stack, err);
	if (r < 0)
		return err_prefix(err, snapd_inner(r), "open %s",
				  t->src.is_snap ? t->src.snap.id : t->src.ws.name);
	t->open = true;
	return 0;
}

/* ---- diff ---- */

struct diff_task {
	struct tree from, to;
	enum diff_format format;
};

static void diff_free(void *task)
{
	struct diff_task *d = task;
	tree_done(&d->from);
	tree_done(&d->to);
	free(d);
}

static int write_stream(void *ctx, const void *data, size_t n)
{
	return stream_write(ctx, data, n);
}

static int diff_stream(void *task, struct stream *out, struct err *err)
{
	struct diff_task *d = task;
	struct diff_sink sink = { write_stream, out };
	return snapd_inner(difftext_write(d->format, &d->from.view, &d->to.view, &sink, err));
}

/* As the path or the query says. */
static const char *other_key(const struct request *rq)
{
	return rq->params[1] ? rq->params[1] : request_query(rq, "against");
}

/* What a tree is compared with, also when nobody says. */
static int find_other(struct diff_task *d, struct request *rq, struct err *err)
{
	struct snapd *sd = rq->ctx;
	const struct source *to = &d->to.src;
	const char *key = other_key(rq);
	if (key)
		return source_find(&d->from.src, sd, key, "diff", err);
	const char *id = to->is_snap ? to->snap.parent : to->ws.head[0] ? to->ws.head : to->ws.base;
	if (!*id)
		return 0; /* the empty tree */
	int r = source_find_snap(&d->from.src, sd, id, LEASE_SHARED, "diff", err);
	return r == -ENOENT ? 0 : r; /* it went away, in which case all is new */
}

static int diff(struct request *rq, struct reply *rp, bool of_snap, struct err *err)
{
	struct snapd *sd = rq->ctx;
	int format = diff_format_parse(request_query(rq, "format"), err);
	if (format < 0)
		return format;
	struct diff_task *d = calloc(1, sizeof(*d));
	if (!d)
		return err_no_memory(err);
	d->format = (enum diff_format)format;
	int r = of_snap ? source_find_snap(&d->to.src, sd, rq->params[0], LEASE_SHARED, "diff", err)
			: source_find_ws(&d->to.src, sd, rq->params[0], LEASE_SHARED, "diff", err);
	if (r >= 0 && !other_key(rq) && source_git(&d->to.src)) {
		r = api_gitdiff(rq, rp, &d->to.src, format, err);
		diff_free(d);
		return r;
	}
	if (r >= 0 && request_query(rq, "since"))
		r = request_bad_field(rq, "since", err, "only of a checkout, and without against");
	if (r >= 0)
		r = find_other(d, rq, err);
	if (r >= 0)
		r = tree_open(&d->to, sd, err);
	if (r >= 0)
		r = tree_open(&d->from, sd, err);
	if (r < 0) {
		diff_free(d);
		return r;
	}
	rp->stream = diff_stream;
	rp->type = diff_format_mime(d->format);
	rp->task = d;
	rp->task_free = diff_free;
	return 0;
}

int api_ws_diff(struct request *rq, struct reply *rp, struct err *err)
{
	return diff(rq, rp, false, err);
}

int api_snap_diff(struct request *rq, struct reply *rp, struct err *err)
{
	return diff(rq, rp, true, err);
}

/* ---- archive ---- */

struct archive_task {
	struct tree tree;
	uint64_t root; /* inode of the directory */
	enum export_format format;
	struct archive_export_stats stats;
	struct stream *in; /* the list of what the caller has; NULL: it has nothing */
	struct have have;
};

static void archive_free(void *task)
{
	struct archive_task *a = task;
	tree_done(&a->tree);
	have_done(&a->have);
	free(a);
}

static int read_list(struct archive_task *a, struct err *err)
{
	auto_free uint8_t *buf = malloc(LIST_BLOCK);
	ssize_t n = 0;
	int r = buf ? 0 : -ENOMEM;
	while (r == 0 && (n = stream_read(a->in, buf, LIST_BLOCK, -1)) > 0)
		r = have_add(&a->have, buf, (size_t)n);
	if (n < 0)
		return err_sys(err, (int)n, "the body");
	if (r == 0)
		r = have_ready(&a->have);
	return r < 0 ? err_set(err, r, "the list of what is there: %s",
			       r == -EFBIG ? "it is too long"
			       : r == -ENOMEM ? "out of memory" : "SIZE SECONDS NANOSECONDS MODE "
								  "PATH and a NUL each")
		     : 0;
}

static int archive_stream(void *task, struct stream *out, struct err *err)
{
	struct archive_task *a = task;
	struct archive_export_options opt = {
		.format = a->format,
		.root = a->root,
		.have = a->in ? &a->have : NULL,
		.write = write_stream,
		.write_ctx = out,
	};
	int r = a->in ? read_list(a, err) : 0;
	return r < 0 ? r : archive_export(&a->tree.view, &opt, &a->stats, err);
}

/* What the format couldn't hold is told, never lost in silence. */
json_t *api_exported(const struct archive_export_stats *st)
{
	return json_pack("{s:I, s:I, s:{s:I, s:I, s:I, s:I, s:I, s:I}}", "members",
			 (json_int_t)st->members, "bytes", (json_int_t)st->bytes, "lost", "sockets",
			 (json_int_t)st->sockets_skipped, "specials",
			 (json_int_t)st->specials_skipped, "xattrs", (json_int_t)st->xattrs_dropped,
			 "hard_links", (json_int_t)st->links_as_files, "holes",
			 (json_int_t)st->holes_filled, "times", (json_int_t)st->times_cut);
}

static json_t *archive_summary(void *task)
{
	const struct archive_task *a = task;
	const char *one;
	json_t *o = api_exported(&a->stats);
	if (!a->in || !o)
		return o;
	size_t left = have_left(&a->have, &one);
	int bad = json_object_set_new(o, "skipped", json_integer((json_int_t)a->have.skipped));
	bad |= json_object_set_new(o, "left", json_integer((json_int_t)left));
	if (one)
		bad |= listing_set_name(o, "left_path", one, strlen(one));
	if (!bad)
		return o;
	json_decref(o);
	return NULL;
}

static int find_directory(struct archive_task *a, const char *path, struct err *err)
{
	struct found f;
	int r = place_find_in(&a->tree.view, path, &f, err);
	if (r < 0)
		return r;
	if (!S_ISDIR(f.mode))
		return err_set(err, -ENOTDIR, "that is a %s, not a directory",
			       place_type(f.mode));
	a->root = f.ino;
	return 0;
}

/* When the copy began that the list belongs to. */
static int read_before(struct archive_task *a, struct request *rq, struct err *err)
{
	const char *text = request_query(rq, "before");
	if (a->format != EXPORT_TAR && a->format != EXPORT_TAR_ZST)
		return err_set(err, -EINVAL, "a list of what is there goes with tar and tar.zst");
	if (!text || rfc3339_parse(text, &a->have.before) < 0)
		return err_set(err, -EINVAL,
			       "before: a time as 2001-02-03T04:05:06.123456789Z is needed");
	return 0;
}

static int archive(struct request *rq, struct reply *rp, bool of_snap, struct err *err)
{
	struct snapd *sd = rq->ctx;
	const char *name = request_query(rq, "format");
	int format = export_format_parse(name ? name : "tar", err);
	if (format < 0)
		return format;
	struct archive_task *a = calloc(1, sizeof(*a));
	if (!a)
		return err_no_memory(err);
	a->format = (enum export_format)format;
	a->in = rq->upload;
	a->have.room = &list_room;
	int r = a->in ? read_before(a, rq, err) : 0;
	if (r < 0) {
		archive_free(a);
		return r;
	}
	struct source *src = &a->tree.src;
	r = of_snap ? source_find_snap(src, sd, rq->params[0], LEASE_SHARED, "export", err)
		    : source_find_ws(src, sd, rq->params[0], LEASE_SHARED, "export", err);
	if (r >= 0)
		r = tree_open(&a->tree, sd, err);
	if (r >= 0)
		r = find_directory(a, rq->tail, err);
	if (r < 0) {
		archive_free(a);
		return r;
	}
	rp->stream = archive_stream;
	rp->summary = archive_summary;
	rp->type = export_format_mime(a->format);
	rp->task = a;
	rp->task_free = archive_free;
	return 0;
}

int api_ws_archive(struct request *rq, struct reply *rp, struct err *err)
{
	return archive(rq, rp, false, err);
}

int api_snap_archive(struct request *rq, struct reply *rp, struct err *err)
{
	return archive(rq, rp, true, err);
}
