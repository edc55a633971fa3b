#include "snapd/gitwork.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"

const char *source_git(const struct source *s)
{
	return s->is_snap ? s->snap.git : s->ws.git;
}

const char *source_name(const struct source *s)
{
	return s->is_snap ? s->snap.id : s->ws.name;
}

static int open_view(struct gitwork *g, const struct stack *s, struct view *out, bool *has,
		     struct err *err)
{
	struct view_options opt;
	layercache_options(g->sd->layers, &opt);
	int r = view_open(out, &opt, s, err);
	if (r < 0)
		return err_prefix(err, snapd_inner(r), "open %s", source_name(&g->src));
	*has = true;
	return 0;
}

int gitlink_settle(struct gitlink *link, struct mirror *m, struct err *err)
{
	const char *branch = link->pending_branch ? link->pending_branch : link->branch;
	auto_free char *ref = NULL;
	git_oid at;
	if (!link->has_pending || !branch)
		return 0;
	if (asprintf(&ref, "refs/heads/%s", branch) < 0) {
		ref = NULL;
		return err_no_memory(err);
	}
	int r = git_reference_name_to_id(&at, mirror_repo(m), ref);
	if (r < 0 && r != GIT_ENOTFOUND)
		return git_fail(err, r, "read %s", ref);
	git_error_clear();
	link->has_pending = false;
	bool there = r >= 0 && memcmp(at.id, link->pending.b, OID_BYTES) == 0;
	if (there)
		link->anchor = link->pending;
	if (there && link->pending_branch) {
		free(link->branch);
		link->branch = link->pending_branch;
		link->pending_branch = NULL;
	}
	free(link->pending_branch);
	link->pending_branch = NULL;
	return there;
}

int gitwork_open(struct gitwork *g, struct snapd *sd, struct source *src, struct err *err)
{
	auto_stack now = { 0 };
	*g = (struct gitwork){ .sd = sd, .src = *src };
	*src = (struct source){ 0 };
	int r = 0;
	if (source_git(&g->src)) /* first: the row may be another then */
		r = source_stack(sd, &g->src, &now, err);
	if (r >= 0 && !source_git(&g->src))
		return err_set(err, -EINVAL, "%s is no checkout of a repository",
			       source_name(&g->src));
	if (r >= 0)
		r = snapd_inner(gitlink_parse(&g->link, source_git(&g->src), err));
	if (r >= 0)
		r = snapd_inner(mirror_open(&g->mirror, sd->root, g->link.repo, err));
	if (r >= 0 && (r = snapd_inner(gitlink_settle(&g->link, g->mirror, err))) > 0)
		g->settled = true;
	if (r >= 0)
		r = open_view(g, &now, &g->now, &g->has_now, err);
	if (r >= 0)
		r = open_view(g, &g->link.stack, &g->before, &g->has_before, err);
	return r;
}

void gitwork_done(struct gitwork *g)
{
	if (g->has_now)
		view_done(&g->now);
	if (g->has_before)
		view_done(&g->before);
	mirror_close(g->mirror);
	gitlink_done(&g->link);
	source_done(&g->src);
	g->mirror = NULL;
	g->has_now = g->has_before = false;
}

void gitwork_options(const struct gitwork *g, const struct oid *base, struct changes_options *out)
{
	*out = (struct changes_options){
		.mirror = g->mirror,
		.base = *base,
		.checkout = g->link.base,
		.before = &g->before,
		.now = &g->now,
		.scopes = (const char *const *)g->link.scopes,
		.nscopes = g->link.nscopes,
	};
}

int gitwork_author(const char *text, char **name, char **address)
{
	const char *open = text ? strrchr(text, '<') : NULL;
	size_t len = text ? strlen(text) : 0;
	if (!text)
		return 0;
	if (!open || open == text || text[len - 1] != '>')
		return -EINVAL;
	for (size_t i = 0; i < len; i++) /* a line of the commit, which git reads by line */
		if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
			return -EINVAL;
	if (memchr(text, '<', (size_t)(open - text)) || memchr(text, '>', len - 1))
		return -EINVAL; /* git leaves these out by itself, silently */
	const char *end = open;
	while (end > text && end[-1] == ' ')
		end--;
	*name = strndup(text, (size_t)(end - text));
	*address = strndup(open + 1, len - (size_t)(open - text) - 2);
	return *name && *address ? 0 : -ENOMEM;
}
