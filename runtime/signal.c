/* Signals to a bough-init: of an exec, or process 1. Where its process is the host's it is sent one
 * by its pidfd, with its number. Else (gVisor) the shim would signal the program on the host that
 * stands for the exec, which dies of it and leaves the exec behind, and knows of no numbers. So
 * each exec's bough-init has a name, and a second exec looks for it inside. By such an exec that
 * kernel is also made to let go of folders. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "runtime/init/init.h"
#include "runtime/shim_int.h"

int shim_name_exec(const char *exec, const char *spec, size_t len, struct buf *out, struct err *err)
{
	json_t *o = json_loadb(spec, len, 0, NULL), *args = json_object_get(o, "args");
	const char *first = json_string_value(json_array_get(args, 0));
	int r = 0;
	if (!o)
		return err_set(err, -EINVAL, "the spec of an exec isn't JSON");
	if (first && strcmp(first, INIT_PATH) == 0 &&
	    (json_array_insert_new(args, 1, json_string("-n")) < 0 ||
	     json_array_insert_new(args, 2, json_string(exec)) < 0))
		r = -ENOMEM;
	auto_free char *text = r < 0 ? NULL : json_dumps(o, JSON_COMPACT);
	json_decref(o);
	if (text)
		buf_add(out, text, strlen(text));
	return !text || buf_error(out) ? err_no_memory(err) : 0;
}

/* Of one that is root, who may signal whomever. args: taken over. */
static char *errand_spec(json_t *args)
{
	json_t *o = json_pack("{s:o, s:s, s:{s:i,s:i}, s:b, s:{s:[s],s:[s],s:[s]}}", "args", args,
			      "cwd", "/", "user", "uid", 0, "gid", 0, "noNewPrivileges", 1,
			      "capabilities", "bounding", "CAP_KILL", "effective", "CAP_KILL",
			      "permitted", "CAP_KILL");
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	return text;
}

enum {
	ERRAND_S = 10,   /* it takes milliseconds */
	BEGIN_MS = 5000, /* from the runtime's word to bough-init's first instructions */
	BEGIN_POLL_MS = 2,
};

/* Waits for its end, but not for ever: root inside may stop or freeze it. */
static int await_errand(struct shim *s, const char *id, struct shim_state *state, struct err *err)
{
	const struct itimerspec once = { .it_value = { .tv_sec = ERRAND_S } };
	auto_fd timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	if (timer < 0 || timerfd_settime(timer, 0, &once, NULL) < 0)
		return err_sys(err, -errno, "set a timer");
	int r = shim_wait(s, id, timer, state, err);
	return r == -ECANCELED
		       ? err_set(err, -ETIMEDOUT, "what was to do it didn't end within %d s",
				 ERRAND_S)
		       : r;
}

/* Runs bough-init with these arguments (taken over) to its end: its exit code. */
static int run_errand(struct shim *s, json_t *args, struct err *err)
{
	char id[64];
	struct shim_state state;
	const struct shim_io none = { 0 };
	auto_free char *spec = args ? errand_spec(args) : NULL;
	if (!spec)
		return err_no_memory(err);
	(void)snprintf(id, sizeof(id), "errand-%d-%llx", (int)gettid(),
		       (unsigned long long)clock_ns());
	int r = shim_exec_raw(s, id, &none, spec, strlen(spec), err);
	if (r < 0)
		return r;
	r = shim_start_process(s, id, -1, NULL, err);
	if (r >= 0)
		r = await_errand(s, id, &state, err);
	(void)shim_delete(s, id, NULL, NULL); /* else it goes with the container */
	return r < 0 ? r : (int)state.exit_status;
}

static int has_ended(struct err *err)
{
	return err_set(err, -ESRCH, "the process has ended");
}

static int signal_inside(struct shim *s, const char *exec, int sig, uint64_t number,
			 struct err *err)
{
	struct shim_state state;
	int r = shim_get(s, exec, &state, err);
	if (r < 0)
		return r;
	if (state.status == SHIM_STOPPED)
		return has_ended(err);
	if (state.status != SHIM_RUNNING)
		return err_set(err, -EBUSY, "a process takes signals only while it runs");
	char digits[16], hex[20];
	(void)snprintf(digits, sizeof(digits), "%d", sig);
	(void)snprintf(hex, sizeof(hex), "%016" PRIx64, number);
	r = run_errand(s, json_pack("[s,s,s,s,s]", INIT_PATH, "-s", exec ? exec : INIT_FIRST,
				    digits, hex),
		       err);
	/* That of a sandbox that runs since before an upgrade knows of no numbers. */
	if (r == INIT_EXIT_USAGE)
		r = exec ? run_errand(s, json_pack("[s,s,s,s]", INIT_PATH, "-s", exec, digits),
				      err)
			 : shim_kill(s, NULL, sig, false, err);
	if (r < 0)
		return err_prefix(err, r, "send a signal");
	if (r > 1)
		return err_set(err, -EIO, "what should have sent a signal ended with %d", r);
	return r == 0 ? 0 : has_ended(err);
}

