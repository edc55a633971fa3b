/* What the files of mirrors share. Not for others. */
#ifndef BOUGH_GITOPS_MIRROR_IMPL_H
#define BOUGH_GITOPS_MIRROR_IMPL_H

#include "gitops/mirror.h"

enum { MIRROR_PATH_SIZE = 4096 };

/* In a mirror that is taken from files: names of the packs, one a line. */
#define MIRROR_TAKEN "bough-packs"
enum { MIRROR_TAKEN_MAX = 1 << 20 };

/* ROOT/repos/<8 hex digits><suffix>. */
int mirror_folder(char out[MIRROR_PATH_SIZE], const char *root, uint32_t number, const char *suffix,
		  struct err *err);

/* Puts a ref from `expect` (NULL: absent) to `to` (NULL: removes it), atomically and durably.
 * -ESTALE: it is something else; -EBUSY: its lock stays taken. */
int mirror_ref_cas(struct mirror *m, const char *name, const struct oid *expect,
		   const struct oid *to, const char *why, struct err *err);

#endif
