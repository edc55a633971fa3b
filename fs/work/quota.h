/* What a workspace is charged for.
 *
 * Bytes: of each inode that the workspace has written to (attr.own_tag is the workspace's
 * tag), attr.own_bytes:
 *   - the bytes of its extents in the workspace's own layers (those above ws_file.foreign,
 *     not hidden, not ZERO), clipped at the end of the file; what lies in whole blocks
 *     behind the end (fallocate with KEEP_SIZE) counts too;
 *   - names and values of its xattrs in those layers.
 * So a write to a shared file charges the blocks that it copies, appending charges byte for byte,
 * a hole and what the workspace was made from charge nothing. What copy_file_range shares counts
 * as if it were copied.
 * Inodes: of those that bear the tag, the ones whose number is not below ws_file.birth_ino.
 *
 * So what is charged is written in the inodes, and goes with them: into what is saved and
 * flattened, back by a restore to what the workspace itself had written, and over a merge, whose
 * work is done in an heir (ws_limits.heir), a fork that bears the same tag. Any other fork, and
 * what is made from a snapshot, has a tag of its own and begins at zero: it shares that.
 *
 * All is state, not history: quota_sum finds the same numbers from the inodes, and quota_count
 * from the layers. The latter until own changes lie in what isn't an own layer (ws_file.flattened:
 * saved, flattened, restored): zeros that were written are holes then, and what lies there can't be
 * told from foreign content. What was charged stays charged; rewriting it may charge it once
 * more, but an inode is never charged for more than it holds (quota_cap). */
#ifndef BOUGH_WORK_QUOTA_H
#define BOUGH_WORK_QUOTA_H

#include "fs/work/view.h"
#include "fs/work/workspace.h"

struct quota {
	uint64_t tag, birth_ino;
	struct ws_limits limits;
	int64_t bytes, inodes; /* in use now */
	int64_t reserved;      /* bytes of writes that are under way, and of ws_hold */
	int64_t reserved_inodes; /* of ws_hold */
	/* When the active layer was new: its journal counts from there. */
	int64_t base_bytes, base_inodes;
};

/* 0, or -EDQUOT when so much more would be over a limit. Less than before is always right. */
int quota_check(const struct quota *q, int64_t bytes, int64_t inodes);

/* Of the `own` topmost layers: bytes charged for [from, to) of an inode of that size. */
int quota_content(const struct view *v, uint32_t own, uint64_t ino, uint64_t from, uint64_t to,
		  uint64_t size, int64_t *out);
/* Bytes charged for its xattrs. */
int quota_xattrs(const struct view *v, uint32_t own, uint64_t ino, int64_t *out);
/* What the quota is charged for the inode as it says itself. */
static inline bool quota_owns(const struct quota *q, const struct attr *a)
{
	return a->own_tag == q->tag;
}
static inline int64_t quota_bytes_of(const struct quota *q, const struct attr *a)
{
	return quota_owns(q, a) ? (int64_t)a->own_bytes : 0;
}
static inline int64_t quota_inodes_of(const struct quota *q, const struct attr *a)
{
	return quota_owns(q, a) && a->ino >= q->birth_ino;
}
/* Where what was charged may be charged again: the growth of *a's own_bytes, or less, so that
 * afterwards they aren't more than it holds: of a regular file that will have `size` bytes and
 * `blocks` (of 512 bytes) of data, and of any inode `rest` bytes beside. */
int64_t quota_cap(const struct quota *q, const struct attr *a, uint64_t size, int64_t blocks,
		  int64_t rest, int64_t growth);
/* Names and values of all its xattrs. */
int quota_all_xattrs(const struct view *v, const struct attr *a, int64_t *out);

/* How many of the bytes [off, off + len), all of them data, are charged in a file of that size. */
int64_t quota_clip(uint64_t off, uint64_t len, uint64_t size);

/* What the inodes say, of the whole tree and of nameless ones in the `own` topmost layers. */
int quota_sum(const struct view *v, uint32_t own, const struct quota *q, int64_t *bytes,
	      int64_t *inodes);
/* Counts everything anew. `differs` (NULL allowed) is called for each inode whose attr.own_bytes
 * isn't what it should be; a return other than 0 ends the count. */
int quota_count(const struct view *v, uint32_t own, const struct quota *q, int64_t *bytes,
		int64_t *inodes, int (*differs)(void *ctx, const struct attr *a, int64_t want),
		void *ctx);

#endif
