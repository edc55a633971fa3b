/* Content as it is in the work tree, made what git keeps: what `git add` does.
 * convert.h has the other way. Pure. */
#ifndef BOUGH_GITOPS_TOGIT_H
#define BOUGH_GITOPS_TOGIT_H

#include "fs/base/buf.h"
#include "fs/base/err.h"
#include "gitops/rules.h"

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
