/* packed-refs of somebody's repository: any bytes give a sorted list of good names without
 * doubles, which is written and read back the same, or -EBADMSG; and two such lists merge
 * into one. */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "gitops/refs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool descends(void *ctx, const struct oid *now, const struct oid *was)
{
	return memcmp(now, was, sizeof(*now)) > 0;
}

static int loose(void *ctx, const char *name, struct oid *out)
{
	size_t n = strlen(name);
	memset(out, (int)n, sizeof(*out));
	return n % 3 == 0;
}

static void check(const struct refs *r)
{
	for (size_t i = 0; i < r->n; i++) {
		assert(ref_name_ok(r->v[i].name));
		assert(i == 0 || strcmp(r->v[i - 1].name, r->v[i].name) < 0);
		assert(refs_find(r, r->v[i].name) == &r->v[i]);
	}
}

static void write_back(const struct refs *r)
{
	struct refs again = { 0 };
	struct buf b = { 0 };
	packed_refs_write(&b, r);
	if (!buf_error(&b)) {
		int e = packed_refs_parse(&again, b.data, b.len);
		assert(e == -ENOMEM || (e == 0 && again.n == r->n));
	}
	refs_done(&again);
	buf_done(&b);
}

/* Those of the list that the other side may send. */
static int theirs_of(struct refs *out, const struct refs *all)
{
	for (size_t i = 0; i < all->n; i++) {
		const char *name = all->v[i].name;
		if ((strncmp(name, REFS_ORIGIN, strlen(REFS_ORIGIN)) == 0 ||
		     strncmp(name, REFS_TAGS, strlen(REFS_TAGS)) == 0) &&
		    refs_add(out, name, &all->v[i].oid) < 0)
			return -1;
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct refs mine = { 0 }, other = { 0 }, theirs = { 0 };
	struct refs out = { 0 }, moves = { 0 }, from = { 0 };
	const struct refs_merge m = { descends, loose, NULL };
	uint64_t changed;
	const uint8_t *cut = size ? memchr(data, '\0', size) : NULL;
	size_t n = cut ? (size_t)(cut - data) : size;
	int r = packed_refs_parse(&mine, data, n);
	assert(r == 0 || r == -EBADMSG || r == -ENOMEM);
	if (r == 0) {
		check(&mine);
		write_back(&mine);
	}
	if (cut && r == 0 && packed_refs_parse(&other, cut + 1, size - n - 1) == 0 &&
	    theirs_of(&theirs, &other) == 0 &&
	    refs_merge(&out, &moves, &from, &changed, &mine, &theirs, &m, NULL) == 0) {
		check(&out);
		assert(moves.n == from.n);
	}
	refs_done(&mine);
	refs_done(&other);
	refs_done(&theirs);
	refs_done(&out);
	refs_done(&moves);
	refs_done(&from);
	return 0;
}
