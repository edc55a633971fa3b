/* A journal, byte by byte the same each time, that has every kind of record and frame: for
 * golden files, and as a seed for the fuzzers. */
#ifndef BOUGH_TESTS_UNIT_LAYER_SAMPLE_H
#define BOUGH_TESTS_UNIT_LAYER_SAMPLE_H

#include <sys/stat.h>
#include "fs/work/journal.h"
#include "fs/work/record.h"

enum { SAMPLE_SALT = 0x5a17 };
static const struct layer_id sample_id = { "golden layer id" };
static const uint8_t sample_boot[BOOT_ID_BYTES] = "golden boot id.";

static inline struct attr sample_attr(uint64_t ino, uint32_t mode)
{
	return (struct attr){ .ino = ino,
			      .mode = mode,
			      .nlink = 1,
			      .ctime = { 1700000000, 123456789 },
			      .mtime = { 1700000000, 123456789 },
			      .atime = { 1700000000, 123456789 },
			      .btime = { 1700000000, 123456789 } };
}

/* Ends a frame whose body stands behind FRAME_HEAD bytes in `b`, and appends it to `out`. */
static inline void sample_frame(struct buf *out, struct buf *b, enum frame_kind kind, uint64_t seq,
				uint64_t ino, uint64_t prev_ino, uint32_t records)
{
	struct journal_frame f = { .kind = kind,
				   .seq = seq,
				   .ino = ino,
				   .prev_ino = prev_ino,
				   .records = records,
				   .tag = kind == FRAME_OP ? seq * 256 : 0 };
	journal_frame_finish(b, &f, SAMPLE_SALT);
	buf_add(out, b->data, b->len);
	b->len = FRAME_HEAD;
}

static inline void sample_records(struct buf *b, unsigned which)
{
	struct attr a = sample_attr(100 + which, S_IFREG | 0644);
	struct extent e = { .off = 8192, .len = 12288 };
	switch (which) {
	case 0: /* every field of an inode, and none */
		a = (struct attr){ .ino = (UINT64_C(1) << 48) - 1,
				   .mode = S_IFCHR | 07777,
				   .uid = UINT32_MAX,
				   .gid = 1,
				   .nlink = 0,
				   .rdev = 0x12345,
				   .gen = UINT16_MAX,
				   .flags = ATTR_HAS_XATTR,
				   .size = INT64_MAX,
				   .blocks = UINT64_MAX,
				   .atime = { -1, 999999999 },
				   .mtime = { INT64_MAX, 0 },
				   .ctime = { INT64_MIN, 1 },
				   .btime = { 0, 7 },
				   .parent = 1,
				   .parent_cookie = UINT64_MAX,
				   .own_tag = UINT64_C(0x8877665544332211),
				   .own_bytes = 4096 };
		record_inode(b, &a, 123456);
		a = sample_attr(101, S_IFSOCK);
		record_inode(b, &a, 0);
		return;
	case 1: /* names */
		a = sample_attr(2, S_IFDIR | 0755);
		record_inode(b, &a, 0);
		record_dirent(b, 2, 0x1234567812345678, "a file", 6, 102, 8);
		record_dirent_del(b, 2, 0x2234567812345678, true);
		record_dirent(b, 2, 0x3234567812345678, "\xff\x01", 2, 103, 10);
		record_dirent_del(b, 2, 0x3234567812345678, false);
		return;
	case 2: /* a link, xattrs */
		a = sample_attr(102, S_IFLNK | 0777);
		a.size = 9;
		record_inode(b, &a, 0);
		record_target(b, 102, "to/a/file", 9);
		record_xattr(b, 102, "user.a", 6, "value", 5);
		record_xattr(b, 102, "user.b", 6, NULL, 0);
		record_xattr_del(b, 102, "trusted.c", 9, true);
		record_xattr_del(b, 102, "user.b", 6, false);
		return;
	case 3: /* extents of every kind but those of another layer */
		record_inode(b, &a, 20480);
		record_extent(b, 103, &e, NULL);
		e = (struct extent){ .off = 0, .len = 4096, .kind = EXTENT_DATA, .src = 40960 };
		record_extent(b, 103, &e, NULL);
		e = (struct extent){ .off = 1 << 20,
				     .len = 8192,
				     .kind = EXTENT_DATA,
				     .file = 103,
				     .src = 1 << 20 };
		record_extent(b, 103, &e, NULL);
		e = (struct extent){ .off = 5 << 20,
				     .len = 777,
				     .kind = EXTENT_OBJECT,
				     .src = 11,
				     .object = { "an object's digest, 32 bytes..." } };
		record_extent(b, 103, &e, NULL);
		e = (struct extent){ .off = 6 << 20,
				     .len = 4096,
				     .kind = EXTENT_IMAGE,
				     .src = 12288,
				     .image_ino = 77,
				     .image = { "an image's digest, 32 bytes...." } };
		record_extent(b, 103, &e, NULL);
		record_extent_drop(b, 103, 12288, 16384);
		record_extent_drop(b, 103, 7 << 20, UINT64_MAX);
		return;
	default:
		record_dead(b, 101, false);
		record_dead(b, 104, true);
		record_usage(b, -5, 1000000);
	}
}

enum { SAMPLE_OPS = 5 };

/* Header, SAMPLE_OPS operations, a commit that covers all but the last, a seal, a reset. */
static inline void sample_journal(struct buf *out)
{
	static const uint32_t records[SAMPLE_OPS] = { 2, 5, 6, 8, 3 };
	struct journal_head h = { .id = sample_id, .salt = SAMPLE_SALT };
	struct buf b = { 0 };
	memcpy(h.boot, sample_boot, BOOT_ID_BYTES);
	uint8_t *p = buf_room(out, JOURNAL_HEAD);
	journal_head_encode(p, &h);
	out->len += JOURNAL_HEAD;
	(void)buf_room(&b, FRAME_HEAD);
	b.len = FRAME_HEAD;
	for (unsigned i = 0; i < SAMPLE_OPS; i++) {
		sample_records(&b, i);
		sample_frame(out, &b, FRAME_OP, i + 1, 100 + i, i ? 99 + i : 0, records[i]);
	}
	buf_u64(&b, SAMPLE_OPS - 1);
	sample_frame(out, &b, FRAME_COMMIT, 6, 0, 104, 0);
	sample_frame(out, &b, FRAME_SEAL, 7, 0, 0, 0);
	buf_done(&b);
}

#endif
