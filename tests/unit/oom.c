#include "tests/unit/oom.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

static _Atomic uint64_t left; /* allocations until the failing one; 0: none fails */
static atomic_bool hit;

void oom_at(uint64_t n)
{
	atomic_store(&hit, false);
	atomic_store(&left, n);
}

bool oom_hit(void)
{
	atomic_store(&left, 0);
	return atomic_exchange(&hit, false);
}

static bool fails(void)
{
	uint64_t n = atomic_load_explicit(&left, memory_order_relaxed);
	while (n > 0)
		if (atomic_compare_exchange_weak(&left, &n, n - 1)) {
			if (n > 1)
				return false;
			atomic_store(&hit, true);
			errno = ENOMEM;
			return true;
		}
	return false;
}

/* The names are the linker's: --wrap=malloc makes malloc __wrap_malloc, and the real
 * one __real_malloc. */
#define WRAP(ret, name, failure, params, args) \
	ret __real_##name params;              \
	ret __wrap_##name params;              \
	ret __wrap_##name params               \
	{                                      \
		if (fails())                   \
			return failure;        \
		return __real_##name args;     \
	}

WRAP(void *, malloc, NULL, (size_t n), (n))
WRAP(void *, calloc, NULL, (size_t n, size_t size), (n, size))
WRAP(void *, realloc, NULL, (void *p, size_t n), (p, n))
WRAP(void *, reallocarray, NULL, (void *p, size_t n, size_t size), (p, n, size))
WRAP(int, posix_memalign, ENOMEM, (void **p, size_t align, size_t n), (p, align, n))
WRAP(char *, strdup, NULL, (const char *s), (s))
WRAP(char *, strndup, NULL, (const char *s, size_t n), (s, n))
/* mmap, where offsets have 64 bits. */
WRAP(void *, mmap64, MAP_FAILED, (void *p, size_t n, int prot, int how, int fd, off_t off),
     (p, n, prot, how, fd, off))
