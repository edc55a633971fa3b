/* meta.json and snapshots' records: any bytes give a row that fits the catalog, or -EBADMSG. */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include "snapd/records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ws_row w;
	struct snap_row s;
	int r = ws_record_decode(&w, data, size);
	if (r >= 0) {
		assert(id_is(w.id, "ws") && name_check(w.name, NULL) == 0);
		assert(!w.head[0] || id_is(w.head, "sn"));
		assert(!w.parent[0] || id_is(w.parent, "ws"));
		ws_row_done(&w);
	} else {
		assert(r == -EBADMSG || r == -ENOMEM);
	}
	r = snap_record_decode(&s, data, size);
	if (r >= 0) {
		assert(id_is(s.id, "sn") && (!s.parent[0] || id_is(s.parent, "sn")));
		snap_row_done(&s);
	} else {
		assert(r == -EBADMSG || r == -ENOMEM);
	}
	return 0;
}
