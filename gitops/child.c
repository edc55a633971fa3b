#include "gitops/child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fs/base/cleanup.h"

enum {
	TICK_MS = 200,
	/* Waiting for a network costs a process next to nothing; one that works, even on a busy
	 * machine, uses more than this of each second. */
	BUSY_TICKS = 5,
	BUSY_CHECK_MS = 1000,
};

void child_result_done(struct child_result *r)
{
	buf_done(&r->out);
	buf_done(&r->err);
}

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * (int64_t)1000 + t.tv_nsec / 1000000;
}

/* ---- the guard and the program: between fork and exec, so async-signal-safe calls only ---- */

struct start {
	const struct child_options *opt;
	int in, out, err, status, lifeline; /* all above CHILD_KEPT + 1 */
	int keep, keep2;
	char *const *argv, *const *envp;
};

/* By the system call, as plain_fork: what else ends with a process is that of the one before. */
static void __attribute__((noreturn)) end(int code)
{
	(void)syscall(SYS_exit_group, code);
	__builtin_unreachable();
}

static void __attribute__((noreturn)) fail_start(const struct start *s)
{
	int e = errno;
	(void)!write(s->status, &e, sizeof(e)); /* nobody else could be told */
	end(127);
}

/* By system calls: from 2.41 on the C library takes a lock in _Fork() and in signal() for SIGABRT,
 * which another thread of the process that we were forked from may hold; nobody here lets go. */
static pid_t plain_fork(void)
{
	return (pid_t)syscall(SYS_clone, (unsigned long)SIGCHLD, 0UL, 0UL, 0UL, 0UL);
}

/* It fails for those that can't be changed. */
static void default_signals(void)
{
	enum { KERNEL_SIGSET = 8 };
	static const unsigned long kernel_default[16]; /* the kernel's struct sigaction, all zero */
	for (int i = 1; i < NSIG; i++)
		(void)syscall(SYS_rt_sigaction, i, kernel_default, NULL, KERNEL_SIGSET);
}

