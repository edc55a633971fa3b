/* Exports that are kept: made (as a job, mostly), listed, fetched in parts, deleted. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "snapd/api.h"
#include "snapd/archive_export.h"
#include "snapd/exports.h"
#include "snapd/files_head.h"
#include "snapd/files_place.h"
#include "snapd/intents.h"
#include "snapd/limits.h"
#include "snapd/stackop.h"

/* How much is written between two looks at the quota and the disk. */
enum { LOOK_BYTES = 16 << 20 };

struct exporting {
	struct snapd *sd;
	struct source src;
	struct view view;
	struct stack stack; /* that it shows */
	bool open;
	uint64_t root; /* inode of the directory */
	enum export_format format;
	char *path; /* of it */
	char owner[OWNER_SIZE];
	struct export_file file;
	uint64_t bytes, looked;
	uint64_t total; /* bytes of contents that it will have, about */
	struct progress *progress;
	struct err why; /* of a write that failed */
};

static void exporting_free(void *task)
{
	struct exporting *x = task;
	export_drop(&x->file);
	if (x->open)
		view_done(&x->view);
	stack_done(&x->stack);
	source_done(&x->src);
	free(x->path);
	free(x);
}

static json_t *to_json(const struct export *e)
{
	return json_pack("{s:s, s:s, s:I, s:o, s:o, s:s+}", "id", e->id, "format", e->format,
			 "bytes", (json_int_t)e->bytes, "created", api_time(e->created_ns),
			 "expires", api_time(e->created_ns + (int64_t)EXPORTS_KEPT_S * 1000000000),
			 "url", "/v1/exports/", e->id);
}

static int write_file(void *ctx, const void *data, size_t n)
{
	struct exporting *x = ctx;
	int r = io_write_full(NULL, x->file.fd, data, n, x->bytes);
	if (r < 0)
		return err_sys(&x->why, r, "write an export");
	x->bytes += n;
	if (progress_cancelled(x->progress))
		return err_set(&x->why, -ECANCELED, "cancelled");
	if (x->bytes - x->looked < LOOK_BYTES)
		return 0;
	x->looked = x->bytes;
	return limits_room(x->sd, x->owner, 0, &x->why); /* it is among what is there */
}

static int tell(void *ctx, uint64_t members, uint64_t bytes_read)
{
	struct exporting *x = ctx;
	/* Files with names elsewhere, too, were counted in part only. */
	x->total = bytes_read > x->total ? bytes_read : x->total;
	progress_tell(x->progress, bytes_read, x->total, "bytes", "export");
	return progress_cancelled(x->progress);
}

static int count_bytes(void *ctx, const char *path, size_t len, const struct attr *a)
{
	struct exporting *x = ctx;
	if (S_ISREG(a->mode))
		x->total += a->size / (a->nlink ? a->nlink : 1);
	return progress_cancelled(x->progress) ? -ECANCELED : 0;
}

static json_t *exported(const struct exporting *x, const struct archive_export_stats *st)
{
	struct export e = { .bytes = x->bytes, .created_ns = snapd_now_ns() };
	memcpy(e.id, x->file.id, sizeof(e.id));
	(void)snprintf(e.format, sizeof(e.format), "%s", export_format_name(x->format));
	json_t *j = to_json(&e), *more = api_exported(st);
	/* `bytes` is the file's, as in the list. */
	bool bad = !j || !more || json_object_update(j, more) < 0 ||
		   json_object_set_new(j, "bytes", json_integer((json_int_t)e.bytes)) < 0;
	json_decref(more);
	if (!bad)
		return j;
	json_decref(j);
	return NULL;
}

