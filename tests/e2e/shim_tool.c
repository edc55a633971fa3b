/* Every call of runtime/shim.h and runtime/output.h from a shell:
 *
 *     shim_tool KIND NS BUNDLE VERB ARGUMENT...
 *
 * prints what the call gave, as KEY=VALUE words; on failure the error's name and text, and ends
 * with 1. Processes are named by their exec id, "-" is the container's first. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "runtime/output.h"
#include "runtime/shim.h"

struct tool {
	struct shim_config config;
	char **args;
	int n;
};

static const char *arg(const struct tool *t, int i)
{
	return i < t->n && strcmp(t->args[i], "-") != 0 ? t->args[i] : NULL;
}

static uint32_t number(const struct tool *t, int i)
{
	return i < t->n ? (uint32_t)strtoul(t->args[i], NULL, 10) : 0;
}

static void show(const struct shim_state *s)
{
	static const char *const words[] = { "unknown", "created", "running", "stopped", "paused" };
	printf("status=%s pid=%u exit=%u exited=%d\n", words[s->status], s->pid, s->exit_status,
	       s->exited_ns > 0);
}

static int do_start(struct tool *t, struct err *err)
{
	auto_shim *s = NULL;
	return shim_start(&s, &t->config, err);
}

static int do_remove(struct tool *t, struct err *err)
{
	return shim_remove(&t->config, err);
}

/* IN OUT ERR TERMINAL UID */
static struct shim_io io_of(const struct tool *t, int at)
{
	return (struct shim_io){ .in = arg(t, at),
				 .out = arg(t, at + 1),
				 .err = arg(t, at + 2),
				 .terminal = number(t, at + 3) != 0,
				 .uid = number(t, at + 4),
				 .gid = number(t, at + 4) };
}

static int do_create(struct shim *s, struct tool *t, struct err *err)
{
	uint32_t pid = 0;
	const struct shim_io io = io_of(t, 0);
	int r = shim_create(s, &io, &pid, err);
	if (r >= 0)
		printf("pid=%u\n", pid);
	return r;
}

static int do_run(struct shim *s, struct tool *t, struct err *err)
{
	uint32_t pid = 0;
	int r = shim_start_process(s, arg(t, 0), -1, &pid, err);
	if (r >= 0)
		printf("pid=%u\n", pid);
	return r;
}

/* ID IN OUT ERR TERMINAL UID SPEC */
static int do_exec(struct shim *s, struct tool *t, struct err *err)
{
	auto_free char *spec = NULL;
	size_t len;
	const struct shim_io io = io_of(t, 1);
	int r = io_slurp(NULL, -100 /* AT_FDCWD */, t->args[6], 1 << 20, (void **)&spec, &len, err);
	return r < 0 ? r : shim_exec(s, t->args[0], &io, spec, len, err);
}

static int do_get(struct shim *s, struct tool *t, struct err *err)
{
	struct shim_state state;
	int r = shim_get(s, arg(t, 0), &state, err);
	if (r >= 0)
		show(&state);
	return r;
}

static int do_wait(struct shim *s, struct tool *t, struct err *err)
{
	struct shim_state state;
	int r = shim_wait(s, arg(t, 0), -1, &state, err);
	if (r >= 0)
		show(&state);
	return r;
}

/* A wait that is broken off. */
static int do_break(struct shim *s, struct tool *t, struct err *err)
{
	struct shim_state state;
	int fds[2];
	if (pipe(fds) < 0)
		return -errno;
	(void)close(fds[1]);
	return shim_wait(s, arg(t, 0), fds[0], &state, err);
}

/* The wait in two halves, as an event loop has it. */
static int do_poll(struct shim *s, struct tool *t, struct err *err)
{
	struct shim_state state;
	int fd = shim_wait_begin(s, arg(t, 0), err);
	if (fd < 0)
		return fd;
	int r = shim_wait_end(s, fd, &state, err);
	printf("at_once=%s ", r == -EAGAIN ? "not-yet" : r < 0 ? "failed" : "ended");
	(void)fflush(stdout);
	for (struct pollfd p = { .fd = fd, .events = POLLIN }; r == -EAGAIN;) {
		(void)poll(&p, 1, -1);
		r = shim_wait_end(s, fd, &state, err);
	}
	if (r >= 0)
		show(&state);
	return r;
}

static int do_delete(struct shim *s, struct tool *t, struct err *err)
{
	struct shim_state state;
	int r = shim_delete(s, arg(t, 0), &state, err);
	if (r >= 0)
		show(&state);
	return r;
}

