/* What git makes of a blob when it writes it into a work tree: $Id$ expanded, ends of lines, the
 * encoding; in this order. After git's convert.c, with no setting of a host's: core.autocrlf
 * false, core.eol lf. Filters never run: what they would have made stays as it is in the blob. */
#ifndef BOUGH_GITOPS_CONVERT_H
#define BOUGH_GITOPS_CONVERT_H

#include "fs/base/buf.h"
#include "gitops/attributes.h"
#include "fs/store/gitrepo.h"

enum {
	CONVERT_MAX = 512 << 20, /* larger blobs are left alone: git's core.bigFileThreshold */
	LFS_POINTER_MAX = 1024,  /* bytes: git-lfs takes nothing larger for a pointer */
};

enum conversion_eol {
	EOL_ASIS,
	EOL_CRLF,      /* text eol=crlf */
	EOL_AUTO_CRLF, /* text=auto eol=crlf: unless it looks binary or has a CR already */
};

struct conversion {
	enum conversion_eol eol;
	bool ident;
	bool text;            /* git add would look at the ends of lines */
	const char *encoding; /* borrowed from the attributes; NULL: as it is */
	const char *filter;   /* likewise: a filter's name, "lfs" among them */
};
void conversion_of(struct conversion *out, const struct attr_values *v);
static inline bool conversion_is_none(const struct conversion *c)
{
	return c->eol == EOL_ASIS && !c->ident && !c->encoding;
}
/* 1: *out has what git would write; 0: the blob as it is; -ENOMEM. */
int convert_out(struct buf *out, const struct conversion *c, const void *data, size_t len,
		const struct oid *blob);
/* Names of encodings as git compares them: "utf-16", "UTF16" … are one. */
bool same_encoding(const char *a, const char *b);
/* A pointer of git-lfs's instead of the content. */
bool is_lfs_pointer(const void *data, size_t len);

#endif
