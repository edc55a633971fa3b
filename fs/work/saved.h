/* What a local layer was saved as: ROOT/layers/<id>/saved (fs/FORMAT.md). */
#ifndef BOUGH_WORK_SAVED_H
#define BOUGH_WORK_SAVED_H

#include "fs/base/boot.h"
#include "fs/base/io.h"
#include "fs/store/store.h"
#include "fs/work/stack.h"

/* id and parts of `saved` are written; not synced. `losses`: store_losses before the first put. */
int saved_write(const struct io *io, const char *root, const struct layer_id *layer,
		const uint8_t losses[STORE_LOSSES_BYTES], const struct stack_layer *saved,
		struct err *err);
/* Gives id and parts; the caller frees saved->parts. `losses`: as they are now. -ENOENT where there
 * is none that counts: absent, torn, or written before this boot or the last loss (its objects may
 * not have reached the disk). */
int saved_read(const struct io *io, const char *root, const struct layer_id *layer,
	       const uint8_t losses[STORE_LOSSES_BYTES], struct stack_layer *saved,
	       struct err *err);
/* The file's bytes. `boot`: in which it is written, and since which loss. Appends to *out, which
 * remembers a failure. */
void saved_encode(const struct stack_layer *saved, const uint8_t boot[BOOT_ID_BYTES],
		  struct buf *out);
/* Pure: any bytes give id, parts (the caller frees) and boot; or -EBADMSG, -ENOMEM. */
int saved_decode(struct stack_layer *saved, uint8_t boot[BOOT_ID_BYTES], const void *data,
		 size_t len);

#endif
