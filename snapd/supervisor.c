#include "snapd/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/frame.h"
#include "fs/base/log.h"
#include "fs/hold/hold.h"
#include "snapd/state.h"

enum {
	QUIT_WAIT_MS = 120000,
	LEAVE_WAIT_MS = 30000,
	READY_AGAIN_MS = 5000,
	DYING_TRIES = 400,
	HOLD_ANSWER_MS = 5000,
	HURRY = 10, /* steps of nice */
	AHEAD = 2,  /* of bough-fs, always: one and a half times the share of one that computes */
};

extern char **environ;

struct supervisor {
	char *root, *binary, *socket, *log, *transport; /* transport NULL: bough-fs's own default */
	struct supervisor_options opt;
	pthread_t thread;
	int wake; /* eventfd: stop or quit was asked for */
	int go;   /* eventfd, readable for ever once supervisor_go was called */

	pthread_mutex_t ending; /* of who ends the thread: one at a time; before the lock */
	bool joined;            /* by it */

	pthread_mutex_t lock; /* all below */
	struct supervisor_status status;
	bool stop, quit;

	/* the thread's own; of who ends it, once it is joined */
	pid_t child; /* to be reaped; 0: it isn't ours, or none runs */
	uint64_t up_since; /* clock_ms; 0: it isn't */
	uint64_t died;     /* clock_ms when the last one's end was noticed; 0: none has ended */
	unsigned useless;  /* that died before they were of use, in a row: each counts 1, or
	                      SUPERVISOR_CRASH when it was by its own fault */
	bool crashed;      /* the last that died did by its own fault */
	int nice;          /* as boughd's other threads have it */
};

static bool asked_to_end(struct supervisor *s)
{
	pthread_mutex_lock(&s->lock);
	bool end = s->stop || s->quit;
	pthread_mutex_unlock(&s->lock);
	return end;
}

/* Sleeps, unless asked to end. */
static void rest(struct supervisor *s, int ms)
{
	struct pollfd p = { .fd = s->wake, .events = POLLIN };
	(void)poll(&p, 1, ms); /* woken early: the caller looks why */
}

static void set_problem(struct supervisor *s, const char *text)
{
	pthread_mutex_lock(&s->lock);
	s->status.up = false;
	(void)snprintf(s->status.problem, sizeof(s->status.problem), "%.250s", text);
	pthread_mutex_unlock(&s->lock);
}

/* Its mounts outlive it. */
static bool held(const struct supervisor *s)
{
	return !s->transport || strcmp(s->transport, "ring") != 0;
}

/* ---- starting ---- */

/* Programs on the mounts wait: on a machine with more to do than it can, whoever lets them go on is
 * first, from the thread that notices the death up to the hello; if we may, and no harm if not. */
static void hurry(struct supervisor *s)
{
	errno = 0;
	s->nice = getpriority(PRIO_PROCESS, 0);
	if (errno)
		s->nice = 0;
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), s->nice - HURRY);
}

/* Where the kernel shares out time to sessions first (sched(7)), and only in them by nice. */
static void set_autogroup(int pid, int nice)
{
	char path[64];
	(void)snprintf(path, sizeof(path), "/proc/%d/autogroup", pid);
	auto_fd fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		(void)dprintf(fd, "%d", nice);
}

/* All threads of a bough-fs: each is a group and a session of its own. It stays ahead of any one
 * sandbox or session, since all of them wait for it. */
static void hurry_no_more(struct supervisor *s, int pid)
{
	(void)setpriority(PRIO_PGRP, (id_t)pid, s->nice - AHEAD);
	set_autogroup(pid, -AHEAD);
}

