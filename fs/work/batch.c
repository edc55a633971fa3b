#include "fs/work/batch.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/work/ino.h"
#include "fs/work/record.h"

enum { VERSION_BYTES = 8 + 2 + 8, PIECE_BYTES = 3 * 8 };

/* ---- writing ---- */

static void put_time(struct buf *b, const struct timespec *t)
{
	buf_u64(b, (uint64_t)t->tv_sec);
	buf_u32(b, (uint32_t)t->tv_nsec);
}

static void put_versions(struct buf *b, const struct version_id *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		buf_u64(b, v[i].ino);
		buf_u16(b, v[i].gen);
		buf_u64(b, (uint64_t)v[i].ctime_ns);
	}
}

void batch_encode(struct buf *out, const struct batch_op *op, const struct batch_conditions *c)
{
	static const struct batch_conditions none;
	c = c ? c : &none;
	buf_u8(out, (uint8_t)op->kind);
	buf_u16(out, (uint16_t)op->flags);
	buf_u32(out, op->mode);
	buf_u32(out, op->uid);
	buf_u32(out, op->gid);
	buf_u32(out, op->rdev);
	put_time(out, &op->atime);
	put_time(out, &op->mtime);
	buf_u64(out, op->file);
	buf_u16(out, (uint16_t)op->path_len);
	buf_add(out, op->path, op->path_len);
	buf_u16(out, (uint16_t)op->other_len);
	buf_add(out, op->other, op->other_len);
	buf_u32(out, (uint32_t)op->xattrs_len);
	buf_add(out, op->xattrs, op->xattrs_len);
	buf_u8(out, (uint8_t)c->nmatch);
	buf_u8(out, (uint8_t)c->nunless);
	put_versions(out, c->match, c->nmatch);
	put_versions(out, c->unless, c->nunless);
}

void batch_encode_xattr(struct buf *out, const char *name, const void *value, size_t len)
{
	size_t n = strlen(name);
	buf_u8(out, (uint8_t)n);
	buf_u32(out, (uint32_t)len);
	buf_add(out, name, n);
	buf_add(out, value, len);
}

void batch_encode_content(struct buf *out, uint64_t size, const struct batch_piece *v, size_t n)
{
	buf_u64(out, size);
	buf_u32(out, (uint32_t)n);
	for (size_t i = 0; i < n; i++) {
		buf_u64(out, v[i].off);
		buf_u64(out, v[i].len);
		buf_u64(out, v[i].at);
	}
}

/* ---- reading ---- */

static struct timespec take_time(struct cur *c)
{
	struct timespec t = { .tv_sec = (time_t)cur_u64(c), .tv_nsec = cur_u32(c) };
	if (t.tv_nsec >= 1000000000)
		cur_fail(c);
	return t;
}

static const char *take_bytes(struct cur *c, size_t n, size_t max)
{
	if (n > max)
		cur_fail(c);
	return (const char *)cur_take(c, n);
}

static bool path_is_good(const char *p, size_t len)
{
	for (size_t at = 0; at <= len;) {
		const char *slash = memchr(p + at, '/', len - at);
		size_t n = slash ? (size_t)(slash - p) - at : len - at;
		if (n == 0 || n > NAME_MAX_BYTES || (n == 1 && p[at] == '.') ||
		    (n == 2 && p[at] == '.' && p[at + 1] == '.') || memchr(p + at, 0, n))
			return false;
		at += n + 1;
	}
	return true;
}

static bool type_is_good(const struct batch_op *op)
{
	uint32_t type = op->mode & S_IFMT;
	if (op->mode & ~(uint32_t)(S_IFMT | 07777))
		return false;
	if (op->kind != BATCH_MAKE)
		return type == 0;
	bool target = op->other_len > 0 && op->other_len <= REC_TARGET_MAX &&
		      !memchr(op->other, 0, op->other_len);
	return type == S_IFLNK ? target
			       : attr_type_ok(op->mode) && type != S_IFREG && op->other_len == 0;
}

