/* bough-init: init.h says what it does. It has no handlers: all signals are blocked and taken one
 * by one, so there is no moment at which one is lost. */
#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/time_types.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <time.h>
#include "runtime/init/env.h"
#include "runtime/init/init.h"
#include "runtime/init/sys.h"
#include "runtime/init/tree.h"

enum {
	PATH_BYTES = 4096,
	FOLDERS_DEEP = 64, /* -f: below each other */
	POLL_MS = 10, /* -w looks so often whether the others have ended */
	NOHANG = 1,   /* of wait4 */
	SETTLE_MS = 200,
	QUEUED = -1, /* si_code: SI_QUEUE */
};

/* struct siginfo of the kernel, of one that was queued. */
struct info {
	int signo, error, code, pad, pid, uid;
	uint64_t value;
	char rest[96];
};
_Static_assert(sizeof(struct info) == 128, "as the kernel has it");

struct init {
	char **argv, **env; /* of the command; argv NULL: wait */
	uint64_t timeout_ms;
	bool first; /* process 1 */
	uint64_t old_mask;
	long child;
	uint64_t deadline; /* clock_ms; 0: none */
	bool timed_out, signalled;
	int ending; /* -w: the signal that ends it; 0: it waits */
};

/* The compiler may call them for what looks like a copy. */
void *memset(void *p, int c, size_t n);
void *memset(void *p, int c, size_t n)
{
	volatile char *q = p;
	while (n-- > 0)
		*q++ = (char)c;
	return p;
}
void *memcpy(void *to, const void *from, size_t n);
void *memcpy(void *to, const void *from, size_t n)
{
	volatile char *q = to;
	const char *p = from;
	while (n-- > 0)
		*q++ = *p++;
	return to;
}

__attribute__((noreturn)) static void leave(int code)
{
	for (;;)
		sys1(SYS_exit_group, code);
}

