/* What fsck gathers; shared by its two files. */
#ifndef BOUGH_SNAPD_FSCK_H
#define BOUGH_SNAPD_FSCK_H

#include "snapd/api.h"

enum {
	FAULTS_MAX = 10000, /* listed; more are counted only */
	AFFECTED_MAX = 100, /* workspaces and snapshots named for one fault */
};

struct fault {
	char *where, *what;
	struct digest object; /* all zero: none */
	bool repaired;
	json_t *workspaces, *snapshots; /* names or ids, or NULL */
};

struct fsck {
	struct snapd *sd;
	bool repair;
	struct progress *progress;
	struct view_options opt;
	struct fault *faults;
	size_t nfaults, cap;
	uint64_t more; /* faults beyond FAULTS_MAX */
	uint64_t images, layers, snapshots, workspaces, packs_faults;
	bool no_memory;
};

/* Notes a fault; the strings are copied. Returns its index, or -1. */
int fsck_fault(struct fsck *f, const char *where, const char *what, const struct digest *object,
	       bool repaired);
/* The index of a fault with that object, or -1. */
int fsck_find(const struct fsck *f, const struct digest *object);
/* What the fault is about is needed and isn't there, whatever was repaired. -1 allowed. */
void fsck_lost(struct fsck *f, int fault);
/* The fault concerns that snapshot (else workspace). */
void fsck_affects(struct fsck *f, int fault, bool is_snap, const char *name);

/* fsck_trees.c: images, layers, and all that catalog and folders lead to. */
int fsck_trees(struct fsck *f, struct err *err);

#endif
