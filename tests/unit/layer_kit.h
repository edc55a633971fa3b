/* For tests of layers: a place on disk, a layer's state as text, and a driver that does
 * random operations on a layer and on a model of it that is as simple as can be. */
#ifndef BOUGH_TESTS_UNIT_LAYER_KIT_H
#define BOUGH_TESTS_UNIT_LAYER_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>
#include "fs/base/buf.h"
#include "fs/work/layer.h"

/* ---- a layer as text ---- */

static inline int kit_by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

struct kit_list {
	uint64_t v[4096];
	size_t n;
};

static inline int kit_add_inode(void *ctx, const struct layer_inode *li)
{
	struct kit_list *k = ctx;
	k->v[k->n++] = li->attr.ino;
	return 0;
}

static inline int kit_add_dir(void *ctx, uint64_t dir)
{
	struct kit_list *k = ctx;
	k->v[k->n++] = dir;
	return 0;
}

static inline int kit_by_xattr(const void *a, const void *b)
{
	const struct layer_xattr *x = *(const struct layer_xattr *const *)a;
	const struct layer_xattr *y = *(const struct layer_xattr *const *)b;
	size_t n = x->name_len < y->name_len ? x->name_len : y->name_len;
	int c = memcmp(x->name, y->name, n);
	return c ? c : (int)x->name_len - (int)y->name_len;
}

static inline void kit_dump_extents(const struct layer *l, const struct layer_inode *li,
				    struct buf *out)
{
	const struct extent *e;
	uint64_t off = 0, end = 0;
	while ((e = layer_extent_ceil(li, off))) {
		assert_true(e->len > 0 && e->off >= end);
		off = end = e->off + e->len;
		buf_printf(out, "  extent %llu+%llu kind %d", (unsigned long long)e->off,
			   (unsigned long long)e->len, e->kind);
		if (e->kind == EXTENT_DATA) {
			char hex[2 * LAYER_ID_BYTES + 1];
			hex_encode(hex, layer_id(e->layer)->b, LAYER_ID_BYTES);
			buf_printf(out, " in %s f%llx", e->layer == l ? "this" : hex,
				   (unsigned long long)e->file);
		}
		if (e->kind == EXTENT_OBJECT || e->kind == EXTENT_IMAGE) {
			char hex[DIGEST_HEX + 1];
			digest_hex(hex, &e->object);
			buf_printf(out, " %s", hex);
		}
		if (e->kind == EXTENT_IMAGE)
			buf_printf(out, " ino %llu", (unsigned long long)e->image_ino);
		buf_printf(out, " src %llu\n", (unsigned long long)e->src);
	}
}

static inline void kit_dump_inode(const struct layer *l, const struct layer_inode *li,
				  struct buf *out)
{
	const struct attr *a = &li->attr;
	buf_printf(out,
		   "inode %llu%s%s mode %o uid %u gid %u nlink %u rdev %u gen %u flags %u "
		   "size %llu blocks %llu base %llu\n",
		   (unsigned long long)a->ino, li->dead ? " dead" : "",
		   li->damaged ? " damaged" : "", a->mode, a->uid, a->gid, a->nlink, a->rdev,
		   a->gen, a->flags, (unsigned long long)a->size, (unsigned long long)a->blocks,
		   (unsigned long long)li->base_size);
	buf_printf(out,
		   "  a %lld.%09ld m %lld.%09ld c %lld.%09ld b %lld.%09ld parent %llu@%llx "
		   "own %llx:%llu\n",
		   (long long)a->atime.tv_sec, a->atime.tv_nsec, (long long)a->mtime.tv_sec,
		   a->mtime.tv_nsec, (long long)a->ctime.tv_sec, a->ctime.tv_nsec,
		   (long long)a->btime.tv_sec, a->btime.tv_nsec, (unsigned long long)a->parent,
		   (unsigned long long)a->parent_cookie, (unsigned long long)a->own_tag,
		   (unsigned long long)a->own_bytes);
	if (li->target)
		buf_printf(out, "  target %.*s\n", (int)li->target_len, li->target);
	const struct layer_xattr *list[64];
	size_t n = 0;
	for (const struct layer_xattr *x = li->xattrs; x; x = x->next)
		list[n++] = x;
	if (n)
		qsort(list, n, sizeof(list[0]), kit_by_xattr);
	for (size_t i = 0; i < n; i++)
		buf_printf(out, "  xattr %.*s %s %u %016llx\n", list[i]->name_len, list[i]->name,
			   list[i]->removed ? "removed" : "is", list[i]->value_len,
			   (unsigned long long)hash_xxh3(list[i]->value, list[i]->value_len, 0));
	kit_dump_extents(l, li, out);
}

