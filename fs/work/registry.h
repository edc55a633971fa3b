/* The layers and images of one root that this process knows: which are loaded (sealed layers
 * are shared by all workspaces), and which the workspaces' files on disk name, so that a
 * layer's files go when the last of them does (invariant 8).
 *
 * Threads: any. */
#ifndef BOUGH_WORK_REGISTRY_H
#define BOUGH_WORK_REGISTRY_H

#include "fs/work/view.h"
#include "fs/work/ws_file.h"

struct registry;

/* `opt` (without resolve) and `images` are copied; what they point to is borrowed for the
 * registry's life. */
int registry_new(struct registry **out, const struct layer_options *opt, const char *images,
		 struct err *err);
void registry_free(struct registry *r); /* NULL allowed; every view was given back */

/* Options by which view_open shares what is loaded here; valid while the registry is. */
void registry_options(struct registry *r, struct view_options *out);
/* An active layer from disk; what its extents lead to is remembered as its dependencies.
 * It isn't shared. */
int registry_active(struct registry *r, const struct layer_id *id, bool writable,
		    struct layer **out, struct err *err);

/* layer_mend of a layer that no open workspace shows; one that is shown stays as it is: 0. */
int registry_mend(struct registry *r, const struct layer_id *id, struct layer_fault *was,
		  struct err *err);

/* What an open workspace shows stays loaded: layers from index `from` on, and the image. */
int registry_use(struct registry *r, const struct view *v, uint32_t from); /* 0 or -ENOMEM */
void registry_unuse(struct registry *r, const struct view *v, uint32_t from);
/* Unloads what no open workspace uses. */
void registry_trim(struct registry *r);

/* A workspace's file that is on disk, or is about to be. 0 or -ENOMEM. */
int registry_name(struct registry *r, const struct ws_file *f);
/* The file is gone (or never came): layers that nothing names any more are removed from disk. */
void registry_unname(struct registry *r, const struct ws_file *f);
/* At the start: a workspace's file couldn't be read, so what it names isn't known, and it may be
 * readable later. From now on all layers count as named, and none is removed; the next start's
 * sweep finds those that were to go. */
void registry_spare(struct registry *r);
bool registry_is_named(struct registry *r, const struct layer_id *id);
/* A new layer, which no file names yet. */
void registry_made(struct registry *r, const struct layer_id *id);
/* Whether some file names the layer as sealed, or one that couldn't be read may: then it may not be
 * written to (invariant 4). */
bool registry_is_sealed(struct registry *r, const struct layer_id *id);

/* An extent of `from` leads to the data of `to`. 0 or -ENOMEM. */
int registry_depend(struct registry *r, const struct layer_id *from, const struct layer_id *to);
/* Sets the pins of *f: every layer that those of its stack depend on and that isn't in it. The
 * layers are loaded (or were, since the process started). 0 or -ENOMEM. */
int registry_pin(struct registry *r, struct ws_file *f);

/* Everything of a sealed layer is known to be on disk. */
bool registry_is_durable(struct registry *r, const struct layer_id *id);
void registry_set_durable(struct registry *r, const struct layer_id *id);

#endif
