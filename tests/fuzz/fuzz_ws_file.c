/* The file of a workspace: any bytes give a file or -EBADMSG, and what is decoded encodes to
 * the same bytes. The sum at the end is made right first, since no fuzzer guesses it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fs/work/ws_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ws_file f, copy;
	struct buf b = { 0 };
	if (ws_file_decode(&f, data, size) == 0)
		ws_file_done(&f);
	if (size < 8 || size > 1 << 16)
		return 0;
	buf_add(&b, data, size - 8);
	buf_u64(&b, hash_xxh3(data, size - 8, 0));
	if (!b.failed && ws_file_decode(&f, b.data, b.len) == 0) {
		struct buf again = { 0 };
		if (ws_file_copy(&copy, &f) == 0) {
			ws_file_encode(&copy, &again);
			if (!again.failed &&
			    (again.len != b.len || memcmp(again.data, b.data, b.len) != 0))
				abort();
			ws_file_done(&copy);
		}
		buf_done(&again);
		ws_file_done(&f);
	}
	buf_done(&b);
	return 0;
}
