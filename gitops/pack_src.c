/* The objects of a mirror as they lie on disk. libgit2 gives no such view: it has no call for an
 * entry's raw bytes, and it hashes and copies each object that it reads. */
#include "gitops/pack_impl.h"

#include <assert.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <stdio.h>

enum {
	IDX_BYTES_MAX = INT32_MAX, /* 70 million objects */
	CACHE_BYTES = 96 << 20,    /* what git takes for bases of deltas */
	CACHE_ONE_MAX = 8 << 20,   /* larger ones aren't kept */
	OPEN_TRIES = 5,            /* packs may be replaced while their folder is read */
	OPEN_PAUSE_US = 2000,      /* doubled each time */
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

static int no_memory(struct err *err)
{
	return err_set(err, -ENOMEM, "out of memory");
}

static int bad(struct err *err, const struct src_pack *p, const char *what)
{
	return err_set(err, -EBADMSG, "%s of the mirror is damaged: %s", p->name, what);
}

/* ---- opening ---- */

static uint64_t offset_of(const struct src_pack *p, uint32_t pos)
{
	uint32_t v = be_get32(p->offs + (size_t)pos * 4);
	if (!(v & 0x80000000U))
		return v;
	v &= 0x7fffffffU;
	if (v >= p->nbig)
		return 0; /* the place of no entry */
	return be_get64(p->bigs + (size_t)v * 8);
}

struct place {
	uint64_t off;
	uint32_t pos;
};

/* By place, digit by digit, which takes a tenth of the time of qsort. Returns that of the two
 * arrays in which the result is. */
static struct place *sort_places(struct place *v, struct place *other, uint32_t n, uint64_t max)
{
	enum { BITS = 11, VALUES = 1 << BITS };
	for (unsigned shift = 0; shift < 64 && max >> shift; shift += BITS) {
		uint32_t at[VALUES] = { 0 }, sum = 0;
		for (uint32_t i = 0; i < n; i++)
			at[v[i].off >> shift & (VALUES - 1)]++;
		for (unsigned d = 0; d < VALUES; d++) {
			uint32_t count = at[d];
			at[d] = sum;
			sum += count;
		}
		for (uint32_t i = 0; i < n; i++)
			other[at[v[i].off >> shift & (VALUES - 1)]++] = v[i];
		struct place *t = v;
		v = other;
		other = t;
	}
	return v;
}

static int make_order(struct src_pack *p, struct err *err)
{
	auto_free struct place *a = calloc((size_t)p->n + 1, sizeof(*a));
	auto_free struct place *b = calloc((size_t)p->n + 1, sizeof(*b));
	uint64_t max = 0;
	p->starts = calloc((size_t)p->n + 1, sizeof(*p->starts));
	p->order = calloc((size_t)p->n + 1, sizeof(*p->order));
	p->place = calloc((size_t)p->n + 1, sizeof(*p->place));
	if (!a || !b || !p->starts || !p->order || !p->place)
		return no_memory(err);
	for (uint32_t i = 0; i < p->n; i++) {
		a[i] = (struct place){ offset_of(p, i), i };
		max |= a[i].off;
	}
	const struct place *v = sort_places(a, b, p->n, max);
	for (uint32_t i = 0; i < p->n; i++) {
		uint64_t end = i + 1 < p->n ? v[i + 1].off : p->size - SHA1_BYTES;
		if (v[i].off < GIT_PACK_HEAD || v[i].off >= end || end > p->size - SHA1_BYTES)
			return bad(err, p, "places of its objects");
		p->starts[i] = v[i].off;
		p->order[i] = v[i].pos;
		p->place[v[i].pos] = i;
	}
	p->starts[p->n] = p->size - SHA1_BYTES;
	return 0;
}

static int check_pack_file(const struct src *s, const struct src_pack *p, const uint8_t *sha,
			   struct err *err)
{
	uint8_t head[GIT_PACK_HEAD], tail[SHA1_BYTES];
	uint32_t count;
	if (p->size < GIT_PACK_HEAD + SHA1_BYTES)
		return bad(err, p, "cut off");
	ssize_t n = io_read_full(s->io, p->fd, head, sizeof(head), 0);
	if (n >= 0)
		n = io_read_full(s->io, p->fd, tail, sizeof(tail), p->size - SHA1_BYTES);
	if (n < 0)
		return err_sys(err, (int)n, "read %s", p->name);
	if (git_pack_head_decode(&count, head) < 0 || count != p->n ||
	    memcmp(tail, sha, SHA1_BYTES) != 0)
		return bad(err, p, "pack and index don't belong together");
	return 0;
}

/* `name`: without .idx. -ENOENT: it has gone. */
static int open_pack(struct src *s, struct src_pack *p, int dir, const char *name, struct err *err)
{
	char file[sizeof(p->name) + 8];
	struct stat st;
	void *data;
	size_t len;
	memcpy(p->name, name, strlen(name) + 1); /* its length was looked at */
	(void)snprintf(file, sizeof(file), "%s.idx", p->name);
	int r = io_slurp(s->io, dir, file, IDX_BYTES_MAX, &data, &len, err);
	if (r < 0)
		return r;
	p->idx = data;
	struct idx_view v;
	if (idx_decode(&v, data, len) < 0)
		return bad(err, p, "its index");
	p->n = v.n, p->nbig = v.nbig;
	p->fanout = malloc(sizeof(v.idx.fanout));
	if (!p->fanout)
		return no_memory(err);
	memcpy(p->fanout, v.idx.fanout, sizeof(v.idx.fanout));
	p->oids = v.oids, p->crcs = v.crcs, p->offs = v.offs, p->bigs = v.bigs;
	(void)snprintf(file, sizeof(file), "%s.pack", p->name);
	p->fd = s->io->open(s->io->ctx, dir, file, O_RDONLY | O_CLOEXEC, 0);
	if (p->fd < 0)
		return err_sys(err, p->fd, "open %s", file);
	r = s->io->fstat(s->io->ctx, p->fd, &st);
	if (r < 0)
		return err_sys(err, r, "look at %s", file);
	p->size = (uint64_t)st.st_size;
	r = check_pack_file(s, p, v.pack_sha, err);
	return r < 0 ? r : make_order(p, err);
}

static void close_pack(struct src *s, struct src_pack *p)
{
	if (p->fd >= 0)
		(void)s->io->close(s->io->ctx, p->fd); /* only read */
	free(p->idx);
	free(p->starts);
	free(p->order);
	free(p->place);
	free(p->fanout);
}

static void close_packs(struct src *s)
{
	for (size_t i = 0; i < s->npacks; i++)
		close_pack(s, &s->packs[i]);
	free(s->packs);
	s->packs = NULL;
	s->npacks = 0;
}

static struct src_pack *add_pack(struct src *s, size_t *cap)
{
	if (array_grow(&s->packs, s->npacks, cap) < 0)
		return NULL;
	struct src_pack *p = &s->packs[s->npacks++];
	*p = (struct src_pack){ .fd = -1 };
	return p;
}

static DIR *open_folder(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	if (fd >= 0 && !d)
		(void)close(fd);
	return d;
}

/* without_gone: an index whose pack isn't there any more counts as gone, too; else -ENOENT. */
static int open_packs(struct src *s, size_t *cap, int objects, bool without_gone, struct err *err)
{
	auto_dir *d = open_folder(objects, "pack");
	if (!d)
		return errno == ENOENT ? 0 : err_sys(err, -errno, "open the mirror's packs");
	struct dirent *e;
	while ((errno = 0, e = readdir(d))) {
		size_t n = strlen(e->d_name);
		if (n < 10 || n - 4 >= sizeof(s->packs->name) ||
		    strncmp(e->d_name, "pack-", 5) != 0 || strcmp(e->d_name + n - 4, ".idx") != 0)
			continue;
		e->d_name[n - 4] = 0;
		struct src_pack *p = add_pack(s, cap);
		int r = p ? open_pack(s, p, dirfd(d), e->d_name, err) : no_memory(err);
		if (r == -ENOENT && without_gone)
			close_pack(s, &s->packs[--s->npacks]);
		else if (r < 0)
			return r;
	}
	return errno ? err_sys(err, -errno, "read the mirror's packs") : 0;
}

/* Largest first, where most is found; by name after that, so that the order is always the same. */
static int by_size(const void *a, const void *b)
{
	const struct src_pack *x = a, *y = b;
	return x->n != y->n ? (x->n < y->n) - (x->n > y->n) : strcmp(x->name, y->name);
}

static int compare_oids(const void *a, const void *b)
{
	return memcmp(a, b, OID_BYTES);
}

/* `name`: the two digits that ids begin with. */
static int add_loose_of(struct buf *oids, int objects, const char *name, struct err *err)
{
	char hex[OID_HEX + 1];
	struct dirent *e;
	auto_dir *d = open_folder(objects, name);
	if (!d)
		return errno == ENOENT ? 0 : err_sys(err, -errno, "open objects/%s", name);
	memcpy(hex, name, 2);
	while ((errno = 0, e = readdir(d))) {
		struct oid oid;
		if (strlen(e->d_name) != OID_HEX - 2)
			continue;
		memcpy(hex + 2, e->d_name, OID_HEX - 1);
		if (oid_parse(&oid, hex) == 0)
			buf_add(oids, oid.b, OID_BYTES);
	}
	return errno ? err_sys(err, -errno, "read objects/%s", name) : 0;
}

static int add_loose(struct src *s, size_t *cap, int objects, struct err *err)
{
	auto_buf oids = { 0 };
	struct dirent *e;
	auto_dir *d = open_folder(objects, ".");
	if (!d)
		return err_sys(err, -errno, "open the mirror's objects");
	while ((errno = 0, e = readdir(d))) {
		uint8_t first;
		if (hex_decode(&first, 1, e->d_name) < 0)
			continue;
		int r = add_loose_of(&oids, objects, e->d_name, err);
		if (r < 0)
			return r;
	}
	if (errno)
		return err_sys(err, -errno, "read the mirror's objects");
	struct src_pack *p = oids.len ? add_pack(s, cap) : NULL;
	if (buf_error(&oids) < 0 || (oids.len && !p))
		return no_memory(err);
	if (!p)
		return 0;
	qsort(oids.data, oids.len / OID_BYTES, OID_BYTES, compare_oids);
	p->n = (uint32_t)(oids.len / OID_BYTES);
	p->oids = p->idx = steal_ptr(&oids.data);
	(void)snprintf(p->name, sizeof(p->name), "loose objects");
	return 0;
}

static int open_all(struct src *s, const char *path, bool without_gone, struct err *err)
{
	char objects[4096];
	size_t cap = 0;
	int n = snprintf(objects, sizeof(objects), "%s/objects", path);
	if (n < 0 || n >= (int)sizeof(objects))
		return err_set(err, -ENAMETOOLONG, "the mirror's path is too long");
	auto_fd fd = open(objects, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, -errno, "open %s", objects);
	int r = 0;
	/* Loose ones first: those that are packed meanwhile are then found twice, not never. */
	struct src loose = { .io = s->io };
	size_t loose_cap = 0;
	r = add_loose(&loose, &loose_cap, fd, err);
	if (r >= 0)
		r = open_packs(s, &cap, fd, without_gone, err);
	if (r >= 0 && s->npacks > 1)
		qsort(s->packs, s->npacks, sizeof(*s->packs), by_size);
	if (r >= 0 && loose.npacks) {
		struct src_pack *p = add_pack(s, &cap);
		r = p ? 0 : no_memory(err);
		if (p) {
			*p = loose.packs[0];
			loose.npacks = 0;
		}
	}
	close_packs(&loose);
	uint64_t total = 0;
	for (size_t i = 0; i < s->npacks; i++) {
		s->packs[i].first = (uint32_t)total;
		total += s->packs[i].n;
	}
	if (r >= 0 && total >= OBJ_NONE)
		r = err_set(err, -EFBIG, "the mirror has too many objects");
	s->total = (uint32_t)total;
	return r;
}

int src_open(struct src *s, struct mirror *m, const struct io *io, struct err *err)
{
	*s = (struct src){ .io = io ? io : &io_host, .odb = mirror_odb(m) };
	s->inflate = libdeflate_alloc_decompressor();
	if (!s->inflate)
		return no_memory(err);
	int r = -ENOENT;
	/* git puts the new pack there before it takes the old ones away, each pack before its
	 * index: the next look finds the new one. An index that stays alone was left by a git that
	 * was killed. */
	for (int i = 0; i < OPEN_TRIES && r == -ENOENT; i++) {
		if (i > 0)
			usleep(OPEN_PAUSE_US << i);
		close_packs(s);
		r = open_all(s, mirror_path(m), i + 1 == OPEN_TRIES, err);
	}
	if (r < 0)
		src_close(s);
	return r;
}

int src_share(struct src *s, const struct src *of, struct err *err)
{
	*s = (struct src){ .io = of->io, .odb = of->odb, .packs = of->packs, .npacks = of->npacks,
			   .total = of->total, .lent = true };
	s->inflate = libdeflate_alloc_decompressor();
	return s->inflate ? 0 : no_memory(err);
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
		close_packs(s);
	free(s->raw);
	libdeflate_free_decompressor(s->inflate);
	*s = (struct src){ 0 };
}

/* ---- finding ---- */

/* Ids are spread evenly: the place is guessed, and from there looked for in growing steps. */
static uint32_t find_in(const struct src_pack *p, const uint8_t *oid)
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
		uint32_t pos = find_in(&s->packs[i], oid->b);
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

/* Which one by place, before the i-th, begins there; OBJ_NONE: none. Bases lie close, mostly. */
static uint32_t find_place(const struct src_pack *p, uint32_t i, uint64_t off)
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
		return no_memory(err);
	struct src_block *b = &s->blocks[(at / BLOCK + (uint64_t)p->fd * 61) & (BLOCKS - 1)];
	bool here = b->fd == p->fd + 1 && b->off == at;
	if (!here && off + len - at <= BLOCK) {
		if (!b->data)
			b->data = malloc(BLOCK);
		if (!b->data)
			return no_memory(err);
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
			return no_memory(err);
		s->raw = raw;
		s->raw_cap = len;
	}
	ssize_t n = io_read_full(s->io, p->fd, s->raw, len, off);
	if (n < 0)
		return err_sys(err, (int)n, "read %s", p->name);
	if ((size_t)n != len)
		return bad(err, p, "cut off");
	*out = s->raw;
	return 0;
}

