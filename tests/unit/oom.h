/* Lets an allocation of the project's own code fail, in unit tests: those are linked so
 * that malloc, calloc, realloc, reallocarray, posix_memalign, strdup, strndup and mmap come by
 * here. What libraries allocate inside does not. */
#ifndef BOUGH_TESTS_UNIT_OOM_H
#define BOUGH_TESTS_UNIT_OOM_H

#include <stdbool.h>
#include <stdint.h>

/* The n-th allocation from now on fails, once (1: the next one); 0: none. */
void oom_at(uint64_t n);
/* Whether it has been reached; nothing fails any more afterwards. The usual test:
 *
 *     for (uint64_t n = 1;; n++) {
 *             oom_at(n);
 *             int r = thing_do(…);
 *             if (!oom_hit())
 *                     break;   // r must be 0: all allocations worked
 *             … r is -ENOMEM and everything is as before
 *     }
 */
bool oom_hit(void);

#endif
