/* What a layer was saved as: any bytes, as they are and with their sum made right, and what is
 * taken encodes to the same. */
#include <assert.h>
#include "fs/work/saved.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(const uint8_t *data, size_t size)
{
	struct stack_layer saved;
	uint8_t boot[BOOT_ID_BYTES];
	if (saved_decode(&saved, boot, data, size) < 0)
		return;
	auto_buf b = { 0 };
	saved_encode(&saved, boot, &b);
	assert(b.len == size && memcmp(b.data, data, size) == 0);
	free(saved.parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	decode(data, size);
	if (size < 8)
		return 0;
	auto_buf fixed = { 0 };
	buf_add(&fixed, data, size - 8);
	buf_u64(&fixed, hash_xxh3(data, size - 8, 0));
	if (buf_error(&fixed) == 0)
		decode(fixed.data, fixed.len);
	return 0;
}
