/* The head of a file of kept output, and the messages of bough-io: any bytes are understood or
 * -EBADMSG, and what is understood encodes to the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/io_msg.h"
#include "runtime/kept.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* As a file would be: with the checksum that its bytes have. */
static void head(const uint8_t *data)
{
	uint8_t again[KEPT_HEAD];
	struct kept k, back;
	if (kept_decode(&k, data) < 0)
		return;
	for (int i = 0; i < 2; i++)
		if (k.stream[i].end - k.stream[i].first > k.cap || k.cap > KEPT_CAP_MAX)
			abort();
	kept_encode(again, &k);
	if (memcmp(again, data, KEPT_HEAD) != 0 || kept_decode(&back, again) < 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct io_msg m;
	struct buf b = { 0 };
	int64_t result;
	if (size == KEPT_HEAD)
		head(data);
	if (io_decode(&m, data, size) == 0) {
		io_encode(&b, &m);
		if (!b.failed && (b.len != size || memcmp(b.data, data, size) != 0))
			abort();
	}
	buf_reset(&b);
	if (io_decode_answer(&result, data, size) == 0) {
		io_encode_answer(&b, result);
		if (!b.failed && (b.len != size || memcmp(b.data, data, size) != 0))
			abort();
	}
	buf_done(&b);
	return 0;
}
