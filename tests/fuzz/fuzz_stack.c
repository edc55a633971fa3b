/* Stacks: as they are, and with their check made right. What is taken encodes to the same. */
#include <assert.h>
#include "fs/work/stack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(const uint8_t *data, size_t size)
{
	struct stack s, copy;
	if (stack_decode(&s, data, size) < 0)
		return;
	struct buf b = { 0 };
	assert(stack_copy(&copy, &s) == 0);
	stack_encode(&copy, &b);
	assert(b.len == size && memcmp(b.data, data, size) == 0);
	buf_done(&b);
	stack_done(&s);
	stack_done(&copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	decode(data, size);
	if (size < 8)
		return 0;
	uint8_t *fixed = malloc(size);
	memcpy(fixed, data, size);
	le_put64(fixed + size - 8, hash_xxh3(fixed, size - 8, 0));
	decode(fixed, size);
	free(fixed);
	return 0;
}
