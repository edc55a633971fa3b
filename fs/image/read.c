/* Questions to an image. Records are decoded from the map each time; whatever they say is
 * checked before it is followed, so any bytes give an answer or -EIO. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include "fs/image/map.h"

/* ---- records ---- */

static const uint8_t *record(struct image *im, uint64_t section, uint64_t index, uint64_t bytes)
{
	return image_bytes(im, section + index * bytes, bytes);
}

int image_rec_string(struct image *im, uint64_t at, uint64_t len, const uint8_t **out)
{
	if (at > im->counts.string_bytes || len > im->counts.string_bytes - at)
		return -EIO;
	const uint8_t *p = len ? image_bytes(im, im->layout.strings + at, len)
			       : (const uint8_t *)"";
	if (!p)
		return -EIO;
	*out = p;
	return 0;
}

/* Its places are in bounds, for the type that it is. */
static bool inode_ok(const struct image *im, const struct image_inode_rec *i)
{
	const struct image_counts *c = &im->counts;
	const struct attr *a = &i->attr;
	uint64_t limit;
	switch (a->mode & S_IFMT) {
	case S_IFREG:
		limit = c->pieces;
		break;
	case S_IFDIR:
		limit = c->dirents;
		break;
	case S_IFLNK:
		limit = c->string_bytes;
		if (i->count == 0 || i->count > IMAGE_TARGET_MAX)
			return false;
		break;
	case S_IFCHR:
	case S_IFBLK:
	case S_IFIFO:
	case S_IFSOCK:
		limit = 0;
		break;
	default:
		return false;
	}
	return i->body <= limit && i->count <= limit - i->body && i->xattr <= c->xattrs &&
	       i->xattrs <= c->xattrs - i->xattr && a->ino >= 1 && a->ino <= IMAGE_INO_MAX &&
	       a->size <= INT64_MAX && !(a->mode & ~(uint32_t)(S_IFMT | 07777));
}

int image_rec_inode(struct image *im, uint64_t index, struct image_inode_rec *out)
{
	const uint8_t *p = record(im, im->layout.inodes, index, IMAGE_INODE_BYTES);
	if (!p)
		return -EIO;
	struct image_inode_rec i = {
		.attr = {
			.ino = le_get64(p + INO_INO),
			.mode = le_get32(p + INO_MODE),
			.uid = le_get32(p + INO_UID),
			.gid = le_get32(p + INO_GID),
			.nlink = le_get32(p + INO_NLINK),
			.rdev = le_get32(p + INO_RDEV),
			.gen = le_get16(p + INO_GEN),
			.flags = le_get16(p + INO_FLAGS),
			.size = le_get64(p + INO_SIZE),
			.blocks = le_get64(p + INO_BLOCKS),
			.parent = le_get64(p + INO_PARENT),
			.parent_cookie = le_get64(p + INO_PARENT_COOKIE),
			.own_tag = le_get64(p + INO_OWN_TAG),
			.own_bytes = le_get64(p + INO_OWN_BYTES),
		},
		.body = le_get64(p + INO_BODY),
		.count = le_get32(p + INO_COUNT),
		.xattrs = le_get32(p + INO_XATTRS),
		.xattr = le_get64(p + INO_XATTR),
	};
	struct timespec *times[] = { &i.attr.atime, &i.attr.mtime, &i.attr.ctime, &i.attr.btime };
	for (int t = 0; t < 4; t++) {
		uint32_t nanos = le_get32(p + INO_NANOS + 4 * t);
		if (nanos >= 1000000000)
			return -EIO;
		times[t]->tv_sec = (time_t)le_get64(p + INO_SECONDS + 8 * t);
		times[t]->tv_nsec = (long)nanos;
	}
	if (!inode_ok(im, &i))
		return -EIO;
	*out = i;
	return 0;
}

int image_rec_dirent(struct image *im, uint64_t index, struct dirent_ref *out)
{
	const uint8_t *p = record(im, im->layout.dirents, index, IMAGE_DIRENT_BYTES), *name;
	if (!p)
		return -EIO;
	uint64_t word = le_get64(p + DIR_INO);
	struct dirent_ref d = {
		.cookie = le_get64(p + DIR_COOKIE),
		.ino = word & IMAGE_INO_MAX,
		.type = (uint8_t)(word >> DIR_TYPE_SHIFT),
		.name_len = (uint8_t)(word >> DIR_LEN_SHIFT),
	};
	if (d.ino == 0 || d.name_len == 0 || d.cookie < NAME_COOKIE_MIN ||
	    d.cookie > IMAGE_COOKIE_MAX ||
	    image_rec_string(im, le_get64(p + DIR_NAME), d.name_len, &name) < 0)
		return -EIO;
	d.name = (const char *)name;
	*out = d;
	return 0;
}