static int do_kill(struct shim *s, struct tool *t, struct err *err)
{
	return number(t, 2) ? shim_kill_all(s, (int)number(t, 1), err)
			    : shim_signal(s, arg(t, 0), (int)number(t, 1), number(t, 3), err);
}

static int do_close(struct shim *s, struct tool *t, struct err *err)
{
	return shim_close_stdin(s, arg(t, 0), err);
}

static int do_resize(struct shim *s, struct tool *t, struct err *err)
{
	return shim_resize(s, arg(t, 0), number(t, 1), number(t, 2), err);
}

static int do_pause(struct shim *s, struct tool *t, struct err *err)
{
	return shim_pause(s, err);
}

static int do_resume(struct shim *s, struct tool *t, struct err *err)
{
	return shim_resume(s, err);
}

static int do_update(struct shim *s, struct tool *t, struct err *err)
{
	return shim_update(s, t->args[0], strlen(t->args[0]), err);
}

static int do_stats(struct shim *s, struct tool *t, struct err *err)
{
	struct shim_stats st;
	int r = shim_stats(s, &st, err);
	if (r >= 0)
		printf("cpu_ns=%" PRIu64 " memory=%" PRIu64 " peak=%" PRIu64 " limit=%" PRIu64
		       " pids=%" PRIu64 " pids_limit=%" PRIu64 " oom_kills=%" PRIu64 "\n",
		       st.cpu_ns, st.memory, st.memory_peak, st.memory_limit, st.pids,
		       st.pids_limit, st.oom_kills);
	return r;
}

static int do_pids(struct shim *s, struct tool *t, struct err *err)
{
	auto_free uint32_t *pids = NULL;
	size_t n;
	int r = shim_pids(s, &pids, &n, err);
	for (size_t i = 0; r >= 0 && i < n; i++)
		printf("%u\n", pids[i]);
	return r;
}

static int do_probe(struct tool *t, struct err *err)
{
	struct runtime_probe p;
	runtime_probe(t->config.kind, &p);
	printf("works=%d shim=%s binary=%s version=\"%s\" why=\"%s\"\n", p.works, p.shim, p.binary,
	       p.version, p.why);
	return 0;
}

/* OUT ERR N: the whole life of the bundle's process so often; the milliseconds of each step. */
static int do_bench(struct tool *t, struct err *err)
{
	static const char *const steps[] = { "start", "create", "run", "wait", "remove" };
	const struct shim_io io = { .out = t->args[0], .err = t->args[1] };
	for (uint32_t i = number(t, 2); i > 0; i--) {
		uint64_t at[6] = { clock_ns() };
		struct shim_state state;
		auto_shim *s = NULL;
		int r = shim_start(&s, &t->config, err);
		at[1] = clock_ns();
		r = r < 0 ? r : shim_create(s, &io, NULL, err);
		at[2] = clock_ns();
		r = r < 0 ? r : shim_start_process(s, NULL, -1, NULL, err);
		at[3] = clock_ns();
		r = r < 0 ? r : shim_wait(s, NULL, -1, &state, err);
		at[4] = clock_ns();
		r = r < 0 ? r : shim_remove(&t->config, err);
		at[5] = clock_ns();
		if (r < 0)
			return r;
		for (int j = 0; j < 5; j++)
			printf("%s=%.1f ", steps[j], (double)(at[j + 1] - at[j]) / 1e6);
		printf("all=%.1f\n", (double)(at[5] - at[0]) / 1e6);
	}
	return 0;
}

/* ---- output: the first argument is the folder, the second the process ---- */

static int do_io_start(struct tool *t, struct err *err)
{
	char program[4096];
	int r = runtime_program(program, sizeof(program), "bough-io");
	r = r < 0 ? r : output_start(t->args[0], program, err);
	if (r >= 0)
		printf("pid=%d\n", r);
	return r;
}

static int do_io_stop(struct tool *t, struct err *err)
{
	return output_stop(t->args[0], err);
}

/* DIR KEY IN TERMINAL */
static int do_io_open(struct tool *t, struct err *err)
{
	const struct output_config c = { .key = t->args[1],
					 .in = number(t, 2) != 0,
					 .terminal = number(t, 3) != 0 };
	return output_open(t->args[0], &c, err);
}

static int do_io_started(struct tool *t, struct err *err)
{
	return output_started(t->args[0], t->args[1], err);
}

static int do_io_finish(struct tool *t, struct err *err)
{
	return output_finish(t->args[0], t->args[1], 1000, err);
}

static int do_io_drop(struct tool *t, struct err *err)
{
	return output_drop(t->args[0], t->args[1], err);
}

