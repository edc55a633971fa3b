#include "fs/store/pending.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/buf.h"

enum {
	CAP_MIN = 64,
	CAP_KEPT = 4096, /* entries whose memory is kept when the table is cleared */
};

/* The slot of the digest, or the free one where it belongs. Digests are uniform already. */
static size_t slot_of(const struct pending *p, const struct digest *d)
{
	size_t i = le_get64(d->b) & (p->nslots - 1);
	while (p->slots[i] && !digest_equal(&p->e[p->slots[i] - 1].digest, d))
		i = (i + 1) & (p->nslots - 1);
	return i;
}

int pending_reserve(struct pending *p)
{
	if (p->n < p->cap)
		return 0;
	size_t cap = p->cap ? p->cap * 2 : CAP_MIN;
	if (cap >= UINT32_MAX / 4)
		return -ENOMEM;
	uint32_t *slots = calloc(cap * 2, sizeof(*slots));
	struct pending_entry *e = slots ? realloc(p->e, cap * sizeof(*e)) : NULL;
	if (!e) {
		free(slots);
		return -ENOMEM;
	}
	free(p->slots);
	*p = (struct pending){ .e = e, .n = p->n, .cap = cap, .slots = slots, .nslots = cap * 2 };
	for (size_t i = 0; i < p->n; i++)
		p->slots[slot_of(p, &e[i].digest)] = (uint32_t)i + 1;
	return 0;
}

void pending_add(struct pending *p, const struct pending_entry *e)
{
	size_t i = slot_of(p, &e->digest);
	if (p->slots[i]) {
		p->e[p->slots[i] - 1] = *e;
		return;
	}
	p->e[p->n++] = *e;
	p->slots[i] = (uint32_t)p->n;
}

const struct pending_entry *pending_find(const struct pending *p, const struct digest *d)
{
	if (p->n == 0)
		return NULL;
	size_t i = slot_of(p, d);
	const struct pending_entry *e = p->slots[i] ? &p->e[p->slots[i] - 1] : NULL;
	return e && e->place.pack ? e : NULL;
}

void pending_drop(struct pending *p, uint64_t pack, uint64_t from)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->e[i].place.pack == pack && p->e[i].place.off >= from)
			p->e[i].place.pack = 0;
}

void pending_clear(struct pending *p)
{
	p->n = 0;
	if (p->cap > CAP_KEPT)
		pending_done(p);
	else if (p->slots)
		memset(p->slots, 0, p->nslots * sizeof(*p->slots));
}

void pending_done(struct pending *p)
{
	free(p->e);
	free(p->slots);
	*p = (struct pending){ 0 };
}
