/* What a call is about to do for an Idempotency-Key where that isn't the catalog's, and so can't be
 * noted in its transaction: files, branches, other servers. Noted is, before it, by what one can
 * tell afterwards that it has happened, and what is answered then. Of a call that was cut off, by a
 * kill -9 or by a failure of ours (5xx) behind which its effect may have come all the same, that is
 * looked at: at the start, when it has failed, or when it is asked for again. What has happened is
 * answered then, what hasn't is done.
 *
 *   into/WS/LAYER/SNAPSHOT          that layer, which was active, is gone (a restore; "-": a merge)
 *   by/tag/WS/TAG/STATUS            bough-fs has done the put or batch of that tag
 *   by/ref/STATUS/REPO/COMMIT/NAME  the mirror's branch has come to the commit
 *   by/reset/REPO/has/COMMIT/NAME   the mirror's branch has come to the commit, which was before it
 *   by/reset/REPO/lost/COMMIT/NAME  the mirror's branch has left the commit, or is gone
 *   by/export/STATUS/OWNER/FILE     the export is there, whole (exports.h)
 *   by/box/SB/STARTED/WHAT/NUMBER   the sandbox, whose run before had begun then, was started,
 *                                   stopped (by a signal of that number), paused or resumed
 *   by/exec/EX                      its shim has begun that exec, or never will
 *   by/signal/SB/EX/STARTED/NUMBER  bough-init knows whether it had the signal of that number: it
 *                                   is sent again when it is asked for again
 *   by/attach/SB/WS/TARGET          the catalog has it attached there
 *   by/back/SB/STARTED/RUNS/…       a sandbox's restore: each tree is another, and it runs again
 *                                   where it ran; what isn't is done when it is asked for again
 *   by/upload/UP                    the upload is announced by that id, whoever asks again
 *   by/umount/WS                    that it isn't to be mounted is in the catalog; the end of its
 *                                   mount is asked for again, unless somebody has mounted it since
 *   by/push/COMMIT                  only the other side knows: it is done again when it is asked
 *                                   for again, with that commit, which changes nothing where it
 *                                   is there already
 *
 * Without a key none of these notes anything. */
#ifndef BOUGH_SNAPD_INTENTS_H
#define BOUGH_SNAPD_INTENTS_H

#include <jansson.h>
#include <stdbool.h>
#include "gitops/git.h"
#include "runtime/box.h"
#include "snapd/journal.h"
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
/* Whether it has happened: 1 or 0. No layer went since but by it. */
int intent_happened(struct snapd *sd, const struct intent *in, struct err *err);

/* *tag is for the fs_put or fs_batch that is to come (of any caller). `answer` is what
 * api_files_look takes; taken over, NULL: out of memory. */
int intent_files(uint64_t *tag, struct snapd *sd, const char *ws, unsigned status, json_t *answer,
		 struct err *err);
/* The branch is about to be moved to the commit. */
int intent_branch(struct snapd *sd, uint32_t repo, const char *branch, const struct oid *commit,
		  unsigned status, const json_t *answer, struct err *err);
/* The branch is about to be reset. */
struct mirror_reset;
int intent_reset(struct snapd *sd, uint32_t repo, const char *branch,
		 const struct mirror_reset *plan, const json_t *answer, struct err *err);
/* The export's file is about to be kept (export_begin's name). */
int intent_export(struct snapd *sd, const char *owner, const char *file, unsigned status,
		  const json_t *answer, struct err *err);
/* *id is of an upload that is about to be announced (0), or was for that key before it was cut off
 * (1). */
int intent_upload(struct snapd *sd, char id[ID_SIZE], struct err *err);
/* *commit is about to be pushed, or is the one that was for that key before it was cut off. */
int intent_push(struct snapd *sd, struct oid *commit, struct err *err);

/* ---- sandboxes (intents_sandbox.c) ---- */

/* The sandbox, leased EXCLUSIVE, is about to be changed so. */
enum box_change { BOX_START, BOX_STOP, BOX_PAUSE, BOX_RESUME };
/* *number (NULL: there is none): of the signal by which it stops; that of before, where this is a
 * repeated call. */
int intent_box(struct snapd *sd, const char *id, enum box_change what, uint64_t *number,
	       struct err *err);
/* The process (an exec's id, or SANDBOX_MAIN) is about to get a signal. -ESTALE, and out->again: it
 * was of a run that has ended since. */
struct signal_note;
int intent_signal(struct signal_note *out, struct snapd *sd, const char *id, const char *exec,
		  struct err *err);
/* The repeated stop finds it stopped: the first one, which was cut off, has done that. */
bool intent_box_stopped(struct snapd *sd, const char *id);
struct attached_row;
int intent_attach(struct snapd *sd, const struct attached_row *row, struct err *err);

/* A restore of several trees, one after the other. */
enum { BACK_MAX = 1 + BOX_MOUNTS }; /* a root, and what can be attached */
struct back {
	char sandbox[ID_SIZE];
	bool runs; /* it ran, and is to run again */
	int64_t started_ns;
	size_t n;
	struct back_tree {
		char ws[ID_SIZE], snap[ID_SIZE];
		enum { BACK_WAITS, BACK_BEGUN, BACK_DONE } state;
		struct layer_id was; /* of one that is BEGUN: its active layer before */
	} of[BACK_MAX];
};
/* What was noted for this thread's key before it was cut off: those trees are DONE that were
 * restored, and `runs` is what it was. False: nothing. */
bool intent_back_was(struct back *out, const char *sandbox);
int intent_back(struct snapd *sd, const struct back *b, struct err *err);

/* ---- what became of it ---- */

/* Behind sandboxes_find, before anything is served: of those that a kill left. Waits for bough-fs
 * only when there are some; without it they are asked about when somebody asks for them again. */
int intents_resolve(struct snapd *sd, struct err *err);
/* Of one that is idle: it is noted what became of it. `late`: bough-fs may not have got to it yet,
 * and is waited for. -errno: it can't be told now, and it stays idle. */
int intent_settle(struct snapd *sd, const struct repeat *was, bool late, struct err *err);
/* Before a layer of the workspace goes, which is leased EXCLUSIVE: no restore of it is in doubt any
 * more. */
int intents_settle_of(struct snapd *sd, const char *ws, struct err *err);

/* What was noted for this thread's key before it was cut off, behind `prefix` (borrowed); NULL:
 * nothing like that. */
const char *intent_was(const char *prefix);
/* intents.c's and intents_sandbox.c's own. Of what is noted behind the kind's prefix, in `text`,
 * which they may write to: the status of what has happened, and *answer, as it was noted (NULL:
 * nothing was), for as it is now; 0: it hasn't; INTENT_LEFT: something is left for who asks again,
 * *left if that is another text (the caller's). -ENOENT: what it was about is gone. */
enum { INTENT_LEFT = 1 };
int intent_look_box(struct snapd *sd, char *text, json_t **answer, char **left, struct err *err);
int intent_look_attach(struct snapd *sd, char *text, json_t **answer, char **left,
		       struct err *err);
int intent_look_exec(struct snapd *sd, char *text, json_t **answer, char **left, struct err *err);
/* Of what is done again when it is asked for again, and changes nothing where it was done. */
int intent_look_again(struct snapd *sd, char *text, json_t **answer, char **left, struct err *err);
int intent_look_back(struct snapd *sd, char *text, json_t **answer, char **left, struct err *err);
/* A restore's head was to be remembered behind it. */
void intent_finish(struct snapd *sd, const char *ws, const char *snap);

#endif
