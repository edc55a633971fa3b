/* What bough-fs can't do any more once it serves, and what it still can. Each in a child. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "fs/base/cleanup.h"
#include "fs/mount/confine.h"

/* Runs it confined; what it returns is the exit status: 0 is well, a line says what else. */
static void confined(int (*fn)(void))
{
	if (geteuid() != 0) {
		print_message("skip: not root\n");
		skip();
	}
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct err err;
		if (confine_capabilities(&err) < 0 || confine_calls(false, &err) < 0) {
			fprintf(stderr, "%s\n", err.text);
			_exit(100);
		}
		_exit(fn());
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* The line where it went otherwise, as the exit status. */
#define MUST(x)                                                                           \
	do {                                                                              \
		if (!(x)) {                                                               \
			fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #x, errno); \
			return 1;                                                         \
		}                                                                         \
	} while (0)
#define REFUSED(x, e) MUST((errno = 0, (long)(x)) == -1 && errno == (e))

static int refused(void)
{
	char *argv[] = { (char[]){ "true" }, NULL };
	REFUSED(execv("/bin/true", argv), EPERM);
	REFUSED(socket(AF_INET, SOCK_STREAM, 0), EPERM);
	REFUSED(socket(AF_INET6, SOCK_DGRAM, 0), EPERM);
	REFUSED(socket(AF_NETLINK, SOCK_RAW, 0), EPERM);
	REFUSED(ptrace(PTRACE_ATTACH, getppid(), 0, 0), EPERM);
	REFUSED(kill(getppid(), 0), EPERM);
	REFUSED(syscall(SYS_tgkill, getppid(), getppid(), 0), EPERM);
	REFUSED(unshare(CLONE_NEWNET), EPERM);
	REFUSED(syscall(SYS_setns, 0, 0), EPERM);
	REFUSED(syscall(SYS_bpf, 0, 0, 0), EPERM);
	REFUSED(syscall(SYS_perf_event_open, 0, 0, 0, 0, 0), EPERM);
	REFUSED(syscall(SYS_keyctl, 0, 0, 0, 0, 0), EPERM);
	REFUSED(syscall(SYS_userfaultfd, 0), EPERM);
	REFUSED(syscall(SYS_io_uring_setup, 1, NULL), EPERM);
	REFUSED(syscall(SYS_process_vm_readv, getppid(), NULL, 0, NULL, 0, 0), EPERM);
	REFUSED(syscall(SYS_open_by_handle_at, -1, NULL, 0), EPERM);
	REFUSED(syscall(SYS_init_module, NULL, 0, NULL), EPERM);
	REFUSED(syscall(SYS_setuid, 1), EPERM);
	REFUSED(syscall(SYS_chroot, "/"), EPERM);
	REFUSED(syscall(SYS_reboot, 0, 0, 0, NULL), EPERM);
	REFUSED(syscall(SYS_mknodat, AT_FDCWD, "/tmp/x", 0, 0), EPERM);
	REFUSED(syscall(SYS_clone, CLONE_NEWNS | SIGCHLD, NULL, NULL, NULL, 0), EPERM);
	REFUSED(syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0), EPERM); /* a process */
	REFUSED(syscall(SYS_clone3, NULL, 0), ENOSYS);
	return 0;
}

static void *thread(void *arg)
{
	*(int *)arg = socket(AF_INET, SOCK_STREAM, 0) < 0 ? errno : 0;
	return NULL;
}

static int still_there(void)
{
	pthread_t t;
	int seen = 0;
	MUST(pthread_create(&t, NULL, thread, &seen) == 0 && pthread_join(t, NULL) == 0);
	MUST(seen == EPERM); /* for a thread too */
	MUST(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0) >= 0);
	int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	MUST(fd >= 0 && pwrite(fd, "x", 1, 0) == 1 && fdatasync(fd) == 0);
	MUST(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED);
	/* Mounting is asked for, and refused by the kernel for a reason of its own. */
	REFUSED(mount("none", "/nowhere/at/all", "tmpfs", 0, NULL), ENOENT);
	return 0;
}

static int capabilities(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	unsigned long long eff = ~0ULL;
	int no_new = 0;
	while (f && fgets(line, sizeof(line), f)) {
		(void)sscanf(line, "CapEff: %llx", &eff);
		(void)sscanf(line, "NoNewPrivs: %d", &no_new);
	}
	unsigned long long kept = 1ULL << CAP_SYS_ADMIN | 1ULL << CAP_DAC_OVERRIDE |
				  1ULL << CAP_DAC_READ_SEARCH | 1ULL << CAP_FOWNER |
				  1ULL << CAP_SYS_RESOURCE | 1ULL << CAP_SYS_NICE;
	MUST(eff != 0 && (eff & ~kept) == 0);
	MUST(no_new == 1);
	return 0;
}

static void calls_are_refused(void **state)
{
	confined(refused);
}

static void work_goes_on(void **state)
{
	confined(still_there);
}

static void capabilities_are_gone(void **state)
{
	confined(capabilities);
}

/* Threads that were there before are confined as well. */
static pthread_barrier_t barrier;

static void *earlier(void *arg)
{
	(void)pthread_barrier_wait(&barrier);
	(void)pthread_barrier_wait(&barrier);
	return thread(arg);
}

static void threads_too(void **state)
{
	if (geteuid() != 0) {
		print_message("skip: not root\n");
		skip();
	}
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		pthread_t t;
		int seen = 0;
		(void)pthread_barrier_init(&barrier, NULL, 2);
		(void)pthread_create(&t, NULL, earlier, &seen);
		(void)pthread_barrier_wait(&barrier);
		int r = confine_calls(false, NULL);
		(void)pthread_barrier_wait(&barrier);
		(void)pthread_join(t, NULL);
		_exit(r == 0 && seen == EPERM ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_are_refused),
		cmocka_unit_test(work_goes_on),
		cmocka_unit_test(capabilities_are_gone),
		cmocka_unit_test(threads_too),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
