/* Layers and images that boughd has loaded: a diff or a save of a workspace whose lower layers
 * were read a moment ago doesn't replay their journals again.
 *
 * Only sealed, undamaged layers are kept (damaged ones are loaded by whoever asks, who is then
 * told). Bounded in memory; what wasn't asked for lately goes (layercache_trim).
 * Threads: any. */
#ifndef BOUGH_SNAPD_LAYERCACHE_H
#define BOUGH_SNAPD_LAYERCACHE_H

#include <stdint.h>
#include "fs/base/err.h"
#include "fs/store/store.h"
#include "fs/work/view.h"

enum { LAYERCACHE_BYTES = 96 << 20 };

struct layercache;
/* `store` is borrowed. */
int layercache_new(struct layercache **out, const char *root, struct store *store, struct err *err);
void layercache_free(struct layercache *lc); /* NULL allowed; no view is open */
/* For view_open and its kin; valid as long as the cache. */
void layercache_options(struct layercache *lc, struct view_options *out);
/* Lets go what wasn't asked for in the last idle_ms, and local layers whose files are gone. */
void layercache_trim(struct layercache *lc, uint64_t idle_ms);
uint64_t layercache_memory(struct layercache *lc);

#endif