static int do_io_status(struct tool *t, struct err *err)
{
	struct output_status s;
	int r = output_status(t->args[0], t->args[1], &s, err);
	if (r >= 0)
		printf("out=%" PRIu64 "-%" PRIu64 " err=%" PRIu64 "-%" PRIu64
		       " closed=%d%d in=%" PRIu64 "\n",
		       s.stream[0].first, s.stream[0].end, s.stream[1].first, s.stream[1].end,
		       s.stream[0].closed, s.stream[1].closed, s.in);
	return r;
}

/* DIR KEY STREAM OFFSET: what is kept from there on. */
static int do_io_read(struct tool *t, struct err *err)
{
	static char part[65536];
	uint64_t at = number(t, 3);
	for (int r;; at += (uint64_t)r) {
		r = output_read(t->args[0], t->args[1], number(t, 2), at, part, sizeof(part), err);
		if (r <= 0)
			return r;
		(void)fwrite(part, 1, (size_t)r, stdout);
	}
}

/* DIR KEY OFFSET TEXT */
static int do_io_write(struct tool *t, struct err *err)
{
	int r = output_write(t->args[0], t->args[1], number(t, 2), t->args[3], strlen(t->args[3]),
			     err);
	if (r >= 0)
		printf("taken=%d\n", r);
	return r;
}

static int do_io_close(struct tool *t, struct err *err)
{
	return output_close_input(t->args[0], t->args[1], err);
}

static const struct {
	const char *name;
	int args; /* at least */
	int (*bare)(struct tool *t, struct err *err);
	int (*with)(struct shim *s, struct tool *t, struct err *err);
} verbs[] = {
	{ "start", 0, do_start, NULL },         { "remove", 0, do_remove, NULL },
	{ "probe", 0, do_probe, NULL },         { "bench", 3, do_bench, NULL },
	{ "create", 5, NULL, do_create },       { "run", 1, NULL, do_run },
	{ "exec", 7, NULL, do_exec },           { "get", 1, NULL, do_get },
	{ "wait", 1, NULL, do_wait },           { "break", 1, NULL, do_break },
	{ "delete", 1, NULL, do_delete },       { "kill", 3, NULL, do_kill },
	{ "close", 1, NULL, do_close },         { "resize", 3, NULL, do_resize },
	{ "pause", 0, NULL, do_pause },         { "resume", 0, NULL, do_resume },
	{ "update", 1, NULL, do_update },       { "stats", 0, NULL, do_stats },
	{ "pids", 0, NULL, do_pids },           { "poll", 1, NULL, do_poll },
	{ "io-start", 1, do_io_start, NULL },   { "io-stop", 1, do_io_stop, NULL },
	{ "io-open", 4, do_io_open, NULL },     { "io-started", 2, do_io_started, NULL },
	{ "io-finish", 2, do_io_finish, NULL }, { "io-drop", 2, do_io_drop, NULL },
	{ "io-status", 2, do_io_status, NULL }, { "io-read", 4, do_io_read, NULL },
	{ "io-write", 4, do_io_write, NULL },   { "io-close", 2, do_io_close, NULL },
};

static int perform(struct tool *t, const char *verb, struct err *err)
{
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (strcmp(verbs[i].name, verb) != 0)
			continue;
		if (t->n < verbs[i].args)
			return err_set(err, -EINVAL, "%s needs %d arguments", verb, verbs[i].args);
		if (verbs[i].bare)
			return verbs[i].bare(t, err);
		auto_shim *s = NULL;
		int r = shim_reopen(&s, &t->config, err);
		return r < 0 ? r : verbs[i].with(s, t, err);
	}
	return err_set(err, -EINVAL, "no such verb: %s", verb);
}

int main(int argc, char **argv)
{
	struct err err = { 0 };
	if (argc < 5) {
		fprintf(stderr, "usage: shim_tool KIND NS BUNDLE VERB ARGUMENT...\n");
		return 2;
	}
	const char *slash = strrchr(argv[3], '/');
	struct tool t = { { .kind = runtime_find(argv[1]),
			    .ns = argv[2],
			    .bundle = argv[3],
			    .id = slash ? slash + 1 : argv[3],
			    .log = getenv("SHIM_LOG") },
			  argv + 5,
			  argc - 5 };
	if (!t.config.kind) {
		fprintf(stderr, "no such kind: %s\n", argv[1]);
		return 2;
	}
	int r = perform(&t, argv[4], &err);
	if (r < 0)
		printf("%s %s\n", strerrorname_np(-r), err.text);
	return r < 0;
}
