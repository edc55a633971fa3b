/* What the halves of space.h's implementation share. The lock is held. */
#ifndef BOUGH_WORK_SPACE_IMPL_H
#define BOUGH_WORK_SPACE_IMPL_H

#include "fs/work/space.h"

/* The free ranges of the packed file next to a range leave the free maps and join it. */
void space_free_join(struct space *s, uint64_t *off, uint64_t *len);
/* Without memory the range is lost to this process: the next replay finds it again. */
void space_free_add(struct space *s, uint64_t off, uint64_t len);
void space_big_free(struct space_big *b);

#endif
