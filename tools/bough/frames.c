#include "tools/bough/frames.h"

static uint64_t big_endian(const uint8_t *p, unsigned n)
{
	uint64_t v = 0;
	while (n-- > 0)
		v = v << 8 | *p++;
	return v;
}

int frames_add(struct frames *f, const void *data, size_t n)
{
	/* What was read goes first, so that it holds one frame and one piece at most. */
	if (f->pos > 0) {
		memmove(f->in.data, f->in.data + f->pos, f->in.len - f->pos);
		f->in.len -= f->pos;
		f->pos = 0;
	}
	buf_add(&f->in, data, n);
	return buf_error(&f->in);
}

int frames_next(struct frames *f, struct frame *out)
{
	size_t left = f->in.len - f->pos;
	if (left < FRAME_HEAD)
		return 0;
	const uint8_t *p = f->in.data + f->pos;
	uint32_t length = (uint32_t)big_endian(p + 4, 4);
	if (p[0] == 0 || p[1] || p[2] || p[3] || length > FRAME_MAX_BYTES)
		return -EBADMSG;
	if (left - FRAME_HEAD < length)
		return 0;
	*out = (struct frame){ .type = p[0],
			       .length = length,
			       .offset = big_endian(p + 8, 8),
			       .data = p + FRAME_HEAD };
	f->pos += FRAME_HEAD + length;
	return 1;
}
