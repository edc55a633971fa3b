/* Programs that can't outlive us: their ends, deadlines, and what of ours they see. */
#include "gitops/child.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static struct err err;
static const char *const env[] = { "PATH=/usr/bin:/bin", "A=b", NULL };

static struct child_options shell(const char *const *argv)
{
	return (struct child_options){ .argv = argv, .envp = env, .keep = -1, .keep2 = -1 };
}

static void test_output(void **state)
{
	const char *const argv[] = { "/bin/sh", "-c", "cat; echo no >&2; echo $A; exit 7", NULL };
	struct child_options opt = shell(argv);
	auto_child_result r = { 0 };
	opt.input = "input\n";
	opt.input_len = 6;
	assert_int_equal(child_run(&r, &opt, &err), 0);
	assert_int_equal(r.status, 7);
	assert_string_equal((char *)r.out.data, "input\nb\n");
	assert_string_equal((char *)r.err.data, "no\n");
}

static void test_no_program(void **state)
{
	const char *const argv[] = { "/nowhere/git", NULL };
	struct child_options opt = shell(argv);
	auto_child_result r = { 0 };
	assert_int_equal(child_run(&r, &opt, &err), -ENOENT);
	assert_non_null(strstr(err.text, "/nowhere/git"));
}

static void test_killed(void **state)
{
	const char *const argv[] = { "/bin/sh", "-c", "kill -9 $$", NULL };
	struct child_options opt = shell(argv);
	auto_child_result r = { 0 };
	assert_int_equal(child_run(&r, &opt, &err), 0);
	assert_int_equal(r.status, 128 + SIGKILL);
}

/* Neither environment nor descriptors but what was named. */
static void test_shut_off(void **state)
{
	const char *const argv[] = { "/bin/sh", "-c", "ls /proc/self/fd | wc -l; cat <&3; env",
				     NULL };
	struct child_options opt = shell(argv);
	auto_child_result r = { 0 };
	int p[2], open_here = open("/dev/null", O_RDONLY); /* without close-on-exec */
	assert_true(open_here >= 0);
	assert_int_equal(pipe(p), 0);
	assert_int_equal(write(p[1], "kept\n", 5), 5);
	close(p[1]);
	assert_int_equal(setenv("OURS", "secret", 1), 0);
	opt.keep = p[0];
	assert_int_equal(child_run(&r, &opt, &err), 0);
	close(p[0]);
	close(open_here);
	/* 0, 1, 2, the kept one, and ls's own of the folder. */
	assert_int_equal(strncmp((char *)r.out.data, "5\nkept\n", 7), 0);
	assert_non_null(strstr((char *)r.out.data, "A=b\n"));
	assert_null(strstr((char *)r.out.data, "OURS"));
}

static int count_lines(const char *path)
{
	int n = 0;
	FILE *f = fopen(path, "re");
	for (int c; f && (c = fgetc(f)) != EOF;)
		n += c == '\n';
	if (f)
		(void)fclose(f);
	return n;
}

/* The process ids that a script wrote, one a line, go within a moment (wanted: false), or are
 * there (true). A reader of /proc/PID/cmdline may hang with somebody else's process. */
static void expect_pids(const char *path, int count, bool wanted)
{
	const struct timespec pause = { .tv_nsec = 20000000 };
	int n = 0, alive = 0;
	for (int tries = 0; tries < 3000; tries++) {
		int pid;
		FILE *f = fopen(path, "re");
		n = alive = 0;
		while (f && fscanf(f, "%d\n", &pid) == 1) {
			n++;
			alive += kill(pid, 0) == 0;
		}
		if (f)
			(void)fclose(f);
		if (n == count && alive == (wanted ? count : 0))
			return;
		(void)nanosleep(&pause, NULL);
	}
	fail_msg("%d processes noted, %d alive", n, alive);
}

static void test_deadlines(void **state)
{
	/* A grandchild that ignores SIGTERM goes too. */
	const char *const argv[] = { "/bin/sh", "-c",
				     "echo $$ >>$F; (trap '' TERM; sh -c 'echo $PPID' >>$F; sleep "
				     "77) & sleep 77",
				     NULL };
	struct child_options opt = shell(argv);
	auto_child_result r = { 0 };
	char file[] = "/tmp/bough-child.XXXXXX", var[64];
	close(mkstemp(file));
	(void)snprintf(var, sizeof(var), "F=%s", file);
	const char *const with[] = { "PATH=/usr/bin:/bin", var, NULL };
	opt.envp = with;
	char said[64];
	for (int stalls = 0; stalls < 2; stalls++) {
		/* So long that a busy machine has come to the second process. */
		unsigned s = 1;
		do {
			assert_true(s < 60);
			assert_int_equal(truncate(file, 0), 0);
			opt.deadline_s = stalls ? 200 : s;
			opt.stall_s = stalls ? s : 0;
			assert_int_equal(child_run(&r, &opt, &err), -ETIMEDOUT);
			(void)snprintf(said, sizeof(said),
				       stalls ? "nothing came for %u s" : "longer than %u s", s);
			assert_non_null(strstr(err.text, said));
			s *= 3;
		} while (count_lines(file) < 2);
		expect_pids(file, 2, false);
	}
	(void)unlink(file);
}

