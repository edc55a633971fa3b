#include "gitops/packout.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "fs/base/array.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/u64map.h"
#include "fs/store/gitform.h"
#include "gitops/history.h"

/* Not as git's own are called: the upkeep, which may run meanwhile, sweeps those. */
#define TMP_PACK PACKOUT_TMP_PREFIX "pack_"
#define TMP_IDX PACKOUT_TMP_PREFIX "idx_"

enum {
	PACK_HEAD = 12,
	ENTRY_HEAD_MAX = 10,
	CHUNK = 256 * 1024,
	LEVEL = 1, /* zlib's: the objects are few, and repacked some day */
	TMP_NAME = 48,
	LARGE_OFFSET = 1u << 31, /* offsets from here on are in the index's last table */
	NAMES_TRIES = 16,
};

struct entry {
	struct oid oid;
	uint32_t crc;
	uint64_t offset;
	struct entry *next; /* of those with the same first bytes */
};

struct packout {
	struct mirror *mirror;
	const struct io *io;
	int dir, fd;
	char tmp[TMP_NAME]; /* "": no file */
	struct entry **v;
	size_t n, cap;
	struct u64map by_oid;
	uint64_t at; /* bytes written */
	z_stream z;
	bool z_ready;
	EVP_MD_CTX *sha;
	uint8_t buf[CHUNK], raw[CHUNK];
};

/* ---- small parts ---- */

static uint64_t key_of(const struct oid *oid)
{
	uint64_t k;
	memcpy(&k, oid->b, sizeof(k));
	return k ? k : 1;
}

static struct entry *find(const struct packout *p, const struct oid *oid)
{
	struct entry *e = u64map_get(&p->by_oid, key_of(oid));
	while (e && memcmp(e->oid.b, oid->b, OID_BYTES) != 0)
		e = e->next;
	return e;
}

static const char *type_name(enum git_type t)
{
	static const char *const names[] = { "", "commit", "tree", "blob", "tag" };
	return names[t];
}

/* libcrypto's hash can only fail for want of memory at its start. */
static int sha_begin(EVP_MD_CTX *sha)
{
	return EVP_DigestInit_ex(sha, EVP_sha1(), NULL) == 1 ? 0 : -ENOMEM;
}

static void sha_end(EVP_MD_CTX *sha, struct oid *out)
{
	unsigned n = OID_BYTES;
	EVP_DigestFinal_ex(sha, out->b, &n);
}

static int sha_object(EVP_MD_CTX *sha, enum git_type type, uint64_t size)
{
	char head[40];
	int n = snprintf(head, sizeof(head), "%s %llu", type_name(type), (unsigned long long)size);
	int r = sha_begin(sha);
	if (r >= 0)
		EVP_DigestUpdate(sha, head, (size_t)n + 1);
	return r;
}

void git_object_id_of(struct oid *out, enum git_type type, const void *data, size_t len)
{
	char head[40];
	int n = snprintf(head, sizeof(head), "%s %zu", type_name(type), len);
	EVP_MD_CTX *sha = EVP_MD_CTX_new();
	if (!sha || sha_begin(sha) < 0)
		abort(); /* as hash_sha256 does */
	EVP_DigestUpdate(sha, head, (size_t)n + 1);
	EVP_DigestUpdate(sha, data, len);
	sha_end(sha, out);
	EVP_MD_CTX_free(sha);
}

/* 1, 0, or -errno. Packs that others wrote since the mirror was opened needn't be seen. */
static int mirror_has(const struct packout *p, const struct oid *oid)
{
	git_oid id = oid_to_git(oid);
	return git_odb_exists_ext(mirror_odb(p->mirror), &id, GIT_ODB_LOOKUP_NO_REFRESH);
}

bool packout_has(const struct packout *p, const struct oid *oid)
{
	return find(p, oid) || mirror_has(p, oid) > 0;
}

/* ---- the file ---- */

static int fail(struct packout *p, int r, const char *what, struct err *err)
{
	return err_sys(err, r, "%s a pack of mirror %08x", what, mirror_number(p->mirror));
}

