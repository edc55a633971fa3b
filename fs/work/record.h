/* The records of which journal frames and delta parts consist: what each says, as bytes.
 * Every byte is in fs/FORMAT.md. Encoders append to a buffer and don't fail; the decoder
 * is pure, bounded and total: any bytes give records or -EBADMSG. */
#ifndef BOUGH_WORK_RECORD_H
#define BOUGH_WORK_RECORD_H

#include "fs/base/buf.h"
#include "fs/work/layer.h"

enum record_type {
	REC_INODE = 1,
	REC_DEAD = 2,
	REC_DIRENT = 3,
	REC_DIRENT_DEL = 4,
	REC_TARGET = 5,
	REC_XATTR = 6,
	REC_XATTR_DEL = 7,
	REC_EXTENT = 8,
	REC_EXTENT_DROP = 9,
	REC_USAGE = 10,
	REC_DAMAGED = 11,
	REC_FILES = 12,
};

enum {
	REC_TARGET_MAX = 4095,       /* PATH_MAX without its NUL */
	REC_XATTR_VALUE_MAX = 65536, /* XATTR_SIZE_MAX */
	REC_INO_BITS = 48,
};

/* One record. Only the fields of its type are set; pointers are into the input. */
struct record {
	enum record_type type;
	uint64_t ino;           /* of the inode, or the directory */
	bool flag;              /* DEAD: forget; DIRENT_DEL: whiteout; XATTR_DEL: hide */
	struct attr attr;       /* INODE */
	uint64_t base_size;     /* INODE */
	uint64_t cookie, child; /* DIRENT, DIRENT_DEL */
	uint8_t dtype;          /* DIRENT */
	const char *name;       /* DIRENT, XATTR, XATTR_DEL */
	size_t name_len;
	const void *value; /* TARGET, XATTR */
	size_t value_len;
	struct extent extent; /* EXTENT; its `layer` is NULL */
	bool other;           /* EXTENT_DATA: in another layer, `layer_id` */
	struct layer_id layer_id;
	uint64_t from, to;     /* EXTENT_DROP */
	int64_t bytes, inodes; /* USAGE */
	int64_t files;         /* FILES */
};

void record_inode(struct buf *b, const struct attr *a, uint64_t base_size);
void record_dead(struct buf *b, uint64_t ino, bool forget);
void record_dirent(struct buf *b, uint64_t dir, uint64_t cookie, const char *name, size_t len,
		   uint64_t child, uint8_t type);
void record_dirent_del(struct buf *b, uint64_t dir, uint64_t cookie, bool whiteout);
void record_target(struct buf *b, uint64_t ino, const char *target, size_t len);
void record_xattr(struct buf *b, uint64_t ino, const char *name, size_t name_len, const void *value,
		  size_t len);
void record_xattr_del(struct buf *b, uint64_t ino, const char *name, size_t name_len, bool hide);
/* `own`: the layer whose journal it is; a DATA extent of another one names that by its id. */
void record_extent(struct buf *b, uint64_t ino, const struct extent *e, const struct layer *own);
void record_extent_drop(struct buf *b, uint64_t ino, uint64_t from, uint64_t to);
/* The inode's content was lost with a data file. */
void record_damaged(struct buf *b, uint64_t ino);
void record_usage(struct buf *b, int64_t bytes, int64_t inodes);
void record_files(struct buf *b, int64_t files);

/* What stands before the records of a delta's part (layer_delta.c). */
enum { DELTA_HEAD = 32 };
void delta_head(uint8_t out[DELTA_HEAD], uint32_t index, bool last, uint32_t records);

/* The next record: 1, 0 at the end, -EBADMSG. */
int record_next(struct cur *c, struct record *out);

#endif
