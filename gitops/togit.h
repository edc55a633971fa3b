/* Content as it is in the work tree, made what git keeps: what `git add` does.
 * convert.h has the other way. Pure. */
#ifndef BOUGH_GITOPS_TOGIT_H
#define BOUGH_GITOPS_TOGIT_H

#include <string.h>
#include "fs/base/buf.h"
#include "fs/base/err.h"

/* What git add does with ends of lines. */
enum eol_rule {
	EOL_KEEP, /* binary, or nothing is said */
	EOL_TEXT, /* CR LF becomes LF */
	EOL_AUTO, /* the same where it looks like text and has no CR LF in git yet */
};
struct path_attrs {
	enum eol_rule eol;
	bool ident;
	bool filter;       /* a filter driver is named, which is never run */
	char encoding[32]; /* of the work tree; "": as it is (UTF-8) */
};
/* True where content in the work tree and in git may differ. */
static inline bool path_attrs_convert(const struct path_attrs *a)
{
	return a->eol != EOL_KEEP || a->ident || a->encoding[0];
}
/* Whether what they make of a content is the same. */
static inline bool path_attrs_same(const struct path_attrs *a, const struct path_attrs *b)
{
	return a->eol == b->eol && a->ident == b->ident && strcmp(a->encoding, b->encoding) == 0;
}
/* What the attributes of a path mean to git add, with core.autocrlf false. */
struct attr_values;
void path_attrs_of(struct path_attrs *out, const struct attr_values *v);

enum { TOGIT_MAX = 256 << 20 }; /* bytes; larger content is taken as it is */

/* 1: *out (empty before) has the content as git keeps it; 0: it is the same, *out stays empty.
 * `crlf_in_git`: what git has of the path now contains CR LF.
 * -EILSEQ: it isn't in the encoding that .gitattributes names; -ENOTSUP: an encoding that is
 * not known here; -ENOMEM. */
int togit(struct buf *out, const struct path_attrs *a, const void *data, size_t len,
	  bool crlf_in_git, struct err *err);

/* Has the content a CR LF, and doesn't look binary? For crlf_in_git. */
bool togit_has_crlf(const void *data, size_t len);

#endif
