/* How much of one content is in another, as git measures it for renames: the bytes of lines (or
 * runs of 64 bytes) that both have. Pure. */
#ifndef BOUGH_GITOPS_SIMILAR_H
#define BOUGH_GITOPS_SIMILAR_H

#include <stddef.h>
#include <stdint.h>

struct similar_run {
	uint32_t hash, bytes;
};
struct similar {
	struct similar_run *v; /* by hash, each once */
	size_t n;
	uint64_t size;
};
int similar_init(struct similar *s, const void *data, size_t len); /* 0 or -ENOMEM */
void similar_done(struct similar *s);

enum { SIMILAR_ALL = 60000, SIMILAR_ENOUGH = SIMILAR_ALL / 2 };
/* 0 … SIMILAR_ALL. */
uint32_t similar_score(const struct similar *a, const struct similar *b);
/* False: contents of these sizes can't reach SIMILAR_ENOUGH. */
int similar_possible(uint64_t a, uint64_t b);

#endif
