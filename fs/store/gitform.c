#include "fs/store/gitform.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ---- entries ---- */

/* 4 bits beside the type, then 7 in each byte, least significant first. */
static int size_decode(struct git_entry *e, const uint8_t *p, size_t len)
{
	size_t i = 0;
	if (len == 0)
		return -EBADMSG;
	uint8_t b = p[i++];
	e->type = b >> 4 & 7;
	e->size = b & 15;
	for (unsigned shift = 4; b & 0x80; shift += 7) {
		if (i == len || shift >= 64)
			return -EBADMSG;
		b = p[i++];
		uint64_t bits = b & 0x7f;
		if (bits << shift >> shift != bits)
			return -EBADMSG;
		e->size |= bits << shift;
	}
	return (int)i;
}

/* 7 bits in each byte, most significant first, each continuation worth one more. */
static int back_decode(uint64_t *back, const uint8_t *p, size_t len)
{
	uint64_t v = 0;
	for (size_t i = 0; i < len && i < 10; i++) {
		v |= p[i] & 0x7f;
		if (!(p[i] & 0x80)) {
			*back = v;
			return v ? (int)i + 1 : -EBADMSG; /* no object is its own base */
		}
		if (v >= UINT64_MAX >> 7)
			return -EBADMSG;
		v = (v + 1) << 7;
	}
	return -EBADMSG;
}

int git_entry_decode(struct git_entry *out, const uint8_t *p, size_t len)
{
	struct git_entry e = { 0 };
	int n = size_decode(&e, p, len), m = 0;
	if (n < 0)
		return n;
	switch (e.type) {
	case GIT_COMMIT:
	case GIT_TREE:
	case GIT_BLOB:
	case GIT_TAG:
		break;
	case GIT_OFS_DELTA:
		m = back_decode(&e.back, p + n, len - (size_t)n);
		break;
	case GIT_REF_DELTA:
		m = len - (size_t)n < OID_BYTES ? -EBADMSG : OID_BYTES;
		if (m > 0)
			memcpy(e.base.b, p + n, OID_BYTES);
		break;
	default:
		return -EBADMSG;
	}
	if (m < 0)
		return m;
	e.head = (uint8_t)(n + m);
	*out = e;
	return 0;
}

int git_pack_head_decode(uint32_t *count, const uint8_t p[GIT_PACK_HEAD])
{
	uint32_t version = be_get32(p + 4);
	if (memcmp(p, "PACK", 4) != 0 || (version != 2 && version != 3))
		return -EBADMSG;
	*count = be_get32(p + 8);
	return 0;
}

/* ---- deltas ---- */

static bool varint(const uint8_t **p, const uint8_t *end, uint64_t *out)
{
	uint64_t v = 0;
	for (unsigned shift = 0; *p < end && shift < 64; shift += 7) {
		uint8_t b = *(*p)++;
		uint64_t bits = b & 0x7f;
		if (bits << shift >> shift != bits)
			return false;
		v |= bits << shift;
		if (!(b & 0x80)) {
			*out = v;
			return true;
		}
	}
	return false;
}

int git_delta_sizes(const uint8_t *delta, size_t len, uint64_t *base, uint64_t *result)
{
	const uint8_t *p = delta, *end = delta + len;
	uint64_t b, r;
	if (!varint(&p, end, &b) || !varint(&p, end, &r))
		return -EBADMSG;
	*base = b;
	*result = r;
	return (int)(p - delta);
}

/* One instruction: `n` bytes from the base at `off`, or from the delta itself. */
struct instruction {
	bool copy;
	uint32_t off, n;
};

/* The place of each byte of a copy that is there, by the low bits of its opcode. The end of the
 * instruction's head, or NULL. */
static inline const uint8_t *instruction_decode(struct instruction *in, const uint8_t *p,
						const uint8_t *end)
{
	uint8_t op = *p++;
	if (!(op & 0x80)) {
		*in = (struct instruction){ .n = op };
		return op ? p : NULL; /* 0 is reserved */
	}
	if (end - p < 7 && end - p < __builtin_popcount(op & 0x7f))
		return NULL;
	uint32_t off = 0, n = 0;
	for (unsigned i = 0; i < 4; i++)
		if (op & 1 << i)
			off |= (uint32_t)*p++ << 8 * i;
	for (unsigned i = 0; i < 3; i++)
		if (op & 0x10 << i)
			n |= (uint32_t)*p++ << 8 * i;
	*in = (struct instruction){ .copy = true, .off = off, .n = n ? n : 0x10000 };
	return p;
}

