#include "tests/unit/sys_fault.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Shared with what the process forks. */
static struct plan {
	_Atomic uint64_t counted, nth, hits;
	_Atomic int error;
	atomic_bool for_good;
} *plan;

void sys_fault_at(uint64_t n, int error, bool for_good)
{
	if (!plan) {
		void *p = mmap(NULL, sizeof(*plan), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			abort();
		plan = p;
	}
	atomic_store(&plan->nth, 0);
	atomic_store(&plan->counted, 0);
	atomic_store(&plan->hits, 0);
	atomic_store(&plan->error, error);
	atomic_store(&plan->for_good, for_good);
	atomic_store(&plan->nth, n);
}

uint64_t sys_fault_hits(void)
{
	if (!plan)
		return 0;
	atomic_store(&plan->nth, 0);
	return atomic_load(&plan->hits);
}

static bool fails(void)
{
	uint64_t n = plan ? atomic_load(&plan->nth) : 0;
	if (n == 0)
		return false;
	uint64_t c = atomic_fetch_add(&plan->counted, 1) + 1;
	if (c != n && !(c > n && atomic_load(&plan->for_good)))
		return false;
	atomic_fetch_add(&plan->hits, 1);
	errno = atomic_load(&plan->error);
	return true;
}

/* As in oom.c. */
#define WRAP(name, params, args)                                      \
	int __real_##name params;                                     \
	int __wrap_##name params;                                     \
	int __wrap_##name params                                      \
	{                                                             \
		return fails() ? -1 : __real_##name args;             \
	}

WRAP(mount, (const char *s, const char *t, const char *type, unsigned long flags, const void *data),
     (s, t, type, flags, data))
WRAP(umount2, (const char *t, int flags), (t, flags))
WRAP(open_tree, (int dir, const char *name, unsigned flags), (dir, name, flags))
WRAP(move_mount, (int from, const char *a, int to, const char *b, unsigned flags),
     (from, a, to, b, flags))
WRAP(mount_setattr, (int dir, const char *name, unsigned flags, void *attr, size_t n),
     (dir, name, flags, attr, n))
WRAP(link, (const char *a, const char *b), (a, b))
WRAP(linkat, (int from, const char *a, int to, const char *b, int flags), (from, a, to, b, flags))

int __real_ioctl(int fd, unsigned long what, ...);
int __wrap_ioctl(int fd, unsigned long what, ...);
int __wrap_ioctl(int fd, unsigned long what, ...)
{
	va_list ap;
	va_start(ap, what);
	void *arg = va_arg(ap, void *); /* of those that have one; else it isn't looked at */
	va_end(ap);
	return fails() ? -1 : __real_ioctl(fd, what, arg);
}
