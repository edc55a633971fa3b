/* For tests of git's formats: repositories made by the system's git, and packs made by hand,
 * which may be as wrong as a test wants them. */
#ifndef BOUGH_TESTS_UNIT_GIT_KIT_H
#define BOUGH_TESTS_UNIT_GIT_KIT_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <zlib.h>
#include "fs/base/buf.h"
#include "fs/store/gitform.h"
#include "tests/unit/place.h"

/* Runs a line of shell in the test's folder, with $R for its repository number 1, git set up so
 * that nothing of this machine's configuration counts, and fails the test where it fails. */
#define sh(p, ...) sh_((p), __LINE__, __VA_ARGS__)
static inline void sh_(const struct place *p, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static inline void sh_(const struct place *p, int line, const char *fmt, ...)
{
	char text[4096], all[8192];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	(void)snprintf(all, sizeof(all),
		       "cd '%s' && export HOME='%s' R='%s/repos/00000001' GIT_CONFIG_NOSYSTEM=1 "
		       "GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=A "
		       "GIT_COMMITTER_EMAIL=a@example.org GIT_AUTHOR_DATE='1700000000 +0000' "
		       "GIT_COMMITTER_DATE='1700000000 +0000' && set -e\n%s",
		       p->path, p->path, p->path, text);
	int r = system(all);
	if (r != 0)
		fail_msg("line %d: status %d: %s", line, r, text);
}

static inline void sha1(struct oid *out, const void *data, size_t len)
{
	assert_int_equal(EVP_Digest(data, len, out->b, NULL, EVP_sha1(), NULL), 1);
}

static inline struct oid oid_of(enum git_type type, const void *data, size_t len)
{
	struct oid o;
	char head[GIT_LOOSE_HEAD_MAX];
	struct buf b = { 0 };
	buf_add(&b, head, git_head_encode(head, type, len));
	buf_add(&b, data, len);
	assert_int_equal(buf_error(&b), 0);
	sha1(&o, b.data, b.len);
	buf_done(&b);
	return o;
}

/* ---- packs by hand ---- */

enum { GITKIT_OBJECTS = 5000 };

struct gitkit_object {
	struct oid oid;
	uint64_t off;
};

struct gitkit {
	struct buf pack;
	struct gitkit_object v[GITKIT_OBJECTS];
	uint32_t n;
	bool large; /* all offsets but the first go through the table of 8-byte ones */
};

/* git refuses an index where all do. */
static inline bool gitkit_is_large(const struct gitkit *k, uint64_t off)
{
	return off >> 31 || (k->large && off > GIT_PACK_HEAD);
}

static inline struct gitkit *gitkit_new(void)
{
	struct gitkit *k = calloc(1, sizeof(*k));
	assert_non_null(k);
	buf_add(&k->pack, "PACK\0\0\0\2\0\0\0\0", 12);
	return k;
}

static inline void gitkit_free(struct gitkit *k)
{
	buf_done(&k->pack);
	free(k);
}

static inline void gitkit_name(struct gitkit *k, const struct oid *oid, uint64_t off)
{
	assert_true(k->n < GITKIT_OBJECTS);
	k->v[k->n++] = (struct gitkit_object){ *oid, off };
}

/* The head of an entry that claims `size`. */
static inline void gitkit_head(struct buf *b, unsigned type, uint64_t size)
{
	uint8_t first = (uint8_t)(type << 4 | (size & 15));
	size >>= 4;
	buf_u8(b, size ? first | 0x80 : first);
	while (size) {
		uint8_t v = size & 0x7f;
		size >>= 7;
		buf_u8(b, size ? v | 0x80 : v);
	}
}

static inline void gitkit_back(struct buf *b, uint64_t back)
{
	uint8_t v[10];
	unsigned i = sizeof(v);
	v[--i] = back & 0x7f;
	while (back >>= 7)
		v[--i] = 0x80 | (--back & 0x7f);
	buf_add(b, v + i, sizeof(v) - i);
}

static inline void gitkit_deflate(struct buf *b, const void *data, size_t len)
{
	uLongf n = compressBound(len);
	uint8_t *p = buf_room(b, n);
	assert_non_null(p);
	assert_int_equal(compress2(p, &n, data, len, 6), Z_OK);
	b->len += n;
}

static inline void gitkit_varint(struct buf *b, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		buf_u8(b, (uint8_t)(v | 0x80));
	buf_u8(b, (uint8_t)v);
}

/* An object as it is; its offset. */
static inline uint64_t gitkit_add(struct gitkit *k, enum git_type type, const void *data,
				  size_t len)
{
	uint64_t off = k->pack.len;
	struct oid oid = oid_of(type, data, len);
	gitkit_name(k, &oid, off);
	gitkit_head(&k->pack, type, len);
	gitkit_deflate(&k->pack, data, len);
	return off;
}

/* A delta that the caller wrote, to the entry at `base`. */
static inline uint64_t gitkit_ofs(struct gitkit *k, uint64_t base, const struct buf *delta)
{
	uint64_t off = k->pack.len;
	gitkit_head(&k->pack, GIT_OFS_DELTA, delta->len);
	gitkit_back(&k->pack, off - base);
	gitkit_deflate(&k->pack, delta->data, delta->len);
	return off;
}

static inline uint64_t gitkit_ref(struct gitkit *k, const struct oid *base, const struct buf *delta)
{
	uint64_t off = k->pack.len;
	gitkit_head(&k->pack, GIT_REF_DELTA, delta->len);
	buf_add(&k->pack, base->b, OID_BYTES);
	gitkit_deflate(&k->pack, delta->data, delta->len);
	return off;
}

static inline int gitkit_order(const void *a, const void *b)
{
	return memcmp(a, b, OID_BYTES);
}

static inline void be_add32(struct buf *b, uint32_t v)
{
	buf_u8(b, (uint8_t)(v >> 24)), buf_u8(b, (uint8_t)(v >> 16));
	buf_u8(b, (uint8_t)(v >> 8)), buf_u8(b, (uint8_t)v);
}

static inline void gitkit_write(const char *dir, const char *name, const struct buf *b)
{
	char path[512];
	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	auto_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(io_write_full(NULL, fd, b->data, b->len, 0), 0);
}

/* The index of what was named, for a pack that ends in `trailer`. */
static inline void gitkit_index(struct gitkit *k, const struct oid *trailer, struct buf *x)
{
	qsort(k->v, k->n, sizeof(k->v[0]), gitkit_order);
	buf_add(x, "\377tOc\0\0\0\2", 8);
	for (unsigned f = 0, i = 0; f < 256; f++) {
		while (i < k->n && k->v[i].oid.b[0] <= f)
			i++;
		be_add32(x, i);
	}
	for (uint32_t i = 0; i < k->n; i++)
		buf_add(x, k->v[i].oid.b, OID_BYTES);
	for (uint32_t i = 0; i < k->n; i++)
		be_add32(x, 0); /* CRC-32s, which nobody reads here */
	uint32_t large = 0;
	for (uint32_t i = 0; i < k->n; i++)
		be_add32(x, gitkit_is_large(k, k->v[i].off) ? 0x80000000 | large++
							    : (uint32_t)k->v[i].off);
	for (uint32_t i = 0; i < k->n; i++)
		if (gitkit_is_large(k, k->v[i].off))
			be_add32(x, (uint32_t)(k->v[i].off >> 32)),
				be_add32(x, (uint32_t)k->v[i].off);
	buf_add(x, trailer->b, OID_BYTES);
	struct oid own;
	sha1(&own, x->data, x->len);
	buf_add(x, own.b, OID_BYTES);
}

/* Ends the pack, and writes both files as `name` into repository `number`. */
static inline void gitkit_install(struct gitkit *k, const struct place *p, unsigned number,
				  const char *name)
{
	char dir[400], file[64];
	struct oid trailer;
	(void)snprintf(dir, sizeof(dir), "%s/repos/%08x/objects/pack", p->path, number);
	k->pack.data[8] = (uint8_t)(k->n >> 24), k->pack.data[9] = (uint8_t)(k->n >> 16);
	k->pack.data[10] = (uint8_t)(k->n >> 8), k->pack.data[11] = (uint8_t)k->n;
	sha1(&trailer, k->pack.data, k->pack.len);
	buf_add(&k->pack, trailer.b, OID_BYTES);
	assert_int_equal(buf_error(&k->pack), 0);
	(void)snprintf(file, sizeof(file), "pack-%s.pack", name);
	gitkit_write(dir, file, &k->pack);
	struct buf x = { 0 };
	gitkit_index(k, &trailer, &x);
	(void)snprintf(file, sizeof(file), "pack-%s.idx", name);
	gitkit_write(dir, file, &x);
	buf_done(&x);
}

#endif
