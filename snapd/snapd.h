/* boughd's parts, and what its modules share. */
#ifndef BOUGH_SNAPD_SNAPD_H
#define BOUGH_SNAPD_SNAPD_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "fs/base/netaddr.h"
#include "fs/store/store.h"
#include "fs/work/view.h"
#include "snapd/catalog.h"
#include "snapd/fsclient.h"
#include "snapd/layercache.h"
#include "snapd/lease.h"
#include "snapd/policy.h"
#include "snapd/records.h"
#include "snapd/supervisor.h"

struct events;
struct flattener;
struct hooks;
struct images;
struct jobs;
struct limits;
struct metrics;
struct problems;
struct sandboxes;
struct tidier;
struct upkeep;
struct signer;
struct watches;

enum { ROW_LOCKS = 64, ALIVE_SLOTS = 512 };

struct snapd {
	const char *root;
	struct catalog *catalog;
	struct records *records;
	struct store *store;
	struct fsclient *fs;
	struct supervisor *supervisor;
	struct leases *leases;
	struct layercache *layers;
	struct flattener *flattener;
	struct images *images;
	struct marking *marking;   /* gc_tree_goes */
	struct upkeep *upkeep;     /* of repositories (repos.h) */
	struct problems *problems; /* why workspaces aren't mounted */
	struct problems *faults;   /* why they are read-only */
	struct problems *damage;   /* what of them is damaged */
	struct events *events;     /* events.h */
	struct watches *watches;   /* watch.h */
	struct signer *signer;     /* of URLs (sign.h) */
	struct jobs *jobs;         /* jobs.h */
	struct metrics *metrics;   /* outcome.h */
	struct sandboxes *sandboxes; /* sandbox.h */
	pthread_mutex_t patches;   /* one change of a workspace's labels and limits at a time */
	pthread_mutex_t rows[ROW_LOCKS]; /* rows_lock */
	pthread_mutex_t gc;        /* one gc or fsck --repair at a time */
	pthread_mutex_t checkouts; /* what is remembered of checkouts (checkout.h) */
	struct hooks *hooks;       /* hooks.h */
	struct limits *limits;     /* limits.h */
	struct policy policy;      /* of what boughd does by itself */
	struct tidier *tidier;     /* gc by the clock (tidier.h) */
	struct netrules git_networks; /* beside the public one (config.h) */
	bool multi_user;           /* the socket is every user's (config.h) */
	_Atomic uint64_t alive[ALIVE_SLOTS]; /* files_place.c: which mounts were, when */
	int lock_fd;               /* of ROOT, see state_is_ours */
	int stop_fd;               /* eventfd: writing to it ends the program */
};

enum { PATH_SIZE = 4096 };

/* Where the workspace is mounted. */
void snapd_mount_path(const struct snapd *sd, const char *id, char out[PATH_SIZE]);
int64_t snapd_now_ns(void);

/* A failure of ours under an expected code: -ENOENT and the like of a part that the client didn't
 * name become -EIO, so that they aren't told as the client's mistake. */
int snapd_inner(int r);

/* Held while a row is read, changed and recorded (meta.json, sidecar): the disk is waited for, so
 * that what is done to one must not hold up the others. Never two of them but by rows_lock_all. */
void rows_lock(struct snapd *sd, const char *id);
void rows_unlock(struct snapd *sd, const char *id);
void rows_lock_all(struct snapd *sd);
void rows_unlock_all(struct snapd *sd);

/* Writes meta.json anew from the row as it is. */
int snapd_record_ws(struct snapd *sd, const char *id, struct err *err);

/* What a tree is of, by its id: which one a client's name means is access_admit's to say. One of
 * the two rows is filled. -ENOENT. */
struct source {
	bool is_snap;
	struct ws_row ws;
	struct snap_row snap;
	struct lease lease;
};
void source_done(struct source *s);
#define auto_source __attribute__((cleanup(source_done))) struct source
/* Either; leased SHARED for `what`. */
int source_find(struct source *out, struct snapd *sd, const char *id, const char *what,
		struct err *err);
int source_find_ws(struct source *out, struct snapd *sd, const char *id, enum lease_kind kind,
		   const char *what, struct err *err);
int source_find_snap(struct source *out, struct snapd *sd, const char *id, enum lease_kind kind,
		     const char *what, struct err *err);
/* Pages written through shared maps of a mounted workspace begin to reach it. */
void snapd_flush_maps(struct snapd *sd, const char *id);
/* The stack: a snapshot's manifest, or a workspace's after sealing it. The caller frees.
 * A workspace whose stack is as long as it may be is flattened first; for that a lease that isn't
 * EXCLUSIVE is given back and taken again, and the row is read anew: it may be another. */
int source_stack(struct snapd *sd, struct source *src, struct stack *out, struct err *err);

/* ---- images that are being made (images.c) ---- */

/* Whoever makes an image holds it "made" from before image_finish until a row names it; gc
 * deletes images only while nobody does, and none that was named since its marking began. */
struct images *images_new(void);
void images_free(struct images *im);
void images_making(struct images *im);
void images_made(struct images *im, const struct digest *name); /* NULL: it failed */
/* True when nobody makes one; until images_delete_end nobody can begin. */
bool images_delete_begin(struct images *im);
void images_delete_end(struct images *im);
/* Named by images_made after the last images_forget. */
bool images_is_recent(struct images *im, const struct digest *name);
void images_forget(struct images *im);

/* ---- what a gc has to mark (gc.c) ---- */

struct marking *marking_new(void); /* NULL: out of memory */
void marking_free(struct marking *m); /* NULL allowed */
/* fsclient_before_loss; ctx is the struct snapd. A gc under way, which has listed the workspace and
 * not come to it yet, marks its tree as it still is. */
void gc_tree_goes(void *ctx, const char *id);

/* ---- why a workspace isn't mounted (problems.c) ---- */

struct problems *problems_new(void);
void problems_free(struct problems *p);
void problems_set(struct problems *p, const char *id, const char *text); /* NULL: none */
bool problems_get(struct problems *p, const char *id, char *out, size_t size);
size_t problems_count(struct problems *p);

/* ---- why a workspace is read-only (faults.c) ---- */

void faults_note(struct snapd *sd, const char *id, const char *text); /* "": it isn't */
/* Likewise, what of it was found damaged since it was opened. */
void damage_note(struct snapd *sd, const char *id, const char *text);

#endif
