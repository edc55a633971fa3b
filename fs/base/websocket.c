#include "fs/base/websocket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- the handshake ---- */

static uint32_t rotl(uint32_t v, int n)
{
	return v << n | v >> (32 - n);
}

static void sha1_block(uint32_t h[5], const uint8_t *p)
{
	uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
	for (int i = 0; i < 16; i++)
		w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
		       (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
	for (int i = 16; i < 80; i++)
		w[i] = rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
	for (int i = 0; i < 80; i++) {
		uint32_t f = i < 20   ? (b & c) | (~b & d)
			     : i < 40 ? b ^ c ^ d
			     : i < 60 ? (b & c) | (b & d) | (c & d)
				      : b ^ c ^ d;
		static const uint32_t k[] = { 0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6 };
		uint32_t t = rotl(a, 5) + f + e + k[i / 20] + w[i];
		e = d;
		d = c;
		c = rotl(b, 30);
		b = a;
		a = t;
	}
	h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
}

/* Of less than 120 bytes. It proves nothing here but that the peer knows this protocol (RFC 6455
 * 1.3), so it isn't worth a library that the command line would have to load. */
static void sha1_short(const char *s, size_t n, uint8_t out[20])
{
	uint32_t h[5] = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 };
	uint8_t m[128] = { 0 };
	size_t blocks = n + 9 > 64 ? 2 : 1;
	memcpy(m, s, n);
	m[n] = 0x80;
	m[64 * blocks - 2] = (uint8_t)(8 * n >> 8);
	m[64 * blocks - 1] = (uint8_t)(8 * n);
	for (size_t i = 0; i < blocks; i++)
		sha1_block(h, m + 64 * i);
	for (int i = 0; i < 20; i++)
		out[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
}

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void ws_accept(const char *key, char out[WS_ACCEPT_SIZE])
{
	char text[WS_KEY_CHARS + 36 + 1];
	uint8_t sum[21] = { 0 };
	int n = snprintf(text, sizeof(text), "%.*s258EAFA5-E914-47DA-95CA-C5AB0DC85B11",
			 WS_KEY_CHARS, key);
	sha1_short(text, (size_t)n, sum);
	for (int i = 0; i < 7; i++) {
		uint32_t v = (uint32_t)sum[3 * i] << 16 | (uint32_t)sum[3 * i + 1] << 8 |
			     sum[3 * i + 2];
		for (int j = 0; j < 4; j++)
			out[4 * i + j] = digits[v >> (18 - 6 * j) & 63];
	}
	out[27] = '='; /* 20 bytes are one short of seven threes */
	out[28] = '\0';
}

bool ws_key_is(const char *key)
{
	if (strlen(key) != WS_KEY_CHARS || strcmp(key + WS_KEY_CHARS - 2, "==") != 0)
		return false;
	return strspn(key, digits) == WS_KEY_CHARS - 2 &&
	       ((strchr(digits, key[WS_KEY_CHARS - 3]) - digits) & 15) == 0;
}

/* ---- writing ---- */

size_t ws_put_head(uint8_t out[WS_HEAD_MAX], enum ws_op op, uint64_t len, const uint8_t mask[4])
{
	size_t n = 2;
	int wide = len < 126 ? 0 : len < 65536 ? 2 : 8;
	out[0] = (uint8_t)(0x80 | op);
	out[1] = (uint8_t)((mask ? 0x80 : 0) | (wide == 0 ? (int)len : wide == 2 ? 126 : 127));
	for (int i = wide - 1; i >= 0; i--)
		out[n++] = (uint8_t)(len >> (8 * i));
	if (mask) {
		memcpy(out + n, mask, 4);
		n += 4;
	}
	return n;
}

void ws_mask(uint8_t *data, size_t n, const uint8_t mask[4], size_t at)
{
	for (size_t i = 0; i < n; i++)
		data[i] ^= mask[(at + i) & 3];
}

size_t ws_put_close(uint8_t out[WS_CONTROL_MAX], unsigned code, const char *reason)
{
	size_t n = strlen(reason);
	if (n > WS_CONTROL_MAX - 2)
		n = WS_CONTROL_MAX - 2;
	while (n > 0 && ((uint8_t)reason[n] & 0xc0) == 0x80) /* not within a character */
		n--;
	out[0] = (uint8_t)(code >> 8);
	out[1] = (uint8_t)code;
	memcpy(out + 2, reason, n);
	return 2 + n;
}

/* ---- reading ---- */

static int fail(struct ws_reader *w, enum ws_close_code code)
{
	w->fault = code;
	w->closed = true;
	return -EPROTO;
}

/* Shortest forms only, no surrogates, nothing above U+10FFFF (RFC 3629). */
static bool is_utf8(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n;) {
		uint8_t c = p[i++];
		unsigned more = c < 0x80 ? 0 : c < 0xc2 ? 9 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
		if (more > 3 || c > 0xf4 || more > n - i)
			return false;
		if ((c == 0xe0 && p[i] < 0xa0) || (c == 0xed && p[i] > 0x9f) ||
		    (c == 0xf0 && p[i] < 0x90) || (c == 0xf4 && p[i] > 0x8f))
			return false;
		for (; more > 0; more--)
			if ((p[i++] & 0xc0) != 0x80)
				return false;
	}
	return true;
}