/* false: it has ended, or may not be looked at. */
static bool read_proc(uint32_t pid, const char *what, char *out, size_t size)
{
	char path[32];
	(void)snprintf(path, sizeof(path), "/proc/%u/%s", pid, what);
	auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
	out[n > 0 ? n : 0] = '\0';
	return n >= 0;
}

/* bough-init blocks all signals, to take them one by one; while it waits for one, the kernel shows
 * them as if they weren't. */
static bool takes_signals(uint32_t pid)
{
	char text[4096];
	unsigned long long blocked = 0;
	if (!read_proc(pid, "status", text, sizeof(text)))
		return true;
	const char *line = strstr(text, "\nSigBlk:");
	if (line && sscanf(line, "\nSigBlk: %llx", &blocked) == 1 && blocked >> (SIGTERM - 1) & 1)
		return true;
	long call = -1;
	return !read_proc(pid, "syscall", text, sizeof(text)) ||
	       (sscanf(text, "%ld", &call) == 1 && call == SYS_rt_sigtimedwait);
}

/* A process 1 that doesn't yet never gets what comes now, and an exec dies of it. */
static void await_signals(uint32_t pid)
{
	for (int ms = 0; ms < BEGIN_MS && !takes_signals(pid); ms += BEGIN_POLL_MS)
		(void)usleep(BEGIN_POLL_MS * 1000);
}

/* Opens its process, which is this one where the shim still says so behind that. */
static int open_process(struct shim *s, const char *exec, struct err *err)
{
	struct shim_state was, is;
	int r = shim_get(s, exec, &was, err);
	if (r < 0)
		return r;
	if (was.status == SHIM_STOPPED)
		return has_ended(err);
	if (was.status == SHIM_CREATED || !was.pid)
		return err_set(err, -EBUSY, "the process hasn't begun");
	auto_fd fd = (int)syscall(SYS_pidfd_open, was.pid, 0); /* close-on-exec */
	if (fd < 0)
		return errno == ESRCH ? has_ended(err) : err_sys(err, -errno, "open the process");
	if (was.status == SHIM_RUNNING)
		await_signals(was.pid);
	r = shim_get(s, exec, &is, err);
	if (r < 0)
		return r;
	return is.status == SHIM_STOPPED || is.pid != was.pid ? has_ended(err) : steal_fd(&fd);
}

static int signal_directly(struct shim *s, const char *exec, int sig, uint64_t number,
			   struct err *err)
{
	siginfo_t info = { .si_signo = sig, .si_code = SI_QUEUE };
	memcpy(&info.si_value, &number, sizeof(number));
	auto_fd fd = open_process(s, exec, err);
	if (fd < 0)
		return fd;
	if (syscall(SYS_pidfd_send_signal, fd, sig, number ? &info : NULL, 0) < 0)
		return errno == ESRCH ? has_ended(err) : err_sys(err, -errno, "send a signal");
	return 0;
}

int shim_signal(struct shim *s, const char *exec, int sig, uint64_t number, struct err *err)
{
	/* It needs none, once being enough; and what has one is refused when the sandbox's user has
	 * as many signals pending as he may. */
	if (sig == INIT_KILL)
		number = 0;
	if (s->kind->reports_pids)
		return signal_directly(s, exec, sig, number, err);
	if (!s->kind->signals_execs && (exec || number))
		return signal_inside(s, exec, sig, number, err);
	return shim_kill(s, exec, sig, false, err);
}

int shim_let_go(struct shim *s, struct err *err)
{
	int r = run_errand(s, json_pack("[s,s]", INIT_PATH, "-f"), err);
	if (r < 0)
		return err_prefix(err, r, "make %s let go of folders", s->kind->name);
	return r == 0 ? 0 : err_set(err, -EIO, "what looks at other folders ended with %d", r);
}