/* All that a layer's index says, in one order. The caller frees by buf_done. */
static inline void kit_dump(const struct layer *l, struct buf *out)
{
	struct kit_list *k = calloc(1, sizeof(*k));
	int64_t bytes, inodes;
	buf_reset(out);
	(void)layer_each_inode(l, kit_add_inode, k);
	if (k->n)
		qsort(k->v, k->n, sizeof(k->v[0]), kit_by_number);
	for (size_t i = 0; i < k->n; i++)
		kit_dump_inode(l, layer_inode(l, k->v[i]), out);
	k->n = 0;
	(void)layer_each_dir(l, kit_add_dir, k);
	if (k->n)
		qsort(k->v, k->n, sizeof(k->v[0]), kit_by_number);
	for (size_t i = 0; i < k->n; i++) {
		buf_printf(out, "dir %llu\n", (unsigned long long)k->v[i]);
		const struct layer_dirent *d = layer_dirent_ceil(l, k->v[i], 0);
		for (; d; d = layer_dirent_ceil(l, k->v[i], d->cookie + 1))
			buf_printf(out, "  %llx -> %llu type %u %.*s\n",
				   (unsigned long long)d->cookie, (unsigned long long)d->ino,
				   d->type, d->name_len, d->name);
	}
	layer_usage(l, &bytes, &inodes);
	buf_printf(out, "usage %lld %lld\n", (long long)bytes, (long long)inodes);
	assert_int_equal(buf_error(out), 0);
	buf_add(out, "", 1);
	free(k);
}

static inline char *kit_text(const struct layer *l)
{
	struct buf b = { 0 };
	kit_dump(l, &b);
	return (char *)b.data; /* the caller frees */
}

/* ---- the model ---- */

enum {
	KIT_FIRST = 10,
	KIT_INODES = 16,
	KIT_LINKS = 3,     /* the last ones are symlinks */
	KIT_SLOTS = 48,    /* blocks of a file that the tests use: the first 24, and 24 near */
	KIT_FAR = 256 - 8, /* … the border where its own file begins */
	KIT_DIRS = 3,
	KIT_COOKIES = 12,
	KIT_XATTRS = 4,
};

/* Which bytes a block holds: those that were written to that inode and block, as the n-th write. */
struct kit_stamp {
	uint64_t ino, block, version;
};

enum kit_block { BLOCK_BELOW, BLOCK_HOLE, BLOCK_DATA };

struct kit_inode {
	bool there, dead;
	struct attr attr;
	uint64_t base;
	enum kit_block kind[KIT_SLOTS];
	struct kit_stamp stamp[KIT_SLOTS];
	char xattr[KIT_XATTRS][16]; /* "" none, "-" removed, else the value */
	char target[32];
};

struct kit_model {
	struct kit_inode inode[KIT_INODES];
	struct {
		uint64_t ino; /* child; 0 with `there`: a whiteout */
		bool there;
		char name[24];
	} name[KIT_DIRS][KIT_COOKIES];
	int64_t bytes, inodes;
};

struct kit {
	struct layer_options opt;
	struct layer *layer;
	struct kit_model m;
	struct kit_model tried; /* what it would be if the step that failed had not */
	/* Slots that a write which failed had overwritten in place: it is written again. */
	struct kit_inode *redone_in;
	uint64_t redone; /* bit for each */
	uint64_t rng, version;
	uint64_t steps;
	bool later_ok; /* blocks may hold later writes than the model says (after a power cut) */
	int last;      /* what the last step that failed returned */
};