/* What may be said (7.4): defined codes that may stand in a frame, registered and private ones. */
static bool is_code(unsigned c)
{
	return (c >= 1000 && c <= 1014 && c != 1004 && c != 1005 && c != 1006) ||
	       (c >= 3000 && c <= 4999);
}

static bool is_control(unsigned op)
{
	return op & 8;
}

static unsigned head_length(const struct ws_reader *w)
{
	unsigned n = w->head[1] & 0x7f;
	return 2 + (n == 126 ? 2 : n == 127 ? 8 : 0) + (w->masked ? 4 : 0);
}

static int check_first(struct ws_reader *w)
{
	unsigned op = w->head[0] & 15;
	bool fin = w->head[0] & 0x80;
	unsigned len = w->head[1] & 0x7f;
	if ((w->head[0] & 0x70) || ((w->head[1] & 0x80) != 0) != w->masked)
		return fail(w, WS_CLOSE_PROTOCOL);
	if (op != WS_MORE && op != WS_TEXT && op != WS_BINARY && op != WS_CLOSE && op != WS_PING &&
	    op != WS_PONG)
		return fail(w, WS_CLOSE_PROTOCOL);
	if (is_control(op) && (!fin || len > WS_CONTROL_MAX))
		return fail(w, WS_CLOSE_PROTOCOL);
	if (!is_control(op) && (op == WS_MORE) != (w->message != 0))
		return fail(w, WS_CLOSE_PROTOCOL);
	return 0;
}

static int begin_frame(struct ws_reader *w)
{
	unsigned len = w->head[1] & 0x7f, at = 2, wide = len == 126 ? 2 : len == 127 ? 8 : 0;
	uint64_t n = wide ? 0 : len;
	for (unsigned i = 0; i < wide; i++)
		n = n << 8 | w->head[at++];
	if ((wide == 2 && n < 126) || (wide == 8 && (n < 65536 || n >> 63)))
		return fail(w, WS_CLOSE_PROTOCOL);
	memset(w->mask, 0, sizeof(w->mask));
	if (w->masked)
		memcpy(w->mask, w->head + at, 4);
	w->op = w->head[0] & 15;
	w->fin = w->head[0] & 0x80;
	w->left = n;
	w->mask_at = 0;
	w->ncontrol = 0;
	w->nhead = 0;
	w->in_frame = true;
	if (is_control(w->op))
		return 0;
	if (w->op != WS_MORE) {
		w->message = w->op;
		w->ntext = 0;
		w->fragments = 0;
	}
	if (w->message == WS_BINARY)
		return n > WS_FRAME_MAX ? fail(w, WS_CLOSE_LARGE) : 0;
	if (n > WS_TEXT_MAX - w->ntext || ++w->fragments > WS_FRAGMENTS_MAX)
		return fail(w, WS_CLOSE_LARGE);
	return 0;
}

