/* The .git of a workspace, as far as anybody outside looks at it. inner_head is in changes.h. */
#ifndef BOUGH_GITOPS_INNER_H
#define BOUGH_GITOPS_INNER_H

#include <stdbool.h>
#include "fs/work/view.h"
#include "gitops/mirror.h"
#include "gitops/refs.h"

/* ---- decoders, pure ---- */

/* The text of HEAD or of a loose ref: INNER_OID and *oid, INNER_REF and the ref's full name, of
 * refs/heads/ only and as git allows them; or -EBADMSG. */
enum { INNER_OID = 1, INNER_REF = 2 };
int inner_parse_head(const void *data, size_t len, struct oid *oid, char ref[REF_NAME_SIZE]);
/* A line of packed-refs (without its end): true and *oid where it is that ref's. */
bool inner_packed_line(const char *line, size_t len, const char *ref, struct oid *oid);

/* ---- history (inner_import.c) ---- */

enum {
	INNER_PACKS_MAX = 64,      /* packs that came since the checkout */
	INNER_LOOSE_MAX = 200000,  /* and loose objects */
	INNER_BYTES_MAX = 1 << 30, /* and their bytes */
	INNER_DEADLINE_S = 300,
};
/* Takes the commits of a workspace's own repository into the mirror: `head` and what leads to it
 * from `anchor`, all of it durable there on return; no ref names it yet. Where it doesn't descend
 * from `anchor` it may from `base`, if that isn't NULL.
 *
 * The object files that came since the checkout (`before`) are copied to a scratch folder, below
 * `scratch`; git, as a child without rights, network and configuration (errand.h), packs from them
 * what `head` has and `anchor` hasn't, and checks that pack as a strict receiver would: each
 * object is hashed and looked at, and nothing may be missing. What the commits refer to beyond what
 * came must have been in the workspace (inner_check.h): the mirror has more than it may see.
 *
 * -ENOENT: this host has no git; -EBADMSG: damaged, hostile or incomplete; -ESTALE: `head` doesn't
 * descend from either; -E2BIG: above the bounds; -ETIMEDOUT. */
int inner_import(struct mirror *m, const struct view *before, const struct view *now,
		 const struct oid *head, const struct oid *anchor, const struct oid *base,
		 const char *scratch, struct err *err);

#endif