int image_rec_piece(struct image *im, uint64_t index, struct piece *out)
{
	const uint8_t *p = record(im, im->layout.pieces, index, IMAGE_PIECE_BYTES);
	if (!p)
		return -EIO;
	struct piece piece = {
		.off = le_get64(p + PIECE_OFF),
		.len = le_get32(p + PIECE_LEN),
		.obj_off = le_get32(p + PIECE_OBJ_OFF),
	};
	memcpy(piece.object.b, p + PIECE_OBJECT, sizeof(piece.object.b));
	if (piece.len == 0 || piece.off > (uint64_t)INT64_MAX - piece.len ||
	    piece.obj_off > UINT32_MAX - piece.len)
		return -EIO;
	*out = piece;
	return 0;
}

int image_rec_xattr(struct image *im, uint64_t index, const char **name, const void **value,
		    size_t *len)
{
	const uint8_t *p = record(im, im->layout.xattrs, index, IMAGE_XATTR_BYTES), *n, *v;
	if (!p)
		return -EIO;
	uint32_t value_len = le_get32(p + XATTR_VALUE_LEN);
	uint8_t name_len = p[XATTR_NAME_LEN];
	if (name_len == 0 || value_len > IMAGE_XATTR_VALUE_MAX ||
	    image_rec_string(im, le_get64(p + XATTR_NAME), name_len + 1u, &n) < 0 ||
	    image_rec_string(im, le_get64(p + XATTR_VALUE), value_len, &v) < 0 ||
	    memchr(n, '\0', name_len + 1u) != n + name_len)
		return -EIO;
	*name = (const char *)n;
	*value = v;
	*len = value_len;
	return 0;
}

/* ---- inodes ---- */

static int run_get(struct image *im, uint64_t i, uint64_t *ino, uint64_t *index)
{
	const uint8_t *p = record(im, im->layout.runs, i, IMAGE_RUN_BYTES);
	if (!p)
		return -EIO;
	*ino = le_get64(p + RUN_INO);
	*index = le_get64(p + RUN_INDEX);
	return 0;
}

/* The index where the number `ino` is, or where the next larger one is. One step when numbers are
 * dense, else a binary search over the runs of dense numbers. */
static int index_of(struct image *im, uint64_t ino, uint64_t *index)
{
	uint64_t lo = 0, hi = im->counts.runs; /* lo: runs known to begin at or below `ino` */
	uint64_t run_ino, run_index, next = im->counts.inodes, first = 0, at = 0;
	while (lo < hi) {
		uint64_t mid = lo + (hi - lo) / 2;
		int r = run_get(im, mid, &run_ino, &run_index);
		if (r < 0)
			return r;
		if (run_ino <= ino) {
			lo = mid + 1;
			first = run_ino;
			at = run_index;
		} else {
			hi = mid;
			next = run_index;
		}
	}
	if (lo == 0) { /* before the first number of all */
		*index = 0;
		return 0;
	}
	if (next > im->counts.inodes || at >= next)
		return -EIO;
	*index = ino - first < next - at ? at + (ino - first) : next;
	return 0;
}

int image_index_ceil(struct image *im, uint64_t ino, uint64_t *index)
{
	uint64_t i;
	int r = index_of(im, ino, &i);
	if (r < 0)
		return r;
	if (i >= im->counts.inodes)
		return -ENOENT;
	*index = i;
	return 0;
}

static int inode_ceil(struct image *im, uint64_t ino, struct image_inode_rec *out)
{
	uint64_t index = 0;
	int r = image_index_ceil(im, ino, &index);
	if (r == 0)
		r = image_rec_inode(im, index, out);
	if (r == 0 && out->attr.ino < ino)
		r = -EIO;
	return r;
}

/* The record of that very number. */
static int inode_get(struct image *im, uint64_t ino, struct image_inode_rec *out)
{
	int r = inode_ceil(im, ino, out);
	return r == 0 && out->attr.ino != ino ? -ENOENT : r;
}