static bool is_good(const struct batch_op *op)
{
	bool other = op->kind == BATCH_MOVE || op->kind == BATCH_LINK;
	if (!path_is_good(op->path, op->path_len) || !type_is_good(op))
		return false;
	if (other ? !path_is_good(op->other, op->other_len)
		  : op->kind != BATCH_MAKE && op->other_len > 0)
		return false;
	if ((op->file != 0) != (op->kind == BATCH_PUT) || op->file > INO_MAX)
		return false;
	if (op->flags & (BATCH_CONTENT | BATCH_GIVEN) && op->kind != BATCH_PUT)
		return false;
	return op->xattrs_len == 0 || op->kind == BATCH_MAKE || op->flags & BATCH_GIVEN;
}

static bool xattrs_are_good(const struct batch_op *op)
{
	struct cur c = cur_init(op->xattrs, op->xattrs_len);
	const char *name;
	const void *value;
	size_t n, len;
	int r;
	while ((r = batch_xattr(&c, &name, &n, &value, &len)) > 0)
		;
	return r == 0;
}

int batch_decode(struct cur *c, struct batch_op *out)
{
	struct batch_op op = { 0 };
	if (cur_left(c) == 0)
		return 0;
	uint8_t kind = cur_u8(c);
	op.kind = kind < BATCH_KINDS ? (enum batch_kind)kind : BATCH_CHECK;
	op.flags = cur_u16(c);
	op.mode = cur_u32(c);
	op.uid = cur_u32(c);
	op.gid = cur_u32(c);
	op.rdev = cur_u32(c);
	op.atime = take_time(c);
	op.mtime = take_time(c);
	op.file = cur_u64(c);
	op.path_len = cur_u16(c);
	op.path = take_bytes(c, op.path_len, BATCH_PATH_MAX);
	op.other_len = cur_u16(c);
	op.other = take_bytes(c, op.other_len, BATCH_PATH_MAX);
	op.xattrs_len = cur_u32(c);
	op.xattrs = take_bytes(c, op.xattrs_len, BATCH_XATTRS_MAX);
	op.nmatch = cur_u8(c);
	op.nunless = cur_u8(c);
	op.match = cur_take(c, op.nmatch * (size_t)VERSION_BYTES);
	op.unless = cur_take(c, op.nunless * (size_t)VERSION_BYTES);
	if (c->bad || kind >= BATCH_KINDS || op.flags & ~(unsigned)BATCH_FLAGS ||
	    op.nmatch > BATCH_VERSIONS_MAX || op.nunless > BATCH_VERSIONS_MAX || !is_good(&op) ||
	    !xattrs_are_good(&op))
		return -EBADMSG;
	*out = op;
	return 1;
}

struct version_id batch_version(const uint8_t *list, size_t i)
{
	struct cur c = cur_init(list + i * VERSION_BYTES, VERSION_BYTES);
	struct version_id v = { .ino = cur_u64(&c) };
	v.gen = cur_u16(&c);
	v.ctime_ns = (int64_t)cur_u64(&c);
	return v;
}

int batch_xattr(struct cur *c, const char **name, size_t *name_len, const void **value, size_t *len)
{
	if (cur_left(c) == 0)
		return 0;
	size_t n = cur_u8(c), m = cur_u32(c);
	const uint8_t *s = cur_take(c, n), *v = cur_take(c, m);
	if (c->bad || n == 0 || m > REC_XATTR_VALUE_MAX || memchr(s, 0, n))
		return -EBADMSG;
	*name = (const char *)s;
	*name_len = n;
	*value = v;
	*len = m;
	return 1;
}

struct batch_piece batch_piece_at(const struct batch_content *content, size_t i)
{
	struct cur c = cur_init(content->pieces + i * PIECE_BYTES, PIECE_BYTES);
	struct batch_piece p = { .off = cur_u64(&c) };
	p.len = cur_u64(&c);
	p.at = cur_u64(&c);
	return p;
}

int batch_decode_content(struct cur *c, struct batch_content *out)
{
	struct batch_content content = { 0 };
	if (cur_left(c) == 0)
		return 0;
	content.size = cur_u64(c);
	content.n = cur_u32(c);
	content.pieces = cur_take(c, content.n * (size_t)PIECE_BYTES);
	if (c->bad || content.size > INT64_MAX)
		return -EBADMSG;
	for (size_t i = 0; i < content.n; i++) {
		struct batch_piece p = batch_piece_at(&content, i);
		if (p.len == 0 || p.off > content.size || p.len > content.size - p.off ||
		    p.at > INT64_MAX - p.len)
			return -EBADMSG;
	}
	*out = content;
	return 1;
}
