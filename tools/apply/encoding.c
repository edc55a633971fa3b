#include "tools/apply/encoding.h"

#include <git2.h>
#include <git2/sys/filter.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "gitops/convert.h"
#include "gitops/togit.h"

/* The content comes in pieces and is converted as a whole when it ends. */
struct encoder {
	git_writestream parent;
	git_writestream *next;
	struct buf in;
	const char *encoding; /* borrowed: the payload's */
	bool to_worktree;
};

static int take(git_writestream *s, const char *data, size_t len)
{
	struct encoder *e = (struct encoder *)s;
	buf_add(&e->in, data, len);
	return buf_error(&e->in) ? -1 : 0;
}

static int convert(struct buf *out, const struct encoder *e)
{
	const struct attr_values v = { .v[ATTR_ENCODING] = e->encoding };
	if (e->to_worktree) {
		struct conversion c;
		conversion_of(&c, &v);
		return convert_out(out, &c, e->in.data, e->in.len, NULL);
	}
	struct path_attrs a;
	path_attrs_of(&a, &v);
	return togit(out, &a, e->in.data, e->in.len, false, NULL);
}

static int finish(git_writestream *s)
{
	struct encoder *e = (struct encoder *)s;
	auto_buf out = { 0 };
	int r = convert(&out, e);
	if (r == -ENOMEM)
		return -1;
	const struct buf *b = r == 1 ? &out : &e->in;
	int bad = b->len > 0 ? e->next->write(e->next, (const char *)b->data, b->len) : 0;
	return bad ? bad : e->next->close(e->next);
}

static void encoder_free(git_writestream *s)
{
	struct encoder *e = (struct encoder *)s;
	buf_done(&e->in);
	free(e);
}

static int stream(git_writestream **out, git_filter *self, void **payload,
		  const git_filter_source *src, git_writestream *next)
{
	struct encoder *e = calloc(1, sizeof(*e));
	(void)self;
	if (!e)
		return -1;
	e->parent = (git_writestream){ .write = take, .close = finish, .free = encoder_free };
	e->next = next;
	e->encoding = *payload;
	e->to_worktree = git_filter_source_mode(src) == GIT_FILTER_TO_WORKTREE;
	*out = &e->parent;
	return 0;
}

static int check(git_filter *self, void **payload, const git_filter_source *src,
		 const char **values)
{
	(void)self, (void)src;
	if (git_attr_value(values[0]) != GIT_ATTR_VALUE_STRING)
		return GIT_PASSTHROUGH;
	*payload = strdup(values[0]);
	return *payload ? 0 : -1;
}

static void cleanup(git_filter *self, void *payload)
{
	(void)self;
	free(payload);
}

int encoding_register(void)
{
	static git_filter filter = {
		.version = GIT_FILTER_VERSION,
		.attributes = "working-tree-encoding=*",
		.check = check,
		.stream = stream,
		.cleanup = cleanup,
	};
	/* Behind $Id$ and ends of lines on the way out, and before them on the way in. */
	return git_filter_register("bough-encoding", &filter, GIT_FILTER_IDENT_PRIORITY + 1);
}
