/* Frames of a process's output, in pieces whose size the first byte chooses: they are the same as
 * in one piece, whatever the bytes are. */
#include <assert.h>
#include <stdlib.h>
#include "tools/bough/frames.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Types and offsets of all frames, and how it ended. */
static int read_all(const uint8_t *p, size_t n, size_t step, struct buf *out)
{
	auto_frames fs = { 0 };
	int r = 0;
	for (size_t at = 0; at < n && r >= 0; at += step) {
		struct frame f;
		size_t len = n - at < step ? n - at : step;
		uint8_t *piece = malloc(len); /* so that reading beyond it is seen */
		if (!piece)
			abort();
		memcpy(piece, p + at, len);
		r = frames_add(&fs, piece, len);
		free(piece);
		while (r >= 0 && (r = frames_next(&fs, &f)) > 0) {
			assert(f.length <= FRAME_MAX_BYTES);
			buf_u8(out, (uint8_t)f.type);
			buf_u64(out, f.offset);
			buf_u32(out, f.length);
			buf_add(out, f.data, f.length);
		}
	}
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_buf whole = { 0 }, pieces = { 0 };
	if (size < 2)
		return 0;
	int a = read_all(data + 1, size - 1, size, &whole);
	int b = read_all(data + 1, size - 1, data[0] % 40 + 1u, &pieces);
	assert(a == b && whole.len == pieces.len);
	assert(!whole.len || memcmp(whole.data, pieces.data, whole.len) == 0);
	return 0;
}
