/* Archives that an export job made, kept for whoever asked for them, to be fetched in parts.
 *
 *   ROOT/exports/<owner, in hex>/<id>.<format>        whole
 *   ROOT/exports/<owner, in hex>/<id>.<format>.part   being written
 *
 * The files are all there is to know: whose one is by its folder, since when by its time. One goes
 * EXPORTS_KEPT_S after it was made, or when its owner deletes it; what a killed boughd was at, at
 * the next start. Until then its bytes are its owner's (limits_bytes). Threads: any. */
#ifndef BOUGH_SNAPD_EXPORTS_H
#define BOUGH_SNAPD_EXPORTS_H

#include "snapd/snapd.h"

enum {
	EXPORTS_KEPT_S = 24 * 3600,
	EXPORTS_MAX = 256, /* of one owner: they are listed whole */
	EXPORTS_NAME = 64,
};

struct export {
	char id[ID_SIZE];
	char format[16];
	uint64_t bytes;
	int64_t created_ns;
};

/* One that is being written: fd. Undone by export_drop unless export_keep was called. */
struct export_file {
	int dir, fd; /* -1: none */
	char id[ID_SIZE];
	char name[EXPORTS_NAME]; /* of the whole file */
};
/* -EUSERS: the owner has EXPORTS_MAX. */
int export_begin(struct export_file *f, struct snapd *sd, const char *owner, const char *format,
		 struct err *err);
int export_keep(struct export_file *f, struct err *err); /* durable, from here on */
void export_drop(struct export_file *f);

/* The owner's, in no order; fn returns other than 0 to end it. */
int exports_each(struct snapd *sd, const char *owner,
		 int (*fn)(void *ctx, const struct export *e), void *ctx, struct err *err);
/* The file, opened to read: a descriptor. -ENOENT. */
int export_open(struct snapd *sd, const char *owner, const char *id, struct export *out,
		struct err *err);
int export_delete(struct snapd *sd, const char *owner, const char *id, struct err *err);
/* What they take, those that are being written too. */
int exports_bytes(struct snapd *sd, const char *owner, uint64_t *out, struct err *err);
/* Removes what is older than it is kept, and at the start all that isn't whole. */
void exports_sweep(struct snapd *sd, bool at_start);

#endif
