/* The objects of a mirror as they lie on disk. libgit2 gives no such view: it has no call for an
 * entry's raw bytes, and it hashes and copies each object that it reads. */
#include "gitops/pack_impl.h"

#include <assert.h>
#include <libdeflate.h>

enum {
	CACHE_BYTES = 96 << 20,  /* what git takes for bases of deltas */
	CACHE_ONE_MAX = 8 << 20, /* larger ones aren't kept */
	/* History is read in no order, but what follows each other in it lies close: with 32 MiB of
	 * blocks there is one read for some fifty entries. */
	BLOCK = 16 << 10,
	BLOCKS = 2048, /* a power of two */
};

struct src_block {
	int fd; /* whose piece it is, plus one; 0: none */
	uint32_t len;
	uint64_t off;
	uint8_t *data;
};

/* ---- opening ---- */

int src_open(struct src *s, struct mirror *m, const struct io *io, struct err *err)
{
	*s = (struct src){ .io = io ? io : &io_host, .odb = mirror_odb(m) };
	s->inflate = libdeflate_alloc_decompressor();
	if (!s->inflate)
		return err_no_memory(err);
	int r = src_packs_open(s, mirror_path(m), err);
	if (r < 0)
		src_close(s);
	return r;
}

int src_share(struct src *s, const struct src *of, struct err *err)
{
	*s = (struct src){ .io = of->io, .odb = of->odb, .packs = of->packs, .npacks = of->npacks,
			   .total = of->total, .lent = true };
	s->inflate = libdeflate_alloc_decompressor();
	return s->inflate ? 0 : err_no_memory(err);
}

void src_put(struct src_data *d)
{
	if (d && --d->refs == 0)
		free(d);
}

void src_close(struct src *s)
{
	while (s->newest) {
		struct src_data *d = s->newest;
		s->newest = d->older;
		src_put(d);
	}
	u64map_done(&s->cached);
	for (size_t i = 0; s->blocks && i < BLOCKS; i++)
		free(s->blocks[i].data);
	free(s->blocks);
	if (s->io && !s->lent)
		src_packs_close(s);
	free(s->raw);
	libdeflate_free_decompressor(s->inflate);
	*s = (struct src){ 0 };
}

/* ---- finding ---- */

/* Ids are spread evenly: the place is guessed, and from there looked for in growing steps. */
uint32_t src_find_in(const struct src_pack *p, const uint8_t *oid)
{
	uint32_t lo = p->fanout && oid[0] ? p->fanout[oid[0] - 1] : 0;
	uint32_t hi = p->fanout ? p->fanout[oid[0]] : p->n;
	uint32_t step = 8;
	uint64_t share = p->fanout ? be_get32(oid + 1) : be_get32(oid);
	for (uint32_t mid = lo + (uint32_t)((hi - lo) * share >> 32); lo < hi;) {
		int c = memcmp(oid, p->oids + (size_t)mid * OID_BYTES, OID_BYTES);
		if (c == 0)
			return mid;
		if (c < 0)
			hi = mid;
		else
			lo = mid + 1;
		uint32_t left = hi - lo;
		if (step < left / 2) {
			mid = c < 0 ? hi - step : lo + step;
			step *= 4;
		} else {
			mid = lo + left / 2;
		}
	}
	return OBJ_NONE;
}

uint32_t src_find(const struct src *s, const struct oid *oid)
{
	for (size_t i = 0; i < s->npacks; i++) {
		uint32_t pos = src_find_in(&s->packs[i], oid->b);
		if (pos != OBJ_NONE)
			return s->packs[i].first + pos;
	}
	return OBJ_NONE;
}

uint32_t src_first(const struct src *s, uint32_t obj)
{
	struct oid oid;
	if (s->npacks && obj < s->packs[0].n)
		return obj;
	src_oid(s, obj, &oid);
	return src_find(s, &oid);
}

int src_need(const struct src *s, const struct oid *oid, uint32_t *obj, struct err *err)
{
	char hex[OID_HEX + 1];
	uint32_t found = src_find(s, oid);
	oid_hex(hex, oid);
	if (found == OBJ_NONE)
		return err_set(err, -ENOENT, "the mirror lacks object %s", hex);
	*obj = found;
	return 0;
}

