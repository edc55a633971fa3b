/* Saving and flattening: from local layers to what the store holds.
 *
 * Both work on sealed stacks, in any process, beside the server that has the workspace. */
#ifndef BOUGH_WORK_SAVE_H
#define BOUGH_WORK_SAVE_H

#include "fs/store/store.h"
#include "fs/work/view.h"

struct save_stats {
	uint64_t files, bytes_read, layers, records;
	uint64_t bytes_stored; /* by which the store grew: contents and records, compressed */
};
struct save_progress {
	/* Called for each file and for each piece of a big one, so at least once a few ms of work;
	 * a return other than 0 ends it with -ECANCELED. */
	int (*fn)(void *ctx, uint64_t files_done, uint64_t files_total, uint64_t bytes_done);
	void *ctx;
};

/* Puts the contents and records of every local layer of `s` into the store, and gives the
 * same stack without local layers. A layer's result is kept beside it (ROOT/layers/<id>/saved), so
 * each layer is saved once. Nothing is durable before store_sync(ss).
 * Only regular content that the layers themselves have is read: O(what changed). */
int save_stack(struct stack *out, const struct stack *s, const struct view_options *opt,
	       struct store_session *ss, const struct save_progress *progress,
	       struct save_stats *st, struct err *err);

/* Writes the tree that a saved stack shows as one image (contents are objects already, so
 * only metadata moves) and gives the stack {image}. Durable on return, after its objects.
 * Progress counts inodes. */
int flatten_stack(struct stack *out, const struct stack *s, const struct view_options *opt,
		  struct store_session *ss, const struct save_progress *progress, struct err *err);

/* When a stack is worth flattening. */
enum { FLATTEN_LAYERS = 8, FLATTEN_RECORDS = 200000 };

/* The manifest: the encoded stack as an object of the store. */
int manifest_put(struct store_session *ss, const struct stack *saved, struct digest *out,
		 struct err *err);
int manifest_get(struct store *store, const struct digest *d, struct stack *out, struct err *err);

/* What keeps a stack alive, local layers and what they were saved as included: objects (its
 * deltas' parts, all contents; not the manifest itself) and images. Either function may be
 * NULL; a return < 0 ends the listing with it. Things may be named more than once. */
struct reach_sink {
	int (*object)(void *ctx, const struct digest *d);
	int (*image)(void *ctx, const struct digest *name);
	void *ctx;
};
int stack_reach(const struct stack *s, const struct view_options *opt,
		const struct reach_sink *sink, struct err *err);

#endif