static int export_run(void *task, struct progress *p, unsigned *status, json_t **result,
		      struct err *err)
{
	struct exporting *x = task;
	struct archive_export_stats st = { 0 };
	const struct archive_export_options opt = {
		.format = x->format, .root = x->root, .write = write_file, .write_ctx = x,
		.progress = tell, .progress_ctx = x
	};
	x->progress = p;
	int r = p ? view_walk_from(&x->view, x->root, count_bytes, x, err) : 0;
	if (r == -ECANCELED)
		return err_set(err, r, "cancelled");
	if (r >= 0)
		r = export_begin(&x->file, x->sd, x->owner, export_format_name(x->format), err);
	if (r < 0)
		return r;
	r = archive_export(&x->view, &opt, &st, err);
	if (x->why.code < 0)
		r = err_set(err, x->why.code, "%s", x->why.text);
	if (r >= 0)
		r = limits_room(x->sd, x->owner, 0, err);
	if (r < 0)
		return r;
	/* What isn't told isn't kept. */
	json_t *told = exported(x, &st);
	r = told ? intent_export(x->sd, x->owner, x->file.name, 201, told, err)
		 : err_no_memory(err);
	if (r >= 0)
		r = export_keep(&x->file, err);
	if (r < 0) {
		json_decref(told);
		return r;
	}
	*status = 201;
	*result = told;
	return 0;
}

/* `sealed`: of a job that goes on after a kill; NULL: as the source is now. */
static int open_tree(struct exporting *x, const char *path, const json_t *sealed, struct err *err)
{
	struct view_options opt;
	struct found f;
	int r = sealed ? stack_from_json(&x->stack, sealed)
		       : source_stack(x->sd, &x->src, &x->stack, err);
	if (r < 0)
		return sealed ? err_sys(err, r, "what was sealed") : r;
	layercache_options(x->sd->layers, &opt);
	r = view_open(&x->view, &opt, &x->stack, err);
	if (r < 0 && sealed)
		return err_set(err, -ESTALE,
			       "what was sealed for it before the daemon ended is gone: ask again");
	if (r < 0)
		return err_prefix(err, snapd_inner(r), "export");
	x->open = true;
	while (*path == '/')
		path++;
	r = place_find_in(&x->view, path, &f, err);
	if (r >= 0 && !S_ISDIR(f.mode))
		return err_set(err, -ENOTDIR, "that is a %s, not a directory", place_type(f.mode));
	x->root = r >= 0 ? f.ino : 0;
	return r;
}

static json_t *export_again(void *task)
{
	const struct exporting *x = task;
	return json_pack("{s:s, s:s, s:s, s:s, s:o}", "call", "export", "from",
			 x->src.is_snap ? x->src.snap.id : x->src.ws.id, "path", x->path, "format",
			 export_format_name(x->format), "stack", stack_to_json(&x->stack));
}

int api_export_new(struct request *rq, struct reply *rp, struct err *err)
{
	const char *name = request_string(rq, "format"), *path = request_string(rq, "path");
	int format = export_format_parse(name ? name : "tar", err);
	if (format < 0)
		return format;
	struct exporting *x = calloc(1, sizeof(*x));
	if (!x)
		return err_no_memory(err);
	x->sd = rq->ctx;
	x->format = (enum export_format)format;
	x->file = (struct export_file){ .dir = -1, .fd = -1 };
	memcpy(x->owner, rq->caller->owner, sizeof(x->owner));
	x->path = strdup(path ? path : "");
	int r = x->path ? source_find(&x->src, x->sd, request_string(rq, "from"), "export", err)
			: err_no_memory(err);
	if (r >= 0)
		r = open_tree(x, x->path, json_object_get(rq->body, "stack"), err);
	if (r < 0) {
		exporting_free(x);
		return r;
	}
	rp->job = export_run;
	rp->again = export_again;
	rp->task = x;
	rp->task_free = exporting_free;
	return 0;
}

/* ---- those that are kept ---- */

struct listed {
	struct export of[EXPORTS_MAX];
	size_t n;
};

static int list_one(void *ctx, const struct export *e)
{
	struct listed *l = ctx;
	if (l->n < EXPORTS_MAX)
		l->of[l->n++] = *e;
	return 0;
}

