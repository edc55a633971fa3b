/* The file of a workspace: what it is made of, and its settings.
 *
 *   ROOT/ws/<id>/stack          the newest durable version
 *   ROOT/ws/<id>/stack-<seq>    a newer one, not synced (fork, seal): whole after a kill; after
 *                               power loss perhaps torn or gone, then `stack` counts
 *
 * Of those that are whole the one with the highest `seq` counts. A version has a name of its own
 * because replacing a file makes ext4 write it out, which takes long when the disk is busy,
 * and a fork writes its version while the workspace stands still: the file is made before, and what
 * is left is one pwrite. The bytes are in fs/FORMAT.md. */
#ifndef BOUGH_WORK_WS_FILE_H
#define BOUGH_WORK_WS_FILE_H

#include "fs/base/boot.h"
#include "fs/base/io.h"
#include "fs/work/stack.h"

enum {
	WS_FILE_MAX = 1 << 28, /* bytes: a stack of the largest deltas, STACK_LAYERS_MAX deep */
	WS_PINS_MAX = 65536,
};

struct ws_file {
	uint64_t seq;       /* rises with each change of the stack or the settings */
	uint64_t tag;       /* attr.own_tag of what the workspace is charged for; never 0 */
	uint64_t birth_ino; /* inodes from here on are its own */
	uint64_t limit_bytes, limit_inodes; /* 0: none */
	int64_t base_bytes, base_inodes;    /* usage when the active layer was new */
	uint64_t files;                     /* inodes shown then, about */
	uint32_t foreign; /* layers from the bottom that are not its own changes */
	bool flattened;   /* its own changes are partly in the image (quota.h) */
	bool no_xattrs;   /* none are shown (workspace.h) */
	uint16_t gen;     /* the highest restore generation that it ever showed */
	bool durable;     /* written when all that it names was on disk, and synced itself */
	uint8_t boot[16]; /* in which it was written: in the same one it holds, durable or not */
	struct layer_id active;
	struct stack stack;    /* what lies below the active layer */
	struct layer_id *pins; /* layers that aren't in the stack any more, but whose data files
	                          extents of the stack's layers lead to */
	uint32_t npins;
};

void ws_file_done(struct ws_file *f); /* frees what it holds; all zero afterwards */
int ws_file_copy(struct ws_file *out, const struct ws_file *in);
void ws_file_encode(const struct ws_file *f, struct buf *out); /* appends */
/* Any bytes: 0 and a file that the caller frees, -EBADMSG, or -ENOMEM. */
int ws_file_decode(struct ws_file *out, const void *data, size_t len);
int ws_file_pin(struct ws_file *f, const struct layer_id *id); /* once; 0 or -ENOMEM */

/* The name of the version that isn't synced. */
enum { WS_FILE_NAME = 24 };
void ws_file_name(char out[WS_FILE_NAME], uint64_t seq);

/* What the folder `ws/<id>` under `root` says: the newest whole version, and behind it the durable
 * one where that is older. *n is 1 or 2.
 * -ENOENT: no such workspace; -EBADMSG: none of them is whole, or a newer one isn't though it was
 * written in the present boot (`boot`), whose power nobody lost; -errno, also where one can't be
 * read that may be the newest. Any process. */
int ws_file_load(struct ws_file out[2], unsigned *n, const struct io *io, const char *root,
		 const char *id, const uint8_t boot[BOOT_ID_BYTES], struct err *err);

/* What a kill or a power loss left in that folder: versions other than `seq` that aren't `stack`,
 * and what was being published. A torn one of a higher number has to go before another is
 * published in this boot: it would look like the workspace's newest then, damaged. Only who serves
 * the workspace may, and nobody who publishes at the time. */
void ws_file_sweep(const char *root, const char *id, uint64_t seq);

#define auto_ws_file __attribute__((cleanup(ws_file_done))) struct ws_file

#endif