int git_delta_check(const uint8_t *delta, size_t len, uint64_t base, uint64_t *result)
{
	uint64_t said_base, said, made = 0;
	int head = git_delta_sizes(delta, len, &said_base, &said);
	if (head < 0 || said_base != base)
		return -EBADMSG;
	const uint8_t *p = delta + head, *end = delta + len;
	while (p < end) {
		struct instruction in;
		p = instruction_decode(&in, p, end);
		if (!p || said - made < in.n)
			return -EBADMSG;
		if (in.copy) {
			if (in.off > base || base - in.off < in.n)
				return -EBADMSG;
		} else {
			if ((size_t)(end - p) < in.n)
				return -EBADMSG;
			p += in.n;
		}
		made += in.n;
	}
	if (made != said)
		return -EBADMSG;
	*result = said;
	return 0;
}

void git_delta_apply(const uint8_t *delta, size_t len, const uint8_t *base, uint8_t *out)
{
	uint64_t b, r;
	int head = git_delta_sizes(delta, len, &b, &r);
	assert(head > 0);
	const uint8_t *p = delta + head, *end = delta + len;
	while (p < end) {
		struct instruction in;
		p = instruction_decode(&in, p, end);
		assert(p);
		memcpy(out, in.copy ? base + in.off : p, in.n);
		out += in.n;
		if (!in.copy)
			p += in.n;
	}
}

/* ---- indexes ---- */

static const uint8_t idx_magic[8] = { 0xff, 't', 'O', 'c', 0, 0, 0, 2 };

int git_idx_decode(struct git_idx *out, const uint8_t head[GIT_IDX_OIDS], uint64_t bytes)
{
	if (memcmp(head, idx_magic, sizeof(idx_magic)) != 0)
		return -EBADMSG;
	struct git_idx x;
	for (unsigned i = 0; i < 256; i++) {
		x.fanout[i] = be_get32(head + sizeof(idx_magic) + (size_t)4 * i);
		if (i && x.fanout[i] < x.fanout[i - 1])
			return -EBADMSG;
	}
	x.count = x.fanout[255];
	uint64_t fixed = git_idx_large_at(&x, 0) + GIT_IDX_TRAILER;
	if (bytes < fixed || (bytes - fixed) % 8 != 0 || (bytes - fixed) / 8 > x.count)
		return -EBADMSG;
	x.large = (uint32_t)((bytes - fixed) / 8);
	*out = x;
	return 0;
}

enum git_search git_idx_search(const uint8_t *oids, uint32_t n, const struct oid *oid, uint32_t *at)
{
	uint32_t lo = 0, hi = n;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		int c = memcmp(oid->b, oids + (size_t)OID_BYTES * mid, OID_BYTES);
		if (c == 0) {
			*at = mid;
			return GIT_FOUND;
		}
		if (c < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo == 0 ? GIT_BEFORE : lo == n ? GIT_BEHIND : GIT_ABSENT;
}

/* ---- loose objects ---- */

static const char *const type_names[] = { NULL, "commit", "tree", "blob", "tag" };

const char *git_type_name(enum git_type type)
{
	assert(type >= GIT_COMMIT && type <= GIT_TAG);
	return type_names[type];
}

size_t git_head_encode(char out[GIT_LOOSE_HEAD_MAX], enum git_type type, uint64_t size)
{
	return (size_t)snprintf(out, GIT_LOOSE_HEAD_MAX, "%s %llu", git_type_name(type),
				(unsigned long long)size) +
	       1;
}

int git_loose_head(const uint8_t *p, size_t len, enum git_type *type, uint64_t *size)
{
	const uint8_t *nul = memchr(p, 0, len < GIT_LOOSE_HEAD_MAX ? len : GIT_LOOSE_HEAD_MAX);
	if (!nul)
		return -EBADMSG;
	for (enum git_type t = GIT_COMMIT; t <= GIT_TAG; t++) {
		size_t n = strlen(type_names[t]);
		if ((size_t)(nul - p) < n + 2 || memcmp(p, type_names[t], n) != 0 || p[n] != ' ')
			continue;
		const uint8_t *q = p + n + 1;
		uint64_t v = 0;
		if (*q == '0' && q + 1 < nul)
			return -EBADMSG; /* no leading zeros */
		for (; q < nul; q++)
			if (*q < '0' || *q > '9' || __builtin_mul_overflow(v, 10, &v) ||
			    __builtin_add_overflow(v, (uint64_t)(*q - '0'), &v))
				return -EBADMSG;
		*type = t;
		*size = v;
		return (int)(nul - p) + 1;
	}
	return -EBADMSG;
}
