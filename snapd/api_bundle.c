/* What a checkout changed, as a git bundle of one commit on the one that it was made from: what
 * `bough apply` merges into another checkout, and any git can fetch from. No branch moves. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fs/base/cleanup.h"
#include "gitops/packout.h"
#include "snapd/api.h"
#include "snapd/gitwork.h"

struct bundle {
	struct gitwork work;
	struct changes changes;
	struct oid commit;
	git_packbuilder *pack;
	const char *message; /* borrowed from the request */
	char *author, *email;
};

static void bundle_free(void *task)
{
	struct bundle *b = task;
	git_packbuilder_free(b->pack);
	changes_done(&b->changes);
	gitwork_done(&b->work);
	free(b->author);
	free(b->email);
	free(b);
}

/* A commit of all changes on the base, in the mirror, which nothing names. */
static int make_commit(struct bundle *b, struct err *err)
{
	const struct oid *base = &b->work.link.base;
	struct changes_options opt;
	struct packout *p = NULL;
	char text[NAME_SIZE + 32];
	struct commit_spec spec = { .parent = *base,
				    .message = b->message,
				    .author = b->author,
				    .author_email = b->email,
				    .time_s = time(NULL) };
	(void)snprintf(text, sizeof(text), "Changes of %s", source_name(&b->work.src));
	if (!spec.message || !*spec.message)
		spec.message = text;
	gitwork_options(&b->work, base, &opt);
	opt.no_renames = true;
	int r = changes_find(&b->changes, &opt, err);
	if (r < 0 || b->changes.n == 0)
		return r;
	r = packout_new(&p, b->work.mirror, NULL, err);
	if (r >= 0)
		r = changes_tree_put(&spec.tree, p, &b->changes, &opt, base, err);
	if (r >= 0)
		r = commit_put(&b->commit, p, &spec, err);
	if (r >= 0)
		r = packout_finish(p, NULL, err);
	packout_free(p);
	return r;
}

/* ---- the answer ---- */

struct pour {
	struct stream *out;
	int failed;
};

static int pour(void *data, size_t n, void *payload)
{
	struct pour *p = payload;
	p->failed = stream_write(p->out, data, n);
	return p->failed;
}

/* gitformat-bundle(5), version 2. */
static int bundle_stream(void *task, struct stream *out, struct err *err)
{
	struct bundle *b = task;
	char base[OID_HEX + 1], commit[OID_HEX + 1], head[256];
	struct pour p = { .out = out };
	oid_hex(base, &b->work.link.base);
	oid_hex(commit, &b->commit);
	int n = snprintf(head, sizeof(head), "# v2 git bundle\n-%s\n%s refs/heads/bough\n\n", base,
			 commit);
	int r = stream_write(out, head, (size_t)n);
	if (r >= 0)
		r = git_packbuilder_foreach(b->pack, pour, &p);
	if (p.failed < 0)
		return p.failed;
	return r < 0 ? snapd_inner(git_fail(err, r, "pack the changes")) : 0;
}

static int bundle(struct request *rq, struct reply *rp, bool of_snap, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_source src = { 0 };
	struct bundle *b = calloc(1, sizeof(*b));
	if (!b)
		return err_no_memory(err);
	const char *author = request_query(rq, "author");
	b->message = request_query(rq, "message");
	int r = gitwork_author(author, &b->author, &b->email);
	if (r < 0)
		r = r == -ENOMEM ? err_set(err, r, "out of memory")
				 : request_bad_field(rq, "author", err,
						     "\"Name <address>\" is expected");
	if (r >= 0)
		r = of_snap ? source_find_snap(&src, sd, rq->params[0], LEASE_SHARED, "apply", err)
			    : source_find_ws(&src, sd, rq->params[0], LEASE_SHARED, "apply", err);
	if (r >= 0)
		r = gitwork_open(&b->work, sd, &src, err);
	if (r >= 0)
		r = snapd_inner(make_commit(b, err));
	if (r >= 0 && b->changes.n > 0)
		r = snapd_inner(pack_between(&b->pack, mirror_repo(b->work.mirror),
					     &b->work.link.base, &b->commit, err));
	if (r < 0 || b->changes.n == 0) {
		bundle_free(b);
		rp->status = 204;
		return r;
	}
	rp->stream = bundle_stream;
	rp->type = "application/x-git-bundle";
	rp->task = b;
	rp->task_free = bundle_free;
	return 0;
}

int api_ws_bundle(struct request *rq, struct reply *rp, struct err *err)
{
	return bundle(rq, rp, false, err);
}

int api_snap_bundle(struct request *rq, struct reply *rp, struct err *err)
{
	return bundle(rq, rp, true, err);
}
