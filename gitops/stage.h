/* A stage: where a fetch puts what comes, ROOT/repos/<8 hex>.tmp, a repository that borrows
 * the mirror's objects. The mirror itself isn't touched until all is there and checked; then the
 * stage is marked as whole, its packs move over, and one rename moves the refs. What was
 * interrupted before the mark is thrown away by the next start or fetch; after it, finished.
 *
 * One at a time for each repository. */
#ifndef BOUGH_GITOPS_STAGE_H
#define BOUGH_GITOPS_STAGE_H

#include "gitops/mirror_impl.h"
#include "gitops/refs.h"

struct stage {
	char path[MIRROR_PATH_SIZE];         /* the stage … */
	char target[MIRROR_PATH_SIZE];       /* … and the mirror */
	char scratch[MIRROR_PATH_SIZE + 16]; /* a folder in it, for others' use */
	bool exists;                         /* the mirror does */
	bool published;
};
/* Removes (or finishes) what was left over, and begins anew. `exists`: whether a mirror must be
 * there (-ENOENT) or must not (-EEXIST). */
int stage_begin(struct stage *s, const char *root, uint32_t number, bool exists, struct err *err);
void stage_done(struct stage *s); /* throws it away unless it was published */
#define auto_stage __attribute__((cleanup(stage_done))) struct stage

/* Sets where HEAD shall point in the mirror: a branch, refs/heads/…; NULL: as it was. */
int stage_head(struct stage *s, const char *branch, struct err *err);
/* The other side's refs (REFS_ORIGIN, REFS_TAGS), sorted, instead of what the stage's hold. */
int stage_write_refs(struct stage *s, const struct refs *r, struct err *err);
/* As they stand in it: loose and packed, by libgit2. */
int stage_refs(struct stage *s, struct refs *out, struct err *err);
/* From the stage to the mirror, durably. */
int stage_publish(struct stage *s, struct mirror_result *res, struct err *err);

/* The same from what the other side said of its HEAD: a branch ("": none), else the commit that
 * it is at (NULL: unknown). */
int stage_set_head(struct stage *s, const char *branch, const struct oid *at, struct err *err);
/* One line of the mirror's packed-refs, under its lock. */
int stage_set_ref(const char *root, uint32_t number, const char *name, const struct oid *to,
		  struct err *err);

/* Of one repository: what an ended process left. The mirror need not exist. */
int stage_recover(const char *root, uint32_t number, struct err *err);

#endif
