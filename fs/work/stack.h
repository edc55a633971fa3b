/* A stack names what a workspace or snapshot is made of: an image at the bottom (or
 * none) and sealed layers above it, bottom first. A layer is either local (files under
 * ROOT/layers, contents perhaps not in the store) or a delta (its records in objects of
 * the store, its contents in objects too). A snapshot is a stack without local layers;
 * its encoded form is an object of the store, the manifest. */
#ifndef BOUGH_WORK_STACK_H
#define BOUGH_WORK_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/base/buf.h"
#include "fs/base/err.h"
#include "fs/base/hash.h"

enum {
	LAYER_ID_BYTES = 16,
	STACK_LAYERS_MAX = 256,     /* flattening keeps it near 8; beyond this fork is refused */
	DELTA_PARTS_MAX = 65536,    /* parts of up to 1 MiB */
};

struct layer_id {
	uint8_t b[LAYER_ID_BYTES]; /* local: random; delta: the first bytes of its identity hash */
};

struct stack_layer {
	struct layer_id id;
	bool local;
	struct digest *parts; /* delta: the objects that hold its records, in order */
	uint32_t nparts;      /* 0 for a local layer */
};

struct stack {
	uint64_t seed;       /* of name_hash, the same through a lineage */
	struct digest image; /* all zero: no image */
	struct stack_layer *layers; /* bottom first */
	uint32_t nlayers;
};

void stack_done(struct stack *s); /* frees what it holds; all zero afterwards */
int stack_copy(struct stack *out, const struct stack *in);
/* Appends a layer; `parts` are copied. 0, -ENOMEM, -E2BIG above STACK_LAYERS_MAX. */
int stack_push(struct stack *s, const struct layer_id *id, bool local, const struct digest *parts,
	       uint32_t nparts);
void stack_encode(const struct stack *s, struct buf *out);          /* appends */
/* Any bytes: 0 and a stack that the caller frees, -EBADMSG, or -ENOMEM. */
int stack_decode(struct stack *out, const void *data, size_t len);
/* A delta's id: the first bytes of the SHA-256 over its part digests, one behind the other. */
void layer_delta_id(struct layer_id *out, const struct digest *parts, uint32_t nparts);
/* True when `s` has `lower`'s image and layers at its bottom; when they are the same. */
bool stack_begins(const struct stack *s, const struct stack *lower);
bool stack_equal(const struct stack *a, const struct stack *b);
bool stack_is_saved(const struct stack *s); /* no local layer */

#define auto_stack __attribute__((cleanup(stack_done))) struct stack

#endif
