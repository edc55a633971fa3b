/* Packs that another image has already, so that a descendant of its commit costs its difference.
 *
 * They are taken from the image itself, whose name proves them. Its packs in order of their
 * inodes are those of an older commit first: each beginning of that list is closed, that is, with
 * a commit it has all that the commit's history holds in that scope. So is what is taken. */
#include "gitops/pack_impl.h"

#include <stdio.h>

enum {
	/* Git looks into each pack in turn, so a long list is not continued: of that many the
	 * first, by far the largest, is taken alone. */
	KNOWN_PACKS_MAX = 12,
	IDX_BYTES_MAX = INT32_MAX,
	SPARSE_BYTES_MAX = 4 * SCOPE_BYTES_MAX + 64,
};

struct found {
	uint64_t pack, idx; /* inodes */
	uint8_t name[OID_BYTES];
};

struct known {
	struct image *im;
	const struct checkout_options *opt;
	struct found *v;
	size_t n, cap;
};

static int find(struct image *im, const char *const *path, uint64_t *ino)
{
	*ino = 1;
	for (; *path; path++) {
		struct dirent_ref d;
		int r = image_lookup(im, *ino, *path, strlen(*path), &d);
		if (r < 0)
			return r;
		*ino = d.ino;
	}
	return 0;
}

/* ---- contents ---- */

static int read_content(struct known *k, uint64_t ino, uint64_t max, struct buf *out)
{
	struct attr a;
	struct piece p;
	int r = image_inode(k->im, ino, &a);
	if (r < 0)
		return r;
	if (a.size > max)
		return -ESTALE;
	while (out->len < a.size) {
		const struct blob *b;
		r = image_piece_ceil(k->im, ino, out->len, &p);
		if (r < 0 || p.off != out->len) /* no hole is in these files */
			return -ESTALE;
		r = store_get(k->opt->store, &p.object, &b, NULL);
		if (r < 0)
			return r;
		if (p.obj_off > b->len || p.len > b->len - p.obj_off)
			r = -ESTALE;
		else
			buf_add(out, b->data + p.obj_off, p.len);
		blob_put(b);
		if (r < 0)
			return r;
	}
	return buf_error(out);
}

static int copy_pieces(struct image *im, uint64_t ino, struct piece **v, size_t *n, uint64_t *size)
{
	struct attr a;
	struct piece p;
	size_t cap = 0;
	int r = image_inode(im, ino, &a);
	for (uint64_t at = 0; r >= 0 && at < a.size; at = p.off + p.len) {
		r = image_piece_ceil(im, ino, at, &p);
		if (r < 0 || p.off != at)
			return -ESTALE;
		if (array_grow(v, *n, &cap) < 0)
			return -ENOMEM;
		(*v)[(*n)++] = p;
	}
	*size = r < 0 ? 0 : a.size;
	return r;
}

/* ---- which packs ---- */

/* History is whole, and the scope is the same. */
static int same_kind(struct known *k, const struct checkout_spec *spec)
{
	static const char *const shallow[] = { ".git", "shallow", NULL };
	static const char *const sparse[] = { ".git", "info", "sparse-checkout", NULL };
	auto_buf there = { 0 }, here = { 0 };
	uint64_t ino;
	int r = find(k->im, shallow, &ino);
	if (r != -ENOENT)
		return r < 0 ? r : -ESTALE;
	r = find(k->im, sparse, &ino);
	if (r == -ENOENT)
		return spec->nscopes ? -ESTALE : 0;
	if (r >= 0 && spec->nscopes == 0)
		return -ESTALE;
	if (r >= 0)
		r = read_content(k, ino, SPARSE_BYTES_MAX, &there);
	dotgit_sparse(&here, spec);
	if (r < 0 || buf_error(&here) < 0)
		return r < 0 ? r : -ENOMEM;
	return there.len == here.len && memcmp(there.data, here.data, here.len) == 0 ? 0 : -ESTALE;
}

/* "pack-<40 digits>.<ext>": 0 and the name. */
static int parse_name(const struct dirent_ref *d, const char *ext, uint8_t name[OID_BYTES])
{
	char hex[OID_HEX + 1];
	struct oid oid;
	size_t at = strlen("pack-") + OID_HEX;
	if (d->name_len != at + strlen(ext) || memcmp(d->name, "pack-", 5) != 0 ||
	    memcmp(d->name + at, ext, strlen(ext)) != 0)
		return -EINVAL;
	memcpy(hex, d->name + 5, OID_HEX);
	hex[OID_HEX] = 0;
	if (oid_parse(&oid, hex) < 0)
		return -EINVAL;
	memcpy(name, oid.b, OID_BYTES);
	return 0;
}

static int by_ino(const void *a, const void *b)
{
	const struct found *x = a, *y = b;
	return (x->pack > y->pack) - (x->pack < y->pack);
}

