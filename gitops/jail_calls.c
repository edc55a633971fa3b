#include "gitops/jail.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "this machine's system calls are not written down"
#endif

/* In no order that matters: they are few, and git's time isn't spent in calls. */
static const int allowed[] = {
	/* files */
	SYS_read,
	SYS_write,
	SYS_readv,
	SYS_writev,
	SYS_pread64,
	SYS_pwrite64,
	SYS_preadv,
	SYS_pwritev,
	SYS_openat,
	SYS_close,
	SYS_close_range,
	SYS_fstat,
	SYS_newfstatat,
	SYS_statx,
	SYS_statfs,
	SYS_fstatfs,
	SYS_lseek,
	SYS_fcntl,
	SYS_flock,
	SYS_fsync,
	SYS_fdatasync,
	SYS_sync_file_range,
	SYS_ftruncate,
	SYS_fallocate,
	SYS_fadvise64,
	SYS_getdents64,
	SYS_getcwd,
	SYS_chdir,
	SYS_fchdir,
	SYS_renameat,
	SYS_renameat2,
	SYS_mkdirat,
	SYS_linkat,
	SYS_symlinkat,
	SYS_unlinkat,
	SYS_readlinkat,
	SYS_fchmod,
	SYS_fchmodat,
	SYS_faccessat,
	SYS_faccessat2,
	SYS_utimensat,
	SYS_umask,
	SYS_dup,
	SYS_dup3,
	SYS_pipe2,
	SYS_pselect6,
	SYS_ppoll,
	/* memory */
	SYS_mmap,
	SYS_mprotect,
	SYS_munmap,
	SYS_mremap,
	SYS_madvise,
	SYS_brk,
	/* itself: threads, signals, time */
	SYS_execve,
	SYS_exit,
	SYS_exit_group,
	SYS_wait4,
	SYS_waitid,
	SYS_getpid,
	SYS_getppid,
	SYS_gettid,
	SYS_tgkill,
	SYS_set_tid_address,
	SYS_set_robust_list,
	SYS_rseq,
	SYS_futex,
	SYS_sched_getaffinity,
	SYS_sched_yield,
	SYS_rt_sigaction,
	SYS_rt_sigprocmask,
	SYS_rt_sigreturn,
	SYS_sigaltstack,
	SYS_restart_syscall,
	SYS_setitimer,
	SYS_getitimer,
	SYS_clock_gettime,
	SYS_clock_getres,
	SYS_clock_nanosleep,
	SYS_nanosleep,
	SYS_gettimeofday,
	SYS_getrandom,
	SYS_getrlimit,
	SYS_prlimit64,
	SYS_getrusage,
	SYS_sysinfo,
	SYS_times,
	SYS_uname,
	SYS_getuid,
	SYS_geteuid,
	SYS_getgid,
	SYS_getegid,
	SYS_getpgid,
	SYS_getsid,
#if defined(__x86_64__)
	/* what has a newer form, which others use */
	SYS_open,
	SYS_stat,
	SYS_lstat,
	SYS_access,
	SYS_pipe,
	SYS_select,
	SYS_poll,
	SYS_dup2,
	SYS_rename,
	SYS_mkdir,
	SYS_rmdir,
	SYS_link,
	SYS_symlink,
	SYS_unlink,
	SYS_readlink,
	SYS_chmod,
	SYS_utime,
	SYS_utimes,
	SYS_getpgrp,
	SYS_time,
	SYS_alarm,
	SYS_arch_prctl,
	SYS_vfork,
	SYS_fork,
#endif
};

enum {
	CALLS = sizeof(allowed) / sizeof(allowed[0]),
	INSTRUCTIONS_MAX = 2 * CALLS + 40,
	X32_BIT = 0x40000000,
};
#define NEW_NAMESPACES                                                                 \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | \
	 CLONE_NEWPID | CLONE_NEWNET)

struct program {
	struct sock_filter v[INSTRUCTIONS_MAX];
	unsigned short n;
};

static void put(struct program *p, unsigned short code, unsigned char yes, unsigned char no,
		unsigned k)
{
	p->v[p->n++] = (struct sock_filter){ code, yes, no, k };
}

static void load(struct program *p, size_t at)
{
	put(p, BPF_LD | BPF_W | BPF_ABS, 0, 0, (unsigned)at);
}

static void answer(struct program *p, unsigned what)
{
	put(p, BPF_RET | BPF_K, 0, 0, what);
}

/* The low half of an argument: both machines are little-endian, and what is compared is small. */
static size_t argument(unsigned i)
{
	return offsetof(struct seccomp_data, args) + 8 * i;
}

/* Where the number in A is `nr`, the next `n` instructions run, else they are stepped over. */
static void only_for(struct program *p, int nr, unsigned char n)
{
	put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, n, (unsigned)nr);
}

static void make(struct program *p)
{
	load(p, offsetof(struct seccomp_data, arch));
	put(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, ARCH);
	answer(p, SECCOMP_RET_KILL_PROCESS);
	load(p, offsetof(struct seccomp_data, nr));
#if defined(__x86_64__)
	put(p, BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32_BIT);
	answer(p, SECCOMP_RET_KILL_PROCESS);
#endif
	for (size_t i = 0; i < CALLS; i++) {
		only_for(p, allowed[i], 1);
		answer(p, SECCOMP_RET_ALLOW);
	}
	/* Threads and children, in the same namespaces. clone3, whose flags lie in memory, isn't
	 * there, and C libraries do without. */
	only_for(p, SYS_clone, 4);
	load(p, argument(0));
	put(p, BPF_JMP | BPF_JSET | BPF_K, 0, 1, NEW_NAMESPACES);
	answer(p, SECCOMP_RET_ERRNO | EPERM);
	answer(p, SECCOMP_RET_ALLOW);
	/* Whether something is a terminal. */
	only_for(p, SYS_ioctl, 5);
	load(p, argument(1));
	put(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, TCGETS);
	put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, TIOCGWINSZ);
	answer(p, SECCOMP_RET_ALLOW);
	answer(p, SECCOMP_RET_ERRNO | ENOTTY);
	/* A thread's name. */
	only_for(p, SYS_prctl, 4);
	load(p, argument(0));
	put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, PR_SET_NAME);
	answer(p, SECCOMP_RET_ALLOW);
	answer(p, SECCOMP_RET_ERRNO | EPERM);
	answer(p, SECCOMP_RET_ERRNO | ENOSYS);
}

int jail_calls(void)
{
	struct program p = { .n = 0 };
	make(&p);
	struct sock_fprog prog = { .len = p.n, .filter = p.v };
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0);
}
