/* The cgroup folders of boxes, in whatever hierarchies the machine has: version 1, version 2, or
 * both ("hybrid": version 2 is there, but version 1 has the controllers). */
#ifndef BOUGH_RUNTIME_CGROUP_H
#define BOUGH_RUNTIME_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include "fs/base/err.h"

enum {
	CGROUP_HIERARCHIES_MAX = 24, /* version 1 has 14 controllers */
	CGROUP_PATH_MAX = 512,
	CGROUP_NAME_MAX = 128,
};

struct cgroups {
	size_t n;
	struct {
		char path[CGROUP_PATH_MAX]; /* where it is mounted */
		bool v2;
	} list[CGROUP_HIERARCHIES_MAX];
};

/* What a text of /proc/self/mountinfo says. Total: lines that aren't in order are passed over. */
void cgroup_parse(struct cgroups *out, const char *mountinfo, size_t len);
/* Those of this machine. */
int cgroup_find(struct cgroups *out, struct err *err);
/* Version 2 and nothing else. */
bool cgroup_is_v2(const struct cgroups *c);
/* Whether memory can be limited together with swap; and whether there is that controller. */
bool cgroup_counts_swap(const struct cgroups *c);
bool cgroup_has(const struct cgroups *c, const char *controller);

/* With version 2 alone: makes the folder, whatever the umask, so that the user namespace of a box
 * can mount it, for which those above must let it pass, and its programs can read their limits. A
 * runtime that finds no folder makes one with the umask that it has. */
int cgroup_make(const struct cgroups *c, const char *group, struct err *err);
/* Kills what runs in the folder `group` (from the root of each hierarchy; "/…") and below, and
 * removes it. -EBUSY: something doesn't end. */
int cgroup_clear(const struct cgroups *c, const char *group, struct err *err);
/* Freezes what runs in the folder, and waits until it is frozen; or lets it go on. -ENOENT: there
 * is no freezer for it; -ETIMEDOUT: it doesn't freeze (and goes on). */
int cgroup_freeze(const struct cgroups *c, const char *group, bool on, struct err *err);
/* Removes it where it is empty. */
void cgroup_prune(const struct cgroups *c, const char *group);

#endif
