/* Members of an archive on their way into a workspace: operations of a batch (fs/work/batch.h) and
 * the contents of their files, which bough-fs makes all at once, without the kernel. Not for others
 * than archive_extract.c and tests.
 *
 *     archive_stage_init
 *     for each member:
 *         archive_stage_file, archive_stage_data …, archive_stage_file_end
 *         archive_stage_add
 *         archive_stage_settle
 *     archive_stage_flush
 *     archive_stage_done         any time
 *
 * Contents lie one behind the other in a spool: in memory, of which there is little at a time, or
 * where all is one step, in a file without a name. No descriptor is open for each of them.
 *
 * Where all is one step, and the workspace has a quota, room for what is staged is kept in that
 * (fs_hold): for each file from when its size is known on, else as it comes; for folders, also
 * those that names lead through, which the workspace hasn't when they are staged, and for what is
 * neither, from then on. */
#ifndef BOUGH_SNAPD_ARCHIVE_STAGE_H
#define BOUGH_SNAPD_ARCHIVE_STAGE_H

#include "fs/base/u64map.h"
#include "fs/work/batch.h"
#include "snapd/files_place.h"

enum {
	STAGE_SMALL = 1 << 20,  /* bytes: contents up to this go through a spool in memory */
	STAGE_OPS = 1024,       /* in a batch that isn't everything: about 5 ms of bough-fs' lock */
	STAGE_BYTES = 16 << 20, /* of contents in it */
};

struct archive_staged {
	size_t path;         /* in paths, terminated */
	size_t first, count; /* in pieces */
	uint64_t size;
	uint64_t charge, end; /* what the quota will count of it so far; where that ends */
	uint32_t next; /* of the same hash, plus one */
};

struct archive_stage {
	const struct place *place;
	struct err *err;
	bool atomic;
	int spool;
	uint64_t end;        /* bytes in the spool */
	uint64_t tag;        /* of the batch, for which room in the quota is kept; 0: none is */
	uint64_t charge, inodes; /* bytes and inodes that the quota will count of all of it */
	uint64_t kept, kept_inodes; /* for how many of these there is room */
	uint64_t seed;       /* of by_path and made */
	struct buf ops;
	uint32_t *starts; /* of each operation in ops */
	size_t nops, starts_cap;
	struct archive_staged *contents;
	size_t ncontents, contents_cap;
	struct batch_piece *pieces;
	size_t npieces, pieces_cap;
	struct buf paths;
	struct u64map by_path; /* hash -> index of the newest content plus one */
	struct u64map made; /* hashes of folders, there or made, and of what else is made */
};

/* `scratch`: a folder for what is staged whole, NULL for batches. All return 0 or -errno, with *err
 * set, which is borrowed as the place is. */
int archive_stage_init(struct archive_stage *s, const struct place *place, const char *scratch,
		       struct err *err);
void archive_stage_done(struct archive_stage *s);

/* The content of the file that `path` names follows: its number, for batch_op.file. */
int archive_stage_file(struct archive_stage *s, const char *path, uint64_t *number);
/* The content of the newest file of that path follows once more, in place of what it has.
 * -ENOENT (and no error set): there is none of that path here. */
int archive_stage_file_again(struct archive_stage *s, const char *path, uint64_t *number);
/* So many bytes of it will come, none of them left out. Need not be called. -EDQUOT. */
int archive_stage_expect(struct archive_stage *s, uint64_t number, uint64_t size);
int archive_stage_data(struct archive_stage *s, uint64_t number, uint64_t off, const void *data,
		       size_t n);
int archive_stage_file_end(struct archive_stage *s, uint64_t number, uint64_t size);

/* The content won't come as a whole: none of it counts. */
void archive_stage_file_drop(struct archive_stage *s, uint64_t number);

/* o->path is terminated. -EDQUOT. */
int archive_stage_add(struct archive_stage *s, const struct batch_op *o);
/* Does what is there so far, unless all is one step or it is little yet. */
int archive_stage_settle(struct archive_stage *s);
/* Does what is there. Where it isn't one step, what comes before the one that fails is done.
 * The error names the member. */
int archive_stage_flush(struct archive_stage *s);

#endif