static int open_file(struct packout *p, struct err *err)
{
	uint8_t head[PACK_HEAD] = "PACK\0\0\0\2\0\0\0\0";
	char path[4096];
	int n = snprintf(path, sizeof(path), "%s/objects/pack", mirror_path(p->mirror));
	if (n < 0 || n >= (int)sizeof(path))
		return fail(p, -ENAMETOOLONG, "write", err);
	if (p->dir < 0)
		p->dir = p->io->open(p->io->ctx, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC,
				     0);
	if (p->dir < 0)
		return fail(p, p->dir, "write", err);
	int r = -EEXIST;
	for (int i = 0; i < (int)NAMES_TRIES && r == -EEXIST; i++) {
		uint64_t x;
		random_bytes(&x, sizeof(x));
		(void)snprintf(p->tmp, sizeof(p->tmp), TMP_PACK "%016llx", (unsigned long long)x);
		r = p->io->open(p->io->ctx, p->dir, p->tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
				0444);
	}
	if (r < 0) {
		p->tmp[0] = '\0';
		return fail(p, r, "write", err);
	}
	p->fd = r;
	r = io_write_full(p->io, p->fd, head, sizeof(head), 0);
	p->at = sizeof(head);
	return r < 0 ? fail(p, r, "write", err) : 0;
}

int packout_new(struct packout **out, struct mirror *m, const struct io *io, struct err *err)
{
	struct packout *p = calloc(1, sizeof(*p));
	if (!p)
		return err_no_memory(err);
	p->mirror = m;
	p->io = io ? io : &io_host;
	p->dir = p->fd = -1;
	p->sha = EVP_MD_CTX_new();
	if (!p->sha || deflateInit(&p->z, LEVEL) != Z_OK) {
		packout_free(p);
		return err_no_memory(err);
	}
	p->z_ready = true;
	*out = p;
	return 0;
}

void packout_free(struct packout *p)
{
	if (!p)
		return;
	if (p->fd >= 0)
		(void)p->io->close(p->io->ctx, p->fd); /* it was synced, or goes */
	if (p->tmp[0])
		(void)p->io->unlink(p->io->ctx, p->dir, p->tmp, 0); /* else the next start does */
	if (p->dir >= 0)
		(void)p->io->close(p->io->ctx, p->dir);
	if (p->z_ready)
		(void)deflateEnd(&p->z);
	EVP_MD_CTX_free(p->sha);
	for (size_t i = 0; i < p->n; i++)
		free(p->v[i]);
	free(p->v);
	u64map_done(&p->by_oid);
	free(p);
}

/* ---- entries ---- */

static size_t entry_head(uint8_t *out, enum git_type type, uint64_t size)
{
	size_t n = 0;
	out[0] = (uint8_t)(type << 4 | (size & 15));
	for (size >>= 4; size; size >>= 7) {
		out[n++] |= 0x80;
		out[n] = size & 0x7f;
	}
	return n + 1;
}

static int emit(struct packout *p, struct entry *e, const void *data, size_t n)
{
	int r = io_write_full(p->io, p->fd, data, n, p->at);
	if (r < 0)
		return r;
	e->crc = (uint32_t)crc32(e->crc, data, (uInt)n);
	p->at += n;
	return 0;
}

static int squeeze(struct packout *p, struct entry *e, const void *data, size_t n, bool last)
{
	p->z.next_in = (Bytef *)(uintptr_t)data;
	do {
		size_t part = n < CHUNK ? n : CHUNK;
		p->z.avail_in = (uInt)part;
		n -= part;
		do {
			p->z.next_out = p->buf;
			p->z.avail_out = CHUNK;
			(void)deflate(&p->z, last && n == 0 ? Z_FINISH : Z_NO_FLUSH);
			int r = emit(p, e, p->buf, CHUNK - p->z.avail_out);
			if (r < 0)
				return r;
		} while (p->z.avail_out == 0);
	} while (n > 0);
	return 0;
}

static int begin(struct packout *p, struct entry *e, enum git_type type, uint64_t size,
		 struct err *err)
{
	uint8_t head[ENTRY_HEAD_MAX];
	int r = p->fd < 0 ? open_file(p, err) : 0;
	if (r < 0)
		return r;
	*e = (struct entry){ .offset = p->at };
	(void)deflateReset(&p->z);
	r = emit(p, e, head, entry_head(head, type, size));
	return r < 0 ? fail(p, r, "write", err) : 0;
}

/* The entry is written; its id is known. */
static int keep(struct packout *p, const struct entry *e, struct err *err)
{
	struct entry *own = malloc(sizeof(*own));
	if (!own || array_grow(&p->v, p->n, &p->cap) < 0)
		goto no_memory;
	*own = *e;
	own->next = u64map_get(&p->by_oid, key_of(&e->oid));
	if (u64map_put(&p->by_oid, key_of(&e->oid), own) < 0)
		goto no_memory;
	p->v[p->n++] = own;
	return 0;
no_memory:
	free(own);
	return err_no_memory(err);
}