static inline uint64_t kit_random(struct kit *k)
{
	k->rng ^= k->rng << 13;
	k->rng ^= k->rng >> 7;
	k->rng ^= k->rng << 17;
	return k->rng * UINT64_C(0x2545f4914f6cdd1d) >> 16;
}

static inline uint64_t kit_block(unsigned slot)
{
	return slot < 24 ? slot : KIT_FAR + slot - 24;
}

static inline void kit_fill(uint8_t *p, const struct kit_stamp *s)
{
	memset(p, 0, LAYER_BLOCK);
	for (size_t at = 0; at < LAYER_BLOCK; at += 512)
		memcpy(p + at, s, sizeof(*s));
}

/* A txn that holds the inode's new version already. */
static inline void kit_begin(struct kit *k, struct txn *t, struct kit_inode *in)
{
	in->attr.ctime.tv_sec = (int64_t)(kit_random(k) % 100000);
	in->attr.ctime.tv_nsec = (long)(kit_random(k) % 1000000000);
	in->attr.size = in->target[0] ? strlen(in->target) : kit_random(k) % 100000;
	txn_begin(t, k->layer, in->attr.ino);
	t->tag = k->steps + 1;
	txn_inode(t, &in->attr, in->base);
	if (kit_random(k) % 4 == 0) {
		k->m.bytes = (int64_t)(kit_random(k) % 1000) - 500;
		k->m.inodes = (int64_t)(kit_random(k) % 1000);
		txn_usage(t, k->m.bytes, k->m.inodes);
	}
}

static inline int kit_make(struct kit *k, unsigned i)
{
	struct kit_inode *in = &k->m.inode[i];
	bool link = i >= KIT_INODES - KIT_LINKS;
	*in = (struct kit_inode){ .there = true };
	in->attr = (struct attr){ .ino = KIT_FIRST + i,
				  .mode = (link ? S_IFLNK : S_IFREG) | 0644,
				  .nlink = 1,
				  .uid = (uint32_t)(kit_random(k) % 3),
				  .parent = kit_random(k) % 4,
				  .parent_cookie = kit_random(k) % 2 };
	in->base = link ? 0 : kit_random(k) % 2 * 40960;
	if (link)
		(void)snprintf(in->target, sizeof(in->target), "to/%llu",
			       (unsigned long long)(kit_random(k) % 100000));
	struct txn t;
	kit_begin(k, &t, in);
	if (link)
		txn_target(&t, in->attr.ino, in->target, strlen(in->target));
	return txn_commit(&t);
}

static inline int kit_write_slots(struct kit *k, struct kit_inode *in, unsigned from, unsigned n)
{
	static uint8_t data[KIT_SLOTS * LAYER_BLOCK];
	const struct layer_inode *li = layer_inode(k->layer, in->attr.ino);
	uint64_t off = kit_block(from) * LAYER_BLOCK, end = off + (uint64_t)n * LAYER_BLOCK;
	struct extent got[KIT_SLOTS];
	unsigned ngot = 0;
	uint64_t in_place = 0;
	int r = 0;
	for (unsigned i = 0; i < n; i++) {
		in->kind[from + i] = BLOCK_DATA;
		in->stamp[from + i] = (struct kit_stamp){ in->attr.ino, kit_block(from + i),
							  ++k->version };
		kit_fill(data + i * LAYER_BLOCK, &in->stamp[from + i]);
	}
	uint64_t start = off;
	while (off < end && r == 0) {
		const struct extent *e = layer_extent_ceil(li, off);
		struct extent x;
		bool own = e && e->off <= off && layer_owns(k->layer, e, off, LAYER_BLOCK);
		if (own) { /* block by block is enough here */
			x = *e;
			x.src += off - x.off;
			x.off = off;
			x.len = LAYER_BLOCK;
			in_place |= UINT64_C(1) << (from + (off - start) / LAYER_BLOCK);
		} else {
			uint64_t to = off + LAYER_BLOCK;
			while (to < end && !((e = layer_extent_ceil(li, to)) && e->off <= to &&
					     layer_owns(k->layer, e, to, LAYER_BLOCK)))
				to += LAYER_BLOCK;
			r = layer_alloc(k->layer, in->attr.ino, off, to - off, &x);
			if (r < 0)
				break;
			assert_true(x.off == off && x.len > 0 && x.len <= to - off);
			got[ngot++] = x;
		}
		r = layer_pwrite(k->layer, x.file, data + (off - start), x.len, x.src);
		off += x.len;
	}
	if (r == 0) {
		struct txn t;
		kit_begin(k, &t, in);
		for (unsigned i = 0; i < ngot; i++)
			txn_extent(&t, in->attr.ino, &got[i]);
		r = txn_commit(&t);
	}
	for (unsigned i = 0; r < 0 && i < ngot; i++)
		layer_alloc_cancel(k->layer, &got[i]);
	for (unsigned s = from; r < 0 && s < from + n; s++) {
		uint64_t at = kit_block(s) * LAYER_BLOCK;
		const struct extent *e = layer_extent_ceil(li, at);
		if (!(in_place & UINT64_C(1) << s))
			continue;
		if (layer_pwrite(k->layer, e->file, data + (s - from) * LAYER_BLOCK, LAYER_BLOCK,
				 e->src + (at - e->off)) == 0)
			k->redone |= UINT64_C(1) << s;
	}
	k->redone_in = in;
	return r;
}

