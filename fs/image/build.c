#include "fs/image/build.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CHUNK_FIRST = 16 * 1024, CHUNK_MAX = 1 << 20 };

struct arena_chunk {
	struct arena_chunk *next; /* older ones */
	size_t bytes;
	_Alignas(max_align_t) char data[];
};

/* Memory that lives as long as the builder, aligned for any struct; NULL: out of memory. */
static void *arena_get(struct arena *a, size_t bytes)
{
	const size_t align = _Alignof(struct build_inode);
	bytes = bytes ? (bytes + align - 1) / align * align : align;
	if (a->left < bytes) {
		size_t want = a->chunks ? a->chunks->bytes * 2 : CHUNK_FIRST;
		if (want > CHUNK_MAX)
			want = CHUNK_MAX;
		if (want < bytes)
			want = bytes;
		struct arena_chunk *c = malloc(sizeof(*c) + want);
		if (!c)
			return NULL;
		c->bytes = want;
		c->next = a->chunks;
		a->chunks = c;
		a->left = want;
	}
	char *p = a->chunks->data + (a->chunks->bytes - a->left);
	a->left -= bytes;
	return p;
}

static void *arena_copy(struct arena *a, const void *data, size_t len)
{
	void *p = arena_get(a, len);
	if (p && len)
		memcpy(p, data, len);
	return p;
}

int image_builder_new(struct image_builder **out, uint64_t seed, struct err *err)
{
	struct image_builder *b = calloc(1, sizeof(*b));
	if (!b)
		return err_set(err, -ENOMEM, "out of memory for an image");
	b->seed = seed;
	*out = b;
	return 0;
}