/* Back to where the entry began: the mirror has it already, or it failed. */
static void take_back(struct packout *p, const struct entry *e)
{
	p->at = e->offset;
}

int packout_put(struct packout *p, enum git_type type, const void *data, size_t len,
		struct oid *oid, struct err *err)
{
	struct entry e;
	struct oid id;
	git_object_id_of(&id, type, data, len);
	if (!find(p, &id) && !mirror_has(p, &id)) {
		int r = begin(p, &e, type, len, err);
		if (r < 0)
			return r;
		r = squeeze(p, &e, data, len, true);
		e.oid = id;
		r = r < 0 ? fail(p, r, "write", err) : keep(p, &e, err);
		if (r < 0) {
			take_back(p, &e);
			return r;
		}
	}
	*oid = id;
	return 0;
}

int packout_stream(struct packout *p, uint64_t size,
		   int (*read)(void *ctx, void *buf, size_t n, uint64_t off, struct err *err),
		   void *ctx, struct oid *oid, struct err *err)
{
	struct entry e;
	int r = begin(p, &e, GIT_BLOB, size, err);
	if (r < 0)
		return r;
	r = sha_object(p->sha, GIT_BLOB, size);
	if (r < 0)
		r = err_set(err, r, "out of memory");
	for (uint64_t off = 0; r >= 0 && (off < size || size == 0);) {
		size_t n = size - off < CHUNK ? (size_t)(size - off) : CHUNK;
		r = read(ctx, p->raw, n, off, err);
		if (r < 0)
			break;
		EVP_DigestUpdate(p->sha, p->raw, n);
		off += n;
		r = squeeze(p, &e, p->raw, n, off == size);
		if (r < 0)
			r = fail(p, r, "write", err);
		if (size == 0)
			break;
	}
	if (r >= 0) {
		sha_end(p->sha, &e.oid);
		if (find(p, &e.oid) || mirror_has(p, &e.oid))
			take_back(p, &e);
		else
			r = keep(p, &e, err);
	}
	if (r < 0) {
		take_back(p, &e);
		return r;
	}
	*oid = e.oid;
	return 0;
}

/* ---- the end ---- */

/* The header with its count, and the checksum over all of it. */
static int close_pack(struct packout *p, struct oid *sum)
{
	uint8_t count[4];
	be_put32(count, (uint32_t)p->n);
	int r = io_write_full(p->io, p->fd, count, sizeof(count), 8);
	if (r >= 0)
		r = sha_begin(p->sha);
	for (uint64_t off = 0; r >= 0 && off < p->at;) {
		size_t n = p->at - off < CHUNK ? (size_t)(p->at - off) : CHUNK;
		ssize_t got = io_read_full(p->io, p->fd, p->raw, n, off);
		if (got != (ssize_t)n)
			return got < 0 ? (int)got : -EIO;
		EVP_DigestUpdate(p->sha, p->raw, n);
		off += n;
	}
	if (r < 0)
		return r;
	sha_end(p->sha, sum);
	r = io_write_full(p->io, p->fd, sum->b, OID_BYTES, p->at);
	p->at += OID_BYTES;
	if (r >= 0) /* what was taken back may lie behind it */
		r = p->io->ftruncate(p->io->ctx, p->fd, p->at);
	return r < 0 ? r : p->io->fsync(p->io->ctx, p->fd);
}

static int by_oid(const void *a, const void *b)
{
	return memcmp((*(struct entry *const *)a)->oid.b, (*(struct entry *const *)b)->oid.b,
		      OID_BYTES);
}

static void add_be32(struct buf *out, uint32_t v)
{
	uint8_t b[4];
	be_put32(b, v);
	buf_add(out, b, sizeof(b));
}