int image_inode(struct image *im, uint64_t ino, struct attr *out)
{
	struct image_inode_rec i;
	int r = IMAGE_GUARDED(im, inode_get(im, ino, &i));
	if (r == 0)
		*out = i.attr;
	return r;
}

int image_inode_ceil(struct image *im, uint64_t ino, struct attr *out)
{
	struct image_inode_rec i;
	int r = IMAGE_GUARDED(im, inode_ceil(im, ino, &i));
	if (r == 0)
		*out = i.attr;
	return r;
}

/* The record, when it has that type. */
static int inode_typed(struct image *im, uint64_t ino, uint32_t type, struct image_inode_rec *out)
{
	int r = inode_get(im, ino, out);
	return r == 0 && (out->attr.mode & S_IFMT) != type ? -ENOENT : r;
}

/* ---- names ---- */

static int cookie_get(struct image *im, uint64_t index, uint64_t *cookie)
{
	const uint8_t *p = record(im, im->layout.dirents, index, IMAGE_DIRENT_BYTES);
	if (!p)
		return -EIO;
	*cookie = le_get64(p + DIR_COOKIE);
	return 0;
}

enum { INTERPOLATIONS = 12, LINEAR = 4 };

/* The index of the first entry in [lo, hi) whose cookie is >= `cookie`, or hi. Cookies are
 * hashes and lie evenly, so their value says where they are; after a few steps that
 * didn't end it, halving does. */
static int cookie_ceil(struct image *im, uint64_t lo, uint64_t hi, uint64_t cookie, uint64_t *index)
{
	uint64_t below = 0, above = IMAGE_COOKIE_MAX; /* bounds of the cookies in [lo, hi) */
	for (unsigned step = 0; lo < hi; step++) {
		uint64_t n = hi - lo, mid = lo + n / 2, have;
		if (n <= LINEAR) {
			mid = lo;
		} else if (step < INTERPOLATIONS && cookie > below && cookie < above) {
			double part = (double)(cookie - below) / (double)(above - below);
			mid = lo + (uint64_t)(part * (double)n);
			if (mid >= hi)
				mid = hi - 1;
		}
		int r = cookie_get(im, mid, &have);
		if (r < 0)
			return r;
		if (have < cookie) {
			lo = mid + 1;
			below = have;
		} else {
			hi = mid;
			above = have;
		}
	}
	*index = lo;
	return 0;
}

static int dirent_ceil(struct image *im, uint64_t dir, uint64_t cookie, struct dirent_ref *out)
{
	struct image_inode_rec i;
	uint64_t at;
	int r = inode_typed(im, dir, S_IFDIR, &i);
	if (r == 0)
		r = cookie_ceil(im, i.body, i.body + i.count, cookie, &at);
	if (r < 0)
		return r;
	if (at == i.body + i.count)
		return -ENOENT;
	r = image_rec_dirent(im, at, out);
	/* An entry out of order would make the reader go in circles. */
	if (r == 0 && out->cookie < cookie)
		r = -EIO;
	return r;
}

int image_dirent_ceil(struct image *im, uint64_t dir, uint64_t cookie, struct dirent_ref *out)
{
	struct dirent_ref d;
	int r = IMAGE_GUARDED(im, dirent_ceil(im, dir, cookie, &d));
	if (r == 0)
		*out = d;
	return r;
}

static int lookup(struct image *im, uint64_t dir, const char *name, size_t len,
		  struct dirent_ref *out)
{
	const uint64_t hash = name_hash(name, len, im->info.seed);
	struct image_inode_rec i;
	uint64_t at;
	int r = inode_typed(im, dir, S_IFDIR, &i);
	if (r == 0)
		r = cookie_ceil(im, i.body, i.body + i.count, hash, &at);
	for (; r == 0 && at < i.body + i.count; at++) {
		r = image_rec_dirent(im, at, out);
		if (r < 0 || out->cookie - hash >= NAME_PROBE)
			break;
		if (out->name_len == len && memcmp(out->name, name, len) == 0)
			return 0;
	}
	return r < 0 ? r : -ENOENT;
}