/* Annotated tags have a pack of their own, which isn't taken over: a tag may be gone by now. */
static int holds_tags(struct known *k, uint64_t ino)
{
	struct piece p;
	const struct blob *b;
	int r = image_piece_ceil(k->im, ino, 0, &p);
	if (r < 0 || p.off != 0)
		return -ESTALE;
	r = store_get(k->opt->store, &p.object, &b, NULL);
	if (r < 0)
		return r;
	r = -ESTALE;
	if (p.len > GIT_PACK_HEAD && p.obj_off < b->len && b->len - p.obj_off > GIT_PACK_HEAD)
		r = (b->data[p.obj_off + GIT_PACK_HEAD] >> 4 & 7) == GIT_TAG;
	blob_put(b);
	return r;
}

static int list_packs(struct known *k)
{
	static const char *const folder[] = { ".git", "objects", "pack", NULL };
	uint64_t dir;
	struct dirent_ref d;
	int r = find(k->im, folder, &dir);
	for (uint64_t at = 0; r >= 0; at = d.cookie + 1) {
		struct found f = { 0 };
		char idx[5 + OID_HEX + 4 + 1];
		struct dirent_ref i;
		r = image_dirent_ceil(k->im, dir, at, &d);
		if (r == -ENOENT)
			break;
		if (r < 0 || parse_name(&d, ".pack", f.name) < 0)
			continue;
		(void)snprintf(idx, sizeof(idx), "%.*s.idx", 5 + OID_HEX, d.name);
		r = image_lookup(k->im, dir, idx, strlen(idx), &i);
		if (r < 0)
			return -ESTALE;
		f.pack = d.ino;
		f.idx = i.ino;
		r = holds_tags(k, f.pack);
		if (r != 0)
			continue;
		if (array_grow(&k->v, k->n, &k->cap) < 0)
			return -ENOMEM;
		k->v[k->n++] = f;
	}
	if (r < 0 && r != -ENOENT)
		return r;
	if (k->n > 1)
		qsort(k->v, k->n, sizeof(*k->v), by_ino);
	if (k->n > KNOWN_PACKS_MAX)
		k->n = 1;
	return k->n ? 0 : -ESTALE;
}

/* ---- taking one over ---- */

static int take(struct pack_out *out, struct known *k, const struct found *f, const struct src *s,
		uint32_t **objs, size_t *nobjs, size_t *cap)
{
	auto_buf idx = { 0 };
	struct idx_view v;
	int r = read_content(k, f->idx, IDX_BYTES_MAX, &idx);
	if (r >= 0 && (idx_decode(&v, idx.data, idx.len) < 0 ||
		       memcmp(v.pack_sha, f->name, OID_BYTES) != 0))
		r = -ESTALE;
	for (uint32_t i = 0; r >= 0 && i < v.n; i++) {
		struct oid oid;
		memcpy(oid.b, v.oids + (size_t)i * OID_BYTES, OID_BYTES);
		uint32_t obj = src_find(s, &oid);
		if (obj == OBJ_NONE)
			return -ESTALE;
		if (array_grow(objs, *nobjs, cap) < 0)
			return -ENOMEM;
		(*objs)[(*nobjs)++] = obj;
	}
	if (r >= 0)
		r = copy_pieces(k->im, f->pack, &out->pack, &out->npack, &out->pack_bytes);
	if (r >= 0)
		r = copy_pieces(k->im, f->idx, &out->idx, &out->nidx, &out->idx_bytes);
	if (r < 0)
		return r;
	out->objects = v.n;
	memcpy(out->name, f->name, OID_BYTES);
	return 0;
}

static int take_all(struct pack_set *out, uint8_t *mark, uint8_t bit, struct known *k,
		    const struct src *s, const struct checkout_spec *spec)
{
	struct pack_set got = { 0 };
	auto_free uint32_t *objs = NULL;
	size_t nobjs = 0, cap = 0;
	got.packs = calloc(k->n, sizeof(*got.packs));
	int r = got.packs ? 0 : -ENOMEM;
	while (r == 0 && got.npacks < k->n) {
		struct pack_out *p = &got.packs[got.npacks];
		p->promisor = spec->nscopes > 0;
		r = take(p, k, &k->v[got.npacks], s, &objs, &nobjs, &cap);
		got.npacks++;
	}
	if (r < 0) {
		pack_set_done(&got);
		return r;
	}
	for (size_t i = 0; i < nobjs; i++)
		mark[objs[i]] |= bit;
	out->packs = got.packs; /* nothing is in it before */
	out->npacks = got.npacks;
	return 0;
}

int known_packs(struct pack_set *out, uint8_t *mark, uint8_t bit, const struct src *s,
		const struct checkout_options *opt, const struct checkout_spec *spec,
		const struct checkout_known *known, struct err *err)
{
	struct known k = { .opt = opt };
	if (!opt->store || out->npacks)
		return err_set(err, -ESTALE, "no store to look into");
	int r = image_open(&k.im, opt->io, opt->images, &known->image, NULL);
	if (r == 0)
		r = same_kind(&k, spec);
	if (r == 0)
		r = list_packs(&k);
	if (r == 0)
		r = take_all(out, mark, bit, &k, s, spec);
	image_unref(k.im);
	free(k.v);
	if (r == -ENOMEM)
		return err_set(err, r, "out of memory");
	/* Whatever else is wrong with that image: this one is made without it. */
	return r < 0 ? err_set(err, -ESTALE, "that image has no packs to lend") : 0;
}
