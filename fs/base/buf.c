#include "fs/base/buf.h"

#include <stdarg.h>
#include <stdio.h>

enum { BUF_FIRST = 256 }; /* most frames and messages fit */

uint8_t *buf_room(struct buf *b, size_t n)
{
	size_t need;
	if (b->failed || __builtin_add_overflow(b->len, n, &need))
		goto fail;
	if (need > b->cap || !b->data) { /* of nothing, too, something that can be pointed into */
		size_t cap = b->cap ? b->cap : BUF_FIRST;
		while (cap < need)
			if (__builtin_mul_overflow(cap, 2, &cap))
				goto fail;
		uint8_t *p = realloc(b->data, cap);
		if (!p)
			goto fail;
		b->data = p;
		b->cap = cap;
	}
	return b->data + b->len;
fail:
	b->failed = true;
	return NULL;
}

void buf_add(struct buf *b, const void *data, size_t n)
{
	uint8_t *p = buf_room(b, n);
	if (p && n) {
		memcpy(p, data, n);
		b->len += n;
	}
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap, again;
	va_start(ap, fmt);
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	uint8_t *p = n < 0 ? NULL : buf_room(b, (size_t)n + 1);
	if (p) {
		(void)vsnprintf((char *)p, (size_t)n + 1, fmt, again); /* measured above */
		b->len += (size_t)n;
	} else {
		b->failed = true;
	}
	va_end(again);
}

void buf_done(struct buf *b)
{
	free(b->data);
	*b = (struct buf){ 0 };
}
