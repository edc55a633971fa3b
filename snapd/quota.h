/* What an owner may have: workspaces, snapshots, bytes. Rows of the catalog; the numbers of
 * workspaces and snapshots are kept by the transactions that make them, for whoever is not the
 * service itself. */
#ifndef BOUGH_SNAPD_QUOTA_H
#define BOUGH_SNAPD_QUOTA_H

#include "snapd/catalog.h"

enum { QUOTA_NONE = -1 };
struct quota {
	char owner[OWNER_SIZE];
	int64_t workspaces, snapshots, bytes; /* QUOTA_NONE: no limit */
};
/* What it has, as the catalog counts it: workspaces that are there, snapshots, and by how many
 * bytes these let the store grow. */
struct holding {
	char owner[OWNER_SIZE];
	uint64_t workspaces, snapshots, stored_bytes;
};
/* All QUOTA_NONE where there is none. */
int catalog_quota_get(struct catalog *c, const char *owner, struct quota *out, struct err *err);
int catalog_quota_set(struct catalog *c, const struct quota *q, struct err *err);
int catalog_quota_delete(struct catalog *c, const char *owner, struct err *err); /* -ENOENT */
int catalog_quota_list(struct catalog *c, struct quota **rows, size_t *n, struct err *err);
int catalog_holding(struct catalog *c, const char *owner, struct holding *out, struct err *err);
/* Owners of whatever there is, and those with a quota. `owner` NULL: all. */
int catalog_holdings(struct catalog *c, const char *owner, struct holding **rows, size_t *n,
		     struct err *err);

#endif
