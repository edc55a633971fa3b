/* bough-init: codes, signals, timeouts, and that nothing of a process is left, in a pid namespace
 * of its own (as root) and outside of one. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "fs/base/clock.h"
#include "runtime/init/init.h"

static char program[PATH_MAX + 16];

static void rest(int ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000L };
	(void)nanosleep(&t, NULL);
}

/* Runs in the child: the program in a pid namespace with a /proc of its own. */
static void enter(char *const *argv)
{
	if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0 ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		_exit(99);
	pid_t first = fork();
	if (first == 0) {
		if (mount("proc", "/proc", "proc", 0, NULL) < 0)
			_exit(98);
		(void)execv(program, argv);
		_exit(97);
	}
	/* Signals to this one are meant for that. */
	for (;;) {
		int status, sig;
		sigset_t all;
		struct timespec t = { 0, 2000000 };
		sigfillset(&all);
		(void)sigprocmask(SIG_SETMASK, &all, NULL);
		if (waitpid(first, &status, WNOHANG) == first)
			_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
		sig = sigtimedwait(&all, NULL, &t);
		if (sig > 0 && sig != SIGCHLD)
			(void)kill(first, sig);
	}
}

static pid_t begin(bool first, char *const *argv, int out)
{
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	if (out >= 0 && (dup2(out, 1) < 0 || dup2(out, 2) < 0))
		_exit(96);
	if (first)
		enter(argv);
	(void)execv(program, argv);
	_exit(95);
}