/* Shares what `src` has in [from, from + n) with `dst` at slot `to`. */
static inline int kit_share(struct kit *k, struct kit_inode *src, unsigned from,
			    struct kit_inode *dst, unsigned to, unsigned n)
{
	const struct layer_inode *li = layer_inode(k->layer, src->attr.ino);
	uint64_t off = kit_block(from) * LAYER_BLOCK, end = off + (uint64_t)n * LAYER_BLOCK;
	uint64_t shift = kit_block(to) * LAYER_BLOCK - off;
	struct txn t;
	struct kit_inode was = *src;
	kit_begin(k, &t, dst);
	const struct extent *e;
	while (off < end && (e = layer_extent_ceil(li, off)) && e->off < end) {
		struct extent x = *e;
		if (x.off < off) {
			x.src += x.kind == EXTENT_DATA ? off - x.off : 0;
			x.len -= off - x.off;
			x.off = off;
		}
		if (x.len > end - x.off)
			x.len = end - x.off;
		off = x.off + x.len;
		x.off += shift;
		txn_extent(&t, dst->attr.ino, &x);
	}
	for (unsigned i = 0; i < n; i++) {
		if (was.kind[from + i] == BLOCK_BELOW)
			continue;
		dst->kind[to + i] = was.kind[from + i];
		dst->stamp[to + i] = was.stamp[from + i];
	}
	return txn_commit(&t);
}

/* Some slots that follow each other on disk, too. */
static inline unsigned kit_slots(struct kit *k, unsigned *n)
{
	unsigned half = (unsigned)(kit_random(k) % 2) * 24, from = (unsigned)(kit_random(k) % 24);
	*n = 1 + (unsigned)(kit_random(k) % (24 - from));
	return half + from;
}

static inline int kit_change_extents(struct kit *k, unsigned i, unsigned what)
{
	struct kit_inode *in = &k->m.inode[i];
	unsigned n, from = kit_slots(k, &n);
	uint64_t off = kit_block(from) * LAYER_BLOCK, len = (uint64_t)n * LAYER_BLOCK;
	struct txn t;
	if (what < 5)
		return kit_write_slots(k, in, from, n);
	if (what < 8) {
		struct kit_inode *src = &k->m.inode[kit_random(k) % (KIT_INODES - KIT_LINKS)];
		unsigned to = (unsigned)(kit_random(k) % 2) * 24 +
			      (unsigned)(kit_random(k) % (24 - n + 1));
		return src->there && !src->dead ? kit_share(k, src, from, in, to, n) : 0;
	}
	kit_begin(k, &t, in);
	if (what == 8) {
		txn_extent_drop(&t, in->attr.ino, off, off + len);
		if (kit_random(k) % 2) { /* truncate */
			txn_extent_drop(&t, in->attr.ino, off, UINT64_MAX);
			n = KIT_SLOTS - from;
		}
		for (unsigned s = from; s < from + n; s++)
			in->kind[s] = BLOCK_BELOW;
	} else {
		struct extent e = { .off = off, .len = len, .kind = EXTENT_ZERO };
		txn_extent(&t, in->attr.ino, &e);
		for (unsigned s = from; s < from + n; s++)
			in->kind[s] = BLOCK_HOLE;
	}
	return txn_commit(&t);
}

