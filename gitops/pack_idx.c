/* Indexes of packs, version 2. */
#include "gitops/pack_impl.h"

#include <openssl/evp.h>

enum { IDX_VERSION = 2 };
static const uint8_t idx_magic[4] = { 0xff, 't', 'O', 'c' };
#define IDX_BIG 0x80000000U

static bool sha1(uint8_t out[SHA1_BYTES], const void *data, size_t len)
{
	return EVP_Digest(data, len, out, NULL, EVP_sha1(), NULL) == 1;
}

int idx_decode(struct idx_view *out, const void *data, size_t len)
{
	const uint8_t *p = data;
	uint8_t sum[SHA1_BYTES];
	struct idx_view v = { 0 };
	if (len < GIT_IDX_OIDS + GIT_IDX_TRAILER || git_idx_decode(&v.idx, p, len) < 0)
		return -EBADMSG;
	v.n = v.idx.count;
	v.nbig = v.idx.large;
	v.oids = p + GIT_IDX_OIDS;
	v.crcs = v.oids + (size_t)v.n * OID_BYTES;
	v.offs = p + git_idx_offset_at(&v.idx, 0);
	v.bigs = p + git_idx_large_at(&v.idx, 0);
	v.pack_sha = p + len - GIT_IDX_TRAILER;
	if (!sha1(sum, p, len - SHA1_BYTES) ||
	    memcmp(sum, p + len - SHA1_BYTES, SHA1_BYTES) != 0)
		return -EBADMSG;
	for (uint32_t i = 1; i < v.n; i++)
		if (memcmp(v.oids + (size_t)(i - 1) * OID_BYTES, v.oids + (size_t)i * OID_BYTES,
			   OID_BYTES) >= 0)
			return -EBADMSG;
	*out = v;
	return 0;
}

struct sorted {
	struct oid oid;
	struct idx_entry e;
};

static int by_oid(const void *a, const void *b)
{
	return memcmp(a, b, OID_BYTES);
}

/* The entries by id. Numbers are in that order within a pack of the mirror. */
static struct sorted *sort(const struct src *s, struct idx_entry *e, uint32_t n)
{
	struct sorted *v = calloc(n ? n : 1, sizeof(*v));
	bool done = true;
	if (!v)
		return NULL;
	for (uint32_t i = 0; i < n; i++) {
		v[i].e = e[i];
		src_oid(s, e[i].obj, &v[i].oid);
		done = done && (i == 0 || by_oid(&v[i - 1], &v[i]) < 0);
	}
	if (!done)
		qsort(v, n, sizeof(*v), by_oid);
	for (uint32_t i = 0; !done && i < n; i++)
		e[i] = v[i].e;
	return v;
}

static uint8_t *put32(uint8_t *p, uint32_t v)
{
	be_put32(p, v);
	return p + sizeof(v);
}

static uint8_t *put_fanout(uint8_t *p, const struct sorted *v, uint32_t n)
{
	for (unsigned first = 0, i = 0; first < 256; first++) {
		while (i < n && v[i].oid.b[0] <= first)
			i++;
		p = put32(p, i);
	}
	return p;
}

/* All between the head and the pack's checksum; without room for it, nothing, which buf_error
 * tells. */
static void add_tables(struct buf *out, const struct sorted *v, uint32_t n)
{
	uint32_t nbig = 0;
	for (uint32_t i = 0; i < n; i++)
		nbig += v[i].e.at >= IDX_BIG;
	size_t len = 256 * 4 + (size_t)n * (OID_BYTES + 4 + 4) + (size_t)nbig * 8;
	uint8_t *p = buf_room(out, len), *big;
	if (!p)
		return;
	p = put_fanout(p, v, n);
	for (uint32_t i = 0; i < n; i++, p += OID_BYTES)
		memcpy(p, v[i].oid.b, OID_BYTES);
	for (uint32_t i = 0; i < n; i++)
		p = put32(p, v[i].e.crc);
	big = p + (size_t)n * 4;
	nbig = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t at = v[i].e.at;
		p = put32(p, at < IDX_BIG ? (uint32_t)at : IDX_BIG | nbig++);
		if (at >= IDX_BIG)
			big = put32(put32(big, (uint32_t)(at >> 32)), (uint32_t)at);
	}
	out->len += len;
}

int idx_encode(struct buf *out, const struct src *s, struct idx_entry *e, uint32_t n,
	       const uint8_t pack_sha[SHA1_BYTES], struct err *err)
{
	uint8_t sum[SHA1_BYTES], version[4];
	auto_free struct sorted *v = sort(s, e, n);
	if (!v)
		return err_no_memory(err);
	size_t start = out->len;
	buf_add(out, idx_magic, sizeof(idx_magic));
	(void)put32(version, IDX_VERSION);
	buf_add(out, version, sizeof(version));
	add_tables(out, v, n);
	buf_add(out, pack_sha, SHA1_BYTES);
	if (buf_error(out) < 0)
		return err_no_memory(err);
	if (!sha1(sum, out->data + start, out->len - start))
		return err_set(err, -EIO, "SHA-1 isn't there");
	buf_add(out, sum, sizeof(sum));
	return buf_error(out) < 0 ? err_no_memory(err) : 0;
}
