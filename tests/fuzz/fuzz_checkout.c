/* What is remembered of a checkout: any bytes, as they are and with their sum made right, and what
 * is taken encodes to the same. */
#include <assert.h>
#include "gitops/checkout_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(const uint8_t *data, size_t size)
{
	struct co_record r;
	auto_buf b = { 0 };
	if (co_record_decode(&r, data, size) < 0)
		return;
	co_record_encode(&r, &b);
	assert(b.len == size && memcmp(b.data, data, size) == 0);
	co_record_done(&r);
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