static int make_index(struct packout *p, const struct oid *sum, struct buf *out)
{
	uint32_t large = 0;
	size_t at = 0;
	struct oid own;
	qsort(p->v, p->n, sizeof(*p->v), by_oid);
	buf_add(out, "\377tOc\0\0\0\2", 8);
	for (unsigned i = 0; i < 256; i++) {
		while (at < p->n && p->v[at]->oid.b[0] <= i)
			at++;
		add_be32(out, (uint32_t)at);
	}
	for (size_t i = 0; i < p->n; i++)
		buf_add(out, p->v[i]->oid.b, OID_BYTES);
	for (size_t i = 0; i < p->n; i++)
		add_be32(out, p->v[i]->crc);
	for (size_t i = 0; i < p->n; i++)
		add_be32(out, p->v[i]->offset < LARGE_OFFSET ? (uint32_t)p->v[i]->offset
							     : LARGE_OFFSET | large++);
	for (size_t i = 0; i < p->n && large; i++) {
		if (p->v[i]->offset < LARGE_OFFSET)
			continue;
		add_be32(out, (uint32_t)(p->v[i]->offset >> 32));
		add_be32(out, (uint32_t)p->v[i]->offset);
	}
	buf_add(out, sum->b, OID_BYTES);
	if (buf_error(out) < 0 || sha_begin(p->sha) < 0)
		return -ENOMEM;
	EVP_DigestUpdate(p->sha, out->data, out->len);
	sha_end(p->sha, &own);
	buf_add(out, own.b, OID_BYTES);
	return buf_error(out);
}

static int write_index(struct packout *p, const char *name, const struct oid *sum)
{
	auto_buf idx = { 0 };
	int r = make_index(p, sum, &idx);
	if (r < 0)
		return r;
	int fd = p->io->open(p->io->ctx, p->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
			     0444);
	if (fd < 0)
		return fd;
	r = io_write_full(p->io, fd, idx.data, idx.len, 0);
	if (r >= 0)
		r = p->io->fsync(p->io->ctx, fd);
	int c = p->io->close(p->io->ctx, fd);
	r = r < 0 ? r : c;
	if (r < 0)
		(void)p->io->unlink(p->io->ctx, p->dir, name, 0); /* else the next start does */
	return r;
}

/* A pack counts from its index on, so that gets its name last. */
static int publish(struct packout *p, const struct oid *sum)
{
	char hex[OID_HEX + 1], idx[TMP_NAME + 4], pack_name[64], idx_name[64];
	oid_hex(hex, sum);
	(void)snprintf(idx, sizeof(idx), TMP_IDX "%s", p->tmp + sizeof(TMP_PACK) - 1);
	(void)snprintf(pack_name, sizeof(pack_name), "pack-%s.pack", hex);
	(void)snprintf(idx_name, sizeof(idx_name), "pack-%s.idx", hex);
	int r = write_index(p, idx, sum);
	if (r < 0)
		return r;
	r = p->io->rename(p->io->ctx, p->dir, p->tmp, p->dir, pack_name, 0);
	if (r >= 0) {
		p->tmp[0] = '\0';
		r = p->io->rename(p->io->ctx, p->dir, idx, p->dir, idx_name, 0);
		/* Without its index nobody looks at it. */
		if (r < 0)
			(void)p->io->unlink(p->io->ctx, p->dir, pack_name, 0);
	}
	if (r < 0) {
		(void)p->io->unlink(p->io->ctx, p->dir, idx, 0);
		return r;
	}
	return p->io->fsync(p->io->ctx, p->dir);
}

int packout_finish(struct packout *p, struct oid *name, struct err *err)
{
	struct oid sum = { 0 };
	int r = 0;
	if (p->n > 0) {
		r = close_pack(p, &sum);
		if (r >= 0)
			r = publish(p, &sum);
		if (r < 0)
			return fail(p, r, "write", err);
		r = git_odb_refresh(mirror_odb(p->mirror));
		if (r < 0)
			return git_fail(err, r, "read the new pack");
	}
	if (name)
		*name = sum;
	return 0;
}

int pack_between(git_packbuilder **out, git_repository *repo, const struct oid *from,
		 const struct oid *to, struct err *err)
{
	git_oid a = oid_to_git(from), b = oid_to_git(to);
	git_packbuilder *pb = NULL;
	auto_git(git_revwalk) walk = NULL;
	int r = history_walkable(repo, &b, &a, err);
	if (r < 0)
		return err_prefix(err, r, "pack what is new");
	r = git_revwalk_new(&walk, repo);
	if (r >= 0)
		r = git_revwalk_push(walk, &b);
	if (r >= 0)
		r = git_revwalk_hide(walk, &a);
	if (r >= 0)
		r = git_packbuilder_new(&pb, repo);
	if (r >= 0)
		(void)git_packbuilder_set_threads(pb, 1); /* how many it says; none fails */
	if (r >= 0)
		r = git_packbuilder_insert_walk(pb, walk);
	if (r < 0) {
		git_packbuilder_free(pb);
		return git_fail(err, r, "pack what is new");
	}
	*out = pb;
	return 0;
}