/* What works without saying anything isn't taken for stalled. */
static void test_busy(void **state)
{
	const char *const argv[] = { "/bin/sh", "-c",
				     "i=0; while [ $i -lt 600000 ]; do i=$((i+1)); done; echo $i",
				     NULL };
	struct child_options opt = shell(argv);
	auto_child_result r = { 0 };
	opt.stall_s = 2;
	assert_int_equal(child_run(&r, &opt, &err), 0);
	assert_string_equal((char *)r.out.data, "600000\n");
}

static bool count_line(void *ctx, char *text)
{
	int *n = ctx;
	bool is_progress = strncmp(text, "p", 1) == 0;
	*n += is_progress;
	return is_progress;
}

static void test_lines(void **state)
{
	const char *const argv[] = { "/bin/sh", "-c",
				     "printf 'p1\\rp2\\rend\\np3' >&2; exec 2>&1; head -c 40000 "
				     "/dev/zero | tr '\\0' x >&2",
				     NULL };
	struct child_options opt = shell(argv);
	auto_child_result r = { 0 };
	int n = 0;
	opt.line = count_line;
	opt.ctx = &n;
	assert_int_equal(child_run(&r, &opt, &err), 0);
	assert_int_equal(n, 3);
	assert_string_equal((char *)r.err.data, "end\n");
	assert_true(r.out.len == 40000);
}

static void test_last_words(void **state)
{
	const char *const argv[] = { "/bin/sh", "-c",
				     "yes 0123456789 | head -n 20000 >&2; echo last >&2", NULL };
	struct child_options opt = shell(argv);
	auto_child_result r = { 0 };
	assert_int_equal(child_run(&r, &opt, &err), 0);
	assert_true(r.err.len <= CHILD_ERR_MAX);
	assert_string_equal((char *)r.err.data + r.err.len - 5, "last\n");
}

static int cancel(void *ctx)
{
	return -ECANCELED;
}

static void test_cancel(void **state)
{
	const char *const argv[] = { "/bin/sleep", "60", NULL };
	struct child_options opt = shell(argv);
	auto_child_result r = { 0 };
	opt.tick = cancel;
	assert_int_equal(child_run(&r, &opt, &err), -ECANCELED);
}

/* When we are killed, all of it goes. */
static void test_our_death(void **state)
{
	char file[] = "/tmp/bough-child.XXXXXX", var[64];
	close(mkstemp(file));
	(void)snprintf(var, sizeof(var), "F=%s", file);
	const char *const with[] = { "PATH=/usr/bin:/bin", var, NULL };
	const char *const argv[] = {
		"/bin/sh", "-c",
		"(sh -c 'echo $PPID' >>$F; exec sleep 88) & echo $$ >>$F; exec sleep 88", NULL
	};
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct child_options opt = shell(argv);
		struct child_result r = { 0 };
		opt.envp = with;
		_exit(child_run(&r, &opt, &err) < 0);
	}
	expect_pids(file, 2, true);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	expect_pids(file, 2, false);
	(void)unlink(file);
}

static atomic_bool busy_stop;

static void *be_busy(void *arg)
{
	static const char *const none[] = { "/bin/true", NULL };
	pid_t pid;
	while (!atomic_load(&busy_stop)) {
		(void)signal(SIGABRT, SIG_DFL);
		if (posix_spawn(&pid, none[0], NULL, NULL, (char *const *)(uintptr_t)none,
				NULL) == 0)
			(void)waitpid(pid, NULL, 0);
	}
	return NULL;
}

/* What other threads hold when we are forked doesn't stop the child. */
static void test_locks_elsewhere(void **state)
{
	const char *const argv[] = { "/bin/true", NULL };
	struct child_options opt = shell(argv);
	pthread_t threads[2];
	opt.deadline_s = 60;
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, be_busy, NULL), 0);
	int r = 0;
	for (int i = 0; i < 200 && r == 0; i++) {
		auto_child_result res = { 0 };
		r = child_run(&res, &opt, &err);
	}
	atomic_store(&busy_stop, true);
	for (int i = 0; i < 2; i++)
		(void)pthread_join(threads[i], NULL);
	assert_int_equal(r, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_output),    cmocka_unit_test(test_no_program),
		cmocka_unit_test(test_killed),    cmocka_unit_test(test_shut_off),
		cmocka_unit_test(test_deadlines), cmocka_unit_test(test_busy),
		cmocka_unit_test(test_lines),     cmocka_unit_test(test_last_words),
		cmocka_unit_test(test_cancel),    cmocka_unit_test(test_locks_elsewhere),
		cmocka_unit_test(test_our_death),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
