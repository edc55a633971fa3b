/* What a layer's folder says of a sync that failed: any bytes are some failure. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include "fs/base/buf.h"
#include "fs/base/hash.h"
#include "fs/work/layer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct layer_fault f, again;
	uint8_t b[LAYER_FAULT_BYTES];
	if (size == sizeof(b)) { /* with the checksum that its bytes have */
		memcpy(b, data, size);
		le_put64(b + sizeof(b) - 8, hash_xxh3(b, sizeof(b) - 8, 0));
		data = b;
	}
	layer_fault_decode(&f, data, size);
	assert(f.error < 0 && f.error >= -4095);
	assert(memchr(f.file, '\0', sizeof(f.file)));
	layer_fault_encode(b, &f);
	layer_fault_decode(&again, b, sizeof(b));
	assert(again.error == f.error && again.upto == f.upto && again.good_s == f.good_s);
	assert(strcmp(again.file, f.file) == 0);
	return 0;
}
