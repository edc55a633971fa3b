/* The kernel's calls for programs without libraries. Results are as the kernel gives them: below
 * zero -errno. */
#ifndef BOUGH_TOOLS_FSMONITOR_SYS_H
#define BOUGH_TOOLS_FSMONITOR_SYS_H

#include <sys/syscall.h>

#if defined(__x86_64__)
static inline long call6(long n, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long r;
	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return r;
}
#elif defined(__aarch64__)
static inline long call6(long n, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;
	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
}
#else
#error "how the kernel is called is not written down for this machine"
#endif

static inline long call4(long n, long a, long b, long c, long d)
{
	return call6(n, a, b, c, d, 0, 0);
}

#endif
