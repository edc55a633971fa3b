/* System calls and the start of a program that has no library: each returns what the kernel does,
 * a negated errno below zero. */
#ifndef BOUGH_RUNTIME_INIT_SYS_H
#define BOUGH_RUNTIME_INIT_SYS_H

#include <stddef.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
static inline long sys4(long n, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = 0;
	long r;
	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return r;
}
#define SYS_START                    \
	__asm__(".globl _start\n"    \
		"_start:\n"          \
		"	xorl %ebp, %ebp\n" \
		"	movq %rsp, %rdi\n" \
		"	andq $-16, %rsp\n" \
		"	call begin\n")
#elif defined(__aarch64__)
static inline long sys4(long n, long a, long b, long c, long d)
{
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = 0;
	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
			 : "memory");
	return x0;
}
#define SYS_START                 \
	__asm__(".globl _start\n" \
		"_start:\n"       \
		"	mov x29, #0\n"  \
		"	mov x0, sp\n"   \
		"	bl begin\n")
#else
#error "the start of a program is not written down for this machine"
#endif

static inline long sys3(long n, long a, long b, long c)
{
	return sys4(n, a, b, c, 0);
}

static inline long sys2(long n, long a, long b)
{
	return sys4(n, a, b, 0, 0);
}

static inline long sys1(long n, long a)
{
	return sys4(n, a, 0, 0, 0);
}

static inline size_t str_len(const char *s)
{
	size_t n = 0;
	while (s[n])
		n++;
	return n;
}

#endif