struct src_pack *src_pack_of(const struct src *s, uint32_t obj)
{
	size_t i = 0;
	assert(obj < s->total);
	while (obj - s->packs[i].first >= s->packs[i].n)
		i++;
	return &s->packs[i];
}

void src_oid(const struct src *s, uint32_t obj, struct oid *out)
{
	const struct src_pack *p = src_pack_of(s, obj);
	memcpy(out->b, p->oids + (size_t)(obj - p->first) * OID_BYTES, OID_BYTES);
}

/* ---- entries ---- */

/* Bases lie close, mostly. */
uint32_t src_find_place(const struct src_pack *p, uint32_t i, uint64_t off)
{
	uint32_t lo = 0, hi = i;
	for (uint32_t step = 1; step < hi; step *= 2) {
		if (p->starts[hi - step] <= off) {
			lo = hi - step;
			break;
		}
		hi -= step;
	}
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (p->starts[mid] == off)
			return mid;
		if (off < p->starts[mid])
			hi = mid;
		else
			lo = mid + 1;
	}
	return OBJ_NONE;
}

/* `len` bytes of the pack at `off`, which are inside of it; they are good until the next call. */
static int pack_bytes(struct src *s, const struct src_pack *p, uint64_t off, size_t len,
		      const uint8_t **out, struct err *err)
{
	uint64_t at = off & ~(uint64_t)(BLOCK - 1);
	if (!s->blocks)
		s->blocks = calloc(BLOCKS, sizeof(*s->blocks));
	if (!s->blocks)
		return err_no_memory(err);
	struct src_block *b = &s->blocks[(at / BLOCK + (uint64_t)p->fd * 61) & (BLOCKS - 1)];
	bool here = b->fd == p->fd + 1 && b->off == at;
	if (!here && off + len - at <= BLOCK) {
		if (!b->data)
			b->data = malloc(BLOCK);
		if (!b->data)
			return err_no_memory(err);
		b->fd = 0;
		ssize_t n = io_read_full(s->io, p->fd, b->data, BLOCK, at);
		if (n < 0)
			return err_sys(err, (int)n, "read %s", p->name);
		*b = (struct src_block){ p->fd + 1, (uint32_t)n, at, b->data };
		here = true;
	}
	if (here && off + len - at <= b->len) {
		*out = b->data + (off - at);
		return 0;
	}
	if (s->raw_cap < len) {
		uint8_t *raw = realloc(s->raw, len);
		if (!raw)
			return err_no_memory(err);
		s->raw = raw;
		s->raw_cap = len;
	}
	ssize_t n = io_read_full(s->io, p->fd, s->raw, len, off);
	if (n < 0)
		return err_sys(err, (int)n, "read %s", p->name);
	if ((size_t)n != len)
		return src_bad(err, p, "cut off");
	*out = s->raw;
	return 0;
}

static uint32_t base_of(const struct src_pack *p, uint32_t at, const struct git_entry *g)
{
	uint64_t off = p->starts[at];
	if (g->type == GIT_REF_DELTA) {
		uint32_t pos = src_find_in(p, g->base.b);
		return pos == OBJ_NONE ? OBJ_NONE : p->first + pos;
	}
	uint32_t i = g->back && g->back < off ? src_find_place(p, at, off - g->back) : OBJ_NONE;
	return i == OBJ_NONE ? OBJ_NONE : p->first + p->order[i];
}

int src_entry_decode(const struct src_pack *p, uint32_t i, const uint8_t *head, size_t n,
		     struct src_entry *out, struct err *err)
{
	struct git_entry g;
	struct src_entry e = { .off = p->starts[i], .base = OBJ_NONE };
	e.len = p->starts[i + 1] - e.off;
	e.crc = be_get32(p->crcs + (size_t)p->order[i] * 4);
	if (git_entry_decode(&g, head, n) < 0 || e.len <= g.head)
		return src_bad(err, p, "an object's header");
	e.kind = g.type;
	e.size = g.size;
	e.head = g.head;
	if (g.type == GIT_OFS_DELTA || g.type == GIT_REF_DELTA) {
		e.base = base_of(p, i, &g);
		if (e.base == OBJ_NONE)
			return src_bad(err, p, "a delta without its base");
	}
	*out = e;
	return 0;
}

