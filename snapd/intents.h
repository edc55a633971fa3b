/* What a restore or a merge is about to do for an Idempotency-Key. Its effect is bough-fs's, so it
 * can't be noted in the catalog's own transaction: noted is, before it, what the workspace is then.
 * After a kill that is compared with what it has become, and a repeated request is answered, or
 * done. */
#ifndef BOUGH_SNAPD_INTENTS_H
#define BOUGH_SNAPD_INTENTS_H

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
/* At the start, before anything is served: of those that a kill left. Waits for bough-fs only when
 * there are some; without it they stay under way. */
int intents_resolve(struct snapd *sd, struct err *err);

#endif
