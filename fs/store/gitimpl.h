/* What the reader of git repositories lends to the store, beside gitrepo.h. */
#ifndef BOUGH_STORE_GITIMPL_H
#define BOUGH_STORE_GITIMPL_H

#include "fs/store/gitpack.h"

/* gitrepos_read into memory of the caller's choice. On failure what sink->room gave last is
 * still the caller's, and holds nothing of use. */
int gitrepos_load(struct gitrepos *g, uint32_t repo, const struct oid *oid,
		  const struct git_sink *sink, struct git_head *out, uint8_t **data,
		  struct err *err);

#endif
