#include "fs/work/quota.h"

#include <errno.h>
#include <sys/stat.h>

#include "fs/work/inos.h"

int quota_check(const struct quota *q, int64_t bytes, int64_t inodes)
{
	if (bytes > 0 && q->limits.bytes) {
		int64_t limit = q->limits.bytes > INT64_MAX ? INT64_MAX : (int64_t)q->limits.bytes;
		int64_t used = q->bytes + q->reserved;
		if (used > limit || bytes > limit - used)
			return -EDQUOT;
	}
	if (inodes > 0 && q->limits.inodes) {
		int64_t limit = q->limits.inodes > INT64_MAX ? INT64_MAX
							     : (int64_t)q->limits.inodes;
		int64_t used = q->inodes + q->reserved_inodes;
		if (used > limit || inodes > limit - used)
			return -EDQUOT;
	}
	return 0;
}

int64_t quota_cap(const struct quota *q, const struct attr *a, uint64_t size, int64_t blocks,
		  int64_t rest, int64_t growth)
{
	int64_t most = rest - quota_bytes_of(q, a);
	if (S_ISREG(a->mode)) {
		/* Filling a hole that isn't of whole blocks may have counted up to 511 bytes of
		 * 4096 too few. */
		uint64_t data = blocks < 0 ? 0 : (uint64_t)blocks * 512;
		data += data / 8 + LAYER_BLOCK;
		most += (int64_t)(size < data ? size : data);
	}
	return growth < most ? growth : most;
}

static int add_xattr(void *ctx, const char *name, size_t name_len, const void *value, size_t len)
{
	int64_t *sum = ctx;
	*sum += (int64_t)(name_len + len);
	return 0;
}

int quota_all_xattrs(const struct view *v, const struct attr *a, int64_t *out)
{
	int64_t sum = 0;
	int r = a->flags & ATTR_HAS_XATTR ? view_each_xattr(v, a->ino, add_xattr, &sum) : 0;
	if (r == 0)
		*out = sum;
	return r;
}

int64_t quota_clip(uint64_t off, uint64_t len, uint64_t size)
{
	uint64_t end = off + len, block_end = (size + LAYER_BLOCK - 1) / LAYER_BLOCK * LAYER_BLOCK;
	uint64_t n = 0;
	if (off < size)
		n += (end < size ? end : size) - off;
	if (end > block_end)
		n += end - (off > block_end ? off : block_end);
	return (int64_t)n;
}

int quota_content(const struct view *v, uint32_t own, uint64_t ino, uint64_t from, uint64_t to,
		  uint64_t size, int64_t *out)
{
	/* Only the own layers: what they leave open is a hole here. */
	struct view mine = { .layers = v->layers, .nlayers = own };
	int64_t sum = 0;
	for (uint64_t off = from; off < to;) {
		struct view_run run;
		int r = view_map_peek(&mine, 0, ino, off, to - off, &run);
		if (r == -ENOENT)
			break;
		if (r < 0)
			return r;
		if (run.e.kind != EXTENT_ZERO)
			sum += quota_clip(run.e.off, run.e.len, size);
		else if (run.index == VIEW_NOWHERE && run.e.len == to - off)
			break;
		off += run.e.len;
	}
	*out = sum;
	return 0;
}

/* Whether the record isn't hidden by a layer above index `i`. */
static bool shows(const struct view *v, uint32_t i, uint64_t ino, const struct layer_xattr *x)
{
	for (uint32_t k = 0; k < i; k++) {
		const struct layer_inode *li = layer_inode(v->layers[k], ino);
		if (li && layer_xattr(li, x->name, x->name_len))
			return false;
	}
	return !x->removed;
}

int quota_xattrs(const struct view *v, uint32_t own, uint64_t ino, int64_t *out)
{
	int64_t sum = 0;
	for (uint32_t i = 0; i < own; i++) {
		const struct layer_inode *li = layer_inode(v->layers[i], ino);
		if (!li)
			continue;
		if (li->dead)
			break;
		for (const struct layer_xattr *x = li->xattrs; x; x = x->next)
			if (shows(v, i, ino, x))
				sum += (int64_t)x->name_len + x->value_len;
	}
	*out = sum;
	return 0;
}

/* Whether what is known of it comes from one of the own layers. */
static bool in_own(const struct view *v, uint32_t own, uint64_t ino)
{
	for (uint32_t i = 0; i < own; i++)
		if (layer_inode(v->layers[i], ino))
			return true;
	return false;
}

int quota_sum(const struct view *v, uint32_t own, const struct quota *q, int64_t *bytes,
	      int64_t *inodes)
{
	auto_inos s = { 0 };
	int64_t nbytes = 0, ninodes = 0;
	int r = v->image ? inos_add_image(&s, v->image) : 0;
	if (r >= 0)
		r = inos_add_layers(&s, v, v->nlayers, false);
	inos_sort(&s);
	for (size_t i = 0; i < s.n && r >= 0; i++) {
		struct attr a;
		r = view_inode(v, s.v[i], &a);
		if (r == -ENOENT) {
			r = 0;
		} else if (r >= 0 && (a.nlink > 0 || in_own(v, own, a.ino))) {
			nbytes += quota_bytes_of(q, &a);
			ninodes += quota_inodes_of(q, &a);
		}
	}
	if (r < 0)
		return r;
	*bytes = nbytes;
	*inodes = ninodes;
	return 0;
}

int quota_count(const struct view *v, uint32_t own, const struct quota *q, int64_t *bytes,
		int64_t *inodes, int (*differs)(void *ctx, const struct attr *a, int64_t want),
		void *ctx)
{
	auto_inos s = { 0 };
	int r = inos_add_layers(&s, v, own, false);
	if (r < 0)
		return r;
	inos_sort(&s);
	int64_t nbytes = 0, ninodes = 0;
	for (size_t i = 0; i < s.n; i++) {
		struct attr a;
		r = view_inode(v, s.v[i], &a);
		if (r == -ENOENT)
			continue;
		if (r < 0)
			return r;
		ninodes += quota_inodes_of(q, &a);
		int64_t content = 0, xattrs = 0;
		if (S_ISREG(a.mode))
			r = quota_content(v, own, a.ino, 0, UINT64_MAX, a.size, &content);
		bool lost = r == -EIO; /* a record of it is damaged: it keeps what it says */
		if (r == 0)
			r = quota_xattrs(v, own, a.ino, &xattrs);
		if (r < 0 && !lost)
			return r;
		int64_t have = quota_bytes_of(q, &a);
		int64_t want = lost ? have : content + xattrs;
		if (differs && want != have) {
			r = differs(ctx, &a, want);
			if (r != 0)
				return r;
		}
		nbytes += want;
	}
	*bytes = nbytes;
	*inodes = ninodes;
	return 0;
}