static inline int kit_change_xattr(struct kit *k, unsigned i)
{
	struct kit_inode *in = &k->m.inode[i];
	unsigned x = (unsigned)(kit_random(k) % KIT_XATTRS);
	char name[16];
	size_t len = (size_t)snprintf(name, sizeof(name), "user.%u", x);
	struct txn t;
	kit_begin(k, &t, in);
	switch (kit_random(k) % 3) {
	case 0:
		in->xattr[x][0] = '\0';
		txn_xattr_del(&t, in->attr.ino, name, len, false);
		break;
	case 1:
		memcpy(in->xattr[x], "-", 2);
		txn_xattr_del(&t, in->attr.ino, name, len, true);
		break;
	default:
		(void)snprintf(in->xattr[x], sizeof(in->xattr[x]), "v%llu",
			       (unsigned long long)(kit_random(k) % 1000));
		txn_xattr(&t, in->attr.ino, name, len, in->xattr[x], strlen(in->xattr[x]));
	}
	return txn_commit(&t);
}

static inline int kit_change_name(struct kit *k)
{
	unsigned d = (unsigned)(kit_random(k) % KIT_DIRS),
		 c = (unsigned)(kit_random(k) % KIT_COOKIES);
	__typeof__(&k->m.name[0][0]) n = &k->m.name[d][c];
	struct txn t;
	txn_begin(&t, k->layer, 2 + d);
	switch (kit_random(k) % 4) {
	case 0:
		n->there = false;
		txn_dirent_del(&t, 2 + d, c, false);
		break;
	case 1:
		n->there = true;
		n->ino = 0;
		n->name[0] = '\0';
		txn_dirent_del(&t, 2 + d, c, true);
		break;
	default:
		n->there = true;
		n->ino = KIT_FIRST + kit_random(k) % KIT_INODES;
		(void)snprintf(n->name, sizeof(n->name), "name%llu",
			       (unsigned long long)(kit_random(k) % 100000));
		txn_dirent(&t, 2 + d, c, n->name, strlen(n->name), n->ino, 8);
	}
	return txn_commit(&t);
}

static inline int kit_kill(struct kit *k, unsigned i)
{
	struct kit_inode *in = &k->m.inode[i];
	bool forget = kit_random(k) % 2;
	struct attr a = in->attr;
	struct txn t;
	txn_begin(&t, k->layer, KIT_FIRST + i);
	txn_dead(&t, KIT_FIRST + i, forget);
	*in = (struct kit_inode){ .there = !forget, .dead = true, .attr = a };
	return txn_commit(&t);
}

/* One random operation. On failure the model is as it was. */
static inline int kit_step(struct kit *k)
{
	static struct kit_model before;
	unsigned i = (unsigned)(kit_random(k) % KIT_INODES), what = (unsigned)(kit_random(k) % 16);
	struct kit_inode *in = &k->m.inode[i];
	bool link = i >= KIT_INODES - KIT_LINKS;
	before = k->m;
	k->redone = 0;
	k->steps++;
	int r;
	if (what == 15)
		r = kit_kill(k, i);
	else if (what >= 12)
		r = kit_change_name(k);
	else if (!in->there || in->dead)
		r = kit_make(k, i);
	else if (what >= 10 || link)
		r = kit_change_xattr(k, i);
	else
		r = kit_change_extents(k, i, what);
	k->tried = k->m;
	if (r < 0)
		k->m = before;
	for (unsigned s = 0; k->redone && s < KIT_SLOTS; s++)
		if (k->redone & UINT64_C(1) << s)
			k->redone_in->stamp[s] = k->tried.inode[k->redone_in - k->m.inode].stamp[s];
	k->last = r;
	return r;
}

