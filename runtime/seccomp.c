#include "runtime/seccomp.h"

#include <assert.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include "runtime/jwrite.h"

/* Without conditions. Of those that the machine hasn't got the runtime takes no notice. Not among
 * them: asynchronous I/O of the old kind (io_setup), of which all the machine has one number to
 * share; who uses it does without. */
static const char *const allowed[] = {
	/* files */
	"access", "chdir", "chmod", "chown", "close", "close_range", "copy_file_range", "creat",
	"dup", "dup2", "dup3", "faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir",
	"fchmod", "fchmodat", "fchmodat2", "fchown", "fchownat", "fcntl", "fdatasync", "fgetxattr",
	"flistxattr", "flock", "fremovexattr", "fsetxattr", "fstat", "fstatfs", "fsync",
	"ftruncate", "futimesat", "getcwd", "getdents", "getdents64", "getxattr", "getxattrat",
	"inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch", "ioctl",
	"lchown", "lgetxattr", "link", "linkat", "listxattr", "listxattrat", "llistxattr",
	"lremovexattr", "lseek", "lsetxattr", "lstat", "mkdir", "mkdirat", "mknod", "mknodat",
	"name_to_handle_at", "newfstatat", "open", "openat", "openat2", "pread64", "preadv",
	"preadv2", "pwrite64", "pwritev", "pwritev2", "read", "readahead", "readlink",
	"readlinkat", "readv", "removexattr", "removexattrat", "rename", "renameat", "renameat2",
	"rmdir", "sendfile", "setxattr", "setxattrat", "splice", "stat", "statfs", "statx",
	"symlink", "symlinkat", "sync", "sync_file_range", "syncfs", "tee", "truncate", "umask",
	"unlink", "unlinkat", "utime", "utimensat", "utimes", "vmsplice", "write", "writev",
	"cachestat", "file_getattr", "file_setattr",
	/* waiting */
	"epoll_create", "epoll_create1", "epoll_ctl", "epoll_ctl_old", "epoll_pwait",
	"epoll_pwait2", "epoll_wait", "epoll_wait_old", "eventfd", "eventfd2", "poll", "ppoll",
	"pselect6", "select", "signalfd", "signalfd4", "timerfd_create", "timerfd_gettime",
	"timerfd_settime",
	/* memory */
	"brk", "get_mempolicy", "madvise", "map_shadow_stack", "mbind", "memfd_create",
	"memfd_secret", "mincore", "mlock", "mlock2", "mlockall", "mmap", "mprotect", "mremap",
	"mseal", "msync", "munlock", "munlockall", "munmap", "pkey_alloc", "pkey_free",
	"pkey_mprotect", "process_madvise", "process_mrelease", "remap_file_pages",
	"set_mempolicy", "set_mempolicy_home_node",
	/* processes and threads */
	"alarm", "arch_prctl", "capget", "capset", "execve", "execveat", "exit", "exit_group",
	"fork", "futex", "futex_requeue", "futex_wait", "futex_waitv", "futex_wake",
	"get_robust_list", "get_thread_area", "getcpu", "getegid", "geteuid", "getgid",
	"getgroups", "getitimer", "getpgid", "getpgrp", "getpid", "getppid", "getpriority",
	"getresgid", "getresuid", "getrlimit", "getrusage", "getsid", "gettid", "getuid",
	"ioprio_get", "ioprio_set", "kill", "membarrier", "nanosleep", "pause", "pidfd_open",
	"pidfd_send_signal", "prctl", "prlimit64", "process_vm_readv", "process_vm_writev",
	"ptrace", "restart_syscall", "riscv_flush_icache", "rseq", "rt_sigaction",
	"rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend",
	"rt_sigtimedwait", "rt_tgsigqueueinfo", "sched_get_priority_max",
	"sched_get_priority_min", "sched_getaffinity", "sched_getattr", "sched_getparam",
	"sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity", "sched_setattr",
	"sched_setparam", "sched_setscheduler", "sched_yield", "seccomp", "set_robust_list",
	"set_thread_area", "set_tid_address", "setfsgid", "setfsuid", "setgid", "setgroups",
	"setitimer", "setpgid", "setpriority", "setregid", "setresgid", "setresuid", "setreuid",
	"setrlimit", "setsid", "setuid", "sigaltstack", "tgkill", "time", "timer_create",
	"timer_delete", "timer_getoverrun", "timer_gettime", "timer_settime", "times", "tkill",
	"vfork", "wait4", "waitid", "landlock_add_rule", "landlock_create_ruleset",
	"landlock_restrict_self", "uretprobe",
	/* the clock and the machine, to look at */
	"clock_getres", "clock_gettime", "clock_nanosleep", "getrandom", "gettimeofday",
	"sysinfo", "uname",
	/* between processes */
	"accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt",
	"listen", "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend",
	"mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd", "pipe", "pipe2", "recvfrom",
	"recvmmsg", "recvmsg", "semctl", "semget", "semop", "semtimedop", "sendmmsg", "sendmsg",
	"sendto", "setsockopt", "shmat", "shmctl", "shmdt", "shmget", "shutdown", "socketpair",
};