/* Takes bytes of a head: 1 when it is whole. */
static int take_head(struct ws_reader *w, const uint8_t **p, size_t *n)
{
	while (*n > 0) {
		w->head[w->nhead++] = **p;
		(*p)++, (*n)--;
		int r = w->nhead == 2 ? check_first(w) : 0;
		if (r == 0 && w->nhead >= 2 && w->nhead == head_length(w)) {
			r = begin_frame(w);
			return r < 0 ? r : 1;
		}
		if (r < 0)
			return r;
	}
	return 0;
}

/* Payload as it is meant, at most `max` bytes of it, copied to `to`. */
static size_t take_payload(struct ws_reader *w, const uint8_t **p, size_t *n, uint8_t *to,
			   size_t max)
{
	size_t k = *n < max ? *n : max;
	if (k > w->left)
		k = (size_t)w->left;
	memcpy(to, *p, k);
	if (w->masked)
		ws_mask(to, k, w->mask, w->mask_at);
	w->mask_at = (w->mask_at + (unsigned)(k & 3)) & 3;
	w->left -= k;
	*p += k;
	*n -= k;
	return k;
}

static int end_control(struct ws_reader *w, struct ws_event *out)
{
	w->in_frame = false;
	*out = (struct ws_event){ .op = w->op, .data = w->control, .len = w->ncontrol };
	if (w->op != WS_CLOSE)
		return 1;
	out->code = WS_CLOSE_NONE;
	if (out->len == 1)
		return fail(w, WS_CLOSE_PROTOCOL);
	if (out->len >= 2) {
		out->code = (unsigned)(w->control[0] << 8 | w->control[1]);
		out->data += 2;
		out->len -= 2;
		if (!is_code(out->code))
			return fail(w, WS_CLOSE_PROTOCOL);
		if (!is_utf8(out->data, out->len))
			return fail(w, WS_CLOSE_TEXT);
	}
	w->closed = true;
	return 1;
}

static int end_data(struct ws_reader *w)
{
	w->in_frame = false;
	if (w->fin)
		w->message = 0;
	return w->fin;
}

static int take_binary(struct ws_reader *w, const uint8_t **p, size_t *n, struct ws_event *out)
{
	size_t k = take_payload(w, p, n, w->piece, sizeof(w->piece));
	bool last = w->left == 0 && end_data(w);
	if (k == 0 && !last)
		return 0;
	*out = (struct ws_event){ .op = WS_BINARY, .data = w->piece, .len = k, .last = last };
	return 1;
}

static int take_text(struct ws_reader *w, const uint8_t **p, size_t *n, struct ws_event *out)
{
	w->ntext += take_payload(w, p, n, w->text + w->ntext, WS_TEXT_MAX - w->ntext);
	if (w->left > 0 || !end_data(w))
		return 0;
	*out = (struct ws_event){ .op = WS_TEXT, .data = w->text, .len = w->ntext, .last = true };
	return is_utf8(w->text, w->ntext) ? 1 : fail(w, WS_CLOSE_TEXT);
}

int ws_next(struct ws_reader *w, const uint8_t **p, size_t *n, struct ws_event *out)
{
	while (!w->closed) {
		int r = w->in_frame ? 1 : take_head(w, p, n);
		if (r <= 0)
			return r;
		if (is_control(w->op)) {
			w->ncontrol += take_payload(w, p, n, w->control + w->ncontrol,
						    sizeof(w->control) - w->ncontrol);
			return w->left == 0 ? end_control(w, out) : 0;
		}
		r = w->message == WS_TEXT ? take_text(w, p, n, out) : take_binary(w, p, n, out);
		if (r != 0 || *n == 0)
			return r;
	}
	return w->fault ? -EPROTO : 0;
}
