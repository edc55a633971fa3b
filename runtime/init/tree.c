#include "runtime/init/tree.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/time_types.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include "runtime/init/sys.h"

enum {
	/* More than a sandbox may have; what is beyond it is found once others are gone. */
	TASKS_MAX = 32768,
	PIDS_MAX = 4194304, /* of the kernel: PID_MAX_LIMIT */
	STOP_ROUNDS = 500,  /* half a second: one that sleeps in the kernel doesn't stop */
	STAT_MAX = 512,     /* of which the parent's id is near the beginning */
};

struct task {
	uint32_t pid, parent;
	char state;
};

/* What isn't used of these costs no memory. */
static struct task tasks[TASKS_MAX];
static uint8_t mine[PIDS_MAX / 8]; /* a bit for each process that descends from this one */
static uint32_t n_tasks;

static bool is_mine(uint32_t pid)
{
	return mine[pid / 8] >> pid % 8 & 1;
}

/* A number at *at, at most PIDS_MAX - 1; -1: there is none. */
static long number(const char **at)
{
	long v = 0;
	const char *p = *at;
	for (; *p >= '0' && *p <= '9'; p++)
		if ((v = v * 10 + (*p - '0')) >= PIDS_MAX)
			return -1;
	if (p == *at)
		return -1;
	*at = p;
	return v;
}

/* "PID (NAME) STATE PARENT ...", where NAME may hold anything. */
static bool parse_stat(const char *s, long len, struct task *out)
{
	while (len > 0 && s[len - 1] != ')')
		len--;
	if (len == 0 || s[len] != ' ' || !s[len + 1] || s[len + 2] != ' ')
		return false;
	out->state = s[len + 1];
	const char *p = s + len + 3;
	long parent = number(&p);
	out->parent = (uint32_t)parent;
	return parent >= 0;
}

/* What the process's file says, with a NUL behind it: how long it is, or less than 1. */
static long read_file(int proc, const char *name, const char *file, char text[STAT_MAX])
{
	char path[24];
	size_t n = str_len(name), m = str_len(file) + 1;
	if (n + m > sizeof(path))
		return -ENAMETOOLONG;
	for (size_t i = 0; i < n; i++)
		path[i] = name[i];
	for (size_t i = 0; i < m; i++)
		path[n + i] = file[i];
	long fd = sys4(SYS_openat, proc, (long)path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return fd; /* it has just ended */
	long len = sys3(SYS_read, fd, (long)text, STAT_MAX - 1);
	sys1(SYS_close, fd);
	text[len > 0 ? len : 0] = '\0';
	return len;
}

static bool read_task(int proc, const char *name, struct task *out)
{
	char text[STAT_MAX];
	const char *p = name;
	long pid = number(&p);
	if (pid <= 0 || *p)
		return false;
	long len = read_file(proc, name, "/stat", text);
	out->pid = (uint32_t)pid;
	return len > 0 && parse_stat(text, len, out);
}

static void add_task(int proc, const char *name, void *arg)
{
	(void)arg;
	if (n_tasks < TASKS_MAX && read_task(proc, name, &tasks[n_tasks]))
		n_tasks++;
}

/* Calls fn with each name in /proc. */
static long each_name(void (*fn)(int proc, const char *name, void *arg), void *arg)
{
	static char names[8192] __attribute__((aligned(8)));
	long proc = sys4(SYS_openat, -1, (long)"/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (proc < 0)
		return proc;
	long n;
	while ((n = sys3(SYS_getdents64, proc, (long)names, sizeof(names))) > 0) {
		/* struct linux_dirent64: the record's length at 16, the name at 19. */
		for (long at = 0; at < n; at += *(uint16_t *)(names + at + 16))
			fn((int)proc, names + at + 19, arg);
	}
	sys1(SYS_close, proc);
	return n;
}

struct named {
	const char *begin;
	long len, found;
	long (*fn)(long pid, void *arg);
	void *arg;
};

static void if_named(int proc, const char *name, void *arg)
{
	struct named *w = arg;
	char text[STAT_MAX];
	const char *p = name;
	long pid = number(&p), len = pid > 0 && !*p ? read_file(proc, name, "/cmdline", text) : 0;
	if (len < w->len)
		return;
	for (long i = 0; i < w->len; i++)
		if (text[i] != w->begin[i])
			return;
	w->found += w->fn(pid, w->arg) == 0;
}

long tree_each_named(const char *begin, long len, long (*fn)(long pid, void *arg), void *arg)
{
	struct named w = { begin, len, 0, fn, arg };
	(void)each_name(if_named, &w); /* what can't be read has none */
	return w.found;
}

long tree_read(void)
{
	for (uint32_t i = 0; i < n_tasks; i++)
		mine[tasks[i].pid / 8] = 0;
	uint32_t self = (uint32_t)sys1(SYS_getpid, 0);
	mine[self / 8] = 0;
	n_tasks = 0;
	long r = each_name(add_task, NULL), found = 0;
	if (r < 0)
		return r;
	/* A parent is mostly listed before its children, so this is seldom done more than twice. */
	for (bool more = true; more;) {
		more = false;
		for (uint32_t i = 0; i < n_tasks; i++) {
			const struct task *t = &tasks[i];
			if (is_mine(t->pid) || (t->parent != self && !is_mine(t->parent)))
				continue;
			mine[t->pid / 8] |= (uint8_t)(1 << t->pid % 8);
			more = true;
			found += t->state != 'Z';
		}
	}
	return found;
}

void tree_signal(int sig)
{
	for (uint32_t i = 0; i < n_tasks; i++)
		if (is_mine(tasks[i].pid))
			sys2(SYS_kill, tasks[i].pid, sig);
}

static void pause_1ms(void)
{
	struct __kernel_timespec ms = { 0, 1000000 };
	sys2(SYS_nanosleep, (long)&ms, 0);
}

/* Whether one of them may still fork. */
static bool one_runs(void)
{
	for (uint32_t i = 0; i < n_tasks; i++) {
		char s = tasks[i].state;
		if (is_mine(tasks[i].pid) && s != 'T' && s != 't' && s != 'Z' && s != 'X')
			return true;
	}
	return false;
}

static void reap_all(void)
{
	while (sys4(SYS_wait4, -1, 0, 1 /* WNOHANG */, 0) > 0)
		;
}

void tree_await(int ms)
{
	for (int i = 0; i < ms && tree_read() > 0; i++) {
		reap_all();
		pause_1ms();
	}
	reap_all();
}

void tree_kill(void)
{
	/* Stopped first: they keep their places below the limit of processes, so a fork bomb comes
	 * to its end, where killing one at a time would only make room for the next. */
	for (int i = 0; i < STOP_ROUNDS && tree_read() > 0 && one_runs(); i++) {
		tree_signal(SIGSTOP);
		pause_1ms();
	}
	while (tree_read() > 0) {
		tree_signal(SIGKILL);
		reap_all();
		pause_1ms();
	}
}
