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
	GAINS_BYTES_MAX = INT32_MAX,
	SPARSE_BYTES_MAX = 4 * SCOPE_BYTES_MAX + 64,
};

struct found {
	uint64_t pack, idx, gains; /* inodes; gains 0: it has none */
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

/* The bytes from `off` to `end`, appended. */
static int read_range(struct known *k, uint64_t ino, uint64_t off, uint64_t end, struct buf *out)
{
	struct piece p;
	while (off < end) {
		const struct blob *b;
		int r = image_piece_ceil(k->im, ino, off, &p);
		if (r < 0 || p.off > off) /* no hole is in these files */
			return -ESTALE;
		r = store_get(k->opt->store, &p.object, &b, NULL);
		if (r < 0)
			return r;
		uint64_t skip = off - p.off, n = p.len - skip;
		n = n < end - off ? n : end - off;
		if (p.obj_off > b->len || p.len > b->len - p.obj_off)
			r = -ESTALE;
		else
			buf_add(out, b->data + p.obj_off + skip, (size_t)n);
		blob_put(b);
		if (r < 0)
			return r;
		off += n;
	}
	return buf_error(out);
}

static int read_content(struct known *k, uint64_t ino, uint64_t max, struct buf *out)
{
	struct attr a;
	int r = image_inode(k->im, ino, &a);
	if (r < 0)
		return r;
	return a.size > max ? -ESTALE : read_range(k, ino, 0, a.size, out);
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

/* 0 too where it has no notes: then *ino is 0. */
static int find_gains(struct known *k, const uint8_t name[OID_BYTES], uint64_t *ino)
{
	char hex[OID_HEX + 1], file[GAINS_NAME_MAX];
	const char *const path[] = { ".git", "bough", file, NULL };
	hex_encode(hex, name, OID_BYTES);
	(void)snprintf(file, sizeof(file), GAINS_NAME, hex);
	int r = find(k->im, path, ino);
	if (r == -ENOENT)
		*ino = 0;
	return r == -ENOENT ? 0 : r;
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
		if (r == 0)
			r = find_gains(k, f.name, &f.gains);
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

/* ---- their objects ---- */

/* The numbers of an index's objects in the mirror. Both are in order of ids: where most of one of
 * the mirror's packs is asked for, it is gone through once. -ESTALE: there is none. */
static int number_all(const struct idx_view *v, const struct src *s, uint32_t *out)
{
	const struct src_pack *p = s->npacks && s->packs[0].n / 8 < v->n ? &s->packs[0] : NULL;
	uint32_t at = 0;
	for (uint32_t i = 0; i < v->n; i++) {
		struct oid oid;
		int c = -1;
		memcpy(oid.b, v->oids + (size_t)i * OID_BYTES, OID_BYTES);
		while (p && at < p->n &&
		       (c = memcmp(p->oids + (size_t)at * OID_BYTES, oid.b, OID_BYTES)) < 0)
			at++;
		out[i] = c == 0 ? p->first + at : src_find(s, &oid);
		if (out[i] == OBJ_NONE)
			return -ESTALE;
	}
	return 0;
}

/* Reads the index of a pack; `v` shows what is in `idx`. */
static int read_idx(struct known *k, const struct found *f, struct buf *idx, struct idx_view *v)
{
	int r = read_content(k, f->idx, IDX_BYTES_MAX, idx);
	if (r < 0)
		return r;
	bool good = idx_decode(v, idx->data, idx->len) == 0 &&
		    memcmp(v->pack_sha, f->name, OID_BYTES) == 0;
	return good ? 0 : -ESTALE;
}

/* Appends the numbers of a pack's objects, in order of ids. */
static int add_objects(const struct idx_view *v, const struct src *s, uint32_t **objs, size_t *n)
{
	uint32_t *more = reallocarray(*objs, *n + v->n + 1, sizeof(*more));
	if (!more)
		return -ENOMEM;
	*objs = more;
	int r = number_all(v, s, more + *n);
	*n += r < 0 ? 0 : v->n;
	return r;
}

/* ---- taking one over ---- */

static int take(struct pack_out *out, struct known *k, const struct found *f, const struct src *s,
		uint32_t **objs, size_t *nobjs)
{
	size_t before = *nobjs;
	auto_buf idx = { 0 };
	struct idx_view v;
	int r = read_idx(k, f, &idx, &v);
	if (r >= 0)
		r = add_objects(&v, s, objs, nobjs);
	if (r >= 0)
		r = copy_pieces(k->im, f->pack, &out->pack, &out->npack, &out->pack_bytes);
	if (r >= 0)
		r = copy_pieces(k->im, f->idx, &out->idx, &out->nidx, &out->idx_bytes);
	if (r >= 0 && f->gains)
		r = copy_pieces(k->im, f->gains, &out->gains, &out->ngains, &out->gains_bytes);
	if (r < 0)
		return r;
	out->objects = *nobjs - before;
	memcpy(out->name, f->name, OID_BYTES);
	return 0;
}

/* The packs are taken: what is noted from now on goes on from their notes, if they have any. */
static void number_taken(struct gains *g, const struct pack_set *packs, const uint32_t *objs,
			 size_t n)
{
	for (size_t i = 0; i < packs->npacks && g->on; i++)
		if (packs->packs[i].gains_bytes == 0)
			gains_off(g);
	for (size_t i = 0; i < n && g->on; i++)
		g->number[objs[i]] = (uint32_t)i + 1;
	g->numbered = (uint32_t)n;
}

static int take_all(struct pack_set *out, uint8_t *mark, uint8_t bit, struct gains *g,
		    struct known *k, const struct src *s, const struct checkout_spec *spec)
{
	struct pack_set got = { 0 };
	auto_free uint32_t *objs = NULL;
	size_t nobjs = 0;
	got.packs = calloc(k->n, sizeof(*got.packs));
	int r = got.packs ? 0 : -ENOMEM;
	while (r == 0 && got.npacks < k->n) {
		struct pack_out *p = &got.packs[got.npacks];
		p->promisor = spec->nscopes > 0;
		r = take(p, k, &k->v[got.npacks], s, &objs, &nobjs);
		got.npacks++;
	}
	if (r < 0) {
		pack_set_done(&got);
		return r;
	}
	for (size_t i = 0; i < nobjs; i++)
		mark[objs[i]] |= bit;
	number_taken(g, &got, objs, nobjs);
	out->packs = got.packs; /* nothing is in it before */
	out->npacks = got.npacks;
	return 0;
}

/* Opens the image and lists its packs. */
static int open_known(struct known *k, const struct checkout_spec *spec,
		      const struct checkout_known *known)
{
	int r = image_open(&k->im, k->opt->io, k->opt->images, &known->image, NULL);
	if (r == 0)
		r = same_kind(k, spec);
	return r == 0 ? list_packs(k) : r;
}

int known_packs(struct pack_set *out, uint8_t *mark, uint8_t bit, struct gains *g,
		const struct src *s, const struct checkout_options *opt,
		const struct checkout_spec *spec, const struct checkout_known *known,
		struct err *err)
{
	struct known k = { .opt = opt };
	if (!opt->store || out->npacks)
		return err_set(err, -ESTALE, "no store to look into");
	int r = open_known(&k, spec, known);
	if (r == 0)
		r = take_all(out, mark, bit, g, &k, s, spec);
	image_unref(k.im);
	free(k.v);
	if (r == -ENOMEM)
		return err_set(err, r, "out of memory");
	/* Whatever else is wrong with that image: this one is made without it. */
	return r < 0 ? err_set(err, -ESTALE, "that image has no packs to lend") : 0;
}

/* ---- its notes ---- */

/* 1 and where among its objects that is; 0: it isn't in that pack. Only a few pieces are read. */
static int look_up(struct known *k, const struct found *f, const struct oid *oid, uint32_t *at,
		   uint32_t *count)
{
	enum { FANOUT = 8 };
	auto_buf fan = { 0 }, ids = { 0 };
	int r = read_range(k, f->idx, FANOUT, GIT_IDX_OIDS, &fan);
	if (r < 0)
		return r;
	uint32_t lo = oid->b[0] ? be_get32(fan.data + (oid->b[0] - 1) * 4) : 0;
	uint32_t hi = be_get32(fan.data + oid->b[0] * 4);
	*count = be_get32(fan.data + 255 * 4);
	if (lo > hi || hi > *count)
		return -ESTALE;
	r = read_range(k, f->idx, GIT_IDX_OIDS + (uint64_t)lo * OID_BYTES,
		       GIT_IDX_OIDS + (uint64_t)hi * OID_BYTES, &ids);
	for (uint32_t i = 0; r == 0 && i < hi - lo; i++) {
		if (memcmp(ids.data + (size_t)i * OID_BYTES, oid->b, OID_BYTES) != 0)
			continue;
		*at = lo + i;
		return 1;
	}
	return r;
}

/* 1: the commit is in one of its packs, and all have notes. */
static int covers(struct known *k, const struct oid *commit, uint32_t *tip)
{
	uint32_t at = 0, count = 0, before = 0;
	bool found = false;
	for (size_t i = 0; i < k->n; i++) {
		int r = k->v[i].gains ? look_up(k, &k->v[i], commit, &at, &count) : 0;
		if (r < 0 || !k->v[i].gains)
			return r;
		if (r == 1)
			*tip = before + at;
		found = found || r == 1;
		before += count;
	}
	return found;
}

/* Adds a pack and its objects. */
static int lend(struct cover *c, struct known *k, const struct found *f, const struct src *s)
{
	auto_buf idx = { 0 };
	struct idx_view v;
	struct lent *l = &c->packs[c->npacks++];
	l->pack = (struct src_pack){ .fd = -1, .first = (uint32_t)c->n };
	int r = read_idx(k, f, &idx, &v);
	if (r == 0)
		r = add_objects(&v, s, &c->src, &c->n);
	if (r == 0)
		r = copy_pieces(k->im, f->pack, &l->pieces, &l->npieces, &l->pack.size);
	if (r < 0)
		return r;
	l->pack.idx = steal_ptr(&idx.data);
	return src_pack_tables(&l->pack, &v);
}

static int read_cover(struct cover *c, struct known *k, const struct src *s)
{
	c->packs = calloc(k->n, sizeof(*c->packs));
	if (!c->packs)
		return -ENOMEM;
	for (size_t i = 0; i < k->n; i++) {
		auto_buf part = { 0 };
		int r = lend(c, k, &k->v[i], s);
		if (r == 0)
			r = read_content(k, k->v[i].gains, GAINS_BYTES_MAX, &part);
		if (r == 0)
			r = cover_add(c, part.data, part.len);
		if (r < 0)
			return r;
	}
	return cover_index(c);
}

int known_cover(struct cover *out, const struct oid *commit, const struct src *s,
		const struct checkout_options *opt, const struct checkout_spec *spec,
		const struct checkout_known *known, struct err *err)
{
	struct known k = { .opt = opt };
	struct cover c = { .scoped = spec->nscopes > 0 };
	if (!opt->store)
		return 0;
	int r = open_known(&k, spec, known);
	if (r == 0)
		r = covers(&k, commit, &c.tip);
	bool found = r == 1;
	if (found)
		r = read_cover(&c, &k, s);
	image_unref(k.im);
	free(k.v);
	if (found && r == 0)
		*out = c;
	else
		cover_done(&c);
	return r == -ENOMEM ? err_set(err, r, "out of memory") : found && r == 0;
}