int image_lookup(struct image *im, uint64_t dir, const char *name, size_t len,
		 struct dirent_ref *out)
{
	struct dirent_ref d;
	int r = IMAGE_GUARDED(im, lookup(im, dir, name, len, &d));
	if (r == 0)
		*out = d;
	return r;
}

/* ---- targets, xattrs, pieces ---- */

static int target_get(struct image *im, uint64_t ino, const uint8_t **target, size_t *len)
{
	struct image_inode_rec i;
	int r = inode_typed(im, ino, S_IFLNK, &i);
	if (r == 0)
		r = image_rec_string(im, i.body, i.count, target);
	if (r == 0 && memchr(*target, '\0', i.count))
		r = -EIO;
	if (r == 0)
		*len = i.count;
	return r;
}

int image_target(struct image *im, uint64_t ino, const char **target, size_t *len)
{
	const uint8_t *t = NULL;
	size_t n = 0;
	int r = IMAGE_GUARDED(im, target_get(im, ino, &t, &n));
	if (r == 0) {
		*target = (const char *)t;
		*len = n;
	}
	return r;
}

struct xattr_ref {
	const char *name;
	const void *value;
	size_t len;
};

static int xattr_at(struct image *im, uint64_t ino, uint32_t n, struct xattr_ref *out)
{
	struct image_inode_rec i;
	int r = inode_get(im, ino, &i);
	if (r < 0)
		return r;
	if (n >= i.xattrs)
		return -ENOENT;
	return image_rec_xattr(im, i.xattr + n, &out->name, &out->value, &out->len);
}

static int xattr_get(struct image *im, uint64_t ino, const char *name, struct xattr_ref *out)
{
	struct image_inode_rec i;
	int r = inode_get(im, ino, &i);
	if (r < 0)
		return r;
	uint32_t lo = 0, hi = i.xattrs;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		r = image_rec_xattr(im, i.xattr + mid, &out->name, &out->value, &out->len);
		if (r < 0)
			return r;
		int c = strcmp(name, out->name);
		if (c == 0)
			return 0;
		if (c < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return -ENOENT;
}

int image_xattr(struct image *im, uint64_t ino, const char *name, const void **value, size_t *len)
{
	struct xattr_ref x;
	int r = IMAGE_GUARDED(im, xattr_get(im, ino, name, &x));
	if (r == 0) {
		*value = x.value;
		*len = x.len;
	}
	return r;
}

int image_xattr_at(struct image *im, uint64_t ino, uint32_t i, const char **name,
		   const void **value, size_t *len)
{
	struct xattr_ref x;
	int r = IMAGE_GUARDED(im, xattr_at(im, ino, i, &x));
	if (r == 0) {
		*name = x.name;
		*value = x.value;
		*len = x.len;
	}
	return r;
}

static int piece_ceil(struct image *im, uint64_t ino, uint64_t off, struct piece *out)
{
	struct image_inode_rec i;
	int r = inode_typed(im, ino, S_IFREG, &i);
	if (r < 0)
		return r;
	uint64_t lo = i.body, end = i.body + i.count, hi = end;
	struct piece p;
	while (lo < hi) { /* the first that ends behind `off` */
		uint64_t mid = lo + (hi - lo) / 2;
		r = image_rec_piece(im, mid, &p);
		if (r < 0)
			return r;
		if (p.off + p.len <= off)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == end)
		return -ENOENT;
	r = image_rec_piece(im, lo, &p);
	if (r < 0)
		return r;
	if (p.off + p.len <= off || p.off + p.len > i.attr.size)
		return -EIO;
	*out = p;
	return 0;
}

int image_piece_ceil(struct image *im, uint64_t ino, uint64_t off, struct piece *out)
{
	struct piece p;
	int r = IMAGE_GUARDED(im, piece_ceil(im, ino, off, &p));
	if (r == 0)
		*out = p;
	return r;
}

int image_objects(struct image *im, int (*fn)(void *ctx, const struct digest *d), void *ctx)
{
	struct digest last = { 0 };
	for (uint64_t i = 0; i < im->counts.pieces; i++) {
		struct piece p;
		int r = IMAGE_GUARDED(im, image_rec_piece(im, i, &p));
		if (r < 0)
			return r;
		if (i > 0 && digest_equal(&p.object, &last))
			continue;
		last = p.object;
		r = fn(ctx, &p.object);
		if (r != 0)
			return r;
	}
	return 0;
}
