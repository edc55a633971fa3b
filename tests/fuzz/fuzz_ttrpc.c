/* What a shim says: any bytes are a response, a header or a start that is understood, or -EBADMSG;
 * nothing is read behind their end. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/shim_int.h"
#include "runtime/ttrpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf reply = { 0 };
	struct err err = { 0 };
	struct shim s = { 0 };
	int r = ttrpc_decode(data, size, &reply, &err);
	if ((r < 0) != (err.code < 0) || r > 0 || reply.len > size)
		abort();
	if (size >= TTRPC_HEADER && ttrpc_header(data) > TTRPC_MAX)
		abort();
	if (shim_parse_start(&s, data, size, NULL) == 0 &&
	    (strncmp(s.address, "unix:///", 8) != 0 || s.version < 2 || s.version > 3))
		abort();
	buf_done(&reply);
	return 0;
}
