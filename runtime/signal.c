/* Signals to the execs of runtimes whose processes aren't the host's (gVisor): the shim would
 * signal the program on the host that stands for the exec, which dies of it and leaves the exec
 * behind. So each exec's bough-init has a name, and a second exec looks for it inside. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
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

/* The one that sends it: root, who may signal whomever. */
static char *sender_spec(const char *exec, int sig)
{
	char number[16];
	(void)snprintf(number, sizeof(number), "%d", sig);
	json_t *o = json_pack("{s:[s,s,s,s], s:s, s:{s:i,s:i}, s:b, s:{s:[s],s:[s],s:[s]}}", "args",
			      INIT_PATH, "-s", exec, number, "cwd", "/", "user", "uid", 0, "gid", 0,
			      "noNewPrivileges", 1, "capabilities", "bounding", "CAP_KILL",
			      "effective", "CAP_KILL", "permitted", "CAP_KILL");
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	return text;
}

enum { SENDER_S = 10 /* it takes milliseconds */ };

/* Waits for its end, but not for ever: root inside may stop or freeze it. */
static int await_sender(struct shim *s, const char *id, struct shim_state *state, struct err *err)
{
	const struct itimerspec once = { .it_value = { .tv_sec = SENDER_S } };
	auto_fd timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	if (timer < 0 || timerfd_settime(timer, 0, &once, NULL) < 0)
		return err_sys(err, -errno, "set a timer");
	int r = shim_wait(s, id, timer, state, err);
	return r == -ECANCELED
		       ? err_set(err, -ETIMEDOUT, "what sends it didn't end within %d s", SENDER_S)
		       : r;
}

/* Runs it to its end: its exit code. */
static int run_sender(struct shim *s, const char *spec, struct err *err)
{
	char id[64];
	struct shim_state state;
	const struct shim_io none = { 0 };
	(void)snprintf(id, sizeof(id), "signal-%d-%llx", (int)gettid(),
		       (unsigned long long)clock_ns());
	int r = shim_exec_raw(s, id, &none, spec, strlen(spec), err);
	if (r < 0)
		return r;
	r = shim_start_process(s, id, NULL, err);
	if (r >= 0)
		r = await_sender(s, id, &state, err);
	(void)shim_delete(s, id, NULL, NULL); /* else it goes with the container */
	return r < 0 ? r : (int)state.exit_status;
}

int shim_signal_exec(struct shim *s, const char *exec, int sig, struct err *err)
{
	struct shim_state state;
	int r = shim_get(s, exec, &state, err);
	if (r < 0)
		return r;
	if (state.status == SHIM_STOPPED)
		return err_set(err, -ESRCH, "the process has ended");
	if (state.status != SHIM_RUNNING)
		return err_set(err, -EBUSY, "a process takes signals only while it runs");
	auto_free char *spec = sender_spec(exec, sig);
	if (!spec)
		return err_no_memory(err);
	r = run_sender(s, spec, err);
	if (r < 0)
		return err_prefix(err, r, "send a signal");
	if (r > 1)
		return err_set(err, -EIO, "what should have sent a signal ended with %d", r);
	return r == 0 ? 0 : err_set(err, -ESRCH, "the process has ended");
}