static void __attribute__((noreturn)) be_program(const struct start *s, pid_t guard)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != guard)
		end(127);
	sigset_t none;
	sigemptyset(&none);
	default_signals();
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	if (dup2(s->in, 0) < 0 || dup2(s->out, 1) < 0 || dup2(s->err, 2) < 0)
		fail_start(s);
	if ((s->keep >= 0 && dup2(s->keep, CHILD_KEPT) < 0) ||
	    (s->keep2 >= 0 && dup2(s->keep2, CHILD_KEPT + 1) < 0))
		fail_start(s);
	unsigned first = CHILD_KEPT + (s->keep >= 0) + (s->keep2 >= 0);
	if (syscall(SYS_close_range, first, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		fail_start(s);
	if (chdir(s->opt->dir ? s->opt->dir : "/") < 0)
		fail_start(s);
	if (s->opt->nice)
		(void)setpriority(PRIO_PROCESS, 0, s->opt->nice); /* slower is only nicer */
	execve(s->argv[0], s->argv, s->envp);
	fail_start(s);
}

static void __attribute__((noreturn)) be_guard(const struct start *s)
{
	if (setpgid(0, 0) < 0)
		fail_start(s);
	(void)signal(SIGTERM, SIG_IGN); /* the group is asked to end; the guard sees it through */
	pid_t self = getpid();
	pid_t pid = plain_fork();
	if (pid < 0)
		fail_start(s);
	if (pid == 0)
		be_program(s, self);
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	int lifeline = dup2(s->lifeline, 0);
	if (pidfd < 0 || lifeline < 0 || dup2(pidfd, 1) < 0) {
		(void)kill(pid, SIGKILL);
		fail_start(s);
	}
	(void)syscall(SYS_close_range, 2U, ~0U,
		      0); /* what the program writes to must see its end */
	struct pollfd p[] = { { .fd = 0, .events = POLLIN }, { .fd = 1, .events = POLLIN } };
	for (;;) {
		if (poll(p, 2, -1) < 0 && errno == EINTR)
			continue;
		if (p[0].revents)
			(void)kill(-self, SIGKILL); /* this one too */
		if (p[1].revents)
			break;
	}
	int status = 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	end(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* ---- the side of this process ---- */

struct run {
	const struct child_options *opt;
	struct child_result *res;
	pid_t guard;
	int out, err;         /* pipes from it; -1: ended */
	int lifeline;         /* our end */
	struct buf line;      /* of stderr, unfinished */
	bool cut;             /* the rest of the line is left out */
	int64_t begun, moved; /* ms */
	int64_t checked;      /* when its processor time was looked at */
	int64_t gone;         /* since when the program itself is known to have ended; 0: it runs */
	uint64_t ticks;
};

static int above_kept(int fd)
{
	int high = fcntl(fd, F_DUPFD_CLOEXEC, CHILD_KEPT + 2);
	return high < 0 ? -errno : high;
}

static int make_pipe(int p[2], struct err *err)
{
	int low[2];
	if (pipe2(low, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "make a pipe");
	p[0] = above_kept(low[0]);
	p[1] = above_kept(low[1]);
	close(low[0]);
	close(low[1]);
	if (p[0] >= 0 && p[1] >= 0)
		return 0;
	int r = p[0] < 0 ? p[0] : p[1];
	if (p[0] >= 0)
		close(p[0]);
	if (p[1] >= 0)
		close(p[1]);
	p[0] = p[1] = -1;
	return err_sys(err, r, "make a pipe");
}

static int make_input(const struct child_options *opt, struct err *err)
{
	auto_fd fd = opt->input ? memfd_create("input", MFD_CLOEXEC)
				: open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, -errno, "make a program's input");
	for (size_t done = 0; done < opt->input_len && opt->input;) {
		ssize_t n = write(fd, (const char *)opt->input + done, opt->input_len - done);
		if (n < 0)
			return err_sys(err, -errno, "make a program's input");
		done += (size_t)n;
	}
	if (opt->input && lseek(fd, 0, SEEK_SET) < 0)
		return err_sys(err, -errno, "make a program's input");
	int high = above_kept(fd);
	return high < 0 ? err_sys(err, high, "make a program's input") : high;
}

/* Reads what the program's start failed with; 0: it runs. */
static int started(int status)
{
	int e = 0;
	ssize_t n;
	while ((n = read(status, &e, sizeof(e))) < 0 && errno == EINTR)
		;
	return n == sizeof(e) ? -e : 0;
}

static int start(struct run *run, struct err *err)
{
	const struct child_options *opt = run->opt;
	int out[2] = { -1, -1 }, er[2] = { -1, -1 }, status[2] = { -1, -1 }, life[2] = { -1, -1 };
	auto_fd in = make_input(opt, err);
	int r = in < 0 ? in : make_pipe(out, err);
	if (r >= 0)
		r = make_pipe(er, err);
	if (r >= 0)
		r = make_pipe(status, err);
	if (r >= 0)
		r = make_pipe(life, err);
	auto_fd out_r = out[0], out_w = out[1], err_r = er[0], err_w = er[1];
	auto_fd status_r = status[0], status_w = status[1], life_r = life[0], life_w = life[1];
	auto_fd keep = r >= 0 && opt->keep >= 0 ? above_kept(opt->keep) : -1;
	auto_fd keep2 = r >= 0 && opt->keep2 >= 0 ? above_kept(opt->keep2) : -1;
	if (r < 0)
		return r;
	const struct start s = {
		.opt = opt,
		.in = in,
		.out = out_w,
		.err = err_w,
		.status = status_w,
		.lifeline = life_r,
		.keep = keep,
		.keep2 = keep2,
		.argv = (char *const *)(uintptr_t)opt->argv,
		.envp = (char *const *)(uintptr_t)opt->envp,
	};
	pid_t pid = _Fork();
	if (pid < 0)
		return err_sys(err, -errno, "fork");
	if (pid == 0) {
		/* Our end must not live on in the guard, or it would never see us die. */
		close(life_w);
		be_guard(&s);
	}
	(void)setpgid(pid, pid); /* whoever comes first; it may be done already */
	run->guard = pid;
	run->out = steal_fd(&out_r);
	run->err = steal_fd(&err_r);
	run->lifeline = steal_fd(&life_w);
	close(steal_fd(&status_w));
	r = started(status_r);
	return r < 0 ? err_sys(err, r, "run %s", opt->argv[0]) : 0;
}

/* Processor time of all in its group, in clock ticks. */
static uint64_t group_ticks(pid_t group)
{
	uint64_t sum = 0;
	auto_dir *d = opendir("/proc");
	const struct dirent *e;
	while (d && (e = readdir(d))) {
		char path[64], text[1024];
		if (e->d_name[0] < '0' || e->d_name[0] > '9')
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%.20s/stat", e->d_name);
		auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
		if (n <= 0)
			continue; /* it ended */
		text[n] = '\0';
		const char *p = strrchr(text, ')'); /* behind the name, which may hold anything */
		int pgrp = 0;
		unsigned long user = 0, system = 0;
		if (p &&
		    sscanf(p + 1, " %*c %*d %d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &pgrp,
			   &user, &system) == 3 &&
		    pgrp == group)
			sum += user + system;
	}
	return sum;
}

static int end_line(struct run *run)
{
	if (run->line.len == 0)
		return 0;
	buf_u8(&run->line, 0);
	if (buf_error(&run->line))
		return -ENOMEM;
	char *text = (char *)run->line.data;
	if (!run->opt->line || !run->opt->line(run->opt->ctx, text)) {
		struct buf *kept = &run->res->err;
		size_t n = strlen(text);
		if (kept->len + n + 1 > CHILD_ERR_MAX) { /* the last lines say why */
			size_t half = kept->len / 2;
			memmove(kept->data, kept->data + half, kept->len - half);
			kept->len -= half;
		}
		buf_printf(kept, "%s\n", text);
	}
	buf_reset(&run->line);
	return buf_error(&run->res->err);
}

static int take_err(struct run *run, const char *p, size_t n)
{
	int r = 0;
	for (size_t i = 0; i < n && r >= 0; i++) {
		if (p[i] == '\n' || p[i] == '\r') {
			r = end_line(run);
			run->cut = false;
		} else if (run->line.len < CHILD_LINE_MAX) {
			buf_u8(&run->line, (uint8_t)(p[i] ? p[i] : ' '));
		} else {
			run->cut = true;
		}
	}
	return r;
}

/* What a pipe holds now. 1: it moved; 0: it ended or there is nothing. */
static int take(struct run *run, int *fd, bool is_err, struct err *err)
{
	char data[16384];
	ssize_t n = read(*fd, data, sizeof(data));
	if (n < 0)
		return errno == EINTR ? 0 : err_sys(err, -errno, "read from a program");
	if (n == 0) {
		close(*fd);
		*fd = -1;
		return 0;
	}
	int r = 0;
	if (is_err)
		r = take_err(run, data, (size_t)n);
	else if (run->res->out.len + (size_t)n > CHILD_OUT_MAX)
		return err_set(err, -EFBIG, "%s said too much", run->opt->argv[0]);
	else
		buf_add(&run->res->out, data, (size_t)n);
	if (r < 0 || buf_error(&run->res->out))
		return err_no_memory(err);
	return 1;
}

static int check_time(struct run *run, struct err *err)
{
	const struct child_options *opt = run->opt;
	int64_t now = now_ms();
	if (opt->deadline_s && now - run->begun > opt->deadline_s * (int64_t)1000)
		return err_set(err, -ETIMEDOUT, "it took longer than %u s", opt->deadline_s);
	if (!opt->stall_s)
		return 0;
	if (now - run->checked >= BUSY_CHECK_MS) {
		uint64_t ticks = group_ticks(run->guard);
		if (ticks >= run->ticks + BUSY_TICKS)
			run->moved = now;
		run->ticks = ticks;
		run->checked = now;
	}
	if (now - run->moved > opt->stall_s * (int64_t)1000)
		return err_set(err, -ETIMEDOUT, "nothing came for %u s", opt->stall_s);
	return 0;
}

/* Waits for the guard's end without taking its number away. */
static bool ended(pid_t guard, int wait_ms)
{
	for (int64_t end = now_ms() + wait_ms;;) {
		siginfo_t info = { 0 };
		if (waitid(P_PID, (id_t)guard, &info, WEXITED | WNOWAIT | WNOHANG) == 0 &&
		    info.si_pid == guard)
			return true;
		if (now_ms() >= end)
			return false;
		const struct timespec pause = { .tv_nsec = 2000000 };
		(void)nanosleep(&pause, NULL); /* a signal only makes the wait shorter */
	}
}

/* What a program leaves running holds its pipes open, but isn't waited for. */
static bool left_over(struct run *run)
{
	if (!run->gone && ended(run->guard, 0))
		run->gone = now_ms();
	return run->gone && now_ms() - run->gone > CHILD_GRACE_MS;
}

/* Until both pipes ended, or something is wrong. */
static int watch(struct run *run, struct err *err)
{
	run->begun = run->moved = run->checked = now_ms();
	while (run->out >= 0 || run->err >= 0) {
		struct pollfd p[] = { { .fd = run->out, .events = POLLIN },
				      { .fd = run->err, .events = POLLIN } };
		int n = poll(p, 2, TICK_MS);
		if (n < 0 && errno != EINTR)
			return err_sys(err, -errno, "poll");
		if (n == 0 && left_over(run))
			break;
		int r = 0;
		for (int i = 0; i < 2 && n > 0 && r >= 0; i++) {
			if (!p[i].revents)
				continue;
			r = take(run, i ? &run->err : &run->out, i, err);
			if (r > 0)
				run->moved = now_ms();
		}
		if (r >= 0)
			r = check_time(run, err);
		if (r >= 0 && run->opt->tick && (r = run->opt->tick(run->opt->ctx)) != 0)
			return err_set(err, r < 0 ? r : -ECANCELED, "it was cancelled");
		if (r < 0)
			return r;
	}
	return end_line(run) < 0 ? err_no_memory(err) : 0;
}

/* Nothing of the group is left. `ask`: it may clean up first. */
static int finish(struct run *run, bool ask)
{
	if (run->guard <= 0)
		return 0;
	if (ask)
		(void)kill(-run->guard, SIGTERM);
	(void)ended(run->guard, ask ? CHILD_GRACE_MS : 0);
	/* While the guard is not waited for, its number is nobody else's. */
	(void)kill(-run->guard, SIGKILL);
	int status = 0;
	while (waitpid(run->guard, &status, 0) < 0 && errno == EINTR)
		;
	run->guard = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int child_run(struct child_result *out, const struct child_options *opt, struct err *err)
{
	auto_child_result res = { 0 };
	struct run run = { .opt = opt, .res = &res, .out = -1, .err = -1, .lifeline = -1 };
	int r = start(&run, err);
	if (r >= 0)
		r = watch(&run, err);
	/* Both pipes ended: the program is ending, or has closed them; it gets a moment. */
	if (r >= 0)
		(void)ended(run.guard, CHILD_GRACE_MS);
	int status = finish(&run, r < 0);
	if (run.out >= 0)
		close(run.out);
	if (run.err >= 0)
		close(run.err);
	if (run.lifeline >= 0)
		close(run.lifeline);
	buf_done(&run.line);
	if (r < 0)
		return r;
	buf_u8(&res.out, 0);
	buf_u8(&res.err, 0);
	if (buf_error(&res.out) || buf_error(&res.err))
		return err_no_memory(err);
	res.out.len--;
	res.err.len--;
	res.status = status;
	*out = res;
	memset(&res, 0, sizeof(res));
	return 0;
}