static int entry_of(struct src *s, const struct src_pack *p, uint32_t obj, struct src_entry *out,
		    struct err *err)
{
	const uint8_t *head;
	uint32_t i = p->place[obj - p->first];
	uint64_t len = p->starts[i + 1] - p->starts[i];
	size_t n = len < GIT_ENTRY_HEAD_MAX ? (size_t)len : GIT_ENTRY_HEAD_MAX;
	int r = pack_bytes(s, p, p->starts[i], n, &head, err);
	return r < 0 ? r : src_entry_decode(p, i, head, n, out, err);
}

/* ---- reading ---- */

static int odb_fail(const struct src *s, uint32_t obj, int r, struct err *err)
{
	char hex[OID_HEX + 1];
	struct oid oid;
	src_oid(s, obj, &oid);
	oid_hex(hex, &oid);
	return git_fail(err, r, "read object %s of the mirror", hex);
}

int src_type(struct src *s, uint32_t obj, enum git_type *type, struct err *err)
{
	const struct src_pack *p = src_pack_of(s, obj);
	if (p->fd < 0) {
		struct oid oid;
		size_t len;
		git_object_t t;
		src_oid(s, obj, &oid);
		git_oid id = oid_to_git(&oid);
		int r = git_odb_read_header(&len, &t, s->odb, &id);
		if (r < 0)
			return odb_fail(s, obj, r, err);
		*type = (enum git_type)t;
		return 0;
	}
	for (unsigned i = 0; i <= GIT_CHAIN_MAX; i++) {
		struct src_entry e;
		int r = entry_of(s, p, obj, &e, err);
		if (r < 0)
			return r;
		if (e.base == OBJ_NONE) {
			*type = (enum git_type)e.kind;
			return 0;
		}
		obj = e.base;
	}
	return src_bad(err, p, "a chain of deltas is too long");
}

static struct src_data *new_data(enum git_type type, size_t len)
{
	struct src_data *d = malloc(sizeof(*d) + len + 1);
	if (!d)
		return NULL;
	d->refs = 1;
	d->type = type;
	d->len = len;
	d->data[len] = 0;
	return d;
}

static size_t cached_size(const struct src_data *d)
{
	return d->len + sizeof(*d);
}

static void unlink_cached(struct src *s, struct src_data *d)
{
	*(d->newer ? &d->newer->older : &s->newest) = d->older;
	*(d->older ? &d->older->newer : &s->oldest) = d->newer;
}

static void link_cached(struct src *s, struct src_data *d)
{
	d->newer = NULL;
	d->older = s->newest;
	*(s->newest ? &s->newest->newer : &s->oldest) = d;
	s->newest = d;
}

static struct src_data *cache_get(struct src *s, uint32_t obj)
{
	struct src_data *d = u64map_get(&s->cached, (uint64_t)obj + 1);
	if (!d)
		return NULL;
	unlink_cached(s, d);
	link_cached(s, d);
	d->refs++;
	return d;
}

static void cache_drop_oldest(struct src *s)
{
	struct src_data *d = s->oldest;
	unlink_cached(s, d);
	(void)u64map_del(&s->cached, (uint64_t)d->obj + 1);
	s->cached_bytes -= cached_size(d);
	src_put(d);
}

/* Where there is no memory for it, it isn't kept. */
static void cache_add(struct src *s, uint32_t obj, struct src_data *d)
{
	if (d->len > CACHE_ONE_MAX || u64map_put(&s->cached, (uint64_t)obj + 1, d) < 0)
		return;
	d->obj = obj;
	d->refs++;
	link_cached(s, d);
	s->cached_bytes += cached_size(d);
	while (s->cached_bytes > CACHE_BYTES && s->oldest != d)
		cache_drop_oldest(s);
}

static size_t bytes_max(enum git_type type)
{
	return type == GIT_BLOB ? OBJECT_BYTES_MAX : OBJECT_BYTES_USUAL;
}

static int too_large(const struct src_pack *p, struct err *err)
{
	return err_set(err, -EFBIG, "an object in %s is too large", p->name);
}

/* What an entry's compressed data holds, its own check verified: of an object of that type, or a
 * delta to one. */
