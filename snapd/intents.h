/* What a call is about to do for an Idempotency-Key where that isn't the catalog's, and so can't be
 * noted in its transaction: files, branches, other servers. Noted is, before it, by what one can
 * tell afterwards that it has happened, and what is answered then. At the start that is looked at:
 * what has happened is answered when it is asked for again, what hasn't is done.
 *
 *   into/WS/LAYER/SNAPSHOT          another layer is active (a restore; "-": a merge)
 *   by/tag/WS/TAG/STATUS            bough-fs has done the put or batch of that tag
 *   by/ref/STATUS/REPO/COMMIT/NAME  the mirror's branch has come to the commit
 *   by/export/STATUS/OWNER/FILE     the export is there, whole (exports.h)
 *   by/push/COMMIT                  only the other side knows: it is done again when it is asked
 *                                   for again, with that commit, which changes nothing where it
 *                                   is there already
 *
 * Without a key none of these notes anything. */
#ifndef BOUGH_SNAPD_INTENTS_H
#define BOUGH_SNAPD_INTENTS_H

#include <jansson.h>
#include "gitops/git.h"
#include "snapd/snapd.h"

struct intent {
	char ws[ID_SIZE];
	struct layer_id was; /* its active layer */
};
/* The workspace, leased EXCLUSIVE until it is done, is about to become something else: a snapshot
 * (NULL: a merge), which will be answered so (NULL: with the workspace, as it is when it is asked
 * for again). */
int intent_note(struct intent *out, struct snapd *sd, const char *ws, const char *snap,
		const json_t *answer, struct err *err);
/* Whether it has happened: 1 or 0. The lease is still held. */
int intent_happened(struct snapd *sd, const struct intent *in, struct err *err);

/* *tag is for the fs_put or fs_batch that is to come (of any caller). `answer` is what
 * api_files_look takes; taken over, NULL: out of memory. */
int intent_files(uint64_t *tag, struct snapd *sd, const char *ws, unsigned status, json_t *answer,
		 struct err *err);
/* The branch is about to be moved to the commit. */
int intent_branch(struct snapd *sd, uint32_t repo, const char *branch, const struct oid *commit,
		  unsigned status, const json_t *answer, struct err *err);
/* The export's file is about to be kept (export_begin's name). */
int intent_export(struct snapd *sd, const char *owner, const char *file, unsigned status,
		  const json_t *answer, struct err *err);
/* *commit is about to be pushed, or is the one that was for that key before boughd was killed. */
int intent_push(struct snapd *sd, struct oid *commit, struct err *err);

/* At the start, before anything is served: of those that a kill left. Waits for bough-fs only when
 * there are some; without it they stay under way. */
int intents_resolve(struct snapd *sd, struct err *err);

#endif
