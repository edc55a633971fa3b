#include "fs/work/record.h"

#include <assert.h>
#include <sys/stat.h>

/* What an inode record holds besides number, mode and ctime: its mask. A record is the
 * whole state, so what is left out has the value that the comment says. */
enum {
	HAS_OWNER = 1 << 0,   /* else uid and gid are 0 */
	HAS_NLINK = 1 << 1,   /* else 1 */
	HAS_RDEV = 1 << 2,    /* else 0 */
	HAS_GEN = 1 << 3,     /* else 0 */
	HAS_FLAGS = 1 << 4,   /* else 0 */
	HAS_SIZE = 1 << 5,    /* else 0 */
	HAS_BLOCKS = 1 << 6,  /* else 0 */
	HAS_BASE = 1 << 7,    /* else 0 */
	HAS_MTIME = 1 << 8,   /* else that of ctime */
	HAS_ATIME = 1 << 9,   /* else that of mtime */
	HAS_BTIME = 1 << 10,  /* else that of ctime */
	HAS_PARENT = 1 << 11, /* else parent and parent_cookie are 0 */
	HAS_OWN = 1 << 12,    /* else own_tag and own_bytes are 0 */
	HAS_ALL = (1 << 13) - 1,
};

enum { SRC_HERE = 0, SRC_OTHER = 1 }; /* in which layer a DATA extent's bytes lie */

/* Where a file may end at most; the block that holds its last byte ends there too. */
static const uint64_t FILE_END = UINT64_C(1) << 63;
static const uint64_t INO_END = UINT64_C(1) << REC_INO_BITS;

/* ---- numbers ---- */

