#include "runtime/io_msg.h"
#include <ctype.h>
#include <errno.h>
#include <string.h>

bool io_good_key(const char *key)
{
	size_t n = strnlen(key, OUTPUT_KEY_MAX + 1);
	if (n == 0 || n > OUTPUT_KEY_MAX || *key == '.')
		return false;
	for (; *key; key++)
		if (!isalnum((unsigned char)*key) && !strchr("._-", *key))
			return false;
	return true;
}

void io_encode(struct buf *out, const struct io_msg *m)
{
	size_t n = strlen(m->key);
	buf_u8(out, (uint8_t)m->op);
	buf_u8(out, (uint8_t)n);
	buf_add(out, m->key, n);
	buf_u64(out, m->limit);
	buf_u64(out, m->offset);
	buf_u32(out, m->flags);
	buf_u32(out, m->uid);
	buf_u32(out, m->gid);
	buf_add(out, m->data, m->len);
}

int io_decode(struct io_msg *out, const void *data, size_t len)
{
	struct cur c = cur_init(data, len);
	struct io_msg m = { .op = cur_u8(&c) };
	if (m.op >= IO_OPS)
		return -EOPNOTSUPP;
	size_t n = cur_u8(&c);
	const uint8_t *key = cur_take(&c, n);
	if (!key || n > OUTPUT_KEY_MAX || memchr(key, '\0', n))
		return -EBADMSG;
	memcpy(m.key, key, n);
	m.limit = cur_u64(&c);
	m.offset = cur_u64(&c);
	m.flags = cur_u32(&c);
	m.uid = cur_u32(&c);
	m.gid = cur_u32(&c);
	m.data = c.p;
	m.len = cur_left(&c);
	bool keyed = m.op != IO_PING && m.op != IO_STOP;
	if (c.bad || m.op < IO_PING || keyed != (n > 0) ||
	    (keyed && !io_good_key(m.key)) || m.len > (m.op == IO_WRITE ? IO_WRITE_MAX : 0))
		return -EBADMSG;
	*out = m;
	return 0;
}

void io_encode_answer(struct buf *out, int64_t result)
{
	buf_u64(out, (uint64_t)result);
}

int io_decode_answer(int64_t *result, const void *data, size_t len)
{
	struct cur c = cur_init(data, len);
	int64_t v = (int64_t)cur_u64(&c);
	if (c.bad || cur_left(&c) || v < -4095)
		return -EBADMSG;
	*result = v;
	return 0;
}