static uint64_t clock_ms(void)
{
	struct __kernel_timespec t = { 0, 0 };
	sys2(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void say(const char *s)
{
	(void)sys3(SYS_write, 2, (long)s, (long)str_len(s)); /* nowhere else to say it */
}

/* ---- the command ---- */

static const char *search_path(char **env)
{
	for (; env && *env; env++) {
		const char *e = *env;
		if (e[0] == 'P' && e[1] == 'A' && e[2] == 'T' && e[3] == 'H' && e[4] == '=')
			return e + 5;
	}
	return INIT_PATH_DEFAULT;
}

/* As execvp, but what isn't executable is no script for sh. Returns why not. */
static long execute(char **argv, char **env)
{
	const char *name = argv[0];
	size_t len = str_len(name);
	if (len == 0)
		return -ENOENT;
	for (const char *p = name; *p; p++)
		if (*p == '/')
			return sys3(SYS_execve, (long)name, (long)argv, (long)env);
	long why = -ENOENT;
	char path[PATH_BYTES];
	for (const char *p = search_path(env), *end;; p = end + 1) {
		for (end = p; *end && *end != ':'; end++)
			;
		size_t dir = (size_t)(end - p);
		if (dir + len + 2 <= sizeof(path)) {
			memcpy(path, p, dir);
			path[dir] = '/';
			/* An empty part is the present folder. */
			memcpy(path + (dir ? dir + 1 : 0), name, len + 1);
			long r = sys3(SYS_execve, (long)path, (long)argv, (long)env);
			if (r != -ENOENT && r != -ENOTDIR)
				why = r;
			if (why != -ENOENT && why != -EACCES)
				return why;
		}
		if (!*end)
			return why;
	}
}

__attribute__((noreturn)) static void be_command(const struct init *in)
{
	int group = (int)sys1(SYS_getpid, 0);
	sys2(SYS_setpgid, 0, 0);
	/* Nothing but ENOTTY where there is no terminal. */
	sys3(SYS_ioctl, 0, TIOCSPGRP, (long)&group);
	sys4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&in->old_mask, 0, sizeof(in->old_mask));
	/* Of an exec it is that of the runtime, which is the daemon's. */
	sys1(SYS_umask, 022);
	long r = execute(in->argv, in->env);
	bool absent = r == -ENOENT || r == -ENOTDIR;
	say("bough: ");
	say(in->argv[0]);
	say(absent          ? ": not found\n"
	    : r == -EACCES  ? ": may not be executed\n"
	    : r == -ENOEXEC ? ": not a program of this machine, nor a script that names its "
			      "interpreter\n"
	    : r == -E2BIG   ? ": arguments and environment are too long\n"
			    : ": can't be executed\n");
	leave(absent ? INIT_EXIT_ABSENT : INIT_EXIT_DENIED);
}

/* ---- signals ---- */

/* Whether it came before, by its number. */
static bool came_before(const struct info *info)
{
	static uint64_t numbers[INIT_NUMBERS];
	static uint32_t next;
	if (info->code != QUEUED || !info->value)
		return false;
	for (uint32_t i = 0; i < INIT_NUMBERS && numbers[i]; i++)
		if (numbers[i] == info->value)
			return true;
	numbers[next++ % INIT_NUMBERS] = info->value;
	return false;
}

static void forward(struct init *in, int sig)
{
	/* Process 1 that waits has no command of its own: all others are meant. */
	if (!in->argv && in->first)
		sys2(SYS_kill, -1, sig);
	else if (tree_read() >= 0)
		tree_signal(sig);
	else if (in->child > 0)
		sys2(SYS_kill, -in->child, sig);
}

__attribute__((noreturn)) static void kill_all(const struct init *in, int code)
{
	if (!in->first) /* else the kernel kills what is in the namespace */
		tree_kill();
	leave(code);
}

/* Reaps whoever has ended, and ends with the command. */
static void reap(const struct init *in)
{
	int status = 0;
	for (long pid; (pid = sys4(SYS_wait4, -1, (long)&status, NOHANG, 0)) > 0;) {
		if (pid != in->child)
			continue;
		if (in->timed_out)
			kill_all(in, INIT_EXIT_TIMEOUT);
		/* What else the signal reached ends in these moments: then it has, when this one
		 * does. (And gVisor of 2024 kills the whole sandbox where it hasn't.) */
		if (in->signalled && !in->first)
			tree_await(SETTLE_MS);
		leave(status & 0x7f ? 128 + (status & 0x7f) : status >> 8 & 0xff);
	}
}

static void take(struct init *in, int sig, const struct info *info)
{
	if (came_before(info))
		return;
	if (sig == SIGCHLD) {
		reap(in);
		return;
	}
	if (sig == INIT_KILL)
		kill_all(in, 128 + SIGKILL);
	forward(in, sig);
	in->signalled = true;
	if (!in->argv && (sig == SIGTERM || sig == SIGINT || sig == SIGHUP || sig == SIGQUIT))
		in->ending = sig;
}

static void pass_deadline(struct init *in)
{
	if (in->timed_out)
		kill_all(in, INIT_EXIT_TIMEOUT);
	in->timed_out = true;
	in->deadline = clock_ms() + INIT_GRACE_MS;
	forward(in, SIGTERM);
	forward(in, SIGCONT); /* what is stopped would never take it */
}

/* Whether no process but this one is left. */
static bool alone(const struct init *in)
{
	reap(in);
	return in->first ? sys2(SYS_kill, -1, 0) == -ESRCH : tree_read() <= 0;
}

__attribute__((noreturn)) static void serve(struct init *in)
{
	uint64_t all = ~(uint64_t)0;
	struct info info;
	for (;;) {
		uint64_t now = clock_ms(), wait = UINT64_MAX;
		if (in->ending && alone(in))
			leave(128 + in->ending);
		if (in->deadline)
			wait = in->deadline > now ? in->deadline - now : 0;
		if (in->ending)
			wait = POLL_MS;
		struct __kernel_timespec t = { (long long)(wait / 1000),
					       (long long)(wait % 1000) * 1000000 };
		long sig = sys4(SYS_rt_sigtimedwait, (long)&all, (long)&info,
				wait == UINT64_MAX ? 0 : (long)&t, sizeof(all));
		if (sig > 0)
			take(in, (int)sig, &info);
		else if (in->deadline && clock_ms() >= in->deadline)
			pass_deadline(in);
	}
}

/* ---- the beginning ---- */

/* UINT64_MAX: that is none. */
static uint64_t parse_number(const char *s)
{
	uint64_t v = 0;
	for (const char *p = s; *p; p++) {
		if (*p < '0' || *p > '9' || v > UINT32_MAX)
			return UINT64_MAX;
		v = v * 10 + (uint64_t)(*p - '0');
	}
	return *s ? v : UINT64_MAX;
}

/* Whether it is the option of this letter. */
static bool is_option(const char *s, char letter)
{
	return s[0] == '-' && s[1] == letter && !s[2];
}

static bool parse(struct init *in, long argc, char **argv)
{
	long i = 1;
	if (argc == 2 && is_option(argv[1], 'w'))
		return true;
	if (i + 1 < argc && is_option(argv[i], 'n'))
		i += 2;
	if (i + 1 < argc && is_option(argv[i], 't')) {
		in->timeout_ms = parse_number(argv[i + 1]);
		i += 2;
	}
	if (i + 1 >= argc || !is_option(argv[i], '-') || in->timeout_ms == UINT64_MAX)
		return false;
	in->argv = argv + i + 1;
	return true;
}

static uint64_t parse_hex(const char *s)
{
	uint64_t v = 0;
	for (; *s; s++)
		v = v << 4 | (uint64_t)(*s <= '9' ? *s - '0' : *s - 'a' + 10);
	return v;
}

static long queue_to(long pid, void *info)
{
	const struct info *i = info;
	return i->value ? sys3(SYS_rt_sigqueueinfo, pid, i->signo, (long)i)
			: sys2(SYS_kill, pid, i->signo);
}

/* -s NAME SIGNAL [NUMBER]: the exit code. */
static int signal_other(const char *name, const char *signal, const char *number)
{
	static const char start[] = INIT_PATH "\0-n"; /* and the NUL that ends it */
	char begin[sizeof(start) + INIT_NAME_MAX + 1];
	size_t n = str_len(name) + 1;
	uint64_t sig = parse_number(signal);
	if (n > INIT_NAME_MAX + 1 || sig > INIT_KILL)
		return INIT_EXIT_USAGE;
	struct info info = { .signo = (int)sig, .code = QUEUED, .value = parse_hex(number) };
	if (name[0] == INIT_FIRST[0] && !name[1])
		return queue_to(1, &info) != 0;
	memcpy(begin, start, sizeof(start));
	memcpy(begin + sizeof(start), name, n);
	return tree_each_named(begin, (long)(sizeof(start) + n), queue_to, &info) == 0;
}

/* -f: the exit code. Of what that kernel lets go it still keeps the folder, as the newest: hence
 * the rounds. */
static int look_around(void)
{
	char path[] = INIT_LETTERS "a";
	for (int i = 0; i < FOLDERS_DEEP * INIT_N_LETTERS; i++) {
		path[sizeof(path) - 2] = (char)('a' + i % INIT_N_LETTERS);
		if (sys4(SYS_faccessat, AT_FDCWD, (long)path, 0, 0) < 0)
			return 1;
	}
	return 0;
}

__attribute__((noreturn, used)) void begin(long *stack);
__attribute__((noreturn, used)) void begin(long *stack)
{
	long argc = stack[0];
	char **argv = (char **)(stack + 1);
	struct init in = { .env = argv + argc + 1 };
	if ((argc == 4 || argc == 5) && is_option(argv[1], 's'))
		leave(signal_other(argv[2], argv[3], argc == 5 ? argv[4] : "0"));
	if (argc == 2 && is_option(argv[1], 'f'))
		leave(look_around());
	if (!parse(&in, argc, argv)) {
		say("usage: bough-init [-n NAME] [-t MS] -- COMMAND [ARGUMENT...] | -w | -s NAME "
		    "SIGNAL [NUMBER] | -f\n");
		leave(INIT_EXIT_USAGE);
	}
	in.env = env_with_file(in.env);
	uint64_t all = ~(uint64_t)0;
	sys4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&in.old_mask, sizeof(all));
	/* Where it was ignored nobody could be waited for. A struct of zeros means the default. */
	uint64_t action[4] = { 0 };
	sys4(SYS_rt_sigaction, SIGCHLD, (long)action, 0, sizeof(all));
	in.first = sys1(SYS_getpid, 0) == 1;
	sys2(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1);
	if (in.argv) {
		in.child = sys4(SYS_clone, SIGCHLD, 0, 0, 0);
		if (in.child < 0) {
			say("bough: can't make a process\n");
			leave(INIT_EXIT_USAGE);
		}
		if (in.child == 0)
			be_command(&in);
		/* Both sides do it: whoever signals the group finds it. */
		sys2(SYS_setpgid, in.child, in.child);
	}
	if (in.timeout_ms)
		in.deadline = clock_ms() + in.timeout_ms;
	serve(&in);
}

SYS_START;
