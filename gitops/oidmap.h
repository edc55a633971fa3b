/* Map from an object's id to a number that isn't 0. The whole id counts: two objects whose ids
 * begin alike can be made by whoever wants to. All zero is a valid empty map. Threads: one at a
 * time. */
#ifndef BOUGH_GITOPS_OIDMAP_H
#define BOUGH_GITOPS_OIDMAP_H

#include "gitops/git.h"

struct oidmap_slot {
	git_oid id;
	uint64_t value; /* 0: free */
};
struct oidmap {
	struct oidmap_slot *slots;
	size_t cap, count; /* cap is 0 or a power of two */
	uint64_t seed;     /* nobody can choose ids that all meet in one place */
};

uint64_t oidmap_get(const struct oidmap *m, const git_oid *id); /* 0: absent */
/* Inserts or replaces. 0 or -ENOMEM (the map is as before). */
int oidmap_put(struct oidmap *m, const git_oid *id, uint64_t value);
/* As a set: 1: it wasn't in it, and is now; 0: it was; -ENOMEM. */
int oidmap_add(struct oidmap *m, const git_oid *id);
void oidmap_done(struct oidmap *m);

#endif