static uint32_t base_of(const struct src_pack *p, uint32_t at, const struct git_entry *g)
{
	uint64_t off = p->starts[at];
	if (g->type == GIT_REF_DELTA) {
		uint32_t pos = find_in(p, g->base.b);
		return pos == OBJ_NONE ? OBJ_NONE : p->first + pos;
	}
	uint32_t i = g->back && g->back < off ? find_place(p, at, off - g->back) : OBJ_NONE;
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
		return bad(err, p, "an object's header");
	e.kind = g.type;
	e.size = g.size;
	e.head = g.head;
	if (g.type == GIT_OFS_DELTA || g.type == GIT_REF_DELTA) {
		e.base = base_of(p, i, &g);
		if (e.base == OBJ_NONE)
			return bad(err, p, "a delta without its base");
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
	return bad(err, p, "a chain of deltas is too long");
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

/* What an entry's compressed data holds, its own check verified. */
static int inflate_entry(struct src *s, const struct src_pack *p, const struct src_entry *e,
			 struct src_data **out, struct err *err)
{
	if (e->size > OBJECT_BYTES_MAX || e->len > OBJECT_BYTES_MAX)
		return err_set(err, -EFBIG, "an object in %s is too large", p->name);
	if (e->size > git_inflated_max(e->len))
		return bad(err, p, "an object's size");
	const uint8_t *raw;
	int r = pack_bytes(s, p, e->off, e->len, &raw, err);
	if (r < 0)
		return r;
	if (libdeflate_crc32(0, raw, e->len) != e->crc)
		return bad(err, p, "an object's checksum");
	struct src_data *d = new_data((enum git_type)e->kind, e->size);
	if (!d)
		return no_memory(err);
	if (libdeflate_zlib_decompress(s->inflate, raw + e->head, e->len - e->head, d->data,
				       e->size, NULL) != LIBDEFLATE_SUCCESS) {
		free(d);
		return bad(err, p, "an object's compressed data");
	}
	*out = d;
	return 0;
}

static int apply_delta(const struct src_pack *p, const struct src_data *base,
		       const struct src_data *delta, struct src_data **out, struct err *err)
{
	uint64_t len;
	if (git_delta_check(delta->data, delta->len, base->len, &len) < 0)
		return bad(err, p, "a delta");
	if (len > OBJECT_BYTES_MAX)
		return err_set(err, -EFBIG, "an object in %s is too large", p->name);
	struct src_data *d = new_data(base->type, (size_t)len);
	if (!d)
		return no_memory(err);
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
			r = bad(err, p, "a chain of deltas is too long");
		if (r == 0 && array_grow(chain, *n, &cap) < 0)
			r = no_memory(err);
		if (r < 0)
			return r;
		if (e.base == OBJ_NONE) {
			r = inflate_entry(s, p, &e, out, err);
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
		r = inflate_entry(s, p, &l->e, &delta, err);
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
	src_oid(s, obj, &oid);
	git_oid id = oid_to_git(&oid);
	int r = git_odb_read(&o, s->odb, &id);
	if (r < 0)
		return odb_fail(s, obj, r, err);
	size_t len = git_odb_object_size(o);
	struct src_data *d = len <= OBJECT_BYTES_MAX
				     ? new_data((enum git_type)git_odb_object_type(o), len)
				     : NULL;
	if (!d)
		return no_memory(err);
	memcpy(d->data, git_odb_object_data(o), len);
	*out = d;
	return 0;
}

int src_read(struct src *s, uint32_t obj, struct src_data **out, struct err *err)
{
	const struct src_pack *p = src_pack_of(s, obj);
	return p->fd < 0 ? read_loose(s, obj, out, err) : read_packed(s, p, obj, out, err);
}