static int spawn(struct supervisor *s, struct err *err)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, all;
	char *argv[10] = { s->binary, (char[]){ "--foreground" }, (char[]){ "--root" }, s->root };
	char hold[] = "--hold", crashed[] = "--crashed", transport[] = "--transport";
	size_t n = 4;
	if (s->transport) {
		argv[n++] = transport;
		argv[n++] = s->transport;
	}
	if (held(s))
		argv[n++] = hold;
	if (held(s) && s->crashed)
		argv[n++] = crashed;
	auto_fd log = state_open_log(s->root, "bough-fs.log", err);
	if (log < 0)
		return log;
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attr);
	posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&files, log, 1);
	posix_spawn_file_actions_adddup2(&files, log, 2);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
						POSIX_SPAWN_SETSIGDEF);
	int r = -posix_spawn(&s->child, s->binary, &files, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	if (r < 0) {
		s->child = 0;
		return err_sys(err, r, "start %s", s->binary);
	}
	set_autogroup(s->child, -HURRY);
	pthread_mutex_lock(&s->lock);
	s->status.starts++;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

/* Killed by somebody, or ended by its own fault. */
static bool is_crash(int status)
{
	return WIFSIGNALED(status) ? WTERMSIG(status) != SIGKILL : WEXITSTATUS(status) != 0;
}

static void describe_end(int status, char *out, size_t size)
{
	if (WIFSIGNALED(status))
		(void)snprintf(out, size, "by signal %d (%s)", WTERMSIG(status),
			       strsignal(WTERMSIG(status)));
	else
		(void)snprintf(out, size, "with status %d", WEXITSTATUS(status));
}

/* True when our child has ended (and is reaped); why in words. */
static bool child_ended(struct supervisor *s, bool wait, char *why, size_t size)
{
	int status;
	if (s->child == 0)
		return false;
	pid_t pid = waitpid(s->child, &status, wait ? 0 : WNOHANG);
	if (pid == 0 || (pid < 0 && errno == EINTR))
		return false;
	s->child = 0;
	s->crashed = pid > 0 && is_crash(status);
	if (pid > 0)
		describe_end(status, why, size);
	else
		why[0] = '\0';
	return true;
}

static void *await_end(void *pid)
{
	while (waitpid((pid_t)(intptr_t)pid, NULL, 0) < 0 && errno == EINTR)
		;
	return NULL;
}

/* One whose threads take their time to end, in the disk or writing a core: the next one doesn't
 * wait for that, only for its lock. A thread stays behind until it can be reaped. */
static void leave_to_end(struct supervisor *s)
{
	pthread_t t;
	if (s->child == 0)
		return;
	if (pthread_create(&t, NULL, await_end, (void *)(intptr_t)s->child) == 0)
		(void)pthread_detach(t);
	else
		log_warn("bough-fs %d stays a zombie: no thread", s->child);
	s->child = 0;
}

/* The last line of bough-fs's log, to say why it didn't start. */
static void last_words(struct supervisor *s, char *out, size_t size)
{
	char tail[1024];
	struct stat st;
	out[0] = '\0';
	auto_fd fd = open(s->log, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return;
	off_t from = st.st_size > (off_t)sizeof(tail) - 1 ? st.st_size - (off_t)sizeof(tail) + 1
							  : 0;
	ssize_t n = pread(fd, tail, sizeof(tail) - 1, from);
	while (n > 0 && tail[n - 1] == '\n')
		n--;
	if (n <= 0)
		return;
	tail[n] = '\0';
	const char *line = strrchr(tail, '\n');
	(void)snprintf(out, size, "%.*s", (int)size - 1, line ? line + 1 : tail);
}

/* ---- the connection that is watched ---- */

/* What it says of itself. */
struct peer {
	int pid;
	json_int_t resumed; /* mounts that it went on with */
	char program[128];  /* hold_identity of its file */
};

/* Says hello; the descriptor, or -errno. */
static int greet(struct supervisor *s, struct peer *peer, struct err *err)
{
	static const char hello[] = "{\"op\":\"hello\"}";
	__attribute__((cleanup(frame_done))) struct frame f = { 0 };
	auto_fd fd = frame_connect(s->socket, err);
	if (fd < 0)
		return fd;
	buf_add(&f.text, hello, sizeof(hello) - 1);
	int r = frame_send(fd, &f, err);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	if (r >= 0 && poll(&p, 1, SUPERVISOR_START_MS) <= 0)
		r = err_set(err, -ETIMEDOUT, "bough-fs doesn't answer");
	if (r >= 0)
		r = frame_recv(fd, &f, err);
	if (r == 0 || r == -EPIPE)
		r = err_set(err, -ECONNRESET, "bough-fs hung up");
	if (r < 0)
		return r;
	json_t *j = json_loadb((const char *)f.text.data, f.text.len, 0, NULL);
	peer->pid = (int)json_integer_value(json_object_get(j, "pid"));
	const char *program = json_string_value(json_object_get(j, "program"));
	(void)snprintf(peer->program, sizeof(peer->program), "%s", program ? program : "");
	peer->resumed = json_integer_value(json_object_get(j, "resumed"));
	bool ok = json_is_true(json_object_get(j, "ok"));
	json_decref(j);
	if (!ok)
		return err_set(err, -EPROTO, "what listens on %s is no bough-fs", s->socket);
	return steal_fd(&fd);
}

/* Waits for a started child's hello, or that of one that a boughd before us had started. */
static int await_hello(struct supervisor *s, struct peer *peer, struct err *err)
{
	uint64_t until = clock_ms() + SUPERVISOR_START_MS;
	int nap_us = 500;
	char why[96], words[200];
	while (!asked_to_end(s)) {
		int fd = greet(s, peer, err);
		if (fd >= 0)
			return fd;
		if (child_ended(s, false, why, sizeof(why))) {
			last_words(s, words, sizeof(words));
			return err_set(err, -ECHILD, "bough-fs ended %s%s%s", why,
				       words[0] ? ": " : "", words);
		}
		if (clock_ms() > until)
			return err_set(err, -ETIMEDOUT,
				       "bough-fs doesn't answer %d s after its start",
				       SUPERVISOR_START_MS / 1000);
		usleep((useconds_t)nap_us);
		if (nap_us < 20000)
			nap_us *= 2;
	}
	return err_set(err, -ECANCELED, "boughd is ending");
}

enum watched { WATCH_DIED, WATCH_ASKED, WATCH_TIME };

/* Until it dies, we are asked to end, or wait_ms (-1: for good) are over. */
static enum watched watch(struct supervisor *s, int fd, int wait_ms)
{
	for (;;) {
		struct pollfd p[] = { { .fd = fd, .events = POLLIN | POLLRDHUP },
				      { .fd = s->wake, .events = POLLIN } };
		int n = poll(p, 2, wait_ms);
		if (n < 0 && errno != EINTR)
			return WATCH_DIED;
		if (n == 0)
			return WATCH_TIME;
		if (n > 0 && p[0].revents) /* it says nothing unasked, so this is its end */
			return WATCH_DIED;
		if (asked_to_end(s))
			return WATCH_ASKED;
	}
}

/* ---- the thread ---- */

/* Is there a holder? It ends by itself when it has no mount. */
static bool holds_mounts(struct supervisor *s)
{
	auto_free char *socket = NULL;
	if (asprintf(&socket, "%s/run/hold.sock", s->root) < 0) {
		socket = NULL;
		return false;
	}
	auto_fd fd = frame_connect(socket, NULL);
	return fd >= 0;
}

/* Tells the holder to let the mounts go: programs on them get errors instead of waiting. */
static void end_mounts(struct supervisor *s)
{
	__attribute__((cleanup(frame_done))) struct frame f = { 0 };
	auto_free char *socket = NULL;
	if (asprintf(&socket, "%s/run/hold.sock", s->root) < 0) {
		socket = NULL;
		return;
	}
	auto_fd fd = frame_connect(socket, NULL);
	if (fd < 0)
		return; /* it doesn't run: nothing is held */
	hold_encode(&f.text, HOLD_DROP_ALL, 0, NULL, 0);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	if (frame_send(fd, &f, NULL) < 0 || poll(&p, 1, HOLD_ANSWER_MS) <= 0)
		log_error("bough-hold doesn't let the mounts go");
}

/* Only who ends by its own fault is given time: who was killed was wanted dead, not late. */
static void pause_after_death(struct supervisor *s)
{
	unsigned crashes = s->useless / SUPERVISOR_CRASH;
	if (!s->crashed || crashes <= 2)
		return;
	unsigned doubled = crashes - 3 < 8 ? crashes - 3 : 8;
	int ms = SUPERVISOR_PAUSE_MS << doubled;
	rest(s, ms < SUPERVISOR_PAUSE_MAX_MS ? ms : SUPERVISOR_PAUSE_MAX_MS);
}

/* After a death or a failed start: says so, and rests when it happens again and again. */
static void mourn(struct supervisor *s, const char *text)
{
	char why[256];
	bool useful = s->up_since && clock_ms() - s->up_since >= SUPERVISOR_LIFE_MS;
	s->useless = useful ? 0 : s->useless + (s->crashed ? SUPERVISOR_CRASH : 1);
	s->up_since = 0;
	bool often = s->useless >= SUPERVISOR_USELESS * SUPERVISOR_CRASH;
	pthread_mutex_lock(&s->lock);
	s->status.deaths++;
	pthread_mutex_unlock(&s->lock);
	log_error("%s", text);
	if (often)
		(void)snprintf(why, sizeof(why), "%.150s (again and again; see %.60s)", text,
			       s->log);
	else
		(void)snprintf(why, sizeof(why), "%.250s", text);
	set_problem(s, why);
	if (!often) {
		pause_after_death(s);
		return;
	}
	fsclient_close_gate(s->opt.client, why);
	if (held(s)) {
		log_error("bough-fs died again and again without being of use: its mounts end");
		end_mounts(s);
	}
	rest(s, SUPERVISOR_REST_MS);
	if (!asked_to_end(s))
		fsclient_close_gate(s->opt.client, NULL); /* requests wait for this try */
}

static bool is_outdated(const struct supervisor *s, const struct peer *p)
{
	struct stat st;
	char now[sizeof(p->program)];
	if (!held(s) || !p->program[0] || stat(s->binary, &st) < 0)
		return false;
	(void)hold_identity(now, sizeof(now), &st); /* it fits */
	return strcmp(now, p->program) != 0;
}

/* Has it end and leave its mounts to the next. False: it stays, and is as good as before. */
static bool ask_to_leave(struct supervisor *s, int fd)
{
	struct err err;
	struct pollfd p = { .fd = fd, .events = POLLRDHUP };
	if (fsclient_direct(s->opt.client, json_pack("{s:s}", "op", "leave"), NULL, &err) < 0) {
		log_warn("bough-fs runs an older program and stays: %s", err.text);
		return false;
	}
	if (poll(&p, 1, LEAVE_WAIT_MS) <= 0) {
		log_warn("bough-fs doesn't leave");
		return false;
	}
	log_info("bough-fs ran an older program and has left; another goes on");
	return true;
}

static void kill_child(struct supervisor *s)
{
	char why[96];
	if (s->child == 0)
		return;
	(void)kill(s->child, SIGKILL);
	(void)child_ended(s, true, why, sizeof(why));
}

static int connect_or_start(struct supervisor *s, bool *fresh, struct err *err)
{
	struct peer p = { 0 };
	int fd = greet(s, &p, err);
	if (fd >= 0 && is_outdated(s, &p) && ask_to_leave(s, fd)) {
		cleanup_close(&fd);
		fsclient_close_gate(s->opt.client, NULL); /* its connections are dead */
		fd = greet(s, &p, err);
	}
	/* One that is dying still has a socket for a moment. */
	for (int i = 0; i < DYING_TRIES && fd == -ECONNRESET && !asked_to_end(s); i++) {
		usleep(5000);
		fd = greet(s, &p, err);
	}
	*fresh = false;
	if (fd == -ENOENT || fd == -ECONNREFUSED) {
		int r = spawn(s, err);
		if (r < 0)
			return r;
		fd = await_hello(s, &p, err);
		*fresh = p.resumed == 0;
		/* Another one was quicker, which a boughd before us had started: how ours ends says
		 * nothing of that one. */
		if (fd >= 0 && p.pid != s->child)
			kill_child(s);
	}
	if (fd >= 0 && p.pid > 0)
		hurry_no_more(s, p.pid);
	if (fd >= 0) {
		s->up_since = clock_ms();
		pthread_mutex_lock(&s->lock);
		s->status.pid = p.pid;
		pthread_mutex_unlock(&s->lock);
	}
	return fd;
}

/* Until supervisor_go, unless it dies or we are asked to end before. */
static enum watched await_go(struct supervisor *s, int fd)
{
	for (;;) {
		struct pollfd p[] = { { .fd = fd, .events = POLLIN | POLLRDHUP },
				      { .fd = s->wake, .events = POLLIN },
				      { .fd = s->go, .events = POLLIN } };
		if (poll(p, 3, -1) < 0)
			continue;
		if (p[0].revents)
			return WATCH_DIED;
		if (asked_to_end(s))
			return WATCH_ASKED;
		if (p[2].revents)
			return WATCH_TIME;
	}
}

/* Makes it usable for requests; tries again as long as it lives and that fails. */
static enum watched make_ready(struct supervisor *s, int fd, bool fresh)
{
	enum watched gone = await_go(s, fd);
	if (gone != WATCH_TIME)
		return gone;
	for (;;) {
		struct err err = { 0 };
		int r = s->opt.ready(s->opt.ctx, fresh, &err);
		if (r >= 0)
			break;
		if (r == -ECONNRESET)
			return WATCH_DIED;
		log_error("bough-fs: %s", err.text);
		set_problem(s, err.text);
		fsclient_close_gate(s->opt.client, err.text);
		enum watched w = watch(s, fd, READY_AGAIN_MS);
		if (w != WATCH_TIME)
			return w;
	}
	pthread_mutex_lock(&s->lock);
	s->status.up = true;
	s->status.problem[0] = '\0';
	int pid = s->status.pid;
	pthread_mutex_unlock(&s->lock);
	fsclient_open_gate(s->opt.client);
	if (s->child && s->died)
		log_info("bough-fs %d started, %" PRIu64 " ms behind the end of the last", pid,
			 s->up_since - s->died);
	else
		log_info("bough-fs %d %s", pid, s->child ? "started" : "taken over");
	return watch(s, fd, -1);
}

static void serve(struct supervisor *s, int fd, bool fresh)
{
	char why[96] = "", text[256];
	if (make_ready(s, fd, fresh) != WATCH_DIED)
		return;
	pthread_mutex_lock(&s->lock);
	bool meant = s->quit;
	s->status.up = false;
	s->status.pid = 0;
	pthread_mutex_unlock(&s->lock);
	fsclient_close_gate(s->opt.client, NULL);
	if (meant)
		return;
	s->died = clock_ms();
	s->crashed = false; /* as far as we know, unless it was our child */
	/* The socket closes a little before the process is a zombie. */
	for (int i = 0; i < 100 && s->child && !child_ended(s, false, why, sizeof(why)); i++)
		usleep(1000);
	leave_to_end(s);
	(void)snprintf(text, sizeof(text), "bough-fs ended%s%s", *why ? " " : "", why);
	mourn(s, text);
}

static void *supervise(void *arg)
{
	struct supervisor *s = arg;
	hurry(s);
	/* Where nobody waits on a mount, nothing is started for a boughd that may not live. */
	if (!held(s) || !holds_mounts(s))
		(void)await_go(s, -1);
	while (!asked_to_end(s)) {
		bool fresh;
		struct err err = { 0 };
		auto_fd fd = connect_or_start(s, &fresh, &err);
		if (fd >= 0) {
			serve(s, fd, fresh);
		} else if (fd != -ECANCELED) {
			bool killed = fd == -ECHILD && !s->crashed;
			kill_child(s);
			s->crashed = !killed;
			fsclient_close_gate(s->opt.client, err.text);
			mourn(s, err.text);
		}
	}
	fsclient_close_gate(s->opt.client, "boughd is ending");
	return NULL;
}

/* ---- life ---- */

int supervisor_start(struct supervisor **out, const struct supervisor_options *opt, struct err *err)
{
	struct supervisor *s = calloc(1, sizeof(*s));
	if (!s)
		return err_no_memory(err);
	s->opt = *opt;
	s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->go = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->ending, NULL);
	s->root = strdup(opt->root);
	s->binary = strdup(opt->binary);
	s->transport = opt->transport ? strdup(opt->transport) : NULL;
	int r = 0;
	if (s->wake < 0 || s->go < 0 || !s->root || !s->binary || (opt->transport && !s->transport))
		r = -ENOMEM;
	if (asprintf(&s->socket, "%s/run/fs.sock", opt->root) < 0) {
		s->socket = NULL;
		r = -ENOMEM;
	}
	if (asprintf(&s->log, "%s/run/bough-fs.log", opt->root) < 0) {
		s->log = NULL;
		r = -ENOMEM;
	}
	if (r >= 0)
		r = -pthread_create(&s->thread, NULL, supervise, s);
	if (r < 0) {
		s->joined = true; /* there is none */
		supervisor_free(s);
		return err_sys(err, r, "start the supervisor");
	}
	*out = s;
	return 0;
}

void supervisor_rescue(const char *root, const char *binary, const char *transport)
{
	char path[PATH_MAX];
	struct err err = { 0 };
	struct supervisor s = { .root = (char *)(uintptr_t)root,
				.binary = (char *)(uintptr_t)binary,
				.transport = (char *)(uintptr_t)transport };
	(void)snprintf(path, sizeof(path), "%s/run/fs.sock", root);
	auto_fd fd = frame_connect(path, NULL);
	if (fd >= 0 || !held(&s) || !holds_mounts(&s))
		return;
	log_info("the last boughd waits for a bough-fs, which is started");
	/* Nobody here is to reap it. */
	pid_t pid = fork();
	if (pid == 0) {
		pthread_mutex_init(&s.lock, NULL);
		_exit(spawn(&s, &err) < 0);
	}
	if (pid > 0)
		(void)waitpid(pid, NULL, 0); /* where it failed there is a next time */
}

void supervisor_go(struct supervisor *s)
{
	/* By the lock the thread sees what was made until now. */
	pthread_mutex_lock(&s->lock);
	(void)eventfd_write(s->go, 1); /* a counter never full here */
	pthread_mutex_unlock(&s->lock);
}

void supervisor_get(struct supervisor *s, struct supervisor_status *out)
{
	pthread_mutex_lock(&s->lock);
	*out = s->status;
	pthread_mutex_unlock(&s->lock);
}

/* Under the lock of who ends it. */
static void end_thread(struct supervisor *s, bool quit)
{
	if (s->joined)
		return;
	pthread_mutex_lock(&s->lock);
	if (quit)
		s->quit = true;
	else
		s->stop = true;
	pthread_mutex_unlock(&s->lock);
	(void)eventfd_write(s->wake, 1); /* a counter never full here */
	pthread_join(s->thread, NULL);
	s->joined = true;
}

/* Greets one that may be on its way up. Where there is none but mounts are kept, one is started:
 * only a server takes its mounts down in good order. */
static int greet_last(struct supervisor *s, struct peer *peer)
{
	struct err err;
	char why[96];
	bool started = false;
	uint64_t until = clock_ms() + QUIT_WAIT_MS;
	for (;;) {
		int fd = greet(s, peer, &err);
		if (fd >= 0 || clock_ms() > until)
			return fd;
		bool gone = s->child == 0 || child_ended(s, false, why, sizeof(why));
		if (gone && (started || !holds_mounts(s)))
			return fd;
		if (gone) {
			started = true;
			if (spawn(s, &err) < 0)
				return fd;
		}
		usleep(5000);
	}
}

static int end_server(struct supervisor *s, struct err *err)
{
	struct peer peer = { 0 };
	end_thread(s, true);
	auto_fd fd = greet_last(s, &peer);
	if (fd < 0) {
		kill_child(s);
		end_mounts(s);
		return 0; /* it doesn't run */
	}
	int r = fsclient_direct(s->opt.client, json_pack("{s:s}", "op", "quit"), NULL, err);
	if (r < 0 && r != -ECONNRESET)
		return err_prefix(err, r, "end bough-fs");
	struct pollfd p = { .fd = fd, .events = POLLRDHUP };
	if (poll(&p, 1, QUIT_WAIT_MS) == 0) {
		/* What it acknowledged survives that. Its mounts go at the next start. */
		log_error("bough-fs %d didn't end within %d s: it is killed", peer.pid,
			  QUIT_WAIT_MS / 1000);
		if (peer.pid > 0)
			(void)kill(peer.pid, SIGKILL);
		end_mounts(s);
	}
	char why[96];
	(void)child_ended(s, true, why, sizeof(why)); /* whatever way it went */
	return 0;
}

int supervisor_quit(struct supervisor *s, struct err *err)
{
	pthread_mutex_lock(&s->ending);
	int r = end_server(s, err);
	pthread_mutex_unlock(&s->ending);
	return r;
}

void supervisor_free(struct supervisor *s)
{
	if (!s)
		return;
	end_thread(s, false); /* nobody else is left */
	if (s->wake >= 0)
		close(s->wake);
	if (s->go >= 0)
		close(s->go);
	pthread_mutex_destroy(&s->ending);
	pthread_mutex_destroy(&s->lock);
	free(s->transport);
	free(s->log);
	free(s->socket);
	free(s->binary);
	free(s->root);
	free(s);
}
