/* Arrays on the heap that double as they fill. */
#ifndef BOUGH_BASE_ARRAY_H
#define BOUGH_BASE_ARRAY_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

enum { ARRAY_FIRST = 16 }; /* elements that the first allocation has room for */

/* array_grow for any type; the array, moved or not, or NULL. */
static inline void *array_room(void *v, size_t n, size_t *cap, size_t size)
{
	if (n < *cap)
		return v;
	size_t want = *cap ? *cap * 2 : ARRAY_FIRST;
	void *more = reallocarray(v, want, size);
	if (more)
		*cap = want;
	return more;
}

/* Makes room for one more element behind the first n of the array *v, which has room for *cap
 * (size_t; NULL and 0: an empty one). 0, or -ENOMEM, in which case all is as before. */
#define array_grow(v, n, cap)                                           \
	({                                                              \
		void *v_ = array_room(*(v), (n), (cap), sizeof(**(v))); \
		if (v_)                                                 \
			*(v) = v_;                                      \
		v_ ? 0 : -ENOMEM;                                       \
	})

/* For qsort and bsearch, by number: of elements (and keys) that are, or begin with, a uint64_t. */
static inline int array_by_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

#endif
