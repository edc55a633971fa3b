/* PUT of an archive: its members into a directory of a mounted workspace, as they come in. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapd/api_files.h"
#include "snapd/archive_extract.h"

struct extraction {
	struct place place;
	char *path;
	char *scratch;
	struct archive_extract_options opt;
	struct stream *in;
};

static void extraction_free(void *task)
{
	struct extraction *x = task;
	place_done(&x->place);
	free(x->path);
	free(x->scratch);
	free(x);
}

static ssize_t read_body(void *ctx, void *buf, size_t n, struct err *err)
{
	struct extraction *x = ctx;
	ssize_t got = stream_read(x->in, buf, n, -1);
	return got < 0 ? err_sys(err, (int)got, "the body") : got;
}

static int extraction_job(void *task, struct progress *p, unsigned *status, json_t **result,
			  struct err *err)
{
	struct extraction *x = task;
	struct archive_source src = { read_body, x };
	struct archive_extract_stats st;
	int r = archive_extract(&x->place, x->path, x->scratch, &x->opt, &src, &st, err);
	if (r < 0)
		return r;
	*result = json_pack("{s:I, s:I, s:{s:I, s:I}}", "members", (json_int_t)st.members, "bytes",
			    (json_int_t)st.bytes, "ignored", "xattrs",
			    (json_int_t)st.ignored_xattrs, "acls", (json_int_t)st.ignored_acls);
	return *result ? 0 : err_no_memory(err);
}

static int prepare(struct extraction *x, struct request *rq, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_found f = { .fd = -1 };
	x->opt.atomic = request_query_true(rq, "atomic");
	x->opt.top = request_query_true(rq, "top");
	x->path = strdup(rq->tail);
	if (!x->path || asprintf(&x->scratch, "%s/tmp", sd->root) < 0)
		return err_no_memory(err);
	int r = place_open(&x->place, sd, rq->params[0], false, PLACE_WRITE, err);
	if (r >= 0)
		r = place_find(&x->place, x->path, &f, err);
	if (r >= 0 && !S_ISDIR(f.mode)) {
		files_detail(rq, &x->place, &f);
		r = err_set(err, -ENOTDIR, "that is a %s, not a directory", place_type(f.mode));
	}
	return r;
}

int api_ws_archive_put(struct request *rq, struct reply *rp, struct err *err)
{
	struct extraction *x = calloc(1, sizeof(*x));
	if (!x)
		return err_no_memory(err);
	x->place.root = -1;
	x->in = rq->upload;
	int r = conditions_refuse(rq, err);
	if (r >= 0)
		r = prepare(x, rq, err);
	if (r < 0) {
		extraction_free(x);
		return r;
	}
	rp->job = extraction_job;
	rp->task = x;
	rp->task_free = extraction_free;
	return 0;
}