static int end(pid_t pid)
{
	int status;
	uint64_t stop = clock_ms() + 60000;
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (clock_ms() > stop) {
			(void)kill(pid, SIGKILL);
			fail_msg("it doesn't end");
		}
		rest(1);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* How many processes have this word on their command line. */
static int count_of(const char *word)
{
	char command[200];
	(void)snprintf(command, sizeof(command),
		       "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c '^%s$'",
		       word);
	FILE *f = popen(command, "r");
	int n = -1;
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%d", &n), 1);
	(void)pclose(f);
	return n;
}

static void await_count(const char *word, int wanted)
{
	for (uint64_t stop = clock_ms() + 60000; count_of(word) != wanted; rest(5))
		if (clock_ms() > stop)
			fail_msg("%d processes of %s instead of %d", count_of(word), word, wanted);
}

#define ARGV(...) ((char *[]){ program, __VA_ARGS__, NULL })
#define SH(script)                                                          \
	(char[]){ "--" }, (char[]){ "/bin/sh" }, (char[]){ "-c" }, (char[]) \
	{                                                                   \
		script                                                      \
	}

static bool both[] = { false, true }; /* not process 1, process 1 */

static unsigned ways(void)
{
	return geteuid() == 0 ? 2 : 1;
}

static void test_codes(void **state)
{
	for (unsigned i = 0; i < ways(); i++) {
		assert_int_equal(end(begin(both[i], ARGV(SH("exit 7")), -1)), 7);
		assert_int_equal(end(begin(both[i], ARGV(SH("kill -9 $$")), -1)), 137);
		assert_int_equal(
			end(begin(both[i], ARGV((char[]){ "--" }, (char[]){ "true" }), -1)), 0);
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
		assert_int_equal(end(begin(both[i], ARGV((char[]){ "--" }, (char[]){ "no-such" }),
					   null)),
				 INIT_EXIT_ABSENT);
		assert_int_equal(end(begin(both[i],
					   ARGV((char[]){ "--" }, (char[]){ "/nowhere/x" }), null)),
				 INIT_EXIT_ABSENT);
		assert_int_equal(end(begin(both[i], ARGV((char[]){ "--" }, (char[]){ "/etc" }),
					   null)),
				 INIT_EXIT_DENIED);
		assert_int_equal(end(begin(both[i], ARGV((char[]){ "-t" }, (char[]){ "x" }), null)),
				 INIT_EXIT_USAGE);
		assert_int_equal(end(begin(both[i], ARGV((char[]){ "--" }), null)),
				 INIT_EXIT_USAGE);
		(void)close(null);
	}
}

/* What is left to it is reaped, while the command runs. */
static void test_reaps(void **state)
{
	for (unsigned i = 0; i < ways(); i++) {
		/* The orphans of many shells: none of them may stay a zombie. */
		assert_int_equal(
			end(begin(both[i],
				  ARGV(SH("for i in 1 2 3 4 5 6 7 8; do sh -c 'sleep 0.05 & :'; "
					  "done; sleep 0.4; i=0; "
					  "until grep -l 'State:.Z' /proc/[0-9]*/status "
					  "2>/dev/null | wc -l | grep -qx 0 || "
					  "! ps -o stat= --ppid $PPID | grep -q Z; "
					  "do i=$((i + 1)); [ $i -lt 300 ] || exit 1; "
					  "sleep 0.1; done")),
				  -1)),
			0);
	}
}

static void test_signals(void **state)
{
	for (unsigned i = 0; i < ways(); i++) {
		/* Also what made a session of its own. */
		pid_t pid = begin(both[i], ARGV(SH("setsid sleep 31.7 & sleep 31.7 & wait")), -1);
		await_count("31.7", 2);
		assert_int_equal(kill(pid, SIGTERM), 0);
		assert_int_equal(end(pid), 143);
		await_count("31.7", 0);
		/* One that it handles; the command goes on. */
		pid = begin(both[i], ARGV(SH("trap 'exit 9' USR1; sleep 31.8 & wait; sleep 31.8")),
			    -1);
		await_count("31.8", 1);
		assert_int_equal(kill(pid, SIGUSR1), 0);
		int code = end(pid);
		assert_true(code == 9 || code == 128 + SIGUSR1);
		await_count("31.8", 0);
	}
}

static void test_kill(void **state)
{
	for (unsigned i = 0; i < ways(); i++) {
		pid_t pid = begin(both[i],
				  ARGV(SH("trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 32.7; "
					  "sleep 32.7' & sleep 32.7; sleep 32.7")),
				  -1);
		await_count("32.7", 2);
		assert_int_equal(kill(pid, INIT_KILL), 0);
		assert_int_equal(end(pid), 137);
		await_count("32.7", 0);
	}
}

/* A tree that forks all the time. */
static void test_kill_races(void **state)
{
	pid_t pid = begin(false,
			  ARGV(SH("f() { i=0; while [ $i -lt 2000 ]; do sleep 34.7 & i=$((i + 1)); "
				  "sleep 0.002; done; }; f & f & wait")),
			  -1);
	for (uint64_t stop = clock_ms() + 60000; count_of("34.7") <= 0 && clock_ms() < stop;)
		rest(5);
	rest(150);
	int before = count_of("34.7"), r = kill(pid, INIT_KILL), code = end(pid);
	assert_true(before > 0);
	assert_int_equal(r, 0);
	assert_int_equal(code, 137);
	assert_int_equal(count_of("34.7"), 0);
}

static void test_timeout(void **state)
{
	for (unsigned i = 0; i < ways(); i++) {
		/* Those that listen aren't waited for; a busy machine may be late now and then. */
		uint64_t took = INIT_GRACE_MS;
		for (int tries = 0; tries < 5 && took >= INIT_GRACE_MS; tries++) {
			uint64_t t0 = clock_ms();
			assert_int_equal(end(begin(both[i],
						   ARGV((char[]){ "-t" }, (char[]){ "100" },
							SH("setsid sleep 33.7 & sleep 33.7")),
						   -1)),
					 INIT_EXIT_TIMEOUT);
			took = clock_ms() - t0;
			assert_true(took >= 100);
			await_count("33.7", 0);
		}
		assert_true(took < INIT_GRACE_MS);
		/* In time it makes no difference. */
		assert_int_equal(end(begin(both[i],
					   ARGV((char[]){ "-n" }, (char[]){ "name" },
						(char[]){ "-t" }, (char[]){ "60000" },
						SH("exit 3")),
					   -1)),
				 3);
	}
	/* One that doesn't listen is killed a little later. */
	assert_int_equal(end(begin(false,
				   ARGV((char[]){ "-t" }, (char[]){ "50" },
					SH("trap '' TERM; sleep 33.8; sleep 33.8")),
				   -1)),
			 INIT_EXIT_TIMEOUT);
	await_count("33.8", 0);
}

/* A sandbox without a command. */
static void test_waits(void **state)
{
	pid_t pid = begin(geteuid() == 0, ARGV((char[]){ "-w" }), -1);
	int status;
	rest(100);
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	assert_int_equal(kill(pid, SIGUSR1), 0);
	rest(50);
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	assert_int_equal(kill(pid, SIGTERM), 0);
	assert_int_equal(end(pid), 143);
}

static void test_size(void **state)
{
	FILE *f = fopen(program, "re");
	assert_non_null(f);
	assert_int_equal(fseek(f, 0, SEEK_END), 0);
	assert_true(ftell(f) < 16384);
	(void)fclose(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_codes),      cmocka_unit_test(test_reaps),
		cmocka_unit_test(test_signals),    cmocka_unit_test(test_kill),
		cmocka_unit_test(test_kill_races), cmocka_unit_test(test_timeout),
		cmocka_unit_test(test_waits),      cmocka_unit_test(test_size),
	};
	/* Beside the folder of the tests, as the build puts it. */
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n <= 0)
		return 1;
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	(void)snprintf(program, sizeof(program), "%s/../bough-init", self);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