/* ---- comparing ---- */

static inline void kit_check_block(struct kit *k, const struct layer_inode *li, unsigned slot)
{
	const struct kit_inode *in = &k->m.inode[li->attr.ino - KIT_FIRST];
	uint64_t off = kit_block(slot) * LAYER_BLOCK;
	const struct extent *e = layer_extent_ceil(li, off);
	if (e && e->off > off)
		e = NULL;
	enum kit_block kind = !e ? BLOCK_BELOW : e->kind == EXTENT_ZERO ? BLOCK_HOLE : BLOCK_DATA;
	assert_int_equal(kind, in->kind[slot]);
	if (kind != BLOCK_DATA)
		return;
	uint8_t got[LAYER_BLOCK], want[LAYER_BLOCK];
	assert_int_equal(layer_pread(e->layer, e->file, got, sizeof(got), e->src + (off - e->off)),
			 0);
	kit_fill(want, &in->stamp[slot]);
	if (!k->later_ok || memcmp(got, want, sizeof(got)) == 0) {
		assert_memory_equal(got, want, sizeof(got));
		return;
	}
	/* Overwritten in place before the power went: sectors of later writes to that block. */
	for (size_t at = 0; at < sizeof(got); at += 512) {
		struct kit_stamp s;
		if (memcmp(got + at, want + at, 512) == 0)
			continue;
		memcpy(&s, got + at, sizeof(s));
		assert_int_equal(s.ino, li->attr.ino);
		assert_int_equal(s.block, kit_block(slot));
		assert_true(s.version > in->stamp[slot].version);
	}
}

static inline void kit_check_inode(struct kit *k, unsigned i)
{
	const struct kit_inode *in = &k->m.inode[i];
	const struct layer_inode *li = layer_inode(k->layer, KIT_FIRST + i);
	assert_int_equal(li != NULL, in->there);
	if (!li)
		return;
	assert_int_equal(li->dead, in->dead);
	if (li->dead)
		return;
	assert_memory_equal(&li->attr, &in->attr, sizeof(li->attr));
	assert_int_equal(li->base_size, in->base);
	assert_int_equal(li->target_len, strlen(in->target));
	assert_memory_equal(li->target ? li->target : "", in->target, li->target_len);
	for (unsigned x = 0; x < KIT_XATTRS; x++) {
		char name[16];
		size_t len = (size_t)snprintf(name, sizeof(name), "user.%u", x);
		const struct layer_xattr *v = layer_xattr(li, name, len);
		assert_int_equal(v != NULL, in->xattr[x][0] != '\0');
		if (!v)
			continue;
		assert_int_equal(v->removed, in->xattr[x][0] == '-');
		if (!v->removed)
			assert_memory_equal(v->value, in->xattr[x], v->value_len);
	}
	for (unsigned s = 0; s < KIT_SLOTS; s++)
		kit_check_block(k, li, s);
}

static inline void kit_check(struct kit *k)
{
	int64_t bytes, inodes;
	for (unsigned i = 0; i < KIT_INODES; i++)
		kit_check_inode(k, i);
	for (unsigned d = 0; d < KIT_DIRS; d++) {
		bool any = false;
		for (unsigned c = 0; c < KIT_COOKIES; c++) {
			__typeof__(&k->m.name[0][0]) n = &k->m.name[d][c];
			const struct layer_dirent *e = layer_dirent_ceil(k->layer, 2 + d, c);
			bool there = e && e->cookie == c;
			assert_int_equal(there, n->there);
			any |= there;
			if (!there)
				continue;
			assert_int_equal(e->ino, n->ino);
			assert_int_equal(e->name_len, strlen(n->name));
			assert_memory_equal(e->name, n->name, e->name_len);
		}
		assert_int_equal(layer_has_dir(k->layer, 2 + d), any);
	}
	layer_usage(k->layer, &bytes, &inodes);
	assert_int_equal(bytes, k->m.bytes);
	assert_int_equal(inodes, k->m.inodes);
}

#endif
