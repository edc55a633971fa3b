/* Notes of what commits bring (gitops/pack_gain.c): any bytes, of packs with up to 255 objects;
 * what is taken can be gone through. */
#include <assert.h>
#include "gitops/pack_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void go_through(const struct cover *c)
{
	struct gain_record g, same;
	for (size_t at = 0; (at = cover_next(&g, c, at)) > 0;) {
		assert(g.commit < c->n && cover_record(&same, c, g.commit) == 0);
		assert(same.gains == g.gains && same.count == g.count);
		for (uint32_t i = 0; i < g.nparents; i++)
			assert(g.parents[i] < c->n);
		for (uint32_t i = 0; i < g.count; i++)
			assert((g.gains[c->scoped ? 2 * i : i] & GAIN_OBJ) < c->n);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	struct cover c = { .n = data[0], .scoped = data[1] & 1 };
	if (cover_add(&c, data + 2, size - 2) == 0 && cover_index(&c) == 0)
		go_through(&c);
	cover_done(&c);
	return 0;
}