static int newest_first(const void *a, const void *b)
{
	const struct export *x = a, *y = b;
	return x->created_ns != y->created_ns ? (x->created_ns < y->created_ns) -
							(x->created_ns > y->created_ns)
					      : strcmp(y->id, x->id);
}

int api_export_list(struct request *rq, struct reply *rp, struct err *err)
{
	struct page page;
	auto_free struct listed *l = calloc(1, sizeof(*l));
	int bad = 0, r = l ? page_begin(&page, rq, err) : err_no_memory(err);
	if (r >= 0)
		r = exports_each(rq->ctx, rq->caller->owner, list_one, l, err);
	if (r < 0)
		return r;
	qsort(l->of, l->n, sizeof(l->of[0]), newest_first);
	json_t *items = json_array();
	for (size_t i = 0; i < l->n; i++)
		if (page_takes(&page, l->of[i].created_ns, l->of[i].id))
			bad |= json_array_append_new(items, to_json(&l->of[i]));
	rp->json = page_end(&page, items);
	return rp->json && !bad ? 0 : err_no_memory(err);
}

struct fetch {
	int fd;
	uint64_t off, len;
};

static void fetch_free(void *task)
{
	struct fetch *f = task;
	(void)close(f->fd); /* only read */
	free(f);
}

static ssize_t fetch_read(void *task, uint64_t pos, void *buf, size_t n, struct err *err)
{
	struct fetch *f = task;
	ssize_t got;
	if (pos >= f->len)
		return 0;
	n = n < f->len - pos ? n : (size_t)(f->len - pos);
	do
		got = pread(f->fd, buf, n, (off_t)(f->off + pos));
	while (got < 0 && errno == EINTR);
	if (got == 0)
		return err_set(err, -EIO, "an export is shorter than it was");
	return got < 0 ? err_sys(err, -errno, "read an export") : got;
}

static int choose_range(struct fetch *f, const struct export *e, struct request *rq,
			struct reply *rp, struct err *err)
{
	const char *only = request_header(rq, "If-Range");
	bool same = !only || (strlen(only) == strlen(e->id) + 2 &&
			      strncmp(only + 1, e->id, strlen(e->id)) == 0);
	f->len = e->bytes;
	switch (head_range(same ? request_header(rq, "Range") : NULL, e->bytes, &f->off, &f->len)) {
	case RANGE_ALL:
		f->off = 0;
		f->len = e->bytes;
		return 0;
	case RANGE_NEVER:
		reply_header(rp, "Content-Range", "bytes */%llu", (unsigned long long)e->bytes);
		return err_set(err, -ERANGE, "the export has %llu bytes",
			       (unsigned long long)e->bytes);
	case RANGE_ONE:
		break;
	}
	rp->status = 206;
	reply_header(rp, "Content-Range", "bytes %llu-%llu/%llu", (unsigned long long)f->off,
		     (unsigned long long)(f->off + f->len - 1), (unsigned long long)e->bytes);
	return 0;
}

int api_export_get(struct request *rq, struct reply *rp, struct err *err)
{
	struct export e;
	struct fetch *f = calloc(1, sizeof(*f));
	if (!f)
		return err_no_memory(err);
	int r = f->fd = export_open(rq->ctx, rq->caller->owner, rq->params[0], &e, err);
	if (r < 0) {
		free(f);
		return r;
	}
	r = choose_range(f, &e, rq, rp, err);
	if (r < 0) {
		fetch_free(f);
		return r;
	}
	reply_header(rp, "ETag", "\"%s\"", e.id);
	reply_header(rp, "Accept-Ranges", "bytes");
	reply_header(rp, "Content-Disposition", "attachment; filename=\"%s.%s\"", e.id, e.format);
	rp->read = fetch_read;
	rp->length = f->len;
	rp->type = "application/octet-stream";
	rp->task = f;
	rp->task_free = fetch_free;
	return 0;
}

int api_export_delete(struct request *rq, struct reply *rp, struct err *err)
{
	rp->status = 204;
	return export_delete(rq->ctx, rq->caller->owner, rq->params[0], err);
}
