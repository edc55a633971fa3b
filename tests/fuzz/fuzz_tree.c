/* Tree objects: any bytes give entries that lie inside of them, or an error. */
#include <assert.h>
#include <string.h>
#include "gitops/tree_entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cur c = cur_init(data, size);
	struct tree_entry e, last = { 0 };
	int r;
	while ((r = tree_entry_next(&c, &e)) > 0) {
		assert((const uint8_t *)e.name >= data);
		assert((const uint8_t *)e.name + e.len + 1 + OID_BYTES <= data + size);
		assert(strlen(e.name) == e.len);
		const char *why = tree_name_refused(e.name, e.len, e.mode);
		assert(why || (e.len && !memchr(e.name, '/', e.len) && strcmp(e.name, ".git")));
		if (last.name) {
			int x = tree_entry_order(&last, &e), y = tree_entry_order(&e, &last);
			assert((x < 0) == (y > 0) && (x == 0) == (y == 0));
		}
		last = e;
	}
	assert(r == 0 || r == -EBADMSG);
	return 0;
}
