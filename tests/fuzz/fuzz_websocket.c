/* WebSocket frames, in pieces whose size the first byte chooses: the events are the same as in one
 * piece, whatever the bytes are. Its lowest bit says whether they are a client's. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include "fs/base/buf.h"
#include "fs/base/websocket.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* All that was read, and how it ended. */
static int read_all(bool masked, const uint8_t *p, size_t n, size_t step, struct buf *out)
{
	struct ws_reader *w = calloc(1, sizeof(*w));
	int r = 0;
	if (!w)
		abort();
	w->masked = masked;
	for (size_t at = 0; at < n && r >= 0 && !w->closed; at += step) {
		struct ws_event ev;
		size_t left = n - at < step ? n - at : step;
		uint8_t *piece = malloc(left); /* so that reading beyond it is seen */
		if (!piece)
			abort();
		memcpy(piece, p + at, left);
		const uint8_t *q = piece;
		while ((r = ws_next(w, &q, &left, &ev)) > 0) {
			assert(ev.op == WS_BINARY ? ev.len <= WS_PIECE : ev.len <= WS_TEXT_MAX);
			buf_add(out, ev.data, ev.len);
			if (ev.op != WS_BINARY || ev.last)
				buf_u8(out, (uint8_t)ev.op);
			if (ev.op == WS_CLOSE)
				buf_u32(out, ev.code);
		}
		assert(r < 0 || left == 0 || w->closed);
		free(piece);
	}
	buf_u32(out, w->fault);
	free(w);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_buf whole = { 0 }, pieces = { 0 };
	if (size < 2)
		return 0;
	bool masked = data[0] & 1;
	int a = read_all(masked, data + 1, size - 1, size, &whole);
	int b = read_all(masked, data + 1, size - 1, (data[0] >> 1) % 40 + 1u, &pieces);
	assert((a < 0) == (b < 0) && whole.len == pieces.len);
	assert(memcmp(whole.data, pieces.data, whole.len) == 0);
	return 0;
}