void image_builder_free(struct image_builder *b)
{
	if (!b)
		return;
	struct u64map_slot *s;
	for (size_t i = 0; (s = u64map_next(&b->inodes, &i));)
		omap_clear(&((struct build_inode *)s->value)->names);
	u64map_done(&b->inodes);
	for (struct arena_chunk *c = b->arena.chunks, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	free(b);
}

static bool ino_ok(uint64_t ino)
{
	return ino >= 1 && ino <= IMAGE_INO_MAX;
}

/* The inode of that number, made (not present yet) where there is none. */
static int inode_get(struct image_builder *b, uint64_t ino, struct build_inode **out)
{
	if (!ino_ok(ino))
		return -EINVAL;
	struct build_inode *bi = u64map_get(&b->inodes, ino);
	if (!bi) {
		bi = arena_get(&b->arena, sizeof(*bi));
		if (!bi)
			return -ENOMEM;
		*bi = (struct build_inode){ .attr.ino = ino };
		int r = u64map_put(&b->inodes, ino, bi);
		if (r < 0)
			return r;
	}
	*out = bi;
	return 0;
}

static bool time_ok(const struct timespec *t)
{
	return t->tv_nsec >= 0 && t->tv_nsec < 1000000000;
}

static bool attr_ok(const struct attr *a)
{
	return attr_type_ok(a->mode) && !(a->mode & ~(uint32_t)(S_IFMT | 07777)) &&
	       a->size <= INT64_MAX && time_ok(&a->atime) && time_ok(&a->mtime) &&
	       time_ok(&a->ctime) && time_ok(&a->btime);
}

int image_add_inode(struct image_builder *b, const struct attr *a)
{
	if (!attr_ok(a))
		return -EINVAL;
	struct build_inode *bi;
	int r = inode_get(b, a->ino, &bi);
	if (r < 0)
		return r;
	if (bi->present)
		return -EEXIST;
	bi->attr = *a;
	bi->present = true;
	return 0;
}

struct attr *image_builder_attr(struct image_builder *b, uint64_t ino)
{
	struct build_inode *bi = u64map_get(&b->inodes, ino);
	return bi && bi->present ? &bi->attr : NULL;
}

static bool name_ok(const char *name, size_t len)
{
	if (len == 0 || len > NAME_MAX_BYTES || memchr(name, '/', len) || memchr(name, '\0', len))
		return false;
	return !(name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')));
}

/* Looks the name up; without it, *free_cookie (NULL allowed) is the first free one of its
 * window, 0 when the window is full. */
static struct build_dirent *find_name(const struct build_inode *dir, uint64_t seed,
				      const char *name, size_t len, uint64_t *free_cookie)
{
	const uint64_t hash = name_hash(name, len, seed);
	uint64_t next = hash; /* no entry was seen in [hash, next) but taken ones */
	struct omap_entry e;
	uint64_t gap = 0;
	for (uint64_t at = hash; omap_ceil(&dir->names, at, &e) && e.key - hash < NAME_PROBE;
	     at = e.key + 1) {
		struct build_dirent *d = e.value.p;
		if (d->name_len == len && memcmp(d->name, name, len) == 0)
			return d;
		if (!gap && e.key != next)
			gap = next;
		next = e.key + 1;
	}
	if (!gap && next - hash < NAME_PROBE)
		gap = next;
	if (free_cookie)
		*free_cookie = gap;
	return NULL;
}

int image_add_dirent(struct image_builder *b, uint64_t dir, const char *name, size_t len,
		     uint64_t child, uint8_t type, uint64_t cookie)
{
	if (!name_ok(name, len) || !ino_ok(child))
		return -EINVAL;
	struct build_inode *bi;
	int r = inode_get(b, dir, &bi);
	if (r < 0)
		return r;
	uint64_t free_cookie;
	if (find_name(bi, b->seed, name, len, &free_cookie))
		return -EEXIST;
	if (cookie == 0) {
		if (free_cookie == 0)
			return -ENOSPC;
		cookie = free_cookie;
	} else if (cookie - name_hash(name, len, b->seed) >= NAME_PROBE ||
		   omap_get(&bi->names, cookie, NULL)) {
		return -EINVAL; /* no look-up would find it there */
	}
	struct build_dirent *d = arena_get(&b->arena, sizeof(*d) + len);
	if (!d)
		return -ENOMEM;
	d->cookie = cookie;
	d->child = child;
	d->type = type;
	d->name_len = (uint8_t)len;
	memcpy(d->name, name, len);
	return omap_put(&bi->names, cookie, (omap_value){ .p = d }, NULL, NULL);
}

int image_builder_lookup(struct image_builder *b, uint64_t dir, const char *name, size_t len,
			 uint64_t *child, uint8_t *type)
{
	const struct build_inode *bi = u64map_get(&b->inodes, dir);
	const struct build_dirent *d = bi ? find_name(bi, b->seed, name, len, NULL) : NULL;
	if (!d)
		return -ENOENT;
	if (child)
		*child = d->child;
	if (type)
		*type = d->type;
	return 0;
}

int image_builder_target(struct image_builder *b, uint64_t ino, const char **target, size_t *len)
{
	const struct build_inode *bi = u64map_get(&b->inodes, ino);
	if (!bi || !bi->target)
		return -ENOENT;
	*target = bi->target;
	*len = bi->target_len;
	return 0;
}

int image_builder_dirent_ceil(struct image_builder *b, uint64_t dir, uint64_t cookie,
			      struct dirent_ref *out)
{
	const struct build_inode *bi = u64map_get(&b->inodes, dir);
	struct omap_entry e;
	if (!bi || !omap_ceil(&bi->names, cookie, &e))
		return -ENOENT;
	const struct build_dirent *d = e.value.p;
	*out = (struct dirent_ref){ .cookie = d->cookie,
				    .ino = d->child,
				    .type = d->type,
				    .name_len = d->name_len,
				    .name = d->name };
	return 0;
}

int image_del_dirent(struct image_builder *b, uint64_t dir, const char *name, size_t len)
{
	struct build_inode *bi = u64map_get(&b->inodes, dir);
	const struct build_dirent *d = bi ? find_name(bi, b->seed, name, len, NULL) : NULL;
	if (!d)
		return -ENOENT;
	(void)omap_del(&bi->names, d->cookie, NULL); /* just found there */
	return 0;
}

int image_add_target(struct image_builder *b, uint64_t ino, const char *target, size_t len)
{
	if (len == 0 || len > IMAGE_TARGET_MAX || memchr(target, '\0', len))
		return -EINVAL;
	struct build_inode *bi;
	int r = inode_get(b, ino, &bi);
	if (r < 0)
		return r;
	const char *copy = arena_copy(&b->arena, target, len);
	if (!copy)
		return -ENOMEM;
	bi->target = copy;
	bi->target_len = (uint32_t)len;
	return 0;
}

int image_add_xattr(struct image_builder *b, uint64_t ino, const char *name, const void *value,
		    size_t len)
{
	size_t name_len = strnlen(name, IMAGE_XATTR_NAME_MAX + 1);
	if (name_len == 0 || name_len > IMAGE_XATTR_NAME_MAX || len > IMAGE_XATTR_VALUE_MAX)
		return -EINVAL;
	struct build_inode *bi;
	int r = inode_get(b, ino, &bi);
	if (r < 0)
		return r;
	if (bi->nxattrs == UINT32_MAX)
		return -ENOSPC;
	struct build_xattr *x = arena_get(&b->arena, sizeof(*x) + name_len + 1);
	const void *copy = x ? arena_copy(&b->arena, value, len) : NULL;
	if (!copy)
		return -ENOMEM;
	*x = (struct build_xattr){ .next = bi->xattrs,
				   .value = copy,
				   .value_len = (uint32_t)len,
				   .seq = bi->nxattrs,
				   .name_len = (uint8_t)name_len };
	memcpy(x->name, name, name_len + 1);
	bi->xattrs = x;
	bi->nxattrs++;
	return 0;
}

int image_add_piece(struct image_builder *b, uint64_t ino, const struct piece *p)
{
	uint64_t end;
	if (p->len == 0 || __builtin_add_overflow(p->off, p->len, &end) || end > INT64_MAX)
		return -EINVAL;
	struct build_inode *bi;
	int r = inode_get(b, ino, &bi);
	if (r < 0)
		return r;
	if (bi->npieces == UINT32_MAX)
		return -EFBIG;
	struct build_piece *bp = arena_get(&b->arena, sizeof(*bp));
	if (!bp)
		return -ENOMEM;
	*bp = (struct build_piece){ .p = *p };
	if (!bi->last_piece) {
		bi->pieces = bp;
	} else {
		if (p->off < bi->last_piece->p.off)
			bi->unsorted = true;
		bi->last_piece->next = bp;
	}
	bi->last_piece = bp;
	bi->npieces++;
	return 0;
}

void image_clear_pieces(struct image_builder *b, uint64_t ino)
{
	struct build_inode *bi = u64map_get(&b->inodes, ino);
	if (bi) {
		bi->pieces = bi->last_piece = NULL;
		bi->npieces = 0;
		bi->unsorted = false;
	}
}
