/* What the kernel must be told to forget: any bytes give a list or -EBADMSG, and what is decoded
 * encodes to the same bytes. The sum at the end is made right, since no fuzzer guesses it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/hash.h"
#include "fs/work/forget.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct forget_list f;
	struct buf b = { 0 }, again = { 0 };
	uint64_t seq;
	if (forget_list_decode(&f, &seq, data, size) == 0)
		forget_list_done(&f);
	if (size > 1 << 16)
		return 0;
	buf_add(&b, data, size);
	buf_u64(&b, hash_xxh3(data, size, 0));
	if (!b.failed && forget_list_decode(&f, &seq, b.data, b.len) == 0) {
		forget_list_encode(&f, seq, &again);
		if (!again.failed &&
		    (again.len != b.len || memcmp(again.data, b.data, b.len) != 0))
			abort();
		forget_list_done(&f);
	}
	buf_done(&again);
	buf_done(&b);
	return 0;
}
