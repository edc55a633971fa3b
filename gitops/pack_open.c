/* Which objects a mirror has, and where they lie: its packs' indexes, and the loose ones' names. */
#include "gitops/pack_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	IDX_BYTES_MAX = INT32_MAX, /* 70 million objects */
	OPEN_TRIES = 5,            /* packs may be replaced while their folder is read */
	OPEN_PAUSE_US = 2000,      /* doubled each time */
};

int src_bad(struct err *err, const struct src_pack *p, const char *what)
{
	return err_set(err, -EBADMSG, "%s of the mirror is damaged: %s", p->name, what);
}

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

int src_pack_order(struct src_pack *p, struct err *err)
{
	auto_free struct place *a = calloc((size_t)p->n + 1, sizeof(*a));
	auto_free struct place *b = calloc((size_t)p->n + 1, sizeof(*b));
	uint64_t max = 0;
	p->starts = calloc((size_t)p->n + 1, sizeof(*p->starts));
	p->order = calloc((size_t)p->n + 1, sizeof(*p->order));
	p->place = calloc((size_t)p->n + 1, sizeof(*p->place));
	if (!a || !b || !p->starts || !p->order || !p->place)
		return err_no_memory(err);
	for (uint32_t i = 0; i < p->n; i++) {
		a[i] = (struct place){ offset_of(p, i), i };
		max |= a[i].off;
	}
	const struct place *v = sort_places(a, b, p->n, max);
	for (uint32_t i = 0; i < p->n; i++) {
		uint64_t end = i + 1 < p->n ? v[i + 1].off : p->size - SHA1_BYTES;
		if (v[i].off < GIT_PACK_HEAD || v[i].off >= end || end > p->size - SHA1_BYTES)
			return src_bad(err, p, "places of its objects");
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
		return src_bad(err, p, "cut off");
	ssize_t n = io_read_full(s->io, p->fd, head, sizeof(head), 0);
	if (n >= 0)
		n = io_read_full(s->io, p->fd, tail, sizeof(tail), p->size - SHA1_BYTES);
	if (n < 0)
		return err_sys(err, (int)n, "read %s", p->name);
	if (git_pack_head_decode(&count, head) < 0 || count != p->n ||
	    memcmp(tail, sha, SHA1_BYTES) != 0)
		return src_bad(err, p, "pack and index don't belong together");
	return 0;
}

int src_pack_tables(struct src_pack *p, const struct idx_view *v)
{
	p->fanout = malloc(sizeof(v->idx.fanout));
	if (!p->fanout)
		return -ENOMEM;
	memcpy(p->fanout, v->idx.fanout, sizeof(v->idx.fanout));
	p->n = v->n, p->nbig = v->nbig;
	p->oids = v->oids, p->crcs = v->crcs, p->offs = v->offs, p->bigs = v->bigs;
	return 0;
}

void src_pack_free(struct src_pack *p)
{
	free(p->idx);
	free(p->starts);
	free(p->order);
	free(p->place);
	free(p->fanout);
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
		return src_bad(err, p, "its index");
	if (src_pack_tables(p, &v) < 0)
		return err_no_memory(err);
	(void)snprintf(file, sizeof(file), "%s.pack", p->name);
	p->fd = s->io->open(s->io->ctx, dir, file, O_RDONLY | O_CLOEXEC, 0);
	if (p->fd < 0)
		return err_sys(err, p->fd, "open %s", file);
	r = s->io->fstat(s->io->ctx, p->fd, &st);
	if (r < 0)
		return err_sys(err, r, "look at %s", file);
	p->size = (uint64_t)st.st_size;
	r = check_pack_file(s, p, v.pack_sha, err);
	return r < 0 ? r : src_pack_order(p, err);
}

static void close_pack(struct src *s, struct src_pack *p)
{
	if (p->fd >= 0)
		(void)s->io->close(s->io->ctx, p->fd); /* only read */
	src_pack_free(p);
}

void src_packs_close(struct src *s)
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
		int r = p ? open_pack(s, p, dirfd(d), e->d_name, err) : err_no_memory(err);
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
		return err_no_memory(err);
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
		r = p ? 0 : err_no_memory(err);
		if (p) {
			*p = loose.packs[0];
			loose.npacks = 0;
		}
	}
	src_packs_close(&loose);
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

int src_packs_open(struct src *s, const char *path, struct err *err)
{
	int r = -ENOENT;
	/* git puts the new pack there before it takes the old ones away, each pack before its
	 * index: the next look finds the new one. An index that stays alone was left by a git that
	 * was killed. */
	for (int i = 0; i < OPEN_TRIES && r == -ENOENT; i++) {
		if (i > 0)
			usleep(OPEN_PAUSE_US << i);
		src_packs_close(s);
		r = open_all(s, path, i + 1 == OPEN_TRIES, err);
	}
	return r;
}