/* LEB128: seven bits a byte, the low ones first. */
static void put_var(struct buf *b, uint64_t v)
{
	uint8_t *p = buf_room(b, 10);
	if (!p)
		return;
	size_t n = 0;
	while (v >= 0x80) {
		p[n++] = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	p[n++] = (uint8_t)v;
	b->len += n;
}

static uint64_t get_var(struct cur *c)
{
	uint64_t v = 0;
	for (unsigned shift = 0; shift < 64; shift += 7) {
		uint8_t x = cur_u8(c);
		if (shift == 63 && x > 1)
			break;
		v |= (uint64_t)(x & 0x7f) << shift;
		if (!(x & 0x80))
			return v;
	}
	cur_fail(c);
	return 0;
}

/* Signed numbers: 0, -1, 1, -2, 2 … become 0, 1, 2, 3, 4 … */
static void put_signed(struct buf *b, int64_t v)
{
	put_var(b, (uint64_t)v << 1 ^ (v < 0 ? UINT64_MAX : 0));
}

static int64_t get_signed(struct cur *c)
{
	uint64_t v = get_var(c);
	return (int64_t)(v >> 1 ^ (v & 1 ? UINT64_MAX : 0));
}

static uint32_t get_var32(struct cur *c)
{
	uint64_t v = get_var(c);
	if (v > UINT32_MAX)
		cur_fail(c);
	return (uint32_t)v;
}

static uint16_t get_var16(struct cur *c)
{
	uint64_t v = get_var(c);
	if (v > UINT16_MAX)
		cur_fail(c);
	return (uint16_t)v;
}

static uint64_t get_ino(struct cur *c)
{
	uint64_t v = get_var(c);
	if (v == 0 || v >= INO_END)
		cur_fail(c);
	return v;
}

static void put_time(struct buf *b, const struct timespec *t)
{
	put_signed(b, t->tv_sec);
	buf_u32(b, (uint32_t)t->tv_nsec);
}

static struct timespec get_time(struct cur *c)
{
	struct timespec t = { .tv_sec = get_signed(c) };
	uint32_t nsec = cur_u32(c);
	if (nsec >= 1000000000)
		cur_fail(c);
	t.tv_nsec = nsec;
	return t;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* ---- encoding ---- */

static void begin(struct buf *b, enum record_type type, uint64_t ino)
{
	assert(ino != 0 && ino < INO_END);
	buf_u8(b, (uint8_t)type);
	put_var(b, ino);
}

static unsigned attr_mask(const struct attr *a, uint64_t base_size)
{
	unsigned m = 0;
	m |= a->uid || a->gid ? HAS_OWNER : 0;
	m |= a->nlink != 1 ? HAS_NLINK : 0;
	m |= a->rdev ? HAS_RDEV : 0;
	m |= a->gen ? HAS_GEN : 0;
	m |= a->flags ? HAS_FLAGS : 0;
	m |= a->size ? HAS_SIZE : 0;
	m |= a->blocks ? HAS_BLOCKS : 0;
	m |= base_size ? HAS_BASE : 0;
	m |= same_time(&a->mtime, &a->ctime) ? 0 : HAS_MTIME;
	m |= same_time(&a->atime, &a->mtime) ? 0 : HAS_ATIME;
	m |= same_time(&a->btime, &a->ctime) ? 0 : HAS_BTIME;
	m |= a->parent || a->parent_cookie ? HAS_PARENT : 0;
	m |= a->own_tag || a->own_bytes ? HAS_OWN : 0;
	return m;
}

void record_inode(struct buf *b, const struct attr *a, uint64_t base_size)
{
	unsigned m = attr_mask(a, base_size);
	begin(b, REC_INODE, a->ino);
	buf_u16(b, (uint16_t)m);
	put_var(b, a->mode);
	if (m & HAS_OWNER) {
		put_var(b, a->uid);
		put_var(b, a->gid);
	}
	if (m & HAS_NLINK)
		put_var(b, a->nlink);
	if (m & HAS_RDEV)
		put_var(b, a->rdev);
	if (m & HAS_GEN)
		put_var(b, a->gen);
	if (m & HAS_FLAGS)
		put_var(b, a->flags);
	if (m & HAS_SIZE)
		put_var(b, a->size);
	if (m & HAS_BLOCKS)
		put_var(b, a->blocks);
	if (m & HAS_BASE)
		put_var(b, base_size);
	put_time(b, &a->ctime);
	if (m & HAS_MTIME)
		put_time(b, &a->mtime);
	if (m & HAS_ATIME)
		put_time(b, &a->atime);
	if (m & HAS_BTIME)
		put_time(b, &a->btime);
	if (m & HAS_PARENT) {
		put_var(b, a->parent);
		buf_u64(b, a->parent_cookie);
	}
	if (m & HAS_OWN) {
		buf_u64(b, a->own_tag);
		put_var(b, a->own_bytes);
	}
}

void record_dead(struct buf *b, uint64_t ino, bool forget)
{
	begin(b, REC_DEAD, ino);
	buf_u8(b, forget);
}

void record_dirent(struct buf *b, uint64_t dir, uint64_t cookie, const char *name, size_t len,
		   uint64_t child, uint8_t type)
{
	assert(len > 0 && len <= NAME_MAX_BYTES && child != 0 && child < INO_END);
	begin(b, REC_DIRENT, dir);
	buf_u64(b, cookie);
	put_var(b, child);
	buf_u8(b, type);
	buf_u8(b, (uint8_t)len);
	buf_add(b, name, len);
}

void record_dirent_del(struct buf *b, uint64_t dir, uint64_t cookie, bool whiteout)
{
	begin(b, REC_DIRENT_DEL, dir);
	buf_u64(b, cookie);
	buf_u8(b, whiteout);
}

void record_target(struct buf *b, uint64_t ino, const char *target, size_t len)
{
	assert(len > 0 && len <= REC_TARGET_MAX);
	begin(b, REC_TARGET, ino);
	put_var(b, len);
	buf_add(b, target, len);
}

void record_xattr(struct buf *b, uint64_t ino, const char *name, size_t name_len, const void *value,
		  size_t len)
{
	assert(name_len > 0 && name_len <= 255 && len <= REC_XATTR_VALUE_MAX);
	begin(b, REC_XATTR, ino);
	buf_u8(b, (uint8_t)name_len);
	put_var(b, len);
	buf_add(b, name, name_len);
	buf_add(b, value, len);
}

void record_xattr_del(struct buf *b, uint64_t ino, const char *name, size_t name_len, bool hide)
{
	assert(name_len > 0 && name_len <= 255);
	begin(b, REC_XATTR_DEL, ino);
	buf_u8(b, hide);
	buf_u8(b, (uint8_t)name_len);
	buf_add(b, name, name_len);
}

void record_extent(struct buf *b, uint64_t ino, const struct extent *e, const struct layer *own)
{
	assert(e->len > 0 && e->off <= FILE_END && e->len <= FILE_END - e->off);
	begin(b, REC_EXTENT, ino);
	buf_u8(b, (uint8_t)e->kind);
	put_var(b, e->off);
	put_var(b, e->len);
	switch (e->kind) {
	case EXTENT_ZERO:
		break;
	case EXTENT_DATA:
		assert((e->off | e->len | e->src) % LAYER_BLOCK == 0);
		if (e->layer == own) {
			buf_u8(b, SRC_HERE);
		} else {
			buf_u8(b, SRC_OTHER);
			buf_add(b, layer_id(e->layer)->b, LAYER_ID_BYTES);
		}
		put_var(b, e->file);
		put_var(b, e->src);
		break;
	case EXTENT_OBJECT:
		buf_add(b, e->object.b, sizeof(e->object.b));
		put_var(b, e->src);
		break;
	case EXTENT_IMAGE:
		buf_add(b, e->image.b, sizeof(e->image.b));
		put_var(b, e->image_ino);
		put_var(b, e->src);
		break;
	}
}

void record_extent_drop(struct buf *b, uint64_t ino, uint64_t from, uint64_t to)
{
	assert(from < to && from % LAYER_BLOCK == 0 && (to == UINT64_MAX || to % LAYER_BLOCK == 0));
	begin(b, REC_EXTENT_DROP, ino);
	put_var(b, from);
	put_var(b, to == UINT64_MAX ? 0 : to);
}

void record_damaged(struct buf *b, uint64_t ino)
{
	begin(b, REC_DAMAGED, ino);
}

void record_usage(struct buf *b, int64_t bytes, int64_t inodes)
{
	buf_u8(b, REC_USAGE);
	put_signed(b, bytes);
	put_signed(b, inodes);
}

void record_files(struct buf *b, int64_t files)
{
	buf_u8(b, REC_FILES);
	put_signed(b, files);
}

/* ---- decoding ---- */

static void get_inode(struct cur *c, struct record *r)
{
	struct attr *a = &r->attr;
	unsigned m = cur_u16(c);
	*a = (struct attr){ .ino = r->ino, .nlink = 1 };
	a->mode = get_var32(c);
	if (!attr_type_ok(a->mode) || m & ~(unsigned)HAS_ALL)
		cur_fail(c);
	if (m & HAS_OWNER) {
		a->uid = get_var32(c);
		a->gid = get_var32(c);
	}
	if (m & HAS_NLINK)
		a->nlink = get_var32(c);
	if (m & HAS_RDEV)
		a->rdev = get_var32(c);
	if (m & HAS_GEN)
		a->gen = get_var16(c);
	if (m & HAS_FLAGS)
		a->flags = get_var16(c);
	if (m & HAS_SIZE)
		a->size = get_var(c);
	if (m & HAS_BLOCKS)
		a->blocks = get_var(c);
	r->base_size = m & HAS_BASE ? get_var(c) : 0;
	if (a->size > INT64_MAX || r->base_size > INT64_MAX)
		cur_fail(c);
	a->ctime = get_time(c);
	a->mtime = m & HAS_MTIME ? get_time(c) : a->ctime;
	a->atime = m & HAS_ATIME ? get_time(c) : a->mtime;
	a->btime = m & HAS_BTIME ? get_time(c) : a->ctime;
	if (m & HAS_PARENT) {
		a->parent = get_var(c);
		a->parent_cookie = cur_u64(c);
		if (a->parent >= INO_END)
			cur_fail(c);
	}
	if (m & HAS_OWN) {
		a->own_tag = cur_u64(c);
		a->own_bytes = get_var(c);
	}
}

static void get_name(struct cur *c, struct record *r)
{
	r->name_len = cur_u8(c);
	if (r->name_len == 0)
		cur_fail(c);
}

static void get_dirent(struct cur *c, struct record *r)
{
	r->cookie = cur_u64(c);
	r->child = get_ino(c);
	r->dtype = cur_u8(c);
	get_name(c, r);
	r->name = (const char *)cur_take(c, r->name_len);
}

static void get_xattr(struct cur *c, struct record *r)
{
	get_name(c, r);
	r->value_len = get_var(c);
	if (r->value_len > REC_XATTR_VALUE_MAX)
		cur_fail(c);
	r->name = (const char *)cur_take(c, r->name_len);
	r->value = cur_take(c, r->value_len);
}

static void get_target(struct cur *c, struct record *r)
{
	r->value_len = get_var(c);
	if (r->value_len == 0 || r->value_len > REC_TARGET_MAX)
		cur_fail(c);
	r->value = cur_take(c, r->value_len);
}

static void get_digest(struct cur *c, struct digest *d)
{
	const uint8_t *p = cur_take(c, sizeof(d->b));
	if (p)
		memcpy(d->b, p, sizeof(d->b));
}

static void get_data_extent(struct cur *c, struct record *r)
{
	struct extent *e = &r->extent;
	uint8_t where = cur_u8(c);
	r->other = where == SRC_OTHER;
	if (where > SRC_OTHER)
		cur_fail(c);
	if (r->other) {
		const uint8_t *id = cur_take(c, LAYER_ID_BYTES);
		if (id)
			memcpy(r->layer_id.b, id, LAYER_ID_BYTES);
	}
	e->file = get_var(c);
	e->src = get_var(c);
	if (e->file >= INO_END || (e->off | e->len | e->src) % LAYER_BLOCK)
		cur_fail(c);
}

static void get_extent(struct cur *c, struct record *r)
{
	struct extent *e = &r->extent;
	*e = (struct extent){ .kind = EXTENT_ZERO };
	uint8_t kind = cur_u8(c);
	uint64_t off = get_var(c), len = get_var(c);
	r->other = false;
	if (kind > EXTENT_IMAGE || off > FILE_END || len == 0 || len > FILE_END - off)
		cur_fail(c);
	if (c->bad)
		return;
	e->kind = (enum extent_kind)kind;
	e->off = off;
	e->len = len;
	if (kind == EXTENT_DATA) {
		get_data_extent(c, r);
	} else if (kind == EXTENT_OBJECT) {
		get_digest(c, &e->object);
		e->src = get_var(c);
	} else if (kind == EXTENT_IMAGE) {
		get_digest(c, &e->image);
		e->image_ino = get_ino(c);
		e->src = get_var(c);
	}
	if (e->src > FILE_END || e->len > FILE_END - e->src)
		cur_fail(c);
}

static void get_drop(struct cur *c, struct record *r)
{
	uint64_t from = get_var(c), to = get_var(c);
	if (from > FILE_END || (to != 0 && to <= from))
		cur_fail(c);
	r->from = from;
	r->to = to ? to : UINT64_MAX;
}

static bool get_bool(struct cur *c)
{
	uint8_t v = cur_u8(c);
	if (v > 1)
		cur_fail(c);
	return v;
}

int record_next(struct cur *c, struct record *r)
{
	if (c->bad)
		return -EBADMSG;
	if (cur_left(c) == 0)
		return 0;
	uint8_t type = cur_u8(c);
	r->type = (enum record_type)type;
	if (type != REC_USAGE && type != REC_FILES)
		r->ino = get_ino(c);
	switch (type) {
	case REC_INODE:
		get_inode(c, r);
		break;
	case REC_DEAD:
		r->flag = get_bool(c);
		break;
	case REC_DIRENT:
		get_dirent(c, r);
		break;
	case REC_DIRENT_DEL:
		r->cookie = cur_u64(c);
		r->flag = get_bool(c);
		break;
	case REC_TARGET:
		get_target(c, r);
		break;
	case REC_XATTR:
		get_xattr(c, r);
		break;
	case REC_XATTR_DEL:
		r->flag = get_bool(c);
		get_name(c, r);
		r->name = (const char *)cur_take(c, r->name_len);
		break;
	case REC_EXTENT:
		get_extent(c, r);
		break;
	case REC_EXTENT_DROP:
		get_drop(c, r);
		break;
	case REC_DAMAGED:
		break;
	case REC_USAGE:
		r->bytes = get_signed(c);
		r->inodes = get_signed(c);
		break;
	case REC_FILES:
		r->files = get_signed(c);
		break;
	default:
		cur_fail(c);
	}
	return c->bad ? -EBADMSG : 1;
}
