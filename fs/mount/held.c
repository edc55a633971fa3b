#include "fs/mount/held.h"

#include <string.h>

enum { VERSION = 1 };

static void put_text(struct buf *out, const char *s)
{
	size_t n = strlen(s);
	buf_u16(out, (uint16_t)n);
	buf_add(out, s, n);
}

void held_encode(const struct held *h, struct buf *out)
{
	buf_u32(out, VERSION);
	buf_u64(out, h->dev);
	buf_u64(out, h->mask);
	buf_u64(out, h->want);
	buf_u16(out, (uint16_t)h->init_len);
	buf_add(out, h->init, h->init_len);
	put_text(out, h->id);
	put_text(out, h->path);
}

static void get_text(struct cur *c, char *out, size_t size)
{
	size_t n = cur_u16(c);
	const uint8_t *p = n > 0 && n < size ? cur_take(c, n) : NULL;
	if (!p || memchr(p, '\0', n)) {
		cur_fail(c);
		return;
	}
	memcpy(out, p, n);
	out[n] = '\0';
}

int held_decode(struct held *out, const void *data, size_t len)
{
	struct cur c = cur_init(data, len);
	struct held h = { 0 };
	if (cur_u32(&c) != VERSION)
		return -EBADMSG;
	h.dev = cur_u64(&c);
	h.mask = cur_u64(&c);
	h.want = cur_u64(&c);
	h.init_len = cur_u16(&c);
	const uint8_t *init = h.init_len <= sizeof(h.init) ? cur_take(&c, h.init_len) : NULL;
	if (!init)
		return -EBADMSG;
	memcpy(h.init, init, h.init_len);
	get_text(&c, h.id, sizeof(h.id));
	get_text(&c, h.path, sizeof(h.path));
	if (c.bad || cur_left(&c) > 0 || h.path[0] != '/')
		return -EBADMSG;
	*out = h;
	return 0;
}