/* Allowed with an argument of one of these values. */
struct condition {
	const char *name;
	unsigned index;
	uint64_t mask; /* 0: the argument is to be `value`; else what the mask leaves of it */
	uint64_t value;
	int protocol; /* of a socket: its third argument; ANY: whatever it is */
};
static const uint64_t new_namespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS |
				       CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |
				       (uint64_t)CLONE_NEWNET;
enum {
	/* personality(2): what setarch, gdb and the sanitizers ask for. */
	PER_ASK = -1,
	PER_PLAIN = 0,
	PER_LINUX32_BITS = 0x8,
	PER_UNAME26 = 0x20000,
	PER_NO_RANDOMIZE = 0x40000,
};
enum { ANY = -1 };
#define CONDITION_MAX 20

static size_t conditions(struct condition out[CONDITION_MAX])
{
	const struct condition all[] = {
		{ "clone", 0, new_namespaces, 0, ANY },
		{ "personality", 0, 0, PER_PLAIN, ANY },
		{ "personality", 0, 0, PER_LINUX32_BITS, ANY },
		{ "personality", 0, 0, PER_UNAME26, ANY },
		{ "personality", 0, 0, PER_UNAME26 | PER_LINUX32_BITS, ANY },
		{ "personality", 0, 0, PER_NO_RANDOMIZE, ANY },
		{ "personality", 0, 0, (uint32_t)PER_ASK, ANY },
		{ "socket", 0, 0, AF_UNIX, ANY },
		/* Others (SCTP, DCCP, L2TP, SMC, ...) would be loaded into the kernel for whoever
		 * asks, and have had more holes than users. */
		{ "socket", 0, 0, AF_INET, 0 },
		{ "socket", 0, 0, AF_INET, IPPROTO_TCP },
		{ "socket", 0, 0, AF_INET, IPPROTO_UDP },
		{ "socket", 0, 0, AF_INET, IPPROTO_ICMP },
		{ "socket", 0, 0, AF_INET6, 0 },
		{ "socket", 0, 0, AF_INET6, IPPROTO_TCP },
		{ "socket", 0, 0, AF_INET6, IPPROTO_UDP },
		{ "socket", 0, 0, AF_INET6, IPPROTO_ICMPV6 },
		{ "socket", 0, 0, AF_NETLINK, NETLINK_ROUTE },
		{ "socket", 0, 0, AF_NETLINK, NETLINK_SOCK_DIAG },
		{ "socket", 0, 0, AF_NETLINK, NETLINK_KOBJECT_UEVENT },
	};
	static_assert(sizeof(all) / sizeof(*all) <= CONDITION_MAX, "room for all");
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		out[i] = all[i];
	return sizeof(all) / sizeof(*all);
}

const char *seccomp_allowed(size_t n)
{
	return n < sizeof(allowed) / sizeof(*allowed) ? allowed[n] : NULL;
}

static json_t *conditional(const struct condition *c)
{
	json_t *arg = c->mask ? json_pack("{s:i,s:I,s:I,s:s}", "index", (int)c->index, "value",
					  (json_int_t)c->mask, "valueTwo", (json_int_t)c->value,
					  "op", "SCMP_CMP_MASKED_EQ")
			      : json_pack("{s:i,s:I,s:s}", "index", (int)c->index, "value",
					  (json_int_t)c->value, "op", "SCMP_CMP_EQ");
	json_t *third = c->protocol == ANY
				? NULL
				: json_pack("{s:i,s:I,s:s}", "index", 2, "value",
					    (json_int_t)c->protocol, "op", "SCMP_CMP_EQ");
	if (c->protocol != ANY && !third) { /* without it all would be allowed */
		json_decref(arg);
		return NULL;
	}
	return json_pack("{s:[s],s:s,s:[o,o*]}", "names", c->name, "action", "SCMP_ACT_ALLOW",
			 "args", arg, third);
}

static const char *native(void)
{
#if defined(__x86_64__)
	return "SCMP_ARCH_X86_64";
#elif defined(__aarch64__)
	return "SCMP_ARCH_AARCH64";
#else
#error "which architecture seccomp is to allow isn't written down for this machine"
#endif
}

json_t *seccomp_filter(void)
{
	struct condition c[CONDITION_MAX];
	size_t n = conditions(c);
	json_t *names = json_array(), *rules = json_array();
	int r = names && rules ? 0 : -ENOMEM;
	for (size_t i = 0; r == 0 && i < sizeof(allowed) / sizeof(*allowed); i++)
		r = jw_add(names, json_string(allowed[i]));
	if (r < 0)
		json_decref(names);
	else
		r = jw_add(rules, json_pack("{s:o,s:s}", "names", names, "action",
					    "SCMP_ACT_ALLOW"));
	for (size_t i = 0; r == 0 && i < n; i++)
		r = jw_add(rules, conditional(&c[i]));
	if (r < 0) {
		json_decref(rules);
		return NULL;
	}
	/* clone3 is among what isn't allowed: its flags lie in memory, where no filter sees them,
	 * and ENOSYS has libc take clone. */
	return json_pack("{s:s,s:i,s:[s],s:o}", "defaultAction", "SCMP_ACT_ERRNO",
			 "defaultErrnoRet", ENOSYS, "architectures", native(), "syscalls", rules);
}