static int inflate_entry(struct src *s, const struct src_pack *p, const struct src_entry *e,
			 enum git_type type, struct src_data **out, struct err *err)
{
	if (e->size > git_inflated_max(e->len))
		return src_bad(err, p, "an object's size");
	if (e->size > bytes_max(type) || e->len > bytes_max(type))
		return too_large(p, err);
	const uint8_t *raw;
	int r = pack_bytes(s, p, e->off, e->len, &raw, err);
	if (r < 0)
		return r;
	if (libdeflate_crc32(0, raw, e->len) != e->crc)
		return src_bad(err, p, "an object's checksum");
	struct src_data *d = new_data((enum git_type)e->kind, e->size);
	if (!d)
		return err_no_memory(err);
	if (libdeflate_zlib_decompress(s->inflate, raw + e->head, e->len - e->head, d->data,
				       e->size, NULL) != LIBDEFLATE_SUCCESS) {
		free(d);
		return src_bad(err, p, "an object's compressed data");
	}
	*out = d;
	return 0;
}

static int apply_delta(const struct src_pack *p, const struct src_data *base,
		       const struct src_data *delta, struct src_data **out, struct err *err)
{
	uint64_t len;
	if (git_delta_check(delta->data, delta->len, base->len, &len) < 0)
		return src_bad(err, p, "a delta");
	if (len > bytes_max(base->type))
		return too_large(p, err);
	struct src_data *d = new_data(base->type, (size_t)len);
	if (!d)
		return err_no_memory(err);
	git_delta_apply(delta->data, delta->len, base->data, d->data);
	*out = d;
	return 0;
}

struct link {
	uint32_t obj;
	struct src_entry e;
};

/* From the object down to what is whole, or in the cache; the deltas above that are the chain. */
static int walk_down(struct src *s, const struct src_pack *p, uint32_t obj, struct link **chain,
		     size_t *n, struct src_data **out, struct err *err)
{
	size_t cap = 0;
	for (;;) {
		struct src_entry e;
		*out = cache_get(s, obj);
		if (*out)
			return 0;
		int r = entry_of(s, p, obj, &e, err);
		if (r == 0 && *n > GIT_CHAIN_MAX)
			r = src_bad(err, p, "a chain of deltas is too long");
		if (r == 0 && array_grow(chain, *n, &cap) < 0)
			r = err_no_memory(err);
		if (r < 0)
			return r;
		if (e.base == OBJ_NONE) {
			r = inflate_entry(s, p, &e, (enum git_type)e.kind, out, err);
			if (r == 0)
				cache_add(s, obj, *out);
			return r;
		}
		(*chain)[(*n)++] = (struct link){ obj, e };
		obj = e.base;
	}
}

static int read_packed(struct src *s, const struct src_pack *p, uint32_t obj,
		       struct src_data **out, struct err *err)
{
	auto_free struct link *chain = NULL;
	auto_src_data *d = NULL;
	size_t n = 0;
	int r = walk_down(s, p, obj, &chain, &n, &d, err);
	while (r == 0 && n > 0) {
		auto_src_data *delta = NULL;
		struct src_data *now = NULL;
		const struct link *l = &chain[--n];
		r = inflate_entry(s, p, &l->e, d->type, &delta, err);
		if (r == 0)
			r = apply_delta(p, d, delta, &now, err);
		if (r < 0)
			break;
		src_put(d);
		d = now;
		cache_add(s, l->obj, d);
	}
	if (r == 0)
		*out = steal_ptr(&d);
	return r;
}

static int read_loose(struct src *s, uint32_t obj, struct src_data **out, struct err *err)
{
	auto_git(git_odb_object) o = NULL;
	struct oid oid;
	git_object_t type;
	size_t len;
	src_oid(s, obj, &oid);
	git_oid id = oid_to_git(&oid);
	int r = git_odb_read_header(&len, &type, s->odb, &id);
	if (r >= 0 && len > bytes_max((enum git_type)type))
		return too_large(src_pack_of(s, obj), err);
	if (r >= 0)
		r = git_odb_read(&o, s->odb, &id);
	if (r < 0)
		return odb_fail(s, obj, r, err);
	len = git_odb_object_size(o);
	struct src_data *d = new_data((enum git_type)git_odb_object_type(o), len);
	if (!d)
		return err_no_memory(err);
	memcpy(d->data, git_odb_object_data(o), len);
	*out = d;
	return 0;
}

int src_read(struct src *s, uint32_t obj, struct src_data **out, struct err *err)
{
	const struct src_pack *p = src_pack_of(s, obj);
	return p->fd < 0 ? read_loose(s, obj, out, err) : read_packed(s, p, obj, out, err);
}
