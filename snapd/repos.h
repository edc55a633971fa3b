/* Repositories: their rows in the catalog, and what stands beside the mirrors (gitops/mirror.h).
 *
 *   ROOT/repos/<8 hex>          the mirror
 *   ROOT/repos/<8 hex>.json     its row, durable before the catalog has it: a mirror without
 *                               one was never acknowledged, and is removed at the start
 *   ROOT/repos/<8 hex>.secret   the credentials that it was added with, mode 0600, which appear
 *                               nowhere else: not in the catalog, logs, errors or answers
 *
 * Numbers are never used twice, as addresses of contents hold them.
 *
 * Leases: by repo_lease_id. Reading, creating workspaces: SHARED; fetch and upkeep: SAVE (one at a
 * time, beside readers); rm: EXCLUSIVE. */
#ifndef BOUGH_SNAPD_REPOS_H
#define BOUGH_SNAPD_REPOS_H

#include <jansson.h>
#include "fs/store/gitrepo.h"
#include "snapd/catalog.h"
#include "snapd/snapd.h"

enum {
	REPO_SECRET_MAX = 64 << 10, /* bytes of a key, a token, known hosts */
	REPO_REF_MAX = 1024,
};

struct repo_row {
	uint32_t number;
	char name[NAME_SIZE];
	char *url;    /* without credentials; of a path: the absolute path */
	bool is_path; /* it comes as files from the command line */
	bool global;  /* everybody's; else its owner's alone */
	char owner[OWNER_SIZE]; /* "": whoever boughd runs as, until the catalog fills it in */
	int64_t created_ns, fetched_ns;
	char head[REPO_REF_MAX]; /* the default branch, without refs/heads/; "" for none */
};
void repo_row_done(struct repo_row *r);
void repo_rows_free(struct repo_row *rows, size_t n);
#define auto_repo_row __attribute__((cleanup(repo_row_done))) struct repo_row
json_t *oid_json(const struct oid *oid); /* its hex; NULL: no memory */

/* ---- the catalog (catalog_repo.c) ---- */

/* "repo_0000002a": how the API calls number 42; it serves as an id for leases too. */
void repo_lease_id(char out[ID_SIZE], uint32_t number);
/* True: `s` has the form of such an id. */
bool repo_id_parse(const char *s, uint32_t *number);

/* By id, which is what handlers get (access.h). -ENOENT says so in words. */
int catalog_repo_get(struct catalog *c, const char *id, struct repo_row *out, struct err *err);
/* All that a key may mean, whoever they belong to: an id, a name, "OWNER/NAME". None: *n is 0. */
int catalog_repo_find(struct catalog *c, const char *key, struct repo_row **rows, size_t *n,
		      struct err *err);
int catalog_repo_list(struct catalog *c, struct repo_row **rows, size_t *n, struct err *err);
/* A number that nobody had or gets again. */
int catalog_repo_number(struct catalog *c, uint32_t *out, struct err *err);
/* Names are unique for each owner: -EEXIST names the one that is taken. */
int catalog_repo_insert(struct catalog *c, const struct repo_row *row, struct err *err);
int catalog_repo_fetched(struct catalog *c, const struct repo_row *row, struct err *err);
int catalog_repo_delete(struct catalog *c, uint32_t number, struct err *err);
/* Workspaces and snapshots that `who` (NULL: everybody) sees, whose git link (gitlink.h) names it;
 * `one` (NULL allowed) gets the name or id of one of them, "" when there is none. */
int catalog_repo_pins(struct catalog *c, uint32_t number, const char *who, uint64_t *workspaces,
		      uint64_t *snapshots, char one[NAME_SIZE], struct err *err);

/* What a transfer for the present caller keeps to: mirror_origin.guard. Callers with a token come
 * from elsewhere, and a repository whose owner has no uid was named by one. */
const struct netrules *repo_guard(const struct snapd *sd, const struct repo_row *row);

/* ---- records and secrets (repos.c) ---- */

int repo_record_write(const char *root, const struct repo_row *row, struct err *err); /* durable */
int repo_record_read(const char *root, uint32_t number, struct repo_row *out, struct err *err);
/* Any bytes: 0, -EBADMSG, -ENOMEM. */
int repo_record_decode(struct repo_row *out, const void *data, size_t len);

struct repo_secret {
	char *token, *ssh_key, *known_hosts; /* NULL: none */
};
void repo_secret_done(struct repo_secret *s); /* wipes */
#define auto_repo_secret __attribute__((cleanup(repo_secret_done))) struct repo_secret
/* Durable, mode 0600; without any member: removes it. */
int repo_secret_write(const char *root, uint32_t number, const struct repo_secret *s,
		      struct err *err);
/* Absent: 0, and nothing in it. */
int repo_secret_read(const char *root, uint32_t number, struct repo_secret *out, struct err *err);

/* Record and secret go, durably. */
int repo_forget(const char *root, uint32_t number, struct err *err);
/* Once at the start: repairs what ended processes left, adopts mirrors that the catalog lost,
 * removes what was never acknowledged. While the catalog is damaged nothing is removed. */
int repos_reconcile(struct snapd *sd, struct err *err);

/* ---- upkeep in the background (upkeep.c) ---- */

struct upkeep;
int upkeep_start(struct upkeep **out, struct snapd *sd, struct err *err);
void upkeep_stop(struct upkeep *u); /* NULL allowed; ends what is under way */
/* Soon, with low priority. */
void upkeep_consider(struct upkeep *u, uint32_t number);
/* What is under way for it ends; it begins again by upkeep_consider. Whether something was. */
bool upkeep_give_way(struct upkeep *u, uint32_t number);

#endif
