#include "gitops/oidmap.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "fs/base/hash.h"

enum { FIRST = 64 };

/* Where the id is, or the free slot where it would be; there is one always. */
static struct oidmap_slot *find(const struct oidmap *m, const git_oid *id)
{
	size_t i = (size_t)hash_xxh3(id->id, sizeof(id->id), m->seed);
	for (;; i++) {
		struct oidmap_slot *s = &m->slots[i & (m->cap - 1)];
		if (!s->value || memcmp(s->id.id, id->id, sizeof(id->id)) == 0)
			return s;
	}
}

static int grow(struct oidmap *m)
{
	struct oidmap more = { .cap = m->cap ? 2 * m->cap : FIRST, .seed = m->seed };
	more.slots = calloc(more.cap, sizeof(*more.slots));
	if (!more.slots)
		return -ENOMEM;
	if (!m->cap)
		random_bytes(&more.seed, sizeof(more.seed));
	for (size_t i = 0; i < m->cap; i++)
		if (m->slots[i].value)
			*find(&more, &m->slots[i].id) = m->slots[i];
	more.count = m->count;
	free(m->slots);
	*m = more;
	return 0;
}

uint64_t oidmap_get(const struct oidmap *m, const git_oid *id)
{
	return m->cap ? find(m, id)->value : 0;
}

int oidmap_put(struct oidmap *m, const git_oid *id, uint64_t value)
{
	assert(value);
	if (m->count >= m->cap / 4 * 3 && grow(m) < 0)
		return -ENOMEM;
	struct oidmap_slot *s = find(m, id);
	m->count += !s->value;
	*s = (struct oidmap_slot){ *id, value };
	return 0;
}

int oidmap_add(struct oidmap *m, const git_oid *id)
{
	if (oidmap_get(m, id))
		return 0;
	return oidmap_put(m, id, 1) < 0 ? -ENOMEM : 1;
}

void oidmap_done(struct oidmap *m)
{
	free(m->slots);
	*m = (struct oidmap){ 0 };
}
