/* What a checkout changed, as git would say it. Found before the first byte of the answer. */
#include <stdlib.h>
#include <string.h>

#include "snapd/access.h"
#include "snapd/api.h"
#include "snapd/gitdiff.h"
#include "snapd/gitwork.h"
#include "snapd/repos.h"

struct gitdiff_task {
	struct gitwork work;
	struct changes_options opt;
	struct changes changes;
	enum diff_format format;
};

static void gitdiff_free(void *task)
{
	struct gitdiff_task *t = task;
	changes_done(&t->changes);
	gitwork_done(&t->work);
	free(t);
}

static int write_stream(void *ctx, const void *data, size_t n)
{
	return stream_write(ctx, data, n);
}

static int gitdiff_stream(void *task, struct stream *out, struct err *err)
{
	struct gitdiff_task *t = task;
	struct diff_sink sink = { write_stream, out };
	return snapd_inner(gitdiff_write(t->format, &t->changes, &t->opt, &sink, err));
}

/* The warnings, which only JSON has room for in its text. The trailer that they go into is bounded:
 * what is too long or too many is told by number. */
static json_t *gitdiff_summary(void *task)
{
	enum { LINE_MAX_BYTES = 400, ALL_MAX_BYTES = 2000 };
	const struct changes *c = &((struct gitdiff_task *)task)->changes;
	json_t *list = json_array();
	size_t room = ALL_MAX_BYTES, shown = 0;
	int bad = list ? 0 : -1;
	for (; shown < c->nwarnings && bad == 0; shown++) {
		auto_buf clean = { 0 };
		size_t len = strlen(c->warnings[shown]);
		if (len > LINE_MAX_BYTES || len > room)
			break;
		room -= len;
		(void)diff_utf8(&clean, c->warnings[shown], len);
		bad = buf_error(&clean) < 0
			      ? -1
			      : json_array_append_new(list, json_stringn((const char *)clean.data,
									 clean.len));
	}
	if (bad == 0 && shown < c->nwarnings)
		bad = json_array_append_new(list, json_sprintf("--json shows %zu more of these",
							       c->nwarnings - shown));
	if (bad) {
		json_decref(list);
		return NULL;
	}
	return json_pack("{s:o}", "warnings", list);
}

/* A workspace is seen by others than its repository: by a team, by the bearer of a token for it
 * alone. Whoever puts a file over a name outside of the scope isn't to be shown what was there. */
static int hide_outside(struct request *rq, const struct gitlink *link, bool *hide, struct err *err)
{
	struct snapd *sd = rq->ctx;
	const struct principal *who = rq->caller;
	struct repo_row row = { 0 };
	char id[ID_SIZE];
	repo_lease_id(id, link->repo);
	int r = link->nscopes ? catalog_repo_get(sd->catalog, id, &row, err) : 0;
	*hide = r < 0 || (link->nscopes && (who->workspace[0] || !access_sees_repo(who, &row)));
	repo_row_done(&row);
	return snapd_inner(r);
}

int api_gitdiff(struct request *rq, struct reply *rp, struct source *src, int format,
		struct err *err)
{
	const char *since = request_query(rq, "since");
	bool anchor = since && strcmp(since, "anchor") == 0;
	if (since && !anchor && strcmp(since, "base") != 0)
		return request_bad_field(rq, "since", err, "base or anchor is expected");
	struct gitdiff_task *t = calloc(1, sizeof(*t));
	if (!t)
		return err_no_memory(err);
	t->format = (enum diff_format)format;
	int r = gitwork_open(&t->work, rq->ctx, src, err);
	if (r >= 0) {
		const struct gitlink *link = &t->work.link;
		gitwork_options(&t->work, anchor ? &link->anchor : &link->base, &t->opt);
		t->opt.lenient = true;
		r = hide_outside(rq, link, &t->opt.hide_outside, err);
	}
	if (r >= 0)
		r = snapd_inner(changes_find(&t->changes, &t->opt, err));
	if (r < 0) {
		gitdiff_free(t);
		return r;
	}
	rp->stream = gitdiff_stream;
	if (t->format != DIFF_FORMAT_JSON)
		rp->summary = gitdiff_summary;
	rp->type = diff_format_mime(t->format);
	rp->task = t;
	rp->task_free = gitdiff_free;
	return 0;
}
