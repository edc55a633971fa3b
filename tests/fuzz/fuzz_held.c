/* What comes from bough-hold and to it: any bytes give a message or -EBADMSG, as do those that a
 * server has left there of a mount; what is decoded encodes to the same bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fs/hold/hold.h"
#include "fs/mount/held.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hold_msg m;
	struct held h;
	struct buf b = { 0 };
	if (hold_decode(&m, data, size) == 0) {
		hold_encode(&b, m.op, m.key, m.blob, m.len);
		if (!b.failed && (b.len != size || memcmp(b.data, data, size) != 0))
			abort();
	}
	buf_reset(&b);
	if (held_decode(&h, data, size) == 0) {
		held_encode(&h, &b);
		if (!b.failed && (b.len != size || memcmp(b.data, data, size) != 0))
			abort();
	}
	buf_done(&b);
	return 0;
}
