/* Requests of the control protocol: any bytes give a request in which all promises of
 * ctl_msg.h hold, or an error with a text. */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include "fs/mount/ctl_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ctl_request q;
	struct err err = { 0 };
	int r = ctl_parse(data, size, &q, &err);
	if (r < 0) {
		assert((r == -EINVAL || r == -ENOMEM) && err.code == r && err.text[0]);
		return 0;
	}
	assert(q.op < CTL_OPS);
	if (q.id)
		assert(strlen(q.id) >= 1 && strlen(q.id) <= WS_ID_MAX);
	if (q.path)
		assert(q.path[0] == '/');
	assert(q.nchildren <= CTL_CHILDREN_MAX);
	for (unsigned i = 0; i < q.nchildren; i++)
		assert(q.children[i].id);
	for (size_t i = 0; i < q.nknown; i++)
		assert(ctl_knows(&q, q.known[i]));
	ctl_request_done(&q);
	return 0;
}
