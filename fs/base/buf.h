/* Growable byte buffer, and bounded little-endian encoding and decoding.
 *
 * Encoding: buf_* append to a struct buf and never fail at once; an allocation
 * that fails is remembered, and buf_error() tells before the bytes are used.
 * Decoding: cur_* read from a struct cur; a read past the end gives zero and is
 * remembered in cur.bad, so that a decoder checks once, at its end. */
#ifndef BOUGH_BASE_BUF_H
#define BOUGH_BASE_BUF_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct buf {
	uint8_t *data; /* NULL while empty */
	size_t len, cap;
	bool failed; /* an allocation failed; the contents are incomplete */
};

/* Room for n more bytes at the end, not yet counted in len; NULL when out of memory. */
uint8_t *buf_room(struct buf *b, size_t n);
void buf_add(struct buf *b, const void *data, size_t n);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_done(struct buf *b); /* frees; the buffer is empty and usable again */

static inline int buf_error(const struct buf *b)
{
	return b->failed ? -ENOMEM : 0;
}

static inline void buf_reset(struct buf *b) /* empties, keeps the memory */
{
	b->len = 0;
	b->failed = false;
}

#define auto_buf __attribute__((cleanup(buf_done))) struct buf

static inline void le_put16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)v, p[1] = (uint8_t)(v >> 8);
}
static inline void le_put32(uint8_t *p, uint32_t v)
{
	le_put16(p, (uint16_t)v), le_put16(p + 2, (uint16_t)(v >> 16));
}
static inline void le_put64(uint8_t *p, uint64_t v)
{
	le_put32(p, (uint32_t)v), le_put32(p + 4, (uint32_t)(v >> 32));
}
static inline uint16_t le_get16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}
static inline uint32_t le_get32(const uint8_t *p)
{
	return le_get16(p) | (uint32_t)le_get16(p + 2) << 16;
}
static inline uint64_t le_get64(const uint8_t *p)
{
	return le_get32(p) | (uint64_t)le_get32(p + 4) << 32;
}

static inline void buf_u8(struct buf *b, uint8_t v)
{
	buf_add(b, &v, 1);
}
static inline void buf_u16(struct buf *b, uint16_t v)
{
	uint8_t t[2];
	le_put16(t, v);
	buf_add(b, t, sizeof(t));
}
static inline void buf_u32(struct buf *b, uint32_t v)
{
	uint8_t t[4];
	le_put32(t, v);
	buf_add(b, t, sizeof(t));
}
static inline void buf_u64(struct buf *b, uint64_t v)
{
	uint8_t t[8];
	le_put64(t, v);
	buf_add(b, t, sizeof(t));
}

struct cur {
	const uint8_t *p, *end;
	bool bad; /* something was read past the end, or cur_fail was called */
};

static inline struct cur cur_init(const void *data, size_t len)
{
	const uint8_t *p = data;
	return (struct cur){ p, len ? p + len : p, false };
}
static inline size_t cur_left(const struct cur *c)
{
	return (size_t)(c->end - c->p);
}
/* n bytes, borrowed from the input; NULL (and bad) where fewer are left. */
static inline const uint8_t *cur_take(struct cur *c, size_t n)
{
	if (c->bad || cur_left(c) < n) {
		c->bad = true;
		return NULL;
	}
	const uint8_t *p = c->p;
	c->p += n;
	return p;
}
static inline uint8_t cur_u8(struct cur *c)
{
	const uint8_t *p = cur_take(c, 1);
	return p ? *p : 0;
}
static inline uint16_t cur_u16(struct cur *c)
{
	const uint8_t *p = cur_take(c, 2);
	return p ? le_get16(p) : 0;
}
static inline uint32_t cur_u32(struct cur *c)
{
	const uint8_t *p = cur_take(c, 4);
	return p ? le_get32(p) : 0;
}
static inline uint64_t cur_u64(struct cur *c)
{
	const uint8_t *p = cur_take(c, 8);
	return p ? le_get64(p) : 0;
}
static inline void cur_fail(struct cur *c)
{
	c->bad = true;
}

#endif
